"""How weights move: a model in; an optimiser, the schedule of its rate, and the optimiser's state as plain tensors out.

Every optimiser here has `found_inf`: set it to a scalar on the weights' device, and a step in which it is 1 changes no
weight, moment or count, whatever the gradients hold. The host never has to read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.nn.layers import GatedFeedForward, SelfAttention
from filbert.train import muon, tune

Group = dict[str, Any]  # of parameters, as torch has them
Named = tuple[str, nn.Parameter]
OPTIMISERS = ("adamw", "bert-adamw", "muon")
SCHEDULES = ("linear", "cosine", "trapezoid", "constant")
FALL = 0.2  # the share of the steps over which a trapezoid comes down
EPS = 1e-6
BETAS = {"adamw": (0.9, 0.98), "bert-adamw": (0.9, 0.999)}
SLOTS = {  # what each rule remembers of a parameter
    "adamw": ("step", "exp_avg", "exp_avg_sq"),
    "bert-adamw": ("exp_avg", "exp_avg_sq"),
    "muon": ("momentum",),
}
REST = 0.25  # of Muon's rate: at all of it, biases grow until every vector has one and the same large part
LATE = 1e9  # a step count at which Adam's corrections, 1 - beta^step, are exactly 1: none


class Settings(NamedTuple):
    """What `optimiser` takes beside the model."""

    name: str
    learning_rate: float
    weight_decay: float
    head_rate: float = 1.0
    layer_decay: float = 1.0


class AdamW(torch.optim.AdamW):
    """Torch's fused AdamW, which honours `found_inf` by itself."""

    found_inf: Tensor | None = None


class Mixed(torch.optim.Optimizer):
    """Groups of parameters, each moved by its own `rule`, in one optimiser with one state."""

    found_inf: Tensor | None = None

    def __init__(self, groups: list[Group], learning_rate: float) -> None:
        super().__init__(groups, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Moves every parameter that has a gradient."""
        if closure is not None:
            raise TypeError("no rule here evaluates a closure")
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p in moved:
                if not self.state[p]:
                    self.state[p].update(_blank(p, group["rule"]))
            if moved and group["rule"] == "muon":
                muon.move(
                    moved,
                    [self.state[p]["momentum"] for p in moved],
                    learning_rate=group["lr"],
                    weight_decay=group["weight_decay"],
                    pieces=group["pieces"],
                    found_inf=self.found_inf,
                )
            elif moved:
                _adam(group, moved, [self.state[p] for p in moved], self.found_inf)


def optimiser(
    model: nn.Module,
    name: str,
    learning_rate: float,
    weight_decay: float,
    head_rate: float = 1.0,
    layer_decay: float = 1.0,
) -> AdamW | Mixed:
    """The optimiser of that name for all parameters that learn; matrices and tables decay, norms and biases do not.

    adamw: the usual one, in one fused kernel. bert-adamw: the published one (google-research/bert, optimization.py),
    which does not correct the moments' slow start. muon: matrices between hidden vectors by Muon, the rest by adamw at
    a share of the rate (a group's "scale"). A task's head, which begins from nothing, has `head_rate` times what the
    rest has; each layer below the last has `layer_decay` times what the one above it has, and so have the embeddings.
    """
    if name not in OPTIMISERS:
        raise one_of("the optimiser", name, OPTIMISERS)
    named = [(n, p) for n, p in _named(model) if p.requires_grad]
    if not named:
        raise InputError("no parameter of this model learns (requires_grad is False for all), so there is no training.")
    rule = "bert-adamw" if name == "bert-adamw" else "adamw"
    inner = _pieces(model) if name == "muon" else {}
    layers = tune.num_layers(n for n, _ in named)
    by_muon: dict[tuple[int, float], list[Named]] = {}  # of each number of pieces and each scale
    others: dict[tuple[float, bool], list[Named]] = {}  # of each scale: those that decay, and those that do not
    for n, p in named:
        scale = layer_decay ** max(layers - tune.depth(n, layers), 0)
        if n in inner:
            by_muon.setdefault((inner[n], scale), []).append((n, p))
            continue
        scale = (REST if inner else 1.0) * (head_rate if n.startswith("heads.") else scale)
        others.setdefault((scale, p.ndim <= 1), []).append((n, p))
    groups: list[Group] = []
    for pieces, scale in sorted(by_muon):
        params = by_muon[pieces, scale]
        groups.append(
            {"params": params, "rule": "muon", "pieces": pieces, "scale": scale, "weight_decay": weight_decay}
        )
    for scale, is_free in sorted(others):
        decay = 0.0 if is_free else weight_decay
        groups.append({"params": others[scale, is_free], "rule": rule, "scale": scale, "weight_decay": decay})
    if name == "adamw":
        return AdamW(groups, lr=learning_rate, betas=BETAS[name], eps=EPS, fused=True)
    return Mixed(groups, learning_rate)


def _named(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters by the names that they have without torch.compile around the model."""
    for name, parameter in model.named_parameters():
        yield name.replace("_orig_mod.", ""), parameter


def _pieces(model: nn.Module) -> dict[str, int]:
    """The matrices that Muon moves, and of how many maps each is made.

    Those are the maps from hidden vectors to hidden vectors. Tables of words, positions and segments, and the outputs
    of heads, have one row per thing, and are better off with AdamW (Jordan et al. 2024).
    """
    several: dict[nn.Module, int] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention):
            several[module.qkv] = 3
        elif isinstance(module, GatedFeedForward):
            several[module.up] = 2
    pieces_of: dict[str, int] = {}
    for path, module in model.named_modules():
        path = path.replace("_orig_mod.", "")
        inside = "layers" in path.split(".")
        if isinstance(module, nn.Linear) and (inside or module.in_features == module.out_features):
            pieces_of[f"{path}.weight".lstrip(".")] = several.get(module, 1)
    learning = {name for name, parameter in _named(model) if parameter.requires_grad}
    return {name: pieces for name, pieces in pieces_of.items() if name in learning}


def _blank(parameter: Tensor, rule: str) -> dict[str, Tensor]:
    """The state before the first step."""
    count = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {slot: count if slot == "step" else torch.zeros_like(parameter) for slot in SLOTS[rule]}


def _adam(group: Group, moved: list[Tensor], states: list[dict[str, Tensor]], found_inf: Tensor | None) -> None:
    """One step of AdamW in torch's fused kernel; the published rule is the same without the corrections."""
    beta1, beta2 = BETAS[group["rule"]]
    counted = group["rule"] == "adamw"
    if counted:
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
    else:
        steps = [torch.full((), LATE, dtype=torch.float32, device=moved[0].device)] * len(moved)
    torch._fused_adamw_(
        moved,
        [p.grad for p in moved if p.grad is not None],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        steps,
        amsgrad=False,
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=EPS,
        maximize=False,
        grad_scale=None,
        found_inf=found_inf,
    )
    if counted and found_inf is not None:
        torch._foreach_sub_(steps, [found_inf] * len(steps))


def clip(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """The norm of all gradients together; where it is above `max_norm` they shrink to it. Nothing is read back.

    The norm may be infinite or not a number. The gradients are then of no use: set `found_inf`.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack([each.float() for each in torch._foreach_norm(grads)]))
    torch._foreach_mul_(grads, (max_norm / norm).clamp(max=1.0))
    return norm


# Schedules -----------------------------------------------------------------------------------------------------------


def share(schedule: str, step: int, steps: int, warmup: float) -> float:
    """The share of the peak rate at `step` (from 0) of `steps`; never 0, so that every step counts."""
    return share_at(schedule, (step + 1) / (steps + 1), warmup)


def share_at(schedule: str, progress: float, warmup: float) -> float:
    """The share of the peak rate when that part of the run is over: up over the warm-up, then as the schedule says.

    linear: straight down to 0. cosine: down to 0 along half a wave. trapezoid: flat, then straight down to 0 over the
    last fifth. constant: flat.
    """
    if schedule not in SCHEDULES:
        raise one_of("the schedule", schedule, SCHEDULES)
    if not 0 <= warmup <= 1:
        raise InputError(f"the warm-up is {warmup!r}, but must be a share of the steps, from 0 to 1.")
    progress = min(max(progress, 0.0), 1.0)
    if progress < warmup:
        return progress / warmup
    if schedule == "constant":
        return 1.0
    left = (1.0 - progress) / (1.0 - warmup) if warmup < 1 else 0.0
    if schedule == "cosine":
        return 0.5 - 0.5 * math.cos(math.pi * left)
    if schedule == "trapezoid":
        return min(left * (1.0 - warmup) / FALL, 1.0) if warmup < 1.0 - FALL else left
    return left


# State ---------------------------------------------------------------------------------------------------------------


def tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that the optimiser remembers, as "slot/parameter"; the live tensors, which the next step changes."""
    slots: dict[str, Tensor] = {}
    for name, parameter, rule in _learning(optimiser):
        state = optimiser.state.get(parameter) or _blank(parameter, rule)
        slots |= {f"{slot}/{name}": state[slot] for slot in SLOTS[rule]}
    return slots


def restore(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], model: nn.Module) -> None:
    """Puts such tensors back, bit for bit; a name too many or too few, or another shape, is refused before that."""
    places = dict(_named(model))
    states: dict[Tensor, dict[str, Tensor]] = {}
    needed: set[str] = set()
    for name, parameter, rule in _learning(optimiser):
        if places.get(name) is not parameter:
            raise InputError(f"the optimiser was made for another model: its parameter {name!r} is not this model's.")
        blank = _blank(parameter, rule)
        needed |= {f"{slot}/{name}" for slot in blank}
        states[parameter] = {
            slot: _like(f"{slot}/{name}", tensors[f"{slot}/{name}"], value)
            for slot, value in blank.items()
            if f"{slot}/{name}" in tensors
        }
    _complete(set(tensors), needed)
    optimiser.state.update(states)


def _learning(optimiser: torch.optim.Optimizer) -> Iterator[tuple[str, nn.Parameter, str]]:
    """(name, parameter, rule) of all that it moves; what is frozen for now has no state (train.tune)."""
    for group in optimiser.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if parameter.requires_grad:
                yield name, parameter, group["rule"]


def _like(name: str, tensor: Tensor, wanted: Tensor) -> Tensor:
    """A copy of the given tensor where the wanted one stands."""
    if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
        raise InputError(
            f"the optimiser's {name!r} is {tensor.dtype} {list(tensor.shape)} in the checkpoint, but {wanted.dtype} "
            f"{list(wanted.shape)} in this model; resume with the recipe that the run was started with."
        )
    return wanted.copy_(tensor)


def _complete(names: set[str], needed: set[str]) -> None:
    """Refuses a state of another optimiser or model."""
    advice = "it is of another optimiser or model; resume with the recipe that the run was started with."
    if missing := sorted(needed - names):
        raise InputError(
            f"the checkpoint's optimiser state lacks {len(missing)} of {len(needed)} tensors, such as "
            f"{missing[0]!r}: {advice}"
        )
    if unknown := sorted(names - needed):
        raise InputError(
            f"the checkpoint's optimiser state has {len(unknown)} unknown tensors, such as {unknown[0]!r}: {advice}"
            f"{did_you_mean(unknown[0], needed)}"
        )
