"""What explanations ask of a loaded model: its engine, its encoder and how its task reads texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from filbert.core.records import Example
from filbert.forms.sources import ReadOptions
from filbert.nn.encoder import Encoder
from filbert.tasks.task import AnyItems, AnySpec, Asked
from filbert.text.tokenizer import Tokenizer


class Engine(Protocol):
    """An encoder on a device (engine.backend_torch.Engine)."""

    backbone: Encoder
    device: str
    budget: int  # tokens of a pack

    def answers(self, task: AnyItems) -> list[Any]:
        """What the task's head says of each item."""
        ...


class Reads(Protocol):
    """How a model reads texts for its task (engine.reader.Reader)."""

    @property
    def window(self) -> tuple[int, int]:
        """Tokens of a text that are read at once at most, and those that two windows share."""
        ...

    @property
    def spec(self) -> AnySpec:
        """The task's record."""
        ...

    @property
    def config(self) -> Any:
        """The task's config."""
        ...

    def examples(self, texts: Iterable[Asked]) -> list[Example]:
        """What `predict` takes, as examples."""
        ...

    def items(self, examples: Sequence[Example]) -> AnyItems:
        """The examples in batches."""
        ...


class Looks(Protocol):
    """What can be looked into: `engine.model.Model`."""

    folder: Path
    config: Any  # the encoder's shape
    tokenizer: Tokenizer
    engine: Any  # an `Engine`, where the model runs with torch

    @property
    def labels(self) -> list[str]:
        """The labels that it tells apart."""
        ...

    @property
    def backbone(self) -> Encoder:
        """The torch module."""
        ...

    @property
    def trained_on(self) -> ReadOptions:
        """The columns and the encoding of the files that it learnt from."""
        ...

    @property
    def as_read(self) -> Reads | None:
        """Its task and how that reads texts; None where it was fine-tuned for nothing."""
        ...

    def reader(self, task: str | None = None) -> Reads:
        """How it reads texts for that task; its own without one."""
        ...

    def task(self, task: str | None = None) -> str:
        """The name of its task; a model that was fine-tuned for nothing is refused."""
        ...
