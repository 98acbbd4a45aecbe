"""One example in, with words left out or word vectors replaced; the scores of the model for it out.

Many copies of the example go through the model together, as packs without padding (pack.lay). A word that stands
in two windows, or in a question that is read beside every option, is one word: it is changed wherever it is read.
[CLS], [SEP], marks and templates stay.

Legend: N copies, W words, R rows of one copy, X rows of them that are words, K kinds of tokens, T rows of a pack,
C columns of the question, E width of word vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from filbert.core import stopping
from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch
from filbert.core.records import Example, Ints
from filbert.explain.protocols import Engine
from filbert.explain.word_groups import grouped
from filbert.nn.attention import batch_tensors
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.question import Question, Reading, Target

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]
Change = Callable[[Batch, slice], None]  # what is done to a pack of copies before it is read; which copies they are
Put = Callable[[Batch, slice], list[Tensor]]  # the vectors, of each table, that a pack is read as instead of its own
BASELINES = ("mask", "pad", "zero", "delete")
TABLES = ("words", "contexts")  # the parts of embeddings that look tokens up; GloVe has two and adds them
GRADIENT_BUDGET = 1_024, 16_384  # tokens of a pack on CPU and GPU: each layer is kept for the way back


@dataclass(frozen=True, slots=True)
class Place:
    """A word of the user's: texts[part][start:end]."""

    part: int
    start: int
    end: int
    text: str


class Perturbation:
    """An example, the words that can be changed in it, and the question whose score is measured.

    baseline: what a missing word is read as: the vector of [MASK], that of [PAD], or zeros; or "delete": the text is
    read without it.
    """

    def __init__(self, engine: Engine, reading: Reading, target: Target = None, baseline: str = "mask") -> None:
        if baseline not in BASELINES:
            raise one_of("baseline", baseline, BASELINES)
        self.backbone, self.device, self.budget = engine.backbone, engine.device, engine.budget
        self.host = TorchHost(self.backbone)
        self.reading, self.layout, self.baseline = reading, reading.layout, baseline
        self.words, self.word_R = _words(reading)
        self.rows_X = np.flatnonzero(self.word_R >= 0)
        self.size = len(self.word_R)  # tokens that one copy is read as
        self.chosen = target is None  # by the model, as what it is surest of
        self.question: Question[Any] = reading.question(reading, target)
        if baseline == "delete" and self.question.placed:
            raise InputError(
                "baseline is delete, but without a word all places behind it move, and this target stands at a place; "
                "take mask, pad or zero."
            )
        self.first_C, self.has_vectors = self._first()
        self.column, self.target = self.question.picked(self.first_C)

    def with_baseline(self, baseline: str) -> Perturbation:
        """The same example and question, missing words being read as that."""
        other = object.__new__(Perturbation)
        other.__dict__ |= {**vars(self), "baseline": baseline}
        return other

    @property
    def value(self) -> float:
        """The target's, of the example as it is."""
        return float(self.first_C[self.column])

    def _first(self) -> tuple[Floats, bool]:
        """[C] of the example as it is, and whether the model looks up one vector for each token, which can be moved."""
        (_, batch), *_ = self.packs(1, 1)
        seen: list[Any] = []
        hooks = [table.register_forward_hook(lambda _, inputs, made: seen.append(inputs[0])) for table in self._tables]
        try:
            with torch.inference_mode():
                table_NC = self.question.table(self.host, batch).float().cpu().numpy()
        finally:
            for hook in hooks:
                hook.remove()
        return table_NC[0], sum(ids is batch.packed.ids for ids in seen) == len(hooks) > 0

    # -- words left out ----------------------------------------------------------------------------------------------

    def values(self, kept_NW: npt.ArrayLike) -> Numbers:
        """[N] the target's value where only these words are left; equal copies are read once."""
        flags, back = np.unique(np.asarray(kept_NW, dtype=np.bool_), axis=0, return_inverse=True)
        values: Numbers = self._kept(flags)[:, self.column].astype(np.float64)
        return values[back.ravel()]

    def _kept(self, kept_NW: Flags) -> Floats:
        if self.baseline == "delete":
            return self._deleted(kept_NW)
        if self.baseline == "zero":
            kept_NX = kept_NW[:, self.word_R[self.rows_X]]
            return self._table(len(kept_NW), put=lambda batch, copies: self._between(batch, kept_NX[copies])[0])
        tokenizer = self.reading.task.tokenizer
        filler = tokenizer.mask_id if self.baseline == "mask" else tokenizer.pad_id

        def change(batch: Batch, copies: slice) -> None:
            rows_NX = self.layout.rows(batch, self.rows_X)
            missing_NX = ~kept_NW[copies][:, self.word_R[self.rows_X]]
            batch.packed.ids[rows_NX[torch.as_tensor(missing_NX, device=rows_NX.device)]] = filler

        return self._table(len(kept_NW), change)

    def _deleted(self, kept_NW: Flags) -> Floats:
        """[N, C] of the texts without these words."""
        task, tables = self.reading.task, []
        some = max(1, self.budget // self.size)
        for begin in range(0, len(kept_NW), some):
            stopping.current().check()
            missing = [np.flatnonzero(~row).tolist() for row in kept_NW[begin : begin + some]]
            texts = [_cut(self.reading.example, [self.words[word] for word in row]) for row in missing]
            made = type(task)(texts, task.labels, task.tokenizer, task.config)
            batch = batch_tensors(made.batch(np.arange(len(texts))), self.device)
            with torch.inference_mode():
                tables.append(self.question.table(self.host, batch).float().cpu().numpy())
        return np.concatenate(tables)

    def controls(self, randoms: Sequence[np.random.Generator]) -> Floats:
        """[N, C] with a random vector in place of each word's; a token has the same one wherever it stands.

        Each coordinate of such a vector is that of another random token. So it is as large as any, and means nothing;
        but to a model whose vectors are themselves random it is as good as the word that was there. Where words have no
        vectors that can be replaced, each is read as a random token.
        """
        ids_X = np.asarray(self.reading.task.ids)[self.layout.token[self.rows_X]]
        kinds_K, kind_X = np.unique(ids_X, return_inverse=True)
        if not self.has_vectors:
            return self._replaced(kinds_K, kind_X, randoms)
        tokenizer = self.reading.task.tokenizer
        ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)

        def put(batch: Batch, copies: slice) -> list[Tensor]:
            rows_NX = self.layout.rows(batch, self.rows_X)
            placed = []
            for table in self._tables:
                x_TE, width = table.weight.detach()[batch.packed.ids], table.embedding_dim
                drawn = np.stack([random.choice(ordinary, (len(kinds_K), width)) for random in randoms[copies]])
                at_NKE = torch.as_tensor(drawn, device=x_TE.device)
                made_NKE = table.weight.detach()[at_NKE, torch.arange(width, device=x_TE.device)]
                x_TE[rows_NX] = made_NKE[:, torch.as_tensor(kind_X, device=x_TE.device)]
                placed.append(x_TE)
            return placed

        return self._table(len(randoms), put=put)

    def _replaced(self, kinds_K: Ints, kind_X: Places, randoms: Sequence[np.random.Generator]) -> Floats:
        """[N, C] with a random token for each; what goes on with a word is drawn among what does."""
        tokenizer = self.reading.task.tokenizer
        ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        continues = np.asarray(tokenizer.continues)
        drawn_NK = np.empty((len(randoms), len(kinds_K)), dtype=np.int64)
        for flag in (False, True):
            mine, pool = continues[kinds_K] == flag, ordinary[continues[ordinary] == flag]
            pool = pool if len(pool) >= mine.sum() else ordinary
            for row, random in enumerate(randoms):
                drawn_NK[row, mine] = random.choice(pool, int(mine.sum()), replace=len(pool) < mine.sum())

        def change(batch: Batch, copies: slice) -> None:
            rows_NX = self.layout.rows(batch, self.rows_X)
            batch.packed.ids[rows_NX] = torch.as_tensor(drawn_NK[copies][:, kind_X], device=rows_NX.device)

        return self._table(len(randoms), change)

    def _table(self, count: int, change: Change | None = None, put: Put | None = None) -> Floats:
        """[N, C] of so many copies, each pack of them changed, or other vectors put in place, before it is read."""
        tables = []
        for copies, batch in self.packs(count, self.budget):
            if change is not None:
                change(batch, copies)
            with torch.inference_mode(), self._read_as(batch, put(batch, copies) if put else []):
                tables.append(self.question.table(self.host, batch).float().cpu().numpy())
        return np.concatenate(tables)

    def packs(self, count: int, budget: int) -> Iterator[tuple[slice, Batch]]:
        """Packs of copies of the example, as tensors, and which copies each holds."""
        some = max(1, budget // self.size)
        for begin in range(0, count, some):
            stopping.current().check()
            copies = slice(begin, min(begin + some, count))
            made = self.reading.task.batch(np.zeros(copies.stop - begin, dtype=np.int64))
            yield copies, batch_tensors(made, self.device)

    # -- word vectors moved ------------------------------------------------------------------------------------------

    def along(self, shares_N: npt.ArrayLike) -> tuple[Numbers, Numbers]:
        """[N] the values on the straight way from the emptied text (0) to the text (1), and [N, W] the words' slopes.

        A word's slope is its part of dF/dα at x(α) = b + α(x - b): the gradient times (x - b), summed over its tokens.
        """
        shares = np.asarray(shares_N, dtype=np.float32)
        values, slopes = np.empty(len(shares)), np.zeros((len(shares), len(self.words)))
        word_X = torch.as_tensor(self.word_R[self.rows_X], device=self.device)
        for copies, batch in self.packs(len(shares), GRADIENT_BUDGET[str(self.device).startswith("cuda")]):
            count = copies.stop - copies.start
            share_NX = np.broadcast_to(shares[copies, None], (count, len(self.rows_X)))
            placed, apart = self._between(batch, share_NX)
            placed = [x_TE.requires_grad_() for x_TE in placed]
            with torch.enable_grad(), self._read_as(batch, placed), torch.backends.cudnn.flags(enabled=False):
                value_N = self.question.table(self.host, batch)[:, self.column]
                gradients = torch.autograd.grad(value_N.sum(), placed)
            slopes_NW = torch.zeros(count, len(self.words), device=self.device)
            rows_NX = self.layout.rows(batch, self.rows_X)
            for gradient_TE, apart_TE in zip(gradients, apart, strict=True):
                slope_T = (gradient_TE.float() * apart_TE.float()).sum(-1)
                slopes_NW.index_add_(1, word_X, slope_T[rows_NX])
            values[copies], slopes[copies] = value_N.detach().cpu().numpy(), slopes_NW.cpu().numpy()
        return values, slopes

    def _between(self, batch: Batch, share_NX: Flags | Floats) -> tuple[list[Tensor], list[Tensor]]:
        """[T, E] of each table: the vectors so far on the way from the emptied text, and the whole way."""
        if not self.has_vectors:
            raise InputError(
                f"{type(self.backbone).__name__} does not read a text as one vector for each token, so gradients "
                "cannot reach its words; take method occlusion or sampling, with baseline mask or pad."
            )
        ids, rows_NX = batch.packed.ids, self.layout.rows(batch, self.rows_X)
        changed_T, left_T = torch.zeros(2, len(ids), device=ids.device)
        changed_T[rows_NX] = 1
        left_T[rows_NX] = 1 - torch.as_tensor(np.array(share_NX, dtype=np.float32), device=ids.device)
        placed, apart = [], []
        for table in self._tables:
            whole_TE = table.weight.detach()[ids]
            apart.append((whole_TE - self._empty(table)) * changed_T[:, None].to(whole_TE.dtype))
            placed.append(whole_TE - left_T[:, None].to(whole_TE.dtype) * apart[-1])
        return placed, apart

    def _empty(self, table: nn.Embedding) -> Tensor:
        """[E] the vector that stands for a missing word."""
        tokenizer = self.reading.task.tokenizer
        if self.baseline == "delete":
            raise InputError("baseline is delete, but gradients need a vector to begin at: take mask, pad or zero.")
        weight = table.weight.detach()
        if self.baseline == "zero":
            return torch.zeros_like(weight[0])
        return weight[tokenizer.mask_id if self.baseline == "mask" else tokenizer.pad_id]

    @property
    def _tables(self) -> list[nn.Embedding]:
        modules = dict(self.backbone.named_modules(remove_duplicate=False))
        tables = [modules.get(f"embeddings.{name}") for name in TABLES]
        return [table for table in tables if isinstance(table, nn.Embedding)]

    @contextmanager
    def _read_as(self, batch: Batch, placed: Sequence[Tensor]) -> Iterator[None]:
        """Within it, a model that looks up the tokens of this batch finds these vectors; other batches are as ever."""

        def instead(x_TE: Tensor) -> Callable[..., Tensor | None]:
            return lambda module, inputs, made: x_TE if inputs[0] is batch.packed.ids else None

        pairs = zip(self._tables, placed, strict=True) if placed else ()
        hooks = [table.register_forward_hook(instead(x_TE)) for table, x_TE in pairs]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _words(reading: Reading) -> tuple[tuple[Place, ...], npt.NDArray[np.int64]]:
    """The words of all texts that the model reads, and [R] which word each row is of; -1: of none."""
    layout, origins = reading.layout, reading.origins
    word_U, words = np.full(len(origins) + 1, -1, dtype=np.int64), list[Place]()
    for part, text in enumerate(reading.example.texts):
        mine = np.flatnonzero(np.isin(np.arange(len(origins)), layout.token) & (origins[:, 0] == part))
        places, back = np.unique(origins[mine, 1:], axis=0, return_inverse=True)  # a question stands in every option's
        number = np.empty(len(places), dtype=np.int64)
        for group in grouped(text, places[:, 0], places[:, 1]):
            number[list(group.tokens)] = len(words)
            words.append(Place(part, group.start, group.end, text[group.start : group.end]))
        word_U[mine] = number[back.ravel()]
    return tuple(words), word_U[layout.token]


def _cut(example: Example, missing: Sequence[Place]) -> Example:
    """The example without these words."""
    texts = list(example.texts)
    for place in sorted(missing, key=lambda place: -place.start):
        texts[place.part] = texts[place.part][: place.start] + texts[place.part][place.end :]
    return replace(example, texts=tuple(texts))
