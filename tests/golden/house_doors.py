"""What the goldens of the house ask of the code, in a handful of functions: the one file to edit when modules move.

Rows, names and fields come in as plain Python (see house_data), arrays and numbers go out as plain as they are. The
tests beside this file know nothing of the code but these functions and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import filbert
from filbert.core import registry
from filbert.core.protocols import Batch
from filbert.core.records import Example, Span
from filbert.corpus import shards
from filbert.models import bert
from filbert.pack.batches import batches, part_budget
from filbert.run.pretrain import Corpus, prepared
from filbert.run.recipe import Recipe
from filbert.tasks.answer.reading import Answer
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.tasks.relation.reading import Relation
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine

# Batches --------------------------------------------------------------------------------------------------------------


def tokenizer(tokens: Sequence[str]) -> Tokenizer:
    """Of this vocabulary."""
    return Tokenizer(list(tokens))


def examples(task: str, rows: Sequence[tuple[tuple[str, ...], Any]]) -> list[Example]:
    """The rows as the task's examples, numbered from 0."""
    return [Example(texts, _gold(task, gold), at, "rows", at + 1) for at, (texts, gold) in enumerate(rows)]


def _gold(task: str, gold: Any) -> Any:
    if gold is None:
        return None
    if task == "tag":
        return tuple(Span(*span) for span in gold)
    if task == "relation":
        head, tail, label = gold
        return Relation(Span(*head, "head"), Span(*tail, "tail"), label)
    if task == "answer":
        return tuple(Answer(*answer) for answer in gold)
    return tuple(gold) if isinstance(gold, list) else gold


def labelled_task(
    name: str,
    rows: Sequence[tuple[tuple[str, ...], Any]],
    labels: Sequence[str],
    tokens: Sequence[str],
    **fields: Any,
) -> Any:
    """The task of that name over these rows, with what the rows fix of its config; labels: where the rows say none."""
    spec, made = registry.task(name), examples(name, rows)
    config = spec.fit(spec.config(**fields), made)
    names = spec.labels(config, made)
    return spec.items(made, labels if names is None else names, tokenizer(tokens), config)


def corpus_task(name: str, corpus: Path, tokens: Sequence[str], **fields: Any) -> Any:
    """The pretraining task of that name over a file of documents."""
    spec, words = registry.corpus_task(name), tokenizer(tokens)
    # words=False: no segmenter, which is an optional package and may change its mind; pieces still make words.
    texts = shards.build(corpus, words, corpus.parent / "shards", shards.Options(words=False), workers=1)
    return spec.items(texts.train.shards, words, spec.config(**fields))


def epoch(task: Any, number: int, batch_tokens: int, count: int, *, fill: bool) -> list[Batch]:
    """The first so many batches of an epoch with seed 0; fill: each is filled up, as where a graph is compiled once."""
    made = task.plan(number)
    lengths = np.asarray(made.lengths)
    budget = part_budget(batch_tokens, int(lengths.max()), 1) if fill else None
    chosen = batches(lengths, 0, number, batch_tokens)[:count]
    return [task.batch(made.orders(indices), budget) for indices in chosen]


def arrays(batch: Batch) -> dict[str, Any]:
    """Everything that a model and a loss are given."""
    packed = batch.packed
    named = {name: getattr(packed, name) for name in ("ids", "positions", "segments", "boundaries")}
    named |= {"lengths": packed.lengths, "max_len": packed.max_len, "starts": batch.starts, "owners": batch.owners}
    return named | {f"target {name}": values for name, values in batch.targets.items()}


def counts(task: Any, batch: Batch) -> dict[str, float]:
    """Over how many things each loss of the batch sums."""
    return {name: float(count) for name, count in task.counts(batch).items()}


def task_names() -> set[str]:
    """Every task that there is."""
    return set(registry.members("tasks"))


# Runs -----------------------------------------------------------------------------------------------------------------

HERE = {"machine.device": "cpu", "machine.threads": 1, "machine.workers": 0}


class Losses:
    """Listens to a run; keeps the loss of each step, and stops the run behind the one that is named."""

    def __init__(self, stop_at: int = 0) -> None:
        self.losses: dict[int, float] = {}
        self.stop_at = stop_at

    def step(self, entry: Mapping[str, Any]) -> None:
        """One was done."""
        self.losses[int(entry["step"])] = float(entry["loss"])
        if entry["step"] == self.stop_at:
            raise KeyboardInterrupt

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """Nothing."""

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Nothing."""


def finetune(
    task: str,
    train: Path,
    model: Path,
    out: Path,
    settings: Mapping[str, Any],
    *,
    listener: Losses | None = None,
    **more: Any,
) -> None:
    """A fine-tuning run on the CPU from Python; more: dev, resume, force."""
    filbert.finetune(task, train, model, out, settings={**HERE, **settings}, quiet=True, listener=listener, **more)


def pretrain(
    corpus: Path,
    tokens: Sequence[str],
    out: Path,
    fields: Mapping[str, Mapping[str, Any]],
    *,
    listener: Losses | None = None,
    resume: bool = False,
) -> None:
    """A pretraining run on the CPU; fields: of the sections model, task and train of its recipe."""
    words, reading = tokenizer(tokens), shards.Options(words=False, held=0.1)
    texts = prepared(Corpus(sources=(str(corpus),), reading=reading, workers=1), words, out)
    recipe = Recipe(
        model=bert.Config(vocab_size=words.vocab_size, **fields["model"]),
        task=mlm_nsp_spec.Config(**fields["task"]),
        train=loop.Config(**fields["train"]),
        machine=machine.Config(device="cpu", threads=1, workers=0),
    )
    filbert.pretrain(texts, words, recipe, out, resume=resume, quiet=True, listener=listener)


def export(model: Path, out: Path, dev: Path) -> None:
    """The folder as ONNX, in eight bits as well."""
    filbert.export(model, out, int8=True, dev=str(dev))
