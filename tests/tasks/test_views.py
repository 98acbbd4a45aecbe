"""What a task's record says of one example, and which view its answers get where it says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from filbert.core import registry
from filbert.core.records import Example, Span
from filbert.metrics import labels
from filbert.tasks.answer.reading import Answer
from filbert.tasks.pair.spec import VALUE
from filbert.tasks.relation.reading import Relation
from filbert.tasks.relation.view import Relations
from filbert.tasks.tag import measure
from filbert.tasks.task import usual_view
from filbert.tasks.view import Labels, View, brief, shown
from filbert.text.tokenizer import Tokenizer

MARRIED = Example(("王芳嫁给了李雷。",), Relation(Span(0, 2), Span(5, 7), "wed"))
ASKED = {
    "classify": Example(("今天",), "火"),
    "tag": Example(("今天",), (Span(0, 1, "A"), Span(1, 2, "B"))),
    "pair": Example(("今天", "昨天"), "0"),
    "answer": Example(("谁", "王芳"), (Answer("王芳", 0),)),
    "choose": Example(("今天", "几", "一", "二", "三"), 2),
    "embed": Example(("今天", "明天", "火车")),
    "relation": MARRIED,
    "translate": Example(("今天",), "today"),
}


@pytest.mark.parametrize("name", ASKED)
def test_predict_takes_back_what_an_example_is(name: str, tokenizer: Tokenizer) -> None:
    from filbert.engine.reader import Reader

    spec = registry.task(name)
    again = Reader(spec, spec.config(), (), tokenizer).examples([spec.unasked(ASKED[name])])[0]
    assert again.texts == ASKED[name].texts
    if name == "relation":
        assert spec.gold_label(again) is None
        assert [(each.start, each.end) for each in (again.gold.head, again.gold.tail)] == [(0, 2), (5, 7)]


def test_names_of_what_is_right() -> None:
    named = {name: registry.task(name).gold_names(example) for name, example in ASKED.items()}
    assert named["classify"] == ("火",)
    assert named["tag"] == ("A", "B")
    assert named["relation"] == ("wed",)
    assert named["embed"] == ()
    assert named["choose"] == ("",)
    assert len(named["answer"]) == 1
    assert registry.task("relation").gold_label(MARRIED) == "wed"
    assert registry.task("classify").gold_label(ASKED["classify"]) == "火"


def made(name: str, examples: list[Example], names: tuple[str, ...], tokenizer: Tokenizer, **config: Any) -> Any:
    spec = registry.task(name)
    return spec.items(examples, names, tokenizer, spec.config(**config))


def test_what_gives_one_label_is_looked_at_as_labels(tokenizer: Tokenizer) -> None:
    examples = [Example(("火炉",), "火"), Example(("水河",), "水")]
    items, raw = made("classify", examples, ("火", "水"), tokenizer), [np.array([1.0, 0.0])] * 2
    report = items.evaluated(raw)
    assert type(usual_view(items, raw, report)) is Labels
    assert type(registry.task("classify").view(items, raw, report)) is Labels
    vectors = made("embed", [Example(("今天", "昨天"), 1), Example(("火", "水"), 0)], (), tokenizer)
    assert type(usual_view(vectors, [], {})) is View
    mentions = made("relation", [MARRIED], ("wed",), tokenizer)
    assert type(registry.task("relation").view(mentions, [np.array([1.0])], {})) is Relations


@pytest.mark.parametrize(("answer", "names"), [("label", ("0", "1")), ("number", VALUE)])
def test_pairs_are_looked_at_by_what_they_give(answer: str, names: tuple[str, ...], tokenizer: Tokenizer) -> None:
    examples = [Example(("今天", "昨天"), "0"), Example(("火", "水"), "1")]
    items = made("pair", examples, names, tokenizer, answer=answer)
    raw = [np.zeros(len(names))] * 2
    view = registry.task("pair").view(items, raw, items.evaluated(raw))
    assert view.measure == ("pearson" if answer == "number" else "accuracy")
    assert view.learns


def test_texts_in_a_list_are_cut_and_mentions_come_first() -> None:
    assert shown(MARRIED, 3, ("王芳", "李雷"))["text"] == "王芳 ‖ 李雷 ‖ 王芳嫁给了李雷。"
    assert len(brief(["长" * 1_000])) == 400
    assert brief(["长" * 1_000, "短"]) == "长" * 199 + "… ‖ 短"


def test_units_of_a_group_are_drawn_together() -> None:
    """The same draws as of spans without any span."""
    counts = np.random.default_rng(0).integers(0, 5, (40, 2)).cumsum(axis=1)
    none = np.zeros((40, 0), dtype=np.int64)
    value, edges = labels.grouped_accuracy(counts, seed=3)
    assert edges == measure.intervals(measure.Table((), none, none, none), counts, seed=3)["accuracy"]
    assert value == measure.accuracy(counts)
    assert labels.grouped_accuracy(counts[:0]) == (0.0, (0.0, 0.0))
