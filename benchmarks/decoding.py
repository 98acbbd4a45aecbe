"""A shape, sources and a beam in; how many times as fast our Transformer writes as `transformers` generates, out.

    .venv/bin/python benchmarks/decoding.py --width 256 --layers 3 --sources 16 --new 32 --beam 4

Both have the same random weights (MarianMT is the same model: post-norm, ReLU, shared and scaled embeddings), read the
same sources of mixed lengths, and write the same number of tokens, so the texts must agree. Rounds alternate; the ratio
is the median of each round's. `--beam 1` is greedy search.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from filbert.core.records import Encoding
from filbert.models import transformer
from filbert.nn import generation
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from timing import machine, ratios, rotated, spread

PAD, START, END = 0, 1, 2


def asked() -> argparse.Namespace:
    """The shape and the work."""
    words = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    numbers = {
        "width": 256, "layers": 3, "writer_layers": 3, "heads": 4, "inner": 1_024, "vocab": 8_000,
        "sources": 16, "shortest": 10, "longest": 30, "new": 32, "beam": 4, "rounds": 5, "threads": 1,
    }  # fmt: skip
    for name, value in numbers.items():
        words.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    words.add_argument("--device", default="cpu")
    words.add_argument("--half", action="store_true", help="bfloat16")
    return words.parse_args()


def peer(model: transformer.Transformer) -> Any:
    """MarianMT with the model's weights."""
    from transformers import MarianConfig, MarianMTModel

    config = model.config
    shape = MarianConfig(
        vocab_size=config.vocab_size, d_model=config.width, encoder_layers=config.layers,
        decoder_layers=config.writer_layers, encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads, encoder_ffn_dim=config.inner, decoder_ffn_dim=config.inner,
        max_position_embeddings=config.max_length, activation_function="relu", scale_embedding=True, pad_token_id=PAD,
        eos_token_id=END, decoder_start_token_id=START, forced_eos_token_id=None, dropout=0.0,
    )  # fmt: skip
    theirs = MarianMTModel(shape)
    theirs.load_state_dict(renamed(model), strict=False)
    theirs.generation_config.forced_eos_token_id = None
    return theirs.eval()


def renamed(model: transformer.Transformer) -> dict[str, torch.Tensor]:
    """Our weights under Marian's names."""
    places = {
        "attention.qkv": "self_attn.qkv", "attention.out": "self_attn.out_proj",
        "attention_norm": "self_attn_layer_norm", "cross_norm": "encoder_attn_layer_norm", "cross.": "encoder_attn.",
        "encoder_attn.out": "encoder_attn.out_proj", "encoder_attn.q.": "encoder_attn.q_proj.",
        "feed.up": "fc1", "feed.down": "fc2", "feed_norm": "final_layer_norm",
    }  # fmt: skip
    words = model.embeddings.words.weight
    names = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    found = {f"{name}.weight": words for name in names}
    found |= {
        f"model.{side}.embed_positions.weight": model.embeddings.positions.weight for side in ("encoder", "decoder")
    }
    for name, tensor in model.state_dict().items():
        if "layers." not in name:
            continue
        name = "model.decoder" + name[6:] if name.startswith("writer") else "model.encoder." + name
        for ours, theirs in places.items():
            name = name.replace(ours, theirs)
        joined = next((joined for joined in ("qkv", "kv") if f".{joined}." in name), "")
        for part, piece in zip(joined, tensor.chunk(len(joined)), strict=True) if joined else [("", tensor)]:
            found[name.replace(f".{joined}.", f".{part}_proj.") if joined else name] = piece
    return found


def contenders(given: argparse.Namespace) -> dict[str, Callable[[], list[list[int]]]]:
    """Both as functions that give the written tokens of every source."""
    torch.manual_seed(0)
    shape = {name: getattr(given, name) for name in ("width", "layers", "writer_layers", "heads", "inner")}
    config = transformer.Config(vocab_size=given.vocab, max_length=512, dropout=0.0, **shape)
    model = transformer.Transformer(config, ("writer",)).eval()
    with torch.no_grad():  # far from the start, so that scores differ and texts do not hang on roundings
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    kind = torch.bfloat16 if given.half else torch.float32
    theirs = peer(model).to(given.device, kind)
    model.to(given.device, kind)
    random = np.random.default_rng(0)
    texts = [
        random.integers(3, given.vocab, size).astype(np.int32)
        for size in sorted(random.integers(given.shortest, given.longest + 1, given.sources))
    ]
    zeros = [np.zeros_like(text) for text in texts]
    packed = tensors(
        pack([Encoding(text, *(zero,) * 4) for text, zero in zip(texts, zeros, strict=True)])[0], given.device
    )
    padded = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    for row, text in zip(padded, texts, strict=True):
        row[: len(text)] = torch.from_numpy(text)
    padded = padded.to(given.device)
    rules = generation.Rules(end=END, max_new=given.new, min_new=given.new)
    starts = torch.full((len(texts),), START, device=given.device)

    @torch.inference_mode()
    def ours() -> list[list[int]]:
        state = model.started(model(packed), packed)
        if given.beam == 1:
            return [list(text.ids) for text in generation.greedy(model, starts, state, rules)]
        return [list(text.ids) for text in generation.beam(model, starts, state, rules, width=given.beam)]

    @torch.inference_mode()
    def other() -> list[list[int]]:
        lengths = {"min_new_tokens": given.new, "max_new_tokens": given.new}
        mask = (padded != PAD).long()
        found = theirs.generate(input_ids=padded, attention_mask=mask, num_beams=given.beam, do_sample=False, **lengths)
        rows: list[list[int]] = found[:, 1:].tolist()
        return rows

    return {"filbert": ours, "transformers": other}


def main() -> None:
    """Prints seconds, the ratio and how many texts agree."""
    given = asked()
    torch.set_num_threads(given.threads)
    told = machine()
    both = contenders(given)
    texts = {name: work() for name, work in both.items()}  # and a warm-up
    same = sum(one == two for one, two in zip(*texts.values(), strict=True))
    seconds: dict[str, list[float]] = {name: [] for name in both}
    for turn in range(given.rounds):
        for name in rotated(list(both), turn):
            begin = time.perf_counter()
            both[name]()
            seconds[name].append(time.perf_counter() - begin)
    print(f"{told['cpu']}, {given.device}, {'bfloat16' if given.half else 'float32'}, {told['versions']}")
    print(f"{vars(given)}\nthe same texts: {same} of {given.sources}")
    for name, values in seconds.items():
        print(
            f"{name:<14}{spread(values).text(3)} s, {given.sources * given.new / spread(values).median:,.0f} tokens/s"
        )
    print(f"ratio {ratios(seconds['filbert'], seconds['transformers']).text()}")


if __name__ == "__main__":
    main()
