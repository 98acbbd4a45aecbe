"""One fresh process to its first vector: comes in a contender and a folder, goes out the vector as JSON on stdout.

`startup.py` starts this file again and again. Each function imports only what its contender needs, and the module
itself imports nothing else that costs time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

TEXT = "hello world"


def transformers_pipeline(folder: str, _: str) -> Iterable[float]:
    """The way the manual shows."""
    from transformers import pipeline

    extract = pipeline("feature-extraction", model=folder, device="cpu")
    return extract(TEXT, return_tensors=True)[0, 0].tolist()


def transformers_model(folder: str, _: str) -> Iterable[float]:
    """AutoTokenizer and AutoModel."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0, 0].tolist()


def bare_torch(folder: str, _: str) -> Iterable[float]:
    """torch, safetensors, tokenizers and forty lines: the least that a torch toolkit can take."""
    import json
    from pathlib import Path

    import torch
    from safetensors.torch import load_file
    from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

    config = json.loads(Path(folder, "config.json").read_text())
    weights = {name.removeprefix("bert."): tensor for name, tensor in load_file(f"{folder}/model.safetensors").items()}
    width, heads = config["hidden_size"], config["num_attention_heads"]

    def dense(name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (width,), weights[f"{name}.weight"], weights[f"{name}.bias"], config["layer_norm_eps"])

    def table(name: str, ids: torch.Tensor) -> torch.Tensor:
        return embedding(ids, weights[f"embeddings.{name}_embeddings.weight"])

    ids = torch.tensor(_ids(folder))
    x_TD = table("word", ids) + table("position", torch.arange(len(ids))) + table("token_type", torch.zeros_like(ids))
    x_TD = norm("embeddings.LayerNorm", x_TD)
    for index in range(config["num_hidden_layers"]):
        here = f"encoder.layer.{index}"
        parts = [dense(f"{here}.attention.self.{name}", x_TD) for name in ("query", "key", "value")]
        q_HTd, k_HTd, v_HTd = (part.view(len(ids), heads, -1).transpose(0, 1) for part in parts)
        seen_TD = scaled_dot_product_attention(q_HTd, k_HTd, v_HTd).transpose(0, 1).reshape(len(ids), width)
        x_TD = norm(f"{here}.attention.output.LayerNorm", x_TD + dense(f"{here}.attention.output.dense", seen_TD))
        wide_TD = gelu(dense(f"{here}.intermediate.dense", x_TD))
        x_TD = norm(f"{here}.output.LayerNorm", x_TD + dense(f"{here}.output.dense", wide_TD))
    return x_TD[0].tolist()


def onnxruntime(folder: str, graph: str) -> Iterable[float]:
    """ONNX Runtime and tokenizers, no torch."""
    import numpy as np
    import onnxruntime as ort

    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    ids = np.array([_ids(folder)], dtype=np.int64)
    (hidden_BTD,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return hidden_BTD[0, 0].tolist()


def filbert(folder: str, _: str) -> Iterable[float]:
    """Ours, through the front door, with torch."""
    import filbert as fb

    return [float(value) for value in fb.load(folder, runtime="torch").embed([TEXT], pool="cls")[0]]


def filbert_onnx(folder: str, _: str) -> Iterable[float]:
    """Ours on an exported folder, without torch."""
    import filbert as fb

    found = fb.load(folder, runtime="onnx").embed([TEXT], pool="cls")[0]
    assert "torch" not in sys.modules, "the runtime without torch imported it"
    return [float(value) for value in found]


def _ids(folder: str) -> list[int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    return tokenizer.encode(TEXT).ids


if __name__ == "__main__":
    chosen, model_folder, extra = sys.argv[1:]
    print([round(value, 6) for value in globals()[chosen](model_folder, extra)], flush=True)
