"""One CUDA device in; proof that packing is exact there, and training speed beside `transformers` in the same run, out.

    python benchmarks/gpu.py [--out FILE.json] [--quick]

Checks: fp32 packed against one by one within 1e-5; flash against the definition; one compiled graph for every batch.
Speed: BERT-base, bf16 autocast, AdamW fused, MLM on 15 % of the tokens, log-normal lengths (mean about 190, cap 512),
real tokens per second, CUDA events, medians of interleaved rounds. Weights and ids are random: no file is needed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.core.records import Encoding
from filbert.models import bert
from filbert.nn.attention import attend, tensors
from filbert.pack.lay import pack

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16


def lengths(total: int, seed: int, cap: int = 512) -> list[int]:
    """Log-normal lengths that together stay within `total` tokens."""
    random, found, size = np.random.default_rng(seed), [], 0
    while True:
        length = int(np.clip(np.exp(random.normal(5.0, 0.75)), 8, cap))
        if size + length > total:
            return found
        found.append(length)
        size += length


def encodings(sizes: list[int], vocab: int, seed: int = 0) -> list[Encoding]:
    """Random sequences of those lengths."""
    random = np.random.default_rng(seed)
    made = []
    for size in sizes:
        ids, zeros = random.integers(5, vocab, size).astype(np.int32), np.zeros(size, np.int32)
        made.append(Encoding(ids, zeros, zeros, zeros, zeros))
    return made


def exact(preset: str) -> dict[str, float]:
    """fp32 on the device: the largest difference between packed and one by one, forward and gradient."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    config = bert.SPEC.preset(preset, 1_000)
    model = bert.Bert(config).to(DEVICE).eval()
    sequences = encodings([1, 2, 17, 64, 65, 129, 300, 511, 512, 512, 33], 1_000)
    packed, starts = pack(sequences)
    together = model(tensors(packed, DEVICE))
    weight = torch.randn(together.shape[1], device=DEVICE)
    (together @ weight).mean().backward()
    gradient = model.layers[0].attention.qkv.weight.grad.clone()
    model.zero_grad()
    worst = 0.0
    for sequence, start in zip(sequences, starts.tolist(), strict=True):
        alone = model(tensors(pack([sequence])[0], DEVICE))
        worst = max(worst, float((together[start : start + len(sequence)] - alone).detach().abs().max()))
        ((alone @ weight).sum() / packed.num_tokens).backward()
    change = (model.layers[0].attention.qkv.weight.grad - gradient).abs().max() / gradient.abs().max().clamp(min=1)
    return {"output": worst, "gradient": float(change)}


def flash(reach: int) -> float:
    """Relative error of the bf16 flash path against the definition in fp32 on the same inputs."""
    packed = tensors(pack(encodings([128, 2, 129, 300, 300, 17, 512], 100))[0], DEVICE)
    torch.manual_seed(1)
    q, k, v = (torch.randn(packed.num_tokens, 12, 64, device=DEVICE, dtype=HALF) for _ in range(3))
    got = attend(q, k, v, packed, reach=reach).float()
    wanted = attend(q.float(), k.float(), v.float(), packed, reach=reach)
    return float((got - wanted).norm() / wanted.norm())


class Ours:
    """Packed BERT-base with a constant token budget."""

    def __init__(self, preset: str, budget: int, compiled: bool) -> None:
        torch.manual_seed(0)
        self.model = bert.Bert(bert.SPEC.preset(preset, 21_128), ("mlm",)).to(DEVICE).train()
        self.budget = budget
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=DEVICE == "cuda")
        self.forward: Callable[..., torch.Tensor] = self._loss
        if compiled:
            self.forward = torch.compile(
                self._loss, fullgraph=True, backend="inductor" if DEVICE == "cuda" else "eager"
            )

    def _loss(self, packed: Any, rows: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
        with torch.autocast(DEVICE, HALF):
            return F.cross_entropy(self.model.word_scores(self.model(packed, rows)).float(), gold)

    def batch(self, sizes: list[int], seed: int) -> Any:
        """A batch as tensors on the device, made before the clock starts."""
        packed, _ = pack(encodings(sizes, 21_128, seed), self.budget, 512)
        made = tensors(packed, DEVICE)
        torch._dynamo.mark_dynamic(made.boundaries, 0)
        rows = torch.randperm(sum(sizes), device=DEVICE)[: int(0.15 * self.budget)].sort().values
        rows = F.pad(rows, (0, int(0.15 * self.budget) - len(rows)))
        return made, rows, made.ids[rows]

    def step(self, batch: Any) -> None:
        """One optimiser step."""
        loss = self.forward(*batch)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()


class Theirs(Ours):
    """transformers' BertForMaskedLM, padded batches of 128, sdpa."""

    def __init__(self, preset: str) -> None:
        from transformers import BertConfig, BertForMaskedLM

        torch.manual_seed(0)
        ours = bert.PRESETS[preset]
        config = BertConfig(
            vocab_size=21_128, hidden_size=ours.width, num_hidden_layers=ours.layers, num_attention_heads=ours.heads,
            intermediate_size=ours.inner, attn_implementation="sdpa",
        )  # fmt: skip
        self.model = BertForMaskedLM(config).to(DEVICE).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=DEVICE == "cuda")
        self.forward = self._loss

    def _loss(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(DEVICE, HALF):
            return self.model(input_ids=ids, attention_mask=mask, labels=labels).loss

    def batch(self, sizes: list[int], seed: int) -> Any:
        """The same sequences, padded to the longest."""
        sequences = encodings(sizes, 21_128, seed)
        shape = (len(sizes), max(sizes))
        ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.from_numpy(sequence.ids)
            mask[row, : len(sequence)] = 1
        labels = torch.where((torch.rand(shape) < 0.15) & (mask > 0), ids, -100)
        return ids.to(DEVICE), mask.to(DEVICE), labels.to(DEVICE)


def milliseconds(work: Callable[[], None]) -> float:
    """Time of one call on the device."""
    if DEVICE == "cpu":
        import time

        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def race(preset: str, budget: int, rounds: int) -> dict[str, Any]:
    """Tokens per second of each contender, in rounds that take turns."""
    contenders = {
        "packed eager": (Ours(preset, budget, False), budget),
        "packed compiled": (Ours(preset, budget, True), budget),
        "transformers": (Theirs(preset), min(budget, 128 * 190)),
    }
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 3):
        for name, (contender, size) in contenders.items():
            sizes = lengths(size, turn % 5)
            batch = contender.batch(sizes, turn)
            spent = milliseconds(lambda contender=contender, batch=batch: contender.step(batch))
            if turn >= 3:
                speeds[name].append(sum(sizes) / spent * 1e3)
    result = {
        name: {"tokens_per_s": round(statistics.median(v)), "low": round(min(v)), "high": round(max(v))}
        for name, v in speeds.items()
    }
    counters = torch._dynamo.utils.counters
    return {**result, "graphs": dict(counters["stats"]), "breaks": dict(counters["graph_break"])}


def main() -> None:
    """Runs the checks, then the race."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path)
    words.add_argument("--quick", action="store_true", help="a small budget and few rounds, to try the script")
    given = words.parse_args()
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
        "torch": torch.__version__,
    }

    def tell(name: str, value: Any) -> None:
        found[name] = value
        print(name, json.dumps(value), flush=True)
        if given.out:
            given.out.write_text(json.dumps(found, indent=1))

    for preset in ("tiny", "base", "modern") if not given.quick else ("tiny",):
        tell(f"packed vs one by one, fp32, {preset}", exact(preset))
    if DEVICE == "cuda":
        for reach in (0, 64):
            tell(f"flash vs definition, reach {reach}", flash(reach))
    tell("training", race("tiny", 2_048, 2) if given.quick else race("base", 65_536, 15))


if __name__ == "__main__":
    main()
