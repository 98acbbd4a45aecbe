"""ELMo: two biLSTM layers and their mix by hand, what each direction has seen, and tokens read by their spelling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.folder.folder import load, save
from filbert.models import elmo
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.text.tokenizer import Tokenizer
from filbert.train import tune


def packed_of(*rows: list[int]) -> Packed:
    arrays = [np.array(row, dtype=np.int32) for row in rows]
    return tensors(pack([Encoding(row, *(np.zeros_like(row) for _ in range(4))) for row in arrays])[0])


def model(parts: tuple[str, ...] = ("lm",), **shape: object) -> elmo.Elmo:
    torch.manual_seed(0)
    config = elmo.Config(**{"vocab_size": 23, "direction_width": 5, "filters": 1, "dropout": 0.0, **shape})
    made = elmo.Elmo(config, parts)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=0.2)
    return made.eval()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def lstm(xs: Sequence[float], into: Sequence[float], along: Sequence[float], bias: Sequence[float]) -> list[float]:
    """An LSTM of one number, by its equations (Hochreiter & Schmidhuber 1997); gates in torch's order i f g o."""
    h = c = 0.0
    found = []
    for x in xs:
        i, f, g, o = (into[k] * x + along[k] * h + bias[k] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * math.tanh(g)
        h = sigmoid(o) * math.tanh(c)
        found.append(h)
    return found


def test_two_layers_and_their_mix_by_hand() -> None:
    tiny = model(vocab_size=4, direction_width=1)
    words = [0.5, -1.0, 2.0, 0.3]
    gates = {  # of each LSTM: weights into the gates, along time, and biases
        (0, "onward"): ([0.4, -0.3, 0.9, 0.2], [0.1, 0.5, -0.7, 0.3], [0.0, 1.0, 0.1, -0.2]),
        (0, "back"): ([-0.6, 0.2, 0.8, 0.5], [0.3, -0.1, 0.4, 0.2], [0.2, 0.5, -0.3, 0.1]),
        (1, "onward"): ([0.7, 0.1, -0.5, 0.6], [-0.2, 0.3, 0.5, 0.1], [0.1, 0.2, 0.3, 0.4]),
        (1, "back"): ([0.2, 0.4, 0.6, -0.3], [0.5, 0.1, 0.2, 0.6], [-0.1, 0.3, 0.0, 0.2]),
    }
    scalars, gamma = [0.2, -0.4, 1.0], 1.7
    with torch.no_grad():
        tiny.embeddings.words.weight.copy_(torch.tensor(words)[:, None])
        for (layer, way), (into, along, bias) in gates.items():
            cell = getattr(tiny.layers[layer], way).cell
            cell.weight_ih_l0.copy_(torch.tensor(into)[:, None])
            cell.weight_hh_l0.copy_(torch.tensor(along)[:, None])
            cell.bias_ih_l0.copy_(torch.tensor(bias))
            cell.bias_hh_l0.zero_()
        tiny.mix.weights.copy_(torch.tensor(scalars))
        tiny.mix.gamma.fill_(gamma)
    text = [2, 0, 1]
    xs = [words[token] for token in text]
    onward = [xs, lstm(xs, *gates[0, "onward"])]
    back = [xs, lstm(xs[::-1], *gates[0, "back"])[::-1]]
    onward.append([new + old for new, old in zip(lstm(onward[1], *gates[1, "onward"]), onward[1], strict=True)])
    second = lstm(back[1][::-1], *gates[1, "back"])[::-1]
    back.append([new + old for new, old in zip(second, back[1], strict=True)])
    shares = [math.exp(s) / sum(math.exp(t) for t in scalars) for s in scalars]
    packed = packed_of([3], text)
    with torch.no_grad():
        mixed = tiny(packed)[1:]
        ahead, behind = (side[1:, 0].tolist() for side in tiny.both_ways(packed))
    assert ahead == pytest.approx(onward[2], abs=1e-6)
    assert behind == pytest.approx(back[2], abs=1e-6)
    for at in range(3):
        wanted = [gamma * sum(s * side[j][at] for j, s in enumerate(shares)) for side in (onward, back)]
        assert mixed[at].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("kind", elmo.INPUTS)
def test_the_forward_half_never_sees_the_future_nor_the_backward_half_the_past(kind: str) -> None:
    """By gradients of the mix of all layers, in a pack: exactly its own sequence up to it, or from it on."""
    network, packed = model(input=kind), packed_of([1, 2, 3], [4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15])
    width, at = network.config.direction_width, 5
    for half, wanted in ((slice(0, width), range(3, 6)), (slice(width, None), range(5, 9))):
        rows: list[torch.Tensor] = []

        def watch(module: object, given: object, out: torch.Tensor, rows: list[torch.Tensor] = rows) -> torch.Tensor:
            rows.append(out.detach().requires_grad_())
            return rows[0]

        handle = network.embeddings.register_forward_hook(watch)
        network(packed)[at, half].sum().backward()
        handle.remove()
        assert rows[0].grad is not None
        assert (rows[0].grad.abs().sum(1) > 0).nonzero()[:, 0].tolist() == list(wanted)


@pytest.mark.parametrize("kind", elmo.INPUTS)
def test_rows_packs_and_precision(kind: str) -> None:
    network, texts = model(input=kind), [[5], [1, 2, 3, 4, 5], [6, 7]]
    packed = packed_of(*texts)
    with torch.inference_mode():
        everything = network(packed)
        assert everything.shape == (8, network.width)
        some = torch.tensor([7, 0, 3, 3])
        torch.testing.assert_close(network(packed, some), everything[some])
        torch.testing.assert_close(network(packed, "first"), everything[packed.boundaries[:-1].long()])
        alone = torch.cat([network(packed_of(text)) for text in sorted(texts, key=len)])
        torch.testing.assert_close(everything, alone, atol=1e-6, rtol=0)
        assert network(packed_of()).shape == (0, network.width)
        assert network.to(torch.bfloat16)(packed).dtype == torch.bfloat16


def test_the_mix_belongs_to_a_task() -> None:
    """It counts as a head, begins as the mean of the layers, and a task's loss moves it; pretraining does not."""
    torch.manual_seed(0)
    network = elmo.Elmo(elmo.Config(vocab_size=23, direction_width=5), ("lm", "labels"), 3)
    layers = tune.num_layers(name for name, _ in network.named_parameters())
    depths = {name: tune.depth(name, layers) for name, _ in network.named_parameters()}
    heads = {name for name, depth in depths.items() if depth == layers + 1}
    assert layers == 2
    assert {"mix.weights", "mix.gamma", "lm.weight", "heads.labels.bias"} <= heads
    assert not [name for name in heads if name.startswith(("embeddings", "layers"))]
    packed = packed_of([1, 2, 3])
    with torch.inference_mode():
        read = [torch.cat(sides, dim=-1) for sides in network.eval()._read(packed)]
        torch.testing.assert_close(network(packed), torch.stack(read).mean(0))
    sum(side.sum() for side in network.both_ways(packed)).backward()
    assert network.mix.weights.grad is None
    network.heads["labels"](network(packed)).square().sum().backward()
    assert network.mix.weights.grad.abs().min() > 0


def test_a_spelling_is_read_by_filters_and_highways() -> None:
    """A token's vector as NumPy makes it from the published layers: filters, highest value, two highways, a map."""
    network = model(input="characters", token_bytes=12)
    tokens = [f"字{chr(0x4E00 + index)}" for index in range(22)] + ["苹果派"]
    network.spell(tokens)
    made = network.embeddings
    weights = {name: value.numpy() for name, value in made.state_dict().items()}
    row = [256, *"苹果派".encode(), 257, 258][:12]  # nine bytes, two marks, one to fill up
    assert made.spellings[22].tolist() == row
    letters = weights["bytes.weight"][row].T  # [16, 12]
    found = []
    for index, (span, times) in enumerate(elmo.SPANS):
        kernel, bias = weights[f"filters.{index}.weight"], weights[f"filters.{index}.bias"]
        assert kernel.shape == (times, 16, span)
        places = [(kernel * letters[:, at : at + span]).sum((1, 2)) + bias for at in range(12 - span + 1)]
        found.append(np.maximum(np.max(places, axis=0), 0))
    x = np.concatenate(found)
    for index in range(2):
        new, gate = np.split(weights[f"highways.{index}.weight"] @ x + weights[f"highways.{index}.bias"], 2)
        gate = 1 / (1 + np.exp(-gate))
        x = gate * np.maximum(new, 0) + (1 - gate) * x
    wanted = weights["map.weight"] @ x + weights["map.bias"]
    with torch.inference_mode():
        got = made(torch.tensor([3, 22, 3]))
    np.testing.assert_allclose(got[1], wanted, atol=1e-5)
    assert torch.equal(got[0], got[2])
    assert not torch.allclose(got[0], got[1])


@pytest.mark.slow
def test_spellings_follow_from_the_vocabulary(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Told by whoever builds or loads a model; a folder answers as the model did."""
    one, two = model(input="characters", token_bytes=8), model(input="characters", token_bytes=8)
    assert len(two.embeddings.spellings.unique(dim=0)) == 23  # told apart before anybody says how they are spelled
    one.spell([f"词{index}" for index in range(22)] + ["longer than eight bytes"])
    assert one.embeddings.spellings[22].tolist() == [256, *b"longer", 257]
    packed = packed_of([1, 2, 22])
    assert not torch.equal(one(packed), two(packed))
    assert not any("spellings" in name for name in one.state_dict())
    whole = model(("labels",), input="characters", token_bytes=8, vocab_size=tokenizer.vocab_size)
    whole.spell(tokenizer.vocabulary)
    save(tmp_path / "model", whole, tokenizer, labels=["a", "b"])
    with torch.inference_mode():
        assert torch.equal(load(tmp_path / "model").model(packed), whole(packed))
    with pytest.raises(InputError, match="elmo has 23 tokens, but 2 were spelled"):
        one.spell(["a", "b"])


def test_what_is_wrong_is_named() -> None:
    for wrong in ({"input": "bytes"}, {"direction_width": 0}, {"token_bytes": 3}, {"dropout": -1}, {"layers": True}):
        with pytest.raises(InputError, match=f"elmo config: {next(iter(wrong))} is"):
            elmo.Config(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Did you mean 'small'"):
        elmo.SPEC.preset("smal", 10)
    with pytest.raises(InputError, match="no language-model head"):
        model(()).word_scores(torch.zeros(1, 5))
