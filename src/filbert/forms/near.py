"""Texts of examples come in; which of them are copies, or nearly copies, of others goes out.

Two texts are near if one of these holds once case, width, white space and punctuation are gone:

- they are the same, or the same letters in another order (words that changed places);
- they have at most 32 letters and differ by one that was changed, added, left out or moved;
- the sets of their runs of three letters (of two, in short texts) overlap by 0.8 or more (Jaccard).

A text of fewer than 8 Han characters or 20 letters says so little that only its copies count. An example with several
texts is near another if each of its texts is.

Copies, shuffles and single edits are all found. Overlaps are measured for texts that agree in one of 14 bands of four
MinHashes (Broder 1997): two that overlap by 0.8 do in all but one of 1,600 cases, two that hardly overlap nearly never.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

ALIKE = 0.8  # Jaccard of the runs of two near texts
WIDE, NARROW, FEWEST = 5, 2, 40  # what a Han character and a letter count for, and what a text needs to have near ones
FIRST_WIDE = "\u2e80"
LONGEST_EDITED, LONGEST_SHUFFLED = 32, 512  # letters; longer texts that differ by so little share enough runs
RUNS = ((2, 0, 24), (3, 16, 2**40))  # length of a run, and the letters of the texts (from, up to) it is for
CROWD = 100  # of very many texts with one key, each is compared with so many of the next
LETTERS = 12_000_000  # of all texts that are compared with near ones; copies are found among any number
BANDS, DEPTH = 14, 4  # of MinHashes: 1 - (1 - 0.8^4)^14 is 0.9994
PAIR_RUNS = 2**22  # runs that are looked up at a time
MOST_COMBINED = 4_096  # combinations of near texts that are tried for one example

_NOT_LETTERS = re.compile(r"[\W_]+")
_BITS = 21  # of a code point
_SPREAD = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Match:
    """A row, another one whose texts it repeats, and how: "exact" to the letter, or "near"."""

    row: int
    other: int
    kind: str


def letters(text: str) -> str:
    """The text without case, width, white space and punctuation; one that has no letters stays as it is."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_LETTERS.sub("", folded) or folded


class Neighbours:
    """The copies among some rows, each a tuple of texts: those that are looked up (queries), then those to look in."""

    def __init__(
        self, queries: Sequence[tuple[str, ...]], references: Sequence[tuple[str, ...]], most_letters: int = LETTERS
    ) -> None:
        self.rows, self.num_queries = [*queries, *references], len(queries)
        numbers: dict[str, int] = {}
        self.keys = [tuple(numbers.setdefault(letters(text), len(numbers)) for text in row) for row in self.rows]
        compared, self.num_compared = self._compared(list(numbers), most_letters)
        self.near: dict[int, list[int]] = {}
        for one, two in pairs(compared).tolist():
            self.near.setdefault(one, []).append(two)
            self.near.setdefault(two, []).append(one)

    def _compared(self, texts: list[str], most_letters: int) -> tuple[list[str], int]:
        """The texts that are compared ("" for the others), and how many of the reference rows that are.

        Of too many letters these are all queries and as many reference rows as fit, drawn by chance.
        """
        if sum(map(len, texts)) <= most_letters:
            return texts, len(self.rows) - self.num_queries
        kept: set[int] = set()
        size, taken = 0, -self.num_queries
        drawn = generator(0, "neighbours").permutation(len(self.rows) - self.num_queries) + self.num_queries
        for row in itertools.chain(range(self.num_queries), drawn.tolist()):
            fresh = set(self.keys[row]) - kept
            size += sum(len(texts[key]) for key in fresh)
            if size > most_letters:
                break
            kept |= fresh
            taken += 1
        return [text if key in kept else "" for key, text in enumerate(texts)], max(0, taken)

    def leaks(self, queries: range | None = None) -> list[Match]:
        """Every query that repeats a reference row, with the first of those that it repeats best."""
        references = range(self.num_queries, len(self.rows))
        return self._matches(range(self.num_queries) if queries is None else queries, self._places(references))

    def repeats(self) -> list[Match]:
        """Every reference row that repeats an earlier one; rows count from the first reference."""
        places: dict[tuple[int, ...], list[int]] = {}
        matches = []
        for row in range(self.num_queries, len(self.rows)):
            matches += self._matches([row], places)
            places.setdefault(self.keys[row], []).append(row)
        move = self.num_queries
        return [Match(match.row - move, match.other - move, match.kind) for match in matches]

    def _places(self, rows: Iterable[int]) -> dict[tuple[int, ...], list[int]]:
        places: dict[tuple[int, ...], list[int]] = {}
        for row in rows:
            places.setdefault(self.keys[row], []).append(row)
        return places

    def _matches(self, rows: Iterable[int], places: dict[tuple[int, ...], list[int]]) -> list[Match]:
        matches = []
        for row in rows:
            same = places.get(self.keys[row], ())
            other = next((each for each in same if self.rows[each] == self.rows[row]), None)
            if other is not None:
                matches.append(Match(row, other, "exact"))
                continue
            other = same[0] if same else next((places[key][0] for key in self._around(row) if key in places), None)
            if other is not None:
                matches.append(Match(row, other, "near"))
        return matches

    def _around(self, row: int) -> Iterator[tuple[int, ...]]:
        """The keys of rows that would be near this one."""
        keys = self.keys[row]
        if not any(key in self.near for key in keys):
            return
        choices = [(key, *self.near.get(key, ())) for key in keys]
        yield from itertools.islice(itertools.product(*choices), 1, MOST_COMBINED)


def pairs(texts: Sequence[str]) -> Places:
    """[P, 2] the near ones among texts that are letters only and all different; "" is near nothing."""
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    long = np.flatnonzero(np.fromiter(map(_weight, texts), dtype=np.int64, count=len(texts)) >= FEWEST)
    near = [_sharing(_shuffles(texts, long[sizes[long] <= LONGEST_SHUFFLED]))]
    near.append(_sharing(_edits(texts, long[sizes[long] <= LONGEST_EDITED])))
    for run, least, below in RUNS:
        chosen = long[(sizes[long] >= least) & (sizes[long] < below)]
        near.append(_overlapping(texts, chosen, run))
    return np.unique(np.concatenate(near), axis=0)


def _weight(text: str) -> int:
    if len(text) >= FEWEST:
        return FEWEST
    return sum(WIDE if char >= FIRST_WIDE else NARROW for char in text)


def _shuffles(texts: Sequence[str], chosen: Places) -> tuple[Places, Places]:
    """A key of each text that does not hang on the order of its letters."""
    keys = (hash("".join(sorted(texts[place]))) for place in chosen.tolist())
    return np.fromiter(keys, dtype=np.int64, count=len(chosen)), chosen


def _edits(texts: Sequence[str], chosen: Places) -> tuple[Places, Places]:
    """Keys of each text, whole and without each of its letters in turn: texts one edit apart share one."""
    keys = (
        hash(key)
        for place in chosen.tolist()
        for text in (texts[place],)
        for key in (text, *(text[:at] + text[at + 1 :] for at in range(len(text))))
    )
    counts = np.array([len(texts[place]) + 1 for place in chosen.tolist()], dtype=np.int64)
    return np.fromiter(keys, dtype=np.int64, count=int(counts.sum())), np.repeat(chosen, counts)


def _sharing(keyed: tuple[Places, Places]) -> Places:
    """[P, 2] the pairs of owners, smaller first, that have a key in common."""
    keys, owners = keyed
    order = np.lexsort((owners, keys))
    keys, owners = keys[order], owners[order]
    shared = []
    for step in range(1, CROWD + 1):
        same = np.flatnonzero(keys[step:] == keys[:-step])
        if not len(same):
            break
        both = np.stack((owners[same], owners[same + step]), axis=1)
        shared.append(np.unique(both[both[:, 0] != both[:, 1]], axis=0))
    return np.unique(np.concatenate(shared), axis=0) if shared else np.zeros((0, 2), dtype=np.int64)


def _overlapping(texts: Sequence[str], chosen: Places, run: int) -> Places:
    """[P, 2] the pairs of chosen texts whose sets of runs overlap enough."""
    if not len(chosen):
        return np.zeros((0, 2), dtype=np.int64)
    sets = _Sets.of([texts[place] for place in chosen.tolist()], run)
    everyone = np.arange(len(chosen))
    candidates = np.unique(np.concatenate([_sharing((band, everyone)) for band in sets.bands()]), axis=0)
    one, two = np.diff(sets.edges)[candidates].T
    candidates = candidates[np.minimum(one, two) >= ALIKE * np.maximum(one, two) - 1e-9]
    overlapping: Places = chosen[candidates[sets.overlaps(candidates) >= ALIKE - 1e-9]]
    return overlapping


@dataclass(frozen=True, slots=True)
class _Sets:
    """The runs of each text as a set of numbers, in order; no set is empty."""

    members: Places  # of all texts in turn
    owners: Places  # the text that each belongs to
    edges: Places  # [T+1]
    most: int  # members are below it

    @classmethod
    def of(cls, texts: Sequence[str], run: int) -> _Sets:
        """Those of these texts."""
        raw = "".join(texts).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(raw, dtype=np.uint32).astype(np.uint64)
        sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        owners = np.repeat(np.arange(len(texts)), sizes)
        num = max(0, len(codes) - run + 1)
        keys = np.zeros(num, dtype=np.uint64)
        for step in range(run):
            keys = (keys << np.uint64(_BITS)) | codes[step : step + num]
        whole = owners[:num] == owners[run - 1 :]  # a run must not go from one text into the next
        distinct, places = np.unique(keys[whole], return_inverse=True)
        most = len(distinct) + 1
        both = np.unique(owners[:num][whole] * most + places)
        owners_of_members = both // most
        edges = np.searchsorted(owners_of_members, np.arange(len(texts) + 1))
        return cls(both % most, owners_of_members, edges, most)

    def bands(self) -> Iterator[Places]:
        """[T] keys, one array for each band: sets have the same with the chance of their overlap to the DEPTH."""
        random = generator(0, "bands")
        members = self.members.astype(np.uint64) + np.uint64(1)
        for _ in range(BANDS):
            keys = np.zeros(len(self.edges) - 1, dtype=np.uint64)
            for factor in random.integers(0, 2**63, size=DEPTH, dtype=np.uint64) * np.uint64(2) + np.uint64(1):
                mixed = members * factor  # the upper half of such a product hangs on every bit of the number
                least = np.minimum.reduceat(
                    (mixed ^ (mixed >> np.uint64(29))) * factor >> np.uint64(32), self.edges[:-1]
                )
                keys = (keys ^ least) * np.uint64(_SPREAD)
            yield keys.view(np.int64)

    def overlaps(self, pairs: Places) -> Numbers:
        """[P] the Jaccard overlap of each pair."""
        keys = self.owners * self.most + self.members
        size = np.diff(self.edges)
        shared = np.zeros(len(pairs), dtype=np.int64)
        totals = np.concatenate(([0], np.cumsum(size[pairs[:, 0]])))
        begin = 0
        while begin < len(pairs):
            end = max(begin + 1, int(np.searchsorted(totals, totals[begin] + PAIR_RUNS, side="right")) - 1)
            one, two = pairs[begin:end].T
            counts = size[one]
            which = np.repeat(np.arange(len(one)), counts)
            inside = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
            wanted = two[which] * self.most + self.members[self.edges[one][which] + inside]
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            shared[begin:end] = np.bincount(which[keys[at] == wanted], minlength=len(one))
            begin = end
        union = size[pairs[:, 0]] + size[pairs[:, 1]] - shared
        overlap: Numbers = shared / np.maximum(union, 1)
        return overlap
