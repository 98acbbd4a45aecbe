"""Words and their neighbours: a corpus as token arrays in, which words predict which out (Mikolov et al. 2013a, b).

Skip-gram: a word predicts each word around it. CBOW: the mean of the words around predicts it. How far "around" goes is
drawn anew for each word, from 1 to `window`; frequent words are left out at random first, so that windows reach far.
What is predicted is told apart from noise (negative sampling, 2013b eq. 4) or reached by turns down a tree
(hierarchical softmax, eq. 3). Texts may be rows of tokens or of whole words (corpus.word_vocab).

Eq. 4 has an expectation over noise words for every pair. Here the words of a block share theirs, each weighed so that
the sum has the same mean: scores become products of small matrices instead of single dots (Ji et al. 2016).

Legend: T tokens of the row, B sequences, N blocks, G words of a block, W = G + 2·window words around it, S noise words,
E things to tell apart, P turns, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item, Term
from filbert.core.random import Draws, keys, uniforms
from filbert.core.records import Array, Encoding, Packed
from filbert.corpus.word_vocab import Vocabulary
from filbert.pack.lay import row
from filbert.pack.stretches import Places, Round, Stretches, Text, stretches
from filbert.tasks import task
from filbert.tasks.word_vectors.spec import OUTPUTS, Config

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from filbert.nn.encoder import Encoder

BLOCK = 32  # words that share their noise, G
NOISE = 32  # noise words of a block, S
COUNTED = 2**22  # tokens looked at together when they are counted
ROUND_TOKENS = 2**28  # planned at once, as in mlm_nsp
KEPT, REACH, DRAWN = range(1, 4)  # one counter stream for each kind of draw
STREAM = 2**40


@dataclass(frozen=True, slots=True)
class Orders:
    """What a batch is built from, in any process."""

    epoch: int
    items: Stretches

    @property
    def lengths(self) -> Places:
        """[B] words of each item, before frequent ones are left out."""
        return self.items.first_end - self.items.first

    def orders(self, indices: Places) -> Orders:
        """What `Task.batch` needs for these."""
        return Orders(self.epoch, self.items.orders(indices))


class Items(task.Items[Config]):
    """Skip-gram or CBOW over the shards of a corpus; an epoch is one round of shards."""

    parts: tuple[str, ...]  # of a model that can be trained by it

    def __init__(self, shards: Sequence[Text], tokenizer: Vocabulary, config: Config) -> None:
        self.config, self.parts, self.longest = config, (OUTPUTS[config.output],), config.max_length
        texts = [shard for shard in shards if shard.num_tokens]
        num_rounds = max(1, -(-sum(shard.num_tokens for shard in texts) // ROUND_TOKENS))
        self.rounds = [texts[at::num_rounds] for at in range(num_rounds)]
        self.frequencies = _counted(texts, tokenizer)
        if not self.frequencies.any():
            raise InputError("word vectors need some text, but the corpus has no token that is a word.")
        self.keep_prob = kept_share(self.frequencies, config.subsample)
        noise = np.where(self.frequencies > 0, self.frequencies.astype(np.float64) ** config.noise_power, 0.0)
        self.noise_ends = np.cumsum(noise) / noise.sum()  # [V] the noise distribution, summed up
        self._texts: dict[int, Round] = {}
        self._plan: Orders | None = None

    def begin(self, model: Encoder) -> None:
        """Sets in a new model how frequent each word is: its tree is made by that."""
        if self.config.output == "hierarchical":
            model.nodes.grow(self.frequencies)  # type: ignore[union-attr,operator]

    def __len__(self) -> int:
        return len(self.plan(0).lengths)

    def _text(self, epoch: int) -> Round:
        at = epoch % len(self.rounds)
        if at not in self._texts:
            self._texts = {at: Round(self.rounds[at])}
        return self._texts[at]

    def plan(self, epoch: int) -> Orders:
        """Where every item of the epoch begins and ends: sentences of one document, `max_length` words at most."""
        if self._plan is None or self._plan.epoch != epoch:
            room = self.config.max_length + 2  # that of masked stretches, whose [CLS] and [SEP] are not added here
            self._plan = Orders(epoch, stretches(self._text(epoch), "mlm", room, 0.0, self.config.seed, epoch))
        return self._plan

    def item(self, index: int, epoch: int) -> Item:
        """One item; the same for the same (seed, epoch, index), whoever asks."""
        batch = self.batch(self.plan(epoch).orders(np.array([index])))
        nothing = np.zeros_like(batch.packed.ids)
        return Item((Encoding(batch.packed.ids, nothing, nothing, nothing, nothing),), batch.targets)

    # What a batch holds -----------------------------------------------------------------------------------------------

    def batch(self, orders: Orders, budget: int | None = None) -> Batch:
        """The items' words, and blocks of them to predict; with `budget`, arrays but the boundaries are of one size."""
        ids, lengths, order, item_keys = self._kept(orders)
        packed = _packed(ids, lengths, self.config.max_length, budget)
        edges = packed.boundaries[: len(order)].astype(np.int64)
        starts = np.empty_like(edges)
        starts[order] = edges
        targets = self._blocks(lengths, edges, item_keys)
        if budget is not None:
            targets = _filled(targets, budget)
        return Batch(packed, starts, np.arange(len(order)), targets)

    def _kept(self, orders: Orders) -> tuple[npt.NDArray[np.int32], Places, Places, npt.NDArray[np.uint64]]:
        """The words that stay, item after item by length; [B] lengths, [B] which item each is, [B] its key."""
        items, sizes = orders.items, orders.lengths
        owners = np.repeat(np.arange(len(sizes)), sizes)
        places = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        ids = self._text(orders.epoch).gathered("ids", places + items.first[owners])
        item_keys = keys(self.config.seed, "word_vectors", orders.epoch, items.examples)
        stays = uniforms(item_keys[owners], places + KEPT * STREAM) < self.keep_prob[ids]
        ids, lengths = ids[stays].astype(np.int32), np.bincount(owners[stays], minlength=len(sizes))
        order = np.argsort(lengths, kind="stable")
        moved = np.repeat((np.cumsum(lengths) - lengths)[order], lengths[order])
        lengths = lengths[order]
        moved += np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return ids[moved], lengths, order, item_keys[order]

    def _blocks(
        self, lengths: Places, starts: Places, item_keys: npt.NDArray[np.uint64]
    ) -> dict[str, npt.NDArray[Any]]:
        """Every word once, BLOCK neighbours together; what the last block of a sequence lacks has a reach of 0."""
        c, sizes = self.config, -(-lengths // BLOCK)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        number = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        last, first, key = (lengths[owners] - 1)[:, None], starts[owners][:, None], item_keys[owners][:, None]
        at_NG = (number * BLOCK)[:, None] + np.arange(BLOCK)
        around_NW = (number * BLOCK)[:, None] + np.arange(-c.window, BLOCK + c.window)
        reach_NG = 1 + (c.window * uniforms(key, at_NG + REACH * STREAM)).astype(np.int64)
        reach_NG[at_NG > last] = 0
        near_NG = np.minimum(at_NG, reach_NG) + np.minimum(np.maximum(last - at_NG, 0), reach_NG)
        drawn_NS = uniforms(key, (number * NOISE)[:, None] + np.arange(NOISE) + DRAWN * STREAM)
        return {
            "centre_rows": first + np.minimum(at_NG, last),
            "around_rows": first + np.clip(around_NW, 0, last),
            "is_text": (around_NW >= 0) & (around_NW <= last),
            "reach": reach_NG,
            "num_near": near_NG,
            "noise": self.noise(drawn_NS),
        }

    def noise(self, draws: Draws) -> Places:
        """A word for each draw from 0 up to 1: by frequency to the power of `noise_power` (2013b, §2.2)."""
        # Sums are rounded, so that the last may be below 1; the last word that is ever drawn has all that is above.
        most = int(np.searchsorted(self.noise_ends, self.noise_ends[-1]))
        words: Places = np.minimum(np.searchsorted(self.noise_ends, draws, side="right"), most)
        return words

    # What is learnt ---------------------------------------------------------------------------------------------------

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many predictions the loss sums over."""
        near = batch.targets["num_near"]
        return {"pair_loss": int(near.sum() if self.config.objective == "skip-gram" else (near > 0).sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The sum over predictions of -log p of what is right, as eq. 3 or eq. 4 has it."""
        import torch
        import torch.nn.functional as F

        targets, packed, num_NG = batch.targets, batch.packed, batch.targets["num_near"]
        near_NWG = _near(targets, self.config.window)
        if self.config.objective == "skip-gram":
            input_NGD = _vectors(model, packed, targets["centre_rows"])
            asking, words, right = input_NGD, packed.ids[targets["around_rows"]], near_NWG
        else:
            around_NWD = _vectors(model, packed, targets["around_rows"])
            share_NWG = (near_NWG / num_NG.clamp(min=1).unsqueeze(1)).to(around_NWD.dtype)
            input_NGD = torch.bmm(share_NWG.transpose(1, 2), around_NWD)
            num_NG = (num_NG > 0).long()
            # A mean predicts one word alone: for what is right, every word is a block of its own.
            asking, words = input_NGD.flatten(0, 1).unsqueeze(1), packed.ids[targets["centre_rows"]].view(-1, 1)
            right = num_NG.view(-1, 1, 1)
        if self.config.output == "negative":
            contexts: Module = model.contexts  # type: ignore[assignment]
            words_NED, noise_NSD = _looked_up(contexts, words, targets["noise"])
            noise_NG = F.softplus(_scores(noise_NSD, input_NGD)).mean(1)
            cost = (F.softplus(-_scores(words_NED, asking)) * right).sum()
            cost = cost + self.config.negatives * (noise_NG * num_NG).sum()
        else:
            cost = (_by_turns(model, asking, words) * right).sum()
        return {"pair_loss": Term(cost, num_NG.sum())}


def _near(targets: Mapping[str, Array], window: int) -> Tensor:
    """[N, W, G] which of the words around a block each of its words reaches; not itself."""
    import torch

    device = targets["reach"].device
    around_W = torch.arange(targets["is_text"].shape[1], device=device) - window
    apart_WG = (around_W.unsqueeze(1) - torch.arange(targets["reach"].shape[1], device=device)).abs()
    near: Tensor = (apart_WG <= targets["reach"].unsqueeze(1)) & (apart_WG > 0) & targets["is_text"].unsqueeze(-1)
    return near


def _vectors(model: Encoder, packed: Packed, rows: Tensor) -> Tensor:
    """[…, D] the model's vectors of these rows."""
    vectors: Tensor = model(packed, rows.flatten())
    return vectors.view(*rows.shape, vectors.shape[-1])


def _looked_up(table: Module, *ids: Tensor) -> list[Tensor]:
    """[…, D] the rows of each of these, in one go: each look-up would have a gradient as large as the table."""
    import torch

    rows = table(torch.cat([each.flatten() for each in ids]))
    parts: list[Tensor] = list(rows.split([each.numel() for each in ids]))
    return [part.view(*each.shape, part.shape[-1]) for part, each in zip(parts, ids, strict=True)]


def _scores(words_NED: Tensor, input_NGD: Tensor) -> Tensor:
    """[N, E, G] every product; in this order the gradient of the many rows needs no copy."""
    import torch

    if words_NED.shape[1] == input_NGD.shape[1] == 1:
        return (words_NED * input_NGD).sum(-1, keepdim=True).float()
    products: Tensor = torch.bmm(words_NED, input_NGD.transpose(1, 2))
    return products.float()


def _by_turns(model: Encoder, input_NGD: Tensor, words_NE: Tensor) -> Tensor:
    """[N, E, G] -log p of each word from each input: a factor σ(±x·n) for each turn on the way to it."""
    import torch.nn.functional as F

    nodes_NEPD, turns_NEP = model.nodes(words_NE)  # type: ignore[operator]
    scores_NEPG = _scores(nodes_NEPD.flatten(1, 2), input_NGD).view(*turns_NEP.shape, input_NGD.shape[1])
    turns_NEP1 = turns_NEP.unsqueeze(-1)
    costs: Tensor = (F.softplus(-turns_NEP1 * scores_NEPG) * (turns_NEP1 != 0)).sum(2)
    return costs


def kept_share(frequencies_V: Places, threshold: float) -> Draws:
    """[V] how likely each word stays: with f its share of the text, √(t/f) + t/f, or 1 where that is more.

    The paper has 1 - √(t/f) as the chance to be left out (2013b, eq. 5); the authors' program, which made their
    vectors, has this, which is gentler near the threshold. gensim follows it too. Special tokens never stay.
    """
    shares = frequencies_V / frequencies_V.sum()
    ratio: Draws = np.divide(threshold or np.inf, shares, out=np.zeros(len(shares)), where=shares > 0)
    return np.minimum(np.sqrt(ratio) + ratio, 1.0)


def _counted(shards: Sequence[Text], vocabulary: Vocabulary) -> Places:
    """[V] how often each word stands in the texts; special tokens count as none."""
    counts = np.zeros(vocabulary.vocab_size, dtype=np.int64)
    for shard in shards:
        for at in range(0, shard.num_tokens, COUNTED):
            counts += np.bincount(shard.ids[at : at + COUNTED], minlength=len(counts))
    counts[list(vocabulary.special_ids)] = 0
    return counts


def _packed(ids: npt.NDArray[np.int32], lengths: Places, longest: int, budget: int | None) -> Packed:
    """The words in a row; up to the budget it is filled with sequences that nobody reads."""
    return row(ids, None, lengths, budget, longest if budget is not None else 0)


def _filled(targets: Mapping[str, npt.NDArray[np.generic]], budget: int) -> dict[str, npt.NDArray[np.generic]]:
    """A constant number of blocks; those that only fill up reach nothing."""
    num_blocks = len(targets["reach"])
    size = -(-budget // (BLOCK * 64)) * 64
    while size < num_blocks:  # very many short texts: a larger graph, nothing dropped
        size *= 2
    return {name: np.pad(values, ((0, size - num_blocks), (0, 0))) for name, values in targets.items()}
