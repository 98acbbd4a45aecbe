"""Texts of any number in, what a fine-tuned model says of each out, in order; and a file of it that no crash loses."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filbert.artefact.manifest import pooling
from filbert.artefact.weights import inside, small_json
from filbert.core.errors import InputError, one_of
from filbert.core.records import Example, Prediction
from filbert.core.registry import member, members, naming
from filbert.core.settings import parsed
from filbert.data.markup import Relation

if TYPE_CHECKING:
    from filbert.artefact.folder import Loaded
    from filbert.artefact.portable import Portable

    Found = Loaded | Portable  # a model folder, with torch or without

TASK = "task.json"  # in a model folder: how texts are read and pooled before the head
MANY, TOP = 50, 20  # of more labels than that only so many are written with a text, unless more are asked for
CHUNK, CHUNK_CHARS = 2_048, 2_000_000  # texts, and characters of them, that are answered together


Asked = str | tuple[Any, ...]  # a text, a pair of them, or what the task's `examples` takes


class Predicts(Protocol):
    """What answers: `infer.model.Model`."""

    def predict(self, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
        """One prediction for each text or pair."""
        ...


def answered(
    model: Predicts, examples: Iterable[Example], task: str | None = None
) -> Iterator[list[tuple[Example, Prediction]]]:
    """Every example with its prediction, some at a time. Where reading fails, all that was read is answered first."""
    waiting: list[Example] = []
    failed: Exception | None = None
    size = 0

    def flushed() -> list[tuple[Example, Prediction]]:
        done = list(zip(waiting, model.predict([asked(example) for example in waiting], task=task), strict=True))
        waiting.clear()
        return done

    reader = iter(examples)
    while True:
        try:
            example = next(reader)
        except StopIteration:
            break
        except Exception as error:
            failed = error
            break
        waiting.append(example)
        size += sum(map(len, example.texts))
        if len(waiting) == CHUNK or size > CHUNK_CHARS:
            yield flushed()
            size = 0
    if waiting:
        yield flushed()
    if failed is not None:
        raise failed


def asked(example: Example) -> Asked:
    """What the model is to read of it: a text, a pair, (text, head, tail) or (passage, question, options)."""
    first, *others = example.texts
    if isinstance(example.gold, Relation):
        head, tail = example.gold.head, example.gold.tail
        return first, (head.start, head.end), (tail.start, tail.end)
    if len(others) > 1:
        return first, others[0], others[1:]
    return (first, *others) if others else first


def record(task: str, example: Example, said: Prediction, top: int | None = None) -> dict[str, Any]:
    """One result as it is written: where the text stood, the texts, and what the task says of them."""
    place = {"line": example.line} if example.line else {}
    texts = dict(zip(("text", "second"), example.texts, strict=False))
    return {**place, **texts, **member("tasks", task).record(example, said, top), "coverage": said.coverage}


def usual_top(num_labels: int) -> int | None:
    """How many labels are written with each text where nobody says: all, or of many the likeliest."""
    return TOP if num_labels > MANY else None


@dataclass(frozen=True, slots=True)
class Place:
    """How far a file of results came: so many, and where the last text stood."""

    count: int
    line: int
    texts: tuple[str, ...]


class Results:
    """A file of results, one JSON object a line. Each chunk is on the disk before the next is begun."""

    def __init__(self, path: Path | str, resume: bool = False) -> None:
        self.path, self.count, self.torn = Path(path), 0, False
        if not self.path.absolute().parent.is_dir():
            raise InputError(f"{path}: its folder does not exist; make it first, so that no work is done in vain.")
        if self.path.exists() and not resume:
            raise InputError(f"{path}: is there already; go on with --resume, or choose another --out.")
        self.before = self._before() if self.path.exists() else None

    def _before(self) -> Place | None:
        """What an earlier run left; a last line that was not finished is cut off."""
        count, whole, last = 0, 0, b""
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    count, whole, last = count + 1, whole + len(line), line
        if whole < self.path.stat().st_size:
            self.torn = True
            os.truncate(self.path, whole)
        if not count:
            return None
        self.count = count
        try:
            found = json.loads(last)
            texts = (found["text"], *([found["second"]] if "second" in found else []), *found.get("options", ()))
            return Place(count, int(found.get("line", 0)), texts)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{self.path} line {count}: is not a result that predict wrote; choose another --out."
            ) from None

    def rest(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The examples that have no result yet; those that have one must be the same as then."""
        before, number = self.before, 0
        for number, example in enumerate(examples, 1):
            if before is None or number > before.count:
                yield example
            elif number == before.count and (example.line, example.texts) != (before.line, before.texts):
                self._other(number)
        if before is not None and number < before.count:
            self._other(number)

    def _other(self, number: int) -> None:
        raise InputError(
            f"{self.path}: its {self.count:,} results are not of this data, whose text {number:,} is another; "
            f"choose another --out."
        )

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Adds these; when it returns they are on the disk."""
        lines = "".join(json.dumps(found, ensure_ascii=False) + "\n" for found in records)
        with self.path.open("ab") as file:
            file.write(lines.encode("utf-8", "surrogatepass"))
            file.flush()
            os.fsync(file.fileno())
        self.count += len(records)


def said_of(found: Found) -> dict[str, Any]:
    """What the folder's task.json says, unchecked."""
    return dict(small_json(inside(found.folder, TASK)))


def _plain(found: Found, module: Any) -> dict[str, Any]:
    """How a folder that was fine-tuned for nothing reads texts for a task without a head: as its maker says."""
    if module.HEAD:
        return {"max_length": min(module.Config.max_length, found.config.max_length)}
    pool = pooling(found.folder)
    return {"max_length": found.config.max_length, **({"pool": pool} if pool else {})}


def begun(
    labels: Sequence[str], reading: tuple[str, Any], texts: Sequence[str], how: tuple[Any, Any]
) -> tuple[Sequence[str], Any]:
    """The labels to choose among, and the config with what the model itself must be asked first.

    how: the tokenizer, and what answers a task with this model. The tasks that have need of it name it `primed`.
    """
    module, config = member("tasks", reading[0]), reading[1]
    if not hasattr(module, "primed"):
        return labels, config
    labels = module.label_names(config, ()) or labels
    return labels, module.primed(config, labels, how[0], texts, how[1])


def peeked(examples: Iterable[Example], count: int) -> tuple[list[Example], Iterator[Example]]:
    """The first so many examples, fewer of long ones, and all of them; where reading fails, it fails there."""
    reader, first = iter(examples), list[Example]()
    failed: list[Exception] = []
    size = 0
    try:
        for example in itertools.islice(reader, count):
            first.append(example)
            size += sum(map(len, example.texts))
            if size > CHUNK_CHARS:
                break
    except Exception as error:
        failed.append(error)

    def rest() -> Iterator[Example]:
        yield from first
        if failed:
            raise failed[0]
        yield from reader

    return first, rest()


def _asked_names(found: Found, task: str | None) -> Sequence[str]:
    """The tasks to look at: the folder's own where it says one, since to import all takes a tenth of a second."""
    own = str(said_of(found).get("task")) if (found.folder / TASK).exists() else ""
    is_told = own in members("tasks") and task in (None, own) and hasattr(member("tasks", own), "HEAD")
    return (own,) if is_told else naming("tasks", "HEAD")


def read_as(found: Found, task: str | None = None, settings: Sequence[str] = ()) -> tuple[str, Any]:
    """The folder's task and how it reads texts: as its task.json says, or as published folders do.

    Published folders with labels do not say whether they read texts or pairs: `task` does, or they read texts.
    settings: fields that are to be otherwise, as `task.field=value`.
    """
    modules = {name: member("tasks", name) for name in _asked_names(found, task)}
    if task is not None and task not in modules:
        raise one_of("the task", task, modules)
    heads = {name: getattr(module, "HEADS", (module.HEAD,)) for name, module in modules.items()}
    fitting = [name for name, several in heads.items() if not all(several) or {*several} & {*found.model.parts}]
    told = [name for name in fitting if hasattr(modules[name], "published")]  # the head itself says what it is for
    path = found.folder / TASK
    if not told and task is None and not path.exists():
        raise InputError(f"{found.folder}: has no head for a task; make one: filbert finetune classify --model …")
    if path.exists():
        said = said_of(found)
        name = str(said.pop("task", None))
        if name not in modules:
            raise one_of(f"{path}: task", name, modules)
    else:
        name = task or told[0]
        said = modules[name].published(found.model, found.labels) if name in told else _plain(found, modules[name])
        said |= getattr(modules[name], "PROBLEMS", {}).get(found.problem_type, {})
    if task not in (None, name):
        raise InputError(f"{found.folder}: was fine-tuned for {name}, not for {task}.")
    if name not in fitting:
        raise InputError(f"{found.folder}: has no head for {name}; make one: filbert finetune {name} --model …")
    known = modules[name].Config.__dataclass_fields__
    if not all(field in known and type(value) in (int, str, float) for field, value in said.items()):
        raise InputError(f"{path}: has fields other than {', '.join(known)}; fetch the folder again.")
    wanted = parsed(settings, {"task": modules[name].Config}).get("task", {})
    try:
        config = replace(modules[name].Config(**said), **wanted)
    except InputError as error:
        if wanted:
            raise
        raise InputError(f"{path}: {error}") from None
    pooled = getattr(config, "pool", None) if modules[name].HEAD else None  # without a head nothing is pooled by one
    if config.max_length > found.config.max_length or (pooled and (pooled == "cls") != ("pooler" in found.model.parts)):
        raise InputError(f"{path}: does not fit the model beside it; fetch the folder again.")
    return name, config
