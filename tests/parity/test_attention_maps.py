"""The maps are the published ones: eager transformers and torch's own layers with the same weights give the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_bert import encodings, padded, pair
from test_gpt import SHAPE as GPT_SHAPE
from test_gpt import sequences_of
from test_transformer import drawn, embedded, model_of, packed_of, torchs

import filbert as fb
from filbert.builtin import model as builtin
from filbert.core.records import Encoding, Packed
from filbert.folder.folder import load
from filbert.models import gpt
from filbert.nn import maps
from filbert.nn.attention import tensors
from filbert.pack.lay import pack

transformers = pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)
pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = [1, 200, 2, 17, 64, 64, 66, 130]
NEWS = [
    "中国女排在北京赛区的比赛中以三比零战胜对手，队长赛后说：“我们打得很好。”",
    "The doctor said that unbelievably few people in Shanghai 上海 were ill.",
    "好",
]


def recomputed(model: torch.nn.Module, sequences: Sequence[Encoding], **how: Any) -> list[list[torch.Tensor]]:
    """For each sequence, in the order given, the maps [H, L, L] of each layer."""
    packed, starts = pack(sequences)
    order = np.argsort(np.argsort(starts, kind="stable"))
    found = maps.sites(model)
    with torch.inference_mode(), maps.kept(found, **how) as got:
        model(tensors(packed))
    with torch.inference_mode():
        return [[maps.weights(site, got[site], int(place)) for site in found] for place in order]


def eager(model: Any, sequences: Sequence[Encoding], segments: int) -> list[list[torch.Tensor]]:
    """The same by transformers, from a padded batch."""
    with torch.inference_mode():
        told = model(**padded(list(sequences), segments), output_attentions=True).attentions
    return [[layer[row, :, : len(s), : len(s)] for layer in told] for row, s in enumerate(sequences)]


def check(ours: list[list[torch.Tensor]], theirs: list[list[torch.Tensor]]) -> None:
    for own, other in zip(ours, theirs, strict=True):
        for mine, wanted in zip(own, other, strict=True):
            torch.testing.assert_close(mine, wanted, atol=1e-5, rtol=0)
            torch.testing.assert_close(mine.sum(-1), torch.ones_like(mine[..., 0]), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_minilm(minilm: Path) -> None:
    """The real weights, sequences of up to 512 tokens packed together."""
    theirs = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    sequences = encodings([1, 512, 2, 17, 64, 64, 300], 30_522, 2)
    check(recomputed(load(minilm).model, sequences), eager(theirs, sequences, 2))


@pytest.mark.slow
def test_minilm_by_the_method_that_people_call(minilm: Path) -> None:
    ours = fb.load(minilm, device="cpu")
    theirs = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    cut = transformers.AutoTokenizer.from_pretrained(minilm)
    for text in NEWS:
        with torch.inference_mode():
            told = theirs(**cut(text, return_tensors="pt"), output_attentions=True).attentions
        wanted = torch.stack(told)[:, 0].numpy()
        np.testing.assert_allclose(ours.attention(text).map.values, wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not builtin.is_there(), reason="the built-in model is not here")
@pytest.mark.parametrize("layers", [None, [7], [3, 0]])
def test_the_builtin_model(layers: list[int] | None) -> None:
    """transformers reads its folder; of some layers, early ones included, the maps are those of all."""
    ours = fb.load("builtin", device="cpu")
    how = {"attn_implementation": "eager", "dtype": torch.float32}  # its numbers are stored as float16
    theirs = transformers.AutoModel.from_pretrained(builtin.folder(), **how).eval()
    cut = transformers.AutoTokenizer.from_pretrained(builtin.folder())
    for texts in (NEWS[:1], NEWS[1:2], NEWS[:2]):
        with torch.inference_mode():
            told = theirs(**cut(*texts, return_tensors="pt"), output_attentions=True).attentions
        wanted = torch.stack(told)[:, 0].numpy()
        seen = ours.attention(*texts, layers=layers)
        np.testing.assert_allclose(seen.map.values, wanted[list(range(8)) if layers is None else layers], atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_both_layouts(kind: str) -> None:
    """Classic, and modern with rotations and local layers, whose tokens see 64 to each side."""
    theirs, ours, _ = pair(kind)
    theirs.set_attn_implementation("eager")
    segments = ours.config.segments
    sequences = encodings(LENGTHS, 211, segments)
    found = recomputed(ours, sequences)
    check(found, eager(theirs, sequences, segments))
    if kind == "modernbert":
        far = (torch.arange(200)[:, None] - torch.arange(200)).abs() > 64
        assert all(bool((layer[:, far] == 0).all()) == bool(index % 3) for index, layer in enumerate(found[1]))


def test_gpt2() -> None:
    """And nobody looks ahead."""
    torch.manual_seed(0)
    shape = {"vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_inner": 80, "n_positions": 96}
    theirs = transformers.GPT2Model(transformers.GPT2Config(**shape, attn_implementation="eager")).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    config = gpt.Config(**GPT_SHAPE)
    ours = gpt.Gpt(config).eval()
    ours.load_state_dict(gpt.from_gpt2(theirs.state_dict(), config))
    sequences = sequences_of(1, 96, 2, 17, 17, 33)
    found = recomputed(ours, sequences)
    check(found, eager(theirs, sequences, 0))
    assert all(bool((layer.triu(1) == 0).all()) for own in found for layer in own)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_decoder_beside_torchs_layers(norm: str) -> None:
    """Of encoder, decoder and decoder to source, several pairs of texts in one pack."""
    model = model_of(norm=norm)
    encoder, decoder = torchs(model)
    sources, targets = drawn(7, 2, 9), drawn(4, 6, 1, seed=1)
    found = maps.sites(model)
    with torch.inference_mode(), maps.kept(found) as got:
        source = packed_of(sources)
        model.decoded(packed_of(targets), model(source), source, (0, 1, 2))
    assert [site.kind for site in found] == ["self"] * 2 + ["written", "cross"] * 3
    for place, (one, two) in enumerate(zip(sources, targets, strict=True)):
        with torch.inference_mode():
            vectors = [embedded(model, torch.tensor([ids])) for ids in (one, two)]
            wanted = attended(encoder, decoder, *vectors)
            ours = [maps.weights(site, got[site], place) for site in found]
        check([ours], [wanted])


def attended(encoder: Any, decoder: Any, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """The weights of torch's layers one after another: nn.MultiheadAttention tells them if it is asked."""
    told: dict[str, Any] = {"need_weights": True, "average_attn_weights": False}
    found = []
    for layer in encoder.layers:
        asked = layer.norm1(x) if layer.norm_first else x
        found.append(layer.self_attn(asked, asked, asked, **told)[1][0])
        x = layer(x)
    x = x if encoder.norm is None else encoder.norm(x)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(y.shape[1])
    for layer in decoder.layers:
        asked = layer.norm1(y) if layer.norm_first else y
        found.append(layer.self_attn(asked, asked, asked, attn_mask=mask, **told)[1][0])
        between = y + layer._sa_block(asked, mask, None)
        asked = layer.norm2(between) if layer.norm_first else layer.norm1(between)
        found.append(layer.multihead_attn(asked, x, x, **told)[1][0])
        y = layer(y, x, tgt_mask=mask)
    return found


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_company_changes_nothing(kind: str) -> None:
    """A sequence in a pack has the maps that it has alone; so it has where the run ends as soon as all are there."""
    _, ours, _ = pair(kind)
    sequences = encodings(LENGTHS, 211, ours.config.segments)
    together = recomputed(ours, sequences)
    check(together, [recomputed(ours, [sequence])[0] for sequence in sequences])
    for one, two in zip(together, recomputed(ours, sequences, alone=True), strict=True):
        assert all(torch.equal(mine, other) for mine, other in zip(one, two, strict=True))


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
@pytest.mark.parametrize("rows", [None, "first", torch.tensor([3, 0])])
def test_looking_changes_no_bit(kind: str, rows: Any) -> None:
    """Neither while somebody looks nor after; and the last layer's maps have all rows, whichever were asked for."""
    _, ours, _ = pair(kind)
    packed: Packed = tensors(pack(encodings([9, 70], 211, ours.config.segments))[0])
    with torch.inference_mode():
        before = ours(packed, rows)
        with maps.kept(maps.sites(ours)) as got:
            during = ours(packed, rows)
        after = ours(packed, rows)
        last = maps.sites(ours)[-1]
        assert maps.weights(last, got[last], 1).shape == (4, 70, 70)
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    assert not any(module._forward_pre_hooks for module in ours.modules())
