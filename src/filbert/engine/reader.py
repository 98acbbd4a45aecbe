"""Texts of any number in, what a fine-tuned model says of each out, in order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filbert.core.errors import InputError, one_of
from filbert.core.records import Example, Prediction
from filbert.core.registry import member, members, naming
from filbert.core.settings import check_types, parsed
from filbert.folder import sentence_transformers
from filbert.folder.weights import inside, small_json
from filbert.forms.sources import ReadOptions
from filbert.tasks.relation.reading import Relation

if TYPE_CHECKING:
    from filbert.folder.folder import Loaded
    from filbert.folder.runtime import Portable

    Found = Loaded | Portable  # a model folder, with torch or without

TASK = "task.json"  # in a model folder: how texts are read and pooled before the head
DATA = "data.json"  # in a model folder: how the files that it learnt from were read, where that had to be said
HEADED = "labels"  # the part of a published folder that labels a text or pair, or gives it a number
CHUNK, CHUNK_CHARS = 2_048, 2_000_000  # texts, and characters of them, that are answered together at most
FIRST_COST, TEXT_COST = 2_000, 50  # what is answered first, in characters, and what a text counts besides its own
PACE_S = 3.0  # seconds from one answer to the next, about
MANY, TOP = 50, 20  # of more labels than that only so many are written with a text, unless more are asked for


Asked = str | tuple[Any, ...]  # a text, a pair of them, or what the task's `examples` takes


class Predicts(Protocol):
    """What answers: `engine.model.Model`."""

    def predict(self, texts: Iterable[Asked], *, task: str | None = None) -> list[Prediction]:
        """One prediction for each text or pair."""
        ...


class Pace:
    """How much is answered together: little at first, then what takes about PACE_S seconds."""

    def __init__(self) -> None:
        self.limit, self.size, self.count, self.begun = FIRST_COST, 0, 0, 0.0

    def is_full(self, example: Example) -> bool:
        """Takes one more; whether that is enough."""
        self.count += 1
        self.size += sum(map(len, example.texts))
        return self.count >= CHUNK or self.size > CHUNK_CHARS or self.size + self.count * TEXT_COST >= self.limit

    def start(self) -> None:
        """What was taken is asked now."""
        self.begun = time.perf_counter()

    def done(self) -> None:
        """It is answered; the next may be up to four times as much."""
        times = PACE_S / max(1e-6, time.perf_counter() - self.begun)
        self.limit = max(FIRST_COST, int((self.size + self.count * TEXT_COST) * min(4.0, max(0.25, times))))
        self.size = self.count = 0


Answered = list[tuple[Example, Prediction]]


def answered(model: Predicts, examples: Iterable[Example], task: str | None = None) -> Iterator[Answered]:
    """Every example with its prediction, some at a time, soon and then every few seconds.

    Where reading fails, all that was read is answered first; where the model refuses a text, all before that one.
    """
    waiting: list[Example] = []
    failed: Exception | None = None
    pace, reader = Pace(), iter(examples)
    while failed is None:
        try:
            example = next(reader, None)
        except Exception as error:
            example, failed = None, error
        if example is not None:
            waiting.append(example)
            if not pace.is_full(example):
                continue
        if waiting:
            pace.start()
            yield from _said(model, waiting, task)
            pace.done()
            waiting = []
        if example is None:
            break
    if failed is not None:
        raise failed


def _said(model: Predicts, waiting: list[Example], task: str | None) -> Iterator[Answered]:
    """These with what the model says; where it refuses them, each by itself, up to the one it means."""
    try:
        found = model.predict([asked(example) for example in waiting], task=task)
    except InputError:
        for example in waiting:
            try:
                yield [(example, model.predict([asked(example)], task=task)[0])]
            except InputError as error:
                where = f"{example.source} line {example.line}" if example.source else f"text {example.id + 1}"
                raise InputError(f"{where}: {str(error).removeprefix('example 0: ')}") from None
        return
    yield list(zip(waiting, found, strict=True))


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
    names = getattr(member("tasks", task), "TEXTS", ("text", "second"))
    texts = dict(zip(names, example.texts, strict=False))
    return {**place, **texts, **member("tasks", task).record(example, said, top), "coverage": said.coverage}


def has_top(task: str, labels: Sequence[str]) -> bool:
    """Whether a task says several things of a text, of which the likeliest can be written alone."""
    module = member("tasks", task)
    return not getattr(module, "ONE_ANSWER", False) and tuple(labels) != getattr(module, "VALUE", None)


def usual_top(num_labels: int) -> int | None:
    """How many labels are written with each text where nobody says: all, or of many the likeliest."""
    return TOP if num_labels > MANY else None


@dataclass(frozen=True, slots=True)
class Described:
    """What the small files of a folder say of how it reads texts, as they were when it was loaded."""

    task: Mapping[str, Any] | None  # task.json, unchecked; None where there is none
    vectors: sentence_transformers.Vectors  # how its maker makes a vector of a text
    window: int  # the most tokens that it reads at once


def described(found: Found) -> Described:
    """What a folder's task.json, modules.json and tokenizer say now."""
    task = dict(small_json(inside(found.folder, TASK))) if (found.folder / TASK).exists() else None
    vectors = sentence_transformers.read(found.folder, found.config.width)
    return Described(task, vectors, sentence_transformers.window(found.folder, found.config.max_length))


def trained_on(folder: Path) -> ReadOptions:
    """The columns and the encoding of the files that a model learnt from, as its folder remembers them."""
    path = folder / DATA
    if not path.exists():
        return ReadOptions()
    said = small_json(inside(folder, DATA))
    columns, encoding = said.get("columns", {}), said.get("encoding", "")
    is_known = set(said) <= {"columns", "encoding"} and isinstance(columns, dict) and isinstance(encoding, str)
    if not is_known or not all(type(column) in (int, str) for column in columns.values()):
        raise InputError(f"{path}: must hold columns, {{role: column}}, and an encoding, and nothing else; remove it.")
    return ReadOptions(columns, encoding)


def _plain(found: Found, module: Any, about: Described) -> dict[str, Any]:
    """How a folder that was fine-tuned for nothing reads texts for a task without a head: as its maker says."""
    if module.HEAD:
        return {"max_length": min(module.Config.max_length, about.window)}
    if "pool" not in module.Config.__dataclass_fields__:
        return {"max_length": about.window}
    told = about.vectors
    if told.refused or told.width or told.prompt or told.lowercase:
        raise InputError(
            f"{found.folder}: its maker does more to a vector than to pool it ({', '.join(told.files[:4])}); "
            "`embed` and `search` follow that, and cosines are theirs to take."
        )
    longest = min(about.window, told.max_length or about.window)
    return {"max_length": longest, **({"pool": told.pool} if told.pool else {})}


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


def _asked_names(said: Mapping[str, Any] | None, task: str | None) -> Sequence[str]:
    """The tasks to look at: the folder's own where it says one, since to import all takes a tenth of a second."""
    own = str(said.get("task")) if said is not None else ""
    is_told = own in members("tasks") and task in (None, own) and hasattr(member("tasks", own), "HEAD")
    return (own,) if is_told else naming("tasks", "HEAD")


def _is_number(found: Found) -> bool:
    """Whether a published folder's head has one output, which is then a number and not a label."""
    return HEADED in found.model.parts and len(found.labels) == 1 and found.problem_type != "multi_label_classification"


def _published(found: Found, name: str, module: Any, about: Described) -> dict[str, Any]:
    """The fields of the config for a published folder that has the task's head."""
    said: dict[str, Any] = module.published(found.model, found.labels)
    said |= getattr(module, "PROBLEMS", {}).get(found.problem_type, {})
    said["max_length"] = min(said["max_length"], about.window)
    if HEADED not in (module.HEAD, *getattr(module, "HEADS", ())):
        return said
    if found.problem_type == "regression" and len(found.labels) > 1:
        raise InputError(f"{found.folder}: gives {len(found.labels)} numbers at once, but filbert reads one of a pair.")
    if _is_number(found) and name != "pair":
        raise InputError(
            f"{found.folder}: its head has one output, which is a number for a pair of texts and no label; it cannot "
            f"be asked as {name}: take pair."
        )
    return said | ({"answer": "number"} if _is_number(found) else {})


def _check_used(module: Any, config: Any, wanted: Mapping[str, Any]) -> None:
    """Refuses a field that was set and changes nothing of what a model says."""
    idle: dict[str, str] = module.idle(config) if hasattr(module, "idle") else {}
    for name in wanted:
        if name not in (*getattr(module, "KEPT", wanted), "seed"):
            raise InputError(f"task.{name} is of learning, and changes nothing of what a model says; leave it out.")
        if name in idle:
            raise InputError(f"task.{name} changes nothing {idle[name]}; leave it out.")


def read_as(
    found: Found, task: str | None = None, settings: Sequence[str] = (), about: Described | None = None
) -> tuple[str, Any]:
    """The folder's task and how it reads texts: as its task.json says, or as published folders do.

    Published folders with labels do not say whether they read texts or pairs: `task` does, or they read texts; those
    with one output give pairs a number.
    settings: fields that are to be otherwise, as `task.field=value`. about: what its files said when it was loaded;
    else they are read now.
    """
    about = about or described(found)
    tasks = {name: member("tasks", name) for name in _asked_names(about.task, task)}
    if task is not None and task not in tasks:
        raise one_of("the task", task, tasks)
    heads = {name: getattr(module, "HEADS", (module.HEAD,)) for name, module in tasks.items()}
    fitting = [name for name, several in heads.items() if not all(several) or {*several} & {*found.model.parts}]
    told = [name for name in fitting if hasattr(tasks[name], "published")]  # the head itself says what it is for
    path = found.folder / TASK
    if not told and task is None and about.task is None:
        raise InputError(f"{found.folder}: has no head for a task; make one: filbert finetune classify --model …")
    if about.task is not None:
        said = dict(about.task)
        name = str(said.pop("task", None))
        if name not in tasks:
            raise one_of(f"{path}: task", name, tasks)
    else:
        name = task or ("pair" if _is_number(found) else told[0])
        is_there = name in told
        said = _published(found, name, tasks[name], about) if is_there else _plain(found, tasks[name], about)
    if task not in (None, name):
        raise InputError(f"{found.folder}: was fine-tuned for {name}, not for {task}.")
    if name not in fitting:
        raise InputError(f"{found.folder}: has no head for {name}; make one: filbert finetune {name} --model …")
    check_types(str(path), tasks[name].Config, said)
    wanted = parsed(settings, {"task": tasks[name].Config}).get("task", {})
    try:
        config = replace(tasks[name].Config(**said), **wanted)
    except InputError as error:
        if wanted:
            raise
        raise InputError(f"{path}: {error}") from None
    _check_used(tasks[name], config, wanted)
    pooled = getattr(config, "pool", None) if tasks[name].HEAD else None  # without a head nothing is pooled by one
    if config.max_length > found.config.max_length or (pooled and (pooled == "cls") != ("pooler" in found.model.parts)):
        raise InputError(f"{path}: does not fit the model beside it; fetch the folder again.")
    return name, config
