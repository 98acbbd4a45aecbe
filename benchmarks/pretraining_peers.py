"""`transformers` as the pretraining benchmarks' peer: a shape and lengths in; its compiled loop and its Trainer out."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.models import bert
from pretraining import CUDA, DEVICE, ROWS, Done, lengths, rates, sync, work_of


def their_model(shape: bert.Config) -> Any:
    """transformers' own, of the same shape."""
    from transformers import BertConfig, BertForPreTraining

    torch.manual_seed(0)
    return BertForPreTraining(
        BertConfig(
            vocab_size=shape.vocab_size, hidden_size=shape.width, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, intermediate_size=shape.inner, hidden_dropout_prob=shape.dropout,
            attention_probs_dropout_prob=shape.dropout, attn_implementation="sdpa",
        )
    )  # fmt: skip


class Loop:
    """transformers in a loop of one's own: padded batches of 128, autocast, AdamW fused, clipping."""

    def __init__(self, shape: bert.Config, compiled: bool, masked: bool = True) -> None:
        self.shape, self.masked = shape, masked
        self.model = their_model(shape).to(DEVICE).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)
        self.forward: Callable[..., Tensor] = self._loss
        if compiled:
            self.forward = torch.compile(self._loss, backend="inductor" if CUDA else "eager")
        self.last: Tensor | None = None
        self.ready = {case: [self._batch(case, seed) for seed in range(4)] for case in ("mixed", "512")}

    def _loss(self, ids: Tensor, mask: Tensor | None, segments: Tensor, labels: Tensor, pairs: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            return self.model(
                input_ids=ids, attention_mask=mask, token_type_ids=segments, labels=labels, next_sentence_label=pairs
            ).loss

    def _batch(self, case: str, seed: int) -> tuple[Any, Done]:
        rows = ROWS if CUDA else 4
        sizes, random = lengths(case, rows, seed), np.random.default_rng(seed)
        there = np.arange(512)[None, :] < sizes[:, None]
        ids = np.where(there, random.integers(5, self.shape.vocab_size, there.shape), 0)
        labels = np.where(there & (random.random(there.shape) < 0.15), ids, -100)
        segments = (np.arange(512)[None, :] > sizes[:, None] // 2) & there
        arrays = (np.where(labels >= 0, 4, ids), there, segments, labels, random.integers(0, 2, rows))
        tensors = [torch.as_tensor(array.astype(np.int64)).to(DEVICE) for array in arrays]
        if not self.masked:
            tensors[1] = None  # type: ignore[call-overload]
        return tensors, work_of(self.shape, sizes, int((labels >= 0).sum()), True)

    def steps(self, case: str, count: int) -> Done:
        """Some steps."""
        done = Done()
        for at in range(count):
            tensors, work = self.ready[case][at % 4]
            self.last = self.forward(*tensors)
            self.optimiser.zero_grad(set_to_none=True)
            self.last.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
            done += work
        return done

    def checked(self) -> dict[str, Any]:
        """The last loss."""
        value = float(self.last.detach()) if self.last is not None else math.nan
        if not math.isfinite(value):
            raise AssertionError(f"the loss is {value}")
        return {"loss_last": value}


def masking(vocab: int) -> Any:
    """transformers' own collator, which pads and masks, over a made-up vocabulary."""
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    words |= {f"w{number}": number for number in range(5, vocab)}
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")), **names)
    return DataCollatorForLanguageModeling(fast, mlm=True, mlm_probability=0.15)


def rows_for(sizes: np.ndarray, vocab: int) -> list[dict[str, Any]]:
    """Pairs of those lengths as such a collator takes them."""
    random, found = np.random.default_rng(5), []
    for size in sizes.tolist():
        ids = random.integers(5, vocab, size)
        ids[0], ids[-1] = 2, 3
        segments = [0] * (size // 2) + [1] * (size - size // 2)
        found.append(
            {
                "input_ids": ids.tolist(), "token_type_ids": segments, "attention_mask": [1] * size,
                "next_sentence_label": int(random.integers(0, 2)),
            }
        )  # fmt: skip
    return found


def trainer(
    shape: bert.Config, steps: int, workers: int, rows: int, case: str = "mixed", clock: Any = time.perf_counter
) -> dict[str, Any]:
    """transformers' Trainer as a user calls it: its masking collator, bf16 on CUDA, loader workers.

    The first quarter of the steps warms up. Every item is seen once, so the mean length tells the tokens.
    """
    from transformers import Trainer, TrainerCallback, TrainingArguments

    sizes = lengths(case, steps * rows, 5)
    warm, times = max(1, steps // 4), {}

    class Watch(TrainerCallback):
        """Notes when the warm steps and all steps are over."""

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            """Called by the Trainer."""
            if state.global_step in (warm, steps):
                sync()
                times[state.global_step] = clock()

    with tempfile.TemporaryDirectory() as folder:
        wished = {
            "output_dir": folder, "per_device_train_batch_size": rows, "max_steps": steps, "bf16": CUDA,
            "dataloader_num_workers": workers, "report_to": [], "save_strategy": "no", "logging_strategy": "no",
            "learning_rate": 1e-4, "max_grad_norm": 1.0, "disable_tqdm": True, "use_cpu": not CUDA, "seed": 0,
        }  # fmt: skip
        known = inspect.signature(TrainingArguments.__init__).parameters
        made = Trainer(
            model=their_model(shape),
            args=TrainingArguments(**{name: value for name, value in wished.items() if name in known}),
            train_dataset=rows_for(sizes, shape.vocab_size),
            data_collator=masking(shape.vocab_size),
            callbacks=[Watch()],
        )
        with contextlib.redirect_stdout(sys.stderr):
            made.train()
    part = (steps - warm) / steps
    done = work_of(shape, sizes, int(0.15 * sizes.sum()), True)
    return rates(Done(done.tokens * part, done.flops * part, done.worked * part), times[steps] - times[warm])
