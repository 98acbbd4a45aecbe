"""Tokens of a kind of question and the seconds they took in; how long others will take, by what was measured, out.

The mean weighs by tokens, so that many small answers, which cost more a token than large ones, do not make a server
think that it is slow; and what was measured a few batches ago counts for little, since a machine is not ours alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

MEMORY = 4  # batches after which what was measured before counts for a third


class Speed:
    """How many seconds a token takes one thread; not safe by itself where several threads write."""

    def __init__(self, batch_tokens: int) -> None:
        self._memory = MEMORY * batch_tokens
        self._seconds: dict[Hashable, float] = {}
        self._best: dict[Hashable, float] = {}
        self._tokens = 0  # that were measured

    def measured(self, kind: Hashable, tokens: int, seconds: float) -> None:
        """So many tokens took a thread so long."""
        new, name = seconds / max(1, tokens), family(kind)
        before = self._seconds.setdefault(name, new)
        self._seconds[name] = before + (new - before) * -math.expm1(-tokens / self._memory)
        self._best[name] = min(self._best.get(name, math.inf), new)
        self._tokens += tokens

    def seconds(self, kind: Hashable, tokens: int) -> float | None:
        """What so many take a thread; of a kind never measured as of the slowest other; None: nothing was measured."""
        return _of(self._seconds, kind, tokens)

    def at_best(self, kind: Hashable, tokens: int) -> float | None:
        """The same at the greatest speed that was ever seen; None until that was seen often enough to be believed."""
        return _of(self._best, kind, tokens) if self._tokens >= self._memory else None


def family(kind: Hashable) -> Hashable:
    """What kinds of question cost alike: those that differ only in how much an answer says."""
    return kind[0] if isinstance(kind, tuple) else kind


def _of(seconds: Mapping[Hashable, float], kind: Hashable, tokens: int) -> float | None:
    if not seconds:
        return None
    return tokens * seconds.get(family(kind), max(seconds.values()))
