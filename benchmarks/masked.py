"""A model folder and documents it has not seen in; its share of masked tokens right, asked in the usual ways, out.

    python benchmarks/masked.py MODEL [--shards FOLDER | --text FILE] [--out FILE.json]

15 % of the tokens are asked for (80 % [MASK], 10 % random, 10 % as they are): single tokens, or whole words.
`--shards` takes the documents that a pretraining run kept back; `--text` any text, a document between blank lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.corpus import shards
from filbert.folder.folder import load
from filbert.run.pretrain import measure
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import machine


def asked(model: str, kept: shards.Split, tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """The numbers for each way of asking."""
    bert = load(model).model
    found: dict[str, dict[str, float]] = {}
    for masking in ("token", "whole-word"):
        for length in (128, min(512, bert.config.max_length)):
            config = mlm_nsp_spec.Config(objective="mlm", masking=masking, max_length=length, short_prob=0.0)
            numbers = measure(bert, kept.shards, tokenizer, config, machine.Config(compiled="off"))
            found[f"{masking}, {length}"] = {name: round(value, 4) for name, value in numbers.items()}
            print(masking, length, found[f"{masking}, {length}"], flush=True)
    return found


def main() -> None:
    """Asks."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("model")
    words.add_argument("--shards")
    words.add_argument("--text")
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    tokenizer = Tokenizer.load(load(given.model).folder)
    with tempfile.TemporaryDirectory() as folder:
        if given.text:
            kept = shards.build([given.text], tokenizer, folder, shards.Options(held=0.0)).train
        else:
            kept = shards.opened(given.shards).held
        about = {"documents": kept.num_documents, "tokens": kept.num_tokens}
        print(about, flush=True)
        numbers = {**about, **asked(given.model, kept, tokenizer)}
    if given.out:
        given.out.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
