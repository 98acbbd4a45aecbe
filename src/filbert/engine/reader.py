"""A model folder in; how it reads texts for a task, bound once: the task's record, its config, labels and tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from filbert.core.errors import InputError, one_of
from filbert.core.records import Example, Prediction
from filbert.core.registry import is_task, task, tasks
from filbert.core.settings import check_types, parsed
from filbert.folder import sentence_transformers
from filbert.folder.weights import inside, small_json
from filbert.tasks.task import AnyItems, AnySpec, Asked, C, Json, TaskSpec
from filbert.text import arguments
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.folder.folder import Loaded
    from filbert.folder.runtime import Portable
    from filbert.forms.sources import ReadOptions

    Folder = Loaded | Portable  # a model folder, with torch or without

TASK = "task.json"  # in a model folder: how texts are read and pooled before the head
DATA = "data.json"  # in a model folder: how the files that it learnt from were read, where that had to be said
HEADED = "labels"  # the part of a published folder that labels a text or pair, or gives it a number
MANY, TOP = 50, 20  # of more labels than that only so many are written with a text, unless more are asked for


@dataclass(frozen=True, slots=True)
class Reader(Generic[C]):
    """How a loaded model reads texts for one task; predict, serve and explain share it."""

    spec: TaskSpec[C]
    config: C
    labels: tuple[str, ...]
    tokenizer: Tokenizer

    @property
    def window(self) -> tuple[int, int]:
        """How many tokens of a text are read at once at most, and how many two neighbouring windows share."""
        fields = vars(self.config)
        return int(fields["max_length"]), int(fields.get("overlap", 0))

    def examples(self, texts: Iterable[Asked]) -> list[Example]:
        """What `predict` is given, as the task reads it; anything else is refused."""
        num_texts = self.spec.num_texts
        if self.spec.asked is not None:
            return self.spec.asked(arguments.listed(texts, each="pair" if num_texts == 2 else "text"))
        read = arguments.pairs(texts) if num_texts == 2 else [(text,) for text in arguments.texts(texts)]
        return [Example(each) for each in read]

    def items(self, examples: Sequence[Example]) -> AnyItems:
        """The examples in batches."""
        return self.spec.items(examples, self.labels, self.tokenizer, self.config)

    def primed(self, texts: Sequence[str], answers: Callable[[AnyItems], Sequence[object]]) -> Reader[C]:
        """The same reader with a config that rests on the model's own answers, where the task needs them."""
        if self.spec.primed is None:
            return self
        labels = tuple(self.spec.labels(self.config, ()) or self.labels)
        config = self.spec.primed(self.config, labels, self.tokenizer, texts, answers)
        return replace(self, labels=labels, config=config)

    def record(self, example: Example, prediction: Prediction, top: int | None = None) -> Json:
        """One record of a results file: where the text stood, the texts, and the prediction."""
        place = {"line": example.line} if example.line else {}
        texts = dict(zip(self.spec.texts, example.texts, strict=False))
        return {**place, **texts, **self.spec.record(example, prediction, top), "coverage": prediction.coverage}


AnyReader = Reader[Any]  # for some task


def usual_top(num_labels: int) -> int | None:
    """How many labels a record has by default: None for all, or of many the likeliest."""
    return TOP if num_labels > MANY else None


@dataclass(frozen=True, slots=True)
class Described:
    """How a folder reads texts, by its small files as they were when it was loaded."""

    task: Mapping[str, Any] | None  # task.json, unchecked; None where there is none
    vectors: sentence_transformers.Vectors  # how its maker makes a vector of a text
    window: int  # the most tokens that it reads at once


def described(folder: Folder) -> Described:
    """What a folder's task.json, modules.json and tokenizer say now."""
    task = dict(small_json(inside(folder.folder, TASK))) if (folder.folder / TASK).exists() else None
    vectors = sentence_transformers.read(folder.folder, folder.config.width)
    return Described(task, vectors, sentence_transformers.window(folder.folder, folder.config.max_length))


def trained_on(folder: Path) -> ReadOptions:
    """The columns and the encoding of a model's training files, from data.json in its folder."""
    from filbert.forms.sources import ReadOptions

    path = folder / DATA
    if not path.exists():
        return ReadOptions()
    fields = small_json(inside(folder, DATA))
    columns, encoding = fields.get("columns", {}), fields.get("encoding", "")
    is_valid = set(fields) <= {"columns", "encoding"} and isinstance(columns, dict) and isinstance(encoding, str)
    if not is_valid or not all(type(column) in (int, str) for column in columns.values()):
        raise InputError(f"{path}: must hold columns, {{role: column}}, and an encoding, and nothing else; remove it.")
    return ReadOptions(columns=columns, encoding=encoding)


def _from_maker(folder: Folder, spec: AnySpec, about: Described) -> dict[str, Any]:
    """How a folder that was fine-tuned for nothing reads texts for a task without a head: as its maker says."""
    if spec.part:
        return {"max_length": min(spec.config.max_length, about.window)}
    if not spec.pools:
        return {"max_length": about.window}
    vectors = about.vectors
    if vectors.refused or vectors.width or vectors.prompt or vectors.lowercase:
        raise InputError(
            f"{folder.folder}: its maker does more to a vector than to pool it ({', '.join(vectors.files[:4])}); "
            "`embed` and `search` follow that, and cosines are theirs to take."
        )
    longest = min(about.window, vectors.max_length or about.window)
    return {"max_length": longest, **({"pool": vectors.pool} if vectors.pool else {})}


def _candidates(fields: Mapping[str, object] | None, name: str | None) -> dict[str, AnySpec]:
    """The tasks to look at: the folder's own where it says one, since to import all takes a tenth of a second."""
    saved = str(fields.get("task")) if fields is not None else ""
    names = (saved,) if name in (None, saved) and is_task(saved) else tasks()
    return {each: task(each) for each in names}


def _is_number(folder: Folder) -> bool:
    """Whether a published folder's head has one output, which is then a number and not a label."""
    several = folder.problem_type == "multi_label_classification"
    return HEADED in folder.model.parts and len(folder.labels) == 1 and not several


def _from_transformers(folder: Folder, spec: AnySpec, about: Described) -> dict[str, Any]:
    """The fields of the config for a published folder that has the task's head."""
    assert spec.from_transformers is not None
    fields = spec.from_transformers(folder.model, folder.labels)
    fields |= spec.problems.get(folder.problem_type or "", {})
    fields["max_length"] = min(fields["max_length"], about.window)
    if HEADED not in spec.heads_of:
        return fields
    if folder.problem_type == "regression" and len(folder.labels) > 1:
        raise InputError(
            f"{folder.folder}: gives {len(folder.labels)} numbers at once, but filbert reads one of a pair."
        )
    if _is_number(folder) and not spec.number_fields:
        numeric = next(name for name in tasks() if task(name).number_fields)
        raise InputError(
            f"{folder.folder}: its head has one output, which is a number for a pair of texts and no label; it cannot "
            f"be asked as {spec.name}: take {numeric}."
        )
    return {**fields, **(spec.number_fields if _is_number(folder) else {})}


def _check_used(spec: AnySpec, config: object, wanted: Mapping[str, object]) -> None:
    """Refuses a field that was set and changes no prediction."""
    idle = spec.idle(config)
    for name in wanted:
        if name not in (*(spec.kept or wanted), "seed"):
            raise InputError(f"task.{name} is of learning, and changes nothing of what a model says; leave it out.")
        if name in idle:
            raise InputError(f"task.{name} changes nothing {idle[name]}; leave it out.")


def bound(
    folder: Folder,
    tokenizer: Tokenizer,
    name: str | None = None,
    settings: Sequence[str] = (),
    about: Described | None = None,
) -> AnyReader:
    """How a folder reads texts for its task: as its task.json says, or as published folders do.

    Published folders with labels do not say whether they read texts or pairs: `name` does, or they read texts; those
    with one output give pairs a number. settings: fields that are to be otherwise, as `task.field=value`. about: what
    its files said when it was loaded; else they are read now.
    """
    about = about or described(folder)
    candidates = _candidates(about.task, name)
    if name is not None and name not in candidates:
        raise one_of("the task", name, candidates)
    parts = {*folder.model.parts}
    fitting = [each for each, spec in candidates.items() if not all(spec.heads_of) or {*spec.heads_of} & parts]
    ready = [each for each in fitting if candidates[each].from_transformers]  # the head itself says what it is for
    path = folder.folder / TASK
    if not ready and name is None and about.task is None:
        raise InputError(f"{folder.folder}: has no head for a task; make one: filbert finetune classify --model …")
    if about.task is not None:
        fields = dict(about.task)
        chosen = str(fields.pop("task", None))
        if chosen not in candidates:
            raise one_of(f"{path}: task", chosen, candidates)
    else:
        numeric = [each for each in ready if candidates[each].number_fields] if _is_number(folder) else []
        chosen = name or (numeric or ready)[0]
        way = _from_transformers if chosen in ready else _from_maker
        fields = way(folder, candidates[chosen], about)
    if name not in (None, chosen):
        raise InputError(f"{folder.folder}: was fine-tuned for {chosen}, not for {name}.")
    if chosen not in fitting:
        raise InputError(f"{folder.folder}: has no head for {chosen}; make one: filbert finetune {chosen} --model …")
    spec = candidates[chosen]
    check_types(str(path), spec.config, fields)
    wanted = parsed(settings, {"task": spec.config}).get("task", {})
    try:
        config = replace(spec.config(**fields), **wanted)
    except InputError as error:
        if wanted:
            raise
        raise InputError(f"{path}: {error}") from None
    _check_used(spec, config, wanted)
    pool = config.pool if spec.part and spec.pools else None  # without a head nothing is pooled by one
    if config.max_length > folder.config.max_length or (pool and (pool == "cls") != ("pooler" in parts)):
        raise InputError(f"{path}: does not fit the model beside it; fetch the folder again.")
    return Reader(spec, config, tuple(folder.labels), tokenizer)
