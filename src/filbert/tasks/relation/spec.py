"""Relations of two mentions as one record: how texts are read and results written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Floats, Prediction, Span
from filbert.nn import heads
from filbert.tasks.classify import spec as classify
from filbert.tasks.relation.reading import Relation, apart, places
from filbert.tasks.task import AnyItems, Asked, Json, Report, TaskSpec, Trait, usual_request
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.question import Question, Reading, Target
    from filbert.tasks.relation.items import Items
    from filbert.tasks.view import View

KEPT = ("max_length", "marks", "none", "temperature")

NUM_MARKS = 4  # before and behind the head, before and behind the tail

SIGNS = tuple("¤§¶†‡※¦¬‖∥^|~`@#$*")  # the rarest in running text first

NO_RELATION = (
    *("unknown", "none", "no_relation", "no relation", "no-relation", "norelation", "na", "n/a", "nil", "null"),
    *("other", "无", "无关系", "没有关系", "未知", "其他", "其它"),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read and which label says that there is no relation."""

    max_length: int = 512
    label_smoothing: float = 0.0
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from
    marks: str = ""  # four tokens with spaces between: before and behind the head, then the tail; "": by the vocabulary
    none: str = ""  # the label that says that there is no relation; "": the one with a usual name for it, if any
    temperature: float = 1.0  # divides the scores before they are probabilities; dev data fit it

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=16)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        settings.check_positive("task", self, temperature=1_000)
        if self.marks and len(set(self.marks.split())) != NUM_MARKS:
            raise InputError(f"task.marks is {self.marks!r}, but must be four different tokens with spaces between.")


def label_names(config: Config, examples: Sequence[Example]) -> None:
    """Those of the data; an example that has none is named."""
    for index, example in enumerate(examples):
        if checked(example, index).gold.label is None:
            raise InputError(f"{example.where(index)}: has no relation, so it cannot be learnt from.")


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return f"A classifier of {len(labels)} relations"


def requested(texts: Iterable[object]) -> list[Example]:
    """What `predict` is given, each (text, head, tail) with mentions as (start, end) or as words, as examples."""
    examples = []
    for index, each in enumerate(texts):
        if not isinstance(each, tuple | list) or len(each) != 3 or not isinstance(each[0], str):
            raise InputError(
                f"text {index} is {str(each)[:40]!r}, but must be (text, head, tail), the two as (start, end) or as "
                "words: this model reads relations; on the command line, give them as --data."
            )
        try:
            spans = apart(*(places(each[0], each[side], role) for side, role in ((1, "head"), (2, "tail"))))
        except InputError as error:
            raise InputError(f"text {index}: {error}") from None
        examples.append(Example((each[0],), Relation(*spans), index))
    return examples


def unasked(example: Example) -> Asked:
    """(text, head, tail), the mentions by their places."""
    if example.gold is None:
        return usual_request(example)
    head, tail = example.gold.head, example.gold.tail
    return example.texts[0], (head.start, head.end), (tail.start, tail.end)


def relation_of(example: Example) -> str | None:
    """The label of its relation; None where that is not known."""
    return example.gold.label if example.gold is not None else None


def names(example: Example) -> tuple[str, ...]:
    """The same as a word."""
    return (str(example.gold.label),) if example.gold is not None else ()


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: both mentions with their places, the likeliest label, and all."""
    text = example.texts[0]
    mentions = {span.label: {"text": text[span.start : span.end], "start": span.start, "end": span.end}
            for span in prediction.spans}  # fmt: skip
    return {**mentions, **classify.record(replace(example, gold=example.gold.label), prediction, top)}


def marks_of(tokenizer: Tokenizer) -> str:
    """Four tokens that texts hold never or hardly ever: reserved ones, rare signs, or the last of the vocabulary."""
    vocabulary = tokenizer.vocabulary
    reserved = [token for token in vocabulary if re.fullmatch(r"\[unused\d+\]", token)][:NUM_MARKS]
    if len(reserved) == NUM_MARKS:
        return " ".join(reserved)
    controls = {tokenizer.token_of(index) for index in tokenizer.special_ids}
    last = [token for token in reversed(vocabulary) if token not in controls and token.split() == [token]]
    return " ".join(list(dict.fromkeys([*(sign for sign in SIGNS if sign in tokenizer), *last]))[:NUM_MARKS])


def checked(example: Example, index: int) -> Example:
    """The example, with its two mentions inside its text and called head and tail."""
    gold, where = example.gold, example.where(index)
    if not isinstance(gold, Relation):
        raise InputError(f"{where}: has no two mentions, but a relation is one of a head and a tail in a text.")
    sides = (("head", gold.head), ("tail", gold.tail))
    try:
        (head,), (tail,) = (places(example.texts[0], (span.start, span.end), role) for role, span in sides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return replace(example, gold=Relation(Span(*head, "head"), Span(*tail, "tail"), gold.label))


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.relation.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.relation.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained."""
    from filbert.tasks.relation.question import Relations

    return Relations(reading, target)


def view(items: Items, raw: Sequence[Floats], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.relation.view import Relations

    return Relations(items, raw, report)


SPEC = TaskSpec(
    name="relation",
    config=Config,
    items=items,
    record=record,
    files=files,
    question=question,
    card=card,
    view=view,
    part=heads.RELATION.part,
    kept=KEPT,
    traits=frozenset({Trait.RANKS, Trait.CHOOSES}),
    labels=label_names,
    asked=requested,
    unasked=unasked,
    gold_label=relation_of,
    gold_names=names,
)
