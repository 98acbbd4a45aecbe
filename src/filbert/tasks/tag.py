"""A label for each stretch that has one, such as names and places: texts and spans in, a tag head's loss or spans out.

Every token gets a tag (BIO or BIOES) that says whether a span of some kind begins or goes on there. A long text is read
in windows (text.windows), and each token is answered for by the one that owns it. The tags of a text are the best legal
sequence over all of it (decode.tags), so no window ends a span that the next goes on with.

Legend: T tokens of the row, N texts, L tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Term
from filbert.core.records import Example, Prediction, Span
from filbert.decode import tags as decoding
from filbert.decode.labels import probabilities
from filbert.metrics import tags as metrics
from filbert.tasks import classify
from filbert.text.tokenizer import Pieces, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "tokens"
KEPT = ("max_length", "overlap", "scheme")
NOTHING = classify.NOTHING
SCHEMES = ("bio", "bioes")


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read and spans are written as tags."""

    max_length: int = 128
    overlap: int = 64  # tokens that two windows share; at most half of one
    scheme: str = "bio"
    label_smoothing: float = 0.0
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from

    def __post_init__(self) -> None:
        for name, least in (("max_length", 8), ("overlap", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"task.{name} is {value!r}, but must be a whole number of {least} or more.")
        for name in ("label_smoothing", "mask_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"task.{name} is {getattr(self, name)!r}, but must be from 0 up to 1.")
        if self.scheme not in SCHEMES:
            raise one_of("task.scheme", self.scheme, SCHEMES)


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...]:
    """The tags of the kinds of spans that occur."""
    kinds = sorted({span.label for example in examples for span in example.gold})
    if not kinds:
        raise InputError("the training data holds no spans, so there is nothing to learn.")
    return decoding.tag_set(kinds, config.scheme)


def published(model: Any, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a published folder: its tags tell the scheme."""
    scheme = "bioes" if any(label.startswith(("E-", "S-")) for label in labels) else "bio"
    return {"max_length": model.config.max_length, "scheme": scheme}


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A tagger"


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: every span with its place, text and score."""
    text = example.texts[0]

    def told(span: Span) -> dict[str, Any]:
        return {"text": text[span.start : span.end], "label": span.label, "start": span.start, "end": span.end}

    gold = {} if example.gold is None else {"gold": [told(span) for span in example.gold]}
    return {"entities": [{**told(span), "score": round(span.score, 6)} for span in said.spans], **gold}


class Task(classify.Task):
    """Tagging of texts; one whose spans are unknown can be tagged, not learnt from."""

    num_texts = 1
    watched = "tag_f1"
    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.config, self.parts = tuple(labels), tokenizer, config, ("tokens",)
        if decoding.OUTSIDE not in self.labels:
            raise InputError(f"the labels {', '.join(labels)[:80]} have no {decoding.OUTSIDE}, which a tagger needs.")
        self.legal = decoding.allowed(self.labels, config.scheme)
        self.examples = list(examples)
        self.pieces: Pieces = self._cut([example.texts for example in examples])
        self.changed: Counter[str] = Counter()
        self.gold = self._tags()

    def _tags(self) -> npt.NDArray[Any]:
        """[tokens of all texts] the place of each token's tag."""
        places = {label: place for place, label in enumerate(self.labels)}
        found = np.full(len(self.ids), NOTHING, dtype=np.int64)
        for index, example in enumerate(self.examples):
            if example.gold is None:
                continue
            tokens, begin = self.pieces[index], self.pieces.boundaries[index]
            lined = decoding.aligned(example.gold, tokens.starts, tokens.ends)
            for kind in ("cut", "loose", "lost", "overlapping"):
                self.changed[kind] += len(getattr(lined, kind))
            names = decoding.tags(lined.entities, len(tokens.ids), self.config.scheme)
            unknown = next((name for name in names if name not in places), None)
            if unknown is not None:
                kinds = sorted({name[2:] for name in self.labels if name != decoding.OUTSIDE})
                raise one_of(f"{classify.place_of(example, index)}: the kind of a span", unknown[2:], kinds)
            found[begin : begin + len(names)] = [places[name] for name in names]
        return found

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_unknown(self) -> bool:
        """Whether the spans of some text are unknown."""
        return any(example.gold is None for example in self.examples)

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        told = {
            "cut": "spans begin or end inside a token, which is learnt as a whole",
            "loose": "spans have white space at an edge, which is not learnt",
            "lost": "spans hold nothing that the model can read and are not learnt",
            "overlapping": "spans share text with a longer one and are not learnt",
        }
        return [f"{self.changed[kind]:,} {what}." for kind, what in told.items() if self.changed[kind]]

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The windows packed by length, and the tag of every token that its window owns."""
        made, which = self._packed(orders[1], budget), self._windows_of(orders[1])
        first = self.cuts.first[which]
        counts = first[:, 3] - first[:, 2]
        sources = classify.ranges(first[:, 2], counts)
        rows = sources + np.repeat(made.starts + 1 - first[:, 0], counts)
        labels = np.full(len(made.packed.ids), NOTHING, dtype=np.int64)
        labels[rows] = self.gold[sources]
        own = first[:, 2:] - first[:, :1] + 1  # in the window, whose first place is [CLS]'s
        return Batch(made.packed, made.starts, made.owners, {"tags": labels, "own": own})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many tokens the loss sums over."""
        return {"tag_loss": int((batch.targets["tags"] != NOTHING).sum())}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the tags; `tag_f1` is that of the tokens that have a tag other than O."""
        import torch.nn.functional as F

        gold = batch.targets["tags"]
        smoothing = self.config.label_smoothing if model.training else 0.0
        scores_TL = self.scores(model, batch)
        off = F.cross_entropy(scores_TL, gold, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing)
        known, said = gold != NOTHING, scores_TL.detach().argmax(-1)
        outside = self.labels.index(decoding.OUTSIDE)
        named, called = known & (gold != outside), known & (said != outside)
        right = (named & (said == gold)).sum()
        return {
            "tag_loss": Term(off, known.sum()),
            "tag_accuracy": Term((known & (said == gold)).sum(), known.sum()),
            "tag_f1": Term(2 * right, named.sum() + called.sum()),
        }

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[T, L] in float32."""
        packed = self._hidden(batch.packed) if model.training and self.config.mask_prob else batch.packed
        head = model.heads["tokens"]
        return head(model(packed).to(head.weight.dtype)).float()  # type: ignore[no-any-return]

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """Of each text, the scores of its tokens, each from the window that owns it."""
        scores, starts = self.scores(model, batch).cpu().numpy(), batch.starts.cpu().numpy()
        owners = batch.owners.cpu().numpy()
        found: list[list[Any]] = [[] for _ in range(int(owners.max(initial=-1)) + 1)]
        own = batch.targets["own"].cpu().numpy()
        for start, owner, (begin, end) in zip(starts, owners, own, strict=True):
            found[owner].append(scores[start + begin : start + end])
        return [np.concatenate(parts) for parts in found]

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """The spans of each text, in its own characters, by the best legal tags."""
        found = []
        for tokens, scores in zip(self.pieces, raw, strict=True):
            shares = probabilities(scores) if len(scores) else np.zeros((0, len(self.labels)))
            logs = np.log(np.maximum(shares, 1e-300))
            places = decoding.viterbi(logs, [0, len(logs)], legal=self.legal)
            names = [self.labels[place] for place in places.tolist()]
            spans = decoding.spans(
                decoding.entities(names, self.config.scheme), tokens.starts, tokens.ends,
                shares[np.arange(len(places)), places],
            )  # fmt: skip
            found.append(Prediction(spans=spans))
        return found

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """Precision, recall and F1 of whole spans, with intervals and for each kind; equal to seqeval's."""
        kinds = tuple(sorted({name[2:] for name in self.labels if name != decoding.OUTSIDE}))
        said = [prediction.spans for prediction in self.predictions(raw)]
        return metrics.summary(metrics.table([example.gold for example in self.examples], said, kinds))
