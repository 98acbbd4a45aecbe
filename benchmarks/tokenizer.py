"""Tokenising real text beside the Rust `tokenizers`: a corpus in, CPU seconds, their ratio and differing lines out.

    .venv/bin/python benchmarks/tokenizer.py                       20 MB of Chinese, then of English, of the shared data
    .venv/bin/python benchmarks/tokenizer.py --corpus FILE --vocab vocab.txt

Every round starts with nothing remembered. Both sides give ids and offsets of every token of every line.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer as Rust
from tokenizers import models, normalizers, pre_tokenizers

from filbert.core.files import json_text
from filbert.text.corpus import documents
from filbert.text.tokenizer import Tokenizer

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
PAIRS = (
    ("wiki/zh-a.txt.xz", "vocab/bert-base-chinese-vocab.txt"),
    ("wiki/en-a.txt.xz", "vocab/bert-base-uncased-vocab.txt"),
)
BATCH = 512


def lines(corpus: Path, megabytes: float) -> list[str]:
    """The corpus's lines until they have that many bytes."""
    found, size = [], 0
    for document in documents([str(corpus)], unit="line"):
        found.append(document.text)
        size += len(document.text.encode("utf-8", "replace"))
        if size >= megabytes * 1e6:
            break
    return found


def rust(vocab: Path) -> Rust:
    """The Rust tokenizer as transformers sets it up, with the reference's limit of 200 characters a word."""
    ids = {token: index for index, token in enumerate(Tokenizer.load(vocab).vocabulary)}
    made = Rust(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def batches(texts: list[str]) -> list[list[str]]:
    """The texts in groups, as both sides are fed."""
    rest = iter(texts)
    return list(iter(lambda: list(islice(rest, BATCH)), []))


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def race(corpus: Path, vocab: Path, megabytes: float, rounds: int) -> dict[str, object]:
    """Both in turn, and the lines whose ids differ."""
    groups = batches(lines(corpus, megabytes))
    theirs = rust(vocab)
    spent: dict[str, list[float]] = {"filbert": [], "rust": []}
    for _ in range(rounds):
        ours = Tokenizer.load(vocab)
        spent["filbert"].append(seconds(lambda ours=ours: [ours.pieces(group) for group in groups]))
        spent["rust"].append(
            seconds(lambda: [theirs.encode_batch(group, add_special_tokens=False) for group in groups])
        )
    ours = Tokenizer.load(vocab)
    differing = 0
    for group in groups[:40]:
        for tokens, encoding in zip(
            ours.pieces(group), theirs.encode_batch(group, add_special_tokens=False), strict=True
        ):
            differing += tokens.ids.tolist() != encoding.ids
    ratios = [b / a for a, b in zip(spent["filbert"], spent["rust"], strict=True)]
    return {
        "corpus": corpus.name,
        "lines": sum(map(len, groups)),
        "rust / filbert": round(statistics.median(ratios), 2),
        "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "filbert_s": round(statistics.median(spent["filbert"]), 2),
        "rust_s": round(statistics.median(spent["rust"]), 2),
        "lines compared": sum(map(len, groups[:40])),
        "lines that differ": differing,
    }


def main() -> None:
    """Runs one corpus, or the two shared ones."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--corpus", type=Path)
    words.add_argument("--vocab", type=Path)
    words.add_argument("--megabytes", type=float, default=20)
    words.add_argument("--rounds", type=int, default=3)
    given = words.parse_args()
    pairs = [(given.corpus, given.vocab)] if given.corpus else [(SHARED / c, SHARED / v) for c, v in PAIRS]
    for corpus, vocab in pairs:
        print(json_text(race(corpus, vocab, given.megabytes, given.rounds)), end="")


if __name__ == "__main__":
    main()
