"""A number in, made-up Chinese and English data out: the rows of the goldens beside this file, always the same.

A row is (texts, gold) in plain Python: a label, a list of labels, a number, spans as (start, end, label), answers as
(text, start), a relation as (head, tail, label). house_doors makes of it what the code takes.
"""

from __future__ import annotations

from typing import Any

Row = tuple[tuple[str, ...], Any]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ZH = ("我们坐火车去公园，今天天气很好。", "医生说多喝水。", "球队赢了比赛！", "他打了一个电话。", "感冒了要休息。")
EN = ("the team won the game.", "a doctor said: drink water!", "we go to the park by train.", "is it going to rain?")
WORDS = (
    "the",
    "team",
    "won",
    "game",
    "doctor",
    "said",
    "drink",
    "water",
    "we",
    "go",
    "to",
    "park",
    "by",
    "train",
    "is",
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = (1, 2, 1, 3, 1, 9, 0, 2, 1, 4, 1, 2, 14, 1, 3, 1, 2, 1, 5, 1, 2, 1)  # sentences; nothing, and several windows
KINDS = ("sport", "health", "旅行")
NAMES = ("医生", "公园", "火车", "球队", "doctor")


def tokens() -> list[str]:
    """A vocabulary: special tokens, signs, digits, letters, pieces, some words, and the characters of these texts."""
    signs = sorted({*"，。！？：《》（）.,!?:()[]@#*^-+'\"", *"0123456789"})
    characters = "".join((*ZH, "第个是什么《》和很好在说的一二三四五六七八九十旅行医生公园火车球队不"))
    han = sorted({char for char in characters if "\u4e00" <= char <= "\u9fff"})
    return [*SPECIAL, *signs, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS, *han]


def text(number: int, size: int) -> str:
    """So many sentences, by turns of both languages, which follow from the number alone."""
    sentences = [(ZH, EN)[(number + at) % 2][(number * 3 + at * at) % 4] for at in range(size)]
    return "".join(f"{one} " if one.isascii() else one for one in sentences).strip()


def texts(count: int = len(SIZES)) -> list[str]:
    """One after another: most short, some of several windows, one empty."""
    return [text(number, SIZES[number % len(SIZES)]) for number in range(count)]


def labelled(count: int = len(SIZES)) -> list[Row]:
    """Each with one label, which its first sentence says, but one, whose label is not known."""
    golds = [KINDS[number * 3 % 4 % 3] for number in range(count)]
    return [((one,), None if at == 10 else golds[at]) for at, one in enumerate(texts(count))]


def many_labelled(count: int = len(SIZES)) -> list[Row]:
    """Each with none, one or several."""
    return [((one,), [kind for at, kind in enumerate(KINDS) if number * 5 >> at & 1]) for number, one in
            enumerate(texts(count))]  # fmt: skip


def pairs(count: int = len(SIZES)) -> list[tuple[str, str]]:
    """Two texts each, either of which may be long or empty."""
    return list(zip(texts(count), [text(number + 3, SIZES[-1 - number % len(SIZES)]) for number in range(count)],
                    strict=True))  # fmt: skip


def named_pairs(count: int = len(SIZES)) -> list[Row]:
    return [(pair, ("same", "other")[number * 3 % 4 % 2]) for number, pair in enumerate(pairs(count))]


def numbered_pairs(count: int = len(SIZES)) -> list[Row]:
    return [(pair, number % 4 * 0.75) for number, pair in enumerate(pairs(count))]


def spanned(count: int = len(SIZES)) -> list[Row]:
    """Names in brackets: a person in one kind, a place in another; some texts have none, and one says nothing."""
    rows: list[Row] = []
    for number, one in enumerate(texts(count)):
        spans = []
        for at, (kind, (left, right)) in enumerate((("PER", "《》"), ("LOC", "（）"))):
            if one and (number + at) % 3:
                name = NAMES[(number + at) % 5]
                spans.append((len(one) + 1, len(one) + 1 + len(name), kind))
                one += left + name + right
        rows.append(((one,), spans))
    return rows


def related(count: int = len(SIZES)) -> list[Row]:
    """The head stands before the tail, or after it, or a full stop stands between them."""
    rows: list[Row] = []
    for number, (before, between) in enumerate(pairs(count)):
        first, second = NAMES[number % 5], NAMES[(number + 1 + number // 5 % 3) % 5]
        middle = "。" if number % 3 == 2 else "和" + (between if number % 4 == 0 else "")
        one = f"{before}《{first}》{middle}《{second}》很好"
        at = len(before) + 1
        other = len(one) - 3 - len(second)
        places = [(at, at + len(first)), (other, other + len(second))]
        label = "none" if number % 3 == 2 else ("before", "after")[number % 2]
        head, tail = places[:: 1 if number % 2 == 0 else -1]
        rows.append(((one,), (head, tail, label)))
    return rows


def questions(count: int = len(SIZES)) -> list[Row]:
    """The answer stands in brackets; sometimes in one of two places, and sometimes nowhere."""
    rows: list[Row] = []
    for number, (before, after) in enumerate(pairs(count)):
        sign, name = "一二三四五六七八"[number % 8], NAMES[number % 5]
        passage = before + f"第{sign}个是《{name}》。" + after
        answers = [(name, passage.index("《") + 1), *([(sign, passage.index("第") + 1)] if number % 5 == 1 else [])]
        if number % 4 == 3:
            passage, answers = before + after, []
        rows.append(((f"第{sign}个是什么？", passage), answers))
    return rows


def choices(count: int = len(SIZES)) -> list[Row]:
    """Two to four options, of which the passage says one at its end; one option is empty, one question has no gold."""
    rows: list[Row] = []
    for number, before in enumerate(texts(count)):
        options = [NAMES[(number + step) % 5] for step in range(2 + number % 3)]
        gold = number * 7 % len(options)
        passage = f"{before}说的是{options[gold]}"
        options[gold - 1] = "" if number == 8 else options[gold - 1]
        rows.append(((passage, "什么？" if number % 5 else "", *options), None if number == 4 else gold))
    return rows


def written(count: int = len(SIZES)) -> list[Row]:
    """A source and its target; one target is not known."""
    return [((one,), None if number == 10 else text(number + 1, 1 + number % 2)) for number, one in
            enumerate(texts(count))]  # fmt: skip


def dialogues(count: int = len(SIZES)) -> list[Row]:
    """Turns in lines, and what is answered."""
    rows: list[Row] = []
    for number, (one, other) in enumerate(pairs(count)):
        turns = (one, other, "是。"[: number % 3])
        rows.append((("\n".join(filter(None, turns)),), text(number + 2, 1)))
    return rows


def compared(kind: str, count: int = len(SIZES)) -> list[Row]:
    """What vectors are learnt from: texts alone, pairs, triplets, pairs with a label, pairs with a number."""
    both = pairs(count)
    golds = {"labels": lambda number: int(number % 4 == 1), "numbers": lambda number: number % 4 * 0.75}
    if kind in golds:
        return [(pair, golds[kind](number)) for number, pair in enumerate(both)]
    third = [text(number + 7, 1 + number % 2) for number in range(count)]
    size = {"texts": 1, "pairs": 2, "triplets": 3}[kind]
    return [((*pair, worse)[:size], None) for pair, worse in zip(both, third, strict=True)]


def corpus(documents: int = 40) -> str:
    """A file of documents with blank lines between them, a sentence in each line."""
    made = []
    for number in range(documents):
        size = 2 + number * 5 % 7
        # No two are the same: repeated documents are dropped.
        name = "".join(LETTERS[(number * step + step) % 26] for step in (1, 3, 7))
        made.append("\n".join([f"{name} {text(number, 1)}", *(text(number * 2 + at, 1) for at in range(1, size))]))
    return "\n\n".join(made) + "\n"


def record(task: str, texts_: tuple[str, ...], gold: Any) -> dict[str, Any]:
    """A row as a line of JSON that the command line reads; without a gold, where there is none."""
    if task == "tag":
        marked = None if gold is None else [{"start": s, "end": e, "label": label} for s, e, label in gold]
        return {"text": texts_[0], **({} if marked is None else {"entities": marked})}
    if task == "relation":
        head, tail, label = gold
        return {"text": texts_[0], "head": _place(head), "tail": _place(tail), **({"label": label} if label else {})}
    if task == "answer":
        row = {"question": texts_[0], "context": texts_[1]}
        spans = None if gold is None else {"text": [a for a, _ in gold], "answer_start": [at for _, at in gold]}
        return row | ({} if spans is None else {"answers": spans})
    if task == "choose":
        row = {"context": texts_[0], "question": texts_[1], "options": list(texts_[2:])}
        return row | ({} if gold is None else {"label": gold})
    names = {"classify": ("text",), "pair": ("first", "second"), "translate": ("source",)}
    names["embed"] = ("first", "second") if len(texts_) == 2 else ("text", "second", "negative")
    row = dict(zip(names[task], texts_, strict=False))
    return row | ({} if gold is None else {"target" if task == "translate" else "label": gold})


def _place(span: tuple[int, int]) -> dict[str, int]:
    return {"start": span[0], "end": span[1]}
