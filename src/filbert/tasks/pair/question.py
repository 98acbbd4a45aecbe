"""The number that a head gives a pair, to be explained in the units of the training data."""

from __future__ import annotations

from torch import Tensor

from filbert.core.protocols import Batch
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.question import Labels


class Numbers(Labels):
    """The one number of a pair."""

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, 1]."""
        config = self.task.config
        return self.task.scores(host, batch) * config.scale + config.center  # type: ignore[no-any-return]
