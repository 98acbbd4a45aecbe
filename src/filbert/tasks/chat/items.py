"""An answer written to what was said: dialogues and replies in, the loss of an encoder-decoder, or answers, out.

As summarize, but for this: each line of the text is a turn, and [SEP] stands between turns. An answer never loops: no
three tokens in a row come twice. Answers have no one right text, so that beside ROUGE stands how much they differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from filbert.tasks.task import Report
from filbert.tasks.translate import items as translate
from filbert.tasks.translate import measure as metrics
from filbert.tasks.written import Text
from filbert.text.tokenizer import Pieces

_TURN = re.compile(r"[^\n]*\S[^\n]*")


class Items(translate.Items):
    """Answers; what has no known answer can be answered, not learnt from."""

    joins: ClassVar[bool] = True

    def _read(self, texts: Sequence[str]) -> Pieces:
        """The tokens of the dialogues, with [SEP] between turns."""
        turns_of = [list(_TURN.finditer(text)) for text in texts]
        turns = [turn for each in turns_of for turn in each]
        pieces = self.tokenizer.pieces([turn.group() for turn in turns])
        begins = np.array([turn.start() for turn in turns], dtype=np.int64)
        shift = np.repeat(begins, np.diff(pieces.boundaries))
        counts = np.array([len(each) for each in turns_of], dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        later = np.setdiff1d(np.arange(len(turns)), firsts[counts > 0])  # turns with one before them
        places, offsets = pieces.boundaries[:-1][later], begins[later]
        columns = (np.full(len(later), self.tokenizer.sep_id), offsets, offsets)
        rows = (pieces.ids, pieces.starts + shift, pieces.ends + shift)
        ids, starts, ends = (
            np.insert(row, places, each).astype(np.int32) for row, each in zip(rows, columns, strict=True)
        )
        edges = np.concatenate((firsts, [len(turns)]))
        return Pieces(ids, starts, ends, pieces.boundaries[edges] + np.searchsorted(later, edges))

    def evaluated(self, raw: Sequence[list[Text]]) -> Report:
        """ROUGE with intervals, the shares of different words and pairs of words, and that of answers that loop."""
        texts, right = self._pairs(raw)
        more = {f"distinct_{size}": metrics.distinct(texts, size) for size in (1, 2)} | {"loops": metrics.loops(texts)}
        return metrics.rouge_summary(texts, right) | more
