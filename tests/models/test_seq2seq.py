"""Seq2seq against a loop over one text at a time; writing step by step; what attention is good for; bad configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.models import seq2seq
from filbert.nn.attention import tensors
from filbert.nn.attention_scores import SCORES
from filbert.pack.lay import pack

SHAPE: dict[str, Any] = {"vocab_size": 20, "width": 8, "embedding": 6, "layers": 2, "dropout": 0.0}
SOURCES = [[7], [4, 5], [8, 9, 10, 11, 12]]
TARGETS = [[1, 13], [1, 14, 15, 16], [1, 17, 18, 19], [1, 2, 3, 4, 5, 6]]
OWNERS = [2, 0, 2, 1]  # which source each target reads: one twice, not in their order
CHOICES = [*SCORES, "none"]


def packed_of(sequences: Sequence[Sequence[int]]) -> Packed:
    rows = [np.asarray(ids, dtype=np.int32) for ids in sequences]
    packed, _ = pack([Encoding(row, *(np.zeros_like(row) for _ in range(4))) for row in rows])
    assert packed.lengths == tuple(map(len, sequences))  # given by length, so a pack keeps their order
    return tensors(packed)


def random_model(**shape: Any) -> seq2seq.Seq2seq:
    """With weights and biases far from their start."""
    torch.manual_seed(0)
    model = seq2seq.Seq2seq(seq2seq.Config(**{**SHAPE, **shape}), ("writer",)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.4)
    return model


def weight_of(model: seq2seq.Seq2seq, name: str) -> Tensor:
    return model.get_parameter(name)


def one_cell(x: Tensor, state: tuple[Tensor, ...], w: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """One token through one layer, gate by gate as torch documents them."""
    inner, outer = w["ih"] @ x + w["bih"], w["hh"] @ state[0] + w["bhh"]
    if len(state) == 2:
        i, f, g, o = (inner + outer).chunk(4)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
    (ri, zi, ni), (ro, zo, no) = inner.chunk(3), outer.chunk(3)
    z = (zi + zo).sigmoid()
    return ((1 - z) * (ni + (ri + ro).sigmoid() * no).tanh() + z * state[0],)


def gates(model: seq2seq.Seq2seq, at: str, way: str = "") -> dict[str, Tensor]:
    names = {"ih": "weight_ih", "hh": "weight_hh", "bih": "bias_ih", "bhh": "bias_hh"}
    return {short: weight_of(model, f"{at}.cell.{name}_l0{way}") for short, name in names.items()}


def embedded(model: seq2seq.Seq2seq, token: int) -> Tensor:
    return weight_of(model, "embeddings.words.weight")[token] * 6**0.5


def read_by_hand(model: seq2seq.Seq2seq, ids: Sequence[int]) -> list[Tensor]:
    """The encoder's vectors, a token and a direction at a time."""
    kinds = 2 if model.config.cell == "lstm" else 1
    xs = [embedded(model, token) for token in ids]
    for layer in range(2):
        ways = []
        for way, order in (("", range(len(xs))), ("_reverse", reversed(range(len(xs))))):
            state, found = (torch.zeros(4),) * kinds, {}
            for at in order:
                state = one_cell(xs[at], state, gates(model, f"layers.{layer}", way))
                found[at] = state[0]
            ways.append(found)
        xs = [torch.cat((ways[0][at], ways[1][at])) for at in range(len(xs))]
    return xs


def write_by_hand(model: seq2seq.Seq2seq, ids: Sequence[int], memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The decoder's vectors and attention weights for one target, token by token."""
    kinds = 2 if model.config.cell == "lstm" else 1
    last = torch.cat((memory[-1][:4], memory[0][4:]))
    start = torch.tanh(weight_of(model, "writer.bridge.weight") @ last + weight_of(model, "writer.bridge.bias"))
    parts = start.view(kinds, 2, 8)
    states = [tuple(parts[kind, layer] for kind in range(kinds)) for layer in range(2)]
    vectors, looks = [], []
    for token in ids:
        x = embedded(model, token)
        for layer in range(2):
            states[layer] = one_cell(x, states[layer], gates(model, f"writer.layers.{layer}"))
            x = states[layer][0]
        if model.writer is not None and model.writer.score is not None:
            scores = torch.cat([model.writer.score(x[None], key[None])[0] for key in memory])  # proven in test_scores
            weights = scores.exp() / scores.exp().sum()
            read = sum(w * value for w, value in zip(weights, memory, strict=True))
            x = torch.tanh(weight_of(model, "writer.join.weight") @ torch.cat((read, x)))  # type: ignore[list-item]
            looks.append(weights)
        vectors.append(x)
    return torch.stack(vectors), looks


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_pack_is_a_loop_over_one_text_at_a_time(name: str, cell: str) -> None:
    """Encoder, decoder and attention, of every score, within 1e-5 of gates and sums written out."""
    model, source, target = random_model(score=name, cell=cell), packed_of(SOURCES), packed_of(TARGETS)
    with torch.no_grad():
        memory = model(source)
        read = [read_by_hand(model, ids) for ids in SOURCES]
        torch.testing.assert_close(memory, torch.stack([v for vs in read for v in vs]), atol=1e-5, rtol=0)
        got = model.decoded(target, memory, source, torch.tensor(OWNERS))
        written = [write_by_hand(model, ids, read[owner]) for ids, owner in zip(TARGETS, OWNERS, strict=True)]
        torch.testing.assert_close(got, torch.cat([vectors for vectors, _ in written]), atol=1e-5, rtol=0)
        if name == "none":
            with pytest.raises(InputError, match="there is no attention to show"):
                model.attention_of(target, memory, source, torch.tensor(OWNERS))
            return
        looks = model.attention_of(target, memory, source, torch.tensor(OWNERS))
        for look, (_, want) in zip(looks, written, strict=True):
            torch.testing.assert_close(look, torch.stack(want), atol=1e-5, rtol=0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("name", CHOICES)
def test_step_by_step_is_teacher_forcing(name: str, cell: str) -> None:
    """The same scores within 1e-5, though texts are reordered, doubled and dropped on the way."""
    model, source, target = random_model(score=name, cell=cell), packed_of(SOURCES), packed_of(TARGETS)
    with torch.no_grad():
        memory = model(source)
        want = model.word_scores(model.decoded(target, memory, source, torch.tensor(OWNERS)))
        edges, rows = target.boundaries.tolist(), [0, 1, 2, 3]
        state = model.started(memory, source).select(torch.tensor(OWNERS))
        for at in range(max(target.lengths)):
            going = [place for place, text in enumerate(rows) if at < len(TARGETS[text])]
            going = going[::-1] + going[:1]  # another order, and one of them twice
            rows, state = [rows[place] for place in going], state.select(torch.tensor(going))
            scores, state = model.step(torch.tensor([TARGETS[text][at] for text in rows]), state)
            assert scores.dtype == torch.float32
            torch.testing.assert_close(scores, want[[edges[text] + at for text in rows]], atol=1e-5, rtol=0)


def test_a_vector_knows_the_target_up_to_its_token_and_its_own_source() -> None:
    """And nothing else: neither later tokens nor other texts."""
    model, source, target = random_model(), packed_of(SOURCES), packed_of(TARGETS)
    model.decoded(target, model(source), source, torch.tensor(OWNERS))[3].sum().backward()  # the second text's second
    table = model.embeddings.words.weight.grad
    assert table is not None
    assert set(table.abs().sum(1).nonzero()[:, 0].tolist()) == {1, 14, *SOURCES[0]}


@pytest.mark.parametrize("name", CHOICES)
def test_every_weight_learns(name: str) -> None:
    for tied in (True, False):
        model, source, target = random_model(score=name, tied=tied), packed_of(SOURCES), packed_of(TARGETS)
        vectors = model.decoded(target, model(source), source, torch.tensor(OWNERS))
        F.cross_entropy(model.word_scores(vectors), torch.arange(len(vectors))).backward()
        for part, weight in model.named_parameters():
            assert weight.grad is not None, part
            assert weight.grad.any(), part


def test_words_are_written_by_the_table_that_reads_them() -> None:
    """Unless they are not tied; where a word is narrower than a state, a map stands between."""
    x = torch.randn(3, 8)
    tied, free = random_model(embedding=8), random_model(embedding=8, tied=False)
    table, bias = tied.embeddings.words.weight, weight_of(tied, "writer.bias")
    torch.testing.assert_close(tied.word_scores(x), x @ table.T + bias)
    want = x @ weight_of(free, "writer.words.weight").T + weight_of(free, "writer.bias")
    torch.testing.assert_close(free.word_scores(x), want)
    narrow = random_model()
    mapped = x @ weight_of(narrow, "writer.narrow.weight").T
    torch.testing.assert_close(
        narrow.word_scores(x), mapped @ narrow.embeddings.words.weight.T + weight_of(narrow, "writer.bias")
    )


def test_an_encoder_like_any_other() -> None:
    """Without the part no decoder is there; rows are rows; heads are built; what it cannot do is said."""
    model = seq2seq.Seq2seq(seq2seq.Config(**SHAPE), ("labels", "pooler"), labels=3).eval()
    packed = packed_of(SOURCES)
    assert not any(name.startswith("writer") for name, _ in model.named_parameters())
    whole = model(packed)
    torch.testing.assert_close(model(packed, "first"), whole[[0, 1, 3]])
    torch.testing.assert_close(model(packed, torch.tensor([4, 0])), whole[[4, 0]])
    assert model.heads["labels"](model.pooled(model(packed, "first"))).shape == (3, 3)
    with pytest.raises(InputError, match="this seq2seq has no decoder, so it cannot write"):
        model.started(whole, packed)
    with pytest.raises(InputError, match="a part of seq2seq is 'mlm'"):
        seq2seq.Seq2seq(seq2seq.Config(**SHAPE), ("mlm",))


@pytest.mark.parametrize("name", ["additive", "none"])
def test_nothing_and_next_to_nothing(name: str) -> None:
    """No texts, a source without a token, a target of one token: numbers, and none that is not a number."""
    model = random_model(score=name)
    nothing = packed_of([])
    memory = model(nothing)
    assert memory.shape == (0, 8)
    assert model.decoded(nothing, memory, nothing, torch.zeros(0, dtype=torch.int64)).shape == (0, 8)
    source = packed_of([[], [7]])
    memory = model(source)
    got = model.decoded(packed_of([[1], [1]]), memory, source, torch.tensor([0, 1]))
    assert got.isfinite().all()
    assert (got[0] - got[1]).abs().max() > 1e-3
    scores, _ = model.step(torch.tensor([1, 1]), model.started(memory, source))
    torch.testing.assert_close(scores, model.word_scores(got), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CHOICES)
def test_half_precision(name: str) -> None:
    model, source, target = random_model(score=name), packed_of(SOURCES), packed_of(TARGETS)
    owners = torch.tensor(OWNERS)
    with torch.no_grad():
        want = model.decoded(target, model(source), source, owners)
        half = model.to(torch.bfloat16)
        memory = half(source)
        got = half.decoded(target, memory, source, owners)
        assert memory.dtype == got.dtype == torch.bfloat16
        torch.testing.assert_close(got.float(), want, atol=0.1, rtol=0.1)
        scores, _ = half.step(torch.tensor([1, 1, 1]), half.started(memory, source))
        assert scores.dtype == torch.float32


def test_dropout_falls_while_training_alone() -> None:
    model, source, target = random_model(dropout=0.5), packed_of(SOURCES), packed_of(TARGETS)
    owners = torch.tensor(OWNERS)

    def once() -> Tensor:
        return model.decoded(target, model(source), source, owners)

    assert torch.equal(once(), once())
    model.train()
    assert not torch.equal(once(), once())


# What attention is good for -------------------------------------------------------------------------------------------

BEGIN, END = 0, 1
LETTERS = "春夏秋冬东南西北天地"  # their ids are 2, 3, …
LENGTH, TEXTS = 8, 64


def learnt(name: str, steps: int, seed: int = 0) -> tuple[float, list[Tensor]]:
    """The share of characters that are right when new strings are written in reverse, greedily; and where it looked."""
    torch.manual_seed(seed)
    random, owners = np.random.default_rng(seed), torch.arange(TEXTS)
    shape = {"vocab_size": 2 + len(LETTERS), "width": 64, "embedding": 32, "layers": 1, "dropout": 0.0}
    model = seq2seq.Seq2seq(seq2seq.Config(**shape, score=name), ("writer",))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(steps):
        rows = torch.from_numpy(random.integers(2, shape["vocab_size"], size=(TEXTS, LENGTH)))
        source, gold = packed_of(rows.tolist()), F.pad(rows.flip(1), (0, 1), value=END)
        target = packed_of(F.pad(rows.flip(1), (1, 0), value=BEGIN).tolist())
        scores = model.word_scores(model.decoded(target, model(source), source, owners))
        optimiser.zero_grad()
        F.cross_entropy(scores, gold.flatten()).backward()
        optimiser.step()
    rows = torch.from_numpy(random.integers(2, shape["vocab_size"], size=(TEXTS, LENGTH)))
    source, target = packed_of(rows.tolist()), packed_of(F.pad(rows.flip(1), (1, 0), value=BEGIN).tolist())
    with torch.no_grad():
        memory = model.eval()(source)
        state, ids, said = model.started(memory, source), torch.full((TEXTS,), BEGIN), []
        for _ in range(LENGTH):
            scores, state = model.step(ids, state)
            ids = scores.argmax(-1)
            said.append(ids)
        looks = [] if name == "none" else model.attention_of(target, memory, source, owners)
    return (torch.stack(said, 1) == rows.flip(1)).float().mean().item(), looks


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_strings_are_reversed_with_attention_sooner_than_without() -> None:
    """After equal steps on equal data; and the attention runs backwards over the source."""
    with_attention, looks = learnt("additive", 150)
    without, _ = learnt("none", 150)
    assert with_attention > 0.85
    assert without < with_attention - 0.3
    looked = torch.stack(looks).mean(0)[:LENGTH].argmax(-1)
    assert (looked - torch.arange(LENGTH).flip(0)).abs().max() <= 1  # a neighbour's state knows the character too


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"width": 7}, "width is 7, but must be even"),
        ({"layers": 0}, "layers is 0, but must be a whole number from 1 to 100"),
        ({"cell": "rnn"}, "cell is 'rnn', but must be one of: lstm, gru"),
        ({"score": "additiv"}, r"score is 'additiv', .* Did you mean 'additive'\?"),
        ({"tied": 1}, "tied is 1, but must be true or false"),
        ({"dropout": 1.0}, "dropout is 1.0, but must be a number from 0 to 0.99"),
    ],
)
def test_a_config_that_cannot_be_is_named(shape: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        seq2seq.Config(**{**SHAPE, **shape})


def test_presets() -> None:
    for name in seq2seq.PRESETS:
        assert seq2seq.SPEC.preset(name, 99).vocab_size == 99
    with pytest.raises(InputError, match="Did you mean 'small'"):
        seq2seq.SPEC.preset("smal", 99)
