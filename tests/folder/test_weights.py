"""The safetensors reader and writer, against the safetensors library and against their own promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from filbert.core.errors import InputError
from filbert.folder import weights


def some() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "乙.weight": rng.normal(size=(3, 5)).astype(np.float32),
        "a.bias": rng.normal(size=7).astype(np.float16),
        "d": rng.normal(size=(2, 2, 2)),
        "flags": np.array([True, False, True]),
        "empty": np.zeros((0, 4), np.float32),
        "one": np.array(5, np.int64),
        "bytes": np.arange(3, dtype=np.uint8),
    }


def as_stored(arrays: dict[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], weights.Bytes]]:
    names = {np.dtype(code): name for name, code in weights.DTYPES.items()}
    return {
        name: (names[a.dtype], a.shape, np.frombuffer(a.tobytes(), np.uint8)) for name, a in arrays.items()
    }  # fmt: skip


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    save_file(some(), tmp_path / "x.safetensors", {"format": "np"})
    found = weights.read(tmp_path / "x.safetensors")
    assert found.keys() == some().keys()
    for name, array in some().items():
        np.testing.assert_array_equal(found[name].array(), array, strict=True)
        assert found[name].size == array.size


def test_the_library_reads_what_we_write_and_the_bytes_are_always_the_same(tmp_path: Path) -> None:
    given = as_stored(some())
    weights.write(tmp_path / "x", given)
    weights.write(tmp_path / "y", dict(reversed(given.items())))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    found = load_file(tmp_path / "x")
    for name, array in some().items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert all(
        stored.start % np.dtype(weights.DTYPES[stored.dtype]).itemsize == 0
        for stored in weights.read(tmp_path / "x").values()
    )
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["x", "y"]


def test_bfloat16_is_widened_without_loss(tmp_path: Path) -> None:
    wide = np.array([1.0, -2.5, 3.140625, 0.0, -0.0], np.float32)
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    weights.write(tmp_path / "x", {"w": ("BF16", (5,), bits.view(np.uint8))})
    np.testing.assert_array_equal(weights.read(tmp_path / "x")["w"].array(), wide, strict=True)


def test_an_odd_header_gives_unaligned_data_that_still_reads(tmp_path: Path) -> None:
    text = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    text += b" " * (1 - len(text) % 2)
    raw = len(text).to_bytes(8, "little") + text + np.array([1.5, -2], "<f4").tobytes()
    (tmp_path / "x").write_bytes(raw)
    assert weights.read(tmp_path / "x")["w"].start % 2 == 1
    assert weights.read(tmp_path / "x")["w"].array().tolist() == [1.5, -2]


def test_a_header_whose_length_looks_like_a_pickle_is_read(tmp_path: Path) -> None:
    """640 is 80 02 in bytes, which is also how pickles begin."""
    text = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    (tmp_path / "x").write_bytes((640).to_bytes(8, "little") + text.ljust(640) + b"\x07")
    assert weights.read(tmp_path / "x")["w"].array().tolist() == [7]


def test_a_file_that_shrinks_after_it_was_checked_is_refused(tmp_path: Path) -> None:
    save_file({"w": np.zeros(5000, np.float32)}, tmp_path / "x")
    stored = weights.read(tmp_path / "x")["w"]
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:2000])
    with pytest.raises(InputError, match="became shorter"):
        stored.array()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "..\\x", "C:x", "a\0b", "a\nb", "x" * 300])
def test_only_plain_names_are_file_names(name: str) -> None:
    assert not weights.plain_name(name)
    assert weights.plain_name("model-00001-of-00002.safetensors")
    assert weights.plain_name("模型.safetensors")


def test_a_list_of_names_is_short() -> None:
    assert weights.named(["b", "a"]) == "'a', 'b'"
    assert weights.named(str(i) for i in range(9)) == "'0', '1', '2', '3', '4' and 4 more"
    assert len(weights.named(["x" * 10**6])) < 200
    weights.named(["\ud800"]).encode()  # half a character, as JSON can spell it, must not break printing


def test_no_torch_is_imported() -> None:
    code = "import sys; import filbert.folder.weights; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
