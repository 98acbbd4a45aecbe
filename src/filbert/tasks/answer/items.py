"""Answers as stretches of a passage: questions, passages and answers in, the loss of a span head or its answers out.

Question and passage are read together, [CLS] question [SEP] passage [SEP]; a long passage in windows (text.windows). In
each window one token begins the answer and one ends it, [CLS] where the window does not hold it (Devlin et al. 2019,
§4.2 and 4.3). Decoding over all windows is tasks.answer.decode, and so are the rules for gold answers.

Legend: T tokens of the row, B sequences (windows), N questions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Prediction
from filbert.metrics import answers as metrics
from filbert.metrics import calibration
from filbert.nn import numpy_heads
from filbert.tasks.answer import decode as decoding
from filbert.tasks.classify import items as classify
from filbert.text.tokenizer import Pieces, Tokenizer
from filbert.text.windows import WindowEncoding, coverage, windowed

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "span"
KEPT = ("max_length", "overlap", "longest", "rule", "threshold")
UNKNOWN = -1  # the place of an answer that is not to be learnt
ELSEWHERE = 0  # the place of one that stands in no part of the window: [CLS]
RULES = ("auto", *metrics.RULES)
SHOWN = 5  # candidates that are written unless more are asked for


@dataclass(frozen=True, kw_only=True)
class Config:
    """How passages are read and which answers are given."""

    max_length: int = 384
    overlap: int = 128  # tokens that two windows share
    longest: int = decoding.LONGEST  # tokens that an answer may have
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a passage is learnt from
    rule: str = "auto"  # what counts as right: that of SQuAD, CMRC 2018, DRCD or CJRC; auto is SQuAD's or CMRC's
    threshold: float | None = None  # "no answer" must lead by so much; None: every question has an answer

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=16, overlap=0, longest=1)
        settings.check_shares("task", self, "mask_prob")
        settings.check_one_of("task", self, rule=RULES)
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise InputError(f"task.threshold is {self.threshold!r}, but must be a number.")


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...]:
    """None: the head's outputs are begin and end."""
    return ()


def published(model: Any, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a published folder, which has none of its own."""
    return {"max_length": min(model.config.max_length, Config.max_length)}


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that answers questions"


LATER = ("start", "end", "score", "no_answer")  # fields that not every record has


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: the answer with its place, other candidates, and the right ones if known."""
    passage = example.texts[1]
    rows = [
        {"text": passage[span.start : span.end], "start": span.start, "end": span.end, "score": round(span.score, 6)}
        for span in said.spans[: top or SHOWN]
    ]
    found: dict[str, Any] = {"answer": said.label}
    if said.label:
        found |= {name: rows[0][name] for name in ("start", "end", "score")}
    if said.scores:
        found["no_answer"] = round(said.scores[""], 6)
    if example.gold is not None:
        found["gold"] = [answer.text for answer in example.gold]
    return {**found, "candidates": rows}


class Task(classify.Task):
    """Answers to questions; one whose gold is unknown can be answered, not learnt from."""

    num_texts = 2
    watched = "span_accuracy"
    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        self.labels, self.tokenizer, self.config, self.parts = tuple(labels), tokenizer, config, ("span",)
        self.examples = list(examples)
        self.gold = np.array([example.gold is not None for example in examples], dtype=bool)
        self.pieces: Pieces = self._cut([example.texts for example in examples])
        self.places, self.kinds = self._places()

    def windows(self, index: int) -> list[WindowEncoding]:
        """Those of one question, as `tasks.answer.decode` reads them."""
        question, passage = self.pieces[index], self.pieces[len(self.examples) + index]
        return windowed(self.tokenizer, question, passage, self.config.max_length, self.config.overlap)

    def _places(self) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
        """[B, 2] the first and last token of the answer in every window; and how many answers are of which kind."""
        places = np.full((len(self.cuts.first), 2), ELSEWHERE, dtype=np.int64)
        kinds: dict[str, int] = {}
        for index, example in enumerate(self.examples):
            rows = slice(self.cuts.edges[index], self.cuts.edges[index + 1])
            if example.gold is None:
                places[rows] = UNKNOWN
                continue
            kind = "none"
            for answer in example.gold:
                if answer.start < 0:
                    kind = "not in the passage"
                    continue
                try:
                    found = decoding.target(example.texts[1], self.windows(index), answer.text, answer.start)
                except InputError as error:
                    raise InputError(f"{classify.place_of(example, index)}: {error}") from None
                kind = found.kind
                for window, first, last in found.rows:
                    places[self.cuts.edges[index] + window] = first, last
                if found.rows:
                    break
            if kind in ("not in the passage", *decoding.FAULTS):
                places[rows] = UNKNOWN  # there is an answer, so "none" is not to be learnt either
            kinds[kind] = kinds.get(kind, 0) + 1
        return places, kinds

    @property
    def has_unknown(self) -> bool:
        """Whether some question has no gold answer, not even that there is none."""
        return not self.gold.all()

    @property
    def teaches(self) -> bool:
        """Whether some window's answer, or that it has none, is known."""
        return bool((self.places != UNKNOWN).any())

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        told = {
            "widened": "answers begin or end inside a token and were widened to it",
            "trimmed": "answers have white space at an edge, which is no part of them",
            "no token": "answers hold nothing that the model can read and are not learnt",
            "no window": "answers fit into no window and are not learnt: let them overlap by more (task.overlap)",
            "not in the passage": "answers do not stand in their passage and are not learnt",
        }
        return [f"{self.kinds[kind]:,} {what}." for kind, what in told.items() if self.kinds.get(kind)]

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is learnt from."""
        return self.ids, self.places, self.cuts.first, self.cuts.second

    def batch(self, orders: tuple[int, Any], budget: int | None = None) -> Batch:
        """The windows packed by length, and where each one's answer lies in the row."""
        made, which = self._packed(orders[1], budget), self._windows_of(orders[1])
        places = self.places[which]
        rows = np.where(places == UNKNOWN, UNKNOWN, places + made.starts[:, None])
        return Batch(made.packed, made.starts, made.owners, {"span_rows": rows})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many windows the loss sums over."""
        return {"span_loss": int((batch.targets["span_rows"][:, 0] != UNKNOWN).sum())}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """The mean cross-entropy of begin and end, over the tokens of each window that may be one of them."""
        import torch

        rows = batch.targets["span_rows"]
        known = rows[:, 0] != UNKNOWN
        count = known.sum()
        scores_T2 = self.scores(model, batch)
        lengths = batch.packed.boundaries.long().diff()
        tops_B2 = torch.segment_reduce(scores_T2.detach(), "max", lengths=lengths, unsafe=True)
        apart_T2 = scores_T2 - tops_B2.repeat_interleave(lengths, dim=0, output_size=len(scores_T2))
        logs_B2 = torch.segment_reduce(apart_T2.exp(), "sum", lengths=lengths, unsafe=True).log() + tops_B2
        places = torch.searchsorted(batch.packed.boundaries, batch.starts.to(batch.packed.boundaries.dtype))
        own_B2 = scores_T2.gather(0, rows.clamp(min=0))
        off = torch.where(known, (logs_B2[places] - own_B2).mean(1), 0.0).sum()
        right = ((own_B2.detach() >= tops_B2[places]).all(1) & known).sum()
        return {"span_loss": Term(off, count), "span_accuracy": Term(right, count)}

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[T, 2] begin and end, in float32; far below all others where no answer can be: question and [SEP]."""
        packed = self._hidden(batch.packed) if model.training and self.config.mask_prob else batch.packed
        head = model.heads["span"]
        scores_T2 = head(model(packed).to(head.weight.dtype)).float()
        lengths = packed.boundaries.long().diff()
        last = (lengths - 1).repeat_interleave(lengths, output_size=len(scores_T2))
        allowed = (packed.positions == 0) | ((packed.segments == 1) & (packed.positions != last))
        return scores_T2.masked_fill(~allowed[:, None], -1e30)  # type: ignore[no-any-return]

    def num_decisions(self, batch: Batch) -> int:
        """How many windows."""
        return len(batch.starts)

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """Where each window's answer begins and ends; sequences that only fill a pack up come last and do not count."""
        import torch

        lengths = batch.packed.boundaries.long().diff()
        own = torch.arange(len(lengths), device=lengths.device) < len(batch.starts)
        return Decisions("among", self.scores(model, batch), own, lengths)

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """Of each question, the scores of each window's tokens."""
        scores, edges = self.scores(model, batch).cpu().numpy(), batch.packed.boundaries.cpu().numpy()
        return self._by_window(scores, edges, batch.starts.cpu().numpy(), batch.owners)

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        packed, edges = batch.packed, np.asarray(batch.packed.boundaries)
        last_T = np.repeat(np.diff(edges) - 1, np.diff(edges))
        allowed = (packed.positions == 0) | ((packed.segments == 1) & (packed.positions != last_T))
        scores_T2 = np.where(allowed[:, None], host.heads.head(HEAD, host(packed)), np.float32(-1e30))
        return self._by_window(scores_T2, edges, batch.starts, batch.owners)

    @staticmethod
    def _by_window(scores: Any, edges: Any, starts: Any, owners: Any) -> list[list[Any]]:
        ends = edges[np.searchsorted(edges, starts, side="right")]
        found: list[list[Any]] = [[] for _ in range(int(owners.max()) + 1)]
        for start, end, owner in zip(starts, ends, owners.tolist(), strict=True):
            found[owner].append(scores[start:end].copy())
        return found

    def _candidates(self, index: int, raw: Any) -> tuple[decoding.Candidates, float]:
        windows = self.windows(index)
        begins, ends = ([scores[:, side] for scores in raw] for side in range(2))
        return decoding.candidates(windows, begins, ends, longest=self.config.longest), coverage(windows)

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """The best answer of each passage as `label`, a slice of the text; all candidates as `spans`."""
        found = []
        for index, (example, scores) in enumerate(zip(self.examples, raw, strict=True)):
            candidates, share = self._candidates(index, scores)
            found.append(decoding.prediction(example.texts[1], candidates, self.config.threshold, share))
        return found

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """Exact match and F1, with intervals, by the rule of the config."""
        said = [prediction.label or "" for prediction in self.predictions(raw)]
        return metrics.summary(metrics.scores(said, self._accepted(), self._rule()), self._rule())

    def _accepted(self) -> list[list[str]]:
        return [[answer.text for answer in example.gold] for example in self.examples]

    def _rule(self) -> str:
        return metrics.rule_for(self._accepted()) if self.config.rule == "auto" else str(self.config.rule)

    def calibrated(self, raw: Sequence[Any], given: Collection[str] = ()) -> calibration.Fit:
        """The config with the threshold of "no answer" that is best on these data; as it was where all have answers.

        Of too few questions it is 0: none is the answer where it scores above every stretch.
        """
        accepted = self._accepted()
        if all(accepted) or "threshold" in given:
            return calibration.Fit(self.config)
        if len(self) < calibration.FEWEST:
            note = calibration.too_few("threshold", len(self), "it is 0, so that no answer must score above all others")
            return calibration.Fit(replace(self.config, threshold=0.0), note)
        rows = [self._candidates(index, scores)[0] for index, scores in enumerate(raw)]
        passages = [example.texts[1] for example in self.examples]
        texts = [text[c.starts[0] : c.ends[0]] if len(c.starts) else "" for text, c in zip(passages, rows, strict=True)]
        answered, empty = (metrics.scores(said, accepted, self._rule()).f1 for said in (texts, [""] * len(texts)))
        threshold, _ = decoding.fitted_threshold([c.margin for c in rows], answered, empty)
        return calibration.Fit(replace(self.config, threshold=threshold))
