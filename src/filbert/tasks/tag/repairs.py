"""Examples with spans, their rows and files come in; what is odd in them and how it is repaired goes out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from filbert.core.records import Example, Span
from filbert.forms import conll
from filbert.forms.json_places import Change, Node, rewritten, stripped
from filbert.forms.spec import Lines, Remark, RepairedCopy
from filbert.tasks.tag import words
from filbert.text.streams import Reading

STARTS, ENDS = ("start", "start_offset", "start_idx"), ("end", "end_offset", "end_idx")
LABELS, MENTIONS = ("label", "type", "entity"), ("text", "mention", "word", "entity_text")
BEGINNINGS = {"I": "B", "M": "B", "E": "S", "L": "U"}  # of an entity that goes on, and has not begun


# -- checks ------------------------------------------------------------------------------------------------------


def check(example: Example) -> Iterator[Remark]:
    """Spans with white space at their edges, and spans that overlap."""
    text, spans = example.texts[0], [span for span in example.gold or () if isinstance(span, Span)]
    for span in spans:
        stretch = text[span.start : span.end]
        if stretch != stretch.strip():
            message = f"the entity {_called(span)} has white space at its edge; leave it out (--fix does)."
            yield Remark(message, "an entity has white space at its edge")
    reach: Span | None = None  # the one that ends last so far: a later one that begins within it meets it
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if reach is not None and span.start < reach.end:
            is_nested = span.end <= reach.end
            what = "stands within" if is_nested else "crosses"
            message = f"the entity {_called(span)} {what} {_called(reach)}"
            advice = "tags can say only one of them" if is_nested else "correct one of them"
            yield Remark(f"{message}: {advice}.", "entities overlap; tags can say only one of them")
        if reach is None or span.end > reach.end:
            reach = span


def _called(span: Span) -> str:
    return f"{span.label} {span.start}:{span.end}"


def unended(source: str, reading: Reading) -> Iterator[Remark]:
    """Where tags say how entities end (E-, S-), one that begins and is not ended is a slip of the annotator."""
    sentences = list(conll.sentences(source, reading))
    letters = {tag[0] for sentence in sentences for tag in sentence.tags if tag[1:2] in ("-", "_")}
    if not letters & set(words.ENDS):
        return
    for sentence in sentences:
        followed = zip(sentence.lines, sentence.tags, [*sentence.tags[1:], "O"], strict=True)
        for line, tag, following in followed:
            is_continued = following[0] in words.INSIDE + words.ENDS and following[2:] == tag[2:]
            if tag[1:2] in ("-", "_") and tag[0] in words.BEGINS + words.INSIDE and not is_continued:
                message = f"{tag} is not followed by the end of its entity, as elsewhere in the file; write E- or S-."
                yield Remark(message, "an entity is not ended", line=line)


# -- rows --------------------------------------------------------------------------------------------------------


def trimmed_spans(example: Example) -> Example:
    """The example with its spans as they will be: without white space at their edges."""
    if not isinstance(example.gold, tuple) or not all(isinstance(item, Span) for item in example.gold):
        return example
    spans = [trimmed(example.texts[0], span.start, span.end) for span in example.gold]
    gold = sorted(
        {Span(*edges, span.label.strip()) for edges, span in zip(spans, example.gold, strict=True)},
        key=lambda span: (span.start, span.end, span.label),
    )
    return dataclasses.replace(example, gold=tuple(gold))


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch without white space at its edges; as it is where nothing else is in it."""
    stretch = text[start:end]
    if not stretch.strip():
        return start, end
    return start + len(stretch) - len(stretch.lstrip()), end - len(stretch) + len(stretch.rstrip())


def repaired_row(text: str, nodes: Mapping[str, Node]) -> list[Change]:
    """The entities of a row without white space at their edges."""
    if "entities" not in nodes or "text" not in nodes:
        return []
    return [change for item in nodes["entities"].items for change in _entity(text, nodes["text"].value, item)]


def _entity(text: str, sentence: object, item: Node) -> list[Change]:
    """{start, end, label} or [start, end, label]: white space at its edges is left out, and around its label."""
    if item.items:
        start, end, label, mention = (*item.items[:3], None) if len(item.items) >= 3 else (None, None, None, None)
    else:
        start, end, label, mention = (item.held(*names) for names in (STARTS, ENDS, LABELS, MENTIONS))
    changes = stripped(text, label) if label is not None else []
    if not isinstance(sentence, str) or start is None or end is None:
        return changes
    if not _are_places(sentence, start.value, end.value):
        return changes
    edges = trimmed(sentence, start.value, end.value)
    if edges == (start.value, end.value):
        return changes
    bare = sentence[slice(*edges)]
    if mention is not None and (not isinstance(mention.value, str) or mention.value.strip() != bare):
        return changes
    before, after = f"{start.value}:{end.value}", f"{edges[0]}:{edges[1]}"
    what = "white space at the edges of an entity left out"
    changed = [(start, edges[0]), (end, edges[1]), *([(mention, bare)] if mention is not None else [])]
    edits = [rewritten(text, node, value) for node, value in changed if node.value != value]
    return changes + [Change(edit, what, before, after) for edit in edits]


def _are_places(sentence: str, start: object, end: object) -> bool:
    """Whether the edges point into the text; NULs are taken out of it in reading, so one with any is let be."""
    return "\0" not in sentence and type(start) is int and type(end) is int and 0 <= start < end <= len(sentence)


# -- a word per line ---------------------------------------------------------------------------------------------


def repaired_sentences(copy: RepairedCopy, lines: Lines) -> Iterator[str]:
    """The sentences that stay, with their comments; what is removed goes whole, with the blank lines after it."""
    columns = conll.columns_of(copy.path, copy.quiet())
    return (line for sentence in _kept(copy, lines, columns) for _, line in sentence)


def repaired_prefixed(copy: RepairedCopy, lines: Lines) -> Iterator[str]:
    """The same, of tags with prefixes: an entity that goes on without having begun begins."""
    columns = conll.columns_of(copy.path, copy.quiet())
    for sentence in _kept(copy, lines, columns):
        yield from _with_beginnings(copy, sentence, columns)


def _kept(copy: RepairedCopy, lines: Lines, columns: conll.Columns) -> Iterator[list[tuple[int, str]]]:
    """The sentences that stay, and what stands between them, each as its lines with their numbers."""
    is_removed = False
    for is_gap, group in itertools.groupby(lines, key=lambda line: columns.is_gap(line[1])):
        if is_gap:  # the blank lines after a sentence go with it
            yield [(number, line) for number, line in group if line.strip() or not is_removed]
            continue
        numbered = list(group)
        first = next((number for number, _ in numbered if number in copy.removed), 0)
        is_removed = copy.is_removed(first, "\n".join(line for _, line in numbered))
        if not is_removed:
            yield numbered


def _with_beginnings(copy: RepairedCopy, numbered: list[tuple[int, str]], columns: conll.Columns) -> Iterator[str]:
    """The lines of a sentence; an entity that goes on without having begun begins."""
    tagged = [(place, at) for place, (_, line) in enumerate(numbered) if (at := columns.tag_place(line))]
    tags = [conll.cells(numbered[place][1])[columns.tag] for place, _ in tagged]
    wrong: list[int] = []
    reading = Reading(fault=lambda *_: None, mended=lambda _source, index, _message: wrong.append(index))
    places = [(index, index + 1) for index in range(len(tags))]
    words.spans_of_tags("", range(len(tags)), tags, places, reading)
    fixed = dict[int, str]()
    for index in wrong:
        (place, at), tag = tagged[index], tags[index]
        number, line = numbered[place]
        new = BEGINNINGS[tag[0]] + tag[1:]
        fixed[place] = line[:at] + new + line[at + len(tag) :]
        copy.fix(number, "entity begun where it went on", tag, new)
    return (fixed.get(place, line) for place, (_, line) in enumerate(numbered))
