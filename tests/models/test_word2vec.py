"""word2vec and its objective: losses and gradients by the papers' formulas, trees, draws, whole words, and learning."""

from __future__ import annotations

import collections
import copy
import heapq
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.protocols import Batch
from filbert.core.records import Encoding, Example, Packed
from filbert.corpus.shards import Options, Shard, build
from filbert.corpus.word_vocab import WordVocabulary, word_vocabulary
from filbert.models import word2vec
from filbert.nn.attention import tensors
from filbert.pack.lay import collate, pack
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.tasks.word_vectors import items as word_vectors
from filbert.tasks.word_vectors import spec as word_vectors_spec
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.corpora import Row, Words

VOCAB = 30
BOTH = list(itertools.product(word_vectors_spec.OBJECTIVES, word_vectors.OUTPUTS))


def text_of(*sizes: int, seed: int = 0) -> Row:
    """Documents of these sizes, in which a word is the rarer the greater its id."""
    ids = (VOCAB * np.random.default_rng(seed).random(sum(sizes)) ** 2).astype(np.int64)
    return Row(ids, np.concatenate([[0], np.cumsum(sizes)]), sentence=10)


def task_of(*sizes: int, **config: Any) -> word_vectors.Items:
    return word_vectors.Items([text_of(*sizes)], Words(VOCAB), word_vectors_spec.Config(**config))


def model_of(task: word_vectors.Items, width: int = 6) -> word2vec.Word2vec:
    """All weights far from their start."""
    torch.manual_seed(0)
    model = word2vec.Word2vec(word2vec.Config(vocab_size=VOCAB, width=width), task.parts)
    task.begin(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model


def batch_of(task: word_vectors.Items, indices: list[int], budget: int | None = None, epoch: int = 0) -> Batch:
    return on_device(task.batch(task.plan(epoch).orders(np.array(indices)), budget), "cpu")


def packed_of(*rows: list[int]) -> Packed:
    arrays = [np.array(row, dtype=np.int32) for row in rows]
    return tensors(pack([Encoding(a, a * 0, a * 0, a * 0, a * 0) for a in arrays])[0])


# The model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vector_is_the_tokens_own_wherever_it_stands(dtype: torch.dtype) -> None:
    model = word2vec.Word2vec(word2vec.SPEC.preset("tiny", VOCAB)).to(dtype).eval()
    packed = packed_of([5], [7, 8, 5], [])
    got = model(packed)
    assert (got.shape, got.dtype) == ((4, model.width), dtype)
    assert torch.equal(got, model.embeddings.words.weight[packed.ids.long()])
    for sequence in ([5], [7, 8, 5]):
        alone = model(packed_of(sequence))
        assert all(torch.equal(row, got[packed.ids == token][0]) for row, token in zip(alone, sequence, strict=True))
    assert torch.equal(model(packed, torch.tensor([3, 0])), got[[3, 0]])
    assert torch.equal(model(packed_of([5], [7, 8]), "first"), model(packed_of([5, 7])))
    assert model(packed_of()).shape == (0, model.width)


def test_a_wrong_field_or_part_is_named() -> None:
    with pytest.raises(InputError, match=r"word2vec config: width is 0, but must be a whole number from 1 to 65,536"):
        word2vec.Config(width=0)
    with pytest.raises(InputError, match=r"dropout is 1.5"):
        word2vec.Config(dropout=1.5)
    with pytest.raises(InputError, match=r"the word2vec preset is 'smal'.*Did you mean 'small'"):
        word2vec.SPEC.preset("smal", 9)
    with pytest.raises(InputError, match=r"a part of word2vec is 'node'.*Did you mean 'nodes'"):
        word2vec.Word2vec(word2vec.Config(vocab_size=4), ("node",))


def best_cost(counts: list[float]) -> float:
    """Σ count · length of the best code, by a heap: what every join adds."""
    heap, cost = list(counts), 0.0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        cost += joined
        heapq.heappush(heap, joined)
    return cost


@pytest.mark.parametrize("size", [1, 2, 3, 50, 400])
def test_the_tree_is_prefix_free_and_no_other_is_shorter(size: int) -> None:
    counts = np.floor(np.random.default_rng(size).pareto(0.8, size)).astype(np.float32)  # some are 0
    paths, signs = word2vec.huffman(counts)
    lengths = (signs != 0).sum(1)
    assert (counts * lengths).sum() == pytest.approx(best_cost(counts.tolist()))
    ways = [tuple(zip(p[s != 0][::-1], s[s != 0][::-1], strict=True)) for p, s in zip(paths, signs, strict=True)]
    assert len(set(ways)) == size
    starts = {way[:at] for way in ways for at in range(len(way))}
    assert not starts & set(ways)  # no word's way is the beginning of another's
    assert sum(0.5 ** len(way) for way in ways) == 1  # and no way is left without a word
    inner = {node for way in ways for node, _ in way}
    assert inner == set(range(size - 1))
    if size > 1:
        assert {way[0][0] for way in ways} == {0}  # all begin at the root


def test_the_hierarchical_softmax_sums_to_one() -> None:
    nodes = word2vec.Nodes(200, 5)
    nodes.grow(np.random.default_rng(0).integers(0, 1_000, 200))
    torch.nn.init.normal_(nodes.weight)
    vectors, signs = nodes(torch.arange(200))
    input_ = torch.randn(5)
    log_p = torch.nn.functional.logsigmoid(signs * (vectors @ input_)) * (signs != 0)
    assert float(log_p.detach().sum(1).exp().sum()) == pytest.approx(1, abs=1e-5)


def test_weights_come_with_their_tree() -> None:
    """A tree is made again from what is loaded; a copy in half precision keeps it."""
    one, other = (word2vec.Word2vec(word2vec.Config(vocab_size=40, width=4), ("nodes",)) for _ in range(2))
    assert one.nodes is not None
    assert other.nodes is not None
    one.nodes.grow(np.arange(40) ** 3)
    assert one.nodes.paths.shape != other.nodes.paths.shape
    other.load_state_dict(one.state_dict())
    half = copy.deepcopy(one).to(torch.bfloat16)
    assert half.nodes is not None
    for found in (other.nodes, half.nodes):
        assert torch.equal(one.nodes.paths, found.paths)
        assert torch.equal(one.nodes.signs, found.signs)


# The objective --------------------------------------------------------------------------------------------------------


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)))


def predictions(task: word_vectors.Items, batch: Batch) -> list[tuple[list[int], int, npt.NDArray[np.int64]]]:
    """(ids that predict, id predicted, noise ids) of every prediction, read off one by one."""
    known = {name: value.numpy() for name, value in batch.targets.items()}
    ids, edges = batch.packed.ids.tolist(), batch.packed.boundaries.tolist()
    found = []
    for block, place in np.argwhere(known["reach"] > 0):
        row, reach = int(known["centre_rows"][block, place]), int(known["reach"][block, place])
        begin, end = next((b, e) for b, e in itertools.pairwise(edges) if b <= row < e)
        near = [ids[at] for at in range(max(begin, row - reach), min(end, row + reach + 1)) if at != row]
        if task.config.objective == "skip-gram":
            found += [([ids[row]], other, known["noise"][block]) for other in near]
        elif near:
            found.append((near, ids[row], known["noise"][block]))
    return found


@pytest.mark.parametrize(("objective", "output"), BOTH)
def test_the_loss_and_its_gradients_are_the_formulas(objective: str, output: str) -> None:
    """-log σ(x·c) - negatives · mean log σ(-x·noise), or -Σ log σ(±x·n); the gradients by hand (Rong 2014)."""
    task = task_of(70, 3, 1, 45, objective=objective, output=output, subsample=0.02, window=3, max_length=40)
    model = model_of(task)
    batch = batch_of(task, list(range(len(task))))
    term = task.loss(model, batch)["pair_loss"]
    term.total.backward()
    words = model.embeddings.words.weight.detach().numpy().astype(float)
    table = (model.contexts if output == "negative" else model.nodes).weight  # type: ignore[union-attr]
    outputs = table.detach().numpy().astype(float)
    loss, word_grad, output_grad = 0.0, np.zeros_like(words), np.zeros_like(outputs)
    asked = predictions(task, batch)
    for inputs, said, noise in asked:
        x = words[inputs].mean(0)
        if output == "negative":
            rows, signs = np.array([said, *noise]), np.array([1.0] + [-1.0] * len(noise))
            weights = np.array([1.0] + [task.config.negatives / len(noise)] * len(noise))
        else:
            assert model.nodes is not None
            rows, signs = model.nodes.paths[said].numpy(), model.nodes.signs[said].numpy().astype(float)
            weights = (signs != 0).astype(float)
        scores = outputs[rows] @ x
        loss -= float((weights * np.log(sigmoid(signs * scores))).sum())
        slopes = -weights * signs * sigmoid(-signs * scores)
        np.add.at(output_grad, rows, slopes[:, None] * x)
        np.add.at(word_grad, inputs, (slopes @ outputs[rows]) / len(inputs))
    assert len(asked) == int(term.count) == task.counts(batch)["pair_loss"] > 50
    assert float(term.total.detach()) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(model.embeddings.words.weight.grad, word_grad, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(table.grad, output_grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("objective", "output"), BOTH)
def test_the_pack_changes_nothing(objective: str, output: str) -> None:
    """Together, collated from items, one by one, or in a row of constant size: the same sums over as many."""
    task = task_of(90, 2, 1, 17, 60, objective=objective, output=output, subsample=0.05, max_length=32)
    model, indices = model_of(task), list(range(len(task)))
    with torch.inference_mode():
        packs = [[batch_of(task, indices)], [on_device(collate([task.item(i, 0) for i in indices]), "cpu")]]
        packs += [[batch_of(task, [i]) for i in reversed(indices)], [batch_of(task, indices, budget=512)]]
        sums = [[task.loss(model, batch)["pair_loss"] for batch in batches] for batches in packs]
    totals, counts = ([sum(float(getattr(t, n)) for t in terms) for terms in sums] for n in ("total", "count"))
    assert counts == [counts[0]] * 4
    assert [sum(task.counts(b)["pair_loss"] for b in batches) for batches in packs] == counts
    assert totals == pytest.approx([totals[0]] * 4, rel=1e-5)
    sizes = {name: value.shape for name, value in packs[3][0].targets.items()}
    assert sizes == {name: value.shape for name, value in batch_of(task, [0], budget=512).targets.items()}


def test_an_item_without_a_neighbour_asks_nothing() -> None:
    """And is no reason to stop."""
    task = task_of(1, 9)
    batch = batch_of(task, [int(np.argmin(task.plan(0).lengths))])
    assert task.counts(batch) == {"pair_loss": 0}
    assert float(task.loss(model_of(task), batch)["pair_loss"].total.detach()) == 0


def test_a_word_stays_as_often_as_the_formula_says() -> None:
    """√(t/f) + t/f of the authors' program; special tokens never. Six deviations are allowed."""
    task = task_of(3_000, 2_000, subsample=0.01, max_length=64)
    counts, epochs = task.frequencies, 40
    share = counts / counts.sum()
    want = np.minimum(1, np.sqrt(0.01 / np.maximum(share, 1e-9)) + 0.01 / np.maximum(share, 1e-9))
    assert counts[0] == 0
    assert want[1] < 0.8
    assert want[VOCAB - 1] == 1
    kept = np.zeros(VOCAB)
    for epoch in range(epochs):
        kept += np.bincount(
            batch_of(task, list(range(len(task.plan(epoch).lengths))), epoch=epoch).packed.ids, minlength=VOCAB
        )
    assert kept[0] == 0
    spread = np.sqrt(epochs * counts * want * (1 - want))
    assert (np.abs(kept - epochs * counts * want) <= 6 * spread)[1:].all()
    assert np.array_equal(task_of(50, subsample=0.0).keep_prob > 0, task_of(50).frequencies > 0)


def test_reach_and_noise_are_drawn_as_they_should() -> None:
    """The reach evenly from 1 to the window, noise by the frequency to 0.75; by chi-square, at one in 10^6."""
    task = task_of(4_000, subsample=0.0, window=4)
    known = batch_of(task, list(range(len(task)))).targets
    reach = np.bincount(known["reach"].numpy().ravel(), minlength=5)[1:]
    assert len(reach) == 4
    assert ((reach - reach.mean()) ** 2 / reach.mean()).sum() < 31  # 3 degrees of freedom
    share = np.where(task.frequencies > 0, task.frequencies.astype(float) ** 0.75, 0)
    want = share / share.sum() * known["noise"].numel()
    got = np.bincount(known["noise"].numpy().ravel(), minlength=VOCAB)
    assert got[want == 0].sum() == 0
    assert ((got - want)[want > 0] ** 2 / want[want > 0]).sum() < 85  # 28 degrees of freedom
    assert task.noise(np.array([0.0, 1 - 2**-53])).tolist() == [1, int(np.flatnonzero(task.frequencies)[-1])]


def test_draws_hang_on_seed_epoch_and_item_alone() -> None:
    task, same, other = task_of(200), task_of(200), task_of(200, seed=1)
    first, again, far, later = (t.item(0, e).targets["reach"] for t, e in ((task, 0), (same, 0), (other, 0), (task, 1)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, far)
    assert not np.array_equal(first, later)
    there, orders = pickle.loads(pickle.dumps((task, task.plan(0).orders(np.array([0])))))
    assert np.array_equal(there.batch(orders).targets["noise"], task.item(0, 0).targets["noise"])


def test_wrong_settings_and_texts_are_named() -> None:
    with pytest.raises(InputError, match=r"task.objective is 'skipgram'.*Did you mean 'skip-gram'"):
        word_vectors_spec.Config(objective="skipgram")
    with pytest.raises(InputError, match=r"task.window is 0, but must be a whole number of 1 or more"):
        word_vectors_spec.Config(window=0)
    with pytest.raises(InputError, match=r"task.noise_power is 2"):
        word_vectors_spec.Config(noise_power=2)
    with pytest.raises(InputError, match=r"need some text"):
        word_vectors.Items([Row(np.zeros(3, np.int64), np.array([0, 3]))], Words(VOCAB), word_vectors_spec.Config())


# Whole words and learning ---------------------------------------------------------------------------------------------

ROYAL, FRUIT = ("国王", "王后", "王子"), ("苹果", "香蕉", "西瓜")
SAID = {
    ROYAL: ("住 在 城堡 里", "统治 这 片 国土", "戴 着 金色 王冠"),
    FRUIT: ("长 在 果园 里", "又 甜 又 多汁", "切开 来 很 好吃"),
}


def made_up(num_documents: int) -> str:
    """Documents of six sentences, in which words of one kind stand in the same places."""
    random = np.random.default_rng(0)
    documents = []
    for _ in range(num_documents):
        kind = list(SAID)[random.integers(2)]
        documents.append("".join(f"{kind[random.integers(3)]} {SAID[kind][random.integers(3)]} 。 " for _ in range(6)))
    return "\n\n".join(documents)


@pytest.fixture(scope="module")
def royal(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Shard], Tokenizer, str]:
    folder, text = tmp_path_factory.mktemp("royal"), made_up(300)
    tokenizer = Tokenizer(train([text], size=200).tokens)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    options = Options(held=0, segmenter="whitespace", shard_tokens=4_000)
    shards = build(folder / "text.txt", tokenizer, folder / "shards", options, workers=1)
    return shards.train.shards, tokenizer, text


def test_a_lexicon_has_the_words_of_the_text(royal: tuple[list[Shard], Tokenizer, str]) -> None:
    """Every word is counted, and its number stands where the word stood; shards drop copies of a document."""
    shards, tokenizer, text = royal
    documents = [[w for w in d.split() if w != "。"] for d in dict.fromkeys(text.split("\n\n"))]
    want = collections.Counter(word for document in documents for word in document)
    found = word_vocabulary(shards, tokenizer, min_count=1)
    assert dict(zip(found.words, found.counts.tolist(), strict=True)) == want
    assert list(found.counts) == sorted(found.counts, reverse=True)
    texts = found.texts(shards)
    read = [[found.words[i] for i in t.ids[a:b]] for t in texts for a, b in itertools.pairwise(t.documents)]
    assert read == documents
    assert all(t.num_tokens == t.documents[-1] == t.sentences[-1] == len(t.words) for t in texts)
    few = word_vocabulary(shards, tokenizer, min_count=1, most=5)
    assert few.words == found.words[:5]
    assert few.ids[few.words[3]] == 3
    assert [few.words[i] for t in few.texts(shards) for i in t.ids] == [
        word for document in documents for word in document if word in few.ids
    ]
    with pytest.raises(InputError, match=r"no word stands in these texts 9999 times"):
        word_vocabulary(shards, tokenizer, min_count=9_999)


def test_words_of_unknown_tokens_and_signs_are_left_out(tmp_path: Path) -> None:
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "王", "国", "！", "后", "play", "##ing"])
    (tmp_path / "text.txt").write_text("国王 playing 国后 ！！ 王㐀 王\n\n㐀 ！", encoding="utf-8")
    shards = build(tmp_path / "text.txt", tokenizer, tmp_path / "s", Options(held=0, segmenter="whitespace"), workers=1)
    found = word_vocabulary(shards.train.shards, tokenizer, min_count=1)
    assert found.words == ("playing", "国后", "国王", "王")
    (text,) = found.texts(shards.train.shards)
    assert [found.words[i] for i in text.ids] == ["国王", "playing", "国后", "王"]
    assert text.documents.tolist() == [0, 4]  # of the second nothing is left
    assert text.sentences.tolist() == [0, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "output"), BOTH)
def test_words_of_one_kind_end_near_each_other(
    royal: tuple[list[Shard], Tokenizer, str], one_thread: None, objective: str, output: str
) -> None:
    """国王 and 王后 stand in the same places, 国王 and 西瓜 do not: cosines tell, by the one loop."""
    shards, tokenizer, _ = royal
    words: WordVocabulary = word_vocabulary(shards, tokenizer, min_count=1)
    config = word_vectors_spec.Config(objective=objective, output=output, window=3, subsample=0.0)
    task = word_vectors.Items(words.texts(shards), words, config)
    torch.manual_seed(0)
    model = word2vec.Word2vec(word2vec.Config(vocab_size=words.vocab_size, width=16), task.parts)
    task.begin(model)
    losses: list[float] = []
    course = loop.Config(steps=120, batch_tokens=256, learning_rate=0.05, warmup=0.05)
    here = machine.Config(device="cpu", threads=1)
    loop.fit(model, task, course, lambda entry: losses.append(entry["loss"]), machine=here)
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:5])
    vectors = torch.nn.functional.normalize(model.embeddings.words.weight.detach(), dim=1)
    rows = torch.stack([vectors[words.ids[word]] for word in (*ROYAL, *FRUIT)])
    cosines = (rows @ rows.T).numpy()
    alike = [cosines[i, j] for i in range(6) for j in range(i) if (i < 3) == (j < 3)]
    apart = [cosines[i, j] for i in range(6) for j in range(i) if (i < 3) != (j < 3)]
    assert min(alike) > max(apart)


def test_it_serves_a_task_as_any_encoder_does(tokenizer: Tokenizer) -> None:
    """Eight headlines are told apart by the mean of their tokens' vectors."""
    texts = ("股市大涨", "球队夺冠", "银行加息", "比赛开始", "基金分红", "教练下课", "央行降准", "球员受伤")
    examples = [Example((text,), ("财经", "体育")[at % 2], id=at) for at, text in enumerate(texts)]
    task = classify.Items(examples, ["财经", "体育"], tokenizer, classify_spec.Config(max_length=16))
    torch.manual_seed(0)
    model = word2vec.Word2vec(word2vec.SPEC.preset("tiny", tokenizer.vocab_size), task.parts, labels=2)
    batch = on_device(collate([task.item(at, 0) for at in range(8)]), "cpu")
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(40):
        optimiser.zero_grad()
        terms = task.loss(model, batch)
        sum(term.total / term.count for name, term in terms.items() if name.endswith("_loss")).backward()
        optimiser.step()
    assert int(terms["accuracy"].total) == 8
