"""Distillation: a teacher, texts and the wish for a student in, a run folder with the student and its report out.

A teacher that was fine-tuned teaches its task, from labelled or unlabelled data: the same hall as fine-tuning's, with a
task that has a teacher (teach.teacher). Any teacher teaches how it reads, from raw text: the hall of pretraining.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from filbert.core.errors import InputError, did_you_mean
from filbert.core.files import json_text, write_text
from filbert.core.records import Example
from filbert.core.registry import member
from filbert.core.settings import parsed, worded
from filbert.draw import html as page
from filbert.engine.reader import read_as, trained_on
from filbert.folder.folder import Loaded, load
from filbert.forms import objects, sources
from filbert.judge import report as honest
from filbert.judge import sections as views
from filbert.run import new_models
from filbert.run.finetune import MORE, Finetuned, checked, tuned
from filbert.run.folders import Finished, check_home, folder_of, is_first
from filbert.run.pretrain import Corpus, Recipe, measure, prepared, pretrain
from filbert.ship.shrink import slimmed
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.teach import teacher as distil
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.scores import scored

if TYPE_CHECKING:
    from filbert.engine.model import Model

SPEED_TEXTS, SPEED_ROUNDS, WRITTEN_TEXTS = 64, 3, 4  # read by both models in turn, to tell how fast they are
TOKENS = 16_384
CONTINUED_RATE = 5e-4  # of a student that begins with its teacher's layers and reads raw text
FITTED = ("temperature", "threshold", "several")  # of a task's config: what dev data fit
BESIDE = "distilled.json"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a student is to be: of a preset's size, some of its teacher's layers, or a folder's."""

    preset: str | None = None
    arch: str | None = None  # the file of models that a preset is of; the teacher's own
    layers: int | str | Sequence[int] | None = None  # how many of the teacher's, or which, from 0
    inner: int | None = None  # numbers inside its feed-forwards: those of the teacher's that can add most
    student: Path | str | None = None  # a folder or a run

    def __post_init__(self) -> None:
        ways = [self.preset is not None, self.layers is not None or self.inner is not None, self.student is not None]
        if sum(ways) != 1:
            raise InputError(
                "say what the student is to be, in one way: a preset, some of the teacher's layers (or a smaller "
                "inner), or a folder to begin with."
            )
        if self.arch is not None and self.preset is None:
            raise InputError(
                f"arch is {self.arch!r}, but is of a student of a preset's size; give a preset, or no arch."
            )


def distill(
    teacher: Path | str | Model,
    data: sources.Source,
    out: Path | str,
    wish: Wish,
    *,
    dev: sources.Source | float | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    **more: Any,
) -> Finetuned:
    """Trains a student for its teacher's task on labelled data, unlabelled data or both, and leaves a run folder.

    more: as `finetune` has it, and `task` of a published teacher that reads pairs. Dev and test data have gold: both
    models are measured on them, side by side.
    """
    known = {*MORE, "task"} - {"arch", "preset", "vocab", "scratch"}  # those are the wish's
    if unknown := sorted(set(more) - known):
        raise InputError(f"distill has no argument {unknown[0]!r}; see settings.{did_you_mean(unknown[0], known)}")
    if not isinstance(wish, Wish):
        raise InputError(f"wish is {wish!r:.60}, but must be a run.Wish, such as Wish(layers=4).")
    more = checked({**more, "resume": resume})
    del more["resume"]
    data, found = objects.kept(data, "data"), load(folder_of(teacher))
    try:
        name, reading = read_as(found, more.pop("task", None))
    except InputError as error:
        raise InputError(
            f"{error} Or distil it without a task, from raw text: --general."
            if "has no head for a task" in str(error) else str(error)
        ) from None  # fmt: skip
    settings = worded(settings)
    own = [word for word in settings if word.startswith("model.")]
    started, is_new = _student(found, wish, own, more.get("seed") or 0)
    lesson = Lesson(found, (name, reading), fits=dev is not None)
    rest = [word for word in settings if not is_new or word not in own]
    more = {**more, "scratch": is_new, "lesson": lesson, "trained_on": trained_on(found.folder)}
    return tuned(name, data, started, out, dev=dev, settings=rest, resume=resume, **more)


def _student(teacher: Loaded, wish: Wish, settings: Sequence[str], seed: int) -> tuple[Loaded, bool]:
    """The student as it begins, and whether its weights are random."""
    tokenizer = Tokenizer.load(teacher.folder)
    if wish.student is not None:
        found = load(wish.student)
        theirs = Tokenizer.load(found.folder)
        if theirs.cuts != tokenizer.cuts:
            raise InputError(
                f"{found.folder}: its vocabulary is not that of the teacher {teacher.folder}, or cuts texts otherwise, "
                "so the two do not read the same tokens; take a student with the teacher's vocabulary, a preset, or "
                "layers of the teacher."
            )
        return found, False
    if wish.preset is None:
        model = slimmed(teacher.model, wish.layers, wish.inner)
        return dataclasses.replace(teacher, model=model.eval()), False
    arch = wish.arch or teacher.family
    config = new_models.config_of(arch, wish.preset, tokenizer)
    config = dataclasses.replace(config, **parsed(settings, {"model": type(config)}).get("model", {}))
    torch.manual_seed(seed)
    model = new_models.model_of(arch, config, (), tokenizer).eval()
    return Loaded(
        folder=teacher.folder, model=model, kind=f"filbert-{arch}", labels=[], problem_type=None, fields={}, notes=[]
    ), True


class Lesson:
    """What a run of fine-tuning must know of a teacher."""

    sections: Mapping[str, type] = {"distil": distil.Config}

    def __init__(self, teacher: Loaded, reading: tuple[str, Any], fits: bool) -> None:
        self.folder, self.labels, self.model = teacher.folder, tuple(teacher.labels), teacher.model
        self.name, self.reading = reading
        self.module, self.fits = member("tasks", self.name), fits
        self.tokenizer = Tokenizer.load(teacher.folder)

    @property
    def writes(self) -> bool:
        """Whether what it says are texts."""
        return self.module.HEAD == "writer"  # type: ignore[no-any-return]

    def looks_inside(self, given: Mapping[str, Any]) -> bool:
        """Whether more than heads is compared."""
        return distil.Config(**given).looks_inside

    def reading_as(self, usual: Mapping[str, Any], student: Any) -> dict[str, Any]:
        """The fields of the student's task: as its teacher reads, but for what learning alone needs."""
        names = [field.name for field in dataclasses.fields(self.reading)]
        found = {name: getattr(self.reading, name) for name in names}
        if self.fits and not self.writes:
            fresh_config = self.module.Config()
            found |= {name: getattr(fresh_config, name) for name in FITTED if name in found}
            found |= {"several": True} if getattr(self.reading, "several", 0) else {}
        found["max_length"] = min(self.reading.max_length, student.config.max_length)
        found["mask_prob"] = usual["mask_prob"]
        if found.get("pool") == "own" or "pool" in usual:
            found["pool"] = usual.get("pool", "mean")
        return {name: value for name, value in found.items() if name in names}

    def labelled(self, examples: Sequence[Example]) -> list[Example]:
        """Those that have gold."""
        return [each for each in examples if each.gold is not None and getattr(each.gold, "label", "") is not None]

    def filled(self, examples: Sequence[Example]) -> list[Example]:
        """The examples; where texts are written, what the teacher writes stands for a missing one (Kim & Rush 2016)."""
        places = [place for place, example in enumerate(examples) if example.gold is None] if self.writes else []
        found = list(examples)
        if places:
            asked = self._task([examples[place] for place in places])
            for place, said in zip(places, asked.predictions(scored(self.model, asked, TOKENS)), strict=True):
                found[place] = dataclasses.replace(found[place], gold=said.text or None)
        return found

    def _task(self, examples: Sequence[Example]) -> Any:
        """The task as the teacher reads it."""
        return self.module.Task(examples, self.labels, self.tokenizer, self.reading)

    def wrapped(self, items: Any, learnt: Sequence[Example], given: Mapping[str, Any]) -> distil.Distilled:
        """The task with its teacher."""
        known = len(self.labelled(learnt)) / max(1, len(learnt))
        if not getattr(self.module, "NEEDS_GOLD", True):
            known = 1.0  # the task itself says what of its data teaches
        return distil.Distilled(items, (self._task([]), deepcopy(self.model)), distil.Config(**given), known)

    def compared(
        self, student: Any, measured: Mapping[str, honest.Measured], told: dict[str, Any], config: machine.Config
    ) -> list[str]:
        """Adds to a report what the teacher says of the same data; the sections of a page that tell it."""
        wishes = {name: getattr(config, name) for name in ("device", "precision", "threads")}
        found: dict[str, Any] = {"teacher": str(self.folder), "evaluations": {}}
        for name, each in measured.items():
            task = self._task(each.examples)
            raw = scored(deepcopy(self.model), task, TOKENS, **wishes)
            found["evaluations"][name] = row = _beside(each, task, raw)
            told["evaluations"][name]["sentences"].insert(0, row["sentence"])
        first = next(iter(measured.values()))
        some = list(first.examples)[: WRITTEN_TEXTS if self.writes else SPEED_TEXTS]
        own = lambda: self.module.Task(some, first.task.labels, first.task.tokenizer, first.task.config)  # noqa: E731
        found |= speeds((student, own), (self.model, lambda: self._task(some)))
        found["sentences"] = [_size_sentence(found), *(row["sentence"] for row in found["evaluations"].values())]
        told["distilled"] = found
        head = ("data", "measure", "student", "teacher", "kept", "difference (95 %)", "p")
        return [page.section("Beside its teacher", _lines(found["sentences"]) + page.table(head, _rows(found), (2, 3)))]


def _beside(measured: honest.Measured, task: Any, raw: Sequence[Any]) -> dict[str, Any]:
    """What both score on the same examples, and how certain the difference is."""
    tables = [measured.task.evaluated(measured.raw), task.evaluated(raw)]
    pairs = ((measured.task, measured.raw, tables[0]), (task, raw, tables[1]))
    student, teacher = (views.view(own, measured.examples, said, table) for own, said, table in pairs)
    apart = student.beside(teacher)
    measure_ = apart.measure if apart is not None else next(iter(tables[0]["intervals"]))
    own, theirs = (float(table[measure_]) for table in tables)
    kept = own / theirs if theirs > 0 else float(own >= theirs)
    sentence = f"{measure_} {own:.4f}, {kept:.1%} of its teacher's {theirs:.4f}"
    if apart is not None:
        edges = f"{apart.value * 100:+.1f} points, 95 %: {apart.low * 100:+.1f} to {apart.high * 100:+.1f}"
        told = apart.sentence("its teacher")
        sentence += f"; {told}" if apart.is_certain else f"; these data do not tell the two apart ({edges})"
    difference = {"difference": asdict(apart)} if apart is not None else {}
    return {"measure": measure_, "student": own, "teacher": theirs, "kept": kept, **difference, "sentence": sentence}


def speeds(student: tuple[Any, Any], teacher: tuple[Any, Any]) -> dict[str, Any]:
    """Sizes, and seconds of CPU that both take for the same texts, in turn, tokens and all; each (model, make task)."""
    models = [(deepcopy(model).cpu().float().eval(), make) for model, make in (student, teacher)]
    sizes = [sum(weight.numel() for weight in model.parameters()) for model, _ in models]
    took: list[list[float]] = [[], []]
    for turn in range(SPEED_ROUNDS + 1):
        for side, (model, make) in enumerate(models):
            begun = time.process_time()
            scored(model, make(), TOKENS, device="cpu")
            if turn:  # the first round warms up
                took[side].append(time.process_time() - begun)
    ratios = sorted(theirs / max(own, 1e-9) for own, theirs in zip(*took, strict=True))
    middle = ratios[len(ratios) // 2]
    return {"parameters": sizes, "cpu_seconds": [min(each) for each in took], "speed": middle, "speeds": ratios}


def _size_sentence(found: Mapping[str, Any]) -> str:
    own, theirs = found["parameters"]
    return f"{own:,} weights, its teacher has {theirs:,}; {found['speed']:.1f} times its teacher's speed on this CPU"


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, row in found["evaluations"].items():
        apart = row.get("difference")
        edges = f"{apart['value']:+.4f} ({apart['low']:+.4f} to {apart['high']:+.4f})" if apart else "–"
        rows.append([
            name, row["measure"], f"{row['student']:.4f}", f"{row['teacher']:.4f}", f"{row['kept']:.1%}", edges,
            f"{apart['p']:.2g}" if apart else "–",
        ])  # fmt: skip
    return rows


def _lines(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{page.text(sentence)}</li>" for sentence in sentences) + "</ul>"


# Without a task -------------------------------------------------------------------------------------------------------


class _Reading:
    """What a run of pretraining must know of a teacher."""

    def __init__(self, teacher: Loaded, config: distil.Config) -> None:
        self.teacher, self.config = teacher, config

    def wrapped(self, task: Any) -> distil.Distilled:
        """The task with its teacher."""
        return distil.Distilled(task, (task, self.teacher.model), self.config)


def distill_general(
    teacher: Path | str,
    corpus: Corpus,
    out: Path | str,
    wish: Wish,
    *,
    settings: Sequence[str] = (),
    resume: bool = False,
    **more: Any,
) -> Finished:
    """Trains a student to read raw text as its teacher does, and leaves a run folder; more: `seed`, `force`, `quiet`.

    What is learnt: how tokens relate in the teacher's last layer, and the words that it would put into blanks, where it
    has a head for them; else the vectors behind its layers.
    """
    check_home(Path(out))
    found = load(teacher)
    tokenizer = Tokenizer.load(found.folder)
    own = [word for word in settings if word.startswith("model.")]
    started, is_new = _student(found, wish, own, more.get("seed") or 0)
    recipe = _general_recipe(found, started, is_new, settings, more.get("seed") or 0)
    shards = prepared(corpus, tokenizer, Path(out))
    done = pretrain(
        shards, tokenizer, recipe, out, start=None if is_new else started.model, resume=resume,
        force=bool(more.get("force")), quiet=bool(more.get("quiet")), lesson=_Reading(found, recipe.distil),
        base="" if is_new else str(started.folder), settings=settings,
    )  # fmt: skip
    if recipe.distil.soft and shards.held.num_documents and is_first():
        models = {"student": done.module, "teacher": found.model}
        held = {n: measure(deepcopy(m), shards.held.shards, tokenizer, recipe.task) for n, m in models.items()}
        write_text(Path(out) / BESIDE, json_text({"teacher": str(found.folder), "held": held}))
    return done


def _general_recipe(teacher: Loaded, student: Loaded, is_new: bool, settings: Sequence[str], seed: int) -> Recipe:
    sections = {"model": type(student.config), "task": mlm_nsp_spec.Config, "train": loop.Config,
                "machine": machine.Config, "distil": distil.Config}  # fmt: skip
    given: dict[str, dict[str, Any]] = {name: {} for name in sections} | parsed(settings, sections)
    fills = getattr(teacher.model, "mlm", None) is not None
    usual = {"relations": 1.0, "gold": 0.0, **({"soft": 1.0} if fills else {"soft": 0.0, "hidden": 1.0})}
    config = distil.Config(**{**usual, **given["distil"]})
    if (config.soft or config.gold) and not fills:
        raise InputError(
            f"{teacher.folder}: has no masked-language-model head, so its words cannot be learnt; leave distil.soft "
            "and distil.gold at 0."
        )
    if (fixed := set(given["model"]) - {"dropout"}) and not is_new:
        raise InputError(f"model.{min(fixed)} is fixed by what the student begins with; only dropout can be set.")
    shape = dataclasses.replace(student.config, **given["model"])
    most = min(shape.max_length, teacher.config.max_length)
    task = {
        "objective": "mlm",
        "max_length": min(mlm_nsp_spec.Config().max_length, most),
        "seed": seed,
        **given["task"],
    }
    if task["max_length"] > most:
        raise InputError(f"task.max_length is {task['max_length']}, but one of the models reads at most {most} tokens.")
    train = {"seed": seed, **({} if is_new else {"learning_rate": CONTINUED_RATE}), **given["train"]}
    return Recipe(
        model=shape, task=mlm_nsp_spec.Config(**task), train=loop.Config(**train),
        machine=machine.Config(**{"compiled": "off" if config.looks_inside else "recorded", **given["machine"]}),
        model_name=student.family, teacher=str(teacher.folder), distil=config,
    )  # fmt: skip
