"""M17 and M19 of the faults table: a graph reads no foreign file; an export that dies leaves no partial folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from filbert.core.errors import InputError
from filbert.engine.model import load
from filbert.folder import runtime
from filbert.folder.manifest import check_manifest, seal
from filbert.ship import export
from filbert.text.tokenizer import Tokenizer
from kit.folders import classifier

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
LABELS = ("体育", "财经", "科技")


def made(folder: Path, tokenizer: Tokenizer) -> Path:
    return classifier(folder / "m", tokenizer, LABELS)


@pytest.fixture
def shipped(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """An exported classifier."""
    return export.export(made(tmp_path, tokenizer), tmp_path / "out")[0]


# M17: a graph that names foreign files --------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("where", ["up", "absolute", "link", "nested", "folder"])
def test_external_data_outside_the_folder_is_refused(where: str, sealed: bool, shipped: Path) -> None:
    """The very bytes that are needed lie there, so that only the place can be the reason."""
    outside = shipped.parent / "outside.safetensors"
    shutil.copyfile(shipped / "model.safetensors", outside)
    (shipped / "deep").mkdir()
    shutil.copyfile(outside, shipped / "deep/weights")
    if where == "link":
        (shipped / "linked").symlink_to(outside)
    places = {"up": "../outside.safetensors", "absolute": str(outside), "link": "linked", "folder": "deep/weights"}
    _moved(shipped / runtime.ENCODER, places.get(where, "../outside.safetensors"), nested=where == "nested")
    seal(shipped) if sealed else (shipped / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"only files of the same folder|link that leaves the folder"):
        load(shipped, runtime="onnx")


def test_the_same_graph_written_again_is_read_and_one_over_a_copy_is_not(shipped: Path) -> None:
    """Numbers lie in the weight file, where the headers say so: a copy beside it can be another tomorrow."""
    _moved(shipped / runtime.ENCODER, "model.safetensors")
    seal(shipped)
    assert (
        load(shipped, runtime="onnx").predict(["今天"])[0].label
        == load(shipped, device="cpu").predict(["今天"])[0].label
    )
    shutil.copyfile(shipped / "model.safetensors", shipped / "other")
    _moved(shipped / runtime.ENCODER, "other")
    seal(shipped)
    with pytest.raises(InputError, match="not where and what the folder's weights have"):
        load(shipped, runtime="onnx")


def _moved(path: Path, location: str, nested: bool = False) -> None:
    """Rewrites a graph so that its numbers lie elsewhere; nested: those of a tensor within a loop alone."""
    model = onnx.load(str(path), load_external_data=False)
    tensors = list(model.graph.initializer)
    if nested:
        body = next(a.g for node in model.graph.node for a in node.attribute if a.name == "body")
        body.initializer.append(next(each for each in tensors if each.external_data))
        tensors = list(body.initializer)
    for tensor in tensors:
        for entry in tensor.external_data:
            entry.value = location if entry.key == "location" else entry.value
    path.write_bytes(model.SerializeToString())


# M19: killed, or the disk is full -------------------------------------------------------------------------------------

# Forks for every stage, so that what is slow to import is imported once. A stage ends the export by SIGKILL before it
# opens a file to write, or renames one, for the n-th time; or lets no file grow beyond so many bytes.
VICTIM = """
import os, resource, signal, sys
import onnx, onnxruntime
import filbert.ship.int8, filbert.engine.backend_torch, filbert.engine.backend_onnx, filbert.tasks.classify.items
from filbert.ship import export
from filbert.core.errors import FilbertError
model, out, *stages = sys.argv[1:]

def killed(most):
    seen = [0]
    def hook(event, args):
        if event == "os.rename" or (event == "open" and isinstance(args[1], str) and args[1][:1] in "wxa"):
            seen[0] += 1
            if seen[0] == most:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

for stage in stages:
    how, most = stage.split("-")
    child = os.fork()
    if not child:
        killed(int(most)) if how == "killed" else resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
        try:
            export.export(model, os.path.join(out, stage), int8=True)
        except FilbertError as error:
            print(stage, error, flush=True)
            os._exit(2)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(3)
        os._exit(0)
    print("ended", stage, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def ends(folder: Path, out: Path, stages: list[str]) -> dict[str, int]:
    """Exit codes of exports that are stopped at each of these stages, each into a folder of its stage's name."""
    words = [sys.executable, "-c", VICTIM, str(folder), str(out), *stages]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ended")]
    return {stage: int(code) for stage, code in lines}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_an_export_that_is_killed_or_finds_the_disk_full_leaves_no_partial_folder(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, out = made(tmp_path, tokenizer), tmp_path / "out"
    before = export.export(model, tmp_path / "before")[0]
    shutil.copytree(before, out / "killed-24")  # one that stood there before
    weights = (model / "model.safetensors").stat().st_size
    kills = [f"killed-{n}" for n in (1, 9, 12, 15, 18, 21, 24, 100)]
    full = [f"full-{n}" for n in (0, 20_000, weights - 1, 10 * weights)]
    found = ends(model, out, kills + full)
    assert [found[stage] for stage in full] == [2, 2, 2, 0]  # one sentence each, and the last had room
    assert found["killed-1"] == found["killed-15"] == found["killed-24"] == -9
    assert found["killed-100"] == 0  # it was done by then
    assert sum(code == -9 for code in found.values()) == 7
    for stage, code in found.items():
        assert (out / stage).exists() == (code == 0 or stage == "killed-24")
        if (out / stage).exists():
            check_manifest(out / stage, hashes=True)
    assert (out / "killed-24/README.md").read_bytes() == (before / "README.md").read_bytes()
    left = [path.name for path in out.iterdir() if path.name.startswith(".")]
    assert not [name for name in left if name.startswith(".full")]  # who can still act tidies up
    assert export.export(model, out / "killed-9", int8=True)[0].exists()  # and it can simply be done again
