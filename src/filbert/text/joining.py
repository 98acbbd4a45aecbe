"""Word pieces that a model wrote in, text as people write it out: "play ##ing , 你 好" becomes "playing, 你好".

A vocabulary keeps no spaces, so they are put back by rules: none beside Chinese and Japanese, none before what closes,
none after what opens, none inside 3.14, 12:30, don't and well-known, one between all other words. Where a text could
have been written in two ways ("in 2019. 14 people", "in 2019.14"), the closer one is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

PREFIX = "##"  # of a piece that goes on with the word before it
SILENT = frozenset(("[PAD]", "[CLS]", "[SEP]", "[MASK]"))  # what a model may write, but nobody reads
CLOSES = frozenset(".,;:!?)]}%°’”»…—")  # nothing between it and the word before
OPENS = frozenset("([{$£€¥#‘“«—")  # nothing between it and the word after
JOINS = frozenset("-/_@–\\")  # nothing on either side, between letters and digits
IN_NUMBERS = frozenset(".,:")
QUOTES = frozenset("\"'")  # the same sign opens and closes
APOSTROPHES = frozenset("'’")
ENDINGS = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))  # of English words after an apostrophe
# Scripts that are written without spaces: CJK punctuation and kana, ideographs (also the rarer ones), full-width forms.
UNSPACED = ((0x3000, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF),
            (0x20000, 0x323AF))  # fmt: skip


def joined(tokens: Iterable[str], after: str = "") -> str:
    """The text of these tokens; with `after`, what is to be put behind that text, a space included where one is due."""
    words = _words(tokens, is_continued=bool(after))
    is_open = {quote: after.count(quote) % 2 == 1 for quote in QUOTES}
    is_open["'"] = False  # in a text given these are apostrophes far more often than quotes
    text = after
    for word, following in itertools.pairwise((*words, "")):
        if text == after and _is_piece(word):  # goes on with the last word of the text given
            text += word.removeprefix(PREFIX)
            continue
        closing = is_open.get(word, False)
        if word in QUOTES and not _is_apostrophe(text, following):
            is_open[word] = not closing
        if text and _is_spaced(text, word, following, closing, is_open):
            text += " "
        text += word
    return text[len(after) :]


def _words(tokens: Iterable[str], is_continued: bool) -> list[str]:
    """The tokens with pieces put together; where the text goes on, a first piece keeps its mark."""
    words: list[str] = []
    for token in tokens:
        if token in SILENT or not token:
            continue
        if _is_piece(token) and words:
            words[-1] += token.removeprefix(PREFIX)
        else:
            words.append(token.removeprefix(PREFIX) if _is_piece(token) and not is_continued else token)
    return words


def _is_piece(token: str) -> bool:
    """Whether it goes on with the word before it; a lone ## is a sign like any other."""
    return token.startswith(PREFIX) and len(token) > len(PREFIX)


def _is_spaced(text: str, word: str, following: str, closing: bool, is_open: dict[str, bool]) -> bool:
    """Whether a space stands between the text so far and this word."""
    last, first = text[-1], word[0]
    if last.isspace() or _is_unspaced(last) or _is_unspaced(first):
        return False
    before = text[-2:-1]
    if first in APOSTROPHES and (_is_apostrophe(text, following) or first == "’"):
        return False
    if last in APOSTROPHES and before.isalpha() and word in ENDINGS:
        return False
    if first in QUOTES:
        return not closing and last not in OPENS
    if last in QUOTES and is_open[last]:
        return False
    if first in CLOSES or last in OPENS:
        return False
    if first in JOINS:
        return not (last.isalnum() and following[:1].isalnum())
    if last in JOINS and before.isalnum() and first.isalnum():
        return False
    return not (last in IN_NUMBERS and before.isdigit() and first.isdigit())


def _is_apostrophe(text: str, following: str) -> bool:
    """Whether a sign between this text and the word that follows stands inside a word: don't, it's."""
    return text[-1:].isalpha() and following in ENDINGS


def _is_unspaced(char: str) -> bool:
    """Whether the character is of a script that is written without spaces."""
    return any(low <= ord(char) <= high for low, high in UNSPACED)
