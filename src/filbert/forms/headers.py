"""The first row of a table and those below it come in; whether it names the columns, surely or perhaps, goes out.

Names that are known are looked for first, in any letter case. Names in any other language are told by their shape: they
are short, stand once, are no numbers, and what lies below them is of another kind: numbers, few values, longer texts.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

# Column names that mean one thing everywhere ("relation" and "answer" are such). Pairs are looked for before single
# texts: text_a alone is a text.
LABEL_NAMES: tuple[str, ...] = (
    *("label", "labels", "gold_label", "class", "category", "target", "sentiment", "quality", "is_duplicate"),
    *("relation", "y", "标签", "类别", "标注", "情感", "情绪", "分类", "极性", "情感极性", "情感倾向", "情感标签"),
)
TEXT_NAMES: tuple[str, ...] = (
    *("text", "sentence", "review", "content", "text_a", "comment", "title", "query", "question", "headline"),
    *("document", "body", "abstract", "news", "tweet", "sms", "message", "文本", "内容", "评论", "标题", "句子"),
    *("评论内容", "文本内容", "微博内容", "正文"),
)
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("text", "text_pair"),
    ("s1", "s2"),
    ("q1", "q2"),
    ("sent1", "sent2"),
    ("question1", "question2"),
    ("query1", "query2"),
    ("premise", "hypothesis"),
    ("first", "second"),
    ("#1 string", "#2 string"),
    ("anchor", "positive"),
    ("query", "title"),
    ("query", "document"),
    ("query", "content"),
    ("question", "sentence"),
)
OTHER_NAMES: tuple[str, ...] = (
    *("id", "idx", "index", "guid", "uid", "pairid", "pair_id", "#1 id", "#2 id", "date", "time", "source", "url"),
    *("genre", "level", "context", "answers", "entities", "head", "tail", "score", "split", "user", "author"),
    *("similarity", "negative", "answer_start", "序号", "编号", "日期", "时间"),
    *("src", "tgt", "translation", "summary", "highlights", "article", "dialogue", "post", "reply", "response"),
    *("原文", "译文", "摘要", "问题", "回答"),
    *("passage", "options", "choices", "answer"),
    *(
        f"{name}{mark}{n}"
        for name in ("ending", "option", "choice")
        for mark in ("", "_", " ")
        for n in "0123456789abcdefgh"
    ),
)
USUAL_NAMES = frozenset({*LABEL_NAMES, *TEXT_NAMES, *OTHER_NAMES, *itertools.chain.from_iterable(PAIR_NAMES)})
TEXTS = frozenset({*TEXT_NAMES, *itertools.chain.from_iterable(PAIR_NAMES)})

# What names of columns are made of, where they are not known as a whole: 评论内容2, user_id, review_text.
_WORDS = frozenset((
    *("id", "text", "label", "title", "date", "time", "name", "content", "comment", "review", "category", "class"),
    *("score", "rating", "sentence", "question", "answer", "user", "source", "topic", "emotion", "sentiment", "body"),
    *("type", "url", "number", "english", "chinese"),
))  # fmt: skip
_PARTS = (
    *("序号", "编号", "日期", "时间", "评论", "内容", "文本", "标题", "标签", "类别", "情感", "分类", "类型", "正文"),
    *("句子", "问题", "答案", "回答", "用户", "评分", "星级", "作者", "来源", "链接", "摘要", "原文", "译文", "名称"),
    *("英文", "中文", "极性", "意图", "领域", "状态"),
)
_MISSING = frozenset(("na", "n/a", "nan", "none", "null", "unknown", "-", "无", "未知"))
_NUMBER = re.compile(r"(?=.*\d)[-+]?[\d\s.,:/%+\-年月日时分秒TZ]+")  # also dates and times
_SENTENCE = re.compile(r"[。！？!?…，,；;“”\"<>]")
LONGEST_NAME, LONGEST_HAN = 40, 12
FEWEST_ROWS, SURE_ROWS = 2, 10  # below the first: to tell it at all, and to doubt it where only labels speak for it
NO, PERHAPS, SURE = range(3)


def has_usual_names(first: Sequence[str]) -> bool:
    """Whether the cells are known names, all of them, or one that is a text and one that is a label."""
    low = {cell.lower() for cell in first}
    return low <= USUAL_NAMES or bool(low & set(LABEL_NAMES) and low & TEXTS)


def looks(first: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """NO, PERHAPS or SURE: whether a first row of unknown names heads the rows below, of which those as wide count."""
    names = [cell.strip() for cell in first]
    below = [row for row in rows if len(row) == len(names)]
    if len(below) < FEWEST_ROWS or len(set(names)) < len(names) or not all(map(_is_name, names)):
        return NO
    columns = [[cell.strip() for cell in column] for column in zip(*below, strict=True)]
    if any(name in column for name, column in zip(names, columns, strict=True)):
        return NO
    if any(map(_holds_numbers, columns)):
        return SURE if len(names) > 1 else NO
    are_longer = [_is_longer(name, column) for name, column in zip(names, columns, strict=True)]
    are_few = [_holds_few(column) for column in columns]
    are_words = [_has_word(name) for name in names]
    if len(names) > 1 and any(are_few) and all(map(any, zip(are_longer, are_few, are_words, strict=True))):
        return SURE
    if all(are_words) and any(are_longer):
        return SURE
    return PERHAPS if len(names) > 1 and any(are_few) and len(below) >= SURE_ROWS else NO


def _is_name(cell: str) -> bool:
    longest = LONGEST_HAN if any(char >= "\u2e80" for char in cell) else LONGEST_NAME
    is_short = len(cell) <= longest and len(cell.split()) <= 4
    is_word = any(map(str.isalpha, cell)) and not _SENTENCE.search(cell) and not _NUMBER.fullmatch(cell)
    return is_short and is_word and cell.lower() not in _MISSING


def _holds_numbers(column: Sequence[str]) -> bool:
    filled = [cell for cell in column if cell and cell.lower() not in _MISSING]
    numbers = sum(_NUMBER.fullmatch(cell) is not None for cell in filled)
    return len(filled) >= FEWEST_ROWS and numbers >= 0.95 * len(filled)


def _holds_few(column: Sequence[str]) -> bool:
    """Whether each value comes again, as labels do."""
    counts = Counter(column)
    return len(column) >= 4 and min(counts.values()) > 1


def _is_longer(name: str, column: Sequence[str]) -> bool:
    """Whether what lies below is as a rule twice as long as the name, and nearly all of it longer."""
    sizes = [len(cell) for cell in column if cell]
    shorter = sum(size <= len(name) for size in sizes)
    return bool(sizes) and median(sizes) >= 2 * len(name) and shorter <= len(sizes) / 20


def _has_word(name: str) -> bool:
    words = re.split(r"[\W_\d]+", name.lower())
    return not _WORDS.isdisjoint(words) or any(part in name for part in _PARTS)
