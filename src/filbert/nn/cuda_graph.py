"""Work in, the same work recorded out: a GPU's launches, asked for all at once whenever it is played.

Where it reads and writes is fixed then. Elsewhere than on CUDA a strip does its work anew each time, so that tests can
compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Strip:
    """Work that is recorded: `play` does it again, on the tensors that it read and wrote."""

    def __init__(self, work: Callable[[], Any], device: torch.device, pool: Any = None) -> None:
        self.work: Callable[[], Any] | None = work
        self.graph = None
        if device.type == "cuda":
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
                self.found = work()
            self.work = None  # what it holds may hold the strip: memory of a GPU should not wait for Python to see that

    def play(self) -> Any:
        """What the work gave, with the numbers of now."""
        if self.work is not None:
            self.found = self.work()
        elif self.graph is not None:
            self.graph.replay()
        return self.found
