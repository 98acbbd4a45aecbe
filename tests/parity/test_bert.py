"""Our BERT is the published one: transformers' modules with the same weights give the same numbers and gradients."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.core.records import Encoding
from filbert.folder.folder import load
from filbert.folder.layouts.layout import layout
from filbert.models import bert
from filbert.nn.attention import tensors
from filbert.pack.lay import pack

transformers = pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)
LENGTHS = [1, 512, 2, 3, 17, 64, 64, 65, 100, 129, 200, 300, 511]


def encodings(lengths: list[int], vocab: int, segments: int) -> list[Encoding]:
    random = np.random.default_rng(7)
    result = []
    for length in lengths:
        ids, zeros = random.integers(1, vocab, length).astype(np.int32), np.zeros(length, np.int32)
        kinds = (np.arange(length) > length // 2).astype(np.int32) if segments else zeros
        result.append(Encoding(ids, kinds, zeros, zeros, zeros))
    return result


def padded(sequences: list[Encoding], segments: int) -> dict[str, torch.Tensor]:
    shape = (len(sequences), max(len(s) for s in sequences))
    batch = {name: torch.zeros(shape, dtype=torch.long) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for row, sequence in enumerate(sequences):
        batch["input_ids"][row, : len(sequence)] = torch.from_numpy(sequence.ids)
        batch["attention_mask"][row, : len(sequence)] = 1
        batch["token_type_ids"][row, : len(sequence)] = torch.from_numpy(sequence.segments)
    if not segments:
        del batch["token_type_ids"]
    return batch


def pair(kind: str) -> tuple[torch.nn.Module, bert.Bert, dict[str, tuple[str, ...]]]:
    """A transformers model, ours with the same weights, and the map of names."""
    torch.manual_seed(0)
    shape = {"vocab_size": 211, "hidden_size": 48, "num_attention_heads": 4, "pad_token_id": 0}
    if kind == "bert":
        theirs = transformers.BertModel(
            transformers.BertConfig(**shape, num_hidden_layers=3, intermediate_size=80), add_pooling_layer=False
        )
        config = bert.Config(vocab_size=211, width=48, layers=3, heads=4, inner=80, dropout=0.0)
        names = dict(layout("bert").names(config, ()))
    else:
        ids = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
        theirs = transformers.ModernBertModel(
            transformers.ModernBertConfig(**shape, **ids, num_hidden_layers=4, intermediate_size=40)
        )
        config = bert.Config(
            vocab_size=211, width=48, layers=4, heads=4, inner=40, max_length=8_192, segments=0, norm="pre",
            positions="rotary-local", feedforward="geglu", dropout=0.0, eps=1e-5,
        )  # fmt: skip
        names = dict(layout("modernbert").names(config, ()))
    for weight in theirs.parameters():  # wider than the usual start, so that a mistake cannot hide in small numbers
        torch.nn.init.normal_(weight, std=0.2)
    ours = bert.Bert(config)
    state = theirs.state_dict()
    ours.load_state_dict({name: torch.cat([state[n] for n in several]) for name, several in names.items()})
    return theirs.eval(), ours.eval(), names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_outputs_and_gradients(kind: str) -> None:
    theirs, ours, names = pair(kind)
    sequences = encodings(LENGTHS, 211, ours.config.segments)
    packed, starts = pack(sequences)
    got = ours(tensors(packed))
    wanted = theirs(**padded(sequences, ours.config.segments)).last_hidden_state
    flat = torch.cat([got[a : a + len(s)] for s, a in zip(sequences, starts.tolist(), strict=True)])
    expected = torch.cat([wanted[row, : len(s)] for row, s in enumerate(sequences)])
    torch.testing.assert_close(flat, expected, atol=1e-5, rtol=0)

    weight = torch.randn_like(expected) / len(expected) ** 0.5
    (flat * weight).sum().backward()
    (expected * weight).sum().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        reference = torch.cat([gradients[n] for n in names[name]])
        assert parameter.grad is not None, name
        scale = reference.abs().max().clamp(min=1.0)
        torch.testing.assert_close(parameter.grad / scale, reference / scale, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_rows_asked_for_are_the_rows(kind: str) -> None:
    _, ours, _ = pair(kind)
    packed, starts = pack(encodings(LENGTHS, 211, ours.config.segments))
    pack_tensors = tensors(packed)
    with torch.inference_mode():
        everything = ours(pack_tensors)
        some = torch.tensor([0, 5, 1, 700, 701, packed.num_tokens - 1])
        torch.testing.assert_close(ours(pack_tensors, some), everything[some], atol=1e-5, rtol=0)
        first = ours(pack_tensors, "first")
    in_order = everything[torch.tensor(sorted(starts.tolist()))]
    torch.testing.assert_close(first, in_order, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_real_weights_of_minilm(minilm: Path) -> None:
    ours = load(minilm).model
    theirs = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    sequences = encodings(LENGTHS, 30_522, 2)
    packed, starts = pack(sequences)
    got = ours(tensors(packed))
    wanted = theirs(**padded(sequences, 2)).last_hidden_state
    flat = torch.cat([got[a : a + len(s)] for s, a in zip(sequences, starts.tolist(), strict=True)])
    expected = torch.cat([wanted[row, : len(s)] for row, s in enumerate(sequences)])
    torch.testing.assert_close(flat, expected, atol=1e-5, rtol=0)
    weight = torch.randn(len(expected), 1) / len(expected)
    (flat * weight).sum().backward()
    (expected * weight).sum().backward()
    gradient = theirs.embeddings.word_embeddings.weight.grad
    torch.testing.assert_close(ours.embeddings.words.weight.grad, gradient, atol=1e-5, rtol=0)
    query = theirs.encoder.layer[0].attention.self.query.weight.grad
    torch.testing.assert_close(ours.layers[0].attention.qkv.weight.grad[:384], query, atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", bert.POSITIONS)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("feedforward", ["gelu", "gelu-tanh", "relu", "geglu"])
def test_packing_changes_nothing(positions: str, norm: str, feedforward: str) -> None:
    """Every combination of pieces: a sequence in a pack is the same sequence alone."""
    torch.manual_seed(3)
    config = bert.Config(
        vocab_size=97, width=32, layers=4, heads=2, inner=48, max_length=256, positions=positions, norm=norm,
        feedforward=feedforward, dropout=0.0, eps=1e-5,
    )  # fmt: skip
    model = bert.Bert(config, ("pooler", "mlm", "nsp")).eval()
    sequences = encodings([1, 5, 5, 70, 140, 200], 97, 2)
    packed, starts = pack(sequences)
    with torch.inference_mode():
        together = model(tensors(packed))
        for sequence, start in zip(sequences, starts.tolist(), strict=True):
            alone = model(tensors(pack([sequence])[0]))
            torch.testing.assert_close(together[start : start + len(sequence)], alone, atol=1e-5, rtol=0)
