"""What a user says of a run besides its data and its recipe in; the same, checked, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np

from filbert.core.errors import InputError
from filbert.train import listeners
from filbert.train.listeners import Listener, Listeners


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is begun and followed."""

    seed: int | None = None  # of everything random; None: the recipe's
    epochs: float | None = None  # passes over the data
    resume: bool = False  # from the last checkpoint
    force: bool = False  # even if something changed
    quiet: bool = False  # nothing is shown on the way
    listener: Listeners = None  # whoever follows it besides its log

    def __post_init__(self) -> None:
        check_flags({"force": self.force, "quiet": self.quiet, "resume": self.resume})
        for name, kind, wanted in (("seed", int | np.integer, "a whole number"), ("epochs", Real, "a number")):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise InputError(f"{name} is {value!r:.60}, but must be {wanted}.")
        if self.seed is not None:
            object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "listener", listeners.several(self.listener))  # refused now, not when all is read

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Those that follow the run."""
        return listeners.several(self.listener)


def check_flags(flags: Mapping[str, object]) -> None:
    """Refuses what is neither true nor false: a word would pass for true."""
    for name, value in flags.items():
        if not isinstance(value, bool | None):
            raise InputError(f"{name} is {value!r:.60}, but must be True or False.")
