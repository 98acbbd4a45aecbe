"""The sample that ships comes in; every offset in it must hold, and there must be enough of it."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from filbert.builtin.texts import ENTITY_TYPES, SampleDocument, parsed, sample
from filbert.core.errors import InputError
from filbert.core.records import Span

FILE = """## 早点铺
[周敏|PER]每天到[和平路|LOC]和面。
豆子要泡一整夜。
? 豆子要泡多久？ => 一整夜

## Shop
[Ann|PER] sells bread.
"""


@pytest.fixture(scope="module")
def documents() -> list[SampleDocument]:
    return sample()


def test_a_file_is_parsed() -> None:
    first, second = parsed(FILE, "food", "zh")
    assert (first.title, first.topic, first.language) == ("早点铺", "food", "zh")
    assert first.sentences == ("周敏每天到和平路和面。", "豆子要泡一整夜。")
    assert first.entities == ((Span(0, 2, "PER"), Span(5, 8, "LOC")), ())
    assert first.questions == (("豆子要泡多久？", "一整夜", 1, 4),)
    assert second.sentences == ("Ann sells bread.",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text before", "line 1: text before the first"),
        ("## t\n[a|XYZ] b", "line 2: the entity type XYZ is not one of PER"),
        ("## t\n[a b", "line 2: a mark is broken"),
        ("## t\na b\n? why => c", "line 3: a question is written"),
        ("## t\n", "the document 't' has no sentences"),
    ],
)
def test_broken_files_are_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parsed(text, "topic", "en", "en-topic.txt")


def test_there_is_enough_of_it(documents: list[SampleDocument]) -> None:
    num_sentences = Counter[str]()
    for document in documents:
        num_sentences[document.language] += len(document.sentences)
    assert num_sentences.total() >= 1500
    assert set(num_sentences) == {"zh", "en"}
    assert min(num_sentences.values()) >= 0.4 * num_sentences.total()
    for language in ("zh", "en"):
        assert len({document.topic for document in documents if document.language == language}) >= 8


def test_every_entity_slices_and_every_answer_stands(documents: list[SampleDocument]) -> None:
    types = Counter[str]()
    for document in documents:
        for sentence, spans in zip(document.sentences, document.entities, strict=True):
            assert all(0 <= span.start < span.end <= len(sentence) for span in spans)
            assert all(first.end <= second.start for first, second in itertools.pairwise(spans))
            types.update(span.label for span in spans)
        for question, answer, index, start in document.questions:
            assert question
            assert document.sentences[index][start : start + len(answer)] == answer
    assert set(types) == set(ENTITY_TYPES)
    assert min(types.values()) >= 50


def test_one_language_alone(documents: list[SampleDocument]) -> None:
    assert sample("zh") == [document for document in documents if document.language == "zh"]
    assert sample("fr") == []


def test_no_sentence_stands_twice(documents: list[SampleDocument]) -> None:
    counts = Counter(sentence for document in documents for sentence in document.sentences)
    assert [sentence for sentence, count in counts.items() if count > 1] == []
