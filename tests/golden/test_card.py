"""The card of a model folder: a fixed text for fixed facts, and true to its run. Rewrite with FILBERT_REWRITE=1."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from filbert.core import registry
from filbert.core.files import sha256
from filbert.core.records import Example
from filbert.folder import card
from filbert.folder.folder import save
from filbert.folder.manifest import check_manifest
from filbert.forms import sources
from filbert.run import cards
from filbert.run.finetune import finetune
from filbert.ship import verify
from filbert.text.tokenizer import Tokenizer
from kit.folders import task_file
from kit.models import small_bert

GOLDEN = Path(__file__).with_name("card.md")
ROWS = [
    ("球队昨晚赢了比赛", "体育"),
    ("医生建议多喝水", "健康"),
    ("这场球赛很精彩", "体育"),
    ("龘感冒了要多休息", "健康"),
]
REPORT: dict[str, Any] = {
    "evaluations": {
        "dev": {
            "measure": "accuracy", "accuracy": 0.875, "f1": 0.8714,
            "intervals": {"accuracy": (0.75, 0.9375), "f1": (0.7401, 0.9352)},
            "baselines": {"majority": {"accuracy": 0.5}, "tfidf": {"accuracy": 0.8125}, "missing": "nothing"},
            "sentences": ["better than TF-IDF by 6.2 points of accuracy (95 %: 0.1 to 12.5)"],
        }
    }
}  # fmt: skip


def rows(path: Path, times: int) -> Path:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in ROWS * times), encoding="utf-8")
    return path


def test_the_card_is_as_it_was(tokenizer: Tokenizer, tmp_path: Path) -> None:
    base = save(
        tmp_path / "base", small_bert(tokenizer, ("mlm",)), tokenizer, card="# Base\n\n## Licence\n\nMIT, by us."
    )
    said = {"task": "classify", "max_length": 64, "overlap": 16, "temperature": 1.25}
    model = small_bert(tokenizer, ("labels",), 2)
    folder = save(
        tmp_path / "m", model, tokenizer, labels=("体育", "健康"), card="A classifier.",
        files=task_file(said),
    )  # fmt: skip
    train, dev = rows(tmp_path / "train.tsv", 6), rows(tmp_path / "dev.tsv", 4)
    learnt, asked = (sources.read("classify", path) for path in (train, dev))
    spec = registry.task("classify")
    task = spec.items(learnt, ("体育", "健康"), tokenizer, spec.config(max_length=64))
    told = cards.Learnt(
        task=task, examples=learnt, named_sources={"train": train, "dev": dev}, held={"dev": asked}, share=None,
        report=REPORT, base=str(base),
    )  # fmt: skip
    for _ in range(2):  # told twice, it stands there once
        cards.of_task(folder, told)
    card.renew(folder, {card.EIGHT: "Measured later."})
    check_manifest(folder, hashes=True)
    found = (folder / "README.md").read_text(encoding="utf-8")
    if os.environ.get("FILBERT_REWRITE"):
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")


def test_sections_are_renewed_and_others_stay() -> None:
    text = "# Mine\n\nHello.\n\n## Scores\n\nold\n\n```sh\n## Scores\n```\n\n## Notes by me\n\nkeep\n"
    text = card.with_section(text, card.SCORES, "new")
    text = card.with_section(text, card.LICENCE, "MIT")
    text = card.with_section(text, card.DATA, "rows")
    assert (
        text
        == "# Mine\n\nHello.\n\n## Data\n\nrows\n\n## Scores\n\nnew\n\n## Notes by me\n\nkeep\n\n## Licence\n\nMIT\n"
    )
    assert card.section(text, "Notes by me") == "keep"


def test_the_licence_of_a_base_is_found(tmp_path: Path) -> None:
    for text, wanted in (
        ("---\nlicense: apache-2.0\nlanguage: zh\n---\n# X\n", "apache-2.0"),
        ("# X\n\n## License\n\nBSD, see LICENSE.\n\nMore.", "BSD, see LICENSE."),
        ("# X\nlicense: not here\n", ""),
    ):
        (tmp_path / "README.md").write_text(text, encoding="utf-8")
        assert card.licence_of(tmp_path) == wanted
    assert card.licence_of(tmp_path / "nothing") == ""


def test_a_run_tells_what_it_did(tiny_folder: Path, tmp_path: Path) -> None:
    train = rows(tmp_path / "train.tsv", 8)
    train.write_text(
        train.read_text(encoding="utf-8") + "".join(f"第{n}场球\t体育\n" for n in range(30)), encoding="utf-8"
    )
    dev = rows(tmp_path / "dev.tsv", 13)
    out = tmp_path / "run"
    done = finetune("classify", train, tiny_folder, out, dev=dev, epochs=1, quiet=True, settings=["machine.threads=1"])
    text = (out / "model/README.md").read_text(encoding="utf-8")
    check_manifest(out / "model", hashes=True)
    told = json.loads((out / "report.json").read_text(encoding="utf-8"))["evaluations"]["dev"]
    low, high = told["intervals"]["accuracy"]
    scores = card.section(text, card.SCORES)
    assert f"| accuracy | {told['accuracy']:.4f} | {low:.4f} to {high:.4f} |" in scores
    assert f"| accuracy of TF-IDF | {told['baselines']['tfidf']['accuracy']:.4f} |" in scores
    assert all(sentence in scores for sentence in told["sentences"])
    data = card.section(text, card.DATA)
    assert f"train.tsv `{sha256(train)}`" in data
    assert f"dev.tsv `{sha256(dev)}`" in data
    assert "体育: 46, 健康: 16" in data
    limits = card.section(text, card.LIMITS)
    assert "fewer than 20 examples to learn from: 健康: 16" in limits
    heat = json.loads((out / "model/task.json").read_text(encoding="utf-8"))["temperature"]
    assert f"temperature of {heat:.3g}" in limits
    assert "[UNK]" in limits
    assert "`model`, whose card names no licence" in card.section(text, card.LICENCE)
    assert done.report


def test_texts_that_cannot_be_written_do_not_end_a_run(tiny_folder: Path, tmp_path: Path) -> None:
    """Half a character, a label with a bar and a line's end: as Python gives them."""
    labels = ("体\n育", "健|康")
    examples = [Example((f"球\ud800{n}",), labels[n % 2]) for n in range(8)]
    how: dict[str, Any] = {"settings": ["machine.threads=1"], "epochs": 1, "quiet": True}
    finetune("classify", examples, tiny_folder, tmp_path / "run", **how)
    text = (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    assert "体 育: 4, 健|康: 4" in text
    assert "given in Python" in text
    assert all(each.holds for each in verify.verified(tmp_path / "run"))


@pytest.mark.parametrize("share", ["25%", None])
def test_without_dev_data_it_says_so(share: str | None, tiny_folder: Path, tmp_path: Path) -> None:
    train = rows(tmp_path / "train.tsv", 1)
    train.write_text("".join(f"{text}{n}\t{label}\n" for n in range(8) for text, label in ROWS), encoding="utf-8")
    how: dict[str, Any] = {"settings": ["machine.threads=1"], "epochs": 1, "quiet": True}
    finetune("classify", train, tiny_folder, tmp_path / "run", dev=share, **how)
    text = (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    wanted = "0.25 of the same rows, kept back" if share else "neither dev nor test data"
    assert wanted in text
    assert "were not calibrated: " in text
    assert ("rows of dev data are too few" if share else "there were no dev data") in text
