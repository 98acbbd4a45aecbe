"""M20: mutated model folders by the thousand: each loads or is refused in a sentence, soon and in little memory.

100,000 mutations; FILBERT_FUZZ=5000 sets another number. A failure prints the seed that repeats it.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from filbert.core.errors import InputError
from filbert.folder import folder as folders
from filbert.folder import weights
from filbert.models import bert
from filbert.text.tokenizer import Tokenizer

NUMBER = int(os.environ.get("FILBERT_FUZZ", "100000"))
EACH_BUILDS = 200  # every so many, the module is built too: the readers alone are what can be fooled
PIECES = (
    b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"99999999999999999999", b"1.5", b'""', b"[]", b"{}",
    b"[[[[[[[[", b'{"a":', b'"\\ud800"', b"\xff\xfe", b"\0", b'"__metadata__":', b'"F32"', b'"BF16"', b'"shape"', b",",
    b'"data_offsets"', b"[0,4]", b"[18446744073709551616]", b'"auto_map":{},', b'"is_decoder":true,', b"2147483648",
    b'"bert"', b'"modernbert"', b'"electra"', b'"ernie"', b'"filbert-bert"', b"\x80\x04", b"PK\x03\x04",
    b"\xe4\xb8\x80", b'"num_labels":1000000,',
)  # fmt: skip


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four small changes, each in a way that parsers dislike."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        end = min(len(data), at + rng.choice((1, 1, 2, 8, 64)))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:end] = rng.choice(PIECES)
        elif kind == 2:
            data[at:at] = rng.choice(PIECES)
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end] * rng.choice((1, 2, 50))
        elif kind == 5 and data[at:end].isdigit():
            data[at:end] = str(rng.choice((0, 1, 7, 255, 2**31, 2**63, 10**12))).encode()
        elif kind == 6:
            del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


@pytest.fixture
def originals(tmp_path: Path) -> Iterator[list[Path]]:
    """Tiny folders of each kind, one of them sharded; without a manifest, which would stop every mutation at once."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as home:
        yield folders_in(Path(home))


def folders_in(home: Path) -> list[Path]:
    tiny = {"vocab_size": 12, "width": 4, "layers": 1, "heads": 1, "inner": 4, "max_length": 8}
    layouts = {
        "bert": (bert.Config(**tiny), ("pooler", "labels", "mlm")),
        "modernbert": (
            bert.Config(**tiny, segments=0, positions="rotary-local", norm="pre", feedforward="geglu"), ("mlm",),
        ),
        "distilbert": (bert.Config(**tiny, segments=0, pooler="relu"), ("pooler", "labels", "mlm")),
        "electra": (bert.Config(**tiny, pooler="gelu", embedding=2), ("mlm",)),
        "ernie": (bert.Config(**tiny, task_types=3), ("tokens",)),
        "own": (bert.Config(**tiny, positions="sinusoidal"), ("pooler", "tokens")),
        "shards": (bert.Config(**tiny), ("span",)),
    }  # fmt: skip
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"一二三四五六七"])
    for name, (config, parts) in layouts.items():
        labels = ["a", "b"] if {"labels", "tokens"} & set(parts) else []
        folders.save(home / name, bert.Bert(config, parts), tokenizer, labels=labels)
        (home / name / "manifest.json").unlink()
    one = home / "shards" / "model.safetensors"
    places = dict.fromkeys(weights.read(one), "part.safetensors")
    one.rename(home / "shards" / "part.safetensors")
    (home / "shards/model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return [home / name for name in layouts]


def peak_bytes() -> int:
    """The most memory since the last call: the kernel's mark is set back, or an earlier test's peak would hide ours."""
    peak = next(line for line in Path("/proc/self/status").read_text().split("\n") if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(peak.split()[1]) * 1024


@pytest.mark.slow
def test_M20_mutated_folders_are_read_or_refused(originals: list[Path]) -> None:
    names = ("config.json", "model.safetensors", "part.safetensors", "model.safetensors.index.json")
    targets = [folder / name for folder in originals for name in names if (folder / name).exists()]
    whole = {path: path.read_bytes() for path in targets}
    for folder in originals:
        folders.load(folder)
    before, outcomes, slowest, longest = peak_bytes(), {"read": 0, "refused": 0}, 0.0, 0
    peak_bytes()  # sets the mark back; the next call gives what is held now
    for seed in range(NUMBER):
        rng = random.Random(seed)
        path = targets[seed * len(targets) // NUMBER]
        raw = whole[path]
        # Of a weight file, mostly the header: in the data any byte is as good as another.
        head = len(raw) if path.suffix == ".json" or rng.random() < 0.1 else 8 + int.from_bytes(raw[:8], "little")
        path.write_bytes(mutated(raw[:head], rng) + raw[head:])
        start = time.process_time()
        try:
            (folders.read if seed % EACH_BUILDS else folders.load)(path.parent)
            outcomes["read"] += 1
        except InputError as error:
            outcomes["refused"] += 1
            longest = max(longest, len(str(error).encode()))  # encoded: it can be printed
        except BaseException:
            print(f"seed {seed}: {path}")
            raise
        slowest = max(slowest, time.process_time() - start)
        assert slowest < 1, seed
        if seed + 1 == NUMBER or targets[(seed + 1) * len(targets) // NUMBER] != path:
            path.write_bytes(raw)  # the next file's turn: this one is whole again
    assert peak_bytes() - before < 100 * 2**20
    assert longest < 2000
    assert outcomes["refused"] > NUMBER * 0.5
    assert outcomes["read"] > NUMBER * 0.02  # the mutations are small enough to get past the first check
    print(f"{NUMBER:,} mutations: {outcomes}, slowest {slowest * 1000:.1f} ms")
