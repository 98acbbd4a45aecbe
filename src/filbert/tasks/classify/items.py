"""One label for a text, or several: labelled texts in, packed batches and the loss of a head, or scores of labels out.

A text longer than `max_length` is read in overlapping windows, and its windows make one decision: their vectors are
averaged, each weighing as many tokens as it owns, before the head sees them. `pool="cls"` is the published way (the
pooler's tanh of [CLS], dropout, a linear head; Devlin et al. 2019, §4.1), `pool="mean"` the mean of all token vectors.
With `several` every label is a question of its own, yes or no; a text may have many labels, or none.

Legend: T tokens of the row, B sequences (windows), N texts, D width, L labels.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.core.protocols import Batch, Decisions, Item, Term
from filbert.core.records import Encoding, Example, Floats, Ints, Packed, Prediction
from filbert.forms import label_sets
from filbert.forms.datasets import label_table
from filbert.metrics import calibration
from filbert.metrics import label_sets as set_metrics
from filbert.metrics import labels as metrics
from filbert.nn import numpy_heads
from filbert.pack.cuts import Cuts, Places, cuts
from filbert.tasks.classify.decode import chances, predictions, probabilities, set_predictions
from filbert.text.tokenizer import Pieces, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

POOLS = ("mean", "cls", "own")  # own: as the model itself sums a text up, where it does
BALANCED = "balanced"
START = 0.5  # from which on one of several labels is given, until dev data say better
HEAD = "labels"  # the part of a model that it trains
AUGMENTS = True  # a text with some words changed keeps its label
PROBLEMS = {"multi_label_classification": {"several": START}}  # what transformers' names for heads say of the config
KEPT = ("max_length", "overlap", "pool", "several", "temperature")  # what a folder keeps of the config
NOTHING = -100  # the label of a text whose label is not known
ROUND = 32  # what bounds lengths in a compiled graph is a multiple of it, so that other data find the graph again


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read and what is asked of the scores."""

    max_length: int = 512
    pool: str = "mean"
    label_smoothing: float = 0.0
    consistency: float = 0.0  # weight of R-Drop: two runs with other dropout and masks agree (Liang et al. 2021)
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from
    overlap: int = 64  # tokens that two windows share; at most half of one
    several: bool | float = 0.0  # labels of one text: all of at least this probability (true: 0.5); 0: the likeliest
    class_weights: str = ""  # of the labels in the loss: balanced, or spam=2,ham=0.5; those not named weigh 1
    temperature: float = 1.0  # divides the scores before they are probabilities; dev data fit it

    def __post_init__(self) -> None:
        if type(self.several) is bool:
            object.__setattr__(self, "several", START if self.several else 0.0)
        if not 0 <= self.several < 1:
            raise InputError(f"task.several is {self.several!r}, but must be true, false or a number from 0 up to 1.")
        if self.class_weights not in ("", BALANCED):
            label_sets.weights(self.class_weights)
        settings.check_whole("task", self, max_length=8, overlap=0)
        settings.check_one_of("task", self, pool=POOLS)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        settings.check_positive("task", self, temperature=1_000)
        if not 0 <= self.consistency <= 100:
            raise InputError(f"task.consistency is {self.consistency!r}, but must be from 0 to 100.")


Fit = TypeVar("Fit", bound=Config)  # also a config of those that read pairs


def published(model: Any, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a published folder, which has none of its own."""
    return {"max_length": model.config.max_length, "pool": "cls" if "pooler" in model.parts else "mean"}


def problem(config: Config) -> str | None:
    """What transformers calls such a head, where it does not take it for granted."""
    return "multi_label_classification" if config.several else None


def fitted(config: Fit, examples: Sequence[Example]) -> Fit:
    """The config with what the training data fix: whether texts have several labels, and what balances them."""
    golds = [example.gold for example in examples if example.gold is not None]
    if not config.several and any(not isinstance(label_sets.only(gold), str) for gold in golds):
        config = replace(config, several=True)  # a list of one label in every row is one label each
    if config.class_weights != BALANCED:
        return config
    table = label_table(_with_sets(config, examples))
    weights = label_sets.balance(table.counts, len(golds), bool(config.several))
    return replace(config, class_weights=json.dumps(weights, ensure_ascii=False))


def idle(config: Any) -> dict[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    return {"temperature": "while task.several gives a text several labels"} if config.several else {}


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...] | None:
    """Where texts have several labels, those that occur; else the data say."""
    if not config.several:
        return None
    names = label_table(_with_sets(config, examples)).check().labels
    if not names:
        raise InputError("no text of the training data has a label, so there is nothing to learn.")
    return names


def _with_sets(config: Config, examples: Sequence[Example]) -> list[Example]:
    """The examples with their labels apart, where they have several."""
    if not config.several:
        return list(examples)
    sets = label_sets.parted([example.gold for example in examples])
    return [replace(example, gold=gold) for example, gold in zip(examples, sets, strict=True)]


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return f"A classifier of {len(labels)} labels"


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: the likeliest label and its probability, the right one if known, and all."""
    scores = {label: round(share, 6) for label, share in list(said.scores.items())[:top]}
    gold = {} if example.gold is None else {"gold": example.gold}
    if said.labels is not None:
        return {"labels": list(said.labels), **gold, "scores": scores}
    return {"label": said.label, "score": round(said.scores[str(said.label)], 6), **gold, "scores": scores}


class Task:
    """Classification of texts by the labels given; a text without a label can be scored, not learnt from."""

    num_texts = 1  # of each example
    watched: str = "accuracy"  # the measure that says which state is best
    parts: tuple[str, ...]  # of a model that can be trained by it
    weights: tuple[float, ...] = ()  # of the labels in the loss
    uncut: str = ""  # what to know of labels that stand together in a cell

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.config = tuple(labels), tokenizer, config
        self.parts = ("pooler", "labels") if config.pool == "cls" else ("labels",)
        if config.several:
            self.watched = "f1"
        self.gold = self._golds(examples)
        self.weights = self._weights()
        self._cut([example.texts for example in examples])

    def _cut(self, texts: Sequence[tuple[str, ...]]) -> Pieces:
        """The texts as tokens and windows; all first texts, then all second ones."""
        config, count = self.config, len(texts)
        pieces = self.tokenizer.pieces([each[side] for side in range(self.num_texts) for each in texts])
        self.ids = np.asarray(pieces.ids, dtype=np.int32)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64)
        second = bounds[count:] if self.num_texts == 2 else None
        self._take(cuts(bounds[: count + 1], second, config.max_length, config.overlap))
        return pieces

    def _take(self, found: Cuts) -> None:
        """The windows to read, and what follows from them."""
        self.cuts, self.shares, self.window_tokens = found, found.shares, found.lengths
        longest = int(self.window_tokens.max(initial=1))
        self.longest = min(-(-longest // ROUND) * ROUND, max(longest, self.config.max_length))
        totals = np.concatenate(([0], np.cumsum(self.window_tokens)))
        self.num_tokens: Places = np.diff(totals[found.edges])  # [N] of each text, all its windows together

    def origins(self, example: Example) -> Places:
        """[U, 3] of a task of this example alone, where each of `ids` stands: in which text (-1: none), start, end."""
        pieces = self.tokenizer.pieces(list(example.texts))
        texts = np.repeat(np.arange(len(example.texts)), np.diff(pieces.boundaries))
        return np.stack((texts, pieces.starts, pieces.ends), axis=1).astype(np.int64)

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is learnt from: what a run that goes on must find unchanged."""
        return self.ids, self.gold, self.cuts.first, self.cuts.second

    def remarks(self) -> list[str]:
        """What a user should know of the data as they are learnt."""
        return [self.uncut] if self.uncut else []

    def _golds(self, examples: Sequence[Example]) -> npt.NDArray[Any]:
        """[N] the label of each text, or [N, L] which labels it has."""
        self.uncut = label_sets.uncut([example.gold for example in examples]) if self.config.several else ""
        return set_golds(examples, self.labels) if self.config.several else golds(examples, self.labels)

    def _weights(self) -> tuple[float, ...]:
        """Of each label in the loss; none where all weigh the same."""
        if self.config.class_weights in ("", BALANCED):  # which only training data can fix
            return ()
        said = label_sets.weights(self.config.class_weights)
        for name in said:
            if name not in self.labels:
                raise one_of("task.class_weights: a label", name, self.labels)
        return tuple(said.get(label, 1.0) for label in self.labels)

    @property
    def has_unknown(self) -> bool:
        """Whether some text has no label."""
        return not bool(_known(self.gold).all())

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return bool(_known(self.gold).any())

    def __len__(self) -> int:
        return len(self.gold)

    def lengths(self, epoch: int) -> Places:
        """[N] tokens of each item; every epoch has the same."""
        return self.num_tokens

    def item(self, index: int, epoch: int) -> Item:
        """The windows of one text and its label."""
        batch = self.batch((epoch, np.array([index])))
        edges, ids = batch.packed.boundaries, batch.packed.ids
        rows = [ids[start : edges[np.searchsorted(edges, start, side="right")]] for start in batch.starts]
        return Item(tuple(_encoding(row) for row in rows), batch.targets)

    def batch(self, orders: tuple[int, Places], budget: int | None = None) -> Batch:
        """The texts' windows packed by length; with `budget` the row is filled up to it."""
        _, texts = orders
        made, chosen = self._packed(texts, budget), self._windows_of(texts)
        targets = {
            "label": self.gold[texts],
            "num_windows": self.cuts.edges[texts + 1] - self.cuts.edges[texts],
            "shares": self.shares[chosen].astype(np.float32),
            "owned": self._owned(chosen),
        }
        return Batch(made.packed, made.starts, made.owners, targets)

    def _windows_of(self, texts: Places) -> Places:
        """[B] the windows of these texts, in order."""
        first = self.cuts.edges[texts]
        return ranges(first, self.cuts.edges[texts + 1] - first)

    def _packed(self, texts: Places, budget: int | None) -> Batch:
        """The windows of these texts, without targets."""
        chosen = self._windows_of(texts)
        lengths = self.window_tokens[chosen]
        order = np.argsort(lengths, kind="stable")
        packed = self._laid_out(chosen[order], lengths[order], budget)
        starts = np.empty(len(order), dtype=np.int64)
        starts[order] = packed.boundaries[: len(order)]
        counts = self.cuts.edges[texts + 1] - self.cuts.edges[texts]
        return Batch(packed, starts, np.repeat(np.arange(len(texts)), counts), {})

    def _owned(self, chosen: Places) -> Places:
        """[B, 5] places in each window: start and end of what it owns of each text, and the [SEP] between them."""
        first, second = self.cuts.first[chosen], self.cuts.second[chosen]
        middle = first[:, 1] - first[:, 0] + 1
        own_first = first[:, 2:] - first[:, :1] + 1
        own_second = second[:, 2:] - second[:, :1] + middle[:, None] + 1
        return np.concatenate((own_first, own_second, middle[:, None]), axis=1)

    def _laid_out(self, chosen: Places, lengths: Places, budget: int | None) -> Packed:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], of each window in one row."""
        edges = np.concatenate(([0], np.cumsum(lengths)))
        total, sizes = int(edges[-1]), lengths.tolist()
        first, second = self.cuts.first[chosen], self.cuts.second[chosen]
        places = np.arange(total) - np.repeat(edges[:-1], lengths)
        middle = np.repeat(first[:, 1] - first[:, 0] + 1, lengths)
        behind = places > middle
        inside = (places > 0) & (places != middle)
        inside[edges[1:] - 1] = False
        ids = np.full(total, self.tokenizer.sep_id, dtype=np.int32)
        ids[edges[:-1]] = self.tokenizer.cls_id
        begins = np.where(behind, np.repeat(second[:, 0], lengths) - middle, np.repeat(first[:, 0], lengths))
        ids[inside] = self.ids[(begins + places - 1)[inside]]
        segments = behind.astype(np.int32)
        longest = max(sizes, default=0)
        if budget is not None and total < budget:  # a text of many windows may have more: nothing is cut
            longest = max(longest, self.longest)
            fill = [longest] * ((budget - total) // longest)
            fill += [rest] if (rest := (budget - total) % longest) else []
            ids = np.pad(ids, (0, budget - total), constant_values=self.tokenizer.pad_id)
            segments = np.pad(segments, (0, budget - total))
            places = np.concatenate([places, *(np.arange(size) for size in fill)])
            sizes += fill
            edges = np.concatenate(([0], np.cumsum(sizes)))
        return Packed(
            ids=ids,
            positions=places.astype(np.int32),
            segments=segments,
            boundaries=edges.astype(np.int32),
            lengths=tuple(sizes),
            max_len=longest,
        )

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """How many texts each loss sums over; of several labels every one counts, and weighted texts by their weight.

        The loss is then the mean that torch's functions of the same names take.
        """
        gold = batch.targets["label"]
        known = _known(gold)
        num_known = int(known.sum())
        if self.config.several:
            counted: float = num_known * len(self.labels)
        else:
            counted = float(np.take(self.weights, gold[known]).sum()) if self.weights else num_known
        return {"label_loss": counted} | ({"consistency_loss": num_known} if self.config.consistency else {})

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the right labels; smoothed, weighted and with R-Drop only while the model trains."""
        import torch

        gold = batch.targets["label"]
        known = _known(gold)
        count = known.sum()
        answered = self._set_loss if self.config.several else self._label_loss
        scores_NL = self.scores(model, batch)
        first = answered(scores_NL, gold, model.training)
        terms = {"label_loss": first, **self._rightness(scores_NL.detach(), gold, known)}
        if self.config.consistency and model.training:
            again_NL = self.scores(model, batch)
            one, two = (self._log_chances(each) for each in (scores_NL, again_NL))
            # ½(KL(p‖q) + KL(q‖p)) = ½ Σ (p - q)(log p - log q)
            apart = 0.5 * torch.where(known, ((one.exp() - two.exp()) * (one - two)).flatten(1).sum(-1), 0.0).sum()
            both = 0.5 * (first.total + answered(again_NL, gold, model.training).total)
            terms["label_loss"] = Term(both, first.count)
            terms["consistency_loss"] = Term(self.config.consistency * apart, count)
        return terms

    def _label_loss(self, scores_NL: Tensor, gold_N: Tensor, training: bool) -> Term:
        """Of the one label that is right."""
        import torch.nn.functional as F

        smoothing, weights, counted = 0.0, None, (gold_N != NOTHING).sum()
        if training:
            smoothing = self.config.label_smoothing
        if training and self.weights:
            weights = scores_NL.new_tensor(self.weights)
            counted = (weights[gold_N.clamp(min=0)] * (gold_N != NOTHING)).sum()
        total = F.cross_entropy(
            scores_NL, gold_N, weights, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing
        )
        return Term(total, counted)

    def _set_loss(self, scores_NL: Tensor, gold_NL: Tensor, training: bool) -> Term:
        """Of every label, each a question of its own; a label's weight counts where it is right."""
        import torch.nn.functional as F

        known = _known(gold_NL)
        right_NL, weights = gold_NL.nan_to_num(), None
        if training:
            share = self.config.label_smoothing
            right_NL = right_NL * (1 - share) + share / 2
            weights = scores_NL.new_tensor(self.weights) if self.weights else None
        each_NL = F.binary_cross_entropy_with_logits(scores_NL, right_NL, pos_weight=weights, reduction="none")
        return Term((each_NL * known[:, None]).sum(), known.sum() * len(self.labels))

    def _log_chances(self, scores_NL: Tensor) -> Tensor:
        """[N, L] the logarithm of each label's probability, or [N, L, 2] of its being right and wrong."""
        import torch
        import torch.nn.functional as F

        if not self.config.several:
            return scores_NL.log_softmax(-1)
        return torch.stack((F.logsigmoid(scores_NL), F.logsigmoid(-scores_NL)), -1)

    def _rightness(self, scores_NL: Tensor, gold: Tensor, known: Tensor) -> dict[str, Term]:
        """For the log: accuracy; of several labels that of whole sets, and F1 over all labels of all texts."""
        if not self.config.several:
            return {"accuracy": Term(((scores_NL.argmax(-1) == gold) & known).sum(), known.sum())}
        said_NL, right_NL = (scores_NL.sigmoid() >= self.config.several) & known[:, None], gold == 1
        whole = ((said_NL == right_NL).all(-1) & known).sum()
        return {
            "accuracy": Term(whole, known.sum()),
            "f1": Term(2 * (said_NL & right_NL).sum(), said_NL.sum() + right_NL.sum()),
        }

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """The head's raw scores, [N, L] in float32: the same in training, evaluation and prediction."""
        import torch.nn.functional as F

        head = model.heads["labels"]
        text_ND = F.dropout(self.vectors(model, batch), model.config.dropout, model.training)
        return head(text_ND.to(head.weight.dtype)).float()  # type: ignore[no-any-return]

    def num_decisions(self, batch: Batch) -> int:
        """How many texts, or labels of texts, two models can be compared on."""
        return len(batch.targets["label"]) * (len(self.labels) if self.config.several else 1)

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """What the head says of each text, as a student compares it with its teacher's."""
        return Decisions("several" if self.config.several else "one", self.scores(model, batch))

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """What the head says of each item of a batch, for `predictions` and `evaluated`."""
        return list(self.scores(model, batch).cpu().numpy())

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, from a model that answers with arrays: the way without torch."""
        return list(host.heads.head(HEAD, self.host_vectors(host, batch)))

    def host_vectors(self, host: numpy_heads.Host, batch: Batch) -> Floats:
        """One vector for each text, [N, D]: what `vectors` gives."""
        return numpy_heads.text_vectors(host, batch, self.config.pool, "pooler" in self.parts)

    def label_shares(self, raw: Sequence[Any]) -> npt.NDArray[np.float64]:
        """[N, L] how likely each label is; where a text may have several, each by itself."""
        scores = np.asarray(raw).reshape(-1, len(self.labels))
        if getattr(self.config, "several", 0):
            return chances(scores)
        return probabilities(scores / getattr(self.config, "temperature", 1.0))

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """In the user's own labels, from what `raw` gave for every item."""
        if self.config.several:
            return set_predictions(np.asarray(raw), self.labels, self.config.several)
        return predictions(np.asarray(raw) / getattr(self.config, "temperature", 1.0), self.labels)

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """How right they are: metrics at the top, "intervals", "labels", "confusion"."""
        scores = np.asarray(raw)
        if self.config.several:
            return set_metrics.summary(self.gold, chances(scores), self.config.several, self.labels)
        shares = probabilities(scores)
        table = metrics.confusion(self.gold, scores.argmax(-1), len(self.labels))
        loss = -np.log(np.maximum(shares[np.arange(len(self)), self.gold], 1e-300)).mean()
        told = metrics.summary(table, self.labels)
        return {"accuracy": told.pop("accuracy"), "f1": told.pop("f1"), "loss": float(loss), **told}

    def calibrated(self, raw: Sequence[Any], given: Collection[str] = ()) -> calibration.Fit:
        """The config with the temperature, or the probability from which on a label is given, that suits these texts.

        given: the fields that the user set, which stay as they are.
        """
        config, count = self.config, len(self)
        if self.gold.ndim == 1 and self.gold.dtype == np.int64 and hasattr(config, "temperature"):
            if "temperature" in given:
                return calibration.Fit(config)
            if count < calibration.FEWEST:
                return calibration.Fit(
                    config, calibration.too_few("temperature", count, f"it is {config.temperature:g}")
                )
            heat = calibration.temperature(calibration.stacked(raw), self.gold)
            return calibration.Fit(replace(config, temperature=heat))
        if self.gold.ndim == 1 or "several" in given:
            return calibration.Fit(config)
        if count < calibration.FEWEST:
            return calibration.Fit(config, calibration.too_few("several", count, f"it is {config.several:g}"))
        least = set_metrics.best_threshold(self.gold, chances(np.asarray(raw)), START)
        return calibration.Fit(replace(config, several=least))

    def vectors(self, model: Any, batch: Batch) -> Tensor:
        """One vector for each text, [N, D] in float32."""
        import torch

        several = len(batch.starts) != len(batch.targets["num_windows"])
        packed = self._hidden(batch.packed) if model.training and self.config.mask_prob else batch.packed
        if self.config.pool == "own":
            window_BD = self._summed_up(model, packed)[_sequences(batch)].float()
        elif self.config.pool == "cls":
            first_BD = model(packed, batch.starts)
            window_BD = (model.pooled(first_BD) if "pooler" in self.parts else first_BD).float()
        else:
            window_BD = _means(model(packed).float(), batch, several)
        if not several:
            return window_BD
        weighed_BD = window_BD * batch.targets["shares"][:, None]
        return torch.segment_reduce(weighed_BD, "sum", lengths=batch.targets["num_windows"], unsafe=True)

    def _summed_up(self, model: Any, packed: Packed) -> Tensor:
        """[B, D] in the pack's order, by the model's own way from words to a text (models.han)."""
        if not hasattr(model, "summary"):
            raise InputError("task.pool is own, but this model has no such way to sum a text up; take mean or cls.")
        return model.summary(packed)  # type: ignore[no-any-return]

    def _hidden(self, packed: Packed) -> Packed:
        """Some of the tokens behind [MASK], by chance: what a model that was trained on blanks bears best."""
        import torch

        ids, tokenizer = packed.ids, self.tokenizer
        ordinary = (ids != tokenizer.cls_id) & (ids != tokenizer.sep_id)
        drawn = torch.rand(len(ids), device=ids.device) < self.config.mask_prob
        return Packed(
            ids=torch.where(ordinary & drawn, tokenizer.mask_id, ids),
            positions=packed.positions,
            segments=packed.segments,
            boundaries=packed.boundaries,
            lengths=packed.lengths,
            max_len=packed.max_len,
        )


def _means(hidden_TD: Tensor, batch: Batch, several: bool) -> Tensor:
    """The mean of each window's vectors, [B, D]: [CLS], [SEP] and, of several windows, the tokens that each owns."""
    import torch

    edges = batch.packed.boundaries.long()
    lengths = edges.diff()
    places = _sequences(batch)
    sums_BD = hidden_TD
    counts = lengths[places]
    if several:
        own = torch.zeros(len(lengths), 5, dtype=torch.long, device=edges.device)
        own[places] = batch.targets["owned"].long()
        own_TX = own.repeat_interleave(lengths, dim=0, output_size=len(hidden_TD))
        position = batch.packed.positions
        last = (lengths - 1).repeat_interleave(lengths, output_size=len(hidden_TD))
        counted = (position == 0) | (position == own_TX[:, 4]) | (position == last)
        for column in (0, 2):
            counted |= (position >= own_TX[:, column]) & (position < own_TX[:, column + 1])
        sums_BD = hidden_TD * counted[:, None]
        counts = torch.segment_reduce(counted.float(), "sum", lengths=lengths, unsafe=True)[places]
    sums_BD = torch.segment_reduce(sums_BD, "sum", lengths=lengths, unsafe=True)
    means_BD: Tensor = sums_BD[places] / counts[:, None]
    return means_BD


def _sequences(batch: Batch) -> Tensor:
    """[B] the place of each of our windows among the pack's sequences."""
    import torch

    # Boundaries as they are, since a compiled graph can search nothing that it made itself.
    return torch.searchsorted(batch.packed.boundaries, batch.starts.to(batch.packed.boundaries.dtype))


def place_of(example: Example, index: int) -> str:
    """Where an error says that it stands: in its file or, where it came from none, among the examples."""
    return f"{example.source} line {example.line}" if example.source else f"example {index}"


def golds(examples: Sequence[Example], labels: Sequence[str]) -> Places:
    """[N] the place of each example's label among the labels; one that is not there is named with its file and line."""
    places: dict[str | None, int] = {label: place for place, label in enumerate(labels)}
    places[None] = NOTHING
    found = np.fromiter((places.get(label_sets.only(each.gold), NOTHING - 1) for each in examples), dtype=np.int64)
    for index in np.flatnonzero(found < NOTHING)[:1]:
        wrong = examples[int(index)]
        where = place_of(wrong, int(index))
        if isinstance(wrong.gold, tuple) and len(wrong.gold) != 1:
            raise InputError(
                f"{where}: has {len(wrong.gold)} labels, but the model gives each text one; train one that gives "
                "several: --set task.several=true."
            )
        shown = ", ".join(labels[:10]) + (" …" if len(labels) > 10 else "")
        raise InputError(
            f"{where}: the label {wrong.gold!r} is not one of the {len(labels)} that the model knows ({shown}); "
            f"correct it or train with it.{did_you_mean(str(wrong.gold), labels)}"
        )
    return found


def set_golds(examples: Sequence[Example], labels: Sequence[str]) -> npt.NDArray[np.float32]:
    """[N, L] 1 for each label that a text has, else 0; NaN where its labels are not known."""
    places = {label: place for place, label in enumerate(labels)}
    found = np.zeros((len(examples), len(labels)), dtype=np.float32)
    for index, example in enumerate(examples):
        own = label_sets.apart(example.gold, places)
        if own is None:
            found[index] = np.nan
            continue
        for label in own:
            if label not in places:
                raise one_of(f"{place_of(example, index)}: one of the labels", label, labels)
            found[index, places[label]] = 1
    return found


def _known(gold: Any) -> Any:
    """[N] whether a text's label, or labels, are known; of arrays and tensors."""
    return gold[:, 0] == gold[:, 0] if gold.ndim == 2 else gold != NOTHING  # NaN is not itself


def ranges(first: Places, counts: Places) -> Places:
    """first[0], first[0]+1, … counts[0] of them, then those of first[1], and so on."""
    if (counts == 1).all():
        return first
    ends = np.cumsum(counts)
    found: Places = np.arange(int(ends[-1])) + np.repeat(first - (ends - counts), counts)
    return found


def _encoding(ids: Ints) -> Encoding:
    nowhere = np.zeros_like(ids)
    parts = nowhere.copy()
    parts[[0, -1]] = -1
    return Encoding(ids, nowhere, parts, nowhere, nowhere)
