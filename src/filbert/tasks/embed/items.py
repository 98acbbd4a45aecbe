"""Vectors for texts: texts, pairs, pairs with a label or a number, or triplets in; losses of their cosines, or metrics.

The encoder has no head here. A text's vector is the mean of its token vectors ("mean") or its first one ("cls"), over
all its windows, and what is learnt is which cosines are large:

- contrastive, from pairs that belong together: each of the two must be nearer to the other than to any other text of
  its group (Oord et al. 2018; both ways). The third text of a triplet is one of those others. Texts that pairs join,
  directly or through others, are never each other's negatives, nor are equal texts.
- ranking, from numbers: a pair must have a larger cosine than those of its group with a smaller number. Its loss is
  log(1 + Σ exp((their cosine - its own) / temperature)): CoSENT's (Su 2022), but for each pair by itself, since one sum
  for the whole group has eyes for its worst comparison alone.
- both, from labels 0 and 1: pairs with a 1 belong together, and those with a 0 must have smaller cosines.
- dropout, from texts alone: a text read twice, with other dropout and other words hidden, is its own partner (SimCSE,
  Gao et al. 2021). A model without dropout has the hidden words alone.

A group is what is compared: `group` examples, drawn anew in every epoch. It is an item to the loop, so that no split of
a step into parts or among ranks changes what a text is compared with.

Legend: N examples, K texts of each, M = N·K texts, D width.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.random import generator
from filbert.core.records import Array, Example, Floats, Prediction
from filbert.metrics import calibration
from filbert.metrics import vectors as metrics
from filbert.nn.ops import A, Host, Numbers
from filbert.pack import cuts
from filbert.pack.lay import Places
from filbert.tasks.embed.spec import KINDS, LOSSES, Config, golds, kind_of, widths
from filbert.tasks.task import Fit, Report
from filbert.tasks.windowed import Windowed, pooled, ranges
from filbert.text.tokenizer import Pieces, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.encoder import Encoder


class GroupOrders(NamedTuple):
    """Examples, and which of these groups each is in."""

    which: Places
    group: Places


@dataclass(frozen=True, slots=True)
class Groups:
    """An epoch's plan: group g has the examples order[edges[g]:edges[g+1]]."""

    order: Places
    edges: Places
    lengths: Places  # tokens of each group

    def orders(self, indices: Places) -> GroupOrders:
        """The examples of these groups."""
        counts = self.edges[indices + 1] - self.edges[indices]
        chosen = self.order[ranges(self.edges[indices], counts)]
        return GroupOrders(chosen, np.repeat(np.arange(len(indices)), counts))


class Items(Windowed[Config, Floats]):
    """Vectors of texts, learnt from what belongs together."""

    num_texts = 2  # of an example that is asked for its similarity; the data say how many one to learn from has
    watched = "ranked"

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, (), tokenizer, config)
        self.gold = golds(examples)
        self.kind = kind_of(examples, self.gold)
        self.num_texts = len(examples[0].texts) if examples else 2
        pieces = self.cut([example.texts for example in examples], config.overlap)
        # Held-out data may be of another kind than the training data: then they are asked by their own objective.
        self.losses = LOSSES[config.objective if config.objective in KINDS[self.kind] else KINDS[self.kind][0]]
        sizes = np.diff(pieces.boundaries).reshape(-1, self.num_texts)
        self.is_read = np.asarray((sizes > 0).all(axis=1))  # an empty text has nothing to learn from
        self.is_partner = self.is_read & (np.isnan(self.gold) | (self.gold == 1))  # the first two belong together
        # Two readings of a text are to differ; pairs are learnt better as they stand.
        self.mask_prob = config.mask_prob if self.losses == ("dropout",) else 0.0
        self.same = _same(pieces)
        self.alike = self._alike()

    def cut(self, texts: Sequence[tuple[str, ...]], overlap: int) -> Pieces:
        """Every text by itself, those of an example in a row."""
        pieces = self.tokenizer.pieces([text for each in texts for text in each])
        self.ids = np.asarray(pieces.ids, dtype=np.int32)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64)
        self.take(cuts.cuts(bounds, None, self.config.max_length, overlap))
        self.lengths = self.lengths.reshape(-1, self.num_texts).sum(axis=1)
        return pieces

    def _alike(self) -> Places:
        """[M] texts with the same number are never each other's negatives: equal ones, and those that pairs join."""
        if self.kind in ("texts", "numbers"):
            return self.same
        joined = self.same.reshape(-1, self.num_texts)[self.is_partner, :2]
        return _components(len(self.same), joined)[self.same]

    @property
    def has_unknown(self) -> bool:
        """Whether the data leave open which vectors are right."""
        return self.kind == "texts"

    @property
    def teaches(self) -> bool:
        """Whether there is anything to compare."""
        rows = np.flatnonzero(self.is_read)
        texts = rows[:, None] * self.num_texts + np.arange(self.num_texts)
        differ = len(np.unique(self.alike[texts])) > 1
        teaches = {
            "ranking": len(np.unique(self.gold[rows])) > 1,
            "contrastive": differ and bool(self.is_partner.any()),
            "dropout": differ,
        }
        return any(teaches[loss] for loss in self.losses)

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        empty = int((~self.is_read).sum())
        remarks = [f"{empty:,} examples have an empty text and are not learnt."] if empty else []
        if not self.teaches:
            remarks.append("Its pairs are all alike: there is nothing that a text could be compared with.")
        return remarks

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from: what a run that goes on must find unchanged."""
        return self.ids, self.gold, self.cuts.first, self.cuts.edges

    def plan(self, epoch: int) -> Groups:
        """The examples in groups of about one size, other ones in each epoch."""
        order = generator(0, "groups", epoch).permutation(len(self))
        num_groups = max(1, -(-len(self) // self.config.group)) if len(self) else 0
        edges = np.arange(num_groups + 1) * len(self) // max(1, num_groups)
        totals = np.concatenate(([0], np.cumsum(self.lengths[order])))
        return Groups(order, edges, np.diff(totals[edges]))

    def sources(self, which: Places) -> Places:
        """[rows] the place among `tokens` of each row of these examples' windows."""
        return super().sources(self._texts_of(which))

    def _texts_of(self, which: Places) -> Places:
        """[M] the texts of these examples, in order."""
        texts: Places = (which[:, None] * self.num_texts + np.arange(self.num_texts)).ravel()
        return texts

    def batch(self, orders: Places | GroupOrders, budget: int | None = None) -> Batch:
        """The windows of the examples' texts packed by length, and what is to be compared; in one group, if any."""
        examples, group = (
            orders if isinstance(orders, GroupOrders) else GroupOrders(orders, np.zeros(len(orders), dtype=np.int64))
        )
        texts = self._texts_of(examples)
        laid = self.laid(texts, budget)
        targets = {
            **self.pooling(texts),
            "gold": self.gold[examples],
            "group": group,
            "is_read": self.is_read[examples],
            "is_partner": self.is_partner[examples],
            "alike": self.alike[texts],
            "has_worse": self._has_worse(examples, group),
        }
        return Batch(laid.packed, laid.starts, laid.owners, targets)

    def _has_worse(self, examples: Places, group: Places) -> npt.NDArray[np.bool_]:
        """[N] whether some example of its group has a smaller number."""
        if "ranking" not in self.losses:
            return np.zeros(len(examples), dtype=bool)
        gold, read = self.gold[examples], self.is_read[examples]
        least = np.full(int(group.max(initial=0)) + 1, np.inf, dtype=np.float32)
        np.minimum.at(least, group[read], gold[read])
        return np.asarray(read & (gold > least[group]))

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """Over how many texts a loss sums; the ranking, over how many pairs."""
        return {f"{loss}_loss": int(self._count(loss, batch.targets)) for loss in self.losses}

    def _count(self, loss: str, targets: Mapping[str, Array]) -> Array:
        if loss == "ranking":
            return targets["has_worse"].sum()
        if loss == "contrastive":
            return 2 * targets["is_partner"].sum()
        return 2 * self.num_texts * targets["is_read"].sum()

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The objective's losses, each the mean of all widths', and the share of comparisons that are right."""
        from filbert.nn.torch_ops import TorchHost

        host = TorchHost(model)
        vectors_MD = self.vectors(host, batch)
        again_MD, losses = None, self.losses
        if losses == ("dropout",):
            again_MD = self.vectors(host, batch) if model.training else None
            losses = losses if model.training else ()  # two readings without dropout would be one
        sizes = widths(self.config) or (vectors_MD.shape[1],)
        if sizes[0] > vectors_MD.shape[1]:
            raise InputError(f"task.widths has {sizes[0]}, but the model's vectors have {vectors_MD.shape[1]} numbers.")
        terms = {}
        for loss in losses:
            made = self._disorder if loss == "ranking" else self._contrast
            totals = [made(vectors_MD[:, :width], again_MD, batch.targets) for width in sizes]
            terms[f"{loss}_loss"] = Term(sum(totals) / len(totals), self._count(loss, batch.targets))
        if self.kind != "texts":
            terms["ranked"] = self._ranked(vectors_MD.detach(), batch.targets)
        return terms

    def _contrast(self, vectors_MD: Tensor, again_MD: Tensor | None, targets: Mapping[str, Tensor]) -> Tensor:
        """Of each text that has a partner, or of each reading, -log of the partner's share among all others."""
        import torch
        import torch.nn.functional as F

        unit_MD, each = F.normalize(vectors_MD, dim=-1), self.num_texts
        group, read = (targets[name].repeat_interleave(each) for name in ("group", "is_read"))
        alike, place = targets["alike"], torch.arange(len(unit_MD), device=unit_MD.device)
        if again_MD is not None:
            unit_MD = torch.cat((unit_MD, F.normalize(again_MD[:, : vectors_MD.shape[1]], dim=-1)))
            partner = torch.cat((place + len(place), place))
            group, read, alike = (column.repeat(2) for column in (group, read, alike))
            is_compared = read
        else:
            side = place % each
            partner = torch.where(side == 0, place + 1, place - 1)
            is_compared = (side < 2) & targets["is_partner"].repeat_interleave(each)
        scores_MM = unit_MD @ unit_MD.T / self.config.temperature
        partner_scores_M = scores_MM.gather(1, partner[:, None])[:, 0]
        is_other = (group[:, None] == group) & (alike[:, None] != alike) & read
        others_M = scores_MM.masked_fill(~is_other, -1e30).logsumexp(1)
        return torch.where(is_compared, F.softplus(others_M - partner_scores_M), 0.0).sum()

    def _disorder(self, vectors_MD: Tensor, again_MD: Tensor | None, targets: Mapping[str, Tensor]) -> Tensor:
        """Of each example log(1 + Σ exp(worse - own)) over all that are worse."""
        import torch
        import torch.nn.functional as F

        unit_MD = F.normalize(vectors_MD, dim=-1)
        score_N = (unit_MD[0::2] * unit_MD[1::2]).sum(-1) / self.config.temperature
        apart_NN = score_N - score_N[:, None]  # of row i and column j: j's, which should be smaller, less i's
        worse_N = apart_NN.masked_fill(~_compared(targets), -1e30).logsumexp(1)
        return torch.where(targets["has_worse"], F.softplus(worse_N), 0.0).sum()

    def _ranked(self, vectors_MD: Tensor, targets: Mapping[str, Tensor]) -> Term:
        """How many comparisons are right, ties for a half.

        Of labelled pairs any two of a group are compared, of others an own second text with all that are not alike. So
        the number does not hang on how large a group is, as that of the nearest texts would.
        """
        import torch
        import torch.nn.functional as F

        unit_MD = F.normalize(vectors_MD, dim=-1)
        first_ND, second_ND = unit_MD[0 :: self.num_texts], unit_MD[1 :: self.num_texts]
        better_N = (first_ND * second_ND).sum(-1)
        if self.kind in ("labels", "numbers"):
            compared, worse = _compared(targets), better_N[None].expand(len(better_N), -1)
        else:
            each = self.num_texts
            group, read = (targets[name].repeat_interleave(each) for name in ("group", "is_read"))
            alike, first_alike = targets["alike"], targets["alike"][0::each]
            compared = (targets["group"][:, None] == group) & (first_alike[:, None] != alike) & read
            compared &= targets["is_partner"][:, None] & (torch.arange(len(alike), device=alike.device) % each > 0)
            worse = first_ND @ unit_MD.T
        right = (better_N[:, None] > worse).float() + 0.5 * (better_N[:, None] == worse).float()
        return Term((right * compared).sum(), compared.sum())

    def vectors(self, host: Host[A], batch: Batch) -> A:
        """One vector for each text, [M, D] in float32."""
        return pooled(host, self.read(host, batch.packed), batch, self.config.pool, pooler=False)

    @property
    def has_gold(self) -> bool:  # type: ignore[override]
        """Whether the data say more than a teacher's vectors do: texts alone do not."""
        return self.kind != "texts"

    def num_decisions(self, batch: Batch) -> int:
        """How many texts."""
        return len(batch.targets["alike"])

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """Each text's vector, and the group that it is compared in."""
        from filbert.nn.torch_ops import TorchHost

        groups = batch.targets["group"].repeat_interleave(self.num_texts)
        return Decisions("vector", self.vectors(TorchHost(model), batch), sizes=groups)

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Floats]:
        """[K, D] of each example: its texts' vectors."""
        vectors_MD = host.xp.host(self.vectors(host, batch))
        return list(vectors_MD.reshape(-1, self.num_texts, vectors_MD.shape[1]))

    def predictions(self, raw: Sequence[Floats]) -> list[Prediction]:
        """How alike the first two texts of each example are, and of a triplet the first and the third."""
        vectors = np.asarray(raw)
        names = ("similarity", "negative_similarity")[: self.num_texts - 1]
        columns = [metrics.cosines(vectors[:, 0], vectors[:, place]) for place in range(1, len(names) + 1)]
        return [Prediction(scores=dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]

    def evaluated(self, raw: Sequence[Floats]) -> Report:
        """How right their cosines are; at every width that was learnt, under "widths"."""
        vectors = np.asarray(raw)
        report = self._report(vectors)
        fewer = [width for width in widths(self.config) if width < vectors.shape[-1]]
        each = {str(width): self._report(vectors[..., :width]) for width in fewer}
        names = tuple(report["intervals"])
        return report | ({"widths": {w: {n: t[n] for n in names} for w, t in each.items()}} if each else {})

    def _report(self, vectors_NKD: Floats) -> Report:
        first, second = vectors_NKD[:, 0], vectors_NKD[:, 1]
        if self.kind == "pairs":
            return metrics.retrieval(first, second, self.same.reshape(-1, self.num_texts)[:, 1])
        if self.kind == "triplets":
            return metrics.preferred(first, second, vectors_NKD[:, 2])
        if self.kind == "labels":
            return metrics.separation(self.gold == 1, metrics.cosines(first, second), self.config.threshold)
        return metrics.agreement(self.gold, metrics.cosines(first, second))

    def calibrated(self, raw: Sequence[Floats], fixed: Collection[str] = ()) -> Fit:
        """The config with the cosine from which pairs belong together, where these data have labels 0 and 1."""
        if self.kind != "labels" or "threshold" in fixed:
            return Fit(self.config)
        if len(self) < calibration.FEWEST:
            return Fit(self.config, calibration.too_few("threshold", len(self), "there is none"))
        vectors = np.asarray(raw)
        cosines = metrics.cosines(vectors[:, 0], vectors[:, 1])
        return Fit(replace(self.config, threshold=metrics.best_threshold(self.gold == 1, cosines)))


def _compared(targets: Mapping[str, Tensor]) -> Tensor:
    """[N, N] whether the example of the row is known to be better than that of the column, in one group."""
    gold, group, read = targets["gold"], targets["group"], targets["is_read"]
    return (gold[:, None] > gold) & (group[:, None] == group) & read[:, None] & read


def _same(pieces: Pieces) -> Places:
    """[M] equal texts, as the model reads them, have the same number."""
    numbers: dict[bytes, int] = {}
    bounds = pieces.boundaries.tolist()
    rows = (pieces.ids[start:end].tobytes() for start, end in pairwise(bounds))
    return np.fromiter((numbers.setdefault(row, len(numbers)) for row in rows), dtype=np.int64)


def _components(count: int, joined: Places) -> Places:
    """[count] the smallest number that each is joined with, directly or through others."""
    root = list(range(count))

    def smallest(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    for one, two in joined.tolist():
        low, high = sorted((smallest(one), smallest(two)))
        root[high] = low
    return np.array([smallest(number) for number in range(count)], dtype=np.int64)
