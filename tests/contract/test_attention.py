"""Attention in a pack equals attention one by one, whatever path computes it, and no token sees another sequence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from filbert.core.records import Encoding, Packed
from filbert.data.packing import pack
from filbert.nn.attention import attend, attend_first, runs, tensors


def sequences(lengths: list[int], vocab: int = 100, seed: int = 0) -> list[Encoding]:
    random = np.random.default_rng(seed)

    def one(length: int) -> Encoding:
        ids, zeros = random.integers(0, vocab, length).astype(np.int32), np.zeros(length, np.int32)
        return Encoding(ids, (ids % 2).astype(np.int32), zeros, zeros, zeros)

    return [one(length) for length in lengths]


def packed_of(lengths: list[int]) -> Packed:
    return tensors(pack(sequences(lengths))[0])


def plainly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, packed: Packed, reach: int) -> torch.Tensor:
    """The definition, in float64, one sequence and head at a time."""
    out = torch.empty_like(q, dtype=torch.float64)
    edges = packed.boundaries.tolist()
    for a, b in itertools.pairwise(edges):
        places = torch.arange(b - a)
        far = (places[:, None] - places[None]).abs() > reach if reach else torch.zeros(b - a, b - a, dtype=torch.bool)
        for head in range(q.shape[1]):
            scores = q[a:b, head].double() @ k[a:b, head].double().T / math.sqrt(q.shape[2])
            out[a:b, head] = scores.masked_fill(far, -math.inf).softmax(-1) @ v[a:b, head].double()
    return out


LENGTHS = [
    [1], [7], [1, 1, 1], [3, 3, 3, 5, 5, 1], [128, 2, 129, 64, 65, 66], [300, 17, 300], [*range(1, 40)], [512, 1, 256],
]  # fmt: skip


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("reach", [0, 1, 16, 64])
def test_every_path_is_the_definition(lengths: list[int], reach: int) -> None:
    torch.manual_seed(0)
    packed = packed_of(lengths)
    q, k, v = torch.randn(3, packed.num_tokens, 2, 8).unbind(0)
    wanted = plainly(q, k, v, packed, reach)
    torch.testing.assert_close(attend(q, k, v, packed, reach=reach).double(), wanted, atol=1e-5, rtol=0)
    first = packed.boundaries[:-1].long()
    got = attend_first(q[first], k, v, packed, reach=reach)
    torch.testing.assert_close(got.double(), wanted[first], atol=1e-5, rtol=0)


@pytest.mark.parametrize("reach", [0, 4])
def test_gradients_are_the_definitions(reach: int) -> None:
    torch.manual_seed(1)
    packed = packed_of([9, 1, 30, 9, 4])
    ours = torch.randn(3, packed.num_tokens, 2, 8, requires_grad=True)
    plain = ours.detach().clone().requires_grad_()
    weight = torch.randn(packed.num_tokens, 2, 8)
    (attend(*ours.unbind(0), packed, reach=reach) * weight).sum().backward()
    (plainly(*plain.unbind(0), packed, reach) * weight).sum().backward()
    torch.testing.assert_close(ours.grad, plain.grad, atol=1e-5, rtol=0)


@pytest.mark.parametrize("reach", [0, 4])
def test_no_token_sees_another_sequence(reach: int) -> None:
    """A planted leak passes gradient and overfit checks; only this finds it."""
    torch.manual_seed(2)
    packed = packed_of([20, 20, 11, 40])
    q, k, v = (torch.randn(packed.num_tokens, 2, 8) for _ in range(3))
    before = attend(q, k, v, packed, reach=reach)
    start, end = packed.boundaries[1:3].tolist()
    k[start:end] += 5.0
    v[start:end] -= 3.0
    after = attend(q, k, v, packed, reach=reach)
    changed = (before != after).any(-1).any(-1)
    assert changed[start:end].all()
    assert not changed[:start].any()
    assert not changed[end:].any()


def test_runs_tile_the_row() -> None:
    assert list(runs((2, 2, 5, 0, 1))) == [(0, 2, 2), (4, 1, 5), (9, 1, 1)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("reach", [0, 64])
def test_flash_is_the_definition_on_cuda(reach: int) -> None:
    packed = tensors(pack(sequences([128, 2, 129, 300, 300, 17]))[0], "cuda")
    q, k, v = (torch.randn(packed.num_tokens, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    got = attend(q, k, v, packed, reach=reach).double().cpu()
    wanted = plainly(q.cpu(), k.cpu(), v.cpu(), packed, reach)
    assert (got - wanted).norm() / wanted.norm() < 1e-2


def test_a_pack_compiles_to_one_graph_without_breaks() -> None:
    from filbert.models import bert

    graphs = []

    def counted(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    config = bert.Config(vocab_size=100, width=16, layers=4, heads=2, inner=32, positions="rotary-local", dropout=0.0)
    model = bert.Bert(config).eval()
    packed = packed_of([9, 9, 4, 70])
    compiled = torch.compile(model, backend=counted, fullgraph=True)
    torch.testing.assert_close(compiled(packed), model(packed), atol=1e-5, rtol=0)
    assert len(graphs) == 1
