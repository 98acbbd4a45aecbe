"""Dropout that a compiled graph can afford: a tensor in, the same with some numbers zero and the rest larger out.

Inductor draws each number by a whole call of Philox, ten rounds of wide multiplications: a quarter of a BERT-base step
on an H200. Here the place of each number is hashed with a seed that was drawn. That is some 20 plain operations, hidden
behind the memory traffic of whatever they are fused into, and backward hashes again instead of keeping masks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Shifts and multipliers of a 32-bit mix of three rounds (Wellons 2018, triple32), as signed numbers; two rounds leave
# neighbours a correlation of 0.001.
ROUNDS = ((17, 0xED5AD4BB - 2**32), (11, 0xAC4C1B51 - 2**32), (15, 0x31848BAB))
LAST = 14
DRAWN = 2**24  # what a float32 between 0 and 1 tells apart
MOST = 2**31  # numbers that a tensor may have for it


def dropped(x: Tensor, share: float, drawn: Tensor) -> Tensor:
    """x with this share at zero; which, follows from two numbers between 0 and 1."""
    return torch.where(kept(x, share, drawn), x / (1 - share), 0.0)


def kept(x: Tensor, share: float, drawn: Tensor) -> Tensor:
    """[like x] bool: a hash of each place is above the share."""
    seeds = (drawn * DRAWN).to(torch.int32)
    place = torch.arange(math.prod(x.shape), dtype=torch.int32, device=x.device).view(x.shape)
    mixed = place ^ (seeds[0] * 251)
    for shift, factor in ROUNDS:
        # The second seed comes in on the way: with one alone, two draws would give the same row of numbers, shifted.
        mixed = _folded(mixed, shift) * factor + seeds[1] * 241
    mixed = _folded(mixed, LAST)
    return mixed >= threshold(share)


def threshold(share: float) -> int:
    """This share of all 32-bit numbers is below it."""
    return int(share * 2**32) - 2**31


def _folded(x: Tensor, bits: int) -> Tensor:
    """x xor its upper bits; torch shifts the sign in, so it is cut off."""
    return x ^ ((x >> bits) & (2 ** (32 - bits) - 1))  # type: ignore[no-any-return]
