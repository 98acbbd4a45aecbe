"""Attention in a pack equals attention one by one, whatever path computes it, and no token sees another sequence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed, runs
from filbert.nn import attention, layers
from filbert.nn.attention import attend, attend_first, attend_joined, tensors, use
from filbert.nn.kernels import short_attention
from filbert.pack.lay import pack


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize("reach", [0, 4])
def test_side_by_side_is_the_same(reach: int) -> None:
    torch.manual_seed(3)
    packed = packed_of([9, 1, 30, 9])
    qkv = torch.randn(packed.num_tokens, 3, 2, 8)
    assert torch.equal(attend_joined(qkv, packed, reach=reach), attend(*qkv.unbind(1), packed, reach=reach))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="Did you mean 'flash'"):
        use("flsh")


@pytest.mark.skipif(short_attention.triton is not None, reason="Triton is here")
def test_without_triton_its_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="take flash"):
        use("triton")
    assert attention.CHOSEN["half"] == "flash"


@pytest.mark.slow
def test_short_attention_is_one_node_with_a_gradient() -> None:
    """What a compiled graph believes of the kernel, without running it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        qkv = torch.empty(40, 3, 2, 16, requires_grad=True)
        edges = torch.empty(4, dtype=torch.int32)
        bias = torch.empty(96, requires_grad=True)
        for out in (
            short_attention.attend_joined(qkv, edges, 20),
            short_attention.attend_joined(qkv, edges, 20, bias),
            short_attention.attend(*qkv.unbind(1), edges, 20),
        ):
            assert out.shape == (40, 2, 16)
            qkv.grad = None
            out.sum().backward()
            assert qkv.grad is not None
            assert qkv.grad.shape == qkv.shape
        assert bias.grad is not None
        assert bias.grad.shape == bias.shape


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_cuda
@pytest.mark.parametrize("kernel", sorted(attention.KERNELS))
@pytest.mark.parametrize("reach", [0, 64])
def test_every_kernel_is_the_definition_on_cuda(kernel: str, reach: int) -> None:
    packed = tensors(pack(sequences([128, 2, 129, 300, 300, 17, 1, 64]))[0], "cuda")
    torch.manual_seed(4)
    qkv = torch.randn(packed.num_tokens, 3, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(packed.num_tokens, 4, 64, device="cuda", dtype=torch.bfloat16)
    plain = qkv.detach().double().cpu().requires_grad_()
    wanted = plainly(*plain.unbind(1), tensors(packed, "cpu"), reach)
    (wanted * weight.double().cpu()).sum().backward()
    assert plain.grad is not None
    use(kernel)
    try:
        for out in (attend_joined(qkv, packed, reach=reach), attend(*qkv.unbind(1), packed, reach=reach)):
            (gradient,) = torch.autograd.grad(out, qkv, weight)
            for got, right in ((out, wanted), (gradient, plain.grad)):
                assert (got.detach().double().cpu() - right).norm() / right.norm() < 1e-2
    finally:
        use("flash")


@needs_cuda
def test_biases_get_the_same_gradients_from_our_kernels_on_cuda() -> None:
    packed = tensors(pack(sequences([128, 2, 129, 300, 300, 17, 1, 64]))[0], "cuda")
    torch.manual_seed(5)
    attend_layer, feed = layers.SelfAttention(256, 4, True), layers.FeedForward(256, 1024, True)
    model = torch.nn.ModuleList([attend_layer, feed]).to("cuda", torch.bfloat16)
    x, weight = torch.randn(2, packed.num_tokens, 256, device="cuda", dtype=torch.bfloat16)
    found = []
    try:
        for kernel in ("flash", "triton"):
            use(kernel)
            found.append(torch.autograd.grad(feed(attend_layer(x, packed)), list(model.parameters()), weight))
    finally:
        use("flash")
    for plain, ours in zip(*found, strict=True):
        assert (ours.float() - plain.float()).norm() / plain.float().norm() < 2e-2


@pytest.mark.slow
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
