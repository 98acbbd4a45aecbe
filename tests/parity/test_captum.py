"""Integrated gradients and Shapley values against captum's own, on the same model, words, baseline and target."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from filbert.core.records import Example, Prediction
from filbert.engine.backend_torch import Engine
from filbert.explain.attribution import TOLERANCE, gradient_x_input, integrated_gradients, occlusion, sampling
from filbert.explain.perturbation import Perturbation
from filbert.models import bert
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.tasks.question import Labels, Reading, layout
from filbert.text.tokenizer import Tokenizer
from kit.models import noisy

captum = pytest.importorskip("captum.attr")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::UserWarning:captum"),
]
TEXT = "我们坐火车去公园，今天天气很好。Trains leave early."


@pytest.fixture(params=["mean", "cls"])
def subject(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Perturbation:
    """A text of two windows under a small classifier."""
    torch.manual_seed(1)
    config = classify_spec.Config(max_length=16, overlap=4, pool=request.param)
    shape: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "inner": 64, "max_length": 64, "dropout": 0.0}
    model = bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape), ("pooler", "labels"), 3).eval()
    noisy(model, 0.3)
    example = Example((TEXT,))
    task = classify.Items([example], ("好", "坏", "天"), tokenizer, config)
    reading = Reading("classify", task, example, Prediction(), layout(task), task.origins(example), Labels)
    return Perturbation(Engine(model), reading, "坏")


def parts(subject: Perturbation) -> tuple[Any, Tensor, Tensor]:
    """F of the word vectors [N, T, E] of N copies, and the vectors of the text and of the emptied text."""
    (_, one), *_ = subject.packs(1, 1)
    table = subject.backbone.embeddings.words.weight.detach()
    whole_TE, empty_TE = table[one.packed.ids], table[one.packed.ids].clone()
    empty_TE[subject.layout.rows(one, subject.rows_X)[0]] = table[subject.reading.task.tokenizer.mask_id]

    def function(vectors_NTE: Tensor) -> Tensor:
        found = []
        for x_TE in vectors_NTE:  # one at a time, as plainly as can be
            (_, batch), *_ = subject.packs(1, 1)
            with subject._read_as(batch, [x_TE]):
                found.append(subject.question.table(subject.host, batch)[0, subject.column])
        return torch.stack(found)

    return function, whole_TE[None], empty_TE[None]


def by_word(subject: Perturbation, given_T: Tensor) -> np.ndarray[Any, Any]:
    """Captum's numbers for rows, summed for each word."""
    (_, batch), *_ = subject.packs(1, 1)
    rows = subject.layout.rows(batch, subject.rows_X)[0]
    return np.bincount(subject.word_R[subject.rows_X], weights=given_T[rows].numpy(), minlength=len(subject.words))


@pytest.mark.slow
def test_integrated_gradients_are_captums(subject: Perturbation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filbert.explain.attribution.TOLERANCE", 1e-5)  # both as exact as they can be
    assert TOLERANCE > 1e-5
    function, whole, empty = parts(subject)
    theirs = captum.IntegratedGradients(function).attribute(
        whole, empty, n_steps=64, method="gausslegendre", internal_batch_size=64
    )
    ours = integrated_gradients(subject).scores
    assert np.abs(ours).max() > 0.05
    assert np.abs(ours - by_word(subject, theirs[0].sum(-1))).max() < 1e-4


def test_gradient_x_input_is_captums(subject: Perturbation) -> None:
    function, whole, _ = parts(subject)
    theirs = captum.InputXGradient(function).attribute(whole.requires_grad_())
    ours = gradient_x_input(subject.with_baseline("zero")).scores  # the distance from zeros is the input itself
    assert np.abs(ours - by_word(subject, theirs[0].detach().sum(-1))).max() < 1e-4


class FirstWords:
    """The first words of a text; all others stay."""

    size = 1

    def __init__(self, subject: Perturbation, count: int) -> None:
        self.subject, self.words = subject, range(count)

    def values(self, kept_NW: Any) -> Any:
        kept = np.ones((len(kept_NW), len(self.subject.words)), dtype=np.bool_)
        kept[:, : len(self.words)] = kept_NW
        return self.subject.values(kept)

    def along(self, shares_N: Any) -> Any:
        raise NotImplementedError


def test_occlusion_and_shapley_values_are_captums(subject: Perturbation) -> None:
    """Captum's features here are words: present, or read as [MASK]; it tries all 120 orders of five."""
    few = FirstWords(subject, 5)
    every = np.array(list(itertools.product((False, True), repeat=5)))
    known = dict(zip(map(tuple, every.tolist()), few.values(every).tolist(), strict=True))

    def function(kept_NW: Tensor) -> Tensor:
        return torch.tensor([known[tuple((row > 0.5).tolist())] for row in kept_NW], dtype=torch.float64)

    ones, zeros = torch.ones(1, 5, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.float64)
    ablated = captum.FeatureAblation(function).attribute(ones, zeros)[0].numpy()
    assert np.abs(occlusion(few, 10**6).scores - ablated).max() < 1e-5
    exact = captum.ShapleyValues(function).attribute(ones, zeros)[0].numpy()
    ours = sampling(few, 10**6, samples=2_000).scores
    assert ours.sum() == pytest.approx(exact.sum(), abs=1e-4)
    assert np.abs(ours - exact).max() < 0.02 * np.abs(exact).max()
