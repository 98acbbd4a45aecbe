"""What is asked of a model about one example: a task's scores in, a table of what could be asked, one number each, out.

Every number is on the scale of log-odds, log p / (1 - p), of what `predict` gives as p. Probabilities saturate, so that
no word seems to matter where a model is sure; a bare logit means nothing, since softmax ignores what is added to all.
Where a score is no chance (a number, a cosine) it is taken as it is.

- Labels (classify, pair, relation, blank): each label; of several labels at once each is a question of its own.
- Options (choose): each option.  Likeness (embed): the cosine of two texts.
- Entities (tag): each stretch of so many tokens with each kind: the mean over its tokens of the log-odds that the token
  is of that kind; of a CRF before its walk. Stretches (tag, span decoder): the score of the stretch, a log-odds itself.
- Answers (answer): each stretch of so many tokens: log-odds of its first token among all that could begin the answer in
  its window, plus those of its last token.
- Words (fill): each token of the vocabulary at a [MASK].

Legend: N copies of the example in a pack, R rows of one copy, C columns (what could be asked), L labels, U tokens of a
text, V vocabulary, T rows of the pack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Item
from filbert.core.records import Example, Prediction, Span
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import collate
from filbert.text.tokenizer import Tokenizer, Tokens
from filbert.text.windows import windowed

Places = npt.NDArray[np.int64]
Target = str | int | tuple[Any, ...] | None  # a label, an option's number, (start, end), (start, end, label)
FILL = "fill"  # the name under which a masked word is asked for: it is no file of tasks
OVERLAP = 128
FIRST = np.zeros(1, dtype=np.int64)  # which of a task's examples: its only one
MOST_SURE = 0.75  # above it a chance is the largest one, whose odds are made of all the others


def log_odds(scores: Tensor) -> Tensor:
    """log p / (1 - p) of the softmax over the last dimension, exact however sure: s - log Σ exp of all other scores."""
    top = scores.argmax(-1, keepdim=True)
    rest = scores.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    logs = scores.log_softmax(-1)
    others = logs - torch.log1p(-logs.exp().clamp(max=MOST_SURE))
    return torch.where(torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top, True), scores - rest, others)


@dataclass(frozen=True, slots=True)
class Layout:
    """One copy of an example as its task lays it out: the sequence, the place in it and the token of every row."""

    lengths: Places  # [S] of its sequences
    sequence: Places  # [R]
    place: Places  # [R]
    token: Places  # [R] which of the task's `ids` it is; -1 for [CLS] and [SEP]

    def rows(self, batch: Batch, which: npt.NDArray[Any]) -> Tensor:
        """[N, …] where these rows of each copy lie in a pack of copies."""
        starts = torch.as_tensor(batch.starts).view(-1, len(self.lengths))
        at = torch.as_tensor(which, device=starts.device)
        sequence, place = (torch.as_tensor(part, device=starts.device)[at] for part in (self.sequence, self.place))
        return starts[:, sequence] + place


def layout(task: Any) -> Layout:
    """That of items of one example."""
    batch = task.batch(FIRST)
    edges, starts = np.asarray(batch.packed.boundaries), np.asarray(batch.starts, dtype=np.int64)
    lengths = edges[np.searchsorted(edges, starts, side="right")] - starts
    sequence = np.repeat(np.arange(len(starts)), lengths)
    place = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Layout(lengths, sequence, place, task.sources(FIRST))


@dataclass(frozen=True, slots=True)
class Reading:
    """One example, as its task reads it and what the model says of it."""

    name: str
    task: Any
    example: Example
    said: Prediction
    layout: Layout
    origins: Places  # [U, 3] of every token of the task: which text (-1: none of the user's), start and end


class Question:
    """A table of what could be asked, and which of it is."""

    placed: ClassVar[bool] = False  # whether it is asked of a place in the text, which moves where words are deleted

    def __init__(self, reading: Reading, target: Target) -> None:
        self.reading, self.task, self.target = reading, reading.task, target

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, C] in float32, differentiable."""
        raise NotImplementedError

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The column that is asked for, by what the table says of the example itself, and what it is called."""
        raise NotImplementedError

    def heard(self) -> npt.NDArray[np.float32]:
        """[R] how much the answer is read from each row of the last layer; they sum to 1."""
        pool = getattr(self.task.config, "pool", "cls")
        chosen = self.reading.layout.place == 0 if pool == "cls" else np.ones(len(self.reading.layout.place), bool)
        return _shares(chosen)


class Labels(Question):
    """Every label of the example."""

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, L]."""
        config, scores_NL = self.task.config, self.task.scores(TorchHost(model), batch)
        if getattr(config, "answer", "label") == "number":
            return scores_NL * config.scale + config.center  # type: ignore[no-any-return]
        if getattr(config, "several", 0):
            return scores_NL  # type: ignore[no-any-return]
        return log_odds(scores_NL / getattr(config, "temperature", 1.0))

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The label's column."""
        names = list(self.task.labels)
        if self.target is not None and self.target not in names:
            raise one_of("the target", self.target, names)
        column = int(first_C.argmax()) if self.target is None else names.index(self.target)
        return column, names[column]

    def heard(self) -> npt.NDArray[np.float32]:
        """Where the vectors stand that the head sees: of a relation the marks, of a blank the blanks."""
        batch = self.task.batch(FIRST)
        rows = next((batch.targets[name] for name in ("mark_rows", "blank_rows") if name in batch.targets), None)
        if rows is None:
            return super().heard()
        own = self.reading.layout
        return _shares(np.isin(np.asarray(batch.starts)[own.sequence] + own.place, np.asarray(rows)))


class Options(Question):
    """Every option of a question."""

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, C]."""
        scores_NC = self.task.scores(TorchHost(model), batch).view(-1, len(self.reading.example.texts) - self._before)
        return log_odds(scores_NC / self.task.config.temperature)

    @property
    def _before(self) -> int:
        return int(self.task.num_texts) - 1

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The option's column, by its text or its number from 0."""
        options = list(self.reading.example.texts[self._before :])
        if type(self.target) is int and 0 <= self.target < len(options):
            return self.target, options[self.target]
        if self.target is not None and self.target not in options:
            raise one_of("the target", self.target, options)
        column = int(first_C.argmax()) if self.target is None else options.index(str(self.target))
        return column, options[column]


class Likeness(Question):
    """How alike two texts are."""

    NAME = "similarity"

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, 1]."""
        vectors = self.task.vectors(TorchHost(model), batch).unflatten(0, (-1, self.task.num_texts))
        return torch.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)[:, None]

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The one column."""
        if self.target not in (None, self.NAME):
            raise one_of("the target", self.target, [self.NAME])
        return 0, self.NAME


class _Placed(Question):
    """What is asked of a stretch of the text; columns are stretches of as many tokens, with each kind."""

    placed = True
    part = 0  # the text that it is in

    def __init__(self, reading: Reading, target: Target) -> None:
        super().__init__(reading, target)
        self.span = self._span(target)
        inside = reading.origins[:, 0] == self.part
        overlaps = (reading.origins[:, 1] < self.span.end) & (reading.origins[:, 2] > self.span.start)
        tokens = np.flatnonzero(inside & overlaps)
        if not len(tokens):
            raise InputError(
                f"the target stands at {self.span.start}:{self.span.end}, where the model reads nothing; give the "
                "start and end of a stretch of the text."
            )
        self.first, self.size = int(tokens[0]), len(tokens)

    @property
    def text(self) -> str:
        return self.reading.example.texts[self.part]

    def _span(self, target: Target) -> Span:
        """The stretch that is meant: one that the model names, by its label or its characters, or one by its place."""
        said = sorted(self.reading.said.spans, key=lambda span: -span.score)
        if isinstance(target, tuple):
            return _placed_span(target, self.text)
        if target is None:
            if not said:
                raise InputError(f"{self._nothing}; name a place: target=(start, end) or (start, end, label).")
            return said[0]
        for span in said:
            if target in (span.label, self.text[span.start : span.end]):
                return span
        at = self.text.find(str(target)) if target else -1
        if at < 0:
            named = [span.label or self.text[span.start : span.end] for span in said]
            raise one_of("the target", target, list(dict.fromkeys(named)) or ["(start, end)", "(start, end, label)"])
        return Span(at, at + len(str(target)))

    _nothing = "the model finds no entity in this text"

    def heard(self) -> npt.NDArray[np.float32]:
        """The rows of the stretch."""
        tokens = self.reading.layout.token
        return _shares((tokens >= self.first) & (tokens < self.first + self.size))

    def _called(self, kind: str) -> str:
        stretch = self.text[self.span.start : self.span.end]
        return f"{kind}: {stretch}" if kind else stretch


class Entities(_Placed):
    """Every stretch of so many tokens, with every kind."""

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, stretches · kinds]."""
        scores_NUL = self.task.scores(TorchHost(model), batch)[self.reading.layout.rows(batch, self._owned)]
        odds = [self._odds(scores_NUL, kind) for kind in self.task.kinds]
        return torch.stack(odds, -1).unfold(1, self.size, 1).mean(-1).flatten(1)

    @cached_property
    def _owned(self) -> Places:
        """[U] the row of each token in the window that answers for it."""
        own = np.asarray(self.task.batch(FIRST).targets["own"])
        place, sequence = self.reading.layout.place, self.reading.layout.sequence
        return np.flatnonzero((place >= own[sequence, 0]) & (place < own[sequence, 1]))

    def _odds(self, scores_NUL: Tensor, kind: str) -> Tensor:
        """[N, U] that each token is of that kind, whether it begins, goes on or ends there."""
        mine = torch.tensor([tag != "O" and tag[2:] == kind for tag in self.task.labels], device=scores_NUL.device)
        if mine.all():
            return scores_NUL.logsumexp(-1)
        return scores_NUL[..., mine].logsumexp(-1) - scores_NUL[..., ~mine].logsumexp(-1)

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The stretch's column of its kind, or of the likeliest one."""
        kinds = list(self.task.kinds)
        if self.span.label and self.span.label not in kinds:
            raise one_of("the target's label", self.span.label, kinds)
        own = first_C.reshape(-1, len(kinds))[self._place]
        kind = kinds.index(self.span.label) if self.span.label else int(own.argmax())
        return self._place * len(kinds) + kind, self._called(kinds[kind])

    @property
    def _place(self) -> int:
        return self.first


class Stretches(Entities):
    """The same by the scores of a span decoder; columns are the stretches that some window answers for."""

    def __init__(self, reading: Reading, target: Target) -> None:
        super().__init__(reading, target)
        own, batch = reading.layout, self.task.batch(FIRST)
        reach = np.asarray(batch.targets["reach"])[np.asarray(batch.starts)[own.sequence] + own.place]
        self.answering = np.flatnonzero((reach[:, 0] < self.size) & (self.size <= reach[:, 1]) & (own.token >= 0))
        if self.first not in own.token[self.answering]:
            raise InputError(
                f"the target has {self.size} tokens, but this model scores stretches of at most "
                f"{self.task.config.longest} (task.longest)."
            )

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, stretches · kinds]."""
        scores_TJC, _ = self.task.stretches(TorchHost(model), batch)
        return scores_TJC[self.reading.layout.rows(batch, self.answering), self.size - 1].flatten(1)  # type: ignore[no-any-return]

    @property
    def _place(self) -> int:
        return int(np.flatnonzero(self.reading.layout.token[self.answering] == self.first)[0])


class Answers(_Placed):
    """Every stretch of the passage of so many tokens, in every window."""

    part = 1
    _nothing = "the model finds no answer in this passage"

    def __init__(self, reading: Reading, target: Target) -> None:
        self.none = target == "" or (target is None and not reading.said.label)
        if self.none:
            Question.__init__(self, reading, target)
            self.begins = np.flatnonzero(reading.layout.place == 0)  # [CLS] says that a window holds no answer
            self.size = 1
            return
        super().__init__(reading, target)
        token, parts = reading.layout.token, np.append(reading.origins[:, 0], -1)[reading.layout.token]
        rows = np.flatnonzero(parts == self.part)
        ends = np.minimum(rows + self.size - 1, len(token) - 1)
        self.begins = rows[(parts[ends] == self.part) & (token[ends] == token[rows] + self.size - 1)]
        if self.first not in token[self.begins]:
            raise InputError("the target stands whole in no window of the passage; name a shorter stretch.")

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, stretches]."""
        own, scores_T2 = self.reading.layout, self.task.scores(TorchHost(model), batch)
        odds = []
        for sequence in range(len(own.lengths)):
            scores_NX2 = scores_T2[own.rows(batch, np.flatnonzero(own.sequence == sequence))]
            odds.append(log_odds(scores_NX2.transpose(1, 2)))
        odds_N2R = torch.cat(odds, dim=2)
        return odds_N2R[:, 0, self.begins] + odds_N2R[:, 1, self.begins + self.size - 1]

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The stretch in the window that is surest of it; of "no answer" the least sure, as decoding has it."""
        if self.none:
            return int(first_C.argmin()), ""
        mine = np.flatnonzero(self.reading.layout.token[self.begins] == self.first)
        return int(mine[first_C[mine].argmax()]), self._called("")

    def heard(self) -> npt.NDArray[np.float32]:
        """The rows of the stretch."""
        return _shares(self.reading.layout.place == 0) if self.none else super().heard()


class Words(_Placed):
    """Every token of the vocabulary at one [MASK]."""

    def __init__(self, reading: Reading, target: Target) -> None:
        Question.__init__(self, reading, target)
        self.masks = np.flatnonzero(reading.task.masked)
        starts, ends = reading.task.pieces.starts, reading.task.pieces.ends
        self.first, self.size, self.word = int(self.masks[0]), 1, target if isinstance(target, str) else None
        if isinstance(target, tuple):
            span = _placed_span(target, self.text)
            at = [mask for mask in self.masks if starts[mask] < span.end and ends[mask] > span.start]
            if not at:
                raise InputError(f"the target stands at {span.start}:{span.end}, but there is no [MASK] there.")
            self.first, self.word = int(at[0]), span.label or None
        self.span = Span(int(starts[self.first]), int(ends[self.first]))
        tokenizer: Tokenizer = reading.task.tokenizer
        if self.word is not None and self.word not in tokenizer:
            raise InputError(f"the target {self.word!r} is no token of the vocabulary, so no [MASK] is filled with it.")
        self.known = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        own = reading.layout
        self.row = int(np.flatnonzero((own.token == self.first) & reading.task.owned)[0])

    def table(self, model: Any, batch: Batch) -> Tensor:
        """[N, V] without special tokens."""
        rows_N = self.reading.layout.rows(batch, np.array([self.row]))[:, 0]
        scores_NV = model.word_scores(model(batch.packed, rows_N)).float()
        return log_odds(scores_NV[:, torch.as_tensor(self.known, device=scores_NV.device)])

    def picked(self, first_C: npt.NDArray[Any]) -> tuple[int, str]:
        """The token's column, or that of the likeliest."""
        tokenizer: Tokenizer = self.task.tokenizer
        column = int(first_C.argmax())
        if self.word is not None:
            column = int(np.searchsorted(self.known, tokenizer.id_of(self.word)))
        return column, tokenizer.token_of(int(self.known[column]))


class Filling:
    """A text with [MASK] in it, read as a task of one example is: in windows, and copies of it in packs."""

    config = None

    def __init__(self, text: str, tokenizer: Tokenizer, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.pieces: Tokens = tokenizer.pieces([text], specials=True)[0]
        self.ids = self.pieces.ids
        self.masked: npt.NDArray[np.bool_] = np.asarray(self.ids == tokenizer.mask_id)
        if not self.masked.any():
            raise InputError("the text has no [MASK]: write [MASK] where a word is missing, e.g. 今天[MASK]气很好.")
        self.owned = np.concatenate([window.owned for window in self._windows()])  # [R]

    def _windows(self) -> list[Any]:
        tokens = Tokens(self.ids, self.pieces.starts, self.pieces.ends)
        return list(windowed(self.tokenizer, tokens, None, self.max_length, OVERLAP))

    def batch(self, orders: Places) -> Batch:
        """So many copies of the text's windows."""
        item = Item(tuple(self._windows()), {})
        return collate([item] * len(orders))

    def sources(self, which: Places) -> Places:
        """[R] the place of each row of the windows among the text's tokens; -1: special ones."""
        numbers = Tokens(np.arange(len(self.ids), dtype=np.int32), self.pieces.starts, self.pieces.ends)
        windows = windowed(self.tokenizer, numbers, None, self.max_length, OVERLAP)
        rows = [np.where(window.parts < 0, -1, window.ids) for window in windows]
        return np.concatenate(rows).astype(np.int64)

    def origins(self, example: Example) -> Places:
        """As tasks have it; what is missing stands in no text."""
        texts = np.where(self.masked, -1, 0)
        return np.stack((texts, self.pieces.starts, self.pieces.ends), axis=1).astype(np.int64)


QUESTIONS: dict[str, type[Question]] = {"tag": Entities, "answer": Answers, "choose": Options, "embed": Likeness,
                                        FILL: Words}  # fmt: skip


def question(reading: Reading, target: Target) -> Question:
    """What is asked of that reading; tasks that are not named give each label a score."""
    kind = QUESTIONS.get(reading.name, Labels)
    if kind is Entities and hasattr(reading.task, "stretches"):
        kind = Stretches
    return kind(reading, target)


def _placed_span(target: tuple[Any, ...], text: str) -> Span:
    """(start, end) or (start, end, label), checked."""
    good = len(target) in (2, 3) and all(type(edge) is int for edge in target[:2])
    if not good or not 0 <= target[0] < target[1] <= len(text) or not all(isinstance(x, str) for x in target[2:]):
        raise InputError(
            f"the target is {target!r}, but a place is (start, end) or (start, end, label), from 0 to {len(text)}."
        )
    return Span(*target)


def _shares(chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    return (chosen / max(1, int(chosen.sum()))).astype(np.float32)
