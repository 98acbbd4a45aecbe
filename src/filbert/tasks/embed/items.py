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

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.random import generator
from filbert.core.records import Example, Packed, Prediction
from filbert.metrics import calibration
from filbert.metrics import vectors as metrics
from filbert.nn import numpy_heads
from filbert.pack import cuts
from filbert.pack.cuts import Places
from filbert.tasks.classify import items as classify
from filbert.text.tokenizer import Pieces, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HEAD = ""  # none of its own
TEXTS = ("text", "second", "negative")  # what a prediction's texts are called
ONE_ANSWER = True  # of a text: nothing is ranked that could be cut short
NEEDS_GOLD = False  # pairs, and even texts, can be learnt from as they are
KEPT = ("max_length", "overlap", "pool", "widths", "threshold")
LOSSES = {
    "contrastive": ("contrastive",),
    "ranking": ("ranking",),
    "both": ("contrastive", "ranking"),
    "dropout": ("dropout",),
}
OBJECTIVES = ("auto", *LOSSES)
KINDS = {  # what data are, and the objectives that they can be learnt by, their own first
    "texts": ("dropout",),
    "pairs": ("contrastive", "dropout"),
    "triplets": ("contrastive", "dropout"),
    "labels": ("both", "ranking", "contrastive", "dropout"),  # 0 and 1
    "numbers": ("ranking", "dropout"),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read and what their vectors are to learn."""

    max_length: int = 512
    pool: str = "mean"
    objective: str = "auto"  # auto is what the data are for
    temperature: float = 0.05  # of the cosines: the smaller, the more the hardest comparisons count
    group: int = 32  # examples that are compared with each other
    widths: str = ""  # e.g. 384,192,96: the first so many numbers are vectors as well (Kusupati et al. 2022)
    mask_prob: float = 0.0  # share of tokens that each reading hides behind [MASK], where texts alone are learnt from
    overlap: int = 64  # tokens that two windows share; at most half of one
    threshold: float | None = None  # pairs of at least that cosine belong together; fitted on dev data with labels

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0, group=2)
        settings.check_one_of("task", self, pool=classify.POOLS, objective=OBJECTIVES)
        settings.check_positive("task", self, temperature=10)
        settings.check_shares("task", self, "mask_prob")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise InputError(f"task.threshold is {self.threshold!r}, but a cosine is from -1 to 1.")
        widths(self)


def widths(config: Config) -> tuple[int, ...]:
    """How many numbers of a vector are a vector too, the most first; none where only all are."""
    found = [word.strip() for word in str(config.widths).split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in found):
        raise InputError(f"task.widths is {config.widths!r}, but must be whole numbers with commas, e.g. 384,192,96.")
    return tuple(sorted({int(word) for word in found}, reverse=True))


def fitted(config: Config, examples: Sequence[Example]) -> Config:
    """The config as it is, where it fits the training data."""
    kind = _kind(examples, _golds(examples))
    if config.objective not in ("auto", *KINDS[kind]):
        what = f"pairs with {kind}" if kind in ("labels", "numbers") else kind
        raise InputError(
            f"task.objective={config.objective} does not learn from {what}; leave it out, or set it to "
            f"{' or '.join(KINDS[kind])}."
        )
    return config


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...]:
    """None."""
    return ()


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that turns texts into vectors"


def examples(asked: Sequence[Any]) -> list[Example]:
    """What `predict` is given, (first, second) or a triplet (text, positive, negative), as examples."""
    if isinstance(asked, str):
        raise InputError("pairs is one string, but a list of pairs is needed: write predict([(first, second)]).")
    found: list[Example] = []
    for index, texts in enumerate(asked):
        parts = [texts] if isinstance(texts, str) else list(texts) if isinstance(texts, (list, tuple)) else []
        parts = [*parts[:2], *(parts[2] if len(parts) == 3 and isinstance(parts[2], (list, tuple)) else parts[2:])]
        if len(parts) not in (2, 3) or not all(isinstance(text, str) for text in parts):
            raise InputError(
                f"pair {index} is {str(texts)[:40]!r}, but must be two strings, or three of a triplet: this model "
                "reads pairs; `embed` gives single texts their vectors."
            )
        if found and len(found[0].texts) != len(parts):
            raise InputError(
                f"pair {index} has {len(parts)} texts, but those before it have {len(found[0].texts)}; ask pairs and "
                "triplets apart."
            )
        found.append(Example(tuple(parts)))
    return found


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: the cosine of the two vectors, and what is right if known."""
    gold = {} if example.gold is None else {"gold": example.gold}
    return {name: round(score, 6) for name, score in said.scores.items()} | gold


@dataclass(frozen=True, slots=True)
class Groups:
    """An epoch's plan: group g has the examples order[edges[g]:edges[g+1]]."""

    epoch: int
    order: Places
    edges: Places
    lengths: Places  # tokens of each group

    def orders(self, indices: Places) -> tuple[int, Places, Places]:
        """(epoch, examples, which of these groups each is in)."""
        counts = self.edges[indices + 1] - self.edges[indices]
        chosen = self.order[classify.ranges(self.edges[indices], counts)]
        return self.epoch, chosen, np.repeat(np.arange(len(indices)), counts)


class Task(classify.Task):
    """Vectors of texts, learnt from what belongs together."""

    num_texts = 2  # of an example that is asked for its similarity; the data say how many one to learn from has
    watched = "ranked"
    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.config, self.parts = (), tokenizer, config, ()
        self.gold = _golds(examples)
        self.kind = _kind(examples, self.gold)
        self.num_texts = len(examples[0].texts) if examples else 2
        pieces = self._cut([example.texts for example in examples])
        # Held-out data may be of another kind than the training data: then they are asked by their own objective.
        self.losses = LOSSES[config.objective if config.objective in KINDS[self.kind] else KINDS[self.kind][0]]
        sizes = np.diff(pieces.boundaries).reshape(-1, self.num_texts)
        self.is_read = np.asarray((sizes > 0).all(axis=1))  # an empty text has nothing to learn from
        self.is_partner = self.is_read & (np.isnan(self.gold) | (self.gold == 1))  # the first two belong together
        self.same = _same(pieces)
        self.alike = self._alike()

    def _cut(self, texts: Sequence[tuple[str, ...]]) -> Pieces:
        """Every text by itself, those of an example in a row."""
        pieces = self.tokenizer.pieces([text for each in texts for text in each])
        self.ids = np.asarray(pieces.ids, dtype=np.int32)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64)
        self._take(cuts.cuts(bounds, None, self.config.max_length, self.config.overlap))
        self.num_tokens = self.num_tokens.reshape(-1, self.num_texts).sum(axis=1)
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
        found = {
            "ranking": len(np.unique(self.gold[rows])) > 1,
            "contrastive": differ and bool(self.is_partner.any()),
            "dropout": differ,
        }
        return any(found[loss] for loss in self.losses)

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        empty = int((~self.is_read).sum())
        told = [f"{empty:,} examples have an empty text and are not learnt."] if empty else []
        if not self.teaches:
            told.append("Its pairs are all alike: there is nothing that a text could be compared with.")
        return told

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is learnt from: what a run that goes on must find unchanged."""
        return self.ids, self.gold, self.cuts.first, self.cuts.edges

    def plan(self, epoch: int) -> Groups:
        """The examples in groups of about one size, other ones in each epoch."""
        order = generator(0, "groups", epoch).permutation(len(self))
        num_groups = max(1, -(-len(self) // self.config.group)) if len(self) else 0
        edges = np.arange(num_groups + 1) * len(self) // max(1, num_groups)
        totals = np.concatenate(([0], np.cumsum(self.num_tokens[order])))
        return Groups(epoch, order, edges, np.diff(totals[edges]))

    def batch(self, orders: tuple[Any, ...], budget: int | None = None) -> Batch:
        """The windows of the examples' texts packed by length, and what is to be compared."""
        _, examples, *groups = orders
        group = groups[0] if groups else np.zeros(len(examples), dtype=np.int64)
        texts = (examples[:, None] * self.num_texts + np.arange(self.num_texts)).ravel()
        made, chosen = self._packed(texts, budget), self._windows_of(texts)
        targets = {
            "num_windows": self.cuts.edges[texts + 1] - self.cuts.edges[texts],
            "shares": self.shares[chosen].astype(np.float32),
            "owned": self._owned(chosen),
            "gold": self.gold[examples],
            "group": group,
            "is_read": self.is_read[examples],
            "is_partner": self.is_partner[examples],
            "alike": self.alike[texts],
            "has_worse": self._has_worse(examples, group),
        }
        return Batch(made.packed, made.starts, made.owners, targets)

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

    def _count(self, loss: str, targets: Mapping[str, Any]) -> Any:
        if loss == "ranking":
            return targets["has_worse"].sum()
        if loss == "contrastive":
            return 2 * targets["is_partner"].sum()
        return 2 * self.num_texts * targets["is_read"].sum()

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The objective's losses, each the mean of all widths', and the share of comparisons that are right."""
        vectors_MD = self.vectors(model, batch)
        again_MD, losses = None, self.losses
        if losses == ("dropout",):
            again_MD = self.vectors(model, batch) if model.training else None
            losses = losses if model.training else ()  # two readings without dropout would be one
        asked = widths(self.config) or (vectors_MD.shape[1],)
        if asked[0] > vectors_MD.shape[1]:
            raise InputError(f"task.widths has {asked[0]}, but the model's vectors have {vectors_MD.shape[1]} numbers.")
        terms = {}
        for loss in losses:
            made = self._disorder if loss == "ranking" else self._contrast
            totals = [made(vectors_MD[:, :width], again_MD, batch.targets) for width in asked]
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
            group, read, alike = (known.repeat(2) for known in (group, read, alike))
            is_asked = read
        else:
            side = place % each
            partner = torch.where(side == 0, place + 1, place - 1)
            is_asked = (side < 2) & targets["is_partner"].repeat_interleave(each)
        scores_MM = unit_MD @ unit_MD.T / self.config.temperature
        own_M = scores_MM.gather(1, partner[:, None])[:, 0]
        is_other = (group[:, None] == group) & (alike[:, None] != alike) & read
        others_M = scores_MM.masked_fill(~is_other, -1e30).logsumexp(1)
        return torch.where(is_asked, F.softplus(others_M - own_M), 0.0).sum()

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
            alike, own = targets["alike"], targets["alike"][0::each]
            compared = (targets["group"][:, None] == group) & (own[:, None] != alike) & read
            compared &= targets["is_partner"][:, None] & (torch.arange(len(alike), device=alike.device) % each > 0)
            worse = first_ND @ unit_MD.T
        right = (better_N[:, None] > worse).float() + 0.5 * (better_N[:, None] == worse).float()
        return Term((right * compared).sum(), compared.sum())

    def _hidden(self, packed: Packed) -> Packed:
        """Some tokens behind [MASK] where two readings are to differ; pairs are learnt better as they stand."""
        return super()._hidden(packed) if self.losses == ("dropout",) else packed

    @property
    def has_gold(self) -> bool:
        """Whether the data say more than a teacher's vectors do: texts alone do not."""
        return self.kind != "texts"

    def num_decisions(self, batch: Batch) -> int:
        """How many texts."""
        return len(batch.targets["alike"])

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """Each text's vector, and the group that it is compared in."""
        groups = batch.targets["group"].repeat_interleave(self.num_texts)
        return Decisions("vector", self.vectors(model, batch), sizes=groups)

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """[K, D] of each example: its texts' vectors."""
        found = self.vectors(model, batch).cpu().numpy()
        return list(found.reshape(-1, self.num_texts, found.shape[1]))

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        found = self.host_vectors(host, batch)
        return list(found.reshape(-1, self.num_texts, found.shape[1]))

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """How alike the first two texts of each example are, and of a triplet the first and the third."""
        vectors = np.asarray(raw)
        names = ("similarity", "negative_similarity")[: self.num_texts - 1]
        columns = [metrics.cosines(vectors[:, 0], vectors[:, place]) for place in range(1, len(names) + 1)]
        return [Prediction(scores=dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """How right their cosines are; at every width that was learnt, under "widths"."""
        vectors = np.asarray(raw)
        told = self._told(vectors)
        fewer = [width for width in widths(self.config) if width < vectors.shape[-1]]
        each = {str(width): self._told(vectors[..., :width]) for width in fewer}
        names = tuple(told["intervals"])
        return told | ({"widths": {w: {n: t[n] for n in names} for w, t in each.items()}} if each else {})

    def _told(self, vectors_NKD: npt.NDArray[Any]) -> dict[str, Any]:
        first, second = vectors_NKD[:, 0], vectors_NKD[:, 1]
        if self.kind == "pairs":
            return metrics.retrieval(first, second, self.same.reshape(-1, self.num_texts)[:, 1])
        if self.kind == "triplets":
            return metrics.preferred(first, second, vectors_NKD[:, 2])
        if self.kind == "labels":
            return metrics.separation(self.gold == 1, metrics.cosines(first, second), self.config.threshold)
        return metrics.agreement(self.gold, metrics.cosines(first, second))

    def calibrated(self, raw: Sequence[Any], given: Collection[str] = ()) -> calibration.Fit:
        """The config with the cosine from which pairs belong together, where these data have labels 0 and 1."""
        if self.kind != "labels" or "threshold" in given:
            return calibration.Fit(self.config)
        if len(self) < calibration.FEWEST:
            return calibration.Fit(self.config, calibration.too_few("threshold", len(self), "there is none"))
        vectors = np.asarray(raw)
        cosines = metrics.cosines(vectors[:, 0], vectors[:, 1])
        return calibration.Fit(replace(self.config, threshold=metrics.best_threshold(self.gold == 1, cosines)))


def _compared(targets: Mapping[str, Tensor]) -> Tensor:
    """[N, N] whether the example of the row is known to be better than that of the column, in one group."""
    gold, group, read = targets["gold"], targets["group"], targets["is_read"]
    return (gold[:, None] > gold) & (group[:, None] == group) & read[:, None] & read


def _kind(examples: Sequence[Example], gold: npt.NDArray[np.float32]) -> str:
    """What the data are, of KINDS; a mixture is refused with its place."""
    first = examples[0] if examples else Example(("", ""))
    shape = (len(first.texts), first.gold is not None)
    for index, example in enumerate(examples):
        if (len(example.texts), example.gold is not None) != shape:
            raise InputError(
                f"{classify.place_of(example, index)}: is not like the examples before it; give all of them one, two "
                "or three texts, and all or none a label."
            )
    if shape[0] not in (1, 2, 3) or shape in ((1, True), (3, True)):
        raise InputError(
            f"{classify.place_of(first, 0)}: has {shape[0]} texts{' and a label' * shape[1]}, but embed reads a text, "
            "a pair, a pair with a label or a number, or a triplet."
        )
    if shape[1]:
        return "labels" if np.isin(gold, (0, 1)).all() else "numbers"
    return ("texts", "pairs", "triplets")[shape[0] - 1]


def _golds(examples: Sequence[Example]) -> npt.NDArray[np.float32]:
    """[N] the numbers, not a number where there is none; what is no number is named with its file and line."""
    found = np.full(len(examples), math.nan, dtype=np.float32)
    for index, example in enumerate(examples):
        if example.gold is None:
            continue
        try:
            found[index] = float(example.gold)
        except (TypeError, ValueError):
            found[index] = math.nan
        if not math.isfinite(found[index]):
            raise InputError(
                f"{classify.place_of(example, index)}: the label {str(example.gold)[:40]!r} is no number, but embed "
                "learns from 0 and 1 or from numbers; if it is a third text: --columns text=1,second=2,negative=3."
            )
    return found


def _same(pieces: Pieces) -> Places:
    """[M] equal texts, as the model reads them, have the same number."""
    numbers: dict[bytes, int] = {}
    bounds = pieces.boundaries.tolist()
    rows = (pieces.ids[start:end].tobytes() for start, end in pairwise(bounds))
    return np.fromiter((numbers.setdefault(row, len(numbers)) for row in rows), dtype=np.int64)


def _components(count: int, joined: Places) -> Places:
    """[count] the smallest number that each is joined with, directly or through others."""
    root = list(range(count))

    def found(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    for one, two in joined.tolist():
        low, high = sorted((found(one), found(two)))
        root[high] = low
    return np.array([found(number) for number in range(count)], dtype=np.int64)
