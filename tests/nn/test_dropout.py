"""Dropout by hashing: the right share, no pattern, a function of what was drawn; and when it is used."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from filbert.core.records import Packed
from filbert.nn.dropout import dropped, kept, threshold
from filbert.nn.kernels import fused
from filbert.nn.layers import Dropout, FeedForward, PostNorm, SelfAttention

SHAPE = (1024, 384)
DRAWS = 24


@pytest.fixture(scope="module")
def masks() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.stack([kept(torch.empty(SHAPE), 0.1, torch.rand(2)) for _ in range(DRAWS)])


@pytest.mark.slow
def test_the_share_is_right_in_every_draw_row_and_column(masks: torch.Tensor) -> None:
    for over in ((1, 2), (0, 1), (0, 2)):
        shares = masks.double().mean(over)
        count = masks.numel() / shares.numel()
        squares = ((shares - 0.9) ** 2 / (0.09 / count)).mean()
        assert abs(squares - 1) < 5 * (2 / shares.numel()) ** 0.5, over


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1, 2, 3, 8, 64, 384, 768, 1024, 3 * 384, 65_536])
def test_places_are_independent(masks: torch.Tensor, apart: int) -> None:
    flat = (masks.flatten(1).double() - 0.9) / 0.3
    together = flat[:, :-apart] * flat[:, apart:]
    assert abs(together.mean()) * together.numel() ** 0.5 < 4.5


@pytest.mark.slow
def test_draws_are_independent(masks: torch.Tensor) -> None:
    flat = (masks.flatten(1).double() - 0.9) / 0.3
    together = (flat @ flat.T).fill_diagonal_(0) / flat.shape[1] ** 0.5
    assert together.abs().max() < 4.5


def test_one_seed_alone_makes_another_mask() -> None:
    first = torch.tensor([0.25, 0.75])
    for other in ([0.25 + 2**-24, 0.75], [0.25, 0.75 + 2**-24]):
        both = kept(torch.empty(SHAPE), 0.5, first) ^ kept(torch.empty(SHAPE), 0.5, torch.tensor(other))
        assert abs(both.double().mean() - 0.5) < 0.005
    assert torch.equal(kept(torch.empty(SHAPE), 0.5, first), kept(torch.empty(SHAPE), 0.5, first.clone()))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_the_mean_stays(share: float) -> None:
    assert -(2**31) <= threshold(share) < 2**31
    x = torch.ones(2048, 512)
    out = dropped(x, share, torch.tensor([0.1, 0.2]))
    assert abs((out == 0).double().mean() - share) < 4 * (share * (1 - share) / x.numel()) ** 0.5 + 1e-9
    assert out.max() == pytest.approx(1 / (1 - share))


def test_gradients_pass_where_numbers_did() -> None:
    x, drawn = torch.randn(64, 32, requires_grad=True), torch.tensor([0.3, 0.6])
    out = dropped(x, 0.3, drawn)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, kept(x, 0.3, drawn))


def test_the_layer_drops_only_while_training_and_by_torch_on_the_cpu() -> None:
    layer, x = Dropout(0.5), torch.ones(1000, 10)
    torch.manual_seed(3)
    ours = layer(x)
    torch.manual_seed(3)
    assert torch.equal(ours, nn.functional.dropout(x, 0.5))
    assert torch.equal(layer.eval()(x), x)
    assert Dropout(0.0)(x) is x
    assert repr(layer) == "Dropout(p=0.5)"


@pytest.mark.slow
def test_a_compiled_step_on_the_cpu_takes_no_kernel_of_ours() -> None:
    """They are CUDA's: a layer that is traced here is the plain one."""
    places = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4])
    edges = torch.tensor([0, 3, 8], dtype=torch.int32)
    packed = Packed(ids=places, positions=places, segments=places, boundaries=edges, lengths=(3, 5), max_len=5)
    layer = PostNorm(SelfAttention(16, 2, True), FeedForward(16, 32, True), (nn.LayerNorm(16), nn.LayerNorm(16)), 0.1)
    x = torch.randn(8, 16)
    found = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        found.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compile(layer, backend=backend)(x, packed)
    assert found
    assert not any("norm_backward" in name or "AddNorm" in name or "rand" in name for name in found)


@pytest.mark.slow
def test_gelu_of_compiled_steps_is_the_exact_one() -> None:
    """Its Φ is a polynomial: within 5e-7 of the truth in float32, and torch's within a bit in bfloat16."""
    x = torch.cat((torch.linspace(-12, 12, 200_001), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e4, -1e4])))
    torch.testing.assert_close(fused.quick_gelu(x).double(), F.gelu(x.double()), rtol=1e-7, atol=5e-7)
    half = x.bfloat16()
    close = torch.isclose(fused.quick_gelu(half).float(), F.gelu(half).float(), rtol=2**-7, atol=1e-6)
    assert close.all()
