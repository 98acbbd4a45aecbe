"""Abstracts and their titles in; what titles are made of, and what writing down a part of the abstract scores, out.

    python benchmarks/leads.py [--data DIR] [--part dev]

ROUGE-L of the first sentence, of the first characters and of the best clause (which nobody can know): what a writer has
to beat, and how far copying could take it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from filbert.tasks.summarize.items import _first
from filbert.tasks.translate import measure as generation
from writing_sets import SHARED, _columns, central

SIZES = (15, 20, 25, 30, 40, 60)  # characters
CLAUSES = re.compile("[，。；：、,;:]")


def rouge_l(said: Sequence[str], gold: Sequence[str]) -> float:
    """The mean over all rows."""
    return float(generation.rouge(said, gold)["rouge_l"].mean())


def best_clause(text: str, title: str) -> float:
    """ROUGE-L of the clause that is nearest to the title."""
    clauses = [clause for clause in CLAUSES.split(text) if clause]
    return float(generation.rouge(clauses, [title] * len(clauses))["rouge_l"].max()) if clauses else 0.0


def main() -> None:
    """Prints all of it."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path, default=SHARED, help="where the sets lie")
    words.add_argument("--part", choices=("test", "dev"), default="test")
    given = words.parse_args()
    pairs = _columns(given.data / f"sum_csl/ts/{given.part}.tsv.xz", 2, 3)
    texts, titles = [pair.texts[0] for pair in pairs], [str(pair.gold) for pair in pairs]
    firsts = [_first(text) for text in texts]
    held = fmean(fmean(char in text for char in title) for text, title in zip(texts, titles, strict=True))
    print(f"{len(pairs)} rows; characters: titles {fmean(map(len, titles)):.1f}, firsts {fmean(map(len, firsts)):.1f}")
    print(f"of a title's characters in the abstract: {held:.3f}; first sentence: {rouge_l(firsts, titles):.3f}")
    for size in SIZES:
        print(f"first {size} characters: {rouge_l([text[:size] for text in texts], titles):.3f}")
    print(f"central clause: {rouge_l([central(text) or text[: SIZES[2]] for text in texts], titles):.3f}")
    print(f"best clause: {fmean(map(best_clause, texts, titles)):.3f}")


if __name__ == "__main__":
    main()
