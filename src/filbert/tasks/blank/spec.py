"""Labels by filling a blank as one record: templates, words, and the prior that is measured first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Floats
from filbert.tasks.classify import spec as classify
from filbert.tasks.task import AnyItems, TaskSpec, Trait
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.question import Question, Reading, Target

KEPT = ("template", "words", "prior", "offsets", "max_length", "overlap")

PRIORS = ("data", "empty", "none")

TEXT, MASK = "{text}", "[MASK]"

SAMPLE = 1_000  # texts that the prior is measured on

EMPTY = 16  # texts that the empty one weighs as much as: the prior of few texts is mostly its

ROOM = 8  # tokens of a text that a window has at least

HINT = "--set task.template='这是一条[MASK]新闻：{text}' --set task.words='体育=体育|比赛,财经=财经'"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The template, the words of the labels, and how texts are read."""

    template: str = ""  # holds {text} once, and [MASK] where the word stands
    words: str = ""  # label=word|word,…, or a JSON object; a label that is a word can be left out
    prior: str = "data"  # what is taken from the scores: their mean over texts, over an empty one, or nothing
    offsets: str = ""  # the prior of each label as a number, once it is measured
    max_length: int = 512
    overlap: int = 64  # tokens that two windows share; at most half of one
    label_smoothing: float = 0.0
    consistency: float = 0.0  # as classify has it
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from
    several: ClassVar[float] = 0.0  # one label for each text
    temperature: ClassVar[float] = 1.0  # its scores are log-probabilities as they are
    class_weights: ClassVar[str] = ""
    pool: ClassVar[str] = "blank"

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=2 * ROOM, overlap=0)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        if not 0 <= self.consistency <= 100:
            raise InputError(f"task.consistency is {self.consistency!r}, but must be from 0 to 100.")
        settings.check_one_of("task", self, prior=PRIORS)
        if self.template:
            frame(self.template, 1)
        spoken(self.words)
        numbers(self.offsets)


def frame(template: str, num_masks: int) -> tuple[str, str]:
    """What stands before and after the text, with a blank of so many masks."""
    parts = template.split(TEXT)
    blanks = re.split(r"\[MASK\](?:\s*\[MASK\])*", template)
    if len(parts) != 2 or len(blanks) != 2:
        what = f"{TEXT} once" if len(parts) != 2 else f"{MASK} in one place, for the word"
        raise InputError(f"task.template is {template[:80]!r}, but must have {what}: {HINT}.")
    before, _, after = (MASK * num_masks).join(blanks).partition(TEXT)
    return before, after


def spoken(words: str) -> dict[str, tuple[str, ...]]:
    """{"体育": ("体育", "比赛")} from 体育=体育|比赛, or from a JSON object where a label has such signs in it."""
    by_label: dict[str, tuple[str, ...]] = {}
    try:
        for label, spelt in _label_pairs(words):
            several = spelt.split("|") if isinstance(spelt, str) else spelt
            if label in by_label:
                raise ValueError("a label stands twice")
            by_label[label] = tuple(word.strip() for word in several)
    except (ValueError, TypeError, AttributeError):
        by_label = {"": ()}
    if not all(label and spelt and all(spelt) for label, spelt in by_label.items()):
        raise InputError(f"task.words is {words[:80]!r}, but must be labels, each once, with their words: {HINT}.")
    return by_label


def _label_pairs(words: str) -> Iterator[tuple[str, Any]]:
    """Each label with its words, as one text with | between them or as a list."""
    if words.startswith("{"):
        yield from json.loads(words, object_pairs_hook=list)
        return
    for part in words.split(",") if words else ():
        label, equals, spelt = part.partition("=")
        yield label.strip(), spelt if equals else label


def numbers(offsets: str) -> tuple[float, ...]:
    """The prior of each label as it is written."""
    try:
        priors = tuple(float(number) for number in offsets.split(",")) if offsets else ()
    except ValueError:
        priors = (float("nan"),)
    if not np.isfinite(priors).all():
        raise InputError(f"task.offsets is {offsets[:80]!r}, but must be numbers with commas; leave it out.")
    return priors


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...] | None:
    """The labels that have words, in their order; where none are given, the data say."""
    return tuple(spoken(config.words)) or None


def primed(
    config: Config,
    labels: Sequence[str],
    tokenizer: Tokenizer,
    texts: Sequence[str],
    answers: Callable[[AnyItems], Sequence[Floats]],
) -> Config:
    """The config with the prior measured by the model that `answers`: over texts spread through those given."""
    step = -(-len(texts) // SAMPLE) or 1
    some = list(texts[::step]) if config.prior == "data" and not config.offsets else []
    prompts = items([Example((text,)) for text in ["", *some]], labels, tokenizer, config)
    scores = np.asarray(answers(prompts))  # even where nothing is measured: a model that fills no blanks is refused
    if config.prior == "none" or config.offsets:
        return config
    prior = np.average(scores, axis=0, weights=[EMPTY, *[1] * len(some)])
    return replace(config, offsets=",".join(f"{number:.2f}" for number in prior))


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.blank.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.blank.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained."""
    from filbert.tasks.blank.question import Blanks

    return Blanks(reading, target)


def abroad(fields: Mapping[str, object]) -> list[str]:
    """What transformers does otherwise with such a folder."""
    return ["The text around the blank and the labels' words are in task.json; there, apply them yourself."]


SPEC = TaskSpec(
    name="blank",
    config=Config,
    items=items,
    record=classify.record,
    files=files,
    abroad=abroad,
    question=question,
    card=classify.card,
    part="mlm",
    kept=KEPT,
    traits=frozenset({Trait.AUGMENTS, Trait.RANKS, Trait.UNTAUGHT}),
    labels=label_names,
    primed=primed,
)
