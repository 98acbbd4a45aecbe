"""The neural language model of Bengio et al. 2003: their equation 1 by hand, in packs, and one word at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.models import nnlm
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.train import tune


def packed_of(*rows: list[int]) -> Packed:
    arrays = [np.array(row, dtype=np.int32) for row in rows]
    return tensors(pack([Encoding(row, *(np.zeros_like(row) for _ in range(4))) for row in arrays])[0])


def model(**shape: object) -> nnlm.Nnlm:
    torch.manual_seed(0)
    config = nnlm.Config(**{"vocab_size": 23, "word_width": 6, "hidden": 8, "order": 4, "dropout": 0.0, **shape})
    made = nnlm.Nnlm(config, ("lm",))
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=0.5)
    return made.eval()


@pytest.mark.parametrize("direct", [False, True])
def test_the_equation_by_hand(direct: bool) -> None:
    """y = b + W x + U tanh(d + H x) with words of one number, two of which are read."""
    tiny = model(vocab_size=3, word_width=1, hidden=1, order=3, direct=direct)
    words, start = [0.5, -1.0, 2.0], 0.25
    h, d, u, b, w = (1.5, -0.5), 0.1, [1.0, -2.0, 3.0], [0.0, 0.5, -0.5], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    with torch.no_grad():
        tiny.embeddings.words.weight.copy_(torch.tensor(words)[:, None])
        tiny.embeddings.start.fill_(start)
        tiny.layers[0].map.weight.copy_(torch.tensor([h]))
        tiny.layers[0].map.bias.fill_(d)
        tiny.lm.weight.copy_(torch.tensor([[a, *(c if direct else ())] for a, c in zip(u, w, strict=True)]))
        tiny.lm.bias.copy_(torch.tensor(b))
    packed = packed_of([1], [2, 0, 1])
    near = [-1.0, 2.0, 0.5, -1.0]  # the word itself …
    far = [start, start, 2.0, 0.5]  # … and the one before it in its own sequence
    with torch.no_grad():
        vectors = tiny(packed)
        scores = tiny.word_scores(vectors)
    for at, x in enumerate(zip(near, far, strict=True)):
        hidden = math.tanh(d + h[0] * x[0] + h[1] * x[1])
        assert vectors[at].tolist() == pytest.approx([hidden, *(x if direct else ())], abs=1e-6)
        for word in range(3):
            wanted = b[word] + u[word] * hidden + (w[word][0] * x[0] + w[word][1] * x[1] if direct else 0.0)
            assert float(scores[at, word]) == pytest.approx(wanted, abs=1e-5)


def test_a_token_hangs_on_itself_and_the_two_before_it() -> None:
    """Of its own sequence, and on nothing else."""
    network, packed = model(), packed_of([1, 2], [3, 4, 5, 6, 7, 8])
    seen: list[list[int]] = []
    for at in range(8):
        before = network(packed)[at].detach()
        ids = packed.ids.clone()
        felt = []
        for place in range(8):
            packed.ids.copy_(ids)
            packed.ids[place] = 20
            if not torch.equal(network(packed)[at].detach(), before):
                felt.append(place)
        packed.ids.copy_(ids)
        seen.append(felt)
    assert seen == [[0], [0, 1], [2], [2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6], [5, 6, 7]]


def test_rows_asked_for_are_the_rows() -> None:
    network, packed = model(direct=True), packed_of([5], [1, 2, 3, 4, 5], [6, 7])
    with torch.inference_mode():
        everything = network(packed)
        some = torch.tensor([7, 0, 3, 3])
        torch.testing.assert_close(network(packed, some), everything[some])  # fewer rows may be rounded otherwise
        torch.testing.assert_close(network(packed, "first"), everything[packed.boundaries[:-1].long()])
        assert network(packed_of()).shape == (0, network.width)
        assert network(packed_of([3])).shape == (1, 8 + 3 * 6)


def test_word_by_word_as_all_at_once() -> None:
    """Texts of any lengths, none read yet among them; rows change places on the way."""
    network = model()
    texts = [[], [4], [1, 2, 3, 9, 8]]
    more = torch.tensor([[7, 8, 9, 1], [3, 3, 2, 5], [11, 12, 13, 14]])
    with torch.inference_mode():
        state = network.started(packed_of(*texts))
        for step in range(4):
            scores, state = network.step(more[:, step], state)
            assert scores.dtype == torch.float32
            for row, text in enumerate(texts):
                whole = network(packed_of([*text, *more[row, : step + 1].tolist()]))
                torch.testing.assert_close(scores[row], network.word_scores(whole[-1]), atol=1e-6, rtol=1e-5)
        scores, _ = network.step(torch.tensor([2, 2]), state.select(torch.tensor([2, 0])))
        whole = network(packed_of([*texts[2], *more[2].tolist(), 2]))
        torch.testing.assert_close(scores[0], network.word_scores(whole[-1]), atol=1e-6, rtol=1e-5)
        empty, _ = network.step(torch.tensor([7]), network.started(packed_of([])))
        torch.testing.assert_close(empty[0], network.word_scores(network(packed_of([7])))[0], atol=1e-6, rtol=1e-5)


def test_depths_half_precision_and_gradients() -> None:
    network = model(direct=True)
    network.word_scores(network(packed_of([1, 2, 3]))).sum().backward()
    assert not [name for name, weight in network.named_parameters() if weight.grad is None]
    depths = {name: tune.depth(name, 1) for name, _ in network.named_parameters()}
    assert depths == {
        "embeddings.start": 0, "embeddings.words.weight": 0, "layers.0.map.weight": 1, "layers.0.map.bias": 1,
        "lm.weight": 2, "lm.bias": 2,
    }  # fmt: skip
    assert network.to(torch.bfloat16)(packed_of([1, 2, 3])).dtype == torch.bfloat16


def test_what_is_wrong_is_named() -> None:
    for wrong in ({"order": 1}, {"hidden": 0}, {"direct": 1}, {"dropout": 1.0}, {"vocab_size": 2.0}):
        with pytest.raises(InputError, match=f"nnlm config: {next(iter(wrong))} is"):
            nnlm.Config(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Did you mean 'small'"):
        nnlm.SPEC.preset("smal", 10)
    assert nnlm.SPEC.preset("tiny", 10).vocab_size == 10
    with pytest.raises(InputError, match="no language-model head"):
        nnlm.Nnlm(nnlm.SPEC.preset("tiny", 10)).word_scores(torch.zeros(1, 128))
