"""A model folder in; an object that embeds, fills blanks and answers in the user's own characters out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.artefact import folder as folders
from filbert.artefact.folder import Loaded
from filbert.core.errors import InputError, one_of
from filbert.core.pause import collector_paused
from filbert.core.records import Example, Floats, Prediction
from filbert.core.registry import member
from filbert.decode.blanks import Blank, ranked
from filbert.decode.pooling import POOLS, text_vectors, unit_length
from filbert.infer.engine import Engine
from filbert.infer.predict import Asked, read_as
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import WindowEncoding, windowed

OVERLAP = 128


def load(path: Path | str, *, device: str | None = None, dtype: str = "float32") -> Model:
    """The model of a folder: ours, a run's, or a transformers BERT folder; "builtin" is the one that ships."""
    with collector_paused():
        found = folders.load(path, dtype=dtype)
        tokenizer = Tokenizer.load(found.folder)
    if tokenizer.vocab_size > found.config.vocab_size:
        raise InputError(
            f"{found.folder}: the tokenizer knows {tokenizer.vocab_size:,} tokens but the model only "
            f"{found.config.vocab_size:,}; they are not of one folder."
        )
    return Model(found, tokenizer, device or ("cuda" if torch.cuda.is_available() else "cpu"))


class Model:
    """A loaded model: `embed`, `fill`, `predict`, and what is known of it (`config`, `labels`, `notes`)."""

    def __init__(self, found: Loaded, tokenizer: Tokenizer, device: str = "cpu") -> None:
        self.folder, self.config, self.labels, self.notes = found.folder, found.config, found.labels, found.notes
        self.backbone, self.tokenizer, self._found = found.model, tokenizer, found
        self.engine = Engine(found.model, device)

    def embed(self, texts: Sequence[str], *, pool: str | None = None, normalize: bool = False) -> Floats:
        """One vector per text, [texts, width]; texts of any length are read whole.

        pool: "mean" of all tokens, "cls" for the first token's vector, "pooled" for BERT's tanh layer on it. Without
        one, the folder's own (1_Pooling/config.json, as sentence-transformers writes it), else the mean.
        """
        pool = pool or folders.pooling(self.folder) or "mean"
        if pool not in POOLS:
            raise one_of("pool", pool, POOLS)
        texts = _texts(texts)
        if not texts:
            return np.zeros((0, self.config.width), dtype=np.float32)
        windows, owners = self._windows(texts)
        if pool == "mean":
            vectors = self.engine.mean(windows, _counted(windows) if len(windows) > len(texts) else None)
        else:
            vectors = self.engine.first(windows)
            if pool == "pooled":
                with torch.inference_mode():
                    first = torch.as_tensor(vectors, device=self.engine.device)
                    vectors = self.backbone.pooled(first).float().cpu().numpy()
        # An empty text owns nothing, but its one window is all there is of it.
        weights = [max(1.0, float(window.owned.sum())) for window in windows]
        result = text_vectors(vectors, weights, owners, len(texts))
        return unit_length(result) if normalize else result

    def fill(self, text: str, *, top: int = 5) -> list[Blank]:
        """What the model would put at each [MASK] of the text, best first."""
        if type(top) is not int or top < 1:
            raise InputError(f"top is {top!r}, but must be a whole number of 1 or more.")
        if self.backbone.mlm is None:
            raise InputError(f"{self.folder}: has no masked-language-model head, so it cannot fill in blanks.")
        tokens = self.tokenizer.pieces(_texts([text]), specials=True)[0]
        if not (tokens.ids == self.tokenizer.mask_id).any():
            raise InputError("the text has no [MASK]: write [MASK] where a word is missing, e.g. 今天[MASK]气很好.")
        blanks = []
        for window in windowed(self.tokenizer, tokens, None, self.config.max_length, OVERLAP):
            places = np.flatnonzero((window.ids == self.tokenizer.mask_id) & window.owned)
            if not len(places):
                continue
            with torch.inference_mode():
                scores = self.backbone.word_scores(self.engine.rows(window, places)).float().cpu().numpy()
            for place, scores_V in zip(places, scores, strict=True):
                known = scores_V[: self.tokenizer.vocab_size]
                candidates = ranked(known, top, self.tokenizer.token_of, self.tokenizer.special_ids)
                blanks.append(Blank(int(window.starts[place]), int(window.ends[place]), candidates))
        return blanks

    def predict(self, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
        """What the model was fine-tuned to say of each text or pair, however long: a label, a number, an answer.

        A model that answers questions takes (question, passage). task: "pair" for a published folder that reads pairs,
        since such folders do not say so themselves.
        """
        name, config = read_as(self._found, task)
        kind = member("tasks", name).Task
        given = _pairs(texts) if kind.num_texts == 2 else [(text,) for text in _texts(texts)]
        found = kind([Example(each) for each in given], self.labels, self.tokenizer, config)
        return found.predictions(self.engine.answers(found)) if len(found) else []

    def task(self, task: str | None = None) -> str:
        """What it was fine-tuned for; a folder without a task's head is refused."""
        return read_as(self._found, task)[0]

    def _windows(self, texts: list[str]) -> tuple[list[WindowEncoding], list[int]]:
        """All windows of all texts in order, and the text that each is of."""
        windows: list[WindowEncoding] = []
        owners: list[int] = []
        for index, tokens in enumerate(self.tokenizer.pieces(texts)):
            found = windowed(self.tokenizer, tokens, None, self.config.max_length, OVERLAP)
            windows += found
            owners += [index] * len(found)
        return windows, owners


def _counted(windows: Sequence[WindowEncoding]) -> list[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Which tokens of each window enter its mean: those it owns, and its [CLS] and [SEP]."""
    return [window.owned | (window.parts < 0) for window in windows]


def _pairs(pairs: Sequence[Asked]) -> list[tuple[str, ...]]:
    if isinstance(pairs, str):
        raise InputError("pairs is one string, but a list of pairs is needed: write predict([(first, second)]).")
    for index, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(f"pair {index} is {str(pair)[:40]!r}, but must be two strings: this model reads pairs.")
    return [tuple(pair) for pair in pairs]


def _texts(texts: Sequence[Any]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("texts is one string, but a list of strings is needed: write embed([text]).")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {index} is of type {type(text).__name__}, but must be a string.")
    return list(texts)
