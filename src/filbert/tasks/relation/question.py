"""Every relation of two mentions as a question; the head reads the vectors of their start marks alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from filbert.core.protocols import Batch
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.question import Labels, log_odds


class Relations(Labels):
    """Every label of two mentions."""

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, L]."""
        return log_odds(self.task.scores(host, batch) / self.task.config.temperature)

    def read_from(self) -> npt.NDArray[np.float32]:
        """[R] the start marks."""
        return self.rows_of("mark_rows")
