"""A function in, a CUDA graph of its launches out, which a GPU replays at once.

The tensors that it reads and writes are fixed when it is captured. Elsewhere than on CUDA the function is called anew
each time, so that tests can compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool

R = TypeVar("R")


class CudaGraph(Generic[R]):
    """A captured function: `replay` runs it again on the tensors that it read and wrote."""

    def __init__(self, function: Callable[[], R], device: torch.device, pool: Pool | None = None) -> None:
        self.function: Callable[[], R] | None = function
        self.graph = None
        if device.type == "cuda":
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
                self.result = function()
            self.function = None  # it may refer to this object: a GPU's memory should not wait for the cycle collector

    def replay(self) -> R:
        """What the function returned, with the values of now."""
        if self.function is not None:
            self.result = self.function()
        elif self.graph is not None:
            self.graph.replay()
        return self.result
