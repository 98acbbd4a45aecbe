"""Small arrays in; scenes as `infer` makes them, with real-looking Chinese and every kind of view, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.draw.book import packed

Scene = dict[str, Any]
View = dict[str, Any]

CHINESE = "上海博物馆今天开放了新的青铜器展厅，市民排队两小时参观。"
CHINESE_WORDS = ["上海", "博物馆", "今天", "开放", "了", "新", "的", "青铜器", "展厅", "，"]
CHINESE_WORDS += ["市民", "排队", "两", "小时", "参观", "。"]
HOSTILE = '<script>window.ran = 1</script><img src=x onerror="window.ran = 2"> & {{scene}} </script><!-- \u2028'
HEBREW = "שלום עולם, זה טקסט מימין לשמאל."
FAMILY = "一家人👨‍👩‍👧‍👦去看🇨🇳的海👩🏽‍🚀。"


def tokens_of(texts: Sequence[str], words: Sequence[Sequence[str]] | None = None) -> tuple[list[Any], list[Any]]:
    """The tokens (a character each, or a piece of a Latin word) and words of [CLS] text [SEP] (text [SEP])."""
    tokens = [{"text": "[CLS]", "part": -1, "start": 0, "end": 0}]
    grouped = [{**tokens[0], "tokens": [0]}]
    for part, text in enumerate(texts):
        cursor = 0
        for word in words[part] if words else text.split():
            start = text.index(word, cursor)
            cursor = start + len(word)
            pieces = [(at, min(at + 4, cursor)) for at in range(start, cursor, 4)] if word.isascii() else [
                (at, at + 1) for at in range(start, cursor)
            ]  # fmt: skip
            first = len(tokens)
            for number, (begin, end) in enumerate(pieces):
                mark = "##" if number and word.isascii() else ""
                tokens.append({"text": mark + text[begin:end], "part": part, "start": begin, "end": end})
            grouped.append(
                {"text": word, "part": part, "start": start, "end": cursor, "tokens": [*range(first, len(tokens))]}
            )
        tokens.append({"text": "[SEP]", "part": -1, "start": 0, "end": 0})
        grouped.append({**tokens[-1], "tokens": [len(tokens) - 1]})
    return tokens, grouped


def maps(layers: int, heads: int, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Weights [layers, heads, rows, columns] that look like a BERT's: neighbours, [CLS], the diagonal, a blur."""
    rng = np.random.default_rng(seed)
    at, to = np.arange(rows)[:, None], np.arange(columns)[None, :]
    kinds = [-np.abs(at - to + 1) * 1.5, -np.abs(at - to - 1) * 1.5, -np.abs(at - to) * 0.35,
             np.where(to == 0, 3.0, 0.0) + 0 * at, np.where(to == columns - 1, 3.5, 0.0) + 0 * at]  # fmt: skip
    noise = rng.gumbel(size=(layers, heads, 1, columns)).astype(np.float32) * 0.6
    noise = noise + rng.gumbel(size=(1, heads, rows, columns)).astype(np.float32) * 0.5
    chosen = rng.integers(len(kinds), size=(layers, heads))
    scores = np.stack([np.stack([kinds[kind] for kind in row]) for row in chosen]).astype(np.float32) + noise
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: np.ndarray = weights / weights.sum(axis=-1, keepdims=True)
    return shares


def measures(weights: np.ndarray) -> dict[str, Any]:
    """Entropy and distance per head, and an importance."""
    entropy = -(weights * np.log(weights + 1e-9)).sum(-1).mean(-1)
    away = np.abs(np.arange(weights.shape[2])[:, None] - np.arange(weights.shape[3])[None, :])
    distance = (weights * away).sum(-1).mean(-1)
    importance = np.random.default_rng(1).gamma(1.0, 0.1, entropy.shape)
    return {name: np.round(table, 4).tolist() for name, table in
            {"entropy": entropy, "distance": distance, "importance": importance}.items()}  # fmt: skip


def window(texts: Sequence[str], words: Any = None, layers: int = 4, heads: int = 4, seed: int = 0) -> dict[str, Any]:
    """One window of self-attention over all of the texts."""
    tokens, grouped = tokens_of(texts, words)
    weights = maps(layers, heads, len(tokens), len(tokens), seed)
    entry = {"kind": "self", "layers": [*range(layers)], "heads": [*range(heads)], "rows": None, "columns": None,
             "values": packed(weights)}  # fmt: skip
    return {"tokens": tokens, "words": grouped, "attention": [entry], "heads": measures(weights)}


def view(texts: Sequence[str], words: Any = None, **more: Any) -> View:
    """A view of texts that a model read in one window."""
    size = {name: more.pop(name) for name in ("layers", "heads", "seed") if name in more}
    plain = {"model": "builtin", "architecture": "bert", "task": None, "labels": [], "texts": list(texts),
             "windows": [window(texts, words, **size)], "coverage": 1.0, "prediction": None, "explanations": [],
             "blanks": []}  # fmt: skip
    return {**plain, **more}


def scene(*views: View, title: str = "filbert", language: str | None = "en", **more: Any) -> Scene:
    """A scene of one view, or of two side by side."""
    return {"format": 1, "title": title, "language": language, "views": list(views), **more}


def explanation(
    verdict: str = "faithful", target: str = "文化", method: str = "integrated-gradients"
) -> dict[str, Any]:
    """Word by word scores of the Chinese text, with a certificate."""
    scores = [0.05, 0.41, -0.03, 0.08, 0.0, 0.02, 0.0, 0.33, 0.21, 0.0, -0.06, -0.17, -0.02, -0.05, 0.11, 0.0]
    words = [word for word in tokens_of([CHINESE], [CHINESE_WORDS])[1] if word["part"] == 0]
    sentences = {
        "faithful": (
            "Faithful: the score follows these words more closely than 99% of random orders (p = 0.01), "
            "and random words in their place score lower (p = 0.01).",
            "可信：分数随这些词而变，胜过 99% 的随机次序（p = 0.01）；换成随机的词，分数更低（p = 0.01）。",
        ),
        "weak": (
            "Weak: the order of the words beats 91% of random orders, which may be chance (p = 0.09).",
            "偏弱：词的次序胜过 91% 的随机次序，可能是巧合（p = 0.09）。",
        ),
        "random": (
            "No better than random: 43% of random orders of the words do as well (p = 0.43).",
            "不比随机更好：43% 的随机次序效果同样好（p = 0.43）。",
        ),
    }
    return {
        "method": method, "target": target, "value": 2.652, "baseline": -1.378,
        "words": [{**{k: w[k] for k in ("part", "start", "end", "text")}, "score": s}
                  for w, s in zip(words, scores, strict=True)],
        "certificate": {
            "verdict": verdict, "sentence_en": sentences[verdict][0], "sentence_zh": sentences[verdict][1],
            "numbers": {"words": 16.0, "completeness_gap": 0.0031, "lift": 3.82, "lift_random": [-1.2, 1.46],
                        "lift_p": 0.0149, "comprehensiveness": 2.61, "comprehensiveness_random": [0.11, 1.24],
                        "sufficiency": 0.31, "sufficiency_random": [0.92, 2.45], "order_p": 0.0123,
                        "same_over_baselines": 0.91, "agreement_with_occlusion": 0.77},
        },
    }  # fmt: skip


LABELS = {"文化": 0.934, "社会": 0.041, "旅游": 0.016, "教育": 0.006, "体育": 0.003}
PREDICTION = {"label": "文化", "score": 0.934, "scores": LABELS}


def explained(verdict: str = "faithful", **more: Any) -> View:
    """A classifier's view of the Chinese text with two explanations."""
    said = [explanation(verdict), explanation("weak", "文化", "occlusion")]
    given = {"layers": 6, "heads": 8, "task": "classify", "labels": [*LABELS], "prediction": PREDICTION} | more
    return view([CHINESE], [CHINESE_WORDS], explanations=said, **given)


ENTITIES = {
    "spans": [
        {"start": 0, "end": 5, "label": "ORG", "score": 0.973, "part": 0},
        {"start": 0, "end": 2, "label": "LOC", "score": 0.941, "part": 0},
        {"start": 5, "end": 7, "label": "TIME", "score": 0.886, "part": 0},
        {"start": 12, "end": 17, "label": "ORG", "score": 0.412, "part": 0},
    ]
}
CLOZE = "今天[MASK]气很好，我们去[MASK]园散步。"
CLOZE_WORDS = ["今天", "[MASK]", "气", "很", "好", "，", "我们", "去", "[MASK]", "园", "散步", "。"]
FIRST, SECOND = CLOZE.index("[MASK]"), CLOZE.rindex("[MASK]")
SHARES = [{"天": 0.912, "空": 0.031, "脾": 0.012, "运": 0.007}, {"公": 0.731, "花": 0.142, "校": 0.051, "果": 0.021}]
BLANKS = [
    {"start": at, "end": at + 6, "candidates": [{"token": token, "score": share} for token, share in shares.items()]}
    for at, shares in zip((FIRST, SECOND), SHARES, strict=True)
]


def cloze(text: str = CLOZE, blanks: Any = BLANKS, words: Any = CLOZE_WORDS, **more: Any) -> View:
    """A view of a text with blanks."""
    return view([text], [words], blanks=blanks, **more)


def crossed() -> View:
    """A translation's view: the written text looks at the read one."""
    read, written = "我 喜欢 看 海".replace(" ", ""), "I like watching the sea"
    rows = tokens_of([written])[0][1:-1]
    columns = tokens_of([read], [["我", "喜欢", "看", "海"]])[0]
    one = view([read], [["我", "喜欢", "看", "海"]], model="tiny-transformer", architecture="transformer")
    one["windows"][0]["attention"].append(
        {"kind": "cross", "layers": [0, 1], "heads": [0, 1, 2, 3], "rows": [{**row, "part": 1} for row in rows],
         "columns": columns, "values": packed(maps(2, 4, len(rows), len(columns), 5))}
    )  # fmt: skip
    return {**one, "texts": [read, written], "prediction": {"written": written}}


def hierarchy() -> View:
    """A hierarchical network's view: one map over sentences, one over their words; rows of 1 × n."""
    text = "电影很好看。票价太贵。我还会再来。"
    sentences = [(0, 6), (6, 11), (11, 17)]
    cut = [{"text": text[a:b], "part": 0, "start": a, "end": b} for a, b in sentences]
    asks = [{"text": "全文", "part": -1, "start": 0, "end": 0}]
    tokens = [token for token in tokens_of([text], [list(text)])[0] if token["part"] == 0]
    shares = maps(1, 1, len(cut), len(tokens), 3)
    for row, (a, b) in enumerate(sentences):
        inside = np.array([a <= token["start"] < b for token in tokens])
        shares[0, 0, row] = np.where(inside, shares[0, 0, row], 0.0) / shares[0, 0, row][inside].sum()
    one = {"layers": [0], "heads": [0]}
    attention = [
        {
            **one,
            "kind": "sentences",
            "rows": asks,
            "columns": cut,
            "values": packed(np.array([[[[0.62, 0.27, 0.11]]]])),
        },
        {**one, "kind": "words", "rows": cut, "columns": tokens, "values": packed(shares)},
    ]
    made = view([text], [list(text)], model="han", architecture="han")
    made["windows"] = [{"tokens": tokens, "words": [], "attention": attention, "heads": {}}]
    return made


def long(num_tokens: int = 512, layers: int = 12, heads: int = 12) -> View:
    """The largest window there is: so many tokens, one layer of maps to an entry."""
    text = (CHINESE * (num_tokens // len(CHINESE) + 1))[: num_tokens - 2]
    tokens, grouped = tokens_of([text], [list(text)])
    attention, tables = [], []
    for layer in range(layers):
        weights = maps(1, heads, len(tokens), len(tokens), layer)
        tables.append(measures(weights))
        attention.append({"kind": "self", "layers": [layer], "heads": [*range(heads)], "rows": None, "columns": None,
                          "values": packed(weights)})  # fmt: skip
    one = view([text], [list(text)], layers=1, heads=1)
    joined = {name: [table[name][0] for table in tables] for name in tables[0]}
    one["windows"] = [{"tokens": tokens, "words": grouped, "attention": attention, "heads": joined}]
    return one


def windowed(num_chars: int = 20_000, size: int = 256) -> View:
    """A text of so many characters in windows, one layer of two heads each."""
    text = (CHINESE * (num_chars // len(CHINESE) + 1))[:num_chars]
    one = view([text], [[text[:1]]], layers=1, heads=2)
    windows = []
    for number, start in enumerate(range(0, num_chars, size)):
        found = window([text[start : start + size]], [list(text[start : start + size])], 1, 2, number)
        for unit in (*found["tokens"], *found["words"]):
            if unit["part"] == 0:
                unit["start"], unit["end"] = unit["start"] + start, unit["end"] + start
        windows.append(found)
    return {**one, "windows": windows, "coverage": 0.98}
