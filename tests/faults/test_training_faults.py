"""Training rows of the faults table, each through the real command: one sentence, the right exit code, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Played = Callable[..., Any]
pytestmark = pytest.mark.slow


def test_T05_a_second_run_in_the_same_folder(played: Played) -> None:
    """A second run, of the same texts or of others, is refused and leaves the first one's files alone."""
    facts = played("second_run")
    assert len(facts["told"]) == 3
    for code, said in facts["told"]:
        assert code == 2
        assert f"another run is using this folder (process {facts['holder']} on " in said


def test_T07_T08_T09_T10_damaged_checkpoints(played: Played) -> None:
    told = played("damage")
    for name, reason in (
        ("truncated", "tensors.safetensors has "),
        ("flipped", "tensors.safetensors does not have the hash"),
        ("state", "state.json does not have the hash"),
        ("torn", "manifest.json is missing"),
    ):
        assert len(told[name]) == 1
        assert f"step-00000023: {reason}" in told[name][0]
        assert told[name][0].endswith("set aside as step-00000023.damaged-1.")
    code, said = told["all"]
    assert code == 2
    assert "none of the checkpoints here is whole" in said


def test_T12_T13_a_full_and_a_read_only_disk(played: Played) -> None:
    facts = played("no_room")
    code, said, left = facts["full"]
    assert code == 1
    assert "the checkpoint of step 10 needs " in said
    assert "No space left on device" in said
    assert left == ["step-00000007"]
    code, said, has_begun = facts["locked"]
    assert (code, has_begun) == (2, False)
    assert "checkpoints cannot be written here (Read-only file system)" in said


@pytest.mark.parametrize(("kind", "seen"), [("loss", "the loss is nan"), ("gradient", "the gradient's norm inf")])
def test_T14_T15_nan_loss_and_inf_gradient(played: Played, kind: str, seen: str) -> None:
    """A step is skipped, counted and its batch named; three in a row end the run, with the weights as before."""
    facts = played("not_numbers", kind)
    assert [each.split(" (")[0] for each in facts["skipped"]] == ["step 5", "step 8", "step 9"]
    assert all(seen in each and "examples " in each for each in facts["skipped"])
    assert facts["ends"].startswith("filbert: 3 steps in a row had no finite gradient, the last at step 17 (epoch 0, ")


def test_T16_a_loader_worker_is_killed(played: Played) -> None:
    facts = played("worker_killed")
    assert facts["code"] == 1
    assert facts["seconds"] <= 5
    assert facts["said"].startswith("filbert: a loader worker died")


def test_T17_a_loader_worker_hangs(played: Played) -> None:
    facts = played("worker_hangs")
    assert facts["code"] == 1
    assert facts["said"].startswith("filbert: loader worker 2 of 2 gave nothing for 2 s while it built batch 9 from ")


def test_T18_out_of_memory(played: Played) -> None:
    """The batch goes in more parts, bit for bit as if it always had; where it cannot, the sentence says how much."""
    facts = played("memory")
    assert facts["told"] == ["out of memory: a step's 256 tokens now go in 2 parts."]
    assert facts["apart"] < 1e-4  # of the way that training goes: ROUNDINGS in test_ranks.py
    assert facts["code"] == 1
    assert "out of memory at step 15 with 64 tokens at a time and texts of up to 48 tokens" in facts["ends"]


def test_T18_out_of_the_systems_memory(played: Played) -> None:
    facts = played("real_memory")
    assert facts["parts"] >= 2
    assert facts["told"][0] == "out of memory: a step's 8,192 tokens now go in 2 parts."


def test_T22_another_recipe_vocabulary_or_corpus(played: Played) -> None:
    told = played("changes")
    for name, what in (
        ("rate", "train.learning_rate (0.003, now 0.0001)"),
        ("width", "model.width (32, now 64)"),
        ("vocabulary", "another vocabulary"),
        ("masking", 'task.masking ("whole-word", now "token")'),
        ("corpus", "another corpus"),
    ):
        code, said = told[name]
        assert code == 2
        assert what in said
        assert "--force" in said
    assert told["not resumed"][0] == 2
    assert "holds a run that came to step 14; go on with --resume" in told["not resumed"][1]
    assert told["moved"][0] == 0
