"""Writing token by token: greedy, beams and draws against their definitions, on models whose every score is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from filbert.core.errors import InputError
from filbert.nn import generation
from filbert.nn.generation import Drawing, Generated, Rules

pytestmark = pytest.mark.usefixtures("one_thread")
END = 0


class Past:
    """The tokens that each row has read, and which sequence it is: a state that can be checked by eye."""

    def __init__(self, own_N: Tensor, read_NL: Tensor) -> None:
        self.own_N, self.read_NL = own_N, read_NL

    def select(self, rows_N: Tensor) -> Past:
        return Past(self.own_N[rows_N], self.read_NL[rows_N])


class Grouped(Past):
    """The same with groups; it sees to it that a search keeps what it promises about them."""

    width = 0

    def spread(self, width: int) -> Grouped:
        state = Grouped(self.own_N.repeat_interleave(width), self.read_NL.repeat_interleave(width, 0))
        state.width = width
        return state

    def select(self, rows_N: Tensor) -> Grouped:
        if self.width:
            groups = (rows_N // self.width).view(-1, self.width)
            assert (groups == groups[:, :1]).all()
            assert (groups[1:, 0] > groups[:-1, 0]).all()
        state = Grouped(self.own_N[rows_N], self.read_NL[rows_N])
        state.width = self.width
        return state


class Table:
    """Scores that follow from the sequence and all that it has read, by a hash: every text has its own."""

    def __init__(self, num_words: int, seed: int = 0, state: type[Past] = Past) -> None:
        self.num_words, self.seed, self.kind, self.rows = num_words, seed, state, 0
        self.known: dict[tuple[int, ...], Tensor] = {}

    def begun(self, num: int) -> tuple[Tensor, Past]:
        return torch.full((num,), 1), self.kind(torch.arange(num), torch.zeros(num, 0, dtype=torch.int64))

    def scores(self, own: int, read: tuple[int, ...]) -> Tensor:
        key = (self.seed, own, *read)
        if key not in self.known:
            drawn = np.random.default_rng(key).normal(size=self.num_words, scale=2)
            self.known[key] = torch.from_numpy(drawn.astype(np.float32))
        return self.known[key]

    def step(self, ids_N: Tensor, state: Past) -> tuple[Tensor, Past]:
        self.rows += len(ids_N)
        state.read_NL = torch.cat((state.read_NL, ids_N[:, None]), 1)
        rows = zip(state.own_N.tolist(), state.read_NL.tolist(), strict=True)
        return torch.stack([self.scores(own, tuple(read)) for own, read in rows]), state


def allowed(rules: Rules, text: tuple[int, ...], word: int, num_words: int) -> bool:
    """Whether this word may follow that text; the definition of the rules in plain words."""

    def is_open(word: int) -> bool:
        size = rules.no_repeat
        grams = {text[at : at + size] for at in range(len(text) - size + 1)} if size else set()
        return word not in rules.banned and (not size or (*text, word)[-size:] not in grams)

    if word != rules.end:
        return is_open(word)
    return len(text) >= rules.min_new or not any(is_open(w) for w in range(num_words) if w != rules.end)


def every_text(model: Table, own: int, rules: Rules, limit: int) -> dict[tuple[tuple[int, ...], bool], float]:
    """All texts that may be written, whether they end, and the log-probability of each: search without pruning."""
    found = {}

    def grow(text: tuple[int, ...], total: float) -> None:
        chances = model.scores(own, (1, *text)).double().log_softmax(0).tolist()
        for word in range(model.num_words):
            if not allowed(rules, text, word, model.num_words):
                continue
            if word == rules.end:
                found[text, True] = total + chances[word]
            elif len(text) + 1 == limit:
                found[(*text, word), False] = total + chances[word]
            else:
                grow((*text, word), total + chances[word])

    grow((), 0.0)
    return found


def likeliest(model: Table, own: int, rules: Rules, limit: int) -> Generated:
    """The definition of greedy search."""
    text: tuple[int, ...] = ()
    total = 0.0
    while len(text) < limit:
        chances = model.scores(own, (1, *text)).log_softmax(0).tolist()
        words = [w for w in range(model.num_words) if allowed(rules, text, w, model.num_words)]
        word = max(words, key=chances.__getitem__)
        total += chances[word]
        if word == rules.end:
            return Generated(text, total, True)
        text = (*text, word)
    return Generated(text, total, False)


def same(got: list[Generated], want: list[Generated]) -> None:
    assert [(w.ids, w.ended) for w in got] == [(w.ids, w.ended) for w in want]
    np.testing.assert_allclose([w.score for w in got], [w.score for w in want], atol=1e-4)


RULES = [
    Rules(end=END, max_new=6),
    Rules(end=END, max_new=(1, 6, 3, 9, 5)),
    Rules(end=END, max_new=7, min_new=3),
    Rules(end=END, max_new=9, banned=(2, 4)),
    Rules(end=END, max_new=12, min_new=8, no_repeat=2),
    Rules(end=END, max_new=9, min_new=9, no_repeat=1),  # it runs out of words: then it may end
    Rules(end=END, max_new=9, min_new=6, no_repeat=3, banned=(3,)),
]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("state", [Past, Grouped])
def test_greedy_and_a_beam_of_one_follow_the_definition(rules: Rules, state: type[Past]) -> None:
    limits = rules.limits(5)
    for seed in range(4):
        model = Table(6, seed, state)
        want = [likeliest(model, own, rules, limits[own]) for own in range(5)]
        same(generation.greedy(model, *model.begun(5), rules), want)
        same(generation.beam(model, *model.begun(5), rules, width=1), want)


SHORT = [replace(r, max_new=4 if isinstance(r.max_new, int) else (1, 4, 2, 3), banned=r.banned[:1]) for r in RULES]


@pytest.mark.parametrize("rules", SHORT)
@pytest.mark.parametrize("state", [Past, Grouped])
def test_a_beam_that_is_wide_enough_finds_the_best_of_all(rules: Rules, state: type[Past]) -> None:
    limits = rules.limits(4)
    for seed, penalty in itertools.product(range(2), (0.0, 0.6, 2.0)):
        model = Table(4, seed, state)
        want = []
        for own in range(4):
            texts = every_text(model, own, rules, limits[own])
            ranked = {key: total / ((5 + len(key[0]) + key[1]) / 6) ** penalty for key, total in texts.items()}
            best = max(ranked, key=ranked.__getitem__)
            want.append(Generated(best[0], texts[best], best[1]))
        same(generation.beam(model, *model.begun(4), rules, width=130, length_penalty=penalty), want)


def plain_beam(model: Table, own: int, rules: Rules, limit: int, width: int, penalty: float) -> Generated:
    """One sequence's beam with lists: what `search.beam` says that it does."""
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, Generated]] = []
    for length in range(1, limit + 1):
        grown = [
            (total + chance, text, word)
            for total, text in running
            for word, chance in enumerate(model.scores(own, (1, *text)).log_softmax(0).tolist())
            if allowed(rules, text, word, model.num_words)
        ]
        grown.sort(key=lambda way: -way[0])
        for total, text, word in grown[:width]:
            if word == rules.end or length == limit:
                ids = text if word == rules.end else (*text, word)
                ended.append((total / ((5 + length) / 6) ** penalty, Generated(ids, total, word == rules.end)))
        running = [(total, (*text, word)) for total, text, word in grown if word != rules.end][:width]
        best = max((score for score, _ in ended), default=-np.inf)
        if not running or best >= running[0][0] / ((5 + limit) / 6) ** penalty:
            break
        if len(ended) >= width and best >= running[0][0] / ((5 + length) / 6) ** penalty:
            break
    return max(ended, key=lambda one: one[0])[1]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("width", [2, 3, 9])  # the last one is wider than the vocabulary
@pytest.mark.parametrize("looks", ["each step", "now and then"])
def test_a_beam_follows_its_definition(rules: Rules, width: int, looks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if looks == "now and then":  # as on a GPU: what is done runs on for a while, and must not change
        monkeypatch.setattr(generation, "_looks", lambda step, device: step % 4 == 3)
    limits = rules.limits(5)
    for seed, penalty in itertools.product(range(3), (0.0, 1.0)):
        model = Table(6, seed, Grouped)
        want = [plain_beam(model, own, rules, limits[own], width, penalty) for own in range(5)]
        same(generation.beam(model, *model.begun(5), rules, width=width, length_penalty=penalty), want)
        if width == 2:
            want = [likeliest(model, own, rules, limits[own]) for own in range(5)]
            same(generation.greedy(model, *model.begun(5), rules), want)


class Fixed(Table):
    """The same scores, whatever was read."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__(len(scores))
        self.fixed = torch.tensor(scores)

    def scores(self, own: int, read: tuple[int, ...]) -> Tensor:
        return self.fixed


def test_a_beam_stops_when_nothing_that_runs_can_win() -> None:
    model = Fixed([9.0, 0.0, 0.0, 0.0])  # ends at once, almost surely
    assert generation.beam(model, *model.begun(2), Rules(end=END, max_new=50), width=4)[1].ids == ()
    assert model.rows == 2 * 4


def test_what_has_ended_leaves_the_batch() -> None:
    model = Fixed([0.0, 9.0])  # never ends of itself
    texts = generation.greedy(model, *model.begun(4), Rules(end=END, max_new=(2, 2, 20, 2)))
    assert [len(text.ids) for text in texts] == [2, 2, 20, 2]
    assert model.rows == 4 * 2 + 18


def everywhere(model: Table, num: int, rules: Rules) -> dict[str, list[Generated]]:
    """The texts of every way to write."""
    return {
        "greedy": generation.greedy(model, *model.begun(num), rules),
        "beam": generation.beam(model, *model.begun(num), rules, width=3),
        "sample": generation.sample(model, *model.begun(num), rules, Drawing(temperature=2.0)),
    }


def test_nothing_banned_is_written_and_no_stretch_twice() -> None:
    rules = Rules(end=END, max_new=30, min_new=25, banned=(3, 5), no_repeat=3)
    for texts in everywhere(Table(7), 6, rules).values():
        for text in texts:
            grams = list(zip(text.ids, text.ids[1:], text.ids[2:], strict=False))
            assert len(set(grams)) == len(grams)
            assert not {3, 5, END} & set(text.ids)
            assert len(text.ids) >= 25
    free = [set(text.ids) for text in everywhere(Table(7), 6, Rules(end=END, max_new=30, min_new=25))["sample"]]
    assert any({3, 5} & words for words in free)


def test_a_text_does_not_hang_on_the_rest_of_its_batch() -> None:
    rules = Rules(end=END, max_new=8)
    alone = Table(6)
    for way, texts in everywhere(Table(6), 4, rules).items():
        for own, text in enumerate(texts):
            state = Past(torch.tensor([own]), torch.zeros(1, 0, dtype=torch.int64))
            calls: dict[str, Callable[[], list[Generated]]] = {
                "greedy": lambda s=state: generation.greedy(alone, torch.tensor([1]), s, rules),
                "beam": lambda s=state: generation.beam(alone, torch.tensor([1]), s, rules, width=3),
                "sample": lambda s=state, n=own: generation.sample(
                    alone, torch.tensor([1]), s, rules, Drawing(temperature=2.0), [n]
                ),
            }
            same(calls[way](), [text])


SCORES = np.array([1.5, 0.2, -1.0, 0.2, 2.0, -3.0, 0.9])


def defined_chances(scores: np.ndarray, drawing: Drawing) -> np.ndarray:
    """Temperature, then the k likeliest, then the fewest likeliest that reach p; no two scores here tie at an edge."""
    scores = scores / drawing.temperature
    chances = np.exp(scores) / np.exp(scores).sum()
    order = np.argsort(-chances, kind="stable")
    kept = list(order[: drawing.top_k or None])
    chances = np.array([chance if word in kept else 0.0 for word, chance in enumerate(chances)])
    chances /= chances.sum()
    reached, nucleus = 0.0, []
    for word in kept:
        nucleus.append(word)
        reached += chances[word]
        if reached >= drawing.top_p:
            break
    chances = np.array([chance if word in nucleus else 0.0 for word, chance in enumerate(chances)])
    return chances / chances.sum()


DRAWINGS = [
    Drawing(),
    Drawing(temperature=0.5),
    Drawing(temperature=3.0, top_k=5),
    Drawing(top_k=1),
    Drawing(top_k=99),
    Drawing(top_p=0.8),
    Drawing(top_p=1e-6),
    Drawing(temperature=1.5, top_k=5, top_p=0.85),
]


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_chances_are_those_of_their_definition(drawing: Drawing) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 31), scale=3).astype(np.float32)
    got = generation.chances(torch.from_numpy(rows), drawing)
    want = np.stack([defined_chances(row.astype(np.float64), drawing) for row in rows])
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_draws_are_distributed_as_their_chances(drawing: Drawing) -> None:
    model, num = Fixed(SCORES.tolist()), 4_000
    texts = generation.sample(model, *model.begun(num), Rules(end=END, max_new=1), replace(drawing, seed=7))
    drawn = np.bincount([text.ids[0] if text.ids else END for text in texts], minlength=len(SCORES))
    want = generation.chances(torch.from_numpy(SCORES)[None], drawing)[0].numpy() * num
    assert not drawn[want == 0].any()
    if (want > 0).sum() > 1:
        assert chisquare(drawn[want > 0], want[want > 0]).pvalue > 1e-3
    own = np.log(np.exp(SCORES) / np.exp(SCORES).sum())  # scores are the model's own, whatever the temperature
    np.testing.assert_allclose([t.score for t in texts], [own[t.ids[0] if t.ids else END] for t in texts], atol=1e-5)


def test_two_steps_are_drawn_independently() -> None:
    model, num = Fixed([-50.0, 0.0, 0.7, -0.4]), 6_000
    texts = generation.sample(model, *model.begun(num), Rules(end=END, max_new=2), Drawing())
    pairs = np.zeros((4, 4))
    np.add.at(pairs, tuple(np.array([text.ids for text in texts]).T), 1)
    one = torch.tensor([0.0, 0.7, -0.4]).softmax(0).numpy()
    assert chisquare(pairs[1:, 1:].flatten(), np.outer(one, one).flatten() * num, sum_check=False).pvalue > 1e-3


def test_a_seed_repeats_itself_and_others_differ() -> None:
    model, rules = Table(30), Rules(end=END, max_new=20, min_new=20)
    first, again, other = (generation.sample(model, *model.begun(3), rules, Drawing(seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("num_words", [9, 1_024, 2_100, 5_000])
def test_the_best_of_blocks_are_the_best_of_all(num_words: int) -> None:
    scores = torch.randn(7, num_words, generator=torch.Generator().manual_seed(0))
    scores[0, : num_words // 2] = generation.LOW
    scores[1, -1] = 9  # in what is left over after the last block
    for mine, torchs in zip(generation.top(scores, 8), scores.topk(8, dim=1), strict=True):
        assert torch.equal(mine, torchs)


def test_no_sequence_gives_no_text() -> None:
    assert all(texts == [] for texts in everywhere(Table(4), 0, Rules(end=END, max_new=3)).values())


class Broken(Table):
    """Not a number, as weights that burst give."""

    def scores(self, own: int, read: tuple[int, ...]) -> Tensor:
        return torch.full((self.num_words,), torch.nan)


@pytest.mark.parametrize(("way", "more"), [("greedy", ()), ("beam", ()), ("sample", (Drawing(top_p=0.9),))])
def test_scores_that_are_not_numbers_are_said_to_be_so(way: str, more: tuple[Drawing, ...]) -> None:
    model = Broken(4)
    with pytest.raises(InputError, match="no token a finite score"):
        getattr(generation, way)(model, *model.begun(2), Rules(end=END, max_new=3), *more)


WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("rules.max_new is 0", lambda: Rules(end=END, max_new=0)),
    ("rules.max_new is", lambda: Rules(end=END, max_new=(3, 1.5))),  # type: ignore[arg-type]
    ("rules.end is -1", lambda: Rules(end=-1, max_new=3)),
    ("rules.banned has the end token", lambda: Rules(end=2, max_new=3, banned=(1, 2))),
    ("drawing.temperature is 0", lambda: Drawing(temperature=0)),
    ("drawing.top_p is 1.5", lambda: Drawing(top_p=1.5)),
    ("drawing.top_k is -1", lambda: Drawing(top_k=-1)),
    ("rules.max_new has 2 numbers for 3", lambda: everywhere(Table(4), 3, Rules(end=END, max_new=(1, 2)))),
    ("rules name token 4, but the model knows 4", lambda: everywhere(Table(4), 3, Rules(end=4, max_new=2))),
    ("width is 0", lambda: generation.beam(Table(4), *Table(4).begun(1), Rules(end=END, max_new=2), width=0)),
    (
        "length_penalty is -1",
        lambda: generation.beam(Table(4), *Table(4).begun(1), Rules(end=END, max_new=2), length_penalty=-1),
    ),
]


@pytest.mark.parametrize(("said", "call"), WRONG)
def test_what_cannot_be_asked_is_refused(said: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        call()
