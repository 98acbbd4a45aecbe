"""What is often said about BERT and its forerunners, and what is so: a test for each row of the table of errata.

A docstring begins with the numbers of its rows in ../shared/ERRATA.md. A test shows what is true by computing it, and
would fail if what is said were true.

Legend: L tokens of a text, D width, M masked tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
import lzma
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bert_by_hand import SAID, by_hand, gelu, mapped
from torch.utils.flop_counter import FlopCounterMode

from filbert.builtin.texts import sample
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Encoding, Example
from filbert.corpus.shards import Options, Shard, build
from filbert.folder import folder as folders
from filbert.forms import augment
from filbert.models import bert, elmo, gpt, han, nnlm, seq2seq
from filbert.nn.attention import attend, tensors
from filbert.nn.decoder_attention import attend_causal
from filbert.nn.layers import Dropout, FeedForward, SelfAttention
from filbert.pack.lay import pack
from filbert.pack.stretches import FOLLOWS, RANDOM
from filbert.run.finetune import finetune
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.tasks.pair import items as pair
from filbert.tasks.pair import spec as pair_spec
from filbert.tasks.tag import spec as tag_spec
from filbert.tasks.task import Trait
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from filbert.train import loop, machine, optim
from filbert.train.step import on_device
from kit.models import small_bert

pytestmark = pytest.mark.usefixtures("one_thread")

# Layers and shapes ----------------------------------------------------------------------------------------------------


def encoded(*texts: list[int]) -> Any:
    """A pack of these token ids."""
    rows = [np.array(ids, dtype=np.int32) for ids in texts]
    packed, _ = pack([Encoding(row, *[np.zeros_like(row)] * 4) for row in rows])
    return tensors(packed)


@pytest.fixture
def model(tokenizer: Tokenizer) -> bert.Bert:
    return small_bert(tokenizer, ("pooler", "mlm", "nsp"), noise=0.2).double()


def test_bert_is_what_the_paper_says_and_nothing_else_that_is_said(model: bert.Bert) -> None:
    """2, 3, 4, 6, 18, 19, 28: V is applied once, layers are in sequence, positions are added once, GELU, LayerNorm,
    √d_k of a head, and nothing after attention; each misstatement gives other numbers."""
    ids = [2, 31, 17, 44, 9, 60, 3]
    with torch.inference_mode():
        ours_LD = model(encoded(ids)).numpy()
    np.testing.assert_allclose(by_hand(model, ids), ours_LD, atol=1e-10)
    for said in SAID:
        assert np.abs(by_hand(model, ids, said) - ours_LD).max() > 0.05, said


def test_base_has_12_equal_layers_768_wide_and_large_24_of_1024() -> None:
    """1, 36: not two layers of different kinds; 768 is the width of base alone."""
    for name, layers, width in (("base", 12, 768), ("large", 24, 1_024)):
        config = bert.PRESETS[name]
        assert (config.layers, config.width) == (layers, width)
        with torch.device("meta"):
            built = bert.Bert(config)
        shapes = [{name: weight.shape for name, weight in layer.named_parameters()} for layer in built.layers]
        assert len(shapes) == layers
        assert all(shape == shapes[0] for shape in shapes)
        assert len({type(layer) for layer in built.layers}) == 1


def test_the_feed_forward_goes_to_four_times_the_width_by_gelu_and_back() -> None:
    """2: d → 4d → d with GELU between; not d → d → d_ff with ReLU at the end."""
    feed = FeedForward(8, 32, bias=True).double()
    assert (feed.up.weight.shape, feed.down.weight.shape) == ((32, 8), (8, 32))
    assert all(config.inner == 4 * config.width for name, config in bert.PRESETS.items() if name != "modern")
    x_LD = torch.randn(50, 8, dtype=torch.float64)
    out_LD = feed(x_LD).detach().numpy()
    np.testing.assert_allclose(mapped(gelu(mapped(x_LD.numpy(), feed.up)), feed.down), out_LD, atol=1e-12)
    assert (out_LD < 0).any(), "a ReLU at the end would leave nothing below zero"


def test_positions_are_a_learned_table_of_512_rows_and_sinusoids_are_an_option_without_weights() -> None:
    """3, 18: one table, in the embeddings alone; the fixed waves are those of Vaswani et al. 2017, §3.5."""
    learned = bert.shapes(bert.PRESETS["base"])
    assert [name for name in learned if "position" in name] == ["embeddings.positions.weight"]
    assert learned["embeddings.positions.weight"] == (512, 768)
    small = {"vocab_size": 9, "width": 8, "layers": 2, "heads": 2, "inner": 8, "max_length": 16}
    model = bert.Bert(bert.Config(**small))  # type: ignore[arg-type]
    model(encoded([1, 2, 3])).sum().backward()
    gradient = model.embeddings.positions.weight.grad  # type: ignore[union-attr]
    assert isinstance(gradient, torch.Tensor)
    assert gradient[:3].abs().sum() > 0
    waves = bert.Bert(bert.Config(**small, positions="sinusoidal"))  # type: ignore[arg-type]
    assert not [name for name, _ in waves.named_parameters() if "position" in name]
    place, pair = np.arange(16)[:, None], np.arange(4)[None, :]
    table = waves.embeddings.positions.weight.numpy()  # type: ignore[union-attr, operator]
    np.testing.assert_allclose(table[:, 0::2], np.sin(place / 10_000 ** (2 * pair / 8)), atol=1e-6)
    np.testing.assert_allclose(table[:, 1::2], np.cos(place / 10_000 ** (2 * pair / 8)), atol=1e-6)


def test_another_example_in_the_batch_changes_nothing(model: bert.Bert) -> None:
    """4: the norm is over the numbers of one token, not over the batch; BatchNorm would mix the examples."""
    ids, others = [2, 31, 17, 3], [[2, 9, 9, 3], [2, 77, 50, 41, 3]]
    model.train()  # where BatchNorm would take the statistics of the batch; dropout is 0 here
    with torch.no_grad():
        alone, *beside = (model(encoded(ids, *more))[:4] for more in ([], others[:1], others[1:]))
    for vectors in beside:
        torch.testing.assert_close(vectors, alone, rtol=0, atol=1e-12)
    batch_norm = torch.nn.BatchNorm1d(model.width).double()
    one, two = (batch_norm(torch.cat((alone, alone.new_full((4, model.width), more))))[:4] for more in (0.0, 5.0))
    assert (one - two).abs().max() > 0.1


def test_the_root_of_the_head_width_keeps_the_variance_of_a_score_near_one() -> None:
    """5, 28: d_k is 64 in base and large alike; scores are not squeezed into 0–1."""
    assert {bert.PRESETS[name].width // bert.PRESETS[name].heads for name in ("base", "large")} == {64}
    random = np.random.default_rng(0)
    dots = np.prod(random.standard_normal((2, 20_000, 64)), axis=0).sum(-1)
    variances = [(dots / math.sqrt(size)).var() for size in (1, 64, 768)]
    assert variances[:2] == pytest.approx([64, 1], rel=0.05)
    assert variances[2] < 0.1, "the root of the model's width would flatten the softmax"
    assert ((dots < 0) | (dots > math.sqrt(64))).mean() > 0.5


def test_a_later_word_changes_an_earlier_vector_in_one_forward_pass(model: bert.Bert) -> None:
    """7: both sides are seen at once, and no backward pass is needed for it."""
    with torch.inference_mode():
        one, two = (model(encoded([2, 31, 17, last, 3])) for last in (44, 45))
        words = model.embeddings(encoded([2, 31, 17, 44, 3])), model.embeddings(encoded([2, 31, 17, 45, 3]))
    assert (one[1] - two[1]).abs().max() > 1e-3
    assert torch.equal(words[0][1], words[1][1]), "at the input, the earlier word is the same"


def test_all_heads_side_by_side_are_as_wide_as_the_model() -> None:
    """25: W^O maps d_v to d, where d_v = h·(d_v/h); h·d_v would be h times too many."""
    attention = SelfAttention(48, 6, bias=True)
    read = attention.read(torch.randn(4, 48), encoded([1, 2, 3, 4]))
    assert (attention.out.in_features, attention.out.out_features, read.shape[1]) == (48, 48, 48)


def test_a_query_asks_keys_are_matched_and_values_are_returned() -> None:
    """34: what comes back is made of values alone; the key that the query matches says whose; it is never Q itself."""
    keys = torch.eye(4, dtype=torch.float64)[:, None] * 50
    values = torch.arange(16, dtype=torch.float64).view(4, 1, 4)
    asked = torch.eye(4, dtype=torch.float64)[[2, 0, 3, 1]][:, None]
    packed = encoded([0] * 4)
    read = attend(asked, keys, values, packed)
    torch.testing.assert_close(read, values[[2, 0, 3, 1]], atol=1e-6, rtol=0)
    torch.testing.assert_close(attend(asked, keys, values + 100, packed), read + 100)
    torch.testing.assert_close(attend(asked, keys[[1, 0, 2, 3]], values[[1, 0, 2, 3]], packed), read)


# Text and its tokens --------------------------------------------------------------------------------------------------


def test_a_vocabulary_has_five_special_tokens(shared: Path, tokenizer: Tokenizer) -> None:
    """8: [PAD] [UNK] [CLS] [SEP] [MASK], in ours and in the published ones."""
    five = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    published = [Tokenizer.load(path) for path in sorted((shared / "data/vocab").glob("*.txt"))]
    assert len(published) == 3
    for each in (tokenizer, *published):
        assert {each.token_of(index) for index in each.special_ids} == five
    with pytest.raises(Exception, match=r"\[MASK\]"):
        Tokenizer(["[CLS]", "[SEP]", "好"])


def test_running_is_one_piece_of_the_published_vocabulary(shared: Path) -> None:
    """9: pieces are the longest that fit, and 'running' is itself in the vocabulary; '##ning' is for rarer words."""
    published = Tokenizer.load(shared / "data/vocab/bert-base-uncased-vocab.txt")
    assert published.encode("running").tokens == ["[CLS]", "running", "[SEP]"]
    assert {"run", "##ning"} <= set(published.vocabulary), "both pieces are there, and the longest wins all the same"
    assert published.encode("embeddings").tokens[1:-1] == ["em", "##bed", "##ding", "##s"]


def test_segments_tell_two_texts_apart_and_labelling_words_needs_none(tokenizer: Tokenizer) -> None:
    """17: 0 for the first text of a pair, 1 for the second; a single text, also where words are tagged, has zeros."""
    both = tokenizer.encode("今天天气好", "我们去公园")
    middle = both.ids.tolist().index(tokenizer.sep_id)
    assert both.segments.tolist() == [0] * (middle + 1) + [1] * (len(both) - middle - 1)
    pairs = pair.Items([Example(("今天", "明天"), "0")], ("0", "1"), tokenizer, pair_spec.Config())
    assert set(pairs.batch(np.arange(1)).packed.segments.tolist()) == {0, 1}
    example = Example(("今天天气好",), [], 0)
    tagged = tag_spec.items([example], ("O", "B-LOC", "I-LOC"), tokenizer, tag_spec.Config(scheme="bio"))
    assert not tagged.batch(np.arange(1)).packed.segments.any()


def test_thucnews_has_14_classes_and_the_headlines_are_of_ten_of_them(shared: Path) -> None:
    """35: the ten of the headline subset are among the 14 of the whole (thuctc.thunlp.org), which is not 19."""
    whole = {
        "finance": "财经", "lottery": "彩票", "realty": "房产", "stocks": "股票", "home": "家居", "education": "教育",
        "science": "科技", "society": "社会", "fashion": "时尚", "politics": "时政", "sports": "体育",
        "constellation": "星座", "game": "游戏", "entertainment": "娱乐",
    }  # fmt: skip
    assert len(whole) == 14
    named = (shared / "data/thucnews/class.txt").read_text(encoding="utf-8").split()
    assert len(set(named)) == 10
    assert set(named) < set(whole)
    with lzma.open(shared / "data/thucnews/dev.txt.xz", "rt", encoding="utf-8") as file:
        labels = {line.rstrip("\n").rpartition("\t")[2] for line in file}
    assert labels == {str(index) for index in range(10)}


def test_length_is_bounded_by_the_position_table_and_longer_texts_are_read_in_windows(tokenizer: Tokenizer) -> None:
    """27: the 65th token has no row in a table of 64; windows read all of a text; memory is linear without a map."""
    model = small_bert(tokenizer, (), max_length=64)
    assert model(encoded([7] * 64)).shape == (64, 32)
    with pytest.raises(IndexError):
        model(encoded([7] * 65))
    text = "今天天气很好，我们去公园散步。" * 40
    read = encode_windows(tokenizer, text, max_length=64, overlap=16)
    assert max(map(len, read)) <= 64
    assert sum(int(window.owned.sum()) for window in read) == len(tokenizer.encode(text)) - 2

    def stored(length: int, keeps_map: bool) -> int:
        """Bytes that are kept for the backward pass of attention over one text."""
        kept: dict[int, int] = {}

        def keep(x: torch.Tensor) -> torch.Tensor:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        q, k, v = (torch.randn(length, 2, 16, requires_grad=True) for _ in range(3))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            if keeps_map:
                _ = (torch.einsum("qhk,shk->hqs", q, k) / 4).softmax(-1) @ v.transpose(0, 1)
            else:
                attend(q, k, v, encoded([0] * length))
        return sum(kept.values())

    assert stored(1_024, keeps_map=False) / stored(256, keeps_map=False) == pytest.approx(4, rel=0.1)
    assert stored(1_024, keeps_map=True) / stored(256, keeps_map=True) > 10


# Pretraining ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shard:
    place = tmp_path_factory.mktemp("errata")
    (place / "corpus.txt").write_text("\n\n".join("".join(d.sentences) for d in sample("zh")), encoding="utf-8")
    built = build(place / "corpus.txt", Tokenizer.load(tiny_folder), place / "shards", Options(held=0), workers=1)
    (shard,) = built.train.shards
    return shard


@pytest.fixture
def task(corpus: Shard, tokenizer: Tokenizer) -> mlm_nsp.Items:
    return mlm_nsp.Items([corpus], tokenizer, mlm_nsp_spec.Config(max_length=64))


def whole_epoch(task: mlm_nsp.Items, epoch: int = 0) -> Any:
    plan = task.plan(epoch)
    return plan.items, task.batch(plan.orders(np.arange(len(plan.lengths))))


@pytest.mark.slow
def test_both_questions_are_asked_in_one_step_and_their_losses_plainly_summed(
    task: mlm_nsp.Items, tokenizer: Tokenizer
) -> None:
    """10, 11: the loop's loss is MLM's mean plus NSP's, without weights, and its gradient is that of the sum."""
    model = small_bert(tokenizer, task.parts)
    entries: list[Any] = []
    config = loop.Config(steps=1, batch_tokens=100_000, clip=1e9)
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    loop.fit(model, task, config, entries.append, machine=machine.Config(threads=1))
    (entry,) = entries
    assert entry["loss"] == pytest.approx(entry["mlm_loss"] + entry["nsp_loss"], rel=1e-6)
    model.load_state_dict(start)
    _, batch = whole_epoch(task, entry["epoch"])
    terms = task.loss(model, on_device(batch, "cpu"))
    means = {name: term.total / term.count for name, term in terms.items() if name.endswith("_loss")}
    assert {name: float(mean.detach()) for name, mean in means.items()} == pytest.approx(
        {n: entry[n] for n in means}, rel=1e-4
    )
    sum(means.values()).backward()  # type: ignore[union-attr]
    norm = math.sqrt(sum(float(weight.grad.square().sum()) for weight in model.parameters() if weight.grad is not None))
    assert entry["norm"] == pytest.approx(norm, rel=1e-3)
    assert all(model.get_parameter(name).grad is not None for name in ("mlm.bias", "nsp.weight"))


@pytest.mark.slow
def test_masked_words_are_a_softmax_over_the_vocabulary_at_masked_places_only(
    task: mlm_nsp.Items, tokenizer: Tokenizer
) -> None:
    """13: what is asked for is the token that stood there, not the next one; nothing is asked elsewhere."""
    model, (_, batch) = small_bert(tokenizer, task.parts), whole_epoch(task)
    rows, gold = batch.targets["mask_rows"], batch.targets["mask_ids"]
    with torch.inference_mode():
        told = task.loss(model, on_device(batch, "cpu"))["mlm_loss"]
        scores_MV = model.word_scores(model(tensors(batch.packed))[rows]).double().numpy()
    logs_MV = scores_MV - np.log(np.exp(scores_MV).sum(-1, keepdims=True))
    assert scores_MV.shape == (len(gold), tokenizer.vocab_size)
    assert float(told.total) == pytest.approx(-logs_MV[np.arange(len(gold)), gold].sum(), rel=1e-5)
    assert int(told.count) == len(rows) < 0.2 * batch.packed.num_tokens
    kept = batch.packed.ids[rows] == gold
    assert kept.any(), "a tenth stays as it is, so that the gold is the token of this very place"
    assert (batch.packed.ids[rows + 1] == gold).mean() < 0.1


@pytest.mark.slow
def test_of_the_chosen_15_percent_80_become_mask_10_another_token_and_10_stay(
    task: mlm_nsp.Items, tokenizer: Tokenizer
) -> None:
    """14."""
    counts = np.zeros(3)
    total = asked = 0
    for epoch in range(12):
        _, batch = whole_epoch(task, epoch)
        shown, gold = batch.packed.ids[batch.targets["mask_rows"]], batch.targets["mask_ids"]
        is_mask, is_kept = shown == tokenizer.mask_id, shown == gold
        counts += [is_mask.sum(), (~is_mask & ~is_kept).sum(), is_kept.sum()]
        total += int((~np.isin(batch.packed.ids, [tokenizer.cls_id, tokenizer.sep_id])).sum())
        asked += len(gold)
    assert asked > 10_000
    assert asked / total == pytest.approx(0.15, abs=0.005)
    np.testing.assert_allclose(counts / asked, [0.8, 0.1, 0.1], atol=0.015)


def test_pretraining_inserts_and_deletes_nothing(task: mlm_nsp.Items, corpus: Shard) -> None:
    """15: with the asked tokens put back, every item is a stretch of the corpus; changed copies are for fine-tuning."""
    items, batch = whole_epoch(task)
    ids = batch.packed.ids.copy()
    ids[batch.targets["mask_rows"]] = batch.targets["mask_ids"]
    text = np.asarray(corpus.ids)
    for index, start in enumerate(batch.starts.tolist()):
        first = text[items.first[index] : items.first_end[index]]
        second = text[items.second[index] : items.second_end[index]]
        assert ids[start + 1 : start + 1 + len(first)].tolist() == first.tolist()
        begin = start + len(first) + 2
        assert ids[begin : begin + len(second)].tolist() == second.tolist()
    assert {"delete", "swap"} <= set(augment.KINDS)
    assert Trait.AUGMENTS in registry.task("classify").traits
    assert not hasattr(registry.corpus_task("mlm_nsp"), "traits")
    with pytest.raises(InputError, match="the task is 'mlm_nsp'"):  # no run that changes copies takes it
        registry.task("mlm_nsp")


def test_a_second_part_truly_follows_or_is_of_another_document(task: mlm_nsp.Items, corpus: Shard) -> None:
    """16: parts of one article that do not follow each other are never called a pair, nor used as a counterexample."""
    items, _ = whole_epoch(task)
    follows, random = (items.labels == label for label in (FOLLOWS, RANDOM))
    assert np.array_equal(items.second[follows], items.first_end[follows])
    documents = np.searchsorted(np.asarray(corpus.documents), np.stack((items.first, items.second)), side="right")
    assert (documents[0] == documents[1])[follows].all()
    assert (documents[0] != documents[1])[random].all()
    assert random.sum() > 20
    assert random.sum() / (follows | random).sum() == pytest.approx(0.5, abs=0.12)


def test_the_paper_read_3300_million_words_forty_times() -> None:
    """23: 800M words of 11,038 books (Zhu et al. 2015) and 2,500M of Wikipedia (Devlin et al. 2019, §3.1), and nothing
    else: then a million steps of 256 × 512 tokens are the 40 epochs of §A.2, and a book is a book."""
    books, words_of_books, words_of_wikipedia = 11_038, 800e6, 2_500e6
    epochs = 1_000_000 * 256 * 512 / (words_of_books + words_of_wikipedia)
    assert epochs == pytest.approx(40, rel=0.05)
    assert 50_000 < words_of_books / books < 150_000
    assert 110e6 / 8_000_000 < 20, "what is said: 110M words in 8 million books, 14 words each"
    assert words_of_wikipedia / 450e6 < 10, "what is said: 450 million articles, of under six words each"


# Training -------------------------------------------------------------------------------------------------------------


def test_adam_remembers_gradient_and_square_and_the_reference_corrects_neither() -> None:
    """20: m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², step m/(√v + ε): a moment is no learning rate, and m is not v.

    bert-adamw is google-research/bert's: no correction, ε = 1e-6, 0.01 of decay but for norms and biases. adamw divides
    by 1 − βᵗ, as torch's does.
    """
    random = np.random.default_rng(0)
    start, gradients = random.standard_normal((3, 2)), random.standard_normal((4, 3, 2))
    for name, corrects in (("bert-adamw", False), ("adamw", True)):
        linear = torch.nn.Linear(2, 3).double()
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(start))
        moved = optim.optimiser(linear, name, 0.1, 0.01)
        (beta1, beta2), decays = optim.BETAS[name], {}
        for group in moved.param_groups:
            decays |= dict.fromkeys(group["param_names"], group["weight_decay"])
        assert decays == {"weight": 0.01, "bias": 0.0}
        x, m, v = start.copy(), np.zeros((3, 2)), np.zeros((3, 2))
        for step, g in enumerate(gradients, 1):
            linear.weight.grad, linear.bias.grad = torch.from_numpy(g.copy()), torch.zeros(3, dtype=torch.float64)
            moved.step()
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
            by = (1 - beta1**step, 1 - beta2**step) if corrects else (1, 1)
            x = x - 0.1 * (m / by[0] / (np.sqrt(v / by[1]) + 1e-6) + 0.01 * x)
            assert not np.allclose(m / by[0], v / by[1])
        np.testing.assert_allclose(linear.weight.detach().numpy(), x, rtol=1e-6)
    assert optim.BETAS["bert-adamw"] == (0.9, 0.999)


def test_the_rate_rises_and_falls_in_a_straight_line_with_every_step() -> None:
    """21: 10,000 steps of warm-up of 1,000,000, then down to nothing; never in stairs of some epochs."""
    steps, warmup = 1_000_000, 0.01
    at = np.array([0, 2_500, 5_000, 9_999, 10_000, 505_000, 999_999])
    shares = [optim.share("linear", int(step), steps, warmup) for step in at]
    np.testing.assert_allclose(shares, [1e-4, 0.25, 0.5, 1, 1, 0.5, 0], atol=2e-4)
    course = np.array([optim.share("linear", step, 1_000, 0.1) for step in range(1_000)])
    assert (np.diff(course) != 0).all()
    assert max(np.ptp(np.diff(course)[:98]), np.ptp(np.diff(course)[102:])) < 1e-9


def test_dropout_is_a_penalty_on_weights_and_costs_memory() -> None:
    """22: in a linear model the mean squared error grows by p/(1−p)·Σ(w·x)² (Wager et al. 2013), a ridge, so it holds
    weights down; and a mask is kept for the backward pass."""
    torch.manual_seed(0)
    dropout, x, w, target = Dropout(0.25), torch.randn(6).double(), torch.randn(6).double(), 0.5
    losses = (dropout(x.expand(200_000, 6)) @ w - target).square()
    expected = (x @ w - target).square() + 0.25 / 0.75 * (w * x).square().sum()
    assert float(losses.mean()) == pytest.approx(float(expected), rel=0.02)
    kept = {True: 0, False: 0}
    for is_dropped in kept:

        def keep(tensor: torch.Tensor, which: bool = is_dropped) -> torch.Tensor:
            kept[which] += tensor.untyped_storage().nbytes()
            return tensor

        linear = torch.nn.Linear(64, 64)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden = linear(torch.randn(128, 64))
            (Dropout(0.1) if is_dropped else torch.nn.Identity())(hidden).sum()
    assert kept[True] > kept[False]


def test_computing_grows_with_the_batch_and_what_ranks_exchange_does_not(tokenizer: Tokenizer) -> None:
    """24: so splitting data over GPUs pays where a rank's batch is large: nearly all of the time is then computing."""

    def work(num_texts: int) -> tuple[int, int]:
        """Operations of a step over so many texts, and bytes of the gradients that ranks must sum."""
        model = small_bert(tokenizer, ())
        with FlopCounterMode(display=False) as counter:
            model(encoded(*[[5] * 32] * num_texts)).sum().backward()
        return counter.get_total_flops(), sum(p.numel() * 4 for p in model.parameters())

    (few, exchanged), (many, same) = work(2), work(16)
    assert (many / few, exchanged) == (pytest.approx(8, rel=0.05), same)
    # BERT-base, an H200 at 40 % of 989 TFLOP/s, float32 gradients summed by a ring at a tenth of NVLink's 900 GB/s, and
    # nothing of it hidden behind the computing: 6 operations for each token and weight of the layers.
    sizes = {name: math.prod(shape) for name, shape in bert.shapes(bert.PRESETS["base"]).items()}
    operations = 6 * sum(size for name, size in sizes.items() if name.startswith("layers."))
    exchanging = 2 * 4 * sum(sizes.values()) / 90e9
    shares = {n: 1 / (1 + exchanging / (operations * n / (0.4 * 989e12))) for n in (8_192, 131_072)}  # n tokens a rank
    assert 2 * shares[8_192] > 1, "two ranks do more than one"
    assert shares[131_072] > 0.9


@pytest.mark.slow
def test_fine_tuning_puts_a_new_head_on_the_pooled_first_token_and_moves_every_weight(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """12: the head of NSP is left behind; every tensor that the text reaches moves; freezing them is an option."""
    rows = [
        Example((text,), label, i) for i, (text, label) in enumerate([("球赛", "体"), ("股票", "财"), ("电影", "娱")])
    ]
    started = folders.load(tiny_folder).model.state_dict()
    assert any(name.startswith("nsp") for name in started)
    for method in ("full", "frozen"):
        settings = ["task.pool=cls", f"tune.method={method}", "train.steps=2", "machine.threads=1"]
        out = tmp_path / method
        tuned = finetune("classify", rows, tiny_folder, out, settings=settings, quiet=True).module
        assert tuned.parts == ("pooler", "labels")
        assert tuned.heads["labels"].weight.shape == (3, tuned.width), "three labels; NSP's head has two answers"
        same = {n for n, weight in tuned.state_dict().items() if n in started and torch.equal(weight, started[n])}
        encoder = {name for name in started if name.split(".")[0] in ("embeddings", "layers")}
        # The bias of keys moves all scores of a question alike, but shares a tensor with those of queries and values.
        assert same & encoder == (encoder if method == "frozen" else set())


# The forerunners ------------------------------------------------------------------------------------------------------

SMALL_GPT = gpt.Config(vocab_size=5, width=16, layers=2, heads=2, inner=32, max_length=8, dropout=0.0)


def far_from_start(model: torch.nn.Module) -> Any:
    """The model with maps and tables large enough that what it reads shows."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.5)
    return model.double().eval()


def test_a_decoder_sees_the_current_word_and_hides_only_later_ones() -> None:
    """29: with nothing to choose by, each token reads the mean of itself and those before; none reads a later one."""
    nothing, values = torch.zeros(4, 1, 4), torch.eye(4)[:, None]
    read = attend_causal(nothing, nothing, values, encoded([0] * 4))[:, 0]
    torch.testing.assert_close(read, torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None])
    model = far_from_start(gpt.Gpt(SMALL_GPT))
    with torch.inference_mode():
        moved = (model(encoded([1, 2, 3, 4])) - model(encoded([1, 2, 4, 4]))).abs().amax(-1) > 1e-9
    assert moved.tolist() == [False, False, True, True]


def test_a_decoder_gives_every_text_a_probability_and_bert_does_not() -> None:
    """26: GPT's chances of all texts of three words sum to 1, so it can be drawn from; the product of BERT's answers,
    each word asked with the others in sight, is no distribution over texts, and nothing in BERT goes on with one."""
    words = [[0, *triple] for triple in itertools.product(range(5), repeat=3)]
    writer = far_from_start(gpt.Gpt(SMALL_GPT, ("lm",)))
    reader = far_from_start(bert.Bert(bert.Config(vocab_size=5, width=16, layers=2, heads=2, inner=32), ("mlm",)))
    written = answered = 0.0
    with torch.inference_mode():
        for ids in words:
            logs = writer.word_scores(writer(encoded(ids))).log_softmax(-1)
            written += math.exp(sum(float(logs[at, ids[at + 1]]) for at in range(3)))
            each = [encoded([*ids[:at], 4, *ids[at + 1 :]]) for at in range(1, 4)]
            chances = [reader.word_scores(reader(packed))[at].softmax(-1) for at, packed in enumerate(each, 1)]
            answered += math.prod(float(chance[ids[at]]) for at, chance in enumerate(chances, 1))
    assert written == pytest.approx(1, abs=1e-9)
    assert abs(answered - 1) > 1e-3
    assert hasattr(writer, "step")
    assert not hasattr(reader, "step")


def test_elmo_is_two_lstms_in_both_directions_and_a_learned_mix_of_three_layers() -> None:
    """30: there is no attention in it; both directions are trained by one loss, with one table and one softmax."""
    model = elmo.Elmo(elmo.Config(vocab_size=9, direction_width=6, dropout=0.0), ("lm",))
    assert [type(part) for part in model.modules() if isinstance(part, torch.nn.RNNBase)] == [torch.nn.LSTM] * 4
    assert len(model.layers) == 2
    assert not any("attention" in type(part).__name__.lower() for part in model.modules())
    assert (model.mix.weights.shape, model.mix.gamma.numel()) == ((3,), 1)
    packed = encoded([2, 5, 7, 3])
    model(packed).square().sum().backward()
    assert model.mix.weights.grad is not None
    assert model.mix.weights.grad.abs().sum() > 0, "the mix is learnt"
    for side in range(2):  # what either direction predicts moves the one table and the one softmax
        model.zero_grad()
        model.word_scores(model.both_ways(packed)[side]).square().sum().backward()
        moved = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
        assert {"embeddings.words.weight", "lm.weight"} < moved
        assert any(".back." in name for name in moved) == (side == 1)
    with torch.inference_mode():
        onward, back = model.both_ways(packed)
        onward_too, back_too = model.both_ways(encoded([2, 5, 7, 8]))
    assert torch.equal(onward[:3], onward_too[:3])
    assert not torch.equal(back[0], back_too[0])


def test_the_query_of_han_is_learned() -> None:
    """31: it begins at random as every weight does, has a gradient, and moves what is attended to."""
    model = han.Han(han.Config(vocab_size=9, width=16, embedding=8, ends=(3,), dropout=0.0))
    queries = [name for name, _ in model.named_parameters() if name.endswith("query")]
    assert queries == ["layers.0.query", "layers.1.query"]
    packed = encoded([2, 5, 3, 7, 8, 4, 3])
    before = model.attention_of(packed).words_T.detach().clone()
    model.summary(packed).sum().backward()
    for name in queries:
        query = model.get_parameter(name)
        assert query.requires_grad
        assert isinstance(query.grad, torch.Tensor)
        assert query.grad.abs().sum() > 0
        with torch.no_grad():
            query.sub_(100 * query.grad)
    assert (model.attention_of(packed).words_T - before).abs().max() > 1e-3


def test_the_query_of_seq2seq_is_the_decoders_state() -> None:
    """32: one vector of constant width at every word; it alone, met with the source's keys, gives the weights."""
    config = seq2seq.Config(vocab_size=9, width=8, embedding=6, layers=1, score="additive", dropout=0.0)
    model = far_from_start(seq2seq.Seq2seq(config, ("writer",)))
    source, written = encoded([1, 2, 3, 4]), [5, 6, 7, 8, 5]
    with torch.inference_mode():
        memory = model(source)
        (weights,) = model.attention_of(encoded(written), memory, source, torch.tensor([0]))
        state = model.started(memory, source)
        for at, token in enumerate(written):
            _, state = model.step(torch.tensor([token]), state)
            query = state.hidden[0][-1]
            assert query.shape == (1, 8), "however many words there are"
            torch.testing.assert_close(model.writer.score(query, memory).softmax(-1)[0], weights[at])


def test_nnlm_looks_at_a_fixed_window() -> None:
    """33: of order 4 it reads three words; the fourth before changes nothing."""
    model = far_from_start(nnlm.Nnlm(nnlm.Config(vocab_size=9, word_width=4, hidden=6, order=4, dropout=0.0)))
    ids = [1, 2, 3, 4, 5, 6, 7]
    with torch.inference_mode():
        vectors = model(encoded(ids))
        for at in range(7):
            other = model(encoded([*ids[:at], 8, *ids[at + 1 :]]))
            moved = (vectors - other).abs().amax(-1) > 1e-9
            assert moved.nonzero()[:, 0].tolist() == list(range(at, min(at + 3, 7)))


def test_every_row_of_the_table_has_a_test(shared: Path) -> None:
    table = (shared / "ERRATA.md").read_text(encoding="utf-8")
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    told = (made.__doc__ or "" for name, made in globals().items() if name.startswith("test_"))
    numbers = [re.match(r"[\d, ]+(?=[:.])", doc) for doc in told]
    assert {int(number) for found in numbers if found for number in found[0].split(",")} == rows != set()
