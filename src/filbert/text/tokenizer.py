"""WordPiece as BERT has it: texts in, token ids out, with offsets that slice the texts as given.

The reference is google-research/bert's tokenization. Texts are joined and cut into words by one pass over arrays
(see characters.py); each distinct word is split into pieces once and remembered, so running text costs a look-up.
"""

from __future__ import annotations

import operator
import string
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.files import named
from filbert.core.records import Encoding, Ints
from filbert.text import arguments, vocab
from filbert.text.added import Finder
from filbert.text.characters import CODE_POINTS, Characters, is_cjk, is_dropped, is_punctuation
from filbert.text.vocab import PREFIX, SPECIALS

CHUNK = 2**18  # characters looked at together: large enough for NumPy, small enough for the cache
MEMO_WORDS = 2**18  # words remembered, about 50 MB; then all are forgotten, which costs little
MEMO_PIECES = 2**22
MEMO_CHARS = 256  # longer words are not worth remembering
MANY_WORDS = 300  # new words in a chunk that are better split together


_Tree = dict[str, tuple[int, Any]]  # character -> id of the piece that ends there or -1, and the tree of what goes on


class Tokens(NamedTuple):
    """One text's tokens without special ones: N ids and the characters they came from."""

    ids: Ints  # [N]
    starts: Ints  # [N]
    ends: Ints  # [N]

    def cut(self, start: int, end: int | None) -> Tokens:
        """The tokens from start to end."""
        return Tokens(self.ids[start:end], self.starts[start:end], self.ends[start:end])


@dataclass(frozen=True, slots=True)
class Pieces:
    """The tokens of many texts in one row; text b has boundaries[b]:boundaries[b+1], offsets count from its start."""

    ids: Ints  # [T]
    starts: Ints  # [T]
    ends: Ints  # [T]
    boundaries: npt.NDArray[np.int64]  # [B+1]

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def __getitem__(self, index: int) -> Tokens:
        start, end = self.boundaries[index], self.boundaries[index + 1]
        return Tokens(self.ids[start:end], self.starts[start:end], self.ends[start:end])

    def __iter__(self) -> Iterator[Tokens]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True)
class TokenEncoding(Encoding):
    """An Encoding that knows its tokens' names; what `encode` gives."""

    vocabulary: Sequence[str] = field(repr=False, compare=False)

    @property
    def tokens(self) -> list[str]:
        """The tokens as the vocabulary writes them."""
        return [self.vocabulary[index] for index in self.ids.tolist()]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(start, end) of each token in the text it came from; (0, 0) for special tokens."""
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))


class _Memo(dict[str, int]):
    """Word -> entry; entry e has pieces edges[e]:edges[e+1]. A word not met before is split when it is asked for."""

    def __init__(self, tokens: Sequence[str], unknown: int, characters: Characters, max_word_chars: int) -> None:
        super().__init__()
        self.characters, self.unknown, self.max_word_chars = characters, unknown, max_word_chars
        self.tokens = tokens
        self.first = {token: index for index, token in enumerate(tokens) if not _continues(token)}
        self.later = {token[len(PREFIX) :]: index for index, token in enumerate(tokens) if _continues(token)}
        self.longest = max(map(len, self.first)), max(map(len, self.later), default=0)
        self.march: _March | None = None  # made when many new words come at once: its trees take a tenth of a second
        self.alone = np.full(CODE_POINTS, -1, dtype=np.int32)  # id of each character met that stands alone
        self.forget()

    def forget(self) -> None:
        """Empties the memory."""
        self.clear()
        self.edges = array("i", [0])
        self.ids, self.starts, self.ends = array("i"), array("i"), array("i")

    def __missing__(self, word: str) -> int:
        entry = len(self.edges) - 1
        ids, starts, ends = self.split(word)
        self.ids.fromlist(ids)
        self.starts.fromlist(starts)
        self.ends.fromlist(ends)
        self.edges.append(len(self.ids))
        if len(word) <= MEMO_CHARS:
            self[word] = entry
        return entry

    def split(self, word: str) -> tuple[list[int], list[int], list[int]]:
        """The ids, starts and ends of the word's pieces, or of one [UNK] for it all."""
        folded = self.characters.folded(word, self.max_word_chars)
        matched = None if folded is None else self._matched(folded.text)
        if folded is None or matched is None:
            return [self.unknown], [0], [len(word)]
        ids, ends = matched
        starts = [0, *ends[:-1]] if ends else []
        if isinstance(folded.begins, range):  # nothing was moved, so the places are those of the word itself
            return ids, starts, ends
        return ids, [folded.begins[start] for start in starts], [folded.finishes[end - 1] for end in ends]

    def _matched(self, text: str) -> tuple[list[int], list[int]] | None:
        """The ids of the longest pieces that fit, one after the other, and where each ends; None where none fits."""
        ids, ends = list[int](), list[int]()
        start, size, pieces, longest = 0, len(text), self.first, self.longest[0]
        while start < size:
            for end in range(min(size, start + longest), start, -1):
                piece_id = pieces.get(text[start:end])
                if piece_id is not None:
                    break
            else:
                return None
            ids.append(piece_id)
            ends.append(end)
            start, pieces, longest = end, self.later, self.longest[1]
        return ids, ends

    def places_of(self, words: Sequence[str]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Where each word's pieces begin in the memory, and how many they are."""
        entries = np.fromiter(map(self.get, words, repeat(-1)), dtype=np.intp, count=len(words))
        missed = np.flatnonzero(entries < 0).tolist()
        if len(missed) >= MANY_WORDS:
            self._learn([word for word in dict.fromkeys(words[place] for place in missed) if _is_ascii_word(word)])
        if missed:
            entries[missed] = [self[words[place]] for place in missed]
        edges = _view(self.edges)
        firsts = edges.take(entries).astype(np.intp)
        return firsts, edges.take(entries + 1) - firsts

    def _learn(self, words: Sequence[str]) -> None:
        """Splits many ASCII words together, several times faster than one by one."""
        if self.march is None:
            self.march = _March(*_tree(self.tokens), self.characters.lowercase)
        owners, ids, starts, ends = self.march.split(words)
        lengths = np.array([len(word) for word in words])
        lost = np.zeros(len(words), dtype=np.bool_)
        lost[owners[ids < 0]] = True
        lost |= lengths > self.max_word_chars
        unknown = np.flatnonzero(lost)
        kept = ~lost[owners]
        owners = np.concatenate([owners[kept], unknown])
        order = np.argsort(owners, kind="stable")
        columns = (ids, np.full_like(unknown, self.unknown)), (starts, np.zeros_like(unknown)), (ends, lengths[unknown])
        for memory, (learnt, other) in zip((self.ids, self.starts, self.ends), columns, strict=True):
            memory.frombytes(np.concatenate([learnt[kept], other])[order].astype(np.int32).tobytes())
        first = len(self.edges) - 1
        edges = self.edges[-1] + np.cumsum(np.bincount(owners, minlength=len(words)))
        self.edges.frombytes(edges.astype(np.int32).tobytes())
        self.update(zip(words, range(first, first + len(words)), strict=True))

    def ids_of(self, codes: npt.NDArray[np.intp]) -> Ints:
        """The ids of characters that stand alone."""
        ids = self.alone.take(codes)
        if ids.size and ids.min() < 0:
            new = np.unique(codes[ids < 0])
            self.alone[new] = [self.split(chr(code))[0][0] for code in new.tolist()]
            ids = self.alone.take(codes)
        return ids


def _tree(tokens: Sequence[str]) -> tuple[_Tree, _Tree]:
    """Two trees, of the pieces that begin a word and of the later ones."""
    first: _Tree = {}
    later: _Tree = {}
    for index, token in enumerate(tokens):
        children, name = (later, token[len(PREFIX) :]) if _continues(token) else (first, token)
        for char in name[:-1]:
            children = children.setdefault(char, (-1, {}))[1]
        if name:
            children[name[-1]] = (index, children[name[-1]][1] if name[-1] in children else {})
    return first, later


def _is_ascii_word(word: str) -> bool:
    """Whether folding the word means its lower case at most, and it is worth remembering."""
    return len(word) <= MEMO_CHARS and word.isascii() and word.isalnum()


class _March:
    """Longest-match splitting of many ASCII words at once: each step takes every word one letter down a tree of pieces.

    Node 0 is no piece, 1 the root of the tree of first pieces, 2 that of later ones. Letter 0 is the end of a word.
    """

    def __init__(self, first: _Tree, later: _Tree, lowercase: bool) -> None:
        letters = string.digits + string.ascii_lowercase + ("" if lowercase else string.ascii_uppercase)
        self.lowercase = lowercase
        self.width = len(letters) + 1
        self.letters = np.zeros(128, dtype=np.intp)
        self.letters[[ord(letter) for letter in letters]] = range(1, self.width)
        trees: list[_Tree] = [{}, first, later]
        pieces = [-1, -1, -1]
        edges: list[int] = []  # node * width + letter, of nodes 3, 4, 5 and so on
        for node, tree in enumerate(trees):  # which grows meanwhile
            for char, (index, children) in tree.items():
                if char in letters:
                    edges.append(node * self.width + letters.index(char) + 1)
                    trees.append(children)
                    pieces.append(index)
        self.pieces = np.array(pieces)
        self.steps = np.zeros(len(trees) * self.width, dtype=np.int32)
        self.steps[edges] = range(3, len(trees))

    def split(self, words: Sequence[str]) -> tuple[npt.NDArray[np.intp], ...]:
        """Each piece's word, id, start and end, a word's pieces in order; the id is -1 where no piece fits."""
        text = "\n".join([*words, ""])
        text = text.lower() if self.lowercase else text
        letters = self.letters.take(np.frombuffer(text.encode("ascii"), dtype=np.uint8))
        begins = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
        word, start, end, place = np.arange(len(words)), begins, begins, begins.copy()
        node, piece_id = np.ones_like(word), np.full_like(word, -1)
        rows = [(word[:0],) * 4]
        while word.size:
            node = self.steps.take(node * self.width + letters.take(place)).astype(np.intp)
            place += node > 0
            piece = self.pieces.take(node)
            piece_id, end = np.where(piece >= 0, piece, piece_id), np.where(piece >= 0, place, end)
            stopped = node == 0
            row = (
                word[stopped],
                piece_id[stopped],
                start[stopped] - begins[word[stopped]],
                end[stopped] - begins[word[stopped]],
            )
            rows.append(row)
            is_unfinished = ~stopped | ((piece_id >= 0) & (letters.take(end) > 0))
            start, place = np.where(stopped, end, start), np.where(stopped, end, place)
            node, piece_id = np.where(stopped, 2, node), np.where(stopped, -1, piece_id)
            if not is_unfinished.all():
                word, start, end, place, node, piece_id = (
                    a[is_unfinished] for a in (word, start, end, place, node, piece_id)
                )
        return tuple(np.concatenate(column) for column in zip(*rows, strict=True))


class Tokenizer:
    """A vocabulary and how text is cut to fit it; made by hand from tokens, or with `Tokenizer.load(path)`.

    `added` are further tokens, numbered after the others, that are found in the raw text before anything else; those
    that are `added.Normalized` in the text as it is folded.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
        max_word_chars: int = 200,
        added: Sequence[str] = (),
    ) -> None:
        names = (
            tuple(arguments.listed(tokens, "Tokenizer", "token")),
            tuple(arguments.listed(added, "Tokenizer", "token")),
        )
        settings = vocab.Vocabulary(names[0], lowercase, strip_accents, split_cjk, max_word_chars, names[1])
        self.settings = settings
        self.vocabulary = settings.all_tokens()
        _check(settings)
        vocab.check(self.vocabulary)
        self.vocab_size = len(self.vocabulary)
        self._ids = {token: index for index, token in enumerate(self.vocabulary)}
        self.special_ids = tuple(self._ids[name] for name in SPECIALS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.characters = Characters(lowercase, strip_accents, split_cjk)
        self._memo: _Memo | None = None  # built when first needed: a tree of 30,000 tokens takes 50 ms
        self._lock = threading.Lock()
        self._added = Finder(settings.added, self._ids, self.characters)
        self._controls = Finder((*settings.added, *SPECIALS), self._ids, self.characters)

    def __reduce__(self) -> tuple[Any, ...]:
        kept = self.settings
        settings = (kept.lowercase, kept.strip_accents, kept.split_cjk, kept.max_word_chars, kept.added)
        return Tokenizer, (kept.tokens, *settings)

    @property
    def lowercase(self) -> bool:
        """Whether case and, unless said otherwise, accents are taken away."""
        return self.settings.lowercase

    @staticmethod
    def load(path: Path | str, lowercase: bool | None = None) -> Tokenizer:
        """A tokenizer from vocab.txt, tokenizer.json or a folder that holds either; `lowercase` overrides the file."""
        read = vocab.read(path)
        cased = read.lowercase if lowercase is None else lowercase  # what is neither true nor false is refused below
        return Tokenizer(read.tokens, cased, read.strip_accents, read.split_cjk, read.max_word_chars, read.added)

    def save(self, folder: Path | str, max_length: int | None = None) -> None:
        """Writes vocab.txt, tokenizer.json and tokenizer_config.json, which transformers reads as well."""
        if not (max_length is None or (type(max_length) is int and max_length > 0)):
            raise InputError(f"max_length is {max_length!r:.60}, but must be a whole number of tokens, or None.")
        vocab.write(self.settings, named(folder, "the folder", "the path of a folder to write to"), max_length)

    @property
    def cuts(self) -> tuple[Any, ...]:
        """All settings that ids depend on: two tokenizers with equal ones give every text the same ids."""
        kept = self.settings
        accents = kept.lowercase if kept.strip_accents is None else kept.strip_accents
        added = sorted((token, type(token).__name__) for token in kept.added)
        return self.vocabulary, kept.lowercase, accents, kept.split_cjk, kept.max_word_chars, added

    @property
    def continues(self) -> npt.NDArray[np.bool_]:
        """[V] whether the token goes on with the word before it."""
        return np.array([_continues(token) for token in self.vocabulary])

    def id_of(self, token: str) -> int:
        """The token's id; an unknown one is refused, since [UNK] has an id of its own."""
        if not isinstance(token, str) or token not in self._ids:
            raise InputError(f"the token {token!r} is not one of the {self.vocab_size:,} in the vocabulary.")
        return self._ids[token]

    def token_of(self, index: int) -> str:
        """The token with that id."""
        try:
            place = operator.index(index)
        except TypeError:
            place = -1
        if not 0 <= place < self.vocab_size:
            raise InputError(f"the token id {index!r:.60} is not between 0 and {self.vocab_size - 1}.")
        return self.vocabulary[place]

    def __contains__(self, token: object) -> bool:
        return isinstance(token, str) and token in self._ids

    def tokens(self, encoding: Encoding) -> list[str]:
        """The names of an encoding's tokens."""
        return [self.vocabulary[index] for index in encoding.ids.tolist()]

    def encode(self, text: str, pair: str | None = None, specials: bool = False) -> TokenEncoding:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP]; with `specials`, "[MASK]" in the text is the mask."""
        texts = [arguments.one(each, "encode") for each in ((text,) if pair is None else (text, pair))]
        return self.assembled(*self.pieces(texts, specials=specials))

    def encode_batch(self, texts: Iterable[str], pairs: Iterable[str] | None = None) -> list[TokenEncoding]:
        """`encode` for many texts at once, which is much faster than one by one."""
        texts = arguments.texts(texts, "encode_batch")
        pairs = None if pairs is None else arguments.texts(pairs, "encode_batch")
        if pairs is None:
            return [self.assembled(tokens) for tokens in self.pieces(texts)]
        if len(pairs) != len(texts):
            raise InputError(f"there are {len(texts)} texts but {len(pairs)} pairs; each text needs one.")
        both = zip(self.pieces(texts), self.pieces(pairs), strict=True)
        return [self.assembled(first, second) for first, second in both]

    def assembled(self, first: Tokens, second: Tokens | None = None) -> TokenEncoding:
        """Tokens with [CLS] and [SEP] around them, as the model reads them."""
        sizes = [1, len(first.ids), 1] + ([len(second.ids), 1] if second is not None else [])
        parts = np.repeat(np.array([-1, 0, -1, 1, -1][: len(sizes)], dtype=np.int32), sizes)
        segments = np.repeat(np.array([0, 0, 0, 1, 1][: len(sizes)], dtype=np.int32), sizes)
        ids = np.full(len(parts), self.sep_id, dtype=np.int32)
        ids[0] = self.cls_id
        starts, ends = np.zeros_like(ids), np.zeros_like(ids)
        for part, tokens in enumerate((first, second)):
            if tokens is not None:
                inside = parts == part
                ids[inside], starts[inside], ends[inside] = tokens
        return TokenEncoding(ids, segments, parts, starts, ends, self.vocabulary)

    def pieces(self, texts: Sequence[str], limit: int | None = None, specials: bool = False) -> Pieces:
        """The tokens of many texts, without [CLS] and [SEP]; at most `limit` of each, and no more are ever made."""
        finder = self._controls if specials else self._added
        if finder.looks_for_any and any(map(finder.stands_in, texts)):
            return _joined([self._with_controls(text, finder).cut(0, limit) for text in texts])
        parts: list[Tokens] = []
        sizes: list[npt.NDArray[np.int64]] = []
        for group in _groups(texts):
            tokens, counts = self._long(group[0], limit) if len(group[0]) > CHUNK else self._short(group, limit)
            parts.append(tokens)
            sizes.append(counts)
        boundaries = np.concatenate([np.zeros(1, np.int64), *sizes]).cumsum()
        return Pieces(*_concatenated(parts), boundaries)

    def _short(self, texts: Sequence[str], limit: int | None) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """The tokens of a group of short texts, read as one text with line breaks between, and their counts."""
        tokens = self._read(self.characters.settled("\n".join(texts)))
        begins = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) + 1 for text in texts], out=begins[1:])
        edges = np.searchsorted(tokens.starts, begins)
        counts = np.diff(edges)
        shift = np.repeat(begins[:-1], counts).astype(np.int32)
        tokens = Tokens(tokens.ids, tokens.starts - shift, tokens.ends - shift)
        if limit is not None and counts.max(initial=0) > limit:
            kept = np.arange(len(shift)) - np.repeat(edges[:-1], counts) < limit
            tokens = Tokens(tokens.ids[kept], tokens.starts[kept], tokens.ends[kept])
            counts = np.minimum(counts, limit)
        return tokens, counts

    def _long(self, text: str, limit: int | None) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """The tokens of one long text, read a stretch at a time and no further than the limit asks, and their count."""
        text = self.characters.settled(text)
        parts: list[Tokens] = []
        start = count = 0
        while start < len(text) and (limit is None or count < limit):
            end = self.characters.cut(text, start, CHUNK)
            stretch = text[start:end]
            ids, starts, ends = self._read(stretch) if end - start <= CHUNK else self._read_word(stretch)
            parts.append(Tokens(ids, starts + start, ends + start))
            count += len(ids)
            start = end
        tokens = _concatenated(parts).cut(0, limit)
        return tokens, np.array([len(tokens.ids)])

    def _read(self, text: str) -> Tokens:
        """The tokens of a settled text of moderate size.

        Each character is given the number of tokens that begin there; their running sum is where those tokens go.
        """
        units = self.characters.units(text)
        with self._lock:  # the memory's arrays must not grow while they are read
            memo = self._ready_memo()
            firsts, counts = memo.places_of(units.words)
            weights = np.zeros(len(text), dtype=np.int32)
            weights[units.alone] = 1
            weights[units.starts] = counts
            after = np.cumsum(weights, dtype=np.intp)
            ids = np.empty(after[-1] if len(after) else 0, dtype=np.int32)
            starts, ends = np.empty_like(ids), np.empty_like(ids)
            to = after.take(units.alone) - 1
            ids[to] = memo.ids_of(units.codes.take(units.alone))
            starts[to] = units.alone
            ends[to] = units.alone + 1
            before = np.cumsum(counts) - counts
            steps = np.arange(counts.sum())
            source = np.repeat(firsts - before, counts) + steps
            to = np.repeat(after.take(units.starts) - counts - before, counts) + steps
            shift = np.repeat(units.starts, counts)
            ids[to] = _view(memo.ids).take(source)
            starts[to] = _view(memo.starts).take(source) + shift
            ends[to] = _view(memo.ends).take(source) + shift
        return Tokens(ids, starts, ends)

    def _read_word(self, word: str) -> Tokens:
        """The tokens of one word so long that arrays over its characters would be a waste."""
        start, end = 0, len(word)
        while start < end and is_dropped(word[start]):
            start += 1
        while start < end and is_dropped(word[end - 1]):
            end -= 1
        with self._lock:
            pieces = self._ready_memo().split(word[start:end])
        ids, starts, ends = (np.array(column, dtype=np.int32) for column in pieces)
        return Tokens(ids, starts + start, ends + start)

    def _ready_memo(self) -> _Memo:
        if self._memo is None:
            self._memo = _Memo(self.settings.tokens, self.unk_id, self.characters, self.settings.max_word_chars)
        if len(self._memo.edges) > MEMO_WORDS or len(self._memo.ids) > MEMO_PIECES:
            self._memo.forget()
        return self._memo

    def _with_controls(self, text: str, finder: Finder) -> Tokens:
        """The tokens of a text in which some strings are tokens as they stand: a slower path, for few texts."""
        parts, at = [], 0
        for start, end, index in finder.places(text):
            parts.append(self._shifted(text, at, start))
            parts.append(Tokens(*(np.array([value], dtype=np.int32) for value in (index, start, end))))
            at = end
        return _concatenated([*parts, self._shifted(text, at, len(text))])

    def _shifted(self, text: str, start: int, end: int) -> Tokens:
        tokens, _ = self._long(text[start:end], None)
        return Tokens(tokens.ids, tokens.starts + start, tokens.ends + start)

    def decode(self, ids: Sequence[int] | npt.NDArray[np.integer], specials: bool = False) -> str:
        """Readable text: pieces joined to words, no spaces beside ideographs; [PAD] [CLS] [SEP] only if asked for."""
        hidden = () if specials else (self.pad_id, self.cls_id, self.sep_id)
        result = ""
        if isinstance(ids, str | Mapping) or not isinstance(ids, Iterable):
            raise InputError(f"decode was given {arguments.called(ids)}, but takes a list of ids: write decode([id]).")
        for each in ids:
            try:
                index = operator.index(each)
            except TypeError:
                raise InputError(f"decode was given {str(each)[:40]!r}, but takes the ids of tokens.") from None
            if index in hidden:
                continue
            token = self.token_of(index)
            if _continues(token):
                result += token[len(PREFIX) :]
            else:
                result += (" " if _spaced(result, token) else "") + token
        return result


def _check(settings: vocab.Vocabulary) -> None:
    """Refuses settings that are none: a word would pass for true, and an added token without letters stands everywhere.

    These are what the vocabulary's files may say as well, so that what is saved is read back.
    """
    for name in ("lowercase", "strip_accents", "split_cjk"):
        value = getattr(settings, name)
        if not isinstance(value, bool) and not (name == "strip_accents" and value is None):
            raise InputError(f"{name} is {value!r:.60}, but must be True or False.")
    if type(settings.max_word_chars) is not int or not 1 <= settings.max_word_chars <= vocab.MOST_WORD_CHARS:
        raise InputError(
            f"max_word_chars is {settings.max_word_chars!r:.60}, but must be from 1 to {vocab.MOST_WORD_CHARS:,}."
        )
    for token in settings.all_tokens():
        if not isinstance(token, str) or (not token and token in settings.added):
            raise InputError(f"{token!r:.60} is no token: each must be a string, and an added one must have letters.")


def _continues(token: str) -> bool:
    return token.startswith(PREFIX) and len(token) > len(PREFIX)


def _spaced(before: str, token: str) -> bool:
    """Whether a space belongs between what is written and the next token: not beside ideographs, not before '.'."""
    if not before or not token:
        return False
    if any(is_cjk(char) or (ord(char) > 0x2E7F and is_punctuation(char)) for char in (before[-1], token[0])):
        return False
    return token not in tuple(",.;:!?%)]}'’”") and before[-1] not in "([{“‘"


def _view(values: array[int]) -> Ints:
    """The array's numbers without copying; it must not grow while the view is in use."""
    return np.frombuffer(values, dtype=np.int32) if values else np.zeros(0, dtype=np.int32)


def _concatenated(parts: Sequence[Tokens]) -> Tokens:
    if not parts:
        return Tokens(*(np.zeros(0, dtype=np.int32) for _ in range(3)))
    return parts[0] if len(parts) == 1 else Tokens(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _joined(texts: Sequence[Tokens]) -> Pieces:
    counts = [0] + [len(tokens.ids) for tokens in texts]
    return Pieces(*_concatenated(texts), np.cumsum(counts, dtype=np.int64))


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in order, as many together as fill a chunk; a text that alone is longer comes alone."""
    start = size = 0
    for index, text in enumerate(texts):
        if index > start and size + len(text) > CHUNK:
            yield texts[start:index]
            start, size = index, 0
        size += len(text) + 1
    if start < len(texts):
        yield texts[start:]
