"""Operations and heads that are written once compute the same on NumPy arrays and on torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from filbert.nn import heads
from filbert.nn.ops import NUMPY
from filbert.nn.torch_ops import TORCH, TorchHost
from filbert.pack.lay import pack
from filbert.text.tokenizer import Tokenizer
from kit.models import small_bert

RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


X, W, B = drawn(7, 4), drawn(5, 4), drawn(5)
LENGTHS, EDGES = np.array([2, 0, 4, 1]), np.array([0, 2, 2, 6, 7], dtype=np.int32)
CASES: dict[str, Callable[[Any, Callable[[np.ndarray], Any]], Any]] = {
    "linear": lambda xp, at: xp.linear(at(X), at(W), at(B)),
    "linear without a bias": lambda xp, at: xp.linear(at(X), at(W), None),
    "float32": lambda xp, at: xp.float32(at(np.arange(5))),
    "tanh": lambda xp, at: xp.tanh(at(X)),
    "exp": lambda xp, at: xp.exp(at(X)),
    "log": lambda xp, at: xp.log(at(np.abs(X) + np.float32(0.1))),
    "turn": lambda xp, at: xp.concatenate(xp.turn(at(X * 9))),
    "gelu": lambda xp, at: xp.activation("gelu", at(3 * X)),
    "gelu-tanh": lambda xp, at: xp.activation("gelu-tanh", at(3 * X)),
    "relu": lambda xp, at: xp.activation("relu", at(3 * X)),
    "layer_norm": lambda xp, at: xp.layer_norm(at(X), at(X[0]), at(X[1]), 1e-12),
    "layer_norm without a bias": lambda xp, at: xp.layer_norm(at(X), at(X[0]), None, 1e-5),
    "logsumexp": lambda xp, at: xp.logsumexp(at(90 * X)),
    "where": lambda xp, at: xp.where(at(X > 0), at(X), -1e9),
    "where of two": lambda xp, at: xp.where(at(X > 0), at(X), at(X * 2)),
    "concatenate": lambda xp, at: xp.concatenate([at(X), at(X[:, :2])]),
    "sequences lengths": lambda xp, at: xp.sequences(at(EDGES), at(np.array([6, 0])))[0],
    "sequences places": lambda xp, at: xp.sequences(at(EDGES), at(np.array([6, 0, 2, 7])))[1],
    "repeat": lambda xp, at: xp.repeat(at(X[:4]), at(LENGTHS), 7),
    "segment_sum": lambda xp, at: xp.segment_sum(at(X), at(LENGTHS)),
    "segment_sum of numbers": lambda xp, at: xp.segment_sum(at(X[:, 0].copy()), at(LENGTHS)),
    "scattered": lambda xp, at: xp.scattered(at(X[:3]), at(np.array([5, 0, 2])), 6),
    "ahead": lambda xp, at: xp.ahead(at(X), 3),
    "masked words": lambda xp, at: heads.masked_words(
        xp,
        {name: at(weight) for name, weight in MASKED.items()},
        at(X), "gelu", 1e-12,
    ),
    "pointer": lambda xp, at: heads.pointer(
        xp, {name: at(weight) for name, weight in POINTER.items()}, at(X), at(np.array([0, 1, 0, 1, 2, 3, 0])), 3
    ),
}  # fmt: skip
MASKED = {
    "dense.weight": drawn(4, 4), "dense.bias": drawn(4), "norm.weight": drawn(4), "norm.bias": drawn(4),
    "words": drawn(9, 4), "bias": drawn(9),
}  # fmt: skip
POINTER = {
    "edges.weight": drawn(2 * heads.INNER, 4), "edges.bias": drawn(2 * heads.INNER),
    "kinds.weight": drawn(6, 2 * heads.INNER) / 8, "kinds.bias": drawn(6),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_arrays_and_tensors_have_the_same_numbers(name: str) -> None:
    one, two = CASES[name](NUMPY, lambda x: x), CASES[name](TORCH, torch.from_numpy)
    assert isinstance(one, np.ndarray)
    assert isinstance(two, torch.Tensor)
    assert one.shape == tuple(two.shape)
    assert one.dtype == two.numpy().dtype
    np.testing.assert_allclose(one, TORCH.host(two), rtol=1e-5, atol=1e-5)


def test_every_operation_has_a_case() -> None:
    operations = {name for name in dir(NUMPY) if not name.startswith("_")}
    assert operations == {name for name in dir(TORCH) if not name.startswith("_")}
    assert operations - {name.partition(" ")[0] for name in CASES} == {"activation", "at", "host"}
    assert {"gelu", "gelu-tanh", "relu"} <= CASES.keys()  # what `activation` knows
    assert NUMPY.at(X, X) is NUMPY.host(X) is X
    assert TORCH.host(TORCH.at(X, torch.zeros(1))).tolist() == X.tolist()


def test_a_host_that_learns_hides_and_drops_and_one_that_answers_does_not(tokenizer: Tokenizer) -> None:
    model = small_bert(tokenizer, ("labels",), 2, dropout=0.5)
    packed, _ = pack([tokenizer.encode("今天天气很好，我们去公园。" * 3)])
    packed = packed.with_ids(torch.from_numpy(packed.ids))
    x = torch.ones(64, 32)
    kept = (tokenizer.cls_id, tokenizer.sep_id)
    answers, learns = TorchHost(model.eval()), TorchHost(model)
    assert not answers.is_training
    assert answers.masked(packed, 0.9, tokenizer.mask_id, kept) is packed
    assert answers.dropout(x).equal(x)
    model.train()
    torch.manual_seed(0)
    assert learns.is_training
    assert learns.masked(packed, 0.0, tokenizer.mask_id, kept) is packed
    hidden = learns.masked(packed, 0.9, tokenizer.mask_id, kept)
    changed = hidden.ids != packed.ids
    assert (hidden.ids[changed] == tokenizer.mask_id).all()
    assert changed.float().mean() > 0.7
    assert not changed[[0, -1]].any()
    assert set(learns.dropout(x).unique().tolist()) == {0.0, 2.0}
    assert learns.width == answers.width == 32
