"""A model and a text in; an explanation out: an attribution for each word, with a certificate.

    explanation = model.explain("这部电影太好看了")            # of the model's own prediction
    model.explain(text, target="体育", method="occlusion")
    model.explain("今天[MASK]气很好", target="天")        # of a pretrained model: a word at a [MASK]

What is explained is a number on the scale of log-odds (tasks.question): of a label, an entity, a relation, an
answer, an option or a word. Long texts are read whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filbert.core import settings
from filbert.core.errors import InputError, one_of
from filbert.core.records import Example, Floats, Prediction
from filbert.explain.attribution import GRADIENTS, METHODS
from filbert.explain.certificate import Certificate, certified
from filbert.explain.filling import FILL, Filling, Words
from filbert.explain.perturbation import BASELINES, Perturbation, Place
from filbert.explain.protocols import Looks
from filbert.tasks.question import Labels, Reading, Target, layout
from filbert.tasks.task import Asked, Json, Trait
from filbert.text.arguments import called


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a text is explained."""

    method: str = "integrated-gradients"  # one of METHODS
    baseline: str = "mask"  # what a missing word is read as: mask | pad | zero (vectors), or delete: it is not there
    certificate: bool = True  # whether to test the explanation; takes several times as long as making it
    budget: int = 120_000  # tokens that may be read: where they do not suffice, words are left out several at a time
    seed: int = 0  # of random orders and words

    def __post_init__(self) -> None:
        settings.check_one_of("explain", self, method=METHODS, baseline=BASELINES)
        settings.check_whole("explain", self, budget=1, seed=0)
        settings.check_flags("explain", self, "certificate")
        if self.baseline == "delete" and self.method in (*GRADIENTS, "attention-rollout"):
            raise InputError(
                f"explain.baseline is delete, which {self.method} cannot use; take method occlusion or sampling."
            )


def wanted(fields: Json) -> Config:
    """The config with these fields; one that it does not have is named."""
    for name in fields:
        if name not in Config.__dataclass_fields__:
            raise one_of("an option of explain", name, Config.__dataclass_fields__)
    return Config(**fields)


@dataclass(frozen=True, slots=True)
class Explanation:
    """How much each word moved the target's score, and how far that can be believed."""

    method: str
    target: str  # what is explained: a label, "ORG: 北京大学", an answer, an option, a word
    texts: tuple[str, ...]
    words: tuple[Place, ...]
    scores: Floats  # [words] signed: above 0 speaks for the target
    value: float  # the target's score, and that of the text without any word
    baseline: float
    certificate: Certificate | None
    model: str = ""
    task: str = ""
    architecture: str = ""
    coarse: int = 1  # so many neighbouring words were left out together and share their score

    def ranked(self) -> list[tuple[Place, float]]:
        """The words and their scores, what speaks most for the target first."""
        order = np.argsort(-self.scores, kind="stable").tolist()
        return [(self.words[place], float(self.scores[place])) for place in order]

    def as_view(self) -> dict[str, Any]:
        """As the list `explanations` of a view has it."""
        words = [
            {"part": word.part, "start": word.start, "end": word.end, "text": word.text, "score": _short(score)}
            for word, score in zip(self.words, self.scores.tolist(), strict=True)
        ]
        view = {"method": self.method, "target": self.target, "value": _short(self.value)}
        tested = None if self.certificate is None else self.certificate.as_view()
        return {**view, "baseline": _short(self.baseline), "words": words, "certificate": tested}

    def as_view_model(self, language: str | None = None) -> dict[str, Any]:
        """The view model of a page that shows this alone."""
        view: Mapping[str, Any] = {
            "model": self.model, "architecture": self.architecture, "task": self.task or None, "labels": [],
            "texts": list(self.texts), "windows": [], "coverage": 1.0, "prediction": None,
            "explanations": [self.as_view()], "blanks": [],
        }  # fmt: skip
        return {"format": 1, "title": self.target or self.method, "language": language, "views": [view]}

    def to_html(self, language: str | None = None) -> str:
        """One page that opens offline."""
        from filbert.draw import book

        return book.saved(self.as_view_model(language))


def explained(
    model: Looks, text: Asked, target: Target = None, how: Config | None = None, task: str | None = None
) -> Explanation:
    """The explanation of what a model says of a text, a pair, or whatever `predict` takes.

    target: a label, an option or its number, an entity's label or characters, an answer; (start, end) or (start, end,
    label) for a place in the text; a word at a [MASK]. Without one, what the model says. task: "fill" for a word at a
    [MASK] where the model was fine-tuned for something else.
    """
    how = how or Config()
    reading = read(model, text, task)
    perturbation = Perturbation(model.engine, reading, target, how.baseline)
    if not perturbation.words:
        raise InputError("the text holds no word that the model reads, so there is nothing to explain; give it one.")
    attribution = METHODS[how.method](perturbation, how.budget, how.seed)
    tested = None
    if how.certificate:
        tested = certified(perturbation, how.method, attribution, budget=how.budget, seed=how.seed)
    empty = float(perturbation.values(np.zeros((1, len(perturbation.words)), np.bool_))[0])
    return Explanation(
        how.method, perturbation.target, reading.example.texts, perturbation.words,
        attribution.scores.astype(np.float32), perturbation.value, empty, tested, _called(model.folder), reading.name,
        type(model.backbone).__name__.lower(), attribution.coarse,
    )  # fmt: skip


def read(model: Looks, text: Asked, task: str | None = None) -> Reading:
    """The text as the model's task reads it; a text with [MASK] as a pretrained model does."""
    if not isinstance(text, str | tuple | list):
        raise InputError(f"explain was given {called(text)}, but takes one text, or what `predict` takes for one.")
    if task == FILL or (task is None and _is_blank(model, text)):
        if not isinstance(text, str) or not model.backbone.fills:
            raise InputError(f"{model.folder}: fills no blanks, or the text is no string; leave task={FILL!r} out.")
        filling = Filling(text, model.tokenizer, model.config.max_length)
        example = Example((text,))
        return Reading(FILL, filling, example, Prediction(), layout(filling), filling.origins(example), Words)
    reader = model.reader(task)
    spec, items = reader.spec, reader.items(reader.examples([text]))
    if Trait.WRITES in spec.traits:
        raise InputError(
            f"{model.folder}: writes texts ({spec.name}), and explain asks for a label, a place or a word; "
            "`filbert attend` shows where a writer looked before each word."
        )
    prediction = items.predictions(model.engine.answers(items))[0] if spec.part else Prediction()
    example = items.examples[0]
    origins, question = items.origins(example), spec.question or Labels
    return Reading(spec.name, items, example, prediction, layout(items), origins, question)


def _is_blank(model: Looks, text: Asked) -> bool:
    """Whether only a [MASK] can be meant: the model fills blanks and was fine-tuned for nothing."""
    if not isinstance(text, str) or "mlm" not in model.backbone.parts:
        return False
    try:
        model.task()
    except InputError:
        return True
    return False


def _called(folder: Path) -> str:
    """A run's name rather than that of the model folder in it."""
    return folder.parent.name if folder.name == "model" else folder.name


def _short(number: float) -> float:
    """Six figures, which is more than the numbers are worth."""
    return float(f"{number:.6g}")
