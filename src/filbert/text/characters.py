"""What BERT does with single characters: text in, the places of its words and their normalised form out.

The rules are those of google-research/bert's BasicTokenizer. They work on characters one at a time but for two
things, which `settled` and `_ordered` take care of: the lower case of a capital sigma depends on its word, and
canonical order moves combining marks. So a text is cut by one table look-up, and each distinct word is folded once.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SPACE, DROP, SINGLE, WORD, UNSEEN = range(5)  # what a character is; UNSEEN ones are looked up when they first occur
CODE_POINTS = 0x110000
BLOCK = 4096  # characters folded at a time, so that a word of 20 MB is given up after the first block

# The reference's ideographs: the later extensions are not among them, and Hangul and kana are ordinary letters.
CJK_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# str.split() in the reference also splits at the two separators that are not of category Zs.
_SPACES = "\t\n\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NOTHING = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})  # categories that are dropped or taken for white space
_TOKEN = re.compile("[^" + _SPACES + "".join(f"{chr(low)}-{chr(high)}" for low, high in CJK_RANGES) + "]+")


def is_cjk(char: str) -> bool:
    """Whether the reference puts spaces around the character."""
    code = ord(char)
    return code >= 0x3400 and any(low <= code <= high for low, high in CJK_RANGES)


def is_punctuation(char: str) -> bool:
    """Whether the reference splits a word at the character: ASCII symbols count, other symbols do not."""
    if char.isascii():
        return "!" <= char <= "~" and not char.isalnum()
    return unicodedata.category(char).startswith("P")


def is_dropped(char: str) -> bool:
    """Whether cleaning removes the character; a lone surrogate is what decoding would have replaced by U+FFFD."""
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Cs")


def is_space(char: str) -> bool:
    """Whether the character ends a word and is part of none."""
    return char in "\t\n\r\u2028\u2029" or unicodedata.category(char) == "Zs"


def is_blank(text: str) -> bool:
    """Whether there is nothing to read: no character but white space, control and format characters."""
    return not any(unicodedata.category(char) not in _NOTHING for char in text)


@dataclass(frozen=True, slots=True)
class Units:
    """What a text of N characters falls into: W words and S characters that stand alone."""

    codes: npt.NDArray[np.intp]  # [N] the text's code points, as an index into tables
    alone: npt.NDArray[np.intp]  # [S] where characters stand alone
    starts: npt.NDArray[np.intp]  # [W]
    ends: npt.NDArray[np.intp]  # [W]
    words: list[str]  # [W] as they stand in the text, dropped characters inside them too


class Folded(NamedTuple):
    """A word as the vocabulary knows it; its k-th character came from word[begins[k]:finishes[k]]."""

    text: str
    begins: range | list[int]
    finishes: range | list[int]


class _Forms(dict[str, str]):
    """The normalised form of every character met so far; `movable` are those that canonical order may move."""

    def __init__(self, lowercase: bool, strip_accents: bool) -> None:
        super().__init__()
        self.lowercase, self.strip_accents = lowercase, strip_accents
        self.movable: set[str] = set()

    def decomposed(self, char: str) -> str:
        """The form with its accents still there."""
        char = char.lower() if self.lowercase else char
        return unicodedata.normalize("NFD", char) if self.strip_accents else char

    def __missing__(self, char: str) -> str:
        form = "" if is_dropped(char) else self.decomposed(char)
        if self.strip_accents:
            form = "".join(part for part in form if unicodedata.category(part) != "Mn")
            self.movable.update(part for part in form if unicodedata.combining(part))
        self[char] = form
        return form


class _Spelled(dict[int, str]):
    """What the normaliser of transformers makes of each code point, as `str.translate` takes it."""

    def __init__(self, forms: _Forms, split_cjk: bool) -> None:
        super().__init__()
        self.forms, self.split_cjk = forms, split_cjk

    def __missing__(self, code: int) -> str:
        char = chr(code)
        form = " " if is_space(char) and not is_dropped(char) else self.forms[char]
        self[code] = f" {form} " if self.split_cjk and is_cjk(char) else form
        return self[code]


class Characters:
    """The character rules under one setting of lower case, accents and ideographs."""

    def __init__(self, lowercase: bool = True, strip_accents: bool | None = None, split_cjk: bool = True) -> None:
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.split_cjk = split_cjk
        self._forms = _Forms(lowercase, lowercase if strip_accents is None else strip_accents)
        self._spelled = _Spelled(self._forms, split_cjk)
        self._kinds = np.full(CODE_POINTS, UNSEEN, dtype=np.uint8)

    def kind(self, char: str) -> int:
        """SPACE, DROP, SINGLE or WORD.

        Punctuation is judged after normalisation, as in the reference: U+2260 becomes '=' and stands alone. No
        character becomes punctuation and something else besides; a test goes through all of Unicode for that.
        """
        if is_dropped(char):
            return DROP
        if is_space(char):
            return SPACE
        if (self.split_cjk and is_cjk(char)) or any(map(is_punctuation, self._forms[char])):
            return SINGLE
        return WORD

    def kinds(self, codes: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
        """The kind of each code point, by one table that fills as characters are met."""
        kinds = self._kinds.take(codes)
        if kinds.size and kinds.max() == UNSEEN:
            new = np.unique(codes[kinds == UNSEEN])
            self._kinds[new] = [self.kind(chr(code)) for code in new.tolist()]
            kinds = self._kinds.take(codes)
        return kinds

    def settled(self, text: str) -> str:
        """The text with every capital sigma replaced by the small one that the reference's lower() gives it."""
        if not self.lowercase or "Σ" not in text:
            return text
        return _TOKEN.sub(lambda match: _settled_token(match[0]) if "Σ" in match[0] else match[0], text)

    def normal(self, text: str) -> str:
        """The whole text as transformers normalises it: folded, with spaces around ideographs."""
        return text.translate(self._spelled)

    def units(self, text: str) -> Units:
        """Where the words and lone characters of a settled text lie; dropped characters do not split a word."""
        codes = code_points(text)
        kinds = self.kinds(codes)
        is_word = kinds == WORD
        alone = np.flatnonzero(kinds == SINGLE)
        if kinds.size and (kinds == DROP).any():
            kept = np.flatnonzero(kinds != DROP)
            starts, lasts = (kept[places] for places in _runs(is_word[kept]))
            ends = lasts + 1
            words = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        else:
            starts, lasts = _runs(is_word)
            ends = lasts + 1
            # Blanking all but the words and splitting there is twice as fast as slicing word by word.
            words = np.where(is_word, codes, ord(" ")).astype(np.uint32).tobytes().decode("utf-32-le").split()
        return Units(codes, alone, starts, ends, words)

    def cut(self, text: str, start: int, size: int) -> int:
        """The end of a stretch that cuts no word: at most `size` characters, or one single word if that is longer."""
        end = start + size
        if end >= len(text):
            return len(text)
        for tail in (min(BLOCK, size), size):
            edges = self._edges(text[end - tail : end])
            if edges.size:
                return end - tail + int(edges[-1]) + 1
        for at in range(end, len(text), size):
            edges = self._edges(text[at : at + size])
            if edges.size:
                return at + int(edges[0])
        return len(text)

    def _edges(self, text: str) -> npt.NDArray[np.intp]:
        """Where characters are that belong to no word."""
        kinds = self.kinds(code_points(text))
        return np.flatnonzero((kinds == SPACE) | (kinds == SINGLE))

    def folded(self, word: str, limit: int) -> Folded | None:
        """The word normalised, with where each character came from; None where it has more than `limit` of them."""
        if word.isascii() and word.isalnum():
            text = word.lower() if self.lowercase else word
            return Folded(text, range(len(word)), range(1, len(word) + 1)) if len(word) <= limit else None
        text, sources = "", list[int]()
        forms = self._forms
        for at in range(0, len(word), BLOCK):
            parts = [forms[char] for char in word[at : at + BLOCK]]
            text += "".join(parts)
            if len(text) > limit:
                return None
            sources += [at + place for place, part in enumerate(parts) for _ in part]
        if forms.movable and not forms.movable.isdisjoint(text):
            text, sources = self._ordered(word)
        return _with_extents(text, sources, len(word))

    def _ordered(self, word: str) -> tuple[str, list[int]]:
        """The word's kept characters in canonical order and their places, as NFD of the whole word would order them.

        Marks are sorted by class between characters of class 0. Accents are gone from the result but those of class 0
        still part the others. Sorting keeps this linear in the marks, where NFD itself is quadratic.
        """
        rows: list[tuple[int, int, int, str]] = []
        stretch = 0
        for place, char in enumerate(word):
            for part in "" if is_dropped(char) else self._forms.decomposed(char):
                order = unicodedata.combining(part)
                stretch += order == 0
                if unicodedata.category(part) != "Mn":
                    rows.append((stretch, order, place, part))
        rows.sort(key=lambda row: row[:2])
        return "".join(row[3] for row in rows), [row[2] for row in rows]


def code_points(text: str) -> npt.NDArray[np.intp]:
    """[N] the numbers of the text's characters, lone surrogates included, as an index into tables."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.intp)


def _runs(inside: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The first and last places of every stretch that is inside."""
    padded = np.zeros(len(inside) + 2, dtype=np.bool_)
    padded[1:-1] = inside
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return edges[::2], edges[1::2] - 1


def _settled_token(token: str) -> str:
    """A token as the reference lowers it, in its capital sigmas only; it has the dropped characters out by then."""
    dropped = [ord(char) for char in set(token) if is_dropped(char)]
    lowered = token.translate(dict.fromkeys(dropped)).lower()
    codes = code_points(token)
    # Only İ grows in lower case, and it does so wherever it stands: so lengths add up.
    sizes = np.where(np.isin(codes, dropped), 0, np.where(codes == ord("İ"), 2, 1)).astype(np.int8)
    sigmas = codes == ord("Σ")
    places = np.cumsum(sizes, dtype=np.int32)[sigmas] - 1
    codes[sigmas] = code_points(lowered)[places]
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _with_extents(text: str, sources: list[int], length: int) -> Folded:
    """Begins and ends that never run backwards: dropped marks go with the character before, moved ones overlap."""
    if not sources:
        return Folded(text, sources, sources)
    begins = list(accumulate(reversed(sources), min))[::-1]
    finishes = [place + 1 for place in accumulate(sources, max)]
    finishes[-1] = length
    for k in range(len(finishes) - 2, -1, -1):
        finishes[k] = begins[k + 1] if begins[k + 1] >= finishes[k] else finishes[k + 1]
    return Folded(text, begins, finishes)
