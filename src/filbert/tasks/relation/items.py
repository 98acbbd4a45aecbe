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

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Packed, Prediction, Span
from filbert.metrics import labels as metrics
from filbert.metrics import relations
from filbert.nn import numpy_heads
from filbert.pack import cuts
from filbert.tasks.classify import items as classify
from filbert.tasks.classify.decode import predictions, probabilities
from filbert.tasks.relation.reading import Relation, apart, places
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "relation"
KEPT = ("max_length", "marks", "none", "temperature")
NOTHING = classify.NOTHING
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
        if _checked(example, index).gold.label is None:
            raise InputError(f"{classify.place_of(example, index)}: has no relation, so it cannot be learnt from.")


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return f"A classifier of {len(labels)} relations"


def examples(asked: Sequence[Any]) -> list[Example]:
    """What `predict` is given, each (text, head, tail) with mentions as (start, end) or as words, as examples."""
    found = []
    for index, each in enumerate(asked):
        if not isinstance(each, tuple | list) or len(each) != 3 or not isinstance(each[0], str):
            raise InputError(
                f"text {index} is {str(each)[:40]!r}, but must be (text, head, tail), the two as (start, end) or as "
                "words: this model reads relations; on the command line, give them as --data."
            )
        try:
            spans = apart(*(places(each[0], each[side], role) for side, role in ((1, "head"), (2, "tail"))))
        except InputError as error:
            raise InputError(f"text {index}: {error}") from None
        found.append(Example((each[0],), Relation(*spans), index))
    return found


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: both mentions with their places, the likeliest label, and all."""
    text = example.texts[0]
    told = {span.label: {"text": text[span.start : span.end], "start": span.start, "end": span.end}
            for span in said.spans}  # fmt: skip
    return {**told, **classify.record(replace(example, gold=example.gold.label), said, top)}


def marks_of(tokenizer: Tokenizer) -> str:
    """Four tokens that texts hold never or hardly ever: reserved ones, rare signs, or the last of the vocabulary."""
    known = tokenizer.vocabulary
    reserved = [token for token in known if re.fullmatch(r"\[unused\d+\]", token)][:NUM_MARKS]
    if len(reserved) == NUM_MARKS:
        return " ".join(reserved)
    controls = {tokenizer.token_of(index) for index in tokenizer.special_ids}
    last = [token for token in reversed(known) if token not in controls and token.split() == [token]]
    return " ".join(list(dict.fromkeys([*(sign for sign in SIGNS if sign in tokenizer), *last]))[:NUM_MARKS])


class Task(classify.Task):
    """Relations of pairs of mentions; one whose label is unknown can be labelled, not learnt from."""

    num_texts = 1
    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.parts = tuple(labels), tokenizer, (HEAD,)
        usual = [label for name in NO_RELATION for label in labels if label.lower() == name]
        if config.none and config.none not in labels:
            raise one_of("task.none", config.none, labels)
        self.config = replace(config, marks=config.marks or marks_of(tokenizer), none=config.none or (*usual, "")[0])
        for mark in self.config.marks.split():
            if mark not in tokenizer:
                raise InputError(f"task.marks names {mark!r}, which is no token of the vocabulary.")
        self.none = self.labels.index(self.config.none) if self.config.none else None
        self.examples = [_checked(example, index) for index, example in enumerate(examples)]
        self.gold = classify.golds([replace(example, gold=example.gold.label) for example in self.examples], labels)
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
        self._take(cuts.Cuts(edges, first, np.zeros_like(first), 2))

    def _tokens(self, span: Span, tokens: Any) -> tuple[int, int]:
        """The tokens of a mention, first and behind the last; one that it begins or ends inside is all of it."""
        begin = int(np.searchsorted(tokens.ends, span.start, side="right"))
        end = int(np.searchsorted(tokens.starts, span.end, side="left"))
        if begin == end:
            self.changed["lost"] += 1
        elif tokens.starts[begin] < span.start or tokens.ends[end - 1] > span.end:
            self.changed["cut"] += 1
        return begin, end

    def origins(self, example: Example) -> npt.NDArray[np.int64]:
        """As classify has it; the marks stand in no text."""
        found = np.full((len(self.ids), 3), -1, dtype=np.int64)
        found[np.setdiff1d(np.arange(len(found)), self.stands[0])] = super().origins(example)
        return found

    def remarks(self) -> list[str]:
        """What of the data is not read as it stands."""
        told = {
            "cut": "mentions begin or end inside a token, which is marked as a whole",
            "lost": "mentions hold nothing that the model can read; only their place is marked",
            "far": "texts are longer than task.max_length; only what stands around their mentions is read",
        }
        return [f"{self.changed[kind]:,} {what}." for kind, what in told.items() if self.changed[kind]]

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is learnt from."""
        return (*super().arrays(), self.starts)

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The windows packed by length, and the rows of the two start marks."""
        texts = orders[1]
        made, chosen = self._packed(texts, budget), self._windows_of(texts)
        last = np.cumsum(self.cuts.edges[texts + 1] - self.cuts.edges[texts]) - 1
        own = np.stack((np.concatenate(([0], last[:-1] + 1)), last), axis=1)  # [N, 2] the head's window, and the tail's
        rows = made.starts[own] + 1 + self.starts[texts] - self.cuts.first[chosen[own], 0]
        return Batch(made.packed, made.starts, made.owners, {"label": self.gold[texts], "mark_rows": rows})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many texts the loss sums over."""
        return {"label_loss": int((batch.targets["label"] != NOTHING).sum())}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the labels; `relation_f1` is that of all labels but "no relation"."""
        import torch.nn.functional as F

        gold = batch.targets["label"]
        smoothing = self.config.label_smoothing if model.training else 0.0
        scores_NL = self.scores(model, batch)
        off = F.cross_entropy(scores_NL, gold, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing)
        known, said = gold != NOTHING, scores_NL.detach().argmax(-1)
        right = known & (said == gold)
        terms = {"label_loss": Term(off, known.sum()), "accuracy": Term(right.sum(), known.sum())}
        if self.none is not None:
            named, meant = known & (gold != self.none), known & (said != self.none)
            terms["relation_f1"] = Term(2 * (right & named).sum(), named.sum() + meant.sum())
        return terms

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[N, L] in float32, from the vectors of the two start marks."""
        import torch.nn.functional as F

        packed = self._hidden(batch.packed) if model.training and self.config.mask_prob else batch.packed
        rows = batch.targets["mark_rows"]
        marks_ND = model(packed, rows.flatten()).reshape(len(rows), 2 * model.width)
        head = model.heads[HEAD]
        return head(F.dropout(marks_ND, model.config.dropout, model.training).to(head.weight.dtype)).float()  # type: ignore[no-any-return]

    def num_decisions(self, batch: Batch) -> int:
        """How many texts."""
        return len(batch.targets["label"])

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """What the head says of each text."""
        return Decisions("one", self.scores(model, batch))

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        rows = batch.targets["mark_rows"]
        marks_ND = host(batch.packed, rows.ravel()).reshape(len(rows), 2 * host.width)
        return list(host.heads.head(HEAD, marks_ND))

    def _hidden(self, packed: Packed) -> Packed:
        """Some of the tokens behind [MASK], but never a mark."""
        import torch

        hidden = super()._hidden(packed)
        marks = torch.isin(packed.ids, torch.as_tensor(self.mark_ids, device=packed.ids.device))
        return replace(hidden, ids=torch.where(marks, packed.ids, hidden.ids))

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """The likeliest label of each, with head and tail as `spans`."""
        said = predictions(np.asarray(raw) / self.config.temperature, self.labels, self.covered)
        golds = (example.gold for example in self.examples)
        return [replace(each, spans=(gold.head, gold.tail)) for each, gold in zip(said, golds, strict=True)]

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """How right they are: accuracy, F1 of the labels' mean, and micro F1 of all but "no relation"."""
        scores = np.asarray(raw)
        shares = probabilities(scores)[np.arange(len(self)), self.gold]
        table = metrics.confusion(self.gold, scores.argmax(-1), len(self.labels))
        told, more = metrics.summary(table, self.labels), relations.summary(table, self.none)
        measured = {"accuracy": told.pop("accuracy"), "f1": told.pop("f1")}
        intervals = {**told.pop("intervals"), **more.pop("intervals")}
        loss = float(-np.log(np.maximum(shares, 1e-300)).mean())
        return {**measured, **more, "none": self.config.none, "loss": loss, "intervals": intervals, **told}


def _checked(example: Example, index: int) -> Example:
    """The example, with its two mentions inside its text and called head and tail."""
    gold, where = example.gold, classify.place_of(example, index)
    if not isinstance(gold, Relation):
        raise InputError(f"{where}: has no two mentions, but a relation is one of a head and a tail in a text.")
    sides = (("head", gold.head), ("tail", gold.tail))
    try:
        (head,), (tail,) = (places(example.texts[0], (span.start, span.end), role) for role, span in sides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return replace(example, gold=Relation(Span(*head, "head"), Span(*tail, "tail"), gold.label))


def _nested(head: tuple[int, int], tail: tuple[int, int]) -> list[tuple[int, int]]:
    """(token before which it stands, which mark) of the four marks in order: what opens last is closed first."""
    found = []
    for side, (begin, end) in enumerate((head, tail)):
        found.append(((begin, 1, -end, side), 2 * side))
        found.append(((end, 0 if end > begin else 2, -begin, -side), 2 * side + 1))
    return [(key[0], mark) for key, mark in sorted(found)]


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
