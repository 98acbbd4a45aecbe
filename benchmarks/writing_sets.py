"""Shared data in; pairs of texts to learn to write from, with dev and test pairs kept apart, out.

    python benchmarks/writing_sets.py --wiki ../shared/data/wiki/zh-a.txt.xz --out carry/mt/wiki/zh.txt.xz

makes the small extract of Wikipedia that a machine without the whole of it needs: the beginnings of some articles.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.core.records import Example
from filbert.forms.sources import read
from filbert.text.sentences import sentences

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
HELD = 1_000  # pairs of dev and of test, at most, where a set has none of its own
BODY, OPENING = (60, 400), (8, 100)  # fewest and most characters of what is read and of what is written
CENTRAL, CLAUSE = (10, 40), re.compile(r"[^，。；：！？,;:.!?\n]+")
GREETINGS = (
    "你好", "您好", "早上好", "晚上好", "晚安", "再见", "谢谢", "谢谢你", "对不起", "你好吗", "你叫什么名字",
    "好久不见", "很高兴见到你", "欢迎", "生日快乐", "新年快乐", "你是谁", "你在哪里", "你多大了", "我爱你",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """What is learnt from, what says how far learning has come, and what is measured once."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    more: dict[str, list[Example]] = field(default_factory=dict)  # other data to measure on

    def cut(self, rows: int | None) -> Pairs:
        """The first so many of each: a trial."""
        few = max(4, rows // 4) if rows else None
        more = {name: part[:few] for name, part in self.more.items()}
        return Pairs(train=self.train[:rows], dev=self.dev[:few], test=self.test[:few], more=more)


def multi30k(data: Path) -> Pairs:
    """German to English captions of photographs; test_2016_flickr is measured."""
    folder = data / "mt_multi30k"
    files = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
    paths = {part: f"{folder / name}.de.gz,{folder / name}.en.gz" for part, name in files.items()}
    return Pairs(**{part: read("translate", path, {}) for part, path in paths.items()})


def tatoeba(data: Path) -> Pairs:
    """English to Chinese sentences of learners; several translations of one sentence are on the same side."""
    return held_apart(_columns(data / "mt_tatoeba_cmn_eng/cmn.txt.xz", 1, 2))


def ted(data: Path) -> Pairs:
    """English to Chinese lines of talks."""
    return held_apart(_columns(data / "mt_ted_en_zh_20k/parallel_corpus_en_zh.txt.xz", 1, 2))


def summaries(data: Path, learnt_from: str = "openings") -> Pairs:
    """Chinese Wikipedia: the article without its opening sentence, and that sentence; beside it abstracts and titles.

    The opening sentence is left out of what is read, or the first sentence would be right always; so the lead is the
    sentence that follows it. Paragraphs are lines, and articles stand apart by an empty one. learnt_from:
    "openings", or "clauses" (each article's beginning and its central clause), or "both"; dev and test are openings.
    """
    texts = [text for path in sorted((data / "wiki").glob("zh*.txt.xz")) for text in documents(path)]
    pairs = [(text, pair) for text in texts if (pair := opened(text)) is not None]
    found = held_apart([Example((body,), opening, at) for at, (_, (body, opening)) in enumerate(pairs)])
    learnt = [] if learnt_from == "clauses" else [*found.train]
    for example in found.train if learnt_from != "openings" else ():
        beginning = pairs[example.id][0][: BODY[1]]
        clause = central(beginning)
        learnt += [Example((beginning,), clause, example.id)] if clause else []
    more = {f"csl_{part}": _columns(data / f"sum_csl/ts/{part}.tsv.xz", 2, 3) for part in ("dev", "test")}
    return Pairs(train=learnt, dev=found.dev, test=found.test, more=more)


def central(text: str) -> str | None:
    """The clause whose pairs of characters come back most often in the rest of the text (Zhang et al. 2020, §3.1).

    It is what its own words say is in the middle, and nobody has to have written a summary; None: no clause fits.
    """
    counts, best, most = Counter(pairwise(text)), None, -1
    for clause in CLAUSE.findall(text):
        clause = clause.strip()
        if CENTRAL[0] <= len(clause) <= CENTRAL[1]:
            again = sum(counts[pair] - own for pair, own in Counter(pairwise(clause)).items())
            best, most = (clause, again) if again > most else (best, most)
    return best


def subtitles(data: Path) -> Pairs:
    """What is said in films and what is said next; greetings are never learnt from, and are asked beside the test."""
    with lzma.open(data / "dialogue_dgk_subtitles/pairs.tsv.xz", "rt", encoding="utf-8", newline="\n") as lines:
        # One line has a carriage return inside a cell, which ends a line everywhere else: here it becomes a space.
        rows = [line.rstrip("\n").replace("\r", " ").split("\t") for line in lines]
    wanted = {_bare(greeting) for greeting in GREETINGS}
    kept = [(one, two) for one, two in rows if _bare(one) not in wanted]
    found = held_apart([Example((one,), two, at) for at, (one, two) in enumerate(kept)])
    greetings = [Example((greeting,), None, at) for at, greeting in enumerate(GREETINGS)]
    return Pairs(train=found.train, dev=found.dev, test=found.test, more={"greetings": greetings})


SETS: dict[str, Callable[[Path], Pairs]] = {
    "multi30k": multi30k, "tatoeba": tatoeba, "ted": ted, "summarize": summaries, "chat": subtitles,
    "both": partial(summaries, learnt_from="both"), "clauses": partial(summaries, learnt_from="clauses"),
}  # fmt: skip


def _columns(path: Path, source: int, target: int) -> list[Example]:
    return read("translate", str(path), {"columns": {"source": source, "target": target}})


def _bare(text: str) -> str:
    """Its letters alone."""
    return re.sub(r"\W", "", text).lower()


def held_apart(pairs: Iterable[Example]) -> Pairs:
    """By a hash of what is read, its letters alone: a text that comes twice is on one side, whoever draws and when."""
    parts: dict[str, list[Example]] = {"train": [], "dev": [], "test": []}
    all_pairs = list(pairs)
    share = min(0.05, HELD / max(1, len(all_pairs)))
    for pair in all_pairs:
        key = _bare(pair.texts[0]) or pair.texts[0]
        draw = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") / 2**64
        parts["test" if draw < share else "dev" if draw < 2 * share else "train"].append(pair)
    return Pairs(**parts)


# -- Wikipedia ---------------------------------------------------------------------------------------------------------


def documents(path: Path) -> Iterator[str]:
    """Articles: runs of lines between empty ones."""
    held: list[str] = []
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.strip():
                held.append(line.rstrip("\n"))
            elif held:
                yield "\n".join(held)
                held = []
    if held:
        yield "\n".join(held)


def opened(text: str) -> tuple[str, str] | None:
    """(the article after its opening sentence, that sentence); None where either is too short, or no sentence."""
    first, _, rest = text.partition("\n")
    edges = next(iter(sentences(first)), None)
    if edges is None:
        return None
    opening, body = first[: edges[1]].strip(), f"{first[edges[1] :]}\n{rest}".strip()[: BODY[1]].strip()
    fits = OPENING[0] <= len(opening) <= OPENING[1] and len(body) >= BODY[0] and opening[-1] in "。！？"
    return (body, opening) if fits else None


def extract(path: Path, out: Path, chars: int, num: int) -> None:
    """Writes the beginnings of the first so many articles that have an opening sentence: whole paragraphs."""
    taken = 0
    out.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(out, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as target:
        for text in documents(path):
            if taken == num:
                break
            if opened(text) is None:
                continue
            held = ""
            for line in text.split("\n"):
                if held and len(held) + len(line) > chars:
                    break
                held += line + "\n"
            if len(held) <= 2 * chars and opened(held) is not None:
                target.write(held + "\n")
                taken += 1
    print(f"{out}: {taken:,} articles, {out.stat().st_size / 2**20:.1f} MiB")


def main() -> None:
    """Writes the extract."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--wiki", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--chars", type=int, default=450, help="of an article, about")
    words.add_argument("--num", type=int, default=22_000, help="articles")
    given = words.parse_args()
    extract(given.wiki, given.out, given.chars, given.num)


if __name__ == "__main__":
    main()
