"""A task's name in; eight examples of it as the lines of a file, and what is true of them, out.

A task from outside takes part where the module of its items offers SAMPLE, the fields of a `Sample` as a mapping.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from filbert.core import registry
from filbert.core.records import Example
from filbert.forms.datasets import file_examples
from filbert.tasks.task import Json, Trait
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS

TWICE = "removed, for the same text and label stand before"
EMPTY = "removed, for a text is empty"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Eight examples of a task, and what is true of them."""

    rows: tuple[Json, ...]  # lines of a file of JSON objects
    settings: Mapping[str, str | int | float] = field(default_factory=dict)  # fields of its config that are not usual
    perfect: Mapping[str, float] = field(default_factory=dict)  # what `evaluated` says where all is right
    steps: int = 40  # in which a tiny model learns them by heart
    rate: float = 5e-3
    fault: Json  # a ninth row with a fault that the doctor repairs …
    repair: str  # … by doing this …
    repaired: Json | None = None  # … which makes it this; None: the row goes


def _answer(text: str, question: str, found: str, at: int | None = None) -> Json:
    place = text.index(found) if at is None else at
    return {"question": question, "context": text, "answers": {"text": [found], "answer_start": [place]}}


def _tagged(text: str, **spans: str) -> Json:
    """Spans by their labels."""
    places = [(text.index(found), found, label) for label, found in spans.items()]
    entities = [{"start": at, "end": at + len(found), "label": label} for at, found, label in sorted(places)]
    return {"text": text, "entities": entities}


def _related(text: str, head: str, tail: str, label: str) -> Json:
    mentions = {
        side: {"start": text.index(word), "end": text.index(word) + len(word)}
        for side, word in (("head", head), ("tail", tail))
    }
    return {"text": text, **mentions, "label": label}


NEWS = (
    ("球队昨晚赢了比赛。", "体育"), ("股市今天大涨。", "财经"),
    ("他跑完了马拉松！", "体育"), ("银行下调利率。", "财经"),
    ("The team won the cup.", "体育"), ("公司公布了财报。", "财经"),
    ("女排夺得冠军。", "体育"), ("油价又上涨了。", "财经"),
)  # fmt: skip
PAIRS = (
    ("今天天气很好。", "今日天气不错。", "同"), ("他去北京。", "她在上海。", "异"), ("我饿了。", "我想吃饭。", "同"),
    ("火车晚点了。", "苹果很甜。", "异"), ("It is late.", "已经很晚了。", "同"), ("猫在睡觉。", "银行关门。", "异"),
    ("请关上门。", "把门关上。", "同"), ("水开了。", "书丢了。", "异"),
)  # fmt: skip
SPANS = (
    _tagged("李雷在北京上学。", PER="李雷", LOC="北京"), _tagged("上海下雨了。", LOC="上海"), _tagged("今天没有新闻。"),
    _tagged("韩梅梅去了广州。", PER="韩梅梅", LOC="广州"), _tagged("Tom lives in London.", PER="Tom", LOC="London"),
    _tagged("王芳回到南京。", PER="王芳", LOC="南京"), _tagged("我们见到了赵强。", PER="赵强"), _tagged("天黑了。"),
)  # fmt: skip
RELATIONS = (
    _related("李雷是韩梅梅的丈夫。", "李雷", "韩梅梅", "夫妻"), _related("王芳是王强的女儿。", "王芳", "王强", "亲子"),
    _related("赵强和孙丽结婚了。", "赵强", "孙丽", "夫妻"), _related("周明的父亲是周刚。", "周明", "周刚", "亲子"),
    _related("他俩是吴军与郑洁夫妇。", "吴军", "郑洁", "夫妻"), _related("小红是陈静的孩子。", "小红", "陈静", "亲子"),
    _related("Tom married Ann.", "Tom", "Ann", "夫妻"), _related("刘洋生了刘乐。", "刘洋", "刘乐", "亲子"),
)  # fmt: skip
ANSWERS = (
    _answer("李雷在北京上学。", "谁在上学？", "李雷"), _answer("李雷在北京上学。", "在哪里？", "北京"),
    _answer("球队赢了三场。", "赢了几场？", "三场"), _answer("会议八点开始。", "几点开始？", "八点"),
    _answer("Tom lives in London.", "Tom 住哪里？", "London"), _answer("苹果是红色的。", "什么颜色？", "红色"),
    _answer("她买了一本书。", "买了什么？", "一本书"), _answer("明天下雨。", "什么时候下雨？", "明天"),
)  # fmt: skip
CHOICES = (
    ("天黑了，他开了灯。", "为什么开灯？", ("天黑了", "他饿了"), 0),
    ("她带了伞。", "天气怎样？", ("晴天", "下雨", "刮风"), 1),
    ("火车晚点。", "他会怎样？", ("早到", "迟到"), 1), ("水烧开了。", "水怎样？", ("很烫", "结冰"), 0),
    ("He is ill.", "他去哪里？", ("医院", "公园", "学校"), 0), ("猫饿了。", "猫要什么？", ("书", "鱼"), 1),
    ("门锁上了。", "能进去吗？", ("能", "不能"), 1), ("今天放假。", "要上班吗？", ("不用", "要"), 0),
)  # fmt: skip
WRITTEN = (
    ("你好。", "您好。"), ("再见。", "慢走。"), ("谢谢你。", "不客气。"), ("天气如何？", "今天下雨。"),
    ("你是谁？", "我是学生。"), ("几点了？", "八点了。"), ("Good morning.", "早上好。"), ("吃饭了吗？", "还没有。"),
)  # fmt: skip

_CLASSES: tuple[Json, ...] = tuple({"text": text, "label": label} for text, label in NEWS)
_TWO: tuple[Json, ...] = tuple({"first": one, "second": two, "label": label} for one, two, label in PAIRS)
_TEXTS: tuple[Json, ...] = tuple({"source": source, "target": target} for source, target in WRITTEN)
_OPTIONS: tuple[Json, ...] = tuple(
    {"context": text, "question": question, "options": list(options), "label": label}
    for text, question, options, label in CHOICES
)
_LABEL_FAULT: Json = {"text": "游泳队拿了金牌。", "label": " 体育 "}
_LABEL_MENDED: Json = {"text": "游泳队拿了金牌。", "label": "体育"}
_STRIPPED = "white space around the label removed"
_WRITER = Sample(
    rows=_TEXTS,
    settings={"max_length": 32, "beam": 2, "max_new": 12, "label_smoothing": 0.0},
    perfect={"rouge_l": 1.0},
    steps=90,
    rate=1e-2,
    fault=_TEXTS[0],
    repair=TWICE,
)

SAMPLES: Mapping[str, Sample] = {
    "classify": Sample(
        rows=_CLASSES,
        settings={"max_length": 32, "overlap": 8, "pool": "cls"},
        perfect={"accuracy": 1.0},
        fault=_LABEL_FAULT,
        repair=_STRIPPED,
        repaired=_LABEL_MENDED,
    ),
    "pair": Sample(
        rows=_TWO,
        settings={"max_length": 32, "overlap": 8},
        perfect={"accuracy": 1.0},
        fault={**_TWO[0], "second": " "},
        repair=EMPTY,
    ),
    "tag": Sample(
        rows=SPANS,
        settings={"max_length": 32, "overlap": 8, "decoder": "crf"},
        perfect={"f1": 1.0},
        fault={"text": "孙丽 来自天津。", "entities": [{"start": 0, "end": 3, "label": "PER"}]},
        repair="white space",
        repaired={"text": "孙丽 来自天津。", "entities": [{"start": 0, "end": 2, "label": "PER"}]},
    ),
    "relation": Sample(
        rows=RELATIONS, settings={"max_length": 48}, perfect={"accuracy": 1.0}, fault=RELATIONS[3], repair=TWICE
    ),
    "answer": Sample(
        rows=ANSWERS,
        settings={"max_length": 48, "overlap": 8, "longest": 8},
        perfect={"exact": 1.0, "f1": 1.0},
        fault=_answer("他住在杭州。", "住哪里？", "杭州", at=2),
        repair="answer_start corrected",
        repaired=_answer("他住在杭州。", "住哪里？", "杭州"),
    ),
    "choose": Sample(
        rows=_OPTIONS,
        settings={"max_length": 48, "overlap": 8},
        perfect={"accuracy": 1.0},
        fault=_OPTIONS[2],
        repair=TWICE,
    ),
    "embed": Sample(
        rows=tuple({**row, "label": float(row["label"] == "同")} for row in _TWO),
        settings={"max_length": 32},
        perfect={"auc": 1.0, "accuracy": 1.0},
        fault={"first": "雪停了。", "second": "", "label": 0.0},
        repair=EMPTY,
    ),
    "blank": Sample(
        rows=_CLASSES,
        settings={
            "max_length": 48,
            "overlap": 8,
            "template": "[MASK]闻：{text}",
            "words": "体育=体,财经=财",
            "prior": "none",
        },
        perfect={"accuracy": 1.0},
        fault=_LABEL_FAULT,
        repair=_STRIPPED,
        repaired=_LABEL_MENDED,
    ),
    "nsp": Sample(rows=_TWO, fault={**_TWO[0], "second": " "}, repair=EMPTY),
    "translate": replace(_WRITER, perfect={"rouge_l": 1.0, "bleu": 100.0, "chrf": 100.0}),
    "summarize": _WRITER,
    "chat": _WRITER,
}


def sample(task: str) -> Sample | None:
    """That of a task; of one from outside what the module of its items offers as SAMPLE, or none."""
    if task in SAMPLES:
        return SAMPLES[task]
    offered = vars(sys.modules[registry.task(task).items.__module__]).get("SAMPLE")
    return None if offered is None else Sample(**offered)


def sampled() -> list[object]:
    """Every task that is asked about examples, to be tried one by one; those without a sample are passed over."""
    return [
        name if sample(name) is not None else pytest.param(name, marks=pytest.mark.skip(f"{name} offers no SAMPLE"))
        for name in registry.tasks()
    ]


def written(path: Path, *rows: Json) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, task: str) -> list[Example]:
    """The examples of a file for a task."""
    return list(file_examples(path, registry.files(task), None, Reading()))


def examples(task: str, folder: Path) -> list[Example]:
    """The eight examples of a task, read from a file of them in that folder."""
    chosen = sample(task)
    assert chosen is not None
    return read(written(folder / f"{task}.jsonl", *chosen.rows), task)


@cache
def tokenizer() -> Tokenizer:
    """A vocabulary of every character of all samples, and of Latin letters inside words."""
    characters = sorted({char for name in registry.tasks() for char in _characters(sample(name)) if char.strip()})
    letters = sorted({char.lower() for char in characters if char.isascii() and char.isalpha()})
    alone = dict.fromkeys(char.lower() for char in characters)
    return Tokenizer([*SPECIALS, *alone, *(f"##{letter}" for letter in letters)])


def _characters(chosen: Sample | None) -> Iterator[str]:
    if chosen is not None:
        yield from json.dumps([*chosen.rows, dict(chosen.settings)], ensure_ascii=False)


def learning() -> list[str]:
    """The tasks that can be fine-tuned."""
    return list(registry.tasks(only_learnt=True))


def writes(task: str) -> bool:
    """Whether its answers are texts that a decoder writes."""
    return Trait.WRITES in registry.task(task).traits
