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

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Floats, Prediction, Span
from filbert.nn import crf_walk
from filbert.nn.ops import A, Host, Numbers
from filbert.pack.lay import Places
from filbert.tasks.classify.decode import probabilities
from filbert.tasks.tag import decode
from filbert.tasks.tag import measure as metrics
from filbert.tasks.tag.spec import BARE, Config, kinds_of, scheme_of
from filbert.tasks.task import R, Report
from filbert.tasks.windowed import Windowed, ranges
from filbert.text.tokenizer import Tokenizer, Tokens

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.crf import CRF
    from filbert.nn.encoder import Encoder

NOTHING = -100  # the tag of a token that is not known, or that another window owns
CELLS = 2**23  # pairs of tags that are weighed at a time

REMARKS = {
    "cut": "spans begin or end inside a token, which is learnt as a whole",
    "loose": "spans have white space at an edge, which is not learnt",
    "lost": "spans hold nothing that the model can read and are not learnt",
    "overlapping": "spans share text with a longer one and are not learnt; task.decoder=span learns both",
    "long": "spans have more tokens than task.longest and are not learnt; raise it",
    "parted": "spans stand whole in no window and are not learnt; raise task.overlap or task.max_length",
}

Read = tuple[Places, Floats]  # [U] a text's tags and [U, L] how likely each was


class Items(Windowed[Config, R]):
    """Tagging of texts, a class for each decoder; one whose spans are unknown can be tagged, not learnt from."""

    watched = "tag_f1"
    kinds: tuple[str, ...]

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        fitted = replace(config, scheme=scheme_of(labels)) if config.scheme == "auto" else config
        super().__init__(examples, labels, tokenizer, fitted)
        self.mask_prob = config.mask_prob
        self.changed: Counter[str] = Counter()
        self._ready()
        self.pieces = self.cut([example.texts for example in examples], config.overlap)
        self.gold = self._learnt()

    @abstractmethod
    def _ready(self) -> None:
        """Checks the labels and makes what decoding needs."""

    @abstractmethod
    def _learnt(self) -> Places:
        """What is learnt of the gold spans, as numbers."""

    def _aligned(self) -> Iterator[tuple[int, Example, Tokens, tuple[decode.Entity, ...]]]:
        """Every text whose spans are known, with its tokens and the spans over them; what changed is counted."""
        for index, example in enumerate(self.examples):
            if example.gold is None:
                continue
            unknown = next((span.label for span in example.gold if span.label not in self.kinds), None)
            if unknown is not None:
                raise one_of(f"{example.where(index)}: the kind of a span", unknown, self.kinds)
            tokens = self.pieces[index]
            lined = self._lined(example.gold, tokens)
            for kind in ("cut", "loose", "lost", "overlapping"):
                self.changed[kind] += len(getattr(lined, kind))
            yield index, example, tokens, lined.entities

    def _lined(self, gold: Sequence[Span], tokens: Tokens) -> decode.Alignment:
        return decode.aligned(gold, tokens.starts, tokens.ends)

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from."""
        return self.ids, self.gold, self.cuts.first, self.cuts.second

    @property
    def has_unknown(self) -> bool:
        """Whether the spans of some text are unknown."""
        return any(example.gold is None for example in self.examples)

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        return [f"{self.changed[kind]:,} {what}." for kind, what in REMARKS.items() if self.changed[kind]]

    def vectors(self, host: Host[A], batch: Batch) -> A:
        """[T, D]."""
        return host.vectors(self.read(host, batch.packed))

    def evaluated(self, raw: Sequence[R]) -> Report:
        """Precision, recall and F1 of whole spans, with intervals and for each kind; equal to seqeval's.

        Where every word has a label, `accuracy` too: of the labels of the gold words.
        """
        predicted = [prediction.spans for prediction in self.predictions(raw)]
        table = metrics.table([example.gold for example in self.examples], predicted, self.kinds)
        return metrics.summary(table, self._words_right(raw))

    def _words_right(self, raw: Sequence[R]) -> metrics.Counts | None:
        """[N, 2] right words and words of each text; None where the data do not tell what the words are."""
        return None


class Tokenwise(Items[R]):
    """A tag for every token, read from the logits of each."""

    parts: tuple[str, ...] = ("tokens",)

    def _ready(self) -> None:
        scheme = self.config.scheme
        if scheme in ("plain", "words") and decode.OUTSIDE in self.labels:
            shown = ", ".join(self.labels)[:80]
            raise InputError(f"the labels {shown} have {decode.OUTSIDE}, which a scheme without it cannot have.")
        self.scheme = "bioes" if scheme == "plain" else "plain" if scheme in BARE else scheme
        self.kinds, self.legal = kinds_of(self.labels, scheme), decode.allowed(self.labels, self.scheme)

    def _learnt(self) -> Places:
        """[tokens of all texts] the place of each token's tag."""
        places = {label: place for place, label in enumerate(self.labels)}
        gold = np.full(len(self.ids), NOTHING, dtype=np.int64)
        for index, example, tokens, entities in self._aligned():
            tags = decode.spread if self.config.scheme in BARE else decode.tags
            names = tags(entities, len(tokens.ids), self.scheme)
            if decode.OUTSIDE in names and decode.OUTSIDE not in places:
                at = int(tokens.starts[names.index(decode.OUTSIDE)])
                what = f"{example.texts[0][at : at + 20]!r} has no label, but this tagger knows no text without one."
                raise InputError(f"{example.where(index)}: {what}")
            begin = self.pieces.boundaries[index]
            gold[begin : begin + len(names)] = [places[name] for name in names]
        return gold

    def _entities(self, tags: Sequence[str], tokens: Tokens) -> list[decode.Entity]:
        """The spans that tags draw; where they have no prefix, by words or by runs of words."""
        if self.config.scheme not in BARE:
            return decode.entities(tags, self.scheme)
        continues = self.tokenizer.continues[tokens.ids]
        continues[1:] &= tokens.starts[1:] == tokens.ends[:-1]
        return decode.word_entities(tags, ~continues, self.config.scheme == "runs")

    def _lined(self, gold: Sequence[Span], tokens: Tokens) -> decode.Alignment:
        whole = self.config.scheme == "plain"
        return decode.tiled(gold, tokens.starts, tokens.ends) if whole else super()._lined(gold, tokens)

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return bool((self.gold != NOTHING).any())

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The windows packed by length, and the tag of every token that its window owns."""
        laid, first = self.laid(orders, budget), self.cuts.first[self.windows_of(orders)]
        owned = first[:, 2:] - first[:, :1] + 1  # in the window, whose first place is [CLS]'s
        labels = np.full(len(laid.packed.ids), NOTHING, dtype=np.int64)
        labels[_owned_rows(laid.starts, owned)] = self.gold[ranges(first[:, 2], first[:, 3] - first[:, 2])]
        return Batch(laid.packed, laid.starts, laid.owners, {"tags": labels, "own": owned})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many tokens the loss sums over."""
        return {"tag_loss": int((batch.targets["tags"] != NOTHING).sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the tags; `tag_f1` is that of the tokens that have a tag other than O."""
        from filbert.nn.torch_ops import TorchHost

        gold = batch.targets["tags"]
        scores_TL = self.scores(TorchHost(model), batch)
        is_known, chosen = gold != NOTHING, self._chosen(model, batch, scores_TL.detach())
        outside = self.labels.index(decode.OUTSIDE) if decode.OUTSIDE in self.labels else NOTHING
        named, tagged = is_known & (gold != outside), is_known & (chosen != outside)
        right = (named & (chosen == gold)).sum()
        return {
            "tag_loss": Term(self._off(model, batch, scores_TL), is_known.sum()),
            "tag_accuracy": Term((is_known & (chosen == gold)).sum(), is_known.sum()),
            "tag_f1": Term(2 * right, named.sum() + tagged.sum()),
        }

    def _off(self, model: Encoder, batch: Batch, scores_TL: Tensor) -> Tensor:
        import torch.nn.functional as F

        smoothing = self.config.label_smoothing if model.training else 0.0
        gold = batch.targets["tags"]
        return F.cross_entropy(scores_TL, gold, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing)

    def _chosen(self, model: Encoder, batch: Batch, scores_TL: Tensor) -> Tensor:
        """[T] the tag of each token."""
        return scores_TL.argmax(-1)

    def scores(self, host: Host[A], batch: Batch) -> A:
        """[T, L] in float32."""
        return host.head("tokens", self.vectors(host, batch))

    def num_decisions(self, batch: Batch) -> int:
        """How many tokens, each in the window that owns it."""
        owned = batch.targets["own"]
        return int((owned[:, 1] - owned[:, 0]).sum())

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """The logits of each token."""
        import torch

        from filbert.nn.torch_ops import TorchHost

        scores_TL, owned = self.scores(TorchHost(model), batch), batch.targets["own"]
        edges_B2 = batch.starts[:, None] + owned
        marks = torch.zeros(len(scores_TL) + 1, dtype=torch.int32, device=scores_TL.device)
        marks.index_add_(0, edges_B2[:, 0], torch.ones_like(owned[:, 0], dtype=torch.int32))
        marks.index_add_(0, edges_B2[:, 1], -torch.ones_like(owned[:, 1], dtype=torch.int32))
        return Decisions("one", scores_TL, marks.cumsum(0)[:-1] > 0)

    def _by_text(self, host: Host[A], batch: Batch, values_TX: A) -> list[Floats]:
        """Of each text, the rows of its tokens, each from the window that owns it."""
        starts, owned, values = (host.xp.host(x) for x in (batch.starts, batch.targets["own"], values_TX))
        sizes = np.bincount(host.xp.host(batch.owners), weights=owned[:, 1] - owned[:, 0]).astype(np.int64)
        return np.split(values[_owned_rows(starts, owned)], np.cumsum(sizes)[:-1])

    @abstractmethod
    def _tags(self, raw: Sequence[R]) -> Iterator[Read]:
        """The best legal tags of each text, and how likely each tag was."""

    @abstractmethod
    def _shares(self, raw: R) -> Floats:
        """[U, L] the probabilities of a text's tags."""

    def predictions(self, raw: Sequence[R]) -> list[Prediction]:
        """The spans of each text, in its own characters, by the best legal tags."""
        predictions = []
        for tokens, (tags, shares) in zip(self.pieces, self._tags(raw), strict=True):
            entities = self._entities([self.labels[tag] for tag in tags.tolist()], tokens)
            sure = shares[np.arange(len(tags)), tags]
            predictions.append(Prediction(spans=decode.spans(entities, tokens.starts, tokens.ends, sure)))
        return predictions

    def _words_right(self, raw: Sequence[R]) -> metrics.Counts | None:
        if self.config.scheme != "plain":
            return None
        gold, predicted = [], []
        for example, tokens, of_text in zip(self.examples, self.pieces, raw, strict=True):
            starts, ends = ([getattr(span, edge) for span in example.gold] for edge in ("start", "end"))
            words = decode.rows(starts, ends, tokens.starts, tokens.ends)
            gold.append([span.label for span in example.gold])
            predicted.append(decode.unit_kinds(_logs(self._shares(of_text)), self.labels, words, self.kinds))
        return metrics.token_counts(gold, predicted)


class Tagged(Tokenwise[Floats]):
    """Each token's tag by itself in training; the best legal sequence of them in prediction."""

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Floats]:
        """Of each text, the logits of its tokens."""
        return self._by_text(host, batch, self.scores(host, batch))

    def _tags(self, raw: Sequence[Floats]) -> Iterator[Read]:
        """The best legal tags of each text; many texts are walked side by side, as many as their tokens allow."""
        most = max(1, CELLS // len(self.labels) ** 2)
        for begin, end in decode.together([len(each) for each in raw], most):
            shares = [self._shares(each) for each in raw[begin:end]]
            bounds = np.concatenate(([0], np.cumsum([len(each) for each in shares])))
            tags = crf_walk.viterbi(_logs(np.concatenate(shares)), bounds, legal=self.legal)
            yield from zip(np.split(tags, bounds[1:-1]), shares, strict=True)

    def _shares(self, raw: Floats) -> Floats:
        return probabilities(raw)  # type: ignore[return-value]


class Chained(Tokenwise[Read]):
    """The tags of a text as one chain: a CRF learns which follows which, over all windows of the text."""

    parts = ("tokens", "crf")
    one_graph = False  # its loop is over the steps of the longest text, outside of a compiled graph

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The same, and the rows of each text's tokens in order; how many each has stays on the host."""
        made = super().batch(orders, budget)
        targets = {
            "token_rows": _owned_rows(made.starts, made.targets["own"]),
            "tokens_host": np.diff(self.pieces.boundaries)[orders].astype(np.int64),
            "known": np.array([self.examples[text].gold is not None for text in orders], dtype=np.float32),
        }
        return Batch(made.packed, made.starts, made.owners, {**made.targets, **targets})

    def _off(self, model: Encoder, batch: Batch, scores_TL: Tensor) -> Tensor:
        gold, rows, sizes, has_gold = (batch.targets[name] for name in ("tags", "token_rows", "tokens_host", "known"))
        return self._crf(model).loss(scores_TL, gold, rows, sizes, has_gold, self.legal)

    @staticmethod
    def _crf(model: Encoder) -> CRF:
        head: CRF = model.heads["crf"]  # type: ignore[assignment]
        return head

    def _chosen(self, model: Encoder, batch: Batch, scores_TL: Tensor) -> Tensor:
        """While it trains, each token's own best tag; the chain's costs a walk and serves only to choose a state."""
        if model.training:
            return super()._chosen(model, batch, scores_TL)
        from filbert.nn.torch_ops import TORCH, TorchHost

        rows, host = batch.targets["token_rows"], TorchHost(model)
        tags = crf_walk.viterbi(TORCH.host(scores_TL[rows]), _bounds(batch), host.transitions("crf"), self.legal)
        chosen: Tensor = batch.targets["tags"].new_zeros(len(scores_TL))
        chosen[rows] = TORCH.at(tags, chosen)
        return chosen

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """All tags of a text at once, as its chain has them."""
        from filbert.nn.torch_ops import TorchHost

        scores_UL = self.scores(TorchHost(model), batch)[batch.targets["token_rows"]]
        chain = self._crf(model).under(self.legal)
        return Decisions("chain", scores_UL, sizes=batch.targets["tokens_host"], chain=chain)

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Read]:
        """Of each text, the tags of its best legal sequence and how likely each tag is over all sequences."""
        scores_UL = host.xp.host(self.scores(host, batch)[batch.targets["token_rows"]])
        bounds, weights = _bounds(batch), host.transitions("crf")
        tags = crf_walk.viterbi(scores_UL, bounds, weights, self.legal)
        shares = crf_walk.marginals(scores_UL, bounds, weights, self.legal)
        return list(zip(np.split(tags, bounds[1:-1]), np.split(shares, bounds[1:-1]), strict=True))

    def _tags(self, raw: Sequence[Read]) -> Iterator[Read]:
        yield from raw

    def _shares(self, raw: Read) -> Floats:
        return np.asarray(raw[1])


class Pointed(Items[Read]):
    """A score for every stretch and kind; what is above 0 is a span, and spans may lie within others."""

    parts = ("pointer",)

    def _ready(self) -> None:
        self.kinds = self.labels

    def _lined(self, gold: Sequence[Span], tokens: Tokens) -> decode.Alignment:
        return decode.aligned(gold, tokens.starts, tokens.ends, nesting=True)

    def _learnt(self) -> Places:
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
        learnt = np.concatenate((windows[kept, None], spans[kept]), axis=1)
        learnt = learnt[np.argsort(learnt[:, 0], kind="stable")]
        self.spans_from = np.searchsorted(learnt[:, 0], np.arange(len(read) + 1))  # [B+1] a window's: from:next from
        return learnt

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
        tokens = ranges(read[:, 0], counts)
        before = self.cuts.first[np.maximum(which - 1, 0), 1]
        before, end, owned = (np.repeat(edge, counts) for edge in (before, read[:, 1], read[:, 2]))
        low = np.where(tokens < owned, np.maximum(before - tokens, 0), 0)
        high = np.maximum(np.minimum(end - tokens, self.config.longest), low)
        return tokens, np.stack((low, high), axis=1)

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The windows packed by length; how far the stretches reach that begin at each row; and the right ones."""
        laid, which = self.laid(orders, budget), self.windows_of(orders)
        read = self.cuts.first[which]
        shift = laid.starts + 1 - read[:, 0]  # from a token's place among all to its row
        taught = np.array([self.examples[text].gold is not None for text in orders], dtype=np.bool_)[laid.owners]
        tokens, reach_of = self._reach(which)
        reach, sizes = np.zeros((len(laid.packed.ids), 3), dtype=np.int64), read[:, 3] - read[:, 0]
        reach[tokens + np.repeat(shift, sizes)] = np.column_stack((reach_of, np.repeat(taught, sizes)))
        counts = self.spans_from[which + 1] - self.spans_from[which]
        _, first, last, kind = self.gold[ranges(self.spans_from[which], counts)].T
        targets = {
            "reach": reach,
            "gold_rows": first + np.repeat(shift, counts),
            "gold_cells": np.stack((last - first, kind), axis=1),
            "begins": read[:, 0] - np.asarray(self.pieces.boundaries)[orders][laid.owners],
            "taught": taught,
        }
        return Batch(laid.packed, laid.starts, laid.owners, targets)

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """Over how many windows and kinds the loss sums."""
        return {"tag_loss": int(batch.targets["taught"].sum()) * len(self.kinds)}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """How far right stretches are from being above 0 and all others from being below (nn.pointer.apart_loss)."""
        import torch

        from filbert.nn.pointer import apart_loss
        from filbert.nn.torch_ops import TorchHost

        scores_TJC, open_TJ = self.stretches(TorchHost(model), batch)
        gold_TJC, cells = torch.zeros_like(scores_TJC, dtype=torch.bool), batch.targets["gold_cells"]
        gold_TJC[batch.targets["gold_rows"], cells[:, 0], cells[:, 1]] = True
        open_TJ = open_TJ & (batch.targets["reach"][:, 2:] > 0)
        above_TJC = (scores_TJC.detach() > 0) & open_TJ[:, :, None]
        off = apart_loss(scores_TJC, gold_TJC, open_TJ, batch.packed.boundaries)
        return {
            "tag_loss": Term(off, batch.targets["taught"].sum() * len(self.kinds)),
            "tag_f1": Term(2 * (above_TJC & gold_TJC).sum(), above_TJC.sum() + gold_TJC.sum()),
        }

    def stretches(self, host: Host[A], batch: Batch) -> tuple[A, A]:
        """[T, J, C] in float32, and which stretches [T, J] the window answers for."""
        xp, packed, reach_T3 = host.xp, batch.packed, batch.targets["reach"]
        most = min(self.config.longest, packed.max_len)
        scores_TJC = host.stretches("pointer", self.vectors(host, batch), packed.positions, most)
        far = xp.at(np.arange(most), reach_T3)
        return scores_TJC, (far >= reach_T3[:, :1]) & (far < reach_T3[:, 1:2])

    def num_decisions(self, batch: Batch) -> int:
        """Over how many windows and kinds."""
        return len(batch.starts) * len(self.kinds)

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """Whether each stretch is a span."""
        from filbert.nn.torch_ops import TorchHost

        scores_TJC, open_TJ = self.stretches(TorchHost(model), batch)
        return Decisions("several", scores_TJC, open_TJ[:, :, None].expand_as(scores_TJC))

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Read]:
        """Of each text, the stretches above 0: [X, 3] first and last token and kind, and [X] their probabilities."""
        xp = host.xp
        scores_TJC, open_TJ = self.stretches(host, batch)
        above = (scores_TJC > 0) & open_TJ[:, :, None]
        cells, scores = np.argwhere(xp.host(above)), xp.host(scores_TJC[above])
        sure = 1 / (1 + np.exp(-scores))
        starts, owners, begins = (xp.host(x) for x in (batch.starts, batch.owners, batch.targets["begins"]))
        order = np.argsort(starts)
        window = order[np.searchsorted(starts[order], cells[:, 0], side="right") - 1]
        first = cells[:, 0] - starts[window] - 1 + begins[window]
        stretches = np.stack((first, first + cells[:, 1], cells[:, 2]), axis=1)
        chosen = [owners[window] == text for text in range(int(owners.max(initial=-1)) + 1)]
        return [(stretches[mine], sure[mine]) for mine in chosen]

    def predictions(self, raw: Sequence[Read]) -> list[Prediction]:
        """The spans of each text, in its own characters and their order; none crosses a better one."""
        predictions = []
        for tokens, (stretches, sure) in zip(self.pieces, raw, strict=True):
            spans = decode.uncrossed(stretches, sure, self.labels, tokens.starts, tokens.ends)
            predictions.append(
                Prediction(spans=tuple(sorted(spans, key=lambda span: (span.start, span.end, span.label))))
            )
        return predictions


def _logs(shares: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Their logarithms; that of what is all but impossible is finite."""
    return np.log(np.maximum(shares.astype(np.float64), 1e-300))


def _bounds(batch: Batch) -> Places:
    """[N+1] where the tokens of each text begin and end, laid end to end."""
    return np.concatenate(([0], np.cumsum(np.asarray(batch.targets["tokens_host"])))).astype(np.int64)


def _owned_rows(starts: Places, owned: Places) -> Places:
    """The rows of the tokens that each window owns, window by window."""
    return ranges(starts + owned[:, 0], owned[:, 1] - owned[:, 0])


DECODERS: dict[str, type[Tagged] | type[Chained] | type[Pointed]] = {"softmax": Tagged, "crf": Chained, "span": Pointed}
