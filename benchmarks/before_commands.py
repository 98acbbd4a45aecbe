"""Another checkout of filbert in: how much more, or less, this one's commands cost; ratios of CPU seconds out.

.venv/bin/python benchmarks/before_commands.py ../old/src
.venv/bin/python benchmarks/before_commands.py ../old/src --rounds 7 --only finetune pretrain

Each command runs in a process of its own on one thread, the two checkouts in turn. The ratio of a round is this tree's
CPU seconds divided by the other's: above 1, this one is dearer. Start-up is in all of them; `help` and `predict` are
hardly anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LETTERS = "今天天气很好我们去公园散步北京上海火车票价格便宜这本书值得一读作者文笔不错电影演员表现可以"
ONE = ("--set", "machine.threads=1", "--set", "machine.workers=0")


def sentence(drawn: random.Random, length: int) -> str:
    """Of these characters, in any order."""
    return "".join(drawn.choice(LETTERS) for _ in range(length)) + "。"


def data(folder: Path) -> None:
    """What the commands read."""
    drawn = random.Random(0)
    rows = [{"text": sentence(drawn, drawn.randint(8, 60)), "label": str(n % 4)} for n in range(800)]
    pairs = [{"source": row["text"], "target": str(row["text"])[::-1]} for row in rows[:200]]
    for name, lines in (("rows", rows), ("pairs", pairs)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    texts = ["\n".join(sentence(drawn, 40) for _ in range(8)) for _ in range(200)]
    (folder / "corpus.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def jobs() -> dict[str, list[str]]:
    """The commands by name; OUT is a place of the round's own."""
    steps = ["--set", "train.steps=40", "--set", "train.batch_tokens=2048"]
    return {
        "help": ["--help"],
        "predict": ["predict", "tuned", "--text", "今天天气很好。"],
        "finetune": ["finetune", "classify", "--train", "rows.jsonl", "--out", "OUT", *ONE, *steps],
        "answers": ["predict", "tuned", "--data", "rows.jsonl", "--out", "OUT.jsonl"],
        "pretrain": ["pretrain", "corpus.txt", "--preset", "tiny", "--out", "OUT", *ONE, *steps],
        "decoding": ["translate", "writer", "--data", "pairs.jsonl", "--out", "OUT.jsonl"],
    }


def cost(source: Path, words: list[str], folder: Path, out: str) -> float:
    """CPU seconds of a command."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "filbert", *(word.replace("OUT", out) for word in words)]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{source}: {' '.join(words)}: {errors[-500:]}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Prints a line for each command: median ratio, least and most, and this tree's median seconds."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("other", type=Path, help="the src folder of another checkout")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", nargs="*", default=[])
    chosen = options.parse_args()
    here, other = HERE.parent / "src", chosen.other.resolve()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        data(folder)
        few = ["--set", "train.steps=8", *ONE]
        cost(other, ["finetune", "classify", "--train", "rows.jsonl", "--out", "tuned", *few], folder, "")
        cost(other, ["finetune", "translate", "--train", "pairs.jsonl", "--out", "writer", *few], folder, "")
        for name, words in jobs().items():
            if chosen.only and name not in chosen.only:
                continue
            pairs = []
            for turn in range(chosen.rounds):
                order = ((here, "here"), (other, "other"))[:: 1 if turn % 2 else -1]
                took = {side: cost(source, words, folder, f"{name}-{side}-{turn}") for source, side in order}
                pairs.append((took["here"], took["other"]))
            ratios = sorted(mine / theirs for mine, theirs in pairs)
            middle = sorted(mine for mine, _ in pairs)[len(pairs) // 2]
            print(f"{name:10} {ratios[len(ratios) // 2]:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})  {middle:.2f} s")


if __name__ == "__main__":
    main()
