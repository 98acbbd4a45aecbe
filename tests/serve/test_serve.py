"""The served model: a real server on a free port says what `predict` says, to many at once, or refuses plainly."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import filbert as fb
from filbert.core.records import Example
from filbert.models import bert
from filbert.run.finetune import finetune
from filbert.serve.look_queue import LookQueue
from filbert.serve.protocols import own as own_protocol
from filbert.serve.queue import Batcher, FullError
from kit.folders import examples_of
from kit.served import Server, serving, until

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
ROWS = [("火车进站了", "铁路"), ("船在水上", "海洋"), ("云和风", "天空"), ("the train leaves", "铁路")]


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier."""
    data = examples_of(ROWS * 4)
    out = tmp_path_factory.mktemp("serve") / "news"
    finetune("classify", data, tiny_folder, out, settings=["machine.threads=1"], epochs=2, quiet=True)
    return out


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder, torch=True) as found:
        yield found


@pytest.mark.slow
def test_what_it_says_is_what_predict_says(server: Server, folder: Path) -> None:
    texts = [text for text, _ in ROWS] + ["火车" * 300, "🚂 emoji", " "]
    model = fb.load(folder)
    said = zip(texts, model.predict(texts), strict=True)
    wanted = [model.reader().record(Example((text,)), each) for text, each in said]
    found = server.asked("/predict", {"texts": texts})
    assert (found.status, found.json["model"]) == (200, "news")
    assert [p["label"] for p in found.json["predictions"]] == [w["label"] for w in wanted]
    for served, own in zip(found.json["predictions"], wanted, strict=True):
        assert served["score"] == pytest.approx(own["score"], abs=2e-5)
        assert (served["text"], served["coverage"]) == (own["text"], 1.0)
    one = server.asked("/models/news/predict", {"text": texts[0]}).json["predictions"]
    assert one[0]["label"] == wanted[0]["label"]


@pytest.mark.slow
def test_health_names_the_model(server: Server) -> None:
    found = server.asked("/health").json
    assert (found["status"], found["model"], found["task"]) == ("ok", "news", "classify")


def test_many_at_once_each_get_their_own(server: Server) -> None:
    def one(number: int) -> bool:
        texts = [f"{number} {text}" for text, _ in ROWS][: 1 + number % 4]
        found = server.asked("/predict", {"texts": texts})
        return found.status == 200 and [p["text"] for p in found.json["predictions"]] == texts

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(64)))


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"no json", 400, "not JSON"),
        ([], 422, "must be an object"),
        ({}, 422, "an object with texts"),
        ({"texts": ["a"], "text": "a"}, 422, "an object with texts"),
        ({"texts": ["a"], "inputs": "a"}, 422, "send one of them"),
        ({"texts": []}, 422, "one text or more"),
        ({"texts": "one"}, 422, "must be a list"),
        ({"texts": ["a", []]}, 422, "text 1 is an empty list"),
        ({"texts": ["a", 3]}, 422, "text 1 is of type int"),
        ({"texts": [["a", "b"]]}, 422, "must be a string"),
        ({"texts": ["a"], "model": "old"}, 404, "there is no model of that name; there is news"),
        ({"texts": ["a"] * 1_001}, 413, "1,001 texts are more than 1,000"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(server: Server, body: Any, status: int, told: str) -> None:
    found = server.asked("/predict", body)
    assert found.status == status
    assert told in found.json["error"]


def test_a_look_inside_is_what_the_page_asks_for(server: Server) -> None:
    asked = {"texts": ["火车<b>进站"], "layers": [1], "explain": {"method": "gradient-x-input", "target": "铁路"}}
    found = server.asked("/look", asked)
    assert found.status == 200, found.raw
    assert found.json["windows"][0]["attention"][0]["layers"] == [1]
    assert [own["method"] for own in found.json["explanations"]] == ["gradient-x-input"]
    for wrong in ({"texts": []}, {"texts": ["a"], "layers": ["0"]}, {"texts": ["a"], "explain": {"method": 3}}):
        assert server.asked("/look", wrong).status == 422


@pytest.mark.slow
def test_a_port_in_use_and_a_folder_without_a_head_are_refused(server: Server, folder: Path, tiny_folder: Path) -> None:
    for words, told in (
        ([str(folder), "--port", str(server.port)], "cannot listen there"),
        ([str(tiny_folder), "--port", "0", "--task", "pair"], "has no head for pair"),
        ([str(folder / "none"), "--port", "0"], "none"),
    ):
        command = [sys.executable, "-m", "filbert", "serve", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_sigterm_answers_what_was_accepted(folder: Path) -> None:
    server = Server(folder, torch=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.asked, "/predict", {"texts": ["火车" * 200] * 200})
        until(lambda: server.metric("filbert_goes_total") > 0)
        server.process.send_signal(signal.SIGTERM)
        found = waiting.result()
    assert (found.status, len(found.json["predictions"])) == (200, 200)
    assert server.ended(None) == 0


# The queue by itself --------------------------------------------------------------------------------------------------


class Slow:
    """Answers that wait until they may."""

    def __init__(self) -> None:
        self.begun, self.go, self.asked = threading.Event(), threading.Event(), list[list[Any]]()

    def __call__(self, kind: Any, texts: Sequence[Any]) -> list[Any]:
        self.begun.set()
        self.go.wait(10)
        self.asked.append(list(texts))
        if "bad" in texts:
            raise ValueError("bad")
        return [f"<{kind} {text}>" for text in texts]


def test_what_waits_together_is_read_together() -> None:
    slow = Slow()
    batcher = Batcher(slow, most_waiting=400, budget=600)  # a text of one character counts as two tokens
    first = batcher.ask(["0"])
    slow.begun.wait(10)
    others = [batcher.ask([str(number % 10)]) for number in range(1, 311)]
    others[4].cancel()
    slow.go.set()
    batcher.close()
    assert first.result() == ["<predict 0>"]
    assert all(own.result() == [f"<predict {at % 10}>"] for at, own in enumerate(others, 1) if at != 5)
    assert [len(texts) for texts in slow.asked] == [1, 300, 9]
    assert (batcher.num_dropped, batcher.num_texts, batcher.num_batches) == (1, 310, 3)


def test_a_long_request_lets_others_through_and_comes_whole() -> None:
    slow = Slow()
    batcher = Batcher(slow, budget=100)
    long = batcher.ask([f"{number:09}" for number in range(60)])  # of five tokens each
    slow.begun.wait(10)
    short = batcher.ask(["x"])
    other = batcher.ask(["y"], "embed")
    slow.go.set()
    assert long.result(10) == [f"<predict {number:09}>" for number in range(60)]
    assert (short.result(10), other.result(10)) == (["<predict x>"], ["<embed y>"])
    batcher.close()
    lengths = [len(texts) for texts in slow.asked]
    assert max(lengths) <= 21
    assert ["y"] in slow.asked  # one kind at a time
    at = next(index for index, texts in enumerate(slow.asked) if "x" in texts)
    assert at < len(slow.asked) - 1


def test_a_request_is_given_up_between_its_goes() -> None:
    slow = Slow()
    batcher = Batcher(slow, budget=100)
    long = batcher.ask(["123456789"] * 60)
    slow.begun.wait(10)
    assert long.cancel()
    slow.go.set()
    batcher.close()
    assert [len(texts) for texts in slow.asked] == [20]
    assert batcher.num_dropped == 1


@pytest.mark.slow
def test_one_bad_request_spoils_no_other_and_a_full_queue_refuses() -> None:
    slow = Slow()
    batcher = Batcher(slow, most_waiting=3)
    first = batcher.ask(["a"])
    slow.begun.wait(10)
    rest = [batcher.ask([word]) for word in ("b", "bad", "c")]
    assert batcher.is_full
    with pytest.raises(FullError, match="3 requests wait already"):
        batcher.ask(["d"])
    rest[2].cancel()
    last = batcher.ask(["e"])  # in the place of one that nobody waits for
    slow.go.set()
    batcher.close()
    assert [own.result() for own in (first, rest[0], last)] == [["<predict a>"], ["<predict b>"], ["<predict e>"]]
    with pytest.raises(ValueError, match="bad"):
        rest[1].result()
    with pytest.raises(FullError, match="about to stop"):
        batcher.ask(["f"])


@pytest.mark.slow
def test_several_threads_share_what_waits_and_a_job_is_alone() -> None:
    both = threading.Barrier(2, timeout=10)

    def answers(kind: Any, texts: Sequence[Any]) -> list[Any]:
        both.wait()  # neither goes on before the other has something
        return list(texts)

    batcher = Batcher(answers, threads=2)
    text = "x" * 900
    found = [batcher.ask([text]) for _ in range(2)]
    assert [own.result(10) for own in found] == [[text], [text]]
    lane = LookQueue(10, 10)
    assert lane.ask(lambda: "looked").result(10) == "looked"
    with pytest.raises(ZeroDivisionError):
        lane.ask(lambda: 1 / 0).result(10)
    assert lane.close()
    assert batcher.is_alive
    assert batcher.close()
    assert not batcher.is_alive


def test_a_look_into_a_pruned_model_is_estimated_by_its_heads() -> None:
    """Its config counts the heads of each layer, so that no one number says how many maps there are."""
    config = bert.Config(vocab_size=100, width=32, layers=2, heads=(4, 3, 1), inner=64, max_length=64)
    limits = SimpleNamespace(answer_bytes=1 << 30)
    served: Any = SimpleNamespace(model=SimpleNamespace(config=config), limits=limits, num_tokens=lambda _: 10)
    cells = 10 * 10 * 4 * 2  # maps of four heads, at most, in two layers
    wanted = int(cells * own_protocol.CELL_BYTES) + 10 * own_protocol.TOKEN_BYTES + len("天气")
    assert own_protocol.num_bytes(served, own_protocol.Look(["天气"], [0, 1], [])) == wanted
