"""Recorded steps: the same weights as steps that are not, for every task and way to train.

Where there is no CUDA a recording does its work anew, so that what is compared is all but the graphs themselves: what
is copied in, which gradients come back, and what stays where. With a GPU the same is asked of the graphs.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from filbert.core.records import Example, Span
from filbert.folder.folder import load
from filbert.run.finetune import finetune
from filbert.tasks.answer.reading import Answer
from filbert.tasks.relation.reading import Relation
from filbert.train import listeners, machine
from filbert.train import recorded as playback

TEXTS = [
    "今天天气很好，我们去公园",
    "医生说明天不用去医院",
    "火车十点到，票价五块",
    "我们坐火车去看医生",
    "好",
    "天气不好",
]


def labelled(golds: Any, texts: Any = None) -> list[Example]:
    """Texts with these answers, again and again."""
    texts = texts or [(text,) for text in TEXTS]
    return [Example(texts[i % len(texts)], golds[i % len(golds)], i) for i in range(24)]


PAIRS = list(itertools.pairwise(TEXTS))
TASKS: dict[str, tuple[str, Any, list[str]]] = {
    "classify": ("classify", labelled(["a", "b", "c"]), []),
    "cls": ("classify", labelled(["a", "b", "c"]), ["task.pool=cls", "model.dropout=0"]),
    "twice": ("classify", labelled(["a", "b", "c"]), ["task.consistency=1", "model.dropout=0.1"]),
    "pair": ("pair", labelled(["same", "other"], PAIRS), []),
    "embed": ("embed", labelled([1.0, 2.0, 4.0], PAIRS), []),
    "choose": (
        "choose",
        labelled([0, 1], [(TEXTS[0], "什么？", "天气", "医生"), (TEXTS[2], "", "票", "好")]),
        ["model.dropout=0"],
    ),
    "tag": ("tag", labelled([(Span(0, 2, "时"),), (), (Span(0, 2, "物"), Span(5, 6, "时"))]), []),
    "crf": ("tag", labelled([(Span(0, 2, "时"),), (), (Span(0, 2, "物"), Span(5, 6, "时"))]), ["task.decoder=crf"]),
    "span": ("tag", labelled([(Span(0, 2, "时"),), (), (Span(0, 2, "物"), Span(1, 2, "时"))]), ["task.decoder=span"]),
    "relation": (
        "relation",
        labelled(
            [Relation(Span(0, 2), Span(2, 4), "a"), Relation(Span(2, 4), Span(0, 1), "b")],
            [(text,) for text in TEXTS[:4]],
        ),
        ["model.dropout=0"],
    ),
    "answer": ("answer", labelled([(Answer("天气", 2),), ()], [("什么好？", TEXTS[0]), ("谁？", TEXTS[2])]), []),
    "blank": (
        "blank",
        labelled(["好", "天"]),
        ["task.template={text}。[MASK]", "task.words=好=好,天=天", "model.dropout=0"],
    ),
}


@pytest.fixture(params=["cpu", "cuda"])
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine that records, even where it has no GPU."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    plain = machine.chosen

    def chosen(config: machine.Config, *given: Any) -> machine.Machine:
        wished = dataclasses.replace(config, device=request.param, precision="bfloat16", compiled="recorded")
        return dataclasses.replace(plain(wished, *given), recorded=True)

    monkeypatch.setattr(machine, "chosen", chosen)
    return str(request.param)


def trained(
    name: str,
    folder: Path,
    out: Path,
    settings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    plays: bool,
    epochs: int = 4,
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The weights after some steps, and the losses on the way."""
    task, data, own = TASKS[name]
    losses: list[float] = []

    class Heard(listeners.Silent):
        def step(self, entry: Any) -> None:
            losses.append(entry["loss"])

    wished = ["machine.threads=1", "train.batch_tokens=160", *own, *settings]
    with monkeypatch.context() as patched:
        if not plays:
            patched.setattr(playback.Player, "_tape", lambda self, packed: None)
        finetune(task, data, folder, out, settings=wished, epochs=epochs, listener=Heard(), quiet=True)
    return load(out).model.state_dict(), losses


def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the sizes that were played."""
    sizes: list[int] = []
    usual = playback.Tape.forward

    def forward(self: playback.Tape, packed: Any) -> torch.Tensor:
        sizes.append(len(packed.ids))
        return usual(self, packed)

    monkeypatch.setattr(playback.Tape, "forward", forward)
    return sizes


def agree(got: Any, want: Any, begun: dict[str, torch.Tensor], exact: bool) -> None:
    """Weights and losses: bit for bit, or within a share of the way that training went.

    Not within a bound on each weight: Adam makes a rounding as large as a step where a gradient is next to nothing,
    and how sums are rounded hangs on the CPU and on its threads.
    """
    if exact:
        assert all(torch.equal(got[0][key], want[0][key]) for key in want[0])
    assert length(got[0], want[0]) <= 0.1 * length(want[0], begun)  # 0.0001 to 0.015 on the CPUs tried
    assert got[1] == pytest.approx(want[1], abs=0 if exact else 2e-2)


def length(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    """The Euclidean length of the difference of all weights that both have."""
    both = [(one[key].double(), two[key].double()) for key in one if key in two and one[key].shape == two[key].shape]
    return sum(float((first - second).square().sum()) for first, second in both) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_recorded_run_learns_the_same(
    name: str, recorded: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit where the same sums are made; else within bfloat16's roundings."""
    want, losses = trained(name, tiny_folder, tmp_path / "a", [], monkeypatch, plays=False)
    sizes = played(monkeypatch)
    got, same = trained(name, tiny_folder, tmp_path / "b", [], monkeypatch, plays=True)
    assert len(sizes) >= len(losses) - 2 > 1, "most steps must be played"
    rows = ("cls", "choose", "blank", "relation")  # the last layer works for some rows alone, if it is not recorded
    exact = name not in (*rows, "twice") and recorded == "cpu"  # twice: summed in float32, not in bfloat16
    agree((got, same), (want, losses), load(tiny_folder).model.state_dict(), exact)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["tune.method=frozen"], ["tune.method=gradual"], ["tune.method=lora", "tune.rank=2"], ["tune.layer_decay=0.8"],
        ["train.optimiser=muon"], ["train.optimiser=bert-adamw"], ["model.dropout=0.2"],
    ],
    ids=lambda settings: settings[0],
)  # fmt: skip
def test_so_does_every_way_to_train(
    settings: list[str], recorded: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit."""
    want, losses = trained("classify", tiny_folder, tmp_path / "a", settings, monkeypatch, plays=False)
    sizes = played(monkeypatch)
    got, same = trained("classify", tiny_folder, tmp_path / "b", settings, monkeypatch, plays=True)
    assert sizes
    agree((got, same), (want, losses), load(tiny_folder).model.state_dict(), recorded == "cpu")


@pytest.mark.slow
def test_a_pack_of_another_size_goes_as_it_is(
    recorded: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of many windows has more tokens than a step; it is learnt as any other."""
    long = [Example((TEXTS[0] * 40,), "a", 99)]
    monkeypatch.setitem(
        TASKS, "long", ("classify", TASKS["classify"][1] + long, ["task.max_length=32", "task.overlap=4"])
    )
    want, losses = trained("long", tiny_folder, tmp_path / "a", [], monkeypatch, plays=False)
    sizes = played(monkeypatch)
    got, same = trained("long", tiny_folder, tmp_path / "b", [], monkeypatch, plays=True)
    agree((got, same), (want, losses), load(tiny_folder).model.state_dict(), recorded == "cpu")
    assert 0 < len(sizes) < len(losses)


def test_parts_are_not_played(
    recorded: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in parts is one that has too little memory."""
    sizes = played(monkeypatch)
    trained("classify", tiny_folder, tmp_path / "a", ["machine.parts=2"], monkeypatch, plays=True, epochs=1)
    assert not sizes


def test_a_machine_without_a_gpu_does_not_record() -> None:
    """The wish is for CUDA in bfloat16."""
    found = machine.chosen(machine.Config(compiled="recorded", device="cpu", threads=1))
    assert not found.recorded
    assert not found.compiled
