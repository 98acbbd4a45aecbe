"""Scores or tags of units (words, characters, tokens) in, entities with places in the user's text out; and back.

Legend: T units laid end to end, B sequences, L tags, n sequences that still go on at a step, U units of one text,
C entity types.

An entity over units is (start, end, type), its end exclusive. Schemes: `bio` (B- begins, I- goes on), `bioes` (E- ends,
S- stands alone) and `plain` (a label for each unit, each unit a span of its own; O is none).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.records import Reals, Span
from filbert.nn.crf_walk import Allowed, bounded

Places = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OUTSIDE, NAMELESS = "O", "_"  # B and I without a type are of the type _, as seqeval has it
LETTERS = {"bio": "BI", "bioes": "BIES", "plain": ""}
SCHEMES = tuple(LETTERS)


class Entity(NamedTuple):
    """A stretch of units with its type."""

    start: int
    end: int  # exclusive
    type: str


# -- tags and which may follow which -------------------------------------------------------------------------------


def tag_set(types: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The tags for these entity types: O, then those of each type; for `plain` the labels as they are."""
    letters = _letters(scheme)
    if len(set(types)) != len(types) or not all(types):
        raise InputError(f"the entity types {', '.join(types)!r} must be names that differ.")
    if scheme == "plain":
        return tuple(types)
    return (OUTSIDE, *(f"{letter}-{name}" for name in types for letter in letters))


def allowed(tags: Sequence[str], scheme: str) -> Allowed:
    """What the scheme lets these tags do, in whatever order they are."""
    _letters(scheme)
    size = len(tags)
    begin, pair, end = np.ones(size, np.bool_), np.ones((size, size), np.bool_), np.ones(size, np.bool_)
    if scheme == "plain":
        return Allowed(begin, pair, end)
    parsed = [_parsed(tag, scheme) for tag in tags]
    names = np.array([name for _, name in parsed])
    letters = np.array([letter for letter, _ in parsed])
    continues = np.isin(letters, ["I", "E"])  # needs an open entity of its type before it
    is_open = np.isin(letters, ["B", "I"])
    same = names[:, None] == names
    pair = np.where(continues, is_open[:, None] & same, True)
    if scheme == "bioes":  # what is open must be ended
        end = ~is_open
        pair &= np.where(is_open[:, None], continues & same, True)
    return Allowed(~continues, pair, end)


def _letters(scheme: str) -> str:
    if scheme not in LETTERS:
        raise one_of("the tag scheme", scheme, SCHEMES)
    return LETTERS[scheme]


def _parsed(tag: str, scheme: str) -> tuple[str, str]:
    """The letter and the type of a tag, split as seqeval does: B-PER-X is of the type PER-X."""
    letter, rest = tag[:1], tag[1:]
    fits = tag == OUTSIDE or (letter and letter in LETTERS[scheme] and (not rest or rest[0] == "-"))
    if not fits:
        prefixes = ", ".join(f"{each}-" for each in LETTERS[scheme])
        raise InputError(f"the tag {tag!r} is not O or an entity type with one of {prefixes} before it.")
    return letter, rest[1:] or NAMELESS


# -- tags to entities, entities to tags ----------------------------------------------------------------------------


def entities(tags: Sequence[str], scheme: str, strict: bool = False) -> list[Entity]:
    """The entities that the tags of one sequence draw, in order.

    As seqeval reads them. Lenient is its default, the rules of conlleval: what goes on without having begun begins
    there, what is not ended ends before the next; B, I, E and S are all known, whatever the scheme. Strict is its
    `mode="strict"`: only B I* is an entity in `bio`, only B I* E and S in `bioes`; other pieces are none.
    """
    if _letters(scheme) == "":
        return [Entity(place, place + 1, tag) for place, tag in enumerate(tags) if tag != OUTSIDE]
    if strict:
        return list(_strict([_parsed(tag, scheme) for tag in tags], scheme))
    return list(_lenient([_parsed(tag, "bioes") for tag in tags]))


def word_entities(tags: Sequence[str], begins: Bools, runs: bool) -> list[Entity]:
    """The words of one sequence with the label of their first piece each; runs: neighbours of one label are one entity.

    begins: [T] whether a piece begins a word. Tags are the labels as they are, without B- or I-.
    """
    edges = [place for place in range(len(tags)) if not place or begins[place]]
    result: list[Entity] = []
    for first, end in pairwise([*edges, len(tags)]):
        if runs and result and result[-1][1:] == (first, tags[first]):
            result[-1] = Entity(result[-1].start, end, tags[first])
        elif tags[first] != OUTSIDE:
            result.append(Entity(first, end, tags[first]))
    return result


def spread(entities: Sequence[Entity], count: int, scheme: str = "plain") -> tuple[str, ...]:
    """The label of an entity on each of its pieces, O on the others: the tags of a scheme without letters."""
    if _letters(scheme):
        raise InputError(f"the tag scheme {scheme} writes letters before labels; `tags` gives such.")
    labels = [OUTSIDE] * count
    for first, end, kind in entities:
        labels[first:end] = [kind] * (end - first)
    return tuple(labels)


def _lenient(parsed: list[tuple[str, str]]) -> Iterator[Entity]:
    before, open_type, start = OUTSIDE, "", 0
    for place, (letter, name) in enumerate([*parsed, (OUTSIDE, NAMELESS)]):
        changed = before in "ESO" or letter in "BSO" or name != open_type
        if before != OUTSIDE and changed:
            yield Entity(start, place, open_type)
        if letter != OUTSIDE and changed:
            start = place
        before, open_type = letter, name


def _strict(parsed: list[tuple[str, str]], scheme: str) -> Iterator[Entity]:
    start, open_type = -1, ""  # -1: nothing is open
    for place, (letter, name) in enumerate([*parsed, (OUTSIDE, NAMELESS)]):
        if start >= 0 and letter in "IE" and name == open_type:
            if letter == "E":
                yield Entity(start, place + 1, name)
                start = -1
            continue
        if start >= 0 and scheme == "bio":
            yield Entity(start, place, open_type)
        start, open_type = (place, name) if letter == "B" else (-1, "")
        if letter == "S":
            yield Entity(place, place + 1, name)


def tags(entities: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """The tags of a sequence of `length` units that holds these entities, which must not share a unit."""
    letters = _letters(scheme)
    result = [OUTSIDE] * length
    taken = np.zeros(length, dtype=np.bool_)
    for start, end, name in entities:
        if not 0 <= start < end <= length:
            raise InputError(f"the entity {name} at units {start}:{end} leaves the sequence, which has {length} units.")
        if taken[start:end].any():
            raise InputError(f"the entity {name} at units {start}:{end} shares units with another; {NO_NESTING}")
        if not letters and end - start > 1:
            raise InputError(f"the entity {name} has {end - start} units, which plain tags cannot join; use bio.")
        taken[start:end] = True
        result[start:end] = _drawn(name, end - start, scheme)
    return result


NO_NESTING = "a tag for each unit cannot say that; use the span decoder."


def _drawn(name: str, size: int, scheme: str) -> list[str]:
    if scheme == "plain":
        return [name]
    if scheme == "bio":
        return [f"B-{name}"] + [f"I-{name}"] * (size - 1)
    return [f"S-{name}"] if size == 1 else [f"B-{name}", *[f"I-{name}"] * (size - 2), f"E-{name}"]


# -- units to places in the text -----------------------------------------------------------------------------------


def spans(
    entities: Iterable[Entity], starts: npt.ArrayLike, ends: npt.ArrayLike, probs_U: npt.ArrayLike | None = None
) -> tuple[Span, ...]:
    """The entities as stretches of the text whose units stand at starts:ends; text[span.start:span.end] is each.

    A span's score is the mean of its units' probabilities (each of the tag that was taken), so that long entities
    do not look less sure than short ones; 1.0 where none are given.
    """
    begins, finishes = _offsets(starts, ends)
    shares = np.ones(len(begins)) if probs_U is None else np.asarray(probs_U, dtype=np.float64)
    return tuple(
        Span(int(begins[start]), int(finishes[end - 1]), name, float(shares[start:end].mean()))
        for start, end, name in entities
    )


def nested(
    probs_UUC: npt.ArrayLike, types: Sequence[str], starts: npt.ArrayLike, ends: npt.ArrayLike, threshold: float = 0.5
) -> tuple[Span, ...]:
    """The spans whose probability [first unit, last unit, type] is above the threshold, the best first (`uncrossed`).

    Only the upper triangle is looked at.
    """
    probs = bounded(np.asarray(probs_UUC, dtype=np.float64))
    first, last, kind = np.nonzero((probs > threshold) & np.triu(np.ones(probs.shape[:2], np.bool_))[:, :, None])
    return uncrossed(np.stack((first, last, kind), axis=1), probs[first, last, kind], types, starts, ends)


def uncrossed(
    candidates_X3: npt.NDArray[np.int64],
    probs_X: npt.ArrayLike,
    types: Sequence[str],
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
) -> tuple[Span, ...]:
    """Of candidates (first unit, last unit, type) those that do not cross a better one, the best first.

    They may lie within each other, and one stretch may be of several types. Of equally good ones the one that begins
    first stays, then the shorter, then the earlier type.
    """
    scores, (begins, finishes) = np.asarray(probs_X, dtype=np.float64), _offsets(starts, ends)
    farthest = np.full(len(begins), -1)  # [U] the last unit of the longest that was taken from there on
    earliest = np.full(len(begins), len(begins))  # [U] the first unit of the longest that was taken up to there
    result = []
    for place in np.lexsort((candidates_X3[:, 2], candidates_X3[:, 1], candidates_X3[:, 0], -scores)):
        first, last, kind = candidates_X3[place].tolist()
        begins_inside = farthest[first + 1 : last + 1].max(initial=-1) > last
        ends_inside = earliest[first:last].min(initial=first) < first
        if not begins_inside and not ends_inside:
            farthest[first] = max(farthest[first], last)
            earliest[last] = min(earliest[last], first)
            result.append(Span(int(begins[first]), int(finishes[last]), types[kind], float(scores[place])))
    return tuple(result)


def _offsets(starts: npt.ArrayLike, ends: npt.ArrayLike) -> tuple[Places, Places]:
    """The units' offsets, checked: each holds a character, and none begins or ends before the one on its left."""
    begins, finishes = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    if begins.shape != finishes.shape or begins.ndim != 1:
        raise InputError(f"{begins.size} units begin, but {finishes.size} end; each needs a start and an end.")
    in_order = (np.diff(begins) >= 0).all() and (np.diff(finishes) >= 0).all()
    if not in_order or not (begins < finishes).all() or (begins.size and begins[0] < 0):
        raise InputError("the units must stand in the order of the text and hold at least one character each.")
    return begins, finishes


# -- gold spans to units, units to tokens --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alignment:
    """Gold spans over units, and every gold span for which that is not the whole truth.

    Those that are not named again come back from their units exactly as they were given.
    """

    entities: tuple[Entity, ...]  # over units, in the order of the text
    cut: tuple[Span, ...] = ()  # an edge falls inside a unit; the whole unit was taken
    loose: tuple[Span, ...] = ()  # an edge lies outside all units (white space, say); the units within were taken
    lost: tuple[Span, ...] = ()  # touches no unit; left out
    overlapping: tuple[Span, ...] = ()  # shares a unit with one that was kept; left out

    @property
    def num_changed(self) -> int:
        """How many gold spans are not what they were: to be told to the user."""
        return len(self.cut) + len(self.loose) + len(self.lost) + len(self.overlapping)


def aligned(gold: Iterable[Span], starts: npt.ArrayLike, ends: npt.ArrayLike, nesting: bool = False) -> Alignment:
    """Gold spans over the units that stand at starts:ends of the text; nothing is moved without being named.

    A span takes every unit that it touches. Without `nesting`, of those that share a unit one is kept, so that `tags`
    can write them: one with exact edges before others, then the longest, then the one that begins first.
    """
    begins, finishes = _offsets(starts, ends)
    kept: list[tuple[Span, Entity]] = []
    named: dict[str, list[Span]] = {"cut": [], "loose": [], "lost": [], "overlapping": []}
    ranked: list[tuple[bool, int, int, Span, Entity]] = []
    for span in gold:
        first = int(np.searchsorted(finishes, span.start, side="right"))  # the first unit that ends after its start
        end = int(np.searchsorted(begins, span.end, side="left"))  # past the last one that begins before its end
        if first >= end or span.start >= span.end:
            named["lost"].append(span)
            continue
        is_exact = bool(begins[first] == span.start and finishes[end - 1] == span.end)
        ranked.append((not is_exact, span.start - span.end, span.start, span, Entity(first, end, span.label)))
    ranked.sort(key=lambda row: row[:3])
    taken, seen = np.zeros(len(begins), dtype=np.bool_), set[tuple[int, int, str]]()
    for _, _, _, span, entity in ranked:
        if (span.start, span.end, span.label) in seen:
            continue  # the same thing said twice
        seen.add((span.start, span.end, span.label))
        if not nesting and taken[entity.start : entity.end].any():
            named["overlapping"].append(span)
            continue
        taken[entity.start : entity.end] = True
        kept.append((span, entity))
    for span, (first, end, _) in kept:
        if begins[first] < span.start or finishes[end - 1] > span.end:
            named["cut"].append(span)
        elif begins[first] > span.start or finishes[end - 1] < span.end:
            named["loose"].append(span)
    distinct = sorted({entity for _, entity in kept})
    return Alignment(tuple(distinct), **{name: tuple(sorted(each, key=_place)) for name, each in named.items()})


def _place(span: Span) -> tuple[int, int, str]:
    return span.start, span.end, span.label


def covers(text: str, gold: Sequence[Span]) -> bool:
    """Whether the spans, in order, leave nothing of the text out but white space, and none shares any with another."""
    end = 0
    for span in gold:
        if span.start < end or text[end : span.start].strip():
            return False
        end = span.end
    return not text[end:].strip()


def tiled(gold: Sequence[Span], starts: npt.ArrayLike, ends: npt.ArrayLike) -> Alignment:
    """Gold spans that cover a text, in order, over units: each unit goes to the span that its first character is in.

    So no unit is left out, whatever a span's edges are. A unit that no span begins in or covers belongs to none.
    """
    begins, finishes = _offsets(starts, ends)
    span_starts, span_ends = (np.array([getattr(span, edge) for span in gold]) for edge in ("start", "end"))
    which = np.searchsorted(span_starts, begins, side="right") - 1
    inside = which >= 0
    inside[inside] = begins[inside] < span_ends[which[inside]]
    taken = np.flatnonzero(inside)
    kept, first, counts = np.unique(which[taken], return_index=True, return_counts=True)
    units = [(int(taken[at]), int(taken[at]) + int(size)) for at, size in zip(first, counts, strict=True)]
    spans_ = [gold[place] for place in kept]
    cut = [
        span for span, (a, b) in zip(spans_, units, strict=True)
        if begins[a] != span.start or finishes[b - 1] != span.end
    ]  # fmt: skip
    lost = [gold[place] for place in sorted(set(range(len(gold))) - set(kept.tolist()))]
    over_units = tuple(Entity(a, b, span.label) for span, (a, b) in zip(spans_, units, strict=True))
    return Alignment(over_units, cut=tuple(cut), lost=tuple(lost))


def unit_kinds(logs_TL: Reals, tags_: Sequence[str], read: Rows, kinds: Sequence[str]) -> list[str]:
    """The likeliest type of each unit, given that it is one: by `bioes` tags of the tokens that it reads.

    A unit without tokens has none, which is "".
    """
    places = {tag: place for place, tag in enumerate(tags_)}
    begin, inside, end, single = (
        logs_TL[:, [places[f"{letter}-{kind}"] for kind in kinds]].astype(np.float64) for letter in "BIES"
    )
    sums = np.concatenate((np.zeros((1, len(kinds))), np.cumsum(inside, axis=0)))
    first, last = (np.where(read.bare, 0, edge) for edge in (read.first, read.last))
    if not len(logs_TL):
        return [""] * len(first)
    several = begin[first] + end[last] + sums[last] - sums[np.minimum(first + 1, last)]
    scores = np.where((first == last)[:, None], single[first], several)
    return ["" if bare else kinds[best] for bare, best in zip(read.bare, scores.argmax(axis=1), strict=True)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Which tokens each unit reads: first[u] to last[u], both counted."""

    first: Places  # [U]
    last: Places  # [U]
    bare: Bools  # [U] no token stands in the unit: it reads the one before; -1 is before all, where [CLS] stands
    shared: Bools  # [U] a token of it reaches into another unit or beyond it: both read the same vector


def rows(starts: npt.ArrayLike, ends: npt.ArrayLike, token_starts: npt.ArrayLike, token_ends: npt.ArrayLike) -> Rows:
    """The tokens of each unit of the gold data (a word, a character), told from offsets alone: never off by one.

    Labels stay with the units. A unit without tokens (a space, a character that the tokenizer drops) keeps its label
    and is named in `bare`; units inside one token (the letters of a word, where gold has characters) in `shared`.
    """
    begins, finishes = _offsets(starts, ends)
    token_begins, token_finishes = _offsets(token_starts, token_ends)
    first = np.searchsorted(token_finishes, begins, side="right")
    last = np.searchsorted(token_begins, finishes, side="left") - 1
    bare = first > last
    first = np.where(bare, last, first)
    shared = np.zeros(len(begins), dtype=np.bool_)
    full = np.flatnonzero(~bare)
    shared[full] = (token_begins[first[full]] < begins[full]) | (token_finishes[last[full]] > finishes[full])
    return Rows(first.astype(np.int64), last.astype(np.int64), bare, shared)


def together(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Where groups of neighbouring texts begin and end that have so many tokens at most; a longer text is alone."""
    begin = total = 0
    for place, size in enumerate(sizes):
        if place > begin and total + size > most:
            yield begin, place
            begin, total = place, 0
        total += size
    if begin < len(sizes):
        yield begin, len(sizes)
