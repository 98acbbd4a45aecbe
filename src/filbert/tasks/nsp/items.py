"""Whether a second text follows a first: pairs of texts in, what pretraining's own head says of each pair out.

The head is that of next-sentence prediction (Devlin et al. 2019, §3.1) or of sentence order (Lan et al. 2020, §3.1), as
pretraining left it; nothing is learnt here. Its first output says "follows", its second that the text is a random one,
or that the two have changed places. A second text that is too long is read in windows, the first beside each.

Legend: N pairs, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.protocols import Batch
from filbert.core.records import Example
from filbert.nn import numpy_heads
from filbert.pack.cuts import Places
from filbert.tasks.classify import items as classify
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "nsp"
DATA = "pair"  # its files are read as those of that task
LABELS = ("follows", "does not follow")
record = classify.record


@dataclass(frozen=True, kw_only=True)
class Config:
    """How pairs are read."""

    max_length: int = 512
    overlap: int = 64  # tokens that two windows share; at most half of one
    pool: ClassVar[str] = "cls"
    several: ClassVar[float] = 0.0
    class_weights: ClassVar[str] = ""
    mask_prob: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0)


class Task(classify.Task):
    """The head's scores of pairs; what the data say of them is not looked at."""

    num_texts = 2
    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, LABELS, tokenizer, config)  # type: ignore[arg-type]
        self.parts = ("pooler", HEAD)

    def _golds(self, examples: Sequence[Example]) -> Places:
        return np.full(len(examples), classify.NOTHING, dtype=np.int64)

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[N, 2] in float32."""
        if model.nsp is None:
            raise InputError("this model has no head for next-sentence prediction; pretrain one: --objective mlm+nsp.")
        pooled_ND = self.vectors(model, batch)
        return model.nsp(pooled_ND.to(model.nsp.weight.dtype)).float()  # type: ignore[no-any-return]

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        return list(host.heads.linear(HEAD, self.host_vectors(host, batch)))
