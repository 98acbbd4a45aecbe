"""Distillation: a teacher, texts and the wish for a student in, a run folder with the student and its report out.

A teacher that was fine-tuned teaches its task, from labelled or unlabelled data: the same run as fine-tuning's, with a
task that has a teacher (teach.teacher). Any teacher teaches how it reads, from raw text: the run of pretraining.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from filbert.core import keywords
from filbert.core.errors import InputError
from filbert.core.files import json_text, write_text
from filbert.core.settings import Settings, parsed, worded
from filbert.engine.reader import bound, trained_on
from filbert.folder.folder import Loaded, load
from filbert.forms import objects, sources
from filbert.forms.sources import Columns, ReadOptions
from filbert.run import new_models
from filbert.run.finetune import Data, Finetuned, tuned
from filbert.run.folders import check_home, is_first
from filbert.run.new_models import Start
from filbert.run.options import RunOptions
from filbert.run.pretrain import Corpus, measure, prepared, pretrain
from filbert.run.recipe import general_recipe
from filbert.run.run import Finished, folder_of
from filbert.ship.shrink import shrunk
from filbert.teach.teacher import ReadingTeacher, TaskTeacher
from filbert.text.tokenizer import Tokenizer
from filbert.train.listeners import Listeners

if TYPE_CHECKING:
    from filbert.engine.model import Model

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


@keywords.checked(transformers_names=True)
def distill(
    teacher: Path | str | Model,
    data: sources.Source,
    out: Path | str,
    wish: Wish,
    *,
    dev: sources.Source | float | None = None,
    test: sources.Source | None = None,
    task: str | None = None,
    settings: Settings = (),
    epochs: float | None = None,
    seed: int | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    listener: Listeners = None,
) -> Finetuned:
    """Trains a student for its teacher's task on labelled data, unlabelled data or both, and leaves a run folder.

    task: of a published teacher that reads pairs. Dev and test data have gold: both models are measured on them, side
    by side. The others are as `finetune` has them.
    """
    if not isinstance(wish, Wish):
        raise InputError(f"wish is {wish!r:.60}, but must be a Wish, such as Wish(layers=4).")
    options = RunOptions(seed=seed, epochs=epochs, resume=resume, force=force, quiet=quiet, listener=listener)
    read_options = ReadOptions(columns=columns, encoding=encoding)
    data, loaded = objects.kept(data, "data"), load(folder_of(teacher))
    try:
        reader = bound(loaded, Tokenizer.load(loaded.folder), task)
    except InputError as error:
        raise InputError(
            f"{error} Or distil it without a task, from raw text: --general."
            if "has no head for a task" in str(error) else str(error)
        ) from None  # fmt: skip
    words = worded(settings)
    shape = [word for word in words if word.startswith("model.")]
    student = _student(loaded, wish, shape, options.seed or 0)
    rest = [word for word in words if not student.is_random or word not in shape]
    read_options = dataclasses.replace(read_options, trained_on=trained_on(loaded.folder))
    named = Data(train=data, dev=dev, test=test, read_as=read_options)
    teaches = TaskTeacher(loaded, reader, dev is not None)
    return tuned(reader.spec.name, named, student, Path(out), rest, options, teaches)


def _student(teacher: Loaded, wish: Wish, settings: Sequence[str], seed: int) -> Start:
    """The student as it begins."""
    tokenizer = Tokenizer.load(teacher.folder)
    if wish.student is not None:
        loaded = load(wish.student)
        theirs = Tokenizer.load(loaded.folder)
        if theirs.cuts != tokenizer.cuts:
            raise InputError(
                f"{loaded.folder}: its vocabulary is not that of the teacher {teacher.folder}, or cuts texts "
                "otherwise, so the two do not read the same tokens; take a student with the teacher's vocabulary, a "
                "preset, or layers of the teacher."
            )
        return Start(loaded=loaded)
    if wish.preset is None:
        smaller = shrunk(teacher.model, wish.layers, wish.inner).eval()
        return Start(loaded=dataclasses.replace(teacher, model=smaller))
    arch = wish.arch or teacher.family
    config = new_models.config_of(arch, wish.preset, tokenizer)
    config = dataclasses.replace(config, **parsed(settings, {"model": type(config)}).get("model", {}))
    torch.manual_seed(seed)
    model = new_models.model_of(arch, config, (), tokenizer).eval()
    fresh = Loaded(
        folder=teacher.folder, model=model, kind=f"filbert-{arch}", labels=[], problem_type=None, fields={}, notes=[]
    )
    return Start(loaded=fresh, is_random=True)


# Without a task -------------------------------------------------------------------------------------------------------


@keywords.checked()
def distill_general(
    teacher: Path | str,
    corpus: Corpus,
    out: Path | str,
    wish: Wish,
    *,
    settings: Settings = (),
    seed: int | None = None,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    listener: Listeners = None,
) -> Finished:
    """Trains a student to read raw text as its teacher does, and leaves a run folder.

    What is learnt: how tokens relate in the teacher's last layer, and the words that it would put into blanks, where it
    has a head for them; else the vectors behind its layers.
    """
    check_home(Path(out))
    loaded, words = load(teacher), worded(settings)
    tokenizer = Tokenizer.load(loaded.folder)
    shape = [word for word in words if word.startswith("model.")]
    student = _student(loaded, wish, shape, seed or 0)
    recipe = general_recipe(loaded, student.loaded, student.is_random, words, seed or 0)
    shards = prepared(corpus, tokenizer, Path(out))
    begins_anew = student.is_random
    done = pretrain(
        shards, tokenizer, recipe, out, start=None if begins_anew else student.loaded.model, resume=resume,
        force=force, quiet=quiet, listener=listener, teacher=ReadingTeacher(loaded),
        base="" if begins_anew else str(student.loaded.folder), settings=words,
    )  # fmt: skip
    if recipe.distil is not None and recipe.distil.soft and shards.held.num_documents and is_first():
        models = {"student": done.module, "teacher": loaded.model}
        held = {n: measure(deepcopy(m), shards.held.shards, tokenizer, recipe.task) for n, m in models.items()}
        write_text(Path(out) / BESIDE, json_text({"teacher": str(loaded.folder), "held": held}))
    return done
