"""Tokens of a text or a pair in, the overlapping windows that it is read in out.

Every token is read, and is owned by exactly one window: the one in which it stands farthest from a cut. A text that
fits is one window, so that there is one path for short and long. Of a pair, the second text is windowed and the first
is repeated in every window (a question stays beside each stretch of its document). Where the first leaves too little
room, the second is repeated and the first windowed; where neither can be repeated, both advance side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.text.tokenizer import TokenEncoding, Tokenizer, Tokens

LEAST_ROOM = 64  # tokens that must be left for the windowed text of a pair, or half of the length where that is less


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens start:end are read together; own_start:own_end, inside them, are answered for."""

    start: int
    end: int
    own_start: int
    own_end: int


@dataclass(frozen=True, slots=True)
class WindowEncoding(TokenEncoding):
    """One window as the model reads it, and what of it counts when the windows are merged."""

    owned: npt.NDArray[np.bool_] = field(repr=False)  # [N] False for [CLS], [SEP] and tokens that another window owns
    num_tokens: int  # of the whole example, both texts, special tokens not counted


def windows(num_tokens: int, room: int, overlap: int) -> list[Window]:
    """The fewest windows of at most `room` tokens that share `overlap` with the next, of even length."""
    if room < 1 or not 0 <= overlap < room:
        raise InputError(
            f"windows of {room} tokens cannot overlap by {overlap}; the overlap must be from 0 to {room - 1}."
        )
    count = max(1, -(-(num_tokens - overlap) // (room - overlap)))
    # Laid end to end, the windows hold every token once and every overlap twice.
    length, longer = divmod(num_tokens + (count - 1) * overlap, count)
    starts = [index * (length - overlap) + min(index, longer) for index in range(count)]
    ends = [start + overlap for start in starts[1:]] + [num_tokens]
    # Midway between two cuts is equally far from both.
    owners = [0, *((start + end + 1) // 2 for start, end in zip(starts[1:], ends, strict=False)), num_tokens]
    return [Window(*row) for row in zip(starts, ends, owners[:-1], owners[1:], strict=True)]


def encode_windows(
    tokenizer: Tokenizer,
    text: str,
    pair: str | None = None,
    max_length: int = 512,
    overlap: int = 128,
    max_windows: int | None = None,
) -> list[WindowEncoding]:
    """A text or a pair as windows of at most `max_length` tokens, all of it unless `max_windows` asks for less."""
    pieces = tokenizer.pieces([text] if pair is None else [text, pair])
    second = None if pair is None else pieces[1]
    return windowed(tokenizer, pieces[0], second, max_length, overlap)[:max_windows]


def windowed(
    tokenizer: Tokenizer, first: Tokens, second: Tokens | None, max_length: int, overlap: int
) -> list[WindowEncoding]:
    """`encode_windows` for texts already cut into tokens; an overlap of more than half the room counts as half."""
    lengths = (len(first.ids), None if second is None else len(second.ids))
    result = []
    for left, right in plan(*lengths, max_length, overlap):
        tokens = first.cut(left.start, left.end)
        others = None if second is None or right is None else second.cut(right.start, right.end)
        encoding = tokenizer.assembled(tokens, others)
        owned = np.zeros(len(encoding), dtype=np.bool_)
        for at, window in ((1, left), (2 + len(tokens.ids), right)):
            if window is not None:
                owned[at + window.own_start - window.start : at + window.own_end - window.start] = True
        columns = (encoding.ids, encoding.segments, encoding.parts, encoding.starts, encoding.ends)
        result.append(WindowEncoding(*columns, encoding.vocabulary, owned, lengths[0] + (lengths[1] or 0)))
    return result


def plan(first: int, second: int | None, max_length: int, overlap: int) -> list[tuple[Window, Window | None]]:
    """Which stretches of one or two texts of so many tokens are read together."""
    room = max_length - (2 if second is None else 3)
    if room < (1 if second is None else 2) or overlap < 0:
        raise InputError(f"max_length is {max_length} and overlap {overlap}, but they must be at least 5 and 0.")
    if second is None:
        return [(window, None) for window in _clipped(first, room, overlap)]
    least = min(LEAST_ROOM, room // 2)
    if first + second <= room or room - first >= least:
        rights = _clipped(second, max(room - first, 1), overlap)
        return list(zip(_owned_once([_whole(first)], len(rights)), rights, strict=True))
    if room - second >= least:
        lefts = _clipped(first, room - second, overlap)
        return list(zip(lefts, _owned_once([_whole(second)], len(lefts)), strict=True))
    lefts, rights = _clipped(first, room - room // 2, overlap), _clipped(second, room // 2, overlap)
    count = max(len(lefts), len(rights))
    return list(zip(_owned_once(lefts, count), _owned_once(rights, count), strict=True))


def num_read(first: int, second: int, max_length: int, overlap: int) -> int:
    """How many tokens all windows of a pair hold, at most: what is repeated in each counts each time.

    A closed form of `plan`, for a pair whose windows would be too many to make.
    """
    room = max_length - 3
    if first + second <= room:
        return first + second + 3
    least = min(LEAST_ROOM, room // 2)
    for whole, other in ((first, second), (second, first)):
        if room - whole >= least:
            count, tokens = _laid(other, room - whole, overlap)
            return tokens + count * (whole + 3)
    return (room + 3) * max(_laid(first, room - room // 2, overlap)[0], _laid(second, room // 2, overlap)[0])


def _laid(num_tokens: int, room: int, overlap: int) -> tuple[int, int]:
    """How many windows a text has, and the tokens of all of them."""
    shared = min(overlap, room // 2)
    count = max(1, -(-(num_tokens - shared) // (room - shared)))
    return count, num_tokens + (count - 1) * shared


def _whole(num_tokens: int) -> Window:
    return Window(0, num_tokens, 0, num_tokens)


def _clipped(num_tokens: int, room: int, overlap: int) -> list[Window]:
    return windows(num_tokens, room, min(overlap, room // 2))


def _owned_once(few: Sequence[Window], count: int) -> list[Window]:
    """The windows spread over `count` places in order, each as often as needed but owning its tokens only once."""
    indices = [place * len(few) // count for place in range(count)]
    fresh = [place == 0 or indices[place] != indices[place - 1] for place in range(count)]
    return [
        few[index] if new else Window(few[index].start, few[index].end, few[index].start, few[index].start)
        for index, new in zip(indices, fresh, strict=True)
    ]


def coverage(encodings: Sequence[WindowEncoding]) -> float:
    """The share of the example's tokens that the windows own: 1.0 unless some were left out."""
    total = encodings[0].num_tokens if encodings else 0
    return sum(int(encoding.owned.sum()) for encoding in encodings) / total if total else 1.0
