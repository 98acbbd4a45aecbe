"""A run by the clock: a number of seconds in; size, batch and schedule for this machine, and a forecast, out."""

from __future__ import annotations

import re
import time

from filbert.core.errors import InputError

UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(text: str) -> float:
    """How many seconds "90s", "25m", "1.5h" or "1h30m" are."""
    parts = re.findall(r"([0-9]*\.?[0-9]+)\s*([smhd])", text.strip().lower())
    if not parts or re.sub(r"([0-9]*\.?[0-9]+)\s*([smhd])", "", text.strip().lower()).strip():
        raise InputError(f"--budget {text}: must be a time such as 90s, 25m, 2h or 1h30m.")
    total = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not total > 0:
        raise InputError(f"--budget {text}: must be longer than nothing.")
    return total


class Clock:
    """The time of a run: from now to its end, less what its last acts need."""

    def __init__(self, begun: float, seconds: float, reserve: float = 0.0) -> None:
        self.started, self.end = time.monotonic(), begun + seconds - reserve

    def progress(self) -> float:
        """From 0 when training began to 1 when it should end."""
        return (time.monotonic() - self.started) / max(1e-9, self.end - self.started)

    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.end - time.monotonic())
