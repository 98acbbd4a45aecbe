"""A transformers GPT-2 folder in, our GPT with its numbers out, where its vocabulary is one that filbert reads.

The Chinese ones come with BERT's vocab.txt and are read whole. The English ones cut texts into bytes (byte-level BPE):
no token of theirs is one of a WordPiece vocabulary, so they are refused rather than read wrong; their weights alone go
through `models.gpt.from_gpt2`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from filbert.core.errors import InputError
from filbert.core.files import Json
from filbert.folder import fields, meta, read_transformers, weights
from filbert.models import gpt
from filbert.nn.encoder import Encoder

KIND = "gpt2"
FIELDS = {  # transformers' names of our numbers, and what it takes for one that is left out
    "vocab_size": ("vocab_size", 50_257), "n_embd": ("width", 768), "n_layer": ("layers", 12), "n_head": ("heads", 12),
    "n_positions": ("max_length", 1_024), "layer_norm_epsilon": ("eps", 1e-5), "resid_pdrop": ("dropout", 0.1),
}  # fmt: skip
FIXED = {  # fields that change the arithmetic, and the values that we compute
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"), "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,), "quantization_config": (None,),
}  # fmt: skip
TRAINING = ("attn_pdrop", "embd_pdrop")  # dropout that ours does not have in such places
OLD = (
    "n_ctx",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "reorder_and_upcast_attn",
)  # of heads that are not read, and of half precision
HEAD = "lm_head.weight"  # the table of words once more
MASKS = (".attn.bias", ".attn.masked_bias")  # that old folders stored as if they were learnt


def is_one(folder: Path) -> bool:
    """Whether the folder's model_type is that of a GPT-2."""
    path = folder / "config.json"
    return path.is_file() and weights.small_json(weights.inside(folder, path.name)).get("model_type") == KIND


def read(folder: Path) -> tuple[Encoder, dict[str, Any]]:
    """The model, in float32, and config.json as it stands."""
    path = weights.inside(folder, "config.json")
    stated = weights.small_json(path)
    check_vocabulary(folder)
    for name, allowed in FIXED.items():
        if stated.get(name, allowed[0]) not in allowed:
            raise InputError(f"{path}: {name} is {stated[name]!r}, but filbert computes {allowed[0]!r} alone.")
    shape = {ours: stated.get(theirs, usual) for theirs, (ours, usual) in FIELDS.items()}
    inner: Any = stated.get("n_inner")
    if inner is None and type(shape["width"]) is int:
        inner = 4 * shape["width"]
    try:
        config = gpt.Config(**shape, inner=inner)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    model = meta.made(config, ("lm",), 2)
    model.load_state_dict(gpt.from_gpt2(_tensors(folder, config), config), strict=True, assign=True)
    return model, stated


def notes(folder: Path, config: Json) -> list[str]:
    """What of the folder was passed over."""
    path = folder / "config.json"
    ours = (*FIELDS, *FIXED, "n_inner", *TRAINING, *OLD)
    return [*fields.passed_over(path, dict(config), ours), *fields.beside(folder, config)]


def check_vocabulary(folder: Path) -> None:
    """Refuses a vocabulary of bytes."""
    if (folder / "vocab.txt").exists():
        return
    path = folder / "tokenizer.json"
    model = weights.small_json(weights.inside(folder, path.name)).get("model") if path.exists() else None
    is_bytes = isinstance(model, dict) and model.get("type") == "BPE"
    if is_bytes or (folder / "merges.txt").exists():
        raise InputError(
            f"{folder}: is a GPT-2 with a byte-level vocabulary, which filbert does not read; take one with BERT's "
            "vocab.txt, as the Chinese ones have, or load its weights alone with filbert.models.gpt.from_gpt2."
        )


def _tensors(folder: Path, config: gpt.Config) -> dict[str, torch.Tensor]:
    """Its numbers by their names, of the shapes that the config gives, all finite."""
    tensors = weights.read_folder(folder)
    stored = {name.removeprefix("transformer."): each for name, each in tensors.items()}
    if len(stored) < len(tensors):
        twice = next(name for name, each in tensors.items() if stored[name.removeprefix("transformer.")] is not each)
        raise InputError(f"{folder}: the tensor {twice[:120]!r} stands twice, with and without its prefix.")
    wanted = meta.shapes(config, ("lm",), 2)
    shapes = {
        theirs: wanted[ours][::-1] if transposed else wanted[ours]
        for ours, theirs, transposed in gpt.gpt2_names(config)
    }
    numbers = {name: each for name, each in stored.items() if not name.endswith(MASKS)}
    head = numbers.pop(HEAD, None)
    for name, each in numbers.items():
        if name not in shapes:
            raise InputError(f"{folder}: the tensor {name[:120]!r} is none of a GPT-2 of {config.layers} layers.")
        if each.shape != shapes[name]:
            raise InputError(f"{folder}: {name} is of shape {each.shape}, but config.json gives {shapes[name]}.")
        if each.dtype not in weights.FLOATS:
            raise InputError(f"{folder}: {name} is {each.dtype}, but must be one of {', '.join(weights.FLOATS)}.")
    if head is not None and "wte.weight" in numbers and not np.array_equal(head.array(), numbers["wte.weight"].array()):
        raise InputError(f"{folder}: {HEAD} is not its table of words, but a GPT here writes with that one.")
    return {name: torch.from_numpy(_float32(each)) for name, each in numbers.items()}


def _float32(tensor: weights.Stored) -> npt.NDArray[np.float32]:
    """Its numbers, all finite."""
    with np.errstate(over="ignore"):  # a float64 too large for float32 is found below
        values = tensor.array().astype(np.float32)
    if not read_transformers.finite(values):
        raise read_transformers.not_finite(tensor)
    return values
