"""The next word: what is asked over real shards, that its losses are sums and can be learnt, and texts written on."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Term
from filbert.corpus.shards import Shard
from filbert.engine.continuation import WAYS, Writing, continuations, continued
from filbert.models import bert, elmo
from filbert.pack.lay import collate
from filbert.pack.stretches import NOTHING
from filbert.tasks.causal_lm import items as causal_lm
from filbert.tasks.causal_lm import spec as causal_lm_spec
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS, train
from filbert.train import loop, machine
from filbert.train.distributed import Ranks
from filbert.train.step import on_device
from kit.corpora import built_in, shards_of, tokenizer_of

MODELS = ("gpt", "nnlm", "elmo", "elmo-characters")
POEM = "床前明月光，疑是地上霜。举头望明月，低头思故乡。"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return built_in(4)


@pytest.fixture(scope="module")
def tokenizer(texts: list[str]) -> Tokenizer:
    return tokenizer_of(texts, 2_000)


@pytest.fixture(scope="module")
def shards(texts: list[str], tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Shard]:
    made = shards_of(texts, tokenizer, tmp_path_factory.mktemp("causal_lm"), shard_tokens=4_000)
    assert len(made) > 1
    return made


@pytest.fixture(scope="module")
def task(shards: list[Shard], tokenizer: Tokenizer) -> causal_lm.Items:
    return causal_lm.Items(shards, tokenizer, causal_lm_spec.Config(max_length=48, seed=5))


def model(kind: str, tokenizer: Tokenizer) -> Any:
    torch.manual_seed(0)
    name, _, more = kind.partition("-")
    shapes: dict[str, dict[str, Any]] = {
        "gpt": {"width": 32, "layers": 2, "heads": 2, "inner": 64, "max_length": 48},
        "nnlm": {"word_width": 24, "hidden": 48, "max_length": 48},
        "elmo": {"direction_width": 24, "input": more or "tokens", "filters": 1, "token_bytes": 16},
    }
    spec = registry.model(name)
    return spec.model(spec.config(vocab_size=tokenizer.vocab_size, dropout=0.0, **shapes[name]), ("lm",), 2)


def batch_of(task: causal_lm.Items, indices: list[int], budget: int | None = None, epoch: int = 0) -> Batch:
    return on_device(task.batch(task.plan(epoch).orders(np.array(indices)), budget), "cpu")


def totals(terms: dict[str, Term]) -> dict[str, tuple[float, int]]:
    return {name: (float(term.total), int(term.count)) for name, term in terms.items()}


# What is asked --------------------------------------------------------------------------------------------------------


def test_every_token_is_asked_for_once_in_each_direction(task: causal_lm.Items, shards: list[Shard]) -> None:
    """And the end of each document, forward, as its beginning, backward; no cut between them is."""
    tokens = sum(shard.num_tokens for shard in shards)
    documents = sum(len(shard.documents) - 1 for shard in shards)
    batch = task.batch(task.plan(0).orders(np.arange(len(task))))
    assert task.counts(batch) == {"lm_loss": tokens + documents, "backward_loss": tokens + documents}
    assert len(task) > 2 * documents
    every = np.concatenate([shard.ids for shard in shards])
    for name, special in (("next_ids", task.tokenizer.sep_id), ("previous_ids", task.tokenizer.cls_id)):
        asked = batch.targets[name][batch.targets[name] != NOTHING]
        assert (asked == special).sum() == documents
        size = task.tokenizer.vocab_size
        counted = np.bincount(asked[asked != special], minlength=size)
        assert np.array_equal(counted, np.bincount(every, minlength=size))
    assert task.plan(0).lengths.max() <= 48


def test_an_item_reads_as_it_should(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Two documents of which one is cut: [CLS] text [SEP], the next word of each token, the one before it."""
    made = shards_of(["一二三四五六七八九十" * 2, "上下左右"], tokenizer, tmp_path)
    task = causal_lm.Items(made, tokenizer, causal_lm_spec.Config(max_length=16))
    edges = []
    for index in range(len(task)):
        item = task.item(index, 0)
        (sequence,) = item.sequences
        ids, rows = sequence.ids, item.targets["left_rows"]
        assert ids[0] == tokenizer.cls_id
        assert ids[-1] == tokenizer.sep_id
        assert sequence.parts.tolist() == [-1, *[0] * (len(ids) - 2), -1]
        assert rows.tolist() == list(range(len(ids) - 1))
        assert item.targets["next_ids"][:-1].tolist() == ids[1:-1].tolist()
        assert item.targets["previous_ids"][1:].tolist() == ids[1:-1].tolist()
        edges.append((int(item.targets["previous_ids"][0]), int(item.targets["next_ids"][-1])))
    begins, ends = zip(*edges, strict=True)
    assert sorted(begins) == [NOTHING] * (len(task) - 2) + [tokenizer.cls_id] * 2
    assert sorted(ends) == [NOTHING] * (len(task) - 2) + [tokenizer.sep_id] * 2
    assert len(task) > 2
    together = collate([task.item(index, 0) for index in range(len(task))])
    packed, left = together.packed, together.targets["left_rows"]
    asked = together.targets["next_ids"] != NOTHING
    assert np.array_equal(packed.ids[left + 1][asked], together.targets["next_ids"][asked])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_the_sums_are_those_counted_and_the_pack_changes_nothing(
    task: causal_lm.Items, tokenizer: Tokenizer, kind: str
) -> None:
    """Together, one by one or in a row of constant size: the same sums over the same number of answers."""
    network = model(kind, tokenizer).eval()
    task.begin(network)
    indices = [3, 40, 7, 60, 31, 5]
    with torch.inference_mode():
        batch = batch_of(task, indices)
        together, counts = totals(task.loss(network, batch)), dict(task.counts(batch))
        alone = [totals(task.loss(network, batch_of(task, [index]))) for index in indices]
        filled_batch = batch_of(task, indices, budget=400)
        filled = totals(task.loss(network, filled_batch))
    assert len(filled_batch.packed.ids) == len(filled_batch.targets["next_ids"]) == 400
    losses = {name for name in together if name.endswith("_loss")}
    assert losses == ({"lm_loss", "backward_loss"} if kind.startswith("elmo") else {"lm_loss"})
    assert counts == dict(task.counts(filled_batch))
    for name, (total, count) in together.items():
        assert sum(each[name][1] for each in alone) == count == filled[name][1]
        assert sum(each[name][0] for each in alone) / count == pytest.approx(total / count, rel=1e-6, abs=1e-6)
        assert filled[name][0] / count == pytest.approx(total / count, rel=1e-6, abs=1e-6)
    for name in losses:
        assert counts[name] == together[name][1] > 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt", "elmo"])
def test_scores_in_parts_are_those_at_once(
    task: causal_lm.Items, tokenizer: Tokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, accuracy and every gradient, with a few rows scored at a time."""
    network, batch = model(kind, tokenizer), batch_of(task, [1, 2, 3, 4])
    found = []
    for scores in (causal_lm.SCORES, 7 * tokenizer.vocab_size):
        monkeypatch.setattr(causal_lm, "SCORES", scores)
        network.zero_grad()
        terms = task.loss(network, batch)
        sum(term.total for name, term in terms.items() if name.endswith("_loss")).backward()
        grads = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
        found.append(({name: term.total.detach().float() for name, term in terms.items()}, grads))
    assert len(found[0][1]) > 10
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)


def test_orders_and_task_travel_to_other_processes(task: causal_lm.Items) -> None:
    orders = task.plan(2).orders(np.array([4, 9, 1]))
    there, sent = pickle.loads(pickle.dumps((task, orders)))
    one, two = task.batch(orders), there.batch(sent)
    assert np.array_equal(one.packed.ids, two.packed.ids)
    assert np.array_equal(one.targets["next_ids"], two.targets["next_ids"])
    assert len(pickle.dumps(orders)) < 2_000  # places, not tokens


def test_a_fresh_model_is_told_what_is_known(task: causal_lm.Items, tokenizer: Tokenizer) -> None:
    network = model("elmo-characters", tokenizer)
    task.begin(network)
    assert float(network.lm.bias.detach().exp().sum()) == pytest.approx(1, abs=1e-4)  # frequencies
    here = tokenizer.vocabulary.index("。")
    assert network.embeddings.spellings[here, :5].tolist() == [elmo.BEGIN, *"。".encode(), elmo.END]
    assert float(network.lm.bias.detach()[here]) > -5
    task.begin(model("gpt", tokenizer))  # which asks for nothing


def test_what_is_wrong_is_named(tokenizer: Tokenizer) -> None:
    for wrong in ({"max_length": 7}, {"short_prob": 1.0}, {"seed": -1}):
        with pytest.raises(InputError, match=f"task.{next(iter(wrong))}"):
            causal_lm_spec.Config(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs 1 document or more, but the corpus has 0"):
        causal_lm.Items([], tokenizer, causal_lm_spec.Config())


# What is learnt -------------------------------------------------------------------------------------------------------


class Drawn:
    """A shard of documents whose characters are drawn one by one, whatever stands before them."""

    def __init__(self, shares: list[float], first: int, documents: int, seed: int) -> None:
        size = 1_000
        self.ids = first + np.random.default_rng(seed).choice(len(shares), documents * size, p=shares)
        self.words = np.ones(len(self.ids), dtype=np.uint8)
        self.documents = np.arange(documents + 1) * size
        self.sentences = np.arange(documents * size // 20 + 1) * 20

    @property
    def num_tokens(self) -> int:
        return len(self.ids)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["gpt", "nnlm", "elmo"])
def test_drawn_text_has_the_perplexity_of_its_entropy(kind: str) -> None:
    """Characters without any order: nobody can do better, and a short run comes within 3 %, nowhere told of shares."""
    shares = [0.5, 0.25, 0.125, 0.0625, 0.0625]
    known = Tokenizer([*SPECIALS, *"天地玄黄宇"])
    config = causal_lm_spec.Config(max_length=48)
    learnt, held = (causal_lm.Items([Drawn(shares, 5, 10, seed)], known, config) for seed in (1, 2))
    network = model(kind, known)
    here = machine.Config(threads=1)
    settings = loop.Config(steps=40, batch_tokens=1_024, learning_rate=1e-2)
    loop.fit(network, learnt, settings, machine=here)
    told = loop.evaluate(network, held, settings, machine.chosen(here), Ranks())
    entropy = -sum(share * math.log(share) for share in shares)
    assert told["perplexity"] == pytest.approx(math.exp(told["lm_loss"]))
    assert told["perplexity"] == pytest.approx(math.exp(entropy), rel=0.03)
    assert told["lm_accuracy"] == pytest.approx(0.5, abs=0.03)
    assert ("backward_perplexity" in told) == (kind == "elmo")
    if kind == "elmo":
        assert told["backward_perplexity"] == pytest.approx(math.exp(entropy), rel=0.03)


@pytest.fixture(scope="module")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Tokenizer]]:
    """Models that know one poem and one English line by heart."""
    lines = [POEM, "the quick brown fox jumps over the lazy dog."]
    known = Tokenizer(train(lines * 3, size=300).tokens)
    made = shards_of(lines, known, tmp_path_factory.mktemp("poem"))
    task = causal_lm.Items(made, known, causal_lm_spec.Config(max_length=48))
    found = {}
    for kind in ("gpt", "nnlm"):
        network = model(kind, known)
        settings = loop.Config(steps=150, batch_tokens=96, learning_rate=5e-3)
        outcome = loop.fit(network, task, settings, machine=machine.Config(threads=1))
        assert outcome.state.skipped == 0
        found[kind] = (network, known)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt", "nnlm"])
@pytest.mark.parametrize("way", WAYS)
def test_a_text_is_learnt_and_written_on(reciter: dict[str, tuple[Any, Tokenizer]], kind: str, way: str) -> None:
    """Texts of several lengths at once, each to its end, in the user's own characters."""
    network, known = reciter[kind]
    writing = Writing(way=way, max_new=30, temperature=0.3, top_k=5, top_p=0.9, width=3)
    begun = ["床前明月光，疑是", "床前明", "床前明月光，疑是地上霜。举头望", "The quick brown"]
    wanted = [POEM, POEM, POEM, "The quick brown fox jumps over the lazy dog."]
    assert continuations(network, known, begun, writing) == wanted
    assert continued(network, known, begun[1], writing) == POEM
    assert not network.training


@pytest.mark.slow
def test_draws_follow_the_seed_and_the_text_alone(reciter: dict[str, tuple[Any, Tokenizer]]) -> None:
    network, known = reciter["gpt"]
    texts = ["床前", "明", "the lazy", "光，疑是地"]
    wild = Writing(temperature=5.0, max_new=12, seed=3)
    first = continuations(network, known, texts, wild)
    assert first == continuations(network, known, texts, wild)
    assert first[:2] == continuations(network, known, texts[:2], wild)
    assert first != continuations(network, known, texts, Writing(temperature=5.0, max_new=12, seed=4))
    assert all(more.startswith(text) for text, more in zip(texts, first, strict=True))


def test_texts_that_are_empty_long_or_unknown(reciter: dict[str, tuple[Any, Tokenizer]]) -> None:
    network, known = reciter["gpt"]
    greedy = Writing(way="greedy", max_new=30)
    assert continued(network, known, "", greedy) in (POEM, "the quick brown fox jumps over the lazy dog.")
    long = "举头望明月，" * 200  # of which a gpt reads the last 47 tokens, an nnlm the last four
    assert continued(network, known, long, Writing(way="greedy", max_new=1)).startswith(long)
    assert continued(reciter["nnlm"][0], known, long, Writing(way="greedy", max_new=1)) == long + "低"
    assert continued(network, known, "龘", greedy).startswith("龘")
    assert continuations(network, known, [], greedy) == []


def test_what_cannot_be_written_is_said(reciter: dict[str, tuple[Any, Tokenizer]]) -> None:
    network, known = reciter["gpt"]
    with pytest.raises(InputError, match="max_new is 49, but the model reads only 48"):
        continued(network, known, "床", Writing(max_new=49))
    shape = {"width": 32, "layers": 1, "heads": 2, "inner": 64}
    reader = bert.Bert(bert.Config(vocab_size=known.vocab_size, **shape))
    for other in (reader, model("elmo", known)):
        with pytest.raises(InputError, match="does not write from left to right; take a gpt or an nnlm"):
            continued(other, known, "床")
    for wrong in ({"way": "beams"}, {"max_new": 0}, {"temperature": 0.0}, {"top_p": 1.5}, {"width": 0}):
        with pytest.raises(InputError, match=f"writing.{next(iter(wrong))}"):
            Writing(**wrong)  # type: ignore[arg-type]
