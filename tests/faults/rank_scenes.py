"""More scenes, of several ranks: how far apart their weights are, and what they do when one of them is missing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import victim as v
from scenes import scene, whole


@scene
def worlds(folder: Path, *worlds: int) -> dict[str, Any]:
    """The same run without dropout on one rank and on several, of two parts each from three on: how far apart."""
    settings = {"model__dropout": 0.0, "train__learning_rate": 1e-3, "train__steps": 50}
    alone = whole(folder, "alone", None, **settings)
    apart = {}
    for world in worlds:
        out = folder / f"world-{world}"
        words = v.arguments(folder, out, machine__parts=1 if world < 3 else 2, **settings)
        codes = v.together(v.ranks(words, world))
        assert codes == [0] * world, v.said(out, "0")
        apart[world] = v.apart(alone, out)
    return apart


@scene
def mistaken(folder: Path) -> dict[str, Any]:
    """A run whose loss is a tenth too small in one step, beside the same run without that."""
    settings = {"model__dropout": 0.0, "train__learning_rate": 1e-3}
    right = whole(folder, "right", None, **settings)
    return {"apart": v.apart(right, whole(folder, "wrong", v.poisoned([20], 0.9), **settings))}


@scene
def fewer_ranks(folder: Path) -> dict[str, Any]:
    """Two ranks, then one: the same items in the same order, and a word on the bits."""
    settings = {"model__dropout": 0.0, "train__learning_rate": 1e-3}
    reference = whole(folder, "alone", v.recording(folder / "alone.jsonl"), **settings)
    out, record = folder / "out", folder / "out.jsonl"
    words = v.arguments(folder, out, **settings)
    mishap = v.both(v.recording(record), v.at_step(14, v.signalled(signal.SIGTERM)))
    assert v.together(v.ranks(words, 2, {0: mishap})) == [143, 143], v.said(out, "0")
    assert v.ended(v.forked([*words, "--resume"], v.recording(record))) == 0, v.said(out)
    assert record.read_text() == (folder / "alone.jsonl").read_text()
    return {"told": v.events(out, "changed"), "apart": v.apart(reference, out)}


@scene
def little_for_each(folder: Path) -> dict[str, Any]:
    """Batches of so few items that a rank has none: it keeps the others company, and nothing changes."""
    settings = {"model__dropout": 0.0, "train__learning_rate": 1e-3, "train__batch_tokens": 60, "train__steps": 20,
                "train__evaluate_every": 5}  # fmt: skip
    alone, out = whole(folder, "alone", None, **settings), folder / "three"
    assert v.together(v.ranks(v.arguments(folder, out, **settings), 3)) == [0, 0, 0], v.said(out, "0")
    return {"apart": v.apart(alone, out)}


@scene
def shards(folder: Path) -> dict[str, Any]:
    """Two ranks with a share of the weights each, against two with a copy; and one after the other."""
    settings = {"train__steps": 10, "train__checkpoint_every": 4, "train__evaluate_every": 5}
    runs = {}
    for kind in ("copy", "shard"):
        runs[kind] = folder / kind
        words = v.arguments(folder, runs[kind], machine__sharding=kind, **settings)
        assert v.together(v.ranks(words, 2)) == [0, 0], v.said(runs[kind], "0")
    mixed = folder / "mixed"
    words = v.arguments(folder, mixed, machine__sharding="shard", **settings)
    mishap = v.at_step(6, v.signalled(signal.SIGTERM))
    assert v.together(v.ranks(words, 2, {0: mishap})) == [143, 143], v.said(mixed, "0")
    assert v.together(v.ranks([*v.arguments(folder, mixed, **settings), "--resume"], 2)) == [0, 0], v.said(mixed, "0")
    skips = folder / "skips"
    words = v.arguments(folder, skips, machine__sharding="shard", **settings)
    plant = v.poisoned([3, 4])
    assert v.together(v.ranks(words, 2, {0: plant, 1: plant})) == [0, 0], v.said(skips, "0")
    counts = {float(tensor) for name, tensor in v.weights(skips).items() if name.startswith("optimiser/step/")}
    out = folder / "muon"
    words = v.arguments(folder, out, machine__sharding="shard", train__optimiser="muon")
    codes = v.together(v.ranks(words, 2))
    return {
        "apart": v.apart(runs["copy"], runs["shard"]),
        "moments apart": v.apart(runs["copy"], runs["shard"], "optimiser/"),
        "held apart": measured_apart(runs["copy"], runs["shard"]),
        "mixed apart": v.apart(runs["copy"], mixed), "told": v.events(mixed, "changed"),
        "skipped": [v.state(skips)["skipped"], sorted(counts)],
        "muon": [codes, v.said(out, "0").splitlines()[-1]],
    }  # fmt: skip


def measured_apart(one: Path, two: Path) -> float:
    """The largest difference between two runs' evaluations, as a share of the number that was measured."""
    pairs = zip(v.measured(one), v.measured(two), strict=True)
    numbers = ((float.fromhex(a[1][name]), float.fromhex(b[1][name])) for a, b in pairs for name in a[1])
    return max(abs(first - second) / max(abs(first), 1.0) for first, second in numbers)


@scene
def idle_weights(folder: Path) -> dict[str, Any]:
    """A model with more heads than its further training needs, on two ranks."""
    start = whole(folder, "start", None, train__steps=8)
    runs = {world: folder / f"world-{world}" for world in (1, 2)}
    for world, out in runs.items():
        words = v.arguments(folder, out, "--objective", "mlm", "--model", str(start / "model"), train__steps=8)
        fixed = ("--preset", "--vocab", *(word for word in words if word.startswith("model.")))
        for word in fixed:
            at = words.index(word) - word.startswith("model.")
            del words[at : at + 2]
        assert v.together(v.ranks(words, 2) if world == 2 else [v.forked(words)]) == [0] * world, v.said(out, "0")
    return {"nsp": float((v.weights(runs[1])["model/nsp.weight"] - v.weights(runs[2])["model/nsp.weight"]).abs().max())}


@scene
def silence(folder: Path) -> dict[str, Any]:
    """A rank of three dies and nobody tells the others: they notice, say so and end."""
    taken = []
    for attempt in range(6):
        out, victim = folder / str(attempt), attempt % 3
        mishap = v.at_step(3, v.suicide, ("_moved", "_backward")[attempt % 2])
        children = v.ranks(v.arguments(folder, out), 3, {victim: mishap})
        assert v.ended(children[victim]) == -9
        with v.timed() as seconds:
            codes = [v.ended(child) for rank, child in enumerate(children) if rank != victim]
        assert codes == [1, 1], codes
        for rank in {0, 1, 2} - {victim}:
            assert v.said(out, str(rank)).splitlines()[-1].startswith("filbert: another rank has ended"), rank
        taken += seconds
    return {"seconds": max(taken)}
