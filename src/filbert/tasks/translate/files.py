"""Texts to write from and what to write come in, in rows or in two files line by line; their columns go out as FILES.

A row has a source and a target, texts each; a list of texts is the turns of a dialogue and becomes one text with a line
for each turn. Two files are named with a comma between them, "train.de,train.en": line n of the one belongs to line n
of the other. A pair with an empty side is skipped and counted.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping

from filbert.core.errors import InputError
from filbert.forms.gold import no_labels
from filbert.forms.spec import Entry, FileSpec, Roles, Rows
from filbert.text.streams import Reading, clean, whole_lines

SOURCE_NAMES = (
    *("source", "src", "text", "content", "document", "article", "abstract", "dialogue", "post", "question", "原文"),
    *("正文", "问题"),
)
TARGET_NAMES = (
    # all are names of columns, "answer" too
    *("target", "tgt", "translation", "summary", "highlights", "title", "reply", "response", "answer", "译文", "摘要"),
    *("标题", "回答"),
)
SKIPPED = "pairs with an empty side were skipped"


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """The pairs of a table or of JSON; without a column for the target, texts to write from."""
    for line, row in rows(reading):
        text = _text(source, line, row, roles["source"], reading)
        if text is None:
            continue
        if "target" not in roles:
            yield line, (text,), None
            continue
        target = _text(source, line, row, roles["target"], reading)
        if target is not None:
            yield from _pair(source, line, (text, target), reading)


def _text(source: str, line: int, row: Mapping[str, object], name: str, reading: Reading) -> str | None:
    """What the field holds, cleaned; None after a fault."""
    value = row.get(name)
    wrong = [turn for turn in (value if isinstance(value, list) else [value]) if not isinstance(turn, str)]
    if wrong:
        what = "is missing" if value is None else f"holds {type(wrong[0]).__name__}"
        reading.fault(source, line, f"the field {name!r} {what}, but must hold text, or a list of texts.")
        return None
    if isinstance(value, list):  # a line end parts turns, so that one inside a turn becomes a space
        value = "\n".join(" ".join(turn.split("\n")) for turn in value)
    return clean(str(value), source, line, reading)


def _pair(source: str, line: int, pair: tuple[str, str], reading: Reading) -> Iterator[Entry]:
    """The pair, unless a side of it is empty."""
    if all(side.strip() for side in pair):
        yield line, pair[:1], pair[1]
        return
    side = "source" if not pair[0].strip() else "target"
    reading.count(SKIPPED, source, line, f"the {side} is empty; skipped.")


# -- two files ---------------------------------------------------------------------------------------------------


def joined_path(path: str, reading: Reading) -> Iterator[Entry] | None:
    """The pairs of two files that are named with a comma between them; None for one file."""
    both = parallel(path)
    return side_by_side(both, reading) if both is not None else None


def parallel(path: str) -> tuple[str, str] | None:
    """Both files of "train.de,train.en"; None for the name of one file, which may have a comma in it."""
    if "," not in path or os.path.exists(path):
        return None
    cuts = [place for place, char in enumerate(path) if char == ","]
    pairs = [(path[:place].strip(), path[place + 1 :].strip()) for place in cuts]
    both = max(pairs, key=lambda pair: sum(map(os.path.exists, pair)))
    if not all(both):
        raise InputError(f"{path}: has a comma, but names no two files; write train.de,train.en.")
    return both


def side_by_side(both: tuple[str, str], reading: Reading) -> Iterator[Entry]:
    """The pairs of two files of as many lines, source and target."""
    readers = [whole_lines(path, reading) for path in both]
    number = 0
    for pair in itertools.zip_longest(*readers):
        if None in pair:
            break
        number, first, second = pair[0][0], pair[0][1], pair[1][1]
        if first.strip() or second.strip():
            yield from _pair(",".join(both), number, (first, second), reading)
        else:
            reading.report.num_blank += 1
    else:
        return
    shorter, longer = both if pair[0] is None else both[::-1]
    total = number + 1 + sum(1 for _ in readers[both.index(longer)])
    reading.fault(
        longer, number + 1,
        f"has no partner: the file has {total:,} lines, but {shorter} has {number:,}; line n of the one must belong to "
        "line n of the other.",
    )  # fmt: skip


FILES = FileSpec(
    task="translate",
    rank=7,
    roles=("source", "target"),
    optional=frozenset({"target"}),
    names={"source": SOURCE_NAMES, "target": TARGET_NAMES},
    places={1: ("source",), 2: ("source", "target")},
    tuple_roles=("source", "target"),
    rows=rows,
    joined_path=joined_path,
    joined_as="two files, line by line",
    labels=no_labels,  # what is to be written is no label
)
