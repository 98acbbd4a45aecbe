"""JSON rows and files come in as text; the changes that repair them go out, each with the place that it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filbert.doctor import checks
from filbert.doctor.places import Edit, Node, edited, parsed, removals, rewritten

NEAR_CHARS = 10  # an answer that stands several times is meant where it stands so near to the place that is given
STARTS, ENDS = ("start", "start_offset", "start_idx"), ("end", "end_offset", "end_idx")
LABELS, MENTIONS = ("label", "type", "entity"), ("text", "mention", "word", "entity_text")

Reason = Callable[[Sequence[str], str, str], str]  # (texts, label, place) -> why the example is to be removed, or ""


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of the text, and what it repairs."""

    edit: Edit
    what: str
    before: str
    after: str | None = None


def made(text: str, changes: Iterable[Change]) -> str:
    """The text with all changes made."""
    return edited(text, (change.edit for change in changes))


def row_changes(task: str, roles: Mapping[str, str], text: str, node: Node | None = None) -> list[Change]:
    """What repairs one row, a JSON object: the text of a line, or a node of a larger one."""
    try:
        row = node or parsed(text)
    except RecursionError:
        return []
    held = {role: row.fields[name] for role, name in roles.items() if name in row.fields}
    found: list[Change] = []
    if "label" in held and task != "choose":
        for label in held["label"].items or (held["label"],):
            found += _stripped(text, label)
    if task == "tag" and "entities" in held and "text" in held:
        for item in held["entities"].items:
            found += _entity(text, held["text"].value, item)
    if task == "answer" and "answers" in held and "context" in held:
        found += _answers(text, held["context"].value, held["answers"])
    return found


def _stripped(text: str, label: Node) -> list[Change]:
    value = label.value
    if not isinstance(value, str) or value == value.strip() or not value.strip():
        return []  # of blanks nothing would be left, which is another fault
    edit = rewritten(text, label, value.strip())
    return [Change(edit, "white space around the label removed", repr(value), repr(value.strip()))]


# -- spans -------------------------------------------------------------------------------------------------------


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch without white space at its edges; as it is where nothing else is in it."""
    stretch = text[start:end]
    if not stretch.strip():
        return start, end
    return start + len(stretch) - len(stretch.lstrip()), end - len(stretch) + len(stretch.rstrip())


def _entity(text: str, sentence: Any, item: Node) -> list[Change]:
    """{start, end, label} or [start, end, label]: white space at its edges is left out, and around its label."""
    if item.items:
        start, end, label, mention = (*item.items[:3], None) if len(item.items) >= 3 else (None, None, None, None)
    else:
        start, end, label, mention = (item.held(*names) for names in (STARTS, ENDS, LABELS, MENTIONS))
    found = _stripped(text, label) if label is not None else []
    if start is None or end is None or not _are_places(sentence, start.value, end.value):
        return found
    edges = trimmed(sentence, start.value, end.value)
    if edges == (start.value, end.value):
        return found
    bare = sentence[slice(*edges)]
    if mention is not None and (not isinstance(mention.value, str) or mention.value.strip() != bare):
        return found
    before, after = f"{start.value}:{end.value}", f"{edges[0]}:{edges[1]}"
    what = "white space at the edges of an entity left out"
    changed = [(start, edges[0]), (end, edges[1]), *([(mention, bare)] if mention is not None else [])]
    edits = [rewritten(text, node, value) for node, value in changed if node.value != value]
    return found + [Change(edit, what, before, after) for edit in edits]


def _are_places(sentence: Any, start: Any, end: Any) -> bool:
    """Whether the edges point into the text; NULs are taken out of it in reading, so one with any is let be."""
    return (
        isinstance(sentence, str)
        and "\0" not in sentence
        and type(start) is int
        and type(end) is int
        and 0 <= start < end <= len(sentence)
    )


# -- answers -----------------------------------------------------------------------------------------------------


def safe_place(context: str, answer: str, start: Any) -> int | None:
    """Where an answer that does not stand where it should surely stands; None where that cannot be told."""
    if type(start) is not int or not answer or "\0" in context or (start >= 0 and context.startswith(answer, start)):
        return None
    places = [place for place in range(len(context)) if context.startswith(answer, place)]
    if len(places) == 1:
        return places[0]
    near = sorted(places, key=lambda place: abs(place - start))[:2]
    distances = [abs(place - start) for place in near]
    return near[0] if near and distances[0] <= NEAR_CHARS and distances[0] < distances[-1] else None


def _answers(text: str, context: Any, answers: Node) -> list[Change]:
    """[{text, answer_start}, …] or {text: […], answer_start: […]}: offsets that miss, corrected where that is sure."""
    if not isinstance(context, str):
        return []
    pairs = [(item.held("text"), item.held("answer_start")) for item in answers.items]
    if answers.fields:
        texts, starts = answers.held("text"), answers.held("answer_start")
        if texts is None or starts is None:
            return []
        pairs = list(zip(texts.items or (texts,), starts.items or (starts,), strict=False))
    found = []
    for said, start in pairs:
        place = safe_place(context, said.value, start.value) if start and said and isinstance(said.value, str) else None
        if place is not None and start is not None and said is not None:
            before, after = f"{said.value[:50]!r} at {start.value}", f"at {place}"
            found.append(Change(rewritten(text, start, place), "answer_start corrected", before, after))
    return found


# -- whole files -------------------------------------------------------------------------------------------------


def is_empty(task: str, cells: Mapping[str, Any]) -> bool:
    """Whether a row, role by role, has a label but no text; a mention or a choice is no text of its own."""
    roles = () if task in ("choose", "relation") else ("text", "first", "second", "negative", "question", "context")
    gold = cells.get({"tag": "entities", "answer": "answers"}.get(task, "label"))
    texts = [cells[role] for role in roles if isinstance(cells.get(role), str)]
    return gold not in (None, "") and any(map(checks.is_blank, texts))


def array_changes(task: str, roles: Mapping[str, str], text: str, removed: Mapping[int, str]) -> list[Change]:
    """What repairs an array of rows, of which the numbered ones, from 1, are to be removed."""
    root = parsed(text)
    found: list[Change] = []
    why = {number - 1: reason for number, reason in removed.items()}
    for number, row in enumerate(root.items):
        if row.fields and number not in why:
            if is_empty(task, {role: row.value.get(name) for role, name in roles.items()}):
                why[number] = "removed, for a text is empty"
            else:
                found += row_changes(task, roles, text, row)
    return found + _removed(text, root.items, why)


def _removed(text: str, nodes: Sequence[Node], why: Mapping[int, str]) -> list[Change]:
    edits = removals(nodes, set(why))
    return [
        Change(edit, why[number], text[nodes[number].start : nodes[number].end])
        for edit, number in zip(edits, sorted(why), strict=True)
    ]


def _squad_changes(text: str, reason: Reason) -> list[Change]:
    found: list[Change] = []
    root = parsed(text)
    for paragraph in (node for article in _listed(root, "data") for node in _listed(article, "paragraphs")):
        context = paragraph.value.get("context") if isinstance(paragraph.value, dict) else None
        asked = _listed(paragraph, "qas")
        removed: dict[int, str] = {}
        for number, question in enumerate(asked):
            said, answers = question.value.get("question") if question.fields else None, question.held("answers")
            if not isinstance(said, str) or not isinstance(context, str) or answers is None:
                continue
            is_answered = str(question.value.get("is_impossible", "false")).lower() != "true"
            changes = _answers(text, context, answers) if is_answered else []
            texts = [item.value.get("text") for item in answers.items if item.fields]
            why = (
                "removed, for question or context is empty" if checks.is_blank(said) or checks.is_blank(context) else ""
            )
            why = why or reason((said, context), repr(texts if is_answered else []), str(question.start))
            if why:
                removed[number] = why
            else:
                found += changes
        found += _removed(text, asked, removed)
    return found


def _choice_changes(text: str, reason: Reason) -> list[Change]:
    found: list[Change] = []
    for entry in (node for node in parsed(text).items if len(node.items) >= 2):
        lines = entry.items[0].value
        passage = "\n".join(map(str, lines if isinstance(lines, list) else [lines]))
        removed: dict[int, str] = {}
        for number, question in enumerate(entry.items[1].items):
            choices, answer = question.held("choice"), question.held("answer")
            if choices is None or answer is None or not all(isinstance(node.value, str) for node in choices.items):
                continue
            said = str(question.value.get("question", ""))
            texts = [node.value for node in choices.items]
            why = reason((passage, said, *texts), repr(answer.value), str(question.start)) if texts else ""
            if why:
                removed[number] = why
            elif isinstance(answer.value, str) and answer.value not in texts:
                found += _chosen(text, answer, texts)
        found += _removed(text, entry.items[1].items, removed)
    return found


def _chosen(text: str, answer: Node, choices: Sequence[str]) -> list[Change]:
    """An answer that is a choice but for white space around it."""
    same = [choice for choice in choices if choice.strip() == answer.value.strip()]
    if len(same) != 1:
        return []
    what = "answer written as the choice that it is but for white space"
    return [Change(rewritten(text, answer, same[0]), what, repr(answer.value), repr(same[0]))]


def _listed(node: Node, name: str) -> tuple[Node, ...]:
    held = node.held(name)
    return held.items if held is not None else ()


FILES: dict[str, Callable[[str, Reason], list[Change]]] = {"squad": _squad_changes, "choices": _choice_changes}
