"""The head's scores of texts and their labels in; how right they are, and what dev data fix of the config, out.

Legend: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from filbert.metrics import calibration, label_sets, labels
from filbert.nn.ops import Numbers
from filbert.pack.lay import Places
from filbert.tasks.classify.decode import chances, probabilities
from filbert.tasks.classify.spec import START, Config
from filbert.tasks.task import Fit, Report

C = TypeVar("C", bound=Any)  # a config that has a temperature


def report(config: Config, scores_NL: Numbers, gold: Numbers, names: Sequence[str]) -> Report:
    """Metrics at the top, "intervals", "labels", "confusion"; gold: [N] a label each, or [N, L] which labels."""
    if config.several:
        return label_sets.summary(gold, chances(scores_NL), config.several, names)
    shares = probabilities(scores_NL)
    table = labels.confusion(gold, scores_NL.argmax(-1), len(names))
    loss = -np.log(np.maximum(shares[np.arange(len(gold)), gold], 1e-300)).mean()
    numbers = labels.summary(table, names)
    return {"accuracy": numbers.pop("accuracy"), "f1": numbers.pop("f1"), "loss": float(loss), **numbers}


def calibrated(config: Config, raw: Sequence[npt.ArrayLike], gold: Numbers, fixed: Collection[str]) -> Fit:
    """The config with the temperature, or the probability from which on a label is given, that suits these texts."""
    if gold.ndim == 1:
        if gold.dtype != np.int64:  # numbers, which have no probabilities
            return Fit(config)
        return fitted_temperature(config, raw, gold, fixed)
    if "several" in fixed:
        return Fit(config)
    if len(gold) < calibration.FEWEST:
        return Fit(config, calibration.too_few("several", len(gold), f"it is {config.several:g}"))
    least = label_sets.best_threshold(gold, chances(np.asarray(raw)), START)
    return Fit(replace(config, several=least))


def fitted_temperature(config: C, raw: Sequence[npt.ArrayLike], gold: Places, fixed: Collection[str]) -> Fit:
    """The config with the temperature that suits these scores; as it is where the user set it, or of too few."""
    if "temperature" in fixed:
        return Fit(config)
    if len(gold) < calibration.FEWEST:
        return Fit(config, calibration.too_few("temperature", len(gold), f"it is {config.temperature:g}"))
    return Fit(replace(config, temperature=calibration.temperature(calibration.stacked(raw), gold)))
