"""Models that begin from nothing: the name of a file of models, a size and a vocabulary in, an untrained model out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from filbert.builtin import model as builtin
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.folder.folder import Loaded
from filbert.models import transformer
from filbert.nn.encoder import Encoder, Shape
from filbert.run import defaults
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop


@dataclass(frozen=True, kw_only=True)
class NewModel:
    """A model that a run makes, untrained."""

    arch: str | None = None  # the file of models that it is of
    preset: str | None = None  # its size
    vocab: Path | str | None = None  # else the built-in model's

    @property
    def named(self) -> list[str]:
        """Which of these the user gave."""
        return [name for name, value in vars(self).items() if value]


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a run begins with."""

    loaded: Loaded
    is_random: bool = False  # its weights are not to be kept
    remark: str = ""  # why it begins with this


def config_of(name: str, preset: str | None, tokenizer: Tokenizer) -> Any:
    """The shape of that name and size for a vocabulary; what a file of models reads off the tokens is in it."""
    spec = registry.model(name)
    return spec.fit(spec.preset(preset or defaults.PRESET, tokenizer.vocab_size), tokenizer.vocabulary)


def model_of(name: str, config: Shape, parts: tuple[str, ...], tokenizer: Tokenizer, labels: int = 2) -> Encoder:
    """A new model; one that spells its tokens gets the vocabulary."""
    model = registry.model(name).model(config, parts, labels)
    if model.spells:
        model.spell(tokenizer.vocabulary)
    return model


def started(new: NewModel, seed: int = 0) -> Loaded:
    """As a folder that holds an untrained model would be loaded."""
    loop.Config(seed=seed)  # refuses one that no generator takes
    name, vocab = str(new.arch), new.vocab
    folder = Path(vocab) if vocab is not None else builtin.folder()
    if vocab is None and not builtin.is_there():
        raise InputError("no vocabulary was given, and the built-in model is not here; give --vocab.")
    tokenizer = Tokenizer.load(folder)
    torch.manual_seed(seed)
    config = config_of(name, new.preset, tokenizer)
    return Loaded(
        folder=folder if folder.is_dir() else folder.parent, model=model_of(name, config, (), tokenizer).eval(),
        kind=f"filbert-{name}", labels=[], problem_type=None, fields={}, notes=[],
    )  # fmt: skip


def writing(started: Loaded) -> Loaded:
    """The same model where it can write; a BERT as the encoder of a transformer, whose decoder is new."""
    if registry.model(started.family).writes:
        return started
    config = started.config
    if started.family != "bert" or (config.norm, config.positions) != ("post", "learned"):
        raise InputError(
            f"{started.folder}: a {started.family} of this layout cannot be taught to write from another text; begin "
            "with a classic BERT, whose encoder a transformer takes over, or with a new --arch transformer or seq2seq."
        )
    shape = transformer.Config(
        vocab_size=config.vocab_size, width=config.width, layers=config.layers, heads=config.heads, inner=config.inner,
        max_length=config.max_length, positions="learned", embedding="normed", norm="post",
        feedforward=config.feedforward, writer_layers=defaults.WRITER_LAYERS, dropout=defaults.WRITER_DROPOUT,
    )  # fmt: skip
    model = transformer.Transformer(shape)
    model.take_encoder(started.model.state_dict())
    return replace(started, model=model.eval(), kind="filbert-transformer")
