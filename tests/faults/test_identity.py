"""Killed or stopped at any moment and resumed, a run takes the very steps of one that was not, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Played = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("workers", "attempts", "seed"), [(0, 5, 1), (0, 5, 2), (1, 4, 3), (4, 4, 4)])
def test_T02_T19_killed_at_random_points_and_resumed(played: Played, workers: int, attempts: int, seed: int) -> None:
    """Half of the kills strike at a random call in a step or a save, half at a random moment; some runs die twice."""
    points = played("kills", workers, attempts, seed)["points"]
    assert sum("-9" in point for point in points) >= attempts


def test_T01_the_command_in_new_processes(played: Played) -> None:
    played("fresh")


def test_the_number_of_loader_workers_changes_nothing(played: Played) -> None:
    played("workers")


def test_T06_signals_save_and_the_run_goes_on_exactly(played: Played) -> None:
    told = played("signals")
    assert told == {
        "15 10": "filbert: stopped by SIGTERM: step 10 is saved; go on with --resume.",
        "2 13": "filbert: stopped by SIGINT: step 13 is saved; go on with --resume.",
        "15 40": "filbert: stopped by SIGTERM: step 40 is saved; go on with --resume.",
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_T20_at_the_end_of_an_epoch_no_item_is_skipped_or_repeated(played: Played, workers: int) -> None:
    assert played("epoch_end", workers)["items"] > 400


def test_an_early_stop_is_kept_over_a_resume(played: Played) -> None:
    facts = played("early")
    assert facts["step"] == 20
    assert facts["told"] == ["stopped early: no better evaluation in the last 1."]
