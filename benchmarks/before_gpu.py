"""Another checkout of filbert in: seconds of fine-tuning and answers on a device, and whether the weights are the same.

python benchmarks/before_gpu.py ../old/src                           three rounds of each tree in turn, on CUDA
python benchmarks/before_gpu.py ../old/src --device cpu --steps 20   tries the script

The built-in model learns 300 steps on 6,000 made-up headlines, then labels them three times. Each tree works in
processes of its own. `weights` is a hash of what it learnt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
WORDS = {
    "sport": "球队 比赛 进球 冠军 教练 联赛 射门 队员",
    "health": "医生 药物 感冒 医院 治疗 休息 血压 疫苗",
    "finance": "股票 银行 利率 基金 上涨 经济 投资 公司",
}
ROWS = 6_000


def rows() -> list[tuple[str, str]]:
    """Texts of their label's words, three in ten of another's."""
    drawn, lists = random.Random(1), {label: words.split() for label, words in WORDS.items()}
    made = []
    for number in range(ROWS):
        label = list(lists)[number % 3]
        other = lists[drawn.choice(list(lists))]
        words = (drawn.choice(lists[label] if drawn.random() < 0.7 else other) for _ in range(drawn.randint(3, 30)))
        made.append(("".join(words), label))
    return made


def one(device: str, steps: int, out: Path) -> None:
    """The worker: a line of JSON on standard output."""
    import torch

    import filbert as fb

    def ended() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    table = out.with_suffix(".csv")
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows()), encoding="utf-8")
    settings = [f"train.steps={steps}", "train.seed=5", f"machine.device={device}"]
    begun = ended()
    run = fb.finetune("classify", str(table), "builtin", out, settings=settings, quiet=True)
    tuned = ended() - begun
    texts, answers = [text for text, _ in rows()], []
    run.model.predict(texts[:64])
    for _ in range(3):
        begun = ended()
        run.model.predict(texts)
        answers.append(round(ended() - begun, 3))
    weights = hashlib.sha256(next(out.rglob("model/model.safetensors")).read_bytes()).hexdigest()[:16]
    print(json.dumps({"finetune_s": round(tuned, 2), "predict_s": answers, "weights": weights}), flush=True)


def main() -> None:
    """Prints a line for each tree and round."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("other", type=Path, help="the src folder of another checkout")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--device", default="cuda")
    options.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.worker:
        one(chosen.device, chosen.steps, chosen.worker)
        return
    trees = {"old": chosen.other.resolve(), "new": HERE.parents[1] / "src"}
    with tempfile.TemporaryDirectory() as home:
        for turn in range(chosen.rounds):
            for name, source in list(trees.items())[:: 1 if turn % 2 else -1]:
                words = ["--device", chosen.device, "--steps", str(chosen.steps), "--worker", f"{home}/{name}{turn}"]
                done = subprocess.run(
                    [sys.executable, str(HERE), str(chosen.other), *words],
                    env=os.environ | {"PYTHONPATH": str(source)}, stdout=subprocess.PIPE, text=True, check=True,
                )  # fmt: skip
                print(f"{name}  {done.stdout.splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
