"""Scores, vectors or attention relations of a student and of its teacher in; distillation losses out.

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


def apart(student: Decisions, teacher: Decisions, heat: float = 1.0, bridge: torch.nn.Module | None = None) -> Tensor:
    """The sum over all decisions of the divergence of a student's scores from its teacher's.

    heat: the temperature. bridge: of vectors, a learnt map of the student's to the teacher's width.
    """
    if student.kind == "number":
        off = (student.scores - teacher.scores) ** 2
        return (off if student.where is None else torch.where(student.where, off, 0.0)).sum()
    if student.kind == "vector":
        return _vectors(student, teacher, bridge)
    if student.kind == "chain":
        lengths = student.sizes if student.sizes is not None else torch.zeros(0)
        divergence: Tensor = student.chain.divergence(student.scores, teacher.chain, teacher.scores, lengths, heat)
        return heat**2 * divergence
    made = {"one": _one, "among": _among, "several": _several}[student.kind]
    return heat**2 * made(student, teacher, heat)


def _one(student: Decisions, teacher: Decisions, heat: float) -> Tensor:
    """Σ KL(teacher ‖ student) of rows; where a head makes the scores, some rows at a time, and anew on the way back."""

    def summed(student_RX: Tensor, teacher_RX: Tensor, where_R: Tensor) -> Tensor:
        scores = student_RX if student.head is None else student.head(student_RX)
        taught = teacher_RX if teacher.head is None else teacher.head(teacher_RX)
        student_RL, teacher_RL = ((each.float() / heat).log_softmax(-1) for each in (scores, taught.detach()))
        return torch.where(where_R, (teacher_RL.exp() * (teacher_RL - student_RL)).sum(-1), 0.0).sum()

    where = student.where
    if where is None:
        where = student.scores.new_ones(len(student.scores), dtype=torch.bool)
    if student.head is None:
        return summed(student.scores, teacher.scores, where)
    with torch.no_grad():
        width = student.head(student.scores[:1].detach()).shape[-1] if len(student.scores) else 1
    size = max(1, CELLS // width)
    parts = [torch.split(each, size) for each in (student.scores, teacher.scores, where)]
    made = partial(checkpoint, summed, use_reentrant=False, preserve_rng_state=False) if len(parts[0]) > 1 else summed
    return torch.stack([made(*each) for each in zip(*parts, strict=True)]).sum()


def _among(student: Decisions, teacher: Decisions, heat: float) -> Tensor:
    """Σ KL over groups of neighbours, each column a separate choice; the mean of columns."""
    assert student.sizes is not None
    sizes = student.sizes.long()
    student_RK, teacher_RK = (
        _log_shares(each.float().reshape(len(each), -1) / heat, sizes) for each in (student.scores, teacher.scores)
    )
    each_RK = teacher_RK.exp() * (teacher_RK - student_RK)
    sums_G = torch.segment_reduce(each_RK.mean(1), "sum", lengths=sizes, unsafe=True)
    return (sums_G if student.where is None else torch.where(student.where, sums_G, 0.0)).sum()


def _log_shares(scores_RK: Tensor, sizes_G: Tensor) -> Tensor:
    """[R, K] the log of each row's share in its group."""

    def spread(values_GK: Tensor) -> Tensor:
        return values_GK.repeat_interleave(sizes_G, dim=0, output_size=len(scores_RK))

    tops_GK = torch.segment_reduce(scores_RK.detach(), "max", lengths=sizes_G, unsafe=True)
    below_RK = scores_RK - spread(tops_GK)
    sums_GK = torch.segment_reduce(below_RK.exp(), "sum", lengths=sizes_G, unsafe=True)
    return below_RK - spread(sums_GK.log())


def _several(student: Decisions, teacher: Decisions, heat: float) -> Tensor:
    """Σ KL of yes and no, for every score."""
    one, two = student.scores.float() / heat, teacher.scores.float() / heat
    share = two.sigmoid()
    each = share * (F.logsigmoid(two) - F.logsigmoid(one)) + (1 - share) * (F.logsigmoid(-two) - F.logsigmoid(-one))
    return (each if student.where is None else torch.where(student.where, each, 0.0)).sum()


def _vectors(student: Decisions, teacher: Decisions, bridge: torch.nn.Module | None) -> Tensor:
    """Σ of 1 - cos(student's, teacher's), and of how far cosines with the others of a group are from the teacher's.

    The cosines are what vectors are asked for, and need no map between widths; the first term says where to go.
    """
    student_MD, teacher_MD = student.scores, teacher.scores.to(student.scores.dtype)
    total = _turned_apart(student_MD, teacher_MD, bridge)
    same_MM = student_MD.new_ones(len(student_MD), len(student_MD))
    if student.sizes is not None:
        same_MM = student.sizes[:, None] == student.sizes
    cosines = [unit @ unit.T for unit in (F.normalize(each, dim=-1) for each in (student_MD, teacher_MD))]
    off_MM = (cosines[0] - cosines[1]) ** 2 * same_MM
    total_loss: Tensor = total + (off_MM.sum(1) / same_MM.sum(1)).sum()
    return total_loss


def _turned_apart(student_MD: Tensor, teacher_MD: Tensor, bridge: torch.nn.Module | None) -> Tensor:
    mapped = student_MD if bridge is None else bridge(student_MD.to(next(bridge.parameters()).dtype))
    return (1 - F.cosine_similarity(mapped.float(), teacher_MD.float(), dim=-1)).sum()


def hidden_apart(student_TD: Tensor, teacher_TD: Tensor, bridge: torch.nn.Module | None = None) -> Tensor:
    """Σ over tokens of 1 - cos(student's vector, teacher's) (Sanh et al. 2019, §3), mapped where widths differ."""
    return _turned_apart(student_TD, teacher_TD.detach(), bridge)


def relations_apart(
    student: Sequence[Tensor], teacher: Sequence[Tensor], lengths: tuple[int, ...], heads: int, pairs: Sequence[str]
) -> Tensor:
    """Σ over tokens of the mean over relation heads of KL(teacher ‖ student), for each pair; lengths: of sequences.

    student, teacher: queries, keys and values [T, W] of one layer each. The vectors of all heads are parted anew into
    so many relation heads, and softmax(a·b / √width) of these says how tokens relate (MiniLMv2, Wang et al. 2021, eq.
    3 to 6; qq, kk and vv), whatever the two models' widths and heads. "qk" is attention itself (MiniLM, 2020, eq. 4).
    """
    total = student[0].new_zeros((), dtype=torch.float32)
    for rows, count, length in _stretches(lengths, heads):
        for pair in pairs:
            logs = [_related(each["qkv".index(pair[0])][rows], each["qkv".index(pair[1])][rows], count, length, heads)
                    for each in (student, teacher)]  # fmt: skip
            teacher_NASS = logs[1].detach()
            total = total + (teacher_NASS.exp() * (teacher_NASS - logs[0])).sum() / heads
    return total


def _related(one_TW: Tensor, two_TW: Tensor, count: int, length: int, heads: int) -> Tensor:
    """[N, A, S, S] log-shares of how each token relates to those of its sequence."""
    a, b = (each.float().view(count, length, heads, -1).transpose(1, 2) for each in (one_TW, two_TW))
    log_shares: Tensor = (a @ b.transpose(-1, -2) * a.shape[-1] ** -0.5).log_softmax(-1)
    return log_shares


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
