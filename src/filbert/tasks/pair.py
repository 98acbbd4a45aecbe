"""One label for two texts, such as entailment or paraphrase: labelled pairs in, the loss or scores of a label head out.

Both texts are read together, [CLS] first [SEP] second [SEP], the second as segment 1 (Devlin et al. 2019, §4.1). A pair
longer than `max_length` is read in windows that hold a stretch of each (text.windows), and they make one decision.
"""

from __future__ import annotations

from dataclasses import dataclass

from filbert.tasks import classify


@dataclass(frozen=True, kw_only=True)
class Config(classify.Config):
    """How pairs are read and what is asked of the scores."""


class Task(classify.Task):
    """Classification of pairs of texts."""

    num_texts = 2
