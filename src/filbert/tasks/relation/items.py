"""How one stretch of a text relates to another: texts with two mentions in, a relation head's loss or labels out.

Both mentions are marked in the row of tokens, and the vectors of their two start marks, side by side, make the decision
(Baldini Soares et al. 2019, "entity markers, entity start"). The marks are tokens that the vocabulary has anyway and
texts do not: reserved ones such as [unused1], else rare signs; the folder keeps which. They are put where the offsets
say, so it does not matter if a text holds such a sign itself. A text longer than `max_length` is read in the window
that has both mentions in its middle; where they stand too far apart for one, in a window around each. What lies beyond
has no part in the vectors of the marks; how much was read is said by `coverage`.

Legend: N texts, L labels, D width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Floats, Prediction, Span
from filbert.metrics import labels as metrics
from filbert.nn.ops import A, Host, Numbers
from filbert.pack import cuts
from filbert.pack.lay import Places
from filbert.tasks.classify.decode import predictions, probabilities
from filbert.tasks.classify.items import NOTHING, golds
from filbert.tasks.classify.measure import fitted_temperature
from filbert.tasks.relation import measure
from filbert.tasks.relation.spec import NO_RELATION, NUM_MARKS, Config, checked, marks_of
from filbert.tasks.task import Fit, Report
from filbert.tasks.windowed import Windowed
from filbert.text.tokenizer import Tokenizer, Tokens

if TYPE_CHECKING:
    from filbert.nn.encoder import Encoder

PART = "relation"


class Items(Windowed[Config, Floats]):
    """Relations of pairs of mentions; one whose label is unknown can be labelled, not learnt from."""

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, labels, tokenizer, config)
        self.parts, self.mask_prob = (PART,), config.mask_prob
        usual = [label for name in NO_RELATION for label in labels if label.lower() == name]
        if config.none and config.none not in labels:
            raise one_of("task.none", config.none, labels)
        self.config = replace(config, marks=config.marks or marks_of(tokenizer), none=config.none or (*usual, "")[0])
        for mark in self.config.marks.split():
            if mark not in tokenizer:
                raise InputError(f"task.marks names {mark!r}, which is no token of the vocabulary.")
        self.none = self.labels.index(self.config.none) if self.config.none else None
        self.examples = [checked(example, index) for index, example in enumerate(examples)]
        self.gold = golds([replace(example, gold=example.gold.label) for example in self.examples], labels)
        self.changed: Counter[str] = Counter()
        self._mark()

    @property
    def watched(self) -> str:  # type: ignore[override]
        """The measure that says which state is best."""
        return "accuracy" if self.none is None else "relation_f1"

    def _mark(self) -> None:
        """The texts as tokens with the marks among them, where the two start marks stand, and the windows."""
        count = len(self.examples)
        pieces = self.tokenizer.pieces([example.texts[0] for example in self.examples])
        self.mark_ids = np.array([self.tokenizer.id_of(mark) for mark in self.config.marks.split()], dtype=np.int32)
        at, which = np.zeros((2, count, NUM_MARKS), dtype=np.int64)
        for index, example in enumerate(self.examples):
            tokens = pieces[index]
            sides = [self._tokens(span, tokens) for span in (example.gold.head, example.gold.tail)]
            at[index], which[index] = np.array(_nested(*sides)).T
        at += pieces.boundaries[:-1, None]
        self.ids = np.insert(np.asarray(pieces.ids, dtype=np.int32), at.ravel(), self.mark_ids[which.ravel()])
        stands = at + np.arange(at.size).reshape(at.shape)  # each mark moves those behind it on by one
        stands = np.take_along_axis(stands, np.argsort(which, axis=1), axis=1)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64) + NUM_MARKS * np.arange(count + 1)
        self.stands = stands  # [N, 4] the marks, as places in the row of all tokens
        self.starts = stands[:, ::2]  # [N, 2] the start marks of head and tail, as places in the row of all tokens
        room = self.config.max_length - 2
        spans = zip(stands.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        windows = [_windows(marks, begin, end, room) for marks, begin, end in spans]
        self.covered = [_covered(rows) / size for rows, size in zip(windows, np.diff(bounds).tolist(), strict=True)]
        self.changed["far"] = sum(share < 1 for share in self.covered)
        edges = np.concatenate(([0], np.cumsum([len(rows) for rows in windows]))).astype(np.int64)
        first = np.array([row * 2 for rows in windows for row in rows], dtype=np.int64).reshape(-1, 4)
        self.take(cuts.Cuts(edges, first, np.zeros_like(first), 2))

    def _tokens(self, span: Span, tokens: Tokens) -> tuple[int, int]:
        """The tokens of a mention, first and behind the last; one that it begins or ends inside is all of it."""
        begin = int(np.searchsorted(tokens.ends, span.start, side="right"))
        end = int(np.searchsorted(tokens.starts, span.end, side="left"))
        if begin == end:
            self.changed["lost"] += 1
        elif tokens.starts[begin] < span.start or tokens.ends[end - 1] > span.end:
            self.changed["cut"] += 1
        return begin, end

    def origins(self, example: Example) -> Places:
        """As classify has it; the marks stand in no text."""
        origins = np.full((len(self.ids), 3), -1, dtype=np.int64)
        origins[np.setdiff1d(np.arange(len(origins)), self.stands[0])] = super().origins(example)
        return origins

    def remarks(self) -> list[str]:
        """What of the data is not read as it stands."""
        sentences = {
            "cut": "mentions begin or end inside a token, which is marked as a whole",
            "lost": "mentions hold nothing that the model can read; only their place is marked",
            "far": "texts are longer than task.max_length; only what stands around their mentions is read",
        }
        return [f"{self.changed[kind]:,} {what}." for kind, what in sentences.items() if self.changed[kind]]

    @property
    def has_unknown(self) -> bool:
        """Whether some relation is not known."""
        return bool((self.gold == NOTHING).any())

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return bool((self.gold != NOTHING).any())

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from."""
        return self.ids, self.gold, self.cuts.first, self.cuts.second, self.starts

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The windows packed by length, and the rows of the two start marks."""
        laid, chosen = self.laid(orders, budget), self.windows_of(orders)
        last = np.cumsum(self.cuts.edges[orders + 1] - self.cuts.edges[orders]) - 1
        # The head's window, and the tail's.
        windows_N2 = np.stack((np.concatenate(([0], last[:-1] + 1)), last), axis=1)
        rows = laid.starts[windows_N2] + 1 + self.starts[orders] - self.cuts.first[chosen[windows_N2], 0]
        return Batch(laid.packed, laid.starts, laid.owners, {"label": self.gold[orders], "mark_rows": rows})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many texts the loss sums over."""
        return {"label_loss": int((batch.targets["label"] != NOTHING).sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the labels; `relation_f1` is that of all labels but "no relation"."""
        import torch.nn.functional as F

        from filbert.nn.torch_ops import TorchHost

        gold = batch.targets["label"]
        smoothing = self.config.label_smoothing if model.training else 0.0
        scores_NL = self.scores(TorchHost(model), batch)
        off = F.cross_entropy(scores_NL, gold, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing)
        is_known, predicted = gold != NOTHING, scores_NL.detach().argmax(-1)
        right = is_known & (predicted == gold)
        terms = {"label_loss": Term(off, is_known.sum()), "accuracy": Term(right.sum(), is_known.sum())}
        if self.none is not None:
            named, meant = is_known & (gold != self.none), is_known & (predicted != self.none)
            terms["relation_f1"] = Term(2 * (right & named).sum(), named.sum() + meant.sum())
        return terms

    def scores(self, host: Host[A], batch: Batch) -> A:
        """[N, L] in float32, from the vectors of the two start marks."""
        packed, rows = self.read(host, batch.packed), batch.targets["mark_rows"]
        marks_ND = host.vectors(packed, rows.reshape(-1)).reshape(len(rows), 2 * host.width)
        return host.head(PART, host.dropout(marks_ND))

    def num_decisions(self, batch: Batch) -> int:
        """How many texts."""
        return len(batch.targets["label"])

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """The logits of each text."""
        from filbert.nn.torch_ops import TorchHost

        return Decisions("one", self.scores(TorchHost(model), batch))

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Floats]:
        """The logits of each text."""
        return list(host.xp.host(self.scores(host, batch)))

    @property
    def temperature(self) -> float:
        """What divides the scores before they are probabilities; dev data fit it."""
        return float(self.config.temperature)

    def label_shares(self, raw: Sequence[Floats]) -> npt.NDArray[np.float64]:
        """[N, L] how likely each label is."""
        return probabilities(np.asarray(raw).reshape(-1, len(self.labels)) / self.config.temperature)

    def predictions(self, raw: Sequence[Floats]) -> list[Prediction]:
        """The likeliest label of each, with head and tail as `spans`."""
        labelled = predictions(np.asarray(raw) / self.config.temperature, self.labels, self.covered)
        golds = (example.gold for example in self.examples)
        return [replace(each, spans=(gold.head, gold.tail)) for each, gold in zip(labelled, golds, strict=True)]

    def evaluated(self, raw: Sequence[Floats]) -> Report:
        """How right they are: accuracy, F1 of the labels' mean, and micro F1 of all but "no relation"."""
        scores = np.asarray(raw)
        shares = probabilities(scores)[np.arange(len(self)), self.gold]
        table = metrics.confusion(self.gold, scores.argmax(-1), len(self.labels))
        report, more = metrics.summary(table, self.labels), measure.summary(table, self.none)
        measured = {"accuracy": report.pop("accuracy"), "f1": report.pop("f1")}
        intervals = {**report.pop("intervals"), **more.pop("intervals")}
        loss = float(-np.log(np.maximum(shares, 1e-300)).mean())
        return {**measured, **more, "none": self.config.none, "loss": loss, "intervals": intervals, **report}

    def calibrated(self, raw: Sequence[Floats], fixed: Collection[str] = ()) -> Fit:
        """The config with the temperature that suits these texts."""
        return fitted_temperature(self.config, raw, self.gold, fixed)


def _nested(head: tuple[int, int], tail: tuple[int, int]) -> list[tuple[int, int]]:
    """(token before which it stands, which mark) of the four marks in order: what opens last is closed first."""
    keys = []
    for side, (begin, end) in enumerate((head, tail)):
        keys.append(((begin, 1, -end, side), 2 * side))
        keys.append(((end, 0 if end > begin else 2, -begin, -side), 2 * side + 1))
    return [(key[0], mark) for key, mark in sorted(keys)]


def _windows(marks: Sequence[int], begin: int, end: int, room: int) -> list[tuple[int, int]]:
    """Which of the tokens begin:end are read: all; or those around both mentions; or around each one's start mark."""

    def around(low: int, high: int) -> tuple[int, int]:
        start = min(max(low - (room - (high - low)) // 2, begin), end - room)
        return start, start + room

    if end - begin <= room:
        return [(begin, end)]
    for together in (marks, marks[::2]):  # a mention may itself be longer than a window
        if max(together) + 1 - min(together) <= room:
            return [around(min(together), max(together) + 1)]
    return [around(mark, mark + 1) for mark in marks[::2]]


def _covered(windows: Sequence[tuple[int, int]]) -> int:
    """Tokens that one window or two read."""
    shared = max(0, min(end for _, end in windows) - max(start for start, _ in windows)) if len(windows) > 1 else 0
    return sum(end - start for start, end in windows) - shared
