"""A label for each stretch that has one, such as names and places: texts and spans in, a tag head's loss or spans out.

Three decoders. `softmax` and `crf` give every token a tag that says whether a span of some kind begins, goes on or ends
there, and take the best legal sequence of them (tasks.tag.decode); a CRF has learnt which tag follows which (nn.crf).
`span` scores every stretch of up to `longest` tokens for every kind (nn.pointer), so that spans may lie within others.

A long text is read in windows (text.windows). A token is answered for by the window that owns it, a stretch by the one
that owns its first token, or by the next that sees all of it. Tags are decoded over the whole text, and the likelihood
of a CRF is that of the whole text: no window ends a span that the next goes on with.

Where every word or character has a label (parts of speech), the gold spans leave nothing of the text out. The scheme is
then `plain`: the tags of `bioes` without O, so that words and their labels are found together in a text that nobody has
cut into words. `auto` looks at the training data: `plain` where spans cover every text, else `bio`.

Legend: T tokens of the row, B windows, U tokens of texts end to end, L tags, J reach of a stretch, C kinds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Prediction, Span
from filbert.metrics import calibration
from filbert.metrics import tags as metrics
from filbert.nn import crf_walk, numpy_heads
from filbert.tasks.classify import items as classify
from filbert.tasks.classify.decode import probabilities
from filbert.tasks.tag import decode as decoding
from filbert.text.tokenizer import Pieces, Tokenizer, Tokens

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "tokens"
HEADS = ("tokens", "pointer")  # of which a model for it has one
KEPT = ("max_length", "overlap", "decoder", "scheme", "longest")
ONE_ANSWER = True  # of a text: nothing is ranked that could be cut short
NOTHING = classify.NOTHING
SCHEMES = ("auto", "bio", "bioes", "plain")
# Of published taggers without B- and I-: each word has a label (`words`), or runs of one label are a span (`runs`).
BARE = ("words", "runs")
_TAG, _DASHED = re.compile(r"O|[BIES](-.*)?"), re.compile(r"[BIES]-.*")
CELLS = 2**23  # pairs of tags that are weighed at a time
TOLD = {
    "cut": "spans begin or end inside a token, which is learnt as a whole",
    "loose": "spans have white space at an edge, which is not learnt",
    "lost": "spans hold nothing that the model can read and are not learnt",
    "overlapping": "spans share text with a longer one and are not learnt; task.decoder=span learns both",
    "long": "spans have more tokens than task.longest and are not learnt; raise it",
    "parted": "spans stand whole in no window and are not learnt; raise task.overlap or task.max_length",
}
Places = npt.NDArray[np.int64]
Read = tuple[Places, npt.NDArray[Any]]  # [U] a text's tags and [U, L] how likely each was


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
    covered = any(len(gold) > 1 for _, gold in golds) and all(decoding.covers(text, gold) for text, gold in golds)
    return replace(config, scheme="plain" if covered else "bio") if config.scheme == "auto" else config


def idle(config: Config) -> dict[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    return {} if config.decoder == "span" else {"longest": f"while task.decoder is {config.decoder}; it is of span"}


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...]:
    """The tags of the kinds of spans that occur; for the span decoder the kinds themselves."""
    kinds = sorted({span.label for example in examples for span in example.gold})
    if not kinds:
        raise InputError("the training data holds no spans, so there is nothing to learn.")
    return tuple(kinds) if config.decoder == "span" else _tag_set(kinds, fitted(config, examples).scheme)


def _tag_set(kinds: Sequence[str], scheme: str) -> tuple[str, ...]:
    return decoding.tag_set(kinds, "bioes")[1:] if scheme == "plain" else decoding.tag_set(kinds, scheme)


def _kinds(tags: Sequence[str], scheme: str = "") -> tuple[str, ...]:
    named = (tag if scheme in BARE else tag[2:] or decoding.NAMELESS for tag in tags if tag != decoding.OUTSIDE)
    return tuple(sorted(set(named)))


def _scheme(tags: Sequence[str]) -> str:
    """What the tags themselves tell."""
    if not all(map(_TAG.fullmatch, tags)) and not any(map(_DASHED.fullmatch, tags)):
        return "runs" if decoding.OUTSIDE in tags else "words"
    if set(tags) == set(_tag_set(_kinds(tags), "plain")):
        return "plain"
    return "bioes" if any(tag.startswith(("E-", "S-")) for tag in tags) else "bio"


def published(model: Any, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a folder that has none of its own: its head and its tags tell."""
    decoder = "span" if "pointer" in model.parts else "crf" if "crf" in model.parts else "softmax"
    return {"max_length": model.config.max_length, "decoder": decoder, "scheme": _scheme(labels)}


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A tagger"


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: every span with its place, text and score."""
    text = example.texts[0]

    def told(own: Span) -> dict[str, Any]:
        return {"text": text[own.start : own.end], "label": own.label, "start": own.start, "end": own.end}

    gold = {} if example.gold is None else {"gold": [told(span) for span in example.gold]}
    return {"entities": [{**told(span), "score": round(span.score, 6)} for span in said.spans], **gold}


class Task(classify.Task):
    """Tagging of texts, a class for each decoder; one whose spans are unknown can be tagged, not learnt from."""

    num_texts = 1
    watched = "tag_f1"
    config: Any
    kinds: tuple[str, ...]

    def __new__(cls, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> Task:
        """One of the class that the config's decoder is."""
        return super().__new__(DECODERS[config.decoder])

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.examples = tuple(labels), tokenizer, list(examples)
        self.config = replace(config, scheme=_scheme(labels)) if config.scheme == "auto" else config
        self.changed: Counter[str] = Counter()
        self._ready()
        self.pieces: Pieces = self._cut([example.texts for example in examples])
        self.gold = self._learnt()

    def _ready(self) -> None:
        """Checks the labels and makes what decoding needs."""
        raise NotImplementedError

    def _learnt(self) -> npt.NDArray[Any]:
        """What is learnt of the gold spans, as numbers."""
        raise NotImplementedError

    def _aligned(self) -> Iterator[tuple[int, Example, Tokens, tuple[decoding.Entity, ...]]]:
        """Every text whose spans are known, with its tokens and the spans over them; what changed is counted."""
        for index, example in enumerate(self.examples):
            if example.gold is None:
                continue
            unknown = next((span.label for span in example.gold if span.label not in self.kinds), None)
            if unknown is not None:
                raise one_of(f"{classify.place_of(example, index)}: the kind of a span", unknown, self.kinds)
            tokens = self.pieces[index]
            lined = self._lined(example.gold, tokens)
            for kind in ("cut", "loose", "lost", "overlapping"):
                self.changed[kind] += len(getattr(lined, kind))
            yield index, example, tokens, lined.entities

    def _lined(self, gold: Sequence[Span], tokens: Tokens) -> decoding.Alignment:
        return decoding.aligned(gold, tokens.starts, tokens.ends)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_unknown(self) -> bool:
        """Whether the spans of some text are unknown."""
        return any(example.gold is None for example in self.examples)

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        return [f"{self.changed[kind]:,} {what}." for kind, what in TOLD.items() if self.changed[kind]]

    def vectors(self, model: Any, batch: Batch) -> Tensor:
        """[T, D]."""
        packed = self._hidden(batch.packed) if model.training and self.config.mask_prob else batch.packed
        return model(packed)  # type: ignore[no-any-return]

    def calibrated(self, raw: Sequence[Any], given: Collection[str] = ()) -> calibration.Fit:
        """The config as it is: dev data fix nothing of it."""
        return calibration.Fit(self.config)

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """Precision, recall and F1 of whole spans, with intervals and for each kind; equal to seqeval's.

        Where every word has a label, `accuracy` too: of the labels of the gold words.
        """
        said = [prediction.spans for prediction in self.predictions(raw)]
        table = metrics.table([example.gold for example in self.examples], said, self.kinds)
        return metrics.summary(table, self._words_right(raw))

    def _words_right(self, raw: Sequence[Any]) -> metrics.Counts | None:
        """[N, 2] right words and words of each text; None where the data do not tell what the words are."""
        return None


class Tagged(Task):
    """A tag for every token, each by itself in training; the best legal sequence of them in prediction."""

    parts: tuple[str, ...] = ("tokens",)

    def _ready(self) -> None:
        scheme = self.config.scheme
        if scheme in ("plain", "words") and decoding.OUTSIDE in self.labels:
            shown = ", ".join(self.labels)[:80]
            raise InputError(f"the labels {shown} have {decoding.OUTSIDE}, which a scheme without it cannot have.")
        self.scheme = "bioes" if scheme == "plain" else "plain" if scheme in BARE else scheme
        self.kinds, self.legal = _kinds(self.labels, scheme), decoding.allowed(self.labels, self.scheme)

    def _learnt(self) -> npt.NDArray[Any]:
        """[tokens of all texts] the place of each token's tag."""
        places = {label: place for place, label in enumerate(self.labels)}
        found = np.full(len(self.ids), NOTHING, dtype=np.int64)
        for index, example, tokens, entities in self._aligned():
            tags = decoding.spread if self.config.scheme in BARE else decoding.tags
            names = tags(entities, len(tokens.ids), self.scheme)
            if decoding.OUTSIDE in names and decoding.OUTSIDE not in places:
                at = int(tokens.starts[names.index(decoding.OUTSIDE)])
                what = f"{example.texts[0][at : at + 20]!r} has no label, but this tagger knows no text without one."
                raise InputError(f"{classify.place_of(example, index)}: {what}")
            begin = self.pieces.boundaries[index]
            found[begin : begin + len(names)] = [places[name] for name in names]
        return found

    def _entities(self, tags: Sequence[str], tokens: Tokens) -> list[decoding.Entity]:
        """The spans that tags draw; where they have no prefix, by words or by runs of words."""
        if self.config.scheme not in BARE:
            return decoding.entities(tags, self.scheme)
        goes_on = self.tokenizer.continues[tokens.ids]
        goes_on[1:] &= tokens.starts[1:] == tokens.ends[:-1]
        return decoding.word_entities(tags, ~goes_on, self.config.scheme == "runs")

    def _lined(self, gold: Sequence[Span], tokens: Tokens) -> decoding.Alignment:
        whole = self.config.scheme == "plain"
        return decoding.tiled(gold, tokens.starts, tokens.ends) if whole else super()._lined(gold, tokens)

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The windows packed by length, and the tag of every token that its window owns."""
        made, which = self._packed(orders[1], budget), self._windows_of(orders[1])
        first = self.cuts.first[which]
        own = first[:, 2:] - first[:, :1] + 1  # in the window, whose first place is [CLS]'s
        labels = np.full(len(made.packed.ids), NOTHING, dtype=np.int64)
        labels[_owned_rows(made.starts, own)] = self.gold[classify.ranges(first[:, 2], first[:, 3] - first[:, 2])]
        return Batch(made.packed, made.starts, made.owners, {"tags": labels, "own": own})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many tokens the loss sums over."""
        return {"tag_loss": int((batch.targets["tags"] != NOTHING).sum())}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the tags; `tag_f1` is that of the tokens that have a tag other than O."""
        gold = batch.targets["tags"]
        scores_TL = self.scores(model, batch)
        known, said = gold != NOTHING, self._said(model, batch, scores_TL.detach())
        outside = self.labels.index(decoding.OUTSIDE) if decoding.OUTSIDE in self.labels else NOTHING
        named, called = known & (gold != outside), known & (said != outside)
        right = (named & (said == gold)).sum()
        return {
            "tag_loss": Term(self._off(model, batch, scores_TL), known.sum()),
            "tag_accuracy": Term((known & (said == gold)).sum(), known.sum()),
            "tag_f1": Term(2 * right, named.sum() + called.sum()),
        }

    def _off(self, model: Any, batch: Batch, scores_TL: Tensor) -> Tensor:
        import torch.nn.functional as F

        smoothing = self.config.label_smoothing if model.training else 0.0
        gold = batch.targets["tags"]
        return F.cross_entropy(scores_TL, gold, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing)

    def _said(self, model: Any, batch: Batch, scores_TL: Tensor) -> Tensor:
        return scores_TL.argmax(-1)

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[T, L] in float32."""
        head = model.heads["tokens"]
        return head(self.vectors(model, batch).to(head.weight.dtype)).float()  # type: ignore[no-any-return]

    def num_decisions(self, batch: Batch) -> int:
        """How many tokens, each in the window that owns it."""
        own = batch.targets["own"]
        return int((own[:, 1] - own[:, 0]).sum())

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """What the head says of each token."""
        import torch

        scores_TL, own = self.scores(model, batch), batch.targets["own"]
        edges_B2 = batch.starts[:, None] + own
        marks = torch.zeros(len(scores_TL) + 1, dtype=torch.int32, device=scores_TL.device)
        marks.index_add_(0, edges_B2[:, 0], torch.ones_like(own[:, 0], dtype=torch.int32))
        marks.index_add_(0, edges_B2[:, 1], -torch.ones_like(own[:, 1], dtype=torch.int32))
        return Decisions("one", scores_TL, marks.cumsum(0)[:-1] > 0)

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """Of each text, the scores of its tokens, each from the window that owns it."""
        return self._by_text(batch, self.scores(model, batch).cpu().numpy())

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        return self._by_text(batch, host.heads.head("tokens", host(batch.packed)))

    def _by_text(self, batch: Batch, values_TX: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        starts, owners, own = _arrays(batch.starts, batch.owners, batch.targets["own"])
        rows = _owned_rows(starts, own)
        sizes = np.bincount(owners, weights=own[:, 1] - own[:, 0]).astype(np.int64)
        return np.split(values_TX[rows], np.cumsum(sizes)[:-1])

    def _read(self, raw: Sequence[Any]) -> Iterator[Read]:
        """The best legal tags of each text; many texts are walked side by side, as many as their tokens allow."""
        most = max(1, CELLS // len(self.labels) ** 2)
        for begin, end in decoding.together([len(each) for each in raw], most):
            shares = [self._shares(each) for each in raw[begin:end]]
            bounds = np.concatenate(([0], np.cumsum([len(each) for each in shares])))
            tags = crf_walk.viterbi(_logs(np.concatenate(shares)), bounds, legal=self.legal)
            yield from zip(np.split(tags, bounds[1:-1]), shares, strict=True)

    def _shares(self, raw: Any) -> npt.NDArray[Any]:
        """[U, L] the probabilities of a text's tags."""
        return probabilities(raw)

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """The spans of each text, in its own characters, by the best legal tags."""
        found = []
        for tokens, (tags, shares) in zip(self.pieces, self._read(raw), strict=True):
            entities = self._entities([self.labels[tag] for tag in tags.tolist()], tokens)
            sure = shares[np.arange(len(tags)), tags]
            found.append(Prediction(spans=decoding.spans(entities, tokens.starts, tokens.ends, sure)))
        return found

    def _words_right(self, raw: Sequence[Any]) -> metrics.Counts | None:
        if self.config.scheme != "plain":
            return None
        gold, said = [], []
        for example, tokens, own in zip(self.examples, self.pieces, raw, strict=True):
            starts, ends = ([getattr(span, edge) for span in example.gold] for edge in ("start", "end"))
            words = decoding.rows(starts, ends, tokens.starts, tokens.ends)
            gold.append([span.label for span in example.gold])
            said.append(decoding.unit_kinds(_logs(self._shares(own)), self.labels, words, self.kinds))
        return metrics.token_counts(gold, said)


class Chained(Tagged):
    """The tags of a text as one chain: a CRF learns which follows which, over all windows of the text."""

    parts = ("tokens", "crf")
    one_graph = False  # its loop is over the steps of the longest text, outside of a compiled graph

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The same, and the rows of each text's tokens in order; how many each has stays on the host."""
        made, texts = super().batch(orders, budget), orders[1]
        targets = {
            "token_rows": _owned_rows(made.starts, made.targets["own"]),
            "tokens_host": np.diff(self.pieces.boundaries)[texts].astype(np.int64),
            "known": np.array([self.examples[text].gold is not None for text in texts], dtype=np.float32),
        }
        return Batch(made.packed, made.starts, made.owners, {**made.targets, **targets})

    def _off(self, model: Any, batch: Batch, scores_TL: Tensor) -> Tensor:
        gold, rows, sizes, known = (batch.targets[name] for name in ("tags", "token_rows", "tokens_host", "known"))
        return model.heads["crf"].loss(scores_TL, gold, rows, sizes, known, self.legal)  # type: ignore[no-any-return]

    def _said(self, model: Any, batch: Batch, scores_TL: Tensor) -> Tensor:
        """While it trains, each token's own best tag; the chain's costs a walk and serves only to choose a state."""
        if model.training:
            return super()._said(model, batch, scores_TL)
        chain, rows, bounds = self._chain(model, batch)
        said: Tensor = batch.targets["tags"].new_zeros(len(scores_TL))
        said[rows] = chain.viterbi(scores_TL[rows], bounds)
        return said

    def _chain(self, model: Any, batch: Batch) -> tuple[Any, Tensor, Places]:
        """The CRF of these tags, the rows that it walks and the bounds of its texts."""
        bounds = np.concatenate(([0], np.cumsum(batch.targets["tokens_host"].numpy())))
        return model.heads["crf"].under(self.legal), batch.targets["token_rows"], bounds

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """All tags of a text at once, as its chain has them."""
        scores_UL = self.scores(model, batch)[batch.targets["token_rows"]]
        chain = model.heads["crf"].under(self.legal)
        return Decisions("chain", scores_UL, sizes=batch.targets["tokens_host"], chain=chain)

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """Of each text, the tags of its best legal sequence and how likely each tag is over all sequences."""
        chain, rows, bounds = self._chain(model, batch)
        scores_UL = self.scores(model, batch)[rows]
        both = (chain.viterbi(scores_UL, bounds), chain.marginals(scores_UL, bounds))
        tags, shares = (np.split(part.cpu().numpy(), bounds[1:-1]) for part in both)
        return list(zip(tags, shares, strict=True))

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        scores_UL = host.heads.head("tokens", host(batch.packed))[batch.targets["token_rows"]]
        bounds, weights = np.concatenate(([0], np.cumsum(batch.targets["tokens_host"]))), host.heads.chain()
        tags = crf_walk.viterbi(scores_UL, bounds, weights, self.legal)
        shares = crf_walk.marginals(scores_UL, bounds, weights, self.legal)
        return list(zip(*(np.split(part, bounds[1:-1]) for part in (tags, shares)), strict=True))

    def _read(self, raw: Sequence[Any]) -> Iterator[Read]:
        yield from raw

    def _shares(self, raw: Any) -> npt.NDArray[Any]:
        return np.asarray(raw[1])


class Pointed(Task):
    """A score for every stretch and kind; what is above 0 is a span, and spans may lie within others."""

    parts = ("pointer",)

    def _ready(self) -> None:
        self.kinds = self.labels

    def _lined(self, gold: Sequence[Span], tokens: Tokens) -> decoding.Alignment:
        return decoding.aligned(gold, tokens.starts, tokens.ends, nesting=True)

    def _learnt(self) -> npt.NDArray[Any]:
        """[spans, 4] window, first and last token among those of all texts, and kind, by window."""
        places = {kind: place for place, kind in enumerate(self.kinds)}
        rows = [
            (self.pieces.boundaries[index] + first, self.pieces.boundaries[index] + end - 1, places[kind])
            for index, _, _, entities in self._aligned()
            for first, end, kind in entities
        ]
        spans = np.array(rows, dtype=np.int64).reshape(-1, 3)
        read, windows = self.cuts.first, self._window_of(spans[:, 0], spans[:, 1])
        long = spans[:, 1] - spans[:, 0] >= self.config.longest
        parted = ~long & (read[windows, 0] > spans[:, 0])
        self.changed["long"], self.changed["parted"] = int(long.sum()), int(parted.sum())
        kept = ~long & ~parted
        found = np.concatenate((windows[kept, None], spans[kept]), axis=1)
        found = found[np.argsort(found[:, 0], kind="stable")]
        self.spans_from = np.searchsorted(found[:, 0], np.arange(len(read) + 1))  # [B+1] a window's: from:next from
        return found

    def _window_of(self, first: Places, last: Places) -> Places:
        """The window that answers for each stretch: its first token's, or a later one that sees its last."""
        read = self.cuts.first
        owner, seeing = (np.searchsorted(read[:, edge], at, side="right") for edge, at in ((3, first), (1, last)))
        return np.minimum(np.maximum(owner, seeing), len(read) - 1)

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return len(self.gold) > 0

    def _reach(self, which: Places) -> tuple[Places, Places]:
        """Tokens at which a stretch begins that one of the windows answers for; [tokens, 2] its shortest and longest.

        A token that an earlier window owns is here only for what that one does not see to its end.
        """
        read = self.cuts.first[which]
        counts = read[:, 3] - read[:, 0]
        tokens = classify.ranges(read[:, 0], counts)
        before = self.cuts.first[np.maximum(which - 1, 0), 1]
        before, end, own = (np.repeat(edge, counts) for edge in (before, read[:, 1], read[:, 2]))
        low = np.where(tokens < own, np.maximum(before - tokens, 0), 0)
        high = np.maximum(np.minimum(end - tokens, self.config.longest), low)
        return tokens, np.stack((low, high), axis=1)

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The windows packed by length; how far the stretches reach that begin at each row; and the right ones."""
        made, texts = self._packed(orders[1], budget), orders[1]
        which = self._windows_of(texts)
        read = self.cuts.first[which]
        shift = made.starts + 1 - read[:, 0]  # from a token's place among all to its row
        taught = np.array([self.examples[text].gold is not None for text in texts], dtype=np.bool_)[made.owners]
        tokens, reach_of = self._reach(which)
        reach, sizes = np.zeros((len(made.packed.ids), 3), dtype=np.int64), read[:, 3] - read[:, 0]
        reach[tokens + np.repeat(shift, sizes)] = np.column_stack((reach_of, np.repeat(taught, sizes)))
        counts = self.spans_from[which + 1] - self.spans_from[which]
        _, first, last, kind = self.gold[classify.ranges(self.spans_from[which], counts)].T
        targets = {
            "reach": reach,
            "gold_rows": first + np.repeat(shift, counts),
            "gold_cells": np.stack((last - first, kind), axis=1),
            "begins": read[:, 0] - np.asarray(self.pieces.boundaries)[texts][made.owners],
            "taught": taught,
        }
        return Batch(made.packed, made.starts, made.owners, targets)

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """Over how many windows and kinds the loss sums."""
        return {"tag_loss": int(batch.targets["taught"].sum()) * len(self.kinds)}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """How far right stretches are from being above 0 and all others from being below (nn.pointer.apart_loss)."""
        import torch

        from filbert.nn.pointer import apart_loss

        scores_TJC, open_TJ = self.stretches(model, batch)
        gold_TJC, cells = torch.zeros_like(scores_TJC, dtype=torch.bool), batch.targets["gold_cells"]
        gold_TJC[batch.targets["gold_rows"], cells[:, 0], cells[:, 1]] = True
        open_TJ = open_TJ & (batch.targets["reach"][:, 2:] > 0)
        said_TJC = (scores_TJC.detach() > 0) & open_TJ[:, :, None]
        off = apart_loss(scores_TJC, gold_TJC, open_TJ, batch.packed.boundaries)
        return {
            "tag_loss": Term(off, batch.targets["taught"].sum() * len(self.kinds)),
            "tag_f1": Term(2 * (said_TJC & gold_TJC).sum(), said_TJC.sum() + gold_TJC.sum()),
        }

    def stretches(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """[T, J, C] in float32, and which stretches [T, J] the window answers for."""
        import torch

        reach = min(self.config.longest, batch.packed.max_len)
        scores_TJC = model.heads["pointer"](self.vectors(model, batch), batch.packed.positions, reach)
        far = torch.arange(reach, device=scores_TJC.device)
        low, high = batch.targets["reach"][:, :1], batch.targets["reach"][:, 1:2]
        return scores_TJC, (far >= low) & (far < high)

    def num_decisions(self, batch: Batch) -> int:
        """Over how many windows and kinds."""
        return len(batch.starts) * len(self.kinds)

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """Whether each stretch is a span."""
        scores_TJC, open_TJ = self.stretches(model, batch)
        return Decisions("several", scores_TJC, open_TJ[:, :, None].expand_as(scores_TJC))

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """Of each text, the stretches above 0: [X, 3] first and last token and kind, and [X] their probabilities."""
        scores_TJC, open_TJ = self.stretches(model, batch)
        above = (scores_TJC > 0) & open_TJ[:, :, None]
        return self._found(batch, above.nonzero().cpu().numpy(), scores_TJC[above].sigmoid().cpu().numpy())

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        far, reach = np.arange(min(self.config.longest, batch.packed.max_len)), batch.targets["reach"]
        scores_TJC = host.heads.pointer(host(batch.packed), batch.packed.positions, len(far))
        above = (scores_TJC > 0) & ((far >= reach[:, :1]) & (far < reach[:, 1:2]))[:, :, None]
        return self._found(batch, np.argwhere(above), 1 / (1 + np.exp(-scores_TJC[above])))

    def _found(self, batch: Batch, cells: Places, sure: npt.NDArray[Any]) -> Sequence[Any]:
        starts, owners, begins = _arrays(batch.starts, batch.owners, batch.targets["begins"])
        order = np.argsort(starts)
        window = order[np.searchsorted(starts[order], cells[:, 0], side="right") - 1]
        first = cells[:, 0] - starts[window] - 1 + begins[window]
        found = np.stack((first, first + cells[:, 1], cells[:, 2]), axis=1)
        chosen = [owners[window] == text for text in range(int(owners.max(initial=-1)) + 1)]
        return [(found[mine], sure[mine]) for mine in chosen]

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """The spans of each text, in its own characters and their order; none crosses a better one."""
        found = []
        for tokens, (stretches, sure) in zip(self.pieces, raw, strict=True):
            spans = decoding.uncrossed(stretches, sure, self.labels, tokens.starts, tokens.ends)
            found.append(Prediction(spans=tuple(sorted(spans, key=lambda span: (span.start, span.end, span.label)))))
        return found


def _logs(shares: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Their logarithms; that of what is all but impossible is finite."""
    return np.log(np.maximum(shares.astype(np.float64), 1e-300))


def _arrays(*parts: Any) -> tuple[npt.NDArray[Any], ...]:
    """The same on the host."""
    return tuple(part if isinstance(part, np.ndarray) else part.cpu().numpy() for part in parts)


def _owned_rows(starts: Places, own: Places) -> Places:
    """The rows of the tokens that each window owns, window by window."""
    return classify.ranges(starts + own[:, 0], own[:, 1] - own[:, 0])


DECODERS: dict[str, type[Task]] = {"softmax": Tagged, "crf": Chained, "span": Pointed}
