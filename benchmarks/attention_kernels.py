"""One CUDA device in; how fast and how exact each kernel for packed attention is there, out.

    python benchmarks/attention_kernels.py [--out FILE.json] [--only flash,triton,…] [--seconds 200] [--quick]
        [--sweep-only]

Contenders: flash (PyTorch's variable-length kernel), triton (ours, nn.kernels.short_attention; `joined` reads and
writes queries, keys and values side by side), flex (FlexAttention with a mask of documents), cudnn (its variable-length
one). All start from one tensor [T, 3, H, 64], as a projection leaves it, and end with its gradient. Each is checked
against the definition in fp32 before it is timed. Times are medians of 20 replays of a CUDA graph, so the host's work
is not in them; where no graph can be captured they are of plain calls, and say so ("host_ms" is a plain call by the
wall clock: PyTorch up to 2.13 builds cuDNN's plan anew in every such call). One that fails is recorded and passed
over.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.core.records import Packed
from filbert.nn import attention
from filbert.nn.kernels import short_attention

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BOUND = 5e-3
ROUNDS = 20
# Block sizes that the sweep tries, by the name they have in nn.kernels.short_attention. For the backward pass those
# that spill registers at a head width of 64 on Hopper are left out: the keys' kernel with 128 queries at a time.
SWEPT = {
    "FORWARD": ((64, 64, 4, 3), (128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 2)),
    "BACKWARD_QUERIES": (
        (64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2), (128, 64, 8, 3), (64, 32, 4, 3), (64, 128, 4, 2),
        (128, 64, 4, 2), (128, 128, 8, 2),
    ),
    "BACKWARD_KEYS": (
        (64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2), (128, 64, 8, 3), (64, 32, 4, 2), (64, 32, 4, 3),
        (128, 32, 8, 3), (128, 32, 4, 2),
    ),
}  # fmt: skip
Work = Callable[[Tensor], Tensor]


# What is measured -----------------------------------------------------------------------------------------------------


def lengths(case: str, total: int, seed: int = 0) -> list[int]:
    """Lengths of one case that fill `total` tokens to the last; ascending, as packs are laid out."""
    random, found, size = np.random.default_rng(seed), [], 0
    while size < total:
        if case == "mixed":
            length = int(np.clip(np.exp(random.normal(5.0, 0.75)), 8, 512))
        elif case == "short":
            length = 128 if random.random() < 0.7 else int(random.integers(8, 128))
        else:
            length = int(case)
        found.append(min(length, total - size))
        size += found[-1]
    return sorted(found)


def pack(sizes: list[int], longest: int) -> Packed:
    """Only what attention reads."""
    edges = torch.tensor([0, *itertools.accumulate(sizes)], dtype=torch.int32, device=DEVICE)
    none = torch.empty(sum(sizes), device="meta")
    return Packed(none, none, none, edges, tuple(sizes), longest)


def inputs(packed: Packed, heads: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random queries, keys and values, and a gradient of the output."""
    torch.manual_seed(seed)
    tokens = int(packed.boundaries[-1])
    kind = torch.bfloat16 if CUDA else torch.float16  # Triton's interpreter has no bfloat16
    qkv = torch.randn(tokens, 3, heads, 64, device=DEVICE).to(kind).requires_grad_()
    return qkv, torch.randn(tokens, heads, 64, device=DEVICE).to(kind)


def flash(packed: Packed) -> Work:
    """As training does today."""
    if not CUDA:
        return lambda qkv: attention.attend(*qkv.unbind(1), packed)
    return lambda qkv: attention.KERNELS["flash"](*qkv.unbind(1), packed.boundaries, packed.max_len)


def triton(packed: Packed) -> Work:
    """Ours, with queries, keys and values apart."""
    short_attention.check()
    return lambda qkv: short_attention.attend(*qkv.unbind(1), packed.boundaries, packed.max_len)


def joined(packed: Packed) -> Work:
    """Ours, side by side."""
    short_attention.check()
    return lambda qkv: short_attention.attend_joined(qkv, packed.boundaries, packed.max_len)


def flex(packed: Packed) -> Work:
    """FlexAttention: one row of tokens, each sees those of its own document. Making the mask is timed apart."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tokens = int(packed.boundaries[-1])
    sizes = (packed.boundaries[1:] - packed.boundaries[:-1]).long()
    document = torch.repeat_interleave(torch.arange(len(sizes), device=DEVICE), sizes)

    def same(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return document[q] == document[k]

    make = torch.compile(create_block_mask, dynamic=False) if CUDA else create_block_mask
    try:
        mask = make(same, None, None, tokens, tokens, device=DEVICE)
    except Exception as error:
        NOTES["flex mask not compiled"] = str(error)[:200]
        make = create_block_mask
    sync()
    begun = time.perf_counter()
    mask = make(same, None, None, tokens, tokens, device=DEVICE)
    sync()
    NOTES["flex mask, ms"] = (time.perf_counter() - begun) * 1e3
    run = torch.compile(flex_attention, dynamic=False) if CUDA else flex_attention

    def work(qkv: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in qkv.unbind(1))
        return run(q, k, v, block_mask=mask).squeeze(0).transpose(0, 1)

    return work


class Cudnn(torch.autograd.Function):
    """cuDNN's kernel through aten; it wants dense inputs, since it writes gradients with the inputs' own strides."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, edges: Tensor, longest: int) -> Tensor:
        """[T, H, K]."""
        q, k, v = (x.contiguous() for x in (q, k, v))
        found = torch.ops.aten._cudnn_attention_forward(
            q, k, v, None, edges, edges, longest, longest, True, 0.0, False, False
        )
        ctx.save_for_backward(q, k, v, found[0], found[1], found[6], found[7], edges)
        ctx.longest = longest
        return found[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Of q, k and v."""
        q, k, v, out, logs, seed, offset, edges = ctx.saved_tensors
        n = ctx.longest
        known = {
            "grad_out": grad.contiguous(), "query": q, "key": k, "value": v, "out": out, "logsumexp": logs,
            "philox_seed": seed, "philox_offset": offset, "attn_bias": None, "cum_seq_q": edges, "cum_seq_k": edges,
            "max_q": n, "max_k": n, "dropout_p": 0.0, "is_causal": False, "scale": None,
        }  # fmt: skip
        operator = torch.ops.aten._cudnn_attention_backward.default
        asked = operator._schema.arguments  # by name, since the order differs between versions of torch
        given = operator(
            *(known[a.name] for a in asked if not a.kwarg_only),
            **{a.name: known[a.name] for a in asked if a.kwarg_only},
        )
        return *given, None, None


def cudnn(packed: Packed) -> Work:
    """cuDNN."""
    return lambda qkv: Cudnn.apply(*qkv.unbind(1), packed.boundaries, packed.max_len)


CONTENDERS: dict[str, Callable[[Packed], Work]] = {
    "flash": flash, "triton": triton, "triton joined": joined, "flex": flex, "cudnn": cudnn,
}  # fmt: skip
NOTES: dict[str, Any] = {}


# How it is measured ---------------------------------------------------------------------------------------------------


def apart(got: Tensor, wanted: Tensor) -> float:
    """The relative error; infinite where there is a number that is none."""
    error = float((got.detach().float() - wanted).norm() / wanted.norm())
    return error if error == error else float("inf")


def errors(name: str, case: str, heads: int, tokens: int = 2_000) -> dict[str, Any]:
    """Against the definition in fp32 on a small pack; `same` says whether a second backward gives the same bits."""
    longest = 512 if case == "mixed" else (128 if case == "short" else int(case))
    sizes = lengths(case, tokens if CUDA else 200, seed=3)
    if case == "mixed" and CUDA and name != "flex":
        sizes = sorted([*sizes, 1, 2, 63, 64, 65, 127, 128, 129, 511, 512])
    packed = pack(sizes, longest)
    qkv, weight = inputs(packed, heads, seed=7)
    plain = qkv.detach().float().requires_grad_()
    wanted = attention._by_length(*plain.unbind(1), packed, 0)
    (right,) = torch.autograd.grad(wanted, plain, weight.float())
    work = CONTENDERS[name](packed)
    out = work(qkv)
    (gradient,) = torch.autograd.grad(out, qkv, weight)
    (again,) = torch.autograd.grad(work(qkv), qkv, weight)
    found = {"forward": apart(out, wanted.detach())}
    found |= {f"d{n}": apart(gradient[:, i], right[:, i]) for i, n in enumerate("qkv")}
    worst = max(found.values())
    if not worst <= 2 * BOUND:
        raise AssertionError(f"wrong: {found}")
    return {**found, "ok": worst <= BOUND, "same": bool(torch.equal(gradient, again))}


def sync() -> None:
    """Waits for the device."""
    if CUDA:
        torch.cuda.synchronize()


def replays(work: Callable[[], Any]) -> tuple[float, str]:
    """(median milliseconds, how)."""
    if not CUDA:
        times = []
        for _ in range(2):
            begun = time.perf_counter()
            work()
            times.append((time.perf_counter() - begun) * 1e3)
        return statistics.median(times), "cpu"
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    run, how = work, "calls"
    try:
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            work()
        run, how = graph.replay, "graph"
    except Exception as error:
        NOTES.setdefault("no graph", str(error)[:200])
        torch.cuda.synchronize()
    times = []
    for turn in range(ROUNDS + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if turn >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times), how


def speed(name: str, case: str, heads: int, tokens: int) -> dict[str, Any]:
    """Milliseconds and TFLOP/s, forward alone and with its backward."""
    longest = 512 if case == "mixed" else (128 if case == "short" else int(case))
    sizes = lengths(case, tokens)
    packed = pack(sizes, longest)
    qkv, weight = inputs(packed, heads, seed=1)
    work = CONTENDERS[name](packed)

    def forward() -> None:
        with torch.no_grad():
            work(qkv)

    begun = time.perf_counter()
    forward_ms, how = replays(forward)
    both_ms, _ = replays(lambda: torch.autograd.grad(work(qkv), qkv, weight))
    sync()
    started = time.perf_counter()
    for _ in range(3):
        torch.autograd.grad(work(qkv), qkv, weight)
    sync()
    host_ms = (time.perf_counter() - started) / 3 * 1e3
    work_done = 4.0 * heads * 64 * sum(n * n for n in sizes)
    return {
        "forward_ms": forward_ms, "both_ms": both_ms, "forward_tflops": work_done / forward_ms / 1e9,
        "both_tflops": 3.5 * work_done / both_ms / 1e9, "host_ms": host_ms, "how": how,
        "took_s": time.perf_counter() - begun,
    }  # fmt: skip


def sweep(tell: Callable[[str, Any], None], tokens: int) -> None:
    """Tries block sizes of our kernels, one kernel at a time, and keeps the best: least mixed and 512 time together.

    Each is printed as soon as it is known, so one that is cut short has said what it found.
    """
    tried: dict[str, Any] = {}
    heads, cases = 12 if CUDA else 1, ("mixed", "512")
    defaults = {name: getattr(short_attention, name) for name in SWEPT}
    best = dict(defaults)
    for name, choices in SWEPT.items():
        measure, times = "forward_ms" if name == "FORWARD" else "both_ms", {}
        for choice in choices if CUDA else choices[:1]:
            key = f"{name} {choice}"
            setattr(short_attention, name, choice)
            try:
                error = errors("triton joined", "mixed", heads)
                found = {case: speed("triton joined", case, heads, tokens)[measure] for case in cases}
                times[choice] = sum(found.values())
                tried[key] = {case: round(ms, 4) for case, ms in found.items()} | {"ok": error["ok"]}
                line = "  ".join(f"{case} {ms:8.4f}" for case, ms in found.items())
                print(f"{key:38} {measure:10} {line}  ok {error['ok']}  same {error['same']}", flush=True)
            except Exception as failure:
                tried[key] = f"{type(failure).__name__}: {str(failure)[:300]}"
                print(f"{key:38} {tried[key][:100]!r}", flush=True)
            tell("sweep", tried)
        setattr(short_attention, name, defaults[name])
        best[name] = min(times, key=times.__getitem__, default=defaults[name])
        tried[f"{name} best"] = best[name]
        print(f"{name} best {best[name]}", flush=True)
    for name, choice in best.items():
        setattr(short_attention, name, choice)
    tell("sweep", tried)


def table(found: dict[str, Any]) -> None:
    """What was found, in lines."""
    names = f"{'case':30} {'kernel':14} {'fwd ms':>8} {'f+b ms':>8} {'fwd TF':>7} {'f+b TF':>7} {'host ms':>8}"
    print(f"{names}  errors: forward, dq, dk, dv; same bits twice; how timed")
    for key, entry in found.items():
        if not isinstance(entry, dict) or "kernels" not in entry:
            continue
        for name, got in entry["kernels"].items():
            if isinstance(got, str):
                print(f"{key:30} {name:14} {got[:100]}")
                continue
            wrong = " ".join(f"{got['errors'][n]:.1e}" for n in ("forward", "dq", "dk", "dv"))
            print(
                f"{key:30} {name:14} {got['forward_ms']:8.3f} {got['both_ms']:8.3f} {got['forward_tflops']:7.0f} "
                f"{got['both_tflops']:7.0f} {got['host_ms']:8.2f}  {wrong} {got['errors']['same']} {got['how']}"
            )


def main() -> None:
    """Every case, every contender."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path)
    words.add_argument("--only", default=",".join(CONTENDERS), help="contenders, with commas")
    words.add_argument("--seconds", type=float, default=200.0, help="after which no new contender begins")
    words.add_argument("--sweep-only", action="store_true", help="stops when the block sizes are tried")
    words.add_argument("--quick", action="store_true", help="tiny sizes, to try the script")
    given = words.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    begun, wanted = time.perf_counter(), given.only.split(",")
    if unknown := set(wanted) - set(CONTENDERS):
        words.error(f"no such contender: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name() if CUDA else "cpu", "torch": torch.__version__}
    found["notes"] = NOTES

    def tell(name: str, value: Any) -> None:
        found[name] = value
        if given.out:
            given.out.write_text(json.dumps(found, indent=1, default=str))

    small = given.quick or not CUDA
    totals = (300,) if small else (65_536, 131_072)
    if given.sweep_only or "triton joined" in wanted:
        sweep(tell, totals[0])
    if given.sweep_only:
        return
    cases = [(case, 12, total) for total in totals for case in ("mixed", "512", "128")]
    cases += [("short", 6, total) for total in totals]
    for name in wanted:  # cuDNN last: a bad access there would take the rest with it
        for case, heads, total in cases:
            key = f"{case}, {heads} heads, {total:,} tokens"
            entry = found.setdefault(key, {"kernels": {}})
            if name == "flex" and (total != totals[0] or case not in ("mixed", "512")):
                continue  # each shape is compiled anew
            if time.perf_counter() - begun > given.seconds:
                entry["kernels"][name] = "skipped: out of time"
                continue
            try:
                entry["kernels"][name] = {
                    # flex compiles each number of tokens anew: check it at the number that is timed
                    "errors": errors(name, case, 1 if small else heads, total if name == "flex" else 2_000)
                }
                entry["kernels"][name] |= speed(name, case, 1 if small else heads, total)
            except Exception as error:
                entry["kernels"][name] = f"{type(error).__name__}: {str(error)[:400]}"
            tell(key, entry)
    tell("took_s", time.perf_counter() - begun)
    print(json.dumps({k: found.get(k) for k in ("device", "torch", "sweep", "notes", "took_s")}, default=str))
    table(found)


if __name__ == "__main__":
    main()
