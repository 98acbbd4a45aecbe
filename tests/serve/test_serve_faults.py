"""The serving rows of the faults table, S01 to S24: real servers without torch, misused as the row says."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from filbert.run.finetune import finetune
from filbert.serve import process
from filbert.ship import onnx
from kit.folders import examples_of
from kit.served import NO_TORCH, SLOW, Server, is_alive, received, request_bytes, serving, until

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxruntime")
ROWS = [("火车进站了", "铁路"), ("船在水上", "海洋"), ("云和风", "天空"), ("the train leaves", "铁路")]


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier, exported: it runs without torch."""
    data = examples_of(ROWS * 4)
    place = tmp_path_factory.mktemp("serve")
    finetune("classify", data, tiny_folder, place / "run", settings=["machine.threads=1"], epochs=2, quiet=True)
    onnx.export(place / "run", place / "news")
    return place / "news"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder, "--queue", "4", "--deadline", "600") as found:  # or less would wait on a busy machine
        yield found


@pytest.fixture(scope="module")
def strict(folder: Path) -> Iterator[Server]:
    """Little patience, and little allowed."""
    with serving(folder, "--patience", "2", "--deadline", "0.25", "--max-tokens", "60000") as found:
        yield found


def occupied(server: Server, pool: ThreadPoolExecutor, number: int) -> list[Any]:
    """Requests that keep the model busy for a while."""
    found = [pool.submit(server.asked, "/predict", SLOW) for _ in range(number)]
    until(lambda: server.asked("/health").json["waiting"] >= number - 1)
    return found


def num_sockets(pid: int) -> int:
    """How many a process holds; one that it closes while they are counted is none."""
    found = 0
    for own in list(Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(own).startswith("socket:")
    return found


@pytest.mark.slow
def test_s01_s02_a_burst_is_answered_or_refused_at_once_and_leaves_no_trace(server: Server) -> None:
    with ThreadPoolExecutor(48) as pool:
        holding = occupied(server, pool, 4)

        def is_full() -> bool:
            holding.append(pool.submit(server.asked, "/predict", SLOW))  # in the place of one that was answered
            return server.asked("/predict", {"texts": ["云"]}).status == 429

        until(is_full)
        waits = []
        for _ in range(9):
            until(is_full)
            begun = time.perf_counter()
            found = server.asked("/predict", {"texts": ["云"]})
            if found.status == 429:
                waits.append(time.perf_counter() - begun)
        burst = list(pool.map(lambda _: server.asked("/predict", {"texts": ["火车进站了"] * 50}), range(40)))
        assert {own.status for own in burst} <= {200, 429}
        assert 429 in {own.status for own in burst}
        refused = next(own for own in burst if own.status == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json["error_type"] == "overloaded"
        assert sorted(waits)[len(waits) // 2] <= 0.1  # the median: the machine is not ours alone
        assert {own.result().status for own in holding} <= {200, 429}
    begun = time.perf_counter()
    assert all(server.asked("/predict", {"texts": ["云"]}).status == 200 for _ in range(20))
    assert time.perf_counter() - begun < 5


@pytest.mark.slow
def test_s03_too_large_a_body_is_not_read(server: Server) -> None:
    begun = time.monotonic()
    with server.connected(request_bytes("/predict", b"", "Content-Length: 3000000000")) as link:
        assert link.recv(20).startswith(b"HTTP/1.1 413")  # not a byte of the body was sent
    assert time.monotonic() - begun < 2
    with server.connected(request_bytes("/predict", b"", "Content-Length: 3000000000", "Expect: 100-continue")) as link:
        assert link.recv(20).startswith(b"HTTP/1.1 413")
    with (
        server.connected(request_bytes("/predict", b"", "Transfer-Encoding: chunked")) as link,
        contextlib.suppress(ConnectionError),
    ):
        for _ in range(34):
            link.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        assert link.recv(20).startswith(b"HTTP/1.1 413")
    body = b'{"texts": ["' + b"x" * 2**21 + b'"]}'
    assert server.asked("/predict", body).status == 413
    assert server.asked("/v1/embeddings", body).json["error"]["code"] == 413


@pytest.mark.slow
def test_s04_a_length_that_lies(strict: Server) -> None:
    begun = time.monotonic()
    assert strict.told(request_bytes("/predict", b'{"te', "Content-Length: 100")).startswith(b"HTTP/1.1 408")
    assert time.monotonic() - begun < 6
    short = strict.told(request_bytes("/predict", b'{"texts": ["a"]}', "Content-Length: 4"))
    assert short.startswith(b"HTTP/1.1 400")
    assert strict.told(request_bytes("/predict", b"", "Content-Length: -1")).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "head",
    [
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Transfer-Encoding: xchunked",),
        ("Content-Length : 2",),
        ("Host: other",),
    ],
)
def test_a_request_that_two_readers_could_read_in_two_ways_is_refused(server: Server, head: tuple[str, ...]) -> None:
    with server.connected(request_bytes("/predict", b"{}", *head)) as link:
        assert link.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 501")


@pytest.mark.parametrize(
    "body",
    [b"no json", b"", b"[" * 100_000, b'{"a":' * 100_000, b'{"texts": [NaN]}', b'{"texts": ["\xff"]}', b"9" * 10_000],
)
@pytest.mark.parametrize("path", ["/predict", "/v1/embeddings"])
def test_s05_what_is_no_json(server: Server, path: str, body: bytes) -> None:
    found = server.asked(path, body)
    assert found.status == 400
    assert "not JSON" in json.dumps(found.json)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", []),
        ("/predict", {"texts": []}),
        ("/predict", {"texts": [""]}),
        ("/predict", {"text": ""}),
        ("/predict", {"inputs": ""}),
        ("/predict", {"inputs": []}),
        ("/predict", {"inputs": [[""]]}),
        ("/embed", {"inputs": []}),
        ("/embed", {"inputs": ""}),
        ("/v1/embeddings", {"input": []}),
        ("/v1/embeddings", {"input": ""}),
        ("/v1/embeddings", {"input": [""]}),
        ("/rerank", {"query": "", "texts": ["a"]}),
        ("/rerank", {"query": "a", "texts": []}),
    ],
)
def test_s06_nothing_asked(server: Server, path: str, body: Any) -> None:
    assert server.asked(path, body).status == 422


@pytest.mark.slow
def test_s07_s08_too_many_texts_and_too_many_tokens(server: Server, strict: Server) -> None:
    many = server.asked("/predict", {"texts": ["a"] * 1_001})
    assert (many.status, many.json["error"]) == (
        413, "1,001 texts are more than 1,000; send them in several requests.",
    )  # fmt: skip
    long = strict.asked("/embed", {"inputs": ["火车" * 40_000]})
    assert long.status == 422
    assert "80,002 tokens, but a request may have 60,000" in long.json["error"]


def test_s09_s11_neither_order_nor_neighbours_change_an_answer(server: Server) -> None:
    short, long = "云", "火车进站了" * 40
    one, two = (
        server.asked("/predict", {"texts": texts}).json["predictions"] for texts in ([short, long], [long, short])
    )
    assert [p["label"] for p in one] == [p["label"] for p in two][::-1]
    alone = server.asked("/embed", {"inputs": [short]}).json[0]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(server.asked, "/embed", {"inputs": [text] * 9}) for text in (long, "the train", "船")]
        among = [server.asked("/embed", {"inputs": [long, short, "x y"]}).json[1] for _ in range(3)]
        assert all(own.result().status in (200, 429) for own in others)
    for found in among:
        assert found == pytest.approx(alone, abs=1e-5)


@pytest.mark.slow
def test_s10_a_budget_that_no_window_fits_in_is_refused(folder: Path) -> None:
    server = Server(folder, "--batch-tokens", "8", wait=False)
    assert server.ended(None) == 2
    assert "8 tokens read together are fewer than one window's 64; give --batch-tokens 64 or more" in server.said()
    assert "Traceback" not in server.said()


@pytest.mark.slow
def test_s12_half_open_connections_are_closed_and_shut_nobody_out(strict: Server) -> None:
    begun, links = time.monotonic(), []
    for number in range(800):
        sent = (
            b"",
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\n",
            request_bytes("/predict", b"{", "Content-Length: 99"),
        )
        links.append(strict.connected(sent[number % 3]))
    assert strict.asked("/live").status == 200
    for link in links:
        link.settimeout(10)
        received(link)
        link.close()
    assert time.monotonic() - begun < 10
    # A body that trickles is as slow as one that stops.
    with strict.connected(request_bytes("/predict", b"{", "Content-Length: 99")) as link:
        begun, is_open = time.monotonic(), True
        while is_open and time.monotonic() - begun < 10:
            time.sleep(0.2)
            try:
                link.sendall(b" ")
            except ConnectionError:
                is_open = False
        assert not is_open


@pytest.mark.slow
def test_s13_a_client_that_leaves_is_dropped_from_the_queue(server: Server) -> None:
    before = server.metric("filbert_dropped_total"), server.metric("filbert_texts_total")
    with ThreadPoolExecutor(4) as pool:
        holding = occupied(server, pool, 2)
        link = server.connected(request_bytes("/predict", json.dumps(SLOW).encode()))
        until(lambda: server.asked("/health").json["waiting"] >= 2)
        link.close()
        assert [own.result().status for own in holding] == [200, 200]
    until(lambda: server.metric("filbert_dropped_total") == before[0] + 1)
    assert server.metric("filbert_texts_total") - before[1] < 2_700  # the third request was not read to its end
    assert server.metric("filbert_requests_total", status="499") >= 1


@pytest.mark.slow
def test_s14_what_is_late_is_told_so_and_frees_its_place(strict: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = [own.result() for own in [pool.submit(strict.asked, "/predict", SLOW) for _ in range(8)]]
    # What could only be late is not begun, so it gets no 504; tests/edges/test_serving.py has one that was begun.
    # The first may be begun, before it is known how fast this machine is.
    statuses = [own.status for own in found]
    assert set(statuses) <= {200, 413, 429, 504}
    assert statuses.count(504) <= 2
    assert set(statuses) != {200}
    until(lambda: strict.asked("/health").json["waiting"] == 0, 5)
    assert strict.asked("/predict", {"texts": ["云"]}).status == 200


@pytest.mark.slow
def test_s15_s16_s17_processes_come_and_go(folder: Path) -> None:
    """One of two is killed and replaced; SIGTERM under load loses nothing; a killed parent leaves no orphan."""
    with serving(folder, "--workers", "2", "--runtime", "onnx", "--deadline", "600") as server:
        come_and_go(server)

    server = Server(folder, "--workers", "2", "--runtime", "onnx")
    children = server.children()
    server.ended(signal.SIGKILL)
    until(lambda: not any(map(is_alive, children)))
    with pytest.raises(ConnectionRefusedError):
        server.connected()


def come_and_go(server: Server) -> None:
    """A worker that is killed, clients that are shared out, and a stop in the middle of six long requests."""
    first = server.children()
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    until(lambda: server.tried("/ready") == 503)
    assert server.tried("/live") == 200  # the other answers meanwhile
    server.until_ready()
    assert len(set(server.children()) - set(first)) == 1
    before = [num_sockets(pid) for pid in server.children()]
    with contextlib.ExitStack() as stack:  # clients that come together and stay are shared out
        for link in [server.connected(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(24)]:
            assert stack.enter_context(link).recv(12) == b"HTTP/1.1 200"
        assert all(num_sockets(pid) > had for pid, had in zip(server.children(), before, strict=True))
    children = server.children()
    until(lambda: all(num_sockets(pid) <= had for pid, had in zip(children, before, strict=True)))
    idle = sum(map(num_sockets, children))
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.asked, "/predict", SLOW) for _ in range(6)]
        until(lambda: sum(map(num_sockets, children)) >= idle + 6 or any(own.done() for own in asked))
        server.process.send_signal(signal.SIGTERM)
        found = [own.result() for own in asked]
    assert [(own.status, len(own.json["predictions"])) for own in found] == [(200, 900)] * 6
    # So that nobody sends another after it; one that was answered before the signal came is not told so.
    assert "close" in [own.headers.get("connection") for own in found]
    assert server.ended(None) == 0
    with pytest.raises(ConnectionRefusedError):
        server.connected()
    socket.create_server(("127.0.0.1", server.port)).close()
    assert not any(map(is_alive, children))


@pytest.mark.slow
def test_s18_before_the_model_is_there(folder: Path) -> None:
    with serving(folder, wait=False) as server:
        until(lambda: server.tried("/live") == 200)
        early = server.asked("/ready")
        if early.status != 200:  # else it was faster than we
            assert early.status == 503
            assert server.asked("/predict", {"texts": ["云"]}).status in (200, 503)
        server.until_ready()
        assert early.status == 503


@pytest.mark.slow
def test_s19_the_counts_are_what_clients_saw(folder: Path) -> None:
    sent = (
        [({"texts": ["云"]}, 200)] * 5
        + [({"texts": []}, 422)] * 3
        + [(b"no", 400)] * 2
        + [({"texts": ["a"] * 1_001}, 413)]
    )
    with serving(folder) as server:
        assert [server.asked("/predict", body).status for body, _ in sent] == [status for _, status in sent]
        server.asked("/nowhere/%E7%81%AB")
        server.told(b"nonsense\r\n\r\n")
        for status in (200, 422, 400, 413):
            count = sum(own == status for _, own in sent)
            assert server.metric("filbert_requests_total", path="/predict", status=str(status)) == count
        assert server.metric("filbert_requests_total", path="other", status="404") == 1
        assert server.metric("filbert_requests_total", path="other", status="400") == 1
        assert server.metric("filbert_request_seconds_count", path="/predict") == len(sent)
        assert server.metric("filbert_texts_total", model="news") == 5


@pytest.mark.slow
def test_s20_keys(folder: Path, tmp_path: Path) -> None:
    hashed = [hashlib.sha256(key.encode()).hexdigest() for key in ("first-key", "second-key")]
    (tmp_path / "keys").write_text(f"{hashed[0]}  the first\n# a note\n", encoding="utf-8")
    with serving(folder, "--keys", tmp_path / "keys", wait=False, FILBERT_KEYS=hashed[1]) as server:
        server.until_ready()
        assert [server.asked(path).status for path in ("/health", "/live", "/ready")] == [200] * 3
        for path in ("/", "/metrics", "/models", "/v1/models", "/openapi.json"):
            assert server.asked(path).status == 401
        wrong: tuple[dict[str, str], ...] = (
            {}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "},
            {"Authorization": f"Bearer {hashed[0]}"},
            {"X-API-Key": "first-key "[:-2]}, {"Authorization": "Basic !!"}, {"Authorization": "Bearer first-key x"},
        )  # fmt: skip
        for headers in wrong:
            refused = server.asked("/predict", {"texts": ["云"]}, **headers)
            assert (refused.status, refused.json["error_type"]) == (401, "unauthorized")
            assert "www-authenticate" in refused.headers
        right: tuple[dict[str, str], ...] = (
            {"Authorization": "Bearer first-key"}, {"X-API-Key": "second-key"},
            {"Authorization": "Basic dTpzZWNvbmQta2V5"},
        )  # fmt: skip
        for headers in right:
            assert server.asked("/predict", {"texts": ["云"]}, **headers).status == 200
        assert "first-key" not in server.said()
    (tmp_path / "keys").write_text("first-key\n", encoding="utf-8")
    done = Server(folder, "--keys", tmp_path / "keys", wait=False)
    assert done.ended(None) == 2
    assert "line 1: is not a SHA-256 hash" in done.said()


@pytest.mark.slow
def test_s21_what_nobody_asked_for_is_off(server: Server, folder: Path) -> None:
    hexed = f":{server.port:04X} "
    bound = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if hexed in line and " 0A " in line
    ]
    assert bound == [f"0100007F:{server.port:04X}"]  # 127.0.0.1 alone
    asked = {"Origin": "https://example.org"}
    assert not any(name.startswith("access-control") for name in server.asked("/health", **asked).headers)
    preflight = server.asked("/predict", method="OPTIONS", Access_Control_Request_Method="POST", **asked)
    assert preflight.status == 405
    with serving(folder, "--cors", "https://example.org") as open_:
        assert open_.asked("/health", **asked).headers["access-control-allow-origin"] == "https://example.org"
        other = open_.asked("/health", Origin="https://else.org").headers
        assert "access-control-allow-origin" not in other


@pytest.mark.slow
def test_s22_logs_are_json_and_hold_no_text(folder: Path) -> None:
    secret = "秘密\n\x1b[31mFAKE LOG"
    with serving(folder, "--log", "requests") as server:
        server.asked("/predict", {"texts": [secret]})
        server.asked("/predict", {"texts": [secret, 3]})
        server.asked("/predict", {"inputs": {"秘密": secret}})
        server.asked("/models/%0A%1B[31m%E7%A7%98/predict", {"texts": ["a"]})
        server.asked("/%0A%1B[31mFAKE?q=%E7%A7%98")
        server.told(b"GET /\xe7\xa7\x98 HTTP/1.1\r\n\r\n")
        said = server.said()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(lines) >= len(said.splitlines()) - 1  # and the line that says where it listens
    assert sum(line["event"] == "request" and line["method"] == "POST" for line in lines) == 4
    assert all(sign not in said for sign in ("秘", "FAKE", "\x1b", "\\u79d8", "\\n"))


def test_s23_nothing_that_is_sent_becomes_markup(server: Server) -> None:
    page = server.asked("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert b"default-src 'none'; script-src 'sha256-" in page.raw
    attack = "<script>alert(1)</script>"
    for path, body in (("/look", {"texts": [attack]}), ("/predict", {"texts": [attack]}), (f"/{attack}", {})):
        found = server.asked(path.replace("<", "%3C").replace(">", "%3E"), body)
        assert found.headers["content-type"] == "application/json"
        assert found.headers["x-content-type-options"] == "nosniff"
    assert "without torch" in server.asked("/look", {"texts": [attack]}).json["error"]


@pytest.mark.slow
def test_s24_where_the_system_cannot_take_memory_back_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: None) -> Any:
        raise TypeError(name)  # as on Windows

    for library in (missing, lambda name: object()):  # or a C library without it, as on macOS
        monkeypatch.setattr(process.ctypes, "CDLL", library)
        thread = threading.Thread(target=process._trim, daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.slow
def test_s24_many_requests_leave_the_memory_as_it_was(folder: Path) -> None:
    """Ten minutes are benchmarks/serving.py; these are a few seconds after as many to warm up."""
    with serving(folder) as server:

        def resident() -> int:
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0])

        def load(seconds: float) -> int:
            end, count = time.monotonic() + seconds, 0
            link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            while time.monotonic() < end:
                body = b"bad" if count % 20 == 0 else json.dumps({"texts": ["火车" * (1 + count % 97)]}).encode()
                link.request("POST", "/predict", body)
                answer = link.getresponse()
                answer.read()
                assert answer.status == (400 if count % 20 == 0 else 200)
                count += 1
            link.close()
            return count

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(load, [4.0] * 4))
            before = resident()
            count = sum(pool.map(load, [6.0] * 4))
        assert count > 200
        assert resident() < before * 1.05


@pytest.mark.slow
def test_model_names_reach_no_files(server: Server, folder: Path) -> None:
    for name in ("..", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "news%00", "/etc/passwd", "NEWS"):
        found = server.asked(f"/models/{name}/predict", {"texts": ["a"]})
        assert found.status == 404
        assert b"passwd" not in found.raw
    assert server.asked("/predict", {"texts": ["a"], "model": "../../etc/passwd"}).status == 404
    for words in ((f"../x={folder}",), (f"a b={folder}",), (f"one={folder}", f"one={folder}")):
        command = [sys.executable, "-c", NO_TORCH, "serve", *words, "--port", "0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_slow_reader_holds_nobody_up(server: Server) -> None:
    slow = [server.connected(request_bytes("/embed", json.dumps({"inputs": ["云"] * 900}).encode())) for _ in range(3)]
    done = threading.Event()
    threading.Thread(target=lambda: (server.asked("/predict", {"texts": ["云"]}), done.set())).start()
    assert done.wait(10)
    for link in slow:
        link.close()
