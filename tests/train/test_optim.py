"""The optimisers: the published formulas, steps that are skipped without a trace, a state that goes on as before."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.models import bert
from filbert.train import muon, optim

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]


def model(device: str = "cpu", **more: object) -> bert.Bert:
    torch.manual_seed(0)
    config = bert.Config(vocab_size=30, width=16, layers=2, heads=2, inner=32, max_length=16, **more)  # type: ignore[arg-type]
    return bert.Bert(config, ("pooler", "mlm", "nsp", "labels"), labels=5).to(device)


def give_gradients(module: nn.Module, step: int, scale: float = 1.0) -> None:
    """The same for the same step, on any device."""
    random = torch.Generator().manual_seed(step)
    for parameter in module.parameters():
        parameter.grad = (torch.randn(parameter.shape, generator=random) * scale).to(parameter.device)


def trained(name: str, steps: int, module: nn.Module, begin: int = 0, made: optim.AdamW | optim.Mixed | None = None):  # type: ignore[no-untyped-def]
    made = made or optim.optimiser(module, name, 1e-2, 0.1)
    for step in range(begin, begin + steps):
        give_gradients(module, step)
        for group in made.param_groups:
            group["lr"] = 1e-2 * optim.share("linear", step, 10, 0.3)
        made.step()
    return made


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().numpy().tobytes()


def assert_same_bits(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    assert one.keys() == two.keys()
    for name in one:
        assert bits(one[name]) == bits(two[name]), name


# The rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_bert_adamw_is_the_published_formula(device: str) -> None:
    module = model(device)
    ours = {n: p.detach().cpu().numpy().astype(np.float64) for n, p in module.named_parameters()}
    first = {n: np.zeros_like(w) for n, w in ours.items()}
    second = {n: np.zeros_like(w) for n, w in ours.items()}
    made = optim.optimiser(module, "bert-adamw", 1e-2, 0.1)
    for step in range(4):
        give_gradients(module, step)
        made.step()
        for n, p in module.named_parameters():  # optimization.py, lines 128-156
            g = p.grad.cpu().numpy().astype(np.float64)
            first[n] = 0.9 * first[n] + 0.1 * g
            second[n] = 0.999 * second[n] + 0.001 * g**2
            update = first[n] / (np.sqrt(second[n]) + 1e-6)
            ours[n] -= 1e-2 * (update + (0.1 * ours[n] if p.ndim > 1 else 0.0))
    for n, p in module.named_parameters():
        np.testing.assert_allclose(p.detach().cpu().numpy(), ours[n], rtol=2e-5, atol=2e-6, err_msg=n)


@pytest.mark.parametrize("device", DEVICES)
def test_adamw_is_torchs_with_decay_on_matrices_only(device: str) -> None:
    one, two = model(device), model(device)
    made = optim.optimiser(one, "adamw", 1e-2, 0.1)
    groups = [
        {"params": [p for p in two.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in two.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.98), eps=1e-6, foreach=False)
    for step in range(4):
        for module, each in ((one, made), (two, plain)):
            give_gradients(module, step)
            each.step()
    for (name, p), q in zip(one.named_parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(24, 24), (48, 16), (16, 48)])
def test_muon_is_torchs_on_one_matrix(shape: tuple[int, int], device: str) -> None:
    torch.manual_seed(0)
    one = nn.Parameter((torch.randn(shape) * 0.1).to(device))
    two, begun, momentum = nn.Parameter(one.detach().clone()), one.detach().clone(), torch.zeros_like(one)
    theirs = torch.optim.Muon([two], lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        torch.manual_seed(step)
        one.grad = torch.randn(shape).to(device)
        two.grad = one.grad.clone()
        with torch.no_grad():
            muon.move([one], [momentum], learning_rate=1e-2, weight_decay=0.1)
        theirs.step()
    # Theirs works in bfloat16 everywhere, ours in float32 on a CPU: two digits agree.
    assert float((one - two).detach().norm() / (one - begun).detach().norm()) < 0.02
    torch.testing.assert_close(momentum, theirs.state[two]["momentum_buffer"], rtol=1e-6, atol=1e-7)


def test_orthogonal_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 20, 12) * torch.tensor([1e-4, 1.0, 1e4])[:, None, None]
    values = torch.linalg.svdvals(muon.orthogonal(x))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.25
    assert torch.equal(muon.orthogonal(torch.zeros(1, 4, 4)), torch.zeros(1, 4, 4))


def test_muon_takes_the_maps_between_hidden_vectors_and_splits_those_that_are_several() -> None:
    made = optim.optimiser(model(feedforward="geglu"), "muon", 1e-2, 0.1)
    rule = {n: (g["rule"], g.get("pieces")) for g in made.param_groups for n in g["param_names"]}
    assert rule["layers.0.attention.qkv.weight"] == ("muon", 3)
    assert rule["layers.1.feed.up.weight"] == ("muon", 2)
    for name in ("layers.0.attention.out", "layers.0.feed.down", "pooler", "mlm.dense"):
        assert rule[f"{name}.weight"] == ("muon", 1)
    others = {n for n, (r, _) in rule.items() if r == "adamw"}
    assert {"embeddings.words.weight", "embeddings.positions.weight", "embeddings.segments.weight"} <= others
    assert {"nsp.weight", "heads.labels.weight", "mlm.bias", "layers.0.attention.qkv.bias"} <= others
    assert len(rule) == len(list(model(feedforward="geglu").parameters()))


def test_a_fused_matrix_moves_as_its_pieces_would() -> None:
    torch.manual_seed(0)
    whole = nn.Parameter(torch.randn(12, 4))
    whole.grad = torch.randn(12, 4)
    apart = [nn.Parameter(piece.clone()) for piece in whole.detach().chunk(3)]
    for part, grad in zip(apart, whole.grad.chunk(3), strict=True):
        part.grad = grad.clone()
    with torch.no_grad():
        muon.move([whole], [torch.zeros(12, 4)], learning_rate=0.1, weight_decay=0.1, pieces=3)
        muon.move(apart, [torch.zeros(4, 4) for _ in apart], learning_rate=0.1, weight_decay=0.1)
    torch.testing.assert_close(whole, torch.cat(apart), rtol=1e-6, atol=1e-7)


def test_small_stacks_give_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = model(), model()
    trained("muon", 3, one)
    monkeypatch.setattr(muon, "BATCH_NUMBERS", 1)
    trained("muon", 3, two)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_it_learns_and_repeats_bit_for_bit(name: str) -> None:
    def run() -> tuple[list[float], bytes]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
        x = torch.randn(64, 8)
        y = (x[:, :1] * x[:, 1:2]).tanh()
        made, losses = optim.optimiser(module, name, 1e-2, 0.01), []
        for _ in range(150):
            loss = (module(x) - y).square().mean()
            made.zero_grad()
            loss.backward()
            optim.clip(module.parameters(), 1.0)
            made.step()
            losses.append(float(loss.detach()))
        return losses, b"".join(bits(p) for p in module.parameters())

    (losses, first), (_, second) = run(), run()
    assert losses[-1] < 0.3 * losses[0]
    assert first == second


# Steps that are skipped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_a_skipped_step_leaves_no_trace(name: str, bad: float, device: str) -> None:
    module = model(device)
    with torch.no_grad():
        module.pooler.weight[0, 0] = -0.0  # the sign of a zero is kept too
    made = trained(name, 2, module)
    before, state = weights(module), {n: t.clone() for n, t in optim.tensors(made).items()}
    give_gradients(module, 9)
    for parameter in module.parameters():
        parameter.grad.view(-1)[::3] = bad
    norm = optim.clip(module.parameters(), 1.0)
    made.found_inf = 1.0 - torch.isfinite(norm).float()
    made.step()
    assert_same_bits(weights(module), before)
    assert_same_bits(optim.tensors(made), state)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_a_run_with_a_skipped_first_step_goes_on_as_if_it_had_not_been(name: str, device: str) -> None:
    one, two = model(device), model(device)
    made = optim.optimiser(one, name, 1e-2, 0.1)
    for p in one.parameters():
        p.grad = torch.full_like(p, math.nan)
    made.found_inf = torch.ones((), device=device)
    made.step()
    made.found_inf = torch.zeros((), device=device)
    trained(name, 3, one, made=made)
    other = trained(name, 3, two)  # found_inf is None here: the same bits either way
    assert_same_bits(weights(one), weights(two))
    assert_same_bits(optim.tensors(made), optim.tensors(other))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_a_step_never_waits_for_the_gpu(name: str) -> None:
    module = model("cuda")
    made = trained(name, 2, module)
    give_gradients(module, 7)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        norm = optim.clip(module.parameters(), 1.0)
        made.found_inf = 1.0 - torch.isfinite(norm).float()
        made.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


# State ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_restored_state_goes_on_bit_for_bit(name: str, device: str) -> None:
    one = model(device)
    made = trained(name, 3, one)
    saved, kept = {n: p.clone() for n, p in one.state_dict().items()}, optim.tensors(made)
    kept = {n: t.cpu().clone() for n, t in kept.items()}
    trained(name, 3, one, 3, made)

    two = model(device)
    two.load_state_dict(saved)
    again = optim.optimiser(two, name, 1e-2, 0.1)
    optim.restore(again, kept, two)
    assert_same_bits(optim.tensors(again), kept)
    trained(name, 3, two, 3, again)
    assert_same_bits(weights(one), weights(two))
    assert_same_bits(optim.tensors(made), optim.tensors(again))


def test_names_say_slot_and_parameter() -> None:
    module = model()
    fresh = optim.optimiser(module, "adamw", 1e-2, 0.1)
    assert "exp_avg/layers.0.attention.qkv.weight" in optim.tensors(fresh)
    assert "step/nsp.bias" in optim.tensors(fresh)
    assert all(not t.any() for t in optim.tensors(fresh).values())  # before the first step: zeros
    mixed = optim.tensors(trained("muon", 1, module))
    assert "momentum/layers.0.attention.qkv.weight" in mixed
    assert "exp_avg_sq/embeddings.words.weight" in mixed
    assert "exp_avg/layers.0.attention.qkv.weight" not in mixed


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    module = model()
    made = trained("adamw", 1, module)
    before = {n: t.clone() for n, t in optim.tensors(made).items()}
    whole = {n: t.clone() + 1 for n, t in before.items()}
    missing = {n: t for n, t in whole.items() if n != "exp_avg/nsp.bias"}
    with pytest.raises(InputError, match=r"lacks 1 of .* 'exp_avg/nsp.bias'"):
        optim.restore(made, missing, module)
    with pytest.raises(InputError, match=r"1 unknown .* 'exp_avg/nsp.bios'.*Did you mean 'exp_avg/nsp.bias'"):
        optim.restore(made, whole | {"exp_avg/nsp.bios": torch.zeros(2)}, module)
    with pytest.raises(InputError, match=r"'exp_avg/nsp.bias' is torch.float32 \[3\] .* but torch.float32 \[2\]"):
        optim.restore(made, whole | {"exp_avg/nsp.bias": torch.zeros(3)}, module)
    with pytest.raises(InputError, match="lacks"):
        optim.restore(made, optim.tensors(trained("muon", 1, model())), module)
    with pytest.raises(InputError, match="another model"):
        optim.restore(made, whole, model())
    assert_same_bits(optim.tensors(made), before)


def test_a_parameter_without_gradient_stays() -> None:
    for name in optim.OPTIMISERS:
        module = model()
        made = optim.optimiser(module, name, 1e-2, 0.1)
        give_gradients(module, 0)
        module.nsp.weight.grad = module.pooler.weight.grad = None
        before = weights(module)
        made.step()
        assert bits(module.nsp.weight) == bits(before["nsp.weight"])
        assert bits(module.pooler.weight) == bits(before["pooler.weight"])
        assert not torch.equal(module.mlm.dense.weight, before["mlm.dense.weight"])


def test_wrong_names_are_named() -> None:
    with pytest.raises(InputError, match="Did you mean 'adamw'"):
        optim.optimiser(model(), "adam", 1e-3, 0.1)
    with pytest.raises(InputError, match="linear, cosine"):
        optim.share("straight", 0, 10, 0.1)
    with pytest.raises(InputError, match="from 0 to 1"):
        optim.share("linear", 0, 10, 1.5)
    with pytest.raises(InputError, match="no parameter"):
        optim.optimiser(model().requires_grad_(False), "adamw", 1e-3, 0.1)


# Gradients and rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scale", [1e-3, 10.0])
def test_clip_is_torchs(scale: float, device: str) -> None:
    one, two = model(device), model(device)
    give_gradients(one, 0, scale)
    give_gradients(two, 0, scale)
    norm, other = optim.clip(one.parameters(), 1.0), nn.utils.clip_grad_norm_(two.parameters(), 1.0)
    torch.testing.assert_close(norm, other)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-8)
    if scale < 1:  # nothing to clip: not a bit changes
        give_gradients(two, 0, scale)
        assert all(bits(p.grad) == bits(q.grad) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_clip_tells_of_what_is_no_number() -> None:
    module = nn.Linear(2, 2)
    assert float(optim.clip(module.parameters(), 1.0)) == 0.0
    module.weight.grad, module.bias.grad = torch.zeros(2, 2), torch.zeros(2)
    assert float(optim.clip(module.parameters(), 1.0)) == 0.0
    assert not module.weight.grad.any()
    module.weight.grad[0, 0] = math.inf
    assert float(optim.clip(module.parameters(), 1.0)) == math.inf
    module.weight.grad[0, 0] = math.nan
    assert math.isnan(float(optim.clip(module.parameters(), 1.0)))


@pytest.mark.parametrize("warmup", [0.0, 0.06, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("schedule", optim.SCHEDULES)
def test_rates_rise_and_fall_and_never_leave_their_bounds(schedule: str, warmup: float) -> None:
    rates = [optim.share(schedule, step, 1_000, warmup) for step in range(1_000)]
    peak = rates.index(max(rates))
    assert all(0 < rate <= 1 for rate in rates)
    assert max(rates) > 0.99
    assert all(a < b for a, b in itertools.pairwise(rates[: peak + 1]))
    assert all(a >= b for a, b in itertools.pairwise(rates[peak:]))
    if schedule != "constant" and warmup < 1:
        assert rates[-1] < 0.02
    assert optim.share_at(schedule, 0.0, warmup) == (0.0 if warmup else 1.0)


def test_schedules_have_their_shapes() -> None:
    at = {p: [optim.share_at(s, p, 0.1) for s in optim.SCHEDULES] for p in (0.05, 0.55, 0.9, 1.0)}
    assert at[0.05] == [0.5] * 4
    assert at[0.55] == pytest.approx([0.5, 0.5, 1.0, 1.0])
    assert at[0.9] == pytest.approx([1 / 9, 0.5 - 0.5 * math.cos(math.pi / 9), 0.5, 1.0])
    assert at[1.0] == [0.0, 0.0, 0.0, 1.0]
    assert optim.share_at("linear", 7.0, 0.1) == 0.0  # a clock may run over
    assert optim.share("linear", 0, 1, 0.1) > 0.5  # a run of one step learns


# Rates of their own --------------------------------------------------------------------------------------------------


def scales(made: optim.AdamW | optim.Mixed) -> dict[str, float]:
    return {name: group.get("scale", 1.0) for group in made.param_groups for name in group["param_names"]}


@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_a_head_has_its_own_rate(name: str) -> None:
    module = model()
    found = scales(optim.optimiser(module, name, 1e-2, 0.1, 20.0))
    assert found.keys() == {n for n, _ in module.named_parameters()}
    heads = {n for n in found if n.startswith("heads.")}
    assert len(heads) == 2
    assert {found[n] for n in heads} == {20.0 * optim.REST if name == "muon" else 20.0}
    assert all(found[n] <= 1.0 for n in found.keys() - heads)
    for rate in (0.999, 1.0, 1.001):  # no jump where a head has its own group
        near = scales(optim.optimiser(module, name, 1e-2, 0.1, rate))
        assert near["heads.labels.weight"] == pytest.approx(near["mlm.bias"], rel=2e-3)


def test_what_muon_does_not_move_goes_slower() -> None:
    made = optim.optimiser(model(), "muon", 1e-2, 0.1)
    for group in made.param_groups:
        assert group.get("scale", 1.0) == (1.0 if group["rule"] == "muon" else optim.REST)
    assert {name for name, scale in scales(made).items() if scale == 1.0} == set(optim._pieces(model()))
