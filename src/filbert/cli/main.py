"""The command `filbert`: words of the command line in, one of the files beside this one runs; exit code out.

A command is a file here that holds a click command named `command`; the folder is the list. Files import what is heavy
inside their functions, so that `--help` answers at once.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import click

from filbert.core.errors import FilbertError, did_you_mean
from filbert.core.version import VERSION

NOT_COMMANDS = {"__init__", "main", "shared"}
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
        found = {p.stem.removesuffix("_") for p in Path(__file__).parent.glob("*.py") if p.stem not in NOT_COMMANDS}
        return [name for name in ORDER if name in found] + sorted(found - set(ORDER))

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
        return super().resolve_command(ctx, args)


@click.group(cls=House, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="filbert")
def filbert() -> None:
    """From raw text and a few labels to a fast, explained, served BERT of your own, offline and in any language.

    Results go to standard output, progress and notes to standard error. Every command takes --json.
    """


def main() -> None:
    """Runs a command; every refusal is one sentence, never a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot write a character shows its number instead
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = filbert.main(standalone_mode=False)
        sys.stdout.flush()
    except FilbertError as error:
        click.echo(f"filbert: {error}", err=True)
        code = error.exit_code
        _leave(code)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        click.echo("filbert: this command needs torch, which is not installed: pip install 'filbert[train]'", err=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("filbert: interrupted.", err=True)
        code = 130
        _leave(code)
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    gc.freeze()  # nothing is left to collect: walking all of torch's objects once more would take half a second
    sys.exit(code if isinstance(code, int) else 0)


def _leave(code: int) -> None:
    """Of several ranks, one that failed ends at once: gloo, taken down in order, would wait for the others."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
