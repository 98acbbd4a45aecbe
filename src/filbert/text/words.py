"""A text and the name of a segmenter come in; words that concatenate to the text, or their spans, go out.

"jieba": rjieba if installed, else jieba, for Chinese. "whitespace": runs of white space and of anything else.
"character": every character. "auto": Chinese text through rjieba where it is installed, else every ideograph is a
word; text without ideographs is cut at white space and punctuation, as BERT's own pre-tokenizer does. "a.module:name"
or a function: the user's own.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, MissingExtra, needed, one_of
from filbert.core.protocols import Segmenter

NAMES = ("auto", "jieba", "whitespace", "character")

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# ASCII and general punctuation; joiners such as U+200D and all letters, digits, marks and symbols stay in words.
_PUNCTUATION = (
    "!-/:-@\\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u301f\uff01-\uff0f\uff1a-\uff20"
)
_PIECE = re.compile(rf"\s+|[{_HAN}]|[{_PUNCTUATION}]|[^\s{_HAN}{_PUNCTUATION}]+")
_SPACES = re.compile(r"\s+|\S+")
_ANY_HAN = re.compile(f"[{_HAN}]")
_LONE = re.compile("[\ud800-\udfff]")
_RUN_CHARS = 2**14  # of lines cut together: enough to pay for the call, few enough to stay in the cache


@dataclass(frozen=True, slots=True)
class Words:
    """A segmenter whose words are checked to concatenate to the text; `name` says what it really is."""

    name: str
    function: Callable[[str], Iterable[str]]
    by_line: bool = False  # ours: a line end is always a word of its own, so many lines can be cut together

    def __call__(self, text: str) -> list[str]:
        """The words in order, white space included."""
        words = list(self.function(text))
        if "".join(words) != text:
            raise InputError(
                f"the segmenter {self.name} must return words that concatenate to the text, but for "
                f"{text[:20]!r} it returned {words[:5]!r}; keep white space and change no character."
            )
        return words


def segmenter(name_or_function: str | Callable[[str], Iterable[str]] = "auto") -> Segmenter:
    """The segmenter of that name, or the user's function made safe."""
    choice: object = name_or_function
    if not isinstance(choice, str) and not callable(choice):
        raise InputError(f"the segmenter is {choice!r:.60}, but must be a function or one of: {', '.join(NAMES)}.")
    if not isinstance(name_or_function, str):
        return Words(getattr(name_or_function, "__name__", repr(name_or_function)), name_or_function)
    name = name_or_function
    if name == "auto":
        has_rjieba = importlib.util.find_spec("rjieba") is not None
        return Words("auto (rjieba)" if has_rjieba else "auto (characters)", _auto if has_rjieba else _pieces, True)
    if name == "jieba":
        return _jieba_words()
    if name in ("whitespace", "character"):
        return Words(name, _SPACES.findall if name == "whitespace" else list, True)
    if ":" in name:
        return Words(name, _imported(name))
    raise one_of("the segmenter", name, [*NAMES, "package.module:function"])


def _jieba_words() -> Words:
    if importlib.util.find_spec("rjieba") is not None:
        return Words("jieba (rjieba)", _rjieba, True)
    if importlib.util.find_spec("jieba") is not None:
        return Words("jieba (jieba)", _jieba, True)
    raise MissingExtra(
        "the segmenter jieba needs the package 'rjieba', which is not installed: pip install 'filbert[zh]'"
    )


@functools.cache
def _rjieba_cut() -> Callable[[str], list[str]]:
    cut: Callable[[str], list[str]] = needed("rjieba", "zh").cut
    return cut


def _rjieba(text: str) -> list[str]:
    cut = _rjieba_cut()
    try:
        return cut(text)
    except UnicodeEncodeError:
        pass
    # Rust strings hold no lone surrogates; the words keep their places, so they are cut from a mended copy.
    places = [0]
    for word in cut(_LONE.sub("\ufffd", text)):
        places.append(places[-1] + len(word))
    return [text[start:end] for start, end in itertools.pairwise(places)]


def _jieba(text: str) -> list[str]:
    return list(needed("jieba", "zh").cut(text))


def _auto(text: str) -> list[str]:
    return _rjieba(text) if _ANY_HAN.search(text) else _pieces(text)


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _imported(name: str) -> Callable[[str], Iterable[str]]:
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"the segmenter {name!r} cannot be imported ({error}); give package.module:function."
        ) from None
    if not callable(function):
        raise InputError(f"the segmenter {name!r} is not a function; give package.module:function.")
    imported: Callable[[str], Iterable[str]] = function
    return imported


def word_spans(text: str, segmenter: Segmenter) -> list[tuple[int, int]]:
    """[(start, end), …]: where the words stand in the text; white space around or between them is left out."""
    spans: list[tuple[int, int]] = []
    place = 0
    for word in segmenter(text):
        inner = word.strip()
        if inner:
            start = place + len(word) - len(word.lstrip())
            spans.append((start, start + len(inner)))
        place += len(word)
    return spans


def word_numbers(lines: Sequence[str], segmenter: Segmenter) -> npt.NDArray[np.int32]:
    """For every character of "\\n".join(lines), and its end, the number of its word; white space has numbers too.

    The words are those that the segmenter gives for each line by itself: a line must hold no line end and neither
    begin nor end with white space, as sentences do.
    """
    lengths: list[npt.NDArray[np.int32]] = []
    for words in _words_of_lines(lines, segmenter):
        lengths += [np.fromiter(map(len, words), dtype=np.int32, count=len(words)), np.ones(1, dtype=np.int32)]
    begins = np.cumsum(np.concatenate([np.zeros(1, dtype=np.int32), *lengths]), dtype=np.intp)
    size = sum(map(len, lines)) + len(lines)
    if begins[-1] != size:
        raise InputError(f"the segmenter {getattr(segmenter, 'name', segmenter)} lost or added characters.")
    is_begin = np.zeros(size + 1, dtype=np.uint8)
    is_begin[begins[1:]] = 1
    return np.cumsum(is_begin, dtype=np.int32)


def _words_of_lines(lines: Sequence[str], segmenter: Segmenter) -> Iterator[list[str]]:
    """The words of the lines in order, several lines at once with "\\n" between where the segmenter allows it."""
    if not (isinstance(segmenter, Words) and segmenter.by_line):
        yield from (list(segmenter(line)) for line in lines)
        return
    if segmenter.function is not _auto:
        yield from (list(segmenter.function("\n".join(run))) for run in _runs(lines))
        return
    for has_han, alike in itertools.groupby(lines, _has_han):
        yield from (_rjieba("\n".join(run)) if has_han else _pieces("\n".join(run)) for run in _runs(list(alike)))


def _has_han(line: str) -> bool:
    return "\u4e00" <= line[:1] <= "\u9fff" or _ANY_HAN.search(line) is not None


def _runs(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    start = size = 0
    for index, line in enumerate(lines):
        size += len(line)
        if size >= _RUN_CHARS:
            yield lines[start : index + 1]
            start, size = index + 1, 0
    if start < len(lines):
        yield lines[start:]
