"""Answers as stretches of a passage: questions, passages and answers in, the loss of a span head or its answers out.

Question and passage are read together, [CLS] question [SEP] passage [SEP]; a long passage in windows (text.windows). In
each window one token begins the answer and one ends it, [CLS] where the window does not hold it (Devlin et al. 2019,
§4.2 and 4.3). Decoding over all windows is tasks.answer.decode, and so are the rules for gold answers.

Legend: T tokens of the row, B sequences (windows), N questions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Floats, Prediction
from filbert.metrics import calibration
from filbert.nn.ops import A, Host, Numbers
from filbert.pack.lay import Places
from filbert.tasks.answer import decode
from filbert.tasks.answer import measure as metrics
from filbert.tasks.answer.spec import Config
from filbert.tasks.task import Fit, Report
from filbert.tasks.windowed import Windowed
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import WindowEncoding, coverage, windowed

if TYPE_CHECKING:
    from filbert.nn.encoder import Encoder

PART = "span"
UNKNOWN = -1  # the place of an answer that is not to be learnt
ELSEWHERE = 0  # the place of one that stands in no part of the window: [CLS]
NEVER = -1e30  # the score of what can be no answer
WindowScores = list[Floats]  # of a question, [tokens, 2] begin and end of each window


class Items(Windowed[Config, WindowScores]):
    """Answers to questions; one whose gold is unknown can be answered, not learnt from."""

    num_texts = 2
    watched = "span_accuracy"

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, labels, tokenizer, config)
        self.parts, self.mask_prob = (PART,), config.mask_prob
        self.gold = np.array([example.gold is not None for example in examples], dtype=bool)
        self.pieces = self.cut([example.texts for example in examples], config.overlap)
        self.places, self.kinds = self._places()

    def windows(self, index: int) -> list[WindowEncoding]:
        """Those of one question, as `tasks.answer.decode` reads them."""
        question, passage = self.pieces[index], self.pieces[len(self.examples) + index]
        return windowed(self.tokenizer, question, passage, self.config.max_length, self.config.overlap)

    def _places(self) -> tuple[Places, dict[str, int]]:
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
                    target = decode.target(example.texts[1], self.windows(index), answer.text, answer.start)
                except InputError as error:
                    raise InputError(f"{example.where(index)}: {error}") from None
                kind = target.kind
                for window, first, last in target.rows:
                    places[self.cuts.edges[index] + window] = first, last
                if target.rows:
                    break
            if kind in ("not in the passage", *decode.FAULTS):
                places[rows] = UNKNOWN  # there is an answer, so "none" is not to be learnt either
            kinds[kind] = kinds.get(kind, 0) + 1
        return places, kinds

    @property
    def has_unknown(self) -> bool:
        """Whether some question has no gold answer, not even that there is none."""
        return not bool(self.gold.all())

    @property
    def teaches(self) -> bool:
        """Whether some window's answer, or that it has none, is known."""
        return bool((self.places != UNKNOWN).any())

    def remarks(self) -> list[str]:
        """What of the data is not learnt as it stands."""
        sentences = {
            "widened": "answers begin or end inside a token and were widened to it",
            "trimmed": "answers have white space at an edge, which is no part of them",
            "no token": "answers hold nothing that the model can read and are not learnt",
            "no window": "answers fit into no window and are not learnt: let them overlap by more (task.overlap)",
            "not in the passage": "answers do not stand in their passage and are not learnt",
        }
        return [f"{self.kinds[kind]:,} {what}." for kind, what in sentences.items() if self.kinds.get(kind)]

    def arrays(self) -> tuple[Numbers, ...]:
        """All that is learnt from."""
        return self.ids, self.places, self.cuts.first, self.cuts.second

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The windows packed by length, and where each one's answer lies in the row."""
        laid, places = self.laid(orders, budget), self.places[self.windows_of(orders)]
        rows = np.where(places == UNKNOWN, UNKNOWN, places + laid.starts[:, None])
        return Batch(laid.packed, laid.starts, laid.owners, {"span_rows": rows})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many windows the loss sums over."""
        return {"span_loss": int((batch.targets["span_rows"][:, 0] != UNKNOWN).sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The mean cross-entropy of begin and end, over the tokens of each window that may be one of them."""
        import torch

        from filbert.nn.torch_ops import TORCH, TorchHost

        rows = batch.targets["span_rows"]
        is_known = rows[:, 0] != UNKNOWN
        count = is_known.sum()
        scores_T2 = self.scores(TorchHost(model), batch)
        lengths, places = TORCH.sequences(batch.packed.boundaries, batch.starts)
        tops_B2 = torch.segment_reduce(scores_T2.detach(), "max", lengths=lengths, unsafe=True)
        apart_T2 = scores_T2 - tops_B2.repeat_interleave(lengths, dim=0, output_size=len(scores_T2))
        logs_B2 = torch.segment_reduce(apart_T2.exp(), "sum", lengths=lengths, unsafe=True).log() + tops_B2
        gold_B2 = scores_T2.gather(0, rows.clamp(min=0))
        off = torch.where(is_known, (logs_B2[places] - gold_B2).mean(1), 0.0).sum()
        right = ((gold_B2.detach() >= tops_B2[places]).all(1) & is_known).sum()
        return {"span_loss": Term(off, count), "span_accuracy": Term(right, count)}

    def scores(self, host: Host[A], batch: Batch) -> A:
        """[T, 2] begin and end, in float32; far below all others where no answer can be: question and [SEP]."""
        xp, packed = host.xp, self.read(host, batch.packed)
        scores_T2 = host.head(PART, host.vectors(packed))
        lengths, _ = xp.sequences(packed.boundaries, batch.starts)
        last = xp.repeat(lengths - 1, lengths, len(scores_T2))
        allowed = (packed.positions == 0) | ((packed.segments == 1) & (packed.positions != last))
        return xp.where(allowed[:, None], scores_T2, NEVER)

    def num_decisions(self, batch: Batch) -> int:
        """How many windows."""
        return len(batch.starts)

    def decisions(self, model: Encoder, batch: Batch) -> Decisions:
        """Where each window's answer begins and ends; sequences that only fill a pack up come last and do not count."""
        import torch

        from filbert.nn.torch_ops import TorchHost

        lengths = batch.packed.boundaries.long().diff()
        is_read = torch.arange(len(lengths), device=lengths.device) < len(batch.starts)
        return Decisions("among", self.scores(TorchHost(model), batch), is_read, lengths)

    def raw(self, host: Host[A], batch: Batch) -> Sequence[WindowScores]:
        """Of each question, the scores of each window's tokens."""
        xp = host.xp
        scores, edges = xp.host(self.scores(host, batch)), xp.host(batch.packed.boundaries)
        starts = xp.host(batch.starts)
        ends = edges[np.searchsorted(edges, starts, side="right")]
        raw: list[WindowScores] = [[] for _ in range(int(batch.owners.max()) + 1)]
        for start, end, owner in zip(starts, ends, batch.owners.tolist(), strict=True):
            raw[owner].append(scores[start:end].copy())
        return raw

    def _candidates(self, index: int, raw: WindowScores) -> tuple[decode.Candidates, float]:
        windows = self.windows(index)
        begins, ends = ([scores[:, side] for scores in raw] for side in range(2))
        return decode.candidates(windows, begins, ends, longest=self.config.longest), coverage(windows)

    def predictions(self, raw: Sequence[WindowScores]) -> list[Prediction]:
        """The best answer of each passage as `label`, a slice of the text; all candidates as `spans`."""
        answers = []
        for index, (example, scores) in enumerate(zip(self.examples, raw, strict=True)):
            candidates, share = self._candidates(index, scores)
            answers.append(decode.prediction(example.texts[1], candidates, self.config.threshold, share))
        return answers

    def evaluated(self, raw: Sequence[WindowScores]) -> Report:
        """Exact match and F1, with intervals, by the rule of the config."""
        answers = [prediction.label or "" for prediction in self.predictions(raw)]
        return metrics.summary(metrics.scores(answers, self._accepted(), self._rule()), self._rule())

    def _accepted(self) -> list[list[str]]:
        return [[answer.text for answer in example.gold] for example in self.examples]

    def _rule(self) -> str:
        return metrics.rule_for(self._accepted()) if self.config.rule == "auto" else str(self.config.rule)

    def calibrated(self, raw: Sequence[WindowScores], fixed: Collection[str] = ()) -> Fit:
        """The config with the threshold of "no answer" that is best on these data; as it was where all have answers.

        Of too few questions it is 0: none is the answer where it scores above every stretch.
        """
        accepted = self._accepted()
        if all(accepted) or "threshold" in fixed:
            return Fit(self.config)
        if len(self) < calibration.FEWEST:
            note = calibration.too_few("threshold", len(self), "it is 0, so that no answer must score above all others")
            return Fit(replace(self.config, threshold=0.0), note)
        rows = [self._candidates(index, scores)[0] for index, scores in enumerate(raw)]
        passages = [example.texts[1] for example in self.examples]
        texts = [text[c.starts[0] : c.ends[0]] if len(c.starts) else "" for text, c in zip(passages, rows, strict=True)]
        answered, empty = (metrics.scores(answers, accepted, self._rule()).f1 for answers in (texts, [""] * len(texts)))
        threshold, _ = decode.fitted_threshold([c.margin for c in rows], answered, empty)
        return Fit(replace(self.config, threshold=threshold))
