"""What people hand to filbert in Python (rows D of the defects): read as what it is, or refused by name."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.core.records import Example

ROWS = [
    ("球队赢了比赛", "sport"),
    ("医生建议多喝水", "health"),
    ("球赛很精彩", "sport"),
    ("感冒了要休息", "health"),
] * 2
TEXTS = ["球队赢了", "多喝水"]
FAST = {"train.steps": 2, "train.batch_tokens": 256, "machine.threads": 1}
Kept = dict[str, Path]


@pytest.fixture(scope="module")
def folders(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Tiny models of several tasks, each a run."""
    base = tmp_path_factory.mktemp("several")
    data: dict[str, list[Example]] = {
        "classify": [Example((text,), label) for text, label in ROWS],
        "pair": [Example((text, text), label) for text, label in ROWS],
        "embed": [Example((text, text)) for text, _ in ROWS],
    }
    for task, examples in data.items():
        fb.finetune(task, examples, tiny_folder, base / task, settings=FAST, quiet=True)
    return {task: base / task for task in data}


@pytest.fixture(scope="module")
def models(folders: Kept, tiny_folder: Path) -> dict[str, fb.Model]:
    return {"plain": fb.load(tiny_folder), **{task: fb.load(path) for task, path in folders.items()}}


# D1 -------------------------------------------------------------------------------------------------------------------


def given(kind: str, texts: list[str]) -> Iterable[str]:
    """The same texts in whatever holds them."""
    if kind.startswith("pandas"):
        pandas = pytest.importorskip("pandas")
        return pandas.Series(texts, index=range(7, 7 + len(texts)))
    if kind == "polars":
        return pytest.importorskip("polars").Series(texts)
    if kind == "datasets":
        return pytest.importorskip("datasets").Dataset.from_dict({"text": texts})["text"]
    if kind == "keys":
        return dict.fromkeys(texts).keys()
    if kind == "numpy of objects":
        return np.array(texts, dtype=object)
    ways = {"tuple": tuple, "iterator": iter, "generator": lambda own: (text for text in own), "numpy": np.array}
    return map(str, texts) if kind == "map" else ways[kind](texts)


KINDS = ("tuple", "iterator", "generator", "map", "numpy", "numpy of objects", "keys", "pandas", "polars", "datasets")


@pytest.mark.parametrize("kind", KINDS)
def test_D1_texts_are_read_from_whatever_holds_them(kind: str, models: dict[str, fb.Model]) -> None:
    classifier, embedder = models["classify"], models["embed"]
    assert classifier.predict(given(kind, TEXTS)) == classifier.predict(TEXTS)
    np.testing.assert_array_equal(embedder.embed(given(kind, TEXTS)), embedder.embed(TEXTS))
    found = embedder.search(given(kind, TEXTS[:1]), given(kind, TEXTS), top=2)
    assert found == embedder.search(TEXTS[:1], TEXTS, top=2)
    assert {hit.key for hit in found[0]} == set(TEXTS)
    encodings = classifier.tokenizer.encode_batch(given(kind, TEXTS))
    assert [each.tokens for each in encodings] == [each.tokens for each in classifier.tokenizer.encode_batch(TEXTS)]


def test_D1_pairs_are_read_from_zip_arrays_and_as_pipelines_take_them(models: dict[str, fb.Model]) -> None:
    pairs, model = [("甲", "乙"), ("丙", "丁")], models["pair"]
    expected = model.predict(pairs)
    ways = [{"text": first, "text_pair": second} for first, second in pairs]
    for other in (zip(*zip(*pairs, strict=True), strict=True), np.array(pairs), iter(pairs), ways):
        assert model.predict(other) == expected
    for wrong in ([{"a": "甲", "b": "乙"}], [{"甲", "乙"}], ["甲乙"], [b"ab"], [None], [("甲", 2)], [("甲",)]):
        with pytest.raises(fb.InputError, match=r"^pair 0 is .* must be two strings"):
            model.predict(wrong)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a string": (lambda: "好吃", "one string"),
    "bytes": (lambda: b"ab", "bytes"),
    "None": (lambda: None, "was given None"),
    "a number": (lambda: 3, "was given an int"),
    "a path": (lambda: Path("a.csv"), "Path"),
    "a dict": (lambda: {"text": TEXTS}, "a dict with text"),
    "a set": (lambda: set(TEXTS), "a set, which has no order"),
    "a file": (lambda: io.StringIO("好吃\n"), "StringIO"),
    "an array without dimensions": (lambda: np.array("好吃"), "an ndarray"),
    "a frame of pandas": (lambda: pytest.importorskip("pandas").DataFrame({"text": TEXTS}), "a DataFrame with text"),
    "a frame of polars": (lambda: pytest.importorskip("polars").DataFrame({"text": TEXTS}), "a DataFrame with text"),
    "a dataset": (lambda: pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS}), "a Dataset with text"),
    "a number inside": (lambda: ["好吃", 3], "text 1 is of type int"),
    "nothing inside": (lambda: ["好吃", None], "text 1 is None"),
    "a missing value": (lambda: ["好吃", float("nan")], "text 1 .* missing value"),
    "bytes inside": (lambda: [b"ab"], "text 0 .* decode it first"),
    "a list inside": (lambda: [["好吃"]], "text 0 is of type list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_D1_what_is_no_list_of_texts_is_refused_by_name(name: str, models: dict[str, fb.Model]) -> None:
    make, told = WRONG[name]
    classifier, plain = models["classify"], models["plain"]
    asks: list[Callable[[Any], Any]] = [
        classifier.predict, plain.embed, classifier.tokenizer.encode_batch, lambda texts: plain.search(["好吃"], texts),
        lambda texts: plain.search(texts, ["好吃"]),
        lambda texts: plain.classify(texts, {"1": "好", "0": "坏"}, template="[MASK]：{text}"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(fb.InputError, match=told) as refused:
            ask(make())
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", [None, 3, b"ab", ["[MASK]"], {"text": "[MASK]"}])
def test_D1_a_verb_of_one_text_refuses_anything_else(wrong: Any, models: dict[str, fb.Model]) -> None:
    plain, classifier = models["plain"], models["classify"]
    asks = [plain.fill, plain.tokenizer.encode, classifier.explain]
    asks += [] if isinstance(wrong, list) else [classifier.attention]  # a list of one text
    asks += [] if isinstance(wrong, bytes) else [plain.tokenizer.decode]  # ids from 0 to 255
    for ask in asks:
        with pytest.raises(fb.InputError, match=r"but takes|but must be"):
            ask(wrong)


def test_D1_keys_of_an_index_stand_by_their_place() -> None:
    from filbert.infer.search import Index

    column = pytest.importorskip("pandas").Series(["a", "b"], index=[1, 0])  # whose [0] is its second
    assert Index([[1.0, 0.0], [0.0, 1.0]], column).search([[1.0, 0.0]], 1)[0][0].key == "a"
    assert len(Index([[1.0], [2.0]], iter("ab"))) == 2


# D3 -------------------------------------------------------------------------------------------------------------------

OPENED: list[str] = []
LISTENING: list[bool] = []


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The files that are opened while a test goes on; a hook cannot be taken away, so it is made once."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and LISTENING and LISTENING[-1]:
            OPENED.append(str(arguments[0]))

    if not LISTENING:
        sys.addaudithook(hook)
    LISTENING.append(True)
    OPENED.clear()
    yield OPENED
    LISTENING.append(False)


def test_D3_no_file_is_opened_by_a_second_call(models: dict[str, fb.Model], opened: list[str]) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: models["classify"].predict(TEXTS), lambda: models["embed"].embed(TEXTS),
        lambda: models["plain"].embed(TEXTS), lambda: models["plain"].fill("[MASK]水"),
        lambda: models["pair"].predict([("甲", "乙")]),
    ]  # fmt: skip
    for call in calls:
        call()
        opened.clear()
        call()
        assert opened == []


@pytest.mark.parametrize("task", ["classify", "embed"])
def test_D3_a_folder_that_changes_keeps_answering_as_it_was_loaded(task: str, folders: Kept, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders[task] / "model", tmp_path / "model"))
    model = fb.load(folder)
    path = folder / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_length": 3, "overlap": 0, "task": "tag"}))
    before, long = fb.load(folders[task]), ["球队赢了比赛" * 5]
    if task == "embed":
        np.testing.assert_array_equal(model.embed(long), before.embed(long))
    else:
        assert model.predict(long) == before.predict(long)
    shutil.rmtree(folder)
    assert len(model.embed(long)) == 1


def test_D3_a_reading_is_not_answered_for_another_task(models: dict[str, fb.Model]) -> None:
    asked = models["classify"].reading("classify", ["task.max_length=16"])
    with pytest.raises(fb.InputError, match="for classify, not for pair"):
        asked.predict(TEXTS, task="pair")


# D4 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [123, None, b"folder", ["folder"], ""])
def test_D4_what_is_no_folder_is_refused_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(fb.InputError, match=r'^the model is .* must be the path of a folder or of a run, or "builtin"'):
        fb.load(wrong)
    with pytest.raises(fb.InputError, match=r"^the vocabulary is "):
        fb.Tokenizer.load(wrong)


@pytest.mark.parametrize("field", ["device", "dtype", "runtime"])
def test_D4_an_option_of_load_is_refused_in_one_sentence(field: str, tiny_folder: Path) -> None:
    with pytest.raises(fb.InputError, match=f"^{field} is 3, but must be one of"):
        fb.load(tiny_folder, **{field: 3})


def test_D4_the_advice_names_the_verb_that_was_called(models: dict[str, fb.Model]) -> None:
    with pytest.raises(fb.InputError, match=r"write predict\(\[text\]\)"):
        models["classify"].predict("好吃")
    with pytest.raises(fb.InputError, match=r"write embed\(\[text\]\)"):
        models["classify"].embed("好吃")
    with pytest.raises(fb.InputError, match=r"write predict\(\[\(first, second\)\]\)"):
        models["pair"].predict("好吃")
