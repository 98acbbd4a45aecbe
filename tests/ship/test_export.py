"""Shipping in eight bits: what that costs is measured for every task, stated in card and manifest, and held to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filbert.engine.model import load
from filbert.folder import runtime
from filbert.folder.folder import save
from filbert.folder.manifest import seal, stated
from filbert.ship import cost, export, verify
from filbert.text.tokenizer import Tokenizer
from kit.folders import READ, task_file
from kit.models import small_bert

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
FIVE, TAGS = ("体育", "财经", "科技", "娱乐", "教育"), ("O", "B-城", "I-城", "B-人", "I-人")
WIDE: dict[str, Any] = {"width": 64, "inner": 128}
NEWS = [f"第{n}条新闻说{'天气很好' * (n % 9)}" for n in range(60)]
CITY = "他在北京打了一个电话给上海的朋友"
# parts, labels, task.json, rows of dev data as a file's lines, how the file is called, the measure
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], list[str], str, str]] = {
    "classify": (("labels",), FIVE, {"task": "classify"},
                 [f"{text}\t{FIVE[n % 5]}" for n, text in enumerate(NEWS)], "dev.tsv", "accuracy"),
    "several": (("labels",), FIVE, {"task": "classify", "several": 0.4},
                [json.dumps({"text": text, "label": [FIVE[n % 5], FIVE[n % 3]]}) for n, text in enumerate(NEWS)],
                "dev.jsonl", "micro_f1"),
    "pair": (("labels",), FIVE[:2], {"task": "pair"},
             [f"{text}\t{NEWS[n - 7]}\t{FIVE[n % 2]}" for n, text in enumerate(NEWS)], "dev.tsv", "accuracy"),
    "number": (("labels",), ("value",), {"task": "pair", "answer": "number"},
               [f"{text}\t{NEWS[n - 7]}\t{n % 5}.5" for n, text in enumerate(NEWS)], "dev.tsv", "pearson"),
    "tag": (("tokens", "crf"), TAGS, {"task": "tag", "decoder": "crf", "scheme": "bio"},
            [json.dumps({"text": CITY + text, "label": {"城": {"北京": [[2, 3]]}}}) for text in NEWS],
            "dev.jsonl", "f1"),
    "answer": (("span",), (), {"task": "answer"},
               [json.dumps({"question": f"第{n}个城？", "context": CITY + text,
                            "answers": {"text": ["北京"], "answer_start": [2]}}) for n, text in enumerate(NEWS)],
               "dev.jsonl", "f1"),
    "embed": ((), (), {"task": "embed"}, [f"{text}\t{NEWS[n - 7]}\t{n % 2}" for n, text in enumerate(NEWS)], "dev.tsv",
              ""),
}  # fmt: skip


def made(folder: Path, case: str, tokenizer: Tokenizer) -> Path:
    parts, labels, said, *_ = CASES[case]
    model = small_bert(tokenizer, parts, max(1, len(labels)), noise=0.3, **WIDE)
    return save(folder / "m", model, tokenizer, labels=labels, files=task_file({**READ, **said}))


def dev_file(folder: Path, case: str) -> Path:
    path = folder / CASES[case][4]
    path.write_text("".join(f"{row}\n" for row in CASES[case][3]), encoding="utf-8")
    return path


@pytest.fixture
def shipped(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A classifier with eight bits whose cost was measured."""
    dev = dev_file(tmp_path, "classify")
    return export.export(made(tmp_path, "classify", tokenizer), tmp_path / "out", int8=True, dev=dev)[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_cost_is_measured_for_every_task(case: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    dev, measure = dev_file(tmp_path, case), CASES[case][5]
    folder, found = export.export(made(tmp_path, case, tokenizer), tmp_path / "out", int8=True, dev=dev)
    assert found["rows"] == len(NEWS)
    assert found["measure"] == measure or not measure
    assert found["drop"] == pytest.approx(found["float32"] - found["int8"])
    assert found["most"] >= max(0.0, found["drop"])
    assert found["golden"]["of"]  # the dev data gave golden cases, where the folder had none
    if case == "embed":
        assert 0.98 < found["cosine"]["least"] <= found["cosine"]["median"] <= 1.00001
    else:
        assert 0 <= found["changed"] <= found["of"] == len(NEWS)
    assert stated(folder, "int8") == json.loads(json.dumps(found))
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{found['float32']:.4f} in float32 and {found['int8']:.4f} in int8" in card
    assert all(each.holds for each in verify.verified(folder))
    assert cost.kept(found, cost.measured(folder, dev)) == []


@pytest.mark.slow
def test_scores_are_those_of_the_two_runtimes(shipped: Path, tmp_path: Path) -> None:
    told = stated(shipped, "int8")
    rows = [line.split("\t") for line in dev_file(tmp_path, "classify").read_text(encoding="utf-8").splitlines()]
    said = []
    for how in ({"runtime": "onnx"}, {"dtype": "int8"}):
        said.append([each.label for each in load(shipped, **how).predict([text for text, _ in rows])])
    for name, labels in zip(("float32", "int8"), said, strict=True):
        right = sum(label == gold for label, (_, gold) in zip(labels, rows, strict=True))
        assert told[name] == pytest.approx(right / len(rows))
    assert told["changed"] == sum(one != two for one, two in zip(*said, strict=True))


@pytest.mark.slow
def test_without_dev_data_the_card_says_so(tiny_folder: Path, tmp_path: Path) -> None:
    folder, found = export.export(tiny_folder, tmp_path / "out", int8=True)
    assert "measure" not in found
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "not measured on dev data" in card
    assert "golden cases" in card
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text in NEWS), encoding="utf-8")
    found = export.export(tiny_folder, tmp_path / "out", int8=True, dev=str(texts))[1]
    assert found["neighbours"]["of"] == len(NEWS)
    assert found["data"][0]["name"] == "texts.txt"


@pytest.mark.slow
def test_eight_bits_that_lose_more_than_stated_do_not_hold(
    shipped: Path, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    """The eight-bit weights of a worse export, sealed as if they were these: hashes agree, the promise is broken."""
    dev = dev_file(tmp_path, "classify")
    assert filbert("verify", shipped, "--dev", dev).code == 0
    path = shipped / runtime.SMALL_WEIGHTS
    raw = bytearray(path.read_bytes())
    for place in range(len(raw) - 20_000, len(raw)):
        raw[place] = 0
    path.write_bytes(raw)
    seal(shipped)
    ran = filbert("verify", shipped, "--json")
    told = {each["runtime"]: each for each in json.loads(ran.out)["runtimes"]}
    assert ran.code == 1
    assert told["int8"]["difference"] > told["int8"]["most"][1]
    assert told["onnx"]["difference"] < 1e-4
    promise = {**stated(shipped, "int8"), "golden": {"changed": 99, "difference": 99.0}}
    seal(shipped, int8=promise)
    assert filbert("verify", shipped).code == 0  # it promises nothing now
    seal(shipped, int8={**promise, "drop": -0.5, "most": -0.4})
    ran = filbert("verify", shipped, "--dev", dev)
    assert ran.code == 1
    assert "its card states at most" in ran.err


def test_options_that_mean_nothing_are_refused(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    assert "--int8" in filbert("export", tiny_folder, "--dev", "x.tsv", "--out", tmp_path / "o").err
    exported = export.export(tiny_folder, tmp_path / "o")[0]
    assert "states no cost" in filbert("verify", exported, "--dev", "x.tsv").err


@pytest.mark.slow
def test_commands_take_the_runtime_and_its_numbers(
    tokenizer: Tokenizer, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    folder = export.export(made(tmp_path, "classify", tokenizer), tmp_path / "out", int8=True)[0]
    asked = {"predict": ["predict", folder, "--text", NEWS[3]], "embed": ["embed", folder, "--text", NEWS[3]]}
    for words in asked.values():
        told = {how: filbert(*words, *how.split(), "--json") for how in ("", "--runtime onnx", "--dtype int8")}
        assert [ran.code for ran in told.values()] == [0, 0, 0]
        found = {how: _numbers(json.loads(ran.out)) for how, ran in told.items()}
        assert found["--runtime onnx"] == pytest.approx(found[""], abs=1e-5)
        assert found["--dtype int8"] == pytest.approx(found[""], abs=0.2)
        assert found["--dtype int8"] != pytest.approx(found[""], abs=1e-5)  # it did compute in eight bits
    refused = {
        "--dtype int8 --runtime torch": "int8", "--dtype int4": "int4", "--runtime onnx --device cuda": "cpu alone",
        "--runtime onnx --dtype bfloat16": "dtype is 'bfloat16'", "--device gpu": "a GPU is called cuda",
        "--device meta": "auto, cpu, cuda", "--device cuda:99": "GPU",
    }  # fmt: skip
    for how, word in refused.items():
        ran = filbert(*asked["predict"], *how.split())
        assert (ran.code, word in ran.err) == (2, True), (how, ran.err)
    plain = filbert("predict", tmp_path / "m", "--dtype", "int8", "--text", "a")
    assert (plain.code, "export" in plain.err) == (2, True)


def _numbers(told: dict[str, Any]) -> list[float]:
    """What was computed."""
    if "vectors" in told:
        return [number for vector in told["vectors"] for number in vector]
    return sorted(number for each in told["predictions"] for number in each["scores"].values())
