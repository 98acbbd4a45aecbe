"""The next word: a corpus as token arrays in, what a language model is asked out.

Every token is predicted from those before it in its stretch (Bengio et al. 2003; Radford et al. 2018); of a model that
reads both ways, also from those after it (Peters et al. 2018, §3.1). A stretch reads [CLS] … [SEP], as all texts do;
[SEP] is predicted only where a document ends, and [CLS], backward, where one begins: a cut between is no end of a text.

A model says in `directions` how it reads. Where that is ("forward",), the vectors of its forward pass are what
`word_scores` predicts the next word from; where it is ("forward", "backward"), `both_ways(packed)` gives those of both.

Legend: T tokens of the row, B sequences, R pairs of neighbours, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item, Term
from filbert.core.records import Encoding, Packed
from filbert.pack.lay import row
from filbert.pack.stretches import NOTHING, Places, Round, Stretches, Text, stretches
from filbert.tasks import task
from filbert.tasks.causal_lm.spec import Config
from filbert.tasks.mlm_nsp.items import COUNTED, EpochPlan, Orders, dealt
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from filbert.nn.encoder import Encoder

SCORES = 2**27  # numbers scored at once, half a gigabyte: a row of tokens times a vocabulary can be far more


class Items(task.Items[Config]):
    """Next words, and those before where the model reads both ways, over the shards of a corpus; see mlm_nsp.Task."""

    parts: tuple[str, ...] = ("lm",)  # of a model that can be trained by it

    def __init__(self, shards: Sequence[Text], tokenizer: Tokenizer, config: Config) -> None:
        self.tokenizer, self.config, self.longest = tokenizer, config, config.max_length
        if not sum(len(shard.documents) - 1 for shard in shards):
            raise InputError("pretraining a language model needs 1 document or more, but the corpus has 0.")
        self.rounds = dealt([shard for shard in shards if shard.num_tokens])
        self._texts: dict[int, Round] = {}
        self._plan: EpochPlan | None = None

    def begin(self, model: Encoder) -> None:
        """Sets in a new model the spelling of its tokens and how frequent each is, where it has use for them."""
        import torch

        if model.spells:
            model.spell(self.tokenizer.vocabulary)
        bias = dict(model.named_parameters()).get("lm.bias")
        if bias is None:
            return
        counts = np.full(len(bias), 0.1)
        for shard in self.rounds[0]:
            for at in range(0, shard.num_tokens, COUNTED):
                counts += np.bincount(shard.ids[at : at + COUNTED], minlength=len(counts))
        with torch.no_grad():
            bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))

    def __len__(self) -> int:
        return len(self.plan(0).lengths)

    def _text(self, epoch: int) -> Round:
        at = epoch % len(self.rounds)
        if at not in self._texts:
            self._texts = {at: Round(self.rounds[at])}
        return self._texts[at]

    def plan(self, epoch: int) -> EpochPlan:
        """Where every item of the epoch begins and ends."""
        if self._plan is None or self._plan.epoch != epoch:
            c = self.config
            items = stretches(self._text(epoch), "mlm", c.max_length, c.short_prob, c.seed, epoch)
            self._plan = EpochPlan(epoch, items)
        return self._plan

    def item(self, index: int, epoch: int) -> Item:
        """One item; the same for the same (seed, epoch, index), whoever asks."""
        batch = self.batch(self.plan(epoch).orders(np.array([index])))
        ids, nowhere = batch.packed.ids, np.zeros_like(batch.packed.ids)
        parts = np.zeros_like(ids)
        parts[[0, -1]] = -1
        return Item((Encoding(ids, nowhere, parts, nowhere, nowhere),), batch.targets)

    def batch(self, orders: Orders, budget: int | None = None) -> Batch:
        """The items packed and ready; with `budget`, every array but the boundaries has a constant size."""
        order = np.argsort(orders.items.lengths, kind="stable")
        items = orders.items.orders(order)
        packed, targets = self._laid_out(items, orders.epoch, budget)
        starts = np.empty(len(order), dtype=np.int64)
        starts[order] = packed.boundaries[: len(order)]
        return Batch(packed, starts, np.arange(len(order)), targets)

    def _laid_out(self, items: Stretches, epoch: int, budget: int | None) -> tuple[Packed, dict[str, Any]]:
        """[CLS] text [SEP] of every item in one row, by length, and the ids to predict for each pair of neighbours."""
        text, lengths = self._text(epoch), items.lengths
        owners = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        is_last = places == lengths[owners] - 1
        ids = np.full(len(owners), self.tokenizer.sep_id, dtype=np.int32)
        ids[places == 0] = self.tokenizer.cls_id
        inside = (places > 0) & ~is_last
        ids[inside] = text.gathered("ids", items.first[owners[inside]] + places[inside] - 1)
        left = np.flatnonzero(~is_last)
        unasked_next = is_last[left + 1] & ~_is_edge(text, items.first_end)[owners[left]]
        unasked_previous = (places[left] == 0) & ~_is_edge(text, items.first)[owners[left]]
        next_ids = np.where(unasked_next, NOTHING, ids[left + 1])
        previous_ids = np.where(unasked_previous, NOTHING, ids[left])
        if budget is not None:
            fill = (0, budget - len(left))
            left = np.pad(left, fill)
            next_ids, previous_ids = (np.pad(x, fill, constant_values=NOTHING) for x in (next_ids, previous_ids))
        packed = row(ids, None, lengths, budget, self.config.max_length if budget is not None else 0)
        # The right one of a pair is the row after the left one; in a row that only fills up nothing is asked.
        targets = {"left_rows": left, "next_ids": next_ids, "previous_ids": previous_ids}
        return packed, {name: value.astype(np.int64) for name, value in targets.items()}

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many words are predicted in each direction; backward_loss is only there if the model reads both ways."""
        targets = {"lm_loss": "next_ids", "backward_loss": "previous_ids"}
        return {loss: int((batch.targets[name] != NOTHING).sum()) for loss, name in targets.items()}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of each direction and its accuracy; both directions together are the paper's sum."""
        left, next_ids = batch.targets["left_rows"], batch.targets["next_ids"]
        if len(model.directions) == 1:
            return _answers("lm", model, model(batch.packed, left), next_ids)
        onward_TD, back_TD = model.both_ways(batch.packed)
        return {
            **_answers("lm", model, onward_TD[left], next_ids),
            **_answers("backward", model, back_TD[left + 1], batch.targets["previous_ids"]),
        }

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        """The perplexity of each direction, from the mean losses of an evaluation."""
        named = {"perplexity": "lm_loss", "backward_perplexity": "backward_loss"}
        return {name: math.exp(min(means[loss], 700.0)) for name, loss in named.items() if loss in means}


def _is_edge(text: Round, places: Places) -> Any:
    """Whether a document begins or ends at each of these places."""
    return text.documents[np.searchsorted(text.documents, places)] == places


def _answers(name: str, model: Encoder, x_RD: torch.Tensor, gold_R: torch.Tensor) -> dict[str, Term]:
    """The loss and how much was right, scored in parts: their scores are made again for the gradient, not kept."""
    import torch
    from torch.utils.checkpoint import checkpoint

    size = max(1, SCORES // model.config.vocab_size)
    pairs = list(zip(torch.split(x_RD, size), torch.split(gold_R, size), strict=True))
    if len(pairs) > 1 and torch.is_grad_enabled():
        sums = [checkpoint(_summed, model, *pair, use_reentrant=False, preserve_rng_state=False) for pair in pairs]
    else:
        sums = [_summed(model, *pair) for pair in pairs]
    loss, right = (torch.stack(column).sum() for column in zip(*sums, strict=True))
    count = (gold_R != NOTHING).sum()
    return {f"{name}_loss": Term(loss, count), f"{name}_accuracy": Term(right, count)}


def _summed(model: Encoder, x_RD: torch.Tensor, gold_R: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of cross-entropies, and how many words were the likeliest."""
    import torch.nn.functional as F

    scores_RV = model.word_scores(x_RD).float()
    gold_scores_R = scores_RV.detach().gather(-1, gold_R.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    right = ((gold_scores_R >= scores_RV.detach().amax(-1)) & (gold_R != NOTHING)).sum()
    return F.cross_entropy(scores_RV, gold_R, ignore_index=NOTHING, reduction="sum"), right
