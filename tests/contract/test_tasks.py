"""Every task that the registry finds, those of other packages too, keeps what its record promises: eight examples each.

A tiny model learns the eight by heart once; what follows is asked of that folder as a user would ask it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.doctor.diagnosis import examine
from filbert.doctor.mending import LIST, mended
from filbert.engine.reader import TASK
from filbert.folder.folder import load, save
from filbert.nn.attention import batch_tensors
from filbert.nn.torch_ops import TorchHost
from filbert.run.finetune import finetune
from filbert.tasks.task import AnyItems, Trait
from filbert.tasks.view import View
from filbert.tasks.wire import Wire
from filbert.train.step import LossModule
from kit import samples
from kit.models import small_bert

ALL = samples.sampled()
LEARNT = [each for each in ALL if not isinstance(each, str) or each in samples.learning()]
READING = [each for each in LEARNT if not isinstance(each, str) or not samples.writes(each)]
WRITING = [each for each in LEARNT if isinstance(each, str) and samples.writes(each)]
HERE = ("machine.threads=1", "machine.device=cpu", "train.batch_tokens=2048")
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Learnt:
    """A task that a tiny model knows by heart."""

    task: str
    folder: Path
    examples: list[Example]
    model: fb.Model
    losses: tuple[float, float]  # of the first step, and of the examples at the end

    @property
    def asked(self) -> list[Any]:
        """The examples as `predict` takes them."""
        return [registry.task(self.task).unasked(example) for example in self.examples]

    @property
    def items(self) -> AnyItems:
        """The examples as the folder reads them."""
        return self.model.reader(self.task).items(self.examples)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT that knows every character of the samples, and has learnt nothing."""
    model = small_bert(samples.tokenizer(), ("pooler", "mlm", "nsp"), noise=0.02)
    return save(tmp_path_factory.mktemp("start") / "model", model, samples.tokenizer())


@pytest.fixture(scope="session")
def learnt(request: pytest.FixtureRequest, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """The task of that name, learnt by heart; one that cannot be learnt is asked as it is."""
    task: str = request.param
    sample, home = samples.sample(task), tmp_path_factory.mktemp(task)
    assert sample is not None
    examples = samples.examples(task, home)
    if not registry.task(task).can_learn:
        return Learnt(task, start, examples, fb.load(start, device="cpu"), (1.0, 0.0))
    fields = [f"task.{name}={value}" for name, value in sample.settings.items()]
    steps = [f"train.{name}={sample.steps}" for name in ("steps", "evaluate_every", "checkpoint_every")]
    settings = [*HERE, *fields, *steps, f"train.learning_rate={sample.rate}"]
    done = finetune(task, examples, start, home / "run", dev=examples, settings=settings, quiet=True)
    lines = [json.loads(line) for line in (home / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    first = next(line["loss"] for line in lines if "loss" in line and line.get("step") == 1)
    model = fb.load(home / "run", device="cpu")
    return Learnt(task, home / "run/model", examples, model, (first, done.best["loss"]))


def assert_same(one: object, two: object, within: float = 1e-4) -> None:
    """Nested numbers, arrays and records."""
    if isinstance(one, torch.Tensor | np.ndarray | float):
        np.testing.assert_allclose(np.asarray(one), np.asarray(two), atol=within, rtol=within)
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        assert type(one) is type(two)
        for each in dataclasses.fields(one):
            assert_same(getattr(one, each.name), getattr(two, each.name), within)
    elif isinstance(one, Mapping):
        assert isinstance(two, Mapping)
        assert list(one) == list(two)
        assert_same(list(one.values()), list(two.values()), within)
    elif isinstance(one, Sequence) and not isinstance(one, str):
        assert isinstance(two, Sequence)
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            assert_same(first, second, within)
    else:
        assert one == two


# The record -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def light() -> dict[str, bool]:
    """Which tasks' records, each imported behind the others, have brought torch."""
    program = (
        "import json, sys\nfrom filbert.core import registry\nbrought = {}\n"
        "for name in registry.members('tasks'):\n"
        "    registry._spec('tasks', name)\n    brought[name] = 'torch' in sys.modules\n"
        "print(json.dumps(brought))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, bool] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.members("tasks"))
def test_a_record_brings_no_torch(name: str, light: dict[str, bool]) -> None:
    assert not light[name]


@pytest.mark.parametrize("name", ALL)
def test_a_record_answers_what_it_is_asked(name: str) -> None:
    """What a card, a published folder and a server ask of it."""
    spec, sample = registry.task(name), samples.sample(name)
    assert sample is not None
    config = spec.config(**sample.settings)
    assert spec.card(("a", "b"))
    assert spec.card(("a", "b"))[0].isupper()
    assert spec.problem(config) in (None, *spec.problems, "single_label_classification", "regression")
    assert isinstance(spec.wire, Wire)
    assert {*spec.kept} <= {each.name for each in dataclasses.fields(spec.config)}
    assert {*spec.idle(config)} <= {each.name for each in dataclasses.fields(spec.config)}
    assert {*spec.problems} <= {"multi_label_classification", "single_label_classification", "regression"}
    assert Trait.USUAL not in spec.traits or spec.can_learn
    assert not (spec.can_learn and not spec.part and not spec.pools)
    assert spec.files().roles


@pytest.mark.parametrize("name", ALL)
def test_an_example_is_asked_as_it_is_read(name: str, tmp_path: Path) -> None:
    """A row of a file, as `predict` takes it, is the same example again, without gold."""
    spec, examples = registry.task(name), samples.examples(name, tmp_path)
    assert len(examples) == 8
    if spec.asked is not None:
        again = spec.asked([spec.unasked(example) for example in examples])
        assert [each.texts for each in again] == [each.texts for each in examples]
    assert all(isinstance(label, str) for example in examples for label in spec.gold_names(example))
    for example in examples:
        spec.gold_label(example)


# Files ----------------------------------------------------------------------------------------------------------------


def complaints(path: Path, task: str) -> list[tuple[int, str]]:
    """What the doctor says is wrong, by line; of eight rows it says anyway that they are few."""
    return [(each.line, each.message) for each in examine([path], task) if each.severity != "note"]


@pytest.mark.parametrize("name", ALL)
def test_the_doctor_finds_and_repairs_a_fault(name: str, tmp_path: Path) -> None:
    sample, files = samples.sample(name), registry.files(name)
    assert sample is not None
    path = samples.written(tmp_path / "train.jsonl", *sample.rows, sample.fault)
    healthy = complaints(samples.written(tmp_path / "right.jsonl", *sample.rows), files.task)
    found = [each for each in complaints(path, files.task) if each not in healthy]
    assert {line for line, _ in found} == {9}
    done = mended([path], tmp_path / "out", files.task)
    listed = [json.loads(line) for line in (tmp_path / "out" / LIST).read_text(encoding="utf-8").splitlines()]
    assert [each["line"] for each in listed] == [9]
    assert sample.repair in listed[0]["what"]
    right = [*sample.rows, *([] if sample.repaired is None else [sample.repaired])]
    wanted = samples.read(samples.written(tmp_path / "right.jsonl", *right), name)
    copied = samples.read(Path(done.files[0]), name)
    assert [(each.texts, each.gold) for each in copied] == [(each.texts, each.gold) for each in wanted]
    assert not [each for each in complaints(Path(done.files[0]), files.task) if each[0] == 9 and each in found]
    if sample.repaired is None:
        assert complaints(Path(done.files[0]), files.task) == healthy


# Learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("learnt", LEARNT, indirect=True)
def test_eight_examples_are_learnt_by_heart(learnt: Learnt) -> None:
    first, last = learnt.losses
    assert last < 0.05
    assert first > 4 * last


@pytest.mark.slow
@pytest.mark.parametrize("learnt", LEARNT, indirect=True)
def test_what_is_right_scores_perfectly(learnt: Learnt) -> None:
    """In the metrics of a file that a user evaluates, and on the page: no mistakes."""
    sample = samples.sample(learnt.task)
    assert sample is not None
    report = json.loads((learnt.folder.parent / "report.json").read_text(encoding="utf-8"))["evaluations"]["dev"]
    assert {metric: pytest.approx(report[metric], abs=1e-6) for metric in sample.perfect} == dict(sample.perfect)
    raw = learnt.model.engine.answers(learnt.items)
    view = registry.task(learnt.task).view(learnt.items, raw, learnt.items.evaluated(raw))
    assert isinstance(view, View)
    assert list(view.mistakes()) == []
    json.dumps([{key: list(beaten.scores)} for key, beaten in view.simple().items()])
    assert all(view.shown(place) for place in range(8))


@pytest.mark.slow
@pytest.mark.parametrize("learnt", LEARNT, indirect=True)
def test_a_folder_keeps_the_fields_of_its_task(learnt: Learnt) -> None:
    sample, spec = samples.sample(learnt.task), registry.task(learnt.task)
    assert sample is not None
    saved = json.loads((learnt.folder / TASK).read_text(encoding="utf-8"))
    assert saved.pop("task") == learnt.task
    assert {*saved} <= {*spec.kept}
    config = vars(learnt.model.reader().config)
    for field, value in sample.settings.items():
        if field in spec.kept:
            assert saved[field] == config[field] == value
    assert learnt.model.reader().spec is spec
    assert learnt.model.reader().config == spec.config(**saved)


@pytest.mark.slow
@pytest.mark.parametrize("learnt", ALL, indirect=True)
def test_a_record_comes_back_from_json(learnt: Learnt) -> None:
    spec = registry.task(learnt.task)
    reader = learnt.model.reader(learnt.task)
    for example, prediction in zip(learnt.examples, learnt.model.predict(learnt.asked, task=learnt.task), strict=True):
        for top in (None, 1):
            record = reader.record(example, prediction, top)
            assert json.loads(json.dumps(record, ensure_ascii=False, allow_nan=False)) == record
            assert record["coverage"] == 1.0
            assert record["line"] == example.line
            assert [record[called] for called in spec.texts[: len(example.texts)] if called in record]


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("learnt", ALL, indirect=True)
def test_packed_is_as_one_by_one(learnt: Learnt) -> None:
    """What the head says of each, in whatever order and company; a pack that is filled up has the same losses."""
    items, host = learnt.model.reader(learnt.task).items(learnt.examples), TorchHost(learnt.model.backbone)
    order = np.array([3, 0, 7, 5, 1, 6, 2, 4])
    with torch.inference_mode():
        alone = [items.raw(host, batch_tensors(items.batch(np.array([each])), "cpu"))[0] for each in order]
        together = items.raw(host, batch_tensors(items.batch(order), "cpu"))
        assert_same(list(together), alone)
        if registry.task(learnt.task).can_learn:
            plain, filled = (
                items.loss(host.model, batch_tensors(items.batch(order, size), "cpu")) for size in (None, 1_024)
            )
            assert {name: float(term.total) for name, term in filled.items()} == pytest.approx(
                {name: float(term.total) for name, term in plain.items()}, abs=1e-3
            )


@pytest.mark.slow
@pytest.mark.parametrize("learnt", LEARNT, indirect=True)
def test_a_loss_that_says_so_is_one_graph(learnt: Learnt) -> None:
    """Traced as a GPU run compiles it, with batches of two sizes; the losses stay the same, and have gradients."""
    items, model = learnt.items, load(learnt.folder).model
    if not items.one_graph:
        pytest.skip("some of its loss stays outside of a compiled graph")
    module = LossModule(model.train(), items)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    for order in (np.arange(8), np.array([5, 0, 2])):
        batch = batch_tensors(items.batch(order, 1_024), "cpu")
        losses = []
        for run in (module, compiled):
            torch.manual_seed(0)
            terms = run(batch)
            sum(total for name, (total, _) in terms.items() if name.endswith("_loss")).backward()
            losses.append({name: float(total.detach()) for name, (total, _) in terms.items()})
        assert losses[1] == pytest.approx(losses[0], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("learnt", READING, indirect=True)
def test_without_torch_a_folder_says_the_same(learnt: Learnt, tmp_path: Path) -> None:
    """The head in NumPy on the encoder in ONNX."""
    pytest.importorskip("onnxruntime")
    without = fb.load(fb.export(learnt.folder, tmp_path / "shipped")[0], runtime="onnx")
    asked = learnt.asked
    for one, two in zip(
        learnt.model.predict(asked, task=learnt.task), without.predict(asked, task=learnt.task), strict=True
    ):
        assert_same(one, two, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("learnt", WRITING, indirect=True)
def test_a_writer_is_not_shipped_without_torch(learnt: Learnt, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="goes to ONNX"):
        fb.export(learnt.folder, tmp_path / "shipped")


@pytest.mark.slow
@pytest.mark.parametrize("learnt", ALL, indirect=True)
def test_places_slice_the_text(learnt: Learnt) -> None:
    """Those of all tokens, which leave out white space alone, and those of every stretch in an answer."""
    items = learnt.model.reader(learnt.task)
    for example, prediction in zip(learnt.examples, learnt.model.predict(learnt.asked, task=learnt.task), strict=True):
        of_one = items.items([example])
        places = of_one.origins(example)
        assert len(places) == len(of_one.tokens)
        rows = of_one.sources(np.zeros(1, dtype=np.int64))
        assert np.array_equal(np.unique(rows[rows >= 0]), np.arange(len(of_one.tokens)))  # every token is read
        for side, text in enumerate(example.texts):
            own = places[places[:, 0] == side]
            read = "".join(text[start:end] for _, start, end in np.unique(own, axis=0))
            assert read == "".join(text.split())
        slices = [text[span.start : span.end] for span in prediction.spans for text in example.texts[-1:]]
        assert all(slices)


@pytest.mark.slow
@pytest.mark.parametrize("learnt", READING, indirect=True)
def test_an_answer_can_be_explained(learnt: Learnt) -> None:
    """By what the model itself says: every word of the texts has a number, and some word matters."""
    told = learnt.model.explain(learnt.asked[0], task=learnt.task, certificate=False, budget=4_000)
    assert told.task == learnt.task
    assert told.target
    assert len(told.words) == len(told.scores) > 0
    assert all(word.text == told.texts[word.part][word.start : word.end] for word in told.words)
    assert np.isfinite(told.scores).all()
    assert np.abs(told.scores).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("learnt", WRITING, indirect=True)
def test_a_writer_refuses_to_be_explained(learnt: Learnt) -> None:
    with pytest.raises(InputError, match="writes texts"):
        learnt.model.explain("你好。")


def test_every_task_of_ours_has_a_sample() -> None:
    assert {*registry.tasks()} - {*registry.outside_tasks()} == samples.SAMPLES.keys()
