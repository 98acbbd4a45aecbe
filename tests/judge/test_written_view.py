"""The honest evaluation of written texts: the first sentence or a copy beside the model, and the worst texts shown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from filbert.core import registry
from filbert.core.records import Example
from filbert.judge import page
from filbert.judge import report as honest
from filbert.tasks.summarize.view import Summaries
from filbert.tasks.translate.view import Texts
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
TASKS = ("translate", "summarize", "chat")
PAIRS = [
    ("今天天气很好。我们去公园。", "今天去公园。"),
    ("她是医生。她明天不用去医院。", "她明天不去医院。"),
    ("火车十点到。票价五块。", "火车票价五块。"),
    ("我喜欢喝茶。他也喜欢。", "我喜欢喝茶。"),
]


def judged(tokenizer: Tokenizer, name: str, said: list[str], train: Any = None) -> tuple[dict[str, Any], Any]:
    """The report of a model that wrote this, and its view."""
    examples = [Example((one,), two, at, "pairs.tsv", at + 1) for at, (one, two) in enumerate(PAIRS)]
    spec = registry.task(name)
    task = spec.items(examples, (), tokenizer, spec.config(max_length=48))
    written = [tuple(tokenizer.pieces([text]).ids.tolist()) for text in said]
    raw = [[(ids, math.log(0.5) * (len(ids) + 1), True)] for ids in written]
    told = honest.report(name, {"test": honest.Measured(task, examples, raw)}, train)
    return told, spec.view(task, raw, told["evaluations"]["test"])


@pytest.mark.parametrize("name", TASKS)
def test_a_simple_text_stands_beside_what_was_written(tokenizer: Tokenizer, name: str) -> None:
    """Of a summary the first sentence, as its own measures have it; else the source."""
    told, view = judged(tokenizer, name, [target for _, target in PAIRS], train=[])
    found = told["evaluations"]["test"]
    simple = found["baselines"]["lead" if name == "summarize" else "copy"]
    assert type(view) is (Summaries if name == "summarize" else Texts)
    assert not found["mistakes"]
    assert simple["difference"]["value"] == pytest.approx(1 - simple["rouge_l"])
    if name == "summarize":
        assert simple["rouge_l"] == found["lead_rouge_l"]
        assert "first sentence" in simple["sentence"]
    else:
        assert "the source as it is" in simple["sentence"]
    assert "bleu" not in found or simple["bleu"] < found["bleu"]


def test_the_worst_texts_come_first_with_what_was_right(tokenizer: Tokenizer) -> None:
    """Sorted by what they share with the right text; those that are right are left out."""
    told, _ = judged(tokenizer, "chat", [PAIRS[0][1], "好", "火车五块。", PAIRS[3][1]])
    wrong = told["evaluations"]["test"]["mistakes"]
    assert [(row["line"], row["said"], row["gold"]) for row in wrong] == [
        (2, "好", PAIRS[1][1]),
        (3, "火车五块。", PAIRS[2][1]),
    ]
    assert wrong[0]["f1"] == 0 < wrong[1]["f1"] < 1
    assert wrong[0]["score"] == pytest.approx(0.5)
    shown = "".join(page.sections(told))
    assert "Worst mistakes" in shown
    assert PAIRS[1][0] in shown
    assert "火车五块。" in shown
