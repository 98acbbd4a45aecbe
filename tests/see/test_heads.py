"""Rollout, flow, entropy and distance against small cases by hand; what a head is worth, against the loss itself."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.explain import map_sums
from filbert.folder.folder import save
from filbert.nn import maps
from filbert.nn.attention import batch_tensors
from filbert.see import head_importance
from filbert.text.tokenizer import Tokenizer
from kit.folders import task_file
from kit.models import small_bert

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = {
    "今天天气很好": "好",
    "我很喜欢这本书，写得真好。": "好",
    "太差了": "坏",
    "the train is late": "坏",
    "很好": "好",
}
EXAMPLES = [Example((text,), label, at) for at, (text, label) in enumerate(TEXTS.items())]


def drawn(layers: int, num_heads: int, size: int, sharp: float = 2.0, seed: int = 0) -> np.ndarray:
    """Maps whose rows sum to 1."""
    scores = np.exp(np.random.default_rng(seed).normal(size=(layers, num_heads, size, size)) * sharp)
    return (scores / scores.sum(-1, keepdims=True)).astype(np.float32)


# Of one map -----------------------------------------------------------------------------------------------------------


def test_entropy_of_known_rows() -> None:
    """All on one token: 0; even over four: ln 4; halves: ln 2; a pruned head's zeros: 0."""
    one, even = np.eye(4), np.full((4, 4), 0.25)
    halves = np.array([[0.5, 0.5, 0, 0]] * 4)
    mixed = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4, [0.1, 0.2, 0.3, 0.4]])
    found = map_sums.entropy(np.array([[one, even, halves], [mixed, np.zeros((4, 4)), one]]))
    last = -sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4))
    wanted = [[0, math.log(4), math.log(2)], [(0 + math.log(2) + math.log(4) + last) / 4, 0, 0]]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_distance_of_known_rows() -> None:
    own, after = np.eye(4), np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]])
    even = np.full((4, 4), 0.25)
    found = map_sums.distance(np.array([[own, after, even]]))
    np.testing.assert_allclose(found, [[0, 0.75, np.mean([abs(i - j) for i in range(4) for j in range(4)])]], atol=1e-6)


def test_both_by_their_formulas_on_a_real_map(tiny_folder: Path) -> None:
    seen = fb.load(tiny_folder, device="cpu").attention("今天天气很好，我们去公园").map
    for layer, head in itertools.product(range(2), range(2)):
        rows = seen.values[layer, head].astype(np.float64)
        entropy = np.mean([-sum(p * math.log(p) for p in row if p > 0) for row in rows])
        distance = np.mean([sum(p * abs(i - j) for j, p in enumerate(row)) for i, row in enumerate(rows)])
        assert map_sums.entropy(seen)[layer, head] == pytest.approx(entropy, abs=1e-5)
        assert map_sums.distance(seen)[layer, head] == pytest.approx(distance, abs=1e-5)


# Through all layers ---------------------------------------------------------------------------------------------------


def test_rollout_of_two_layers_by_hand() -> None:
    """Half of every weight is the token itself; two heads are averaged; then the product."""
    first = np.array([[[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]])  # mean: [[.5, .5], [.5, .5]]
    second = np.array([[[0.2, 0.8], [0.0, 1.0]], [[0.2, 0.8], [0.0, 1.0]]])
    low, high = np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.6, 0.4], [0.0, 1.0]])
    found = map_sums.rollout(np.array([first, second]))
    np.testing.assert_allclose(found, [low, high @ low], atol=1e-6)
    np.testing.assert_allclose(found[1], [[0.55, 0.45], [0.25, 0.75]], atol=1e-6)


def test_rollout_is_the_sum_over_all_paths() -> None:
    values = drawn(3, 2, 4)
    edges = map_sums.mixed(values)
    wanted = np.zeros((4, 4))
    for path in itertools.product(range(4), repeat=4):
        wanted[path[0], path[-1]] += math.prod(edges[2 - at][path[at], path[at + 1]] for at in range(3))
    np.testing.assert_allclose(map_sums.rollout(values)[-1], wanted, atol=1e-6)
    np.testing.assert_allclose(map_sums.rollout(values).sum(-1), 1, atol=1e-6)


def test_flow_of_two_layers_by_hand() -> None:
    """From token 0: through 0 go min(.6, .75), through 1 go min(.4, .25): .85 in all; and so on.

    The layers are those of the rollout above: the most that two paths can carry beside each other.
    """
    first = np.array([[[0.5, 0.5], [0.5, 0.5]]])
    second = np.array([[[0.2, 0.8], [0.0, 1.0]]])
    wanted = [
        [min(0.6, 0.75) + min(0.4, 0.25), min(0.6, 0.25) + min(0.4, 0.75)],
        [min(0.0, 0.75) + min(1.0, 0.25), min(0.0, 0.25) + min(1.0, 0.75)],
    ]
    np.testing.assert_allclose(map_sums.flow(np.array([first, second])), wanted, atol=1e-6)


def test_a_bottleneck_in_the_middle_is_found() -> None:
    """Three layers without a residual: all at the top look at token 0, whose own look is split in the middle.

    To reach input 1, half of it goes over 1 (which looks at 1), and none over 2 (which looks at 0).
    """
    top = np.array([[1.0, 0, 0]] * 3)
    middle = np.array([[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]])
    bottom = np.array([[1, 0, 0], [0, 1, 0], [1.0, 0, 0]])
    found = map_sums.flow(np.array([[bottom], [middle], [top]]), residual=0.0)
    np.testing.assert_allclose(found, [[0.5, 0.5, 0]] * 3, atol=1e-6)


@pytest.mark.slow
def test_flow_must_give_way_to_be_greatest() -> None:
    """Where what is first sent one way must be sent back: the residual edges of the algorithm are needed."""
    networkx = pytest.importorskip("networkx")
    for seed, (layers, size, sharp) in enumerate([(3, 4, 4.0), (4, 5, 3.0), (5, 4, 6.0), (6, 6, 1.0), (2, 7, 5.0)]):
        values = drawn(layers, 1, size, sharp, seed)
        edges = map_sums.mixed(values, residual=0.0)
        graph = networkx.DiGraph()
        for layer, row, column in itertools.product(range(layers), range(size), range(size)):
            graph.add_edge((layer + 1, row), (layer, column), capacity=float(edges[layer, row, column]))
        wanted = [
            [networkx.maximum_flow_value(graph, (layers, row), (0, column)) for column in range(size)]
            for row in range(size)
        ]
        np.testing.assert_allclose(map_sums.flow(values, residual=0.0), wanted, atol=1e-6)
        np.testing.assert_allclose(map_sums.flow(values, rows=[size - 1], residual=0.0), wanted[-1:], atol=1e-6)


def test_flow_of_one_layer_is_the_layer() -> None:
    values = drawn(1, 2, 5)
    np.testing.assert_allclose(map_sums.flow(values), map_sums.mixed(values)[0], atol=1e-6)


def test_nothing_flows_from_what_comes_later() -> None:
    values = np.tril(drawn(4, 2, 6))
    values /= values.sum(-1, keepdims=True)
    assert np.all(np.triu(map_sums.flow(values), 1) == 0)
    assert np.all(np.triu(map_sums.rollout(values), 1) == 0)


def test_maps_that_no_path_leads_through() -> None:
    with pytest.raises(InputError, match="4 by 3"):
        map_sums.rollout(np.zeros((1, 1, 4, 3), dtype=np.float32))
    with pytest.raises(InputError, match="dimensions"):
        map_sums.entropy(np.zeros((3, 4, 4), dtype=np.float32))
    with pytest.raises(InputError, match=r"residual is 1\.5"):
        map_sums.flow(drawn(2, 1, 3), residual=1.5)
    with pytest.raises(InputError, match="rows has 3"):
        map_sums.flow(drawn(2, 1, 3), rows=[3])
    with pytest.raises(InputError, match="too much work"):
        map_sums.flow(np.full((12, 1, 200, 200), 1 / 200, dtype=np.float32))


def test_a_map_must_begin_with_the_first_layer(tiny_folder: Path) -> None:
    model = fb.load(tiny_folder, device="cpu")
    with pytest.raises(InputError, match="from the first on"):
        map_sums.rollout(model.attention("好", layers=[1]).map)
    assert map_sums.rollout(model.attention("好").map).shape == (2, 3, 3)
    assert map_sums.flow(model.attention("今天天气很好").values).shape == (5, 5)  # by words


# What a head is worth -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fine(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> fb.Model:
    """A classifier with three heads in each layer."""
    tokenizer = Tokenizer.load(tiny_folder)
    backbone = small_bert(tokenizer, ("labels",), noise=0.3, width=36, heads=3)
    about = {"task": "classify", "max_length": 64, "pool": "mean"}
    folder = tmp_path_factory.mktemp("fine") / "model"
    save(folder, backbone, tokenizer, labels=["坏", "好"], files=task_file(about))
    return fb.load(folder, device="cpu")


def without(model: fb.Model, layer: int, head: int, by: float = 0.0) -> Any:
    site = maps.sites(model.backbone)[layer]
    mask = torch.ones(3)
    mask[head] = by
    return maps.masked({site: mask})


def test_a_masked_head_is_as_if_its_values_were_zero(fine: fb.Model) -> None:
    """The definition: what it read is nothing, so its columns of the output map do nothing."""
    task = head_importance.labelled(fine, EXAMPLES)
    batch = batch_tensors(task.batch(np.arange(5)), "cpu")
    with torch.no_grad():
        with without(fine, 1, 2):
            masked = fine.backbone(batch.packed)
        weight = fine.backbone.layers[1].attention.out.weight
        kept = weight[:, 24:].clone()
        weight[:, 24:] = 0
        wanted = fine.backbone(batch.packed)
        weight[:, 24:] = kept
    torch.testing.assert_close(masked, wanted, atol=1e-6, rtol=0)


def test_ablation_is_the_change_of_the_loss(fine: fb.Model) -> None:
    task = head_importance.labelled(fine, EXAMPLES)
    found = head_importance.importance(fine, EXAMPLES, method="ablation")
    scores = np.array(fine.engine.answers(task))
    right = [fine.labels.index(str(example.gold)) for example in EXAMPLES]

    def by_hand(scores: np.ndarray) -> float:
        return float(np.mean([np.log(np.exp(row).sum()) - row[gold] for row, gold in zip(scores, right, strict=True)]))

    assert head_importance.loss(fine, task) == pytest.approx(by_hand(scores), abs=1e-5)
    for layer, head in itertools.product(range(2), range(3)):
        with without(fine, layer, head):
            less = by_hand(np.array(fine.engine.answers(task)))
        assert found[layer, head] == pytest.approx(less - by_hand(scores), abs=1e-5)
    assert np.abs(found).max() > 1e-3


def test_the_gradient_is_that_of_each_examples_loss(fine: fb.Model) -> None:
    """Against finite differences, absolute values averaged over the examples."""
    found = head_importance.importance(fine, EXAMPLES)
    fine.backbone.double()
    try:
        for layer, head in ((0, 0), (0, 2), (1, 1)):
            slopes = []
            for example in EXAMPLES:
                task = head_importance.labelled(fine, [example])
                losses = []
                for by in (1 + 1e-3, 1 - 1e-3):
                    with without(fine, layer, head, by):
                        losses.append(head_importance.loss(fine, task))
                slopes.append(abs(losses[0] - losses[1]) / 2e-3)
            assert found[layer, head] == pytest.approx(np.mean(slopes), rel=2e-2, abs=1e-4)
    finally:
        fine.backbone.float()
    assert found.shape == (2, 3)
    assert (found > 0).all()


def test_a_head_that_does_nothing_is_worth_nothing(fine: fb.Model) -> None:
    weight = fine.backbone.layers[0].attention.out.weight
    with torch.no_grad():
        kept = weight[:, 12:24].clone()
        weight[:, 12:24] = 0
        for method in head_importance.METHODS:
            found = head_importance.importance(fine, EXAMPLES, method=method)
            assert found[0, 1] == 0
            assert np.count_nonzero(found) == 5
        weight[:, 12:24] = kept


def test_some_examples_spread_over_all(fine: fb.Model) -> None:
    two = head_importance.importance(fine, EXAMPLES, most=2)
    np.testing.assert_allclose(two, head_importance.importance(fine, [EXAMPLES[0], EXAMPLES[4]]), rtol=1e-5)


def test_what_cannot_be_weighed(fine: fb.Model, tiny_folder: Path) -> None:
    with pytest.raises(InputError, match="has no labels"):
        head_importance.importance(fine, [Example(("好",))])
    with pytest.raises(InputError, match="fine-tuned for nothing"):
        head_importance.importance(fb.load(tiny_folder, device="cpu"), EXAMPLES)
    with pytest.raises(InputError, match="method is 'guess'"):
        head_importance.importance(fine, EXAMPLES, method="guess")
    with pytest.raises(InputError, match="kind 'cross'"):
        head_importance.importance(fine, EXAMPLES, kind="cross")
    with pytest.raises(InputError, match="most is 0"):
        head_importance.importance(fine, EXAMPLES, most=0)
