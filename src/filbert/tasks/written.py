"""What tasks that write a text from a text share: their sources as tokens, in stretches of at most a window each."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from filbert.tasks.task import R
from filbert.tasks.windowed import W, Windowed
from filbert.text.tokenizer import Pieces


class Text(NamedTuple):
    """What was written from a stretch: its tokens, their log-probability, and whether it came to an end."""

    ids: tuple[int, ...]
    score: float
    ended: bool


class Written(Windowed[W, R]):
    """Texts written from texts."""

    joins: ClassVar[bool] = False  # whether a writer sees all stretches of a source at once
    copies: ClassVar[bool] = False  # whether a writer that is new may copy words of its source (nn.copying)
    source_pieces: Pieces  # the tokens of the sources
