"""How many tokens a run will see, and a model's width, in; the batch, the rate and the rest of its recipe out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rules:
    """By which a run by the clock is chosen; run.defaults has the numbers."""

    ladder: tuple[str, ...]  # presets to choose from
    rates: tuple[tuple[int, float], ...]  # peak rate of adamw up to each width …
    small_rate: float  # … and where steps are small: so much / width at `small_batch` tokens
    small_batch: int
    rate_power: float
    batches: Mapping[str, tuple[int, int, int]]  # by device: tokens of a step at a million seen; least; most
    schedule: str
    warmup: float
    weight_decay: float
    passes: int  # from so many passes over the text on, dropout is of use
    dropout: float
    evaluations: int
    held_part: float  # of the time for one evaluation
    held_tokens: tuple[int, int]  # least and most of them in one evaluation
    checkpoint_s: float  # between two checkpoints of a long run
    length: int  # tokens that are read at a time
    long_length: int  # … by a run that sees `long_tokens` of documents of `long_documents` tokens
    long_tokens: float
    long_documents: int

    def batch_tokens(self, tokens: float, kind: str) -> int:
        """Tokens of a step where a run sees so many: the more there are, the surer each step can be."""
        at_million, least, most = self.batches[kind]
        return int(min(max(2 ** round(math.log2(at_million * (tokens / 1e6) ** 0.5)), least), most))

    def peak_rate(self, width: int, batch: int) -> float:
        """Of adamw. With steps of few tokens a rate too high stays where only frequencies are known."""
        most = next(rate for least, rate in self.rates if width <= least)
        return float(f"{min(most, self.small_rate / width * (batch / self.small_batch) ** self.rate_power):.2g}")
