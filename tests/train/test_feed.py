"""Batches from worker processes: the same bits whichever way they travel, and a program that ends when it should."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from filbert.core.protocols import Batch
from filbert.pack.lay import pack
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train
from filbert.train import feed, machine
from filbert.train.distributed import Ranks

TEXTS = ["今天天气很好，我们去公园散步。", "The train leaves at seven in the morning.", "图书馆里很安静。"] * 4


class Texts:
    """A corpus of one document for each text, as a task's shards have it."""

    def __init__(self) -> None:
        tokenizer = Tokenizer(train(TEXTS, size=300).tokens)
        pieces = tokenizer.pieces(TEXTS)
        self.tokenizer = tokenizer
        self.ids = np.asarray(pieces.ids, dtype=np.uint16)
        self.words = np.ones(len(self.ids), dtype=bool)
        self.documents = self.sentences = np.asarray(pieces.boundaries, dtype=np.int64)
        self.num_tokens = len(self.ids)


def fed(workers: int) -> Iterator[feed.Fed]:
    text = Texts()
    task = mlm_nsp.Items([text], text.tokenizer, mlm_nsp_spec.Config(max_length=32))  # type: ignore[list-item]
    here = dataclasses.replace(machine.chosen(machine.Config(device="cpu")), workers=workers)
    return iter(feed.Feed(task, 0, 64, here, Ranks(), (0, 0), 1))


def arrays(step: feed.Fed) -> list[np.ndarray]:
    found = [step.examples]
    for part in step.parts:
        packed = part.packed
        found += [packed.ids, packed.positions, packed.segments, packed.boundaries, part.starts, part.owners]
        found += [part.targets[name] for name in sorted(part.targets)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("room", [True, False])
def test_every_way_brings_the_same(room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def has_room(num_bytes: int) -> bool:
        asked.append(num_bytes)
        return room

    monkeypatch.setattr(feed, "_has_room", has_room)
    own, sent = fed(0), fed(2)
    try:
        for one, two in islice(zip(own, sent, strict=False), 9):
            assert (one.epoch, one.batch, one.last) == (two.epoch, two.batch, two.last)
            for here, there in zip(arrays(one), arrays(two), strict=True):
                assert here.dtype == there.dtype
                assert np.array_equal(here, there)
    finally:
        sent.close()  # type: ignore[attr-defined]
    assert asked[-1] >= 2 * 64 * 8  # for two workers and 64 tokens of some 8 bytes


def test_arrays_arrive_aligned_and_as_they_were() -> None:
    packed, starts = pack([Texts().tokenizer.encode("今天天气很好")])
    odd = np.arange(7, dtype=np.int8)
    batch = Batch(packed, starts, np.zeros(1, dtype=np.int64), {"odd": odd, "none": odd[:0], "wide": np.arange(3.0)})
    given = feed.Fed(3, 4, True, np.arange(5), [batch], 0.5)
    sent = feed._sent(given)
    got = feed._received(sent)
    assert (got.epoch, got.batch, got.last, got.weight) == (3, 4, True, 0.5)
    for one, two in zip(arrays(given), arrays(got), strict=True):
        assert one.dtype == two.dtype
        assert np.array_equal(one, two)
        assert not two.size or two.ctypes.data % 64 == 0
    assert sent.arrays.is_shared()


def test_a_container_without_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SHARED_MEMORY", "/nowhere")
    assert not feed._has_room(1)


@pytest.mark.slow
def test_a_program_that_ends_with_an_open_feed_ends() -> None:
    """Workers do not hear the polite signal that multiprocessing sends them then."""
    program = """
        import sys
        sys.path.insert(0, "tests/train")
        from test_feed import fed
        open_feed = fed(2)
        print(next(open_feed).batch)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "Traceback" not in done.stderr
