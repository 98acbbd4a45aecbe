"""Counter-based randomness: (seed, purpose, epoch, example) in, a generator out, whoever asks and whenever.

Nothing depends on loader workers, ranks or the order of calls: the four keys alone fix every draw.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, purpose: str, epoch: int = 0, example: int = 0) -> np.random.Generator:
    """A fresh generator for one decision, e.g. generator(7, "mask", epoch=2, example=10_433)."""
    words = hashlib.blake2b(f"{seed}|{purpose}|{epoch}|{example}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(words, dtype=np.uint64)))


def permutation(size: int, seed: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The order in which an epoch visits `size` examples."""
    return generator(seed, "order", epoch).permutation(size)
