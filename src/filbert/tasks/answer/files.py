"""Questions with the passages that answer them come in; their columns, forms, checks and repairs go out as FILES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from filbert.forms.formats import Shape, whole_json
from filbert.forms.json_places import Change, Node, parsed, removal_changes, rewritten
from filbert.forms.questions import mappings
from filbert.forms.spec import FileForm, FileSpec, RemovalReason, both_together
from filbert.tasks.answer.reading import rows, squad_examples
from filbert.text.characters import is_blank
from filbert.text.streams import Reading

NEAR_CHARS = 10  # an answer that stands several times is meant where it stands so near to the place that is given
ANSWER_COLUMN = "answer"  # one of the usual names of the column of answers


# -- file forms --------------------------------------------------------------------------------------------------


def shape_of_json(value: object) -> Shape | None:
    """SQuAD's articles under the name data; not rows that an object holds there."""
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        return None
    if data and all(isinstance(row, dict) and "paragraphs" not in row for row in data):
        return None
    return Shape("squad", description="SQuAD-style JSON: contexts with questions and answers")


def ids(source: str, reading: Reading) -> Iterator[tuple[int, str]]:
    """The ids of the questions of a SQuAD-style file."""
    for article in mappings(whole_json(source, reading), "data"):
        for paragraph in mappings(article, "paragraphs"):
            for question in mappings(paragraph, "qas"):
                if "id" in question:
                    yield 0, str(question["id"])


# -- repairs -----------------------------------------------------------------------------------------------------


def repaired_row(text: str, nodes: Mapping[str, Node]) -> list[Change]:
    """The answers of a row where they stand."""
    if "answers" not in nodes or "context" not in nodes:
        return []
    return _answers(text, nodes["context"].value, nodes["answers"])


def safe_place(context: str, answer: str, start: object) -> int | None:
    """Where an answer that does not stand where it should surely stands; None where that cannot be told."""
    if type(start) is not int or not answer or "\0" in context or (start >= 0 and context.startswith(answer, start)):
        return None
    places = [place for place in range(len(context)) if context.startswith(answer, place)]
    if len(places) == 1:
        return places[0]
    near = sorted(places, key=lambda place: abs(place - start))[:2]
    distances = [abs(place - start) for place in near]
    return near[0] if near and distances[0] <= NEAR_CHARS and distances[0] < distances[-1] else None


def _answers(text: str, context: object, answers: Node) -> list[Change]:
    """[{text, answer_start}, …] or {text: […], answer_start: […]}: offsets that miss, corrected where that is sure."""
    if not isinstance(context, str):
        return []
    pairs = [(item.held("text"), item.held("answer_start")) for item in answers.items]
    if answers.fields:
        texts, starts = answers.held("text"), answers.held("answer_start")
        if texts is None or starts is None:
            return []
        pairs = list(zip(texts.items or (texts,), starts.items or (starts,), strict=False))
    changes = []
    for words, start in pairs:
        if start is None or words is None or not isinstance(words.value, str):
            continue
        place = safe_place(context, words.value, start.value)
        if place is not None:
            before, after = f"{words.value[:50]!r} at {start.value}", f"at {place}"
            changes.append(Change(rewritten(text, start, place), "answer_start corrected", before, after))
    return changes


def repaired_squad(text: str, reason: RemovalReason) -> list[Change]:
    """Questions that stand twice or are empty taken out, and answers where they stand."""
    changes: list[Change] = []
    for paragraph in (node for article in parsed(text).listed("data") for node in article.listed("paragraphs")):
        context = paragraph.value.get("context") if isinstance(paragraph.value, dict) else None
        questions = paragraph.listed("qas")
        removed: dict[int, str] = {}
        for number, question in enumerate(questions):
            words, answers = question.value.get("question") if question.fields else None, question.held("answers")
            if not isinstance(words, str) or not isinstance(context, str) or answers is None:
                continue
            is_answered = str(question.value.get("is_impossible", "false")).lower() != "true"
            moved = _answers(text, context, answers) if is_answered else []
            texts = [item.value.get("text") for item in answers.items if item.fields]
            why = "removed, for question or context is empty" if is_blank(words) or is_blank(context) else ""
            why = why or reason((words, context), repr(texts if is_answered else []), str(question.start))
            if why:
                removed[number] = why
            else:
                changes += moved
        changes += removal_changes(text, questions, removed)
    return changes


def has_no_answer(gold: object) -> bool:
    """Whether a question is said to have none."""
    return gold == ()


def has_no_place(gold: object) -> bool:
    """Whether no accepted answer stands in the context."""
    return isinstance(gold, tuple) and gold != () and all(answer.start < 0 for answer in gold)


FILES = FileSpec(
    task="answer",
    rank=5,
    roles=("question", "context", "answers", "answer_start"),
    optional=frozenset({"answers", "answer_start"}),
    shown=("question", "context", "answers"),
    names={
        "question": ("question", "query"),
        "context": ("context", "passage", "paragraph", "text"),
        "answers": ("answers", ANSWER_COLUMN),
        "answer_start": ("answer_start",),
    },
    tuple_roles=("question", "context", "answers", "answer_start"),
    rows=rows,
    forms={"squad": FileForm(read=squad_examples, ids=ids, repaired_json=repaired_squad)},
    shape_of_json=shape_of_json,
    claims_names=lambda head: head.names >= {"question", "context"},
    gold_role="answers",
    num_tokens=both_together,
    tallies={
        "questions have no answer.": has_no_answer,
        "questions have no answer that stands in the context: none is learnt there.": has_no_place,
    },
    text_roles=("question", "context"),
    repaired_row=repaired_row,
)
