"""Servers and what is more than it looks: texts that are read many times, bodies of many parts, signals at any moment.

And what a server is told at its start that could only be meant otherwise.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import filbert as fb
from filbert.core.errors import InputError
from filbert.engine.backend_onnx import COPIES
from filbert.folder.folder import save
from filbert.models import bert
from filbert.serve import guard, keys
from filbert.serve.limits import Limits, Refused, _unpacked
from filbert.serve.process import Plan
from filbert.serve.shelf import Served
from filbert.serve.shutdown import Server as Ending
from filbert.serve.workers import FailedError, Supervisor
from filbert.ship import onnx
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import num_read, plan
from kit.folders import READ, task_file
from kit.served import NO_TORCH, Server, received, request_bytes, serving, until

torch = pytest.importorskip("torch")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
runtime = pytest.importorskip("onnxruntime")

# name: parts, labels, task.json
MODELS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]] = {
    "news": (("labels",), ("体育", "财经"), {"task": "classify"}),
    "near": (("labels",), ("no", "yes"), {"task": "pair"}),
    "cities": (("tokens",), ("O", "B-城", "I-城"), {"task": "tag", "scheme": "bio"}),
    "choices": (("choice",), (), {"task": "choose"}),
}


@pytest.fixture(scope="module")
def folders(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small models, exported."""
    place, tokenizer, found = tmp_path_factory.mktemp("bounds"), Tokenizer.load(tiny_folder), {}
    for name, (parts, labels, said) in MODELS.items():
        config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=2, heads=2, inner=64, max_length=64)
        model = bert.Bert(config, parts, max(2, len(labels))).eval()
        files = task_file({**READ, **said})
        save(place / "torch" / name, model, tokenizer, labels=labels, files=files)
        found[name] = onnx.export(place / "torch" / name, place / name)
    return found


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    """One that reads 20,000 tokens a request at most."""
    with serving(*folders.values(), "--max-tokens", "20000") as found:
        yield found


# Work is bounded by what is read --------------------------------------------------------------------------------------


@given(st.integers(0, 300), st.integers(0, 300), st.integers(8, 80), st.integers(0, 40))
def test_the_tokens_of_a_pairs_windows_are_counted_without_making_them(
    first: int, second: int, max_length: int, overlap: int
) -> None:
    made = plan(first, second, max_length, overlap)
    tokens = sum(3 + left.end - left.start + (right.end - right.start if right else 0) for left, right in made)
    counted = num_read(first, second, max_length, overlap)
    room = max_length - 3
    least = min(64, room // 2)
    if first + second <= room or room - first >= least or room - second >= least:
        assert counted == tokens
    else:  # both are windowed: each window is as full as it can be
        assert tokens <= counted <= max_length * len(made)


@pytest.mark.slow
def test_a_passage_counts_for_every_option_and_a_question_for_every_window(server: Server) -> None:
    """A request of 45 kB with a hundred options took 10 GB of memory, and minutes."""
    passage = "火车" * 750
    few = server.asked("/models/choices/predict", {"texts": [[passage, "怎么", ["去", "来"]]]})
    assert few.status == 200
    for texts in (
        [[passage, "怎么", ["去"] * 40]],
        [["火", "怎", ["去"] * 9_000]],
        [["火", "a" * 200_000, ["去"] * 99]],
    ):
        many = server.asked("/models/choices/predict", {"texts": texts})
        assert (many.status, "tokens would be read" in many.json["error"]) == (422, True)
    # Thirty tokens stand in each of the windows of the other text: that is read four times.
    long, question = "船" * 8_000, "火车" * 15
    assert server.asked("/models/near/predict", {"texts": [["火", long]]}).status == 200
    again = server.asked("/models/near/predict", {"texts": [[question, long]]})
    assert (again.status, "tokens would be read" in again.json["error"]) == (422, True)


@pytest.mark.slow
def test_a_pair_is_asked_as_pipelines_of_transformers_take_it(server: Server) -> None:
    pair = server.asked("/models/near/predict", {"texts": [["火车", "船"]]}).json["predictions"]
    asked = server.asked("/models/near/predict", {"texts": [{"text": "火车", "text_pair": "船"}]})
    assert (asked.status, asked.json["predictions"]) == (200, pair)
    odd = server.asked("/models/near/predict", {"texts": [{"text": "火车"}]})
    assert odd.status == 422


@pytest.mark.slow
def test_documents_may_hold_more_than_their_text_and_null_is_left_out(server: Server) -> None:
    asked = {"query": "火车", "documents": [{"text": "船", "title": "水", "id": 7}, {"text": "云"}]}
    plain = {"query": "火车", "documents": ["船", "云"]}
    found = [server.asked("/v1/rerank", {"model": "near", **body}) for body in (asked, plain)]
    assert [each.status for each in found] == [200, 200]
    assert found[0].json["results"] == found[1].json["results"]
    assert server.asked("/models/news", {"inputs": "火车", "normalize": None, "truncate": None}).status == 200
    assert "in the body" not in server.asked("/models?x=1").json["error"]


@pytest.mark.slow
def test_a_text_without_words_does_not_make_the_server_think_that_it_is_fast(folders: dict[str, Path]) -> None:
    """By its bytes it would be of 600,000 tokens: read in no time, and the next such one refused as too much."""
    served = Served("news", fb.load(folders["news"], runtime="onnx"))
    before = served.batcher.speed.seconds("embed", 1_000)
    for text in ("a" * 1_900_000, " " * 1_900_000, "a" * 1_900_000):
        assert len(served.vectors([text]).result(60)) == 1
    after, best = (told("embed", 1_000) for told in (served.batcher.speed.seconds, served.batcher.speed.at_best))
    assert before is not None
    assert after is not None
    assert after > before / 10
    assert best is None or best > before / 10
    assert served.batcher.close()


@pytest.mark.slow
@pytest.mark.parametrize("bad", [5, 200, 390])
def test_what_is_wrong_is_counted_in_the_request(server: Server, bad: int) -> None:
    """A long request is answered in several goes, and the number named was that within the last."""
    texts = [["火车" * 4, "怎么", ["a", "b"]]] * 390
    texts.insert(bad, ["a", "b", ["x"]])
    found = server.asked("/models/choices/predict", {"texts": texts})
    assert (found.status, found.json["error"].partition(":")[0]) == (422, f"example {bad}")


def test_a_body_of_very_many_compressed_parts_is_refused() -> None:
    held: list[int] = []
    whole = b'{"texts": ["a"]}'
    parts = b"".join(gzip.compress(whole[at : at + 1]) for at in range(len(whole)))
    assert _unpacked(parts, Limits(), held.append) == whole
    with pytest.raises(Refused, match="compress it as one") as refused:
        _unpacked(gzip.compress(b"") * 100_000, Limits(), held.append)
    assert refused.value.status == 413


@pytest.mark.slow
def test_an_object_of_very_many_fields_with_one_of_them_twice_is_refused_at_once(server: Server) -> None:
    names = ", ".join(f'"{number}": 1' for number in range(100_000))
    found = server.asked("/predict", f'{{{names}, "99999": 2}}'.encode())
    assert (found.status, "'99999' twice" in found.json["error"]) == (422, True)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(runtime.SessionOptions, COPIES), reason="this onnxruntime always maps its files")
def test_a_folder_that_is_overwritten_or_goes_away_changes_no_answer(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["news"], tmp_path / "news")
    with serving(folder) as server:
        body = {"query": "火车", "texts": ["船", "云"]}
        before = server.asked("/rerank", body)
        assert before.status == 200
        for file in folder.glob("*.safetensors"):
            with file.open("r+b") as there:
                there.seek(file.stat().st_size // 4)
                there.write(b"\x01" * (file.stat().st_size // 2))
        assert server.asked("/rerank", body).raw == before.raw
        for file in folder.glob("*.safetensors"):
            file.write_bytes(b"")
        assert server.asked("/rerank", body).raw == before.raw
        shutil.rmtree(folder)
        assert server.asked("/rerank", body).raw == before.raw


@pytest.mark.slow
def test_what_a_look_shows_is_an_answer_too(folders: dict[str, Path]) -> None:
    """It had a limit of its own, of what a browser shows, and was counted nowhere."""
    with serving(folders["news"].parent / "torch" / "news", "--max-answer", "100000", torch=True) as server:
        assert server.asked("/look", {"texts": ["火车" * 100]}).status == 200
        much = server.asked("/look", {"texts": ["火车" * 5_000], "layers": [0, 1]})
        assert (much.status, "more than 100,000" in much.json["error"]) == (413, True)
        # What is wrong is named, and not sent back whole.
        long = server.asked("/look", {"texts": ["火车"], "explain": {"target": "x" * 1_000_000}})
        assert (long.status, len(long.raw) < 5_000) == (422, True)
        assert "must be one of" in long.json["error"]


# Signals --------------------------------------------------------------------------------------------------------------

EARLY = """
import time, uvicorn
run = uvicorn.Server.run
def later(self, *words, **given):  # a busy machine: the models load, and uvicorn does not listen to signals yet
    print("now", flush=True)
    time.sleep(1)
    return run(self, *words, **given)
uvicorn.Server.run = later
from filbert.cli.main import main
main()
"""


@pytest.mark.slow
def test_a_signal_that_comes_before_the_server_listens_to_it_is_not_lost(
    folders: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    server = Server(folders["news"], "--runtime", "onnx", wait=False, program=EARLY)
    until(lambda: "now" in capfd.readouterr().out)
    assert server.ended() == 0


@pytest.mark.slow
def test_a_terminal_that_closes_loses_no_answer(folders: dict[str, Path]) -> None:
    server = Server(folders["news"])
    body = request_bytes("/predict", json.dumps({"texts": ["火车" * 30] * 900}).encode())
    with server.connected(body) as link:
        until(lambda: server.metric("filbert_goes_total") > 0)
        server.process.send_signal(signal.SIGHUP)
        assert received(link).startswith(b"HTTP/1.1 200")
    assert server.ended(None) == 0
    stays = Server(folders["news"], program=f"import signal; signal.signal(1, signal.SIG_IGN); {NO_TORCH}")
    stays.process.send_signal(signal.SIGHUP)
    assert stays.asked("/live").status == 200
    assert stays.ended() == 0


def test_workers_that_die_in_one_moment_are_all_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six that were young counted as one that will not live, and ended the server."""

    class Dead:
        stdin = SimpleNamespace(close=lambda: None)

        def poll(self) -> int:
            return -signal.SIGKILL

    with socket.socket() as listening:
        parent = Supervisor(Plan(models=(("a", "a"),), log="none"), listening, 8)
    begun: list[int] = []
    monkeypatch.setattr(parent, "_start", begun.append)
    parent.children, parent.started = [Dead() for _ in range(8)], [time.monotonic()] * 8
    parent._replace()
    assert begun == [*range(8)]
    for _ in range(4):
        parent._replace()
    with pytest.raises(FailedError):  # each of them would not live
        parent._replace()


@pytest.mark.slow
def test_a_second_signal_ends_the_draining_of_every_worker(folders: dict[str, Path]) -> None:
    server = Server(folders["news"], "--drain", "600", "--workers", "2")
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.asked("/ready").status == 503)
    server.process.send_signal(signal.SIGTERM)
    assert server.ended(None, 60) == 0


def test_after_a_second_signal_it_ends_as_late_as_if_it_had_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    class Silent:
        def set_state(self, state: float) -> None: ...

    quiet: Any = Silent()
    server = Ending(uvicorn.Config(lambda: None), quiet, quiet, drain_s=600, latest_s=7)
    ends: list[float] = []
    monkeypatch.setattr(server, "_end_after", ends.append)
    monkeypatch.setattr(server, "_drain", lambda: None)
    for _ in range(3):
        server.handle_exit(signal.SIGTERM, None)
    assert ends == [607, 7]
    assert server.should_exit


# What a server is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["https://a.org", "a.org:8000", "a.org/", "", " ", "*.", "a b", "*.*", "a.*", "名.org", "[::1]:80", "::1"]
)
def test_a_name_by_which_nobody_can_ask_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no request asks by that name"):
        guard.host_name(name)


def test_a_name_by_which_one_can_ask_is_taken() -> None:
    for name, own in (("A.org.", "a.org"), ("*", "*"), ("*.A.org", "*.a.org"), ("[::1]", "[::1]"), ("10.0.0.1",) * 2):
        assert guard.host_name(name) == own
        assert guard.is_allowed(own.replace("*", "b") + ":80", (own,))


@pytest.mark.parametrize(
    "site",
    ["example.org", "https://example.org/", "https://a.org/path", "https://a.org:443", "http://a.org:80", "",
     "https://名.org", "https://*.a.org", "https://a.org, https://b.org", "https://me@a.org"],
)  # fmt: skip
def test_a_site_that_no_browser_names_so_is_refused(site: str) -> None:
    with pytest.raises(InputError, match="no browser names a site so"):
        guard.origin(site)


def test_a_site_that_browsers_name_so_is_taken() -> None:
    for site in (
        "https://example.org",
        "http://localhost:3000",
        "http://[::1]:80443",
        "*",
        "null",
        "chrome-extension://abc",
    ):
        assert guard.origin(site) == site
    assert guard.origin("HTTPS://Example.org") == "https://example.org"


def test_keys_whose_file_is_named_by_nothing_let_nobody_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FILBERT_KEYS_FILE", "")
    with pytest.raises(InputError, match="FILBERT_KEYS_FILE is empty, so everybody could ask"):
        keys.hashes(None)
    (tmp_path / "keys").write_text(hashlib.sha256(b"a").hexdigest(), encoding="utf-8")
    assert len(keys.hashes(tmp_path / "keys")) == 1


def test_a_key_beside_what_is_meant_for_a_proxy_is_read() -> None:
    known = (hashlib.sha256(b"mine").hexdigest(),)
    others = (b"Basic dXNlcjpvdGhlcg==", b"Bearer other", b"Digest x", b"")
    for other in others:
        assert keys.fits({b"authorization": other, b"x-api-key": b"mine"}, known)
        assert not keys.fits({b"authorization": other, b"x-api-key": b"other"}, known)
    assert keys.fits({b"authorization": b"bearer  mine ", b"x-api-key": b"other"}, known)


def test_a_variable_that_no_option_has_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    from filbert.cli.serve import _note_unread, command

    said = {"FILBERT_MAX_TEXT": "4", "FILBERT_MAX_TEXTS": "4", "FILBERT_JSON": "1", "FILBERT_KEYS": "", "HOME": "/"}
    kubernetes = {"FILBERT_SERVICE_HOST": "10.0.0.7", "FILBERT_PORT_80_TCP_ADDR": "10.0.0.7", "FILBERT_PORT": "80"}
    kubernetes |= {"FILBERT_API_SERVICE_HOST": "10.0.0.8", "FILBERT_API_PORT": "tcp://10.0.0.8:80"}
    _note_unread(said | kubernetes | {"FILBERT_KEYS_FILE": "a", "FILBERT_LOOK": "0", "FILBERT_ATTENTION": "plain"})
    told = capsys.readouterr().err.strip().splitlines()
    assert told == [
        "note: FILBERT_MAX_TEXT is no option of serve; it is passed over. Did you mean 'FILBERT_MAX_TEXTS'?"
    ]
    for own in command.params:
        assert own.name is not None
        assert own.envvar or own.opts[0] == "--" + own.name.replace("_", "-")  # what the page on serving says


def test_an_empty_host_is_not_every_address(filbert: Callable[..., Any]) -> None:
    ran = filbert("serve", "nowhere", "--host", "", "--port", "0")
    assert (ran.code, "--host is empty" in ran.err) == (2, True)


def test_an_address_of_this_machine_is_protected_however_it_is_written() -> None:
    from filbert.cli.serve import _hosts

    for host, address in (("127.1", "127.0.0.1"), ("my-own.local", "127.0.1.1"), ("Localhost", "127.0.0.1")):
        found = _hosts((), host, address)
        assert {"localhost", host.lower(), address} <= set(found)
        assert not guard.is_allowed("evil.example", found)
    assert _hosts((), "my-own.local", "10.0.0.7") == ("*",)
