"""How to train: what learns at which step and how fast, frozen weights that stay, a named measure, runs that resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.run.finetune import Finetuned, finetune
from filbert.run.recipe import paced
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import listeners, loop, machine, optim, tune
from filbert.train.checkpoint import Store
from kit.models import small_bert

pytestmark = pytest.mark.usefixtures("one_thread")

ONE = machine.Config(threads=1)
THREADS = "machine.threads=1"


def made(count: int = 8) -> list[Example]:
    """Texts whose label hangs on one character in them."""
    random = np.random.default_rng(0)
    rest = list("今天的菜和服务我们都觉得")
    found = []
    for index in range(count):
        label, sign = (("好", "美"), ("坏", "差"))[index % 2]
        text = "".join(random.permutation([*random.choice(rest, 5), sign]))
        found.append(Example((text,), label, index, "train.tsv", index + 1))
    return found


def model_for(task: classify.Items, tokenizer: Tokenizer, layers: int = 2) -> bert.Bert:
    return small_bert(tokenizer, task.parts, len(task.labels), noise=0, layers=layers, dropout=0.1).train()


def task_of(tokenizer: Tokenizer, count: int = 8) -> classify.Items:
    return classify.Items(made(count), ("坏", "好"), tokenizer, classify_spec.Config(max_length=32))


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


# What learns when -----------------------------------------------------------------------------------------------------


def test_the_depth_of_every_weight(tokenizer: Tokenizer) -> None:
    pre = bert.Config(vocab_size=9, width=8, layers=2, heads=2, inner=8, norm="pre", positions="rotary", segments=0)
    names = [name for name, _ in bert.Bert(pre, ("pooler", "mlm", "labels")).named_parameters()]
    assert tune.num_layers(names) == 2
    depths = {name: tune.depth(name, 2) for name in names}
    assert {name.split(".")[0] for name, depth in depths.items() if depth == 3} == {"pooler", "mlm", "heads"}
    assert {name.split(".")[0] for name, depth in depths.items() if depth == 0} == {"embeddings"}
    assert depths["layers.0.attention.qkv.weight"] == 1
    assert depths["layers.1.feed.down.weight"] == depths["final_norm.weight"] == 2


def test_layers_thaw_one_by_one_in_the_first_half() -> None:
    def course(method: str, depths: list[int], steps: int) -> list[int]:
        return [tune.lowest(method, depths, step, steps) for step in range(steps)]

    assert course("gradual", [0, 1, 2, 3, 1], 40) == [3] * 5 + [2] * 5 + [1] * 5 + [0] * 25
    assert course("gradual", [1, 2], 8) == [2] * 2 + [1] * 6  # a task without a head begins with the last layer
    assert course("gradual", [0, 1, 2, 3], 3) == [3, 1, 0]  # fewer steps than layers: some thaw together
    assert course("gradual", [0, 1, 2, 3], 1) == [3]
    assert course("frozen", [0, 1, 2, 3], 4) == [3] * 4
    assert course("full", [0, 1, 2, 3], 4) == course("lora", [0, 1, 2, 3], 4) == [0] * 4


@pytest.mark.parametrize("optimiser", optim.OPTIMISERS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_weight_moves_from_its_step_on_and_not_before(
    optimiser: str, precision: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = task_of(tokenizer)
    module = model_for(task, tokenizer)
    before, seen = weights(module), list[tuple[int, set[str], set[str]]]()
    training: loop.Training

    class Watches(listeners.Silent):
        def step(self, entry: Mapping[str, Any]) -> None:
            moved = {n.split(".")[0] + n.split(".")[1] for n, value in module.state_dict().items()
                     if not torch.equal(value, before[n])}  # fmt: skip
            states = {name.split("/")[1] for name in optim.tensors(training.stepper.optimiser)}
            seen.append((entry["step"], moved, {name.split(".")[0] + name.split(".")[1] for name in states}))
            assert all(p.grad is None for p in training.stepper.twin.parameters() if not p.requires_grad)

    config = loop.Config(steps=16, learning_rate=1e-3, optimiser=optimiser, batch_tokens=4096, schedule="constant")
    how = machine.Config(threads=1, precision=precision)
    course = loop.Course(machine=how, listener=Watches(), tuning=tune.Config(method="gradual"))
    training = loop.Training(module, task, config, course)
    training.run()
    parts = {"headslabels": 0, "layers1": 2, "layers0": 4}
    assert [step for step, _, _ in seen] == list(range(1, 17))
    for step, moved, states in seen:
        expected = {part for part, begin in parts.items() if step > begin}
        assert {part for part in moved if not part.startswith("embeddings")} == expected
        assert any(part.startswith("embeddings") for part in moved) is (step > 6)
        assert {part for part in states if not part.startswith("embeddings")} == expected


def test_what_is_frozen_is_as_in_use_and_costs_no_gradient(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer)
    module = model_for(task, tokenizer)
    before = weights(module)
    wanted: list[bool] = []
    module.layers[-1].register_forward_hook(lambda _, __, out: wanted.append(out.requires_grad))
    course = loop.Course(machine=ONE, held=task_of(tokenizer, 4), watched="accuracy",
                         tuning=tune.Config(method="frozen"))  # fmt: skip
    training = loop.Training(module, task, loop.Config(steps=6, evaluate_every=2, learning_rate=1e-2), course)
    modes: list[tuple[bool, bool, bool]] = []
    kept = training.stepper.step

    def spied(*given: Any, **more: Any) -> Any:
        modes.append((module.training, module.layers[0].dropout.training, module.embeddings.dropout.training))
        return kept(*given, **more)

    training.stepper.step = spied  # type: ignore[method-assign]
    training.run()
    assert modes == [(True, False, False)] * 6  # also after an evaluation
    assert len(wanted) >= 9
    assert not any(wanted)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]) is not name.startswith("heads."), name


def test_gradual_needs_one_process(tokenizer: Tokenizer) -> None:
    from filbert.train.distributed import Ranks

    course = loop.Course(machine=ONE, ranks=Ranks(0, 2), tuning=tune.Config(method="gradual"))
    with pytest.raises(InputError, match=r"tune\.method=gradual is for a run by steps in one process"):
        loop.Training(torch.nn.Linear(2, 2), task_of(tokenizer), loop.Config(), course)


# How fast -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", optim.OPTIMISERS)
def test_each_layer_below_has_its_share_of_the_rate(name: str, tokenizer: Tokenizer) -> None:
    module = bert.Bert(bert.Config(vocab_size=9, width=8, layers=3, heads=2, inner=16), ("pooler", "labels"), 2)
    made = optim.optimiser(module, name, 1.0, 0.1, 5.0, 0.5)
    rest = optim.REST if name == "muon" else 1.0
    scales = {n: group["scale"] for group in made.param_groups for n in group["param_names"]}
    assert scales.keys() == {n for n, _ in module.named_parameters()}
    for n, scale in scales.items():
        matrix = name == "muon" and n.endswith("weight") and "norm" not in n and n.startswith(("layers.", "pooler"))
        kind, part = n.split(".")[:2]
        decay = {"embeddings": 0.125, "layers": 0.5 ** (2 - int(part if part.isdigit() else 0))}.get(kind, 1.0)
        assert scale == decay * (5.0 if n.startswith("heads.") else 1.0) * (1.0 if matrix else rest), n
    same = {n: g["scale"] for g in optim.optimiser(module, name, 1.0, 0.1, 5.0).param_groups for n in g["param_names"]}
    assert {same[n] for n in same if n.startswith(("layers", "embeddings"))} <= {1.0, rest}


def test_a_method_has_its_own_usual_rates(tiny_folder: Path, tmp_path: Path) -> None:
    assert paced("full", 1e-4, 50.0, True) == {"learning_rate": 1e-4, "head_rate": 50.0}
    assert paced("gradual", 3e-4, 1.0, False) == {"learning_rate": 3e-4, "head_rate": 1.0}
    assert paced("frozen", 1e-4, 50.0, True)["head_rate"] == 400
    lora = paced("lora", 1e-4, 50.0, True)
    assert lora["learning_rate"] == pytest.approx(3e-3)
    assert lora["learning_rate"] * lora["head_rate"] == pytest.approx(5e-3)  # the head's own stays
    for words, rates in (([], (1e-2, 1.0)), (["train.learning_rate=1e-3", "train.head_rate=2"], (1e-3, 2.0))):
        settings = [THREADS, "tune.method=lora", "train.steps=1", *words]
        finetune("classify", made(), tiny_folder, tmp_path / str(rates), settings=settings, quiet=True)
        found = json.loads((tmp_path / str(rates) / "recipe.json").read_text())["train"]
        assert (found["learning_rate"], found["head_rate"]) == pytest.approx(rates)


@pytest.mark.slow
def test_a_rate_that_falls_with_depth_moves_low_layers_less(tiny_folder: Path, tmp_path: Path) -> None:
    start = folders.load(tiny_folder).model.state_dict()
    moved = {}
    for decay in (1.0, 0.1):
        settings = [THREADS, f"tune.layer_decay={decay}", "train.steps=5"]
        finetune("classify", made(), tiny_folder, tmp_path / str(decay), settings=settings, quiet=True)
        found = folders.load(tmp_path / str(decay)).model.state_dict()
        names = ("embeddings.positions.weight", "layers.0.feed.up.weight", "layers.1.feed.up.weight")
        moved[decay] = [float((found[name] - start[name]).abs().mean()) for name in names]
    ratios = np.array(moved[0.1]) / np.array(moved[1.0])
    np.testing.assert_allclose(ratios, [0.01, 0.1, 1.0], rtol=0.4)


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "frozen", "gradual", "lora"])
def test_each_method_learns_eight_examples(method: str, tiny_folder: Path, tmp_path: Path, filbert: Any) -> None:
    data = tmp_path / "train.tsv"
    data.write_text("".join(f"{e.texts[0]}\t{e.gold}\n" for e in made()), encoding="utf-8")
    words = [THREADS, f"tune.method={method}", "train.steps=80", "train.learning_rate=5e-3"]
    words += ["train.head_rate=40"] if method == "frozen" else []
    settings = [word for each in words for word in ("--set", each)]
    out = tmp_path / "run"
    ran = filbert("finetune", "classify", "--train", data, "--model", tiny_folder, "--out", out, *settings)
    assert ran.code == 0, ran.err
    said = fb.load(out).predict([e.texts[0] for e in made()])
    assert [each.label for each in said] == [e.gold for e in made()]
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["tune"]["method"] == method
    start, found = folders.load(tiny_folder).model, folders.load(out).model
    names = [name for name in found.state_dict() if not name.startswith("heads.")]
    unchanged = all(torch.equal(found.state_dict()[name], start.state_dict()[name]) for name in names)
    assert unchanged is (method == "frozen")
    card = (out / "model" / "README.md").read_text()
    assert ("weights learn" in card) is (method != "full")
    if method == "frozen":
        assert f"frozen; 66 weights learn, of a model of {sum(p.numel() for p in found.parameters()):,}." in card


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["machine.precision=bfloat16"], ["train.optimiser=muon"]], ids=str)
def test_gradual_is_exact_when_killed_and_resumed(
    more: list[str], cut_short: Callable[..., tuple[bytes, bytes]], tmp_path: Path
) -> None:
    """Checkpoint 4 is of the middle of the thaw: some weights have a state, some not yet."""
    settings = ["tune.method=gradual", "tune.layer_decay=0.7", "train.steps=24", "train.batch_tokens=64", *more]
    whole, cut = cut_short("classify", made(24), [*settings, "train.checkpoint_every=4"])
    assert whole == cut
    found = Store(tmp_path / "cut" / "checkpoints", 2).newest()
    assert found is not None
    assert found.step == 24


def test_a_checkpoint_has_no_state_of_what_never_learnt(tiny_folder: Path, tmp_path: Path) -> None:
    settings = [THREADS, "tune.method=frozen", "train.steps=3"]
    finetune("classify", made(), tiny_folder, tmp_path, settings=settings, quiet=True)
    found = Store(tmp_path / "checkpoints", 2).newest()
    assert found is not None
    states = {name.split("/")[2] for name in found.tensors() if name.startswith("optimiser/")}
    assert states == {"heads.labels.weight", "heads.labels.bias"}


def test_another_way_to_train_is_another_run(tiny_folder: Path, tmp_path: Path) -> None:
    def again(*words: str, resume: bool = True) -> Finetuned:
        settings = [THREADS, "train.steps=4", *words]
        return finetune("classify", made(), tiny_folder, tmp_path, settings=settings, quiet=True, resume=resume)

    again("tune.layer_decay=0.9", resume=False)
    assert again("tune.layer_decay=0.9").outcome.state.step == 4
    with pytest.raises(InputError, match="made with another tune"):
        again("tune.layer_decay=0.8")


# What says which state is best ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_named_measure_says_which_state_is_best(tiny_folder: Path, tmp_path: Path) -> None:
    words = ["train.batch_tokens=64", "train.learning_rate=0.03", THREADS]

    def held(watched: str) -> tuple[Finetuned, list[dict[str, float]]]:
        settings = [*words, f"tune.watched={watched}"]
        done = finetune(
            "classify", made(24), tiny_folder, tmp_path / watched, dev=made(10), settings=settings, epochs=6, quiet=True
        )
        lines = (tmp_path / watched / "log.jsonl").read_text().splitlines()
        return done, [line["held"] for line in map(json.loads, lines) if "held" in line]

    done, told = held("label_loss")
    assert done.watched == "label_loss"
    assert done.best["label_loss"] == min(each["label_loss"] for each in told)
    assert "label_loss" in (tmp_path / "label_loss" / "model" / "README.md").read_text()
    done, told = held("accuracy")
    assert done.best["accuracy"] == max(each["accuracy"] for each in told)


@pytest.mark.slow
def test_patience_follows_the_named_measure(tiny_folder: Path, tmp_path: Path) -> None:
    words = [THREADS, "tune.watched=loss", "train.patience=2", "train.learning_rate=0.5", "train.batch_tokens=64"]
    more = {"dev": made(10), "settings": words, "epochs": 30, "quiet": True}
    done = finetune("classify", made(24), tiny_folder, tmp_path, **more)
    assert done.outcome.stopped_early
    assert done.watched == "loss"


def test_a_measure_that_is_not_there_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tune\.watched is 'acuracy', .*label_loss, accuracy, loss.*mean 'accuracy'"):
        finetune("classify", made(), tiny_folder, tmp_path, dev=made(), settings=["tune.watched=acuracy"])
    with pytest.raises(InputError, match="without dev data nothing is measured"):
        finetune("classify", made(), tiny_folder, tmp_path, settings=["tune.watched=accuracy"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "half"},
        {"layer_decay": 0.0},
        {"layer_decay": 1.1},
        {"rank": 0},
        {"alpha": 0.0},
        {"augment": "swap,shuffle"},
        {"augment_prob": 1.0},
        {"augment_copies": 0},
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"tune.{next(iter(wrong))}"):
        tune.Config(**wrong)


def test_a_task_without_a_head_has_nothing_but_the_encoder(tokenizer: Tokenizer) -> None:
    bare = bert.Bert(bert.Config(vocab_size=9, width=8, layers=2, heads=2, inner=8))
    with pytest.raises(InputError, match=r"tune\.method=frozen trains a head alone, but this task has none"):
        tune.prepare(bare, tune.Config(method="frozen"))
