"""The serving rows of DEFECTS, H1 to H12 and F11: real servers, asked as somebody who means them no good would."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import os
import re
import signal
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.run.finetune import finetune
from filbert.serve import keys
from filbert.serve.guard import is_allowed
from filbert.serve.limits import Limits, Refused, as_json, as_json_in_pieces
from filbert.serve.look_queue import LookQueue
from filbert.serve.memory import Memory, Reservation
from filbert.serve.metrics import Tally
from filbert.serve.protocols import own as own_protocol
from filbert.serve.queue import Batcher, FullError
from filbert.serve.routes import Routes
from filbert.serve.shelf import Shelf
from filbert.ship import onnx
from kit.folders import examples_of
from kit.served import Server, received, request_bytes, serving, until

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxruntime")
ROWS = [("火车进站了", "铁路"), ("船在水上", "海洋"), ("云和风", "天空"), ("the train leaves", "铁路")]
SITE = "https://example.org"


@pytest.fixture(scope="module")
def folders(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier as torch reads it and as it is shipped, and a shipped model that fills blanks."""
    place = tmp_path_factory.mktemp("serving")
    data = examples_of(ROWS * 4)
    finetune("classify", data, tiny_folder, place / "run", settings=["machine.threads=1"], epochs=1, quiet=True)
    shipped = {"news": onnx.export(place / "run", place / "news"), "words": onnx.export(tiny_folder, place / "words")}
    return {"run": place / "run", **shipped}


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    """Two models without torch, set up by the environment alone."""
    env = {"FILBERT_PATIENCE": "1", "FILBERT_LOG": "requests", "FILBERT_MAX_TEXTS": "900", "FILBERT_QUEUE": "64"}
    with serving(folders["news"], folders["words"], **env) as found:
        yield found


@pytest.fixture(scope="module")
def looked(folders: dict[str, Path]) -> Iterator[Server]:
    """A model with torch, into which one may look for a second."""
    with serving(folders["run"], "--look-seconds", "1", "--deadline", "20", torch=True) as found:
        yield found


@pytest.fixture(scope="module")
def tight(folders: dict[str, Path]) -> Iterator[Server]:
    """Little is allowed, and nobody may look."""
    words = ("--max-answer", "20000", "--max-in-work", "200000", "--patience", "20", "--deadline", "5",
             "--no-look")  # fmt: skip
    with serving(folders["words"], *words) as found:
        yield found


def resident_bytes(server: Server) -> int:
    return int(Path(f"/proc/{server.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


# H1: the work of a request is bounded before it is begun --------------------------------------------------------------


@pytest.mark.slow
def test_H1_an_answer_of_a_gigabyte_is_refused_before_the_work(server: Server) -> None:
    before = resident_bytes(server)
    attack = {"inputs": "[MASK]" * 400, "parameters": {"top_k": 1_000}}
    found = server.asked("/models/words", attack)
    assert found.status == 413
    assert "the answer would have about 992," in found.json["error"]  # millions of bytes
    assert resident_bytes(server) < before + 2**26
    small = server.asked("/models/words", {"inputs": "火[MASK]进站", "parameters": {"top_k": 1_000}})
    assert (small.status, len(small.json)) == (200, 1_000)
    many = server.asked("/models/words", {"inputs": "[MASK]" * 400, "parameters": {"top_k": 2}})
    assert (many.status, len(many.json)) == (200, 400)


@pytest.mark.slow
def test_H1_its_sibling_a_list_of_vectors_has_a_limit_too(tight: Server) -> None:
    assert tight.asked("/embed", {"inputs": ["云"] * 5}).status == 200
    found = tight.asked("/embed", {"inputs": ["云"] * 50})
    assert (found.status, "more than 20,000" in found.json["error"]) == (413, True)


def test_H1_an_answer_in_pieces_is_the_same_json() -> None:
    import numpy as np

    rows = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    value = {"a": [{"b": [1.5, None, "云\n"]}, {}], "rows": list(rows), "c": [], "d": "x", "e": [[[{"f": True}]]]}
    assert json.loads(as_json_in_pieces(value)) == json.loads(as_json(value))
    assert json.loads(as_json(value))["rows"] == rows.tolist()
    assert as_json_in_pieces(list(rows)) == as_json(list(rows))


# H2: a look inside has a lane, a budget and an end --------------------------------------------------------------------

LOOK = {"texts": ["火车进站了船在水上" * 1_500], "explain": {"method": "integrated-gradients"}}


@pytest.mark.slow
def test_H2_a_look_ends_with_its_budget_and_stops_nobody(looked: Server) -> None:
    with ThreadPoolExecutor(12) as pool:
        begun = time.monotonic()
        looks = [pool.submit(looked.asked, "/look", LOOK) for _ in range(8)]
        until(lambda: any(own.done() for own in looks))  # the first are refused at once: only so many may wait
        said = [looked.asked("/predict", {"texts": ["云"]}) for _ in range(5)]
        found = [own.result() for own in looks]
    assert [own.status for own in said] == [200] * 5
    assert {own.status for own in found} == {429, 504}
    assert all(own.headers["retry-after"] for own in found if own.status == 429)
    assert "more than the 1 seconds" in next(own.json["error"] for own in found if own.status == 504)
    assert time.monotonic() - begun < 60  # they would take hours
    # A 504 frees the lane: what is small is looked at as ever.
    small = looked.asked("/look", {"texts": ["火车"], "explain": {"method": "gradient-x-input"}})
    assert (small.status, len(small.json["explanations"])) == (200, 1)


@pytest.mark.slow
def test_H2_a_page_that_nobody_could_show_is_refused_before_the_work(looked: Server) -> None:
    found = looked.asked("/look", {"texts": ["火车" * 50], "layers": [0, 1] * 500})
    assert found.status == 200  # layers count once
    assert looked.asked("/look", {"texts": ["火车"], "layers": [*range(100_000)]}).status == 422
    base = SimpleNamespace(config=SimpleNamespace(max_length=512, heads=12))
    served: Any = SimpleNamespace(model=base, num_tokens=lambda texts: sum(map(len, texts)))
    own_protocol._check_room(served, own_protocol.Look(["x" * 512], [0], []), 60_000_000)
    with pytest.raises(Refused, match="fewer layers, or at a shorter text") as refused:
        own_protocol._check_room(served, own_protocol.Look(["x" * 20_000], [0], []), 60_000_000)
    assert refused.value.status == 413


@pytest.mark.slow
def test_H2_sigterm_ends_a_look(folders: dict[str, Path]) -> None:
    server = Server(folders["run"], "--deadline", "2", torch=True)
    with server.connected(request_bytes("/look", json.dumps(LOOK).encode())):
        assert server.asked("/predict", {"texts": ["云"]}).status == 200  # the look, which came before, has begun
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert server.ended(None) == 0
    assert time.monotonic() - begun < 2 + 5 + 5  # and some for a busy machine; it was there 22 minutes


@pytest.mark.slow
def test_H2_sigterm_ends_what_never_returns(folders: dict[str, Path]) -> None:
    """Not a look but the server's own loop is in a call that cannot be stopped: it ends all the same, and says so."""
    stuck = "import time; from filbert.serve.protocols import own; own.look_of = lambda *_: time.sleep(3600)"
    start = f"{stuck}; from filbert.cli.main import main; main()"
    server = Server(folders["news"], "--deadline", "1", program=start, FILBERT_RUNTIME="onnx")
    with server.connected(request_bytes("/look", json.dumps(LOOK).encode())) as link:
        link.settimeout(1)
        with pytest.raises(TimeoutError):
            link.recv(1)
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert server.ended(None) == 1
    assert time.monotonic() - begun < 1 + 5 + 5
    assert "stopped late" in server.said()


@pytest.mark.slow
def test_H2_a_lane_whose_job_never_returns_can_be_left() -> None:
    begun, go = threading.Event(), threading.Event()
    lane = LookQueue(0.2, 0.2)
    found = lane.ask(lambda: begun.set() or go.wait(60))
    assert begun.wait(10)
    assert not lane.close(0)
    with pytest.raises(FullError, match="about to stop"):
        lane.ask(lambda: None)
    go.set()
    assert found.result(10) is True


@pytest.mark.slow
def test_H2_looks_can_be_switched_off(tight: Server) -> None:
    found = tight.asked("/look", {"texts": ["火车"]})
    assert (found.status, "--no-look" in found.json["error"]) == (403, True)


# H4, H5: keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_H4_a_page_of_an_allowed_site_can_ask_with_a_key(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(hashlib.sha256(b"secret").hexdigest(), encoding="utf-8")
    with serving(folders["news"], "--keys", tmp_path / "keys", "--cors", SITE, wait=False) as server:
        server.until_ready()
        asks = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
        preflight = server.asked("/predict", method="OPTIONS", Origin=SITE, **asks)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == SITE
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        other = server.asked("/predict", method="OPTIONS", Origin="https://else.org", **asks)
        assert "access-control-allow-origin" not in other.headers
        body = {"texts": ["云"]}
        refused = server.asked("/predict", body, Origin=SITE)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, SITE)
        big = server.asked("/predict", b"x" * 3_000_000, Origin=SITE, Authorization="Bearer secret")
        assert (big.status, big.headers["access-control-allow-origin"]) == (413, SITE)
        found = server.asked("/predict", body, Origin=SITE, Authorization="Bearer secret")
        assert (found.status, found.headers["access-control-allow-origin"]) == (200, SITE)
        assert "X-Request-Id" in found.headers["access-control-expose-headers"]


@pytest.mark.parametrize("nothing", [b"", b"\n", b"\r\n"])
def test_H5_the_hash_of_nothing_is_no_key(nothing: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "keys"
    listed.write_text(f"# mine\n{hashlib.sha256(nothing).hexdigest()}  -\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"keys line 2: is the hash of nothing, which would let everybody in"):
        keys.hashes(listed)
    monkeypatch.setenv("FILBERT_KEYS", hashlib.sha256(nothing).hexdigest().upper())
    with pytest.raises(InputError, match="FILBERT_KEYS, 1: is the hash of nothing"):
        keys.hashes(None)


def test_H5_a_missing_key_is_never_compared() -> None:
    everybody = (hashlib.sha256(b"").hexdigest(),)
    headers: tuple[dict[bytes, bytes], ...] = (
        {}, {b"authorization": b"Bearer "}, {b"authorization": b"Basic "}, {b"authorization": b"Basic !!"},
        {b"authorization": b"Basic dTo="}, {b"x-api-key": b""}, {b"authorization": b"Digest x"},
    )  # fmt: skip
    assert not any(keys.fits(own, everybody) for own in headers)


def test_I2_line_ends_of_a_list_of_keys_are_line_ends(tmp_path: Path) -> None:
    own = hashlib.sha256(b"a").hexdigest()
    text = f"\ufeff{own} of A\u2028and B\u0085\r\n{own} C\x0cD\n"
    (tmp_path / "keys").write_bytes(text.encode())
    assert keys.hashes(tmp_path / "keys") == (own, own)


# H6: a slow reader is let go ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_H6_a_client_that_does_not_read_is_let_go(server: Server) -> None:
    body = json.dumps({"inputs": ["云"] * 900, "model": "words"}).encode()  # an answer of 600 kB
    links = []
    for _ in range(4):
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # so that little of it fits on the way
        link.connect(("127.0.0.1", server.port))
        link.sendall(request_bytes("/embed", body))
        links.append(link)
    until(lambda: server.metric("filbert_requests_total", path="/embed", status="499") >= 4, 60)
    for link in links:
        with link:
            assert not received(link).endswith(b"]]")  # it was cut off
    # One that reads slowly but steadily gets all of it.
    with server.connected(request_bytes("/embed", body, "Connection: close")) as link:
        found = bytearray()
        while chunk := link.recv(20_000):
            found += chunk
            time.sleep(0.01)
    assert len(json.loads(found.partition(b"\r\n\r\n")[2])) == 900


# H7: half of a character ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/models/news/predict", '{"texts": ["云", "火\\ud800车"]}'),
        ("/models/news/predict", '{"inputs": [["\\uDFFF"]]}'),
        ("/embed", '{"model": "words", "inputs": "\\ude00\\ud83d"}'),
        ("/v1/embeddings", '{"model": "words", "input": ["\\ud800"]}'),
        ("/models/words", '{"inputs": "\\ud800[MASK]"}'),
        ("/rerank", '{"model": "words", "query": "\\ud800", "texts": ["a"]}'),
        ("/similarity", '{"model": "words", "inputs": {"source_sentence": "a", "sentences": ["\\udabc"]}}'),
        ("/predict", '{"model": "\\ud800", "texts": ["a"]}'),
        ("/predict", '{"\\ud800": 1}'),
    ],
)
def test_H7_half_of_a_character_is_refused_in_every_protocol(server: Server, path: str, body: str) -> None:
    found = server.asked(path, body.encode())
    assert found.status == 422
    assert "half of a character" in json.dumps(found.json)
    found.raw.decode("utf-8")


def test_H7_whole_characters_pass_and_bytes_that_are_none_do_not(server: Server) -> None:
    pair = server.asked("/models/news/predict", b'{"texts": ["\\ud83d\\ude82"]}')
    assert (pair.status, pair.json["predictions"][0]["text"]) == (200, "🚂")
    written = server.asked("/models/news/predict", b'{"texts": ["\\\\ud800"]}')  # six letters
    assert (written.status, written.json["predictions"][0]["text"]) == (200, "\\ud800")
    assert server.asked("/models/news/predict", b'{"texts": ["\xed\xa0\x80"]}').status == 400


# H8, H9: what HTTP allows ---------------------------------------------------------------------------------------------


def test_H8_head_is_get_without_a_body(server: Server) -> None:
    for path in ("/live", "/health", "/ready", "/", "/models", "/v1/models", "/metrics", "/openapi.json"):
        found, full = server.asked(path, method="HEAD"), server.asked(path)
        assert (found.status, found.raw) == (200, b""), path
        if path not in ("/metrics",):
            assert found.headers["content-length"] == str(len(full.raw))
    assert server.asked("/nowhere", method="HEAD").status == 404
    assert server.asked("/predict", method="HEAD").status == 405
    # Its answer ends where it should: the connection can be asked again.
    head, last = b"/live HTTP/1.1\r\nHost: localhost\r\n", b"Connection: close\r\n\r\n"
    said = server.told(b"HEAD " + head + b"\r\nGET " + head + last)
    assert said.count(b"HTTP/1.1 200") == 2
    assert said.endswith(b'{"status": "ok"}')


def test_H8_absolute_targets_and_last_slashes(server: Server) -> None:
    host = f"localhost:{server.port}"
    said = server.told(f"GET http://{host}/live HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 200")
    said = server.told(f"GET http://evil.example/live HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 421")
    for path, body in (("/models/news/predict/", {"texts": ["云"]}), ("/models/", None), ("/models/news/", None)):
        assert server.asked(path, body).status == 200, path
    assert server.metric("filbert_requests_total", path="/models/{name}/predict", status="200") >= 1


def test_H8_every_path_that_clients_know(server: Server) -> None:
    found = server.asked("/v1/models/news")
    assert (found.status, found.json["id"], found.json["object"]) == (200, "news", "model")
    assert server.asked("/v1/models/other").status == 404
    assert len(server.asked("/models/words/embed", {"inputs": ["云", "风"]}).json) == 2
    assert len(server.asked("/models/words/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}).json)
    asked = {"query": "火车", "texts": ["船", "火车来了", "云"]}
    ranked = server.asked("/models/words/rerank", asked).json
    documents = {"model": "words", "query": "火车", "documents": ["船", {"text": "火车来了"}, "云"], "top_n": 2}
    found = server.asked("/v1/rerank", documents).json
    assert [own["index"] for own in found["results"]] == [own["index"] for own in ranked][:2]
    assert [own["relevance_score"] for own in found["results"]] == pytest.approx([o["score"] for o in ranked][:2])
    assert found["results"][0]["document"]["text"] in ("船", "火车来了", "云")
    for wrong in ({"query": "", "documents": ["a"]}, {"query": "a", "documents": []}, {"query": "a"}):
        assert server.asked("/v1/rerank", {"model": "words", **wrong}).status == 422


@pytest.mark.slow
def test_H9_compressed_bodies_are_read_within_the_limit(server: Server) -> None:
    body, path = json.dumps({"texts": ["火车进站了"] * 20}).encode(), "/models/news/predict"
    wanted = server.asked(path, body).json
    for name, packed in (
        ("gzip", gzip.compress(body)), ("GZIP", gzip.compress(body[:9]) + gzip.compress(body[9:])),
        ("deflate", zlib.compress(body)), ("identity", body),
    ):  # fmt: skip
        assert server.asked(path, packed, Content_Encoding=name).json == wanted
    bomb = gzip.compress(b'{"texts": ["' + b"x" * 50_000_000 + b'"]}')
    assert server.asked(path, bomb, Content_Encoding="gzip").status == 413
    for broken in (gzip.compress(body)[:-9], b"no gzip", gzip.compress(body) + b"more"):
        assert server.asked(path, broken, Content_Encoding="gzip").status == 400
    unknown = server.asked(path, body, Content_Encoding="br")
    assert (unknown.status, unknown.headers["accept-encoding"]) == (415, "gzip, deflate")


# H10, H11: by what name, with what number -----------------------------------------------------------------------------


def test_H10_a_page_cannot_ask_by_a_name_of_its_own(server: Server) -> None:
    for host, status in (
        ("localhost", 200), ("LOCALHOST:80", 200), ("127.0.0.1:8000", 200), ("[::1]:1", 200), ("evil.example", 421),
        ("127.0.0.1.evil.example", 421), ("localhost.evil.example:8000", 421), ("localhost@evil.example", 421),
        ("", 421),
    ):  # fmt: skip
        said = server.told(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert said.startswith(f"HTTP/1.1 {status}".encode()), host
    assert not is_allowed("a.example", ("example.org", "*.example.net"))
    assert is_allowed("a.example.net:99", ("example.org", "*.example.net"))
    assert is_allowed("EXAMPLE.org.", ("example.org",))
    assert is_allowed("anything at all", ("*",))


def test_H10_names_can_be_given(folders: dict[str, Path]) -> None:
    from filbert.cli.serve import _hosts

    assert "localhost" in _hosts((), "127.0.0.1")
    assert "127.0.0.7" in _hosts((), "127.0.0.7")
    assert _hosts((), "0.0.0.0") == _hosts((), "::") == ("*",)
    assert _hosts(("Models.Example.org",), "127.0.0.1") == ("models.example.org",)


def test_H11_every_answer_has_an_id(server: Server) -> None:
    given = server.asked("/nowhere", X_Request_Id="abc-123.4")
    assert (given.headers["x-request-id"], given.json["request_id"]) == ("abc-123.4", "abc-123.4")
    made = [server.asked("/live").headers["x-request-id"] for _ in range(2)]
    assert len(set(made)) == 2
    strange = server.asked("/live", X_Request_Id="two words\tand more")
    assert re.fullmatch("[0-9a-f]{32}", strange.headers["x-request-id"])
    failed = server.asked("/v1/embeddings", b"no", X_Request_Id="of-openai")
    assert failed.json["request_id"] == "of-openai"

    def logged() -> set[str]:
        lines = [json.loads(line) for line in server.said().splitlines() if line.startswith('{"time"')]
        return {line.get("id") for line in lines}

    until(lambda: {"abc-123.4", "of-openai", *made} <= logged())


def test_H11_histograms_of_each_model(server: Server) -> None:
    for texts in (["云"], ["云"] * 3, ["云"] * 30):
        assert server.asked("/models/words/embed", {"inputs": texts}).status == 200
    before = server.metric("filbert_queue_seconds_count", model="news")
    server.asked("/models/news/predict", {"texts": ["云"]})
    assert server.metric("filbert_queue_seconds_count", model="news") == before + 1
    for model in ("news", "words"):
        goes, texts = (server.metric(f"filbert_{name}_total", model=model) for name in ("goes", "texts"))
        assert server.metric("filbert_batch_texts_count", model=model) == goes
        assert server.metric("filbert_batch_texts_sum", model=model) == texts
        assert server.metric("filbert_batch_texts_bucket", model=model, le="+Inf") == goes
    assert server.metric("filbert_batch_texts_bucket", model="words", le="8") < server.metric(
        "filbert_batch_texts_count", model="words"
    )


def test_H11_every_option_comes_from_the_environment_too(server: Server) -> None:
    from filbert.cli.serve import command

    many = server.asked("/models/news/predict", {"texts": ["a"] * 901})  # FILBERT_MAX_TEXTS of the fixture
    assert "901 texts are more than 900" in many.json["error"]
    prefix = command.context_settings["auto_envvar_prefix"]
    assert prefix == "FILBERT"
    words = {
        "FILBERT_MODEL": "one=a two=b", "FILBERT_PORT": "0", "FILBERT_CORS": f"{SITE} https://b.org",
        "FILBERT_LOOK": "0", "FILBERT_KEYS_FILE": "none", "FILBERT_KEYS": "aa", "FILBERT_HOSTS": "a.org",
        "FILBERT_DRAIN": "2.5", "FILBERT_RUNTIME": "onnx",
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update(words)
    try:
        context = command.make_context("serve", [])
    finally:
        os.environ.clear()
        os.environ.update(before)
    found = context.params
    assert (found["model"], found["port"], found["cors"]) == (("one=a", "two=b"), 0, (SITE, "https://b.org"))
    assert (found["look"], found["keys"], found["hosts"]) == (False, "none", ("a.org",))
    assert (found["drain"], found["runtime"]) == (2.5, "onnx")


def test_H11_the_port_that_kubernetes_sets_is_none(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from filbert.cli.serve import command

    monkeypatch.setenv("FILBERT_PORT", "tcp://10.0.0.7:80")
    assert command.make_context("serve", ["builtin"]).params["port"] == 8000
    assert "passed over" in capsys.readouterr().err


@pytest.mark.slow
def test_H11_a_server_that_drains_says_so_and_answers(folders: dict[str, Path]) -> None:
    server = Server(folders["news"], "--drain", "60")
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.asked("/ready").status == 503)
    assert server.asked("/live").status == 200
    assert server.asked("/predict", {"texts": ["云"]}).status == 200  # on a connection made after the signal
    server.process.send_signal(signal.SIGTERM)  # the second ends the draining
    assert server.ended(None) == 0


# H12: memory is bounded by what is in work ----------------------------------------------------------------------------


def test_H12_bytes_in_work_are_counted_and_freed() -> None:
    flight = Memory(100)
    one, two = Reservation(flight), Reservation(flight)
    one.take(90)
    with pytest.raises(Refused) as refused:
        two.take(20)
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
    two.grow(30)  # what is there already is counted, whatever the limit
    assert flight.num_bytes == 120
    one.free()
    two.take(70)
    two.free()
    assert flight.num_bytes == 0
    one.take(1_000)  # one alone may pass: its own limits let it


def test_H12_many_large_bodies_at_once_are_refused(tight: Server) -> None:
    head = request_bytes("/embed", b"", "Content-Length: 90000")
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(tight.connected(head + b'{"inputs": "' + b"x" * 80_000)) for _ in range(4)]
        until(lambda: tight.metric("filbert_requests_total", path="/embed", status="429") >= 2)
        for link in links:
            link.close()
    until(lambda: tight.asked("/embed", {"inputs": "云" * 900}).status == 200)


# F11: the page says what it cannot do before one types ----------------------------------------------------------------


@pytest.mark.slow
def test_F11_the_page_says_why_nobody_may_look(server: Server, looked: Server) -> None:
    def models(page: bytes) -> list[Any]:
        data = re.search(rb'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert data is not None
        return list(json.loads(data[1])["live"]["models"])

    assert [own["closed"] for own in models(server.asked("/").raw)] == ["no_torch", "no_torch"]
    assert [own["closed"] for own in models(looked.asked("/").raw)] == [None]
    refused = server.asked("/look", {"texts": ["火"], "model": "news"})
    assert (refused.status, "--runtime torch" in refused.json["error"]) == (422, True)


# A request that was begun and is late ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_begun_and_is_late_gets_504_and_what_was_not_429() -> None:
    """The only 504 of a queue that is left: the model took far longer than it ever had."""
    go, begun = threading.Event(), threading.Event()

    def answers(kind: Any, texts: Any) -> list[Any]:
        begun.set()
        go.wait(30)
        return list(texts)

    batcher = Batcher(answers)
    routes = Routes(Shelf(["a"]), Limits(deadline_s=0.2), Tally(["a"]))

    class Request:
        def __init__(self) -> None:
            self.scope = {"state": {"held": Reservation(Memory(1_000))}}

        async def receive(self) -> Any:
            await asyncio.Event().wait()

    async def both() -> list[Any]:
        first = asyncio.ensure_future(routes.kept(Request(), lambda: batcher.ask(["a"])))
        await asyncio.to_thread(begun.wait, 10)
        second = routes.kept(Request(), lambda: batcher.ask(["b"]))
        return await asyncio.gather(first, second, return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:  # in this thread a browser of other tests may have its own loop
        found = pool.submit(lambda: asyncio.run(both())).result()
    assert [own.status for own in found] == [504, 429]
    go.set()
    assert batcher.close()
    assert batcher.num_dropped == 1  # the second was never begun
