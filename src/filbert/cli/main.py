"""The command `filbert`: words of the command line in, one of the files beside this one runs; exit code out.

A command is a file here that holds a click command named `command`; the folder is the list. Files import what is heavy
inside their functions, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys

from filbert.core import interrupts

if os.path.basename(sys.argv[0]) == "filbert" or sys.argv[0].endswith(os.path.join("filbert", "__main__.py")):
    interrupts.heed()  # this process is the command; what follows takes long enough to be interrupted

import contextlib
import gc
import importlib
from pathlib import Path
from typing import Any

import click

from filbert.cli import output, shared
from filbert.core.errors import FilbertError, did_you_mean
from filbert.core.version import VERSION

NOT_COMMANDS = {"__init__", "asking", "main", "output", "shared"}
# As a newcomer meets them; others follow by name.
ORDER = (
    "demo", "doctor", "vocab", "pretrain", "finetune", "evaluate", "predict", "compare", "translate", "summarize",
    "chat", "write", "fill", "embed", "explain", "attend", "probe", "prune", "distill", "import", "export", "verify",
    "serve",
)  # fmt: skip


class House(click.Group):
    """A group whose commands are the files beside this one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, a newcomer's first."""
        present = {p.stem.removesuffix("_") for p in Path(__file__).parent.glob("*.py") if p.stem not in NOT_COMMANDS}
        return [name for name in ORDER if name in present] + sorted(present - set(ORDER))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, imported now; a file whose name is a Python word ends in an underscore."""
        if name not in self.list_commands(ctx):
            return None
        stem = name + "_" if name == "import" else name
        command: click.Command = importlib.import_module(f"filbert.cli.{stem}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with a guess at what was meant."""
        name = args[0]
        if not name.startswith("-") and name not in (names := self.list_commands(ctx)):
            ctx.fail(f"there is no command '{name}'; there are: {', '.join(names)}.{did_you_mean(name, names)}")
        output.check_ranks(name)
        resolved = _, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            shared.check_once(command, click.Context(command, ctx, name, resilient_parsing=True), rest)
        return resolved

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """As click does; see `invoke`."""
        try:
            return super().make_context(*args, **more)
        except OSError as error:
            raise output.refusal(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; an OSError becomes a sentence, before click takes a broken pipe for an exit."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise output.refusal(error) from error


@click.group(cls=House, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="filbert")
def filbert() -> None:
    """From raw text and a few labels to a fast, explained, served BERT of your own, offline and in any language.

    Results go to standard output, progress and notes to standard error. Every command takes --json.
    """


def main() -> None:
    """Runs a command; every refusal is one sentence, never a traceback."""
    output.open_closed()
    output.write_anything()
    with output.watched():
        code = _ended()
        output.let_go()
    interrupts.heed_no_more()
    gc.freeze()  # nothing is left to collect: walking all of torch's objects once more would take half a second
    sys.exit(code if isinstance(code, int) else 0)


def _ended() -> Any:
    """Runs a command; its exit code."""
    try:
        code = filbert.main(standalone_mode=False)
        output.flush()
    except FilbertError as error:
        output.say(f"filbert: {error}")
        code = error.exit_code
        _leave(code)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        output.say("filbert: this command needs torch, which is not installed: pip install 'filbert[train]'")
        code = 2
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        code = _interrupted()
    except output.ReaderLeftError:
        code = output.READER_LEFT
    except Exception:
        if not interrupts.signalled():
            raise
        code = _interrupted()  # which a library turned into an error of its own
    return code


def _interrupted() -> int:
    output.say(interrupts.SENTENCE)
    _leave(interrupts.CODE)
    return interrupts.CODE


def _leave(code: int) -> None:
    """Of several ranks, one that failed ends at once: gloo, taken down in order, would wait for the others."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        output.let_go()
        os._exit(code)
