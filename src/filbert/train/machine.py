"""The machine config of a run in; the device, precision, workers and parts to use out. None of it changes the task.

Precision, the number of parts and of threads change roundings, and so the last bits; workers change nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch

from filbert.core.errors import InputError, one_of
from filbert.nn import attention
from filbert.nn.device import usable

PRECISIONS = ("auto", "float32", "bfloat16")
MOST = 2**20  # of each count here: more is a typing error
SHARDINGS = ("copy", "shard")
COMPILED = ("auto", "on", "off", "recorded")  # the last is for CUDA in bfloat16 and one process, and off elsewhere


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to compute on; 0 and "auto" leave it to the machine."""

    device: str = "auto"
    precision: str = "auto"  # bfloat16 on CUDA with float32 kept for the weights' own sum; float32 elsewhere
    compiled: str = "auto"  # on, off, recorded (train.recorded); auto is on for CUDA
    threads: int = 0
    workers: int = -1  # processes that build batches; -1 asks the machine
    parts: int = 1  # micro-batches of a step, on each rank
    sharding: str = "copy"  # several ranks: each has a copy of the weights (DDP), or a share (FSDP2)
    timeout_s: int = 120  # without a batch from a worker
    keep: int = 2  # checkpoints

    def __post_init__(self) -> None:
        for name, allowed in (("precision", PRECISIONS), ("sharding", SHARDINGS), ("compiled", COMPILED)):
            if getattr(self, name) not in allowed:
                raise one_of(f"machine.{name}", getattr(self, name), allowed)
        for name, least in (("threads", 0), ("workers", -1), ("parts", 1), ("timeout_s", 1), ("keep", 2)):
            if type(getattr(self, name)) is not int or not least <= getattr(self, name) <= MOST:
                rule = f"must be a whole number from {least} to {MOST:,}"
                raise InputError(f"machine.{name} is {getattr(self, name)!r}, but {rule}.")


@dataclass(frozen=True, slots=True)
class Machine:
    """What was chosen."""

    device: torch.device
    half: bool
    compiled: bool
    recorded: bool
    workers: int
    parts: int
    sharding: str
    timeout_s: int

    @property
    def is_cuda(self) -> bool:
        """Whether it is an NVIDIA GPU."""
        return self.device.type == "cuda"

    @property
    def name(self) -> str:
        """The chip, as its maker names it."""
        return torch.cuda.get_device_name(self.device) if self.is_cuda else "cpu"


def device_of(config: Config) -> torch.device:
    """The device that serves these wishes; what cannot be had here is refused."""
    device = usable(config.device, "machine.device")
    if config.compiled == "on" and device.type != "cuda":
        raise InputError(
            "machine.compiled is on, but only CUDA has one graph for every batch; leave it out on the CPU."
        )
    return device


def chosen(config: Config, local_rank: int = 0, local_world: int = 1) -> Machine:
    """The machine that serves these wishes; sets torch's threads, since the default is wrong for several ranks."""
    device = device_of(config)
    if device.type == "cuda":
        device = torch.device("cuda", device.index if device.index is not None else local_rank)
        torch.cuda.set_device(device)
        attention.use(attention.fastest())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // local_world)
    is_cuda = device.type == "cuda"
    # Beside a GPU the host only hands batches over, and threads that wait for each other while workers use the cores
    # take longer than one.
    torch.set_num_threads(config.threads or _environment_threads() or (1 if is_cuda else share))
    workers = config.workers if config.workers >= 0 else (min(8, max(1, share - 1)) if is_cuda else 0)
    half = is_cuda if config.precision == "auto" else config.precision == "bfloat16"
    return Machine(
        device=device,
        half=half,
        compiled=is_cuda if config.compiled == "auto" else config.compiled == "on",
        recorded=config.compiled == "recorded" and is_cuda and half,
        workers=workers,
        parts=config.parts,
        sharding=config.sharding,
        timeout_s=config.timeout_s,
    )


def _environment_threads() -> int:
    value = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list speaks of nested levels
    return int(value) if value.isdecimal() else 0


def unsteady(machine: Machine) -> Machine:
    """The same machine for a model whose kernels hang on more than a pack's size: none is compiled or recorded."""
    return replace(machine, compiled=False, recorded=False)


def one_by_one(machine: Machine) -> Machine:
    """The same machine with batches built and run one by one, as an evaluation does."""
    return replace(machine, compiled=False, recorded=False, workers=0, parts=1)
