"""GPT-2 folders of transformers: read whole with BERT's vocabulary, refused in a sentence with one of bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding
from filbert.folder.folder import import_folder, load
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def theirs(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A small one as the Chinese ones are: GPT-2's layers, BERT's vocabulary."""
    tokenizer = Tokenizer.load(tiny_folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=tokenizer.vocab_size, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    model = transformers.GPT2LMHeadModel(config).eval()
    folder = tmp_path_factory.mktemp("gpt2")
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return folder, model


def changed(folder: Path, copy: Path, **fields: Any) -> Path:
    """The folder with other fields in its config.json."""
    shutil.copytree(folder, copy)
    about = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**about, **fields}))
    return copy


@pytest.mark.slow
def test_a_folder_is_loaded_and_imported_with_the_same_scores(theirs: tuple[Path, Any], tmp_path: Path) -> None:
    folder, model = theirs
    told = import_folder(folder, tmp_path / "ours")
    assert told.described.kind == "filbert-gpt"
    ids = Tokenizer.load(folder).encode("今天天气很好").ids
    zeros = ids * 0
    packed = tensors(pack([Encoding(ids, zeros, zeros, zeros, zeros)])[0])
    wanted = model(torch.from_numpy(ids).long()[None]).logits[0]
    for found in (load(folder), load(tmp_path / "ours", verify=True)):
        got = found.model.word_scores(found.model(packed))
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
    assert Tokenizer.load(tmp_path / "ours").vocabulary == Tokenizer.load(folder).vocabulary


@pytest.mark.slow
def test_what_cannot_be_read_is_refused_in_a_sentence(theirs: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = theirs
    bytes_ = changed(folder, tmp_path / "bytes")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (bytes_ / name).unlink()
    (bytes_ / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match=r"byte-level vocabulary.*from_gpt2"):
        load(bytes_)
    (bytes_ / "merges.txt").unlink()
    (bytes_ / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {}, "merges": []}}))
    with pytest.raises(InputError, match="byte-level vocabulary"):
        import_folder(bytes_, tmp_path / "out")
    with pytest.raises(InputError, match=r"activation_function is 'relu', but filbert computes 'gelu_new' alone"):
        load(changed(folder, tmp_path / "relu", activation_function="relu"))
    with pytest.raises(InputError, match=r"wpe\.weight is of shape \(40, 32\), but config\.json gives \(41, 32\)"):
        load(changed(folder, tmp_path / "long", n_positions=41))
    with pytest.raises(InputError, match="none of a GPT-2 of 1 layers"):
        load(changed(folder, tmp_path / "flat", n_layer=1))
    assert not (tmp_path / "out").exists()
