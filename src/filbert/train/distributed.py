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
from collections.abc import Iterator, Mapping, Sequence
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
        """Whether this rank writes files and logs."""
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

    def copied(self, module: nn.Module, device: torch.device, idle: Sequence[str] = ()) -> nn.Module:
        """The module with its gradients averaged over ranks (DDP); alone, itself. `idle` weights have no gradients."""
        if self.world == 1:
            return module
        from torch.nn.parallel import DistributedDataParallel

        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, list(idle))  # type: ignore[no-untyped-call]
        return DistributedDataParallel(module, device_ids=[device] if device.type == "cuda" else None)


# Weights in shares (FSDP2) -------------------------------------------------------------------------------------------


def sharded(module: nn.Module, device: torch.device, half: bool) -> nn.Module:
    """The module with every weight cut over the ranks; a layer is put together only while it works.

    In half precision the shares stay float32, as do the sums of gradients; only what is put together is bfloat16.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    kinds = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if half else {}
    policy = MixedPrecisionPolicy(**kinds, cast_forward_inputs=False)
    if half:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(torch.bfloat16)
    for several in [each for each in module.modules() if isinstance(each, nn.ModuleList)]:
        for layer in several:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    return module


def local(tensor: Tensor) -> Tensor:
    """This rank's share of a tensor, or the tensor where it was never cut."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors put together again, in the host's memory; all ranks must ask."""
    return {name: each.full_tensor().cpu() if hasattr(each, "full_tensor") else each for name, each in tensors.items()}


def shares(whole: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors, which every rank has, cut as those of the same names are."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    result = dict(whole)
    for name, model in like.items():
        if name in result and isinstance(model, DTensor) and result[name].shape == model.shape:
            result[name] = distribute_tensor(
                result[name].to(model.device), model.device_mesh, model.placements, src_data_rank=None
            )
    return result


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
    signs = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport")
    is_network = isinstance(error, dist.DistBackendError | dist.DistNetworkError)
    return is_network or any(sign in str(error) for sign in signs)


def ends_with_parent() -> None:
    """A killed torchrun takes this process with it; otherwise its ranks would train on, unseen."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    parent = os.getppid()
    signal_at_parents_end(signal.SIGTERM)
    if os.getppid() != parent:  # it died in between
        raise FilbertError("the launcher has gone; start the run again.")


def signal_at_parents_end(number: int) -> None:
    """Has Linux send this signal to the process when its parent ends; maybe more than once."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
