"""The batches of every task, to the byte: what moves a token, a boundary or a target shows in house/batches.json.

The file was made by commit 5d8100d, before the house was rebuilt, and is not to be made anew while it is: these are the
answers that the rebuilt code is held to. Afterwards FILBERT_REWRITE=1 writes it, as it does the other goldens.

Everything here is whole numbers of NumPy, equal on every machine. The few floats (shares of windows, numbers to learn,
logarithms of counts) are rounded to six digits before they are hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import house_data as data
import house_doors as doors
import numpy as np
import pytest

GOLDEN = Path(__file__).with_name("house") / "batches.json"
NUM_ROWS, BATCH_TOKENS, CORPUS_TOKENS = 66, 320, 160
SHORT = {"max_length": 24, "overlap": 6}
Rows = Callable[[int], list[data.Row]]
# name of the case: the task, its rows, the labels where the rows do not say, fields of its config
LABELLED: dict[str, tuple[str, Rows, tuple[str, ...], dict[str, Any]]] = {
    "classify": ("classify", data.labelled, data.KINDS, SHORT),
    "classify whole": ("classify", data.labelled, data.KINDS, {"max_length": 512, "pool": "cls"}),
    "classify several": ("classify", data.many_labelled, (), SHORT),
    "pair": ("pair", data.named_pairs, ("other", "same"), SHORT),
    "pair number": ("pair", data.numbered_pairs, (), {**SHORT, "pool": "cls"}),
    "tag softmax": ("tag", data.spanned, (), SHORT),
    "tag crf": ("tag", data.spanned, (), {**SHORT, "decoder": "crf", "scheme": "bioes"}),
    "tag span": ("tag", data.spanned, (), {**SHORT, "decoder": "span", "longest": 6}),
    "relation": ("relation", data.related, ("after", "before", "none"), {"max_length": 24}),
    "answer": ("answer", data.questions, (), {"max_length": 32, "overlap": 8}),
    "choose": ("choose", data.choices, (), SHORT),
    **{
        f"embed {kind}": ("embed", lambda count, kind=kind: data.compared(kind, count), (), {**SHORT, "group": 3})  # type: ignore[misc]
        for kind in ("texts", "pairs", "triplets", "labels", "numbers")
    },
    "blank": (
        "blank", data.labelled, (),
        {"template": "{text}是[MASK]。", "words": "sport=球队|game,health=医生,旅行=公园|火车|train", **SHORT},
    ),
    "nsp": ("nsp", data.named_pairs, (), SHORT),
    "translate": ("translate", data.written, (), {"max_length": 24}),
    "summarize": ("summarize", data.written, (), {"max_length": 24}),
    "chat": ("chat", data.dialogues, (), {"max_length": 24}),
}  # fmt: skip
NOT_LEARNT = ("nsp",)  # is only asked: it has no loss to count for
CORPUS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlm_nsp mlm": ("mlm_nsp", {"objective": "mlm", "max_length": 32}),
    "mlm_nsp mlm+nsp": ("mlm_nsp", {"objective": "mlm+nsp", "max_length": 32, "short_prob": 0.3}),
    "mlm_nsp mlm+sop": ("mlm_nsp", {"objective": "mlm+sop", "max_length": 32, "masking": "both"}),
    "mlm_nsp token": ("mlm_nsp", {"masking": "token", "max_length": 32, "seed": 3}),
    "causal_lm": ("causal_lm", {"max_length": 32}),
    "word_vectors skip-gram": ("word_vectors", {"max_length": 32}),
    "word_vectors cbow": ("word_vectors", {"objective": "cbow", "output": "hierarchical", "max_length": 32}),
    "cooccurrence": ("cooccurrence", {"window": 4}),
}


def task_of(case: str, folder: Path) -> Any:
    """The task of a case."""
    if case in LABELLED:
        name, rows, labels, fields = LABELLED[case]
        return doors.labelled_task(name, rows(NUM_ROWS), labels, data.tokens(), **fields)
    path = folder / "corpus.txt"
    path.write_text(data.corpus(), encoding="utf-8")
    return doors.corpus_task(CORPUS[case][0], path, data.tokens(), **CORPUS[case][1])


def hashed(values: list[Any]) -> str:
    """Sixteen characters that tell whether the arrays of some batches have the same types, shapes and bytes."""
    digest = hashlib.sha256()
    for value in values:
        if value is None:  # a batch that has no such target
            digest.update(b"none ")
            continue
        array = np.ascontiguousarray(value)
        digest.update(f"{array.dtype.str} {np.shape(value)} ".encode())
        if array.dtype.kind == "f":
            array = np.round(array.astype(np.float64), 6) + 0.0  # no -0
            array[np.isnan(array)] = np.nan  # one of many
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def summary(case: str, folder: Path) -> dict[str, Any]:
    """Of three batches of epoch 0 and one of epoch 1, as they are and filled up: a hash for each name, and counts."""
    arrays: dict[str, Any] = {}
    task, size = task_of(case, folder), BATCH_TOKENS if case in LABELLED else CORPUS_TOKENS
    for name, fill in (("plain", False), ("filled", True)):
        batches = [
            batch for number, many in ((0, 3), (1, 1))
            for batch in doors.epoch(task, number, size, many, fill=fill)
        ]  # fmt: skip
        assert len(batches) == 4, "too little data for this case"
        each = [doors.arrays(batch) for batch in batches]
        arrays[name] = {
            "tokens": [len(one["ids"]) for one in each],
            **({} if case in NOT_LEARNT else {"counts": [doors.counts(task, batch) for batch in batches]}),
            **{
                key: hashed([one.get(key) for one in each]) for key in dict.fromkeys(key for one in each for key in one)
            },
        }
    return arrays


@pytest.mark.parametrize("case", [*LABELLED, *CORPUS])
def test_the_batches_are_these(case: str, tmp_path: Path) -> None:
    current = summary(case, tmp_path)
    known = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if os.environ.get("FILBERT_REWRITE"):
        known[case] = current
        GOLDEN.write_text(
            json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    for name, expected in known[case].items():
        assert {**current[name], "counts": None} == {**expected, "counts": None}
        for count, right in zip(current[name].get("counts", []), expected.get("counts", []), strict=True):
            assert count == pytest.approx(right, rel=1e-6)  # sums of float32, whose order a CPU may choose


def test_every_task_has_its_batches_here() -> None:
    tasks = {name for name, *_ in (*LABELLED.values(), *CORPUS.values())}
    assert tasks == doors.task_names()
    assert {*LABELLED, *CORPUS} == set(json.loads(GOLDEN.read_text(encoding="utf-8")))
