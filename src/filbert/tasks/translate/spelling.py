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
from filbert.text.tokenizer import Tokens

ENDS = frozenset(".!?:;。！？：；\n\"'“”‘’()（）「」《》")  # after which a sentence may begin
Ids = tuple[int, ...]
Spellings = Mapping[Ids, str]

Flags = npt.NDArray[np.bool_]


def spellings(text: str, tokens: Tokens, continues: Flags, vocabulary: Sequence[str]) -> Spellings:
    """How words are spelt that are spelt otherwise than their pieces are.

    tokens: of the text. continues: [V] whether a token goes on with the word before it.
    """
    ids, starts, ends = tokens
    counted: dict[Ids, Counter[str]] = {}
    for first, last in pairwise(np.append(np.flatnonzero(~continues[ids]), len(ids)).tolist()):
        start, end = int(starts[first]), int(ends[last - 1])
        word, word_ids = text[start:end], tuple(ids[first:last].tolist())
        if not _begins_sentence(text, start, end):
            counted.setdefault(word_ids, Counter())[word] += 1
    best = {word_ids: counts.most_common(1)[0][0] for word_ids, counts in counted.items()}
    return {word_ids: word for word_ids, word in best.items() if word != as_pieces(word_ids, vocabulary)}


def spelt(ids: Sequence[int], spelling_of: Spellings, continues: Flags, vocabulary: Sequence[str]) -> list[str]:
    """The tokens of a generated text; a word that the source spells is one token, spelt as there."""
    return [token for word_ids in _words(ids, continues) for token in _tokens(word_ids, spelling_of, vocabulary)]


def as_pieces(word_ids: Ids, vocabulary: Sequence[str]) -> str:
    """A word as its pieces spell it."""
    return "".join(vocabulary[index].removeprefix(PREFIX) for index in word_ids)


def _tokens(word_ids: Ids, spelling_of: Spellings, vocabulary: Sequence[str]) -> list[str]:
    return [spelling_of[word_ids]] if word_ids in spelling_of else [vocabulary[index] for index in word_ids]


def _words(ids: Sequence[int], continues: Flags) -> Iterator[Ids]:
    """Runs of tokens that are a word each; what goes on with a word that is not there stands by itself."""
    run: list[int] = []
    for index in ids:
        if run and not continues[index]:
            yield tuple(run)
            run = []
        run.append(index)
    if run:
        yield tuple(run)


def _begins_sentence(text: str, start: int, end: int) -> bool:
    """Whether it has a large first letter alone, and may have it since an English sentence begins here."""
    word = text[start:end]
    if not word[:1].isupper() or word[1:] != word[1:].lower():
        return False
    before, after = text[:start].rstrip()[-1:], text[end : end + 2]
    is_english = not after.strip() or (after[0] in " ,'-" and after[-1:].isascii())
    return (not before or before in ENDS) and is_english
