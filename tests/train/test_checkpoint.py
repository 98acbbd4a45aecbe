"""Checkpoints: what is saved comes back bit for bit, and no crash, damage or full disk costs more than the last one."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.errors import FilbertError, InputError
from filbert.train import checkpoint
from filbert.train.checkpoint import Store, locked

VICTIM = Path(__file__).with_name("checkpoint_victim.py")
FILES = ("tensors.safetensors", "state.json", "manifest.json")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, and no waiting for the disk: no test here cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tensors(step: int = 0) -> dict[str, torch.Tensor]:
    return {"w": torch.arange(12, dtype=torch.float32).reshape(3, 4) + step, "n": torch.tensor(step)}


def filled(folder: Path, *steps: int) -> Store:
    store = Store(folder, keep=10)
    for step in steps:
        store.save(step, tensors(step), {"step": step})
    return store


def place(store: Store, step: int) -> Path:
    return store.folder / f"step-{step:08d}"


def visible(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name != ".writing")


def victim(scene: str, folder: Path, *before: str) -> dict[str, Any]:
    done = subprocess.run(
        [*before, sys.executable, str(VICTIM), scene, str(folder)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# What is saved comes back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(checkpoint.STORED), ids=str)
def test_every_kind_of_tensor_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    saved: dict[str, torch.Tensor] = {"empty": torch.from_numpy(np.zeros(0, np.float32)).to(dtype)}
    for shape in [(), (0,), (3,), (2, 0, 4), (5, 3), (1, 2, 3, 4)]:
        tensor = torch.empty(shape, dtype=dtype)
        if tensor.nbytes:  # any bits: NaNs with payloads and infinities too
            raw = random.integers(0, 2 if dtype == torch.bool else 256, tensor.nbytes, np.uint8)
            tensor = torch.from_numpy(raw).view(dtype).reshape(shape)
        saved[str(shape)] = tensor
    store = Store(tmp_path)
    store.save(1, saved, {})
    found = store.newest().tensors()
    assert found.keys() == saved.keys()
    for name, tensor in saved.items():
        assert (found[name].dtype, found[name].shape) == (dtype, tensor.shape)
        assert checkpoint._raw(found[name]).tobytes() == checkpoint._raw(tensor).tobytes()
        found[name].zero_()  # in memory of its own: the file stays as it is
    assert store.newest() is not None


def test_strides_gradients_arrays_and_shared_memory(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    frozen = np.arange(3, dtype=np.int64)
    frozen.setflags(write=False)
    saved = {
        "transposed": base.T,
        "cut": base[1:, ::2],
        "parameter": torch.nn.Parameter(base.clone()),
        "tied": base,
        "again": base,
        "array": frozen,
        "big-endian": np.array([1, 2], dtype=">f4"),
        "0-d array": np.array(7, dtype=np.int32),
        "name with 'quotes', 汉字 and \n": base[0],
    }
    store = Store(tmp_path)
    store.save(5, saved, {})
    found = store.newest().tensors()
    assert found.keys() == saved.keys()
    for name, value in saved.items():
        wanted = (
            value.detach()
            if isinstance(value, torch.Tensor)
            else torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))
        )
        assert torch.equal(found[name], wanted), name
        assert found[name].dtype == wanted.dtype
    assert found["tied"].data_ptr() != found["again"].data_ptr()


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    store = Store(tmp_path)
    path = store.save(5, {**tensors(), "half": torch.ones(3, dtype=torch.bfloat16), "flag": torch.tensor(True)}, {})
    found, theirs = store.newest().tensors(), library.load_file(path / FILES[0])
    assert found.keys() == theirs.keys()
    assert all(torch.equal(found[name], theirs[name]) for name in found)


def test_no_tensors_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(0, {}, {})
    assert store.newest().step == 0
    assert store.newest().tensors() == {}


def test_state_comes_back_exactly(tmp_path: Path) -> None:
    state = {
        "floats": [0.1, 1e-320, -0.0, 1.7976931348623157e308, 2**-1074, 1 / 3],
        "ints": [0, -1, 2**63, 2**128 + 1, -(10**400)],
        "nested": {"a": [{"b": [[], {}, None, True, False]}]},
        "text": "汉字 \ud800 \x00 \u2028",
    }
    store = Store(tmp_path)
    store.save(1, {}, state)
    found = store.newest().state
    assert found == state
    assert [value.hex() for value in found["floats"]] == [value.hex() for value in state["floats"]]
    assert found["nested"]["a"][0]["b"][3] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    "state", [{"x": float("nan")}, {"x": [float("inf")]}, {"x": (1, 2)}, {"x": {1: 2}}, {"x": "y" * 2**26}, {"x": 1j}]
)
def test_a_state_that_would_not_come_back_is_refused(state: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        Store(tmp_path).save(1, {}, state)
    assert visible(tmp_path) == []


@pytest.mark.parametrize(
    "tensor", [torch.zeros(2, dtype=torch.complex64), np.zeros(2, np.uint16), torch.zeros([1] * 9), np.array(["a"])]
)
def test_a_tensor_that_would_not_come_back_is_refused(tensor: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'x'"):
        Store(tmp_path).save(1, {"x": tensor}, {})
    with pytest.raises(ValueError, match="header"):
        Store(tmp_path).save(1, {"x" * 2**22: torch.zeros(1)}, {})
    with pytest.raises(ValueError, match="from 0"):
        Store(tmp_path).save(-1, {}, {})
    assert visible(tmp_path) == []


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, order in (("a", ["n", "w"]), ("b", ["w", "n"])):
        Store(tmp_path / name).save(7, {key: tensors()[key] for key in order}, {key: key for key in order})
    for file in FILES:
        one, two = ((tmp_path / name / "step-00000007" / file).read_bytes() for name in "ab")
        assert one == two


# Which are kept -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.newest() is None
    assert store.best() is None
    for step in range(1, 101):
        path = store.save(step, tensors(step), {"step": step}, best=step in (3, 40))
        assert path == place(store, step)
        assert len(visible(tmp_path)) <= 3
        assert store.newest().step == step
        assert (store.best().step if step > 2 else 0) == (40 if step >= 40 else 3 if step >= 3 else 0)
    assert visible(tmp_path) == ["step-00000040", "step-00000099", "step-00000100"]
    assert store.best().best
    assert not store.newest().best
    assert torch.equal(store.best().tensors()["w"], tensors(40)["w"])
    assert store.notes == []


def test_damaged_ones_are_not_counted_when_old_ones_go(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2, 3)
    (place(store, 2) / FILES[0]).write_bytes(b"")
    (place(store, 3) / FILES[2]).unlink()
    Store(tmp_path).save(4, tensors(4), {})
    assert visible(tmp_path) == [f"step-0000000{step}" for step in (1, 2, 3, 4)]
    Store(tmp_path).save(5, tensors(5), {})
    assert visible(tmp_path) == ["step-00000004", "step-00000005"]


def test_a_step_below_the_newest_is_not_pruned_at_once(tmp_path: Path) -> None:
    filled(tmp_path, 5, 6)
    assert Store(tmp_path).save(2, tensors(), {}).is_dir()


@pytest.mark.parametrize("keep", [1, 0, -1, 2.0, True])
def test_keep_must_be_two_or_more(keep: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 or more"):
        Store(tmp_path, keep)


def test_saving_the_best_step_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(1, tensors(1), {"at": "evaluation"}, best=True)
    store.save(1, tensors(1), {"at": "the end"})
    assert store.best().state == {"at": "the end"}  # the same weights are still the best
    store.save(1, tensors(2), {})
    assert store.best() is None


def test_a_damaged_best_is_set_aside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step in (1, 2, 3):
        store.save(step, tensors(step), {}, best=step == 1)
    longer(place(store, 1) / FILES[0])
    assert store.best() is None
    assert "step-00000001: tensors.safetensors has" in store.notes[0]
    assert "set aside as step-00000001.damaged-1" in store.notes[0]
    assert store.newest().step == 3


# Damage ---------------------------------------------------------------------------------------------------------------


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def replaced_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replaced_by_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap()))


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was read",)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        longer,
        Path.unlink,
        replaced_by_folder,
        replaced_by_pipe,
        replaced_by_pickle,
        lambda path: path.write_text("[" * 60_000),
    ],
    ids=["short", "empty", "zeros", "long", "missing", "folder", "pipe", "pickle", "deep"],
)
def test_a_damaged_file_is_named_and_the_older_one_used(
    file: str, damage: Callable[[Path], Any], tmp_path: Path
) -> None:
    store = filled(tmp_path, 1000, 2000)
    damage(place(store, 2000) / file)
    found = store.newest()
    assert found.step == found.state["step"] == 1000
    assert torch.equal(found.tensors()["w"], tensors(1000)["w"])
    assert visible(tmp_path) == ["step-00001000", "step-00002000.damaged-1"]
    assert len(store.notes) == 1
    assert store.notes[0].startswith(f"{place(store, 2000)}: {file} ")
    store.save(2000, tensors(2000), {"step": 2000})  # T11
    assert store.newest().step == 2000
    damage(place(store, 2000) / file)
    assert Store(tmp_path).newest().step == 1000
    assert visible(tmp_path) == ["step-00001000", "step-00002000.damaged-1", "step-00002000.damaged-2"]


@pytest.mark.slow
def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(1000, {"w": torch.tensor([1.5])}, {"x": 1})
    for file in FILES:
        path = place(store, 1000) / file
        good = path.read_bytes()
        for at in range(0, 8 * len(good), 1 if file == "manifest.json" else 7):  # the others are under a hash
            bad = bytearray(good)
            bad[at // 8] ^= 1 << at % 8
            path.write_bytes(bad)
            with pytest.raises(checkpoint._Damaged, match=file):
                checkpoint._examined(place(store, 1000), 1000)
        path.write_bytes(good)
    assert store.newest().state == {"x": 1}


def test_a_checkpoint_under_another_name_is_damaged(tmp_path: Path) -> None:
    store = filled(tmp_path, 1000, 2000)
    os.rename(place(store, 2000), place(store, 3000))
    assert store.newest().step == 1000
    assert "manifest.json is of step 2000; set aside as step-00003000.damaged-1." in store.notes[0]
    place(store, 4000).write_text("a file")
    place(store, 5000).mkdir()
    place(store, 6000).symlink_to("nowhere")
    assert store.newest().step == 1000
    assert len(store.notes) == 4


def test_all_damaged_never_means_from_the_start(tmp_path: Path) -> None:
    store = filled(tmp_path, 1000, 2000)
    for step in (1000, 2000):
        truncated(place(store, step) / FILES[0])
    for _ in range(2):  # the second time they are set aside already
        with pytest.raises(
            FilbertError, match=r"none of the checkpoints here is whole.*step-00001000\.damaged-1"
        ) as caught:
            Store(tmp_path).newest()
        assert caught.value.exit_code == 2
    store.save(2000, tensors(2000), {})
    assert store.newest().step == 2000


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    store = filled(tmp_path, 1000)
    names = ["step-1", "step-abc", "step-0000001000", ".step-00001000.part", ".cache", "notes.txt", "step-٠٠٠٠١٠٠٠"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (place(store, 1000) / "extra.txt").write_text("mine")
    for step in (2000, 3000, 4000):
        Store(tmp_path).save(step, tensors(), {})
        assert Store(tmp_path).newest().step == step
    assert all((tmp_path / name).read_text() == "mine" for name in names)
    assert store.notes == []


def test_only_strangers_files_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-notes.txt").write_text("mine")
    assert Store(tmp_path).newest() is None
    assert Store(tmp_path / "absent").newest() is None
    assert not (tmp_path / "absent").exists()


def test_what_is_not_readable_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 1000)
    real = os.stat

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        if str(path).endswith("state.json"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(FilbertError, match=r"state\.json: cannot be read"):
        store.newest()
    monkeypatch.undo()
    assert store.newest().step == 1000


def test_tensors_that_changed_after_the_check_are_refused(tmp_path: Path) -> None:
    store = filled(tmp_path, 1000)
    found = store.newest()
    store.save(1000, tensors(1), {})
    with pytest.raises(FilbertError, match="has changed"):
        found.tensors()
    found = store.newest()
    truncated(found.path / FILES[0])
    with pytest.raises(FilbertError, match="no longer"):
        found.tensors()
    shutil.rmtree(found.path)
    with pytest.raises(FilbertError, match="no longer"):
        found.tensors()


# Crashes, full disks, other processes ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_every_call(tmp_path: Path) -> None:
    """T03 and T23: a process that dies at each write, flush, rename and unlink of a save, of pruning and of tidying."""
    points = victim("kills", tmp_path)
    assert all(count > 3 for count in points.values()), points
    assert points["pruned"] > points["second"] > 20


def test_flushed_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut loses what was not flushed: every file, then its folder, then the rename, then the parent."""
    calls: list[tuple[str, str]] = []
    opened: dict[int, str] = {}

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(first, *args, **kwargs)
            if name == "open":
                opened[result] = str(first)
            else:
                calls.append((name, Path(opened[first] if isinstance(first, int) else first).name))
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("open", "write", "fsync", "rename"):
        noted(name)
    Store(tmp_path / "checkpoints").save(1000, tensors(), {})
    part = next(name for _, name in calls if name.endswith(".part"))
    order = [(name, file) for name, file in dict.fromkeys(calls)]
    wanted = [pair for file in FILES for pair in (("write", file), ("fsync", file))]
    assert order == [("fsync", tmp_path.name), *wanted, ("fsync", part), ("rename", part), ("fsync", "checkpoints")]


def failing(name: str, code: int, left: list[int]) -> Callable[..., Any]:
    """The function of os, which fails when `left` calls are done and, unless it is rename, ever after."""
    real = getattr(os, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if name == "open" and not args[1] & os.O_CREAT:
            return real(*args, **kwargs)
        left[0] -= 1
        if left[0] == -1 or (left[0] < 0 and name != "rename"):
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    return call


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_failure_at_every_call(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T12: from some call on nothing more can be written; what is there can still be renamed and deleted."""
    monkeypatch.setattr(checkpoint, "CHUNK_BYTES", 64)
    num_failed = 0
    for number in range(100):
        folder = tmp_path / str(number)
        filled(folder, 1000, 2000)
        store, left = Store(folder), [number]
        with monkeypatch.context() as patch:
            for name in ("write", "fsync", "mkdir", "open", "rename"):
                patch.setattr(os, name, failing(name, code, left))
            try:
                store.save(2000 if number % 2 else 3000, tensors(5), {"step": 5}, best=True)
            except FilbertError as error:
                num_failed += 1
                told = str(error)
                assert f"{folder}/step-0000" in told
                assert "bytes and could not be written (" + os.strerror(code) in told
        names = visible(folder)
        assert not [name for name in names if name.endswith(".part")], names
        found = Store(folder).newest()
        assert found.state["step"] in (2000, 5)
        assert torch.equal(found.tensors()["w"], tensors(found.state["step"])["w"])
        assert len(Store(folder)._steps()) >= 2
        if left[0] >= 0:
            break
    assert num_failed > 15


def mountable(folder: Path) -> bool:
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(folder)]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_disk_that_fills_up_and_one_that_is_read_only(tmp_path: Path) -> None:
    if not mountable(tmp_path):  # a limit on the size of files, which any user can set, must do
        assert "File too large" in victim("limit", tmp_path)["full"]
        pytest.skip("no file system can be mounted here, so only a limit on the size of files was tried")
    told = victim("full", tmp_path, "unshare", "--map-root-user", "--mount")
    assert "step-00003000: the checkpoint of step 3000 needs 400,1" in told["full"]
    assert "No space left on device" in told["full"]
    assert "No space left on device" in told["none left"]
    assert "checkpoints cannot be written here (Read-only file system)" in told["read-only"]
    assert "Read-only file system" in told["lock"]
    assert "left where it is and skipped" in told["note"]


def test_output_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path / "fine").check_writable()
    assert visible(tmp_path / "fine") == []
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "checkpoints"):
        with pytest.raises(InputError, match="cannot be written here"):
            Store(folder).check_writable()
        with pytest.raises(InputError, match="cannot be written"), locked(folder):
            pass
    monkeypatch.setattr(
        os, "open", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only file system"))
    )
    with pytest.raises(InputError, match="Read-only file system"):
        Store(tmp_path / "fine").check_writable()


def test_a_failure_of_ours_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 1)
    monkeypatch.setattr(checkpoint, "_raw", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.save(2, tensors(), {})
    assert visible(tmp_path) == ["step-00000001"]


@pytest.mark.slow
def test_the_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    """T05, and that a loader worker which outlives a killed run does not hold its lock."""
    told = victim("locks", tmp_path)["told"]
    assert told.startswith(f"{tmp_path / 'run'}: another run is using this folder (process ")


def test_the_lock_holds_within_one_process(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with locked(tmp_path / "run"):
        for name in ("run", "link"):
            with pytest.raises(InputError, match=f"process {os.getpid()} on"), locked(tmp_path / name, "export"):
                pass
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path / "link"):
        pass


@pytest.mark.slow
def test_readers_beside_a_run_that_saves(tmp_path: Path) -> None:
    seen = victim("readers", tmp_path)
    assert seen["found"] > 20
    assert seen["steps"] > 3


@pytest.mark.parametrize("steps", [(2,), (3, 4)], ids=["replaced", "pruned"])
def test_a_checkpoint_that_changes_while_it_is_read(
    steps: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 1, 2)
    run, reader, real, waiting = Store(tmp_path), Store(tmp_path), checkpoint.sha256, list(steps)

    def meanwhile(path: Path) -> str:
        while waiting:
            run.save(waiting.pop(0), tensors(9), {"step": 9})
        return real(path)

    monkeypatch.setattr(checkpoint, "sha256", meanwhile)
    found = reader.newest()
    assert (found.step, found.state) == (steps[-1], {"step": 9})
    assert torch.equal(found.tensors()["w"], tensors(9)["w"])
    assert reader.notes == run.notes == []
    assert len(visible(tmp_path)) == 2


def test_a_reader_leaves_the_unfinished_work_of_a_run_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader, seen = filled(tmp_path, 1), Store(tmp_path), []
    real = checkpoint._raw

    def slow(tensor: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(reader.newest().step))
        thread.start()
        thread.join()
        return real(tensor)

    monkeypatch.setattr(checkpoint, "_raw", slow)
    store.save(2, {"x": np.zeros(3)}, {})
    monkeypatch.undo()
    assert seen == [1]
    assert store.newest().step == 2


def test_two_writers_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_WAIT_S", 0.05)
    store = filled(tmp_path, 1)
    with store._saving(), pytest.raises(FilbertError, match="is writing here too"):
        Store(tmp_path).save(2, {}, {})
    assert visible(tmp_path) == ["step-00000001"]
