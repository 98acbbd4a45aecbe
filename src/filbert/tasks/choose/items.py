"""One of several options for a question: passages, questions and options in, a choice head's loss or choices out.

Each option is read after its question, [CLS] passage [SEP] question option [SEP], and gets one score; a softmax over
the options of a question makes a choice, however many there are (as Zellers et al. 2018 and Devlin et al. 2019, §4.4
do for four). A long passage is read in windows that repeat question and option (text.windows): their vectors are
averaged, as those of a pair.

Legend: B sequences (windows), O options of all questions, N questions, D width.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Floats, Prediction
from filbert.nn.ops import A, Host, Numbers
from filbert.pack import cuts
from filbert.pack.lay import Places
from filbert.tasks.choose import measure as metrics
from filbert.tasks.choose.spec import BEFORE, Config
from filbert.tasks.classify.decode import predictions, probabilities
from filbert.tasks.classify.items import NOTHING
from filbert.tasks.classify.measure import fitted_temperature
from filbert.tasks.task import Fit, Report
from filbert.tasks.windowed import Windowed, pooled, ranges
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.encoder import Encoder

PART = "choice"


class Items(Windowed[Config, Floats]):
    """Choices among options; a question whose answer is unknown can be answered, not learnt from."""

    num_texts = BEFORE + 1  # and more: every option is one
    watched = "accuracy"

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, labels, tokenizer, config)
        self.parts = ("pooler", PART) if config.pool == "cls" else (PART,)
        self.mask_prob = config.mask_prob
        self.gold = np.array([_gold(example, index) for index, example in enumerate(examples)], dtype=np.int64)
        counts = [len(example.texts) - BEFORE for example in examples]
        self.options = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)  # [N+1] edges of each question's
        self._cut_options()

    def _cut_options(self) -> None:
        """The windows of every option; a passage that several share is cut into tokens once."""
        places: dict[str, int] = {}
        passage_of = [places.setdefault(example.texts[0], len(places)) for example in self.examples]
        questions = [f"{e.texts[1]} {option}".strip() for e in self.examples for option in e.texts[BEFORE:]]
        pieces = self.tokenizer.pieces([*places, *questions])
        self.ids = np.asarray(pieces.ids, dtype=np.int32)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64)
        passages = np.repeat(np.array(passage_of, dtype=np.int64), np.diff(self.options))  # [O]
        # Windows are planned as if the passages lay end to end, each as often as it is read, and moved to where they
        # are. The question stands first in the plan, because it is the second text of a pair that is cut.
        laid = np.concatenate(([0], np.cumsum(bounds[passages + 1] - bounds[passages])))
        planned = cuts.cuts(bounds[len(places) :], laid, self.config.max_length, self.config.overlap)
        moved = np.repeat(bounds[passages] - laid[:-1], np.diff(planned.edges))
        self.take(cuts.Cuts(planned.edges, planned.second + moved[:, None], planned.first, planned.specials))
        totals = np.concatenate(([0], np.cumsum(self.lengths)))
        self.lengths = np.diff(totals[self.options])  # [N] of each question, all its options together

    def origins(self, example: Example) -> Places:
        """As classify has it; an option is read behind its question, whose words stand once in the example."""
        passage, question, *options = example.texts
        read_texts = [f"{question} {option}" for option in options]
        origins = super().origins(replace(example, texts=(passage, *(text.strip() for text in read_texts))))
        read = origins[:, 0].copy()
        for place, text in enumerate(read_texts):
            inside = read == place + 1
            span = origins[inside, 1:] + len(text) - len(text.lstrip())
            behind = span[:, :1] > len(question)
            parts = np.where(behind, BEFORE + place, 1)
            origins[inside] = np.concatenate((parts, span - behind * (len(question) + 1)), axis=1)
        return origins

    @property
    def has_unknown(self) -> bool:
        """Whether some question's right option is not known."""
        return bool((self.gold == NOTHING).any())

    @property
    def teaches(self) -> bool:
        """Whether there is anything to learn from."""
        return bool((self.gold != NOTHING).any())

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from."""
        return self.ids, self.gold, self.cuts.first, self.cuts.second, self.options

    def _options_of(self, questions: Places) -> tuple[Places, Places]:
        """The options of these questions, and how many each has."""
        counts = self.options[questions + 1] - self.options[questions]
        return ranges(self.options[questions], counts), counts

    def sources(self, which: Places) -> Places:
        """[rows] the place among `tokens` of each row of these questions' windows."""
        return super().sources(self._options_of(which)[0])

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The windows of all options packed by length, and which option is right."""
        options, counts = self._options_of(orders)
        laid = self.laid(options, budget)
        targets = {"label": self.gold[orders], "num_options": counts, **self.pooling(options)}
        return Batch(laid.packed, laid.starts, np.repeat(np.arange(len(orders)), counts)[laid.owners], targets)

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many questions the loss sums over."""
        return {"label_loss": int((batch.targets["label"] != NOTHING).sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the right option among those of its question."""
        import torch

        from filbert.nn.torch_ops import TorchHost

        gold, counts = batch.targets["label"], batch.targets["num_options"]
        is_known = gold != NOTHING
        scores_O = self.scores(TorchHost(model), batch)

        def spread(values_N: Tensor) -> Tensor:
            return values_N.repeat_interleave(counts, output_size=len(scores_O))

        def reduced(values_O: Tensor, how: str) -> Tensor:
            return torch.segment_reduce(values_O, how, lengths=counts, unsafe=True)

        tops_N = reduced(scores_O.detach(), "max")
        logs_N = reduced((scores_O - spread(tops_N)).exp(), "sum").log() + tops_N
        gold_scores_N = scores_O[counts.cumsum(0) - counts + gold.clamp(min=0)]
        smoothing = self.config.label_smoothing if model.training else 0.0
        wanted_N = (1 - smoothing) * gold_scores_N + smoothing * reduced(scores_O, "mean")
        off = torch.where(is_known, logs_N - wanted_N, 0.0).sum()
        rivals_N = reduced((scores_O.detach() >= spread(gold_scores_N.detach())).float(), "sum")  # itself among them
        return {
            "label_loss": Term(off, is_known.sum()),
            "accuracy": Term(((rivals_N == 1) & is_known).sum(), is_known.sum()),
        }

    def scores(self, host: Host[A], batch: Batch) -> A:
        """[O] in float32, the options of one question after another."""
        option_OD = pooled(host, self.read(host, batch.packed), batch, self.config.pool, "pooler" in self.parts)
        return host.head(PART, host.dropout(option_OD))[:, 0]

    def num_decisions(self, batch: Batch) -> int:
        """How many questions."""
        return len(batch.targets["label"])

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """The scores of all options; those of a question are neighbours."""
        from filbert.nn.torch_ops import TorchHost

        return Decisions("among", self.scores(TorchHost(model), batch), sizes=batch.targets["num_options"])

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Floats]:
        """Of each question, the scores of its options."""
        ends = batch.targets["num_options"].cumsum(0).tolist()
        return np.split(host.xp.host(self.scores(host, batch)), ends[:-1])

    @property
    def temperature(self) -> float:
        """What divides the scores before they are probabilities; dev data fit it."""
        return float(self.config.temperature)

    def predictions(self, raw: Sequence[Floats]) -> list[Prediction]:
        """The likeliest option's text as `label`, with the share of every option, the likeliest first."""
        pairs = zip(raw, self.examples, strict=True)
        heat = self.config.temperature
        return [predictions(scores[None] / heat, example.texts[BEFORE:])[0] for scores, example in pairs]

    def evaluated(self, raw: Sequence[Floats]) -> Report:
        """How often the right option was chosen, with an interval, beside what needs no reading."""
        texts = [example.texts[BEFORE:] for example in self.examples]
        chosen = [int(np.argmax(scores)) for scores in raw]
        # Two options may be alike; then either is right.
        right = [
            options[place] == options[gold]
            for options, place, gold in zip(texts, chosen, self.gold.tolist(), strict=True)
        ]
        shares = [probabilities(scores)[gold] for scores, gold in zip(raw, self.gold.tolist(), strict=True)]
        report = metrics.summary(right, self.gold, np.diff(self.options))
        return {"accuracy": report.pop("accuracy"), "loss": float(-np.log(np.maximum(shares, 1e-300)).mean()), **report}

    def calibrated(self, raw: Sequence[Floats], fixed: Collection[str] = ()) -> Fit:
        """The config with the temperature that suits these questions."""
        return fitted_temperature(self.config, raw, self.gold, fixed)


def _gold(example: Example, index: int) -> int:
    """The number of the right option, checked."""
    count, gold = len(example.texts) - BEFORE, example.gold
    where = example.where(index)
    if count < 2:
        raise InputError(f"{where}: has {max(0, count)} options, but needs a passage, a question and two or more.")
    if gold is None:
        return NOTHING
    if type(gold) is not int or not 0 <= gold < count:
        raise InputError(f"{where}: the answer is {gold!r}, but must be an option's number from 0 to {count - 1}.")
    return gold
