"""A model and a task's items in; the raw output of the head for each of them, in order, out."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from filbert.nn.encoder import Encoder
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import bins
from filbert.tasks.task import AnyItems
from filbert.train import machine
from filbert.train.step import on_device


def scored(model: Encoder, task: AnyItems, batch_tokens: int, config: machine.Config | None = None) -> list[Any]:
    """The raw output of a task's head for each of its items, in order, computed as in training.

    The model goes where the config says.
    """
    here = machine.chosen(config or machine.Config())
    model = model.to(here.device, torch.bfloat16 if here.half else torch.float32).eval()
    result: list[Any] = [None] * len(task)
    with torch.inference_mode():
        host = TorchHost(model)
        for texts in bins(task.lengths.tolist(), batch_tokens):
            batch = on_device(task.batch(np.asarray(texts)), here.device)
            for index, answer in zip(texts, task.raw(host, batch), strict=True):
                result[index] = answer
    return result


def scored_apart(model: Encoder, task: AnyItems, batch_tokens: int, config: machine.Config) -> list[Any]:
    """The same by a copy, so that the model itself stays where it is and as precise as it is."""
    return scored(deepcopy(model), task, batch_tokens, asking(config))


def asking(config: machine.Config) -> machine.Config:
    """The part of a run's machine config that counts for inference."""
    return machine.Config(device=config.device, precision=config.precision, threads=config.threads)
