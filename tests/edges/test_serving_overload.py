"""Row H3 of DEFECTS: more is asked than a model can answer; what is begun is finished, the rest is told so in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from filbert.serve.limits import Refused
from filbert.serve.queue import Batcher, FullError
from filbert.ship import onnx
from kit.served import Server, serving, until

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def server(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that must answer within five seconds."""
    folder = onnx.export(tiny_folder, tmp_path_factory.mktemp("overload") / "words")
    with serving(folder, "--deadline", "5") as found:
        yield found


class Slow:
    """Answers that wait until they may, and a list of what was asked together."""

    def __init__(self) -> None:
        self.begun, self.go, self.asked = threading.Event(), threading.Event(), list[list[Any]]()

    def __call__(self, kind: Any, texts: Any) -> list[Any]:
        self.begun.set()
        assert self.go.wait(30)
        self.asked.append(list(texts))
        return list(texts)


def test_H3_a_long_request_is_finished_before_the_next_and_short_ones_have_a_share() -> None:
    slow = Slow()
    batcher = Batcher(slow, budget=100)
    first = batcher.ask(["a"])
    assert slow.begun.wait(10)
    longs = [batcher.ask([f"{name}{number:08}" for number in range(60)]) for name in "ABC"]  # of five tokens each
    shorts = [batcher.ask([f"short{number:04}"]) for number in range(30)]
    slow.go.set()
    assert all(own.result(10) for own in (first, *longs, *shorts))
    assert batcher.close()
    long = [text[0] for texts in slow.asked for text in texts if text[0] in "ABC"]
    assert long == ["A"] * 60 + ["B"] * 60 + ["C"] * 60
    with_short = [at for at, texts in enumerate(slow.asked) if any(text.startswith("short") for text in texts)]
    assert with_short == [1, 2, 3]  # half of each go, ten of five tokens, until there are no more
    assert all(sum(text[0] in "ABC" for text in slow.asked[at]) == 10 for at in with_short)


def test_H3_kinds_take_turns_and_none_starves() -> None:
    slow = Slow()
    batcher = Batcher(slow, budget=100)
    first = batcher.ask(["a"])
    assert slow.begun.wait(10)
    giant = batcher.ask(["G" * 3_000, "G" * 3_000], "embed")  # each more than a go holds
    shorts = [batcher.ask([f"short{number:04}"]) for number in range(100)]
    slow.go.set()
    assert all(own.result(10) for own in (first, giant, *shorts))
    assert batcher.close()
    giants = [at for at, texts in enumerate(slow.asked) if texts[0][0] == "G"]
    assert giants[0] <= 2
    assert len(slow.asked) > giants[0] + 1  # it waited for its turn, and they for theirs


def test_H3_a_line_takes_no_more_than_can_be_answered_in_time() -> None:
    slow = Slow()
    batcher = Batcher(slow, budget=100, deadline_s=90)  # of which each line may hold 30 seconds
    batcher.speed.measured("predict", 1_000, 10.0)  # 100 tokens a second
    first = batcher.ask(["a"])
    assert slow.begun.wait(10)
    texts = ["x" * 9] * 200  # 1,000 tokens: ten seconds
    longs = [batcher.ask(texts) for _ in range(3)]
    with pytest.raises(FullError, match="will take 30 seconds") as full:
        batcher.ask(texts)
    assert full.value.retry_s == 10
    short = batcher.ask(["x" * 9] * 4)  # short ones have a line of their own
    with pytest.raises(Refused, match="about 100 seconds here, more than the 90") as never:
        batcher.ask(texts * 10)  # nor could it alone
    assert never.value.status == 413
    longs[1].cancel()
    longs[2].cancel()
    slow.go.set()
    assert all(own.result(10) for own in (first, longs[0], short))
    assert batcher.ask(texts).result(10) == texts  # it is free again
    assert batcher.close()


def test_H3_a_slow_moment_does_not_last() -> None:
    """However slow it seems, what comes first is tried; and what is measured then counts."""
    batcher = Batcher(lambda kind, texts: list(texts), budget=100, deadline_s=1)
    batcher.speed.measured("predict", 10, 0.001)
    for _ in range(50):
        batcher.speed.measured("predict", 100, 100.0)
    for _ in range(20):
        assert batcher.ask(["x" * 9] * 30).result(10) == ["x" * 9] * 30
    seconds = batcher.speed.seconds("predict", 100)
    assert seconds is not None
    assert seconds < 1
    assert batcher.close()


@pytest.mark.slow
def test_H3_what_waited_too_long_is_refused_and_never_begun() -> None:
    slow = Slow()
    batcher = Batcher(slow, budget=100, deadline_s=0.1)
    batcher.speed.measured("predict", 100, 1e-6)
    first = batcher.ask(["a"])
    assert slow.begun.wait(10)
    late = batcher.ask(["b"])
    late_by = time.monotonic() + 0.2
    until(lambda: time.monotonic() > late_by)
    slow.go.set()
    assert first.result(10) == ["a"]
    with pytest.raises(FullError, match="waited so long"):
        late.result(10)
    assert batcher.close()
    assert slow.asked == [["a"]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 8, 100])
def test_H3_overload_is_200_and_429_alone(server: Server, number: int) -> None:
    body = {"inputs": ["火车进站了" * 10] * number}
    with ThreadPoolExecutor(48) as pool:
        found = list(pool.map(lambda _: server.asked("/embed", body), range(150)))
    statuses = {own.status for own in found}
    assert 200 in statuses
    assert statuses <= {200, 429}
    assert all(int(own.headers["retry-after"]) >= 1 for own in found if own.status == 429)
