"""HAN against the paper, one sentence at a time; packs, ends of sentences, gradients, and what it attends to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.models import han
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.text.tokenizer import Tokenizer

STOP, ASK, SEP = 1, 2, 3
SHAPE: dict[str, Any] = {"vocab_size": 30, "width": 16, "embedding": 6, "ends": (STOP, ASK, SEP), "dropout": 0.0}
DOCUMENTS = [[5, 6, STOP, 7, STOP, 8, 9, 10, ASK, SEP], [11], [12, 13, STOP, 14], [15, 5, STOP], [SEP]]


def packed_of(*documents: Sequence[int]) -> Packed:
    """In the order given, whatever their lengths."""
    encodings = []
    for ids in documents:
        row = np.asarray(ids, dtype=np.int32)
        encodings.append(Encoding(row, *(np.zeros_like(row) for _ in range(4))))
    one_by_one = [pack([encoding])[0] for encoding in encodings]
    edges = np.cumsum([0, *map(len, documents)]).astype(np.int32)
    fields = {
        name: np.concatenate([np.zeros(0, np.int32), *(getattr(p, name) for p in one_by_one)])
        for name in ("ids", "positions", "segments")
    }
    lengths = tuple(map(len, documents))
    return tensors(Packed(**fields, boundaries=edges, lengths=lengths, max_len=max(lengths, default=0)))


def random_han(**shape: Any) -> han.Han:
    torch.manual_seed(0)
    return han.Han(han.Config(**{**SHAPE, **shape})).eval()


def cut(ids: Sequence[int]) -> list[list[int]]:
    """Sentences by the rule: they end after the last of the ends that stand together."""
    found: list[list[int]] = [[]]
    for at, token in enumerate(ids):
        found[-1].append(token)
        after = ids[at + 1] if at + 1 < len(ids) else None
        if token in SHAPE["ends"] and after is not None and after not in SHAPE["ends"]:
            found.append([])
    return found


def attended(states: Tensor, level: Any) -> tuple[Tensor, Tensor]:
    """Equations 5 to 7 in so many words: u = tanh(W·h + b), α = exp(u·u_w) / Σ exp(u·u_w), s = Σ α·h."""
    shares = [torch.exp(torch.tanh(level.key.weight @ h + level.key.bias) @ level.query) for h in states]
    weights = torch.stack([share / sum(shares) for share in shares])
    return sum(w * h for w, h in zip(weights, states, strict=True)), weights  # type: ignore[return-value]


def by_hand(model: han.Han, ids: Sequence[int]) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    """One document: token vectors, the document's vector, weights of each sentence's words, weights of sentences."""
    words, above = model.layers
    states, vectors, word_weights = [], [], []
    for sentence in cut(ids):
        x = model.embeddings.words.weight[torch.tensor(sentence)]
        states.append(words.recurrent.cell(x)[0])
        vector, weights = attended(states[-1], words)
        vectors.append(vector)
        word_weights.append(weights)
    contexts = above.recurrent.cell(torch.stack(vectors))[0]
    document, sentence_weights = attended(contexts, above)
    beside = sum(w * s for w, s in zip(sentence_weights, vectors, strict=True))
    tokens = torch.cat([torch.cat((h, c.expand(len(h), -1)), -1) for h, c in zip(states, contexts, strict=True)])
    return tokens, torch.cat((beside, document)), word_weights, sentence_weights


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_pack_is_the_equations_document_by_document(cell: str) -> None:
    """Token vectors, document vectors and both kinds of weights, within 1e-5."""
    model, packed = random_han(cell=cell), packed_of(*DOCUMENTS)
    with torch.no_grad():
        got, summary, weights = model(packed), model.summary(packed), model.attention_of(packed)
        wanted = [by_hand(model, ids) for ids in DOCUMENTS]
    torch.testing.assert_close(got, torch.cat([w[0] for w in wanted]), atol=1e-5, rtol=0)
    torch.testing.assert_close(summary, torch.stack([w[1] for w in wanted]), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights.words_T, torch.cat([x for w in wanted for x in w[2]]), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights.sentences_N, torch.cat([w[3] for w in wanted]), atol=1e-5, rtol=0)
    assert weights.document_N.tolist() == [0, 0, 0, 1, 2, 2, 3, 4]
    assert weights.sentence_T.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7]


def test_packed_equals_one_by_one_and_rows_are_rows() -> None:
    model, packed = random_han(), packed_of(*DOCUMENTS)
    with torch.no_grad():
        alone = [packed_of(ids) for ids in DOCUMENTS]
        whole = model(packed)
        torch.testing.assert_close(whole, torch.cat([model(one) for one in alone]), atol=1e-5, rtol=0)
        summaries = torch.cat([model.summary(one) for one in alone])
        torch.testing.assert_close(model.summary(packed), summaries, atol=1e-5, rtol=0)
        torch.testing.assert_close(model(packed, "first"), whole[packed.boundaries[:-1].long()])
        torch.testing.assert_close(model(packed, torch.tensor([4, 0])), whole[[4, 0]])


def test_weights_sum_to_one() -> None:
    weights = random_han().attention_of(packed_of(*DOCUMENTS))
    for shares, owners in ((weights.words_T, weights.sentence_T), (weights.sentences_N, weights.document_N)):
        sums = torch.zeros(int(owners.max()) + 1).index_add(0, owners, shares)
        torch.testing.assert_close(sums, torch.ones_like(sums))


def test_a_summary_is_the_tokens_vectors_under_both_weights() -> None:
    """Σ αᵢ·αᵢₜ·[hᵢₜ; hᵢ]."""
    model, packed = random_han(), packed_of(*DOCUMENTS)
    weights = model.attention_of(packed)
    shares = weights.words_T * weights.sentences_N[weights.sentence_T]
    owners = weights.document_N[weights.sentence_T]
    want = torch.zeros(len(DOCUMENTS), 16).index_add(0, owners, shares[:, None] * model(packed))
    torch.testing.assert_close(model.summary(packed), want, atol=1e-5, rtol=0)


def test_without_ends_a_sequence_is_one_sentence() -> None:
    weights = random_han(ends=()).attention_of(packed_of(*DOCUMENTS))
    assert weights.document_N.tolist() == [0, 1, 2, 3, 4]
    assert weights.sentences_N.tolist() == [1.0] * 5


def test_the_order_of_sentences_matters() -> None:
    """To documents; to a bag of sentence vectors it would not."""
    model = random_han()
    one, two = model.summary(packed_of([5, 6, STOP, 7, 8, STOP], [7, 8, STOP, 5, 6, STOP]))
    assert (one - two).abs().max() > 1e-3


def test_gradients_reach_every_weight_and_no_other_document() -> None:
    model, packed = random_han(), packed_of(*DOCUMENTS)
    (model.summary(packed) * torch.randn(5, 16)).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.any(), name
    model.zero_grad()
    model.summary(packed)[2].square().sum().backward()
    words = model.embeddings.words.weight.grad
    assert words is not None
    assert set(words.abs().sum(1).nonzero()[:, 0].tolist()) == {12, 13, STOP, 14}
    model.zero_grad()
    model(packed)[0].sum().backward()  # of the first token: its own words and, through the sentences, all others
    words = model.embeddings.words.weight.grad
    assert words is not None
    assert set(words.abs().sum(1).nonzero()[:, 0].tolist()) == set(DOCUMENTS[0])


def test_nothing_and_next_to_nothing() -> None:
    """No documents, documents without a token, a document of one token."""
    model = random_han()
    assert model(packed_of()).shape == (0, 16)
    assert model.summary(packed_of()).shape == (0, 16)
    empty = model.summary(packed_of([], [5], []))
    assert not empty[[0, 2]].any()
    torch.testing.assert_close(empty[1:2], model(packed_of([5])))  # all weight on the one there is
    assert model(packed_of([], [5], [])).shape == (1, 16)


def test_half_precision() -> None:
    model, packed = random_han(), packed_of(*DOCUMENTS)
    with torch.no_grad():
        want, summary = model(packed), model.summary(packed)
        half = model.to(torch.bfloat16)
        assert half(packed).dtype == half.summary(packed).dtype == torch.bfloat16
        torch.testing.assert_close(half(packed).float(), want, atol=0.03, rtol=0.05)
        torch.testing.assert_close(half.summary(packed).float(), summary, atol=0.03, rtol=0.05)


def test_chinese_sentences_are_found_by_the_vocabulary(tokenizer: Tokenizer) -> None:
    """[CLS] belongs to the first sentence, [SEP] to the last; ？！ is one end."""
    shape = han.Config(vocab_size=tokenizer.vocab_size, width=8, embedding=4)
    config = han.fitted(shape, tokenizer.vocabulary)
    assert {tokenizer.vocabulary[index] for index in config.ends} >= {"。", "！", "？", "[SEP]"}
    ids = tokenizer.encode("今天下雨。你去哪里？！我不知道").ids
    sentence_T = han.Han(config).attention_of(packed_of(ids)).sentence_T.tolist()
    marks = [tokenizer.vocabulary[index] for index in ids]
    assert sentence_T[0] == 0
    assert sentence_T[-1] == 2
    for mark, sentence in (("。", 0), ("？", 1), ("！", 1)):
        assert sentence_T[marks.index(mark)] == sentence
    assert sentence_T[marks.index("！") + 1] == 2


def planted(random: np.random.Generator) -> tuple[list[int], int, int]:
    """A document of four sentences of noise; a word from 4 to 9 in one of them is the label; and where it stands.

    Six labels: of two, one can be told by the other's absence, and then no word needs to be found.
    """
    label, at = int(random.integers(6)), int(random.integers(4))
    sentences = [[*random.integers(10, 30, size=random.integers(3, 6)).tolist(), STOP] for _ in range(4)]
    place = int(random.integers(len(sentences[at]) - 1))
    sentences[at][place] = 4 + label
    before = sum(len(sentence) for sentence in sentences[:at])
    return [token for sentence in sentences for token in sentence], label, before + place


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_decisive_word_and_its_sentence_get_the_weight() -> None:
    """After a short training by labels alone, on documents that were not learnt from."""
    random = np.random.default_rng(0)
    model = random_han(width=32, embedding=16).train()
    head = torch.nn.Linear(32, 6)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.01)
    for _ in range(60):
        drawn = [planted(random) for _ in range(32)]
        scores = head(model.summary(packed_of(*(ids for ids, _, _ in drawn))))
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor([label for _, label, _ in drawn]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    held_back = [planted(random) for _ in range(100)]
    packed = packed_of(*(ids for ids, _, _ in held_back))
    with torch.no_grad():
        said = head(model.eval().summary(packed)).argmax(-1)
        weights = model.attention_of(packed)
    right = (said == torch.tensor([label for _, label, _ in held_back])).float().mean()
    assert right > 0.95
    where = packed.boundaries[:-1] + torch.tensor([place for _, _, place in held_back])
    sentence = weights.sentence_T[where]
    assert weights.words_T[where].mean() > 0.7  # a quarter or less by chance
    assert weights.sentences_N[sentence].mean() > 0.7  # a quarter by chance
    top = [int(torch.where(weights.document_N == at, weights.sentences_N, -1).argmax()) for at in range(100)]
    assert (torch.tensor(top) == sentence).float().mean() > 0.7


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"width": 18}, "width is 18, but must be a multiple of 4"),
        ({"width": 0}, "width is 0, but must be a whole number from 4"),
        ({"cell": "rnn"}, "cell is 'rnn', but must be one of"),
        ({"dropout": 1}, "dropout is 1, but must be a number from 0 to 0.99"),
        ({"ends": (30,)}, "ends has 30, but must have ids of a vocabulary of 30"),
    ],
)
def test_a_config_that_cannot_be_is_named(shape: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        han.Config(**{**SHAPE, **shape})


def test_presets() -> None:
    for name in han.PRESETS:
        assert han.SPEC.preset(name, 99).vocab_size == 99
    assert han.Config(**{**SHAPE, "ends": [STOP]}).ends == (STOP,)  # as a file gives it
    with pytest.raises(InputError, match="Did you mean 'small'"):
        han.SPEC.preset("smal", 99)
