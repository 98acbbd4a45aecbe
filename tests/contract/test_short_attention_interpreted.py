"""Our Triton kernels, run on the CPU by Triton's interpreter, are the definition and write their own places only.

Triton decides when it is imported whether it interprets, so the checks run in a process of their own: this file.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.records import Packed

LENGTHS = [0, 1, 2, 15, 16, 17, 0, 33, 64, 65]
# (own, read) of the queries' and of the keys' kernel, warps of the latter: a row of its sums has two or four numbers
BLOCKS = [((16, 16), (16, 16), 1), ((32, 16), (16, 64), 4), ((16, 64), (64, 16), 4)]
GUARD = 70
NORMS = [(1, 8), (33, 48), (64, 64), (70, 100)]
SHAPES = [(1, 8), (63, 48), (64, 64), (513, 100), (1024, 128)]


def gradients(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """The definition: output and the gradients of q, k and v, in float32."""
    q, k, v = (x.detach().float().requires_grad_() for x in (q, k, v))
    parts = []
    for a, b in itertools.pairwise(edges.tolist()):
        scores = torch.einsum("qhk,nhk->hqn", q[a:b], k[a:b]) / math.sqrt(q.shape[2])
        parts.append(torch.einsum("hqn,nhk->qhk", scores.softmax(-1), v[a:b]))
    out = torch.cat(parts)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), weight.float())


def apart(got: Tensor, right: Tensor) -> float:
    return float((got.detach().double() - right).norm() / right.norm())


def check_attention() -> None:
    from filbert.nn.kernels import short_attention

    torch.manual_seed(0)
    edges = torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32)
    tokens = int(edges[-1])
    qkv = torch.randn(tokens, 3, 2, 16).half().requires_grad_()  # the interpreter has no bfloat16
    bias = torch.zeros(96).half().requires_grad_()
    weight = torch.randn(tokens, 2, 16).half()
    wanted = gradients(*qkv.unbind(1), edges, weight)
    for (own, read), keys, warps in BLOCKS:
        short_attention.FORWARD = short_attention.BACKWARD_QUERIES = (own, read, 4, 2)
        short_attention.BACKWARD_KEYS = (*keys, warps, 2)
        for out in (
            short_attention.attend_joined(qkv, edges, 65),
            short_attention.attend_joined(qkv, edges, 200, bias),  # more than the longest
            short_attention.attend(*qkv.unbind(1), edges, 200),
        ):
            gradient, dbias = torch.autograd.grad(out, (qkv, bias), weight, allow_unused=True)
            for got, right in zip((out, *gradient.unbind(1)), wanted, strict=True):
                assert apart(got, right) < 5e-3
            assert dbias is None or apart(dbias, torch.cat([x.sum(0).flatten() for x in wanted[1:]])) < 2e-3
    q, k, v = (x.detach() for x in qkv.unbind(1))
    out, logs = short_attention._forward(q, k, v, edges, 65)
    made, summed = [], []
    for _ in range(2):
        totals = short_attention._totals(torch.stack((q, k, v), 1), edges)
        sums_room = F.pad(totals.flatten(), (GUARD, GUARD), value=math.nan)
        totals = sums_room[GUARD:-GUARD].view(totals.shape)
        room = torch.full((tokens + 2 * GUARD, 3, 2, 16), math.nan, dtype=torch.float16)
        own_rows = room[GUARD:-GUARD]
        short_attention._backward((q, k, v, out, weight, logs), own_rows.unbind(1), edges, 65, totals)
        assert own_rows.isfinite().all()
        assert room.isnan().sum() == 2 * GUARD * 3 * 2 * 16
        assert totals.isfinite().all()
        assert sums_room.isnan().sum() == 2 * GUARD
        made.append(own_rows)
        summed.append(totals)
    assert torch.equal(*made)
    assert torch.equal(*summed)


def check_gelu() -> None:
    from filbert.nn.kernels import fused

    for shape, dtype in itertools.product(SHAPES, (torch.float16, torch.float32)):
        x, grad = (2 * torch.randn(2, *shape)).to(dtype)
        exact = x.double().requires_grad_()
        (wanted,) = torch.autograd.grad(F.gelu(exact), exact, grad.double())
        dx, dbias = fused.gelu_backward(grad, x)
        assert apart(dx, wanted) < (5e-4 if dtype == torch.float16 else 1e-6)
        assert apart(dbias, wanted.sum(0)) < 1e-6
        room = torch.full((2 * GUARD + x.numel(),), math.nan, dtype=dtype)
        sums_room = torch.full((2 * GUARD + -(-len(x) // fused.BACKWARD[0]) * x.shape[1],), math.nan)
        sums = sums_room[GUARD:-GUARD].view(-1, x.shape[1])
        fused._backward(grad, x, room[GUARD:-GUARD].view(shape), sums)
        assert torch.equal(room[GUARD:-GUARD].view(shape), dx)
        assert torch.equal(sums.sum(0), dbias)
        assert room.isnan().sum() == sums_room.isnan().sum() == 2 * GUARD


def check_norm() -> None:
    from filbert.nn import dropout
    from filbert.nn.kernels import fused

    for (tokens, width), share, dtype in itertools.product(NORMS, (0.1, 0.5), (torch.float16, torch.float32)):
        fused.NORM_BACKWARD = (32, 4, 4)
        into, x, grad = torch.randn(3, tokens, width).to(dtype)
        drawn = torch.rand(2)
        norm = nn.LayerNorm(width).double()
        nn.init.normal_(norm.weight)
        given = [tensor.double().requires_grad_() for tensor in (into, x, torch.zeros(width))]
        added = given[1] + given[2]
        total = given[0] + dropout.dropped(added, share, drawn)
        wanted = torch.autograd.grad(norm(total), [*given[:2], norm.weight, norm.bias, given[2]], grad.double())
        stored = total.detach().to(dtype)
        exact = stored.double()
        mean = exact.mean(1).float()
        rstd = (exact.var(1, correction=0) + norm.eps).rsqrt().float()
        weight = norm.weight.detach().to(dtype)
        dsum, dx, sums = fused.norm_backward(grad, stored, mean, rstd, weight, drawn, share)
        small = 2e-3 if dtype == torch.float16 else 1e-5
        for got, right in zip((dsum, dx, *sums), wanted, strict=True):
            assert apart(got, right) < small
        assert ((dx == 0) >= ~dropout.kept(x, share, drawn)).all()
        rooms = [torch.full((2 * GUARD + n,), math.nan, dtype=kind) for n, kind in (
            (x.numel(), dtype), (x.numel(), dtype), (-(-tokens // 32) * 3 * width, torch.float32))]  # fmt: skip
        made = [room[GUARD:-GUARD] for room in rooms]
        made = [made[0].view(x.shape), made[1].view(x.shape), made[2].view(-1, 3, width)]
        fused._norm_backward((grad, stored, mean, rstd, weight, drawn), share, (made[0], made[1], made[2]))
        assert torch.equal(made[0], dsum)
        assert torch.equal(made[1], dx)
        assert torch.equal(made[2].sum(0), sums)
        assert [int(room.isnan().sum()) for room in rooms] == [2 * GUARD] * 3


def check_layer() -> None:
    """A layer whose biases get their gradients from the kernels is one graph and has the gradients of a plain one."""
    from filbert.nn import attention, layers
    from filbert.nn.kernels import fused

    def gradients_of(layer: nn.Module) -> list[Tensor]:
        return list(torch.autograd.grad(layer(x, packed), parameters, weight))

    torch.manual_seed(1)
    lengths = (5, 17, 33)
    zeros = torch.zeros(sum(lengths), dtype=torch.int64)
    edges = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    packed = Packed(ids=zeros, positions=zeros, segments=zeros, boundaries=edges, lengths=lengths, max_len=40)
    x, weight = torch.randn(2, len(zeros), 32).half()
    norms = nn.LayerNorm(32), nn.LayerNorm(32)
    layer = layers.PostNorm(layers.SelfAttention(32, 2, True), layers.FeedForward(32, 96, True), norms, 0.0).half()
    parameters = list(layer.parameters())
    plain = gradients_of(layer)
    attention.CHOSEN["half"] = "triton"
    attention._takes_joined = lambda *_: True
    attention.sums_bias = layers.sums_bias = lambda *_: True  # type: ignore[attr-defined]
    for ours in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        for got, right in zip(gradients_of(ours), plain, strict=True):
            assert got.dtype == torch.float16
            assert apart(got, right.double()) < 5e-3
    # With dropout the compiled layer has a kernel for its norms as well; so small a share drops nothing here.
    norm_backward, asked = fused.norm_backward, []
    fused.norm_backward = lambda *given: asked.append(given[-1]) or norm_backward(*given)  # type: ignore[assignment,func-returns-value]
    layer.dropout.share = 1e-9
    for got, right in zip(gradients_of(torch.compile(layer, backend="eager")), plain, strict=True):
        assert apart(got, right.double()) < 5e-3
    assert asked == [1e-9] * 2


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_interpreted_kernels_are_the_definition_and_keep_to_their_places() -> None:
    house = Path(__file__).resolve().parents[2] / "src"
    path = os.pathsep.join([str(house), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter does not know this NumPy")
    assert done.returncode == 0, done.stderr[-2_000:]


if __name__ == "__main__":
    check_attention()
    check_gelu()
    check_norm()
    check_layer()
