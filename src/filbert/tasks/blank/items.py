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

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item
from filbert.core.records import Example, Floats, Ints, Prediction
from filbert.nn.ops import A, Host
from filbert.pack import cuts
from filbert.pack.lay import Places
from filbert.tasks.blank.spec import HINT, ROOM, Config, frame, numbers, spoken
from filbert.tasks.classify import items as classify
from filbert.tasks.task import Report
from filbert.tasks.windowed import ranges
from filbert.text.tokenizer import Pieces, Tokenizer

PART = "mlm"


class Words:
    """The tokens of all words, and at which blank of a window each is scored."""

    def __init__(self, config: Config, labels: Sequence[str], tokenizer: Tokenizer) -> None:
        words = spoken(config.words)
        if not words and all(label.isdigit() for label in labels):
            raise InputError(f"the labels are numbers, which say nothing by themselves; give words for them: {HINT}.")
        for label in labels:
            if words and label not in words:
                raise InputError(f"task.words has no word for the label {label!r}; add {label}=….")
        ids = [[_tokens(word, label, tokenizer) for word in words.get(label, (label,))] for label in labels]
        if len({tuple(sorted(map(tuple, of_label))) for of_label in ids}) < len(labels):
            raise InputError("task.words gives two labels the same words, so nothing can tell them apart.")
        self.lengths = sorted({len(word) for of_label in ids for word in of_label})  # of the blank: a sequence for each
        first = dict(zip(self.lengths, np.cumsum([0, *self.lengths[:-1]]).tolist(), strict=True))
        rows = [
            (first[len(word)] + place, token, label, 1 / (len(word) * len(of_label)))
            for label, of_label in enumerate(ids)
            for word in of_label
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


class Items(classify.Items[Any]):
    """Classification by the words that a model would write into a blank."""

    part = PART

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        if not config.template:
            raise InputError(f"blank needs a template: {HINT}.")
        if len(labels) < 2:
            raise InputError(f"task.words has {len(labels)} labels, but two or more are needed: {HINT}.")
        offsets = numbers(config.offsets)
        if len(offsets) not in (0, len(labels)):
            raise InputError(
                f"task.offsets has not one number for each of these {len(labels)} labels; measure them anew: "
                f"--set task.offsets=."
            )
        self.offsets: Floats = np.array(offsets or (0.0,))
        self.words = Words(config, labels, tokenizer)
        super().__init__(examples, labels, tokenizer, config)

    def cut(self, texts: Sequence[tuple[str, ...]], overlap: int) -> Pieces:
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
        windows = cuts.cuts(np.asarray(pieces.boundaries, np.int64), None, room, overlap)
        count, kinds = len(windows.first), len(frames)
        read = np.repeat(windows.first, kinds, axis=0)
        around = np.tile(sizes, (count, 1))
        lengths = read[:, 1] - read[:, 0] + around.sum(1)
        edges = np.concatenate(([0], np.cumsum(lengths)))
        self.ids = np.empty(edges[-1], dtype=np.int32)
        ours = np.zeros(len(self.ids), dtype=bool)
        for kind, (before, after, _) in enumerate(frames):
            for ids, at in ((before, edges[kind:-1:kinds]), (after, edges[kind + 1 :: kinds] - len(after))):
                places = at[:, None] + np.arange(len(ids))
                self.ids[places], ours[places] = ids, True
        self.text_tokens = np.full(len(self.ids), -1, dtype=np.int32)  # of the texts' tokens; -1: the template
        self.text_tokens[~ours] = ranges(read[:, 0], read[:, 1] - read[:, 0])
        self.ids[~ours] = pieces.ids[self.text_tokens[~ours]]
        owned = (read[:, 2:] - read[:, :1]) + (edges[:-1] + around[:, 0])[:, None]
        first = np.concatenate((np.stack((edges[:-1], edges[1:]), axis=1), owned), axis=1)
        self.take(replace(windows, edges=windows.edges * kinds, first=first, second=np.zeros_like(first)))
        self.shares = windows.shares  # of windows
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
        """As of any text; the template stands in none."""
        places = np.full((len(self.ids), 3), -1, dtype=np.int64)
        inside = self.text_tokens >= 0
        places[inside] = super().origins(example)[self.text_tokens[inside]]
        return places

    def item(self, index: int, epoch: int = 0) -> Item:
        """The windows of one text and its label."""
        made = super().item(index, epoch)
        starts = np.cumsum([0, *map(len, made.sequences[:-1])])
        rows = self._blank_rows(starts, self.windows_of(np.array([index])))
        return Item(made.sequences, {**made.targets, "blank_rows": rows})

    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The texts' windows packed by length; with `budget` the row is filled up to it."""
        kinds = len(self.words.lengths)
        laid, chosen = self.laid(orders, budget), self.windows_of(orders)
        targets = {
            "label": self.gold[orders],
            "num_windows": (self.cuts.edges[orders + 1] - self.cuts.edges[orders]) // kinds,
            "shares": self.shares[chosen[::kinds] // kinds].astype(np.float32),
            "blank_rows": self._blank_rows(laid.starts, chosen),
        }
        return Batch(laid.packed, laid.starts, laid.owners, targets)

    def _blank_rows(self, starts: Places, chosen: Places) -> Places:
        """[W, K] where the blanks of each window lie, when these sequences begin there."""
        first = (starts + self.blanks[chosen]).reshape(-1, len(self.words.lengths))
        rows: Places = first[:, self.words.kinds] + self.words.places
        return rows

    def scores(self, host: Host[A], batch: Batch) -> A:
        """[N, L] in float32, the prior taken from them."""
        log_chances_NL = self.log_chances(host, batch)
        scores_NL: A = log_chances_NL - host.xp.at(self.offsets.astype(np.float32), log_chances_NL)
        return scores_NL

    def log_chances(self, host: Host[A], batch: Batch) -> A:
        """[N, L] the mean log-probability of each label's words."""
        xp, rows_WK, counts = host.xp, batch.targets["blank_rows"], batch.targets["num_windows"]
        packed = self.read(host, batch.packed)
        words_WKV = host.head(PART, host.vectors(packed, rows_WK.reshape(-1))).reshape(*rows_WK.shape, -1)
        columns, tokens, weights_ML = (
            xp.at(each, words_WKV) for each in (self.words.columns, self.words.tokens, self.words.weights)
        )
        logs_WM = words_WKV[:, columns, tokens] - xp.logsumexp(words_WKV)[:, columns]
        means_WL: A = logs_WM @ weights_ML
        if len(rows_WK) == len(counts):
            return means_WL
        return xp.segment_sum(means_WL * batch.targets["shares"][:, None], counts)

    def raw(self, host: Host[A], batch: Batch) -> Sequence[Floats]:
        """The scores of each text, the prior still in them."""
        return list(host.xp.host(self.log_chances(host, batch)))

    def predictions(self, raw: Sequence[Floats]) -> list[Prediction]:
        """In the user's own labels."""
        return super().predictions(self._calibrated(raw))

    def label_shares(self, raw: Sequence[Floats]) -> npt.NDArray[np.float64]:
        """[N, L] how likely each label is."""
        return super().label_shares(self._calibrated(raw))

    def evaluated(self, raw: Sequence[Floats]) -> Report:
        """How right they are, as classify has it."""
        return super().evaluated(self._calibrated(raw))

    def _calibrated(self, raw: Sequence[Floats]) -> list[Floats]:
        return list(np.asarray(raw, dtype=np.float64) - self.offsets)
