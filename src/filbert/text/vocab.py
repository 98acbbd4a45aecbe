"""Vocabularies: a corpus or files in, tokens in the order of their ids out.

`train` counts words as the tokenizer cuts them and joins the most frequent neighbours again and again (byte-pair
encoding on characters, Sennrich et al. 2016), writing later pieces with ## as WordPiece does. Counts add up in any
order and ties are broken by the pieces' own letters, so the result depends on nothing but the multiset of words.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from filbert.core.errors import InputError
from filbert.core.files import json_object, json_text, named, regular_file, whole_file, whole_folder
from filbert.text import arguments, tokenizer_files
from filbert.text.added import Normalized
from filbert.text.characters import Characters

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
LIMIT_BYTES = 64 * 2**20
MAX_WORD_CHARS, MOST_WORD_CHARS = 200, 10_000
BATCH_CHARS = 2**20  # of documents counted together
STRETCH_CHARS = 2**18  # of a document looked at together


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens and how text is cut to fit them; what a vocabulary's files hold, and what a Tokenizer is made from."""

    tokens: tuple[str, ...]
    lowercase: bool = True
    strip_accents: bool | None = None  # None: as lowercase
    split_cjk: bool = True
    max_word_chars: int = MAX_WORD_CHARS  # a longer word is one [UNK]
    added: tuple[str, ...] = ()  # found in the raw text (text.added); numbered last unless they are among the tokens

    def all_tokens(self) -> tuple[str, ...]:
        """Every token by id."""
        listed = set(self.tokens)
        return self.tokens + tuple(token for token in self.added if token not in listed)


def check(tokens: Sequence[str], where: str = "the vocabulary") -> None:
    """Refuses a vocabulary with a token twice, a special one missing, or one that a line of a file cannot hold."""
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        twice = next(token for index, token in enumerate(tokens) if ids[token] != index)
        both = f"{tokens.index(twice)} and {ids[twice]}"
        raise InputError(f"{where}: the token {twice!r} has the ids {both}; each token may have one.")
    if not _fits_lines(tokens):
        broken = next(token for token in tokens if not _fits_lines([token]))
        raise InputError(f"{where}: the token {broken!r} holds a line break or half a character; tokens may not.")
    missing = [name for name in SPECIALS if name not in ids]
    if missing:
        raise InputError(f"{where}: {' '.join(missing)} missing; BERT needs {' '.join(SPECIALS)}.")


def _fits_lines(tokens: Sequence[str]) -> bool:
    """Whether a UTF-8 file with one token on each line can hold them all."""
    joined = "\n".join(tokens)
    try:
        joined.encode()
    except UnicodeEncodeError:
        return False
    return "\r" not in joined and joined.count("\n") == max(0, len(tokens) - 1)


def read(path: Path | str) -> Vocabulary:
    """The vocabulary in vocab.txt, in tokenizer.json or in a folder that holds either, tokenizer.json first."""
    path = named(path, "the vocabulary", "the path of a folder, a vocab.txt or a tokenizer.json")
    if path.is_dir():
        present = [path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).exists()]
        if not present:
            raise InputError(f"{path}: holds neither tokenizer.json nor vocab.txt; a tokenizer needs one of them.")
        path = present[0]
    vocabulary = _from_json(path) if path.suffix == ".json" else _from_text(path)
    return _with_settings(path, vocabulary, tokenizer_files.read(path.parent), path.suffix == ".json")


def unlike(folder: Path, tokens: Sequence[str]) -> list[str]:
    """A note where vocab.txt has other tokens than tokenizer.json, which is read: whoever changed one forgot the other.

    tokens: those that were read, by id.
    """
    paths = [folder / name for name in ("tokenizer.json", "vocab.txt")]
    if not all(path.exists() for path in paths):
        return []
    try:
        lines = _from_text(paths[1]).tokens
    except InputError as error:
        return [f"{str(error).removesuffix('.')}; {paths[0].name} is read."]
    except OSError as error:
        return [f"{paths[1]}: cannot be read ({error.strerror}); {paths[0].name} is."]
    places = (place for place, (token, line) in enumerate(zip(tokens, lines, strict=False)) if token != line)
    place = next(places, len(tokens) if len(lines) > len(tokens) else None)
    if place is None:
        return []
    held = repr(tokens[place]) if place < len(tokens) else "none"
    return [
        f"{paths[1]} line {place + 1}: has the token {lines[place]!r:.60} where {paths[0].name} has {held:.60}; "
        f"{paths[0].name} is read; remove {paths[0].name} if {paths[1].name} is right."
    ]


def _with_settings(path: Path, vocabulary: Vocabulary, beside: tokenizer_files.Beside, is_json: bool) -> Vocabulary:
    """The vocabulary with settings and tokens of the files beside it, before those of tokenizer.json if `overrides`."""
    if beside.overrides or not is_json:
        settings = beside.settings
        vocabulary = replace(
            vocabulary,
            lowercase=settings.get("do_lower_case", vocabulary.lowercase) is True,
            strip_accents=settings.get("strip_accents", vocabulary.strip_accents),
            split_cjk=settings.get("tokenize_chinese_chars", vocabulary.split_cjk) is True,
        )
    ids = {token: index for index, token in enumerate(vocabulary.all_tokens())}
    new = [token for token in beside.added if token not in ids]
    for token, index in ({token: len(ids) + place for place, token in enumerate(new)} | ids).items():
        if beside.numbers.get(token, index) != index:
            raise InputError(
                f"{path.parent}: {token[:60]!r} is token {index:,} of {path.name}, but {beside.numbers[token]:,} of "
                f"{tokenizer_files.ADDED} or added_tokens_decoder; they are not of one folder."
            )
    further = [token for token in beside.added if token not in vocabulary.added]
    return replace(vocabulary, added=(*vocabulary.added, *further)) if further else vocabulary


def write(vocabulary: Vocabulary, folder: Path, max_length: int | None = None) -> None:
    """Writes tokenizer.json, tokenizer_config.json and vocab.txt into the folder, all or none.

    A folder that is new, or holds these alone, is replaced whole; among other files each is. tokenizer.json, which says
    all by itself and is read first, comes first.
    """
    texts = {
        "tokenizer.json": json_text(_to_json(vocabulary)),
        "tokenizer_config.json": json_text(_to_config(vocabulary, max_length)),
        "vocab.txt": "".join(f"{token}\n" for token in vocabulary.all_tokens()),
    }
    with contextlib.ExitStack() as stack:
        if _is_replaced(folder, set(texts)):
            place = stack.enter_context(whole_folder(folder, lambda _: True, "a vocabulary"))
            parts = [place / name for name in texts]
        else:
            parts = [stack.enter_context(whole_file(folder / name)) for name in reversed(texts)][::-1]
        for part, text in zip(parts, texts.values(), strict=True):
            part.write_text(text, encoding="utf-8", newline="\n")


def _is_replaced(folder: Path, names: set[str]) -> bool:
    """Whether the folder is not there yet, or holds such files alone; whoever made an empty one may write more."""
    try:
        present = set(os.listdir(folder))
    except FileNotFoundError:
        return True
    except OSError:  # no folder, or one that cannot be read: writing says so
        return False
    return bool(present) and present <= names and not folder.is_symlink() and not os.path.samefile(folder, os.curdir)


def _from_text(path: Path) -> Vocabulary:
    """One token a line."""
    size = regular_file(path).stat().st_size
    if size > LIMIT_BYTES:
        raise InputError(f"{path}: has {size:,} bytes, more than the {LIMIT_BYTES:,} that a vocabulary may have.")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line}: byte {error.start} is not UTF-8, but a vocabulary must be.") from None
    # The published Chinese file has U+2028 as a token, so only a line feed ends a line. An empty line in the middle
    # still has its number, or all that follow would be wrong; at the end of the file it is nothing.
    lines = [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")]
    ids = {token: index for index, token in enumerate(lines)}
    if len(ids) != len(lines):
        line, twice = next((line, token) for line, token in enumerate(lines, 1) if ids[token] != line - 1)
        raise InputError(
            f"{path} line {line}: {twice!r} stands again in line {ids[twice] + 1}; each token may stand once."
        )
    check(lines, str(path))
    return Vocabulary(tuple(lines))


# What a vocabulary.json may be made of. The file is never handed to the Rust library: a pattern in it could hang or
# abort the process there. Everything that is not BERT's is refused by name.
_JSON_TYPES: dict[str, tuple[str | None, ...]] = {
    "model": ("WordPiece",),
    "normalizer": ("BertNormalizer",),
    "pre_tokenizer": ("BertPreTokenizer",),
    "post_processor": (None, "TemplateProcessing", "BertProcessing"),
    "decoder": (None, "WordPiece"),
}


def _from_json(path: Path) -> Vocabulary:
    """A tokenizer from the file that the Rust library writes, if it is BERT's."""
    content = json_object(path)
    sections = {name: _section(path, name, content.get(name)) for name in _JSON_TYPES}
    model, normalizer = sections["model"], sections["normalizer"]
    _allowed(path, "model.unk_token", model.get("unk_token"), ("[UNK]",))
    _allowed(path, "model.continuing_subword_prefix", model.get("continuing_subword_prefix"), (PREFIX,))
    _allowed(path, "normalizer.clean_text", normalizer.get("clean_text", True), (True,))
    for name in ("lowercase", "handle_chinese_chars", "strip_accents"):
        _allowed(path, f"normalizer.{name}", normalizer.get(name), (True, False, None))
    limit = model.get("max_input_chars_per_word", 100)
    if type(limit) is not int or not 1 <= limit <= MOST_WORD_CHARS:
        raise InputError(
            f"{path}: model.max_input_chars_per_word is {limit!r}, but must be from 1 to {MOST_WORD_CHARS}."
        )
    _check_template(path, sections["post_processor"])
    added = _added_tokens(path, content.get("added_tokens") or [])
    tokens, num_words = _numbered(path, model.get("vocab"), added)
    return Vocabulary(
        tuple(tokens[:num_words]),
        lowercase=normalizer.get("lowercase") is not False,
        strip_accents=normalizer.get("strip_accents"),
        split_cjk=normalizer.get("handle_chinese_chars") is not False,
        max_word_chars=limit,
        added=tuple(token for token in sorted(added, key=added.__getitem__) if token not in SPECIALS),
    )


def _allowed(path: Path, name: str, value: object, allowed: tuple[object, ...]) -> None:
    # 1 == True in Python, but not in this file.
    if not any(value is one or (isinstance(value, str) and value == one) for one in allowed):
        listed = " or ".join(json_text(one).strip() for one in allowed)
        raise InputError(
            f"{path}: {name} is {str(value)[:60]!r}, but must be {listed}; only BERT's tokenizer is read here."
        )


def _section(path: Path, name: str, value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{path}: {name} is a {type(value).__name__}, but must be an object {{…}}.")
    section: dict[str, Any] = value or {}
    _allowed(path, f"{name}.type", section.get("type"), _JSON_TYPES[name])
    return section


def _check_template(path: Path, processor: Mapping[str, object]) -> None:
    """Refuses special tokens in other places than BERT has them."""
    if processor.get("type") != "TemplateProcessing":
        return
    expected = {"single": "[CLS] A [SEP]", "pair": "[CLS] A [SEP] B [SEP]"}
    for name, template in expected.items():
        items = processor.get(name)
        ids = [value.get("id") for item in _template(items) for value in item.values()]
        if " ".join(map(str, ids)) != template:
            raise InputError(f"{path}: post_processor.{name} is not {template}, the only order that BERT knows.")


def _template(items: object) -> list[dict[str, dict[str, Any]]]:
    rows = items if isinstance(items, list) else []
    return [row for row in rows if isinstance(row, dict) and all(isinstance(value, dict) for value in row.values())]


def _added_tokens(path: Path, items: object) -> dict[str, Any]:
    """Added tokens and their ids; those that look at the characters around them are refused."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(f"{path}: added_tokens is not a list of objects.")
    added: dict[str, Any] = {}
    for item in items:
        token = item.get("content")
        if not isinstance(token, str) or not token or token in added:
            raise InputError(f"{path}: added_tokens has {token!r}, but each needs a text of its own.")
        for name in ("single_word", "lstrip", "rstrip"):
            if item.get(name):
                raise InputError(
                    f"{path}: the added token {token!r} has {name}, which is not supported; set it to false."
                )
        added[Normalized(token) if item.get("normalized") else token] = item.get("id")
    return added


def _numbered(path: Path, vocab: object, added: Mapping[str, object]) -> tuple[list[str], int]:
    """All tokens by id, and how many of them the model itself has; nothing is allocated for ids that are not there."""
    if not isinstance(vocab, dict) or not vocab:
        raise InputError(f"{path}: model.vocab is not an object of tokens and ids.")
    ids = {**vocab, **added}
    moved = next((token for token, index in added.items() if vocab.get(token, index) != index), None)
    if moved is not None:
        raise InputError(
            f"{path}: {moved!r} has the id {vocab[moved]} in model.vocab and {added[moved]} in added_tokens."
        )
    tokens: list[str | None] = [None] * len(ids)
    for token, index in ids.items():
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(ids):
            raise InputError(
                f"{path}: {token!r} has the id {index!r}, but {len(ids):,} tokens need ids 0 to {len(ids) - 1:,}."
            )
        if tokens[index] is not None:
            raise InputError(f"{path}: {tokens[index]!r} and {token!r} both have the id {index}; each needs its own.")
        tokens[index] = token
    named = [token for token in tokens if token is not None]
    check(named, str(path))
    return named, max(vocab.values()) + 1


def _to_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """The same tokenizer in the Rust library's format."""
    ids = {token: index for index, token in enumerate(vocabulary.all_tokens())}
    special = [(name, ids[name], True) for name in SPECIALS]
    others = [(name, ids[name], False) for name in vocabulary.added]
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    marks = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]")}
    single = [marks["[CLS]"], {"Sequence": {"id": "A", "type_id": 0}}, marks["[SEP]"]]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    template_ids = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in marks}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": name, **flags, "normalized": isinstance(name, Normalized), "special": is_special}
            for name, index, is_special in sorted(special + others, key=lambda row: row[1])
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": vocabulary.split_cjk,
            "strip_accents": vocabulary.strip_accents,
            "lowercase": vocabulary.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single + second,
            "special_tokens": template_ids,
        },
        "decoder": {"type": "WordPiece", "prefix": PREFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": PREFIX,
            "max_input_chars_per_word": vocabulary.max_word_chars,
            "vocab": {token: index for index, token in enumerate(vocabulary.tokens)},
        },
    }


def _to_config(vocabulary: Vocabulary, max_length: int | None) -> dict[str, Any]:
    """tokenizer_config.json as transformers reads it."""
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    length = {} if max_length is None else {"model_max_length": max_length}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.lowercase,
        "strip_accents": vocabulary.strip_accents,
        "tokenize_chinese_chars": vocabulary.split_cjk,
        **length,
        **dict(zip(names, SPECIALS, strict=True)),
    }


@dataclass(frozen=True, slots=True)
class VocabReport:
    """A trained vocabulary and what it left out."""

    tokens: tuple[str, ...]  # the special ones, the alphabet, then pieces from the most frequent on
    num_words: int  # of the corpus, characters that stand alone among them
    num_distinct: int
    num_long_words: int  # longer than MAX_WORD_CHARS: one [UNK] whatever the vocabulary, so not learnt from
    num_dropped_characters: int  # distinct ones that did not fit the alphabet
    num_dropped_words: int  # words of the corpus with such a character: they will be [UNK]

    @property
    def counts(self) -> dict[str, int]:
        """The numbers by name, for a log."""
        names = ("num_words", "num_distinct", "num_long_words", "num_dropped_characters", "num_dropped_words")
        return {name: getattr(self, name) for name in names}


def train(
    documents: Iterable[str],
    size: int,
    lowercase: bool = True,
    min_count: int = 2,
    workers: int = 1,
    max_alphabet: int | None = None,
) -> VocabReport:
    """At most `size` tokens for the documents; a piece must occur `min_count` times.

    The alphabet takes at most `max_alphabet` tokens (three quarters of the size, unless said), most frequent first.
    """
    arguments.check(documents, "train", "document")
    room = size - len(SPECIALS)
    if room < 1 or min_count < 1 or workers < 1:
        raise InputError(
            f"size is {size}, min_count {min_count}, workers {workers}, but they must be at least 6, 1 and 1."
        )
    words: Counter[str] = Counter()
    num_long = 0
    for counted, long in _counted(documents, lowercase, workers):
        words.update(counted)
        num_long += long
    if not words:
        raise InputError("the corpus holds no words, so no vocabulary can be made from it.")
    forms: Counter[str] = Counter()
    for word, count in words.items():
        for form in _forms(word):
            forms[form] += count
    ranked = sorted(forms, key=lambda form: (-forms[form], form[-1], form))
    kept = ranked[: min(room, max(1, size * 3 // 4) if max_alphabet is None else max(1, max_alphabet))]
    alphabet = sorted(kept, key=lambda form: (_is_later(form), form))
    letters = set(kept)
    usable = {word: count for word, count in words.items() if letters.issuperset(_forms(word))}
    pieces = _merged(usable, alphabet, room - len(alphabet), min_count)
    return VocabReport(
        tokens=(*SPECIALS, *alphabet, *pieces),
        num_words=words.total(),
        num_distinct=len(words),
        num_long_words=num_long,
        num_dropped_characters=len({form[-1] for form in ranked[len(kept) :]}),
        num_dropped_words=words.total() - sum(usable.values()),
    )


def _forms(word: str) -> list[str]:
    """The word's characters as tokens: the first plain, the later ones with ##."""
    return [word[0], *(PREFIX + char for char in word[1:])]


def _is_later(form: str) -> bool:
    return form.startswith(PREFIX) and len(form) > len(PREFIX)


def _counted(documents: Iterable[str], lowercase: bool, workers: int) -> Iterator[tuple[Mapping[str, int], int]]:
    """The word counts of batch after batch, by as many processes as asked for."""
    if workers == 1:
        for batch in _batches(documents):
            yield _count(batch, lowercase)
        return
    # Not at the top: a tokenizer needs the vocabulary, but no processes, whose modules take 15 ms of every start.
    import multiprocessing
    from concurrent.futures import Future, ProcessPoolExecutor

    # Spawned, since a process with threads must not be forked; few batches wait, so that memory stays bounded.
    pending: deque[Future[tuple[Mapping[str, int], int]]] = deque()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for batch in _batches(documents):
            pending.append(pool.submit(_count, batch, lowercase))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _count(texts: Sequence[str], lowercase: bool) -> tuple[Mapping[str, int], int]:
    """How often each folded word occurs, and how many words were too long."""
    characters = Characters(lowercase)
    raw: Counter[str] = Counter()
    text = characters.settled("\n".join(texts))
    start = 0
    while start < len(text):
        end = characters.cut(text, start, STRETCH_CHARS)
        stretch = text[start:end]
        start = end
        if len(stretch) > STRETCH_CHARS:  # then it is one word
            raw[stretch] += 1
            continue
        units = characters.units(stretch)
        raw.update(units.words)
        codes, counts = np.unique(units.codes[units.alone], return_counts=True)
        raw.update(dict(zip(map(chr, codes.tolist()), counts.tolist(), strict=True)))
    words: Counter[str] = Counter()
    num_long = 0
    for word, count in raw.items():
        folded = characters.folded(word, MAX_WORD_CHARS)
        if folded is None:
            num_long += count
        elif folded.text:
            words[folded.text] += count
    return words, num_long


Pair = tuple[int, int]


class _Merger:
    """Words as symbols, and how often each pair of neighbours occurs in them."""

    def __init__(self, words: Mapping[str, int], alphabet: Sequence[str]) -> None:
        self.names = list(alphabet)
        self.ids = {name: index for index, name in enumerate(alphabet)}
        self.words: list[list[int]] = []
        self.counts: list[int] = []
        self.pairs: dict[Pair, int] = defaultdict(int)
        self.where: dict[Pair, list[int]] = defaultdict(list)  # words that had the pair once; some no longer do
        for word, count in words.items():
            if len(word) > 1:
                self._add([self.ids[form] for form in _forms(word)], count)
        self.heap = [self._ranked(pair) for pair in self.pairs]
        heapq.heapify(self.heap)

    def _add(self, symbols: list[int], count: int) -> None:
        for pair in pairwise(symbols):
            self.pairs[pair] += count
            self.where[pair].append(len(self.words))
        self.words.append(symbols)
        self.counts.append(count)

    def _ranked(self, pair: Pair) -> tuple[int, str, str, Pair]:
        """The pair as an entry of the heap: the most frequent first, then by the letters."""
        return -self.pairs[pair], self.names[pair[0]], self.names[pair[1]], pair

    def best(self, min_count: int) -> Pair | None:
        """The most frequent pair; counts in the heap may be too high by now, and are then put right."""
        while self.heap:
            count, _, _, pair = heapq.heappop(self.heap)
            now = self.pairs.get(pair, 0)
            if now == -count and now >= min_count:
                return pair
            if now >= min_count:
                heapq.heappush(self.heap, self._ranked(pair))
        return None

    def merge(self, pair: Pair) -> str | None:
        """Joins the pair wherever it stands; its name, or None where another pair already made the same piece."""
        name = self.names[pair[0]] + self.names[pair[1]].removeprefix(PREFIX)
        is_new = name not in self.ids
        symbol = self.ids.setdefault(name, len(self.names))
        if is_new:
            self.names.append(name)
        changed: set[Pair] = set()
        for index in set(self.where.pop(pair)):
            self._rewrite(index, pair, symbol, changed)
        self.pairs.pop(pair, None)
        for other in changed:
            if self.pairs.get(other, 0) > 0:
                heapq.heappush(self.heap, self._ranked(other))
        return name if is_new else None

    def _rewrite(self, index: int, pair: Pair, symbol: int, changed: set[Pair]) -> None:
        """One word with the pair joined, and the counts of all its pairs as they are now."""
        old, count, pairs = self.words[index], self.counts[index], self.pairs
        new: list[int] = []
        place, last = 0, len(old) - 1
        while place <= last:
            joined = place < last and old[place] == pair[0] and old[place + 1] == pair[1]
            new.append(symbol if joined else old[place])
            place += 2 if joined else 1
        if len(new) == len(old):
            return
        for gone in pairwise(old):
            pairs[gone] -= count
        for here in pairwise(new):
            pairs[here] += count
            if symbol in here:
                self.where[here].append(index)
                changed.add(here)
        self.words[index] = new


def _merged(words: Mapping[str, int], alphabet: Sequence[str], room: int, min_count: int) -> list[str]:
    """The pieces that joining makes, in the order they come about, as many as there is room for."""
    merger = _Merger(words, alphabet)
    pieces: list[str] = []
    while len(pieces) < room:
        pair = merger.best(min_count)
        if pair is None:
            break
        name = merger.merge(pair)
        if name is not None:
            pieces.append(name)
    return pieces
