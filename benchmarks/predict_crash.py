"""A number of rows in, of which the last but one is broken; what `filbert predict` saved of them, and its memory, out.

    .venv/bin/python benchmarks/predict_crash.py --rows 900001

The model is a very small one, fine-tuned on two sentences: what is tried is the way to the disk, not the model.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from filbert.core.records import Example
from filbert.folder.folder import load, save
from filbert.models import bert
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer

TEXTS = [("火车进站", "a"), ("船在水上", "b")] * 8


def tiny_classifier(folder: Path) -> Path:
    """A run folder with one."""
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(load("builtin").folder)
    shape = {"width": 32, "layers": 1, "heads": 1, "inner": 32, "max_length": 64, "dropout": 0.0}
    save(folder / "start", bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape), ("mlm",)), tokenizer)
    rows = [Example((text,), label, number) for number, (text, label) in enumerate(TEXTS)]
    return finetune("classify", rows, folder / "start", folder / "run", epochs=1, quiet=True).folder


def main() -> None:
    """Writes the rows, asks for all of them, and counts."""
    words = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    words.add_argument("--rows", type=int, default=900_001)
    rows = words.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, data, out = tiny_classifier(folder), folder / "rows.jsonl", folder / "results.jsonl"
        with data.open("w", encoding="utf-8") as file:
            for number in range(1, rows + 1):
                whole = json.dumps({"text": f"第{number}条新闻"}, ensure_ascii=False)
                file.write((whole if number != rows - 1 else '{"text": "broken') + "\n")
        begun = time.perf_counter()
        command = [sys.executable, "-m", "filbert", "predict", str(model), "--data", str(data), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.perf_counter() - begun
        with out.open(encoding="utf-8") as file:
            lines = [json.loads(line)["line"] for line in file]
    kept = lines == list(range(1, rows - 1))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(
        f"exit {done.returncode}, {len(lines):,} results, all before the broken row: {kept}; {took:.0f} s, {memory} MB"
    )
    print(done.stderr.splitlines()[-1])


if __name__ == "__main__":
    main()
