"""filbert serve: model folders in, their answers over HTTP out, to many clients and in several protocols."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    ModelOptions,
    model_options,
    refuse_options,
    result,
    say,
    typed,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from filbert.serve.process import Plan
    from filbert.serve.shelf import Shelf


PREFIX = "FILBERT"  # of variables
ELSEWHERE = ("FILBERT_ATTENTION",)  # read by others (nn.attention)
_OF_KUBERNETES = re.compile(r"FILBERT_(\w+_)?(SERVICE_(HOST|PORT)|PORT_[0-9])")


class Port(click.IntRange):
    """A port; Kubernetes sets FILBERT_PORT to tcp://… in every pod beside a service called filbert: that is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if isinstance(value, str) and value.startswith("tcp://"):
            say(
                f"note: FILBERT_PORT is {value!r}, which Kubernetes sets for a service of that name; it is passed over."
            )
            return 8000
        return super().convert(value, param, ctx)


# Every option can come from the environment as FILBERT_ and its name; --keys alone does not, since FILBERT_KEYS are
# the hashes themselves (serve.keys).
@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """What was given on the command line, beside what `command` names."""

    model: tuple[str, ...]
    name: str | None
    port: int
    host: str
    hosts: tuple[str, ...]
    workers: int
    task: str | None
    batch_tokens: int | None
    max_body: int
    max_texts: int
    max_tokens: int
    max_answer: int
    max_in_work: int
    queue: int
    deadline: float
    patience: float
    look: bool
    look_seconds: float
    drain: float
    keys: str | None
    cors: tuple[str, ...]
    log: str
    as_json: bool


@click.command("serve", context_settings={"auto_envvar_prefix": PREFIX})
@click.argument("model", nargs=-1, required=True, envvar="FILBERT_MODEL")
@click.option("--name", help="What clients call the model, where there is one; else the folder's name.")
@click.option("--port", type=Port(0, 65_535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option(
    "--hosts", multiple=True,
    help="Name by which clients may ask; may be repeated; * is any. Else those of this machine, where it listens to it "
    "alone.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes that answer.")
@click.option("--task", help="classify or pair, for a published folder, which does not say; else the folder's own.")
@model_options
@click.option("--batch-tokens", type=click.IntRange(1), help="Tokens read together; else what is fastest.")
@click.option("--max-body", type=click.IntRange(1), default=2_097_152, show_default=True, help="Bytes of a request.")
@click.option("--max-texts", type=click.IntRange(1), default=1000, show_default=True, help="Texts of a request.")
@click.option("--max-tokens", type=click.IntRange(1), default=200_000, show_default=True, help="Tokens of a request.")
@click.option("--max-answer", type=click.IntRange(1), default=2**25, show_default=True, help="Bytes of an answer.")
@click.option(
    "--max-in-work", type=click.IntRange(1), default=2**28, show_default=True,
    help="Bytes of all requests and answers in work.",
)  # fmt: skip
@click.option("--queue", type=click.IntRange(1), default=512, show_default=True, help="Requests that may wait.")
@click.option("--deadline", type=float, default=60.0, show_default=True, help="Seconds until an answer; then 504.")
@click.option(
    "--patience", type=float, default=10.0, show_default=True,
    help="Seconds for a request to come whole, and for each 64 kB of an answer to be read.",
)  # fmt: skip
@click.option("--look/--no-look", default=True, show_default=True, help="Whether clients may look inside a model.")
@click.option("--look-seconds", type=float, default=30.0, show_default=True, help="Seconds that a look may take.")
@click.option(
    "--drain", type=float, default=0.0, show_default=True,
    help="Seconds after SIGTERM in which it goes on, while /ready says 503.",
)  # fmt: skip
@click.option(
    "--keys", allow_from_autoenv=False, envvar="FILBERT_KEYS_FILE",
    help="File of the keys' SHA-256 hashes, one a line; also FILBERT_KEYS. Without: no keys.",
)  # fmt: skip
@click.option("--cors", multiple=True, help="Site whose pages may ask, e.g. https://example.org; may be repeated.")
@click.option(
    "--log", type=click.Choice(["none", "errors", "requests"]), default="errors", show_default=True,
    help="What goes to standard error as JSON, never with a user's text.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, envvar="FILBERT_JSON", help="Print one JSON object instead of text.")
@typed(Options)
def command(options: Options) -> None:
    """Answer over HTTP as `predict` does, to many at once; MODEL is a folder, a run, `builtin`, or NAME=FOLDER.

    POST /predict takes {"texts": ["…"]}; /v1/embeddings, /embed, /rerank and /models/NAME are as clients of OpenAI,
    text-embeddings-inference and huggingface_hub expect them; /openapi.json lists all; / is a page to type into.
    Requests that come together are read together. Ctrl-C or SIGTERM answers what was accepted, then ends. Every option
    can come from the environment: FILBERT_PORT, FILBERT_MAX_TEXTS, FILBERT_KEYS_FILE, …; several values by spaces.
    """
    import os
    import sys
    from dataclasses import replace

    # Before NumPy is there: the threads of a queue work alone, and those of OpenBLAS would take the cores from them,
    # most of the time waiting (experiments/2026-11-16-serving.md). Workers inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from filbert.core.errors import needed
    from filbert.serve.metrics import Tally
    from filbert.serve.process import run
    from filbert.serve.workers import Supervisor

    _note_unread(os.environ)
    needed("uvicorn", "serve")
    needed("fastapi", "serve")
    plan = _plan(options)
    listening = _listening(options.host, options.port)
    plan = replace(plan, hosts=_hosts(options.hosts, options.host, listening.getsockname()[0]))
    where = "http://{}:{}/".format(*_address(listening))

    def ready(shelf: Shelf | None = None) -> None:
        if options.as_json:
            result({"url": where, "models": dict(plan.models), "workers": options.workers})
            sys.stdout.flush()  # whoever started it reads this line while it goes on
            return
        tasks = {name: one.task or "a pretrained model" for name, one in shelf.loaded.items()} if shelf else {}
        listed = ", ".join(f"{name} ({tasks[name]})" if name in tasks else name for name, _ in plan.models)
        say(f"{listed}: {where} (a page) and {where}predict; Ctrl-C ends it.")

    if options.workers == 1:
        run(plan, listening, Tally([name for name, _ in plan.models]), ready)
    else:
        Supervisor(plan, listening, options.workers).run(ready)


def _note_unread(environment: Mapping[str, str]) -> None:
    """Names the variables that look like options and are none; but for what Kubernetes sets beside a service."""
    from filbert.core.errors import did_you_mean

    variables = {
        f"{PREFIX}_{option.lstrip('-').replace('-', '_').upper()}"
        for parameter in command.params
        for option in parameter.opts
    }
    variables |= {f"{PREFIX}_KEYS_FILE", *ELSEWHERE}
    for name, value in sorted(environment.items()):
        is_kubernetes = _OF_KUBERNETES.match(name) or value.startswith("tcp://")
        if name.startswith(f"{PREFIX}_") and name not in variables and not is_kubernetes:
            say(f"note: {name} is no option of serve; it is passed over.{did_you_mean(name, variables)}")


def _plan(options: Options) -> Plan:
    from filbert.core.errors import InputError
    from filbert.serve import guard
    from filbert.serve.keys import hashes
    from filbert.serve.limits import Limits
    from filbert.serve.process import Plan

    if options.name and len(options.model) > 1:
        raise InputError("--name is for one model; name several as one=DIR two=DIR.")
    if not options.look:
        refuse_options(["look_seconds"], "is of a look inside a model, which --no-look takes away")
    for name, seconds, least in (
        ("deadline", options.deadline, 1e-3), ("patience", options.patience, 1e-3),
        ("look-seconds", options.look_seconds, 0), ("drain", options.drain, 0),
    ):  # fmt: skip
        if not least <= seconds < math.inf:
            raise InputError(f"--{name} is {seconds:g}, but must be a number of seconds of {least:g} or more.")
    limits = Limits(
        body_bytes=options.max_body, texts=options.max_texts, tokens=options.max_tokens,
        waiting=options.queue, batch_tokens=options.batch_tokens or 0, deadline_s=options.deadline,
        patience_s=options.patience, answer_bytes=options.max_answer, held_bytes=options.max_in_work,
        look_s=options.look_seconds if options.look else 0.0,
    )  # fmt: skip
    models = tuple(_named(word, options.name) for word in options.model)
    return Plan(
        models=models, task=options.task, device=options.device, runtime=options.runtime, dtype=options.dtype,
        limits=limits, keys=hashes(options.keys),
        origins=tuple(map(guard.origin, options.cors)), hosts=_hosts(options.hosts, options.host),
        drain_s=options.drain, log=options.log,
    )  # fmt: skip


def _hosts(names: tuple[str, ...], host: str, address: str = "") -> tuple[str, ...]:
    """The names by which it may be asked, as given; without any those of this machine, if it listens to it alone.

    Else a page that someone on this machine opens could ask by a name of its own that leads here (DNS rebinding).
    host: where it was told to listen; address: where it does, which is known once it does.
    """
    import ipaddress

    from filbert.serve.guard import ANY, LOOPBACK, host_name

    if names:
        return tuple(map(host_name, names))
    try:
        is_local = ipaddress.ip_address(address or host).is_loopback
    except ValueError:
        is_local = False
    local_names = [f"[{name}]" if ":" in name else name.lower().rstrip(".") for name in (host, address or host)]
    return tuple(dict.fromkeys((*LOOPBACK, *local_names))) if is_local else (ANY,)


def _named(word: str, name: str | None) -> tuple[str, str]:
    """The name and the folder of NAME=FOLDER, or of a folder, whose name it is; of a run it is the run's."""
    import os
    from pathlib import Path

    left, equals, path = word.partition("=")
    if equals and "/" not in left and not Path(word).exists():
        return left, path
    if word == "builtin":
        return name or word, word
    folder = Path(os.path.abspath(word))
    return name or (folder.parent.name if folder.name == "model" else folder.name), word


def _listening(host: str, port: int) -> socket.socket:
    import socket

    from filbert.core.errors import InputError

    if not host:
        raise InputError("--host is empty, which would be every address; give one, or 0.0.0.0 for every one.")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2_048, reuse_port=False)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{host}:{port}: cannot listen there ({why}); choose another --port.") from None


def _address(listening: socket.socket) -> tuple[str, int]:
    host, port = listening.getsockname()[:2]
    return (f"[{host}]" if ":" in host else host), port
