"""A stretch of code in; the same without the garbage collector running through it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside the block: importing torch and reading a vocabulary make many objects and no garbage.

    Each full collection walks all of torch's objects; without them a process answers about 0.2 s sooner.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
