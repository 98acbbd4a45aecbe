"""Scenes of scenes.py, each in a process of its own: a test worker has threads, and what has threads must not fork."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

VICTIM = Path(__file__).with_name("victim.py")
Played = Callable[..., Any]


@pytest.fixture(scope="session")
def stage() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported everything, once for all scenes, and plays each in a fork of itself."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    with subprocess.Popen(
        [sys.executable, str(VICTIM), "stage"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env=environment,
    ) as process:  # fmt: skip
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@pytest.fixture
def played(stage: subprocess.Popen[str], tmp_path: Path) -> Played:
    """Plays a scene with these arguments and gives back its facts; a broken promise fails the test."""

    def play(scene: str, *arguments: object, limit_s: float = 900) -> Any:
        assert stage.stdin is not None
        assert stage.stdout is not None
        asked = {"scene": f"{scene}({json.dumps(arguments)[1:-1]})", "folder": str(tmp_path)}
        stage.stdin.write(json.dumps(asked) + "\n")
        child = int(stage.stdout.readline())
        if not select.select([stage.stdout], [], [], limit_s)[0]:
            os.killpg(child, signal.SIGKILL)
        code = int(stage.stdout.readline())
        assert code == 0, (code, (tmp_path / "errors").read_text()[-6_000:])
        return json.loads((tmp_path / "facts").read_text().splitlines()[-1])

    return play
