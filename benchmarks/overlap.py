"""Which documents of a corpus hold text of labelled data sets: folders of data and corpora in, a table and lists out.

    .venv/bin/python benchmarks/overlap.py                           the shared data sets against the shared Wikipedia
    .venv/bin/python benchmarks/overlap.py --data DIR --corpus FILE --out DIR --filtered

Writes report.json, and for each corpus excluded-NAME.txt: the places of the documents to drop, counted from 0 in the
order of `filbert.text.corpus.documents`. `--filtered` also writes NAME.txt, the corpus without them.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filbert.core.files import json_text, write_text
from filbert.corpus.overlap import Fingerprints, Hashes, Places, Runs, runs, strings
from filbert.text.corpus import documents

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
NOT_LABELLED = ("wiki", "vocab", "wordsim", "oracle")
CORPORA = ("zh-a", "zh-b", "en-a")
NAME_CHARS = 26


@dataclass(frozen=True, slots=True)
class DataSet:
    """A labelled data set as its runs."""

    name: str
    runs: Runs

    @property
    def num_texts(self) -> int:
        """How many of its strings are long enough to be recognised."""
        return len(np.unique(self.runs.owners))

    def found(self, documents_hit: Places, hashes: Hashes) -> dict[str, int]:
        """How many of its texts, and how many documents, take part in the shared runs."""
        known = np.isin(self.runs.hashes, hashes)
        return {
            "texts": len(np.unique(self.runs.owners[known])),
            "documents": len(np.unique(documents_hit[np.isin(hashes, self.runs.hashes[known])])),
        }


def data_sets(folder: Path) -> list[DataSet]:
    """One for each folder of labelled data, all of its files together."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in NOT_LABELLED)
    return [DataSet(name, runs(strings(folder / name))) for name in names]


def fingerprints(sets: list[DataSet]) -> Fingerprints:
    """All the sets' runs together."""
    columns = ("owners", "hashes", "anchors", "lengths")
    return Fingerprints(Runs(*(np.concatenate([getattr(one.runs, name) for one in sets]) for name in columns)))


def filtered(texts: list[str], dropped: set[int]) -> str:
    """The documents that stay, as the shared corpora have them: a blank line after each."""
    return "".join(f"{text}\n\n" for place, text in enumerate(texts) if place not in dropped)


def measured(corpus: Path, forbidden: Fingerprints, sets: list[DataSet], out: Path, writes: bool) -> dict[str, Any]:
    """What one corpus shares with the sets; writes the list of documents to drop."""
    texts = [document.text for document in documents([str(corpus)], unit="blank")]
    num_bytes = sum(len(text.encode()) for text in texts)
    began = time.process_time()
    hit, hashes = forbidden.matches(texts)
    seconds = time.process_time() - began
    name = corpus.name.partition(".")[0]
    dropped = [int(place) for place in np.unique(hit)]
    write_text(out / f"excluded-{name}.txt", "".join(f"{place}\n" for place in dropped))
    if writes:
        write_text(out / f"{name}.txt", filtered(texts, set(dropped)))
    dropped_bytes = sum(len(texts[place].encode()) for place in dropped)
    return {
        "documents": len(texts),
        "bytes": num_bytes,
        "dropped": len(dropped),
        "dropped_for_long_runs": len(np.unique(hit[np.isin(hashes, forbidden.long)])),
        "dropped_share": round(len(dropped) / len(texts), 5),
        "dropped_bytes_share": round(dropped_bytes / num_bytes, 5),
        "megabytes_per_second": round(num_bytes / 1e6 / seconds, 1),
        "sets": {one.name: one.found(hit, hashes) for one in sets},
    }


def table(report: dict[str, Any]) -> str:
    """The report as lines of text: for each set its texts, then texts found and documents hit in each corpus."""
    corpora = report["corpora"]
    lines = ["data set".ljust(NAME_CHARS) + "   texts" + "".join(f"{name + ' texts/docs':>20}" for name in corpora)]
    for name, num_texts in report["texts"].items():
        found = [corpus["sets"][name] for corpus in corpora.values()]
        cells = [f"{one['texts']:,} / {one['documents']:,}" for one in found]
        lines.append(f"{name[:NAME_CHARS]:<{NAME_CHARS}}{num_texts:>8,}" + "".join(f"{cell:>20}" for cell in cells))
    for name, corpus in corpora.items():
        lines.append(
            f"{name}: {corpus['dropped']:,} of {corpus['documents']:,} documents ({corpus['dropped_share']:.2%}, "
            f"{corpus['dropped_bytes_share']:.2%} of the bytes; {corpus['dropped_for_long_runs']:,} for long runs), "
            f"{corpus['megabytes_per_second']} MB/s"
        )
    return "\n".join(lines)


def main() -> None:
    """Reads the command line, prints the table."""
    parser = argparse.ArgumentParser(description="Which documents hold text of labelled data sets.")
    parser.add_argument("--data", type=Path, default=SHARED, help="a folder with one folder for each data set")
    parser.add_argument(
        "--corpus", type=Path, nargs="+", default=[SHARED / "wiki" / f"{name}.txt.xz" for name in CORPORA]
    )
    parser.add_argument("--out", type=Path, default=Path("scratch/overlap"))
    parser.add_argument("--filtered", action="store_true", help="also write the corpora without the documents hit")
    given = parser.parse_args()
    os.makedirs(given.out, exist_ok=True)
    sets = data_sets(given.data)
    forbidden = fingerprints(sets)
    report: dict[str, Any] = {
        "digest": forbidden.digest,
        "runs": len(forbidden),
        "texts": {one.name: one.num_texts for one in sets},
        "corpora": {},
    }
    for corpus in given.corpus:
        name = corpus.name.partition(".")[0]
        report["corpora"][name] = measured(corpus, forbidden, sets, given.out, given.filtered)
    write_text(given.out / "report.json", json_text(report))
    write_text(given.out / "table.txt", table(report) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
