"""Golden cases: chosen to cover, replayed in every runtime; a folder with anything changed is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import runtime
from filbert.folder.folder import save
from filbert.folder.manifest import seal
from filbert.ship import onnx, verify
from filbert.text.tokenizer import Tokenizer
from kit.folders import classifier
from kit.models import small_bert

pytest.importorskip("onnxruntime")
LABELS = ("体育", "财经", "科技")
EXAMPLES = [Example((f"第{n}条新闻" + "好" * (n % 40),), LABELS[n % 3], id=n) for n in range(200)]


@pytest.fixture
def folder(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """An exported classifier with its golden cases."""
    classifier(tmp_path / "m", tokenizer, LABELS)
    verify.write(tmp_path / "m", EXAMPLES)
    return onnx.export(tmp_path / "m", tmp_path / "out")


def test_cases_cover_labels_lengths_and_odd_text() -> None:
    found = verify.chosen([*EXAMPLES, Example(("长" * 5_000,), LABELS[0])])
    assert {example.gold for example in found} == set(LABELS)
    assert len(found) <= verify.MOST
    sizes = [len(example.texts[0]) for example in found]
    assert min(sizes) == min(len(e.texts[0]) for e in EXAMPLES)
    assert max(sizes) == max(len(e.texts[0]) for e in EXAMPLES)


def test_a_whole_folder_holds_in_every_runtime(folder: Path, filbert: Callable[..., Any]) -> None:
    ran = filbert("verify", folder, "--json")
    told = json.loads(ran.out)
    assert ran.code == 0
    assert told["holds"]
    assert [each["runtime"] for each in told["runtimes"]] == ["torch", "onnx"]
    for each in told["runtimes"]:
        assert each["num_cases"] > len(verify.ODD)
        assert each["difference"] < 1e-4
        assert not each["changed"]
    assert "changed decisions" in filbert("verify", folder).out


def test_pretrained_folders_have_vectors_and_blanks(tiny_folder: Path, tmp_path: Path) -> None:
    out = onnx.export(tiny_folder, tmp_path / "out")
    verify.write(out)
    kinds = [set(case) - {"said"} for case in verify.read(out)]
    assert {"text"} in kinds
    assert {"fill"} in kinds
    assert all(each.holds for each in verify.verified(out))


@pytest.mark.parametrize("name", ["model.safetensors", runtime.ENCODER, "config.json", verify.GOLDEN, "vocab.txt"])
def test_one_flipped_byte_is_named(folder: Path, name: str) -> None:
    raw = bytearray((folder / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / name).write_bytes(raw)
    with pytest.raises(InputError, match=name):
        verify.verified(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "task.json").unlink()
    with pytest.raises(InputError, match=r"task\.json"):
        verify.verified(folder)


def test_changed_weights_change_what_is_said(folder: Path, tokenizer: Tokenizer, filbert: Callable[..., Any]) -> None:
    """Weights of another run, sealed as if they were these: hashes agree, the cases do not."""
    other = small_bert(tokenizer, ("labels",), len(LABELS), noise=1.0)
    save(folder.parent / "other", other, tokenizer, labels=LABELS[::-1])
    shutil.copyfile(folder.parent / "other/model.safetensors", folder / "model.safetensors")
    seal(folder)
    ran = filbert("verify", folder, "--json")
    told = json.loads(ran.out)
    assert ran.code == 1
    assert not told["holds"]
    assert all(each["difference"] > 0.01 for each in told["runtimes"])


def test_a_broken_case_is_named(folder: Path) -> None:
    (folder / verify.GOLDEN).write_text('{"said": 1}\n')
    seal(folder)
    with pytest.raises(InputError, match=r"golden\.jsonl line 1"):
        verify.verified(folder)


def test_compared_finds_numbers_and_words() -> None:
    then = {"label": "甲", "scores": {"甲": 0.9, "乙": 0.1}, "spans": [{"start": 1}]}
    now = {"label": "乙", "scores": {"乙": 0.4, "甲": 0.6}, "spans": []}
    apart, others = verify.compared(then, now)
    assert abs(apart - 0.3) < 1e-9
    assert len(others) == 2
    assert "label was 甲, is 乙" in others[0]


@pytest.mark.slow
def test_export_adds_cases_where_there_are_none(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    ran = filbert("export", tiny_folder, "--out", tmp_path / "out", "--json")
    assert ran.code == 0
    assert {"model.onnx", "runtime.json", "golden.jsonl"} <= set(json.loads(ran.out)["files"])
    assert filbert("verify", tmp_path / "out").code == 0
    assert filbert("export", tmp_path / "nothing", "--out", tmp_path / "x").code == 2


@pytest.mark.slow
def test_eight_bits_without_a_stated_cost_only_have_to_run(
    folder: Path, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    out = onnx.export(folder, tmp_path / "small", int8=True)
    (found,) = [each for each in verify.verified(out) if each.runtime == "int8"]
    assert found.most is None
    assert found.holds
    assert "does not state what int8 costs" in filbert("verify", out).err
    seal(out, int8={"golden": {"changed": "some"}})
    with pytest.raises(InputError, match=r"stated\.int8\.golden"):
        verify.verified(out)
    seal(out, int8=[1])
    with pytest.raises(InputError, match=r"stated\.int8 must be an object"):
        verify.verified(out)
