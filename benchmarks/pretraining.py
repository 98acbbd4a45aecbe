"""What the pretraining benchmarks train on and how they count: made-up documents in, batches, tokens and MFU out."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.models import bert
from filbert.pack.stretches import Stretches
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
PEAK = 990e12
VOCAB, BUILTIN_VOCAB = 21_128, 12_032
ROWS = 128  # in a padded batch
CASES = {"mixed": (5.0, 0.75, 512), "to128": (4.0, 0.6, 128)}  # log-normal lengths: mean, spread, cap
SPECIAL = (0, 1, 2, 3, 4)  # [PAD] [UNK] [CLS] [SEP] [MASK]


# Data: made-up documents, the real task -------------------------------------------------------------------------------


def lengths(case: str, count: int, seed: int) -> np.ndarray:
    """How long each sequence is, special tokens included."""
    if case not in CASES:
        return np.full(count, int(case))
    mean, spread, cap = CASES[case]
    return np.clip(np.exp(np.random.default_rng(seed).normal(mean, spread, count)), 8, cap).astype(np.int64)


def shard(num_tokens: int, vocab: int, document: float, seed: int = 0) -> Any:
    """Random tokens cut into documents of about that many tokens and sentences of about 30."""
    random = np.random.default_rng(seed)

    def edges(mean: float) -> np.ndarray:
        cuts = np.cumsum(np.maximum(4, random.lognormal(math.log(mean), 0.6, int(3 * num_tokens / mean))).astype(int))
        return np.concatenate(([0], cuts[cuts < num_tokens - 4], [num_tokens]))

    documents = edges(document)
    return SimpleNamespace(
        ids=random.integers(len(SPECIAL), vocab, num_tokens).astype(np.int32),
        words=random.random(num_tokens) < 0.6,
        documents=documents,
        sentences=np.union1d(documents, edges(30)),
        num_tokens=num_tokens,
    )


def tokenizer(vocab: int) -> Any:
    """What a task asks of one."""
    return SimpleNamespace(vocab_size=vocab, special_ids=SPECIAL, cls_id=2, sep_id=3, mask_id=4, pad_id=0)


class Pairs(mlm_nsp.Items):
    """The real task, but for its plan: pairs of exactly the wanted lengths."""

    def __init__(self, case: str, num_items: int) -> None:
        longest = CASES[case][2] if case in CASES else int(case)
        config = mlm_nsp_spec.Config(max_length=longest, mask_prob=0.15)
        super().__init__([shard(1_000_000, VOCAB, 500)], tokenizer(VOCAB), config)
        self.case, self.num_items = case, num_items
        self._made: tuple[int, Any] | None = None

    def plan(self, epoch: int) -> Any:
        """An epoch of such pairs."""
        if self._made is None or self._made[0] != epoch:
            random = np.random.default_rng(epoch)
            rest = lengths(self.case, self.num_items, epoch) - 3
            first = 1 + (random.random(len(rest)) * (rest - 1)).astype(np.int64)
            begin, other = random.integers(0, 1_000_000 - 512, (2, len(rest)))
            label, number = random.integers(0, 2, len(rest)), np.arange(len(rest))
            items = Stretches(begin, begin + first, other, other + rest - first, label, number, 3)
            self._made = epoch, mlm_nsp.EpochPlan(epoch, items)
        return self._made[1]


def builtin_task(num_tokens: int) -> mlm_nsp.Items:
    """The built-in model's: masked words alone, the real plan over documents."""
    config = mlm_nsp_spec.Config(objective="mlm", mask_prob=0.2, max_length=256)
    return mlm_nsp.Items([shard(num_tokens, BUILTIN_VOCAB, 500)], tokenizer(BUILTIN_VOCAB), config)


# What the work is -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Done:
    """Some steps' work."""

    tokens: float = 0.0
    flops: float = 0.0  # as the anchors count
    worked: float = 0.0  # without what the last layer need not do

    def __add__(self, other: Done) -> Done:
        return Done(self.tokens + other.tokens, self.flops + other.flops, self.worked + other.worked)


def work_of(shape: bert.Config, sizes: np.ndarray, num_masked: int, paired: bool) -> Done:
    """Of one batch, forward and backward."""
    width, tokens, squares = shape.width, float(sizes.sum()), float((sizes.astype(float) ** 2).sum())
    layer = 4 * width**2 + 2 * width * shape.inner
    asked = num_masked + (len(sizes) if paired else 0)
    mixing = 12 * shape.layers * width * squares
    head = 6 * num_masked * (width**2 + width * shape.vocab_size)
    most = 6 * (shape.layers - 1) * layer * tokens
    last = 6 * (3 * width**2 * tokens + (layer - 3 * width**2) * asked)
    return Done(tokens, 6 * shape.layers * layer * tokens + mixing + head, most + last + mixing + head)


def measured(work: Callable[[], Done]) -> dict[str, float]:
    """Tokens per second and MFU of that work, by the device's own clock."""
    if CUDA:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        done = work()
        end.record()
        torch.cuda.synchronize()
        seconds = begin.elapsed_time(end) / 1e3
    else:
        started = time.perf_counter()
        done = work()
        seconds = time.perf_counter() - started
    return rates(done, seconds)


def rates(done: Done, seconds: float) -> dict[str, float]:
    """Per second."""
    return {
        "tokens_per_s": done.tokens / seconds,
        "mfu": done.flops / seconds / PEAK,
        "mfu_done": done.worked / seconds / PEAK,
        "seconds": seconds,
    }


def sync() -> None:
    """Waits for the device."""
    if CUDA:
        torch.cuda.synchronize()
