"""The words or characters of a sentence come in; the text that they make goes out, with where each of them stands."""

from __future__ import annotations

import re

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
