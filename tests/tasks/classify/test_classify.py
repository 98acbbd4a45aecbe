"""Classification: packed as one by one, windows as one decision, folders as transformers has them, runs that resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import collate
from filbert.run.evaluate import evaluate
from filbert.run.finetune import Finetuned, finetune
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.tasks.classify.decode import predictions
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from filbert.train import listeners, loop, machine
from filbert.train.step import on_device
from kit.files import labelled as file_of
from kit.models import small_bert
from kit.windows import mean_by_owned

LABELS = ("rail", "sea", "sky")
THREADS = "machine.threads=1"
WORDS = {"rail": "the train leaves the station", "sea": "a ship on the water", "sky": "clouds and the wind"}


def made(count: int = 8, long: bool = False) -> list[Example]:
    random = np.random.default_rng(0)
    found = []
    for index in range(count):
        label = LABELS[index % 3]
        words = WORDS[label].split()
        length = int(random.integers(1, 12)) * (9 if long and index % 2 else 1)
        text = " ".join([words[1], *random.choice(words, length)])
        found.append(Example((text,), label, index, "train.tsv", index + 1))
    return found


pytestmark = pytest.mark.usefixtures("one_thread")


def model_for(task: classify.Items, tokenizer: Tokenizer, dropout: float = 0.0) -> bert.Bert:
    return small_bert(tokenizer, task.parts, len(task.labels), dropout=dropout)


def scores(task: classify.Items, model: bert.Bert, indices: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return task.scores(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


# The task -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_packed_equals_one_by_one(tokenizer: Tokenizer, pool: str) -> None:
    config = classify_spec.Config(max_length=16, overlap=4, pool=pool)
    task = classify.Items(made(12, long=True), LABELS, tokenizer, config)
    assert len(task.cuts.first) > len(task) + 4  # some texts have several windows
    model = model_for(task, tokenizer)
    together = scores(task, model, list(range(12)))
    alone = torch.cat([scores(task, model, [index]) for index in range(12)])
    assert torch.allclose(together, alone, atol=1e-5)
    collated = on_device(collate([task.item(index, 0) for index in range(12)]), "cpu")
    filled = on_device(task.batch(np.arange(12), 2_048), "cpu")
    assert filled.packed.num_tokens == 2_048
    with torch.inference_mode():
        assert torch.allclose(task.scores(TorchHost(model), collated), together, atol=1e-5)
        assert torch.allclose(task.scores(TorchHost(model), filled), together, atol=1e-5)


def test_windows_are_those_of_the_one_rule(tokenizer: Tokenizer) -> None:
    examples = made(6, long=True)
    task = classify.Items(examples, LABELS, tokenizer, classify_spec.Config(max_length=16, overlap=4))
    for index, example in enumerate(examples):
        wanted = encode_windows(tokenizer, example.texts[0], None, 16, 4)
        item = task.item(index, 0)
        assert [s.ids.tolist() for s in item.sequences] == [w.ids.tolist() for w in wanted]
        owned = [np.flatnonzero(w.owned) for w in wanted]
        assert item.targets["owned"][:, :2].tolist() == [[places[0], places[-1] + 1] for places in owned]
    assert task.lengths.tolist() == [sum(len(s) for s in task.item(i, 0).sequences) for i in range(6)]


def test_windows_of_a_text_are_one_decision(tokenizer: Tokenizer) -> None:
    """cls: the mean of the windows' scores by what each owns; mean: the head on the very vector that embed gives."""
    from filbert.engine.backend_torch import Engine
    from filbert.engine.model import OVERLAP, Model

    examples = made(6, long=True)
    for pool in ("mean", "cls"):
        task = classify.Items(
            examples, LABELS, tokenizer, classify_spec.Config(max_length=64, overlap=OVERLAP, pool=pool)
        )
        assert len(task.cuts.first) > len(task)
        model = model_for(task, tokenizer)
        found = scores(task, model, list(range(6))).numpy()
        head = model.heads["labels"]
        if pool == "mean":
            loaded = folders.Loaded(
                folder=Path(), model=model, kind="bert", labels=[], problem_type=None, fields={}, notes=[]
            )
            vectors = torch.as_tensor(
                Model(loaded, tokenizer, Engine(model)).embed([e.texts[0] for e in examples], pool="mean")
            )
            assert np.allclose(head(vectors).detach().numpy(), found, atol=1e-5)
            continue
        for example, row in zip(examples, found, strict=True):
            windows = encode_windows(tokenizer, example.texts[0], None, 64, OVERLAP)
            each = [classify.Items([example], LABELS, tokenizer, task.config).item(0, 0)]
            batch = on_device(collate(each), "cpu")
            with torch.inference_mode():
                window_scores = head(model.pooled(model(batch.packed, batch.starts))).numpy()
            assert np.allclose(mean_by_owned(windows, window_scores), row, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_eight_examples_are_learnt(tokenizer: Tokenizer, pool: str) -> None:
    config = classify_spec.Config(max_length=16, overlap=4, pool=pool, label_smoothing=0.05, consistency=0.5)
    task = classify.Items(made(long=True), LABELS, tokenizer, config)
    model = model_for(task, tokenizer, dropout=0.1)
    seen: list[Mapping[str, Any]] = []
    one = machine.Config(threads=1)
    loop.fit(model, task, loop.Config(steps=60, learning_rate=3e-3, batch_tokens=4096), seen.append, machine=one)
    assert seen[-1]["consistency_loss"] > 0
    assert seen[-1]["loss"] < seen[0]["loss"] / 2
    assert scores(task, model, list(range(8))).argmax(-1).tolist() == task.gold.tolist()


def test_hidden_tokens_are_only_hidden_while_learning(tokenizer: Tokenizer) -> None:
    hiding, plain = (classify_spec.Config(max_length=32, mask_prob=share) for share in (0.4, 0.0))
    task, other = (classify.Items(made(300), LABELS, tokenizer, config) for config in (hiding, plain))
    model = model_for(task, tokenizer)
    assert torch.equal(scores(task, model, list(range(300))), scores(other, model, list(range(300))))
    packed = on_device(task.batch(np.arange(300)), "cpu").packed
    learning = TorchHost(model.train())
    torch.manual_seed(1)
    hidden = task.read(learning, packed).ids
    special = (packed.ids == tokenizer.cls_id) | (packed.ids == tokenizer.sep_id)
    changed = hidden != packed.ids
    assert not (changed & special).any()
    assert (hidden[changed] == tokenizer.mask_id).all()
    count = int((~special).sum())
    assert abs(changed.sum().item() - 0.4 * count) < 4 * (0.24 * count) ** 0.5
    assert not torch.equal(task.read(learning, packed).ids, hidden)
    torch.manual_seed(1)
    assert torch.equal(task.read(learning, packed).ids, hidden)
    assert other.read(learning, packed) is packed
    assert task.read(TorchHost(model.eval()), packed) is packed


def test_two_runs_of_a_text_differ_by_their_masks_alone(tokenizer: Tokenizer) -> None:
    config = classify_spec.Config(max_length=32, mask_prob=0.3, consistency=1.0)
    task = classify.Items(made(9), LABELS, tokenizer, config)
    model = model_for(task, tokenizer).train()  # no dropout
    batch = on_device(task.batch(np.arange(9)), "cpu")
    assert task.loss(model, batch)["consistency_loss"].total.item() > 0
    unmasked = classify.Items(made(9), LABELS, tokenizer, classify_spec.Config(max_length=32, consistency=1.0))
    assert unmasked.loss(model, batch)["consistency_loss"].total.item() == 0


def test_every_parameter_learns_and_a_part_changes_nothing(tokenizer: Tokenizer) -> None:
    task = classify.Items(made(9), LABELS, tokenizer, classify_spec.Config(max_length=32, pool="cls"))
    model = model_for(task, tokenizer).train()
    whole = task.loss(model, on_device(task.batch(np.arange(9)), "cpu"))
    whole["label_loss"].total.backward()
    assert all(p.grad is not None for p in model.parameters())
    with torch.no_grad():
        batches = [on_device(task.batch(np.arange(a, b)), "cpu") for a, b in ((0, 4), (4, 9), (0, 9))]
        first, second, both = (float(task.loss(model, batch)["label_loss"].total) for batch in batches)
    assert first + second == pytest.approx(both, rel=1e-5)
    assert task.counts(task.batch(np.arange(9))) == {"label_loss": 9}


def test_smoothing_is_for_training_only(tokenizer: Tokenizer) -> None:
    plain, smooth = (
        classify.Items(made(), LABELS, tokenizer, classify_spec.Config(max_length=32, label_smoothing=share))
        for share in (0.0, 0.3)
    )
    model = model_for(plain, tokenizer)
    batch = on_device(plain.batch(np.arange(8)), "cpu")

    def loss(task: classify.Items) -> float:
        return float(task.loss(model, batch)["label_loss"].total.detach())

    assert loss(plain) == loss(smooth)
    model.train()
    assert loss(plain) != loss(smooth)


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_class_weights_are_torchs(tokenizer: Tokenizer, smoothing: float) -> None:
    """The weighted mean, also over a step in parts; only while the model trains."""
    data = [*made(9), Example(("unknown",), None, 9)]
    weights = {"rail": 3.0, "sky": 0.25}
    config = classify_spec.Config(max_length=32, class_weights="rail=3, sky=0.25", label_smoothing=smoothing)
    task = classify.Items(data, LABELS, tokenizer, config)
    model = model_for(task, tokenizer)
    given, gold = scores(task, model, list(range(10))), torch.as_tensor(task.gold)
    model.train()
    term = task.loss(model, on_device(task.batch(np.arange(10)), "cpu"))["label_loss"]
    weight = torch.tensor([weights.get(label, 1.0) for label in LABELS])
    wanted = F.cross_entropy(given, gold, weight, ignore_index=classify.NOTHING, label_smoothing=smoothing)
    assert float(term.total / term.count) == pytest.approx(float(wanted), rel=1e-5)
    counts = task.counts(task.batch(np.arange(10)))
    assert counts["label_loss"] == pytest.approx(float(term.count)) == 3 * (3 + 1 + 0.25)
    parts = [np.arange(0, 4), np.arange(4, 10)]
    split = [task.loss(model, on_device(task.batch(part), "cpu"))["label_loss"] for part in parts]
    assert sum(float(part.total) for part in split) == pytest.approx(float(term.total), rel=1e-5)
    assert sum(task.counts(task.batch(part))["label_loss"] for part in parts) == counts["label_loss"]
    model.eval()
    plain = task.loss(model, on_device(task.batch(np.arange(10)), "cpu"))["label_loss"]
    assert float(plain.total / plain.count) == pytest.approx(float(F.cross_entropy(given[:9], gold[:9])), rel=1e-5)


def test_balanced_weights_are_those_of_scikit_learn(tiny_folder: Path, tmp_path: Path) -> None:
    learn = pytest.importorskip("sklearn.utils.class_weight")
    data = [example for example in made(30) if example.gold != "sky" or example.id < 6]
    settings = ["task.class_weights=balanced", "train.steps=1", THREADS]
    finetune("classify", data, tiny_folder, tmp_path, settings=settings, quiet=True)
    said = json.loads(json.loads((tmp_path / "recipe.json").read_text())["task"]["class_weights"])
    wanted = learn.compute_class_weight("balanced", classes=np.array(LABELS), y=[example.gold for example in data])
    assert [said[label] for label in LABELS] == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rail", "must be balanced"),
        ("rail=-1", "must be balanced"),
        ("rail=x", "must be balanced"),
        ('{"rail": "x"}', "must be balanced"),
        ("{", "must be balanced"),
        ("rial=2", "Did you mean 'rail'"),
    ],
)
def test_wrong_class_weights_are_named(tokenizer: Tokenizer, words: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"task\.class_weights.*{message}"):
        classify.Items(made(3), LABELS, tokenizer, classify_spec.Config(class_weights=words))


def test_an_empty_text_and_an_unknown_label_can_be_scored(tokenizer: Tokenizer) -> None:
    task = classify.Items(
        [Example(("",)), Example(("a train",))], LABELS, tokenizer, classify_spec.Config(max_length=16)
    )
    assert task.gold.tolist() == [classify.NOTHING] * 2
    found = predictions(scores(task, model_for(task, tokenizer), [0, 1]).numpy(), LABELS)
    assert all(p.label in LABELS and sum(p.scores.values()) == pytest.approx(1) for p in found)
    assert found[0].coverage == 1.0
    assert next(iter(found[0].scores)) == found[0].label


def test_a_label_that_is_not_known_is_named_with_its_line(tokenizer: Tokenizer) -> None:
    wrong = [*made(2), Example(("x",), "seas", 2, "dev.tsv", 17)]
    with pytest.raises(InputError, match=r"dev\.tsv line 17: the label 'seas' is not one of .*Did you mean 'sea'"):
        classify.Items(wrong, LABELS, tokenizer, classify_spec.Config())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_length": 3},
        {"pool": "max"},
        {"label_smoothing": 1.0},
        {"mask_prob": 1.0},
        {"mask_prob": -0.1},
        {"consistency": -1.0},
        {"overlap": -1},
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        classify_spec.Config(**wrong)


# Folders --------------------------------------------------------------------------------------------------------------


def test_a_cls_folder_is_a_transformers_classifier(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = classify.Items(made(), LABELS, tokenizer, classify_spec.Config(max_length=32, pool="cls"))
    model = model_for(task, tokenizer)
    folders.save(tmp_path / "model", model, tokenizer, labels=LABELS)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert type(theirs).__name__ == "BertForSequenceClassification"
    assert theirs.config.id2label == dict(enumerate(LABELS))
    for index in range(8):
        ids = torch.as_tensor(task.item(index, 0).sequences[0].ids)[None].long()
        with torch.inference_mode():
            assert torch.allclose(theirs(ids).logits, scores(task, model, [index]), atol=1e-5)


def test_a_mean_folder_is_never_taken_for_another_head(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = classify.Items(made(), LABELS, tokenizer, classify_spec.Config(max_length=32))
    model = model_for(task, tokenizer)
    folders.save(tmp_path / "model", model, tokenizer, labels=LABELS)
    again = folders.load(tmp_path / "model")
    assert again.model.parts == ("labels",)
    assert again.labels == list(LABELS)
    assert torch.equal(scores(task, again.model, [0, 1, 2]), scores(task, model, [0, 1, 2]))
    for kind in ("AutoModelForSequenceClassification", "AutoModelForTokenClassification"):
        _, info = getattr(transformers, kind).from_pretrained(tmp_path / "model", output_loading_info=True)
        assert {"classifier.weight", "classifier.bias"} <= set(info["missing_keys"])  # it says so, and starts afresh
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    batch = on_device(task.batch(np.array([0])), "cpu")
    with torch.inference_mode():
        assert torch.allclose(encoder(batch.packed.ids[None]).last_hidden_state[0], model(batch.packed), atol=1e-5)


# Runs -----------------------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


class Stops(listeners.Silent):
    """Ends the run at a step, as if the machine had failed."""

    def __init__(self, at: int) -> None:
        self.at = at

    def step(self, entry: Mapping[str, Any]) -> None:
        if entry["step"] == self.at:
            raise Killed


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_has_the_same_weights(tiny_folder: Path, tmp_path: Path) -> None:
    words = [
        "train.batch_tokens=64",
        "train.checkpoint_every=4",
        "model.dropout=0.1",
        "task.consistency=0.5",
        "task.mask_prob=0.2",
        THREADS,
    ]
    data = {"dev": made(9), "settings": words, "epochs": 5, "seed": 3}

    def finetuned(out: str, **more: Any) -> Finetuned:
        return finetune("classify", made(24), tiny_folder, tmp_path / out, **data, **more)

    whole = finetuned("whole", quiet=True)
    with pytest.raises(Killed):
        finetuned("cut", listener=Stops(whole.outcome.state.step // 2 + 1), quiet=True)
    with pytest.raises(InputError, match="go on with --resume"):
        finetuned("cut", quiet=True)
    with pytest.raises(InputError, match="another train"):
        finetune("classify", made(24), tiny_folder, tmp_path / "cut", resume=True, **{**data, "seed": 4})
    with pytest.raises(InputError, match="another data"):
        finetune("classify", made(21), tiny_folder, tmp_path / "cut", resume=True,
                     **{**data, "settings": [*words, f"train.steps={whole.outcome.state.step}"]})  # fmt: skip
    resumed = finetuned("cut", quiet=True, resume=True)
    assert resumed.best == whole.best
    one, two = (tmp_path / out / "model" / "model.safetensors" for out in ("whole", "cut"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_the_best_state_is_what_is_kept(tiny_folder: Path, tmp_path: Path) -> None:
    dev = made(12)
    words = ["train.batch_tokens=64", "train.learning_rate=0.02", THREADS]
    done = finetune("classify", made(24), tiny_folder, tmp_path, dev=dev, settings=words, epochs=4, quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    held = [line["held"]["accuracy"] for line in lines if "held" in line]
    assert len(held) == 4
    assert done.best["accuracy"] == max(held)
    told = evaluate(tmp_path, dev, threads=1)
    assert told["accuracy"] == pytest.approx(max(held))
    assert told["loss"] == pytest.approx(done.best["label_loss"], rel=1e-4)
    assert (tmp_path / "report.html").exists()
    assert json.loads((tmp_path / "recipe.json").read_text())["start"] == str(tiny_folder)


@pytest.mark.slow
def test_a_run_begins_with_the_encoder_of_the_folder(tiny_folder: Path, tmp_path: Path) -> None:
    words = ["train.steps=1", "train.learning_rate=1e-30", THREADS]
    first = folders.load(tiny_folder).model.state_dict()
    for pool, scratch in (("cls", False), ("mean", False), ("mean", True)):
        out = tmp_path / f"{pool}{scratch}"
        given = {"settings": [*words, f"task.pool={pool}"], "scratch": scratch, "quiet": True}
        finetune("classify", made(), tiny_folder, out, **given)
        found = folders.load(out).model
        assert found.parts == (("pooler", "labels") if pool == "cls" else ("labels",))
        for name, value in found.state_dict().items():
            same = name in first and torch.allclose(value, first[name])
            assert same is (not scratch and not name.startswith("heads.")) or value.ndim == 1, name
        assert 0.01 < float(found.heads["labels"].weight.detach().std()) < 0.03


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.max_length=500"], "reads at most 64"),
        (["model.width=8"], "model.width is fixed"),
        (["task.pol=cls"], "Did you mean 'pool'"),
    ],
)
def test_wrong_settings_are_named(tiny_folder: Path, tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        finetune("classify", made(), tiny_folder, tmp_path / "out", settings=words)


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "expected"), [(0.0, (0.15, 1e-4, 50.0)), (0.1, (0.0, 1e-3, 1.0))])
def test_a_model_without_dropout_is_learnt_by_hiding_words(
    tokenizer: Tokenizer, tmp_path: Path, dropout: float, expected: tuple[float, float, float]
) -> None:
    task = classify.Items(made(), LABELS, tokenizer, classify_spec.Config())
    model = model_for(task, tokenizer, dropout)
    folders.save(tmp_path / "start", bert.Bert(model.config, ("mlm",)), tokenizer)

    def recipe(count: int, **more: Any) -> Mapping[str, Any]:
        out = tmp_path / f"{count}-{len(more)}"
        finetune("classify", made(count), tmp_path / "start", out, quiet=True, **more)
        return dict(json.loads((out / "recipe.json").read_text()))

    few = recipe(9, settings=[THREADS])
    assert (few["task"]["mask_prob"], few["train"]["learning_rate"], few["train"]["head_rate"]) == expected
    assert (few["train"]["batch_tokens"], few["epochs"], few["train"]["steps"]) == (512, 20, 20)
    large = recipe(10, settings=[THREADS, "train.batch_tokens=4096"], epochs=1)["train"]
    rates = (large["optimiser"], large["learning_rate"], large["head_rate"])
    assert rates == (("muon", 5e-4, 40.0) if not dropout else ("adamw", *expected[1:]))
    asked = recipe(9, settings=[THREADS, "task.mask_prob=0.3", "train.head_rate=2", "train.batch_tokens=64"], epochs=1)
    assert (asked["task"]["mask_prob"], asked["train"]["head_rate"], asked["train"]["batch_tokens"]) == (0.3, 2.0, 64)
    assert asked["epochs"] == 1
    fresh = recipe(9, settings=[THREADS], scratch=True, epochs=1)
    assert (fresh["task"]["mask_prob"], fresh["train"]["head_rate"]) == (0.0, 1.0)


@pytest.mark.slow
def test_steps_follow_the_size_of_the_data(tiny_folder: Path, tmp_path: Path) -> None:
    more = {"settings": [THREADS, "train.steps=1"], "quiet": True}
    finetune("classify", made(9_000), tiny_folder, tmp_path, **more)
    found = json.loads((tmp_path / "recipe.json").read_text())
    assert 512 < found["train"]["batch_tokens"] < 8_192
    assert found["epochs"] == 5  # of 50 steps each, or some more


def test_data_that_cannot_be_learnt_from_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    for data, message in (
        ([], "no examples"),
        ([Example(("x",))], "no labels"),
        ([Example(("x",), "a")], "only the label 'a'"),
        ([Example(("x",), "Sea"), Example(("y",), "sea")], "differ only by case"),
    ):
        with pytest.raises(InputError, match=message):
            finetune("classify", data, tiny_folder, tmp_path / "out")
    with pytest.raises(InputError, match="has no head for a task"):
        evaluate(tiny_folder, made())


# Commands -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., tuple[int, str, str]]) -> None:
    train, dev = file_of(tmp_path / "train.tsv", made(24)), file_of(tmp_path / "dev.tsv", made(9))
    bad = file_of(tmp_path / "bad.tsv", [*made(4), Example(("x",), "see"), *made(4)])
    start = ("finetune", "classify", "--train", train, "--model", tiny_folder, "--out", tmp_path / "run")
    settings = ("--set", "train.learning_rate=5e-3", "--set", THREADS, "--set", "train.batch_tokens=128")
    code, out, err = filbert(*start, "--dev", bad)
    assert (code, out) == (2, "")
    assert "bad.tsv line 5: the label 'see'" in err
    code, out, _ = filbert(*start, "--dev", dev, "--epochs", "6", *settings, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["labels"] == 3
    code, out, _ = filbert("evaluate", tmp_path / "run", "--data", dev, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["accuracy"] == pytest.approx(told["held"]["accuracy"])
    for name in ("accuracy", "f1", "loss", "majority_accuracy"):
        assert isinstance(found[name], float)
    assert set(found["intervals"]) == {"accuracy", "f1"}
    assert found["intervals"]["accuracy"][0] <= found["accuracy"] <= found["intervals"]["accuracy"][1]
    code, out, _ = filbert("evaluate", tmp_path / "run" / "model", "--data", dev)
    assert out.startswith("accuracy")
    for words, message in (
        (("evaluate", tiny_folder, "--data", dev), "has no head for a task"),
        (("evaluate", tmp_path / "run", "--data", bad), "bad.tsv line 5"),
        (("evaluate", tmp_path / "nowhere", "--data", dev), "no such folder"),
        ((*start, "--dev", dev), "go on with --resume"),
    ):
        code, out, err = filbert(*words)
        assert (code, out) == (2, ""), err
        assert message in err


def test_a_task_file_that_does_not_fit_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    finetune("classify", made(), tiny_folder, tmp_path, settings=["train.steps=1", THREADS], quiet=True)
    path = tmp_path / "model" / "task.json"
    (tmp_path / "model" / "manifest.json").unlink()
    for said in ({"task": "sing"}, {"task": "classify", "pool": "cls"}, {"task": "classify", "pool": 3},
                 {"task": "classify", "max_length": 9999}, {"task": "classify", "code": "x"}):  # fmt: skip
        path.write_text(json.dumps(said))
        with pytest.raises(InputError, match=r"task\.json"):
            evaluate(tmp_path, made())
