"""How a pretrained model is fine-tuned: a config in; which weights learn at which step, and copies of texts out.

Weights have a depth: 0 for the embeddings, i + 1 for layer i, one more than the last layer for heads and pooler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from filbert.core.errors import InputError, one_of
from filbert.core.records import Encoding, Example, Ints
from filbert.core.registry import tasks_with
from filbert.forms import augment
from filbert.forms.augment import Places
from filbert.nn import lora
from filbert.nn.attention import batch_tensors, tensors
from filbert.nn.encoder import Encoder
from filbert.pack.lay import bins, pack
from filbert.tasks.task import AnyItems, Trait
from filbert.text.tokenizer import Tokenizer
from filbert.train.machine import Machine

METHODS = ("full", "frozen", "gradual", "lora")
FILL_TOKENS, FILL_ROWS = 8_192, 1_024  # read, and scored over the vocabulary, at a time
CANDIDATES = 20  # the likeliest words among which a hidden one is drawn

Draws = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Config:
    """What of a model learns, what says which state is best, and whether changed copies of the texts help."""

    method: str = "full"
    layer_decay: float = 1.0  # of the rate, from each layer to the one below; the embeddings lie lowest
    rank: int = 8  # of LoRA's maps, and alpha / rank their weight
    alpha: float = 16.0
    watched: str = ""  # the number of an evaluation that says which state is best; the task's own where it is empty
    augment: str = ""  # replace, delete, swap: of each text some changed copies are learnt from as well
    augment_prob: float = 0.1  # share of the tokens or words that a copy has changed
    augment_copies: int = 1  # by each of the ways named

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise one_of("tune.method", self.method, METHODS)
        for name, most in (("layer_decay", 1), ("alpha", 1e4), ("augment_prob", 0.9)):
            if not 0 < getattr(self, name) <= most:
                raise InputError(f"tune.{name} is {getattr(self, name)!r}, but must be above 0 and at most {most:g}.")
        for name in ("rank", "augment_copies"):
            if type(getattr(self, name)) is not int or not 1 <= getattr(self, name) <= 1_024:
                raise InputError(f"tune.{name} is {getattr(self, name)!r}, but must be a whole number from 1 to 1,024.")
        for kind in self.kinds:
            if kind not in augment.KINDS:
                raise one_of("tune.augment", kind, augment.KINDS)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The ways in which texts are changed."""
        named = (kind.strip() for kind in self.augment.split(","))
        return tuple(dict.fromkeys(kind for kind in named if kind))


# What learns ----------------------------------------------------------------------------------------------------------


def depth(name: str, layers: int) -> int:
    """Of a weight or a module, by its name, in a model of so many layers."""
    first, _, rest = name.removeprefix("_orig_mod.").partition(".")
    if first == "layers" and rest:
        return int(rest.partition(".")[0]) + 1
    return {"embeddings": 0, "layers": 0, "rotary": 0, "final_norm": layers}.get(first, layers + 1)


def num_layers(names: Iterable[str]) -> int:
    """How many layers the weights of these names are of."""
    parts = (name.removeprefix("_orig_mod.").split(".") for name in names)
    return max((int(each[1]) + 1 for each in parts if each[0] == "layers"), default=0)


def lowest(method: str, depths: Sequence[int], step: int, steps: int) -> int:
    """The least depth whose weights learn at that step (from 0); a function of the step alone, so that a run can go on.

    depths: of all weights that may learn. gradual: from the top down, one depth more with each equal share of the first
    half of the steps (Howard & Ruder 2018, §3.3). frozen: the highest alone.
    """
    order = sorted(set(depths), reverse=True)
    if method == "frozen":
        return order[0]
    if method == "gradual":
        return order[min(2 * step * len(order) // steps, len(order) - 1)]
    return order[-1]


def prepare(model: nn.Module, config: Config, num_added: int = 0) -> dict[str, str]:
    """Prepares a model for its method (LoRA's maps, frozen weights); remarks on the tuning, by name.

    num_added: changed copies among the texts.
    """
    _adapt(model, config)
    learning, total = counted(model, config)
    about = {}
    if config.method != "full":
        about["tuning"] = f"{config.method}; {learning:,} weights learn, of a model of {total:,}."
    if num_added:
        about["augmented"] = f"{num_added:,} changed copies of texts are learnt from as well."
    return about


def _adapt(model: nn.Module, config: Config) -> None:
    names = [name for name, _ in model.named_parameters()]
    layers = num_layers(names)
    if config.method == "frozen" and not any(depth(name, layers) > layers for name in names):
        raise InputError("tune.method=frozen trains a head alone, but this task has none; take full, gradual or lora.")
    if config.method != "lora":
        return
    for name, weight in model.named_parameters():
        weight.requires_grad_(depth(name, layers) > layers)
    lora.adapt(model, config.rank, config.alpha)


def counted(model: nn.Module, config: Config) -> tuple[int, int]:
    """How many weights learn at the end of a run, and how many a saved model has."""
    named = list(model.named_parameters())
    layers = num_layers(name for name, _ in named)
    total = sum(weight.numel() for name, weight in named if not name.endswith((".down", ".up")))
    learning = [(name, weight) for name, weight in named if weight.requires_grad]
    if config.method == "frozen":
        learning = [(name, weight) for name, weight in learning if depth(name, layers) > layers]
    return sum(weight.numel() for _, weight in learning), total


def watched(config: Config, task: AnyItems, held: AnyItems | None, model: Encoder) -> str:
    """The number of an evaluation that says which state is best: the task's own, or the one named, if there is such."""
    if not config.watched:
        return task.watched
    if held is None:
        raise InputError(f"tune.watched is {config.watched!r}, but without dev data nothing is measured; give some.")
    with torch.inference_mode():
        terms = held.loss(model.eval(), batch_tensors(held.batch(np.arange(1)), "cpu"))
    if config.watched not in (*terms, "loss"):
        raise one_of("tune.watched", config.watched, (*terms, "loss"))
    return config.watched


def thaw(model: nn.Module, learning: Iterable[str], least: int) -> None:
    """Of the weights so named those of this depth and more learn; what lies below is as in use, and drops nothing."""
    parameters = dict(model.named_parameters())
    layers = num_layers(parameters)
    for name in learning:
        parameters[name].requires_grad_(depth(name, layers) >= least)
    for name, module in model.named_modules():
        if name:  # not the model itself: a task asks it whether it learns
            module.training = depth(name, layers) >= least


# Changed copies -------------------------------------------------------------------------------------------------------


def copies(
    task: str,
    examples: Sequence[Example],
    config: Config,
    tokenizer: Tokenizer,
    model: Encoder,
    machine: Machine,
    seed: int,
) -> list[Example]:
    """Changed copies of the examples, to be learnt from beside them; `model` fills in what "replace" hides."""
    if not config.kinds:
        return []
    if task not in (able := tasks_with(Trait.AUGMENTS)):
        raise InputError(
            f"tune.augment changes the words of a text, and then the gold of {task} may no longer be right; it is for "
            f"{', '.join(able)}."
        )
    if "replace" not in config.kinds:
        return augment.copies(examples, tokenizer, _options(config, seed), None)
    if not model.fills:
        raise InputError(
            "tune.augment=replace lets the model fill in words, but the folder that the run begins with has no "
            "masked-language-model head; begin with a pretrained one, or take delete or swap."
        )
    copied = augment.copies(examples, tokenizer, _options(config, seed), Filler(model, tokenizer, machine))
    model.cpu()
    return copied


def _options(config: Config, seed: int) -> augment.Options:
    return augment.Options(config.kinds, config.augment_prob, config.augment_copies, seed)


class Filler:
    """A model that puts words into blanks: windows with [MASK] in, a drawn word for each out."""

    def __init__(self, model: Encoder, tokenizer: Tokenizer, machine: Machine) -> None:
        self.model, self.device = model.eval().to(machine.device), machine.device
        self.max_length: int = model.config.max_length
        kinds = np.zeros(model.config.vocab_size, dtype=np.int64)
        kinds[: tokenizer.vocab_size] = 1 + tokenizer.continues
        kinds[[i for i, token in enumerate(tokenizer.vocabulary) if token[:1] + token[-1:] == "[]"]] = 0
        self.kinds = torch.as_tensor(kinds, device=machine.device)  # [V] 0: never, 1: begins a word, 2: goes on with it

    def __call__(
        self, windows: Sequence[Encoding], blanks: Sequence[Places], hidden: Sequence[Ints], drawn: Sequence[Draws]
    ) -> list[Places]:
        """For each window the words at its `blanks`, of the kind of those `hidden` there, as `drawn` from 0 up to 1."""
        filled: list[Places] = [np.zeros(0, dtype=np.int64)] * len(windows)
        with torch.inference_mode():
            for chosen in bins([len(window) for window in windows], FILL_TOKENS):
                packed, starts = pack([windows[index] for index in chosen])
                rows = [blanks[index] + start for index, start in zip(chosen, starts, strict=True)]
                vectors_RD = self.model(
                    tensors(packed, self.device), torch.as_tensor(np.concatenate(rows), device=self.device)
                )
                words = self._words(
                    vectors_RD, np.concatenate([hidden[i] for i in chosen]), np.concatenate([drawn[i] for i in chosen])
                )
                edges = np.cumsum([len(each) for each in rows])[:-1]
                for index, row_words in zip(chosen, np.split(words, edges), strict=True):
                    filled[index] = row_words
        return filled

    def _words(self, vectors_RD: Tensor, hidden: Ints, drawn: Draws) -> Places:
        """[R] a word for each vector: one of the likeliest of its kind, each as often as it is likely."""
        kinds_R = self.kinds[torch.as_tensor(hidden, dtype=torch.int64, device=self.device)].clamp(min=1)
        drawn_R = torch.as_tensor(drawn, dtype=torch.float32, device=self.device)
        words = []
        for begin in range(0, len(vectors_RD), FILL_ROWS):
            part = slice(begin, begin + FILL_ROWS)
            scores_RV = self.model.word_scores(vectors_RD[part]).float()
            scores_RV.masked_fill_(self.kinds != kinds_R[part, None], -torch.inf)
            best_RC, ids_RC = scores_RV.topk(min(CANDIDATES, scores_RV.shape[1]))
            below_RC = best_RC.softmax(-1).cumsum(-1) < drawn_R[part, None]
            last_R = best_RC.isfinite().sum(-1, keepdim=True) - 1  # a kind may have few words, and sums are rounded
            words.append(ids_RC.gather(1, torch.minimum(below_RC.sum(-1, keepdim=True), last_R))[:, 0])
        word_ids: Places = torch.cat(words).cpu().numpy()
        return word_ids
