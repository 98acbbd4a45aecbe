"""Small models come in; model folders that read texts for a task, and the examples that they learn, go out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filbert.core.records import Example
from filbert.engine.reader import TASK
from filbert.folder.folder import save
from filbert.text.tokenizer import Tokenizer
from kit.models import small_bert

READ = {"max_length": 64, "overlap": 16}  # how a small folder reads texts, where nobody says otherwise


def task_file(fields: Mapping[str, object] | None) -> dict[str, str]:
    """What a folder holds that reads texts for a task, as `save` takes it; of none it holds nothing."""
    return {} if fields is None else {TASK: json.dumps(fields)}


def classifier(folder: Path, tokenizer: Tokenizer, labels: Sequence[str], parts: tuple[str, ...] = ("labels",)) -> Path:
    """The folder of a small BERT that tells these labels apart, at random."""
    model = small_bert(tokenizer, parts, len(labels), noise=0.3)
    return save(folder, model, tokenizer, labels=labels, files=task_file({"task": "classify", **READ}))


def examples_of(rows: Iterable[tuple[str, str]]) -> list[Example]:
    """Texts and their labels, numbered from 0."""
    return [Example((text,), label, index) for index, (text, label) in enumerate(rows)]
