"""One label for a text, or several: labelled texts in, packed batches and the loss of a head, or scores of labels out.

The windows of a text make one decision: their vectors are averaged, each weighing as many tokens as it owns, before
the head sees them. `pool="cls"` is the published way (the pooler's tanh of [CLS], dropout, a linear head; Devlin et
al. 2019, §4.1), `pool="mean"` the mean of all token vectors. With `several` every label is a question of its own, yes
or no; a text may have many labels, or none.

Legend: T tokens of the row, B sequences (windows), N texts, D width, L labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Floats, Prediction
from filbert.forms import label_sets
from filbert.nn.ops import A, Host, Numbers
from filbert.pack.lay import Places
from filbert.tasks.classify.decode import chances, predictions, probabilities, set_predictions
from filbert.tasks.classify.spec import BALANCED, Config
from filbert.tasks.task import Fit, Report
from filbert.tasks.windowed import Windowed, pooled
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.encoder import Encoder

NOTHING = -100  # the label of a text whose label is not known
LC = TypeVar("LC", bound=Config)


class Items(Windowed[LC, Floats]):
    """Texts to be classified; one without a label can be scored, not learnt from."""

    watched: str = "accuracy"  # the measure that says which state is best
    part = "labels"
    weights: tuple[float, ...] = ()  # of the labels in the loss
    uncut: str = ""  # what to know of labels that stand together in a cell

    def __init__(self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: LC) -> None:
        super().__init__(examples, labels, tokenizer, config)
        self.parts = ("pooler", self.part) if config.pool == "cls" else (self.part,)
        self.mask_prob = config.mask_prob
        if config.several:
            self.watched = "f1"
        self.gold = self._golds(examples)
        self.weights = self._weights()
        self.cut([example.texts for example in examples], config.overlap)

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from: what a run that goes on must find unchanged."""
        return self.ids, self.gold, self.cuts.first, self.cuts.second

    def remarks(self) -> list[str]:
        """What a user should know of the data as they are learnt."""
        return [self.uncut] if self.uncut else []

    def _golds(self, examples: Sequence[Example]) -> Numbers:
        """[N] the label of each text, or [N, L] which labels it has."""
        self.uncut = label_sets.uncut([example.gold for example in examples]) if self.config.several else ""
        return set_golds(examples, self.labels) if self.config.several else golds(examples, self.labels)

    def _weights(self) -> tuple[float, ...]:
        """Of each label in the loss; none where all weigh the same."""
        if self.config.class_weights in ("", BALANCED):  # which only training data can fix
            return ()
        weights = label_sets.weights(self.config.class_weights)
        for name in weights:
            if name not in self.labels:
                raise one_of("task.class_weights: a label", name, self.labels)
        return tuple(weights.get(label, 1.0) for label in self.labels)

    @property
    def has_unknown(self) -> bool:
        """Whether some text has no label."""
        return not bool(_is_known(self.gold).all())

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return bool(_is_known(self.gold).any())

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The texts' windows packed by length, and their labels."""
        targets = {"label": self.gold[orders], **self.pooling(orders)}
        laid = self.laid(orders, budget)
        return Batch(laid.packed, laid.starts, laid.owners, targets)

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """How many texts each loss sums over; of several labels every one counts, and weighted texts by their weight.

        The loss is then the mean that torch's functions of the same names take.
        """
        gold = batch.targets["label"]
        is_known = _is_known(gold)
        num_known = int(is_known.sum())
        if self.config.several:
            counted: float = num_known * len(self.labels)
        else:
            counted = float(np.take(self.weights, gold[is_known]).sum()) if self.weights else num_known
        return {"label_loss": counted} | ({"consistency_loss": num_known} if self.config.consistency else {})

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the right labels; smoothed, weighted and with R-Drop only while the model trains."""
        import torch

        from filbert.nn.torch_ops import TorchHost

        gold, host = batch.targets["label"], TorchHost(model)
        is_known = _is_known(gold)
        count = is_known.sum()
        off = self._set_loss if self.config.several else self._label_loss
        scores_NL = self.scores(host, batch)
        first = off(scores_NL, gold, model.training)
        terms = {"label_loss": first, **self._rightness(scores_NL.detach(), gold, is_known)}
        if self.config.consistency and model.training:
            again_NL = self.scores(host, batch)
            one, two = (self._log_chances(each) for each in (scores_NL, again_NL))
            # ½(KL(p‖q) + KL(q‖p)) = ½ Σ (p - q)(log p - log q)
            apart = 0.5 * torch.where(is_known, ((one.exp() - two.exp()) * (one - two)).flatten(1).sum(-1), 0.0).sum()
            both = 0.5 * (first.total + off(again_NL, gold, model.training).total)
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

        is_known = _is_known(gold_NL)
        right_NL, weights = gold_NL.nan_to_num(), None
        if training:
            share = self.config.label_smoothing
            right_NL = right_NL * (1 - share) + share / 2
            weights = scores_NL.new_tensor(self.weights) if self.weights else None
        each_NL = F.binary_cross_entropy_with_logits(scores_NL, right_NL, pos_weight=weights, reduction="none")
        return Term((each_NL * is_known[:, None]).sum(), is_known.sum() * len(self.labels))

    def _log_chances(self, scores_NL: Tensor) -> Tensor:
        """[N, L] the logarithm of each label's probability, or [N, L, 2] of its being right and wrong."""
        import torch
        import torch.nn.functional as F

        if not self.config.several:
            return scores_NL.log_softmax(-1)
        return torch.stack((F.logsigmoid(scores_NL), F.logsigmoid(-scores_NL)), -1)

    def _rightness(self, scores_NL: Tensor, gold: Tensor, is_known: Tensor) -> dict[str, Term]:
        """For the log: accuracy; of several labels that of whole sets, and F1 over all labels of all texts."""
        if not self.config.several:
            return {"accuracy": Term(((scores_NL.argmax(-1) == gold) & is_known).sum(), is_known.sum())}
        chosen_NL, right_NL = (scores_NL.sigmoid() >= self.config.several) & is_known[:, None], gold == 1
        whole = ((chosen_NL == right_NL).all(-1) & is_known).sum()
        return {
            "accuracy": Term(whole, is_known.sum()),
            "f1": Term(2 * (chosen_NL & right_NL).sum(), chosen_NL.sum() + right_NL.sum()),
        }

    def vectors(self, host: Host[A], batch: Batch) -> A:
        """One vector for each text, [N, D] in float32."""
        packed = self.read(host, batch.packed)
        return pooled(host, packed, batch, self.config.pool, "pooler" in self.parts)

    def scores(self, host: Host[A], batch: Batch) -> A:
        """The head's logits, [N, L] in float32: the same in training, evaluation and prediction."""
        return host.head(self.part, host.dropout(self.vectors(host, batch)))

    def num_decisions(self, batch: Batch) -> int:
        """How many texts, or labels of texts, two models can be compared on."""
        return len(batch.targets["label"]) * (len(self.labels) if self.config.several else 1)

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """The logits of each text, as a student compares them with its teacher's."""
        from filbert.nn.torch_ops import TorchHost

        return Decisions("several" if self.config.several else "one", self.scores(TorchHost(model), batch))

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Floats]:
        """The logits of each text."""
        return list(host.xp.host(self.scores(host, batch)))

    @property
    def temperature(self) -> float:
        """What divides the scores before they are probabilities; dev data fit it."""
        return float(self.config.temperature)

    def label_shares(self, raw: Sequence[Floats]) -> npt.NDArray[np.float64]:
        """[N, L] how likely each label is; where a text may have several, each by itself."""
        scores = np.asarray(raw).reshape(-1, len(self.labels))
        if self.config.several:
            return chances(scores)
        return probabilities(scores / self.config.temperature)

    def predictions(self, raw: Sequence[Floats]) -> list[Prediction]:
        """In the user's own labels, from what `raw` gave for every text."""
        if self.config.several:
            return set_predictions(np.asarray(raw), self.labels, self.config.several)
        return predictions(np.asarray(raw) / self.config.temperature, self.labels)

    def evaluated(self, raw: Sequence[Floats]) -> Report:
        """How right they are: metrics at the top, "intervals", "labels", "confusion"."""
        from filbert.tasks.classify.measure import report

        return report(self.config, np.asarray(raw), self.gold, self.labels)

    def calibrated(self, raw: Sequence[Floats], fixed: Collection[str] = ()) -> Fit:
        """The config with the temperature, or the probability from which on a label is given, that suits these texts.

        fixed: the fields that the user set, which stay as they are.
        """
        from filbert.tasks.classify.measure import calibrated

        return calibrated(self.config, raw, self.gold, fixed)


def golds(examples: Sequence[Example], labels: Sequence[str]) -> Places:
    """[N] the place of each example's label among the labels; one that is not there is named with its file and line."""
    places = {label: place for place, label in enumerate(labels)}
    every = (NOTHING if each.gold is None else places.get(label_sets.only(each.gold), NOTHING - 1) for each in examples)
    places_N = np.fromiter(every, dtype=np.int64)
    for index in np.flatnonzero(places_N < NOTHING)[:1]:
        wrong = examples[int(index)]
        where = wrong.where(int(index))
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
    return places_N


def set_golds(examples: Sequence[Example], labels: Sequence[str]) -> npt.NDArray[np.float32]:
    """[N, L] 1 for each label that a text has, else 0; NaN where its labels are not known."""
    places = {label: place for place, label in enumerate(labels)}
    flags = np.zeros((len(examples), len(labels)), dtype=np.float32)
    for index, example in enumerate(examples):
        names = label_sets.apart(example.gold, places)
        if names is None:
            flags[index] = np.nan
            continue
        for label in names:
            if label not in places:
                raise one_of(f"{example.where(index)}: one of the labels", label, labels)
            flags[index, places[label]] = 1
    return flags


def _is_known(gold: A) -> A:
    """[N] whether a text's label, or labels, are known; of arrays and tensors."""
    is_known_N: A = gold[:, 0] == gold[:, 0] if gold.ndim == 2 else gold != NOTHING  # NaN is not itself
    return is_known_N
