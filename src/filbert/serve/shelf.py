"""Model folders by name in; for each the texts of many requests in, its answers to each out.

What a model is asked goes through its own queue (serve.queue); the engine of `predict` answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from filbert.core import registry
from filbert.core.errors import InputError, did_you_mean
from filbert.core.records import Example, Floats, Prediction
from filbert.engine.blanks import Blank
from filbert.engine.model import Model
from filbert.engine.reader import TASK
from filbert.pack.pooling import unit_length
from filbert.serve import limits
from filbert.serve.limits import Limits, Refused
from filbert.serve.look_queue import LookQueue
from filbert.serve.metrics import ModelCounts
from filbert.serve.queue import Batcher, Promised
from filbert.tasks.task import Asked
from filbert.tasks.wire import Beside, Wire
from filbert.text import windows

if TYPE_CHECKING:
    from filbert.serve.answers import About, Record

# Tokens read together on a CPU: more are read no faster, and who comes next waits (experiments/2026-11-16-serving.md,
# 2026-11-17-eight-bits.md, and 2026-11-19-edges.md since when they are counted and not guessed).
CPU_TOKENS = {"torch": 1_280, "float32": 448, "int8": 1_280}
PREDICT, EMBED, FILL = "predict", "embed", "fill"  # what is asked of a queue
MASK = "[MASK]"
LEAST_CHARS = 64  # of a text that is repeated that count as a token, however few it has
MASK_TOKENS = 32  # a blank costs as much as so many tokens: every word of the vocabulary is ranked for it
NUMBER_BYTES, SCORE_BYTES, CANDIDATE_BYTES, RECORD_BYTES = 22, 32, 80, 200  # of an answer, about, each
PROBE = "今天天气很好 the weather is fine "  # what a model is asked to see how fast it is
PROBE_TOKENS = 256
Answered = tuple[Example, Prediction]
Kind = str | tuple[str, int]  # PREDICT, EMBED, or FILL and how many candidates each blank gets


class Served:
    """One model under a name, behind a queue."""

    def __init__(
        self,
        name: str,
        model: Model,
        task: str | None = None,
        allowed: Limits | None = None,
        counts: ModelCounts | None = None,
    ) -> None:
        self.name, self.limits, self.task_option = name, allowed or Limits(), task
        self.task = task_of(model, task)
        # With the folder's task read once, not for every answer
        self.model = model if self.task is None else model.reading(task)
        self.reader = None if self.task is None else self.model.reader(task)
        self.record_bytes = RECORD_BYTES + sum(SCORE_BYTES + len(label) for label in self.model.labels)
        # As it was loaded: a folder that changes on disk keeps answering as before.
        self.has_task_file = task is not None or (model.folder / TASK).exists()
        self.has_torch = _has_torch(model)
        self.has_vectors = _has_vectors(model)
        self.budget = self.limits.batch_tokens or _budget(model)
        window = model.config.max_length
        if 0 < self.limits.batch_tokens < window:
            raise InputError(
                f"{name}: {self.budget:,} tokens read together are fewer than one window's {window:,}; "
                f"give --batch-tokens {window} or more."
            )
        threads, on_start = _threads(model)
        self.batcher = Batcher(
            self._answers, self.limits.waiting, self.budget, threads, on_start, self.limits.deadline_s, counts
        )
        self._measure()

    def _answers(self, kind: Kind, questions: Sequence[str] | Sequence[Example]) -> list[Any]:
        """What a thread of the queue does with texts of several requests; with examples, where they are predicted."""
        if kind == PREDICT:
            assert self.reader is not None, "`predicted` refuses a model without a task"
            items = self.reader.items(cast(Sequence[Example], questions))
            return list(zip(items.examples, items.predictions(self.model.engine.answers(items)), strict=True))
        texts = cast(Sequence[str], questions)
        if isinstance(kind, tuple):
            return [self.model.fill(text, top=kind[1]) for text in texts]
        return list(self.model.embed(texts, normalize=False))

    def _measure(self) -> None:
        """Sees how fast it is, so that from the first request on no more is accepted than can be answered in time."""
        if not self.has_vectors:
            return
        text = PROBE * (PROBE_TOKENS // limits.num_tokens([PROBE])[0])
        start = time.perf_counter()
        self.model.embed([text], normalize=False)
        self.batcher.speed.measured(EMBED, self.num_tokens([text]), time.perf_counter() - start)

    def predicted(self, texts: Sequence[object]) -> Promised[list[Answered]]:
        """Its prediction for each text, pair or whatever its task reads."""
        if self.reader is None:
            raise Refused(422, f"{self.name} was fine-tuned for nothing, so it has no answers; it has vectors: /embed.")
        questions = [_as_tuple(text) for text in texts]
        examples = self.reader.examples(questions)  # what is no question is refused before it waits
        num_bytes = len(questions) * self.record_bytes + 6 * sum(limits.num_tokens(questions))
        return self._ask(questions, PREDICT, self._costs(questions), num_bytes, examples)

    def _costs(self, questions: Sequence[Asked]) -> list[int]:
        """How many tokens are read for each: counted, since a guess that is far off would make the server think that it
        is fast; and where texts are read side by side with all that is repeated. Refuses more than a request may have.
        """
        texts = list(dict.fromkeys(text for each in questions for text in limits.strings_in(each)))
        tokens = self.model.tokenizer.pieces(texts)
        counts = dict(zip(texts, np.diff(tokens.boundaries).tolist(), strict=True))
        sizes, read = list[int](), 0
        for question in questions:
            pairs = self._side_by_side(question)
            if not pairs:
                sizes.append(sum(counts[text] + 2 for text in limits.strings_in(question)))
                continue
            length, overlap = self.model.window()
            size = num_chars = 0
            for long, *repeated in pairs:
                size += windows.num_read(sum(map(counts.__getitem__, repeated)), counts[long], length, overlap)
                num_chars += sum(map(len, repeated))
            sizes.append(size)
            # Of what is no word, and so has hardly a token, as many copies are made.
            read += max(size, num_chars // LEAST_CHARS)
        if read > self.limits.tokens:
            raise Refused(
                422, f"{read:,} tokens would be read, with what is repeated in every window or for every option, but a "
                f"request may have {self.limits.tokens:,}; send shorter texts, or fewer.",
            )  # fmt: skip
        return sizes

    @property
    def wire(self) -> Wire:
        """How its task is spoken over HTTP; a model without one gives vectors and fills blanks."""
        return Wire(pipeline=None) if self.task is None else registry.task(self.task).wire

    def _side_by_side(self, question: Asked) -> list[Beside]:
        """The texts of a question that are read together: each long one, and those that are repeated beside it."""
        if isinstance(question, str):
            return []
        first, *others = question
        return self.wire.beside(first, others)

    def vectors(self, texts: list[str]) -> Promised[list[Floats]]:
        """Each text's vector, as it is: `cut` makes it shorter and of length 1."""
        if not self.has_vectors:
            raise Refused(422, f"{self.name} has no vectors; it was made for {self.task}.")
        return self._ask(texts, EMBED, self._costs(texts), len(texts) * self.model.config.width * NUMBER_BYTES)

    def fills(self, texts: list[str], top: int) -> Promised[list[list[Blank]]]:
        """What it would put into the blanks of each text."""
        if not self.model.engine.fills:
            raise Refused(422, f"{self.name} has no masked-language-model head, so it cannot fill in blanks.")
        masks = [text.count(MASK) for text in texts]
        for index, number in enumerate(masks):
            if not number:
                raise Refused(422, f"text {index} has no [MASK]; write it where a word is missing.")
        # Each candidate is sent with the whole text around it.
        num_bytes = [
            number * top * (len(text.encode("utf-8", "replace")) + CANDIDATE_BYTES)
            for number, text in zip(masks, texts, strict=True)
        ]
        sizes = [size + MASK_TOKENS * n for size, n in zip(self._costs(texts), masks, strict=True)]
        return self._ask(texts, (FILL, top), sizes, sum(num_bytes))

    def _ask(
        self,
        texts: Sequence[Asked],
        kind: Kind,
        sizes: list[int],
        num_bytes: int,
        examples: Sequence[Example] | None = None,
    ) -> Promised[list[Any]]:
        """Into the queue, if neither the question nor its answer is too large; sizes: what each text costs.

        examples: the texts as the model's task reads them, where it is to predict.
        """
        if num_bytes > self.limits.answer_bytes:
            raise Refused(
                413, f"the answer would have about {num_bytes:,} bytes, more than {self.limits.answer_bytes:,}; "
                f"ask for less at once{': fewer [MASK], a smaller top_k' if isinstance(kind, tuple) else ''}.",
            )  # fmt: skip
        limits.check_tokens(texts, self.num_tokens, self.limits)
        promised = self.batcher.ask(texts if examples is None else examples, kind, sizes)
        promised.num_bytes = num_bytes
        return promised

    def num_tokens(self, texts: list[str]) -> int:
        """How many tokens the texts have, with their [CLS] and [SEP]."""
        return sum(len(pieces.ids) for pieces in self.model.tokenizer.pieces(texts)) + 2 * len(texts)

    def records(self, answered: Sequence[Answered]) -> list[Record]:
        """Each as `filbert predict` writes it."""
        assert self.reader is not None, "`predicted` refuses a model without a task"
        return [self.reader.record(example, prediction) for example, prediction in answered]

    def about(self) -> About:
        """What a client may want to know before it asks."""
        model = self.model
        return {
            "name": self.name, "task": self.task, "labels": list(model.labels),
            "fills_blanks": bool(model.engine.fills),
            "width": model.widths[0], "widths": list(model.widths), "max_length": model.config.max_length,
            "runtime": "torch" if self.has_torch else "onnx", "waiting": self.batcher.num_waiting,
        }  # fmt: skip


def task_of(model: Model, task: str | None) -> str | None:
    """What it was fine-tuned for; a pretrained model has vectors and fills blanks, and is asked nothing else."""
    try:
        return model.task(task)
    except InputError:
        if task is not None:
            raise
        return None


def _budget(model: Model) -> int:
    """How many tokens are read together: on a CPU no more than make it faster. A longer text is read alone."""
    if model.engine.device != "cpu":
        return int(model.engine.budget)
    return CPU_TOKENS["torch" if _has_torch(model) else model.engine.precision]


def _has_torch(model: Model) -> bool:
    return bool(model.engine.has_torch)


def _threads(model: Model) -> tuple[int, Callable[[], object]]:
    """How many threads own the model, and what each does first.

    On a CPU one for each core, working alone: several that share each product wait for each other, the longer the
    busier the machine (experiments/2026-11-16-serving.md). onnxruntime is set up so from the start.
    """
    if not _has_torch(model):
        return int(model.engine.threads), lambda: None
    if model.engine.device != "cpu":
        return 1, lambda: None
    import torch

    return torch.get_num_threads(), lambda: torch.set_num_threads(1)


def _has_vectors(model: Model) -> bool:
    """Whether it gives texts vectors. Asking warms it up: the first request does not pay for what first use makes."""
    try:
        return len(model.embed(["filbert 填空"])) == 1
    except (InputError, AttributeError, TypeError):  # a model that writes
        return False


def cut(vectors: Sequence[Floats], width: int | None, normalize: bool) -> Floats:
    """As `Model.embed` gives them: the first so many numbers, and then to length 1 where that is wanted."""
    kept: Floats = np.stack(list(vectors))[:, :width]
    return unit_length(kept) if normalize else kept


class Shelf:
    """All models of a server, by name, empty until they are loaded; and the queue of looks inside them."""

    def __init__(self, names: Sequence[str], allowed: Limits | None = None) -> None:
        self.names, allowed = list(names), allowed or Limits()
        self.loaded: dict[str, Served] = {}
        self.looks = LookQueue(allowed.look_s, allowed.deadline_s, _alone)

    @property
    def is_ready(self) -> bool:
        """Whether every model is here, and alive."""
        return len(self.loaded) == len(self.names) and all(one.batcher.is_alive for one in self.loaded.values())

    @property
    def is_full(self) -> bool:
        """Whether no model can take another request."""
        return bool(self.loaded) and all(one.batcher.is_full for one in self.loaded.values())

    def chosen(self, name: str | None) -> Served:
        """The model of that name; the only one where none is named."""
        if name is None and len(self.names) > 1:
            raise Refused(422, f'this server has several models; name one as "model": {", ".join(self.names)}.')
        name = self.names[0] if name is None else name
        self.check_name(name)
        if name not in self.loaded:
            raise Refused(503, "the model is being loaded; ask again in a moment.", Retry_After="1")
        return self.loaded[name]

    def check_name(self, name: str) -> None:
        """Refuses a name that no model has."""
        if name not in self.names:
            there = f"there is {', '.join(self.names)}.{did_you_mean(name, self.names)}"
            raise Refused(404, f"there is no model of that name; {there}")

    @property
    def has_ended(self) -> bool:
        """Whether no thread of a model is at work any more."""
        return not self.looks.is_alive and not any(one.batcher.has_threads for one in self.loaded.values())

    def close(self, within_s: float | None = None) -> bool:
        """Answers what was accepted, then ends; what takes longer is given up. Whether every thread has ended."""
        until = None if within_s is None else time.monotonic() + within_s
        closing = [one.batcher.close for one in self.loaded.values()] + [self.looks.close]
        ends = [close(None if until is None else max(0.0, until - time.monotonic())) for close in closing]
        return all(ends)


def _alone() -> None:
    """What the thread for looks does first: it takes one core, whatever the model would take."""
    import torch

    torch.set_num_threads(1)


def _as_tuple(text: object) -> Asked:
    """A question as `predict` takes it; a pair also as pipelines of transformers do: {"text": …, "text_pair": …}."""
    if isinstance(text, dict) and set(text) == {"text", "text_pair"}:
        return text["text"], text["text_pair"]
    return cast(Asked, tuple(text) if isinstance(text, list) else text)  # what is neither is refused by the task
