"""Whether a second text follows a first: pairs of texts in, what pretraining's own head says of each pair out.

The head is that of next-sentence prediction (Devlin et al. 2019, §3.1) or of sentence order (Lan et al. 2020, §3.1), as
pretraining left it; nothing is learnt here. Its first output says "follows", its second that the text is a random one,
or that the two have changed places. A second text that is too long is read in windows, the first beside each.

Legend: N pairs, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.core.records import Example
from filbert.pack.lay import Places
from filbert.tasks.classify import items as classify
from filbert.tasks.nsp.spec import LABELS, Config
from filbert.text.tokenizer import Tokenizer


class Items(classify.Items[Any]):
    """The head's scores of pairs; their gold is not looked at."""

    num_texts = 2
    part = "nsp"

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, LABELS, tokenizer, config)

    def _golds(self, examples: Sequence[Example]) -> Places:
        return np.full(len(examples), classify.NOTHING, dtype=np.int64)
