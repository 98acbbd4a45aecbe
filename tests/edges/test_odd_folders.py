"""Folders that were changed by hand, added to or written over: what they say is done, refused or named."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.folder import folder as folders
from filbert.folder import weights
from filbert.run.distill import Wish, distill
from filbert.run.folders import check_home
from filbert.ship import export, onnx, verify
from filbert.ship.prune import fewer_layers, without
from filbert.text.added import Normalized
from filbert.text.tokenizer import Tokenizer
from kit.models import small_bert

TEXTS = ["今天天气很好", "The train leaves at seven."]
LABELS = ("甲", "乙", "丙")
SAID = {"task": "classify", "max_length": 16, "overlap": 4, "temperature": 2.5}
ADDED = {"CovidX": None, "新冠": None, "Ünit": None, "a b": None, "İx": None}


def put(folder: Path, name: str, /, **fields: Any) -> None:
    """Changes fields of a JSON file of a folder that has no manifest."""
    path = folder / name
    said = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**said, **fields}), "utf-8")


def opened(source: Path, out: Path) -> Path:
    """A copy of a folder that may be changed."""
    shutil.copytree(source, out)
    (out / "manifest.json").unlink()
    return out


@pytest.fixture(scope="module")
def labelled(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with a task of its own."""
    tokenizer = Tokenizer.load(tiny_folder)
    model = small_bert(tokenizer, ("labels",), len(LABELS), noise=0.3)
    out = tmp_path_factory.mktemp("odd") / "labelled"
    return folders.save(out, model, tokenizer, labels=LABELS, files={"task.json": json.dumps(SAID)})


# Added tokens ---------------------------------------------------------------------------------------------------------


def spelled(seed: int) -> list[str]:
    """Texts that have the added tokens in other letters, beside each other and within words."""
    draw = random.Random(seed)
    some = [*ADDED, "covidx", "unit", "U\u0308NIT", "A\tB", "[E1]", "[e1]", "i\u0307x"]
    letters = "aAbBxX新冠天\u0308uU\t.İﬁ\u200b[]9"
    return [
        "".join(draw.choice(some) if draw.random() < 0.4 else draw.choice(letters) for _ in range(draw.randint(1, 8)))
        for _ in range(400)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("form", ["added_tokens.json", "added_tokens_decoder", "tokenizer.json"])
def test_tokens_that_were_added_are_found_in_the_folded_text(
    form: str, lower: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    """What `add_tokens` of transformers adds is normalized: "covidx19" has CovidX in it."""
    transformers = pytest.importorskip("transformers")
    folder = opened(tiny_folder, tmp_path / "m")
    put(folder, "tokenizer_config.json", do_lower_case=lower, additional_special_tokens=["[E1]"])
    ids = {token: 1_500 + place for place, token in enumerate(ADDED)}
    if form == "added_tokens.json":
        put(folder, form, **ids)
    elif form == "added_tokens_decoder":
        put(folder, "tokenizer_config.json", added_tokens_decoder={str(i): {"content": t} for t, i in ids.items()})
    else:
        said = json.loads((folder / form).read_text("utf-8"))
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
        put(
            folder,
            form,
            added_tokens=[*said["added_tokens"], *({"id": i, "content": t, **flags} for t, i in ids.items())],
        )
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    for text in spelled(1):
        assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"], text


def test_added_tokens_slice_the_text_as_given_and_are_written_as_they_are(tokenizer: Tokenizer, tmp_path: Path) -> None:
    own = Tokenizer(tokenizer.vocabulary, added=[Normalized("CovidX"), Normalized("新冠"), "Raw"])
    text = "一COVIDX 19 新\u200b冠 raw Raw"
    found = own.encode(text)
    kept = [
        text[start:end]
        for (start, end), token in zip(found.offsets, found.tokens, strict=True)
        if token in own.settings.added
    ]
    assert kept == ["COVIDX", "新\u200b冠", "Raw"]
    own.save(tmp_path / "t")
    assert Tokenizer.load(tmp_path / "t").encode(text).ids.tolist() == found.ids.tolist()
    assert [*map(type, Tokenizer.load(tmp_path / "t").settings.added)] == [Normalized, Normalized, str]


def test_a_vocabulary_that_contradicts_tokenizer_json_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    """The words that somebody writes over [unused1] in vocab.txt do nothing where tokenizer.json lies beside it."""
    folder = opened(tiny_folder, tmp_path / "m")
    lines = (folder / "vocab.txt").read_text("utf-8").split("\n")
    lines[700] = "高铁站"
    (folder / "vocab.txt").write_text("\n".join(lines), "utf-8")
    notes = fb.load(folder, device="cpu").notes
    assert any("vocab.txt line 701" in note and "高铁站" in note and "tokenizer.json is read" in note for note in notes)
    assert any("高铁站" in note for note in folders.import_folder(folder, tmp_path / "ours").described.notes)
    (folder / "vocab.txt").write_text("a\na\n")
    assert any("stands again" in note for note in fb.load(folder, device="cpu").notes)
    assert not fb.load(tiny_folder, device="cpu").notes


# Labels and fields ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["id2label", "label2id"])
def test_one_name_for_two_labels_is_refused(where: str, labelled: Path, tmp_path: Path) -> None:
    """The scores of a text stand by its labels' names: of two that are called alike one would be lost."""
    folder = opened(labelled, tmp_path / "m")
    if where == "id2label":
        put(folder, "config.json", id2label={"0": "甲", "1": "甲", "2": "丙"})
        told = "names 0 and 1 both '甲'"
    else:
        put(folder, "config.json", id2label=None, label2id={"甲": 0, "乙": 0, "丙": 2})
        told = "must give each label a number of its own"
    with pytest.raises(InputError, match=told):
        fb.load(folder, device="cpu")


def test_half_a_character_is_refused_in_a_label_and_carried_elsewhere(labelled: Path, tmp_path: Path) -> None:
    folder = opened(labelled, tmp_path / "m")
    put(folder, "config.json", license="\ud800", name="许可")
    folders.import_folder(folder, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text("utf-8"))["license"] == "\ud800"
    put(folder, "config.json", id2label={"0": "\ud800", "1": "乙", "2": "丙"})
    with pytest.raises(InputError, match="holds half a character"):
        fb.load(folder, device="cpu")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("temperature", "2", "temperature is '2', but must be of type float"),
        ("overlap", None, "overlap is None, but must be of type int"),
        ("max_length", 16.0, r"max_length is 16\.0, but must be of type int"),
        ("pool", 1, "pool is 1, but must be of type str"),
        ("decoder", "crf", "has fields other than .*'decoder'"),
    ],
)
def test_a_field_of_task_json_of_another_type_is_refused(
    field: str, value: Any, told: str, labelled: Path, tmp_path: Path
) -> None:
    folder = opened(labelled, tmp_path / "m")
    put(folder, "task.json", **{field: value})
    with pytest.raises(InputError, match=told):
        fb.load(folder, device="cpu").predict(TEXTS)


# Writing over and beside ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_filbert_said_of_a_folder_is_imported_with_it(labelled: Path, tmp_path: Path) -> None:
    """Without task.json a model of pairs would become one of texts, and a calibrated one another."""
    whole = Path(shutil.copytree(labelled, tmp_path / "whole"))
    verify.write(whole)
    folders.import_folder(whole, tmp_path / "ours")
    assert (tmp_path / "ours" / "task.json").read_bytes() == (labelled / "task.json").read_bytes()
    assert fb.load(tmp_path / "ours", device="cpu").predict(TEXTS) == fb.load(labelled, device="cpu").predict(TEXTS)
    assert all(each.holds and each.num_cases for each in verify.verified(tmp_path / "ours"))


def test_files_that_an_import_leaves_behind_are_named(labelled: Path, tmp_path: Path) -> None:
    folder = opened(labelled, tmp_path / "m")
    assert not folders.import_folder(folder, tmp_path / "one").described.notes
    (folder / "pytorch_model.bin").write_bytes(b"other weights")
    (folder / "model.onnx").write_bytes(b"a graph")
    notes = folders.import_folder(folder, tmp_path / "two").described.notes
    assert len(notes) == 1
    assert "not taken along: 'model.onnx', 'pytorch_model.bin'" in notes[0]


def test_a_folder_that_holds_more_than_filbert_wrote_is_not_replaced(labelled: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(labelled, tmp_path / "out"))
    folders.import_folder(labelled, out)
    (out / "notes").mkdir()
    (out / "notes" / "mine.txt").write_text("years of work")
    for write in (folders.import_folder, for_transformers):
        with pytest.raises(InputError, match=r"holds 'notes/mine\.txt' beside what filbert wrote"):
            write(labelled, out)
    assert (out / "notes" / "mine.txt").read_text() == "years of work"


def for_transformers(source: Path, out: Path) -> object:
    """A second way to write a folder."""
    return folders.save(out, folders.load(source).model, Tokenizer.load(source), labels=LABELS)


def test_a_model_is_not_pruned_onto_itself(labelled: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(labelled, tmp_path / "model"))
    with pytest.raises(InputError, match="is the model itself"):
        fewer_layers(model, tmp_path / "other" / ".." / "model", 1)
    assert fb.load(model, device="cpu").config.layers == 2


# Exports --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["pruned", "headless", "sinusoidal"])
def test_int8_of_layouts_that_only_filbert_writes(shape: str, tiny_folder: Path, tmp_path: Path) -> None:
    """Their weights have the same names in float32 as in eight bits."""
    pytest.importorskip("onnxruntime")
    tokenizer = Tokenizer.load(tiny_folder)
    more = {"positions": "sinusoidal"} if shape == "sinusoidal" else {}
    model = small_bert(tokenizer, ("labels",), len(LABELS), noise=0.3, **more)
    gone = {"pruned": [(1, 0)], "headless": [(0, 0), (0, 1), (1, 1)], "sinusoidal": []}[shape]
    folders.save(tmp_path / "m", without(model, gone) if gone else model, tokenizer, labels=LABELS)
    folder, _ = export.export(tmp_path / "m", tmp_path / "out", int8=True)
    assert [each.runtime for each in verify.verified(folder) if each.holds and not each.missing] == [
        "torch",
        "onnx",
        "int8",
    ]
    exact, small = (
        fb.load(folder, runtime="onnx", dtype=dtype).embed(TEXTS, normalize=True) for dtype in ("float32", "int8")
    )
    assert ((exact * small).sum(axis=1) > 0.98).all()


@pytest.mark.slow
def test_a_folder_in_shards_is_exported(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("onnx")
    folder = opened(tiny_folder, tmp_path / "m")
    transformers.BertForPreTraining.from_pretrained(tiny_folder).save_pretrained(tmp_path / "s", max_shard_size="60KB")
    (folder / "model.safetensors").unlink()
    for file in (tmp_path / "s").glob("model*"):
        shutil.copy(file, folder / file.name)
    done = filbert("export", folder, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "MB of weights" in done.err
    np.testing.assert_allclose(
        fb.load(tmp_path / "out", runtime="onnx").embed(TEXTS),
        fb.load(tiny_folder, device="cpu").embed(TEXTS),
        atol=1e-4,
    )


# Processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_model_answers_in_a_forked_process(labelled: Path, tmp_path: Path) -> None:
    """Threads of torch are not forked along: a child that waits for them waits for ever."""
    import subprocess
    import sys

    script = (
        "import os, sys, torch, filbert as fb\n"
        "torch.set_num_threads(2)\n"
        "model = fb.load(sys.argv[1], device='cpu')\n"
        "texts = ['今天天气很好 ' * 60] * 4\n"
        "before = model.predict(texts), model.embed(texts)\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    same = model.predict(texts) == before[0] and abs(model.embed(texts) - before[1]).max() < 1e-5\n"
        "    os._exit(0 if same else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    home = Path(fb.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(home)}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run([sys.executable, "-c", script, str(labelled)], timeout=100, env=environment, check=False)
    assert done.returncode == 0


# Runs -----------------------------------------------------------------------------------------------------------------

ROWS = [(f"今天天气{place}", LABELS[place % 3]) for place in range(24)]


@pytest.mark.slow
def test_a_run_is_not_begun_over_a_model(tiny_folder: Path, tmp_path: Path) -> None:
    """A run within a model folder trained for nobody: who named the folder was answered by the model before it."""
    model = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    with pytest.raises(InputError, match="is a model folder, and not the place for a run"):
        fb.finetune("classify", ROWS, model, model, quiet=True)
    assert sorted(each.name for each in model.iterdir()) == sorted(each.name for each in tiny_folder.iterdir())
    (tmp_path / "config.json").write_text("{}")  # of a project, which is no model
    check_home(tmp_path)
    out = tmp_path / "run"
    shutil.copytree(tiny_folder, out / "model")
    for resume in (False, True):
        with pytest.raises(InputError, match="holds a model, but no checkpoint"):
            fb.finetune("classify", ROWS, tiny_folder, out, epochs=1, quiet=True, resume=resume)
    assert fb.load(out, device="cpu").engine.fills


def test_what_stands_where_a_model_will_be_is_refused_before_training(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "mine.txt").write_text("years of work")
    with pytest.raises(InputError, match="is not a model folder of filbert"):
        fb.finetune("classify", ROWS, tiny_folder, tmp_path / "run", quiet=True)
    assert [each.name for each in (tmp_path / "run").iterdir()] == ["model"]


def test_a_student_that_cuts_texts_otherwise_is_refused(labelled: Path, tiny_folder: Path, tmp_path: Path) -> None:
    student = opened(tiny_folder, tmp_path / "student")
    put(student, "tokenizer_config.json", strip_accents=False)
    with pytest.raises(InputError, match="or cuts texts otherwise"):
        distill(labelled, ROWS, tmp_path / "out", Wish(student=student), quiet=True)


def test_vectors_are_not_written_over_their_texts(
    tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "今天"}\n', "utf-8")
    for data in (texts, tmp_path):
        done = filbert("embed", tiny_folder, "--data", data, "--out", tmp_path / "." / "texts.jsonl")
        assert done.code == 2
        assert "is of the data that are read" in done.err
    assert texts.read_text("utf-8") == '{"text": "今天"}\n'
    for _ in range(2):  # what lies beside the texts and is none of them is replaced as ever
        assert filbert("embed", tiny_folder, "--data", tmp_path, "--out", tmp_path / "vectors.npy").code == 0


def test_a_text_of_nothing_is_not_attended_to(tiny_folder: Path, filbert: Callable[..., Any]) -> None:
    done = filbert("attend", tiny_folder, "--text", "")
    assert (done.code, done.out) == (2, "")
    assert "the text is empty" in done.err


@pytest.mark.slow
def test_pairs_are_refused_by_a_model_of_one_segment(tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_folder)
    model = small_bert(tokenizer, ("labels", "pooler"), 2, noise=0.3, segments=1)
    found = fb.load(folders.save(tmp_path / "m", model, tokenizer, labels=LABELS[:2]), device="cpu")
    assert len(found.predict(TEXTS)) == 2
    exported = fb.load(onnx.export(tmp_path / "m", tmp_path / "x"), runtime="onnx")
    for call in (
        lambda: found.predict([("今天", "天气")], task="pair"),
        lambda: exported.predict([("今天", "天气")], task="pair"),
        lambda: fb.load(tmp_path / "m", device="cpu").attention("今天", "天气"),
        lambda: fb.finetune(
            "pair", [("今天", "天气", "甲"), ("我们", "去", "乙")] * 9, found, tmp_path / "run", quiet=True
        ),
    ):
        with pytest.raises(InputError, match="cannot read pairs"):
            call()


def test_numbers_too_large_for_float32_are_named_where_they_lie(tiny_folder: Path, tmp_path: Path) -> None:
    folder = opened(tiny_folder, tmp_path / "m")
    stored = weights.read(folder / "model.safetensors")
    told = {
        name: ("F64", one.shape, one.array().astype(np.float64).reshape(-1).view(np.uint8))
        for name, one in stored.items()
    }
    first = min(name for name in told if name.endswith("query.weight"))
    told[first] = ("F64", told[first][1], np.full(told[first][1], 1e300).reshape(-1).view(np.uint8))
    weights.write(folder / "model.safetensors", told)
    with pytest.raises(InputError, match=r"m/model\.safetensors: tensor .* infinite"):
        export.imported(folder, tmp_path / "ours")


# GPT-2 ----------------------------------------------------------------------------------------------------------------


def retold(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Writes a folder's weights again: {name: array}, changed."""
    arrays = {name: one.array().copy() for name, one in weights.read(folder / "model.safetensors").items()}
    change(arrays)
    kinds = {"float32": "F32", "float64": "F64", "int8": "I8"}
    told = {name: (kinds[str(own.dtype)], own.shape, own.reshape(-1).view(np.uint8)) for name, own in arrays.items()}
    weights.write(folder / "model.safetensors", told)


@pytest.fixture(scope="module")
def gpt2(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("odd") / "gpt2"
    config = transformers.GPT2Config(vocab_size=1_500, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    Tokenizer.load(tiny_folder).save(folder)
    return folder


INSIDE = "transformer.h.0.mlp.c_fc.weight"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda own: own.update({INSIDE: own[INSIDE].astype(np.int8)}), "is I8, but must be one of"),
        (lambda own: own.update({INSIDE: own[INSIDE].astype(np.float64) * 1e300}), "holds NaN or infinite numbers"),
        (lambda own: own.update({INSIDE.removeprefix("transformer."): own[INSIDE] + 1}), "stands twice"),
    ],
    ids=["int8", "too large", "twice"],
)
def test_what_is_no_weight_of_a_gpt2_is_refused(
    change: Callable[[dict[str, Any]], None], told: str, gpt2: Path, tmp_path: Path
) -> None:
    """Numbers in eight bits were taken for weights, and of two tensors of one name one was."""
    folder = Path(shutil.copytree(gpt2, tmp_path / "m"))
    retold(folder, change)
    with pytest.raises(InputError, match=told):
        fb.load(folder, device="cpu")


@pytest.mark.slow
def test_what_a_gpt2_folder_says_besides_is_named_by_import(gpt2: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(gpt2, tmp_path / "m"))
    put(folder, "config.json", my_own=1)
    put(folder, "generation_config.json", temperature=0.5)
    notes = " ".join(export.imported(folder, tmp_path / "ours").described.notes)
    assert "my_own" in notes
    assert "temperature" in notes
    put(folder, "config.json", n_embd=None)
    with pytest.raises(InputError, match="width is None"):
        fb.load(folder, device="cpu")
