"""Writers that copy: their chances against sums written out, step by step against all at once, and words never seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from filbert.models import seq2seq, transformer
from filbert.nn import generation
from filbert.nn.copying import Copier, Copies, likeliest, log_chance, log_chances
from kit.models import noisy
from kit.packs import packed_of

pytestmark = pytest.mark.usefixtures("one_thread")
NUM_WORDS, START, END = 23, 1, 2
PARTS = ("writer", "copier")


def drawn(*sizes: int, seed: int = 0) -> list[list[int]]:
    """Texts of these lengths, in which words come back."""
    random = np.random.default_rng(seed)
    return [random.integers(3, 9, size).tolist() for size in sizes]


def made(kind: str, **fields: Any) -> Any:
    """A small model that copies, with noise on all weights."""
    torch.manual_seed(0)
    if kind == "transformer":
        shape = {"width": 16, "layers": 1, "writer_layers": 2, "heads": 2, "inner": 24, "max_length": 90}
        model: Any = transformer.Transformer(
            transformer.Config(**{"vocab_size": NUM_WORDS, **shape, "dropout": 0.0, **fields}), PARTS
        )
    else:
        shape = {"width": 16, "embedding": 12, "layers": 1, "dropout": 0.0}
        model = seq2seq.Seq2seq(seq2seq.Config(**{"vocab_size": NUM_WORDS, **shape, **fields}), PARTS)
    return noisy(model, 0.2).eval()


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {}), "normed": ("transformer", {"embedding": "normed", "norm": "pre"}),
    "additive": ("seq2seq", {}), "lstm": ("seq2seq", {"cell": "lstm", "score": "dot"}),
    "none": ("seq2seq", {"score": "none"}),
}  # fmt: skip


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    kind, fields = MODELS[request.param]
    return made(kind, **fields)


def by_hand(model: Any, x_D: Tensor, memory_SD: Tensor, ids: Sequence[int]) -> Tensor:
    """[V] See et al. 2017, eq. 9, in float64, a word at a time."""
    copier, x_D, memory_SD = model.copier.double(), x_D.double(), memory_SD.double()
    written_V = model.word_scores(x_D[None].float())[0].double().softmax(0)
    if not ids:
        return written_V
    gate = 1 / (1 + math.exp(-float(copier.gate(x_D))))
    scores = [float(copier.q(x_D) @ copier.k(row)) / math.sqrt(len(x_D)) for row in memory_SD]
    shares = np.exp(scores) / np.exp(scores).sum()
    found_V = gate * written_V
    for word, share in zip(ids, shares, strict=True):
        found_V[word] += (1 - gate) * share
    return found_V


def test_chances_are_the_papers_sum(model: Any) -> None:
    """For every word, over packs of mixed lengths, an empty source among them; and they sum to one."""
    sources, targets, owners = drawn(0, 1, 4, 7), drawn(3, 1, 5, 2, 4, seed=1), [2, 0, 3, 1, 3]
    source, target = packed_of(sources), packed_of(targets)
    with torch.no_grad():
        memory = model(source)
        x_UD = model.decoded(target, memory, source, torch.tensor(owners))
        copies = model.copies(x_UD, target, memory, source, torch.tensor(owners))
        logs_UV = log_chances(model.word_scores(x_UD).float(), copies)
        torch.testing.assert_close(logs_UV.exp().sum(1), torch.ones(len(x_UD)))
        edges, at = source.boundaries.tolist(), 0
        for text, owner in zip(targets, owners, strict=True):
            for _ in text:
                rows = memory[edges[owner] : edges[owner + 1]]
                want_V = by_hand(model, x_UD[at], rows, sources[owner])
                model.copier.float()
                torch.testing.assert_close(logs_UV[at].double().exp(), want_V, atol=1e-6, rtol=1e-5)
                at += 1


@pytest.mark.parametrize("seed", range(20))
def test_one_words_chance_is_that_among_all(seed: int) -> None:
    """And the likeliest is the likeliest of all, whether it is written or copied."""
    torch.manual_seed(seed)
    scores, gate = torch.randn(5, NUM_WORDS) * 3, torch.randn(5)
    ids = torch.randint(3, 9, (5, 6))
    ids[2, 3:] = -1
    logs = torch.randn(5, 6).masked_fill(ids < 0, -1e4).log_softmax(1) + torch.nn.functional.logsigmoid(-gate)[:, None]
    copies = Copies(ids, logs.masked_fill(ids < 0, -1e4), torch.nn.functional.logsigmoid(gate))
    every = log_chances(scores, copies)
    for word in range(NUM_WORDS):
        asked = torch.full((5,), word)
        got = log_chance(scores.log_softmax(1), copies, asked)
        torch.testing.assert_close(got, every[:, word], atol=1e-5, rtol=1e-5)
    assert likeliest(scores.log_softmax(1), copies).tolist() == every.argmax(1).tolist()


def test_a_word_far_from_likely_still_has_a_gradient() -> None:
    """Where its chance is 0 in float32, and where it cannot be copied."""
    copier = Copier(4)
    memory, x = torch.randn(3, 4), torch.randn(2, 4, requires_grad=True)
    copies = copier.copies(x, packed_of([[5, 6]]), memory, packed_of([[3, 4, 5]]), None)
    scores = torch.zeros(2, NUM_WORDS).index_fill(1, torch.tensor([9]), -300.0).requires_grad_()
    for words in (torch.tensor([9, 9]), torch.tensor([5, 9])):
        loss = -log_chance(scores.log_softmax(1), copies, words).sum()
        assert loss > 299
        found = torch.autograd.grad(loss, [scores, x, *copier.parameters()], retain_graph=True, allow_unused=True)
        assert all(each is None or each.isfinite().all() for each in found)
        assert float(found[0][1, 9]) < -0.99


@pytest.fixture(params=[False, True], ids=["growing", "steady"])
def steady(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether places are fixed and steps are played back, as on a GPU."""
    monkeypatch.setattr(transformer, "STEADY", request.param)
    return bool(request.param)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("grouped", [False, True])
def test_step_by_step_is_all_at_once_while_rows_trade_places(model: Any, grouped: bool) -> None:
    """As a beam selects them, one text done on the way; over an empty source too."""
    width, random = 3, np.random.default_rng(0)
    source, owners = packed_of(drawn(4, 7, 0)), np.repeat(np.arange(3), width)
    with torch.no_grad():
        memory = model(source)
        state = model.started(memory, source)
        state = state.spread(width) if grouped and hasattr(state, "spread") else state.select(torch.from_numpy(owners))
        rows = [[START] for _ in owners]
        for step in range(6):
            scores, state = model.step(torch.tensor([row[-1] for row in rows]), state)
            read = packed_of(rows), memory, source, torch.from_numpy(owners)
            x_UD = model.decoded(*read)
            want = log_chances(model.word_scores(x_UD).float(), model.copies(x_UD, *read))
            ends = np.cumsum([len(row) for row in rows]) - 1
            assert scores.dtype == torch.float32
            torch.testing.assert_close(scores, want[ends], atol=1e-5, rtol=1e-5)
            groups = [group for group in range(len(rows) // width) if step != 3 or group != 1]
            chosen = np.concatenate([random.integers(0, width, width) + group * width for group in groups])
            rows = [[*rows[at], int(random.integers(3, 19))] for at in chosen]
            owners, state = owners[chosen], state.select(torch.from_numpy(chosen))


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_every_weight_learns(kind: str) -> None:
    for dtype in (torch.float32, torch.bfloat16) if kind == "transformer" else (torch.float32,):
        model = made(kind).to(dtype).train()
        source, target = packed_of(drawn(3, 8, 2)), packed_of(drawn(4, 2, 6, seed=1))
        read = target, model(source), source, torch.tensor([2, 0, 1])
        x_UD = model.decoded(*read)
        logs = model.word_scores(x_UD).float().log_softmax(1)
        log_chance(logs, model.copies(x_UD, *read), torch.arange(len(x_UD)) % 7 + 3).sum().backward()
        idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
        assert not [name for name in idle if not name.endswith("k.bias")]


def test_without_the_part_nothing_can_be_copied() -> None:
    model = transformer.Transformer(transformer.Config(vocab_size=9, width=8, heads=2, inner=8), ("writer",))
    source, target = packed_of([[3, 4]]), packed_of([[1]])
    memory = model(source)
    assert model.copies(model.decoded(target, memory, source), target, memory, source) is None
    assert model.started(memory, source).readable is None
    assert not [name for name in model.state_dict() if "copier" in name]


def learnt_to_echo(parts: tuple[str, ...]) -> float:
    """What share of the words come back in their places, in 40 texts of words which no lesson had."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": 1_003,
        "width": 32,
        "layers": 1,
        "writer_layers": 1,
        "heads": 4,
        "inner": 64,
        "max_length": 16,
    }
    model, random = (
        transformer.Transformer(transformer.Config(**shape, norm="pre", dropout=0.0), parts),
        np.random.default_rng(0),
    )

    def texts(num: int, low: int, high: int) -> list[list[int]]:
        return [random.integers(low, high, size).tolist() for size in sorted(random.integers(2, 6, num))]

    optimizer, steps = torch.optim.AdamW(model.parameters(), lr=5e-3), 200
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, steps)
    for _ in range(steps):
        batch = texts(48, 3, 903)
        source, target = packed_of(batch), packed_of([[START, *text] for text in batch])
        wanted = torch.tensor([word for text in batch for word in (*text, END)])
        read = target, model(source), source
        x_UD = model.decoded(*read)
        logs, copies = model.word_scores(x_UD).log_softmax(1), model.copies(x_UD, *read)
        each = log_chance(logs, copies, wanted) if copies else logs.gather(1, wanted[:, None])
        optimizer.zero_grad()
        (-each.mean()).backward()
        optimizer.step()
        schedule.step()
    unseen = texts(40, 903, 1_003)
    source = packed_of(unseen)
    with torch.no_grad():
        state = model.eval().started(model(source), source)
        rules = generation.Rules(end=END, max_new=9)
        found = generation.beam(model, torch.full((40,), START), state, rules, width=3)
    pairs = zip((one.ids for one in found), unseen, strict=True)
    right = sum(a == b for said, text in pairs for a, b in zip(said, text, strict=False))
    return right / sum(map(len, unseen))


@pytest.mark.slow
def test_words_that_no_lesson_had_are_copied() -> None:
    """Which a writer without a copier cannot: no target ever held them."""
    assert learnt_to_echo(PARTS) > 0.35
    assert learnt_to_echo(("writer",)) < 0.1
