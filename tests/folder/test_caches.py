"""Models in the caches of other libraries are found by their names, without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.folder import caches
from filbert.folder import folder as folders

TEXTS = ["今天天气很好"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with empty caches."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "scope"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hugging_face(home: Path, folder: Path, name: str, commit: str = "a1") -> Path:
    """The folder as that library leaves it: a snapshot of links to blobs."""
    root = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    for place in (root / "blobs", root / "refs", snapshot):
        place.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name != "manifest.json":
            blob = root / "blobs" / f"{commit}-{file.name}"
            shutil.copyfile(file, blob)
            (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob.name))
    (root / "refs" / "main").write_text(commit)
    return snapshot


def test_a_name_is_its_snapshot(home: Path, tiny_folder: Path) -> None:
    hugging_face(home, tiny_folder, "org/tiny-bert", "zz")
    snapshot = hugging_face(home, tiny_folder, "org/tiny-bert", "a1")  # which refs/main names
    wanted = fb.load(tiny_folder, device="cpu").embed(TEXTS)
    for name in ("org/tiny-bert", "tiny-bert"):
        model = fb.load(name, device="cpu")
        assert model.notes == [f"{name}: is read from {snapshot}."]
        np.testing.assert_array_equal(model.embed(TEXTS), wanted)
    assert fb.load(snapshot, device="cpu").notes == []
    assert (
        folders.import_folder("tiny-bert", home / "ours").described.notes[0] == f"tiny-bert: is read from {snapshot}."
    )


def test_modelscope_has_its_own_place(home: Path, tiny_folder: Path) -> None:
    shutil.copytree(tiny_folder, home / "scope/hub/models/damo/tiny-v1___5")
    model = fb.load("damo/tiny-v1.5", device="cpu")
    np.testing.assert_array_equal(model.embed(TEXTS), fb.load(tiny_folder, device="cpu").embed(TEXTS))


def test_a_folder_goes_before_a_cache(home: Path, tiny_folder: Path) -> None:
    hugging_face(home, tiny_folder, "tiny-bert")
    shutil.copytree(tiny_folder, home / "tiny-bert")
    assert fb.load("tiny-bert", device="cpu").notes == []


def test_what_is_not_there_is_told_with_what_is(home: Path, tiny_folder: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder; give"):
        fb.load("bert-base-chinese")
    hugging_face(home, tiny_folder, "one/bert-base-chinese")
    with pytest.raises(InputError, match=r"in a cache here \(one/bert-base-chinese\).*Did you mean"):
        fb.load("one/bert-base-chines")
    hugging_face(home, tiny_folder, "two/bert-base-chinese")
    with pytest.raises(InputError, match="may be one/bert-base-chinese or two/bert-base-chinese"):
        fb.load("bert-base-chinese")
    for odd in ("../x", "/tmp/none", "a/b/c", "a//b", "models--one", "", ".", "~", "a\0b", "x" * 500):
        if odd not in ("", ".") and len(odd) < 200:
            with pytest.raises(InputError):
                fb.load(odd)
        assert caches.find(odd) is None


def test_a_link_out_of_the_cache_is_refused(home: Path, tiny_folder: Path) -> None:
    snapshot = hugging_face(home, tiny_folder, "org/tiny-bert")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tiny_folder / "config.json")
    with pytest.raises(InputError, match="link that leaves the folder"):
        fb.load("org/tiny-bert")


def test_half_a_download_is_no_model(home: Path) -> None:
    (home / "hub/models--org--half/snapshots/a1").mkdir(parents=True)
    assert caches.find("org/half") is None
    assert caches.names() == []
