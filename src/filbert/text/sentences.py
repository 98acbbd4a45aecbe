"""A text comes in; the character spans of its sentences go out, without the white space between them.

Rules, not a model: every decision looks at a bounded stretch around a mark, so the time is linear in the text.
A line end always ends a sentence. Closing quotes and brackets belong to the sentence that they close.
"""

from __future__ import annotations

import re
from bisect import bisect_right

Spans = list[tuple[int, int]]

HARD = "。！？!?｡؟۔।॥"  # end a sentence wherever they stand, but for the exceptions below
SOFT = ".．…"  # end one only if what follows can begin another
ENDS = HARD + SOFT
CLOSERS = "”’」』】）)]》〉»›］｝}"
OPENERS = "“‘「『【（([《〈«‹［｛{"
CONTINUES = "，、；：,;:—-%％"  # after these a sentence is not over
BRACKETS = {"》": "《", "〉": "〈", "）": "（", ")": "("}
BRACKET_CHARS = 200  # a bracket that closes later than this was not meant as a pair
LOOK_BACK = 24  # characters; no abbreviation is longer

QUOTES = tuple('“「『"')
SAYING_CHARS = 20

_MARKS = re.compile(f"[{re.escape(ENDS + chr(10))}]")  # the first of a run: a bare class is searched for much faster
_RUN = re.compile(f"[{re.escape(ENDS)}]+")
# A Chinese mark with anything but these after it is the end of its sentence, unless it stands in brackets.
_WIDE = frozenset(mark for mark in HARD if not mark.isascii())
_DOUBTFUL = frozenset(CLOSERS + CONTINUES + ENDS + "\"'") | {chr(c) for c in range(0x3001) if chr(c).isspace()} - {"\n"}
_BRACKET = re.compile("[《》〈〉（）()\n]")
# Who says what was just quoted: a few characters of one clause, then a verb of saying.
_SAYING = re.compile(
    r"[^，。！？…；：、“”\s]{0,16}?(?:[说說](?![明法])|[问問](?![题題])|[喊嚷]|回?答|[道叫](?=[，。：]))"
)
_INK = re.compile(r"\S")
_ACRONYM = re.compile(r"(?:[a-z]\.)+[a-z]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Followed by a name, an example or a number: these never end a sentence.
TITLES = _set(
    "mr mrs ms dr prof st mt ft gen col maj capt cpt lt sgt cmdr adm rev hon gov sen rep pres supt msgr messrs mmes "
    "vs cf viz e.g i.e eg ie esp incl approx ca resp"
)
# Followed by a number, or else the end of a sentence.
NUMBERED = _set(
    "no nos fig figs eq eqs vol vols sec ch chap art p pp ed op tab ref refs "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
# These stand anywhere; what follows must look like a beginning before one of them is an end.
ANYWHERE = _set(
    "inc ltd co corp llc plc bros jr sr dept univ assn est ave blvd rd al "
    "ph.d m.d b.a m.a b.sc m.sc u.s u.k u.n e.u u.s.a d.c a.m p.m b.c a.d"
)
STARTERS = _set(
    "a an the this that these those there here he she it they we i you my his her its our their your in on at by for "
    "from with as if when while after before since although though because but and or so yet however then now what "
    "who why how where which is are was were do does did to of not no yes one two some many most all each every both"
)


def sentences(text: str) -> Spans:
    """[(start, end), …] in order: text[start:end] is a sentence, and between two there is nothing but white space."""
    spans: Spans = []
    scan = _Scan(text)
    size, run_end = len(text), 0
    for mark in _MARKS.finditer(text):
        at = mark.start()
        if at < run_end:
            continue
        if at < scan.start:  # swallowed by the end of the sentence before, and the rest of its run with it
            run_end = _run_end(text, at)
            continue
        end: int | None
        if text[at] == "\n":
            end = at
        elif text[at] in _WIDE and (at + 1 == size or text[at + 1] not in _DOUBTFUL):
            end = None if scan.in_bracket(at) else at + 1
        else:
            run_end = _run_end(text, at)
            end = scan.end_after(at, run_end)
        if end is not None:
            start, scan.start = scan.start, end
            first = start + (text[start] == "\n")
            if first >= end:
                continue
            if text[first].isspace() or text[end - 1].isspace():
                _append_trimmed(spans, text, first, end)
            else:
                spans.append((first, end))
    _append_trimmed(spans, text, scan.start, size)
    return spans


def _run_end(text: str, place: int) -> int:
    """Where the run of end marks ends that the place is in."""
    run = _RUN.match(text, place)
    return run.end() if run else place


def _append_trimmed(spans: Spans, text: str, start: int, end: int) -> None:
    piece = text[start:end]
    inner = piece.strip()
    if inner:
        start += len(piece) - len(piece.lstrip())
        spans.append((start, start + len(inner)))


class _Scan:
    """Where the current sentence began, and what is open in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pairs = _bracket_pairs(text)
        self.pair_starts = [start for start, _ in self.pairs]
        self.start = 0
        self._looked_at = -1  # of which sentence the next three values are: most sentences need none of them
        self._is_quote, self._num_quotes, self._counted_to = False, 0, 0

    def _look(self) -> None:
        """Sees whether the current sentence begins with a quotation mark, and begins to count the marks in it."""
        if self._looked_at != self.start:
            self._looked_at = self._counted_to = self.start
            self._num_quotes = 0  # ASCII quotation marks: an odd one opens, an even one closes
            first = _INK.search(self.text, self.start)
            self._is_quote = first is not None and first.group() in QUOTES

    def end_after(self, start: int, end: int) -> int | None:
        """The end of the sentence whose end mark is text[start:end], or None if it goes on."""
        text = self.text
        if self.in_bracket(start):
            return None
        self._look()
        marks = text[start:end]
        past = self._past_closers(start, end)
        after, gap = _following(text, past)
        closed = past > end
        if closed and self._is_quote and _SAYING.match(text, past, past + SAYING_CHARS):
            return None  # “快走！”他喊道。
        if after and after in CONTINUES and not (gap and after in "—-"):
            return None
        if any(mark in HARD for mark in marks):
            is_end = self._hard_ends(marks, after, gap, closed)
        elif len(marks) > 1 or marks == "…":
            is_end = _ellipsis_ends(after, gap, closed)
        else:
            is_end = self._stop_ends(start, past, after, gap, closed)
        return past if is_end else None

    def in_bracket(self, place: int) -> bool:
        """Whether the place lies in brackets that opened within the sentence: titles 《…》 and asides （…）."""
        index = bisect_right(self.pair_starts, place) - 1
        if index < 0 or self.pairs[index][1] < place or self.pair_starts[index] < self.start:
            return False
        opened = self.pair_starts[index]
        is_inner = bool(self.text[max(self.start, opened - LOOK_BACK) : opened].strip())
        return is_inner or self.text[opened] in "《〈"

    def _past_closers(self, start: int, end: int) -> int:
        """The place after the closing quotes and brackets, and any further marks, that follow an end mark."""
        text = self.text
        self._num_quotes += text.count('"', self._counted_to, start)
        self._counted_to = start
        open_quote = self._num_quotes % 2 == 1
        while end < len(text):
            char = text[end]
            if char == '"' and open_quote:
                open_quote = False
            elif char == "'":
                if end + 1 < len(text) and (text[end + 1].isalnum() or text[end - 1].isspace()):
                    break
            elif char not in CLOSERS and not (char in ENDS and text[end - 1] not in ENDS):
                break
            end += 1
        return end

    def _hard_ends(self, marks: str, after: str, gap: bool, closed: bool) -> bool:
        if marks.isascii():
            if after.isascii() and not gap and after.isalnum():
                return False  # a?b=1
            return not (closed and gap and after.islower())  # "Go!" he said
        return not (closed and after == "的")  # “你好！”的意思

    def _stop_ends(self, start: int, past: int, after: str, gap: bool, closed: bool) -> bool:
        """Whether a single full stop ends the sentence."""
        text = self.text
        if not after:
            return True
        before = text[start - 1] if start > self.start else ""
        if not gap:
            if is_han(after) or (is_han(before) and after.isupper()):
                return closed or self._chinese_stop_ends(start, before)
            return (closed and after in OPENERS) or (after in "“「『" and not before.isdigit())
        if not before or before.isspace():
            return bool(before)  # tokenised text puts a space before its full stops
        token = _token_before(text, self.start, start)
        if token.isdigit() and not text[self.start : start - len(token)].strip():
            return False  # "1. First"
        if not _can_begin(after):
            return False
        return closed or self._word_stop_ends(token, text, past, after)

    def _word_stop_ends(self, token: str, text: str, past: int, after: str) -> bool:
        """Whether the stop after a word ends the sentence, or belongs to an abbreviation or an initial."""
        low = token.lower()
        if low in TITLES and not is_han(after):
            return False
        if low in NUMBERED:
            return not after.isdigit()
        is_initial = len(token) == 1 and token.isascii() and token.isupper()
        if is_initial or low in ANYWHERE or _ACRONYM.fullmatch(low):
            return is_han(after) or _next_word(text, past) in STARTERS or not after.isalnum()
        return True

    def _chinese_stop_ends(self, start: int, before: str) -> bool:
        """A "." among Chinese: an end after a clause, but not in a name (大卫.盖罗) or after "1." or "A."."""
        text = self.text
        if is_han(before):
            return start - 6 >= self.start and all(map(is_han, text[start - 6 : start]))
        token = _token_before(text, self.start, start)
        at_start = not text[self.start : start - len(token)].strip()
        return bool(token) and not (at_start or len(token) == 1 or token.lower() in TITLES | NUMBERED)


def _bracket_pairs(text: str) -> Spans:
    """The outermost matching brackets of each line, as (open, close), none longer than BRACKET_CHARS."""
    pairs: Spans = []
    opened: list[int] = []
    for match in _BRACKET.finditer(text):
        place, char = match.start(), match.group()
        if char == "\n":
            opened.clear()
        elif char not in BRACKETS:
            opened.append(place)
        elif opened and text[opened[-1]] == BRACKETS[char]:
            start = opened.pop()
            if place - start <= BRACKET_CHARS:
                while pairs and pairs[-1][0] > start:
                    pairs.pop()
                pairs.append((start, place))
    return pairs


def _following(text: str, place: int) -> tuple[str, bool]:
    """The first character from `place` on that is not white space, or "", and whether white space came before it."""
    end = place
    while end < len(text) and end < place + 1000 and text[end].isspace():
        if text[end] == "\n":
            return "", True
        end += 1
    return (text[end] if end < len(text) else ""), end > place


def _ellipsis_ends(after: str, gap: bool, closed: bool) -> bool:
    """An ellipsis ends a sentence only if a new one starts: after a space, a closing quote, or with an opening one."""
    if not after:
        return True
    if gap or closed:
        return _can_begin(after) and not (closed and after == "的")
    return after in "“「『"


def _can_begin(char: str) -> bool:
    """Whether a sentence can begin with the character: anything but a lower-case letter or a closing mark."""
    return not (char.islower() or char in CLOSERS or char in CONTINUES)


def _token_before(text: str, start: int, end: int) -> str:
    """The letters, digits and inner full stops right before a place: "e.g" before the last stop of "e.g."."""
    place = end
    limit = max(start, end - LOOK_BACK)
    while place > limit and (text[place - 1].isalnum() or text[place - 1] == ".") and not is_han(text[place - 1]):
        place -= 1
    return text[place:end].lstrip(".")


def _next_word(text: str, place: int) -> str:
    match = _WORD.search(text, place, place + 40)
    return match.group().lower() if match else ""


def is_han(char: str) -> bool:
    """Whether the character is a Chinese ideograph of the common planes."""
    return "\u4e00" <= char <= "\u9fff" or "\u3400" <= char <= "\u4dbf" or "\U00020000" <= char <= "\U0003ffff"
