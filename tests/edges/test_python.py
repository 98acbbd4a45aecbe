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
from filbert.core.records import Example, Span
from filbert.forms import sources
from filbert.run.distill import Wish, distill
from filbert.run.evaluate import evaluate
from filbert.run.pretrain import pretrain
from filbert.run.recipe import Recipe
from filbert.text.streams import Reading
from filbert.train import listeners, loop

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


@pytest.mark.slow
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


@pytest.mark.slow
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
    from filbert.engine.neighbours import Index

    column = pytest.importorskip("pandas").Series(["a", "b"], index=[1, 0])  # whose [0] is its second
    assert Index([[1.0, 0.0], [0.0, 1.0]], column).search([[1.0, 0.0]], 1)[0][0].key == "a"
    assert len(Index([[1.0], [2.0]], iter("ab"))) == 2


# D2 -------------------------------------------------------------------------------------------------------------------

NAMED = [{"text": text, "label": label} for text, label in ROWS]
CLASSES = ["health", "sport"]


def frame(columns: Any = ("text", "label"), package: str = "pandas") -> Any:
    found = pytest.importorskip("pandas").DataFrame(ROWS, columns=list(columns))
    return found if package == "pandas" else pytest.importorskip(package).from_pandas(found)


def dataset() -> Any:
    """With its labels as numbers that have names, as datasets are published."""
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=CLASSES)})
    columns = {"text": [text for text, _ in ROWS], "label": [CLASSES.index(label) for _, label in ROWS]}
    return datasets.Dataset.from_dict(columns, features=kinds)


def arrow() -> Any:
    return pytest.importorskip("pyarrow").table({"text": [t for t, _ in ROWS], "label": [own for _, own in ROWS]})


SOURCES: dict[str, Callable[[], Any]] = {
    "tuples": lambda: ROWS,
    "a tuple of tuples": lambda: tuple(ROWS),
    "lists": lambda: [list(row) for row in ROWS],
    "dicts": lambda: NAMED,
    "a generator of tuples": lambda: (row for row in ROWS),
    "a generator of dicts": lambda: (row for row in NAMED),
    "zip": lambda: zip(*zip(*ROWS, strict=True), strict=True),
    "a dict of columns": lambda: {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]},
    "an array": lambda: np.array(ROWS),
    "examples": lambda: [Example((text,), label) for text, label in ROWS],
    "a generator of examples": lambda: (Example((text,), label) for text, label in ROWS),
    "pandas": frame,
    "pandas without names": lambda: frame((0, 1)),
    "rows of pandas": lambda: frame().itertuples(),
    "polars": lambda: frame(package="polars"),
    "rows of polars": lambda: frame(package="polars").iter_rows(),
    "a dataset": dataset,
    "a part of a dataset": lambda: dataset().to_iterable_dataset(),
    "a table of pyarrow": arrow,
}


def read(source: Any, task: str = "classify", **more: Any) -> list[Example]:
    return sources.read(task, source, sources.ReadOptions(**more))


@pytest.mark.parametrize("kind", SOURCES)
def test_D2_labelled_rows_are_read_from_whatever_holds_them(kind: str) -> None:
    found = read(SOURCES[kind]())
    assert [(example.texts, example.gold) for example in found] == [((text,), label) for text, label in ROWS]


@pytest.mark.slow
def test_D2_rows_train_measure_and_resume(tiny_folder: Path, tmp_path: Path) -> None:
    settings = {**FAST, "train.steps": 6}
    done = fb.finetune("classify", (row for row in NAMED), tiny_folder, tmp_path / "run", dev=iter(ROWS),
                       test=frame(), settings=settings, quiet=True)  # fmt: skip
    assert done.labels == ("health", "sport")
    assert {name: each["num_examples"] for name, each in done.report["evaluations"].items()} == {"dev": 8, "test": 8}
    whole = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    told = evaluate(done.model, dataset(), train=iter(ROWS))
    assert told["accuracy"] == evaluate(tmp_path / "run", ROWS)["accuracy"]
    assert told["leaks"]["num"] == 8  # the training rows were read as well

    class Stops(listeners.Silent):
        def step(self, entry: Any) -> None:
            if entry["step"] == 3:
                raise KeyboardInterrupt

    def again(rows: Any, **more: Any) -> None:
        more = {"settings": {**settings, "train.checkpoint_every": 2}, "quiet": True, **more}
        fb.finetune("classify", rows, tiny_folder, tmp_path / "cut", dev=ROWS, **more)

    with pytest.raises(KeyboardInterrupt):
        again(ROWS, listener=Stops())
    with pytest.raises(fb.FilbertError, match="data"):  # other rows are another run
        again([(f"{text}。", label) for text, label in ROWS], resume=True)
    again(frame(), resume=True)  # the same rows in another holder are not
    assert (tmp_path / "cut" / "model" / "model.safetensors").read_bytes() == whole


@pytest.mark.slow
def test_D2_rows_are_compared_on_and_distilled_from(folders: Kept, tmp_path: Path) -> None:
    from filbert.run.compare import Contest, compare

    def contest(rows: Any) -> Contest:
        fields = ("train.steps=1", "train.batch_tokens=256", "machine.threads=1")
        return Contest(task="classify", train=rows, test=frame(), models=(str(folders["classify"]),), settings=fields)

    found = compare(contest(iter(ROWS)), tmp_path / "compared")
    assert compare(contest(frame()), tmp_path / "compared")["rows"] == found["rows"]  # kept: the rows are the same
    with pytest.raises(fb.InputError, match="of another comparison"):
        compare(contest([*ROWS[1:], ("球队输了", "sport")]), tmp_path / "compared")
    words = ["train.steps=1", "train.batch_tokens=256", "machine.threads=1"]
    unlabelled = [(text,) for text, _ in ROWS]
    wish = Wish(layers=1)
    done = distill(fb.load(folders["classify"]), iter(unlabelled), tmp_path / "small", wish, settings=words, quiet=True)
    assert done.labels == ("health", "sport")


TAGGED = [{"start": np.int64(0), "end": 2, "label": "LOC"}]


@pytest.mark.parametrize(
    ("task", "row", "gold"),
    [
        ("tag", ("北京很大", [(0, 2, "LOC")]), (Span(0, 2, "LOC"),)),
        ("tag", {"text": "北京很大", "entities": TAGGED}, (Span(0, 2, "LOC"),)),
        ("pair", ("甲", "乙", 1), "1"),
        ("embed", ("甲", "乙"), None),
        ("relation", ("张三在北京", "张三", "北京", "住"), "住"),
        ("relation", ("张三在北京", (0, 2), (3, 5), "住"), "住"),
        ("answer", ("谁在北京", "张三在北京", "张三"), "张三"),
        ("choose", ("文", "问", ["甲", "乙"], 1), 1),
        ("translate", ("甲", "a"), "a"),
        ("classify", ("甲", {"b", "a"}), ("a", "b")),
        ("classify", ("甲",), None),
        ("classify", {"text": "甲", "label": float("nan")}, None),
    ],
)
def test_D2_every_task_reads_its_rows(task: str, row: Any, gold: Any) -> None:
    found = read([row], task)[0]
    told = found.gold.label if task == "relation" else found.gold[0].text if task == "answer" else found.gold
    assert told == gold
    assert all(type(text) is str for text in found.texts)


def test_D2_columns_are_named_as_of_files(folders: Kept) -> None:
    other = [{"评": text, "分": label} for text, label in ROWS]
    assert read(other, columns={"text": "评", "label": "分"})[0].gold == "sport"
    assert read([row[::-1] for row in ROWS], columns={"text": 2, "label": 1})[0].texts == (ROWS[0][0],)
    late = [{"text": "甲"}, {"text": "乙", "label": "1"}]  # the columns of all rows
    with pytest.raises(fb.InputError, match=r"row 1: has a label, but rows before it have none"):
        read(late)


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "the data is None, but must be a file, or rows"),
    "a number": (lambda: 3, "the data is an int"),
    "bytes": (lambda: b"ab", "the data is a bytes"),
    "an empty string": (lambda: "", "the data is ''"),
    "an open file": (lambda: io.StringIO("a,b"), "StringIO.*; give its path"),
    "one example": (lambda: Example(("a",)), "the data is an Example"),
    "a set": (lambda: set(ROWS), "no order"),
    "a text": (lambda: "好吃", "好吃: there is no such file"),
    "texts": (lambda: ["好吃", "难吃"], r"好吃: there is no such file; a string in a list .* \(text,\)"),
    "a column": (lambda: frame()["text"], "a string in a list names a file"),
    "texts and labels": (lambda: (["a", "b"], ["1", "0"]), r"list\(zip\(texts, labels\)\)"),
    "several sets": (
        lambda: pytest.importorskip("datasets").DatasetDict(train=dataset()),
        r"give one: data\['train'\]",
    ),
    "a lazy frame": (lambda: frame(package="polars").lazy(), r"LazyFrame, .* collect\(\)"),
    "one row": (lambda: {"text": "好吃", "label": "1"}, r"one row is \[\{…\}\]"),
    "columns of two lengths": (lambda: {"text": ["a", "b"], "label": ["1"]}, "text has 2, label has 1"),
    "a column twice": (lambda: frame(("text", "text")), "the column 'text' stands twice"),
    "rows of two lengths": (lambda: [*ROWS, ("a", "b", "c")], "row 8: has 3 values, but row 0 has 2"),
    "rows of two kinds": (lambda: [*ROWS, NAMED[0]], "row 8: is a dict, but row 0 is a tuple"),
    "a path among rows": (lambda: [*ROWS, "a.csv"], "row 8: .* names a file"),
    "something else": (lambda: [object()], "row 0: is an object"),
    "a number for a text": (lambda: [*ROWS, (3, "sport")], "row 8: the field '1' holds int"),
    "a missing text": (lambda: [*NAMED, {"label": "sport"}], "row 8: the field 'text' is missing"),
    "a missing label": (lambda: [*ROWS, ("a", None)], "row 8: has no label, but rows before it have"),
    "labels of two types": (lambda: [*ROWS, ("a", 1)], "row 8: the label 1 is a number, but row 0 has text"),
    "unknown columns": (lambda: [{"a": "b"}], r"no column for the text of classify among a; name it: columns=\{'text'"),
    "too many columns": (lambda: [("a", "b", "c")], r"3 columns .* columns=\{'text': NUMBER, 'label': NUMBER\}"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_D2_what_cannot_be_read_is_refused_in_one_sentence(name: str) -> None:
    make, told = FAULTS[name]
    with pytest.raises(fb.InputError, match=told) as refused:
        read(make())
    assert "\n" not in str(refused.value)


def test_D2_an_unlabelled_class_is_no_label() -> None:
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=CLASSES)})
    assert read(datasets.Dataset.from_dict({"text": ["甲"], "label": [-1]}, features=kinds))[0].gold is None


def test_D2_what_reading_rows_passes_over_is_told(folders: Kept) -> None:
    reading = Reading()
    rows = [{**row, "id": place} for place, row in enumerate([*NAMED, {"text": "甲\0", "label": "sport"}])]
    sources.read("classify", rows, reading=reading)
    assert reading.report.remarks() == ["column id is passed over.", "1 NUL characters were removed."]
    told = evaluate(folders["classify"], rows)
    assert told["reading"] == {"data": [f"the data: {remark}" for remark in reading.report.remarks()]}


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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"train": None}, "^train is None, but must be a file, or rows"),
        ({"train": 3}, "^train is an int"),
        ({"dev": 3}, "^a share of 3 cannot be kept back"),
        ({"dev": b"ab"}, "^dev is a bytes"),
        ({"test": 3}, "^test is an int|^a share of 3"),
        ({"test": "20%"}, "kept back as dev alone"),
        ({"out": None}, "^out is None, but must be the path"),
        ({"out": 3}, "^out is of type int"),
        ({"model": 3}, "^the model is of type int"),
        ({"settings": "train.steps=3"}, "^settings is 'train.steps=3'"),
        ({"listener": 3}, "^listener is of type int, but must be a function"),
    ],
)
def test_D4_an_argument_of_finetune_is_refused_in_one_sentence(
    wrong: dict[str, Any], told: str, tiny_folder: Path, tmp_path: Path
) -> None:
    given = {"task": "classify", "train": ROWS, "model": tiny_folder, "out": tmp_path / "run", "quiet": True, **wrong}
    with pytest.raises(fb.InputError, match=told):
        fb.finetune(**given)
    assert not (tmp_path / "run" / "model").exists()


def test_D4_other_runs_refuse_what_they_do_not_know(folders: Kept, tmp_path: Path) -> None:
    with pytest.raises(fb.InputError, match="an argument of evaluate is 'colums'"):
        evaluate(folders["classify"], ROWS, colums={"text": 1})
    with pytest.raises(fb.InputError, match=r"^the data is None"):
        evaluate(folders["classify"], None)
    with pytest.raises(fb.InputError, match=r"^the model is None"):
        evaluate(None, ROWS)
    with pytest.raises(fb.InputError, match="distill has no argument 'sead'"):
        distill(folders["classify"], ROWS, tmp_path, Wish(layers=1), sead=1)


# D5 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_D5_listeners_are_added_to_the_log_and_the_report(tiny_folder: Path, tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    steps: list[int] = []

    class Counts(listeners.Silent):
        def step(self, entry: Any) -> None:
            steps.append(entry["step"])

    fb.finetune(
        "classify", ROWS, tiny_folder, tmp_path, dev=ROWS, settings=FAST, quiet=True, listener=[heard.append, Counts()]
    )
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    logged = [line for line in lines if "loss" in line]
    assert [line["step"] for line in logged] == steps == [1, 2]
    assert [entry["loss"] for entry in heard if "loss" in entry] == [line["loss"] for line in logged]
    assert [entry["held"] for entry in heard if "held" in entry] == [line["held"] for line in lines if "held" in line]
    assert [entry["event"] for entry in heard if "event" in entry] == [e["event"] for e in lines if "event" in e]
    assert all((tmp_path / name).exists() for name in ("report.html", "report.json"))


@pytest.mark.slow
def test_D5_pretraining_hears_and_writes_as_well(tiny_folder: Path, tmp_path: Path) -> None:
    from filbert.corpus import shards
    from filbert.models import bert
    from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec

    (tmp_path / "a.txt").write_text(
        "今天天气很好。我们去公园散步。\n\n火车站就在前面。走五分钟就到。\n", encoding="utf-8"
    )
    words = fb.Tokenizer.load(tiny_folder)
    corpus = shards.build(str(tmp_path / "a.txt"), words, tmp_path / "shards", shards.Options(held=0.0), workers=1)
    shape = bert.Config(vocab_size=words.vocab_size, width=32, layers=1, heads=2, inner=64, max_length=64)
    recipe = Recipe(model=shape, task=mlm_nsp_spec.Config(max_length=64), train=loop.Config(steps=2, batch_tokens=128))
    heard: list[dict[str, Any]] = []
    pretrain(corpus, words, recipe, tmp_path / "run", listener=heard.append, quiet=True)
    assert [entry["step"] for entry in heard if "loss" in entry] == [1, 2]
    assert (tmp_path / "run" / "report.html").exists()
    assert '"loss"' in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")
