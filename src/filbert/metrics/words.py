"""Word vectors and what people say of words in; how well the two agree, with intervals and coverage, out.

Similarity: people rate pairs of words, and the vectors' cosines should rank them alike. Analogy: 雅典 is to 希腊 as
曼谷 is to which word? A word without a vector leaves its pair or question out, and the coverage says how many were: two
tables of vectors can be compared only on what both cover.

Legend: V words, D width, Q questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.metrics.intervals import wilson
from filbert.metrics.vectors import agreement, cosines

BLOCK = 256  # questions at a time
Numbers = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Rated:
    """Two words, and how alike or related people find them."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class Question:
    """`words[0]` is to `words[1]` as `words[2]` is to `words[3]`."""

    words: tuple[str, str, str, str]
    group: str = ""


def rated(lines: Iterable[str], source: str = "") -> list[Rated]:
    """The pairs of a set such as WordSim353: two words and a number, with tabs between; # begins a remark."""
    ratings = []
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.strip().split("\t")]
        if cells == [""] or cells[0].startswith("#"):
            continue
        try:
            first, second, score = cells
            ratings.append(Rated(first, second, float(score)))
        except ValueError:
            raise InputError(
                f"{source} line {number}: {line.strip()[:40]!r} must be two words and a number, with tabs between."
            ) from None
    return ratings


def questions(lines: Iterable[str], source: str = "") -> list[Question]:
    """The questions of a set such as word2vec's: four words a line; a line that begins with ":" names a group."""
    every, group = [], ""
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if line.startswith(":"):
            group = line[1:].strip()
        elif len(words) == 4:
            every.append(Question((words[0], words[1], words[2], words[3]), group))
        elif words:
            raise InputError(f"{source} line {number}: {line.strip()[:40]!r} must be four words, with spaces between.")
    return every


def similarity(pairs: Iterable[Rated], ids: Mapping[str, int], vectors_VD: Numbers) -> dict[str, Any]:
    """Spearman's and Pearson's correlation of cosines with what people say, over the pairs that have both vectors."""
    every = list(pairs)
    rows = [(_row(pair.first, ids), _row(pair.second, ids)) for pair in every]
    covered = [at for at, row in enumerate(rows) if None not in row]
    places = np.array([rows[at] for at in covered], dtype=np.int64).reshape(-1, 2)
    values = cosines(vectors_VD[places[:, 0]], vectors_VD[places[:, 1]])
    return agreement([every[at].score for at in covered], values) | _coverage(len(covered), len(every))


def analogies(questions: Iterable[Question], ids: Mapping[str, int], vectors_VD: Numbers) -> dict[str, Any]:
    """How often the word nearest to b - a + c is the right one (3CosAdd, Mikolov et al. 2013c), in all and by group.

    All vectors are brought to length 1 first. The three words of the question are never an answer.
    """
    every = list(questions)
    rows = [tuple(_row(word, ids) for word in question.words) for question in every]
    covered = [at for at, row in enumerate(rows) if None not in row]
    places_Q4 = np.array([rows[at] for at in covered], dtype=np.int64).reshape(-1, 4)
    is_right = _answers(places_Q4, vectors_VD) == places_Q4[:, 3]
    groups: dict[str, list[bool]] = {}
    for at, right in zip(covered, is_right, strict=True):
        groups.setdefault(every[at].group, []).append(bool(right))
    total, accuracy = len(covered), float(is_right.mean()) if covered else 0.0
    return {
        "accuracy": accuracy,
        "num_examples": total,
        "intervals": {"accuracy": list(wilson(int(is_right.sum()), total) if total else (0.0, 0.0))},
        "groups": {name: {"accuracy": float(np.mean(rights)), "num_examples": len(rights)}
                   for name, rights in groups.items()},
    } | _coverage(total, len(every))  # fmt: skip


def _answers(places_Q4: npt.NDArray[np.int64], vectors_VD: Numbers) -> npt.NDArray[np.int64]:
    """[Q] the word that each question's first three point at."""
    unit_VD = np.asarray(vectors_VD, dtype=np.float32)
    unit_VD = unit_VD / np.maximum(np.linalg.norm(unit_VD, axis=1, keepdims=True), 1e-12)
    answers = np.zeros(len(places_Q4), dtype=np.int64)
    for begin in range(0, len(places_Q4), BLOCK):
        first, second, third = places_Q4[begin : begin + BLOCK, :3].T
        scores_QV = (unit_VD[second] - unit_VD[first] + unit_VD[third]) @ unit_VD.T
        for word in (first, second, third):
            scores_QV[np.arange(len(word)), word] = -np.inf
        answers[begin : begin + BLOCK] = scores_QV.argmax(axis=1)
    return answers


def _row(word: str, ids: Mapping[str, int]) -> int | None:
    """The word's number, as it is written or in small letters."""
    return ids.get(word, ids.get(word.lower()))


def _coverage(num_covered: int, total: int) -> dict[str, Any]:
    return {"num_asked": total, "coverage": num_covered / total if total else 0.0}
