"""Every option of a question: its log-odds among the others."""

from __future__ import annotations

from torch import Tensor

from filbert.core.errors import one_of
from filbert.core.protocols import Batch
from filbert.core.records import Floats
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.choose.items import Items
from filbert.tasks.question import Question, log_odds


class Options(Question[Items]):
    """Every option of a question."""

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, C]."""
        scores_NC = self.task.scores(host, batch).view(-1, len(self.reading.example.texts) - self._before)
        return log_odds(scores_NC / self.task.config.temperature)

    @property
    def _before(self) -> int:
        return int(self.task.num_texts) - 1

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The option's column, by its text or its number from 0."""
        options = list(self.reading.example.texts[self._before :])
        if type(self.target) is int and 0 <= self.target < len(options):
            return self.target, options[self.target]
        if self.target is not None and self.target not in options:
            raise one_of("the target", self.target, options)
        column = int(first_C.argmax()) if self.target is None else options.index(str(self.target))
        return column, options[column]
