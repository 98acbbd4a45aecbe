"""The CRF against brute force over all sequences: partition, likelihood, marginals, Viterbi, gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filbert.core.errors import FilbertError, InputError  # noqa: E402
from filbert.nn import crf as module  # noqa: E402
from filbert.nn import crf_walk  # noqa: E402
from filbert.nn.crf import CRF  # noqa: E402
from filbert.tasks.tag import decode as tags  # noqa: E402
from kit.chains import best_tags, weights_of  # noqa: E402

LENGTHS = [3, 1, 5, 1, 2, 4]
MASKS = ["free", "bio", "bioes", "random"]


def mask(kind: str, num_labels: int, seed: int) -> crf_walk.Allowed | None:
    if kind == "free":
        return None
    if kind == "random":  # tag 0 is always allowed, so that there is a legal sequence of each length
        random = np.random.default_rng(seed)
        begin, end = random.random(num_labels) < 0.6, random.random(num_labels) < 0.6
        pair = random.random((num_labels, num_labels)) < 0.5
        begin[0] = end[0] = pair[0, 0] = True
        return crf_walk.Allowed(begin, pair, end)
    wide = tags.tag_set(["A", "B"], kind)[:num_labels]
    return tags.allowed(wide, kind)


def made(num_labels: int, kind: str, seed: int = 0, lengths: list[int] = LENGTHS) -> tuple:
    """A CRF with random weights in float64, scores and boundaries."""
    random = torch.Generator().manual_seed(seed)
    crf = CRF(num_labels, mask(kind, num_labels, seed)).double()
    with torch.no_grad():
        for weight in crf.parameters():
            weight.copy_(torch.randn(weight.shape, generator=random, dtype=torch.float64))
    scores = 2 * torch.randn(sum(lengths), num_labels, generator=random, dtype=torch.float64)
    return crf, scores, np.concatenate(([0], np.cumsum(lengths)))


def best(crf: CRF, scores: torch.Tensor, edges: Sequence[int] | np.ndarray) -> torch.Tensor:
    """What the CRF says: the best legal tags."""
    return torch.from_numpy(crf_walk.viterbi(scores.detach().numpy(), edges, weights_of(crf), crf.allowed))


def marginals(crf: CRF, scores: torch.Tensor, edges: Sequence[int] | np.ndarray) -> torch.Tensor:
    """How likely each tag is at each unit."""
    return torch.from_numpy(crf_walk.marginals(scores.detach().numpy(), edges, weights_of(crf), crf.allowed))


def legal_paths(crf: CRF, length: int) -> list[tuple[int, ...]]:
    may = crf.allowed
    return [
        path
        for path in itertools.product(range(len(may.begin)), repeat=length)
        if may.begin[path[0]] and may.end[path[-1]] and all(may.pair[a, b] for a, b in itertools.pairwise(path))
    ]


def path_score(crf: CRF, scores_nL: np.ndarray, path: tuple[int, ...]) -> float:
    begin, pair, end = (weight.detach().numpy() for weight in (crf.begin, crf.transitions, crf.end))
    total = begin[path[0]] + end[path[-1]] + sum(scores_nL[at, tag] for at, tag in enumerate(path))
    return float(total + sum(pair[a, b] for a, b in itertools.pairwise(path)))


CASES = [(labels, kind, seed) for labels in (1, 2, 3, 5) for kind in MASKS for seed in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("num_labels", "kind", "seed"), CASES)
def test_everything_equals_brute_force(num_labels: int, kind: str, seed: int) -> None:
    crf, scores, edges = made(num_labels, kind, seed)
    random = np.random.default_rng(seed)
    wanted_z, wanted_gold, gold, wanted_tags = [], [], [], []
    wanted_marginals = np.zeros(scores.shape)
    for start, end in itertools.pairwise(edges):
        own = scores[start:end].numpy()
        paths = legal_paths(crf, end - start)
        values = np.array([path_score(crf, own, path) for path in paths])
        total = np.logaddexp.reduce(values)
        chosen = int(random.integers(len(paths)))
        gold += paths[chosen]
        wanted_z.append(total)
        wanted_gold.append(values[chosen] - total)
        wanted_tags += paths[int(values.argmax())]
        for path, value in zip(paths, values, strict=True):
            wanted_marginals[np.arange(start, end), path] += np.exp(value - total)
    found = crf.log_likelihood(scores, torch.tensor(gold), edges)
    assert crf.log_partition(scores, edges).tolist() == pytest.approx(wanted_z, abs=1e-9)
    assert found.tolist() == pytest.approx(wanted_gold, abs=1e-9)
    shares = marginals(crf, scores, edges).numpy()
    assert np.allclose(shares, wanted_marginals, atol=1e-10)
    assert best(crf, scores, edges).tolist() == wanted_tags
    assert shares[wanted_marginals == 0].tolist() == [0] * (wanted_marginals == 0).sum()
    (grad,) = torch.autograd.grad(crf.log_partition(scores.requires_grad_(), edges).sum(), scores)
    assert np.allclose(grad.numpy(), wanted_marginals, atol=1e-10)  # what is learnt from are the same shares


@pytest.mark.slow
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("num_labels", [1, 3, 5])
def test_gradients(num_labels: int, kind: str) -> None:
    crf, scores, edges = made(num_labels, kind, 3, [2, 1, 4, 1])
    gold = best(crf, torch.randn_like(scores), edges)
    weights = tuple(crf.parameters())

    def likelihood(scores_TL: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return crf.log_likelihood(scores_TL, gold, edges)

    assert torch.autograd.gradcheck(likelihood, (scores.requires_grad_(), *weights))
    assert torch.autograd.gradcheck(lambda s, *_: crf.log_partition(s, edges), (scores, *weights))
    # The likelihoods must add up to one: the gradient of the partition with respect to the scores are the marginals.
    (grad,) = torch.autograd.grad(crf.log_partition(scores, edges).sum(), scores)
    assert torch.allclose(grad, marginals(crf, scores, edges))


def test_what_is_forbidden_gets_no_gradient() -> None:
    crf, scores, edges = made(5, "bio")
    crf.float()
    gold = best(crf, scores.float(), edges)
    crf.log_likelihood(scores.float(), gold, edges).sum().backward()
    assert (crf.transitions.grad[~crf.may_pair] == 0).all()
    assert (crf.begin.grad[~crf.may_begin] == 0).all()
    assert all(weight.grad.isfinite().all() and weight.grad.abs().sum() > 0 for weight in crf.parameters())


@pytest.mark.parametrize("kind", MASKS)
def test_packed_equals_one_by_one(kind: str) -> None:
    lengths = [7, 1, 0, 30, 2, 7, 1, 0, 12]
    crf, scores, edges = made(5, kind, 1, lengths)
    gold = best(crf, torch.randn_like(scores), edges)
    together = crf.log_likelihood(scores, gold, edges), best(crf, scores, edges), marginals(crf, scores, edges)
    for index, (start, end) in enumerate(itertools.pairwise(edges.tolist())):
        own, right, alone = scores[start:end], gold[start:end], [0, end - start]
        assert torch.allclose(together[0][index], crf.log_likelihood(own, right, alone)[0], atol=1e-12)
        assert torch.equal(together[1][start:end], best(crf, own, alone))
        assert torch.allclose(together[2][start:end], marginals(crf, own, alone), atol=1e-12)
    assert together[0][2] == 0
    swapped = [edges[index + 1] - edges[index] for index in range(len(lengths))][::-1]
    order = np.concatenate([np.arange(edges[i], edges[i + 1]) for i in range(len(lengths))][::-1])
    bounds = torch.tensor(np.concatenate(([0], np.cumsum(swapped))), dtype=torch.int32)
    assert torch.allclose(crf.log_likelihood(scores[order], gold[order], bounds).flip(0), together[0])


@pytest.mark.parametrize("edges", [[0], [0, 0, 0]])
def test_an_empty_batch(edges: list[int]) -> None:
    crf = CRF(3)
    scores = torch.zeros(0, 3, requires_grad=True)
    gold = torch.zeros(0, dtype=torch.long)
    found = crf.log_likelihood(scores, gold, edges)
    assert found.tolist() == [0.0] * (len(edges) - 1)
    found.sum().backward()
    assert best(crf, scores, edges).shape == (0,)
    assert best(crf, scores, edges).dtype == torch.long
    assert marginals(crf, scores, edges).shape == (0, 3)
    assert crf_walk.viterbi(np.zeros((0, 3)), edges).shape == (0,)


def test_one_tag_is_certain() -> None:
    crf, scores, edges = made(1, "free")
    assert crf.log_likelihood(scores, torch.zeros(len(scores), dtype=torch.long), edges).tolist() == [0.0] * 6
    assert best(crf, scores, edges).sum() == 0


@pytest.mark.slow
def test_float32_holds_on_long_sequences_with_large_scores() -> None:
    crf, scores, edges = made(5, "bioes", 0, [700, 3, 400])
    scores = 20 * scores
    gold = best(crf, scores + 20 * torch.randn_like(scores), edges)
    exact_scores = scores.clone().requires_grad_()
    exact = crf.log_likelihood(exact_scores, gold, edges)
    exact.sum().backward()
    wanted = [exact_scores.grad, *(weight.grad.clone() for weight in crf.parameters())]
    crf = crf.float()
    crf.zero_grad()
    single = scores.float().requires_grad_()
    found = crf.log_likelihood(single, gold, edges)
    found.sum().backward()
    assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-4)  # a difference of sums of thousands
    assert torch.allclose(marginals(crf, single, edges).double().sum(1), torch.ones(len(scores)).double())
    assert torch.allclose(single.grad.double(), wanted[0], atol=1e-4)
    for weight, right in zip(crf.parameters(), wanted[1:], strict=True):
        assert torch.allclose(weight.grad.double(), right, atol=2e-2, rtol=1e-4)  # sums over 1,100 units
    half = crf.bfloat16().log_likelihood(single.detach().bfloat16(), gold, edges)
    assert half.dtype == torch.float32
    assert half.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_sums_hold_where_exponentials_vanish(kind: str, precision: str) -> None:
    """What one step all but rules out may be all that the next allows: it must not be rounded away."""
    for seed in range(4):
        crf, scores, edges = made(5, kind, seed)
        scores = 200 * scores
        with torch.no_grad():
            for weight in crf.parameters():
                weight.mul_(150)
        wanted, wanted_shares = [], np.zeros(scores.shape)
        for start, end in itertools.pairwise(edges):
            paths = legal_paths(crf, end - start)
            values = np.array([path_score(crf, scores[start:end].numpy(), path) for path in paths])
            wanted.append(np.logaddexp.reduce(values))
            for path, value in zip(paths, values, strict=True):
                wanted_shares[np.arange(start, end), path] += np.exp(value - wanted[-1])
        crf, scores = crf.to(getattr(torch, precision)), scores.to(getattr(torch, precision)).requires_grad_()
        found = crf.log_partition(scores, edges)
        assert found.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-3)
        (grad,) = torch.autograd.grad(found.sum(), scores)
        assert np.allclose(grad.numpy(), wanted_shares, atol=1e-3)
        assert np.allclose(marginals(crf, scores, edges).numpy(), wanted_shares, atol=1e-3)


def gradient(crf: CRF, scores: torch.Tensor, edges: np.ndarray) -> torch.Tensor:
    """Of the log-partition by the scores: the marginals, as learning has them."""
    scores = scores.detach().requires_grad_()
    return torch.autograd.grad(crf.log_partition(scores, edges).sum(), scores)[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MASKS)
def test_both_ways_to_sum_agree(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crf, scores, edges = made(5, kind, 0, [9, 1, 30])
    found = crf.log_partition(scores, edges), gradient(crf, scores, edges)
    monkeypatch.setattr(module._Sums, "LEAST", float("inf"))  # as on a GPU: all within the logarithms
    assert torch.allclose(crf.log_partition(scores, edges), found[0], atol=1e-12)
    assert torch.allclose(gradient(crf, scores, edges), found[1], atol=1e-12)
    assert torch.allclose(marginals(crf, scores, edges), found[1], atol=1e-12)
    monkeypatch.setattr(crf_walk._Sums, "LEAST", float("inf"))
    assert torch.allclose(marginals(crf, scores, edges), found[1], atol=1e-12)


def test_an_illegal_gold_step_is_named() -> None:
    crf = CRF(5, mask("bio", 5, 0))  # O B-A I-A B-B I-B
    scores = torch.zeros(6, 5)
    with pytest.raises(InputError, match=r"sequence 1 of the batch, unit 2: gold tag 4 after tag 1 is not allowed"):
        crf.log_likelihood(scores, torch.tensor([0, 1, 0, 1, 4, 0]), [0, 2, 6])
    with pytest.raises(InputError, match="gold tag 2 after the beginning"):
        crf.log_likelihood(scores, torch.tensor([0, 1, 2, 1, 2, 0]), [0, 2, 6])
    with pytest.raises(InputError, match="tags go from 0 to 4, but here from -100 to 1"):
        crf.log_likelihood(scores, torch.tensor([0, 1, 0, 1, -100, 0]), [0, 2, 6])
    ends = CRF(5, mask("bioes", 5, 0))
    with pytest.raises(InputError, match="unit 1: gold tag 1 after tag 0"):  # B-A may not be the last
        ends.log_likelihood(scores[:2], torch.tensor([0, 1]), [0, 2])
    unchecked = crf.log_likelihood(scores, torch.tensor([0, 1, 0, 1, 4, 0]), [0, 2, 6], check=False)
    assert unchecked[0] > -10
    assert unchecked[1] < -1e29


def test_masks_that_leave_nothing_are_refused() -> None:
    yes, no = np.ones(2, np.bool_), np.zeros(2, np.bool_)
    everything = np.ones((2, 2), np.bool_)
    for legal, length in (
        (crf_walk.Allowed(no, everything, yes), 1),
        (crf_walk.Allowed(yes, everything, no), 1),
        (crf_walk.Allowed(yes, ~everything, yes), 2),
        (crf_walk.Allowed(np.array([True, False]), np.array([[0, 1], [1, 0]], np.bool_), np.array([True, False])), 2),
    ):
        with pytest.raises(InputError, match=f"no legal tags for a sequence of {length} unit"):
            CRF(2, legal)
        with pytest.raises(InputError, match="no legal tags at all"):
            crf_walk.viterbi(np.zeros((length, 2)), [0, length], legal=legal)


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 3e38, -3e38])
@pytest.mark.parametrize("kind", ["bio", "bioes"])
def test_extreme_scores_never_make_viterbi_illegal(kind: str, value: float) -> None:
    names = tags.tag_set(["A", "B"], kind)
    legal = tags.allowed(names, kind)
    crf = CRF(len(names), legal)
    for column in range(len(names)):
        scores = torch.zeros(40, len(names))
        scores[:, column] = value
        scores[::3] = -value
        found = best(crf, scores, [0, 1, 11, 40])
        assert len(legal.broken(found.numpy(), [0, 1, 11, 40])) == 0
        assert np.array_equal(found.numpy(), crf_walk.viterbi(scores.numpy(), [0, 1, 11, 40], legal=legal))
        assert found.tolist() == best_tags(scores.numpy(), [0, 1, 11, 40], weights_of(crf), legal)
    with torch.no_grad():
        crf.transitions[~crf.may_pair] = 1e9  # whatever was learnt or loaded there
    assert len(legal.broken(best(crf, torch.zeros(9, len(names)), [0, 9]).numpy(), [0, 9])) == 0


def test_no_number_is_an_error() -> None:
    scores = torch.zeros(2, 3)
    scores[1, 1] = float("nan")
    with pytest.raises(FilbertError, match="NaN"):
        best(CRF(3), scores, [0, 2])
    with pytest.raises(FilbertError, match="NaN"):
        crf_walk.viterbi(scores.numpy(), [0, 2])
    for weight in ("begin", "transitions", "end"):
        crf = CRF(3)
        torch.nn.init.constant_(getattr(crf, weight), float("nan"))
        with pytest.raises(FilbertError, match="NaN"):
            best(crf, torch.zeros(2, 3), [0, 2])
    with pytest.raises(InputError, match="boundaries"):
        CRF(3).log_partition(scores, [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_viterbi_side_by_side_is_the_same_with_ties(kind: str, precision: str) -> None:
    random = np.random.default_rng(5)
    for seed in range(30):
        lengths = random.integers(0, 9, 6).tolist()
        crf, scores, edges = made(5, kind, seed, lengths)
        if seed % 2:  # few values: nearly every step has ties
            scores = scores.round().clamp(-1, 1)
            with torch.no_grad():
                for weight in crf.parameters():
                    weight.copy_(weight.round().clamp(-1, 1))
        crf, scores = crf.to(getattr(torch, precision)), scores.to(getattr(torch, precision))
        assert best(crf, scores, edges).tolist() == best_tags(scores.numpy(), edges, weights_of(crf), crf.allowed)


def test_of_equals_the_lowest_tag_wins() -> None:
    crf = CRF(3)
    assert best(crf, torch.zeros(4, 3), [0, 4]).tolist() == [0, 0, 0, 0]
    with torch.no_grad():  # 1 0 and 0 1 are equally good, and better than the rest: the last unit decides first
        crf.transitions[0, 1] = crf.transitions[1, 0] = 1.0
    assert best(crf, torch.zeros(2, 3), [0, 2]).tolist() == [1, 0]


@pytest.mark.slow
def test_it_learns_and_its_masks_are_not_saved() -> None:
    """Units look alike; only the order tells them apart, which a softmax for each unit cannot learn."""
    legal = tags.allowed(("O", "B-A", "I-A"), "bio")
    crf = CRF(3, legal)
    assert set(crf.state_dict()) == {"transitions", "begin", "end"}
    gold = torch.tensor([1, 2, 2, 0, 1, 2, 2, 0, 0])
    edges = [0, 4, 9]
    optimiser = torch.optim.Adam(crf.parameters(), lr=0.3)
    for _ in range(60):
        loss = -crf.log_likelihood(torch.zeros(9, 3), gold, edges).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert best(crf, torch.zeros(9, 3), edges)[:2].tolist() == [1, 2]
    assert loss.item() < 9 * np.log(3) / 3
