"""Damaged and hostile model folders, row by row of the table of faults (M01 to M12, M15, M16, M18).

Each is refused in one sentence that names the file and the field or tensor; none runs code, hangs or takes memory.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.folder import folder as folders
from filbert.folder import weights
from filbert.models import bert
from filbert.text.tokenizer import Tokenizer

TINY = bert.Config(vocab_size=40, width=16, layers=2, heads=2, inner=24, max_length=32)
MODERN = bert.Config(
    vocab_size=40, width=16, layers=4, heads=2, inner=24, segments=0, positions="rotary-local", norm="pre",
    feedforward="geglu", eps=1e-5,
)  # fmt: skip


def saved(folder: Path, config: bert.Config = TINY, parts: tuple[str, ...] = ("pooler", "mlm", "labels")) -> Path:
    """A tiny folder as transformers would write it: without our manifest, so that only the readers stand guard."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + i) for i in range(35))]
    labels = ["a", "b", "c"] if "labels" in parts else []
    folders.save(folder, bert.Bert(config, parts, 3), Tokenizer(vocabulary), labels=labels)
    (folder / "manifest.json").unlink()
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return saved(tmp_path / "tiny")


@pytest.fixture
def modern(tmp_path: Path) -> Path:
    return saved(tmp_path / "modern", MODERN, ("mlm",))


def changed(folder: Path, **fields: Any) -> Path:
    """The folder with some fields of its config.json set anew."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | fields))
    return folder


def refused(folder: Path, *words: str) -> str:
    """The sentence that load refuses the folder with; it must hold those words and stay a sentence."""
    with pytest.raises(InputError) as caught:
        folders.load(folder)
    said = str(caught.value)
    assert len(said) < 1500
    assert "\n" not in said
    assert all(word in said for word in words), said
    return said


class Payload:
    """Creates a file when unpickled: the proof that a pickle was opened."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


def payload(proof: Path) -> bytes:
    raw = pickle.dumps(Payload(proof))
    pickle.loads(raw)
    assert proof.exists()  # it does work when opened
    proof.unlink()
    return raw


# Pickles --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "model.pth", "weights.pkl"])
def test_M01_a_pickle_is_never_opened(name: str, tiny: Path, tmp_path: Path) -> None:
    (tiny / name).write_bytes(payload(tmp_path / "proof"))
    folders.load(tiny)  # beside safetensors it is passed over
    (tiny / "model.safetensors").unlink()
    advice = ("filbert import",) if name.startswith("pytorch") else ("save_pretrained", "safe_serialization=True")
    refused(tiny, name, "is a pickle", *advice)
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_M02_a_pickle_named_safetensors_is_recognised(protocol: int, tiny: Path, tmp_path: Path) -> None:
    payload(tmp_path / "proof")
    path = tiny / "model.safetensors"
    path.write_bytes(pickle.dumps(Payload(tmp_path / "proof"), protocol=protocol))
    refused(tiny, "model.safetensors", "is a pickle")
    torch.save({"w": torch.zeros(3)}, path)
    refused(tiny, "model.safetensors", "is a zip archive")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Payload(tmp_path / "proof")))
    refused(tiny, "is a zip archive")
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    refused(tiny, "Git LFS pointer")
    for raw in (b"", b"{}", b"\0" * 100, b"GGUF" * 10):
        path.write_bytes(raw)
        refused(tiny, "model.safetensors", "not a safetensors file")
    assert not (tmp_path / "proof").exists()


def test_M03_the_pickle_of_a_distributed_checkpoint_is_never_opened(tiny: Path, tmp_path: Path) -> None:
    (tiny / ".metadata").write_bytes(payload(tmp_path / "proof"))
    (tiny / "__0_0.distcp").write_bytes(payload(tmp_path / "proof"))
    (tiny / "model.safetensors").unlink()
    refused(tiny, ".metadata", "is a pickle")
    (tiny / ".metadata").unlink()
    refused(tiny, "__0_0.distcp", "is a pickle")
    assert not (tmp_path / "proof").exists()


# The weight file ------------------------------------------------------------------------------------------------------


def raw_file(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)


def one(shape: Any, start: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 200 * 2**20, 2**40, weights.HEADER_LIMIT + 1, 60])
def test_M04_a_header_length_is_bounded_before_it_is_read(length: int, tiny: Path) -> None:
    raw_file(tiny / "model.safetensors", {"w": one([1], 0, 4)}, b"1234", length)
    refused(tiny, "model.safetensors", "claims a header of" if length > 60 else "not valid JSON")


def test_M04_a_header_of_200_MB_that_is_there_is_not_read(tiny: Path) -> None:
    with (tiny / "model.safetensors").open("wb") as handle:
        handle.write((200 * 2**20).to_bytes(8, "little") + b"{")
        handle.truncate(201 * 2**20)  # a hole: takes no disk
    refused(tiny, "claims a header of 209,715,200 bytes")


FOUR = b"12345678abcdefgh"
BROKEN: dict[str, tuple[Any, bytes, str]] = {
    "overlap": ({"a": one([2], 0, 8), "b": one([2], 4, 12)}, FOUR[:12], "'b' shares bytes"),
    "the same twice": ({"a": one([2], 0, 8), "b": one([2], 0, 8)}, FOUR[:8], "shares bytes"),
    "hole": ({"a": one([1], 0, 4), "b": one([1], 8, 12)}, FOUR[:12], "'b' leaves unused bytes"),
    "hole at the start": ({"a": one([1], 4, 8)}, FOUR[:8], "'a' leaves unused bytes"),
    "truncated": ({"a": one([4], 0, 16)}, FOUR[:9], "'a' lies outside the file's 9 bytes"),
    "trailing": ({"a": one([2], 0, 8)}, FOUR, "8 bytes after the last tensor"),
    "nothing but data": ({}, FOUR, "16 bytes after the last tensor"),
    "overflow": ({"a": one([2**62, 4], 0, 8)}, FOUR[:8], "'a' of shape"),
    "overflow to nothing": ({"a": one([2**32, 2**32], 0, 0)}, b"", "'a' of shape"),
    "number too large": ({"a": one([2**64], 0, 8)}, FOUR[:8], "'a' has a shape"),
    "many dimensions": ({"a": one([1] * 9, 0, 4)}, FOUR[:4], "'a' has a shape"),
    "too few bytes": ({"a": one([3], 0, 8)}, FOUR[:8], "takes 12 bytes, but the header gives it 8"),
    "backwards": ({"a": one([1], 8, 4)}, FOUR, "'a' lies outside"),
    "negative": ({"a": one([-1], 0, 4)}, FOUR[:4], "'a' has a shape"),
    "negative place": ({"a": one([1], -4, 0)}, FOUR[:4], "'a' lies outside"),
    "float shape": ({"a": one([1.0], 0, 4)}, FOUR[:4], "'a' has a shape"),
    "true shape": ({"a": one([True], 0, 4)}, FOUR[:4], "'a' has a shape"),
    "text shape": ({"a": one("1", 0, 4)}, FOUR[:4], "'a' has a shape"),
    "unknown dtype": ({"a": one([4], 0, 4, "F8_E4M3")}, FOUR[:4], "'a' has dtype 'F8_E4M3'"),
    "list as dtype": ({"a": one([4], 0, 4, ["F32"])}, FOUR[:4], "'a' has dtype"),
    "extra field": ({"a": {**one([1], 0, 4), "x": 1}}, FOUR[:4], "'a' must have dtype"),
    "no fields": ({"a": []}, FOUR[:4], "'a' must have dtype"),
    "metadata": ({"__metadata__": {"a": 1}}, b"", "__metadata__"),
    "metadata list": ({"__metadata__": []}, b"", "__metadata__"),
    "duplicate": (b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":1}', b"1", "the key 'a' stands twice"),
    "duplicate among many": (
        b"{" + b"".join(b'"%d":0,' % i for i in range(200_000)) + b'"199999":0}',
        b"",
        "the key '199999' stands twice",
    ),
    "duplicate inside": (b'{"a":{"dtype":"U8","dtype":"U8"}}', b"", "the key 'dtype' stands twice"),
    "not JSON": (b"{'a': 1}", b"", "not valid JSON"),
    "not UTF-8": (b'{"\xff": 1}', b"", "byte 2 of the header is not UTF-8"),
    "deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"", "nested too deeply"),
    "a number of 5000 digits": (b'{"a":' + b"1" * 5000 + b"}", b"", "not valid JSON"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_M05_every_byte_belongs_to_exactly_one_tensor(fault: str, tiny: Path) -> None:
    header, data, words = BROKEN[fault]
    raw_file(tiny / "model.safetensors", header, data)
    refused(tiny, "model.safetensors", words)


@pytest.mark.slow
def test_M05_a_file_cut_anywhere_is_refused(tiny: Path) -> None:
    path = tiny / "model.safetensors"
    whole = path.read_bytes()
    for cut in [*range(200), *range(200, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        refused(tiny, "model.safetensors")


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The folder with its tensors changed: a dictionary of (dtype, shape, bytes) to work on."""
    path = folder / "model.safetensors"
    tensors: dict[str, Any] = {n: (t.dtype, t.shape, t.raw().copy()) for n, t in weights.read(path).items()}
    change(tensors)
    weights.write(path, tensors)
    return folder


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["bert.encoder.layer.1.attention.self.key.weight", "classifier.bias"])
def test_M06_weights_that_are_not_numbers_are_refused_by_name(value: float, name: str, tiny: Path) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors[name][2].view(np.float32)[1] = value

    refused(rewritten(tiny, spoil), "model.safetensors", name, "NaN or infinite")
    with pytest.raises(InputError, match="NaN or infinite"):
        folders.import_folder(tiny, tiny.parent / "out")
    assert not (tiny.parent / "out").exists()


def test_M06_huge_numbers_whose_sum_overflows_are_still_numbers(tiny: Path) -> None:
    def enlarge(tensors: dict[str, Any]) -> None:
        tensors["classifier.weight"][2].view(np.float32)[:] = 3e38

    folders.load(rewritten(tiny, enlarge))


def test_M07_missing_extra_and_misshapen_tensors_are_listed_together(tiny: Path) -> None:
    def muddle(tensors: dict[str, Any]) -> None:
        for i in range(2):
            for name in ("query", "key", "value"):
                del tensors[f"bert.encoder.layer.{i}.attention.self.{name}.bias"]
        tensors["lora.weight"] = ("F32", (1,), np.zeros(4, np.uint8))
        dtype, (rows, columns), raw = tensors["bert.pooler.dense.weight"]
        tensors["bert.pooler.dense.weight"] = (dtype, (rows // 2, columns * 2), raw)
        tensors["classifier.bias"] = ("I32", *tensors["classifier.bias"][1:])

    refused(
        rewritten(tiny, muddle), "missing", "encoder.layer.0.attention.self.key.bias", "and 1 more", "unexpected",
        "lora.weight", "pooler.dense.weight' is F32 [8, 32] and must be a float [16, 16]", "classifier.bias' is I32",
    )  # fmt: skip


def test_M07_a_tensor_under_two_names_is_refused(tiny: Path) -> None:
    def double(tensors: dict[str, Any]) -> None:
        tensors["embeddings.LayerNorm.gamma"] = tensors["bert.embeddings.LayerNorm.weight"]

    refused(rewritten(tiny, double), "embeddings.LayerNorm", "stands twice")


def test_M07_a_head_that_the_architecture_promises_must_be_there(tiny: Path) -> None:
    def behead(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            if name.startswith(("classifier", "cls")):
                del tensors[name]

    rewritten(tiny, behead)
    refused(tiny, "BertForSequenceClassification", "no tensor of its labels head")
    loaded = folders.load(changed(tiny, architectures=["BertForPreTraining"]))
    assert "no mlm or nsp head" in loaded.notes[0]
    assert loaded.model.parts == ("pooler",)


def test_M07_a_decoder_with_weights_of_its_own_is_refused(tiny: Path) -> None:
    def untie(tensors: dict[str, Any]) -> None:
        dtype, shape, raw = tensors["bert.embeddings.word_embeddings.weight"]
        tensors["cls.predictions.decoder.weight"] = (dtype, shape, raw + 1)

    refused(rewritten(tiny, untie), "cls.predictions.decoder.weight", "is not equal to", "tie_word_embeddings")


# The config -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 0, 1.5, 16.0, "16", None, True, [16], {}, float("nan"), float("inf"), 10**30])
@pytest.mark.parametrize(
    "field",
    ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "type_vocab_size"],
)
def test_M10_whole_numbers_are_refused_by_field(field: str, value: Any, tiny: Path) -> None:
    refused(changed(tiny, **{field: value}), "config.json", field, "whole number from 1")


@pytest.mark.parametrize("value", [-0.1, 1, "0.1", None, True, [], float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["hidden_dropout_prob", "layer_norm_eps"])
def test_M10_fractions_are_refused_by_field(field: str, value: Any, tiny: Path) -> None:
    refused(changed(tiny, **{field: value}), "config.json", field, "must be a number from 0")


ODD: list[tuple[str, Any, str]] = [
    ("model_type", "roberta", "must be one of: bert, distilbert, electra, ernie, modernbert"),
    ("model_type", None, "must be one of"),
    ("model_type", ["bert"], "must be one of"),
    ("model_type", "x" * 10**6, "must be one of"),
    ("architectures", "BertModel", "must be one of"),
    ("architectures", ["os.system"], "must be one of"),
    ("architectures", [3], "must be one of"),
    ("architectures", ["ModernBertModel"], "must be one of"),
    ("num_attention_heads", 3, "cannot be shared by"),
    ("id2label", ["a", "b", "c"], "must map each number"),
    ("id2label", {"0": "a", "1": 2, "2": "c"}, "must map each number"),
    ("id2label", {"0": "a", "1": "b", "3": "c"}, "has no entry 2"),
    ("id2label", {"0": "a", "1": "b"}, "classifier.bias' is F32 [3] and must be a float [2]"),
    ("num_labels", 4, "id2label names 3"),
    ("num_labels", "3", "whole number"),
    ("problem_type", "os.system", "must be one of"),
    ("problem_type", {}, "must be one of"),
    ("dtype", "int4", "must be one of"),
    ("torch_dtype", 32, "must be one of"),
    ("is_decoder", True, "must be False"),
    ("is_decoder", "no", "must be False"),
    ("add_cross_attention", True, "must be False"),
    ("position_embedding_type", "relative_key", "must be 'absolute'"),
    ("quantization_config", {"bits": 4}, "must be absent"),
    ("pruned_heads", {"0": [1]}, "must be absent"),
]


@pytest.mark.parametrize(("field", "value", "words"), ODD)
def test_M10_other_fields_are_refused_by_name(field: str, value: Any, words: str, tiny: Path) -> None:
    refused(changed(tiny, **{field: value}), field if "classifier" not in words else "", words)


ODD_MODERN: list[tuple[str, Any]] = [
    ("attention_bias", True), ("mlp_bias", True), ("norm_bias", True), ("classifier_bias", True),
    ("decoder_bias", False), ("hidden_activation", "silu"), ("classifier_activation", "os.system"),
    ("local_attention", 64), ("global_attn_every_n_layers", 2), ("global_rope_theta", 1e6), ("local_rope_theta", 1.0),
    ("layer_types", ["full_attention"] * 4), ("layer_types", 3), ("rope_parameters", 3), ("num_attention_heads", 16),
    ("rope_parameters", {"full_attention": {"rope_theta": 5.0}}), ("rope_parameters", {"sliding_attention": 4}),
    ("rope_parameters", {"full_attention": {"rope_theta": 160000.0, "rope_type": "yarn"}}), ("rope_scaling", {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), ODD_MODERN)
def test_M10_a_modernbert_of_another_kind_is_refused_by_field(field: str, value: Any, modern: Path) -> None:
    folders.load(modern)
    refused(changed(modern, **{field: value}), "config.json", field)


OWN_FAULTS: list[tuple[Any, str]] = [
    (None, "filbert.config"),
    ({}, "filbert.config"),
    ({"config": [], "parts": []}, "filbert.config"),
    ({"config": {"width": -1}}, "width"),
    ({"config": {"width": "x" * 10**6}}, "width"),
    ({"config": {"wdith": 16}}, "Did you mean 'width'"),
    ({"config": {"positions": "os.system"}}, "positions"),
    ({"config": {"positions": ["learned"]}}, "positions"),
    ({"config": {"norm": {}}}, "norm"),
    ({"config": {"dropout": float("nan")}}, "dropout"),
    ({"config": {}, "parts": 3}, "filbert.parts"),
    ({"config": {}, "parts": [[]]}, "filbert.parts"),
    ({"config": {}, "parts": ["crfs"]}, "filbert.parts"),
]


@pytest.mark.parametrize(("value", "words"), OWN_FAULTS)
def test_M10_a_config_of_our_own_kind_is_refused_by_field(value: Any, words: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "own", bert.Config(**{**vars(TINY), "positions": "sinusoidal"}), ("mlm",))
    refused(changed(folder, filbert=value), "config.json", words)


def test_M11_fields_that_name_code_are_ignored_and_noted(tiny: Path, tmp_path: Path) -> None:
    (tiny / "evil.py").write_text(f"open({str(tmp_path / 'proof')!r}, 'w')")
    named = {
        "auto_map": {"AutoModel": "evil.Model"},
        "trust_remote_code": True,
        "_attn_implementation_internal": "evil",
    }
    loaded = folders.load(changed(tiny, **named))
    assert len(loaded.notes) == 1
    assert all(name in loaded.notes[0] for name in named)
    assert not named.keys() & loaded.fields.keys()
    folders.import_folder(tiny, tmp_path / "out")
    assert "evil" not in (tmp_path / "out/config.json").read_text()
    assert not (tmp_path / "out/evil.py").exists()
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize("value", ["os.system", "silu", "__import__", 3, None, ["gelu"], {"gelu": 1}])
def test_M12_activations_are_an_allow_list(value: Any, tiny: Path) -> None:
    refused(changed(tiny, hidden_act=value), "hidden_act", "gelu, gelu_new, gelu_pytorch_tanh, relu")


# Places ---------------------------------------------------------------------------------------------------------------


def sharded(folder: Path) -> dict[str, str]:
    """The folder's weights as one shard with an index; what the index says."""
    os.rename(folder / "model.safetensors", folder / "part.safetensors")
    places = dict.fromkeys(weights.read(folder / "part.safetensors"), "part.safetensors")
    write_index(folder, places)
    return places


def write_index(folder: Path, places: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "../part.safetensors", "a/../part.safetensors", "..", "", "x\0.safetensors",
     "C:\\x.safetensors", "pytorch_model.bin", "config.json", "x" * 5000 + ".safetensors"],
)  # fmt: skip
def test_M15_an_index_names_files_of_its_own_folder_only(name: str, tiny: Path) -> None:
    places = sharded(tiny)
    folders.load(tiny)
    (tiny.parent / "part.safetensors").write_bytes((tiny / "part.safetensors").read_bytes())
    write_index(tiny, {**places, "classifier.bias": name})
    refused(tiny, "model.safetensors.index.json", "weight_map names", "of this folder")


def test_M15_an_index_and_its_shards_must_agree(tiny: Path) -> None:
    places = sharded(tiny)
    write_index(tiny, {**places, "more": "other.safetensors"})
    refused(tiny, "other.safetensors: there is no such file")
    write_index(tiny, {**places, "more": "part.safetensors"})
    refused(tiny, "do not hold: 'more'")
    write_index(tiny, {name: place for name, place in places.items() if name != "classifier.bias"})
    refused(tiny, "part.safetensors", "does not place there: 'classifier.bias'")
    for odd in ([], {}, None, {"a": 3}):
        write_index(tiny, odd)
        refused(tiny, "weight_map must map")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt", "tokenizer.json"])
def test_M16_links_may_not_leave_the_folder(name: str, tiny: Path, tmp_path: Path) -> None:
    os.rename(tiny / name, tmp_path / "outside")
    os.symlink(tmp_path / "outside", tiny / name)
    refused(tiny, name, "is a link that leaves the folder")
    (tiny / name).unlink()
    os.symlink(name, tiny / name)
    refused(tiny, name, "cannot be read")
    (tiny / name).unlink()
    os.symlink("/etc/passwd", tiny / name)
    refused(tiny, name, "is a link that leaves the folder")


def test_M16_the_hub_cache_is_trusted_for_its_own_repository_only(tmp_path: Path) -> None:
    home = tmp_path / "models--a--b"
    folder = saved(home / "snapshots" / "abc")
    other = tmp_path / "models--c--d" / "blobs"
    other.mkdir(parents=True)
    os.rename(folder / "model.safetensors", other / "x")
    os.symlink("../../../models--c--d/blobs/x", folder / "model.safetensors")
    refused(folder, "is a link that leaves the folder")


def test_M16_pipes_and_folders_are_not_files(tiny: Path) -> None:
    (tiny / "config.json").unlink()
    os.mkfifo(tiny / "config.json")
    refused(tiny, "config.json", "named pipe")
    (tiny / "model.safetensors").unlink()
    (tiny / "model.safetensors").mkdir()
    (tiny / "config.json").unlink()
    (tiny / "config.json").write_text('{"model_type": "bert"}')
    refused(tiny, "model.safetensors", "is a folder")


# Time and memory ------------------------------------------------------------------------------------------------------

WATCH = """
import json, sys, time
from filbert.folder import folder
from filbert.core.errors import InputError
def peak():  # not ru_maxrss: that begins with what the parent held when it forked
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
told = []
for path in sys.argv[1:]:
    before, start, said = peak(), time.process_time(), "loaded"
    try:
        folder.load(path)
    except InputError as error:
        said = str(error)
    told.append([said, time.process_time() - start, peak() - before])
print(json.dumps(told))
"""


def greedy(folder: Path, **fields: Any) -> Path:
    return changed(saved(folder), **fields)


@pytest.mark.slow
def test_M08_M09_M18_what_a_folder_claims_is_refused_before_it_costs_anything(tmp_path: Path) -> None:
    """A fresh process loads each in turn; each must be refused within a second of CPU, 100 MB and twice its size."""
    own = saved(tmp_path / "own", bert.Config(**{**vars(TINY), "positions": "sinusoidal"}), ())
    claims = json.loads((own / "config.json").read_text())["filbert"]
    claims["config"]["max_length"] = 4_000_000
    deep = saved(tmp_path / "deep")
    (deep / "config.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    lists = saved(tmp_path / "lists")
    (lists / "config.json").write_text('{"a":' + "[" * 1_000_000 + "]" * 1_000_000 + "}")
    shards = saved(tmp_path / "shards")
    sharded(shards)
    (shards / "model.safetensors.index.json").write_text('{"weight_map":' * 100_000)
    listed = saved(tmp_path / "listed")
    (listed / "manifest.json").write_text('{"files":' + '{"x":' * 100_000 + "}" * 100_001)
    labels = {str(i): str(i) for i in range(100_000)}
    cases = {
        greedy(tmp_path / "a", hidden_size=65_536, intermediate_size=1_000_000, num_hidden_layers=1_000): "numbers",
        greedy(tmp_path / "b", vocab_size=4_000_000, hidden_size=65_536): "numbers, but the weights hold",
        greedy(tmp_path / "c", num_hidden_layers=10_000_000): "num_hidden_layers",
        greedy(tmp_path / "d", num_hidden_layers=1_000): "numbers, but the weights hold",
        greedy(tmp_path / "e", num_labels=10_000_000, id2label=None): "num_labels",
        greedy(tmp_path / "f", num_labels=1_000_000, id2label=None, label2id=None): "numbers, but the weights hold",
        greedy(tmp_path / "g", id2label=labels, num_labels=None): "numbers, but the weights hold",
        greedy(tmp_path / "h", max_position_embeddings=4_000_000): "numbers, but the weights hold",
        changed(own, filbert=claims): "max_length",
        deep: "nested",
        lists: "nested",
        shards: "nested",
        listed: "nested",
    }
    out = subprocess.run([sys.executable, "-c", WATCH, *map(str, cases)], check=True, capture_output=True, text=True)
    for (said, seconds, grown), (folder, words) in zip(json.loads(out.stdout), cases.items(), strict=True):
        size = sum(path.stat().st_size for path in folder.iterdir())
        assert words in said, said
        assert seconds < 1, said
        assert grown < 100 * 2**20 + 2 * size, said
