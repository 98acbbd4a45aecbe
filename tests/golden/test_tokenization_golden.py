"""Awkward texts in, exactly the reference's tokens out: google-research/bert's own output is the oracle."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from filbert.text.tokenizer import Tokenizer


@pytest.mark.slow
@pytest.mark.shared
def test_every_oracle_row(shared: Path) -> None:
    tokenizers: dict[tuple[str, bool], Tokenizer] = {}
    rows = 0
    with lzma.open(shared / "data/oracle/tokenization_vectors.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            key = (row["vocab"], row["lowercase"])
            if key not in tokenizers:
                tokenizers[key] = Tokenizer.load(shared / f"data/vocab/{key[0]}-vocab.txt", lowercase=key[1])
            encoding = tokenizers[key].encode(row["text"])
            assert encoding.tokens[1:-1] == row["tokens_google"], ascii(row["text"])
            assert encoding.ids[1:-1].tolist() == row["ids_google"], ascii(row["text"])
            rows += 1
    assert rows == 947


@pytest.mark.shared
@pytest.mark.parametrize(("name", "size"), [("chinese", 21128), ("uncased", 30522), ("cased", 28996)])
def test_published_vocabularies_load(shared: Path, name: str, size: int) -> None:
    tokenizer = Tokenizer.load(shared / f"data/vocab/bert-base-{name}-vocab.txt")
    assert tokenizer.vocab_size == size
    assert tokenizer.special_ids == (0, 100, 101, 102, 103)


# Text, then the tokens of the published Chinese vocabulary, by the rules of the reference.
CHINESE = [
    ("a\u200bb", ["ab"]),  # a dropped character does not split a word
    ("x\u2028y", ["x", "y"]),  # but a line separator does, by str.split()
    ("x\u0085y", ["x", "##y"]),  # NEL is a control character, so it goes
    ("中\ue000国", ["中", "[UNK]", "国"]),  # private use is kept; the Rust tokenizer drops it
    ("a\u2260b", ["a", "=", "b"]),  # ≠ is punctuation only once its stroke is gone
    ("ＡＢ１", ["ａ", "##ｂ", "##１"]),
    ("don't", ["don", "'", "t"]),
    ("[MASK]", ["[", "ma", "##sk", "]"]),
]


@pytest.mark.shared
@pytest.mark.parametrize(("text", "tokens"), CHINESE)
def test_chosen_cases(shared: Path, text: str, tokens: list[str]) -> None:
    tokenizer = Tokenizer.load(shared / "data/vocab/bert-base-chinese-vocab.txt")
    assert tokenizer.encode(text).tokens == ["[CLS]", *tokens, "[SEP]"]
