"""What annotation tools export comes in (Label Studio, doccano, Prodigy); plain rows go out.

A plain row has a text with a label, a list of labels, or entities, beside what the row held before. What a tool says of
a row and cannot be learnt (rejected, skipped, a second annotation, a kind of result that is not read) is counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from filbert.text.streams import Reading, stem_and_suffix
from filbert.text.tables import Row

STUDIO, STUDIO_MIN, PRODIGY = "Label Studio", "Label Studio (JSON-MIN)", "Prodigy"
FASTTEXT = "__label__"
_STUDIO_HELD = ("annotations", "completions")
_STUDIO_FIELDS = frozenset((
    *("id", "data", "annotations", "completions", "predictions", "drafts", "file_upload", "meta", "inner_id"),
    *("created_at", "updated_at", "updated_by", "total_annotations", "cancelled_annotations", "total_predictions"),
    *("comment_count", "unresolved_comment_count", "last_comment_updated_at", "comment_authors", "allow_skip"),
    *("annotator", "annotators", "annotation_id", "lead_time", "project"),
))  # fmt: skip
_ANSWER = "answer"  # a field of Prodigy's rows: what the annotator decided
_RELATION = "relation"  # a type of Label Studio's results
_PRODIGY_FIELDS = frozenset((
    *(_ANSWER, "accept", "options", "tokens", "meta", "config", "priority", "score", "_input_hash", "_task_hash"),
    *("_session_id", "_annotator_id", "_view_id", "_timestamp", "_is_binary"),
))  # fmt: skip
_ANSWERS = ("accept", "reject", "ignore")


def tool_of(rows: Sequence[Mapping[str, object]]) -> str:
    """The tool that wrote such rows, one of STUDIO, STUDIO_MIN and PRODIGY; an empty string where none is known."""
    if not rows:
        return ""
    if all(isinstance(row.get("data"), dict) and any(name in row for name in _STUDIO_HELD) for row in rows):
        return STUDIO
    if any("annotation_id" in row or {"annotator", "lead_time"} <= row.keys() for row in rows):
        return STUDIO_MIN
    has_questions = any("question" in row and "context" in row for row in rows)
    answers = [row[_ANSWER] for row in rows if _ANSWER in row]
    return PRODIGY if answers and not has_questions and all(answer in _ANSWERS for answer in answers) else ""


def tool_of_table(rows: list[dict[str, str]]) -> str:
    """The same of a table, which only Prodigy's answers give away."""
    if any("question" in row for row in rows):
        return ""
    return tool_of([{_ANSWER: row[_ANSWER]} for row in rows if _ANSWER in row])


def shown_columns(tool: str, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns of plain rows that are data, without those in which the tool keeps its books."""
    bookkeeping = {STUDIO: _STUDIO_FIELDS, STUDIO_MIN: _STUDIO_FIELDS, PRODIGY: _PRODIGY_FIELDS}.get(tool, frozenset())
    return tuple(name for name in columns if name not in bookkeeping)


def plain_rows(tool: str, source: str, rows: Iterator[Row], reading: Reading) -> Iterator[Row]:
    """The rows of an export as plain rows; those that hold no decision of an annotator are left out and counted."""
    made = {STUDIO: _studio, STUDIO_MIN: _studio_min, PRODIGY: _prodigy}[tool]
    for line, row in rows:
        plain = made(source, line, row, reading)
        if plain is not None:
            yield line, plain


# -- Prodigy -----------------------------------------------------------------------------------------------------


def _prodigy(source: str, line: int, row: dict[str, object], reading: Reading) -> dict[str, Any] | None:
    answer = row.get(_ANSWER, "accept")
    if answer in ("reject", "ignore"):
        what = {"reject": "rejected", "ignore": "passed over"}[answer]
        left_out = f'rows were left out, for the annotator {what} them ("answer": "{answer}")'
        reading.count(left_out, source, line, f"the annotator answered {answer!r}; left out.")
        return None
    if answer != "accept":
        reading.fault(source, line, f"the answer is {answer!r}, but Prodigy's are accept, reject and ignore.")
        return None
    if isinstance(row.get("accept"), list) and "options" in row:  # a choice among options, by their ids
        return {name: value for name, value in row.items() if name != "options"} | {"label": row["accept"]}
    return row


# -- Label Studio ------------------------------------------------------------------------------------------------


def _studio(source: str, line: int, row: dict[str, object], reading: Reading) -> dict[str, Any] | None:
    """A task of the full export: its data, and what its first finished annotation says."""
    held = row.get("data")
    data: dict[str, object] = held if isinstance(held, dict) else {}
    lists = (row.get(name) for name in _STUDIO_HELD)
    annotations: list[object] = next((each for each in lists if isinstance(each, list)), [])
    done = [each for each in annotations if isinstance(each, Mapping) and not each.get("was_cancelled")]
    if not done:
        what = (
            "tasks were left out, for nobody annotated them"
            if not annotations
            else ("tasks were left out, for their annotators skipped them")
        )
        reading.count(what, source, line, "the task has no annotation; left out.")
        return None
    if len(done) > 1:
        what = "tasks have several annotations; the first was taken"
        reading.count(what, source, line, f"the task has {len(done)} annotations; the first was taken.")
    fields = {**row, **data}
    texts = [value for value in data.values() if isinstance(value, str)]
    if len(texts) == 1:
        fields["text"] = texts[0]
    results = done[0].get("result")
    return fields | _decided(source, line, results if isinstance(results, list) else [], reading)


def _decided(source: str, line: int, results: list[object], reading: Reading) -> dict[str, Any]:
    """What the results of one annotation come to: labels by the name of their control, entities, relations."""
    by_control: dict[str, Any] = {}
    entities, relations = list[dict[str, Any]](), list[dict[str, Any]]()
    for result in results:
        if not isinstance(result, Mapping):
            continue
        held = result.get("value")
        value: Mapping[str, Any] = held if isinstance(held, Mapping) else {}
        kind, control = str(result.get("type", "")), str(result.get("from_name", "label"))
        if kind == _RELATION:
            relations.append(dict(result))
        elif kind in ("choices", "taxonomy"):
            by_control.setdefault(control, []).extend(_chosen(value, kind))
        elif kind in ("rating", "number"):
            by_control[control] = value.get(kind)
        elif kind == "textarea":
            by_control[control] = value.get("text")
        elif kind in ("labels", "hypertextlabels"):
            entities += _spans({**value, "id": result.get("id")}, kind)
        else:
            what = f"results of Label Studio's kind {kind!r} were passed over, for no task learns from them"
            reading.count(what, source, line, f"the result of the kind {kind!r} is passed over.")
    fields = dict(by_control)
    if len(by_control) == 1 and not entities:
        fields["label"] = next(iter(by_control.values()))
    if entities or not by_control:
        fields["entities"] = entities
    return fields | ({"relations": relations} if relations else {})


def _chosen(value: Mapping[str, object], kind: str) -> list[Any]:
    chosen = value.get(kind)
    items = chosen if isinstance(chosen, list) else [chosen]
    return ["/".join(map(str, each)) if isinstance(each, list) else each for each in items]


def _spans(value: Mapping[str, object], kind: str) -> list[dict[str, Any]]:
    """The stretch with each of its labels; one without any is left for the reader to name."""
    offsets = value.get("globalOffsets")
    at: Mapping[str, Any] = offsets if isinstance(offsets, Mapping) else value
    labels = value.get(kind) or value.get("labels") or [None]
    mention = {"text": value["text"]} if isinstance(value.get("text"), str) else {}
    place = {"start": at.get("start"), "end": at.get("end"), "id": value.get("id")}
    return [{**place, "label": label, **mention} for label in (labels if isinstance(labels, list) else [labels])]


def _studio_min(source: str, line: int, row: dict[str, object], reading: Reading) -> dict[str, Any] | None:
    """A row of the minimal export: choices as {"choices": […]}, spans as a list of {start, end, labels}."""
    fields, named = dict(row), list[str]()
    for name, value in row.items():
        if isinstance(value, Mapping) and isinstance(value.get("choices"), list):
            fields[name] = value["choices"]
            named.append(name)
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            spans = [span for each in value if "start" in each for span in _spans(each, "labels")]
            if spans:
                fields.pop(name)
                fields["entities"] = spans
    if len(named) == 1:
        fields.setdefault("label", fields[named[0]])
    return fields


# -- nested fields -----------------------------------------------------------------------------------------------


def reached(row: Mapping[str, object], path: str) -> object:
    """What stands at data.text or annotations.0.result: names of fields and numbers of items; None: nothing does."""
    at: object = row
    for step in path.split("."):
        if isinstance(at, Mapping):
            at = at.get(step)
        elif isinstance(at, (list, tuple)) and step.isdigit() and int(step) < len(at):
            at = at[int(step)]
        else:
            return None
    return at


def with_nested(rows: Iterator[Row], paths: Iterable[str]) -> Iterator[Row]:
    """The rows with what stands at each path as a column of that name."""
    wanted = list(paths)
    for line, row in rows:
        yield line, {**row, **{path: reached(row, path) for path in wanted}}


# -- brat --------------------------------------------------------------------------------------------------------


def is_brat(source: str) -> bool:
    """Whether the path is a folder with .ann files, one of them, or a text that has one beside it."""
    if os.path.isdir(source):
        return any(name.endswith(".ann") for name in os.listdir(source))
    stem, suffix = os.path.splitext(source)
    if suffix == ".ann":
        return os.path.isfile(source)
    return stem_and_suffix(source)[1] == ".txt" and os.path.isfile(f"{stem}.ann") and os.path.isfile(source)
