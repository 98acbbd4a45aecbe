"""A model folder in; an object that embeds, fills blanks and answers in the user's own characters out."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.core import keywords
from filbert.core.errors import InputError, one_of
from filbert.core.pause import collector_paused
from filbert.core.records import Example, Floats, Prediction
from filbert.core.registry import is_task, task, tasks, tasks_with
from filbert.engine.reader import Reader, bound, described, trained_on
from filbert.engine.threads import finite
from filbert.folder import sentence_transformers
from filbert.pack.pooling import POOLS, text_vectors, unit_length
from filbert.tasks.task import AnyItems, Asked, Trait
from filbert.text import arguments, vocab
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import WindowEncoding, windowed

if TYPE_CHECKING:
    from filbert.engine.backend_onnx import Runtime
    from filbert.engine.backend_torch import Engine
    from filbert.engine.blanks import Blank
    from filbert.engine.neighbours import Hit
    from filbert.explain import attention_maps
    from filbert.explain.explanation import Explanation
    from filbert.folder.folder import Loaded
    from filbert.folder.runtime import Portable
    from filbert.forms.sources import ReadOptions
    from filbert.tasks.question import Target

OVERLAP = 128
RUNTIMES = ("torch", "onnx")


def load(path: Path | str, *, device: str | None = None, dtype: str = "float32", runtime: str | None = None) -> Model:
    """The model of a folder: ours, a run's, or a transformers BERT folder; "builtin" is the one that ships.

    device: "cpu" or "cuda"; without one, or with "auto", a GPU where there is one.
    runtime: "torch", or "onnx" for an exported folder, which needs no torch; without one, torch where it is installed.
    dtype: "float32", or for torch "float16" and "bfloat16", for onnx "int8".
    """
    if runtime not in (None, *RUNTIMES):
        raise one_of("runtime", runtime, RUNTIMES)
    if runtime is None:
        runtime = "torch" if importlib.util.find_spec("torch") and dtype != "int8" else "onnx"
    begin: Callable[[Path | str, str, str], tuple[Loaded | Portable, Engine | Runtime]]
    begin = _with_torch if runtime == "torch" else _without_torch
    with collector_paused():
        loaded, engine = begin(path, "auto" if device is None else device, dtype)
        tokenizer = Tokenizer.load(loaded.folder)
    if tokenizer.vocab_size > loaded.config.vocab_size:
        raise InputError(
            f"{loaded.folder}: the tokenizer knows {tokenizer.vocab_size:,} tokens but the model only "
            f"{loaded.config.vocab_size:,} (the last is {tokenizer.vocabulary[-1][:40]!r}); they are not of one folder."
        )
    model = Model(loaded, tokenizer, engine)
    loaded.notes.extend([*vocab.unlike(loaded.folder, tokenizer.vocabulary), *model.vectors_as.notes])
    return model


def _with_torch(path: Path | str, device: str, dtype: str) -> tuple[Loaded, Engine]:
    from filbert.engine.backend_torch import Engine
    from filbert.folder import folder as folders
    from filbert.nn.device import usable

    where = str(usable(device))
    loaded = folders.load(path, dtype=dtype)
    return loaded, Engine(loaded.model, where)


def _without_torch(path: Path | str, device: str, dtype: str) -> tuple[Portable, Runtime]:
    from filbert.engine.backend_onnx import Runtime
    from filbert.folder import runtime

    if device not in ("auto", "cpu"):
        raise InputError(f"device is {device!r}, but without torch a model runs on the cpu alone.")
    loaded = runtime.load(path)
    return loaded, Runtime(loaded, dtype)


class Model:
    """A loaded model: `embed`, `fill`, `predict`, and its `config`, `labels` and `notes`."""

    def __init__(self, loaded: Loaded | Portable, tokenizer: Tokenizer, engine: Engine | Runtime) -> None:
        self.folder, self.notes, self._labels = loaded.folder, loaded.notes, tuple(loaded.labels)
        self.config: Any = loaded.config
        self.tokenizer, self._loaded = tokenizer, loaded
        self.engine: Any = engine
        self._reader: Reader[Any] | None = None  # where it is not the folder's own
        self._about = described(loaded)  # read once: a folder that changes on disk keeps answering as it was loaded
        self._readers: dict[str | None, Reader[Any]] = {}  # by the task that was asked for

    @property
    def labels(self) -> list[str]:
        """The labels of its head, in order; a fresh list."""
        return list(self._labels)

    @property
    def backbone(self) -> Any:
        """The torch module."""
        self._check_torch()
        return self._loaded.model

    def _check_torch(self) -> None:
        """Raises where the model runs without torch, for methods that need its modules."""
        from filbert.folder.runtime import Portable

        if isinstance(self._loaded, Portable):
            raise InputError("this needs torch: pip install 'filbert[train]', then load the folder with it.")

    def embed(
        self,
        texts: Iterable[str],
        *,
        pool: str | None = None,
        normalize: bool | None = None,
        width: int | None = None,
        prompt: str | None = None,
    ) -> Floats:
        """One vector per text, [texts, width]; texts of any length are read whole.

        pool: "mean" of all tokens, "cls" for the first token's vector, "pooled" for BERT's tanh layer on it, "own" for
        the model's own way to sum a text up (HAN's attention). Without one, the folder's own: as it was fine-tuned, or
        with all modules that a sentence-transformers folder names, else the mean. normalize: to length 1; without it,
        where the folder was fine-tuned for vectors or normalizes them. width: the first so many numbers alone; those
        that the folder was fine-tuned for are in `widths`, others lose more. prompt: the name of one of the folder's
        prompts; without it, the one that it puts before texts itself.
        """
        if not isinstance(normalize, bool | np.bool_ | None):
            raise InputError(f"normalize is {arguments.called(normalize)}, but must be True, False or None.")
        learnt, pooling, full = self._learnt_vectors, self.vectors_as, self.widths[0]
        if learnt is None and pooling.refused and pool is None:
            raise InputError(f"{pooling.refused} Give pool='cls' or pool='mean' to pool its tokens otherwise.")
        if (pool := pool or self.pool) not in POOLS:
            raise one_of("pool", pool, POOLS)
        if width is not None and (type(width) is not int or not 1 <= width <= full):
            raise InputError(f"width is {width!r}, but must be a whole number from 1 to {full}.")
        texts = self._prompted(arguments.texts(texts, "embed"), prompt)
        if not texts:
            return np.zeros((0, width or full), dtype=np.float32)
        result = self._pooled(texts, pool)
        is_followed = learnt is None and pool == self.pool and not pooling.refused
        if is_followed:
            result = pooling.stepped(result)
        if normalize is None:
            normalize = learnt is not None or (is_followed and pooling.unit)
        result = result[:, :width]
        return finite(unit_length(result) if normalize else result)

    def _pooled(self, texts: list[str], pool: str) -> Floats:
        """One vector per text, its windows averaged; numbers that are not finite are an error."""
        learnt = self._learnt_vectors
        lengths = (learnt.max_length, learnt.overlap) if learnt else (self._window, OVERLAP)
        windows, owners = self._windows(texts, *lengths)
        if pool == "mean":
            vectors = self.engine.mean(windows, _counted(windows) if len(windows) > len(texts) else None)
        elif pool == "own":
            vectors = self.engine.summaries(windows)
        else:
            vectors = self.engine.first(windows)
            if pool == "pooled":
                vectors = self.engine.pooled(vectors)
        # An empty text owns nothing, but its one window is all there is of it.
        weights = [max(1.0, float(window.owned.sum())) for window in windows]
        return text_vectors(vectors, weights, owners, len(texts))

    def _prompted(self, texts: list[str], prompt: str | None) -> list[str]:
        """The texts as the folder's maker hands them to the tokenizer."""
        pooling = self.vectors_as
        if prompt is not None and not pooling.prompts:
            raise InputError(f"prompt is {prompt!r}, but {self.folder} has none; write it before the texts yourself.")
        if prompt is not None and prompt not in pooling.prompts:
            raise one_of("prompt", prompt, pooling.prompts)
        if self._learnt_vectors is not None and prompt is None:
            return texts
        name = pooling.prompt if prompt is None else prompt
        texts = [pooling.prompts[name] + text for text in texts] if name is not None else texts
        return [text.lower() for text in texts] if pooling.lowercase else texts

    @property
    def vectors_as(self) -> sentence_transformers.Vectors:
        """How the folder's maker makes vectors: pooling, what follows it, prompts."""
        return self._about.vectors

    @property
    def pool(self) -> str:
        """The pooling that `embed` uses where none is named."""
        return self._learnt_vectors.pool if self._learnt_vectors else self.vectors_as.pool or "mean"

    @property
    def _window(self) -> int:
        """The tokens of a window where the folder was not fine-tuned for vectors."""
        return min(self._about.window, self.vectors_as.max_length or self._about.window)

    def search(
        self, queries: Iterable[str], texts: Iterable[str], *, top: int = 5, width: int | None = None
    ) -> list[list[Hit]]:
        """The texts that are nearest to each query by cosine, the nearest first; see `engine.neighbours` for many."""
        from filbert.engine.neighbours import search

        query_texts, among = arguments.texts(queries, "search"), arguments.texts(texts, "search")
        return search(self, query_texts, among, top, width)

    @cached_property
    def _learnt_vectors(self) -> Any:
        """How a folder that was fine-tuned for vectors makes them; None where it was not."""
        if self._about.task is None:
            return None
        reader = self.reader() if not self._is_headed else None
        return reader.config if reader is not None and not reader.spec.part else None

    @property
    def _is_headed(self) -> bool:
        """Whether the folder says that it was fine-tuned for a task with a head."""
        name = str((self._about.task or {}).get("task"))
        return not is_task(name) or bool(task(name).part)

    def reader(self, task: str | None = None) -> Reader[Any]:
        """How it reads texts for its task, or for that one; bound at the first call."""
        if not isinstance(task, str | None):
            raise InputError(f"task is {arguments.called(task)}, but must be the name of one, such as 'classify'.")
        if self._reader is not None:
            if task not in (None, self._reader.spec.name):
                raise InputError(f"this model reads its texts for {self._reader.spec.name}, not for {task}.")
            return self._reader
        if task not in self._readers:
            self._readers[task] = bound(self._loaded, self.tokenizer, task, about=self._about)
        return self._readers[task]

    @property
    def trained_on(self) -> ReadOptions:
        """The columns and the encoding of its training files, where they had to be named."""
        return trained_on(self.folder)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many numbers of a vector can be kept: those that the folder was fine-tuned for, at least all."""
        learnt = self._learnt_vectors
        fewer = self.reader().spec.widths(learnt) if learnt else ()
        full = self.config.width if learnt else self.vectors_as.width or self.config.width
        return tuple(sorted({full, *fewer}, reverse=True))

    def fill(self, text: str, *, top: int = 5) -> list[Blank]:
        """What the model would put at each [MASK] of the text, best first."""
        from filbert.engine.blanks import Blank, ranked

        text = arguments.one(text, "fill")
        if type(top) is not int or top < 1:
            raise InputError(f"top is {top!r}, but must be a whole number of 1 or more.")
        if not self.engine.fills:
            raise InputError(f"{self.folder}: has no masked-language-model head, so it cannot fill in blanks.")
        tokens = self.tokenizer.pieces([text], specials=True)[0]
        if not (tokens.ids == self.tokenizer.mask_id).any():
            raise InputError("the text has no [MASK]: write [MASK] where a word is missing, e.g. 今天[MASK]气很好.")
        blanks = []
        for window in windowed(self.tokenizer, tokens, None, self.config.max_length, OVERLAP):
            places = np.flatnonzero((window.ids == self.tokenizer.mask_id) & window.owned)
            if not len(places):
                continue
            scores = finite(self.engine.word_scores(window, places))
            for place, scores_V in zip(places, scores, strict=True):
                token_scores = scores_V[: self.tokenizer.vocab_size]
                candidates = ranked(token_scores, top, self.tokenizer.token_of, self.tokenizer.special_ids)
                blanks.append(Blank(int(window.starts[place]), int(window.ends[place]), candidates))
        return blanks

    def predict(self, texts: Iterable[Asked], *, task: str | None = None) -> list[Prediction]:
        """What the model was fine-tuned to say of each text or pair, however long: a label, a number, an answer.

        A model that answers questions takes (question, passage); one of relations (text, head, tail), the two as
        (start, end) or as words; one that chooses (passage, question, [option, option, …]). task: "pair" for a
        published folder that reads pairs, since such folders do not say so themselves. A pretrained model with a head
        for next-sentence prediction takes (first, second) and says how likely the second follows.
        """
        are_pairs = isinstance(texts, list | tuple) and len(texts) > 0 and not isinstance(texts[0], str)
        reader = self.reader(task or (self.untuned if are_pairs else None))
        examples = reader.examples(texts)
        if not examples:
            return []
        items = reader.items(examples)
        return items.predictions(self.engine.answers(items))

    @keywords.checked("an option of explain")
    def explain(
        self,
        text: Asked,
        *,
        target: Target = None,
        task: str | None = None,
        method: str = "integrated-gradients",
        baseline: str = "mask",
        certificate: bool = True,
        budget: int = 120_000,
        seed: int = 0,
    ) -> Explanation:
        """How much each word of a text moved what the model says of it, and how far that can be believed.

        text: whatever `predict` takes, or, for a pretrained model, a text with [MASK]. target: a label, an option, an
        entity, an answer, a word; (start, end) or (start, end, label) for a place; without one, what the model says.
        method: how, one of explain.attribution's; baseline: what a missing word is read as, or "delete". certificate:
        whether the explanation is tested. budget: tokens that may be read for it. seed: of random orders and words.
        """
        self._check_torch()
        from filbert.explain.explanation import Config, explained

        how = Config(method=method, baseline=baseline, certificate=certificate, budget=budget, seed=seed)
        return explained(self, text, target, how, task)

    def examples(self, texts: Iterable[Asked], task: str | None = None) -> list[Example]:
        """What `predict` is given, as its task reads it; anything else is refused."""
        return self.reader(task).examples(texts)

    def reads(self, texts: Iterable[Asked], task: str | None = None) -> AnyItems:
        """The texts as items of its task."""
        reader = self.reader(task)
        return reader.items(reader.examples(texts))

    @property
    def untuned(self) -> str | None:
        """What a model that was fine-tuned for nothing can say of pairs: nsp, where pretraining left that head."""
        parts, is_tuned = set(self._loaded.model.parts), self._reader or self._about.task is not None
        if is_tuned:
            return None
        left = parts - {"pooler", "mlm"}
        return next((name for name in tasks() if not task(name).can_learn and left == {task(name).part}), None)

    def task(self, task: str | None = None) -> str:
        """What it was fine-tuned for; a folder without a task's head is refused."""
        return self.reader(task).spec.name

    def window(self, task: str | None = None) -> tuple[int, int]:
        """How many tokens of a text its task reads at once at most, and how many two neighbouring windows share."""
        length, overlap = self.reader(task).window
        return min(length, int(self.config.max_length)), overlap

    def reading(self, task: str | None = None, settings: Sequence[str] = (), texts: Sequence[str] = ()) -> Model:
        """The same model with a task and fields of its config (`task.field=value`) that its folder does not have.

        texts: some of those that it is to be asked, for a task that measures something on them first.
        """
        if not isinstance(task, str | None):
            raise InputError(f"task is {arguments.called(task)}, but must be the name of one, such as 'classify'.")
        reader = bound(self._loaded, self.tokenizer, task, settings, self._about)
        other = copy.copy(self)
        vars(other).pop("_learnt_vectors", None)  # made anew, with these fields
        other._reader = reader.primed(texts, self.engine.answers)
        other._labels = other._reader.labels
        return other

    def classify(
        self, texts: Iterable[str], words: Mapping[str, str | Iterable[str]], *, template: str, prior: str = "data"
    ) -> list[Prediction]:
        """A label for each text, without any training, by what the model would write into a blank beside it.

        words: each label's word, or several. template: what stands around a text, e.g. 这是一条[MASK]新闻：{text}.
        prior: what is taken from the words' scores, "data" (their mean over these texts), "empty" or "none".
        """
        if not isinstance(words, Mapping):
            raise InputError(
                f"words is {arguments.called(words)}, but must name each label's word: {{'sport': '体育', …}}."
            )
        words_json = json.dumps(
            {
                label: value if isinstance(value, str) else arguments.texts(value, "words")
                for label, value in words.items()
            }
        )
        fields = {"template": template, "words": words_json, "prior": prior}
        listed = arguments.texts(texts, "classify")
        name = tasks_with(Trait.UNTAUGHT)[0]
        return self.reading(name, [f"task.{name}={value}" for name, value in fields.items()], listed).predict(listed)

    def attention(
        self,
        text: str | Sequence[str],
        pair: str | None = None,
        *,
        layers: attention_maps.Selection = None,
        heads: attention_maps.Selection = None,
        segments: attention_maps.Segments = "auto",
    ) -> attention_maps.Seen:
        """Who attends to whom in a text or pair: as an array [layers, heads, words, words]; `.map` has the tokens.

        Of an encoder-decoder the pair is a target to be followed; without one the model writes it. layers, heads: some,
        from 0; all need 4·N² bytes each in a window of N tokens. segments: what cuts words, as `text.words` names it.
        """
        self._check_torch()
        from filbert.explain import attention_maps

        return attention_maps.attention(self, text, pair, layers, heads, segments)

    @property
    def as_read(self) -> Reader[Any] | None:
        """How it reads texts for its task; None where it was fine-tuned for nothing."""
        has_head = len(self.backbone.heads) or self.backbone.writes
        return self.reader() if self._reader or has_head or self._about.task is not None else None

    def _windows(self, texts: list[str], max_length: int, overlap: int) -> tuple[list[WindowEncoding], list[int]]:
        """All windows of all texts in order, and the text that each is of."""
        windows: list[WindowEncoding] = []
        owners: list[int] = []
        for index, tokens in enumerate(self.tokenizer.pieces(texts)):
            text_windows = windowed(self.tokenizer, tokens, None, max_length, overlap)
            windows += text_windows
            owners += [index] * len(text_windows)
        return windows, owners


def _counted(windows: Sequence[WindowEncoding]) -> list[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Which tokens of each window enter its mean: those it owns, and its [CLS] and [SEP]."""
    return [window.owned | (window.parts < 0) for window in windows]
