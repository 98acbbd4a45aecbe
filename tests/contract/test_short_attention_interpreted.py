"""Our Triton kernels, run on the CPU by Triton's interpreter, are the definition and write their own rows only.

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
from torch import Tensor

LENGTHS = [1, 2, 15, 16, 17, 33, 64, 65]
# (own, read) of the queries' and of the keys' kernel, warps of the latter: a row of its sums has two or four numbers
BLOCKS = [((16, 16), (16, 16), 1), ((32, 16), (16, 64), 4), ((16, 64), (64, 16), 4)]
GUARD = 70


def gradients(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """The definition: output and the gradients of q, k and v, in float32."""
    q, k, v = (x.detach().float().requires_grad_() for x in (q, k, v))
    parts = []
    for a, b in itertools.pairwise(edges.tolist()):
        scores = torch.einsum("qhk,nhk->hqn", q[a:b], k[a:b]) / math.sqrt(q.shape[2])
        parts.append(torch.einsum("hqn,nhk->qhk", scores.softmax(-1), v[a:b]))
    out = torch.cat(parts)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), weight.float())


def check_all() -> None:
    from filbert.nn import short_attention

    torch.manual_seed(0)
    edges = torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32)
    tokens = int(edges[-1])
    qkv = torch.randn(tokens, 3, 2, 16).half().requires_grad_()  # the interpreter has no bfloat16
    weight = torch.randn(tokens, 2, 16).half()
    wanted = gradients(*qkv.unbind(1), edges, weight)
    for (own, read), keys, warps in BLOCKS:
        short_attention.FORWARD = short_attention.BACKWARD_QUERIES = (own, read, 4, 2)
        short_attention.BACKWARD_KEYS = (*keys, warps, 2)
        for out in (
            short_attention.attend_joined(qkv, edges, 65),
            short_attention.attend(*qkv.unbind(1), edges, 200),  # more than the longest
        ):
            (gradient,) = torch.autograd.grad(out, qkv, weight)
            for got, right in zip((out, *gradient.unbind(1)), wanted, strict=True):
                assert (got.detach().float() - right).norm() / right.norm() < 5e-3
    q, k, v = (x.detach() for x in qkv.unbind(1))
    out, logs = short_attention._forward(q, k, v, edges, 65)
    made = []
    for _ in range(2):
        room = torch.full((tokens + 2 * GUARD, 3, 2, 16), math.nan, dtype=torch.float16)
        own_rows = room[GUARD:-GUARD]
        short_attention._backward((q, k, v, out, weight, logs), own_rows.unbind(1), edges, 65)
        assert own_rows.isfinite().all()
        assert room.isnan().sum() == 2 * GUARD * 3 * 2 * 16
        made.append(own_rows)
    assert torch.equal(*made)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_interpreted_kernels_are_the_definition_and_keep_to_their_rows() -> None:
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
    check_all()
