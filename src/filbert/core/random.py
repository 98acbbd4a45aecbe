"""Counter-based randomness: (seed, purpose, epoch, example) in, a generator or whole arrays of draws out.

Nothing depends on loader workers, ranks or the order of calls: the keys alone fix every draw.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Draws = npt.NDArray[np.float64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def generator(seed: int, purpose: str, epoch: int = 0, example: int = 0) -> np.random.Generator:
    """A fresh generator for one decision, e.g. generator(7, "mask", epoch=2, example=10_433)."""
    words = hashlib.blake2b(f"{seed}|{purpose}|{epoch}|{example}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(words, dtype=np.uint64)))


def permutation(size: int, seed: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The order in which an epoch visits `size` examples."""
    return generator(seed, "order", epoch).permutation(size)


def keys(seed: int, purpose: str, epoch: int, examples: npt.NDArray[np.int64]) -> Keys:
    """One key for each example, for `uniforms`."""
    words = hashlib.blake2b(f"{seed}|{purpose}|{epoch}".encode(), digest_size=8).digest()
    return _mixed(np.frombuffer(words, dtype=np.uint64) + (examples.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def uniforms(keys: Keys, counters: npt.NDArray[np.int64] | int) -> Draws:
    """The draws of these keys at these counters, each from 0 up to 1: the same whoever asks, however many at once."""
    counted = np.asarray(counters).astype(np.uint64)
    with np.errstate(over="ignore"):
        bits = _mixed(keys + (counted + np.uint64(1)) * GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: Keys) -> Keys:
    """Every bit of the result hangs on every bit of x (the finaliser of SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
