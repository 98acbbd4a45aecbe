"""Every task on 1,000 real texts: comes in the shared data, goes out whether torch, ONNX and no torch decide the same.

.venv/bin/python benchmarks/runtimes.py                      all tasks, some minutes on one core
.venv/bin/python benchmarks/runtimes.py --only tag-crf pair  some
.venv/bin/python benchmarks/runtimes.py --json runtimes.json

One or two layers of the built-in model are fine-tuned for some steps, exported with --int8 and its cost on 300 dev
rows, and asked 1,000 other texts, many of them longer than a window: by torch, by onnxruntime beside it, and by a
process in which torch cannot be imported. Decisions are labels, sets of labels, spans, answers and the five words of a
blank. Of int8, the loss on those 1,000 is held against what the card states.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "shared" / "data"
NUM_TRAIN, NUM_DEV, NUM_ASKED, STEPS = 200, 300, 1_000, 25
CLOSE = 1e-4  # how far a score may be off between runtimes
HIDE = "import sys; sys.modules['torch'] = None; sys.path.insert(0, {!r}); import runtimes; runtimes.answer(*{!r})"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task, real data for it, and how texts are read."""

    task: str
    files: tuple[str, ...]
    settings: tuple[str, ...] = ("task.max_length=64", "task.overlap=16")
    made: Callable[[list[Any]], list[Any]] = list  # other examples of those read
    layers: int = 2  # of the built-in model's; one where texts are so long that more would take too long


def _sets(examples: list[Any]) -> list[Any]:
    """Texts with the kinds of what they name, as several labels."""
    return [replace(one, gold=tuple(sorted({span.label for span in one.gold}))) for one in examples]


def _blanks(examples: list[Any]) -> list[Any]:
    """Texts in which the middle character is hidden."""
    found = []
    for one in examples:
        text = one.texts[0]
        middle = len(text) // 2
        found.append(replace(one, texts=(f"{text[:middle]}[MASK]{text[middle + 1 :]}",), gold=None))
    return found


REVIEWS, ENTITIES = ("sentiment_chnsenticorp/train.tsv.xz",), ("ner_peoples_daily/example.train.xz",)
CASES = {
    "classify": Case(task="classify", files=REVIEWS),
    "classify-several": Case(task="classify", files=("ner_cluener2020/train.json.xz",), made=_sets,
                             settings=("task.max_length=32", "task.overlap=8")),
    "pair": Case(task="pair", files=("pair_lcqmc/dev.txt.xz",), settings=("task.max_length=24", "task.overlap=4")),
    "pair-number": Case(task="pair", files=("pair_stsb_zh/sts-b-train.txt.xz",),
                        settings=("task.max_length=32", "task.overlap=4", "task.answer=number")),
    "tag-softmax": Case(task="tag", files=ENTITIES, settings=("task.max_length=48", "task.decoder=softmax")),
    "tag-crf": Case(task="tag", files=ENTITIES, settings=("task.max_length=48", "task.decoder=crf")),
    "tag-span": Case(task="tag", files=ENTITIES, settings=("task.max_length=48", "task.decoder=span")),
    "relation": Case(task="relation", files=("re_chinese_nre/SanWen/train.txt.xz",), settings=("task.max_length=64",)),
    "answer": Case(task="answer", files=("mrc_cmrc2018/cmrc2018_trial.json.xz", "mrc_drcd/DRCD_dev.json.xz"),
                   settings=("task.max_length=256", "task.overlap=32"), layers=1),
    "choose": Case(task="choose", files=("mc_c3/c3-d-train.json.xz",),
                   settings=("task.max_length=128", "task.overlap=16"), layers=1),
    "embed": Case(task="embed", files=("pair_stsb_zh/sts-b-train.txt.xz",), settings=("task.max_length=32",)),
    "fill": Case(task="", files=REVIEWS, made=_blanks),
}  # fmt: skip


# Asking ---------------------------------------------------------------------------------------------------------------


def answer(folder: str, task: str, texts: str, out: str, dtype: str = "float32", runtime: str = "onnx") -> None:
    """What a model says of a file of texts, as JSON in another: decisions, and the scores behind them."""
    from filbert.engine.model import load

    model = load(folder, runtime=runtime, dtype=dtype, device="cpu")
    asked = [_tupled(one) for one in json.loads(Path(texts).read_text(encoding="utf-8"))]
    begun = time.process_time()
    told = list(_told(model, task, asked))
    seconds = time.process_time() - begun
    Path(out).write_text(json.dumps({"told": told, "cpu_s": seconds, "torch": _has_torch()}), encoding="utf-8")


def _has_torch() -> bool:
    return sys.modules.get("torch") is not None


def _tupled(value: Any) -> Any:
    """As `predict` takes it: places as pairs of numbers, options as a list."""
    if not isinstance(value, list):
        return value
    return tuple(tuple(each) if isinstance(each, list) and isinstance(each[0], int) else each for each in value)


def _told(model: Any, task: str, asked: Sequence[Any]) -> Iterator[tuple[Any, list[float]]]:
    if not task:
        for text in asked:
            blanks = [blank.candidates for blank in model.fill(text)]
            yield [[each.token for each in one] for one in blanks], [each.score for one in blanks for each in one]
        return
    for said in model.predict(asked, task=task):
        spans = [] if said.label is not None else [(span.start, span.end, span.label) for span in said.spans]
        scores = sorted(said.scores.items())
        numbers = [share for _, share in scores] + [span.score for span in said.spans]
        yield [said.label, said.labels, said.text, spans], numbers


def apart(one: Sequence[Any], two: Sequence[Any]) -> tuple[int, float]:
    """How many decisions differ, and the largest difference of a score where they do not."""
    changed = sum(a[0] != b[0] for a, b in zip(one, two, strict=True))
    pairs = itertools.chain.from_iterable(
        zip(a[1], b[1], strict=True) for a, b in zip(one, two, strict=True) if len(a[1]) == len(b[1]) and a[0] == b[0]
    )
    return changed, max((abs(a - b) for a, b in pairs), default=0.0)


# One task -------------------------------------------------------------------------------------------------------------


def base(home: Path, layers: int) -> Path:
    """So many of the built-in model's layers, as a folder."""
    from filbert.folder.folder import load, save
    from filbert.ship.shrink import shrunk
    from filbert.text.tokenizer import Tokenizer

    found = load("builtin")
    return save(home / f"base-{layers}", shrunk(found.model, layers, None), Tokenizer.load(found.folder))


def measured(name: str, case: Case, start: Path, home: Path) -> dict[str, Any]:
    """Fine-tunes, exports, asks in every runtime and compares."""
    from filbert.core import registry
    from filbert.forms import sources
    from filbert.run.finetune import finetune
    from filbert.ship import cost, export

    reads = case.task or "classify"
    kind = "tag" if case.made is _sets else reads
    read = itertools.chain.from_iterable(sources.read(kind, str(DATA / file)) for file in case.files)
    every = case.made([one for one in read if any(one.texts)])
    step = max(1, len(every) // (NUM_TRAIN + NUM_DEV + NUM_ASKED))
    every = every[::step]
    train, dev = every[:NUM_TRAIN], every[NUM_TRAIN : NUM_TRAIN + NUM_DEV]
    asked = every[NUM_TRAIN + NUM_DEV :][:NUM_ASKED]
    begun = time.perf_counter()
    folder = start
    if case.task:
        settings = [f"train.steps={STEPS}", "machine.threads=1", *case.settings]
        finetune(case.task, train, start, home / name, dev=dev, settings=settings, quiet=True)
        folder = home / name / "model"
    stated = export.export(folder, home / f"{name}-out", int8=True, dev=dev if case.task else None)[1]
    texts = home / f"{name}.json"
    texts.write_text(
        json.dumps([registry.task(reads).unasked(one) for one in asked], ensure_ascii=False), encoding="utf-8"
    )
    told = {how: _asked(home / f"{name}-out", case.task, texts, how) for how in ("torch", "onnx", "no torch", "int8")}
    assert told["torch"]["torch"]
    assert not told["no torch"]["torch"]
    sure = told["torch"]["told"]
    found: dict[str, Any] = {"texts": len(asked), "decisions": len({json.dumps(each[0]) for each in sure})}
    for how in ("onnx", "no torch", "int8"):
        found[how] = apart(sure, told[how]["told"])
    found["cpu_s"] = {how: round(each["cpu_s"], 2) for how, each in told.items()}
    if case.task:
        now = cost.measured(home / f"{name}-out", asked)
        found["int8 stated"] = {key: stated[key] for key in ("measure", "drop", "most")}
        found["int8 here"] = {key: now[key] for key in ("float32", "int8", "drop")}
        found["int8 kept"] = not cost.kept(stated, now)
    return found | {"seconds": round(time.perf_counter() - begun, 1)}


def _asked(folder: Path, task: str, texts: Path, how: str) -> dict[str, Any]:
    """What one runtime says; without torch, in a process of its own that cannot import it."""
    out = texts.with_suffix(f".{how.replace(' ', '-')}")
    words = [str(folder), task, str(texts), str(out), "int8" if how == "int8" else "float32"]
    if how == "no torch":
        subprocess.run([sys.executable, "-c", HIDE.format(str(HERE), words)], check=True)
    else:
        answer(*words, runtime="torch" if how == "torch" else "onnx")
    return json.loads(out.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    one, two, small = (f"{found[how][0]} ({found[how][1]:.0e})" for how in ("onnx", "no torch", "int8"))
    kept = "–"
    if "int8 kept" in found:
        lost, most = found["int8 here"]["drop"] * 100, found["int8 stated"]["most"] * 100
        kept = f"{lost:+.2f} of {most:.2f} {found['int8 stated']['measure']}"
    return f"| {name} | {found['texts']:,} | {found['decisions']:,} | {one} | {two} | {small} | {kept} |"


def main() -> int:
    """Runs the tasks and prints the table; 1 where a decision changed or a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    print("| task | texts | distinct | onnx: changed (score) | no torch | int8 | int8: points lost, stated at most |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="filbert-runtimes-") as home:
        for name in options.only:
            start = base(Path(home), CASES[name].layers)
            results[name] = measured(name, CASES[name], start, Path(home))
            print(row(name, results[name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    exact = all(
        each[how][0] == 0 and each[how][1] <= CLOSE for each in results.values() for how in ("onnx", "no torch")
    )
    kept = all(each.get("int8 kept", True) for each in results.values())
    print(f"torch, ONNX and no torch decide the same: {exact}; int8 within what its card states: {kept}")
    return 0 if exact and kept else 1


if __name__ == "__main__":
    sys.exit(main())
