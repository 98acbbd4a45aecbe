"""Attributions: exact on functions that can be done by hand, and a number for every word under every task and model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction, Span
from filbert.engine.backend_torch import Engine
from filbert.explain.attribution import METHODS, integrated_gradients, occlusion, sampling
from filbert.explain.filling import FILL, Filling, Words
from filbert.explain.perturbation import Perturbation
from filbert.explain.word_groups import grouped
from filbert.nn.attention import batch_tensors
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.answer import spec as answer_spec
from filbert.tasks.blank import spec as blank_spec
from filbert.tasks.choose import spec as choose_spec
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.tasks.embed import spec as embed_spec
from filbert.tasks.pair import spec as pair_spec
from filbert.tasks.question import Labels, Reading, Target, layout, log_odds
from filbert.tasks.relation import spec as relation_spec
from filbert.tasks.relation.reading import Relation
from filbert.tasks.tag import spec as tag_spec
from filbert.text.tokenizer import Tokenizer
from kit.models import noisy, small_bert

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "我们坐火车去公园，今天天气很好。"
TAGS = tag_spec.label_names(tag_spec.Config(), [Example((TEXT,), (Span(0, 2, "PER"), Span(6, 8, "LOC")))])


def reading_of(name: str, task: Any, example: Example, model: Any) -> Reading:
    said = Prediction()
    if name not in ("embed", FILL):
        said = task.predictions(Engine(model).answers(task))[0]
    question = Words if name == FILL else registry.task(name).question or Labels
    return Reading(name, task, example, said, layout(task), task.origins(example), question)


def subject_of(
    name: str, example: Example, tokenizer: Tokenizer, how: tuple[Any, Sequence[str]], target: Target = None,
    model: Any = None, **more: Any,
) -> Perturbation:  # fmt: skip
    """The example under that task, read by a small model that has its head; how: config and labels."""
    config, labels = how
    if name == FILL:
        task: Any = Filling(example.texts[0], tokenizer, 48)
    else:
        task = registry.task(name).items([example], labels, tokenizer, config)
    model = model or small_bert(tokenizer, getattr(task, "parts", ("mlm",)), max(2, len(labels)), noise=0.3)
    return Perturbation(Engine(model), reading_of(name, task, example, model), target, **more)


MENTIONS = Relation(Span(3, 5, "head"), Span(6, 8, "tail"), None)
LABELS = ("好", "坏", "天")
HALF = LABELS[:2]
ASKED: dict[str, tuple[str, Example, tuple[Any, Sequence[str]], Target]] = {
    "classify": ("classify", Example((TEXT,)), (classify_spec.Config(max_length=48), LABELS), "坏"),
    "classify, cls": ("classify", Example((TEXT,)), (classify_spec.Config(max_length=48, pool="cls"), LABELS), None),
    "several": ("classify", Example((TEXT,)), (classify_spec.Config(max_length=48, several=True), LABELS), "好"),
    "pair": ("pair", Example((TEXT, "天气好")), (pair_spec.Config(max_length=48), LABELS), None),
    "number": ("pair", Example((TEXT, "天气好")), (pair_spec.Config(answer="number", scale=2.0), ("value",)), None),
    "tag": ("tag", Example((TEXT,)), (tag_spec.Config(max_length=48), TAGS), (6, 8, "LOC")),
    "tag, crf": ("tag", Example((TEXT,)), (tag_spec.Config(max_length=48, decoder="crf"), TAGS), (0, 2)),
    "tag, span": ("tag", Example((TEXT,)), (tag_spec.Config(decoder="span"), ("LOC", "PER")), (6, 8, "PER")),
    "relation": ("relation", Example((TEXT,), MENTIONS), (relation_spec.Config(max_length=48), LABELS), None),
    "answer": ("answer", Example(("去哪里？", TEXT)), (answer_spec.Config(max_length=48), ()), "公园"),
    "no answer": ("answer", Example(("去哪里？", TEXT)), (answer_spec.Config(max_length=48, threshold=0.0), ()), ""),
    "choose": ("choose", Example((TEXT, "去哪里？", "公园", "火车")), (choose_spec.Config(max_length=48), ()), 1),
    "blank": (
        "blank", Example((TEXT,)), (blank_spec.Config(template="很[MASK]：{text}", words="好,坏=天"), HALF), None
    ),
    "embed": ("embed", Example((TEXT, "天气好")), (embed_spec.Config(max_length=48), ()), None),
    "fill": (FILL, Example(("今天[MASK]气很好，我们[MASK]公园。",)), (None, ()), None),
}  # fmt: skip


# -- by hand -----------------------------------------------------------------------------------------------------------


class Known:
    """F = a·x + x·B·x and, where steep, a step that is all but a jump; x is how much of each word is there."""

    def __init__(self, size: int, steep: float = 0.0) -> None:
        random = np.random.default_rng(1)
        self.words, self.size, self.steep = range(size), size, steep
        self.a, b = random.normal(size=size), random.normal(size=(size, size))
        self.b = np.triu(b, 1)
        self.reads = 0

    def _value(self, x_NW: Any) -> Any:
        step = np.tanh(self.steep * (x_NW.mean(1) - 0.3)) if self.steep else 0.0
        return x_NW @ self.a + np.einsum("nw,wv,nv->n", x_NW, self.b, x_NW) + step

    def values(self, kept_NW: Any) -> Any:
        self.reads += len(kept_NW)
        return self._value(np.asarray(kept_NW, dtype=np.float64))

    def along(self, shares_N: Any) -> Any:
        shares = np.asarray(shares_N, dtype=np.float64)
        x_NW = np.repeat(shares[:, None], self.size, axis=1)
        slope = self.a + x_NW @ (self.b + self.b.T)
        if self.steep:
            slope = slope + self.steep / self.size / np.cosh(self.steep * (x_NW.mean(1) - 0.3))[:, None] ** 2
        return self._value(x_NW), slope

    @property
    def shapley(self) -> Any:
        """An interaction is shared by halves."""
        return self.a + (self.b + self.b.T).sum(1) / 2


def test_methods_on_a_function_done_by_hand() -> None:
    known = Known(7)
    whole, empty = known.values(np.ones((1, 7)))[0], known.values(np.zeros((1, 7)))[0]
    # On the straight way x_i·x_j grows as α², half of it by each: integrated gradients are Shapley values here.
    assert integrated_gradients(known).scores == pytest.approx(known.shapley)
    assert sampling(known, 0, samples=1).scores == pytest.approx(known.shapley)  # there and back is exact for pairs
    without = [known.values(1 - np.eye(7)[[word]])[0] for word in range(7)]
    assert occlusion(known, 10**6).scores == pytest.approx(whole - np.array(without))
    assert sampling(known, 10**4, seed=5).scores.sum() == pytest.approx(whole - empty)


@pytest.mark.parametrize("steep", [20.0, 60.0, 400.0])
def test_the_way_is_cut_finer_where_the_function_bends(steep: float) -> None:
    known = Known(5, steep)
    found = integrated_gradients(known)
    whole, empty = known.values(np.ones((1, 5)))[0], known.values(np.zeros((1, 5)))[0]
    assert found.scores.sum() == pytest.approx(whole - empty, rel=0.01)
    smooth = integrated_gradients(Known(5)).reads
    assert smooth <= 15 < found.reads < 300  # and only where it has to be


def test_too_many_words_are_left_out_together() -> None:
    known = Known(50)
    found = occlusion(known, budget=50 * 10)
    assert found.coarse == 5
    assert known.reads == 11
    assert len(found.scores) == 50
    assert found.scores[:5] == pytest.approx(found.scores[0])
    sampled = sampling(Known(50), budget=50 * 100)
    assert sampled.coarse > 1
    assert sampled.scores.sum() == pytest.approx(known.values(np.ones((1, 50)))[0])


def test_log_odds_are_exact_however_sure() -> None:
    scores = torch.tensor([[0.3, -1.2, 2.0], [500.0, -500.0, 0.0]], dtype=torch.float64, requires_grad=True)
    odds = log_odds(scores)
    chances = scores[0].softmax(-1)
    assert odds[0].tolist() == pytest.approx((chances / (1 - chances)).log().tolist())
    assert odds[1].tolist() == pytest.approx([500.0, -1000.0, -500.0])
    odds.sum().backward()
    assert torch.isfinite(scores.grad).all()  # type: ignore[arg-type]
    assert log_odds(torch.tensor([[3.0, 1.0]]))[0].tolist() == pytest.approx([2.0, -2.0])


# -- every task --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ASKED))
def test_every_task_gives_every_word_a_number_in_the_users_characters(kind: str, tokenizer: Tokenizer) -> None:
    name, example, how, target = ASKED[kind]
    subject = subject_of(name, example, tokenizer, how, target)
    for word in subject.words:
        assert word.text == example.texts[word.part][word.start : word.end] == word.text.strip() != ""
    seen = {(word.part, at) for word in subject.words for at in range(word.start, word.end)}
    blanks = {(0, match.start() + at) for match in re.finditer(r"\[MASK\]", example.texts[0]) for at in range(6)}
    given = {(part, at) for part, text in enumerate(example.texts) for at in range(len(text))}
    assert given - seen <= blanks  # every character of the user's is in a word, but for the blanks
    whole, empty = subject.values(np.array([[True], [False]]).repeat(len(subject.words), axis=1))
    assert whole == pytest.approx(subject.value, abs=1e-4)
    for method, attributed in METHODS.items():
        found = attributed(subject, 10**5, 0).scores
        assert found.shape == (len(subject.words),)
        assert np.isfinite(found).all()
        assert np.ptp(found) > 0
        if method in ("integrated-gradients", "sampling"):
            assert found.sum() == pytest.approx(whole - empty, rel=0.01, abs=1e-4)
        if method == "attention-rollout":
            assert (found >= 0).all()
            assert found.sum() <= 1 + 1e-5


@pytest.mark.parametrize("kind", ["classify", "pair", "tag", "relation", "answer", "choose", "blank", "fill"])
def test_the_slope_is_what_a_small_step_gives(kind: str, tokenizer: Tokenizer) -> None:
    name, example, how, target = ASKED[kind]
    subject = subject_of(name, example, tokenizer, how, target)
    values, slopes = subject.along([0.48, 0.5, 0.52])
    assert slopes[1].sum() == pytest.approx((values[2] - values[0]) / 0.04, rel=0.02, abs=1e-3)
    assert values.tolist() == pytest.approx(subject.along([0.48, 0.5, 0.52])[0].tolist())


@pytest.mark.parametrize("baseline", ["mask", "pad", "zero"])
def test_both_ends_of_the_way_are_the_text_and_the_emptied_text(baseline: str, tokenizer: Tokenizer) -> None:
    name, example, how, target = ASKED["classify"]
    subject = subject_of(name, example, tokenizer, how, target, baseline=baseline)
    flags = np.array([[False], [True]]).repeat(len(subject.words), axis=1)
    assert subject.along([0.0, 1.0])[0].tolist() == pytest.approx(subject.values(flags).tolist(), abs=1e-4)


def test_words_that_stand_in_two_windows_are_changed_in_both(tokenizer: Tokenizer) -> None:
    config = classify_spec.Config(max_length=16, overlap=8)
    subject = subject_of("classify", Example((TEXT * 2,)), tokenizer, (config, LABELS), "好")
    assert len(subject.layout.lengths) > 2
    counts = np.bincount(subject.word_R[subject.word_R >= 0])
    tokens = np.bincount([len(tokenizer.pieces([word.text]).ids) for word in subject.words])
    assert counts.sum() > np.arange(len(tokens)) @ tokens  # some are read twice
    # The same by hand: the text with [MASK] written where the word stands, read by the task itself.
    place = int(np.argmax(counts))
    word = subject.words[place]
    kept = np.ones((1, len(subject.words)), dtype=np.bool_)
    kept[0, place] = False
    ids = subject.reading.task.ids.copy()
    begin = len(tokenizer.pieces([(TEXT * 2)[: word.start]]).ids)
    ids[begin : begin + len(tokenizer.pieces([word.text]).ids)] = tokenizer.mask_id
    task = classify.Items([Example((TEXT * 2,))], LABELS, tokenizer, config)
    task.ids = ids
    with torch.inference_mode():
        scores = task.scores(TorchHost(subject.backbone), batch_tensors(task.batch(np.zeros(1, np.int64)), "cpu"))
    assert subject.values(kept)[0] == pytest.approx(float(log_odds(scores)[0, 0]), abs=1e-5)
    found = integrated_gradients(subject).scores
    empty = subject.values(np.zeros((1, len(subject.words))))[0]
    assert found.sum() == pytest.approx(subject.value - empty, rel=0.01, abs=1e-4)


def test_deleted_words_are_not_there(tokenizer: Tokenizer) -> None:
    name, example, how, target = ASKED["classify"]
    subject = subject_of(name, example, tokenizer, how, target, baseline="delete")
    found = occlusion(subject, 10**5).scores
    word = subject.words[2]
    shorter = Example((TEXT[: word.start] + TEXT[word.end :],))
    other = subject_of(name, shorter, tokenizer, how, target)
    assert found[2] == pytest.approx(subject.value - other.value, abs=1e-5)
    with pytest.raises(InputError, match="stands at a place"):
        subject_of(*ASKED["tag"][:2], tokenizer, *ASKED["tag"][2:], baseline="delete")
    with pytest.raises(InputError, match="take mask, pad or zero"):
        subject.along([0.5])


def test_only_the_own_batch_is_read_with_other_vectors(tokenizer: Tokenizer) -> None:
    """What another thread asks of the same model meanwhile must not change."""
    name, example, how, target = ASKED["classify"]
    subject = subject_of(name, example, tokenizer, how, target)
    (_, mine), *_ = subject.packs(1, 1)
    (_, other), *_ = subject.packs(1, 1)
    with torch.inference_mode(), subject._read_as(mine, [torch.zeros(subject.size, 32)]):
        changed, same = (subject.question.table(subject.host, each).numpy() for each in (mine, other))
    assert same[0].tolist() == pytest.approx(subject.first_C.tolist(), abs=1e-6)
    assert np.abs(changed - same).max() > 1e-3
    assert not subject.backbone.embeddings.words._forward_hooks


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ASKED))
def test_tokens_are_traced_to_where_they_stand(kind: str, tokenizer: Tokenizer) -> None:
    name, example, how, target = ASKED[kind]
    subject = subject_of(name, example, tokenizer, how, target)
    batch, own = subject.reading.task.batch(np.zeros(1, dtype=np.int64)), subject.layout
    ids = np.asarray(batch.packed.ids)[np.asarray(batch.starts)[own.sequence] + own.place]
    specials = 0
    for row, token in enumerate(own.token.tolist()):
        part, start, end = subject.reading.origins[token].tolist() if token >= 0 else (-1, 0, 0)
        if part < 0:
            specials += 1
            assert subject.word_R[row] == -1
            continue
        word = subject.words[subject.word_R[row]]
        assert word.part == part
        assert word.start <= start < end <= word.end
        assert tokenizer.token_of(int(ids[row])).removeprefix("##") in example.texts[part][start:end].lower()
    assert specials >= 2 * len(own.lengths)


def test_a_question_that_is_read_beside_every_option_is_one_word_each(tokenizer: Tokenizer) -> None:
    example = Example((TEXT, " 去 哪里", "公园", "火车"))
    subject = subject_of("choose", example, tokenizer, (choose_spec.Config(max_length=48), ()), 0)
    words = [word for word in subject.words if word.part == 1]
    assert [word.text for word in words] == ["去", "哪里"]
    place = subject.words.index(words[0])
    assert int((subject.word_R == place).sum()) == 2
    assert {word.part for word in subject.words} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("今天天气很好，去公园。", None),
        ("Don't stop: naïve café", ["Don", "'", "t", "stop", ":", "naïve", "café"]),
        ("我爱👨‍👩‍👧‍👦和👍🏽", ["👨‍👩‍👧‍👦", "👍🏽"]),
        ("喝café吧", ["café"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("<b>x</b>", ["<", "b", ">", "x", "<", "/", "b", ">"]),
        ("这[MASK]好", ["[MASK]"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
    ],
)
def test_words_are_what_a_reader_sees_as_one(text: str, words: list[str] | None, tokenizer: Tokenizer) -> None:
    tokens = tokenizer.pieces([text], specials=True)[0]
    found = grouped(text, tokens.starts, tokens.ends)
    assert sorted(token for group in found for token in group.tokens) == list(range(len(tokens.ids)))
    shown = [text[group.start : group.end] for group in found]
    assert all(one.end <= two.start for one, two in itertools.pairwise(found))
    if words is None:
        assert "".join(shown) == text
    else:
        assert [word for word in words if word in shown] == words
    assert grouped("", [], []) == []


# -- every model -------------------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, Any]] = {
    "gpt": {"width": 16, "layers": 2, "heads": 2, "inner": 32, "max_length": 64},
    "elmo": {"direction_width": 8},
    "elmo, characters": {"direction_width": 8, "input": "characters", "filters": 1, "token_bytes": 12},
    "han": {"width": 16, "embedding": 8},
    "word2vec": {"width": 16},
    "glove": {"width": 16},
    "nnlm": {},
    "transformer": {"width": 16, "heads": 2, "inner": 32},
    "seq2seq": {"width": 16, "embedding": 8},
}


def model_of(arch: str, tokenizer: Tokenizer) -> Any:
    spec = registry.model(arch.partition(",")[0])
    torch.manual_seed(0)
    shape = {"dropout": 0.0, **SHAPES[arch]}
    model = spec.model(spec.config(vocab_size=tokenizer.vocab_size, **shape), ("labels",), 3).eval()
    noisy(model, 0.2)
    model.spell(tokenizer.vocabulary)
    return model


@pytest.mark.parametrize("arch", list(SHAPES))
def test_every_encoder_of_the_family(arch: str, tokenizer: Tokenizer) -> None:
    how = (classify_spec.Config(max_length=48), LABELS)
    subject = subject_of("classify", Example((TEXT,)), tokenizer, how, "坏", model_of(arch, tokenizer))
    whole, empty = subject.values(np.array([[True], [False]]).repeat(len(subject.words), axis=1))
    assert occlusion(subject, 10**5).scores.shape == (len(subject.words),)
    assert sampling(subject, 10**4).scores.sum() == pytest.approx(whole - empty, abs=1e-4)
    if arch in ("nnlm", "elmo, characters"):  # one asks its table for several words of each row, one has no table
        with pytest.raises(InputError, match="take method occlusion or sampling"):
            integrated_gradients(subject)
    else:
        assert integrated_gradients(subject).scores.sum() == pytest.approx(whole - empty, rel=0.01, abs=1e-4)
    attention: Callable[..., Any] = METHODS["attention-rollout"]
    if arch in ("gpt", "transformer"):
        assert attention(subject).scores.sum() > 0
    else:
        with pytest.raises(InputError, match="no attention to follow"):
            attention(subject)
