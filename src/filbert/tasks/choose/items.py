"""One of several options for a question: passages, questions and options in, a choice head's loss or choices out.

Each option is read after its question, [CLS] passage [SEP] question option [SEP], and gets one score; a softmax over
the options of a question makes a choice, however many there are (as Zellers et al. 2018 and Devlin et al. 2019, §4.4
do for four). A long passage is read in windows that repeat question and option (text.windows): their vectors are
averaged, as those of a pair.

Legend: B sequences (windows), O options of all questions, N questions, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Prediction
from filbert.metrics import choices as metrics
from filbert.nn import numpy_heads
from filbert.pack import cuts
from filbert.tasks.classify import items as classify
from filbert.tasks.classify.decode import predictions, probabilities
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "choice"
KEPT = ("max_length", "overlap", "pool", "temperature")
NOTHING = classify.NOTHING
POOL = "cls"  # of a model whose first token reads all (experiments/2026-11-18-choices.md); else the mean
BEFORE = 2  # texts of an example that are not options: passage and question


@dataclass(frozen=True, kw_only=True)
class Config:
    """How passages and options are read."""

    max_length: int = 512
    overlap: int = 128  # tokens that two windows share; at most half of one
    pool: str = "mean"  # of all vectors, or "cls": the pooler's, as published, which a BERT is fine-tuned with
    label_smoothing: float = 0.0
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a question is learnt from
    temperature: float = 1.0  # divides the scores before they are probabilities; dev data fit it

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0)
        settings.check_one_of("task", self, pool=classify.POOLS)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        settings.check_positive("task", self, temperature=1_000)


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...]:
    """None: the head's output is a score."""
    return ()


def published(model: Any, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a published folder, which has none of its own."""
    return {"max_length": model.config.max_length, "pool": "cls" if "pooler" in model.parts else "mean"}


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that chooses among options"


def examples(asked: Sequence[Any]) -> list[Example]:
    """What `predict` is given, each (passage, question, [option, option, …]), as examples."""
    found = []
    for index, each in enumerate(asked):
        good = isinstance(each, tuple | list) and len(each) == 3 and isinstance(each[2], list | tuple)
        texts = (each[0], each[1], *each[2]) if good else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"question {index} is {str(each)[:40]!r}, but must be (passage, question, [option, option, …]): this "
                "model chooses among options; on the command line, give them as --data."
            )
        found.append(Example(texts, id=index))
    return found


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: the options, the chosen one's number from 0 and text, and all their shares."""
    options = list(example.texts[BEFORE:])
    scores = {option: round(share, 6) for option, share in list(said.scores.items())[:top]}
    gold = {} if example.gold is None else {"gold": example.gold}
    answer = str(said.label)
    chosen = {"choice": options.index(answer), "answer": answer, "score": round(said.scores[answer], 6)}
    return {"options": options, **chosen, **gold, "scores": scores}


class Task(classify.Task):
    """Choices among options; a question whose answer is unknown can be answered, not learnt from."""

    num_texts = BEFORE + 1  # and more: every option is one
    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.config = tuple(labels), tokenizer, config
        self.parts = ("pooler", HEAD) if config.pool == "cls" else (HEAD,)
        self.examples = list(examples)
        self.gold = np.array([_gold(example, index) for index, example in enumerate(examples)], dtype=np.int64)
        counts = [len(example.texts) - BEFORE for example in examples]
        self.options = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)  # [N+1] edges of each question's
        self._cut_options()

    def _cut_options(self) -> None:
        """The windows of every option; a passage that several share is cut into tokens once."""
        places: dict[str, int] = {}
        own = [places.setdefault(example.texts[0], len(places)) for example in self.examples]
        asked = [f"{e.texts[1]} {option}".strip() for e in self.examples for option in e.texts[BEFORE:]]
        pieces = self.tokenizer.pieces([*places, *asked])
        self.ids = np.asarray(pieces.ids, dtype=np.int32)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64)
        passages = np.repeat(np.array(own, dtype=np.int64), np.diff(self.options))  # [O]
        # Windows are planned as if the passages lay end to end, each as often as it is read, and moved to where they
        # are. The question stands first in the plan, because it is the second text of a pair that is cut.
        laid = np.concatenate(([0], np.cumsum(bounds[passages + 1] - bounds[passages])))
        found = cuts.cuts(bounds[len(places) :], laid, self.config.max_length, self.config.overlap)
        moved = np.repeat(bounds[passages] - laid[:-1], np.diff(found.edges))
        self._take(cuts.Cuts(found.edges, found.second + moved[:, None], found.first, found.specials))
        totals = np.concatenate(([0], np.cumsum(self.num_tokens)))
        self.num_tokens = np.diff(totals[self.options])  # [N] of each question, all its options together

    def origins(self, example: Example) -> npt.NDArray[np.int64]:
        """As classify has it; an option is read behind its question, whose words stand once in the example."""
        passage, question, *options = example.texts
        asked = [f"{question} {option}" for option in options]
        found = super().origins(replace(example, texts=(passage, *(text.strip() for text in asked))))
        read = found[:, 0].copy()
        for place, text in enumerate(asked):
            own = read == place + 1
            span = found[own, 1:] + len(text) - len(text.lstrip())
            behind = span[:, :1] > len(question)
            parts = np.where(behind, BEFORE + place, 1)
            found[own] = np.concatenate((parts, span - behind * (len(question) + 1)), axis=1)
        return found

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is learnt from."""
        return (*super().arrays(), self.options)

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The windows of all options packed by length, and which option is right."""
        _, questions = orders
        counts = self.options[questions + 1] - self.options[questions]
        options = classify.ranges(self.options[questions], counts)
        made, chosen = self._packed(options, budget), self._windows_of(options)
        targets = {
            "label": self.gold[questions],
            "num_options": counts,
            "num_windows": self.cuts.edges[options + 1] - self.cuts.edges[options],
            "shares": self.shares[chosen].astype(np.float32),
            "owned": self._owned(chosen),
        }
        owners = np.repeat(np.arange(len(questions)), counts)[made.owners]
        return Batch(made.packed, made.starts, owners, targets)

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many questions the loss sums over."""
        return {"label_loss": int((batch.targets["label"] != NOTHING).sum())}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The cross-entropy of the right option among those of its question."""
        import torch

        gold, counts = batch.targets["label"], batch.targets["num_options"]
        known = gold != NOTHING
        scores_O = self.scores(model, batch)

        def spread(values_N: Tensor) -> Tensor:
            return values_N.repeat_interleave(counts, output_size=len(scores_O))

        def reduced(values_O: Tensor, how: str) -> Tensor:
            return torch.segment_reduce(values_O, how, lengths=counts, unsafe=True)

        tops_N = reduced(scores_O.detach(), "max")
        logs_N = reduced((scores_O - spread(tops_N)).exp(), "sum").log() + tops_N
        own_N = scores_O[counts.cumsum(0) - counts + gold.clamp(min=0)]
        smoothing = self.config.label_smoothing if model.training else 0.0
        wanted_N = (1 - smoothing) * own_N + smoothing * reduced(scores_O, "mean")
        off = torch.where(known, logs_N - wanted_N, 0.0).sum()
        rivals_N = reduced((scores_O.detach() >= spread(own_N.detach())).float(), "sum")  # itself among them
        return {"label_loss": Term(off, known.sum()), "accuracy": Term(((rivals_N == 1) & known).sum(), known.sum())}

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[O] in float32, the options of one question after another."""
        import torch.nn.functional as F

        head = model.heads[HEAD]
        option_OD = F.dropout(self.vectors(model, batch), model.config.dropout, model.training)
        return head(option_OD.to(head.weight.dtype)).float()[:, 0]  # type: ignore[no-any-return]

    def num_decisions(self, batch: Batch) -> int:
        """How many questions."""
        return len(batch.targets["label"])

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """The scores of all options; those of a question are neighbours."""
        return Decisions("among", self.scores(model, batch), sizes=batch.targets["num_options"])

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """Of each question, the scores of its options."""
        ends = batch.targets["num_options"].cumsum(0).tolist()
        return np.split(self.scores(model, batch).cpu().numpy(), ends[:-1])

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        scores_O = host.heads.head(HEAD, self.host_vectors(host, batch))[:, 0]
        return np.split(scores_O, np.cumsum(batch.targets["num_options"])[:-1])

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """The likeliest option's text as `label`, with the share of every option, the likeliest first."""
        given = zip(raw, self.examples, strict=True)
        heat = self.config.temperature
        return [predictions(scores[None] / heat, example.texts[BEFORE:])[0] for scores, example in given]

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """How often the right option was chosen, with an interval, beside what needs no reading."""
        texts = [example.texts[BEFORE:] for example in self.examples]
        said = [int(np.argmax(scores)) for scores in raw]
        # Two options may be alike; then either is right.
        right = [own[place] == own[gold] for own, place, gold in zip(texts, said, self.gold.tolist(), strict=True)]
        shares = [probabilities(scores)[gold] for scores, gold in zip(raw, self.gold.tolist(), strict=True)]
        told = metrics.summary(right, self.gold, np.diff(self.options))
        return {"accuracy": told.pop("accuracy"), "loss": float(-np.log(np.maximum(shares, 1e-300)).mean()), **told}


def _gold(example: Example, index: int) -> int:
    """The number of the right option, checked."""
    count, gold = len(example.texts) - BEFORE, example.gold
    where = classify.place_of(example, index)
    if count < 2:
        raise InputError(f"{where}: has {max(0, count)} options, but needs a passage, a question and two or more.")
    if gold is None:
        return NOTHING
    if type(gold) is not int or not 0 <= gold < count:
        raise InputError(f"{where}: the answer is {gold!r}, but must be an option's number from 0 to {count - 1}.")
    return gold
