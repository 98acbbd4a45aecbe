"""Every stretch of so many tokens with each kind: mean log-odds of its tokens, or the score of a span decoder.

Of a CRF the odds are those before its walk.

Legend: N copies, U tokens of a text, L tags, T rows of a pack, J reach, C kinds.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch
from filbert.core.records import Floats
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.question import FIRST, Placed, Places, Reading, Target


class Entities(Placed[Any]):
    """Every stretch of so many tokens, with every kind."""

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, stretches · kinds]."""
        scores_NUL = self.task.scores(host, batch)[self.reading.layout.rows(batch, self._owned)]
        odds = [self._odds(scores_NUL, kind) for kind in self.task.kinds]
        return torch.stack(odds, -1).unfold(1, self.size, 1).mean(-1).flatten(1)

    @cached_property
    def _owned(self) -> Places:
        """[U] the row of each token in the window that owns it."""
        owned = np.asarray(self.task.batch(FIRST).targets["own"])
        place, sequence = self.reading.layout.place, self.reading.layout.sequence
        return np.flatnonzero((place >= owned[sequence, 0]) & (place < owned[sequence, 1]))

    def _odds(self, scores_NUL: Tensor, kind: str) -> Tensor:
        """[N, U] that each token is of that kind, whether it begins, goes on or ends there."""
        mine = torch.tensor([tag != "O" and tag[2:] == kind for tag in self.task.labels], device=scores_NUL.device)
        if mine.all():
            return scores_NUL.logsumexp(-1)
        return scores_NUL[..., mine].logsumexp(-1) - scores_NUL[..., ~mine].logsumexp(-1)

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The stretch's column of its kind, or of the likeliest one."""
        kinds = list(self.task.kinds)
        if self.span.label and self.span.label not in kinds:
            raise one_of("the target's label", self.span.label, kinds)
        odds = first_C.reshape(-1, len(kinds))[self._place]
        kind = kinds.index(self.span.label) if self.span.label else int(odds.argmax())
        return self._place * len(kinds) + kind, self.called(kinds[kind])

    @property
    def _place(self) -> int:
        return self.first


class Stretches(Entities):
    """The same by the scores of a span decoder; columns are the stretches that some window scores."""

    def __init__(self, reading: Reading, target: Target) -> None:
        super().__init__(reading, target)
        layout, batch = reading.layout, self.task.batch(FIRST)
        reach = np.asarray(batch.targets["reach"])[np.asarray(batch.starts)[layout.sequence] + layout.place]
        self.answering = np.flatnonzero((reach[:, 0] < self.size) & (self.size <= reach[:, 1]) & (layout.token >= 0))
        if self.first not in layout.token[self.answering]:
            raise InputError(
                f"the target has {self.size} tokens, but this model scores stretches of at most "
                f"{self.task.config.longest} (task.longest)."
            )

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, stretches · kinds]."""
        scores_TJC, _ = self.task.stretches(host, batch)
        chosen: Tensor = scores_TJC[self.reading.layout.rows(batch, self.answering), self.size - 1]
        return chosen.flatten(1)

    @property
    def _place(self) -> int:
        return int(np.flatnonzero(self.reading.layout.token[self.answering] == self.first)[0])
