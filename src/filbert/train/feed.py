"""Batches for a run: a task and a place in its epochs in, this rank's parts of every step from there on out.

Worker processes build what the plan says; which of them built a batch, and how many there are, changes nothing.
"""

from __future__ import annotations

import atexit
import itertools
import pickle
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.utils.data
from torch import Tensor

from filbert.core.errors import FilbertError
from filbert.core.protocols import Batch, Task
from filbert.pack.batches import Places, batches, part, part_budget
from filbert.train.distributed import Ranks, signal_at_parents_end
from filbert.train.machine import Machine

if TYPE_CHECKING:
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Batches

PREFETCH = 4  # batches ahead, for each worker
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # asked for its size alone
BYTES_PER_TOKEN = 64  # more than a token of any batch takes


@dataclass(frozen=True, slots=True)
class Fed:
    """The batch of one step."""

    epoch: int
    batch: int  # its place in the epoch
    last: bool  # of the epoch
    examples: Places  # the items of all ranks together
    parts: list[Batch]  # this rank's
    weight: float = 1.0  # 0 where nothing was left for this rank: it works on another's item, for company alone


@dataclass(frozen=True, slots=True)
class _Order:
    epoch: int
    batch: int
    last: bool
    examples: Places
    parts: list[Any]  # orders of this rank's parts
    weight: float


class _Builder(torch.utils.data.Dataset[Any]):
    def __init__(self, task: Task, budget: int | None, is_sent: bool = False) -> None:
        self.task, self.budget, self.is_sent = task, budget, is_sent

    def __getitem__(self, order: _Order) -> Fed | _Sent:
        parts = [self.task.batch(orders, self.budget) for orders in order.parts]
        fed = Fed(order.epoch, order.batch, order.last, order.examples, parts, order.weight)
        return _sent(fed) if self.is_sent else fed


@dataclass(frozen=True, slots=True)
class _Sent:
    """The batch of one step with all its arrays in one piece of shared memory, which is sent without a copy."""

    rest: bytes
    sizes: list[int]
    arrays: Tensor


def _sent(fed: Fed) -> _Sent:
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(fed, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = [len(each) for each in raw]
    arrays = torch.empty(sum(map(_padded, sizes)), dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
    into, at = memoryview(arrays.numpy().data), 0
    for each, size in zip(raw, sizes, strict=True):
        into[at : at + size] = each
        at += _padded(size)
    return _Sent(rest, sizes, arrays)


def _received(sent: _Sent) -> Fed:
    whole, at, buffers = memoryview(sent.arrays.numpy().data), 0, []
    for size in sent.sizes:
        buffers.append(whole[at : at + size])
        at += _padded(size)
    fed: Fed = pickle.loads(sent.rest, buffers=buffers)  # noqa: S301  # from a worker of our own
    return fed


def _padded(size: int) -> int:
    """Bytes up to the next multiple of 64, where the next array begins."""
    return size + -size % 64


def _has_room(num_bytes: int) -> bool:
    """Whether shared memory can hold so much; containers often have very little, and to run out kills a worker."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free > 2 * num_bytes
    except OSError:
        return False


def _tied(worker: int) -> None:
    """A worker ends with the run however that ends; otherwise a killed run's workers wait for it, for ever.

    A signal to the whole group (Ctrl-C, timeout) is the run's to obey: it still needs batches to finish its step. A
    batch that is no longer fetched is no news either: the run has said why.
    """
    signal_at_parents_end(signal.SIGKILL)
    sys.excepthook = _unless_cut_off
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _unless_cut_off(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An excepthook of workers: a closed pipe to the run is not printed; any other error is, as usual."""
    if not isinstance(error, EOFError | OSError):
        sys.__excepthook__(kind, error, trace)


def _ended(batches: Batches) -> None:
    """At the program's end: multiprocessing would send SIGTERM, which the workers ignore, and wait for them."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would raise for a dead worker
    for worker in batches._workers:
        worker.kill()


def _abandon(batches: Batches) -> None:
    """After a failure: kills the workers, and keeps torch from raising for them later."""
    if batches._worker_pids_set:
        batches._worker_pids_set = False
        torch._C._remove_worker_pids(id(batches))
    for worker in batches._workers:
        worker.kill()


class Feed:
    """An endless run of steps, from (epoch, batch) on."""

    def __init__(
        self,
        task: Task,
        seed: int,
        batch_tokens: int,
        machine: Machine,
        ranks: Ranks,
        place: tuple[int, int],
        parts: int,
    ) -> None:
        self.task, self.seed, self.batch_tokens = task, seed, batch_tokens
        self.machine, self.ranks, self.place, self.parts = machine, ranks, place, parts
        self.last_order: _Order | None = None

    def _orders(self) -> Iterator[_Order]:
        epoch, begin = self.place
        num_parts = self.ranks.world * self.parts
        for number in itertools.count(epoch):
            plan = self.task.plan(number)
            lengths = np.asarray(plan.lengths)
            steps = batches(lengths, self.seed, number, self.batch_tokens)
            if not steps:
                raise FilbertError("the task has no items, so there is nothing to train on.")
            for at in range(begin if number == epoch else 0, len(steps)):
                mine = range(self.ranks.rank * self.parts, (self.ranks.rank + 1) * self.parts)
                dealt = [part(steps[at], lengths, which, num_parts) for which in mine]
                orders = [plan.orders(indices) for indices in dealt if len(indices)]
                weight = 1.0 if orders else 0.0
                yield _Order(
                    number, at, at + 1 == len(steps), steps[at], orders or [plan.orders(steps[at][:1])], weight
                )

    def _budget(self) -> int | None:
        """On a GPU every part has the same size, so that one compiled or recorded graph serves them all."""
        if not self.machine.compiled and not self.machine.recorded:
            return None
        return part_budget(self.batch_tokens, self.task.longest or self.batch_tokens, self.ranks.world * self.parts)

    def __iter__(self) -> Iterator[Fed]:
        workers = self.machine.workers
        is_sent = _has_room(workers * (PREFETCH + 1) * self.batch_tokens * BYTES_PER_TOKEN)
        builder = _Builder(self.task, self._budget(), is_sent=workers > 0 and is_sent)
        if not workers:
            for order in self._orders():
                self.last_order = order
                fed = builder[order]
                assert isinstance(fed, Fed)
                yield fed
            return
        loader = torch.utils.data.DataLoader(
            builder,
            batch_size=None,
            sampler=self._orders(),
            num_workers=workers,
            prefetch_factor=PREFETCH,
            timeout=self.machine.timeout_s,
            multiprocessing_context="fork",
            worker_init_fn=_tied,
        )
        batches: Any = iter(loader)
        unregister = atexit.unregister  # this module's own names are gone when a feed is still open at the very end
        atexit.register(_ended, batches)
        try:
            yield from self._taken(batches)
        finally:
            unregister(_ended)

    def _taken(self, batches: Batches) -> Iterator[Fed]:
        count = 0
        while True:
            try:
                fed = next(batches)
            except MemoryError as error:
                _abandon(batches)
                raise FilbertError(f"the batches took all memory ({first_line(error)}); take fewer workers.") from None
            except (RuntimeError, FilbertError, EOFError, OSError) as error:
                _abandon(batches)
                raise FilbertError(self._failed(error, count)) from None
            count += 1
            yield _received(fed) if isinstance(fed, _Sent) else fed

    def _failed(self, error: Exception, count: int) -> str:
        which = f"loader worker {count % self.machine.workers + 1} of {self.machine.workers}"
        about = f"batch {count} from epoch {self.place[0]}, batch {self.place[1]} on"
        if "timed out" in str(error):
            return (
                f"{which} gave nothing for {self.machine.timeout_s} s while it built {about}; look for a disk or a "
                "machine that stands still, or raise machine.timeout_s."
            )
        if is_dead_worker(error):
            return f"a loader worker died while {about} was waited for ({first_line(error)}); resume the run."
        return f"{which} failed while it built {about}: {str(error).strip().splitlines()[-1]}"


def is_dead_worker(error: BaseException) -> bool:
    """Whether a loader worker ended by itself, or its end of the pipe is closed.

    What happened inside a worker comes with where it was caught, and is no sign of its death.
    """
    if isinstance(error, EOFError | ConnectionError | FileNotFoundError):
        return not str(error).startswith("Caught ")
    return "DataLoader worker" in str(error) and ("exited" in str(error) or "killed" in str(error))


def first_line(error: BaseException) -> str:
    """The sentence of an error that has more to say, without its full stop."""
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0].strip().removesuffix(".")
