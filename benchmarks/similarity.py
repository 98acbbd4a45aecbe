"""A model folder and rated pairs of sentences in; how well its plain vectors rank them, beside TF-IDF's, out.

    .venv/bin/python benchmarks/similarity.py --model builtin --data ../shared/data/pair_stsb_zh/sts-b-dev.txt.xz

Mean vectors, cosine, Spearman's correlation; "centred" has the mean of all vectors taken off first.
"""

from __future__ import annotations

import argparse

import numpy as np

import filbert as fb
from filbert.forms.datasets import examples
from filbert.metrics.numbers import spearman
from filbert.pack.pooling import unit_length


def main() -> None:
    """Prints three correlations."""
    words = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    words.add_argument("--model", default="builtin")
    words.add_argument("--data", required=True)
    given = words.parse_args()
    pairs = list(examples(given.data, "pair", {"first": 1, "second": 2, "label": 3}))
    gold = [float(pair.gold) for pair in pairs]
    texts = [pair.texts[side] for side in range(2) for pair in pairs]
    vectors = fb.load(given.model).embed(texts)

    def told(name: str, rows: np.ndarray) -> None:
        first, second = np.split(unit_length(rows), 2)
        print(f"{name:<8} {spearman(gold, (first * second).sum(axis=1)):.3f}")

    print(f"{len(pairs):,} pairs")
    told("raw", vectors)
    told("centred", vectors - vectors.mean(axis=0))
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    first, second = rows[: len(pairs)], rows[len(pairs) :]
    print(f"{'tfidf':<8} {spearman(gold, np.asarray(first.multiply(second).sum(axis=1)).ravel()):.3f}")


if __name__ == "__main__":
    main()
