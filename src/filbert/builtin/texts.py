"""The sample files beside this one come in; documents with sentences, entities and questions go out."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from filbert.core.errors import InputError
from filbert.core.records import Span

ENTITY_TYPES = ("PER", "LOC", "ORG", "TIME")
_ENTITY = re.compile(r"\[([^\[\]|]+)\|([A-Z]+)\]")


class Question(NamedTuple):
    """A question on a document: sentences[sentence_index][start : start + len(answer)] is the answer."""

    question: str
    answer: str
    sentence_index: int
    start: int


@dataclass(frozen=True, slots=True)
class SampleDocument:
    """One small text of the built-in data, with all that can be learnt from it."""

    title: str
    topic: str
    language: str
    sentences: tuple[str, ...]  # plain text, markup removed
    entities: tuple[tuple[Span, ...], ...]  # for each sentence, offsets into it
    questions: tuple[Question, ...] = ()


def sample(language: str | None = None) -> list[SampleDocument]:
    """The built-in documents, or those in "zh" or "en" only, in the order of the file names."""
    folder = importlib.resources.files("filbert.builtin").joinpath("sample")
    documents: list[SampleDocument] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        stem, dot, suffix = entry.name.partition(".")
        spoken, _, topic = stem.partition("-")
        if dot and suffix == "txt" and language in (None, spoken):
            documents += parsed(entry.read_text(encoding="utf-8"), topic, spoken, entry.name)
    return documents


def parsed(text: str, topic: str, language: str, name: str = "sample") -> list[SampleDocument]:
    """The documents of one sample file: "## title", a sentence per line, then "? question => answer" lines."""
    return [_document(title, body, topic, language, name) for title, body in _sections(text, name)]


def _sections(text: str, name: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    title = ""
    body: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("## "):
            if title:
                yield title, body
            title, body = line[3:].strip(), []
        elif line:
            if not title:
                raise InputError(f"{name} line {number}: text before the first '## title' line.")
            body.append((number, line))
    if title:
        yield title, body


def _document(title: str, body: list[tuple[int, str]], topic: str, language: str, name: str) -> SampleDocument:
    sentences: list[str] = []
    entities: list[tuple[Span, ...]] = []
    questions: list[Question] = []
    for number, line in body:
        where = f"{name} line {number}"
        if line.startswith("? "):
            questions.append(_question(line[2:], sentences, where))
        else:
            sentence, spans = _unmarked(line, where)
            sentences.append(sentence)
            entities.append(spans)
    if not sentences:
        raise InputError(f"{name}: the document {title!r} has no sentences.")
    return SampleDocument(title, topic, language, tuple(sentences), tuple(entities), tuple(questions))


def _unmarked(line: str, where: str) -> tuple[str, tuple[Span, ...]]:
    """The sentence without [surface|TYPE] marks, and a span for each."""
    sentence, spans, place = "", [], 0
    for mark in _ENTITY.finditer(line):
        sentence += line[place : mark.start()]
        surface, label = mark.groups()
        if label not in ENTITY_TYPES:
            raise InputError(f"{where}: the entity type {label} is not one of {', '.join(ENTITY_TYPES)}.")
        spans.append(Span(len(sentence), len(sentence) + len(surface), label))
        sentence += surface
        place = mark.end()
    sentence += line[place:]
    if any(char in sentence for char in "[]|"):
        raise InputError(f"{where}: a mark is broken; entities are written [surface|TYPE].")
    return sentence, tuple(spans)


def _question(line: str, sentences: list[str], where: str) -> Question:
    question, arrow, answer = line.partition(" => ")
    for index, sentence in enumerate(sentences):
        if arrow and answer in sentence:
            return Question(question.strip(), answer, index, sentence.index(answer))
    raise InputError(f"{where}: a question is written '? question => answer', the answer as it stands in a sentence.")
