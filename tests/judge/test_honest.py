"""The honest evaluation: tests of differences, leaks, errors and mistakes of every kind of answer, and its page."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.core import errors
from filbert.core.records import Example, Span
from filbert.judge import page
from filbert.judge import report as honest
from filbert.metrics import baselines, paired
from filbert.run.finetune import finetune
from filbert.tasks.answer.reading import Answer
from filbert.tasks.choose import items as choose
from filbert.tasks.choose import spec as choose_spec
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.tasks.pair import items as pair
from filbert.tasks.pair import spec as pair_spec
from filbert.tasks.relation import items as relation
from filbert.tasks.relation import spec as relation_spec
from filbert.tasks.relation.reading import Relation
from filbert.tasks.tag import items as tag
from filbert.tasks.tag import spec as tag_spec
from filbert.text.tokenizer import Tokenizer

pytest.importorskip("sklearn")
pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("火", "水")


# Differences ----------------------------------------------------------------------------------------------------------


def test_mcnemar_is_the_exact_test() -> None:
    def right(both: int, one: int, two: int) -> tuple[Any, Any]:
        return np.array([1] * (both + one) + [0] * two), np.array([1] * both + [0] * one + [1] * two)

    for one, two in ((0, 0), (5, 5), (1, 8), (30, 12)):
        total, least = one + two, min(one, two)
        tail = sum(math.comb(total, k) for k in range(least)) + math.comb(total, least) / 2
        wanted = min(1.0, 2 * tail / 2**total) if total else 1.0
        assert paired.mcnemar(*right(7, one, two)) == pytest.approx(wanted)
    assert paired.mcnemar(*right(0, 6_000, 5_000)) < 1e-10  # no number is too large


def test_the_paired_interval_and_p_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    one, two = random.random(400) ** 0.8, random.random(400)
    found = paired.compared(one[:, None], two[:, None], lambda sums: sums[:, 0] / 400, "f1")
    assert found.value == pytest.approx(one.mean() - two.mean())
    expected = stats.ttest_rel(one, two)
    assert found.p == pytest.approx(expected.pvalue, abs=0.02)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.006)


def test_differences_are_said_in_words() -> None:
    right, worse = np.ones(1_000), np.arange(1_000) % 20 > 0
    assert paired.accuracy(right, worse).sentence("TF-IDF").startswith("better than TF-IDF by 5.0 points of accuracy (")
    assert paired.accuracy(worse, right).sentence("TF-IDF").startswith("worse than TF-IDF by 5.0 points")
    assert paired.accuracy(right, right).sentence("TF-IDF").startswith("no better than TF-IDF: +0.0 points")
    assert paired.accuracy(right[:3], worse[:3]).p > 0.05  # three examples prove nothing
    assert paired.accuracy([], []).value == 0.0


# Kinds of answers -----------------------------------------------------------------------------------------------------


def texts(count: int, seed: int = 0) -> list[tuple[str, int]]:
    """Chinese texts of fire or water, no two near each other, and which they are of."""
    random = np.random.default_rng(seed)
    words = (list("火炉烧烟热灰炭焰"), list("水河海船雨湖流波"))
    common = list("今天我们在城里看见老人说话吃饭上学开车读书写字唱歌")
    return [("".join(random.choice(words[i % 2] + common[:4], 6)) + "".join(random.choice(common, 10)), i % 2)
            for i in range(count)]  # fmt: skip


def labelled(count: int, seed: int = 0) -> list[Example]:
    return [Example((text,), LABELS[side], place, "data.tsv", place + 1)
            for place, (text, side) in enumerate(texts(count, seed))]  # fmt: skip


def reported(
    name: str, task: Any, examples: list[Example], raw: Any, train: list[Example] | None = None
) -> dict[str, Any]:
    told = honest.report(name, {"test": honest.Measured(task, examples, raw)}, train)
    json.dumps(told)  # nothing in it that JSON has not
    assert page.sections(told)
    return dict(told["evaluations"]["test"])


def raw_of(task: Any, wrong: Mapping[int, float] = {}) -> Any:
    """Scores of a model that is right but for some, of which it is so sure."""
    scores = np.where(np.eye(len(task.labels))[task.gold] == 1, 2.0, -2.0)
    for place, sure in wrong.items():
        scores[place] = -sure * np.sign(scores[place])
    return list(scores)


def test_labels_beside_baselines_leaks_errors_and_mistakes(tokenizer: Tokenizer) -> None:
    train, examples = labelled(200), labelled(40, seed=1)
    examples[3] = Example((train[10].texts[0],), train[10].gold, 3, "data.tsv", 4)  # a copy
    examples[4] = Example(("　" + train[11].texts[0][:-1] + "昨！",), train[11].gold, 4, "data.tsv", 5)
    examples[5] = Example(examples[5].texts, LABELS[0], 5, "data.tsv", 6)  # which is of water
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config())
    told = reported("classify", task, examples, raw_of(task, {3: 1.0, 5: 4.0}), train)
    assert told["accuracy"] == 38 / 40
    assert told["baselines"]["majority"]["accuracy"] == pytest.approx(21 / 40)
    assert told["baselines"]["tfidf"]["accuracy"] >= 0.9
    assert "learnt from 200 rows" in told["baselines"]["tfidf"]["about"]
    assert told["baselines"]["tfidf"]["difference"]["test"] == "McNemar, mid-p"
    leaks = told["leaks"]
    assert (leaks["num"], leaks["exact"], leaks["near"], leaks["compared"], leaks["of"]) == (2, 1, 1, 200, 200)
    first = leaks["examples"][0]
    assert (first["file"], first["line"], first["other_file"], first["other_line"]) == ("data.tsv", 4, "data.tsv", 11)
    assert leaks["without"]["accuracy"] == pytest.approx(37 / 38)
    assert leaks["without"]["num_examples"] == 38
    worst = told["mistakes"][0]
    assert (worst["row"], worst["gold"], worst["said"]) == (5, "火", "水")
    assert worst["score"] == pytest.approx(1 / (1 + math.exp(-8)), rel=1e-6)
    assert told["errors"]["ranked"][0]["row"] == 5
    assert told["errors"]["ranked"][0]["instead"] == "水"
    assert told["calibration"]["before"]["bins"]
    assert any("without them accuracy is 0.9737 instead of 0.9500" in line for line in told["sentences"])


def test_without_training_data_what_needs_them_says_so(tokenizer: Tokenizer) -> None:
    examples = labelled(10)
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config())
    told = reported("classify", task, examples, raw_of(task))
    assert told["accuracy"] == 1.0
    assert "--train FILE" in told["baselines"]["missing"]
    assert "--train FILE" in told["leaks"]["missing"]
    assert set(told["baselines"]) == {"majority", "missing"}
    everything = reported("classify", task, examples, raw_of(task), examples)
    assert "without" not in everything["leaks"]
    assert any("nothing is left" in line for line in everything["sentences"])


def test_without_scikit_learn_one_line_names_it(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, extra: str) -> Any:
        raise errors.MissingExtra(f"this needs the package 'sklearn': pip install 'filbert[{extra}]'")

    monkeypatch.setattr(baselines, "needed", missing)
    examples = labelled(10)
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config())
    measured = honest.Measured(task, examples, raw_of(task))
    told = honest.report("classify", {"dev": measured}, labelled(20, seed=2))
    assert "filbert[metrics]" in told["evaluations"]["dev"]["baselines"]["missing"]
    assert "filbert[metrics]" in told["train"]["missing"]
    assert told["evaluations"]["dev"]["leaks"]["num"] == 0


def test_the_training_data_are_judged_too(tokenizer: Tokenizer) -> None:
    train = labelled(400)
    wrong = set(range(7, 400, 20))
    other = {"火": "水", "水": "火"}
    train = [Example(e.texts, other[e.gold] if e.id in wrong else e.gold, e.id, e.source, e.line) for e in train]
    train.append(Example(train[0].texts, other[train[0].gold], 400, "data.tsv", 401))
    examples = labelled(20, seed=1)
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config())
    told = honest.report("classify", {"dev": honest.Measured(task, examples, raw_of(task))}, train)["train"]
    assert told["num_examples"] == 401
    assert (told["repeats"]["num"], told["repeats"]["conflicting"]) == (1, 1)
    assert told["repeats"]["examples"][0]["other_line"] == 1
    flagged = [row["row"] for row in told["errors"]["ranked"]]
    assert len(wrong & set(flagged)) / len(wrong) >= 0.9
    assert len(wrong & set(flagged[:40])) / len(wrong) >= 0.8
    assert len(flagged) < 100


def test_several_labels(tokenizer: Tokenizer) -> None:
    examples = [Example((text,), LABELS if place % 5 == 0 else (LABELS[side],), place)
                for place, (text, side) in enumerate(texts(60))]  # fmt: skip
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config(several=True))
    scores = np.where(task.gold == 1, 3.0, -3.0)
    scores[7] = -scores[7]
    told = reported("classify", task, examples, list(scores), examples)
    assert told["accuracy"] == pytest.approx(59 / 60)
    assert told["baselines"]["tfidf"]["micro_f1"] > 0.8
    assert told["baselines"]["majority"]["difference"]["value"] > 0
    assert [row["row"] for row in told["mistakes"]] == [7]
    assert {row["row"] for row in told["errors"]["ranked"]} == {7}


def test_numbers(tokenizer: Tokenizer) -> None:
    made = texts(80)
    examples = [
        Example(
            (one, one[3:] + "呢" if place % 2 else made[(place + 7) % 80][0]), str(4.0 * (place % 2) + place % 3), place
        )
        for place, (one, _) in enumerate(made)
    ]
    task = pair.Items(examples, pair_spec.VALUE, tokenizer, pair_spec.Config(answer="number", center=2.0, scale=2.0))
    said = (task.gold - 2) / 2
    said[4] += 3
    told = reported("pair", task, examples, list(said[:, None]), examples)
    assert 0.7 < told["baselines"]["tfidf"]["pearson"] < 1
    assert told["baselines"]["tfidf"]["difference"]["measure"] == "pearson"
    assert told["baselines"]["tfidf"]["difference"]["value"] == pytest.approx(
        told["pearson"] - told["baselines"]["tfidf"]["pearson"]
    )
    assert told["mistakes"][0]["row"] == 4
    assert told["mistakes"][0]["score"] == pytest.approx(6, abs=1e-4)


def spans(task: tag.Items, examples: list[Example]) -> Any:
    """Token scores that say these examples' spans, nearly for sure."""
    given = tag_spec.items(examples, task.labels, task.tokenizer, task.config)
    edges = given.pieces.boundaries
    scores = np.eye(len(task.labels))[given.gold] * 12
    return [scores[edges[place] : edges[place + 1]] for place in range(len(examples))]


def test_spans(tokenizer: Tokenizer) -> None:
    def example(name: str, place: int, marked: bool = True) -> Example:
        text = f"昨天{name}来到河边看见了{texts(60)[place][0]}"
        return Example((text,), (Span(2, 2 + len(name), "PER"),) if marked else (), place, "ner.txt", place * 9 + 1)

    train = [example(("王小明", "李雷")[place % 2], place) for place in range(20)]
    gold = [example(("王小明", "赵红")[place % 2], place + 20, marked=place != 4) for place in range(20)]
    said = [example(("王小明", "赵红")[place % 2], place + 20, marked=place != 5) for place in range(20)]
    task = tag_spec.items(gold, ("O", "B-PER", "I-PER"), tokenizer, tag_spec.Config())
    told = reported("tag", task, gold, spans(task, said), train)
    assert told["baselines"]["dictionary"]["recall"] == pytest.approx(9 / 19)  # every other name was never seen
    assert told["baselines"]["dictionary"]["difference"]["value"] > 0.2
    assert [(row["row"], row["what"]) for row in told["mistakes"]] == [(4, "invented"), (5, "missing")]
    assert "【王小明】" in told["mistakes"][0]["text"]
    assert [row["row"] for row in told["errors"]["ranked"]] == [4]
    assert told["errors"]["ranked"][0]["line"] == gold[4].line
    assert told["leaks"]["num"] == 0


def test_answers(tokenizer: Tokenizer, tiny_folder: Path, tmp_path: Path) -> None:
    def asked(place: int) -> Example:
        name = "甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳"[place]
        passage = f"{texts(40)[place][0]}。灯塔是{name}工匠建成的。{texts(40)[place + 1][0]}。"
        answer = Answer(f"{name}工匠", passage.index(name))
        return Example((f"{name}灯塔是谁建成的？", passage), (answer,), place, "q.json", 0)

    data = [asked(place) for place in range(16)]
    settings = ["machine.threads=1", "task.max_length=64", "task.overlap=16", "train.steps=2"]
    done = finetune("answer", data[:8], tiny_folder, tmp_path, dev=data[8:], settings=settings, quiet=True)
    told = done.report["evaluations"]["dev"]
    assert told["baselines"]["tfidf"]["f1"] > 0.2  # the sentence has the answer in it
    assert told["baselines"]["tfidf"]["exact"] == 0
    assert told["leaks"]["num"] == 0
    assert told["mistakes"]
    assert all(row["f1"] < 1 for row in told["mistakes"])


@pytest.mark.slow
def test_relations(tokenizer: Tokenizer) -> None:
    def example(place: int, label: str, other: str = "李雷") -> Example:
        text = f"王芳{'嫁给了' if label == 'wed' else '教过'}{other}，{texts(60)[place][0]}"
        start = text.index(other)
        return Example((text,), Relation(Span(0, 2), Span(start, start + 2), label), place, "re.tsv", place + 1)

    train = [example(place, ("wed", "taught")[place % 2]) for place in range(40)]
    examples = [example(place, ("wed", "taught")[place % 2], "赵红") for place in range(40)]
    task = relation.Items(examples, ("taught", "wed"), tokenizer, relation_spec.Config(max_length=64))
    told = reported("relation", task, examples, raw_of(task, {2: 1.0}), train)
    assert told["baselines"]["tfidf"]["accuracy"] == 1.0
    assert told["leaks"]["num"] == 0  # the text is near, but another person stands in it
    assert told["mistakes"][0]["text"].startswith("王芳 ‖ 赵红 ‖ 王芳")


def test_choices(tokenizer: Tokenizer) -> None:
    examples = [
        Example(
            (f"{texts(40)[place][0]}，后来下起了大雪", "后来怎样？", "出了太阳", "下起了大雪", *["刮风"] * (place % 2)),
            1,
            place,
        )
        for place in range(20)
    ]
    task = choose.Items(examples, (), tokenizer, choose_spec.Config(max_length=64))
    raw = [np.array([0.0, 4.0, *[1.0] * (place % 2)]) for place in range(20)]
    raw[6] = np.array([3.0, 0.0])
    told = reported("choose", task, examples, raw, labelled(4))
    assert told["accuracy"] == 19 / 20
    assert told["baselines"]["tfidf"]["accuracy"] == 1.0
    assert told["baselines"]["majority"]["accuracy"] == 1.0
    assert [(row["row"], row["gold"], row["said"]) for row in told["mistakes"]] == [(6, "下起了大雪", "出了太阳")]
    assert told["calibration"]["temperature"] > 0
    assert [row["row"] for row in told["errors"]["ranked"]] == [6]


def test_vectors_have_their_metrics_and_leaks(tiny_folder: Path, tmp_path: Path) -> None:
    data = [Example((text, text[1:] + "啊"), None, place) for place, (text, _) in enumerate(texts(24))]
    settings = ["machine.threads=1", "train.steps=2"]
    done = finetune("embed", data[:16], tiny_folder, tmp_path, dev=data[12:], settings=settings, quiet=True)
    told = done.report["evaluations"]["dev"]
    assert told["intervals"]
    assert told["leaks"]["num"] == 4
    assert set(told["leaks"]["without"]) >= set(told["intervals"])
    assert told["measure"] == next(iter(told["intervals"]))  # nothing stands beside it but its own metrics
    assert told["baselines"] == {}


# The page -------------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_nothing_in_it_is_markup(tokenizer: Tokenizer, tmp_path: Path) -> None:
    names = ("<b>火</b>", "a&b\x00")
    examples = [Example((f"<script>alert({place})</script> {text}\ud800",), names[side], place, "x<y>.tsv", place + 1)
                for place, (text, side) in enumerate(texts(30))]  # fmt: skip
    task = classify.Items(examples, names, tokenizer, classify_spec.Config())
    wrong = dict.fromkeys(range(8), 1.0)
    told = honest.report("classify", {"dev": honest.Measured(task, examples, raw_of(task, wrong))}, examples)
    honest.write(tmp_path / "new" / "folder", told)
    path = page.write(tmp_path / "new" / "folder", "标题 <i>", told)
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "http://" not in text.replace("http-equiv", "")
    assert "https://" not in text
    assert "&lt;script&gt;alert(0)" in text
    for heading in (
        "Evaluation: dev",
        "Beside simple models",
        "What was called what",
        "Worst mistakes",
        "Training data",
    ):
        assert heading in text
    body = text[text.index("<body>") : text.index("</html>")].replace(" class=number", "")
    ElementTree.fromstring(body)  # every tag is closed
    assert json.loads((path.parent / "report.json").read_text(encoding="utf-8"))["format"] == honest.FORMAT


def test_long_lists_are_cut_and_say_so(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = labelled(60)
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config())
    monkeypatch.setattr(honest, "NUM_TEXTS", 5)
    told = honest.report(
        "classify", {"dev": honest.Measured(task, examples, raw_of(task, dict.fromkeys(range(60), 1.0)))}
    )
    found = told["evaluations"]["dev"]
    assert found["errors"]["num"] == len(found["errors"]["ranked"]) == 60
    assert sum("text" in row for row in found["errors"]["ranked"]) == 5
    assert "And 55 more, in report.json" in "".join(page.sections(told))
    many = tuple(f"l{place}" for place in range(30))
    wide = [Example((text,), many[place % 30], place) for place, (text, _) in enumerate(texts(60))]
    task = classify.Items(wide, many, tokenizer, classify_spec.Config())
    told = honest.report("classify", {"dev": honest.Measured(task, wide, raw_of(task, {0: 1.0, 1: 1.0}))})
    assert "right ↓" not in "".join(page.sections(told))  # of many labels only what is confused
