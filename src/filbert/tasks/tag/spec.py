"""Spans with labels as one record: how texts are read, decoders and schemes, how spans are written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction, Span
from filbert.nn import heads
from filbert.tasks.tag import decode
from filbert.tasks.task import AnyItems, FolderModel, Json, Report, TaskSpec, Trait
from filbert.tasks.wire import Wire
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.probing import Probing
    from filbert.tasks.question import Question, Reading, Target
    from filbert.tasks.tag.items import Items
    from filbert.tasks.view import View

DECODERS = ("softmax", "crf", "span")
KEPT = ("max_length", "overlap", "decoder", "scheme", "longest")

SCHEMES = ("auto", "bio", "bioes", "plain")

# Of published taggers without B- and I-: each word has a label (`words`), or runs of one label are a span (`runs`).
BARE = ("words", "runs")

_TAG, _DASHED = re.compile(r"O|[BIES](-.*)?"), re.compile(r"[BIES]-.*")


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read and how spans are found."""

    max_length: int = 512
    overlap: int = 64  # tokens that two windows share; at most half of one
    decoder: str = "softmax"  # softmax | crf | span
    scheme: str = "auto"  # how tags write spans: bio | bioes | plain; auto: as the training data need
    longest: int = 32  # tokens of a stretch that the span decoder scores
    label_smoothing: float = 0.0
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0, longest=1)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        settings.check_one_of("task", self, scheme=(*SCHEMES, *BARE), decoder=DECODERS)
        if self.label_smoothing and self.decoder != "softmax":
            raise InputError(f"task.label_smoothing is for task.decoder=softmax; leave it out with {self.decoder}.")


def fitted(config: Config, examples: Sequence[Example]) -> Config:
    """The config with the scheme that the training data need."""
    golds = [(example.texts[0], example.gold) for example in examples if example.gold is not None]
    covered = any(len(gold) > 1 for _, gold in golds) and all(decode.covers(text, gold) for text, gold in golds)
    return replace(config, scheme="plain" if covered else "bio") if config.scheme == "auto" else config


def idle(config: Config) -> Mapping[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    return {} if config.decoder == "span" else {"longest": f"while task.decoder is {config.decoder}; it is of span"}


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...]:
    """The tags of the kinds of spans that occur; for the span decoder the kinds themselves."""
    kinds = sorted({span.label for example in examples for span in example.gold})
    if not kinds:
        raise InputError("the training data holds no spans, so there is nothing to learn.")
    return tuple(kinds) if config.decoder == "span" else _tag_set(kinds, fitted(config, examples).scheme)


def _tag_set(kinds: Sequence[str], scheme: str) -> tuple[str, ...]:
    return decode.tag_set(kinds, "bioes")[1:] if scheme == "plain" else decode.tag_set(kinds, scheme)


def kinds_of(tags: Sequence[str], scheme: str = "") -> tuple[str, ...]:
    """The kinds of spans that tags write."""
    named = (tag if scheme in BARE else tag[2:] or decode.NAMELESS for tag in tags if tag != decode.OUTSIDE)
    return tuple(sorted(set(named)))


def scheme_of(tags: Sequence[str]) -> str:
    """The scheme that tags are written in, judged by the tags."""
    if not all(map(_TAG.fullmatch, tags)) and not any(map(_DASHED.fullmatch, tags)):
        return "runs" if decode.OUTSIDE in tags else "words"
    if set(tags) == set(_tag_set(kinds_of(tags), "plain")):
        return "plain"
    return "bioes" if any(tag.startswith(("E-", "S-")) for tag in tags) else "bio"


def from_transformers(model: FolderModel, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a folder of transformers': its head and its tags tell."""
    decoder = "span" if "pointer" in model.parts else "crf" if "crf" in model.parts else "softmax"
    return {"max_length": model.config.max_length, "decoder": decoder, "scheme": scheme_of(labels)}


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A tagger"


def span_labels(example: Example) -> tuple[str, ...]:
    """The labels of its spans."""
    return tuple(span.label for span in example.gold or ())


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: every span with its place, text and score."""
    text = example.texts[0]

    def shown(span: Span) -> Json:
        return {"text": text[span.start : span.end], "label": span.label, "start": span.start, "end": span.end}

    gold = {} if example.gold is None else {"gold": [shown(span) for span in example.gold]}
    return {"entities": [{**shown(span), "score": round(span.score, 6)} for span in prediction.spans], **gold}


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.tag.items import DECODERS as KINDS

    return KINDS[config.decoder](examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.tag.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained: tags, or stretches of a span decoder."""
    from filbert.tasks.tag.question import Entities, Stretches

    return (Stretches if reading.task.config.decoder == "span" else Entities)(reading, target)


def view(items: Items[Any], raw: Sequence[Any], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.tag.view import Spans

    return Spans(items, raw, report)


def probe() -> type[Probing]:
    """What is probed."""
    from filbert.tasks.tag.probe import Spans

    return Spans


def abroad(fields: Mapping[str, object]) -> list[str]:
    """What transformers does otherwise with such a folder."""
    return ["Spans are decoded by filbert's own rules; there, by the pipeline's."]


SPEC = TaskSpec(
    name="tag",
    config=Config,
    items=items,
    record=record,
    files=files,
    abroad=abroad,
    probe=probe,
    wire=Wire(pipeline="token-classification", has_entities=True),
    question=question,
    card=card,
    view=view,
    gold_names=span_labels,
    part=heads.TOKENS.part,
    parts=(heads.TOKENS.part, heads.POINTER.part),
    kept=KEPT,
    traits=frozenset({Trait.ANY_TEXT}),
    fit=fitted,
    labels=label_names,
    idle=idle,
    from_transformers=from_transformers,
)
