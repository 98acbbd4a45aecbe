"""The Transformer beside torch's own layers with the same weights, its cache beside reading all at once, and a toy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.models import bert, transformer
from filbert.nn import generation
from filbert.nn.generation import Drawing, Rules
from kit.models import noisy
from kit.packs import packed_of

pytestmark = pytest.mark.usefixtures("one_thread")
SHAPE: dict[str, Any] = {
    "vocab_size": 19, "width": 16, "layers": 2, "writer_layers": 3, "heads": 4, "inner": 24, "max_length": 80,
}  # fmt: skip
START, END = 1, 2


def drawn(*sizes: int, seed: int = 0) -> list[list[int]]:
    """Texts of these lengths."""
    random = np.random.default_rng(seed)
    return [random.integers(3, SHAPE["vocab_size"], size).tolist() for size in sizes]


def model_of(parts: tuple[str, ...] = ("writer",), **fields: Any) -> transformer.Transformer:
    """With noise on all weights, so that leaving a bias or a norm out shows."""
    torch.manual_seed(0)
    config = transformer.Config(**{**SHAPE, "dropout": 0.0, **fields})
    model = transformer.Transformer(config, parts).eval()
    return noisy(model, 0.2)


def torchs(model: transformer.Transformer) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """torch's encoder and decoder with the model's weights."""
    config = model.config
    more: dict[str, Any] = {
        "dropout": 0.0, "activation": config.feedforward, "batch_first": True, "norm_first": config.norm == "pre",
    }  # fmt: skip
    sizes = (config.width, config.heads, config.inner)
    norms = [nn.LayerNorm(config.width) if config.norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*sizes, **more), config.layers, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **more), config.writer_layers, norms[1])
    places = {
        "attention.qkv.": "self_attn.in_proj_", "attention.out.": "self_attn.out_proj.",
        "cross.out.": "multihead_attn.out_proj.", "feed.up.": "linear1.", "feed.down.": "linear2.",
        "attention_norm.": "norm1.", "final_norm.": "norm.",
    }  # fmt: skip
    for ours, theirs, last in ((model, encoder, "norm2."), (model.writer, decoder, "norm3.")):
        named = {name: tensor for name, tensor in ours.state_dict().items() if name.startswith(("layers.", "final_"))}
        for kind in ("weight", "bias"):
            for index in range(len(ours.layers)):
                parts = [named.pop(f"layers.{index}.cross.{part}.{kind}", None) for part in ("q", "kv")]
                if parts[0] is not None:
                    named[f"layers.{index}.multihead_attn.in_proj_{kind}"] = torch.cat(parts)
        found = {}
        for name, tensor in named.items():
            for mine, other in {**places, "cross_norm.": "norm2.", "feed_norm.": last}.items():
                name = name.replace(mine, other)
            found[name] = tensor
        theirs.load_state_dict(found)
    return encoder, decoder


def embedded(model: transformer.Transformer, ids: Tensor) -> Tensor:
    """Words times √D and a sinusoid, from the paper's formulas (§3.4, §3.5)."""
    width = model.config.width
    table = np.zeros((ids.shape[-1], width))
    for place, pair in itertools.product(range(ids.shape[-1]), range(0, width, 2)):
        angle = place / 10_000 ** (pair / width)
        table[place, pair : pair + 2] = np.sin(angle), np.cos(angle)
    return model.embeddings.words.weight[ids] * width**0.5 + torch.from_numpy(table).float()


LAYOUTS = list(itertools.product(("pre", "post"), ("relu", "gelu")))


@pytest.mark.parametrize(("norm", "feedforward"), LAYOUTS)
def test_equal_to_torchs_layers(norm: str, feedforward: str) -> None:
    """Sources and targets of one length together, of mixed lengths one by one; gradients as well."""
    model = model_of(norm=norm, feedforward=feedforward)
    encoder, decoder = torchs(model)
    for source_sizes, target_sizes in (((7, 7, 7), (5, 5, 5)), ((1, 9, 4), (6, 1, 3))):
        sources, targets = drawn(*source_sizes), drawn(*target_sizes, seed=1)
        source, target = packed_of(sources), packed_of(targets)
        memory = model(source)
        vectors = model.decoded(target, memory, source, (0, 1, 2))
        alike = len({*source_sizes}) == 1
        pairs = [(sources, targets)] if alike else [([one], [two]) for one, two in zip(sources, targets, strict=True)]
        memories, wanted = [], []
        for one, two in pairs:
            memory_BSD = encoder(embedded(model, torch.tensor(one)))
            mask = nn.Transformer.generate_square_subsequent_mask(len(two[0]))
            wanted.append(decoder(embedded(model, torch.tensor(two)), memory_BSD, tgt_mask=mask).flatten(0, 1))
            memories.append(memory_BSD.flatten(0, 1))
        torch.testing.assert_close(memory, torch.cat(memories), atol=1e-5, rtol=0)
        torch.testing.assert_close(vectors, torch.cat(wanted), atol=1e-5, rtol=0)
        toward, table = torch.randn_like(vectors), model.embeddings.words.weight
        gradients = [torch.autograd.grad(out, table, toward)[0] for out in (vectors, torch.cat(wanted))]
        torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(model.word_scores(vectors), vectors @ table.T)


@pytest.fixture(params=[False, True], ids=["growing", "steady"])
def steady(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether places are fixed and steps are played back, as on a GPU."""
    monkeypatch.setattr(transformer, "STEADY", request.param)
    return bool(request.param)


def stepped(model: transformer.Transformer, targets: list[list[int]], state: Any) -> Tensor:
    """[B, L, V] the scores after each token, read one by one."""
    found = []
    for column in zip(*targets, strict=True):
        scores, state = model.step(torch.tensor(column), state)
        found.append(scores)
    return torch.stack(found, 1)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(("norm", "embedding"), list(itertools.product(("pre", "post"), ("scaled", "normed"))))
@pytest.mark.parametrize("sizes", [(5, 5, 5), (1, 8, 3), (0, 4, 2)])
def test_token_by_token_is_as_all_at_once(norm: str, embedding: str, sizes: tuple[int, ...]) -> None:
    """Past the room that the cache first has, over sources of mixed lengths, an empty one among them."""
    model = model_of(norm=norm, embedding=embedding, positions="learned")
    source, targets = packed_of(drawn(*sizes)), drawn(*[transformer.GROWTH + 9] * 3, seed=1)
    with torch.no_grad():
        memory = model(source)
        want = model.word_scores(model.decoded(packed_of(targets), memory, source))
        got = stepped(model, targets, model.started(memory, source))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.flatten(0, 1), want, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_rows_trade_places_with_their_past(grouped: bool, before: int) -> None:
    """As a beam selects them: each row's scores are those of the tokens that it took over and then read."""
    model, width, random = model_of(), 3, np.random.default_rng(0)
    source = packed_of(drawn(4, 7, 2))
    memory = model(source).detach()
    rows = [[word] for word in (3, 4, 5)]
    state = model.started(memory, source)
    for at in range(before):
        _, state = model.step(torch.tensor([row[-1] for row in rows]), state)
        rows = [[*row, 6 + at] for row in rows]
    owners = np.repeat(np.arange(3), width)
    state = state.spread(width) if grouped else state.select(torch.from_numpy(owners))
    rows = [rows[owner] for owner in owners]
    with torch.no_grad():
        for step in range(6):
            scores, state = model.step(torch.tensor([row[-1] for row in rows]), state)
            want = model.word_scores(model.decoded(packed_of(rows), memory, source, owners))
            ends = np.cumsum([len(row) for row in rows]) - 1
            torch.testing.assert_close(scores, want[ends], atol=1e-5, rtol=1e-5)
            groups = range(len(rows) // width)
            kept = [group for group in groups if step != 3 or group != 1]  # one sentence is done
            chosen = np.concatenate([random.integers(0, width, width) + group * width for group in kept])
            rows = [[*rows[at], int(random.integers(3, 19))] for at in chosen]
            owners, state = owners[chosen], state.select(torch.from_numpy(chosen))


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("width", [1, 4])
def test_searches_write_alike_alone_and_together(width: int) -> None:
    model = model_of()
    texts, rules = drawn(4, 9, 1, 6), Rules(end=END, max_new=(12, 5, 9, 20), min_new=3)

    def written(which: list[int]) -> list[list[generation.Generated]]:
        source = packed_of([texts[at] for at in which])
        own = Rules(end=END, max_new=[rules.limits(4)[at] for at in which], min_new=3)
        starts = torch.full((len(which),), START)
        with torch.no_grad():
            memory = model(source)
        return [
            generation.beam(model, starts, model.started(memory, source), own, width=width),
            generation.greedy(model, starts, model.started(memory, source), own),
            generation.sample(model, starts, model.started(memory, source), own, Drawing(), which),
        ]

    together = written([0, 1, 2, 3])
    for at in range(4):
        for all_texts, one in zip(together, written([at]), strict=True):
            assert all_texts[at].ids == one[0].ids
            assert all_texts[at].score == pytest.approx(one[0].score, abs=1e-4)


def test_a_bert_starts_the_encoder() -> None:
    """Of the same layout: its state_dict loads under its own names, and the memory is its vectors."""
    torch.manual_seed(0)
    sizes = {name: SHAPE[name] for name in ("vocab_size", "width", "layers", "heads", "inner", "max_length")}
    started = bert.Bert(bert.Config(**sizes, dropout=0.0), ("mlm", "nsp", "pooler")).eval()
    model = model_of(embedding="normed", positions="learned", feedforward="gelu")
    model.take_encoder(started.state_dict())
    packed = packed_of(drawn(3, 8, 1))
    torch.testing.assert_close(model(packed), started(packed), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        model(packed, "first"), started(packed)[packed.boundaries[:-1].long()], atol=1e-5, rtol=0
    )
    with pytest.raises(InputError, match=r"no embeddings.norm.weight|no layers|no embeddings"):
        model_of(embedding="normed", positions="learned", width=32).take_encoder(started.state_dict())


def test_parts_are_built_when_asked_for() -> None:
    plain, packed = model_of(parts=("labels",)), packed_of(drawn(3, 2))
    assert not [name for name in plain.state_dict() if "writer" in name]
    assert plain(packed, "first").shape == (2, SHAPE["width"])
    torch.testing.assert_close(plain(packed, torch.tensor([4, 1])), plain(packed)[[4, 1]], atol=1e-6, rtol=0)
    with pytest.raises(InputError, match="has no writer"):
        plain.started(plain(packed), packed)
    assert model_of()(packed_of([])).shape == (0, SHAPE["width"])
    assert transformer.SPEC.preset("tiny", 7).vocab_size == 7


def test_too_long_a_text_is_refused() -> None:
    model, source = model_of(max_length=4), packed_of(drawn(3))
    state = model.started(model(source), source)
    with pytest.raises(InputError, match=r"writes at most 4 tokens; lower max_new"):
        generation.greedy(model, torch.tensor([START]), state, Rules(end=END, max_new=9, min_new=9))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_every_weight_learns_in_half_precision_too(kind: torch.dtype) -> None:
    model = model_of().to(kind)
    source, target = packed_of(drawn(3, 8, 1)), packed_of(drawn(4, 2, 6, seed=1))
    model.word_scores(model.decoded(target, model(source), source, (2, 0, 1))).float().logsumexp(1).sum().backward()
    assert not [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    with torch.no_grad():
        scores, _ = model.step(torch.tensor([3, 4, 5]), model.started(model(source), source).spread(1))
    assert scores.dtype == torch.float32


WRONG = [
    ({"width": 15}, "width 15 cannot be shared by 4 heads"),
    ({"heads": 0}, "heads is 0, but must be a whole number"),
    ({"norm": "mid"}, "norm is 'mid', but must be one of"),
    ({"dropout": 1.0}, "dropout is 1.0"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG)
def test_a_config_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        transformer.Config(**{**SHAPE, **fields})


@pytest.mark.slow
def test_it_learns_to_reverse_digits() -> None:
    """From scratch on the CPU, in seconds: unseen strings come back in reverse, by beam search, to the last digit."""
    torch.manual_seed(0)
    config = transformer.Config(
        vocab_size=13, width=48, layers=2, writer_layers=2, heads=4, inner=96, max_length=16, norm="pre", dropout=0.0
    )
    model = transformer.Transformer(config, ("writer",))
    random = np.random.default_rng(0)

    def texts(num: int) -> list[list[int]]:
        return [random.integers(3, 13, size).tolist() for size in sorted(random.integers(2, 7, num))]

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = 350
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, steps)
    for _ in range(steps):
        batch = texts(48)
        source, target = packed_of(batch), packed_of([[START, *reversed(text)] for text in batch])
        wanted = torch.tensor([word for text in batch for word in (*reversed(text), END)])
        loss = nn.functional.cross_entropy(model.word_scores(model.decoded(target, model(source), source)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    unseen = texts(60)
    source = packed_of(unseen)
    with torch.no_grad():
        state = model.started(model(source), source)
    found = generation.beam(model, torch.full((60,), START), state, Rules(end=END, max_new=10), width=3)
    assert [text.ids for text in found] == [tuple(reversed(text)) for text in unseen]
    assert all(text.ended for text in found)
