"""One label for a text by filling a blank: texts, a template and words for each label in, scores for each label out.

The template stands around every text, with one blank: "这是一条[MASK]新闻：{text}". What the model would write there
says the label. No new head is needed: a pretrained model answers without an example (zero-shot), and a few examples ask
it what pretraining asked (Schick and Schütze 2021, "Exploiting Cloze Questions for Few-Shot Text Classification").

The score of a word is the mean log-probability of its tokens, each at its own [MASK]; a label with several words has
their mean. The blank has as many [MASK]s as the word has tokens, however many are written: words of other lengths are
asked in a sequence of their own. From each score its prior is taken, the score before the text was read: of an empty
text (Zhao et al. 2021, "Calibrate Before Use"), or the mean over texts of the kind that is asked ("data").

A text too long for `max_length` is read in windows, the template whole around each of them; their scores are averaged,
each weighing as many tokens as it owns.

Legend: T tokens of the row, S sequences, W windows (one sequence for each length of words), N texts, L labels,
K blanks of a window, M tokens of all words, V vocabulary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item
from filbert.core.records import Example, Ints, Prediction
from filbert.nn import numpy_heads
from filbert.pack import cuts
from filbert.pack.cuts import Places
from filbert.tasks.classify import items as classify
from filbert.text.tokenizer import Pieces, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "mlm"  # which every pretrained model has
DATA = "classify"  # its files are read as those of that task
AUGMENTS = True  # a text with some words changed keeps its label
KEPT = ("template", "words", "prior", "offsets", "max_length", "overlap")
PRIORS = ("data", "empty", "none")
TEXT, MASK = "{text}", "[MASK]"
SAMPLE = 1_000  # texts that the prior is measured on
EMPTY = 16  # texts that the empty one weighs as much as: the prior of few texts is mostly its
ROOM = 8  # tokens of a text that a window has at least
HINT = "--set task.template='这是一条[MASK]新闻：{text}' --set task.words='体育=体育|比赛,财经=财经'"
called, record = classify.called, classify.record


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is asked of each text, and how it is read."""

    template: str = ""  # holds {text} once, and [MASK] where the word stands
    words: str = ""  # label=word|word,…, or a JSON object; a label that is a word can be left out
    prior: str = "data"  # what is taken from the scores: their mean over texts, over an empty one, or nothing
    offsets: str = ""  # the prior of each label as a number, once it is measured
    max_length: int = 512
    overlap: int = 64  # tokens that two windows share; at most half of one
    label_smoothing: float = 0.0
    consistency: float = 0.0  # as classify has it
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from
    several: ClassVar[float] = 0.0  # one label for each text

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=2 * ROOM, overlap=0)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        if not 0 <= self.consistency <= 100:
            raise InputError(f"task.consistency is {self.consistency!r}, but must be from 0 to 100.")
        settings.check_one_of("task", self, prior=PRIORS)
        if self.template:
            frame(self.template, 1)
        spoken(self.words)
        numbers(self.offsets)


def frame(template: str, num_masks: int) -> tuple[str, str]:
    """What stands before and after the text, with a blank of so many masks."""
    parts = template.split(TEXT)
    blanks = re.split(r"\[MASK\](?:\s*\[MASK\])*", template)
    if len(parts) != 2 or len(blanks) != 2:
        what = f"{TEXT} once" if len(parts) != 2 else f"{MASK} in one place, for the word"
        raise InputError(f"task.template is {template[:80]!r}, but must have {what}: {HINT}.")
    before, _, after = (MASK * num_masks).join(blanks).partition(TEXT)
    return before, after


def spoken(words: str) -> dict[str, tuple[str, ...]]:
    """{"体育": ("体育", "比赛")} from 体育=体育|比赛, or from a JSON object where a label has such signs in it."""
    try:
        parted = [word.partition("=") for word in words.split(",") if words]
        pairs = [(label.strip(), own if equals else label) for label, equals, own in parted]
        if words.startswith("{"):
            pairs = json.loads(words, object_pairs_hook=list)
        lists = [(label, own.split("|") if isinstance(own, str) else own) for label, own in pairs]
        found = {label: tuple(word.strip() for word in own) for label, own in lists}
    except (ValueError, TypeError, AttributeError):
        found = {"": ()}
    if not all(label and own and all(own) for label, own in found.items()) or len(found) < len(pairs):
        raise InputError(f"task.words is {words[:80]!r}, but must be labels, each once, with their words: {HINT}.")
    return found


def numbers(offsets: str) -> tuple[float, ...]:
    """The prior of each label as it is written."""
    try:
        found = tuple(float(number) for number in offsets.split(",")) if offsets else ()
    except ValueError:
        found = (float("nan"),)
    if not np.isfinite(found).all():
        raise InputError(f"task.offsets is {offsets[:80]!r}, but must be numbers with commas; leave it out.")
    return found


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...] | None:
    """The labels that have words, in their order; where none are given, the data say."""
    return tuple(spoken(config.words)) or None


def primed(
    config: Config,
    labels: Sequence[str],
    tokenizer: Tokenizer,
    texts: Sequence[str],
    answers: Callable[[Task], Sequence[Any]],
) -> Config:
    """The config with the prior measured by the model that `answers`: over texts spread through those given."""
    step = -(-len(texts) // SAMPLE) or 1
    some = list(texts[::step]) if config.prior == "data" and not config.offsets else []
    asked = Task([Example((text,)) for text in ["", *some]], labels, tokenizer, config)
    said = np.asarray(answers(asked))  # also where nothing is measured: a model that fills no blanks is refused here
    if config.prior == "none" or config.offsets:
        return config
    prior = np.average(said, axis=0, weights=[EMPTY, *[1] * len(some)])
    return replace(config, offsets=",".join(f"{number:.2f}" for number in prior))


class Words:
    """The tokens of all words, and where each is asked for among the blanks of a window."""

    def __init__(self, config: Config, labels: Sequence[str], tokenizer: Tokenizer) -> None:
        given = spoken(config.words)
        if not given and all(label.isdigit() for label in labels):
            raise InputError(f"the labels are numbers, which say nothing by themselves; give words for them: {HINT}.")
        for label in labels:
            if given and label not in given:
                raise InputError(f"task.words has no word for the label {label!r}; add {label}=….")
        ids = [[_tokens(word, label, tokenizer) for word in given.get(label, (label,))] for label in labels]
        if len({tuple(sorted(map(tuple, own))) for own in ids}) < len(labels):
            raise InputError("task.words gives two labels the same words, so nothing can tell them apart.")
        self.lengths = sorted({len(word) for own in ids for word in own})  # of the blank: a sequence for each
        first = dict(zip(self.lengths, np.cumsum([0, *self.lengths[:-1]]).tolist(), strict=True))
        rows = [
            (first[len(word)] + place, token, label, 1 / (len(word) * len(own)))
            for label, own in enumerate(ids)
            for word in own
            for place, token in enumerate(word)
        ]
        columns, tokens, owners, shares = zip(*rows, strict=True)
        self.columns = np.array(columns)  # [M] the blank of a window at which each token is asked for
        self.tokens = np.array(tokens)  # [M]
        self.weights = np.zeros((len(rows), len(labels)), dtype=np.float32)  # [M, L]
        self.weights[np.arange(len(rows)), owners] = shares
        self.kinds = np.repeat(np.arange(len(self.lengths)), self.lengths)  # [K] the sequence that each blank is in
        self.places = np.concatenate([np.arange(length) for length in self.lengths])  # [K] its place among its masks


def _tokens(word: str, label: str, tokenizer: Tokenizer) -> list[int]:
    ids: list[int] = tokenizer.pieces([word]).ids.tolist()
    if not ids or tokenizer.unk_id in ids:
        raise InputError(
            f"the word {word!r} of the label {label!r} is not in the vocabulary, so no blank can be filled with it; "
            f"give another: {HINT}."
        )
    return ids


class Task(classify.Task):
    """Classification by the words that a model would write into a blank."""

    config: Any

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        if not config.template:
            raise InputError(f"blank needs a template: {HINT}.")
        if len(labels) < 2:
            raise InputError(f"task.words has {len(labels)} labels, but two or more are needed: {HINT}.")
        self.labels, self.tokenizer, self.config, self.parts = tuple(labels), tokenizer, config, (HEAD,)
        if len(numbers(config.offsets)) not in (0, len(labels)):
            raise InputError(
                f"task.offsets has not one number for each of these {len(labels)} labels; measure them anew: "
                f"--set task.offsets=."
            )
        self.words = Words(config, labels, tokenizer)
        self.gold = self._golds(examples)
        self._cut([example.texts for example in examples])

    def _cut(self, texts: Sequence[tuple[str, ...]]) -> Pieces:
        """The texts as tokens and windows, each window with the template around it, once for each length of words."""
        pieces = self.tokenizer.pieces([text for (text,) in texts])
        frames = [self._frame(length) for length in self.words.lengths]
        sizes = np.array([[len(before), len(after)] for before, after, _ in frames])
        room = self.config.max_length - int(sizes.sum(1).max())
        if room < ROOM + 2:
            raise InputError(
                f"task.max_length is {self.config.max_length}, but the template leaves {max(room - 2, 0)} tokens of it "
                f"to the text, and {ROOM} are the least; make it longer or the template shorter."
            )
        found = cuts.cuts(np.asarray(pieces.boundaries, np.int64), None, room, self.config.overlap)
        count, kinds = len(found.first), len(frames)
        read = np.repeat(found.first, kinds, axis=0)
        around = np.tile(sizes, (count, 1))
        lengths = read[:, 1] - read[:, 0] + around.sum(1)
        edges = np.concatenate(([0], np.cumsum(lengths)))
        self.ids = np.empty(edges[-1], dtype=np.int32)
        ours = np.zeros(len(self.ids), dtype=bool)
        for kind, (before, after, _) in enumerate(frames):
            for ids, at in ((before, edges[kind:-1:kinds]), (after, edges[kind + 1 :: kinds] - len(after))):
                places = at[:, None] + np.arange(len(ids))
                self.ids[places], ours[places] = ids, True
        self.sources = np.full(len(self.ids), -1, dtype=np.int32)  # which of the texts' tokens each is; -1: template
        self.sources[~ours] = classify.ranges(read[:, 0], read[:, 1] - read[:, 0])
        self.ids[~ours] = pieces.ids[self.sources[~ours]]
        own = (read[:, 2:] - read[:, :1]) + (edges[:-1] + around[:, 0])[:, None]
        first = np.concatenate((np.stack((edges[:-1], edges[1:]), axis=1), own), axis=1)
        self._take(replace(found, edges=found.edges * kinds, first=first, second=np.zeros_like(first)))
        self.shares = found.shares  # of windows
        at = np.tile([place for _, _, place in frames], count)
        text = read[:, 1] - read[:, 0]
        self.blanks = 1 + at + np.where(at < around[:, 0], 0, text)  # [S] the first mask of each sequence
        return pieces

    def _frame(self, length: int) -> tuple[Ints, Ints, int]:
        """The tokens before and after a text, and the place of the first mask among them."""
        before, after = self.tokenizer.pieces(frame(self.config.template, length), specials=True)
        place = int(np.flatnonzero(np.concatenate((before.ids, after.ids)) == self.tokenizer.mask_id)[0])
        return before.ids, after.ids, place

    def origins(self, example: Example) -> Places:
        """As classify has it; the template stands in no text."""
        found = np.full((len(self.ids), 3), -1, dtype=np.int64)
        found[self.sources >= 0] = super().origins(example)[self.sources[self.sources >= 0]]
        return found

    def item(self, index: int, epoch: int) -> Item:
        """The windows of one text and its label."""
        made = super().item(index, epoch)
        starts = np.cumsum([0, *map(len, made.sequences[:-1])])
        rows = self._blank_rows(starts, self._windows_of(np.array([index])))
        return Item(made.sequences, {**made.targets, "blank_rows": rows})

    def batch(self, orders: tuple[int, Places], budget: int | None = None) -> Batch:
        """The texts' windows packed by length; with `budget` the row is filled up to it."""
        texts, kinds = orders[1], len(self.words.lengths)
        made, chosen = self._packed(texts, budget), self._windows_of(texts)
        targets = {
            "label": self.gold[texts],
            "num_windows": (self.cuts.edges[texts + 1] - self.cuts.edges[texts]) // kinds,
            "shares": self.shares[chosen[::kinds] // kinds].astype(np.float32),
            "blank_rows": self._blank_rows(made.starts, chosen),
        }
        return Batch(made.packed, made.starts, made.owners, targets)

    def _blank_rows(self, starts: Places, chosen: Places) -> Places:
        """[W, K] where the blanks of each window lie, when these sequences begin there."""
        first = (starts + self.blanks[chosen]).reshape(-1, len(self.words.lengths))
        rows: Places = first[:, self.words.kinds] + self.words.places
        return rows

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[N, L] in float32, the prior taken from them."""
        said_NL = self._said(model, batch)
        return said_NL - said_NL.new_tensor(numbers(self.config.offsets) or [0.0])

    def _said(self, model: Any, batch: Batch) -> Tensor:
        """[N, L] the mean log-probability of each label's words."""
        import torch

        rows_WK, counts = batch.targets["blank_rows"], batch.targets["num_windows"]
        packed = self._hidden(batch.packed) if model.training and self.config.mask_prob else batch.packed
        words_WKV = model.word_scores(model(packed, rows_WK.flatten())).float().unflatten(0, rows_WK.shape)
        columns, tokens, weights_ML = (
            torch.as_tensor(each, device=words_WKV.device)
            for each in (self.words.columns, self.words.tokens, self.words.weights)
        )
        logs_WM = words_WKV[:, columns, tokens] - words_WKV.logsumexp(-1)[:, columns]
        said_WL: Tensor = logs_WM @ weights_ML
        if len(rows_WK) == len(counts):
            return said_WL
        return torch.segment_reduce(said_WL * batch.targets["shares"][:, None], "sum", lengths=counts, unsafe=True)

    def raw(self, model: Any, batch: Batch) -> Sequence[Any]:
        """What the model says of each text, the prior still in it."""
        return list(self._said(model, batch).cpu().numpy())

    def heard(self, host: numpy_heads.Host, batch: Batch) -> Sequence[Any]:
        """What `raw` gives, without torch."""
        rows_WK, counts = batch.targets["blank_rows"], batch.targets["num_windows"]
        words_WKV = host.heads.word_scores(host(batch.packed, rows_WK.ravel())).reshape(*rows_WK.shape, -1)
        most_WK = words_WKV.max(axis=-1)
        totals_WK = np.log(np.exp(words_WKV - most_WK[:, :, None]).sum(axis=-1)) + most_WK
        columns = self.words.columns
        said_WL = (words_WKV[:, columns, self.words.tokens] - totals_WK[:, columns]) @ self.words.weights
        if len(rows_WK) == len(counts):
            return list(said_WL)
        return list(
            numpy_heads.sums(said_WL * batch.targets["shares"][:, None], np.concatenate(([0], np.cumsum(counts))))
        )

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """In the user's own labels."""
        return super().predictions(self._calibrated(raw))

    def label_shares(self, raw: Sequence[Any]) -> npt.NDArray[np.float64]:
        """[N, L] how likely each label is."""
        return super().label_shares(self._calibrated(raw))

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """How right they are, as classify has it."""
        return super().evaluated(self._calibrated(raw))

    def _calibrated(self, raw: Sequence[Any]) -> Any:
        return np.asarray(raw, dtype=np.float64) - (numbers(self.config.offsets) or 0.0)
