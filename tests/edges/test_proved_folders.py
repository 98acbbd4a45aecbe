"""What a folder proves: numbers that are finite, files that belong together, a graph that ends (DEFECTS I1 to I10)."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import FilbertError, InputError
from filbert.engine.threads import check_finite
from filbert.folder import runtime as portable
from filbert.folder import weights
from filbert.folder.manifest import fingerprint, seal
from filbert.serve import keys
from filbert.ship import export, verify
from filbert.text.tokenizer import Tokenizer
from kit.folders import classifier

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
LABELS = ("体育", "财经", "科技")
ODD = ("a\u2028b", "a\u0085b", "a\u2029b", "a\x1eb", "a\x0bb")


@pytest.fixture(scope="module")
def whole(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported classifier with golden cases."""
    tokenizer, folder = Tokenizer.load(tiny_folder), tmp_path_factory.mktemp("whole")
    classifier(folder / "m", tokenizer, LABELS, ("labels", "mlm"))
    return export.export(folder / "m", folder / "out", int8=True)[0]


@pytest.fixture
def shipped(whole: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "shipped"))


def said_in(folder: Path, name: str, **fields: Any) -> None:
    """Changes fields of a JSON file and seals the folder, as whoever forges it would."""
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")
    seal(folder)


# I1: numbers that are none --------------------------------------------------------------------------------------------


def huge(folder: Path) -> None:
    """Finite weights whose products are not: what every check of weights lets pass."""
    stored = weights.read(folder / "model.safetensors")
    told = {name: (one.dtype, one.shape, one.raw().copy()) for name, one in stored.items()}
    for name in (name for name in told if name.endswith(("intermediate.dense.weight", "output.dense.weight"))):
        dtype, shape, raw = told[name]
        told[name] = dtype, shape, np.full(raw.nbytes // 4, 3e38, np.float32).view(np.uint8)
    weights.write(folder / "model.safetensors", told)
    seal(folder)


@pytest.mark.parametrize("how", [{"runtime": "torch"}, {"runtime": "onnx"}])
def test_I1_vectors_that_are_not_finite_are_an_error(how: dict[str, str], shipped: Path) -> None:
    huge(shipped)
    model = fb.load(shipped, device="cpu", **how)
    for ask in (lambda: model.embed(["今天"]), lambda: model.predict(["今天"]), lambda: model.fill("今[MASK]")):
        with pytest.raises(FilbertError, match="NaN or infinite"):
            ask()


def test_I1_verify_and_embed_fail(shipped: Path, filbert: Callable[..., Any]) -> None:
    huge(shipped)
    assert filbert("verify", shipped).code == 1
    assert filbert("embed", shipped, "--text", "今天").code != 0


def test_I1_a_difference_that_is_no_number_does_not_hold() -> None:
    apart, _ = verify.compared([1.0, 2.0], [1.0, math.nan])
    assert not verify.Replayed("torch", 1, apart, ()).holds
    assert not verify.Replayed("torch", 1, math.nan, ()).holds
    assert not verify.Replayed("int8", 1, math.nan, (), most=None).holds
    with pytest.raises(FilbertError, match="NaN or infinite"):
        check_finite((np.zeros(2), np.array([1.0, np.nan])))


# I2: line ends --------------------------------------------------------------------------------------------------------


def test_I2_texts_with_odd_line_breaks_are_verified(
    tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    shutil.copytree(tiny_folder, tmp_path / "m")
    model = fb.load(tmp_path / "m", device="cpu")
    made: list[dict[str, Any]] = [{"text": text} for text in ODD]
    lines = [
        verify._line({**case, "said": own}) for case, own in zip(made, verify.answers_of(model, made), strict=True)
    ]
    (tmp_path / "m/golden.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    seal(tmp_path / "m")
    assert len(list(verify.read(tmp_path / "m"))) == len(ODD)
    assert filbert("verify", tmp_path / "m").code == 0
    assert filbert("export", tmp_path / "m", "--out", tmp_path / "out", "--int8").code == 0


def test_I2_a_file_of_keys_has_line_feeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(keys.VARIABLE, raising=False)
    hashes = ["a" * 64, "b" * 64]
    (tmp_path / "keys").write_text(f"{hashes[0]} # one\u2028still the name\r\n{hashes[1]}\n", encoding="utf-8")
    assert keys.hashes(tmp_path / "keys") == tuple(hashes)


# I4: the graph and runtime.json belong to config.json and the weights -------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"labels": list(reversed(LABELS))}, "labels is"),
        ({"labels": list(LABELS[:2])}, "labels is"),
        ({"width": 16}, "width is"),
        ({"vocab_size": 10}, "vocab_size is"),
        ({"max_length": 4_000_000_000}, "max_length is"),
        ({"eps": 0.1}, "eps is"),
        ({"eps": math.nan}, "eps is"),
        ({"activation": "relu"}, "activation is"),
        ({"activation": "none such"}, "activation is"),
        ({"kind": "modernbert"}, "kind is"),
        ({"problem_type": "multi_label_classification"}, "problem_type is"),
        ({"parts": ["labels"]}, "head"),
        ({"parts": ["labels", "mlm", "crf"]}, "head"),
        ({"heads": {}}, "head"),
    ],
)
def test_I4_a_runtime_that_contradicts_the_config_is_refused(fields: dict[str, Any], words: str, shipped: Path) -> None:
    said_in(shipped, "runtime.json", **fields)
    with pytest.raises(InputError, match=words):
        fb.load(shipped, runtime="onnx")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("heads.labels.weight", "cls.predictions.transform.dense.weight"),
        ("mlm.dense.bias", "cls.predictions.transform.LayerNorm.bias"),
        ("words", "bert.embeddings.position_embeddings.weight"),
    ],
)
def test_I4_a_head_is_its_own_tensor(ours: str, theirs: str, shipped: Path) -> None:
    heads = json.loads((shipped / "runtime.json").read_text())["heads"]
    said_in(shipped, "runtime.json", heads={**heads, ours: [theirs]})
    with pytest.raises(InputError, match=r"no head's tensor|weight file does not have"):
        fb.load(shipped, runtime="onnx")


def test_I4_a_file_of_another_folder_is_found_by_its_hash(shipped: Path) -> None:
    """Of one size, so that only the hash can tell."""
    path = shipped / portable.ENCODER
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"filbert")] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(InputError, match=r"model\.onnx: is not the file that was saved"):
        fb.load(shipped, runtime="onnx")


def redone(folder: Path, change: Callable[[Any], object], name: str = portable.ENCODER) -> None:
    """Changes a graph and seals the folder."""
    model = onnx.load(str(folder / name), load_external_data=False)
    change(model)
    (folder / name).write_bytes(model.SerializeToString(deterministic=True))
    seal(folder)


def endless(model: Any) -> None:
    """A loop of 2^62 turns."""
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2**62, np.int64), "for ever"))
    loop.input[0] = "for ever"


def large(model: Any) -> None:
    """Some bytes that ask for gigabytes."""
    helper = onnx.helper
    shape = onnx.numpy_helper.from_array(np.array([30_000, 40_000], np.int64), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], ["much"]))


def expanded(model: Any) -> None:
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([30_000, 40_000], np.int64), "shape"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1.0], np.float32), "one"))
    model.graph.node.insert(0, onnx.helper.make_node("Expand", ["one", "shape"], ["much"]))


def claimed(model: Any) -> None:
    """A tensor of more numbers than it holds."""
    tensor = next(one for one in model.graph.initializer if one.raw_data)
    tensor.dims[:] = [30_000, 40_000]


def swapped(model: Any) -> None:
    """Two maps of one shape that change places: other answers, and no fault in any size."""
    found = {
        one.name: one for one in model.graph.initializer if one.name.endswith(("self.query.weight", "self.key.weight"))
    }
    one, two = list(found.values())[:2]
    kept = [entry.value for entry in one.external_data]
    for entry, other in zip(one.external_data, two.external_data, strict=True):
        entry.value = other.value
    for entry, value in zip(two.external_data, kept, strict=True):
        entry.value = value


def constant(model: Any) -> None:
    value = onnx.numpy_helper.from_array(np.zeros(3, np.float32))
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["c"], value=value))


@pytest.mark.parametrize("change", [endless, large, expanded, claimed, swapped, constant])
def test_I4_a_graph_that_does_more_is_refused_before_it_runs(change: Callable[[Any], object], shipped: Path) -> None:
    redone(shipped, change)
    with pytest.raises(InputError, match=r"model\.onnx: (has|the tensor)"):
        fb.load(shipped, runtime="onnx")


def test_I4_garbage_is_one_sentence(shipped: Path) -> None:
    for raw in (b"", b"\x3a", b"\xff" * 513, b"\x3a\x80", bytes(range(256))):
        (shipped / portable.ENCODER).write_bytes(raw)
        seal(shipped)
        with pytest.raises(InputError, match=r"model\.onnx"):
            fb.load(shipped, runtime="onnx")


@pytest.mark.parametrize("name", [portable.ENCODER, portable.SMALL_ENCODER])
def test_I4_verify_finds_a_graph_that_is_not_built_from_the_config(
    name: str, shipped: Path, filbert: Callable[..., Any]
) -> None:
    """Every operator is one that may stand there, the files are sealed anew, and it is still another graph."""

    def other(model: Any) -> None:
        norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
        next(one for one in norm.attribute if one.name == "epsilon").f = 1e-11  # too little for any golden case

    redone(shipped, other, name)
    fb.load(shipped, runtime="onnx")
    ran = filbert("verify", shipped)
    assert ran.code == 1
    assert f"{name}: is not the graph" in ran.err


def test_I4_the_same_bytes_are_built_again(whole: Path) -> None:
    from filbert.folder.manifest import model_folder
    from filbert.ship.onnx import changed_graphs

    assert changed_graphs(whole) == []
    assert changed_graphs(model_folder("builtin")) == []


def test_I4_labels_are_those_of_the_config(shipped: Path) -> None:
    said_in(shipped, "config.json", id2label={str(i): label for i, label in enumerate(reversed(LABELS))})
    with pytest.raises(InputError, match="labels is"):
        fb.load(shipped, runtime="onnx")


# I5: what hashes in a folder prove ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_I5_one_fingerprint_that_can_be_compared(shipped: Path, filbert: Callable[..., Any]) -> None:
    ran = filbert("verify", shipped, "--json")
    told = json.loads(ran.out)["fingerprint"]
    assert ran.code == 0
    assert told == fingerprint(shipped)
    assert len(told) == 64
    assert told in filbert("verify", shipped).out
    assert filbert("verify", shipped, "--expect", told).code == 0
    (shipped / "README.md").write_text("Other words.")
    seal(shipped)  # as a forger would: all hashes agree again
    assert filbert("verify", shipped).code == 0
    ran = filbert("verify", shipped, "--expect", told)
    assert ran.code == 2
    assert "fingerprint" in ran.err


def test_I5_a_deleted_manifest_is_named(shipped: Path, minilm: Path, filbert: Callable[..., Any]) -> None:
    (shipped / "manifest.json").unlink()
    ran = filbert("verify", shipped)
    assert ran.code == 2
    assert "has no manifest.json" in ran.err
    assert fb.load(shipped, runtime="onnx").predict(["今天"])  # whoever changed it on purpose may use it
    with pytest.raises(InputError, match=r"no manifest\.json"):
        verify.check_sealed(minilm, "0" * 64)
    verify.check_sealed(minilm, None)  # of transformers, which writes none


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "golden.jsonl", "adapter_config.json", "modules.json", "1_Pooling/config.json",
     "2_Dense/model.safetensors"],
)  # fmt: skip
def test_I5_a_file_that_was_added_is_named(name: str, shipped: Path) -> None:
    """Hashes of the files that were there say nothing of one that is read before them."""
    files = json.loads((shipped / "manifest.json").read_text())
    files["files"].pop(name, None)
    (shipped / "manifest.json").write_text(json.dumps(files))
    if not (shipped / name).exists():
        (shipped / name).parent.mkdir(exist_ok=True)
        (shipped / name).write_text("{}")
    with pytest.raises(InputError, match="was not there when the folder was saved"):
        fb.load(shipped, device="cpu")


# I6: links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "task.json", "config.json"])
@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_I6_links_that_leave_the_folder_are_refused(runtime: str, name: str, shipped: Path, tmp_path: Path) -> None:
    """The very bytes, so that only the place can be the reason."""
    (shipped / name).rename(tmp_path / "outside")
    (shipped / name).symlink_to(tmp_path / "outside")
    (shipped / "manifest.json").unlink()
    with pytest.raises(InputError, match="is a link that leaves the folder"):
        fb.load(shipped, runtime=runtime)


# I10: golden.jsonl is bounded -----------------------------------------------------------------------------------------


def test_I10_golden_cases_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / verify.GOLDEN
    with path.open("wb") as file:
        file.truncate(3_600_000_000)  # takes no room, and would if it were read
    with pytest.raises(InputError, match="more than the"):
        list(verify.read(tmp_path))
    path.write_text('{"text": "a", "said": []}\n' * (verify.MOST_LINES + 1))
    rows = verify.read(tmp_path)
    assert next(rows)["text"] == "a"  # row by row
    with pytest.raises(InputError, match="more than 1,000 cases"):
        list(rows)


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[" * 100_000, b'{"text": "a", "said": NaN}', b'{"text": "a", "said": Infinity}', b"[]", b""]
)
def test_I10_a_line_that_is_no_case_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / verify.GOLDEN).write_bytes(b'{"text": "a", "said": []}\n' + line + b"\n")
    with pytest.raises(InputError, match=r"golden\.jsonl line 2: is no golden case"):
        list(verify.read(tmp_path))


def test_I1_the_guard_leaves_training_alone(tiny_folder: Path) -> None:
    """What is checked are numbers; gradients pass as before."""
    model = fb.load(tiny_folder, device="cpu")
    from filbert.nn.attention import tensors
    from filbert.pack.lay import pack

    packed, _ = pack([model.tokenizer.encode("今天")])
    model.backbone(tensors(packed, "cpu")).sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in model.backbone.parameters() if one.grad is not None)
