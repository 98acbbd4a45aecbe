"""The served model: a real server on a free port says what `predict` says, to many at once, or refuses plainly."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import filbert as fb
from filbert import run
from filbert.core.records import Example
from filbert.infer.predict import record
from filbert.serve.batcher import MOST_TEXTS, Batcher, FullError

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
ROWS = [("火车进站了", "铁路"), ("船在水上", "海洋"), ("云和风", "天空"), ("the train leaves", "铁路")]


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier."""
    data = [Example((text,), label, index) for index, (text, label) in enumerate(ROWS * 4)]
    out = tmp_path_factory.mktemp("serve") / "news"
    run.finetune("classify", data, tiny_folder, out, settings=["machine.threads=1"], epochs=2, quiet=True)
    return out


class Server:
    """`filbert serve` as its own process."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-m", "filbert", "serve", str(folder), "--port", "0"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        found = re.search(r":(\d+)/predict", self.said)
        assert found, self.said
        self.port = int(found.group(1))

    def asked(self, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """The status and the JSON of one request."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as link:
            link.request("GET" if body is None else "POST", path, body)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())

    def ended(self) -> int:
        """How it ended, by a signal that it got."""
        with self.process as process:
            return process.wait(30)

    def predicted(self, given: Any) -> tuple[int, Any]:
        """POST /predict."""
        return self.asked("/predict", json.dumps(given).encode())


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    found = Server(folder)
    yield found
    found.process.terminate()
    assert found.ended() in (0, -signal.SIGTERM)


def test_what_it_says_is_what_predict_says(server: Server, folder: Path) -> None:
    texts = [text for text, _ in ROWS] + ["", "火车" * 300, "🚂 emoji"]
    model = fb.load(folder)
    said = zip(texts, model.predict(texts), strict=True)
    wanted = [record("classify", Example((text,)), each) for text, each in said]
    status, found = server.predicted({"texts": texts})
    assert (status, found["model"]) == (200, "news")
    assert [p["label"] for p in found["predictions"]] == [w["label"] for w in wanted]
    for served, own in zip(found["predictions"], wanted, strict=True):
        assert served["score"] == pytest.approx(own["score"], abs=2e-5)
        assert (served["text"], served["coverage"]) == (own["text"], 1.0)
    assert server.predicted({"text": texts[0]})[1]["predictions"][0]["label"] == wanted[0]["label"]


def test_health_names_the_model(server: Server) -> None:
    status, found = server.asked("/health")
    assert status == 200
    assert (found["status"], found["model"], found["task"]) == ("ok", "news", "classify")


def test_many_at_once_each_get_their_own(server: Server) -> None:
    def one(number: int) -> bool:
        texts = [f"{number} {text}" for text, _ in ROWS][: 1 + number % 4]
        status, found = server.predicted({"texts": texts})
        return status == 200 and [p["text"] for p in found["predictions"]] == texts

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(64)))


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"no json", 422, "not JSON"),
        (b"[" * 100_000, 422, "not JSON"),
        (b"[]", 422, "an object with texts"),
        (b"{}", 422, "an object with texts"),
        (b'{"texts": []}', 422, "one text or more"),
        (b'{"texts": "one"}', 422, "must be a list"),
        (b'{"texts": ["a", 3]}', 422, "text 1 is of type int"),
        (b'{"texts": [["a", "b"]]}', 422, "must be a string"),
        (b'{"texts": ["' + b"x" * 2**21 + b'"]}', 413, "2,097,152 bytes"),
        (json.dumps({"texts": ["a"] * 1_001}).encode(), 413, "1,001 texts are more than 1,000"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(server: Server, body: bytes, status: int, told: str) -> None:
    found, said = server.asked("/predict", body)
    assert found == status
    assert told in said["error"]
    assert server.asked("/health")[0] == 200


def test_a_port_in_use_and_a_folder_without_a_head_are_refused(server: Server, folder: Path, tiny_folder: Path) -> None:
    for words, told in (
        ([str(folder), "--port", str(server.port)], "cannot listen there"),
        ([str(tiny_folder), "--port", "0"], "has no head for a task"),
    ):
        command = [sys.executable, "-m", "filbert", "serve", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_sigterm_answers_what_was_accepted(folder: Path) -> None:
    server = Server(folder)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.predicted, {"texts": ["火车" * 200] * 200})
        while not waiting.done() and server.asked("/health")[1]["waiting"]:
            pass
        server.process.send_signal(signal.SIGTERM)
        try:
            status, found = waiting.result()
            assert (status, len(found["predictions"])) == (200, 200)
        except (ConnectionError, http.client.HTTPException):
            pass  # the signal was faster than the request's first byte
    assert server.ended() in (0, -signal.SIGTERM)


# The queue by itself --------------------------------------------------------------------------------------------------


def test_what_waits_together_is_read_together() -> None:
    begun, go, sizes = threading.Event(), threading.Event(), []

    def answers(texts: Sequence[Any]) -> list[Any]:
        begun.set()
        go.wait(10)
        sizes.append(len(texts))
        return [f"<{text}>" for text in texts]

    batcher = Batcher(answers, most_waiting=400)
    first = batcher.ask(["0"])
    begun.wait(10)
    others = [batcher.ask([str(number)]) for number in range(1, 301)]
    others[4].cancel()
    go.set()
    batcher.close()
    assert first.result() == ["<0>"]
    assert all(own.result() == [f"<{number}>"] for number, own in enumerate(others, 1) if number != 5)
    assert sizes[0] == 1
    assert max(sizes) == MOST_TEXTS
    assert sum(sizes) == 300


def test_one_bad_request_spoils_no_other_and_a_full_queue_refuses() -> None:
    begun, go = threading.Event(), threading.Event()

    def answers(texts: Sequence[Any]) -> list[Any]:
        begun.set()
        go.wait(10)
        if "bad" in texts:
            raise ValueError("bad")
        return list(texts)

    batcher = Batcher(answers, most_waiting=3)
    first = batcher.ask(["a"])
    begun.wait(10)
    rest = [batcher.ask([word]) for word in ("b", "bad", "c")]
    with pytest.raises(FullError, match="3 requests wait already"):
        batcher.ask(["d"])
    go.set()
    batcher.close()
    assert [own.result() for own in (first, rest[0], rest[2])] == [["a"], ["b"], ["c"]]
    with pytest.raises(ValueError, match="bad"):
        rest[1].result()
    with pytest.raises(FullError, match="about to stop"):
        batcher.ask(["e"])
