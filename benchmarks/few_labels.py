"""Real labelled sets in; accuracy with 0, 8 and 32 labels of each class out: by blanks, by a head, and by TF-IDF.

    .venv/bin/python benchmarks/few_labels.py --out few.json
    .venv/bin/python benchmarks/few_labels.py --sets headlines --shots 8 --seeds 0 --set task.prior=none --out few.json

Without labels the blanks are asked by each prior (task.prior). With some, `finetune blank` and `finetune classify`
learn from the same rows by their defaults (`--set` is for blanks alone), without dev data: eight labels leave none for
it. Every seed draws other rows; the rows that are asked are always the same, and never among them. FILE.json is written
anew after every result, and what stands in it is not done again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from filbert.core.errors import FilbertError
from filbert.core.files import json_text, write_text
from filbert.core.random import generator
from filbert.core.records import Example
from filbert.forms.datasets import examples, label_table
from filbert.metrics import labels as metrics
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from filbert.tasks.blank.items import PRIORS
from filbert.tasks.classify.items import golds

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
NEWS = "这是一条[MASK]新闻：{text}"


class Set(NamedTuple):
    """A labelled set: its files, which column is what, and how it is asked."""

    train: str
    asked: str  # the same file: the rows to learn from are drawn from those that are not asked
    columns: dict[str, int] | None
    template: str
    words: str


SETS = {
    "headlines": Set(
        "thucnews/train_90k.txt.xz", "thucnews/dev.txt.xz", None, NEWS,
        "0=财经|基金|银行|理财,1=房产|楼盘|房价|住宅,2=股票|股市|股份|证券,3=教育|学校|高考|考试,4=科技|手机|电脑|技术,"
        "5=社会|警方|男子|案件,6=时政|政治|总统|外交,7=体育|比赛|足球|篮球,8=游戏|玩家|网游,9=娱乐|电影|明星|演员",
    ),
    "tnews": Set(
        "tnews/TNEWS_train.csv.xz", "tnews/TNEWS_train.csv.xz", {"text": 2, "label": 3}, NEWS,
        "100=故事|人生|小说,101=文化|艺术|书法|历史,102=娱乐|电影|明星|演员,103=体育|比赛|足球|篮球,104=财经|经济|金融|银行,"
        "106=房产|楼盘|房价,107=汽车|轿车|车型,108=教育|学校|高考|学生,109=科技|手机|电脑|互联,110=军事|军队|武器,"
        "112=旅游|景区|旅行,113=国际|美国|总统|世界,114=股票|股市|证券,115=农业|农民|农村|种植,116=游戏|玩家|网游",
    ),
    "takeaway": Set(
        "sentiment_waimai/waimai_10k.csv.xz", "sentiment_waimai/waimai_10k.csv.xz", None, "{text}总之很[MASK]。",
        "0=失望|难吃|糟糕|不满,1=满意|好吃|不错|喜欢",
    ),
}  # fmt: skip


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--shots", default="0,8,32", help="labels of each class")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--ways", default="tfidf,blank,classify", help="of those with labels")
    parser.add_argument("--epochs", type=float, help="of both; without it, their default")
    parser.add_argument("--asked", type=int, default=1_000, help="rows to ask")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for blanks, e.g. task.prior=none")
    parser.add_argument("--out", required=True, help="JSON file")
    return parser.parse_args()


def parted(of: Set, count: int) -> tuple[list[Example], list[Example]]:
    """The rows that may be learnt from, and so many others to ask."""
    rows = list(examples(SHARED / of.asked, "classify", of.columns))
    order = generator(0, "asked", 0, 0).permutation(len(rows))
    asked = [rows[index] for index in order[:count]]
    texts = {example.texts for example in asked}
    learnt = rows if of.train == of.asked else list(examples(SHARED / of.train, "classify", of.columns))
    return [example for example in learnt if example.texts not in texts], asked


def drawn(rows: Sequence[Example], shots: int, seed: int) -> list[Example]:
    """So many of each label, by chance."""
    found: dict[str, list[Example]] = {}
    for index in generator(seed, "drawn", 0, shots).permutation(len(rows)):
        own = found.setdefault(rows[index].gold, [])
        if len(own) < shots:
            own.append(rows[index])
    return [example for label in sorted(found) for example in found[label]]


def wanted(of: Set) -> list[str]:
    """What the task blank has to be told."""
    return [f"task.template={of.template}", f"task.words={of.words}"]


def accuracy(way: str, of: Set, rows: tuple[Sequence[Example], Sequence[Example]], given: argparse.Namespace) -> float:
    """What one way learns from the first rows and says right of the others; `zero PRIOR` learns nothing."""
    learnt, asked = rows
    if way.startswith("zero"):
        settings = [*wanted(of), f"task.prior={way.split()[1]}"]
        return float(evaluate(given.model, asked, task="blank", settings=settings, threads=1)["accuracy"])
    if way == "tfidf":
        labels = label_table(learnt).labels
        texts, right = [e.texts[0] for e in learnt], golds(learnt, labels)
        said = metrics.tfidf(texts, right, [e.texts[0] for e in asked])
        return metrics.accuracy(metrics.confusion(golds(asked, labels), said, len(labels)))
    own = [*wanted(of), *given.settings] if way == "blank" else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        more = {"settings": ["machine.threads=1", *own], "seed": given.seed, "epochs": given.epochs, "quiet": True}
        finetune(way, learnt, given.model, out, **more)
        return float(evaluate(out, asked, threads=1)["accuracy"])


def jobs(given: argparse.Namespace) -> Iterator[tuple[str, int, int, str]]:
    """(set, shots, seed, way) of all that is to be measured, the cheap ones first."""
    seeds = [int(seed) for seed in given.seeds.split(",")]
    for shots in map(int, given.shots.split(",")):
        for seed in seeds if shots else seeds[:1]:
            for name in given.sets.split(","):
                for way in given.ways.split(",") if shots else [f"zero {prior}" for prior in PRIORS]:
                    yield name, shots, seed, way


def means(results: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each set, number of labels and way: mean and spread over seeds."""
    groups: dict[tuple[str, int, str], list[float]] = {}
    for result in results:
        groups.setdefault((result["set"], result["shots"], result["way"]), []).append(100 * result["accuracy"])
    lines = []
    for (name, shots, way), values in sorted(groups.items()):
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        lines.append(f"{name:<10} {shots:>3}  {way:<12} {statistics.mean(values):.1f}{spread}")
    return lines


def main() -> None:
    """Measures all, and says each result as it comes."""
    given = options()
    torch.set_num_threads(1)
    out = Path(given.out)
    results: list[dict[str, Any]] = json.loads(out.read_text())["results"] if out.exists() else []
    done = {(r["set"], r["shots"], r["seed"], r["way"]) for r in results}
    data: dict[str, Any] = {}
    for job in jobs(given):
        if job in done:
            continue
        name, shots, given.seed, way = job
        if name not in data:
            data[name] = parted(SETS[name], given.asked)
        rows, asked = data[name]
        begun = time.perf_counter()
        found = accuracy(way, SETS[name], (drawn(rows, shots, given.seed) if shots else [], asked), given)
        seconds = round(time.perf_counter() - begun, 1)
        told = {"set": name, "shots": shots, "seed": given.seed, "way": way, "accuracy": found, "seconds": seconds}
        results.append(told)
        print(f"{name} {shots} labels, seed {given.seed}, {way}: {found:.3f}  {seconds:.0f} s", flush=True)
        write_text(out, json_text({"given": vars(given), "means": means(results), "results": results}))
    print("\n".join(means(results)))


if __name__ == "__main__":
    try:
        main()
    except FilbertError as error:
        raise SystemExit(f"few_labels: {error}") from None
