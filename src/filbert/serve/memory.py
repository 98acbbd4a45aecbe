"""Bytes of requests that are read and of answers that are not yet sent in; a refusal where they are too many out.

What a server holds for its clients is what it has in work: bodies, and answers that are made, written and read. Their
sum has a limit, so that many large ones together are refused instead of taking the machine's memory.
"""

from __future__ import annotations

import threading

from filbert.serve.limits import overloaded


class Memory:
    """All that this process holds."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._held, self._lock = most_bytes, 0, threading.Lock()

    @property
    def num_bytes(self) -> int:
        """How much that is now."""
        return self._held

    def add(self, num_bytes: int, is_refusable: bool = True) -> None:
        """Holds more; Refused with 429 where that is too much."""
        with self._lock:
            if is_refusable and num_bytes > 0 and self._held and self._held + num_bytes > self._most:
                raise overloaded(f"requests and answers of {self._held:,} bytes are in work; ask again in a second.")
            self._held += num_bytes


class Reservation:
    """What is held for one request, until `free`."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.num_bytes = memory, 0

    def take(self, num_bytes: int) -> None:
        """Holds more for it, or refuses it."""
        self._memory.add(num_bytes)
        self.num_bytes += num_bytes

    def grow(self, num_bytes: int) -> None:
        """Holds at least so much for it, since it is there already."""
        more = max(0, num_bytes - self.num_bytes)
        self._memory.add(more, is_refusable=False)
        self.num_bytes += more

    def free(self) -> None:
        """It is over."""
        self._memory.add(-self.num_bytes)
        self.num_bytes = 0
