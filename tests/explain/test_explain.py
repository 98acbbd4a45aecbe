"""Explanations: what `explain` gives in Python, as JSON, as a page and on the command line; and texts that are odd."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.cli import explain as command
from filbert.core.errors import InputError
from filbert.engine.model import Model
from filbert.explain.attribution import METHODS
from filbert.explain.explanation import Explanation
from filbert.explain.perturbation import BASELINES
from filbert.run.finetune import finetune
from kit.folders import examples_of

ROWS = [("火车很好", "车"), ("公园很好", "园"), ("天气很好", "天")]
TEXT = "我们坐火车去公园，今天天气很好。"
SCRIPT = "<script>alert('x')</script> & <b>火车</b>"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that leaves a small classifier."""
    data = examples_of(ROWS * 4)
    out = tmp_path_factory.mktemp("explain") / "trains"
    words = ["machine.threads=1", "task.max_length=32", "task.overlap=8", "train.learning_rate=1e-3"]
    finetune("classify", data, tiny_folder, out, settings=words, epochs=4, quiet=True)
    return out


@pytest.fixture
def model(folder: Path) -> Model:
    return fb.load(folder, device="cpu")


@pytest.fixture
def ran(filbert: Callable[..., Any]) -> Callable[..., Any]:
    """`filbert explain` with these words."""
    return partial(filbert, "explain")


def checked(found: Explanation) -> Explanation:
    """As every explanation must be: words that are slices of the texts, in order, and finite numbers; all as JSON."""
    places = [(word.part, word.start) for word in found.words]
    assert places == sorted(places)
    assert all(word.text == found.texts[word.part][word.start : word.end] for word in found.words)
    assert found.scores.shape == (len(found.words),)
    view = json.loads(json.dumps(found.as_view(), allow_nan=False))
    assert [each["text"] for each in view["words"]] == [word.text for word in found.words]
    if found.certificate is not None:
        assert set(view["certificate"]) == {"verdict", "sentence_en", "sentence_zh", "numbers"}
        assert view["certificate"]["verdict"] in ("faithful", "weak", "random")
    return found


def test_what_is_explained_is_what_the_model_says(model: Model) -> None:
    found, (said,) = checked(model.explain(TEXT)), model.predict([TEXT])
    assert (found.method, found.target, found.texts) == ("integrated-gradients", said.label, (TEXT,))
    share = said.scores[str(said.label)]
    assert found.value == pytest.approx(math.log(share / (1 - share)), abs=1e-3)
    assert found.scores.sum() == pytest.approx(found.value - found.baseline, rel=0.01, abs=1e-4)
    assert "".join(word.text for word in found.words) == TEXT
    scores = [score for _, score in found.ranked()]
    assert scores == sorted(scores, reverse=True)
    other = checked(model.explain(TEXT, target="园", method="occlusion", baseline="pad", certificate=False))
    assert (other.target, other.certificate) == ("园", None)
    assert (found.model, found.task, found.architecture) == ("trains", "classify", "bert")


@pytest.mark.slow
def test_the_other_methods_and_baselines(model: Model) -> None:
    for method in METHODS:
        found = checked(model.explain(TEXT, method=method))
        assert found.certificate is not None
    zero, mask = (model.explain(TEXT, baseline=name, certificate=False) for name in ("zero", "mask"))
    assert zero.value == mask.value
    assert zero.baseline != mask.baseline
    gone = checked(model.explain(TEXT, method="sampling", baseline="delete"))
    (empty,) = model.predict([""])
    share = empty.scores[gone.target]
    assert gone.baseline == pytest.approx(math.log(share / (1 - share)), abs=1e-3)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"target": "船"}, "must be one of: 园, 天, 车"),
        ({"method": "magic"}, "explain.method is 'magic'"),
        ({"baseline": "dog"}, "explain.baseline is 'dog'"),
        ({"method": "integrated-gradients", "baseline": "delete"}, "take method occlusion or sampling"),
        ({"budget": 0}, "explain.budget is 0"),
        ({"metod": "occlusion"}, "Did you mean 'method'"),
        ({"task": "pair"}, "was fine-tuned for classify, not for pair"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(model: Model, how: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as refused:
        model.explain(TEXT, **how)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "   \n ", "\u200b\u200d"])
def test_a_text_without_words_has_nothing_to_explain(model: Model, text: str) -> None:
    with pytest.raises(InputError, match="nothing to explain"):
        model.explain(text)


FAMILY = "👨\u200d👩\u200d👧\u200d👦"
ODD = [SCRIPT, "مرحبا بالعالم שלום עולם", f"{FAMILY}和👍🏽在公园🇨🇳", "火", "\ud800 火车", "a" * 300, "\x00火\u202e园"]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts(model: Model, text: str) -> None:
    found = checked(model.explain(text))
    assert found.certificate is not None
    if FAMILY in text:
        assert FAMILY in [word.text for word in found.words]
    if len(found.words) == 1:
        assert found.certificate.verdict in ("weak", "random")


@pytest.mark.slow
def test_twenty_thousand_characters(model: Model) -> None:
    text = (TEXT * 1_300)[:20_000]
    found = checked(model.explain(text, method="gradient-x-input"))
    assert found.words[-1].end == 20_000
    assert found.certificate is not None
    assert "budget=" in found.certificate.sentence_en
    left_out = checked(model.explain(text, method="occlusion", certificate=False))
    assert left_out.coarse > 100  # so many words at a time
    assert len(left_out.scores) == len(found.scores)


def test_the_page_shows_what_is_in_the_text_and_runs_none_of_it(model: Model) -> None:
    pytest.importorskip("filbert.draw.book")
    found = model.explain(SCRIPT, certificate=False)
    page = found.to_html()
    assert "<script>alert" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert found.as_view_model("zh")["views"][0]["explanations"] == [found.as_view()]


def test_a_word_at_a_blank(tiny_folder: Path) -> None:
    model = fb.load(tiny_folder, device="cpu")
    text = "今天[MASK]气很好，我们[MASK]公园。"
    found = checked(model.explain(text))
    best = model.fill(text, top=2)
    assert (found.task, found.target) == ("fill", best[0].candidates[0].token)
    share = best[0].candidates[0].score
    assert found.value == pytest.approx(math.log(share / (1 - share)), abs=1e-2)
    assert "[MASK]" not in [word.text for word in found.words]
    later = model.explain(text, target=(15, 21, "去"), method="occlusion", certificate=False)
    assert later.target == "去"
    second = model.explain(text, target=(15, 21), certificate=False)
    assert second.target == best[1].candidates[0].token
    for target, told in (((0, 2), "no \\[MASK\\] there"), ("火车站", "no token of the vocabulary")):
        with pytest.raises(InputError, match=told):
            model.explain(text, target=target)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no \\[MASK\\]"):
        model.explain("今天天气很好")


def test_the_command_prints_words_bars_and_the_sentence(folder: Path, ran: Callable[..., Any]) -> None:
    given = ran(folder, "--text", TEXT, "--target", "车")
    assert given.code == 0
    lines = given.out.splitlines()
    assert lines[0].startswith("车  ")
    assert "█" in given.out
    assert "│" in lines[1]
    assert any("火车" in line for line in lines)
    assert lines[-2].startswith(("Faithful", "Weak", "No better than random"))
    assert lines[-1].startswith(("可信", "偏弱", "不比随机更好"))
    told = json.loads(ran(folder, "--text", TEXT, "--json", "--seed", "3", "--no-certificate").out)
    assert told["certificate"] is None
    assert len(told["words"]) == len(fb.load(folder).explain(TEXT, certificate=False).words)
    assert tuple(METHODS) == command.METHODS
    assert next(p.type.choices for p in command.command.params if p.name == "baseline") == BASELINES  # type: ignore[attr-defined]


def test_the_command_on_a_file(folder: Path, tmp_path: Path, ran: Callable[..., Any]) -> None:
    data, out = tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in (TEXT, "", "火车")), encoding="utf-8")
    given = ran(folder, "--data", data, "--out", out, "--method", "occlusion")
    assert given.code == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3]
    assert "nothing to explain" in rows[1]["error"]
    assert rows[0]["certificate"]["verdict"] in ("faithful", "weak", "random")
    assert "1 of them say why" in given.err
    whole = out.read_bytes()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:1]))
    assert ran(folder, "--data", data, "--out", out, "--method", "occlusion", "--resume").code == 0
    assert out.read_bytes() == whole
    told = json.loads(ran(folder, "--data", data, "--no-certificate", "--json").out)
    assert (told["texts"], told["failed"]) == (3, 1)


def test_the_command_writes_a_page(folder: Path, tmp_path: Path, ran: Callable[..., Any]) -> None:
    pytest.importorskip("filbert.draw.book")
    page = tmp_path / "page.html"
    given = ran(folder, "--text", SCRIPT, "--out", page)
    assert given.code == 0
    assert "<script>alert" not in page.read_text(encoding="utf-8")
    assert given.out == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give the text once"),
        (("--text", "a", "--data", "b"), "give the text once"),
        (("--text", "a", "--out", "no/such/page.html"), "does not exist"),
        (("--data", "a.jsonl", "--out", "x.html"), "a page is of one --text"),
        (("--text", "a", "--at", "x"), "must be START:END"),
        (("--text", "a", "--pair", "b"), "must be a string"),
        (("--text", "a", "--resume"), "--resume goes on"),
        (("--text", ""), "nothing to explain"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    folder: Path, ran: Callable[..., Any], words: tuple[str, ...], told: str
) -> None:
    given = ran(folder, *words)
    assert given.code == 2
    assert told in given.err


def test_numbers_hang_on_nothing_but_the_text(model: Model) -> None:
    one, two = (model.explain(TEXT, certificate=False).scores for _ in range(2))
    assert np.array_equal(one, two)
    model.predict([TEXT])
    assert np.array_equal(one, model.explain(TEXT, certificate=False).scores)
