"""Masked words and next sentences: documents in, BERT's own two questions out (Devlin et al. 2019, §3.1).

15 % of the tokens are chosen, whole words at a time; of these 80 % become [MASK], 10 % a random token, 10 % stay. Half
of the pairs are neighbours, half have a second part from another document. The loss is the plain sum of both answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item, Segmenter
from filbert.core.random import generator
from filbert.core.records import Encoding, Ints
from filbert.text.sentences import sentences
from filbert.text.tokenizer import Tokenizer
from filbert.text.words import segmenter, word_spans

if TYPE_CHECKING:
    import torch

Random = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the questions are asked."""

    max_length: int = 128
    mask_prob: float = 0.15
    short_prob: float = 0.1  # share of pairs that are cut shorter, so that short inputs are learnt too
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.max_length >= 8:
            raise InputError(f"mlm_nsp: max_length is {self.max_length}, but must be 8 or more.")
        for name in ("mask_prob", "short_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"mlm_nsp: {name} is {getattr(self, name)!r}, but must be from 0 up to 1.")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence's token ids, and for each token the index of the word it is part of."""

    ids: Ints  # [N]
    words: Ints  # [N]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring sentences of one document that fill one input."""

    document: int
    first: int
    last: int  # exclusive


class Task:
    """MLM + NSP over documents held in memory."""

    def __init__(
        self, documents: Iterable[str], tokenizer: Tokenizer, config: Config, words: Segmenter | None = None
    ) -> None:
        self.tokenizer, self.config = tokenizer, config
        segment = words or segmenter("auto")
        read = (_sentences(text, tokenizer, segment) for text in documents)
        self.documents = [found for found in read if found]
        if len(self.documents) < 2:
            raise InputError(
                f"pretraining with next-sentence prediction needs two documents or more, but the corpus has "
                f"{len(self.documents)}; put a blank line between documents."
            )
        self.room = config.max_length - 3  # [CLS] a [SEP] b [SEP]
        self.stretches = [s for d in range(len(self.documents)) for s in self._stretches(d)]
        ordinary = np.ones(tokenizer.vocab_size, dtype=bool)
        ordinary[list(tokenizer.special_ids)] = False
        self.ordinary = np.flatnonzero(ordinary).astype(np.int32)

    def __len__(self) -> int:
        return len(self.stretches)

    def _stretches(self, document: int) -> Iterable[Stretch]:
        """The document cut into runs of sentences that together fill an input; every sentence is in exactly one."""
        size, first = 0, 0
        lengths = [len(s.ids) for s in self.documents[document]]
        for index, length in enumerate(lengths):
            if index > first and size + length > self.room:
                yield Stretch(document, first, index)
                size, first = 0, index
            size += length
        yield Stretch(document, first, len(lengths))

    def item(self, index: int, epoch: int) -> Item:
        """One pair with its masks; the same for the same (seed, epoch, index), whoever asks."""
        random = generator(self.config.seed, "mlm_nsp", epoch, index)
        first, second, follows = self._pair(self.stretches[index], random)
        encoding, words = self._laid_out(first, second)
        rows = chosen(words, self.config.mask_prob, random)
        gold = encoding.ids[rows]
        encoding.ids[rows] = self._hidden(gold, random)
        targets = {"mask_rows": rows, "mask_ids": gold, "follows": np.array([follows])}
        return Item(sequences=(encoding,), targets=targets)

    def _pair(self, at: Stretch, random: Random) -> tuple[Sentence, Sentence, bool]:
        document = self.documents[at.document]
        room = self.room if random.random() >= self.config.short_prob else int(random.integers(4, self.room + 1))
        cut = at.first + 1 if at.last - at.first < 3 else int(random.integers(at.first + 1, at.last))
        first = _together(document[at.first : cut])
        # A document of one sentence has no next one: its second part always comes from elsewhere.
        follows = cut < at.last and random.random() < 0.5
        second = _together(document[cut : at.last] if follows else self._elsewhere(at.document, random))
        return *_fitted(first, second, room, random), follows

    def _elsewhere(self, document: int, random: Random) -> list[Sentence]:
        other = int(random.integers(len(self.documents) - 1))
        found = self.documents[other + (other >= document)]
        return found[int(random.integers(len(found))) :]

    def _laid_out(self, first: Sentence, second: Sentence) -> tuple[Encoding, Ints]:
        """[CLS] first [SEP] second [SEP], and each token's word (-1 for the special ones)."""
        cls, sep = np.int32(self.tokenizer.cls_id), np.int32(self.tokenizer.sep_id)
        ids = np.concatenate([[cls], first.ids, [sep], second.ids, [sep]]).astype(np.int32)
        shift = first.words.max(initial=-1) + 1
        words = np.concatenate([[-1], first.words, [-1], second.words + shift, [-1]]).astype(np.int32)
        segments = np.zeros_like(ids)
        segments[len(first.ids) + 2 :] = 1
        nowhere = np.zeros_like(ids)
        return Encoding(ids, segments, np.where(words < 0, -1, segments), nowhere, nowhere), words

    def _hidden(self, gold: Ints, random: Random) -> Ints:
        """80 % [MASK], 10 % any ordinary token of the vocabulary, 10 % as they were."""
        dice = random.random(len(gold))
        swapped = self.ordinary[random.integers(len(self.ordinary), size=len(gold))]
        return np.where(dice < 0.8, self.tokenizer.mask_id, np.where(dice < 0.9, swapped, gold)).astype(np.int32)

    def loss(self, model: Any, batch: Batch) -> tuple[torch.Tensor, Mapping[str, float]]:
        """The sum of both cross-entropies; the model's last layer works for the masked and first tokens only."""
        import torch
        import torch.nn.functional as F

        masked = batch.targets["mask_rows"].long()
        gold = batch.targets["mask_ids"].long()
        follows = batch.targets["follows"].long()
        hidden_RD = model(batch.packed, torch.cat((masked, batch.starts.long())))
        scores_MV = model.word_scores(hidden_RD[: len(masked)])
        words = F.cross_entropy(scores_MV.float(), gold)
        order = model.nsp(model.pooled(hidden_RD[len(masked) :]))
        # The published label 0 is "follows", 1 is "random".
        pairs = F.cross_entropy(order.float(), 1 - follows)
        numbers = {
            "mlm_loss": float(words.detach()),
            "nsp_loss": float(pairs.detach()),
            "mlm_accuracy": float((scores_MV.argmax(-1) == gold).float().mean()),
            "nsp_accuracy": float((order.argmax(-1) == 1 - follows).float().mean()),
        }
        return words + pairs, numbers


def chosen(words: Ints, mask_prob: float, random: Random) -> npt.NDArray[np.int64]:
    """Places of the tokens to ask for: whole words, in random order, until `mask_prob` of all tokens are taken.

    A word that would overshoot is passed over, and the fraction of a token that is left is drawn by chance, so the
    rate holds on average for texts of any length.
    """
    places = np.flatnonzero(words >= 0)
    if not len(places):
        return places
    wanted = len(places) * mask_prob
    quota = int(wanted) + (random.random() < wanted - int(wanted))
    names, sizes = np.unique(words[places], return_counts=True)
    taken: list[int] = []
    for at in random.permutation(len(names)):
        if sizes[at] <= quota:
            taken.append(int(names[at]))
            quota -= int(sizes[at])
        if not quota:
            break
    return np.flatnonzero(np.isin(words, taken) & (words >= 0))


def _sentences(text: str, tokenizer: Tokenizer, segment: Segmenter) -> list[Sentence]:
    found = [text[start:end] for start, end in sentences(text)]
    result = []
    for sentence, tokens in zip(found, tokenizer.pieces(found), strict=True):
        if len(tokens.ids):
            begins = np.array([start for start, _ in word_spans(sentence, segment)] or [0])
            # A token belongs to the word that its first character is in; a word-piece stays with its word's first.
            words = np.searchsorted(begins, tokens.starts, side="right") - 1
            words = np.maximum.accumulate(np.maximum(words, 0))
            inner = tokenizer.continues[tokens.ids]
            for at in np.flatnonzero(inner):
                words[at] = words[at - 1] if at else words[at]
            result.append(Sentence(tokens.ids.astype(np.int32), words.astype(np.int32)))
    return result


def _together(run: list[Sentence]) -> Sentence:
    """Neighbouring sentences as one, with their words numbered on."""
    shift, words = 0, []
    for sentence in run:
        words.append(sentence.words + shift)
        shift += int(sentence.words.max()) + 1
    return Sentence(np.concatenate([s.ids for s in run]), np.concatenate(words))


def _fitted(first: Sentence, second: Sentence, room: int, random: Random) -> tuple[Sentence, Sentence]:
    """Both parts cut to share the room: the longer gives way, at its front or back by chance, as in the reference."""
    sizes = [len(first.ids), len(second.ids)]
    over = sum(sizes) - room
    if over <= 0:
        return first, second
    gap = abs(sizes[0] - sizes[1])
    longer = 0 if sizes[0] > sizes[1] else 1
    cuts = [0, 0]
    cuts[longer] = min(over, gap)
    rest = over - cuts[longer]
    cuts[0] += rest // 2
    cuts[1] += rest - rest // 2
    return _cut(first, cuts[0], random), _cut(second, cuts[1], random)


def _cut(part: Sentence, size: int, random: Random) -> Sentence:
    front = int(random.integers(size + 1))
    keep = slice(front, len(part.ids) - (size - front))
    return Sentence(part.ids[keep], part.words[keep])
