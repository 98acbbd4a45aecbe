"""Vectors of texts: what is compared with what, in groups that no split changes; learnt, kept, cut and measured."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.metrics import vectors as metrics
from filbert.metrics.intervals import wilson
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from filbert.tasks.embed import items as embed
from filbert.tasks.embed import spec as embed_spec
from filbert.tasks.task import Fit
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert

WORDS = ["train", "ship", "water", "clouds", "wind", "今", "天", "气", "很", "好", "leaves", "and"]
ONE = machine.Config(threads=1)

pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, kind: str = "pairs", longest: int = 5) -> list[Example]:
    """Pairs about one thing each; graded ones are about the same thing (1) or not (0), by turns."""
    random = np.random.default_rng(1)
    found = []
    for index in range(count):
        more = [list(random.choice(WORDS, random.integers(1, longest))) for _ in range(3)]
        about = [WORDS[index % 8], WORDS[(index + 3) % 8]]
        texts = [" ".join([about[0]] * 2 + more[0]), " ".join([about[0]] * 2 + more[1]), " ".join(about[1:] + more[2])]
        gold = None
        if kind in ("labels", "numbers"):
            same = index % 2
            texts[1] = texts[1] if same else texts[2]
            gold = str(same) if kind == "labels" else str(4.5 - index % 3 * 0.25 if same else 1 + index % 3 * 0.25)
        size = {"texts": 1, "triplets": 3}.get(kind, 2)
        found.append(Example(tuple(texts[:size]), gold, index, "pairs.tsv", index + 1))
    return found


def task_of(examples: list[Example], tokenizer: Tokenizer, **fields: Any) -> embed.Items:
    return embed.Items(examples, (), tokenizer, embed_spec.Config(**{"max_length": 32, "overlap": 4, **fields}))


def model_for(tokenizer: Tokenizer, dropout: float = 0.0) -> bert.Bert:
    return small_bert(tokenizer, (), 0, dropout=dropout)


def raw(task: embed.Items, model: bert.Bert, indices: list[int]) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(task.raw(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu")))


def terms(task: embed.Items, model: bert.Bert, orders: Any) -> dict[str, tuple[float, float]]:
    batch = task.batch(orders)
    with torch.no_grad():
        found = task.loss(model, on_device(batch, "cpu"))
    counts = task.counts(batch)
    assert all(int(found[name].count) == counts[name] for name in found if name.endswith("_loss"))
    return {name: (float(term.total), float(term.count)) for name, term in found.items()}


def unit(task: embed.Items, model: bert.Bert) -> list[torch.Tensor]:
    vectors = F.normalize(torch.from_numpy(raw(task, model, list(range(len(task))))).double(), dim=-1)
    return [vectors[:, side] for side in range(vectors.shape[1])]


# Reading --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize("kind", ["texts", "pairs", "triplets"])
@pytest.mark.parametrize("longest", [5, 60])
def test_packed_equals_one_by_one(tokenizer: Tokenizer, pool: str, kind: str, longest: int) -> None:
    task = task_of(made(10, kind, longest), tokenizer, pool=pool)
    assert (len(task.cuts.first) > len(task.same)) == (longest > 5)
    model = model_for(tokenizer)
    alone = np.concatenate([raw(task, model, [index]) for index in range(10)])
    np.testing.assert_allclose(raw(task, model, list(range(10))), alone, atol=1e-5)
    with torch.inference_mode():
        filled = task.raw(TorchHost(model), on_device(task.batch(np.arange(10), budget=8_192), "cpu"))
    np.testing.assert_allclose(np.asarray(filled), alone, atol=1e-5)


def test_a_fact_at_the_end_of_a_long_text_moves_its_vector(tokenizer: Tokenizer) -> None:
    long = "the ship and the wind " * 120
    task = task_of([Example((long + "天气",)), Example((long + "clouds",))], tokenizer)
    one, two = raw(task, model_for(tokenizer), [0, 1])[:, 0]
    assert task.lengths[0] > 600
    assert np.abs(one - two).max() > 1e-4


@pytest.mark.parametrize("wrong", [
    [Example(("a", "b")), Example(("a",))],
    [Example(("a", "b"), "1"), Example(("a", "b"))],
])  # fmt: skip
def test_mixtures_are_named(tokenizer: Tokenizer, wrong: list[Example]) -> None:
    with pytest.raises(InputError, match="example 1: is not like the examples before it"):
        task_of(wrong, tokenizer)


def test_what_is_no_number_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"t\.tsv line 7: the label 'entailment' is no number.*negative=3"):
        task_of([Example(("a", "b"), "1"), Example(("a", "b"), "entailment", 1, "t.tsv", 7)], tokenizer)
    with pytest.raises(InputError, match="has 3 texts and a label"):
        task_of([Example(("a", "b", "c"), "1")], tokenizer)
    with pytest.raises(InputError, match="the label 'nan'"):
        task_of([Example(("a", "b"), "nan")], tokenizer)


@pytest.mark.parametrize(("field", "value"), [
    ("temperature", 0), ("group", 1), ("widths", "8,x"), ("widths", "0"), ("objective", "rankin"), ("pool", "max"),
    ("threshold", 2.0), ("mask_prob", 1.0), ("max_length", 3), ("overlap", -1),
])  # fmt: skip
def test_wrong_settings_are_named(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"task\.{field}"):
        embed_spec.Config(**{field: value})


# What is compared -----------------------------------------------------------------------------------------------------


def test_contrastive_is_the_definition(tokenizer: Tokenizer) -> None:
    task, model = task_of(made(6), tokenizer, temperature=0.1), model_for(tokenizer)
    first, second = unit(task, model)
    every, total = torch.cat([first, second]), 0.0
    for i in range(6):
        for own, other in ((first[i], second[i]), (second[i], first[i])):
            logits = [own @ other] + [own @ each for j, each in enumerate(every) if j % 6 != i]
            total += float(torch.logsumexp(torch.stack(logits) / 0.1, 0) - own @ other / 0.1)
    found, count = terms(task, model, np.arange(6))["contrastive_loss"]
    assert count == 12
    assert found == pytest.approx(total, rel=1e-4)


def test_equal_and_joined_texts_are_not_negatives(tokenizer: Tokenizer) -> None:
    a, b, c, d, e, f = WORDS[:6]
    pairs = [(a, b), (b, c), (d, e), (a, f)]  # a, b, c and f are joined
    task, model = task_of([Example(pair) for pair in pairs], tokenizer), model_for(tokenizer)
    number = {text: int(alike) for text, alike in zip([t for p in pairs for t in p], task.alike, strict=True)}
    assert number[a] == number[b] == number[c] == number[f] != number[d] == number[e]
    # Alone, with nothing but joined texts around, there is nothing to push away.
    assert terms(task, model, np.array([0, 1, 3]))["contrastive_loss"] == (0.0, 6.0)
    assert terms(task, model, np.array([0, 2]))["contrastive_loss"][0] > 0
    labelled = task_of([Example((a, b), "1"), Example((b, c), "0"), Example((d, e), "1")], tokenizer,
                       objective="contrastive")  # fmt: skip
    assert labelled.alike[0] == labelled.alike[1] != labelled.alike[3]


def test_a_labelled_negative_is_one(tokenizer: Tokenizer) -> None:
    model = model_for(tokenizer)
    pairs = [Example(("今 天", "今 气"), "1"), Example(("今 天", "ship water"), "0")]
    task = task_of(pairs, tokenizer, objective="contrastive", temperature=0.1)
    first, second = unit(task, model)
    own, far = first[0] @ second[0] / 0.1, (first[0] @ second[1] / 0.1, second[0] @ second[1] / 0.1)
    wanted = sum(float(F.softplus(each - own)) for each in far)
    assert terms(task, model, np.arange(2))["contrastive_loss"] == (pytest.approx(wanted, rel=1e-4), 2.0)


def test_the_third_of_a_triplet_is_a_negative(tokenizer: Tokenizer) -> None:
    task, model = task_of(made(2, "triplets"), tokenizer, temperature=0.1), model_for(tokenizer)
    alone, with_others = (terms(task, model, np.arange(size)) for size in (1, 2))
    first, second, third = unit(task, model)
    own = first[0] @ second[0] / 0.1
    wanted = sum(float(F.softplus(side[0] @ third[0] / 0.1 - own)) for side in (first, second))
    assert alone["contrastive_loss"] == (pytest.approx(wanted, rel=1e-4), 2.0)
    assert with_others["contrastive_loss"][0] > alone["contrastive_loss"][0]
    assert alone["ranked"] == (float(first[0] @ second[0] > first[0] @ third[0]), 1.0)


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_ranking_is_the_definition(tokenizer: Tokenizer, kind: str) -> None:
    task, model = task_of(made(7, kind), tokenizer, temperature=0.1), model_for(tokenizer)
    first, second = unit(task, model)
    cosine = (first * second).sum(-1) / 0.1
    worse = [[float((cosine[j] - cosine[i]).exp()) for j in range(7) if task.gold[i] > task.gold[j]] for i in range(7)]
    apart = [each for own in worse for each in own]
    found = terms(task, model, np.arange(7))
    assert ("contrastive_loss" in found) == (kind == "labels")  # of labels, both
    total = sum(np.log1p(sum(own)) for own in worse)
    assert found["ranking_loss"] == (pytest.approx(total, rel=1e-4), sum(map(bool, worse)))
    assert found["ranked"] == (pytest.approx(sum(each < 1 for each in apart)), len(apart))


@pytest.mark.parametrize("kind", ["pairs", "labels", "numbers", "triplets", "texts"])
def test_no_split_changes_what_is_compared(tokenizer: Tokenizer, kind: str) -> None:
    task, model = task_of(made(23, kind), tokenizer, group=6), model_for(tokenizer).train()
    plan = task.plan(3)
    sizes = np.diff(plan.edges)
    assert sizes.sum() == 23
    assert sizes.max() <= 6
    assert sorted(plan.order.tolist()) == list(range(23))
    assert plan.lengths.sum() == task.lengths.sum()
    assert (task.plan(4).order != plan.order).any()
    whole = terms(task, model, plan.orders(np.arange(4)))
    parts = [terms(task, model, plan.orders(np.array(some))) for some in ([2, 0], [1], [3])]
    for name, (total, count) in whole.items():
        assert sum(part[name][0] for part in parts) == pytest.approx(total, rel=1e-4)
        assert sum(part[name][1] for part in parts) == count > 0


def test_empty_texts_are_read_and_not_learnt(tokenizer: Tokenizer) -> None:
    examples = [*made(3), Example(("", "天气"), None), Example((" ", ""), None)]
    task, model = task_of(examples, tokenizer), model_for(tokenizer)
    assert raw(task, model, [3, 4]).shape == (2, 2, 32)
    found, wanted = (terms(task, model, np.arange(size)) for size in (5, 3))
    assert all(found[name] == pytest.approx(wanted[name], rel=1e-4) for name in wanted)
    assert task.remarks() == ["2 examples have an empty text and are not learnt."]


@pytest.mark.slow
def test_data_that_teach_nothing_are_refused(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    for wrong in ([Example(("a", "b")), Example(("a", "b"))], [Example(("a", "b"), "0"), Example(("c", "d"), "0")],
                  [Example(("", ""))], [Example(("a",)), Example(("a",))],
                  [Example(("a", "b"), "3"), Example(("c", "d"), "3")]):  # fmt: skip
        assert not task_of(wrong, tokenizer).teaches
        with pytest.raises(InputError, match="nothing to learn"):
            finetune("embed", wrong, tiny_folder, tmp_path / "x")
    for objective, kind in (("ranking", "pairs"), ("contrastive", "numbers"), ("contrastive", "texts")):
        with pytest.raises(InputError, match=rf"task\.objective={objective}"):
            finetune("embed", made(6, kind), tiny_folder, tmp_path / "x", settings=[f"task.objective={objective}"])
    with pytest.raises(InputError, match=r"task\.widths has 64, but the model's vectors have 32"):
        finetune("embed", made(6), tiny_folder, tmp_path / "x", settings=["task.widths=64,8"], quiet=True)
    with pytest.raises(InputError, match="has no labels, so it cannot say"):
        finetune("embed", made(6), tiny_folder, tmp_path / "y", dev=made(4, "texts"))
    assert task_of([Example(("a", "b"), "1"), Example(("c", "d"), "1")], tokenizer).teaches


# Learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "labels", "numbers", "triplets"])
def test_eight_examples_are_learnt(tokenizer: Tokenizer, kind: str) -> None:
    task = task_of(made(8, kind), tokenizer, mask_prob=0.05)
    model = model_for(tokenizer, dropout=0.05)
    loop.fit(model, task, loop.Config(steps=100, learning_rate=3e-3), machine=ONE)
    told = task.evaluated(raw(task, model.eval(), list(range(8))))
    assert terms(task, model, np.arange(8))["ranked"][0] == terms(task, model, np.arange(8))["ranked"][1]
    best = {"pairs": "recall@1", "labels": "accuracy", "numbers": "spearman", "triplets": "accuracy"}[kind]
    assert told[best] > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "mask_prob"), [(0.1, 0.0), (0.0, 0.15)])
def test_texts_alone_are_learnt(tokenizer: Tokenizer, dropout: float, mask_prob: float) -> None:
    task = task_of(made(24, "texts"), tokenizer, mask_prob=mask_prob)
    seen: list[Any] = []
    model = model_for(tokenizer, dropout)
    loop.fit(model, task, loop.Config(steps=60, learning_rate=1e-3), seen.append, machine=ONE)
    begin, end = (np.mean([entry["dropout_loss"] for entry in some]) for some in (seen[:5], seen[-5:]))
    assert end < 0.6 * begin
    from_pairs = task_of(made(8), tokenizer, objective="dropout", mask_prob=0.15)
    model.train()
    assert terms(from_pairs, model, np.arange(8))["dropout_loss"][1] == 32


@pytest.mark.slow
def test_short_vectors_are_learnt_where_they_are_asked_for(tokenizer: Tokenizer) -> None:
    """With 4 of 32 numbers trained, the first four order the pairs as all do; without, they do not."""
    found = {}
    for widths in ("", "32,4"):
        task, model = task_of(made(16, "numbers"), tokenizer, widths=widths), model_for(tokenizer)
        loop.fit(model, task, loop.Config(steps=60, learning_rate=3e-3), machine=ONE)
        vectors = raw(task, model.eval(), list(range(16)))
        cut = metrics.cosines(vectors[:, 0, :4], vectors[:, 1, :4])
        found[widths] = metrics.agreement(task.gold, cut)["spearman"]
        told = task.evaluated(vectors)
        assert ("widths" in told) == bool(widths)
        if widths:
            assert told["widths"]["4"]["spearman"] == pytest.approx(found[widths])
    assert found["32,4"] > 0.9
    assert found["32,4"] > found[""]


@pytest.mark.slow
def test_killed_and_resumed_is_bit_equal(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    whole, cut = cut_short("embed", made(40), ["train.checkpoint_every=3", "train.batch_tokens=64", "task.group=8"])
    assert whole == cut


# Folders and commands -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_folder_keeps_how_it_makes_vectors(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    settings = ["machine.threads=1", "task.max_length=16", "task.overlap=4", "task.pool=cls", "task.widths=32,8",
                "task.group=8"]  # fmt: skip
    examples = [*made(12, "labels"), *made(4, "labels", 40)]
    done = finetune("embed", examples, tiny_folder, tmp_path / "run", dev=examples * 4, epochs=2, settings=settings,
                        quiet=True)  # fmt: skip
    assert set(done.best) >= {"ranked", "step"}
    about = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert {name: about[name] for name in ("task", "max_length", "overlap", "pool", "widths")} == {
        "task": "embed", "max_length": 16, "overlap": 4, "pool": "cls", "widths": "32,8"}  # fmt: skip
    model = fb.load(tmp_path / "run", device="cpu")
    assert model.widths == (32, 8)
    for name, value in done.module.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], value)
    task = task_of(examples, tokenizer, max_length=16, pool="cls")
    wanted = raw(task, model.backbone, list(range(16))).reshape(32, -1)
    texts = [text for example in examples for text in example.texts]
    plain = model.embed(texts, normalize=False)
    np.testing.assert_allclose(plain, wanted, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(model.embed(texts), axis=1), 1, atol=1e-5)
    cut = model.embed(texts, width=8)
    np.testing.assert_allclose(cut, plain[:, :8] / np.linalg.norm(plain[:, :8], axis=1, keepdims=True), atol=1e-5)
    told = evaluate(tmp_path / "run", examples, threads=1)
    assert told["threshold"] == pytest.approx(about["threshold"])
    assert told["fitted"] is False
    pairs = [(example.texts[0], example.texts[1]) for example in examples]
    said = [prediction.scores["similarity"] for prediction in model.predict(pairs)]
    np.testing.assert_allclose(said, (model.embed(texts)[0::2] * model.embed(texts)[1::2]).sum(1), atol=1e-5)
    with pytest.raises(InputError, match="reads pairs; `embed` gives single texts their vectors"):
        model.predict(["alone"])
    assert model.predict([]) == []


@pytest.mark.slow
def test_unsupervised_runs_are_judged_by_rated_pairs(tiny_folder: Path, tmp_path: Path) -> None:
    done = finetune("embed", made(30, "texts"), tiny_folder, tmp_path / "run", dev=made(10, "numbers"), epochs=2,
                        settings=["machine.threads=1"], quiet=True)  # fmt: skip
    assert 0 <= done.best["ranked"] <= 1


@pytest.mark.slow
def test_the_commands_on_real_data(
    shared: Path, tiny_folder: Path, tmp_path: Path, filbert: Callable[..., tuple[int, str, str]]
) -> None:
    files = {
        "stsb": "pair_stsb_zh/sts-b-dev.txt.xz",
        "lcqmc": "pair_lcqmc/dev.txt.xz",
        "afqmc": "pair_afqmc/dev.txt.xz",
    }
    for name, path in files.items():
        with lzma.open(shared / "data" / path, "rt", encoding="utf-8") as lines:
            (tmp_path / f"{name}.txt").write_text("".join(islice(lines, 160)), encoding="utf-8")
    few = ["--set", "machine.threads=1", "--set", "task.widths=32,16", "--epochs", "1"]
    out = tmp_path / "run"
    code, said, err = filbert("finetune", "embed", "--train", tmp_path / "afqmc.txt", "--dev", tmp_path / "lcqmc.txt",
                              "--model", tiny_folder, "--out", out, *few)  # fmt: skip
    assert code == 0, err
    assert "vectors" in said
    assert "ranked" in said
    assert "A model that turns texts into vectors" in (out / "model" / "README.md").read_text()
    code, said, err = filbert("evaluate", out, "--data", tmp_path / "lcqmc.txt")
    assert code == 0, err
    assert all(word in said for word in ("auc", "spearman", "fitted on the model's dev data", "at 16 numbers"))
    code, said, _ = filbert("evaluate", out, "--data", tmp_path / "stsb.txt", "--json")
    told = json.loads(said)
    assert told["intervals"]["spearman"][0] <= told["spearman"] <= told["intervals"]["spearman"][1]
    assert told["num_examples"] == 160
    code, said, err = filbert("evaluate", tiny_folder, "--task", "embed", "--data", tmp_path / "lcqmc.txt")
    assert code == 0, err
    assert "which flatters" in said
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("".join(f"{t[0]}\t{t[1]}\n" for t in (e.texts for e in made(30))), encoding="utf-8")
    code, said, err = filbert("evaluate", out, "--data", pairs, "--json")
    assert code == 0, err
    assert json.loads(said)["recall@1"] <= json.loads(said)["recall@10"]
    code, said, err = filbert("predict", out, "--pair", "天气很好", "天气很好")
    assert code == 0, err
    assert json.loads(said)["similarity"] == pytest.approx(1, abs=1e-5)
    code, _, err = filbert("predict", out, "--text", "天气很好")
    assert code == 2
    assert "`embed`" in err
    (tmp_path / "one.txt").write_text("天气\n很好\n", encoding="utf-8")
    code, _, err = filbert("evaluate", out, "--data", tmp_path / "one.txt")
    assert code == 2


# Measuring ------------------------------------------------------------------------------------------------------------


def test_gold_vectors_are_perfect(tokenizer: Tokenizer) -> None:
    whole = np.eye(8)
    told = task_of(made(8), tokenizer).evaluated(list(np.stack([whole, whole], axis=1)))
    assert (told["recall@1"], told["mrr"], told["num_candidates"]) == (1, 1, 8)
    assert told["intervals"]["mrr"] == pytest.approx(wilson(8, 8))
    triplets = task_of(made(8, "triplets"), tokenizer)
    assert triplets.evaluated(list(np.stack([whole, whole, -whole], axis=1)))["accuracy"] == 1
    for kind in ("labels", "numbers"):
        task = task_of(made(9, kind), tokenizer)
        turns = np.arccos(task.gold / 5)
        second = np.stack([np.cos(turns), np.sin(turns)], axis=1)
        told = task.evaluated(list(np.stack([np.tile([1.0, 0.0], (9, 1)), second], axis=1)))
        assert told["spearman"] == pytest.approx(1)
        assert [told[name] for name in ("auc", "accuracy") if kind == "labels"] == [1, 1][: 2 * (kind == "labels")]
        assert kind == "labels" or told["pearson"] == pytest.approx(1)


def test_measures_are_those_of_scikit_learn() -> None:
    scores = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(20):
        gold, said = random.integers(0, 2, 40) == 1, random.normal(size=40).round(1) / 4
        gold[:2] = True, False
        assert metrics.auc(gold, said) == pytest.approx(scores.roc_auc_score(gold, said))
        level = metrics.best_threshold(gold, said)
        every = [((said >= each) == gold).mean() for each in [*np.unique(said), 2]]
        assert ((said >= level) == gold).mean() == pytest.approx(max(every))
    assert metrics.auc(np.array([True]), [0.3]) == 0.5
    assert metrics.best_threshold(np.zeros(0, dtype=bool), []) == 0


def test_retrieval_counts_no_luck_and_no_copies() -> None:
    first = second = np.ones((4, 2))
    assert metrics.retrieval(first, second, np.arange(4))["recall@1"] == 0  # all alike: nothing was found
    same = np.array([0, 0, 1, 1])
    one = np.eye(2)[same]
    told = metrics.retrieval(one, one, same)
    assert (told["recall@1"], told["num_candidates"]) == (1, 2)
    places = metrics.ranks_of_pairs(np.eye(3), np.roll(np.eye(3), 1, axis=1) + 0.5 * np.eye(3), np.arange(3))
    assert places.tolist() == [2, 2, 2]
    assert metrics.retrieval(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, dtype=np.int64))["mrr"] == 0


def test_no_threshold_moves_what_was_set(tokenizer: Tokenizer) -> None:
    task = task_of(made(8, "labels"), tokenizer, threshold=0.25)
    model = model_for(tokenizer)
    assert task.calibrated(raw(task, model, list(range(8))), ("threshold",)) == Fit(task.config)
    free = replace(task.config, threshold=None)
    fresh = embed.Items(made(60, "labels"), (), tokenizer, free)
    assert fresh.calibrated(raw(fresh, model, list(range(60)))).config.threshold is not None
    few = embed.Items(made(8, "labels"), (), tokenizer, free)
    assert "too few" in few.calibrated(raw(few, model, list(range(8)))).note
    numbers = task_of(made(8, "numbers"), tokenizer)
    assert numbers.calibrated(raw(numbers, model, list(range(8)))) == Fit(numbers.config)
