"""One CUDA device in; how fast our backward of dropout, sum and norm is by block size, beside the compiler's, out.

    python benchmarks/fused_kernels.py [--tokens 131072] [--width 768] [--out FILE.json]

First it is checked against torch's own gradients in float32. "GB/s" counts what has to be read and written once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.nn import dropout
from filbert.nn.kernels import fused

SIZES = [
    (span, rows, warps)
    for span, rows, warps in itertools.product((32, 64, 128), (1, 2, 4, 8), (2, 4, 8))
    if 2 <= 8 * warps / rows <= 32
]


def milliseconds(work: Callable[[], Any], times: int = 12) -> float:
    """The median of some calls."""
    for _ in range(2):
        work()
    found = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def main() -> None:
    """Checks, then sweeps."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--tokens", type=int, default=131_072)
    words.add_argument("--width", type=int, default=768)
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    tokens, width = given.tokens, given.width
    torch.manual_seed(0)
    into, x, grad = (torch.randn(tokens, width, device="cuda").bfloat16() for _ in range(3))
    weight, shift = torch.randn(2, width, device="cuda").bfloat16()
    bias = torch.zeros(width, device="cuda", dtype=torch.bfloat16)
    drawn = torch.rand(2, device="cuda")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "tokens": tokens, "width": width}
    for share in (0.1, 0.3):
        total = into + dropout.dropped(x, share, drawn)
        _, mean, rstd = torch.native_layer_norm(total, [width], weight, shift, 1e-12)

        def ours(total: Any = total, mean: Any = mean, rstd: Any = rstd, share: float = share) -> Any:
            return fused.norm_backward(grad, total, mean, rstd, weight, drawn, share)

        leaf = total.float().requires_grad_()
        known = [tensor.float().requires_grad_() for tensor in (weight, shift)]
        wanted = torch.autograd.grad(F.layer_norm(leaf, [width], *known, 1e-12), [leaf, *known], grad.float())
        dsum, dx, sums = ours()
        through = dropout.dropped(wanted[0], share, drawn)
        pairs = [(dsum, wanted[0]), (dx, through)]
        pairs += [(sums[0], wanted[1]), (sums[1], wanted[2]), (sums[2], through.sum(0))]
        apart = [float((got.float() - right).norm() / right.norm()) for got, right in pairs]
        assert max(apart) < 1e-2, apart
        size = 4 * tokens * width * 2
        seen: dict[str, float] = {}
        for sizes in SIZES:
            fused.NORM_BACKWARD = sizes
            try:
                seen[str(sizes)] = milliseconds(ours)
            except Exception as error:  # one that the device cannot hold
                print(sizes, str(error)[:100])
        best = sorted(seen, key=seen.__getitem__)
        found[f"dropout {share}"] = {
            "apart": apart,
            "ms": seen,
            "best": json.loads(best[0].replace("(", "[").replace(")", "]")),
        }

        def theirs(into: Any, x: Any, weight: Any, shift: Any, bias: Any, share: float = share) -> Any:
            return F.layer_norm(into + F.dropout(x + bias, share), [width], weight, shift, 1e-12)

        leaves = [tensor.clone().requires_grad_() for tensor in (into, x, weight, shift, bias)]
        out = torch.compile(theirs)(*leaves)
        found[f"dropout {share}"]["compiler"] = milliseconds(lambda out=out, leaves=leaves: torch.autograd.grad(
            out, leaves, grad, retain_graph=True))  # fmt: skip
        for name in best[:4]:
            print(f"dropout {share}: {name:14} {seen[name]:.3f} ms, {size / seen[name] / 1e6:,.0f} GB/s")
        print(f"dropout {share}: the compiler's  {found[f'dropout {share}']['compiler']:.3f} ms")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
