"""Rows with a list of tokens and a list of their tags come in (tokens, ner_tags); texts with spans go out.

Tags are texts, with prefixes (B-PER) or without, or numbers whose names the file keeps: Hugging Face's Parquet files in
their schema, others in a dataset_info.json beside them. Numbers without names are labels as they stand, and 0 is none.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from filbert.core.errors import InputError, needed
from filbert.core.files import json_object
from filbert.core.records import Span
from filbert.forms import conll, markup
from filbert.forms.spacing import joined
from filbert.text import tables
from filbert.text.streams import Reading, clean

INFO = "dataset_info.json"
_PREFIXES = markup.BEGINS + markup.INSIDE + markup.ENDS + markup.SINGLE


def token_rows(
    source: str, rows: Iterator[tables.Row], roles: Mapping[str, str], reading: Reading
) -> Iterator[markup.Found]:
    """The rows as texts with the spans that their tags draw; None as gold where there are no tags."""
    names = number_names(source, roles.get("tags", ""))
    first = list(itertools.islice(rows, 1_000))
    style = _style([_tags(row.get(roles.get("tags", "")), names) or () for _, row in first])
    has_told = False
    for line, row in itertools.chain(first, rows):
        tokens = _tokens(source, line, row, roles["tokens"], reading)
        if tokens is None:
            continue
        given = row.get(roles.get("tags", ""))
        text, places = joined(tokens)
        if given is None:
            yield line, (text,), None
            continue
        tags = _tags(given, names)
        if tags is None or len(tags) != len(tokens):
            count = "no list" if tags is None else f"{len(tags)}"
            message = f"has {len(tokens)} tokens, but {count} of tags that can be read; each token needs its tag."
            reading.fault(source, line, message)
            continue
        if not names and not has_told and any(type(tag) is int for tag in given):
            message = (
                f"the tags in {roles['tags']!r} are numbers without names: each is a label as it stands, 0 is none."
            )
            reading.tell(message)
            has_told = True
        yield line, (text,), _spans(source, line, (tags, places), style, reading)


def _tokens(source: str, line: int, row: Mapping[str, Any], name: str, reading: Reading) -> list[str] | None:
    value = row.get(name)
    if not isinstance(value, (list, tuple)) or not all(isinstance(token, str) for token in value):
        reading.fault(source, line, f"the field {name!r} must be a list of texts, one for each token.")
        return None
    return [clean(token, source, line, reading) or " " for token in value]


def _tags(given: Any, names: Sequence[str]) -> list[str] | None:
    """The tags as texts; None where they are no list of texts or of numbers that have names."""
    if not isinstance(given, (list, tuple)):
        return None
    found: list[str] = []
    for tag in given:
        if type(tag) is int and names:
            if not 0 <= tag < len(names):
                return None
            found.append(names[tag])
        elif type(tag) is int:
            found.append(str(tag) if tag else "O")
        elif isinstance(tag, str) and tag:
            found.append(tag)
        else:
            return None
    return found


def _style(tags: Sequence[Sequence[str]]) -> str:
    """How tags draw spans: by prefixes, by neighbours with one label where O is none, or every token by itself."""
    known = {tag for row in tags for tag in row}
    prefixed = [tag for tag in known if tag[:1] in _PREFIXES and tag[1:2] in ("-", "_") and tag[2:]]
    if (prefixed and len(prefixed) == len(known - {"O"})) or conll.are_marked(known):
        return "prefixes"
    return "inside" if "O" in known else "units"


def _spans(
    source: str, line: int, found: tuple[list[str], list[tuple[int, int]]], style: str, reading: Reading
) -> tuple[Span, ...]:
    tags, places = found
    if style == "prefixes":
        return markup.spans_of_tags(source, [line] * (len(tags) + 1), tags, places, reading)
    if style == "units":
        return tuple(Span(*place, tag) for place, tag in zip(places, tags, strict=True))
    runs = itertools.groupby(range(len(tags)), key=tags.__getitem__)
    several = [(tag, list(run)) for tag, run in runs if tag != "O"]
    return tuple(Span(places[run[0]][0], places[run[-1]][1], tag) for tag, run in several)


# -- names of numbers --------------------------------------------------------------------------------------------


def number_names(source: str, column: str) -> tuple[str, ...]:
    """What the numbers in a column of tags or labels are called; none where nothing says so."""
    if not column or not os.path.exists(source):  # rows that come from no file
        return ()
    features = _parquet_features(source) if tables.kind(source) == "parquet" else _beside(source)
    return _names(features.get(column))


def _beside(source: str) -> Mapping[str, Any]:
    path = os.path.join(os.path.dirname(source), INFO)
    try:
        features = json_object(path).get("features") if os.path.isfile(path) else None
    except InputError:  # not ours: it lies there for another reason
        return {}
    return features if isinstance(features, Mapping) else {}


def _parquet_features(source: str) -> Mapping[str, Any]:
    """What the library `datasets` writes into the schema."""
    written = (needed("pyarrow.parquet", "data").read_schema(source).metadata or {}).get(b"huggingface")
    try:
        features = json.loads(written or b"{}").get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _names(feature: Any) -> tuple[str, ...]:
    """The names of a ClassLabel, itself or within a list of such."""
    while isinstance(feature, (Mapping, list)):
        if isinstance(feature, list):
            feature = feature[0] if feature else None
        elif isinstance(feature.get("names"), list):
            return tuple(map(str, feature["names"]))
        elif isinstance(feature.get("names"), Mapping):  # as a dataset card writes them: {"0": "O", "1": "B-PER"}
            return tuple(str(name) for _, name in sorted(feature["names"].items(), key=lambda item: int(item[0])))
        else:
            feature = feature.get("feature", feature.get("sequence", feature.get("class_label")))
    return ()
