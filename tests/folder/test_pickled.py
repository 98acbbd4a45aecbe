"""Files of torch.save are imported without a line of their code: tensors alone come out, whatever else a file holds."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import time
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.folder import folder as folders
from filbert.folder import pickled, weights
from folder.test_fuzz_model import folders_in, mutated, peak_bytes

NUMBER = int(os.environ.get("FILBERT_FUZZ", "6000"))
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder whose weights are safetensors."""
    return folders_in(tmp_path)[0]


def state_of(folder: Path) -> OrderedDict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return OrderedDict(load_file(folder / "model.safetensors"))


def pickled_folder(tiny: Path, out: Path, state: Any, **how: Any) -> Path:
    shutil.copytree(tiny, out)
    (out / "model.safetensors").unlink()
    torch.save(state, out / "pytorch_model.bin", **how)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zipped", [True, False])
def test_an_import_has_every_bit(tiny: Path, tmp_path: Path, zipped: bool, dtype: torch.dtype) -> None:
    state = OrderedDict((name, value.to(dtype)) for name, value in state_of(tiny).items())
    state["bert.embeddings.position_ids"] = torch.arange(8)[None]
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]  # one storage
    folder = pickled_folder(tiny, tmp_path / "theirs", state, _use_new_zipfile_serialization=zipped)
    folders.import_folder(folder, tmp_path / "ours")
    again = state_of(tmp_path / "ours")
    assert again.keys() == state.keys() - {"bert.embeddings.position_ids", "cls.predictions.decoder.weight"}
    assert all(torch.equal(again[name], state[name]) for name in again)
    fb.load(tmp_path / "ours", device="cpu")


def test_shards_and_parts_of_a_storage(tiny: Path, tmp_path: Path) -> None:
    state = state_of(tiny)
    folder = pickled_folder(tiny, tmp_path / "theirs", {})
    (folder / "pytorch_model.bin").unlink()
    names = sorted(state)
    places = {name: f"pytorch_model-{1 + place % 2}-of-2.bin" for place, name in enumerate(names)}
    for shard in sorted(set(places.values())):
        part = {
            name: torch.cat([state[name], state[name]])[len(state[name]) :] for name in names if places[name] == shard
        }
        torch.save(part, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    folders.import_folder(folder, tmp_path / "ours")
    again = state_of(tmp_path / "ours")
    assert all(torch.equal(again[name], state[name]) for name in names)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {**places, "more": "../x.bin"}}))
    with pytest.raises(InputError, match=r"only \.bin files of this folder"):
        folders.import_folder(folder, tmp_path / "others")


def test_nothing_else_opens_it_and_all_say_what_does(tiny: Path, tmp_path: Path) -> None:
    folder = pickled_folder(tiny, tmp_path / "theirs", state_of(tiny))
    with pytest.raises(InputError, match="filbert import"):
        fb.load(folder)


# Hostile files --------------------------------------------------------------------------------------------------------


class Payload:
    """Creates a file when it is opened as a pickle."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.proof,))


def written(path: Path, raw: bytes, zipped: bool, **entries: bytes) -> Path:
    """A file of torch.save's two forms with that pickle in it."""
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {"data.pkl": raw, **{f"data/{key}": value for key, value in entries.items()}}.items():
                archive.writestr(f"archive/{name}", data)
    else:
        head = (pickled.MAGIC, pickled.PROTOCOL, {"little_endian": True})
        path.write_bytes(b"".join(pickle.dumps(each, protocol=2) for each in head) + raw + pickle.dumps([], protocol=2))
    return path


def refusal(path: Path) -> str:
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        pickled.read(path)
    assert time.process_time() - started < 1
    assert "none of its code was run" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_M01_a_payload_is_not_run(tmp_path: Path, zipped: bool, protocol: int) -> None:
    proof = tmp_path / "proof"
    for table in (Payload(proof), {"w": Payload(proof)}, [Payload(proof)]):
        raw = pickle.dumps(table, protocol=protocol)
        assert "is no part of a tensor" in refusal(written(tmp_path / "x.bin", raw, zipped))
    assert not proof.exists()
    pickle.loads(pickle.dumps(Payload(proof)))  # the payload is one
    assert proof.exists()


# Opcodes by hand: what no honest pickle has. `c` names a global, `R` calls, `b` sets a state, `r` keeps by number.
ORDERED = b"ccollections\nOrderedDict\n"
MAKER = b"ctorch._utils\n_rebuild_tensor_v2\n"
HOSTILE = {
    "a_global_of_builtins": b"cbuiltins\neval\n(S'1'\ntR.",
    "a_global_below_an_allowed_one": b"ccollections\nOrderedDict.__init__.__globals__\n.",
    "an_attribute_of_a_module": b"ctorch\nload\n.",
    "a_state_for_a_function": MAKER + b"}S'__defaults__'\nN" + b"sb.",
    "slots_for_a_function": MAKER + b"(N}S'__code__'\nNstb.",
    "a_state_for_a_class": ORDERED + b"}S'get'\nNsb.",
    "slots_for_a_class": ORDERED + b"(N}S'get'\nNstb.",
    "a_method_of_the_table_replaced": ORDERED + b")R}S'items'\n" + MAKER + b"sbS'a'\nK\x01s.",
    "a_place_in_the_memo_beyond_memory": b"}r\xff\xff\xff\xff.",
    "a_string_that_is_not_there": b"\x8d" + (2**62).to_bytes(8, "little") + b"a.",
    "a_number_of_two_gigabytes": b"\x8b\xff\xff\xff\x7f1.",
    "a_frame_that_is_not_there": b"\x80\x04\x95" + (2**62).to_bytes(8, "little") + b"}.",
    "a_registered_extension": b"\x82\x01.",
    "a_tensor_of_nothing": MAKER + b"(K\x01K\x00)))tR.",
    "a_storage_by_text": b"Pstorage\n.",
    "a_storage_of_a_negative_size": b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nJ\xff\xff\xff\xfftQ.",
    "another_thing_under_a_name": b"}S'w'\nK\x01s.",
    "a_state_for_a_kind": b"ctorch\nFloatStorage\n(S'F64'\ntb.",
    "an_array_of_gigabytes_that_is_not_there": b"\x80\x05\x96" + (1_500_000_000).to_bytes(8, "little") + b".",
    "a_key_that_doubles": b"\x80\x02})" + b"2\x86" * 40 + b"K\x01s.",
    "a_tuple_as_a_key": b"})K\x01s.",
    "pairs_that_are_none": ORDERED + b"(]K\x01atR.",
    "no_end": b"}" * 100,
    "nothing": b"",
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(tmp_path: Path, name: str, zipped: bool) -> None:
    def state() -> tuple[object, ...]:
        makers = [each.make for each in pickled.ALLOWED.values() if isinstance(each, pickled.Maker)]
        return (dict(pickled.ALLOWED), makers, [(f.__defaults__, f.__code__, dict(vars(f))) for f in makers],
                OrderedDict.get, OrderedDict.items)  # fmt: skip

    before = state()
    peak_bytes()
    start = peak_bytes()
    refusal(written(tmp_path / "x.bin", HOSTILE[name], zipped))
    assert peak_bytes() - start < 100 * 2**20
    assert state() == before


def test_a_table_that_is_copied_over_and_over_takes_little(tmp_path: Path) -> None:
    """Each call of OrderedDict and each state was once a copy of what a file had to hold only once."""
    big = pickle.dumps([(str(n), n) for n in range(5_000)], protocol=2)[:-1] + b"r\x07\x00\x00\x00"
    peak_bytes()
    start = peak_bytes()
    refusal(written(tmp_path / "x.bin", big + (ORDERED + b"j\x07\x00\x00\x00\x85R") * 3_000 + b".", zipped=True))
    refusal(written(tmp_path / "x.bin", big + (ORDERED + b")Rj\x07\x00\x00\x00b") * 3_000 + b".", zipped=True))
    assert peak_bytes() - start < 100 * 2**20


def test_what_no_row_of_numbers_is_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    torch.save({"w": torch.zeros(3, 4).T}, path)
    assert "row by row" in refusal(path)
    torch.save({"w": torch.zeros(3, dtype=torch.complex64)}, path)
    assert "is no part of a tensor" in refusal(path)
    torch.save({"w": torch.zeros(3), "steps": 7}, path)
    assert "'steps'" in refusal(path)
    torch.save(torch.nn.Linear(2, 2), path)
    assert "torch.nn" in refusal(path)
    torch.save({"w": torch.zeros(1, 3).expand(4, 3)}, path)
    assert "row by row" in refusal(path)
    torch.save({"w": torch.zeros(300)}, path)
    path.write_bytes(path.read_bytes()[:-400])
    refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 200_000_000)
    assert "compressed" in refusal(path)


@pytest.mark.slow
def test_mutated_files_are_read_or_refused(tiny: Path, tmp_path: Path) -> None:
    """Of both forms, mostly where the pickle lies."""
    outcomes, slowest, longest = {"read": 0, "refused": 0}, 0.0, 0
    peak_bytes()
    start = peak_bytes()
    for zipped in (True, False):
        path = tmp_path / "x.bin"
        torch.save(state_of(tiny), path, _use_new_zipfile_serialization=zipped)
        whole = path.read_bytes()
        head = whole.find(b"ctorch._utils") + 4_000
        for seed in range(NUMBER // 2):
            rng = random.Random(seed)
            part = len(whole) if rng.random() < 0.2 else min(head, len(whole))
            path.write_bytes(mutated(whole[:part], rng) + whole[part:])
            begun = time.process_time()
            try:
                for each in pickled.read(path).values():
                    assert each.start + each.num_bytes <= path.stat().st_size
                    assert each.num_bytes == each.size * np.dtype(weights.DTYPES[each.dtype]).itemsize
                outcomes["read"] += 1
            except InputError as error:
                outcomes["refused"] += 1
                longest = max(longest, len(str(error).encode()))
            except BaseException:
                print(f"zipped {zipped}, seed {seed}")
                raise
            slowest = max(slowest, time.process_time() - begun)
    assert peak_bytes() - start < 100 * 2**20
    assert slowest < 1
    assert longest < 2_000
    assert min(outcomes.values()) > NUMBER * 0.02
