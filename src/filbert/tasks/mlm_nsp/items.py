"""Masked words and next sentences: a corpus as token arrays in, BERT's two questions out (Devlin et al. 2019, §3.1).

15 % of the tokens are chosen, whole words at a time; of these 80 % become [MASK], 10 % a random token, 10 % stay. Half
of the pairs are neighbours, half have a second part from another document; or both parts are neighbours and half are
swapped (sentence order, Lan et al. 2020); or there are no pairs. The loss is the plain sum of both answers.

Legend: T tokens of the row, B sequences, M masked tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Item, Term
from filbert.core.random import keys
from filbert.core.records import Encoding, Ints, Packed
from filbert.pack import lay
from filbert.pack.masking import Row, chosen, hidden
from filbert.pack.stretches import NOTHING, Places, Round, Stretches, Text, stretches
from filbert.tasks import task
from filbert.tasks.mlm_nsp.spec import Config, least_documents
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from filbert.nn.encoder import Encoder

COUNTED = 2**22  # tokens looked at together when they are counted
ROUND_TOKENS = 2**28  # planned at once: some 100 MB of plan, however large the corpus


@dataclass(frozen=True, slots=True)
class Orders:
    """What a batch is built from, in any process."""

    epoch: int
    items: Stretches


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """An epoch's stretches."""

    epoch: int
    items: Stretches

    @property
    def lengths(self) -> Places:
        """[N] tokens of each item."""
        return self.items.lengths

    def orders(self, indices: Places) -> Orders:
        """What `Task.batch` needs for these."""
        return Orders(self.epoch, self.items.orders(indices))


class Items(task.Items[Config]):
    """MLM, with NSP or sentence order, over the shards of a corpus; an epoch is one round of shards."""

    parts: tuple[str, ...]  # of a model that can be trained by it

    def __init__(self, shards: Sequence[Text], tokenizer: Tokenizer, config: Config) -> None:
        self.tokenizer, self.config, self.longest = tokenizer, config, config.max_length
        self.rounds = dealt([shard for shard in shards if shard.num_tokens])
        self.parts = ("mlm",) if config.objective == "mlm" else ("pooler", "mlm", "nsp")
        num_documents = _num_documents(shards)
        least = least_documents(config)
        if num_documents < least:
            raise InputError(
                f"pretraining with task.objective={config.objective} needs {least} documents or more, but the corpus "
                f"has {num_documents}; put a blank line between documents."
            )
        ordinary = np.ones(tokenizer.vocab_size, dtype=bool)
        ordinary[list(tokenizer.special_ids)] = False
        self.ordinary = np.flatnonzero(ordinary)
        self._texts: dict[int, Round] = {}
        self._plan: EpochPlan | None = None

    def begin(self, model: Encoder) -> None:
        """Sets in a new model how frequent each token is: its blanks begin with the best guess without a context.

        Left to learn this first, all parameters push every vector the same way, and a post-norm stack may never
        tell tokens apart again (experiments/2026-11-16-collapse.md).
        """
        import torch

        counts = np.full(self.tokenizer.vocab_size, 0.1)
        for shard in self.rounds[0]:
            for at in range(0, shard.num_tokens, COUNTED):
                counts += np.bincount(shard.ids[at : at + COUNTED], minlength=len(counts))
        with torch.no_grad():
            model.get_parameter("mlm.bias").copy_(torch.from_numpy(np.log(counts / counts.sum())))

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
            items = stretches(self._text(epoch), c.objective, c.max_length, c.short_prob, c.seed, epoch)
            self._plan = EpochPlan(epoch, items)
        return self._plan

    def item(self, index: int, epoch: int) -> Item:
        """One item with its masks; the same for the same (seed, epoch, index), whoever asks."""
        batch = self.batch(self.plan(epoch).orders(np.array([index])))
        nowhere = np.zeros_like(batch.packed.ids)
        parts = np.where(np.isin(batch.packed.ids, [self.tokenizer.cls_id, self.tokenizer.sep_id]), -1, 0)
        encoding = Encoding(batch.packed.ids, batch.packed.segments, parts.astype(np.int32), nowhere, nowhere)
        return Item((encoding,), batch.targets)

    def batch(self, orders: Orders, budget: int | None = None) -> Batch:
        """The items packed, masked and ready; with `budget`, every array but the boundaries has a constant size."""
        order = np.argsort(orders.items.lengths, kind="stable")
        items = orders.items.orders(order)
        packed, row = self._laid_out(items, orders.epoch, budget)
        rows = chosen(row, self.config.masking, self.config.mask_prob)
        gold = packed.ids[rows]
        packed.ids[rows] = hidden(row, rows, gold, self.tokenizer.mask_id, self.ordinary)
        starts = np.empty(len(order), dtype=np.int64)
        starts[order] = packed.boundaries[: len(order)]
        if budget is not None:
            rows, gold = self._filled(rows, gold, budget)
        targets = {"mask_rows": rows.astype(np.int64), "mask_ids": gold.astype(np.int64)}
        if self.config.objective != "mlm":
            labels = np.empty(len(order), dtype=np.int64)
            labels[order] = items.labels
            targets["pair_labels"] = labels
        return Batch(packed, starts, np.arange(len(order)), targets)

    def _laid_out(self, items: Stretches, epoch: int, budget: int | None) -> tuple[Packed, Row]:
        """[CLS] first [SEP] second [SEP] of every item in one row, by length, not yet masked."""
        text, lengths = self._text(epoch), items.lengths
        total, num_items = int(lengths.sum()), len(lengths)
        owners = np.repeat(np.arange(num_items), lengths)
        places = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        middle = (items.first_end - items.first + 1)[owners]  # the place of the first [SEP]
        ordinary = (places > 0) & (places != middle)
        if items.specials == 3:
            ordinary &= places < lengths[owners] - 1
        second = places > middle
        sources = places + np.where(second, (items.second - 1)[owners] - middle, (items.first - 1)[owners])
        ids = np.full(total, self.tokenizer.sep_id, dtype=np.int32)
        ids[ordinary] = text.gathered("ids", sources[ordinary])
        ids[places == 0] = self.tokenizer.cls_id
        words = np.zeros(total, dtype=bool)
        words[ordinary] = text.gathered("words", sources[ordinary])
        row = Row(owners, places, ordinary, words, keys(self.config.seed, "mask", epoch, items.examples))
        segments = second.astype(np.int32)
        longest = self.config.max_length if budget is not None else 0
        return lay.row(ids, segments, lengths, budget, longest), row

    def _filled(self, rows: Places, gold: Ints, budget: int) -> tuple[Places, Places]:
        """A constant number of masked rows; those that only fill up have no gold."""
        slack = int(self.config.mask_prob * budget + 2 * budget**0.5)
        size = -(-slack // 64) * 64
        while size < len(rows):  # far outside what chance gives: a larger graph, nothing dropped
            size *= 2
        fill = size - len(rows)
        return np.pad(rows, (0, fill)), np.pad(gold.astype(np.int64), (0, fill), constant_values=NOTHING)

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many answers each loss sums over."""
        counts = {"mlm_loss": int((batch.targets["mask_ids"] != NOTHING).sum())}
        if "pair_labels" in batch.targets:
            counts["nsp_loss"] = int((batch.targets["pair_labels"] != NOTHING).sum())
        return counts

    def unhidden(self, batch: Batch) -> Batch:
        """The batch, on a device, with its tokens in its blanks."""
        targets, ids = batch.targets, batch.packed.ids.clone()
        is_masked = targets["mask_ids"] != NOTHING
        ids[targets["mask_rows"][is_masked]] = targets["mask_ids"][is_masked].to(ids.dtype)
        return Batch(batch.packed.with_ids(ids), batch.starts, batch.owners, targets)

    def num_decisions(self, batch: Batch) -> int:
        """How many masked tokens."""
        return int((batch.targets["mask_ids"] != NOTHING).sum())

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """Which word each blank had, as the model's head scores them all."""
        is_masked = batch.targets["mask_ids"] != NOTHING
        return Decisions("one", model(batch.packed, batch.targets["mask_rows"]), is_masked, head=model.word_scores)

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """Both cross-entropies; the model's last layer works for the masked and first tokens only."""
        import torch

        masked, gold = batch.targets["mask_rows"], batch.targets["mask_ids"]
        paired = "pair_labels" in batch.targets
        hidden_RD = model(batch.packed, torch.cat((masked, batch.starts)) if paired else masked)
        scores_MV = model.word_scores(hidden_RD[: len(masked)]).float()
        terms = dict(_answers("mlm", scores_MV, gold))
        if paired:
            scores_B2 = model.nsp(model.pooled(hidden_RD[len(masked) :])).float()  # type: ignore[operator]
            terms.update(_answers("nsp", scores_B2, batch.targets["pair_labels"]))
        return terms


def _answers(name: str, scores: torch.Tensor, gold: torch.Tensor) -> list[tuple[str, Term]]:
    import torch.nn.functional as F

    has_gold = gold != NOTHING
    count = has_gold.sum()
    # The largest score is needed for the loss anyway; where the best token stands is not.
    gold_scores = scores.detach().gather(-1, gold.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    right = ((gold_scores >= scores.detach().amax(-1)) & has_gold).sum()
    loss = F.cross_entropy(scores, gold, ignore_index=NOTHING, reduction="sum")
    return [(f"{name}_loss", Term(loss, count)), (f"{name}_accuracy", Term(right, count))]


def _num_documents(shards: Sequence[Text]) -> int:
    return sum(len(shard.documents) - 1 for shard in shards)


def dealt(shards: list[Text]) -> list[list[Text]]:
    """Shards dealt into as few rounds as keep a plan small, but into none with a single document: it has no other."""
    num_rounds = max(1, -(-sum(shard.num_tokens for shard in shards) // ROUND_TOKENS))
    while True:
        rounds = [shards[at::num_rounds] for at in range(num_rounds)]
        if num_rounds == 1 or all(_num_documents(one) > 1 for one in rounds):
            return rounds
        num_rounds -= 1
