"""What a run will come to: the size of a model, the tokens it will see and its text in; the held-out loss out.

The loss of predicting masked words is forecast as a share of the text's own entropy H, which is the loss of a model
that knows nothing but how frequent each token is. A model of N weights in its layers that sees D tokens reaches

    x = floor + size / N^size_power + data / D^data_power,    share = x / (1 + x^knee)^(1/knee) + unlearnt

the law of Hoffmann et al. 2022 (equation 2), bent so that it does not exceed 1: a run first learns the frequencies and
stays there a while. `unlearnt` is what is left of the very start, ln V, after so many steps. Text that is read again
counts less and less (Muennighoff et al. 2023, equation 5). `benchmarks/forecast.py` fits the constants to the logs of
runs; experiments/2026-11-16-forecast.md says to which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from filbert.models import bert
from filbert.pack.stretches import Text

ENTROPY_TOKENS = 2**22  # looked at for the entropy of a text
NORMAL = 1.96  # standard errors either way hold 95 %
AGAIN = 15.4  # how many times a text may be read again before that is worth 1 - 1/e of all there is to gain


class Masked(Protocol):
    """The config of a task that asks for masked words."""

    @property
    def mask_prob(self) -> float:
        """The share of the tokens that are masked."""
        ...

    @property
    def max_length(self) -> int:
        """Tokens of a sequence at most."""
        ...


@dataclass(frozen=True, slots=True)
class Law:
    """The constants; N and D are in millions."""

    floor: float = 0.157
    size: float = 0.408
    size_power: float = 0.254
    data: float = 0.489
    data_power: float = 0.361
    knee: float = 8.0
    start_steps: float = 100.0  # after so many steps 1/e of the start is left
    accuracy: tuple[float, float, float] = (0.045, 0.559, 0.697)  # right = first + second · (1 - share of H)^third
    spread: tuple[float, float] = (0.05, 0.03)  # either way at a million tokens, and more for each tenfold beyond


LAW = Law()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The loss on held-out masked words, the range it is likely in, and the share of them that will be right."""

    loss: float
    low: float
    high: float
    accuracy: float
    entropy: float  # these three: what it rests on besides the tokens
    weights: int
    unique: int

    def __str__(self) -> str:
        return (
            f"held-out masked loss about {self.loss:.2f}, likely {self.low:.2f} to {self.high:.2f} "
            f"(masked words right about {self.accuracy:.0%})"
        )

    def error(self, loss: float) -> float:
        """How far off it was, as a share of what came."""
        return abs(self.loss - loss) / max(loss, 1e-9)

    def verdict(self, loss: float | None, spread: float | None = None) -> str:
        """The sentence at the end of a run; None where too few documents were held back to measure it.

        spread: the standard error of the loss. There is a verdict only where it is small enough to tell.
        """
        if loss is None:
            return f"forecast {self.loss:.2f}; what it came to is not known, for too few documents were held back."
        if spread is None:
            why = "too little was held back to know how far that can be believed"
            return f"forecast {self.loss:.2f}, came to {loss:.2f}; no verdict: {why}."
        low, high = loss - NORMAL * spread, loss + NORMAL * spread
        sentence = f"forecast {self.loss:.2f}, came to {loss:.2f} (95 %: {low:.2f} to {high:.2f})"
        if high - low > self.high - self.low:
            return f"{sentence}; no verdict: so little was held back that this is wider than the likely range."
        is_inside = self.low <= loss <= self.high
        if not is_inside and low <= self.high and high >= self.low:
            return f"{sentence}; no verdict: an edge of the likely range lies within that."
        where = "within" if is_inside else "outside"
        return f"{sentence}: {self.error(loss):.0%} off, {where} the likely range."


def share(weights: float, tokens: float, unique: float, law: Law = LAW) -> float:
    """The loss as a share of the entropy, once the frequencies are known."""
    millions = worth(tokens, unique) / 1e6
    x = law.floor + law.size / (weights / 1e6) ** law.size_power + law.data / max(millions, 1e-6) ** law.data_power
    return float(x / (1 + x**law.knee) ** (1 / law.knee))


def unlearnt(entropy: float, vocab_size: int, steps: float, law: Law = LAW) -> float:
    """What is left of the loss at the start, ln V, as a share of the entropy."""
    return max(0.0, math.log(vocab_size) / entropy - 1) * math.exp(-steps / law.start_steps)


def worth(tokens: float, unique: float) -> float:
    """How many tokens of new text the tokens seen are worth where only so many differ."""
    if tokens <= unique:
        return tokens
    again = tokens / unique - 1
    return unique + unique * AGAIN * (1 - math.exp(-again / AGAIN))


def forecast(entropy: float, config: bert.Config, seen: tuple[float, float], unique: int, law: Law = LAW) -> Forecast:
    """For such a model that has `seen` so many tokens in so many steps, of a text with so many different ones."""
    (tokens, steps), size = seen, weights(config)
    part = share(size, tokens, unique, law) + unlearnt(entropy, config.vocab_size, steps, law)
    loss = entropy * part
    spread = law.spread[0] + law.spread[1] * abs(math.log10(max(tokens, 1.0) / 1e6))
    return Forecast(loss, loss * (1 - spread), loss * (1 + spread), accuracy(part, law), entropy, size, unique)


def accuracy(part: float, law: Law = LAW) -> float:
    """The share of masked words that is right where the loss is that part of the entropy."""
    first, second, third = law.accuracy
    return float(min(1.0, first + second * max(0.0, 1 - part) ** third))


def entropy(shards: Sequence[Text], vocab_size: int) -> float:
    """Of the tokens' frequencies, in nats; looked up in stretches from all shards."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    each = -(-ENTROPY_TOKENS // max(1, len(shards)))
    for shard in shards:
        counts += np.bincount(np.asarray(shard.ids[:each], dtype=np.int64), minlength=vocab_size)
    seen = counts[counts > 0] / max(1, counts.sum())
    return float(-(seen * np.log(seen)).sum())


# The size of a model -------------------------------------------------------------------------------------------------


def weights(config: bert.Config) -> int:
    """In the matrices of its layers: N."""
    shapes = bert.shapes(config)
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("layers.") and len(shape) == 2)


def flops(config: bert.Config, task: Masked) -> float:
    """Of one training step for each token: 6 for each weight it meets, attention, and the head on masked tokens."""
    head = task.mask_prob * (config.embedding_width * (config.width + config.vocab_size))
    return float(6 * (weights(config) + head) + 12 * config.layers * config.width * task.max_length / 2)
