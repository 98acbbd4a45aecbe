"""Scores of a question's passage in, a number for every stretch of so many tokens out, or for there being no answer.

A stretch's number: log-odds of its first token among all that could begin the answer in its window, plus those of its
last token.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from filbert.core.errors import InputError
from filbert.core.protocols import Batch
from filbert.core.records import Floats
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.answer.items import Items
from filbert.tasks.question import Placed, Question, Reading, Target, log_odds, shares


class Answers(Placed[Items]):
    """Every stretch of the passage of so many tokens, in every window."""

    part = 1
    nothing = "the model finds no answer in this passage"

    def __init__(self, reading: Reading, target: Target) -> None:
        self.none = target == "" or (target is None and not reading.answer.label)
        if self.none:
            Question.__init__(self, reading, target)
            self.begins = np.flatnonzero(reading.layout.place == 0)  # [CLS] says that a window holds no answer
            self.size = 1
            return
        super().__init__(reading, target)
        token, parts = reading.layout.token, np.append(reading.origins[:, 0], -1)[reading.layout.token]
        rows = np.flatnonzero(parts == self.part)
        ends = np.minimum(rows + self.size - 1, len(token) - 1)
        self.begins = rows[(parts[ends] == self.part) & (token[ends] == token[rows] + self.size - 1)]
        if self.first not in token[self.begins]:
            raise InputError("the target stands whole in no window of the passage; name a shorter stretch.")

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, stretches]."""
        layout, scores_T2 = self.reading.layout, self.task.scores(host, batch)
        odds = []
        for sequence in range(len(layout.lengths)):
            scores_NX2 = scores_T2[layout.rows(batch, np.flatnonzero(layout.sequence == sequence))]
            odds.append(log_odds(scores_NX2.transpose(1, 2)))
        odds_N2R = torch.cat(odds, dim=2)
        return odds_N2R[:, 0, self.begins] + odds_N2R[:, 1, self.begins + self.size - 1]

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The stretch in the window that is surest of it; of "no answer" the least sure, as decoding has it."""
        if self.none:
            return int(first_C.argmin()), ""
        mine = np.flatnonzero(self.reading.layout.token[self.begins] == self.first)
        return int(mine[first_C[mine].argmax()]), self.called("")

    def read_from(self) -> npt.NDArray[np.float32]:
        """The rows of the stretch."""
        return shares(self.reading.layout.place == 0) if self.none else super().read_from()
