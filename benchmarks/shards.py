"""A corpus to shards beside the Rust `tokenizers`: a slice of text in, MB/s of both, their ratio and peak memory out.

    .venv/bin/python benchmarks/shards.py                          60 MB of the shared Chinese Wikipedia
    .venv/bin/python benchmarks/shards.py --corpus FILE --megabytes 100 --vocab vocab.txt
    .venv/bin/python benchmarks/shards.py --whole                  the compressed file as it lies, ours only

Ours reads the file, drops repeated documents, splits sentences, tokenises, marks words (or not) and writes and syncs
the shards: all of that is timed, the start of its worker processes too. Rust gets the documents ready in memory and
gives ids; reading them is not timed. Both have two cores, in processes of their own, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import timing

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SIDES = ("words", "no words", "rust")
TARGET = 5.0
BATCH = 256  # documents given to Rust together
VOCAB_SIZE = 12_000


def sliced(corpus: Path, megabytes: float, to: Path) -> None:
    """The first documents of the corpus as a plain text file."""
    from filbert.text.corpus import documents

    size = 0
    with to.open("w", encoding="utf-8") as out:
        for document in documents([str(corpus)]):
            size += out.write(document.text + "\n\n") and len(document.text.encode()) + 2
            if size >= megabytes * 1e6:
                return


def vocabulary(corpus: Path, to: Path) -> Path:
    """A vocabulary of the slice itself."""
    from filbert.text.corpus import documents
    from filbert.text.vocab import train

    found = train((document.text for document in documents([str(corpus)])), size=VOCAB_SIZE)
    to.write_text("".join(f"{token}\n" for token in found.tokens), encoding="utf-8")
    return to


def ours(corpus: Path, vocab: Path, folder: Path, words: bool) -> dict[str, float]:
    """One build, its seconds, and the most memory that it and its workers had at once."""
    from filbert.corpus import shards
    from filbert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(vocab)
    peak = Peak()
    start = time.perf_counter()
    made = shards.build([str(corpus)], tokenizer, folder, shards.Options(words=words), workers=2)
    wall_s = time.perf_counter() - start
    return {"wall_s": wall_s, "megabytes": made.report.num_bytes / 1e6, "peak_mb": peak.stopped()}


def rust(corpus: Path, vocab: Path) -> dict[str, float]:
    """One pass of encode_batch over the documents, and its seconds."""
    import tokenizer as race
    from filbert.text.corpus import documents

    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # the other benchmark turns it off
    theirs = race.rust(vocab)
    texts = [document.text for document in documents([str(corpus)])]
    start = time.perf_counter()
    for at in range(0, len(texts), BATCH):
        theirs.encode_batch(texts[at : at + BATCH], add_special_tokens=False)
    return {"wall_s": time.perf_counter() - start, "megabytes": corpus.stat().st_size / 1e6}


class Peak:
    """The greatest sum of resident memory of this process and its children, looked at every 20 ms.

    Pages that processes share are counted once for each, so it is never too low but for what passes between looks.
    """

    def __init__(self) -> None:
        self.peak_kb = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self.over.wait(0.02):
            own = os.getpid()
            children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
            self.peak_kb = max(self.peak_kb, sum(map(_resident_kb, [str(own), *children])))

    def stopped(self) -> float:
        """Megabytes."""
        self.over.set()
        self.thread.join()
        return self.peak_kb / 1000


def _resident_kb(process: str) -> int:
    try:
        rows = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("VmRSS")), 0)


def compared(corpus: Path, vocab: Path, folder: Path) -> tuple[int, int]:
    """Documents whose ids in the shards are Rust's, and all: the shards lie in the corpus's order, held ones aside."""
    import tokenizer as race
    from filbert.corpus import shards
    from filbert.text.corpus import documents

    theirs = race.rust(vocab)
    wanted: dict[bytes, int] = {}
    made = shards.opened(folder)
    for split in (made.train, made.held):
        for shard in split.shards:
            for start, end in zip(shard.documents[:-1], shard.documents[1:], strict=True):
                key = shard.ids[start:end].astype("<u4").tobytes()
                wanted[key] = wanted.get(key, 0) + 1
    same = total = 0
    for document in documents([str(corpus)]):
        ids = theirs.encode(document.text, add_special_tokens=False).ids
        key = b"".join(value.to_bytes(4, "little") for value in ids)
        total += 1
        same += key in wanted
    return same, total


def turn(side: str, corpus: Path, vocab: Path) -> dict[str, float]:
    """One side in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--side", side, "--corpus", corpus, "--vocab", vocab, "--folder", folder]
        environment = {**os.environ, "RAYON_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
        done = subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def race_all(corpus: Path, vocab: Path, rounds: int, sides: tuple[str, ...]) -> None:
    """All sides in turns, and the table."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in timing.rotated(sides, number):
            found[side].append(turn(side, corpus, vocab))
    rows = []
    for side in sides:
        speeds = timing.spread([turned["megabytes"] / turned["wall_s"] for turned in found[side]])
        row = [side if side == "rust" else f"filbert, {side}", speeds.text(1), "", "", ""]
        if side != "rust":
            row[4] = f"{max(turned['peak_mb'] for turned in found[side]):.0f}"
            if "rust" in sides:
                own, peer = ([turned["wall_s"] for turned in found[name]] for name in (side, "rust"))
                ratio = timing.ratios(own, peer)
                row[2:4] = [ratio.text(2), timing.verdict(ratio.median, TARGET)]
        rows.append(row)
    print(timing.table(["", "MB/s", "times rust", f"at least {TARGET:g}", "peak MB"], rows))


def main() -> None:
    """Makes the slice and the vocabulary, races, compares the ids."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--corpus", type=Path, default=SHARED / "wiki" / "zh-a.txt.xz")
    words.add_argument("--vocab", type=Path)
    words.add_argument("--megabytes", type=float, default=60)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--whole", action="store_true")
    words.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    words.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.side:
        is_rust = given.side == "rust"
        work = rust(given.corpus, given.vocab) if is_rust else None
        print(json.dumps(work or ours(given.corpus, given.vocab, given.folder, given.side == "words")))
        return
    print(json.dumps(timing.machine()))
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "slice.txt"
        sliced(given.corpus, given.megabytes, plain)
        vocab = given.vocab or vocabulary(plain, Path(scratch) / "vocab.txt")
        if given.whole:
            race_all(given.corpus, vocab, given.rounds, SIDES[:2])
            return
        race_all(plain, vocab, given.rounds, SIDES)
        ours(plain, vocab, Path(scratch) / "shards", words=False)
        same, total = compared(plain, vocab, Path(scratch) / "shards")
        print(
            f"{same:,} of {total:,} documents have the ids that Rust gives; the others hold characters that Rust treats"
        )
        print("otherwise than BERT's reference does (docs/design.md, 5).")


if __name__ == "__main__":
    main()
