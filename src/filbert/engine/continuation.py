"""A causal language model and texts in; each text with its generated continuation out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Encoding, Ints
from filbert.nn import generation
from filbert.nn.attention import placed, tensors
from filbert.nn.encoder import Encoder
from filbert.nn.generation import LeftToRight
from filbert.pack.lay import pack
from filbert.text.joining import joined
from filbert.text.tokenizer import Tokenizer

WAYS = ("sample", "greedy", "beam")


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a continuation is generated."""

    way: str = "sample"  # sample | greedy | beam
    max_new: int = 64  # most tokens to write
    min_new: int = 0
    no_repeat: int = 0  # no stretch of so many tokens is written twice; 0: any may
    temperature: float = 1.0  # of sample: divides the scores
    top_k: int = 0  # of sample: only the k likeliest tokens; 0: all
    top_p: float = 1.0  # of sample: only the likeliest tokens that together have this probability
    width: int = 4  # of beam
    length_penalty: float = 0.6  # of beam
    seed: int = 0

    def __post_init__(self) -> None:
        settings.check_one_of("writing", self, way=WAYS)
        settings.check_whole("writing", self, max_new=1, min_new=0, no_repeat=0, top_k=0, width=1, seed=0)
        settings.check_positive("writing", self, temperature=1_000, top_p=1)


def continued(model: Encoder, tokenizer: Tokenizer, text: str, writing: Writing | None = None) -> str:
    """The text with its continuation."""
    return continuations(model, tokenizer, [text], writing)[0]


def continuations(
    model: Encoder, tokenizer: Tokenizer, texts: Sequence[str], writing: Writing | None = None
) -> list[str]:
    """Each text with its continuation, generated as one batch.

    Of a long text only the end is read that leaves the model room to write.
    """
    writing = writing or Writing()
    if not isinstance(model, LeftToRight):
        raise InputError(f"{type(model).__name__} does not write from left to right; take a gpt or an nnlm.")
    longest = model.config.max_length
    room = longest - writing.max_new  # for what is read beside [CLS]; the last token written is never read
    if room < 0:
        raise InputError(
            f"writing.max_new is {writing.max_new}, but the model reads only {longest} tokens; take fewer (--tokens)."
        )
    ids = [tokens.ids[max(0, len(tokens.ids) - room) :] for tokens in tokenizer.pieces(texts)]
    order = np.argsort([len(row) for row in ids], kind="stable")  # as a pack has them
    generated: list[tuple[int, ...]] = [()] * len(texts)
    for place, new_ids in zip(
        order, _generated(model, tokenizer, [ids[at] for at in order], order, writing), strict=True
    ):
        generated[place] = new_ids
    tokens = ([tokenizer.token_of(index) for index in row] for row in generated)
    return [text + joined(names, after=text) for text, names in zip(texts, tokens, strict=True)]


def _generated(
    model: LeftToRight, tokenizer: Tokenizer, ids: Sequence[Ints], numbers: Iterable[int], writing: Writing
) -> list[tuple[int, ...]]:
    """The ids generated after [CLS] and these tokens, the shortest first."""
    if not ids:
        return []
    device = next(model.parameters()).device
    rows = [np.concatenate(([tokenizer.cls_id], row)).astype(np.int32) for row in ids]
    read = [Encoding(row[:-1], *(np.zeros_like(row[:-1]) for _ in range(4))) for row in rows]
    starts_B = placed(np.array([row[-1] for row in rows]), device, torch.int64)
    beyond = range(tokenizer.vocab_size, model.config.vocab_size)
    barred = {*tokenizer.special_ids, *beyond} - {tokenizer.sep_id}
    rules = generation.Rules(
        end=tokenizer.sep_id, max_new=writing.max_new, min_new=writing.min_new, banned=tuple(sorted(barred)),
        no_repeat=writing.no_repeat,
    )  # fmt: skip
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            state = model.started(tensors(pack(read)[0], device))
            if writing.way == "greedy":
                sequences = generation.greedy(model, starts_B, state, rules)
            elif writing.way == "beam":
                penalty = writing.length_penalty
                sequences = generation.beam(model, starts_B, state, rules, width=writing.width, length_penalty=penalty)
            else:
                drawing = generation.Drawing(
                    temperature=writing.temperature, top_k=writing.top_k, top_p=writing.top_p, seed=writing.seed
                )
                sequences = generation.sample(
                    model, starts_B, state, rules, drawing, [int(number) for number in numbers]
                )
    finally:
        model.train(was_training)
    return [text.ids for text in sequences]
