"""How alike two texts are: the cosine of their vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from filbert.core.errors import one_of
from filbert.core.protocols import Batch
from filbert.core.records import Floats
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.embed.items import Items
from filbert.tasks.question import Question


class Likeness(Question[Items]):
    """How alike two texts are."""

    NAME = "similarity"

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, 1]."""
        vectors = self.task.vectors(host, batch).view(-1, self.task.num_texts, host.width)
        return torch.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)[:, None]

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The one column."""
        if self.target not in (None, self.NAME):
            raise one_of("the target", self.target, [self.NAME])
        return 0, self.NAME
