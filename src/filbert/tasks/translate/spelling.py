"""A text and its tokens in, how it spells its words out: so what is taken over from it is written as it writes it.

A vocabulary without capitals writes "gprs" and "dna", and leaves accents out. A word of the source that comes back
whole has the source's own spelling, the most frequent one where there are several. A first letter that is large because
an English sentence begins with it says nothing of the word, and is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from filbert.text.joining import PREFIX

ENDS = frozenset(".!?:;。！？：；\n\"'“”‘’()（）「」《》")  # after which a sentence may begin
Ids = tuple[int, ...]
Spellings = Mapping[Ids, str]
Whole = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]


def spellings(text: str, tokens: tuple[Whole, Whole, Whole], continues: Flags, vocabulary: Sequence[str]) -> Spellings:
    """How words are spelt that are spelt otherwise than their pieces are.

    tokens: (ids, starts, ends) of the text. continues: [V] whether a token goes on with the word before it.
    """
    ids, starts, ends = tokens
    found: dict[Ids, Counter[str]] = {}
    for first, last in pairwise(np.append(np.flatnonzero(~continues[ids]), len(ids)).tolist()):
        start, end = int(starts[first]), int(ends[last - 1])
        word, own = text[start:end], tuple(ids[first:last].tolist())
        if not _is_begun(text, start, end):
            found.setdefault(own, Counter())[word] += 1
    best = {own: counts.most_common(1)[0][0] for own, counts in found.items()}
    return {own: word for own, word in best.items() if word != plain(own, vocabulary)}


def spelt(ids: Sequence[int], known: Spellings, continues: Flags, vocabulary: Sequence[str]) -> list[str]:
    """The tokens of what was written; a word that is known is one token, spelt as it is known."""
    return [token for own in _words(ids, continues) for token in _tokens(own, known, vocabulary)]


def plain(own: Ids, vocabulary: Sequence[str]) -> str:
    """A word as its pieces spell it."""
    return "".join(vocabulary[index].removeprefix(PREFIX) for index in own)


def _tokens(own: Ids, known: Spellings, vocabulary: Sequence[str]) -> list[str]:
    return [known[own]] if own in known else [vocabulary[index] for index in own]


def _words(ids: Sequence[int], continues: Flags) -> Iterator[Ids]:
    """Runs of tokens that are a word each; what goes on with a word that is not there stands by itself."""
    begun: list[int] = []
    for index in ids:
        if begun and not continues[index]:
            yield tuple(begun)
            begun = []
        begun.append(index)
    if begun:
        yield tuple(begun)


def _is_begun(text: str, start: int, end: int) -> bool:
    """Whether it has a large first letter alone, and may have it since an English sentence begins here."""
    word = text[start:end]
    if not word[:1].isupper() or word[1:] != word[1:].lower():
        return False
    before, after = text[:start].rstrip()[-1:], text[end : end + 2]
    is_english = not after.strip() or (after[0] in " ,'-" and after[-1:].isascii())
    return (not before or before in ENDS) and is_english
