"""Recurrent layers over packs: one row of tokens with boundaries in, a vector per token out, nothing padded.

Legend: T tokens in the pack, B sequences, D width in, E width out.
Torch's kernels want all first tokens, then all second ones, of sequences in falling order of length. A pack has them in
a row, so tokens are taken to that order and back; where each goes follows from the lengths alone.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from filbert.core.errors import one_of
from filbert.core.records import Packed

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


@functools.lru_cache(maxsize=64)
def by_time(lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sequences in a row: [T] the tokens in the order of time, [T] the way back, [L] how many at each time.

    Sequences without a token have no place in it.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    longest_first = np.argsort(-sizes, kind="stable")
    sorted_sizes = sizes[longest_first]
    counts = (sorted_sizes[None, :] > np.arange(int(sizes.max(initial=0)))[:, None]).sum(1)
    places = np.concatenate([starts[longest_first[:count]] + at for at, count in enumerate(counts)] or [sizes[:0]])
    back = np.empty_like(places)
    back[places] = np.arange(len(places))
    return places, back, counts


class Recurrent(nn.Module):
    """One layer of LSTM or GRU, in one direction or both; both directions of a token stand side by side."""

    def __init__(self, cell: str, inputs: int, width: int, *, both: bool = False, backward: bool = False) -> None:
        super().__init__()
        if cell not in CELLS:
            raise one_of("the cell", cell, CELLS)
        self.cell = CELLS[cell](inputs, width, bidirectional=both)
        self.backward_only = backward and not both

    def forward(self, x_TD: Tensor, packed: Packed) -> Tensor:
        """[T, E], or [T, 2E] of both directions."""
        return self.run(x_TD, packed)[0]

    def run(self, x_TD: Tensor, packed: Packed, start: tuple[Tensor, ...] = ()) -> tuple[Tensor, Tensor]:
        """The same, and [directions, B, E] the state after each sequence's last token; zeros for an empty one.

        start: the state before each first token, [directions, B, E], of an LSTM also what its cell holds; else zeros.
        """
        lengths = packed.lengths
        places, back, counts = (torch.from_numpy(part) for part in by_time(lengths))
        places, back = places.to(x_TD.device), back.to(x_TD.device)
        if self.backward_only:
            places = mirrored(packed, x_TD.device)[places]
        if not len(places):
            return x_TD.new_zeros(0, self.width), x_TD.new_zeros(self.directions, len(lengths), self.cell.hidden_size)
        order = torch.from_numpy(np.argsort(-np.asarray(lengths), kind="stable")[: int(counts[0])].copy())
        order = order.to(x_TD.device)
        first = tuple(state.index_select(1, order) for state in start)
        initial = first if len(first) > 1 else first[0] if first else None
        out, last = self.cell(PackedSequence(x_TD.index_select(0, places), counts), initial)
        out_TE = out.data.index_select(0, back)
        if self.backward_only:
            out_TE = out_TE.index_select(0, mirrored(packed, x_TD.device))
        state = last[0] if isinstance(last, tuple) else last
        whole = state.new_zeros(state.shape[0], len(lengths), state.shape[2])
        return out_TE, whole.index_copy(1, order, state)

    @property
    def directions(self) -> int:
        """One or two."""
        return 2 if self.cell.bidirectional else 1

    @property
    def width(self) -> int:
        """Numbers of a token's vector."""
        return self.directions * int(self.cell.hidden_size)


def mirrored(packed: Packed, device: torch.device | str) -> Tensor:
    """[T] the place of each token's mirror image within its own sequence."""
    sizes = np.asarray(packed.lengths, dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    return torch.from_numpy(np.repeat(2 * starts + sizes - 1, sizes) - np.arange(int(sizes.sum()))).to(device)
