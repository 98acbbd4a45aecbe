"""Arguments of another type than is meant, and answers that a caller changes: refused in a sentence, and harmless."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.engine import neighbours
from filbert.folder.folder import save
from filbert.run.distill import Wish, distill
from filbert.ship import shrink, verify
from filbert.text.tokenizer import Tokenizer
from kit.models import small_bert

LABELS = ("甲", "乙", "丙")
NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b")


@pytest.fixture(scope="module")
def model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> fb.Model:
    tokenizer = Tokenizer.load(tiny_folder)
    own = small_bert(tokenizer, ("labels",), len(LABELS), noise=0.3)
    return fb.load(save(tmp_path_factory.mktemp("arguments") / "m", own, tokenizer, labels=LABELS), device="cpu")


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"tokens": None}, "Tokenizer was given None"),
    ({"tokens": 5}, "Tokenizer was given an int"),
    ({"tokens": "abc"}, "tokens is one string"),
    ({"tokens": frozenset(NAMES)}, "has no order"),
    ({"tokens": dict.fromkeys(NAMES)}, "Tokenizer was given a dict"),
    ({"tokens": []}, "missing"),
    ({"tokens": [*NAMES, 5]}, "5 is no token"),
    ({"tokens": [*NAMES, b"x"]}, "b'x' is no token"),
    ({"lowercase": "no"}, "lowercase is 'no', but must be True or False"),
    ({"lowercase": None}, "lowercase is None"),
    ({"strip_accents": "x"}, "strip_accents is 'x'"),
    ({"split_cjk": 1}, "split_cjk is 1"),
    ({"max_word_chars": 0}, "max_word_chars is 0"),
    ({"max_word_chars": "5"}, "max_word_chars is '5'"),
    ({"max_word_chars": 5.5}, "max_word_chars is 5.5"),
    ({"max_word_chars": 10**6}, "max_word_chars is 1000000"),
    ({"added": "xyz"}, "tokens is one string"),
    ({"added": None}, "Tokenizer was given None"),
    ({"added": [""]}, "'' is no token"),
    ({"added": [5]}, "5 is no token"),
]


@pytest.mark.parametrize(("given", "told"), SETTINGS)
def test_a_tokenizer_is_made_of_what_it_says(given: dict[str, Any], told: str) -> None:
    """A string for an added token was read letter by letter, and an empty one stood between all words."""
    with pytest.raises(InputError, match=told):
        Tokenizer(**{"tokens": NAMES, **given})


def test_tokens_are_taken_from_whatever_lists_them() -> None:
    for tokens in (list(NAMES), iter(NAMES), np.array(NAMES)):
        assert Tokenizer(tokens).vocabulary == NAMES


@pytest.mark.parametrize("ids", [[5.7], [5.0], np.array([5.0]), [float("inf")], [float("nan")], ["5"], [None], [[5]]])
def test_what_is_no_id_is_not_decoded(ids: Any) -> None:
    with pytest.raises(InputError, match="takes the ids of tokens"):
        Tokenizer(NAMES).decode(ids)


def test_ids_of_any_whole_number_are_decoded() -> None:
    assert [Tokenizer(NAMES).token_of(each) for each in (5, np.int32(5), torch.tensor(5))] == ["a"] * 3
    for ids in ([5, 6], np.array([5, 6]), torch.tensor([5, 6]), [np.int32(5), 6]):
        assert Tokenizer(NAMES).decode(ids) == "ab"


@pytest.mark.parametrize(
    "call",
    [
        lambda own: own.token_of(5.5),
        lambda own: own.token_of("5"),
        lambda own: own.token_of(None),
        lambda own: own.id_of(["a"]),
        lambda own: own.save(""),
        lambda own: own.save(None),
        lambda own: own.save("there", max_length="x"),
        lambda own: own.save("there", max_length=True),
        lambda own: own.save("there", max_length=-1),
    ],
)
def test_a_tokenizer_refuses_in_one_sentence(
    call: Callable[[Any], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        call(Tokenizer(NAMES))
    assert not list(tmp_path.iterdir())


def test_what_no_token_can_be_is_in_no_vocabulary() -> None:
    assert ["a"] not in Tokenizer(NAMES)
    assert "a" in Tokenizer(NAMES)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.embed(["今天"], normalize="no"),
        lambda model: model.embed(["今天"], normalize=0),
        lambda model: model.predict(["今天"], task=["classify"]),
        lambda model: model.reading(["classify"]),
        lambda model: model.reading({}),
        lambda model: model.attention("今天", layers=1.5),
        lambda model: model.attention("今天", heads=object()),
        lambda model: model.attention("今天", segments=None),
        lambda model: model.attention("今天", segments=5),
        lambda model: model.attention("今天", segments=["jieba"]),
        lambda model: model.explain("今天", certificate="no"),
        lambda model: model.explain("今天", method=["occlusion"]),
        lambda model: model.explain("今天", task=["classify"]),
    ],
)
def test_a_model_refuses_in_one_sentence(call: Callable[[fb.Model], object], model: fb.Model) -> None:
    with pytest.raises(InputError):
        call(model)


def test_layers_may_be_a_number_of_numpy(model: fb.Model) -> None:
    assert model.attention("今天天气", layers=np.int64(1)).values.shape[0] == 1


def test_what_a_caller_changes_changes_no_answer(model: fb.Model) -> None:
    """The list of labels was the model's own: turned round, it gave every text another label."""
    before = model.predict(["今天天气很好"])
    model.labels.reverse()
    model.labels.clear()
    before[0].scores.copy()
    assert model.labels == list(LABELS)
    assert model.predict(["今天天气很好"]) == before


ROWS = [(f"今天天气{place}", LABELS[place % 3]) for place in range(9)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"seed": "abc"}, "seed is 'abc', but must be a whole number"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"epochs": "3"}, "epochs is '3', but must be a number"),
        ({"columns": 5}, "columns is 5"),
        ({"columns": ["text"]}, "columns is"),
        ({"encoding": 5}, "encoding is 5"),
        ({"scratch": "no"}, "scratch is 'no', but must be True or False"),
        ({"force": 1}, "force is 1"),
        ({"resume": "no"}, "resume is 'no'"),
    ],
)
def test_a_run_refuses_in_one_sentence(given: dict[str, Any], told: str, tiny_folder: Path, tmp_path: Path) -> None:
    """scratch="no" began with random weights."""
    with pytest.raises(InputError, match=told):
        fb.finetune("classify", ROWS, tiny_folder, tmp_path / "run", **{"quiet": True, **given})
    with pytest.raises(InputError, match=told if "scratch" not in given else "no argument 'scratch'"):
        distill(tiny_folder, ROWS, tmp_path / "run", Wish(layers=1), **{"quiet": True, **given})
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_seed_may_be_a_number_of_numpy(tiny_folder: Path, tmp_path: Path) -> None:
    for seed in np.arange(1, 2):
        done = fb.finetune("classify", ROWS, tiny_folder, tmp_path / "run", seed=seed, epochs=1, quiet=True)
    assert json.loads((done.folder / "recipe.json").read_text("utf-8"))["train"]["seed"] == 1


TABLE = np.eye(3, dtype=np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: neighbours.Index("abc"),
        lambda: neighbours.Index([["a", "b"]]),
        lambda: neighbours.Index([["1", "2"]]),
        lambda: neighbours.Index([[1, 2], [3]]),
        lambda: neighbours.Index({"a": 1}),
        lambda: neighbours.Index(TABLE.astype(complex)),
        lambda: neighbours.Index(TABLE, keys=5),
        lambda: neighbours.clusters("abc", 1),
        lambda: neighbours.communities(TABLE, threshold="x"),
        lambda: neighbours.communities(TABLE, threshold=None),
        lambda: shrink.chosen(1.5, 3),
        lambda: shrink.chosen(True, 3),
        lambda: shrink.chosen(["a"], 3),
        lambda: verify.check_sealed(Path("there"), 5),
        lambda: distill("builtin", ROWS, "there", None),
    ],
)
def test_what_is_no_table_or_number_is_refused_in_one_sentence(call: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        call()


def test_labels_are_a_list(model: fb.Model, tmp_path: Path) -> None:
    """A string of as many letters as there are labels would name them."""
    with pytest.raises(InputError, match="labels is one string"):
        save(tmp_path / "m", model.backbone, model.tokenizer, labels="甲乙丙")
    with pytest.raises(InputError, match="the place is None"):
        save(None, model.backbone, model.tokenizer, labels=LABELS)
