"""A writer that may copy: its vectors and its source in, how likely each word comes next, written or copied, out.

A word is written from the vocabulary with a learned probability, and else copied from the source, from a place that a
head of its own chooses (See et al. 2017, eq. 8 and 9; their attention chooses both what is read and what is copied).
All tokens of the source can be copied, its [SEP] too: to copy that is to end.

Legend: B sources, Q tokens that read one, S tokens of the longest source, U tokens of all targets, D width,
V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from filbert.core.records import Packed
from filbert.nn.decoder_attention import Owners, arranged
from filbert.nn.grid import Grid

NOTHING = -1  # the id of what fills a line up
NEVER = -1e4  # the log of a chance that is 0 in float32, and of which gradients can be taken


class Readable(NamedTuple):
    """Sources as lines, ready to be copied from."""

    keys_BSD: Tensor
    ids_BS: Tensor  # NOTHING where a line has no token

    def select(self, rows_B: Tensor) -> Readable:
        """These lines, in this order."""
        return Readable(self.keys_BSD[rows_B], self.ids_BS[rows_B])


class Copies(NamedTuple):
    """For each token of a target what may be copied next, and how likely that is."""

    ids_US: Tensor  # NOTHING where its source has no token
    log_copied_US: Tensor  # that this place is copied
    log_generated_U: Tensor  # that nothing is, and the word comes from the vocabulary


class Copier(nn.Module):
    """Chooses whether to copy, and what."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.gate = nn.Linear(width, 1)

    def readable(self, memory_TD: Tensor, source: Packed) -> Readable:
        """The sources of a pack, in its order."""
        grid = Grid.of(source, memory_TD.device)
        return Readable(grid.laid(self.k(memory_TD)), grid.laid(source.ids.long() - NOTHING) + NOTHING)

    def copies(self, x_UD: Tensor, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Owners) -> Copies:
        """Of the tokens of whole targets, of which b reads source owners_B[b]."""
        memory_TD, source = arranged(memory_TD, source, target, owners_B)
        grid = Grid.of(target, x_UD.device)
        ids_BQS, *logs = self.met(grid.laid(x_UD), self.readable(memory_TD, source))
        return Copies(grid.taken(ids_BQS), *map(grid.taken, logs))

    def met(self, x_BQD: Tensor, source: Readable) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and logs of chances, [B, Q, S], and those of writing, [B, Q]."""
        scores_BQS = (self.q(x_BQD) @ source.keys_BSD.transpose(1, 2)).float() / math.sqrt(x_BQD.shape[2])
        gate_BQ = self.gate(x_BQD).squeeze(2).float()
        is_there_B1S = (source.ids_BS != NOTHING)[:, None]
        # Lines without a token have nothing to copy: all is written. A fill for each keeps their softmax finite.
        log_shares_BQS = scores_BQS.masked_fill(~is_there_B1S, NEVER).log_softmax(2)
        log_copied_BQS = log_shares_BQS + nn.functional.logsigmoid(-gate_BQ)[:, :, None]
        is_any_B1 = is_there_B1S.any(2)
        return (
            source.ids_BS[:, None].expand(-1, x_BQD.shape[1], -1),
            log_copied_BQS.masked_fill(~is_there_B1S, NEVER),
            nn.functional.logsigmoid(gate_BQ).masked_fill(~is_any_B1, 0.0),
        )


def log_chances(scores_UV: Tensor, copies: Copies) -> Tensor:
    """[U, V] the log of how likely each word comes next, in whichever way."""
    copied_UV = _copied(scores_UV, copies)
    # A word that cannot be copied is as likely as it is to be written, to all digits.
    log_copied_UV = copied_UV.clamp(min=torch.finfo(torch.float32).tiny).log()
    return torch.logaddexp(scores_UV.log_softmax(1) + copies.log_generated_U[:, None], log_copied_UV)


def _copied(like_UV: Tensor, copies: Copies) -> Tensor:
    """[U, V] how likely each word is copied, from all places where it stands."""
    return like_UV.new_zeros(like_UV.shape).scatter_add(1, copies.ids_US.clamp(min=0), copies.log_copied_US.exp())


@torch.no_grad()
def likeliest(log_generated_UV: Tensor, copies: Copies) -> Tensor:
    """[U] the word that is likeliest, from the log of how likely each is if it is written.

    It is the best of what the source holds, or else the best to be written: so no chance is worked out but theirs.
    """
    best_U, word_U = log_generated_UV.max(1)
    ids_US = copies.ids_US.clamp(min=0)
    if not ids_US.shape[1]:
        return word_U
    generated_US = (log_generated_UV.gather(1, ids_US) + copies.log_generated_U[:, None]).exp()
    both_US = generated_US + _copied(log_generated_UV, copies).gather(1, ids_US)
    most_U, at_U = both_US.max(1)
    held_U = ids_US.gather(1, at_U[:, None]).squeeze(1)
    return torch.where(most_U >= (best_U + copies.log_generated_U).exp(), held_U, word_U)


def log_chance(log_generated_UV: Tensor, copies: Copies, words_U: Tensor) -> Tensor:
    """[U] the same for one word each, from the log of how likely each is if it is written."""
    generated_U = log_generated_UV.gather(1, words_U[:, None]).squeeze(1) + copies.log_generated_U
    same_US = copies.ids_US == words_U[:, None]
    if not same_US.shape[1]:
        return generated_U
    return torch.logaddexp(generated_U, copies.log_copied_US.masked_fill(~same_US, NEVER).logsumexp(1))
