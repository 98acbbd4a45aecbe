"""Every task that reads examples says which of its tokens stands in each row of a pack; each is answered for once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from filbert.core import registry
from filbert.core.records import Example, Span
from filbert.pack.lay import Places
from filbert.tasks.relation.reading import Relation
from filbert.tasks.task import AnyItems
from filbert.text.tokenizer import Tokenizer

TEXT = "我们坐火车去公园，今天天气很好。Trains leave early. "
LONG = TEXT * 3
MENTIONS = Relation(Span(3, 5, "head"), Span(6, 8, "tail"), None)
PAIRS = [(TEXT, "a"), ("", "b"), (LONG, TEXT), ("a", LONG)]
TEXTS = [(TEXT,), ("",), (LONG,), ("你好\n再见",)]
# texts of the examples, the head's outputs, and what its config needs
CASES: dict[str, tuple[list[tuple[str, ...]], tuple[str, ...], dict[str, Any]]] = {
    "answer": ([("去哪里？", TEXT), ("谁", ""), ("天气", LONG)], (), {}),
    "blank": (TEXTS, ("好", "坏"), {"template": "很[MASK]：{text}", "words": "好,坏=天气"}),
    "chat": (TEXTS, (), {}),
    "choose": ([(TEXT, "去哪里？", "公园", "火车"), ("", "谁", "a", "b", "c"), (LONG, "q", "天", "气")], (), {}),
    "classify": (TEXTS, ("a", "b"), {}),
    "embed": (PAIRS, (), {}),
    "nsp": (PAIRS, (), {}),
    "pair": (PAIRS, ("a", "b"), {}),
    "relation": ([(TEXT,), (LONG,)], ("a", "b"), {}),
    "summarize": (TEXTS, (), {}),
    "tag": (TEXTS, ("O", "B-x", "I-x"), {}),
    "translate": (TEXTS, (), {}),
}
WIDE, NARROW = 160, 32  # tokens of a window: each text in one, and long ones in several
IN_STRETCHES = ("chat", "summarize", "translate")  # what lies side by side, not in windows that share tokens


def items_of(name: str, max_length: int, tokenizer: Tokenizer) -> AnyItems:
    spec, (texts, labels, fields) = registry.task(name), CASES[name]
    overlap = {"overlap": 8} if "overlap" in spec.config.__dataclass_fields__ else {}
    examples = [Example(each, MENTIONS if name == "relation" else None) for each in texts]
    return spec.items(examples, labels, tokenizer, spec.config(max_length=max_length, **overlap, **fields))


def rows_of(batch: Any) -> Places:
    """The rows of all its sequences, one after another as they were given."""
    edges, starts = np.asarray(batch.packed.boundaries), np.asarray(batch.starts)
    ends = edges[np.searchsorted(edges, starts, side="right")]
    return np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])


def test_there_is_a_case_for_every_task() -> None:
    assert set(CASES) == {*registry.tasks()} - {*registry.outside_tasks()}  # others: test_tasks.py


@pytest.mark.parametrize("max_length", [WIDE, NARROW])
@pytest.mark.parametrize("name", CASES)
def test_every_row_holds_the_token_that_is_its_source(name: str, max_length: int, tokenizer: Tokenizer) -> None:
    items = items_of(name, max_length, tokenizer)
    for which in (np.arange(len(items)), np.arange(len(items))[::-1], np.array([1])):
        sources = items.sources(which)
        for budget in (None, 2_048):  # filled up, where nobody reads what fills it
            batch = items.batch(which, budget)
            ids = batch.packed.ids[rows_of(batch)]
            assert len(ids) == len(sources)
            inside = sources >= 0
            assert np.array_equal(ids[inside], items.tokens[sources[inside]])
            assert np.isin(ids[~inside], [tokenizer.cls_id, tokenizer.sep_id]).all()
        alone = [items.sources(np.array([each])) for each in which]
        assert np.array_equal(sources, np.concatenate(alone))


@pytest.mark.parametrize("max_length", [WIDE, NARROW])
@pytest.mark.parametrize("name", CASES)
def test_every_token_is_answered_for_once(name: str, max_length: int, tokenizer: Tokenizer) -> None:
    """However often windows that overlap read it; a template not at all, a passage once beside every option."""
    items: Any = items_of(name, max_length, tokenizer)
    sources = items.sources(np.arange(len(items)))
    read = np.bincount(sources[sources >= 0], minlength=len(items.tokens))
    first = np.cumsum(items.window_tokens) - items.window_tokens
    answered = np.zeros(len(items.tokens), dtype=np.int64)
    one, two = items.cuts.first, items.cuts.second
    middle = one[:, 1] - one[:, 0] + 1  # in a window, where its first text ends
    answers = (one[:, 2:] - one[:, :1] + 1, two[:, 2:] - two[:, :1] + middle[:, None] + 1)
    for begin, *owned in zip(first, *answers, strict=True):
        for start, end in owned:
            np.add.at(answered, sources[begin + start : begin + end], 1)
    assert (read >= answered).all()
    if name == "blank":  # each sequence has tokens of its own: once for each length of the labels' words
        kinds, tokens = len(items.words.lengths), items.text_tokens[answered == 1]
        assert answered.max() == 1
        assert (np.bincount(tokens) == kinds).all()
        assert len(np.unique(tokens)) == len(tokenizer.pieces([text for (text,) in CASES[name][0]]).ids)
        return
    wanted = np.ones(len(items.tokens), dtype=np.int64)
    if name == "choose":
        passages = [text for text, *_ in CASES[name][0]]
        sizes = np.diff(tokenizer.pieces(passages).boundaries)
        wanted[: sizes.sum()] = np.repeat([len(texts) - 2 for texts in CASES[name][0]], sizes)
    elif name == "relation" and max_length == NARROW:  # of a long text only what stands around the mentions is read
        wanted = read
        assert 0 < (read == 0).sum() < len(read)
    assert answered.tolist() == wanted.tolist()
    overlaps = max_length == NARROW and name not in ("relation", *IN_STRETCHES)
    assert (read > answered).any() == overlaps
