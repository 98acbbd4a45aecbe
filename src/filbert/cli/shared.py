"""What the commands have in common: options, results on standard output, notes and progress on standard error."""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from filbert.core import names, registry

if TYPE_CHECKING:
    from filbert.core.records import Document
    from filbert.engine.model import Model
    from filbert.forms.sources import ReadOptions

    Choice = click.Choice[str]
else:
    Choice = click.Choice  # whose older versions know no kinds


class LearntTask(Choice):
    """The name of a task that can be fine-tuned; which there are is read when it is asked, since records import NumPy
    and `filbert --help` looks at every command."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """Their names, sorted."""
        return registry.tasks(only_learnt=True)


class ProbedTask(LearntTask):
    """The name of a task whose labels a probe can read off a layer."""

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """Their names, sorted."""
        return tuple(name for name in registry.tasks() if registry.task(name).probe is not None)


class UsualTask(click.Option):
    """An option whose default is `usual_task`, which is read when it is needed."""

    @property
    def default(self) -> str:
        """Its name."""
        return usual_task()

    @default.setter
    def default(self, value: object) -> None:
        """Click sets what it was given, which is nothing."""


def usual_task() -> str:
    """The default task for a text and a label."""
    from filbert.tasks.task import Trait

    return registry.tasks_with(Trait.USUAL)[0]


class Trains(click.Command):
    """A command with fields of a recipe, which knows what they are called elsewhere: --lr is train.learning_rate."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, once names of other libraries are ours."""
        return super().parse_args(ctx, list(_renamed(args, self.option_names)))

    @property
    def option_names(self) -> set[str]:
        """The options that it has."""
        return {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}


def _renamed(args: list[str], options: set[str]) -> Iterator[str]:
    """The words of a command line; an unknown option of another library is renamed, or refused with advice."""
    words, renamed = iter(args), {*names.SETTINGS, *names.ARGUMENTS, *names.ADVICE}
    for word in words:
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_")
        if word == "--":
            yield from [word, *words]
        elif option in options or not option.startswith("-") or name not in renamed:
            yield word
        elif name in names.SETTINGS:
            options_set = value if equals else next(words, None)
            if options_set is None:
                raise click.UsageError(f"{option} needs a value; it is --set {names.SETTINGS[name]}=….")
            yield from ["--set", f"{names.SETTINGS[name]}={options_set}"]
        elif f"--{names.ARGUMENTS.get(name)}" in options:
            yield f"--{names.ARGUMENTS[name]}{equals}{value}"
        else:
            advice = names.ADVICE.get(name, "filbert COMMAND --help lists what there is.")
            raise click.UsageError(f"there is no option {option}: {advice} Fields of the recipe are given with --set.")


Command = TypeVar("Command", bound=Callable[..., Any])
Thing = TypeVar("Thing")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What `model_options` say."""

    device: str
    runtime: str | None
    dtype: str


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """What `corpus_options` say."""

    field: str | None
    encoding: str
    errors: str
    unit: str


def typed(record: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that gets its options in a record, as `options`: each field of the name that click has for it."""
    names = {each.name for each in fields(record)}

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**values: object) -> None:
            options = record(**{name: values.pop(name) for name in names})
            command(**values, options=options)

        return call

    return wrap


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
encoding_option = click.option(
    "--encoding", default="utf-8", show_default=True, help="Encoding of text files, e.g. gb18030."
)
data_encoding_option = click.option(
    "--encoding", help="Encoding of text files.  [default: utf-8, or that of the data the model learnt from]"
)
errors_option = click.option(
    "--errors",
    type=click.Choice(["strict", "replace"]),
    default="strict",
    show_default=True,
    help="Bytes that do not decode: refuse the file, or replace and count them.",
)
device_option = click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
field_option = click.option("--field", help="Column that holds the text, in CSV, TSV, JSONL and Parquet files.")


def model_options(command: Command) -> Command:
    """Where and in what numbers a model computes: options of every command that asks one."""
    runtime = click.option(
        "--runtime", type=click.Choice(["torch", "onnx"]), help="onnx: an exported folder, without torch."
    )
    dtype = click.option(
        "--dtype", default="float32", show_default=True, help="int8 with onnx; float16, bfloat16 with torch."
    )
    for option in (dtype, runtime, device_option):
        command = option(command)
    return command


def options_set(names: Iterable[str]) -> list[str]:
    """Those of these options that were set on the command line or by the environment."""
    from click.core import ParameterSource

    context, usual = click.get_current_context(), (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    parameters = [parameter for parameter in context.command.params if parameter.name in set(names)]
    return [
        max(each.opts, key=len) for each in parameters if context.get_parameter_source(each.name or "") not in usual
    ]


def refuse_options(names: Iterable[str], why: str) -> None:
    """Refuses the first of these options that was set; why: what it is for, or why it would change nothing."""
    for option in options_set(names):
        raise click.UsageError(f"{option} {why}.")


def refuse_for_texts(here: Sequence[object], names: Iterable[str]) -> None:
    """Refuses options that say how files are read where texts were given as options."""
    if here:
        refuse_options(
            names, "says how the files of --data are read; texts that are given as options are read as they are"
        )


def check_force(*, force: bool, resume: bool) -> None:
    """Refuses --force of a run that is not to go on."""
    if force and not resume:
        raise click.UsageError("--force goes on with a run although something changed: give --resume too.")


def check_once(command: click.Command, context: click.Context, args: Sequence[str]) -> None:
    """Refuses an option that is set twice, of which only the last would count; of --set a note is printed."""
    words = list(args)
    if isinstance(command, Trains):
        words = list(_renamed(words, command.option_names))
    options_set, _, order = command.make_parser(context).parse_args(
        words
    )  # what else is wrong the command itself tells
    seen: dict[str, str] = {}
    for word in options_set.get("settings") or ():
        name, value = (part.strip() for part in str(word).partition("=")[::2])
        if seen.get(name, value) != value:
            say(f"note: {name} is set to {seen[name]} and then to {value}, which counts.")
        seen[name] = value
    for parameter, count in Counter(order).items():
        if count < 2 or not isinstance(parameter, click.Option) or parameter.multiple:
            continue
        if not parameter.is_flag or parameter.secondary_opts:
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} is given {count} times, but takes one value.", context)


def load_model(model: str, options: ModelOptions) -> Model:
    """The model, where and in the numbers that `model_options` say."""
    from filbert import load

    return load(model, device=options.device, runtime=options.runtime, dtype=options.dtype)


def corpus_options(command: Command) -> Command:
    """The options of every command that reads a corpus."""
    unit = click.option(
        "--unit",
        type=click.Choice(["blank", "line", "file"]),
        default="blank",
        show_default=True,
        help="Where a document ends in plain text: at a blank line, at each line, or with the file.",
    )
    for option in (errors_option, encoding_option, unit, field_option):
        command = option(command)
    return command


def corpus(sources: Sequence[str], options: CorpusOptions) -> Iterator[Document]:
    """The documents that `corpus_options` describe; what was skipped or mended is printed at the end."""
    from filbert.text.corpus import CorpusReport, documents

    report = CorpusReport()
    yield from documents(
        list(sources), report=report, field=options.field, encoding=options.encoding, errors=options.errors,
        unit=options.unit,
    )  # fmt: skip
    for note in report.remarks():
        say(f"note: {note}")


def say(note: str) -> None:
    """A note to the person at the terminal."""
    click.echo(note, err=True)


def result(value: object) -> None:
    """One JSON object on standard output; escaped where that cannot write a character of it, so that none is lost."""
    click.echo(json_line(value))


def json_line(value: object) -> str:
    """The value as JSON that standard output can write."""
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return line


def progress(
    things: Iterable[Thing], total: int | None = None, unit: str = "it", quiet: bool = False
) -> Iterator[Thing]:
    """The same things, with a bar on standard error where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield from things
        return
    from tqdm import tqdm

    yield from tqdm(things, total=total, unit=unit, file=sys.stderr)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side; a Chinese character takes two places, as terminals show it."""
    import unicodedata

    def width(text: str) -> int:
        return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)

    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell + " " * (w - width(cell)) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def read_options(columns: str | None, encoding: str | None, trained_on: ReadOptions | None = None) -> ReadOptions:
    """How the files of --data are read, as --columns and --encoding say."""
    from filbert.forms.sources import ReadOptions

    return ReadOptions(columns=roles(columns), encoding=encoding, trained_on=trained_on)


def roles(columns: str | None) -> dict[str, str | int] | None:
    """{"text": "review", "label": 2} from text=review,label=2."""
    named: dict[str, str | int] = {}
    for options_set in (columns or "").split(",") if columns else ():
        role, equals, name = options_set.strip().partition("=")
        if not (role and equals and name):
            raise click.BadParameter(f"'{options_set}' must be ROLE=NAME, e.g. text=review,label=2.")
        named[role] = int(name) if name.isdigit() else name
    return named or None
