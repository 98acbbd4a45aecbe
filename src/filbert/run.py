"""The hall: a recipe and texts in, a run folder with its model, recipe and log out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from filbert.artefact.folder import save
from filbert.core.files import json_text, write_text
from filbert.core.registry import member
from filbert.data.packing import collate
from filbert.models import bert
from filbert.tasks import mlm_nsp
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that fixes a pretraining run but its texts; members are named through the registry."""

    model: bert.Config
    task: mlm_nsp.Config = field(default_factory=mlm_nsp.Config)
    train: loop.Config = field(default_factory=loop.Config)
    model_name: str = "bert"
    task_name: str = "mlm_nsp"


def pretrain(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    recipe: Recipe,
    out: Path | str,
    told: Callable[[loop.Step], bool | None] = lambda step: None,
) -> bert.Bert:
    """Trains a fresh BERT on the texts and leaves `out/model`, `out/recipe.json` and `out/log.jsonl`.

    Interrupted, it saves the model as far as it came and passes the interruption on.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.train.seed)
    task = member("tasks", recipe.task_name).Task(texts, tokenizer, recipe.task)
    model: bert.Bert = member("models", recipe.model_name).Model(recipe.model, ("pooler", "mlm", "nsp"))
    write_text(out / "recipe.json", json_text(dataclasses.asdict(recipe)))
    try:
        with (out / "log.jsonl").open("w", encoding="utf-8") as log:

            def heard(step: loop.Step) -> bool | None:
                print(json.dumps(dataclasses.asdict(step)), file=log)
                return told(step)

            loop.fit(model, task, recipe.train, heard)
    finally:
        save(out / "model", model.eval(), tokenizer, card=_card(recipe, len(texts)))
    return model


def _card(recipe: Recipe, num_texts: int) -> str:
    return (
        f"A BERT of {recipe.model.layers} layers × {recipe.model.width}, pretrained from scratch by filbert on "
        f"{num_texts:,} texts with masked words and next sentences for up to {recipe.train.steps:,} steps of "
        f"{recipe.train.batch_tokens:,} tokens (seed {recipe.train.seed})."
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """How well a model answers the two questions on texts it has not seen."""

    mlm_accuracy: float
    mlm_loss: float
    nsp_accuracy: float
    num_masked: int


def measure(model: bert.Bert, texts: Sequence[str], tokenizer: Tokenizer, config: mlm_nsp.Config) -> Measured:
    """One pass over the texts with fixed masks: the same question every time it is asked."""
    task = mlm_nsp.Task(texts, tokenizer, config)
    sums = {"mlm_accuracy": 0.0, "mlm_loss": 0.0, "nsp_accuracy": 0.0}
    masked = pairs = 0
    with torch.inference_mode():
        for start in range(0, len(task), 16):
            items = [task.item(index, 0) for index in range(start, min(start + 16, len(task)))]
            batch = loop.on_device(collate(items), "cpu")
            numbers = task.loss(model.eval(), batch)[1]
            size = len(batch.targets["mask_ids"])
            masked, pairs = masked + size, pairs + len(items)
            for name in sums:
                sums[name] += numbers[name] * (size if name.startswith("mlm") else len(items))
    return Measured(
        sums["mlm_accuracy"] / max(1, masked), sums["mlm_loss"] / max(1, masked), sums["nsp_accuracy"] / pairs, masked
    )
