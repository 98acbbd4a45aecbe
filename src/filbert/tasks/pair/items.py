"""One label or one number for two texts: labelled pairs in, the loss of a head, its scores or its numbers out.

Both texts are read together, [CLS] first [SEP] second [SEP], the second as segment 1 (Devlin et al. 2019, §4.1). A pair
longer than `max_length` is read in windows that hold a stretch of each (text.windows), and they make one decision.
`answer="label"` is for entailment or paraphrase, `answer="number"` for similarity, `answer="auto"` follows the labels:
of three or more numbers, some with fractions, a number is learnt. The head's one output is then learnt by squared
error, in units of the training data's own mean and spread, which the folder keeps.

Legend: N pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Floats, Prediction
from filbert.forms import label_sets
from filbert.metrics import numbers
from filbert.nn.ops import Numbers
from filbert.tasks.classify import items as classify
from filbert.tasks.pair.spec import VALUE, Config, number
from filbert.tasks.task import Report
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.nn.encoder import Encoder


class Items(classify.Items[Config]):
    """Classification of pairs of texts, or a number for each."""

    num_texts = 2

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, labels, tokenizer, config)
        if config.answer == "number":
            self.watched = "explained"

    def remarks(self) -> list[str]:
        """What a run says of its labels where they are numbers."""
        if self.config.answer == "number":
            counts = Counter(f"{value:g}" for value in self.gold[~np.isnan(self.gold)].tolist())
            learnt = "one number is learnt (task.answer=label would learn names)"
        elif self.config.several:
            return []
        else:
            counts = Counter({label: int((self.gold == place).sum()) for place, label in enumerate(self.labels)})
            learnt = f"{len(self.labels)} names are learnt; for one number --set task.answer=number"
        values = label_sets.numbers(counts) if counts.total() else None
        return [] if values is None else [f"{label_sets.number_range(counts, values)}: {learnt}."]

    def _golds(self, examples: Sequence[Example]) -> Numbers:
        if self.config.answer != "number":
            return super()._golds(examples)
        return np.array([math.nan if e.gold is None else number(e) for e in examples], dtype=np.float32)

    @property
    def has_unknown(self) -> bool:
        """Whether some pair has no gold."""
        return bool(np.isnan(self.gold).any()) if self.config.answer == "number" else super().has_unknown

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """How many pairs each loss sums over."""
        if self.config.answer != "number":
            return super().counts(batch)
        return {"label_loss": int((~np.isnan(batch.targets["label"])).sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """Of labels the cross-entropy, of numbers the squared error; `explained` is the share of the variance."""
        if self.config.answer != "number":
            return super().loss(model, batch)
        import torch

        from filbert.nn.torch_ops import TorchHost

        gold = (batch.targets["label"] - self.config.center) / self.config.scale
        is_known = ~torch.isnan(gold)
        off = torch.where(is_known, (self.scores(TorchHost(model), batch)[:, 0] - gold) ** 2, 0.0).sum()
        count = is_known.sum()
        return {"label_loss": Term(off, count), "explained": Term((count - off).detach(), count)}

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """As classify has it, or the numbers in units of their spread."""
        decisions = super().decisions(model, batch)
        return replace(decisions, kind="number") if self.config.answer == "number" else decisions

    def predictions(self, raw: Sequence[Floats]) -> list[Prediction]:
        """In the user's own labels or units."""
        if self.config.answer != "number":
            return super().predictions(raw)
        return [Prediction(scores={VALUE[0]: value}) for value in self._values(raw).tolist()]

    def evaluated(self, raw: Sequence[Floats]) -> Report:
        """How right they are."""
        if self.config.answer != "number":
            return super().evaluated(raw)
        return numbers.summary(self.gold, self._values(raw))

    def _values(self, raw: Sequence[Floats]) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = np.asarray(raw, dtype=np.float64)[:, 0] * self.config.scale
        return values + self.config.center
