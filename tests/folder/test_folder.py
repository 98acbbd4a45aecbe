"""Model folders: what is saved loads as it was, whole or not at all, and changes are noticed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Packed
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.nn import heads
from filbert.text.tokenizer import Tokenizer

TINY = bert.Config(vocab_size=40, width=16, layers=2, heads=2, inner=24, max_length=32)
LAYOUTS = {
    "classic": TINY,
    "relu": replace(TINY, feedforward="relu"),
    "tanh": replace(TINY, feedforward="gelu-tanh"),
    "sinusoidal": replace(TINY, positions="sinusoidal"),
    "rotary": replace(TINY, positions="rotary"),
    "pre": replace(TINY, norm="pre", segments=0),
    "gated": replace(TINY, feedforward="geglu"),
    "modern": replace(TINY, positions="rotary-local", norm="pre", feedforward="geglu", segments=0, layers=4),
    "modern with segments": replace(TINY, positions="rotary-local", norm="pre", feedforward="geglu", segments=3),
}
KINDS = {"classic": "bert", "relu": "bert", "tanh": "bert", "modern": "modernbert"}


def tokenizer() -> Tokenizer:
    return Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + i) for i in range(35))])


def saved(
    folder: Path, config: bert.Config = TINY, parts: tuple[str, ...] = ("pooler", "mlm"), **more: object
) -> bert.Bert:
    torch.manual_seed(0)
    model = bert.Bert(config, parts, labels=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folders.save(folder, model, tokenizer(), **more)  # type: ignore[arg-type]
    return model


def pack(num_tokens: int = 7) -> Packed:
    ids, zeros = torch.arange(num_tokens) % 40, torch.zeros(num_tokens, dtype=torch.int64)
    edges = torch.tensor([0, num_tokens], dtype=torch.int32)
    return Packed(ids, torch.arange(num_tokens), zeros, edges, (num_tokens,), num_tokens)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts", [(), ("pooler", *bert.Bert.own_parts, *heads.every())])
def test_shapes_are_those_of_the_module(layout: str, parts: tuple[str, ...]) -> None:
    state = bert.Bert(LAYOUTS[layout], parts, labels=5).state_dict()
    assert bert.shapes(LAYOUTS[layout], parts, 5) == {name: tuple(tensor.shape) for name, tensor in state.items()}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts", [(), ("pooler", "mlm", "nsp", "labels")])
def test_every_layout_comes_back_bit_for_bit(layout: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    config = LAYOUTS[layout]
    labels = ["好", "坏", "不知道"] if parts else []
    model = saved(tmp_path / "m", config, parts, labels=labels)
    loaded = folders.load(tmp_path / "m", verify=True)
    assert loaded.kind == KINDS.get(layout, "filbert-bert")
    assert (loaded.config, loaded.model.parts, loaded.labels, loaded.notes) == (config, parts, labels, [])
    before, after = model.state_dict(), loaded.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    tensors = [*loaded.model.parameters(), *loaded.model.buffers()]
    assert not any(tensor.is_meta for tensor in tensors)
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())
    assert torch.equal(loaded.model(pack()), model(pack()))


def test_the_folder_has_its_files_and_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        saved(tmp_path / name, card="For tests.", files={"task.json": "{}\n"}, fields={"problem_type": "regression"})
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "README.md", "manifest.json"}
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert "For tests." in (tmp_path / "one/README.md").read_text("utf-8")
    assert folders.load(tmp_path / "one").problem_type == "regression"
    manifest = json.loads((tmp_path / "one/manifest.json").read_text())
    assert manifest["files"].keys() == names - {"manifest.json"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_run_folder_stands_for_its_model(tmp_path: Path) -> None:
    saved(tmp_path / "run" / "model")
    assert folders.load(tmp_path / "run").folder == tmp_path / "run" / "model"


def test_precision_can_be_chosen(tmp_path: Path) -> None:
    model = saved(tmp_path / "m")
    half = folders.load(tmp_path / "m", dtype="bfloat16").model
    assert torch.equal(half.pooler.weight, model.pooler.weight.bfloat16())
    with pytest.raises(InputError, match="dtype"):
        folders.load(tmp_path / "m", dtype="int8")
    folders.save(tmp_path / "half", half, tokenizer())
    assert json.loads((tmp_path / "half/config.json").read_text())["dtype"] == "bfloat16"
    assert torch.equal(folders.load(tmp_path / "half").model.pooler.weight, half.pooler.weight.float())


def test_a_flipped_bit_is_found_on_request_and_a_changed_size_always(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    for name in ("model.safetensors", "vocab.txt", "README.md"):
        path = tmp_path / "m" / name
        good = path.read_bytes()
        path.write_bytes(good[:-2] + bytes([good[-2] ^ 1]) + good[-1:])
        with pytest.raises(InputError, match=f"{name}: is not the file that was saved"):
            folders.load(tmp_path / "m", verify=True)
        path.write_bytes(good)
    path = tmp_path / "m/vocab.txt"
    path.write_bytes(good + b"x")
    with pytest.raises(InputError, match=r"vocab\.txt: is not the file that was saved"):
        folders.load(tmp_path / "m")
    path.unlink()
    with pytest.raises(InputError, match=r"vocab\.txt: there is no such file"):
        folders.load(tmp_path / "m")
    (tmp_path / "m/manifest.json").unlink()
    folders.load(tmp_path / "m")


def test_the_card_may_be_edited_and_a_file_added(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    (tmp_path / "m/README.md").write_text("Better words.")
    folders.load(tmp_path / "m")
    (tmp_path / "m/README.md").unlink()
    folders.load(tmp_path / "m")
    (tmp_path / "m/golden.jsonl").write_text("{}\n")
    folders.seal(tmp_path / "m")
    folders.load(tmp_path / "m", verify=True)
    assert "golden.jsonl" in (tmp_path / "m/manifest.json").read_text()


def test_only_a_model_folder_of_ours_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    saved(tmp_path / "empty")
    saved(tmp_path / "empty", replace(TINY, layers=1))
    assert folders.load(tmp_path / "empty").config.layers == 1
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    os.symlink(tmp_path / "empty", tmp_path / "link")
    for name in ("home", "file", "link"):
        with pytest.raises(InputError, match="is there already"):
            saved(tmp_path / name)
    assert (tmp_path / "home/thesis.txt").read_text() == "years of work"


class Breaks:
    """A tokenizer on a full disk, or one that is interrupted."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def save(self, folder: Path | str, max_length: int | None = None) -> None:
        (Path(folder) / "half").write_text("half")
        raise self.error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_what_was_there(error: BaseException, tmp_path: Path) -> None:
    model = saved(tmp_path / "m")
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    with pytest.raises((InputError, KeyboardInterrupt)):
        folders.save(tmp_path / "m", model, Breaks(error))
    with pytest.raises((InputError, KeyboardInterrupt)):
        folders.save(tmp_path / "new", model, Breaks(error))
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_save_stopped_between_its_renames_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "m")
    rename, calls = os.rename, []

    def second_fails(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(KeyboardInterrupt):
        saved(tmp_path / "m", replace(TINY, layers=1))
    assert folders.load(tmp_path / "m", verify=True).config.layers == 2
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_fields_of_another_model_do_not_contradict_this_one(tmp_path: Path) -> None:
    old = {"num_labels": 9, "hidden_size": 7, "layer_types": ["full_attention"], "pad_token_id": 3, "kept": [1]}
    for name in ("classic", "modern"):
        saved(tmp_path / name, LAYOUTS[name], ("pooler", "labels"), labels=["a", "b", "c"], fields=old)
        loaded = folders.load(tmp_path / name)
        assert loaded.labels == ["a", "b", "c"]
        assert (loaded.fields["pad_token_id"], loaded.fields["kept"]) == (0, [1])


def test_labels_must_fit_the_head(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 labels were given"):
        saved(tmp_path / "m", TINY, ("pooler", "labels"), labels=["a", "b"])
    with pytest.raises(InputError, match="cannot be the name"):
        saved(tmp_path / "m", files={"../x": ""})
    with pytest.raises(InputError, match="cannot be the name"):
        saved(tmp_path / "m", files={"config.json": "{}"})
    assert not list(tmp_path.iterdir())


def test_a_wrong_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'builtin'"):
        folders.load("bulitin")
    with pytest.raises(InputError, match="no such folder"):
        folders.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file; give the folder"):
        folders.load(tmp_path / "file")
    with pytest.raises(InputError, match=r"config\.json: there is no such file"):
        folders.load(tmp_path)


@pytest.mark.slow
def test_links_inside_the_folder_and_the_hub_cache_are_followed(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    os.symlink(tmp_path / "m", tmp_path / "elsewhere")
    folders.load(tmp_path / "elsewhere")
    os.rename(tmp_path / "m/model.safetensors", tmp_path / "m/blob")
    os.symlink("blob", tmp_path / "m/model.safetensors")
    folders.load(tmp_path / "m")
    snapshot = tmp_path / "models--org--name/snapshots/abc"
    blobs = tmp_path / "models--org--name/blobs"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (blobs / name[:3]).write_bytes((tmp_path / "m" / name).read_bytes())
        os.symlink(f"../../blobs/{name[:3]}", snapshot / name)
    folders.load(snapshot)
    folders.import_folder(snapshot, tmp_path / "out")
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    folders.load(tmp_path / "out", verify=True)
