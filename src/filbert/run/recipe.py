"""What a user set, the data and a model to begin with in; the recipe of a run out: everything that fixes it.

A recipe's numbers are those of run.defaults, those that the file of its model or task names, and, before all of them,
those that the user set. The learning rate is decided in `rates`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from filbert.clock.budget import Choice
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.protocols import Objective
from filbert.core.records import Example
from filbert.core.settings import parsed
from filbert.engine.reader import Reader
from filbert.folder import sentence_transformers
from filbert.folder.folder import Loaded
from filbert.forms import sources
from filbert.nn.encoder import Shape
from filbert.pack.batches import batches
from filbert.run import defaults, new_models
from filbert.run.new_models import Start
from filbert.run.options import RunOptions
from filbert.tasks.task import AnyItems, AnySpec, AnyTask, C, CorpusSpec, Items, TaskSpec, Trait, longest_of
from filbert.teach import teacher as distil
from filbert.teach.teacher import NO_TEACHER, Teacher
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine, tune
from filbert.train.scores import scored

Section = Mapping[str, Any]  # fields of one config, by name
Fields = Mapping[str, Section]  # the fields that the user set, by section: {"train": {"steps": 500}}
SCORED_TOKENS = 16_384  # read at a time where a model is only asked


def masked_words() -> CorpusSpec[Any]:
    """The task by which a BERT is pretrained."""
    return registry.taught_by(Objective.MASKED_WORDS)


def learnt_by(arch: str) -> CorpusSpec[Any]:
    """The task by which a model is pretrained; one that learns from labels alone is refused."""
    objective = registry.model(arch).objective
    if objective is None:
        raise InputError(f"{arch} is trained on labelled data alone: filbert finetune TASK --arch {arch}.")
    return registry.taught_by(objective)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that fixes a pretraining run but its texts; members are named through the registry."""

    model: Any
    task: Any = field(default_factory=lambda: masked_words().config())
    train: loop.Config = field(default_factory=loop.Config)
    machine: machine.Config = field(default_factory=machine.Config)
    model_name: str = "bert"
    task_name: str = field(default_factory=lambda: masked_words().name)
    teacher: str = ""  # the folder that it is distilled from (run.distill), and how
    distil: distil.Config | None = None

    def by_clock(self, choice: Choice) -> Recipe:
        """The same with all that was chosen for a run of some time."""
        return dataclasses.replace(
            self, model=choice.model, task=dataclasses.replace(self.task, **choice.task),
            train=dataclasses.replace(self.train, **choice.train),
            machine=dataclasses.replace(self.machine, **choice.machine),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FineRecipe:
    """Everything that fixes a fine-tuning run but its data."""

    start: str  # the folder whose weights it begins with; "" where they are random
    model: Any
    task: Any
    train: loop.Config
    machine: machine.Config
    tune: tune.Config = field(default_factory=tune.Config)
    epochs: float = defaults.EPOCHS  # passes over the data; train.steps follows from it unless it is set
    model_name: str = "bert"
    task_name: str
    given: tuple[str, ...] = ()  # fields of the task that the user set: dev data do not change them
    added: int = 0  # changed copies of texts that are learnt from as well (tune.augment)
    teacher: str = ""  # the folder that it is distilled from (run.distill), and how
    distil: distil.Config | None = None


# Pretraining ----------------------------------------------------------------------------------------------------------


def recipe_of(
    arch: str, preset: str | None, tokenizer: Tokenizer, fields: Fields, start: Shape | None = None
) -> Recipe:
    """The recipe of a model, by steps: what its record names for itself (`train`, `task`), then what is given."""
    spec, learns = registry.model(arch), learnt_by(arch)
    model: Any = start if start is not None else new_models.config_of(arch, preset, tokenizer)
    model = dataclasses.replace(model, **fields.get("model", {}))
    task = {**spec.task, **fields.get("task", {})}
    if longest := longest_of(learns.config()):
        task.setdefault("max_length", min(longest, model.max_length))
    train: dict[str, Any] = {**spec.train, **fields.get("train", {})}
    return Recipe(
        model=model, task=learns.config(**task), train=loop.Config(**train),
        machine=machine.Config(**fields.get("machine", {})), model_name=arch, task_name=learns.name,
    )  # fmt: skip


def compared_recipe(
    arch: str, preset: str, tokenizer: Tokenizer, settings: Sequence[str], tokens: int, seed: int
) -> Recipe:
    """The recipe of pretraining in a comparison: as many steps as read the tokens."""
    spec = registry.model(arch)
    sections = {"model": spec.config, "task": learnt_by(arch).config, "train": loop.Config, "machine": machine.Config}
    user_fields = {name: dict(fields) for name, fields in parsed(settings, sections).items()}
    train: dict[str, Any] = {**spec.train, **user_fields.get("train", {})}
    steps = -(-tokens // train.get("batch_tokens", loop.Config().batch_tokens))
    usual = {"steps": steps, "seed": seed, "evaluate_every": steps, "checkpoint_every": defaults.COMPARED_CHECKPOINTS}
    return recipe_of(arch, preset, tokenizer, {**user_fields, "train": {**usual, **train}})


def general_recipe(teacher: Loaded, student: Loaded, is_new: bool, settings: Sequence[str], seed: int) -> Recipe:
    """The recipe of a student that learns from raw text how its teacher reads."""
    learns = masked_words()
    sections = {"model": type(student.config), "task": learns.config, "train": loop.Config, "machine": machine.Config,
                "distil": distil.Config}  # fmt: skip
    user_fields: dict[str, dict[str, Any]] = {name: {} for name in sections} | parsed(settings, sections)
    fills = teacher.model.fills
    learnt = {"soft": defaults.SOFT} if fills else {"soft": 0.0, "hidden": defaults.HIDDEN}
    usual = {"relations": defaults.RELATIONS, "gold": defaults.GOLD, **learnt}
    config = distil.Config(**{**usual, **user_fields["distil"]})
    if (config.soft or config.gold) and not fills:
        raise InputError(
            f"{teacher.folder}: has no masked-language-model head, so its words cannot be learnt; leave distil.soft "
            "and distil.gold at 0."
        )
    if (fixed := set(user_fields["model"]) - {"dropout"}) and not is_new:
        raise InputError(f"model.{min(fixed)} is fixed by what the student begins with; only dropout can be set.")
    shape = dataclasses.replace(student.config, **user_fields["model"])
    most = min(shape.max_length, teacher.config.max_length)
    task = {
        "objective": "mlm",
        "max_length": min(learns.config().max_length, most),
        "seed": seed,
        **user_fields["task"],
    }
    if task["max_length"] > most:
        raise InputError(f"task.max_length is {task['max_length']}, but one of the models reads at most {most} tokens.")
    rate = {} if is_new else {"learning_rate": defaults.CONTINUED_RATE}
    return Recipe(
        model=shape, task=learns.config(**task), train=loop.Config(**{"seed": seed, **rate, **user_fields["train"]}),
        machine=machine.Config(**{"compiled": "off" if config.looks_inside else "recorded", **user_fields["machine"]}),
        model_name=student.family, task_name=learns.name, teacher=str(teacher.folder), distil=config,
    )  # fmt: skip


# Fine-tuning ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Training:
    """The data that a run learns from."""

    source: sources.Source  # as the user named them
    examples: Sequence[Example]
    tokenizer: Tokenizer
    are_columns_named: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A recipe, and the training data as its task: how long an epoch is hangs on how texts are read."""

    recipe: FineRecipe
    data: AnyItems  # the training data
    items: Items[Any]  # the same, with a teacher where there is one


def fine_recipe(
    task: str,
    data: Training,
    start: Start,
    settings: Sequence[str],
    options: RunOptions,
    teacher: Teacher = NO_TEACHER,
) -> Prepared:
    """The recipe of a fine-tuning run."""
    spec, loaded = registry.task(task), start.loaded
    fields = _fields(spec, loaded, settings, teacher)
    shape = dataclasses.replace(loaded.config, **fields["model"])
    config = _task_config(spec, loaded, shape, fields, is_bare(shape, start), teacher)
    reader = Reader(spec, config, teacher.labels, data.tokenizer)
    if not teacher.is_there:
        reader = _reader(spec, config, data, loaded, fields)
    distillation = distil.Config(**fields["distil"]) if teacher.is_there else None
    compiled = "off" if distillation is not None and distillation.looks_inside else "recorded"
    here = machine.Config(**{"compiled": compiled, **fields["machine"]})
    tuning, seed = tune.Config(**fields["tune"]), _seed(fields["train"], options.seed)
    added = tune.copies(task, data.examples, tuning, data.tokenizer, loaded.model, machine.chosen(here), seed)
    learnt = reader.items([*data.examples, *added])
    config = learnt.config  # with what its labels and the vocabulary fix
    items = teacher.wrapped(learnt, distillation, data.examples)
    if not teacher.teaches(learnt):
        why = " ".join(learnt.remarks())
        raise InputError(f"{sources.called(data.source)}: there is nothing to learn from it. {why}".rstrip())
    size = _batch_tokens(learnt, fields)
    pace = rates(spec, start, shape, fields, tuning, size, teacher.is_there)
    is_new_writer = Trait.WRITES in spec.traits and not loaded.model.writes
    train = {**pace, "batch_tokens": size, **fields["train"], "seed": seed}
    course = _course(items, train, options.epochs, is_new_writer)
    recipe = FineRecipe(
        start="" if start.is_random else str(loaded.folder), model=shape, task=config, train=course.train,
        machine=here, tune=tuning, epochs=course.epochs, given=_fixed(fields["task"]), task_name=task, added=len(added),
        model_name=loaded.family, teacher=teacher.folder, distil=distillation,
    )  # fmt: skip
    return Prepared(recipe=recipe, data=learnt, items=items)


def _fields(spec: AnySpec, loaded: Loaded, settings: Sequence[str], teacher: Teacher) -> dict[str, dict[str, Any]]:
    """The fields that the user set; those of a model that is there are fixed."""
    sections = {"model": type(loaded.config), "task": spec.config, "train": loop.Config, "machine": machine.Config,
                "tune": tune.Config, **teacher.sections}  # fmt: skip
    fields: dict[str, dict[str, Any]] = {name: {} for name in sections} | parsed(settings, sections)
    fixed = [name for name in fields["model"] if name != "dropout"]
    if fixed:
        raise InputError(f"model.{fixed[0]} is fixed by the folder that the run begins with; only dropout can be set.")
    return fields


def _task_config(spec: TaskSpec[C], loaded: Loaded, shape: Shape, fields: Fields, bare: bool, teacher: Teacher) -> C:
    """How texts are read."""
    usual: dict[str, Any] = {
        "max_length": min(longest_of(spec.config()), shape.max_length),
        "mask_prob": defaults.BARE_MASKS if bare else 0.0,
    }
    usual |= _pool(spec, loaded, not teacher.is_there and fields["tune"].get("method") != "frozen")
    config = spec.config(**{**teacher.task_fields(usual, loaded.model), **fields["task"]})
    if (longest := longest_of(config)) > shape.max_length:
        raise InputError(f"task.max_length is {longest}, but the model reads at most {shape.max_length} tokens.")
    return config


def _pool(spec: AnySpec, loaded: Loaded, learns: bool) -> dict[str, str]:
    """How a text is summed up, where not by the mean: as the model does, or as the task wishes of a first token.

    learns: whether the encoder does; a new pooler over vectors that cannot change is no help.
    """
    if loaded.model.sums_up and spec.pools:
        return {"pool": "own"}
    if not spec.part and spec.pools:  # vectors are learnt on from what the folder's maker chose
        pool = sentence_transformers.read(loaded.folder, loaded.config.width).pool
        return {"pool": pool} if pool else {}
    reads_all = registry.model(loaded.family).first_reads_all
    return {"pool": spec.pool} if spec.pool and reads_all and learns else {}


def _reader(spec: AnySpec, config: Any, data: Training, loaded: Loaded, fields: Fields) -> Reader[Any]:
    """How texts are read, with what the training data fix of it, and the model that a run begins with."""
    examples = data.examples
    before, config = config, spec.fit(config, examples)
    if "several" in fields["task"] and not before.several and config.several:
        raise InputError(
            f"{sources.called(data.source)}: texts have several labels, but task.several is false; leave it out, "
            "or give each text one label."
        )
    labels = spec.labels(config, examples)
    if labels is None:
        labels = sources.label_names(data.source, examples, data.are_columns_named)
    here = machine.Config(**fields["machine"])
    reader = Reader(spec, config, tuple(labels), data.tokenizer)

    def answers(items: AnyItems) -> list[Any]:
        return scored(deepcopy(loaded.model), items, SCORED_TOKENS, here)

    return reader.primed([example.texts[0] for example in examples], answers)


def _seed(train: Section, seed: int | None) -> int:
    """The run's, which may be given in one of two places."""
    chosen: int = train.get("seed", seed or 0)
    if seed not in (None, 0, chosen):
        raise InputError(f"seed is {seed} and train.seed {chosen}; give one.")
    return chosen


def _fixed(fields: Section) -> tuple[str, ...]:
    """The fields that the user gave a value; true or false for `several` only says whether."""
    return tuple(name for name, value in fields.items() if type(value) is not bool)


# How fast and how long ------------------------------------------------------------------------------------------------


def rates(
    spec: AnySpec,
    start: Start,
    shape: Shape,
    fields: Fields,
    tuning: tune.Config,
    batch_tokens: object,
    has_teacher: bool,
) -> dict[str, Any]:
    """The optimiser, where not AdamW, and the rates of all and of the head."""
    rate = registry.model(start.loaded.family).rate or next(
        (rate for width, rate in defaults.RATES if shape.width < width), defaults.WIDE_RATE
    )
    if Trait.WRITES in spec.traits and not start.is_random:
        rate = min(rate, defaults.WRITES_ON)
    if not is_bare(shape, start):
        return paced(tuning.method, rate, 1.0, False)
    return _bare_rates(min(rate, defaults.BARE_RATE), fields["train"], tuning.method, batch_tokens, has_teacher)


def is_bare(shape: Shape, start: Start) -> bool:
    """Whether a run begins with a model that was pretrained without dropout, and leaves it so."""
    return shape.dropout == 0 and start.loaded.model.is_post_norm and not start.is_random


def _bare_rates(rate: float, fields: Section, method: str, batch_tokens: object, has_teacher: bool) -> dict[str, Any]:
    """Those of a model that was pretrained without dropout."""
    if has_teacher and method == "full" and fields.get("optimiser", "adamw") == "adamw":
        return {"learning_rate": defaults.STUDENT_TIMES * rate, "head_rate": defaults.STUDENT_HEAD}
    is_whole = method in ("full", "gradual")
    has_enough = isinstance(batch_tokens, int) and batch_tokens >= defaults.MUON_TOKENS
    optimiser = fields.get("optimiser", "muon" if is_whole and has_enough else "adamw")
    if optimiser == "muon":
        return {
            "optimiser": optimiser, "learning_rate": defaults.MUON_TIMES * rate, "head_rate": defaults.MUON_HEAD,
        }  # fmt: skip
    return {"optimiser": optimiser, **paced(method, rate, defaults.BARE_HEAD, True)}


def paced(method: str, learning_rate: float, head_rate: float, bare: bool) -> dict[str, float]:
    """The rates for a method, from those of full fine-tuning of a model with dropout, or without (bare)."""
    all_times, head_times = defaults.PACES[method][0 if bare else 1] if method in defaults.PACES else (1.0, 1.0)
    return {"learning_rate": learning_rate * all_times, "head_rate": head_rate * head_times}


def _batch_tokens(items: AnyItems, fields: Fields) -> object:
    """Tokens of a step: so many that an epoch has enough of them."""
    least, most = defaults.FINE_TOKENS
    size = int(np.clip(items.lengths.sum() // defaults.PER_EPOCH, least, most))
    return fields["train"].get("batch_tokens", size)


@dataclass(frozen=True, kw_only=True)
class Course:
    """How long a run trains."""

    train: loop.Config
    epochs: float


def _course(items: AnyTask, train: Section, wished: float | None, is_new_writer: bool) -> Course:
    """Steps from passes over the data, unless they are set; dev data are asked after each pass, once at least."""
    first = loop.Config(**train)
    per_epoch = len(batches(np.asarray(items.plan(0).lengths), first.seed, 0, first.batch_tokens))
    epochs = float(_passes(len(items), per_epoch, is_new_writer) if wished is None else wished)
    if not 0 < epochs <= 10_000:
        raise InputError(f"epochs is {epochs:g}, but must be above 0 and at most 10,000.")
    fields = {"steps": max(1, round(epochs * per_epoch)), "evaluate_every": per_epoch, **train}
    fields["evaluate_every"] = min(fields["evaluate_every"], fields["steps"])
    return Course(train=loop.Config(**fields), epochs=epochs)


def _passes(rows: int, per_epoch: int, is_new_writer: bool) -> int:
    """Over so many rows, in so many steps each; a decoder that is new knows nothing of the language before."""
    if is_new_writer:
        return max(defaults.EPOCHS, min(-(-defaults.DECODER_PAIRS // rows), defaults.MOST_DECODER_PASSES))
    seen = min(-(-defaults.SEEN // rows), defaults.MOST_SEEN)
    return min(max(defaults.EPOCHS, seen, -(-defaults.FEWEST // per_epoch)), defaults.MOST_EPOCHS)
