"""Folders exported for transformers: its Auto classes give our numbers for every task that they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.engine.model import load
from filbert.folder import write_transformers
from filbert.folder.folder import save
from filbert.ship import verify
from filbert.text.tokenizer import Tokenizer
from kit.folders import task_file
from kit.models import small_bert

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TEXTS = ["今天下雨，我们在家看书。", "a", "他打了一个电话给上海的朋友"]
PAIRS = [(TEXTS[0], TEXTS[2]), (TEXTS[2], "a")]
FIVE, TAGS = ("体育", "财经", "科技", "娱乐", "教育"), ("O", "B-城", "I-城", "B-人", "I-人")
# name: parts, labels, task.json, what is asked, the class that loads it
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], list[Any], str]] = {
    "classify": (("pooler", "labels"), FIVE, {"task": "classify", "pool": "cls", "temperature": 1.7}, list(TEXTS),
                 "AutoModelForSequenceClassification"),
    "several": (("pooler", "labels"), FIVE, {"task": "classify", "pool": "cls", "several": 0.4}, list(TEXTS),
                "AutoModelForSequenceClassification"),
    "pair": (("pooler", "labels"), FIVE, {"task": "pair", "pool": "cls"}, list(PAIRS),
             "AutoModelForSequenceClassification"),
    "number": (("pooler", "labels"), ("value",), {"task": "pair", "pool": "cls", "answer": "number", "scale": 2.0},
               list(PAIRS), "AutoModelForSequenceClassification"),
    "tag": (("tokens",), TAGS, {"task": "tag", "decoder": "softmax", "scheme": "bio"}, list(TEXTS),
            "AutoModelForTokenClassification"),
    "answer": (("span",), (), {"task": "answer"}, [("谁？", TEXTS[2]), ("天气", TEXTS[0])],
               "AutoModelForQuestionAnswering"),
    "choose": (("pooler", "choice"), (), {"task": "choose", "pool": "cls"}, [(TEXTS[2], "哪里？", ["北京", "上海"])],
               "AutoModelForMultipleChoice"),
}  # fmt: skip


def made(folder: Path, parts: tuple[str, ...], labels: tuple[str, ...], said: dict[str, Any], words: Tokenizer) -> Path:
    said = {"max_length": 64, **({} if said["task"] == "relation" else {"overlap": 16}), **said}
    model = small_bert(words, parts, max(1, len(labels)), noise=0.3)
    return save(folder, model, words, labels=labels, files=task_file(said))


def theirs(model: Any, packed: Any) -> Any:
    """What their class says of each sequence of a pack, one by one."""
    found = []
    for start, length in zip(np.asarray(packed.boundaries), packed.lengths, strict=False):
        own = slice(int(start), int(start) + length)
        given = {"input_ids": packed.ids[own], "token_type_ids": packed.segments[own]}
        fed = {name: torch.as_tensor(np.asarray(value, dtype=np.int64))[None] for name, value in given.items()}
        if "Choice" in type(model).__name__:
            fed = {name: value[None] for name, value in fed.items()}
        with torch.inference_mode():
            found.append(model(**fed))
    return found


def heads(name: str, said: list[Any]) -> np.ndarray:
    if name == "answer":
        return np.concatenate([torch.stack((one.start_logits, one.end_logits), -1)[0].numpy() for one in said])
    return np.concatenate([one.logits[0].numpy().reshape(-1, one.logits.shape[-1]) for one in said])


@pytest.mark.parametrize("case", CASES)
def test_their_class_gives_our_numbers(case: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    parts, labels, said, asked, loads = CASES[case]
    folder, name, remarks = write_transformers.export(
        made(tmp_path / "m", parts, labels, said, tokenizer), tmp_path / "t"
    )
    assert name == loads
    assert remarks
    verify.verified(folder)  # every file is as the manifest says
    ours, other = load(folder, device="cpu"), getattr(transformers, loads).from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    if labels:
        assert list(other.config.id2label.values()) == list(labels)
    for one in asked:
        task = ours.reads([one], said["task"])
        batch = task.batch(np.arange(1))
        with torch.inference_mode():
            x_TD = ours.backbone(type(batch.packed)(
                **{n: torch.as_tensor(np.asarray(getattr(batch.packed, n))) for n in
                   ("ids", "positions", "segments", "boundaries")},
                lengths=batch.packed.lengths, max_len=batch.packed.max_len,
            ))  # fmt: skip
            if "pooler" in parts:
                x_TD = ours.backbone.pooled(x_TD[np.asarray(batch.packed.boundaries)[:-1]])
            wanted = ours.backbone.heads[parts[-1]](x_TD).numpy()
        found = heads(case, theirs(other, batch.packed))
        assert np.abs(found - wanted).max() < 1e-5
        if case != "choose":  # options are put together by the user there
            texts = (one,) if isinstance(one, str) else one
            assert words(*texts)["input_ids"] == np.asarray(batch.packed.ids).tolist()
    raw = ours.engine.answers(ours.reads(asked, said["task"]))
    assert len(raw) == len(asked)


def test_blanks_and_vectors(tiny_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder, name, _ = write_transformers.export(tiny_folder, tmp_path / "t")
    assert name == "AutoModelForPreTraining"
    ours = load(folder, device="cpu")
    other = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    fed = transformers.AutoTokenizer.from_pretrained(folder)("今天天[MASK]很好。", return_tensors="pt")
    place = int((fed["input_ids"][0] == tokenizer.mask_id).nonzero()[0, 0])
    with torch.inference_mode():
        scores = other(**fed).logits[0, place].softmax(-1)
    for each in ours.fill("今天天[MASK]很好。")[0].candidates:
        assert float(scores[tokenizer.id_of(each.token)]) == pytest.approx(each.score, abs=1e-5)
    vectors, name, remarks = write_transformers.export(
        made(tmp_path / "v", (), (), {"task": "embed"}, tokenizer), tmp_path / "tv"
    )
    assert name == "AutoModel"
    assert any("mean" in remark for remark in remarks)
    fed = transformers.AutoTokenizer.from_pretrained(vectors)(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        mean = transformers.AutoModel.from_pretrained(vectors).eval()(**fed).last_hidden_state[0].mean(0).numpy()
    assert np.abs(mean / np.linalg.norm(mean) - load(vectors, device="cpu").embed([TEXTS[0]])[0]).max() < 1e-5


@pytest.mark.parametrize(
    ("parts", "labels", "said", "why"),
    [
        (("tokens", "crf"), TAGS, {"task": "tag", "decoder": "crf", "scheme": "bio"}, "has no CRF"),
        (("pointer",), ("城", "人"), {"task": "tag", "decoder": "span", "scheme": "bio"}, "no head that scores spans"),
        (("relation",), FIVE, {"task": "relation"}, "no head for two mentions"),
        (("labels",), FIVE, {"task": "classify", "pool": "mean"}, r"task\.pool=cls"),
        (("choice",), (), {"task": "choose", "pool": "mean"}, r"task\.pool=cls"),
    ],
)
def test_what_they_cannot_hold_is_one_sentence(
    parts: tuple[str, ...],
    labels: tuple[str, ...],
    said: dict[str, Any],
    why: str,
    tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    folder = made(tmp_path / "m", parts, labels, said, tokenizer)
    with pytest.raises(InputError, match=why):
        write_transformers.export(folder, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_the_command(tokenizer: Tokenizer, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    parts, labels, said, _, loads = CASES["classify"]
    folder = made(tmp_path / "m", parts, labels, said, tokenizer)
    ran = filbert("export", folder, "--format", "transformers", "--out", tmp_path / "t", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["class"]) == (0, loads)
    assert any("1.7" in remark for remark in told["remarks"])
    assert "## In transformers" in (tmp_path / "t/README.md").read_text(encoding="utf-8")
    assert not (tmp_path / "t/model.onnx").exists()
    assert filbert("export", folder, "--format", "transformers", "--int8", "--out", tmp_path / "x").code == 2
    assert "layout" in filbert("export", _pruned(tmp_path, tokenizer), "--format", "transformers", "--out", "x").err


def _pruned(folder: Path, tokenizer: Tokenizer) -> Path:
    return save(folder / "pruned", small_bert(tokenizer, ("mlm",), heads=(2, 1, 2)), tokenizer)
