"""Tags of any kind: round trips, legality whatever the scores, and gold labels that stay with their characters."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filbert.core.records import Span
from filbert.nn import crf_walk
from filbert.tasks.tag import decode as tags
from filbert.tasks.tag.words import joined
from filbert.text.tokenizer import Tokenizer
from kit.chains import best_tags

TYPES = st.lists(st.sampled_from(["PER", "LOC", "A-B", "机构", "B", "_x"]), min_size=1, max_size=4, unique=True)
SCHEMES = st.sampled_from(["bio", "bioes"])


@st.composite
def drawn_entities(draw: st.DrawFn) -> tuple[list[tags.Entity], int]:
    """Entities that share no unit, in order, and the length of their sequence."""
    types = draw(TYPES)
    length = draw(st.integers(0, 20))
    edges = sorted(draw(st.lists(st.integers(0, length), max_size=10)))
    found = [(start, end, draw(st.sampled_from(types))) for start, end in pairwise(edges) if start < end]
    return [entity for entity in found if draw(st.booleans())], length


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(made=drawn_entities(), scheme=SCHEMES, strict=st.booleans())
def test_entities_survive_their_tags(made: tuple[list[tags.Entity], int], scheme: str, strict: bool) -> None:
    found, length = made
    written = tags.tags(found, length, scheme)
    assert len(written) == length
    assert tags.entities(written, scheme, strict) == found
    names = tags.tag_set(sorted({name for _, _, name in found}), scheme)
    path = [names.index(tag) for tag in written]
    assert len(tags.allowed(names, scheme).broken(path, [0, length])) == 0
    other = {"bio": "bioes", "bioes": "bio"}[scheme]
    assert tags.entities(tags.tags(found, length, other), other) == found


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data(), types=TYPES, scheme=SCHEMES)
def test_any_tags_read_twice_are_the_same(data: st.DataObject, types: list[str], scheme: str) -> None:
    row = data.draw(st.lists(st.sampled_from(tags.tag_set(types, scheme)), max_size=15))
    for strict in (False, True):
        found = tags.entities(row, scheme, strict)
        mended = tags.tags(found, len(row), scheme)
        assert tags.entities(mended, scheme, strict) == found
        assert all(before[1] <= after[0] for before, after in pairwise(found))
    if tags.tags(tags.entities(row, scheme), len(row), scheme) == row:  # well-formed: both readings agree
        assert tags.entities(row, scheme) == tags.entities(row, scheme, strict=True)
    plain = [tag for tag in row if tag != "O"]
    assert tags.tags(tags.entities(plain, "plain"), len(plain), "plain") == plain


FLOATS = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, 1.0, -1.0, float("inf"), float("-inf")])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data(), types=TYPES, scheme=SCHEMES, lengths=st.lists(st.integers(0, 6), max_size=5))
def test_viterbi_is_never_illegal(data: st.DataObject, types: list[str], scheme: str, lengths: list[int]) -> None:
    names = tags.tag_set(types, scheme)
    size, edges = len(names), np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    shapes = [(int(edges[-1]), size), (size,), (size, size), (size,)]
    seed = data.draw(st.integers(0, 2**32 - 1))
    values = data.draw(st.lists(FLOATS, min_size=1, max_size=6))
    random = np.random.default_rng(seed)  # few values, so that ties and infinities meet
    arrays = [random.choice(np.array(values, dtype=np.float32), shape) for shape in shapes]
    legal = tags.allowed(names, scheme)
    weights = (arrays[1], arrays[2], arrays[3])
    found = crf_walk.viterbi(arrays[0], edges, weights, legal)
    assert len(legal.broken(found, edges)) == 0
    assert found.tolist() == best_tags(arrays[0], edges, weights, legal)
    for start, end in pairwise(edges.tolist()):
        row = [names[tag] for tag in found[start:end]]
        assert tags.tags(tags.entities(row, scheme, strict=True), len(row), scheme) == row


@settings(max_examples=150, deadline=None)
@given(size=st.integers(0, 8), seed=st.integers(0, 10**6), threshold=st.sampled_from([0.0, 0.5, 0.9]))
def test_nested_spans_never_cross(size: int, seed: int, threshold: float) -> None:
    probs = np.random.default_rng(seed).random((size, size, 2)).round(1)
    found = tags.nested(probs, ["A", "B"], range(size), range(1, size + 1), threshold)
    assert [span.score for span in found] == sorted((span.score for span in found), reverse=True)

    def crossing(one: Span, two: Span) -> bool:
        return one.start < two.start < one.end < two.end or two.start < one.start < two.end < one.end

    assert not any(crossing(one, two) for one in found for two in found)
    kept = {(span.start, span.end, span.label) for span in found}
    for start in range(size):
        for end in range(start, size):
            for kind, label in enumerate("AB"):
                own = Span(start, end + 1, label, float(probs[start, end, kind]))
                if own.score > threshold and (start, end + 1, label) not in kept:  # a better one is in its way
                    assert any(crossing(own, other) and other.score >= own.score for other in found)


# -- our tokenizer -------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("The", "learning", "transformers", "Paris", "ABC123", "don't", "İstanbul", "x" * 30),
        *("北京", "大学", "深度学习", "模型", "2026年", "iPhone15", "。", "，", "한국", "😀"),
        *("é", "ﬁne", "½", "a\u0301b", "\u0301", "\u200b"),  # one character of several tokens, and of none
    ]
)
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from(["", " ", "  ", "\u3000", "\n"])), max_size=12).map(
    lambda parts: "".join(word + gap for word, gap in parts)
)
BOUND = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer.load(tiny_folder)


@pytest.mark.slow
@BOUND
@given(data=st.data(), text=TEXTS, nesting=st.booleans())
def test_gold_spans_come_back_or_are_named(tokenizer: Tokenizer, data: st.DataObject, text: str, nesting: bool) -> None:
    """Tokens are the units: every gold span comes back from its tokens exactly, or is reported."""
    _, starts, ends = tokenizer.pieces([text])[0]
    place = st.integers(0, len(text))
    edge = st.sampled_from([*starts.tolist(), *ends.tolist()]) | place if len(starts) else place
    pairs = data.draw(st.lists(st.tuples(edge, edge, st.sampled_from("AB")), max_size=6))
    gold = [Span(min(one, two), max(one, two), label) for one, two, label in pairs if one != two]
    found = tags.aligned(gold, starts, ends, nesting)
    named = {*found.cut, *found.loose, *found.lost, *found.overlapping}
    assert named <= set(gold)
    back = set(tags.spans(found.entities, starts, ends))
    assert set(gold) - named <= back
    assert not (nesting and found.overlapping)
    for span in named - set(found.overlapping):  # named rightly: these edges are not edges of tokens
        touched = [at for at in range(len(starts)) if starts[at] < span.end and ends[at] > span.start]
        if touched:
            assert (starts[touched[0]], ends[touched[-1]]) != (span.start, span.end)
        assert (span in found.lost) == (not touched)
    if not nesting:
        for scheme in ("bio", "bioes"):
            row = tags.tags(found.entities, len(starts), scheme)
            assert tuple(tags.entities(row, scheme, strict=True)) == found.entities
            inside = [tag != "O" for tag in row]
            for at in range(len(starts)):  # no label is off by one: a token is inside iff a kept span touches it
                kept = set(gold) - set(found.overlapping) - set(found.lost)
                assert inside[at] == any(starts[at] < span.end and ends[at] > span.start for span in kept)


@pytest.mark.slow
@BOUND
@given(words=st.lists(WORDS, min_size=1, max_size=12), by_character=st.booleans(), data=st.data())
def test_labels_stay_with_the_gold_units(
    tokenizer: Tokenizer, words: list[str], by_character: bool, data: st.DataObject
) -> None:
    """Words or characters of the gold data are the units: a unit's tokens are just those that hold its characters."""
    if by_character:
        words = [char for word in words for char in word]
    text, places = joined(words)
    starts, ends = (list(column) for column in zip(*places, strict=True))
    _, token_starts, token_ends = tokenizer.pieces([text])[0]
    found = tags.rows(starts, ends, token_starts, token_ends)
    for unit, (start, end) in enumerate(places):
        held = [at for at in range(len(token_starts)) if token_starts[at] < end and token_ends[at] > start]
        if held:
            assert held == list(range(found.first[unit], found.last[unit] + 1))
            outside = token_starts[held[0]] < start or token_ends[held[-1]] > end
            assert found.shared[unit] == outside
        else:
            before = [at for at in range(len(token_starts)) if token_ends[at] <= start]
            assert found.first[unit] == found.last[unit] == max(before, default=-1)
        assert found.bare[unit] == (not held)
    names = tags.tag_set(["A", "B"], "bio")
    row = data.draw(st.lists(st.sampled_from(names), min_size=len(words), max_size=len(words)))
    entities = tags.entities(row, "bio")
    spans = tags.spans(entities, starts, ends)
    for (first, end, _), span in zip(entities, spans, strict=True):
        assert text[span.start : span.end].startswith(words[first])
        assert text[span.start : span.end].endswith(words[end - 1])
    again = tags.aligned(spans, starts, ends)  # and back from characters to units, exactly
    assert list(again.entities) == entities
    assert again.num_changed == 0
