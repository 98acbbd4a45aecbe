"""Labelled texts in; what models that only count characters or words say of other texts out: what there is to beat.

Legend: N rows, L labels, F features.

Texts with Chinese are counted by runs of one to three characters, others by words and pairs of words. A row may have
several texts (a pair, or a sentence and its mentions): each is counted by itself. Runs are hashed, so that there is no
vocabulary to build: 90,000 headlines take a second.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import needed
from filbert.core.random import generator
from filbert.core.records import Span

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Rows = Sequence[tuple[str, ...]]
EXTRA = "metrics"  # what brings scikit-learn

BITS = 22  # of a feature's number
CHARACTERS, WORDS = 3, 2  # the longest runs
LOOKED, CHINESE = 1_000, 0.1  # texts that are looked at, and the share of wide characters that makes them Chinese
FIRST_WIDE = 0x2E80
STRENGTHS = (30.0, 1.0)  # inverse of the penalty: what suits topics, and what suits pairs
PASSES, MOST_PASSES, ROWS_SEEN = 5, 100, 200_000  # over the data: as many as show so many rows, within these
LIGHT = 300_000_000  # counts times labels times passes; where they would be more, the fewest passes do
EFFORT = 200_000_000  # counts times labels that one fit may see; more rows are left out by chance
TRIED, FEWEST_TRIED = 8_000, 200  # rows that choose between them, and how few cannot
FOLDS, FOLDED_EFFORT = 4, 80_000_000
DOUBT = 0.5  # added to every count of naive Bayes

_WORD = re.compile(r"\w+|[^\w\s]")
_SPREAD = 0x9E3779B97F4A7C15


class Sparse(Protocol):
    """A matrix of scipy.sparse in rows (csr_matrix), as far as it is asked here."""

    shape: tuple[int, int]
    nnz: int
    data: Numbers  # [nnz]
    indices: Places  # [nnz]
    indptr: Places  # [N+1]

    def __getitem__(self, rows: npt.NDArray[np.generic], /) -> Sparse: ...
    def __add__(self, other: Sparse, /) -> Sparse: ...
    def __sub__(self, other: Sparse, /) -> Sparse: ...
    def __rmul__(self, factor: int, /) -> Sparse: ...
    def __matmul__(self, other: Numbers, /) -> Numbers: ...

    @property
    def T(self) -> Sparse:
        """[F, N] transposed."""
        ...

    def minimum(self, other: Sparse, /) -> Sparse:
        """Cell by cell."""
        ...

    def multiply(self, other: Sparse, /) -> Sparse:
        """Cell by cell."""
        ...

    def eliminate_zeros(self) -> None:
        """Drops cells that hold 0."""
        ...

    def sum(self, axis: int) -> npt.ArrayLike:
        """Of each row (1) or column (0)."""
        ...


class Classifier(Protocol):
    """A classifier of scikit-learn that is fitted."""

    def predict_proba(self, features: Sparse, /) -> Numbers:
        """[N, L] how likely each label is."""
        ...


def is_chinese(texts: Sequence[str]) -> bool:
    """Whether a fair share of the characters are Han, kana or Hangul."""
    sample = "".join(texts[:: max(1, len(texts) // LOOKED)][:LOOKED])
    codes = np.frombuffer(sample.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return bool(len(codes) and (codes >= FIRST_WIDE).mean() >= CHINESE)


def counts(texts: Sequence[str], chinese: bool) -> Sparse:
    """[N, 2^BITS] how often each run of characters, or of words, stands in each text; sparse."""
    sparse = needed("scipy.sparse", EXTRA)
    units, sizes = _characters(texts) if chinese else _words(texts)
    owners = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
    columns, rows = [], []
    for run in range(1, (CHARACTERS if chinese else WORDS) + 1):
        num = max(0, len(units) - run + 1)
        keys = np.zeros(num, dtype=np.uint64)
        for step in range(run):
            keys = keys * np.uint64(0x100000001B3) + units[step : step + num]
        whole = owners[:num] == owners[run - 1 : run - 1 + num]
        columns.append((keys[whole] * np.uint64(_SPREAD)) >> np.uint64(64 - BITS))
        rows.append(owners[:num][whole])
    column = np.concatenate(columns).astype(np.int32)
    ones = np.ones(len(column), dtype=np.float32)
    return sparse.coo_matrix((ones, (np.concatenate(rows), column)), shape=(len(texts), 2**BITS)).tocsr()  # type: ignore[no-any-return]


def _characters(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint64], list[int]]:
    folded = [text.casefold() for text in texts]
    codes = np.frombuffer("".join(folded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return codes.astype(np.uint64) + np.uint64(1), [len(text) for text in folded]


def _words(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint64], list[int]]:
    cut = [_WORD.findall(text.casefold()) for text in texts]
    hashes = [zlib.crc32(word.encode("utf-8", "surrogatepass")) + 1 for words in cut for word in words]
    return np.array(hashes, dtype=np.uint64), [len(words) for words in cut]


class Weights:
    """TF-IDF of counts: what rare runs are worth, learnt from some rows, for any others."""

    def __init__(self, learnt: Sparse) -> None:
        least = 2 if learnt.shape[0] >= LOOKED else 1  # a rare run is all that a small set has
        texts = np.bincount(learnt.indices, minlength=learnt.shape[1])
        kept = np.flatnonzero(texts >= least)
        self.size = len(kept)
        self.places = np.full(learnt.shape[1], -1, dtype=np.int32)
        self.places[kept] = np.arange(len(kept), dtype=np.int32)
        self.rarity = (np.log((1 + learnt.shape[0]) / (1 + texts[kept])) + 1).astype(np.float32)

    def __call__(self, counted: Sparse) -> Sparse:
        """[N, F] each row of length 1."""
        sparse = needed("scipy.sparse", EXTRA)
        places = self.places[counted.indices]
        is_weighed = places >= 0
        places = places[is_weighed]
        owners = np.repeat(np.arange(counted.shape[0]), np.diff(counted.indptr))[is_weighed]
        values = (1 + np.log(counted.data[is_weighed])) * self.rarity[places]
        lengths = np.sqrt(np.bincount(owners, values**2, minlength=counted.shape[0]))
        values = (values / lengths[owners]).astype(np.float32)
        edges = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=counted.shape[0]))))
        return sparse.csr_matrix((values, places, edges), shape=(counted.shape[0], self.size))  # type: ignore[no-any-return]


class Features:
    """The features of rows of texts, weighed as some of them teach."""

    def __init__(self, learnt: Rows, is_pair: bool = False) -> None:
        self.is_pair = is_pair
        self.chinese = is_chinese([text for row in learnt[: 10 * LOOKED] for text in row])
        self.counted = self.blocks(learnt)
        self.weights = [Weights(block) for block in self.counted]

    def blocks(self, rows: Rows) -> list[Sparse]:
        """Counts of each text by itself and, of a pair, of what both share and what only one has."""
        blocks = [counts([row[side] for row in rows], self.chinese) for side in range(len(rows[0]) if rows else 0)]
        if self.is_pair:
            shared = blocks[0].minimum(blocks[1])
            lone = blocks[0] + blocks[1] - 2 * shared
            lone.eliminate_zeros()
            blocks += [shared, lone]
        return blocks

    def __call__(self, counted: list[Sparse]) -> Sparse:
        """[N, F] from counts that `blocks` gave."""
        sparse = needed("scipy.sparse", EXTRA)
        weighed = [weigh(block) for weigh, block in zip(self.weights, counted, strict=True)]
        if self.is_pair:
            totals = [np.asarray(block.sum(axis=1)).ravel() for block in counted]
            overlap = totals[2] / np.maximum(totals[2] + totals[3], 1)
            sizes = np.minimum(totals[0], totals[1]) / np.maximum(np.maximum(totals[0], totals[1]), 1)
            weighed.append(sparse.csr_matrix(np.stack((overlap, overlap**2, sizes), axis=1).astype(np.float32)))
        return sparse.hstack(weighed, format="csr")  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Learnt:
    """A fitted baseline: features, model, the labels that it knows, and on how many rows it was fitted."""

    features: Features
    model: Any
    present: Places  # the labels that it knows
    num_labels: int
    num_rows: int  # of so many
    num_of: int

    def shares(self, rows: Rows) -> Numbers:
        """[N, L] what it holds each label for."""
        return _spread(self.model, self.present, self.features(self.features.blocks(rows)), self.num_labels)

    def values(self, rows: Rows) -> Numbers:
        """[N] the numbers that it gives."""
        values: Numbers = np.asarray(self.model.predict(self.features(self.features.blocks(rows))), dtype=np.float64)
        return values


def labels(rows: Rows, gold: Places, num_labels: int, is_pair: bool = False) -> Learnt:
    """Logistic regression on TF-IDF, learnt from these rows."""
    chosen = _sampled(rows, num_labels, EFFORT)
    features = Features([rows[place] for place in chosen.tolist()], is_pair)
    matrix, wanted = features(features.counted), gold[chosen]
    model, present = _fitted(matrix, wanted, _strength(matrix, wanted))
    return Learnt(features, model, present, num_labels, len(chosen), len(rows))


def numbers(rows: Rows, gold: npt.ArrayLike, is_pair: bool = False) -> Learnt:
    """Ridge regression on TF-IDF, learnt from these rows."""
    linear = needed("sklearn.linear_model", EXTRA)
    chosen = _sampled(rows, 1, EFFORT)
    features = Features([rows[place] for place in chosen.tolist()], is_pair)
    wanted = np.asarray(gold, dtype=np.float64)[chosen]
    model = linear.Ridge(solver="lsqr").fit(features(features.counted), wanted)
    return Learnt(features, model, np.zeros(0, dtype=np.int64), 0, len(chosen), len(rows))


def _sampled(rows: Rows, num_labels: int, effort: int) -> Places:
    """Which rows are learnt from: all, or as many as the effort allows, by chance."""
    size = sum(len(text) for row in rows[:: max(1, len(rows) // LOOKED)][:LOOKED] for text in row)
    each = max(1.0, 3 * size / max(1, min(len(rows), LOOKED))) * max(1, num_labels)
    most = max(LOOKED, int(effort / each))
    if len(rows) <= most:
        return np.arange(len(rows))
    return np.sort(generator(0, "baseline rows").permutation(len(rows))[:most])


def _fitted(features: Sparse, gold: Places, strength: float) -> tuple[Classifier | None, Places]:
    """The regression, and the labels that it knows."""
    linear = needed("sklearn.linear_model", EXTRA)
    present = np.unique(gold)
    if len(present) < 2:
        return None, present
    passes = int(np.clip(ROWS_SEEN / len(gold), PASSES, MOST_PASSES))
    passes = passes if features.nnz * len(present) * passes < LIGHT else PASSES
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    model = linear.SGDClassifier(
        loss="log_loss", alpha=1 / (strength * len(gold)), max_iter=passes, tol=None, average=True, random_state=0,
        n_jobs=min(cores, len(present)),
    )  # fmt: skip
    return model.fit(features, gold), present


def _strength(features: Sparse, gold: Places) -> float:
    """The strength that is best on a fifth of some rows, learnt from the rest: a baseline must not be a weak one."""
    chosen = generator(0, "strength").permutation(len(gold))[:TRIED]
    if len(chosen) < FEWEST_TRIED:
        return STRENGTHS[0]
    held, learnt = np.split(chosen, [len(chosen) // 5])
    scores = []
    for strength in STRENGTHS:
        model, present = _fitted(features[learnt], gold[learnt], strength)
        predicted = _spread(model, present, features[held], int(gold.max()) + 1).argmax(axis=1)
        scores.append(float((predicted == gold[held]).mean()))
    return STRENGTHS[int(np.argmax(scores))]


def _spread(model: Classifier | None, present: Places, features: Sparse, num_labels: int) -> Numbers:
    shares = np.zeros((features.shape[0], num_labels))
    shares[:, present] = 1.0 if model is None else model.predict_proba(features)
    return shares


def sets(rows: Rows, gold_NL: npt.ArrayLike, others: Rows) -> Numbers:
    """[N, L] of rows that may have several labels: a regression for each label says how likely it is."""
    right = np.asarray(gold_NL) == 1
    chosen = _sampled(rows, right.shape[1], EFFORT)
    features = Features([rows[place] for place in chosen.tolist()])
    learnt, wanted = features(features.counted), features(features.blocks(others))
    shares = np.zeros((len(others), right.shape[1]))
    for label in range(right.shape[1]):
        model, present = _fitted(learnt, right[chosen, label].astype(np.int64), STRENGTHS[0])
        shares[:, label] = _spread(model, present, wanted, 2)[:, 1]
    return shares


@dataclass(frozen=True, slots=True)
class Unseen:
    """What models that never saw a row's own label say of it."""

    rows: Places  # [N] which rows were looked at
    shares: tuple[Numbers, ...]  # each [N, L]


def unseen(rows: Rows, gold: Places, num_labels: int, is_pair: bool = False) -> Unseen:
    """Two views of each row: regression learnt from the other folds, and naive Bayes from all rows but this one."""
    chosen = _sampled(rows, num_labels, FOLDED_EFFORT)
    features = Features([rows[place] for place in chosen.tolist()], is_pair)
    matrix, wanted = features(features.counted), gold[chosen]
    folds = generator(0, "folds").permutation(len(wanted)) % FOLDS
    shares, strength = np.zeros((len(wanted), num_labels)), _strength(matrix, wanted)
    for fold in range(FOLDS):
        inside = folds != fold
        model, present = (
            _fitted(matrix[inside], wanted[inside], strength) if inside.any() else (None, np.unique(wanted))
        )
        if (~inside).any():
            shares[~inside] = _spread(model, present, matrix[~inside], num_labels)
    return Unseen(chosen, (shares, naive_bayes(features.counted, wanted, num_labels)))


def naive_bayes(blocks: Sequence[Sparse], gold: Places, num_labels: int) -> Numbers:
    """[N, L] of each row by all others: its own counts are taken out of those of its label, which needs no refit.

    Runs overlap, so that their evidence is counted many times: the logs are divided by the square root of the length.
    """
    right = np.zeros((len(gold), num_labels))
    right[np.arange(len(gold)), gold] = 1
    logs = np.log(right.sum(axis=0) - right + DOUBT)
    sizes = np.zeros(len(gold))
    for block in blocks:
        logs += _evidence(block, right, gold)
        sizes += np.diff(block.indptr)
    logs /= np.sqrt(np.maximum(sizes, 1))[:, None]
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares: Numbers = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _evidence(block: Sparse, right: Numbers, gold: Places) -> Numbers:
    """[N, L] the log-likelihood of each row's runs (whether they are there), its own left out."""
    weigh = Weights(block)
    places = weigh.places[block.indices]
    is_weighed = places >= 0
    places = places[is_weighed]
    owners = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))[is_weighed]
    sparse = needed("scipy.sparse", EXTRA)
    shape = (block.shape[0], weigh.size)
    there = sparse.csr_matrix((np.ones(len(places)), (owners, places)), shape=shape)
    table = np.asarray(there.T @ right)  # [F, L] texts of each label that have the run
    sizes, totals = np.bincount(owners, minlength=block.shape[0]), table.sum(axis=0)
    room = DOUBT * weigh.size
    logs: Numbers = there @ np.log(table + DOUBT) - sizes[:, None] * np.log(totals + room)
    of_label = table[places, gold[owners]]
    changed = np.bincount(owners, np.log(of_label - 1 + DOUBT) - np.log(of_label + DOUBT), minlength=len(gold))
    changed -= sizes * (np.log(totals[gold] - sizes + room) - np.log(totals[gold] + room))
    logs[np.arange(len(gold)), gold] += changed
    return logs


# Without learning from labels, or nearly so ---------------------------------------------------------------------------


def closest(questions: Sequence[str], offered: Sequence[Sequence[str]]) -> list[int]:
    """Which of the texts offered to each question is likest to it, by TF-IDF; the first of equals."""
    flat = [text for texts in offered for text in texts]
    chinese = is_chinese([*questions[:LOOKED], *flat[:LOOKED]])
    counted = counts(flat, chinese)
    weigh = Weights(counted)
    owners = np.repeat(np.arange(len(questions)), [len(texts) for texts in offered])
    likeness = np.asarray(weigh(counted).multiply(weigh(counts(questions, chinese))[owners]).sum(axis=1)).ravel()
    edges = np.concatenate(([0], np.cumsum([len(texts) for texts in offered])))
    ranges = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [int(np.argmax(likeness[start:end])) if end > start else -1 for start, end in ranges]


class Dictionary:
    """The stretches that texts have spans for, each with its commonest label; the longest is found first."""

    def __init__(self, texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> None:
        labels: dict[str, Counter[str]] = {}
        for text, marked in zip(texts, spans, strict=True):
            for span in marked:
                labels.setdefault(text[span.start : span.end], Counter())[span.label] += 1
        self.labels = {words: counted.most_common(1)[0][0] for words, counted in labels.items() if words.strip()}
        self._sort()
        # A word that is marked in fewer than half of the places where it stands would do more harm than good.
        num_places: Counter[str] = Counter()
        for text in texts:
            num_places.update(text[span.start : span.end] for span in self(text))
        self.labels = {w: label for w, label in self.labels.items() if 2 * labels[w].total() >= num_places[w]}
        self._sort()

    def _sort(self) -> None:
        self.sizes: dict[str, list[int]] = {}
        for words in self.labels:
            self.sizes.setdefault(words[0], []).append(len(words))
        self.sizes = {first: sorted(set(lengths), reverse=True) for first, lengths in self.sizes.items()}

    def __call__(self, text: str) -> tuple[Span, ...]:
        """The spans of a text, from left to right, none within another."""
        spans, at = [], 0
        while at < len(text):
            sizes = self.sizes.get(text[at], ())
            size = next((n for n in sizes if text[at : at + n] in self.labels and _is_whole(text, at, at + n)), 0)
            if size:
                spans.append(Span(at, at + size, self.labels[text[at : at + size]]))
            at += size or 1
        return tuple(spans)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether a stretch of letters does not begin or end inside a word that is written with them."""

    def joined(left: str, right: str) -> bool:
        return all(char.isalnum() and ord(char) < FIRST_WIDE for char in (left, right))

    begins = start == 0 or not joined(text[start - 1], text[start])
    return begins and (end == len(text) or (end < len(text) and not joined(text[end - 1], text[end])))
