"""What a student says, or has inside, and what its teacher does in; how far they are apart, as losses, out.

Legend: R rows, L labels, G groups of neighbours, M vectors, D width, T tokens, W width of all heads, A relation heads,
N sequences of one length, S their length.

Every sum is over things that `Decisions` or a pack counts; whoever calls divides. Scores are softened by a temperature
and the loss multiplied by its square, so that its gradients keep their size (Hinton et al. 2015, §2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from filbert.core.protocols import Decisions
from filbert.core.records import runs

CELLS = 2**24  # scores, or numbers of relations, that are held at a time
PAIRS = ("qq", "kk", "vv", "qk")


def apart(own: Decisions, theirs: Decisions, heat: float = 1.0, bridge: torch.nn.Module | None = None) -> Tensor:
    """The sum over all decisions of how far a student's are from its teacher's.

    heat: the temperature. bridge: of vectors, a learnt map of the student's to the teacher's width.
    """
    if own.kind == "number":
        off = (own.scores - theirs.scores) ** 2
        return (off if own.where is None else torch.where(own.where, off, 0.0)).sum()
    if own.kind == "vector":
        return _vectors(own, theirs, bridge)
    if own.kind == "chain":
        lengths = own.sizes if own.sizes is not None else torch.zeros(0)
        found: Tensor = own.chain.divergence(own.scores, theirs.chain, theirs.scores, lengths, heat)
        return heat**2 * found
    made = {"one": _one, "among": _among, "several": _several}[own.kind]
    return heat**2 * made(own, theirs, heat)


def _one(own: Decisions, theirs: Decisions, heat: float) -> Tensor:
    """Σ KL(teacher ‖ student) of rows; where a head makes the scores, some rows at a time, and anew on the way back."""

    def summed(own_RX: Tensor, theirs_RX: Tensor, where_R: Tensor) -> Tensor:
        scores = own_RX if own.head is None else own.head(own_RX)
        taught = theirs_RX if theirs.head is None else theirs.head(theirs_RX)
        own_RL, theirs_RL = ((each.float() / heat).log_softmax(-1) for each in (scores, taught.detach()))
        return torch.where(where_R, (theirs_RL.exp() * (theirs_RL - own_RL)).sum(-1), 0.0).sum()

    where = own.where if own.where is not None else own.scores.new_ones(len(own.scores), dtype=torch.bool)
    if own.head is None:
        return summed(own.scores, theirs.scores, where)
    with torch.no_grad():
        width = own.head(own.scores[:1].detach()).shape[-1] if len(own.scores) else 1
    size = max(1, CELLS // width)
    parts = [torch.split(each, size) for each in (own.scores, theirs.scores, where)]
    made = partial(checkpoint, summed, use_reentrant=False, preserve_rng_state=False) if len(parts[0]) > 1 else summed
    return torch.stack([made(*each) for each in zip(*parts, strict=True)]).sum()


def _among(own: Decisions, theirs: Decisions, heat: float) -> Tensor:
    """Σ KL over groups of neighbours, each column a choice of its own; the mean of columns."""
    assert own.sizes is not None
    sizes = own.sizes.long()
    own_RK, theirs_RK = (
        _log_shares(each.float().reshape(len(each), -1) / heat, sizes) for each in (own.scores, theirs.scores)
    )
    each_RK = theirs_RK.exp() * (theirs_RK - own_RK)
    sums_G = torch.segment_reduce(each_RK.mean(1), "sum", lengths=sizes, unsafe=True)
    return (sums_G if own.where is None else torch.where(own.where, sums_G, 0.0)).sum()


def _log_shares(scores_RK: Tensor, sizes_G: Tensor) -> Tensor:
    """[R, K] the log of each row's share in its group."""

    def spread(values_GK: Tensor) -> Tensor:
        return values_GK.repeat_interleave(sizes_G, dim=0, output_size=len(scores_RK))

    tops_GK = torch.segment_reduce(scores_RK.detach(), "max", lengths=sizes_G, unsafe=True)
    below_RK = scores_RK - spread(tops_GK)
    sums_GK = torch.segment_reduce(below_RK.exp(), "sum", lengths=sizes_G, unsafe=True)
    return below_RK - spread(sums_GK.log())


def _several(own: Decisions, theirs: Decisions, heat: float) -> Tensor:
    """Σ KL of yes and no, for every score."""
    one, two = own.scores.float() / heat, theirs.scores.float() / heat
    share = two.sigmoid()
    each = share * (F.logsigmoid(two) - F.logsigmoid(one)) + (1 - share) * (F.logsigmoid(-two) - F.logsigmoid(-one))
    return (each if own.where is None else torch.where(own.where, each, 0.0)).sum()


def _vectors(own: Decisions, theirs: Decisions, bridge: torch.nn.Module | None) -> Tensor:
    """Σ of 1 - cos(student's, teacher's), and of how far cosines with the others of a group are from the teacher's.

    The cosines are what vectors are asked for, and need no map between widths; the first term says where to go.
    """
    own_MD, theirs_MD = own.scores, theirs.scores.to(own.scores.dtype)
    total = _turned_apart(own_MD, theirs_MD, bridge)
    same_MM = own.sizes[:, None] == own.sizes if own.sizes is not None else own_MD.new_ones(len(own_MD), len(own_MD))
    cosines = [unit @ unit.T for unit in (F.normalize(each, dim=-1) for each in (own_MD, theirs_MD))]
    off_MM = (cosines[0] - cosines[1]) ** 2 * same_MM
    found: Tensor = total + (off_MM.sum(1) / same_MM.sum(1)).sum()
    return found


def _turned_apart(own_MD: Tensor, theirs_MD: Tensor, bridge: torch.nn.Module | None) -> Tensor:
    mapped = own_MD if bridge is None else bridge(own_MD.to(next(bridge.parameters()).dtype))
    return (1 - F.cosine_similarity(mapped.float(), theirs_MD.float(), dim=-1)).sum()


def hidden_apart(own_TD: Tensor, theirs_TD: Tensor, bridge: torch.nn.Module | None = None) -> Tensor:
    """Σ over tokens of 1 - cos(student's vector, teacher's) (Sanh et al. 2019, §3), mapped where widths differ."""
    return _turned_apart(own_TD, theirs_TD.detach(), bridge)


def relations_apart(
    own: Sequence[Tensor], theirs: Sequence[Tensor], lengths: tuple[int, ...], heads: int, pairs: Sequence[str]
) -> Tensor:
    """Σ over tokens of the mean over relation heads of KL(teacher ‖ student), for each pair; lengths: of sequences.

    own, theirs: queries, keys and values [T, W] of one layer each. The vectors of all heads are parted anew into so
    many relation heads, and softmax(a·b / √width) of these says how tokens relate (MiniLMv2, Wang et al. 2021, eq. 3
    to 6; qq, kk and vv), whatever the two models' widths and heads. "qk" is attention itself (MiniLM, 2020, eq. 4).
    """
    total = own[0].new_zeros((), dtype=torch.float32)
    for rows, count, length in _stretches(lengths, heads):
        for pair in pairs:
            logs = [_related(each["qkv".index(pair[0])][rows], each["qkv".index(pair[1])][rows], count, length, heads)
                    for each in (own, theirs)]  # fmt: skip
            theirs_NASS = logs[1].detach()
            total = total + (theirs_NASS.exp() * (theirs_NASS - logs[0])).sum() / heads
    return total


def _related(one_TW: Tensor, two_TW: Tensor, count: int, length: int, heads: int) -> Tensor:
    """[N, A, S, S] log-shares of how each token relates to those of its sequence."""
    a, b = (each.float().view(count, length, heads, -1).transpose(1, 2) for each in (one_TW, two_TW))
    found: Tensor = (a @ b.transpose(-1, -2) * a.shape[-1] ** -0.5).log_softmax(-1)
    return found


def _stretches(lengths: tuple[int, ...], heads: int) -> Iterator[tuple[slice, int, int]]:
    """(rows, sequences, their length): neighbours of one length together, as many as CELLS allow."""
    for start, count, length in runs(lengths):
        size = max(1, CELLS // (heads * length * length))
        for first in range(0, count, size):
            some = min(size, count - first)
            begin = start + first * length
            yield slice(begin, begin + some * length), some, length


def relation_heads(widths: Sequence[int], least: int = 16) -> int:
    """The most heads into which all these widths can be parted, each of `least` numbers or more; at least one."""
    fitting = [count for count in range(1, min(widths) // least + 1) if all(width % count == 0 for width in widths)]
    return max(fitting, default=1)
