"""A loaded model and a text in, who attended to whom out: maps of every asked layer and head, by token and by word.

Legend: Q tokens that ask, S tokens that answer, N tokens of a window.

A text longer than the model is read in overlapping windows, each with maps of its own: nothing is cut. A map takes
4·N² bytes for each layer and head: at 512 tokens one MB, so all of a BERT-base 151 MB a window. Of long texts, ask for
some layers or heads; more than MOST_BYTES is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from filbert.core import stopping
from filbert.core.errors import InputError, MissingExtra
from filbert.core.records import Encoding, Example, Floats, Ints, Packed
from filbert.explain.protocols import Looks
from filbert.nn import maps
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.tasks.written import Written
from filbert.text.characters import is_cjk
from filbert.text.joining import joined
from filbert.text.tokenizer import Tokenizer, Tokens
from filbert.text.vocab import PREFIX
from filbert.text.windows import coverage, windowed
from filbert.text.words import segmenter

MOST_BYTES = 2**31  # of all maps of one call
OVERLAP = 128  # tokens that two windows share, where no task says otherwise
AUTO = "auto"
DOCUMENT = "[DOC]"  # who asks a text's sentences
SPECIAL = -1  # the part of a token that is of no text

Segments = str | Callable[[str], Iterable[str]]  # a name of text.words, or the user's own function
Selection = int | Sequence[int] | None  # layers or heads; None: all


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the vocabulary writes it; texts[part][start:end] are the characters that it was read from."""

    text: str
    part: int  # the text that it is of; -1 for [CLS], [SEP] and what else is of none
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Word:
    """Tokens that are one word; a special token is a word of its own."""

    text: str  # as the user wrote it
    part: int
    start: int
    end: int
    tokens: tuple[int, ...]  # their places among the rows or columns


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """One kind of attention in one window of a text or pair.

    Kinds: "self", tokens of one text or pair; "written", what a decoder wrote and those before; "cross", what it wrote
    and its source; of a HAN "words", sentences and their tokens, and "sentences", the document and its sentences. Of a
    decoder, row t is what it looked at before it wrote token t + 1: the first row is that of [CLS].
    """

    kind: str
    layers: tuple[int, ...]  # which layers the first axis is
    heads: tuple[int, ...]  # which heads the second is; one that was pruned from a layer has zeros there
    rows: tuple[Token, ...]  # who asks
    columns: tuple[Token, ...]  # who answers; the same object as `rows` where a text attends to itself
    values: Floats  # [layers, heads, Q, S], every row sums to 1
    row_words: tuple[Word, ...] = field(repr=False)
    column_words: tuple[Word, ...] = field(repr=False)
    window: int = 0  # maps of one window have one number

    def by_word(self) -> Floats:
        """[layers, heads, words, words]: what goes to a word goes to its tokens together, so their columns are added.

        What a word asks is the mean of what its tokens ask, so their rows are averaged; rows still sum to 1.
        """
        rows, columns = ([word.tokens[0] for word in words] for words in (self.row_words, self.column_words))
        sizes = np.array([len(word.tokens) for word in self.row_words], dtype=np.float32)
        added = np.add.reduceat(np.add.reduceat(self.values, columns, axis=3), rows, axis=2)
        return np.asarray(added / sizes[:, None], dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a model attended to. As an array it is [layers, heads, words, words]; `map` has the tokens."""

    texts: tuple[str, ...]  # as given; of an encoder-decoder the source and what was written
    windows: tuple[Maps, ...]  # in the order of the text; several kinds of one window stand side by side
    coverage: float = 1.0  # the share of the text's tokens that were read

    @property
    def map(self) -> Maps:
        """The maps, where there is one window and one kind; by token."""
        if len(self.windows) > 1:
            kinds = dict.fromkeys(each.kind for each in self.windows)
            raise InputError(
                f"there are {len(self.windows)} maps (kinds: {', '.join(kinds)}; windows: "
                f"{self.windows[-1].window + 1}), so none is the one; take them from .windows or .of(kind)."
            )
        return self.windows[0]

    @property
    def values(self) -> Floats:
        """[layers, heads, words, words] of the one map."""
        return self.map.by_word()

    @property
    def words(self) -> tuple[tuple[Word, ...], ...]:
        """For each of the maps the words that ask."""
        return tuple(each.row_words for each in self.windows)

    def by_word(self) -> tuple[Floats, ...]:
        """For each of the maps [layers, heads, words, words]; see Maps.by_word."""
        return tuple(each.by_word() for each in self.windows)

    def of(self, kind: str) -> tuple[Maps, ...]:
        """The maps of that kind, a window after another."""
        return tuple(each for each in self.windows if each.kind == kind)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Any:
        """So that NumPy takes it for [layers, heads, words, words]."""
        return np.asarray(self.values, dtype=dtype)


def attention(
    model: Looks,
    text: str | Sequence[str],
    pair: str | None = None,
    layers: Selection = None,
    heads: Selection = None,
    segments: Segments = AUTO,
) -> Seen:
    """What the model attends to while it reads a text, or a pair as (text, pair) or as one tuple.

    Of an encoder-decoder the pair is a target to be followed; without one, the model writes it.
    """
    texts = _texts(text, pair)
    backbone = model.backbone
    sites = maps.sites(backbone)
    if not sites and not (backbone.writes or backbone.has_levels):
        raise InputError(
            f"this model is a {type(backbone).__name__.lower()} without attention, so there is nothing to show; "
            "bert, gpt, transformer and han have some, and seq2seq where it writes."
        )
    if backbone.writes:
        return _Generation(model, texts, segments).seen(sites, layers, heads)
    if not sites:
        return _levels(model, texts, _numbers("layers", layers, 2), _numbers("heads", heads, 1), segments)
    wanted = _numbers("layers", layers, len(sites))
    chosen = [sites[layer] for layer in wanted]
    some = _numbers("heads", heads, _most_heads(sites), _most_heads(chosen))
    encodings = _windows(model, texts)
    check_room(len(wanted) * len(some) * sum(len(encoding) ** 2 for encoding in encodings))
    words, result = _Words(texts, segments), []
    for number, encoding in enumerate(encodings):
        stopping.current().check()
        with torch.inference_mode(), maps.kept(chosen, alone=True) as got:
            model.backbone(_packed(encoding, model))
        rows = _tokens(encoding, model.tokenizer)
        grouped = words.of(rows)
        values = _values(chosen, got, some)
        result.append(Maps("self", wanted, some, rows, rows, values, grouped, grouped, number))
    return Seen(texts, tuple(result), coverage(encodings))


def check_room(cells: int) -> None:
    """Refuses more maps than a usual machine has memory for."""
    if 4 * cells > MOST_BYTES:
        raise InputError(
            f"these maps would take {4 * cells / 2**30:.1f} GB, more than {MOST_BYTES / 2**30:.0f}; ask for fewer "
            "layers or heads, e.g. layers=[0], or give a shorter text."
        )


def _values(chosen: Sequence[maps.Site], got: dict[maps.Site, maps.Kept], heads: tuple[int, ...]) -> Floats:
    """[layers, heads, Q, S] of the only sequence of a pack; each map is written where it stays."""
    target, source = got[chosen[0]].packed, got[chosen[0]].source
    sizes = target.lengths[0], (source or target).lengths[0]
    values = np.empty((len(chosen), len(heads), *sizes), dtype=np.float32)
    for place, site in enumerate(chosen):
        maps.weights(site, got[site], 0, heads, torch.from_numpy(values[place]))
    return values


# What is read ---------------------------------------------------------------------------------------------------------


def _texts(text: object, pair: object) -> tuple[str, ...]:
    """One text or two."""
    listed = (text,) if isinstance(text, str) else tuple(text) if isinstance(text, tuple | list) else (text,)
    texts = listed if pair is None else (*listed, pair)
    if not 1 <= len(texts) <= 2 or not all(isinstance(one, str) for one in texts):
        shown = ", ".join(type(one).__name__ for one in texts[:4])
        raise InputError(f"attention was given ({shown}), but takes a text or two, each a string.")
    return tuple(one for one in texts if isinstance(one, str))


def _numbers(name: str, selection: Selection, count: int, usual: int | None = None) -> tuple[int, ...]:
    """Those asked for, each once, in their order; all, or the usual ones, where none are named."""
    if selection is None:
        return tuple(range(count if usual is None else usual))
    listed = list(selection) if isinstance(selection, Iterable) else [selection]
    for number in listed:
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or not 0 <= number < count:
            allowed = f"whole numbers from 0 to {count - 1}" if count > 1 else "0 alone"
            raise InputError(f"{name} has {number!r}, but this model has {allowed}.")
    if not listed:
        raise InputError(f"{name} names none; give some of 0 to {count - 1}, or leave it out for all.")
    return tuple(int(number) for number in dict.fromkeys(listed))


def _most_heads(sites: Sequence[maps.Site]) -> int:
    """The heads of the layer that has most: pruned ones have fewer."""
    return max((site.attention.heads for site in sites), default=0) or 1


def _windows(model: Looks, texts: tuple[str, ...]) -> list[Any]:
    """The windows as the model's task reads them; where it has none, as long as the model allows."""
    backbone, tokenizer = model.backbone, model.tokenizer
    most = backbone.config.max_length
    length, overlap = model.as_read.window if model.as_read is not None else (most, OVERLAP)
    length = min(length, most)
    # A model that fills blanks reads [MASK] as one.
    pieces = list(tokenizer.pieces(texts, specials=backbone.fills))
    _check_some(pieces)
    second = pieces[1] if len(pieces) > 1 else None
    return windowed(tokenizer, pieces[0], second, length, overlap)


def _check_some(pieces: Sequence[Tokens]) -> None:
    if not any(len(each.ids) for each in pieces):
        raise InputError("the text is empty, so there is nothing to attend to; give at least one character.")


def _packed(encoding: Encoding, model: Looks) -> Packed:
    return tensors(pack([encoding])[0], model.engine.device)


def _tokens(encoding: Encoding, tokenizer: Tokenizer) -> tuple[Token, ...]:
    columns = (encoding.ids, encoding.parts, encoding.starts, encoding.ends)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(Token(tokenizer.vocabulary[index], part, start, end) for index, part, start, end in rows)


# Words ----------------------------------------------------------------------------------------------------------------


class _Words:
    """Texts and what cuts them into words; tokens come in, their words go out.

    Chinese words are the segmenter's (rjieba, else jieba, else every character). A boundary inside a word of another
    script, before a piece that goes on with it, does not count: such words are what WordPiece itself takes for one.
    """

    def __init__(self, texts: Sequence[str], segments: Segments) -> None:
        self.texts = texts
        self.numbers = [_word_numbers(text, segments) for text in texts]

    def of(self, tokens: Sequence[Token]) -> tuple[Word, ...]:
        """The words that these tokens, in their order, are."""
        groups: list[list[int]] = []
        for place, token in enumerate(tokens):
            if place and self._continues(tokens[place - 1], token):
                groups[-1].append(place)
            else:
                groups.append([place])
        return tuple(self._word(group, tokens) for group in groups)

    def _continues(self, before: Token, token: Token) -> bool:
        if SPECIAL in (before.part, token.part) or before.part != token.part or "[MASK]" in (before.text, token.text):
            return False
        numbers, text = self.numbers[token.part], self.texts[token.part]
        if numbers[token.start] == numbers[before.start]:
            return True
        is_piece = token.text.startswith(PREFIX) and len(token.text) > len(PREFIX)
        return is_piece and not is_cjk(text[token.start])

    def _word(self, group: Sequence[int], tokens: Sequence[Token]) -> Word:
        first, last = tokens[group[0]], tokens[group[-1]]
        if first.part == SPECIAL:
            return Word(first.text, SPECIAL, 0, 0, tuple(group))
        text = self.texts[first.part][first.start : last.end]
        return Word(text, first.part, first.start, last.end, tuple(group))


def _word_numbers(text: str, segments: Segments) -> Ints:
    """[characters] the number of each one's word."""
    sizes = [len(word) for word in _segmented(text, segments)]
    return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def _segmented(text: str, segments: Segments) -> Iterable[str]:
    if segments == AUTO and any(map(is_cjk, text)):
        try:
            return segmenter("jieba")(text)
        except MissingExtra:
            pass
    return segmenter(segments)(text)


# Words and sentences: HAN ---------------------------------------------------------------------------------------------


def _levels(
    model: Looks, texts: tuple[str, ...], layers: tuple[int, ...], heads: tuple[int, ...], segments: Segments
) -> Seen:
    """Layer 0: what each sentence looked at among its tokens; layer 1: what the document did among its sentences."""
    backbone: Any = model.backbone
    encodings = _windows(model, texts)
    words, result = _Words(texts, segments), list[Maps]()
    for number, encoding in enumerate(encodings):
        stopping.current().check()
        with torch.inference_mode():
            seen = backbone.attention_of(_packed(encoding, model))
        sentence_T = seen.sentence_T.cpu().numpy()
        tokens = _tokens(encoding, model.tokenizer)
        sentences = tuple(
            _sentence([tokens[place] for place in np.flatnonzero(sentence_T == index)], texts)
            for index in range(len(seen.sentences_N))
        )
        alone = tuple(Word(s.text, s.part, s.start, s.end, (at,)) for at, s in enumerate(sentences))
        if 0 in layers:
            values = np.zeros((1, 1, len(sentences), len(tokens)), dtype=np.float32)
            values[0, 0, sentence_T, np.arange(len(tokens))] = seen.words_T.float().cpu().numpy()
            result.append(Maps("words", (0,), heads, sentences, tokens, values, alone, words.of(tokens), number))
        if 1 in layers:
            values = seen.sentences_N.float().cpu().numpy()[None, None, None]
            whole, document = Token(DOCUMENT, SPECIAL, 0, 0), Word(DOCUMENT, SPECIAL, 0, 0, (0,))
            result.append(Maps("sentences", (1,), heads, (whole,), sentences, values, (document,), alone, number))
    return Seen(texts, tuple(result), coverage(encodings))


def _sentence(tokens: Sequence[Token], texts: Sequence[str]) -> Token:
    """The stretch of the text that these tokens are."""
    real = [token for token in tokens if token.part != SPECIAL]
    if not real:
        return Token("".join(token.text for token in tokens), SPECIAL, 0, 0)
    part, start, end = real[0].part, real[0].start, max(token.end for token in real)
    return Token(texts[part][start:end], part, start, end)


# What was written: encoder-decoders -----------------------------------------------------------------------------------


class Captured(NamedTuple):
    """Attentions of one kind, what each got in a pass, and the heads that are asked for."""

    sites: Sequence[maps.Site]
    got: dict[maps.Site, maps.Kept]
    heads: tuple[int, ...]


class Axes(NamedTuple):
    """Which layers and heads the first two axes of maps are."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]


class _Generation:
    """The maps of an encoder-decoder: of a source, and of the target that it generates, or that is given."""

    def __init__(self, model: Looks, texts: tuple[str, ...], segments: Segments) -> None:
        self.model, self.segments = model, segments
        if model.as_read is None:
            raise InputError("this model folder does not say what it was trained to write, so it cannot be asked.")
        _check_some(list(model.tokenizer.pieces(texts[:1])))
        items = model.as_read.items([Example((texts[0],))])
        assert isinstance(items, Written), "a model that writes was trained for a task that does"
        self.task = items
        self.sources = [self._stretch(start, end) for start, end in self.task.cuts.first[:, :2].tolist()]
        target_text, tokens = self._named_target(texts[1]) if len(texts) > 1 else self._generated()
        self.texts, self.targets = (texts[0], target_text), [self._target(each) for each in tokens]
        self.words = _Words(self.texts, segments)

    def seen(self, all_sites: tuple[maps.Site, ...], layers: Selection, heads: Selection) -> Seen:
        """The encoder's maps, the decoder's of itself, and its maps of the source; of a recurrent one only these."""
        wanted = _numbers("layers", layers, max((site.layer for site in all_sites), default=0) + 1)
        some = _numbers("heads", heads, _most_heads(all_sites))
        chosen = [site for layer in wanted for site in all_sites if site.layer == layer]
        joins = len(self.targets) < len(self.sources)  # a writer that sees all stretches of its source at once
        sizes = [len(encoding) for encoding in self.sources]
        cells = sum(size**2 for size in sizes) + sum(
            len(encoding) * (len(encoding) + size)
            for encoding, size in zip(self.targets, [sum(sizes)] if joins else sizes, strict=True)
        )
        check_room(len(wanted) * len(some) * cells)
        result: list[Maps] = []
        memories = []
        for number, encoding in enumerate(self.sources):
            stopping.current().check()
            sites = [site for site in chosen if site.kind == "self"]
            with torch.inference_mode(), maps.kept(sites) as got:
                memories.append(self.model.backbone(_packed(encoding, self.model)))
            result += self._made("self", Captured(sites, got, some), encoding, encoding, number)
            if not joins:
                result += self._decoder_maps(number, memories[-1], encoding, chosen, some)
        if joins:
            whole = Encoding(
                *(np.concatenate([getattr(encoding, name) for encoding in self.sources]) for name in _COLUMNS)
            )
            result += self._decoder_maps(0, torch.cat(memories), whole, chosen, some)
        return Seen(self.texts, tuple(result))

    def _decoder_maps(
        self,
        number: int,
        memory: torch.Tensor,
        encoding: Encoding,
        chosen: Sequence[maps.Site],
        heads: tuple[int, ...],
    ) -> list[Maps]:
        """The maps of a target: of itself, and of its source."""
        backbone: Any = self.model.backbone
        source, target = _packed(encoding, self.model), _packed(self.targets[number], self.model)
        owners = torch.zeros(1, dtype=torch.long)
        if not maps.sites(backbone):  # a recurrent writer, which has scores alone
            with torch.inference_mode():
                weights_QS = backbone.attention_of(target, memory, source, owners)[0].float().cpu().numpy()
            return [
                self._map("cross", Axes((0,), (0,)), weights_QS[None, None], (self.targets[number], encoding), number)
            ]
        sites = [site for site in chosen if site.kind != "self"]
        with torch.inference_mode(), maps.kept(sites, alone=True) as got:
            backbone.decoded(target, memory, source, owners)
        result = []
        for kind, other in (("written", self.targets[number]), ("cross", encoding)):
            alike = [site for site in sites if site.kind == kind]
            result += self._made(kind, Captured(alike, got, heads), self.targets[number], other, number)
        return result

    def _made(self, kind: str, seen: Captured, rows: Encoding, columns: Encoding, number: int) -> list[Maps]:
        if not seen.sites:
            return []
        axes = Axes(tuple(site.layer for site in seen.sites), seen.heads)
        return [self._map(kind, axes, _values(*seen), (rows, columns), number)]

    def _map(self, kind: str, axes: Axes, values: Floats, sides: tuple[Encoding, Encoding], number: int) -> Maps:
        rows = _tokens(sides[0], self.model.tokenizer)
        columns = rows if sides[0] is sides[1] else _tokens(sides[1], self.model.tokenizer)
        return Maps(kind, *axes, rows, columns, values, self.words.of(rows), self.words.of(columns), number)

    def _stretch(self, start: int, end: int) -> Encoding:
        """[CLS] … [SEP] of a stretch of the source."""
        encoding = self.model.tokenizer.assembled(self.task.source_pieces[0].cut(start, end))
        special = np.isin(encoding.ids, (self.model.tokenizer.cls_id, self.model.tokenizer.sep_id))
        encoding.parts[special] = SPECIAL  # between the turns of a dialogue stands one too
        return encoding

    def _target(self, tokens: Tokens) -> Encoding:
        """[CLS] and what was written, as the writer gets it."""
        whole = self.model.tokenizer.assembled(Tokens(*(column[:0] for column in tokens)), tokens)
        keep = whole.parts == 1
        keep[0] = True
        whole.parts[whole.starts == whole.ends] = SPECIAL  # a token that stands for no character
        return Encoding(whole.ids[keep], whole.segments[keep] * 0, *(getattr(whole, n)[keep] for n in _COLUMNS[2:]))

    def _named_target(self, target: str) -> tuple[str, list[Tokens]]:
        """A target that was given; its tokens."""
        if len(self.sources) > 1 and not self.task.joins:
            raise InputError(
                f"the source is translated in {len(self.sources)} stretches, and nobody knows which part of the target "
                "is whose; give one stretch, or let the model write."
            )
        tokens, most = self.model.tokenizer.pieces([target])[0], self.task.config.max_length - 1
        if not 0 < len(tokens.ids) <= most:
            raise InputError(f"the target has {len(tokens.ids):,} tokens, but must have from 1 to {most:,}.")
        return target, [tokens]

    def _generated(self) -> tuple[str, list[Tokens]]:
        """The generated text, and the tokens of each stretch of it."""
        vocabulary, text, stretches = self.model.tokenizer.vocabulary, "", []
        for ids, _, _ in self.model.engine.answers(self.task)[0]:
            row, begin = np.asarray(ids, dtype=np.int32), len(text)
            text += joined([vocabulary[index] for index in ids], after=text)
            stretches.append(Tokens(row, *_places([vocabulary[index] for index in ids], text, begin)))
        return text, stretches


_COLUMNS = ("ids", "segments", "parts", "starts", "ends")


def _places(names: Sequence[str], text: str, at: int) -> tuple[Ints, Ints]:
    """Where tokens stand in the text that was joined of them: that only puts spaces between."""
    starts, ends = [], []
    for name in names:
        piece = name.removeprefix(PREFIX) if len(name) > len(PREFIX) else name
        begin = at + len(text[at:]) - len(text[at:].lstrip())
        if text.startswith(piece, begin):
            starts.append(begin)
            at = begin + len(piece)
        else:  # a token that nobody reads, such as [SEP]
            starts.append(at)
        ends.append(at)
    return np.array(starts, dtype=np.int32), np.array(ends, dtype=np.int32)
