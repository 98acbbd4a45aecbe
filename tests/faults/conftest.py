"""Scenes of scenes.py, each in a process of its own: a test worker has threads, and what has threads must not fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VICTIM = Path(__file__).with_name("victim.py")
Played = Callable[..., Any]


@pytest.fixture
def played(tmp_path: Path) -> Played:
    """Plays a scene with these arguments and gives back its facts; a broken promise fails the test."""

    def play(scene: str, *arguments: object, limit_s: float = 280) -> Any:
        words = [sys.executable, str(VICTIM), f"{scene}({json.dumps(arguments)[1:-1]})", str(tmp_path)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-6_000:]
        return json.loads(done.stdout.splitlines()[-1])

    return play
