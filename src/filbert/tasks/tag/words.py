"""Files with a label for every word come in; their kind, and their texts with a span for each name or word, go out.

CoNLL has prefixes (B-PER) or O. Three kinds have neither. `slashed`: 迈向/v  充满/v, as the People's Daily corpus has
it, where [中国/ns 政府/n]nt brackets a name of several words. `conllu`: Universal Dependencies. `units`: CoNLL with
bare labels. A fourth, `inside`, has bare labels and O, so that neighbours with one label are taken for one span.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from filbert.core.records import Span
from filbert.forms import conll
from filbert.forms.conll import nearly
from filbert.forms.spec import Entry
from filbert.text.streams import Reading, whole_lines

Words = tuple[int, list[str], list[str]]  # (first line, words, labels)
Spaced = tuple[int, list[str], list[str], list[bool]]  # and whether a space follows each word

LONGEST_WORD, MOST_LABELS = 30, 100
FORMS = {
    "slashed": "words with their labels, word/label, one sentence or paragraph per line",
    "conllu": "CoNLL-U: a word per line in ten columns; its label is the universal part of speech",
    "units": "CoNLL: a word or character and its label per line, a blank line between sentences",
    "inside": "CoNLL: a word or character and its label or O per line; neighbours with one label are one span",
}
_SLASHED = re.compile(r"\[?\S+/[A-Za-z]{1,6}\d?(?:\][A-Za-z]{1,6})?")
_NUMBER = re.compile(r"(\d+)(?:-(\d+)|\.\d+)?")
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9$+_.-]{0,11}|[^\w\s]{1,2}")  # NOUN, Vg, PRP$; Penn's marks are their own labels
_BRACKET = re.compile(r".+/[A-Za-z]{1,6}\d?\][A-Za-z]{1,6}")  # the end of [中国/ns 政府/n]nt
_DATED = re.compile(r"\d{8}-\d{2}-\d{3}-\d{3}/m")  # where in the newspaper a paragraph stood: no word of it
COLUMNS, FORM, UPOS, MISC = 10, 1, 3, 9


def kind(lines: Sequence[str]) -> str | None:
    """Which of these a file is by its first lines, blank ones included; None: none of them."""
    inked = [line for line in lines if line.strip() and not line.startswith("-DOCSTART-")]
    rows = [line for line in inked if not line.startswith("#")]
    if nearly(sum(row.count("\t") == COLUMNS - 1 and _NUMBER.match(row) is not None for row in rows), len(rows)):
        return "conllu"
    items = [item for line in inked for item in line.split()]
    matching = [item for item in items if _SLASHED.fullmatch(item)]
    if len(matching) >= 0.95 * len(items) and len(items) >= 2 * len(inked) and 1 < len(_kinds(matching)) <= MOST_LABELS:
        return "slashed"
    return _columns(lines, inked)


def _kinds(items: Sequence[str]) -> set[str]:
    return {item.rpartition("/")[2].partition("]")[0] for item in items}


def _columns(lines: Sequence[str], inked: Sequence[str]) -> str | None:
    """Whether nearly every line is a word and a label of few that come again, with blank lines between sentences."""
    places = [at for at, line in enumerate(lines) if line.strip()]
    has_breaks = bool(places) and places[-1] - places[0] >= len(places)
    cells = [line.split("\t") if "\t" in line else line.split(" ") for line in inked]
    usual = len(cells[0]) if cells else 0
    fitting = [
        row[-1]
        for row in cells
        if len(row) == usual > 1 and 0 < len(row[0].strip()) <= LONGEST_WORD and " " not in row[0]
        and _LABEL.fullmatch(row[-1].strip())
    ]  # fmt: skip
    labels = {label.strip() for label in fitting}
    are_few = 1 < len(labels) <= min(MOST_LABELS, len(inked) / 2)
    if has_breaks and are_few and nearly(len(fitting), len(inked)):
        return "inside" if "O" in labels else "units"
    return None


def slashed(source: str, reading: Reading) -> Iterator[Words]:
    """The words and labels of each line; of a bracketed name only the words' own labels are kept."""
    for number, line in whole_lines(source, reading):
        items = line.split()
        reading.report.num_blank += not items
        if items and _DATED.fullmatch(items[0]):
            what = "lines begin with their place in the newspaper, which is left out"
            reading.count(what, source, number, f"{items.pop(0)[:-2]} is no word of the text; left out.")
        for _ in range(sum(_BRACKET.fullmatch(item) is not None for item in items)):
            what = "brackets around names of several words were left out; their words have their own labels"
            reading.count(what, source, number, "a bracket names several words together; left out.")
        pairs = [_word_and_label(item) for item in items]
        wrong = next((item for item, (word, label) in zip(items, pairs, strict=True) if not word or not label), None)
        if wrong is not None:
            reading.fault(source, number, f"{wrong[:30]!r} is not a word and its label with a slash between them.")
        elif pairs:
            yield number, [word for word, _ in pairs], [label for _, label in pairs]


def _word_and_label(item: str) -> tuple[str, str]:
    """A slash, like a bracket, may be a word: the last one separates."""
    word, _, label = item.rpartition("/")
    label = label.partition("]")[0]
    return (word[1:] if len(word) > 1 and word[0] == "[" else word), label


def conllu(source: str, reading: Reading) -> Iterator[Spaced]:
    """The words of each sentence; those that are written as one (2-3: del) are one, with both labels: ADP+DET."""
    reading.tell(
        f"words are in column {FORM + 1} and labels in column {UPOS + 1}; lemmas, other labels and syntax are passed "
        "over."
    )
    numbered = itertools.chain(whole_lines(source, reading), [(0, "")])
    first, words, labels, spaces = 0, [], [], []  # type: int, list[str], list[str], list[bool]
    joined_until = 0
    for number, line in numbered:
        if not line.strip():
            if words:
                yield first, words, labels, spaces
            first, words, labels, spaces, joined_until = 0, [], [], [], 0
            continue
        if line.startswith("#"):
            reading.count("comment lines (#) were passed over", source, number, "is a comment; passed over.")
            continue
        cells = line.split("\t")
        place = _NUMBER.fullmatch(cells[0])
        if len(cells) != COLUMNS or place is None:
            reading.fault(source, number, f"has {len(cells)} columns, but a word in CoNLL-U has its number and 9 more.")
            continue
        if "." in cells[0]:
            what = "words that are understood and not written (8.1) were passed over"
            reading.count(what, source, number, f"{cells[FORM][:20]!r} is understood and not written; passed over.")
            continue
        joins, inside = place[2] is not None, int(place[1]) <= joined_until
        if cells[UPOS] == "_" and not joins:
            reading.fault(source, number, f"{cells[FORM][:20]!r} has no part of speech in column {UPOS + 1}.")
            continue
        if inside:
            labels[-1] = f"{labels[-1]}+{cells[UPOS]}" if labels[-1] else cells[UPOS]
            continue
        joined_until = int(place[2]) if joins else 0
        words.append(cells[FORM])
        labels.append("" if joins else cells[UPOS])
        spaces.append("SpaceAfter=No" not in cells[MISC].split("|"))
        first = first or number


# -- spans -------------------------------------------------------------------------------------------------------

BEGINS, INSIDE, ENDS, SINGLE = "B", "IM", "EL", "SUW"  # BIO, BMES, BIOES and BILOU say the same in other letters


def conll_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The sentences of a CoNLL file as texts with entity spans."""
    for sentence in conll.sentences(source, reading):
        text, places = joined(sentence.words, sentence.are_words)
        yield sentence.lines[0], (text,), spans_of_tags(source, sentence.lines, sentence.tags, places, reading)


def unit_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The sentences of a CoNLL file without prefixes: every word or character is a span with its label."""
    for sentence in conll.sentences(source, reading):
        yield sentence.lines[0], *_covered(sentence.words, sentence.tags, sentence.are_words)


def inside_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The same where O says that there is no label: neighbours with one label are one span."""
    reading.tell("neighbours with one label are taken for one span, since no prefix tells where one begins.")
    for sentence in conll.sentences(source, reading):
        text, places = joined(sentence.words, sentence.are_words)
        runs = itertools.groupby(range(len(sentence.tags)), key=sentence.tags.__getitem__)
        several = [(label, list(run)) for label, run in runs if label != "O"]
        yield (
            sentence.lines[0],
            (text,),
            tuple(Span(places[run[0]][0], places[run[-1]][1], label) for label, run in several),
        )


def slashed_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The lines of a file of words and their labels (word/label), each word a span."""
    for line, words, labels in slashed(source, reading):
        yield line, *_covered(words, labels)


def conllu_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The sentences of a CoNLL-U file with the spaces that it tells of, each word a span with its part of speech."""
    for line, words, labels, spaces in conllu(source, reading):
        spaced = [word + " " * space for word, space in zip(words, spaces, strict=True)]
        starts = itertools.accumulate(map(len, spaced), initial=0)
        spans = (Span(at, at + len(word), label) for at, word, label in zip(starts, words, labels, strict=False))
        yield line, ("".join(spaced).rstrip(),), tuple(spans)


def _covered(words: list[str], labels: list[str], are_words: bool | None = None) -> tuple[tuple[str], tuple[Span, ...]]:
    text, places = joined(words, are_words)
    return (text,), tuple(Span(*place, label) for place, label in zip(places, labels, strict=True))


def spans_of_tags(
    source: str, lines: Sequence[int], tags: list[str], places: list[tuple[int, int]], reading: Reading
) -> tuple[Span, ...]:
    """The spans that tags with prefixes draw; one that goes on without having begun begins there, and is counted.

    lines: of each tag.
    """
    spans: list[Span] = []
    open_label, start = "", 0
    for index, tag in enumerate([*tags, "O"]):
        prefix, label = (tag[:1], tag[2:]) if tag[1:2] in ("-", "_") else (tag, "")
        if tag != "O" and (not label or prefix not in BEGINS + INSIDE + ENDS + SINGLE):
            message = f"the tag {tag!r} is not O or a label with B-, I-, M-, E- or S- before it."
            reading.fault(source, lines[index], message)
            prefix, label = "O", ""
        continues = label == open_label and label != "" and prefix in INSIDE + ENDS
        if open_label and not continues:
            spans.append(Span(places[start][0], places[index - 1][1], open_label))
            open_label = ""
        if label and not continues:
            if prefix in INSIDE + ENDS:
                what = "entities go on (I-, M-, E-) without having begun; each was begun there"
                reading.count(what, source, lines[index], f"{tag} goes on with an entity that has not begun.")
            open_label, start = label, index
        if open_label and prefix in ENDS + SINGLE:
            spans.append(Span(places[start][0], places[index][1], open_label))
            open_label = ""
    return tuple(spans)


# -- texts -------------------------------------------------------------------------------------------------------

# What is written without spaces between words: Chinese and Japanese with their punctuation and full-width signs, Thai,
# Lao, Tibetan, Burmese, Khmer and the Tai scripts. Hangul stands among wide characters, but Korean has spaces.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\u312f\u3190-\u9fff"
    "\ua9e0-\ua9ff\uaa60-\uaadf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f\uffe0-\uffef\U00020000-\U0003ffff]"
)
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc]")


def joined(tokens: list[str], are_words: bool | None = None) -> tuple[str, list[tuple[int, int]]]:
    """The tokens as one text, and where each stands: with spaces between them where their script has such.

    are_words: or characters; without it they are words if one of them has several characters.
    """
    by_character = not any(len(token) > 1 for token in tokens) if are_words is None else not are_words
    num_unspaced = sum(bool(_UNSPACED.match(token)) for token in tokens)
    has_wide = num_unspaced > sum(bool(_HANGUL.match(token)) for token in tokens)
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    end = 0
    for index, token in enumerate(tokens):
        if index and (_parted(tokens[index - 1], token, by_character) if by_character or has_wide else True):
            parts.append(" ")
            end += 1
        parts.append(token)
        places.append((end, end + len(token)))
        end += len(token)
    return "".join(parts), places


def _parted(left: str, right: str, by_character: bool) -> bool:
    """Whether two tokens are parted by a space: letters or digits of scripts that have spaces are.

    Among characters only a token of several is a word; two of Hangul must both be.
    """
    if not all(char.isalnum() and not _UNSPACED.match(char) for char in (left[-1], right[0])):
        return False
    if not by_character:
        return True
    several = (len(left) > 1, len(right) > 1)
    return all(several) if _HANGUL.match(left[-1]) or _HANGUL.match(right[0]) else any(several)
