"""Ranks: the environment that torchrun sets in, sums and agreements over all ranks out. Nothing else talks to ranks.

A run of one process is a run of one rank, and every function here is then a plain return.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from filbert.core.errors import FilbertError

TIMEOUT_S = 600
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who this process is among how many."""

    rank: int = 0
    world: int = 1
    local: int = 0
    local_world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes files and speaks."""
        return self.rank == 0

    def totals(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The numbers summed over all ranks; the names must be the same everywhere."""
        if self.world == 1:
            return dict(numbers)
        summed = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(summed, group=_host_group())
        return dict(zip(numbers, summed.tolist(), strict=True))

    def sums(self, values: Tensor) -> Tensor:
        """The same on the device, without the host waiting."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def agree(self, what: str, value: str) -> None:
        """Refuses to go on where ranks hold different things, which would train on nonsense."""
        if self.world == 1:
            return
        mine = torch.frombuffer(bytearray(hashlib.sha256(value.encode()).digest()), dtype=torch.uint8).to(torch.int64)
        first = mine.clone()
        dist.broadcast(first, 0, group=_host_group())
        differing = self.totals({"differ": float(not torch.equal(first, mine))})["differ"]
        if differing:
            raise FilbertError(f"{what} is not the same on all {self.world} ranks; give every rank the same files.")

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier(group=_host_group())

    def copied(self, module: nn.Module, device: torch.device) -> nn.Module:
        """The module with its gradients averaged over ranks (DDP); alone, the module itself."""
        if self.world == 1:
            return module
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(module, device_ids=[device] if device.type == "cuda" else None)


_GROUPS: dict[str, Any] = {}


def _host_group() -> Any:
    """The group for small numbers of the host; NCCL moves only what is on a GPU."""
    if "host" not in _GROUPS:
        _GROUPS["host"] = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else dist.group.WORLD
    return _GROUPS["host"]


def is_launched() -> bool:
    """Whether torchrun (or a launcher like it) started this process as one of several ranks."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_restarted() -> bool:
    """Whether torchrun started this after a rank died: then the run goes on where its last checkpoint is."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextlib.contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """The ranks of this run, until the block ends."""
    ends_with_parent()
    if not is_launched():
        yield Ranks()
        return
    on_gpu = device != "cpu" and torch.cuda.is_available()
    local, local_world = (int(os.environ.get(name, default)) for name, default in
                          (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")))  # fmt: skip
    if on_gpu:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=TIMEOUT_S))
    _GROUPS.clear()
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), local, local_world)
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise FilbertError("another rank has ended or cannot be reached; the checkpoints are whole: resume.") from None
    finally:
        _GROUPS.clear()
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _is_lost(error: BaseException) -> bool:
    """Whether the network says that another rank is no longer there."""
    words = str(error)
    return isinstance(error, dist.DistBackendError | dist.DistNetworkError) or any(
        word in words for word in ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport")
    )


def ends_with_parent() -> None:
    """A killed torchrun takes this process with it; otherwise its ranks would train on, unseen."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        raise FilbertError("the launcher has gone; start the run again.")
