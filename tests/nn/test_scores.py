"""Attention scores against their formulas in NumPy; masks, gradients, half precision; mixing, padded and packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.nn.attention_scores import SCORES, MultiHead, Score, mix, mix_within, score

Numbers = Any
WIDTH = 6


def weights_of(module: torch.nn.Module) -> dict[str, Numbers]:
    return {name: tensor.detach().double().numpy() for name, tensor in module.named_parameters()}


def concat(w: dict[str, Numbers]) -> Numbers:
    """W of W·[q; k], from its two halves."""
    return np.concatenate([w["query.weight"], w["key.weight"]], axis=1)


# One query with one key, as the papers write it: no batches, no broadcasting.
FORMULAS: dict[str, Callable[[Numbers, Numbers, dict[str, Numbers]], float]] = {
    "dot": lambda q, k, w: sum(a * b for a, b in zip(q, k, strict=True)),
    "scaled": lambda q, k, w: sum(a * b for a, b in zip(q, k, strict=True)) / np.sqrt(len(q)),
    "general": lambda q, k, w: q @ w["bilinear.weight"] @ k,
    "cosine": lambda q, k, w: w["strength"] * (q @ k) / (np.sqrt((q**2).sum()) * np.sqrt((k**2).sum())),
    "additive": lambda q, k, w: (w["out.weight"] @ np.tanh(concat(w) @ np.concatenate([q, k]))).item(),
    "mlp": lambda q, k, w: (
        w["out.weight"]
        @ np.tanh(
            w["second.weight"] @ np.tanh(concat(w) @ np.concatenate([q, k]) + w["key.bias"]) + w["second.bias"],
        )
    ).item(),
}


def random_score(name: str, width: int = WIDTH) -> Score:
    """With every weight away from its start."""
    torch.manual_seed(0)
    found = score(name, width)
    with torch.no_grad():
        for weight in found.parameters():
            weight.copy_(torch.randn_like(weight) * 0.7)
    return found


def told(name: str, q_QK: Numbers, k_SK: Numbers, module: Score) -> Numbers:
    w = weights_of(module)
    return np.array([[FORMULAS[name](q, k, w) for k in k_SK] for q in q_QK])


def softmax(row: Numbers) -> Numbers:
    shares = np.exp(row - row.max())
    return shares / shares.sum()


def test_all_formulas_are_tested() -> None:
    assert set(FORMULAS) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (4, 1), (0, 3), (2, 0)])
def test_a_score_is_its_formula(name: str, shape: tuple[int, int]) -> None:
    """In float32, within 1e-5 of NumPy's float64."""
    module = random_score(name)
    q, k = torch.randn(shape[0], WIDTH), torch.randn(shape[1], WIDTH)
    got = module(q, k)
    assert got.shape == shape
    want = told(name, q.double().numpy(), k.double().numpy(), module).reshape(shape)
    np.testing.assert_allclose(got.detach().numpy(), want, atol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_dimensions_before_are_carried_and_broadcast(name: str) -> None:
    module = random_score(name)
    q, k = torch.randn(2, 3, 4, WIDTH), torch.randn(3, 5, WIDTH)
    got = module(q, k)
    assert got.shape == (2, 3, 4, 5)
    torch.testing.assert_close(got[1, 2], module(q[1, 2], k[2]))


@pytest.mark.parametrize("name", SCORES)
def test_keys_can_be_made_ready_once(name: str) -> None:
    """For each query by itself the same scores as for all together: what a decoder does step by step."""
    module = random_score(name)
    q, k = torch.randn(3, WIDTH), torch.randn(5, WIDTH)
    ready = module.ready(k)
    each = torch.cat([module.met(q[at : at + 1], ready) for at in range(3)])
    torch.testing.assert_close(each, module(q, k))


@pytest.mark.parametrize("name", SCORES)
def test_a_masked_mix_is_its_formula(name: str) -> None:
    """Softmax over what may be seen alone; what is hidden has a weight of exactly 0, whatever its score."""
    module = random_score(name)
    q, k, v = torch.randn(3, WIDTH), torch.randn(5, WIDTH), torch.randn(5, 4)
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]]).bool()
    scores = module(q, k)
    mixed, weights = mix(scores.masked_fill(~mask, 1e9), v, mask)
    for at, row in enumerate(told(name, q.double().numpy(), k.double().numpy(), module)):
        seen = mask[at].numpy()
        want = softmax(row[seen])
        np.testing.assert_allclose(weights[at].detach().numpy()[seen], want, atol=1e-5)
        np.testing.assert_allclose(mixed[at].detach().numpy(), want @ v.numpy()[seen], atol=1e-5)
        assert not weights[at][~mask[at]].any()


@pytest.mark.parametrize("name", SCORES)
def test_gradients_are_right_and_never_reach_what_is_hidden(name: str) -> None:
    """Against finite differences, of queries, keys, values and every weight; with a row that may see nothing."""
    module = random_score(name).double()
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]]).bool()
    inputs = [torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True) for n in (2, 3, 3)]

    def read(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        names = [name for name, _ in module.named_parameters()]
        scores = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (q, k))
        return mix(scores, v, mask)[0]

    assert torch.autograd.gradcheck(read, (*inputs, *module.parameters()))
    read(*inputs, *module.parameters()).square().sum().backward()
    q, k, v = (tensor.grad for tensor in inputs)
    assert q is not None
    assert k is not None
    assert v is not None
    assert not q[1].any()
    assert not k[1].any()
    assert not v[1].any()
    assert k[[0, 2]].any()
    for weight in module.parameters():
        assert weight.grad is not None
        assert weight.grad.any()


@pytest.mark.parametrize("name", SCORES)
def test_half_precision(name: str) -> None:
    """bfloat16 in, bfloat16 out, near float32; weights still sum to 1 to its precision."""
    module = random_score(name)
    q, k, v = torch.randn(3, WIDTH), torch.randn(5, WIDTH), torch.randn(5, 4)
    want, _ = mix(module(q, k), v)
    half = module.to(torch.bfloat16)
    mixed, weights = mix(half(q.bfloat16(), k.bfloat16()), v.bfloat16())
    assert mixed.dtype == weights.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), want, atol=0.05, rtol=0.05)
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(3), atol=0.01, rtol=0)


@pytest.mark.parametrize("name", SCORES)
def test_the_query_has_a_say(name: str) -> None:
    """Another query gives other weights; w·[q; k] without its tanh, often called concat, would give the same."""
    module = random_score(name)
    q, k = torch.randn(2, WIDTH), torch.randn(5, WIDTH)
    one, two = mix(module(q, k), k)[1]
    assert (one - two).abs().max() > 0.01
    w = torch.randn(2 * WIDTH)
    both = torch.cat((q[:, None].expand(2, 5, WIDTH), k.expand(2, 5, WIDTH)), -1)
    flat_one, flat_two = mix(both @ w, k)[1]
    torch.testing.assert_close(flat_one, flat_two)


def test_scaling_keeps_the_variance_of_a_score() -> None:
    """Near 1 for any width, where that of the dot product is the width."""
    torch.manual_seed(0)
    for width in (16, 64, 256):
        q, k = torch.randn(200, width), torch.randn(200, width)
        assert score("scaled", width)(q, k).var().item() == pytest.approx(1, rel=0.1)
        assert score("dot", width)(q, k).var().item() == pytest.approx(width, rel=0.1)


def test_a_vector_of_zeros_has_a_cosine_and_no_nan() -> None:
    q = torch.zeros(1, WIDTH, requires_grad=True)
    got = score("cosine", WIDTH)(q, torch.randn(2, WIDTH))
    got.sum().backward()
    assert not got.any()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_nothing_to_see_gives_zeros() -> None:
    """A hidden row, no keys at all, and no gradient that is not a number."""
    scores = torch.randn(2, 3, requires_grad=True)
    mixed, weights = mix(scores, torch.randn(3, 4), torch.zeros(2, 3).bool())
    assert not mixed.any()
    assert not weights.any()
    mixed.sum().backward()
    assert scores.grad is not None
    assert not scores.grad.any()
    mixed, weights = mix(torch.randn(2, 0), torch.randn(0, 4))
    assert mixed.shape == (2, 4)
    assert not mixed.any()


@pytest.mark.parametrize("lengths", [(3, 1, 0, 4), (0,), (), (5,)])
def test_mixing_within_a_pack_is_mixing_one_by_one(lengths: tuple[int, ...]) -> None:
    """Vectors, weights and gradients; scores of very different sizes do not disturb each other."""
    torch.manual_seed(0)
    scores = (torch.randn(sum(lengths)) * 40).double().requires_grad_()
    values = torch.randn(sum(lengths), 4, dtype=torch.float64, requires_grad=True)
    mixed, weights = mix_within(scores, values, torch.tensor(lengths, dtype=torch.int64))
    alone = [mix(s[None], v) for s, v in zip(scores.split(lengths), values.split(lengths), strict=True)]
    want = torch.cat([m for m, _ in alone]) if lengths else torch.zeros(0, 4, dtype=torch.float64)
    torch.testing.assert_close(mixed, want)
    if lengths:
        torch.testing.assert_close(weights, torch.cat([w[0] for _, w in alone]))
    got = torch.autograd.grad(mixed.square().sum(), (scores, values))
    if lengths:
        for one, other in zip(got, torch.autograd.grad(want.square().sum(), (scores, values)), strict=True):
            torch.testing.assert_close(one, other)


def test_several_heads_are_those_of_torch() -> None:
    """With the scaled score: the same numbers as torch.nn.MultiheadAttention with the same weights."""
    torch.manual_seed(0)
    ours, theirs = MultiHead(12, 3), torch.nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    q, k, v = torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.randn(2, 5, 12)
    mask = torch.ones(4, 5).tril().bool()
    got, weights = ours(q, k, v, mask)
    want, theirs_weights = theirs(q, k, v, attn_mask=~mask, average_attn_weights=False)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    torch.testing.assert_close(weights, theirs_weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SCORES)
def test_several_heads_take_any_score(name: str) -> None:
    """Each head is that score of its own part of the mapped vectors; every weight learns."""
    torch.manual_seed(0)
    module = MultiHead(12, 3, name)
    q, k = torch.randn(4, 12), torch.randn(5, 12)
    got, weights = module(q, k, k)
    mapped = [layer(x) for layer, x in ((module.query, q), (module.key, k), (module.value, k))]
    heads = [mix(module.score(a, b), c)[0] for a, b, c in zip(*(x.split(4, -1) for x in mapped), strict=True)]
    torch.testing.assert_close(got, module.out(torch.cat(heads, -1)))
    assert weights.shape == (3, 4, 5)
    (got * torch.randn_like(got)).sum().backward()
    for weight in module.parameters():
        assert weight.grad is not None


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(InputError, match=r"the attention score is 'aditive', .* Did you mean 'additive'\?"):
        score("aditive", 4)
    with pytest.raises(InputError, match="width 10 cannot be shared by 3 heads"):
        MultiHead(10, 3)
