"""`transformers` Trainer as fine-tuning's peer: our task's examples and a recipe in; its scores and its time out.

It gets the very same tokens, weights, rates, schedule, hidden words and number of passes; what is its own stays its
own: padded batches, rows instead of tokens, the published head, and of a text longer than one window the first alone.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.run.recipe import FineRecipe
from filbert.train.optim import BETAS, EPS, REST, Mixed

CLASSES = {
    "classify": "BertForSequenceClassification",
    "pair": "BertForSequenceClassification",
    "relation": "BertForSequenceClassification",  # of [CLS], over the same marked text: it has no head for marks
    "tag": "BertForTokenClassification",
    "answer": "BertForQuestionAnswering",
    "choose": "BertForMultipleChoice",
}
HEADS = ("classifier.", "qa_outputs.", "bert.pooler.")
# Steps of `choose` hold a handful of questions; at the head's rate a new pooler saturates in fifty of them, all options
# get one score, and nothing is learnt any more (experiments/2026-11-18-choices.md). There it has the encoder's rate.
SLOW_POOLER = ("choose",)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Row = dict[str, Any]


def rows(task: Any, kind: str) -> list[Row]:
    """The task's examples as a padding collator takes them; those that teach nothing are left out."""
    found = []
    for index in range(len(task)):
        batch = task.batch(np.array([index]))
        edges, ids = batch.packed.boundaries, batch.packed.ids
        ends = edges[np.searchsorted(edges, batch.starts, side="right")]
        parts = [(ids[a:b], batch.packed.segments[a:b]) for a, b in zip(batch.starts, ends, strict=True)]
        found += _rows(kind, parts, batch, index)
    if getattr(task.config, "answer", "") == "number":  # in units of their spread, as ours learns them
        found = [{**row, "labels": (row["labels"] - task.config.center) / task.config.scale} for row in found]
    return found


def _rows(kind: str, parts: list[Any], batch: Any, index: int) -> list[Row]:
    def row(part: Any, labels: Any) -> Row:
        return {"ids": [part[0]], "segments": [part[1]], "labels": labels, "owner": index}

    targets = batch.targets
    if kind in ("classify", "pair", "relation"):
        return [row(parts[0], targets["label"][0])]
    if kind == "tag":
        start = int(batch.starts[0])
        return [row(parts[0], targets["tags"][start : start + len(parts[0][0])])]
    if kind == "answer":  # every window is a row, as in the published scripts; one without the answer points at [CLS]
        places = targets["span_rows"] - batch.starts[:, None]
        return [row(part, place) for part, place in zip(parts, places, strict=True)]
    first = np.cumsum(targets["num_windows"]) - targets["num_windows"]  # choose: the first window of each option
    options = [parts[place] for place in first]
    return [{"ids": [o[0] for o in options], "segments": [o[1] for o in options], "labels": targets["label"][0],
             "owner": index}]  # fmt: skip


class Collator:
    """Rows to padded tensors; while learning, a share of the words is hidden, as in ours."""

    def __init__(self, kind: str, task: Any, mask_prob: float) -> None:
        self.kind, self.tokenizer, self.mask_prob = kind, task.tokenizer, mask_prob
        self.never = [self.tokenizer.cls_id, self.tokenizer.sep_id, *getattr(task, "mark_ids", ())]  # hidden

    def __call__(self, given: Sequence[Row], learning: bool = True) -> dict[str, Tensor]:
        """What the model takes."""
        most = max(len(row["ids"]) for row in given)
        longest = max(len(ids) for row in given for ids in row["ids"])
        shape = (len(given), most, longest)
        ids, mask = np.full(shape, self.tokenizer.pad_id, np.int64), np.zeros(shape, np.int64)
        segments = np.zeros(shape, np.int64)
        for at, row in enumerate(given):
            for option, (own, side) in enumerate(zip(row["ids"], row["segments"], strict=True)):
                ids[at, option, : len(own)] = own
                segments[at, option, : len(own)] = side
                mask[at, option, : len(own)] = 1
            empty = len(row["ids"])  # options that others have more: a kernel that may look at nothing gives no number
            ids[at, empty:, 0], mask[at, empty:, 0] = self.tokenizer.cls_id, 1
        if learning and self.mask_prob:
            plain = (mask == 1) & ~np.isin(ids, self.never)
            ids[plain & (torch.rand(shape).numpy() < self.mask_prob)] = self.tokenizer.mask_id
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        if self.kind != "choose":
            arrays = {name: value[:, 0] for name, value in arrays.items()}
        made = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
        return made | self._labels(given, longest)

    def _labels(self, given: Sequence[Row], longest: int) -> dict[str, Tensor]:
        if self.kind == "tag":
            labels = np.full((len(given), longest), -100, np.int64)
            for at, row in enumerate(given):
                labels[at, : len(row["labels"])] = row["labels"]
            return {"labels": torch.from_numpy(labels)}
        if self.kind == "answer":
            places = torch.from_numpy(np.stack([row["labels"] for row in given]).astype(np.int64))
            return {"start_positions": places[:, 0], "end_positions": places[:, 1]}
        return {"labels": torch.from_numpy(np.array([row["labels"] for row in given]))}


class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows as torch's loader wants them."""

    def __init__(self, given: list[Row]) -> None:
        self.given = given

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, index: int) -> Row:
        return self.given[index]


def answers(model: Any, held: Any, kind: str, collate: Collator) -> list[Any]:
    """What its head says of each held item, as our task takes it; of what it cut off it says nothing."""
    given = rows(held, kind)
    order = sorted(range(len(given)), key=lambda at: max(len(ids) for ids in given[at]["ids"]))
    said: list[Any] = [None] * len(given)
    model.eval()
    for begin in range(0, len(order), 128):
        some = order[begin : begin + 128]
        batch = collate([given[at] for at in some], learning=False)
        inputs = {n: v.to(DEVICE) for n, v in batch.items() if "labels" not in n and "positions" not in n}
        with torch.inference_mode(), torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            out = model(**inputs)
        if kind == "answer":
            scores = torch.stack((out.start_logits, out.end_logits), -1).float().cpu().numpy()
        else:
            scores = out.logits.float().cpu().numpy()
        for at, own in zip(some, scores, strict=True):
            said[at] = own
    model.train()
    return _in_our_form(held, kind, given, said)


def _in_our_form(held: Any, kind: str, given: list[Row], said: list[Any]) -> list[Any]:
    if kind in ("classify", "pair", "relation"):
        return said
    if kind == "choose":
        return [own[: len(row["ids"])] for row, own in zip(given, said, strict=True)]
    if kind == "tag":
        found = []
        bounds = np.asarray(held.pieces.boundaries)
        outside = held.labels.index("O") if "O" in held.labels else 0  # every unit has a label: any will do
        for index, (row, own) in enumerate(zip(given, said, strict=True)):
            size = int(bounds[index + 1] - bounds[index])
            scores = np.zeros((size, own.shape[-1]), np.float32)
            scores[:, outside] = 1.0  # of what was cut off: nothing is there
            read = min(size, len(row["ids"][0]) - 2)
            scores[:read] = own[1 : 1 + read]
            found.append(scores)
        return found
    windows: list[list[Any]] = [[] for _ in range(len(held))]
    for row, own in zip(given, said, strict=True):
        size = len(row["ids"][0])
        scores = own[:size].copy()
        barred = (row["segments"][0] != 1) & (np.arange(size) > 0)
        barred[-1] = True
        scores[barred] = -1e30
        windows[row["owner"]].append(scores)
    return windows


def optimiser(model: Any, recipe: FineRecipe) -> Any:
    """AdamW or Muon as ours has it: the head's own rate, no decay on norms and biases."""
    train = recipe.train
    by_muon = train.optimiser == "muon"
    groups: dict[tuple[bool, bool, bool], list[Any]] = {}
    heads = tuple(name for name in HEADS if recipe.task_name not in SLOW_POOLER or "pooler" not in name)
    for name, parameter in model.named_parameters():
        is_head, is_matrix = name.startswith(heads), parameter.ndim > 1
        inner = by_muon and is_matrix and "encoder.layer." in name
        groups.setdefault((is_head, is_matrix, inner), []).append((name, parameter))
    made = []
    for (head, decays, inner), some in groups.items():
        scale = (REST if by_muon and not inner else 1.0) * (train.head_rate if head else 1.0)
        how = {"rule": "muon", "pieces": 1} if inner else {"rule": "adamw"}
        made.append({"params": some, "lr": train.learning_rate * scale, **how,
                     "weight_decay": train.weight_decay if decays else 0.0})  # fmt: skip
    if by_muon:
        return Mixed(made, train.learning_rate)
    return torch.optim.AdamW(made, betas=BETAS["adamw"], eps=EPS, fused=True)


def trained(recipe: FineRecipe, tasks: tuple[Any, Any, Any], start: Path, measure: str, steps: int = 0) -> Row:
    """One run of the Trainer: the best epoch's measure on dev, the same state's on test, and seconds a pass.

    With `steps`, only so many, timed after a quarter of them, and nothing is measured but time.
    """
    import transformers

    kind, (task, held, test) = recipe.task_name, tasks
    torch.manual_seed(recipe.train.seed)
    numbers = {"num_labels": len(task.labels)} if kind in ("classify", "pair", "relation", "tag") else {}
    model = getattr(transformers, CLASSES[kind]).from_pretrained(str(start), **numbers).float()
    collate = Collator(kind, task, recipe.task.mask_prob)
    given = [row for row in rows(task, kind) if kind != "answer" or row["labels"][0] >= 0]
    per_epoch = max(1, round(recipe.train.steps / recipe.epochs))
    size = max(1, round(len(given) / per_epoch))
    total = steps or round(recipe.epochs * -(-len(given) // size))
    watch = _watch(transformers, (model, held, test, kind, collate), measure, total, bool(steps))
    with tempfile.TemporaryDirectory() as folder:
        wished = {
            "output_dir": folder, "per_device_train_batch_size": size, "max_steps": total, "bf16": DEVICE == "cuda",
            "dataloader_num_workers": (4 if steps else 1) if DEVICE == "cuda" else 0, "report_to": [],
            "save_strategy": "no", "logging_strategy": "no", "max_grad_norm": recipe.train.clip, "disable_tqdm": True,
            "use_cpu": DEVICE == "cpu", "seed": recipe.train.seed, "remove_unused_columns": False,
        }  # fmt: skip
        known = inspect.signature(transformers.TrainingArguments.__init__).parameters
        moves = optimiser(model, recipe)
        warm = round(recipe.train.warmup * total)
        falls = transformers.get_linear_schedule_with_warmup(moves, warm, total)
        made = transformers.Trainer(
            model=model, train_dataset=Data(given), data_collator=collate, callbacks=[watch],
            args=transformers.TrainingArguments(**{n: v for n, v in wished.items() if n in known}),
            optimizers=(moves, falls),
        )  # fmt: skip
        watch.begun = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            made.train()
    return watch.told(len(given) / size, size)


def _watch(transformers: Any, about: tuple[Any, ...], measure: str, total: int, timed: bool) -> Any:
    model, held, test, kind, collate = about

    class Watch(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        """After each epoch: how good; and how long the steps alone took."""

        begun = asked_s = warm = 0.0
        warm_step = max(1, total // 4)

        def __init__(self) -> None:
            self.dev: list[float] = []
            self.test: list[float] = []

        def _now(self) -> float:
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            return time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            """Called by the Trainer."""
            if state.global_step == self.warm_step:
                self.warm = self._now() - self.asked_s
            if state.global_step == total:
                self.ended = self._now() - self.asked_s

        def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            """Called by the Trainer."""
            if timed:
                return
            begun = self._now()
            if (
                held is not None
            ):  # what ours fits on dev data, the threshold of "no answer" say, is fitted for it as well
                usual, raw = held.config, answers(model, held, kind, collate)
                held.config = held.calibrated(raw) if hasattr(held, "calibrated") else usual
                self.dev.append(held.evaluated(raw)[measure])
                if test is not None:
                    test.config = held.config
                    self.test.append(test.evaluated(answers(model, test, kind, collate))[measure])
                held.config = usual
            self.asked_s += self._now() - begun

        def told(self, steps_per_epoch: float, size: int) -> Row:
            """What was found."""
            per_step = (self.ended - self.warm) / max(1, total - self.warm_step)
            found: Row = {"seconds_per_epoch": per_step * steps_per_epoch, "rows_per_step": size, "steps": total}
            if self.dev:
                best = int(np.argmax(self.dev))
                found |= {"dev": self.dev[best], "dev_last": self.dev[-1], "epochs": self.dev}
                found["test"] = self.test[best] if self.test else None
            return found

    return Watch()
