"""Distillation: losses by hand, every task with a head, students that learn, runs that go on, teachers that cannot."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import filbert as fb
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.protocols import Decisions
from filbert.core.records import Example, Span
from filbert.folder.folder import load, save
from filbert.models import transformer
from filbert.nn.crf import CRF
from filbert.run.distill import Wish, distill, distill_general
from filbert.run.finetune import finetune
from filbert.run.pretrain import Corpus
from filbert.ship import shrink
from filbert.tasks.answer.reading import Answer
from filbert.tasks.relation.reading import Relation
from filbert.teach import losses
from filbert.teach import teacher as distil
from filbert.text.tokenizer import Tokenizer
from filbert.train import listeners
from filbert.train.step import on_device
from kit.folders import task_file
from kit.models import small_bert

pytestmark = pytest.mark.usefixtures("one_thread")

Numbers = npt.NDArray[np.float64]
TEXTS = ("今天天气很好。", "我们坐火车去公园。", "医生说要多喝水。", "他打了一个电话。")
TAGS = ("O", "B-城", "I-城", "B-人", "I-人")
BLANKS = '{"好": "好", "不": "不"}'
WISH = Wish(preset="tiny", arch="bert")
NARROW = ["model.width=16", "model.heads=2", "model.inner=32", "model.layers=1", "model.max_length=64"]


# Losses by hand -------------------------------------------------------------------------------------------------------


def shares(scores: Numbers) -> Numbers:
    made = np.exp(scores - scores.max(-1, keepdims=True))
    return made / made.sum(-1, keepdims=True)


def divergence(theirs: Numbers, own: Numbers) -> float:
    """KL of softmaxes, row by row."""
    p, q = shares(theirs), shares(own)
    return float((p * np.log(p / q)).sum())


def drawn(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).normal(size=shape) * 2


def tensor(values: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


def test_a_choice_is_kl_of_softened_scores() -> None:
    own, theirs, counted = drawn(5, 4), drawn(5, 4, seed=1), [True, False, True, True, False]
    said = Decisions("one", tensor(own), torch.tensor(counted))
    wanted = 9 * divergence(theirs[counted] / 3, own[counted] / 3)
    assert float(losses.apart(said, Decisions("one", tensor(theirs)), 3.0)) == pytest.approx(wanted, rel=1e-5)


def test_a_head_that_makes_scores_some_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own, theirs, map_ = (tensor(drawn(*shape, seed=seed)) for seed, shape in enumerate(((7, 3), (7, 3), (5, 3))))
    own.requires_grad_()
    head = lambda rows: rows @ map_.T  # noqa: E731
    plain = losses.apart(Decisions("one", head(own)), Decisions("one", head(theirs)), 2.0)
    (wanted,) = torch.autograd.grad(plain, own)
    monkeypatch.setattr(losses, "CELLS", 10)  # two rows of five
    made = losses.apart(Decisions("one", own, head=head), Decisions("one", theirs, head=head), 2.0)
    (found,) = torch.autograd.grad(made, own)
    assert made.item() == pytest.approx(plain.item(), rel=1e-6)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_neighbours_choose_among_themselves_in_each_column() -> None:
    own, theirs, sizes = drawn(6, 2), drawn(6, 2, seed=1), [2, 3, 1]
    own[1] = theirs[1] = -1e30  # where no answer can be
    wanted, edges = 0.0, np.cumsum([0, *sizes])
    for begin, end in itertools.pairwise(edges[:-1]):  # the last group only fills up
        for column in range(2):
            rows = [row for row in range(begin, end) if row != 1]
            wanted += 0.5 * 4 * divergence(theirs[rows, column] / 2, own[rows, column] / 2)
    said = Decisions("among", tensor(own), torch.tensor([True, True, False]), torch.tensor(sizes))
    found = losses.apart(said, Decisions("among", tensor(theirs), sizes=torch.tensor(sizes)), 2.0)
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_several_numbers_and_vectors() -> None:
    own, theirs = drawn(3, 4), drawn(3, 4, seed=1)
    p, q = (1 / (1 + np.exp(-each / 2)) for each in (theirs, own))
    wanted = 4 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum()
    pair = (Decisions("several", tensor(own)), Decisions("several", tensor(theirs)))
    assert float(losses.apart(*pair, 2.0)) == pytest.approx(wanted, rel=1e-5)
    numbers = (Decisions("number", tensor(own)), Decisions("number", tensor(theirs)))
    assert float(losses.apart(*numbers, 2.0)) == pytest.approx(((own - theirs) ** 2).sum(), rel=1e-5)
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (own, theirs)]
    cosines = [each @ each.T for each in unit]
    groups = np.array([0, 0, 1])
    same = groups[:, None] == groups
    wanted = (1 - (unit[0] * unit[1]).sum(1)).sum() + (
        ((cosines[0] - cosines[1]) ** 2 * same).sum(1) / same.sum(1)
    ).sum()
    vectors = [Decisions("vector", tensor(each), sizes=torch.tensor(groups)) for each in (own, theirs)]
    assert float(losses.apart(*vectors)) == pytest.approx(wanted, rel=1e-5)


def test_chains_are_compared_by_all_their_sequences() -> None:
    lengths, heat, chains, scores = torch.tensor([3, 1]), 1.5, [], []
    for seed in range(2):
        chain = CRF(3)
        chain.load_state_dict({"transitions": tensor(drawn(3, 3, seed=seed)), "begin": tensor(drawn(3, seed=seed + 5)),
                               "end": tensor(drawn(3, seed=seed + 9))})  # fmt: skip
        chains.append(chain)
        scores.append(drawn(4, 3, seed=seed + 20))

    def path(chain: CRF, own: Numbers, tags: tuple[int, ...]) -> float:
        begin, pair, end = (getattr(chain, name).detach().numpy() for name in ("begin", "transitions", "end"))
        steps = sum(pair[one, two] for one, two in itertools.pairwise(tags))
        return float(begin[tags[0]] + end[tags[-1]] + steps + sum(own[at, tag] for at, tag in enumerate(tags))) / heat

    wanted = 0.0
    for rows in (slice(0, 3), slice(3, 4)):
        every = list(itertools.product(range(3), repeat=rows.stop - rows.start))
        own, theirs = (
            np.array([path(chain, each[rows], tags) for tags in every])
            for chain, each in zip(chains, scores, strict=True)
        )
        wanted += divergence(theirs, own)
    said = [Decisions("chain", tensor(each), sizes=lengths, chain=chain)
            for chain, each in zip(chains, scores, strict=True)]  # fmt: skip
    assert losses.apart(*said, heat).item() == pytest.approx(heat**2 * wanted, rel=1e-4)


def test_relations_of_models_of_other_widths_and_heads() -> None:
    lengths, heads = (2, 2, 3), 2
    own, theirs = ([drawn(7, width, seed=width + at) for at in range(3)] for width in (4, 6))
    wanted = 0.0
    for begin, end in itertools.pairwise(np.cumsum([0, *lengths])):
        for one, two in ((0, 0), (2, 2), (0, 1)):
            for head in range(heads):
                tables = []
                for each in (own, theirs):
                    width = each[0].shape[1] // heads
                    a, b = (each[at][begin:end, head * width : (head + 1) * width] for at in (one, two))
                    tables.append(a @ b.T / np.sqrt(width))
                wanted += divergence(tables[1], tables[0]) / heads
    made = [[tensor(each) for each in side] for side in (own, theirs)]
    found = losses.relations_apart(made[0], made[1], lengths, heads, ("qq", "vv", "qk"))
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    assert losses.relation_heads([384, 256]) == 16
    assert losses.relation_heads([7, 5]) == 1


# Every task -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A teacher: its head's parts and labels, how it reads, and eight examples without and with gold."""

    parts: tuple[str, ...]
    labels: tuple[str, ...]
    said: dict[str, Any]
    examples: list[Example]
    golds: list[Any]
    more: dict[str, Any] = field(default_factory=dict)


EIGHT = [Example((TEXTS[at % 4] * (1 + at % 2 * 5),), None, at) for at in range(8)]  # every other of two windows
PAIRS = [Example((TEXTS[at % 4], TEXTS[(at + 1) % 4]), None, at) for at in range(8)]
FIVE = ("体育", "财经", "科技")
SPANS = [(Span(0, 2, "城"),), (Span(2, 4, "人"), Span(5, 6, "城"))] * 4
RELATED = [Example((TEXTS[1],), Relation(Span(0, 2), Span(3, 5), None), at) for at in range(8)]
TOLD = [Relation(Span(0, 2), Span(3, 5), FIVE[at % 3]) for at in range(8)]
ASKED = [Example((f"什么{at}？", TEXTS[at % 4] * 6), None, at) for at in range(8)]
CHOSEN = [Example((TEXTS[at % 4], "哪里？", "公园", "火车", "天气"[: 1 + at % 2]), None, at) for at in range(8)]
ONE = [FIVE[at % 3] for at in range(8)]
CASES = {
    "classify": Case(("labels",), FIVE, {"task": "classify"}, EIGHT, ONE),
    "classify cls": Case(("pooler", "labels"), FIVE, {"task": "classify", "pool": "cls"}, EIGHT, ONE),
    "classify several": Case(("labels",), FIVE, {"task": "classify", "several": 0.4}, EIGHT, [(FIVE[0],), ()] * 4),
    "pair": Case(("labels",), FIVE, {"task": "pair"}, PAIRS, ONE),
    "pair number": Case(("labels",), ("value",), {"task": "pair", "answer": "number", "center": 2.0, "scale": 1.5},
                        PAIRS, [float(at) for at in range(8)]),
    "tag softmax": Case(("tokens",), TAGS, {"task": "tag", "decoder": "softmax", "scheme": "bio"}, EIGHT, SPANS),
    "tag crf": Case(("tokens", "crf"), TAGS, {"task": "tag", "decoder": "crf", "scheme": "bio"}, EIGHT, SPANS),
    "tag span": Case(("pointer",), ("城", "人"), {"task": "tag", "decoder": "span", "scheme": "bio"}, EIGHT, SPANS),
    "relation": Case(("relation",), FIVE, {"task": "relation"}, RELATED, TOLD),
    "answer": Case(("span",), (), {"task": "answer"}, ASKED, [(Answer("天气", 2),), (), (Answer("医生", 0),), ()] * 2),
    "choose": Case(("choice",), (), {"task": "choose"}, CHOSEN, [at % 3 for at in range(8)]),
    "embed": Case((), (), {"task": "embed"}, EIGHT, [None] * 8),
    "embed pairs": Case((), (), {"task": "embed"}, PAIRS, [float(at % 2) for at in range(8)]),
    "blank": Case(("mlm",), ("好", "不"), {"task": "blank", "template": "这[MASK]。{text}", "words": BLANKS}, EIGHT,
                  ["好", "不"] * 4),
    "translate": Case(("writer",), (), {"task": "translate", "beam": 1, "max_new": 4}, EIGHT[::2] * 2, list(TEXTS) * 2),
    "summarize": Case(("writer",), (), {"task": "summarize", "beam": 1, "max_new": 4}, EIGHT, list(TEXTS) * 2),
    "chat": Case(("writer",), (), {"task": "chat", "beam": 1, "max_new": 4}, EIGHT, list(TEXTS) * 2),
}  # fmt: skip


def teacher_model(case: Case, tokenizer: Tokenizer) -> Any:
    if "writer" in case.parts:
        torch.manual_seed(0)
        shape = {"width": 32, "layers": 1, "writer_layers": 1, "heads": 2, "inner": 64, "max_length": 64}
        return transformer.Transformer(transformer.Config(vocab_size=tokenizer.vocab_size, **shape), case.parts).eval()
    return small_bert(tokenizer, case.parts, max(2, len(case.labels)) if case.labels != ("value",) else 1, noise=0.3)


def teacher_of(name: str, tokenizer: Tokenizer, folder: Path) -> Path:
    case = CASES[name]
    overlap = {} if case.said["task"] in ("relation", "translate", "summarize", "chat") else {"overlap": 16}
    said = {"max_length": 48, **overlap, **case.said}
    return save(folder, teacher_model(case, tokenizer), tokenizer, labels=case.labels,
                files=task_file(said))  # fmt: skip


def labelled(case: Case) -> list[Example]:
    return [Example(each.texts, gold, each.id) for each, gold in zip(case.examples, case.golds, strict=True)]


def test_there_is_a_case_for_every_task() -> None:
    assert {case.said["task"] for case in CASES.values()} == set(registry.tasks(only_learnt=True))


@pytest.mark.parametrize("name", CASES)
def test_a_student_that_is_its_teacher_has_nothing_to_learn(name: str, tokenizer: Tokenizer) -> None:
    case = CASES[name]
    spec, model = registry.task(case.said["task"]), teacher_model(case, tokenizer)
    said = {key: value for key, value in case.said.items() if key != "task"}
    config = spec.config(max_length=48, **said)
    task = spec.items(labelled(case), case.labels, tokenizer, config)
    asked = spec.items([], case.labels, tokenizer, task.config)
    attends = case.parts[:1] != ("writer",)
    distillation = distil.Config(gold=0.0, hidden=1.0 * attends, relations=1.0 * attends)
    distilled = distil.Distilled(task, asked, teacher_model(case, tokenizer), distillation)
    distilled.adapt(model)
    some = np.arange(len(task) if case.said["task"] != "embed" else 1)
    batch = distilled.batch(distilled.plan(0).orders(some))
    ready = on_device(batch, "cpu")
    counts, terms = distilled.counts(batch), distilled.loss(model, ready)
    assert counts.keys() == terms.keys()
    for loss, term in terms.items():
        assert counts[loss] == int(term.count) > 0
        assert abs(term.total.item()) / counts[loss] < 1e-5, loss
    with torch.no_grad():  # another student has something to learn, and the gold's loss comes beside it
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    both = distil.Distilled(task, asked, teacher_model(case, tokenizer), distil.Config())
    terms, plain = both.loss(model.train(), ready), task.counts(batch)
    assert terms["soft_loss"].total.item() / counts["soft_loss"] > 1e-3
    if task.has_gold:
        assert both.counts(batch).keys() == {*plain, "soft_loss"}
    sum(term.total for key, term in terms.items() if key.endswith("_loss")).backward()
    learning = [weight for weight in model.parameters() if weight.grad is not None and weight.grad.abs().max() > 0]
    assert len(learning) > len(list(model.parameters())) // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_task_can_be_distilled_on_eight_examples(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Half of them without gold where their task allows it; to another width; and what comes out answers."""
    case = CASES[name]
    teacher = teacher_of(name, tokenizer, tmp_path / "teacher")
    writes, gold = "writer" in case.parts, labelled(case)
    mixed = gold if name.startswith("embed") else gold[:4] + case.examples[4:]
    wish = Wish(preset="tiny", arch="transformer" if writes else None)
    shape = [*NARROW, "model.writer_layers=1"] if writes else NARROW
    held = None if name in ("embed",) else gold
    done = distill(
        teacher, mixed, tmp_path / "run", wish, dev=held, quiet=True,
        settings=[*shape, "train.steps=2", "train.batch_tokens=4096", "machine.threads=1"],
    )  # fmt: skip
    assert load(tmp_path / "run").config.width == 16
    assert not any(key.startswith("bridge") for key in load(tmp_path / "run").model.state_dict())
    model = fb.load(tmp_path / "run")
    assert model.task() == case.said["task"]
    assert list(model.labels) == list(case.labels)
    if held is not None:
        told = json.loads((tmp_path / "run" / "report.json").read_text())["distilled"]
        assert told["parameters"][0] < told["parameters"][1]
        row = told["evaluations"]["dev"]
        assert np.isfinite([row["student"], row["teacher"], row["kept"]]).all()
        assert "Beside its teacher" in (tmp_path / "run" / "report.html").read_text()
    assert done.outcome.state.step == 2
    assert (tmp_path / "run" / "model" / "golden.jsonl").exists()


# What is learnt -------------------------------------------------------------------------------------------------------


def written(tokenizer: Tokenizer, count: int, seed: int) -> list[Example]:
    """Texts of six characters that say nothing and one of forty that says which of two labels it is."""
    known = [token for token in tokenizer.vocabulary if len(token) == 1 and "\u4e00" <= token <= "\u9fff"][:100]
    keys, fill = known[:40], known[40:]
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        key, place = int(random.integers(40)), int(random.integers(7))
        rest = [fill[at] for at in random.integers(len(fill), size=6)]
        found.append(Example(("".join([*rest[:place], keys[key], *rest[place:]]),), ("左", "右")[key % 2], index))
    return found


def bare(examples: list[Example]) -> list[Example]:
    return [Example(each.texts, None, each.id) for each in examples]


@pytest.fixture(scope="module")
def taught(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model knows the forty characters."""
    folder, words = tmp_path_factory.mktemp("taught") / "teacher", Tokenizer.load(tiny_folder)
    settings = ["machine.threads=1", "train.steps=150", "train.batch_tokens=1024", "train.learning_rate=3e-3"]
    finetune("classify", written(words, 800, 1), tiny_folder, folder, settings=settings, quiet=True)
    return folder


def right(folder: Path, asked: list[Example]) -> float:
    said = fb.load(folder).predict([each.texts[0] for each in asked])
    return sum(one.label == each.gold for one, each in zip(said, asked, strict=True)) / len(asked)


QUICK = ["machine.threads=1", "train.steps=150", "train.batch_tokens=1024", "train.learning_rate=5e-3"]


@pytest.mark.slow
def test_unlabelled_text_teaches_what_a_few_labels_do_not(taught: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    few, many, asked = written(tokenizer, 8, 2), bare(written(tokenizer, 600, 3)), written(tokenizer, 200, 4)
    done = distill(taught, few + many, tmp_path / "student", WISH, test=asked, settings=[*NARROW, *QUICK], quiet=True)
    finetune("classify", few, tmp_path / "student", tmp_path / "alone", settings=QUICK, scratch=True, quiet=True)
    student, alone, teacher = (right(each, asked) for each in (tmp_path / "student", tmp_path / "alone", taught))
    assert teacher > 0.95
    assert student > alone + 0.15
    assert student > 0.9 * teacher
    told = done.report["distilled"]
    assert told["evaluations"]["test"]["student"] == pytest.approx(student, abs=0.011)
    assert told["evaluations"]["test"]["kept"] == pytest.approx(student / teacher, abs=0.02)
    assert told["speed"] > 0
    assert any("of its teacher's" in line for line in done.report["evaluations"]["test"]["sentences"])


@pytest.mark.slow
def test_every_second_layer_begins_with_the_teachers_head(taught: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """One layer of two, with half of its feed-forward, and everything inside compared."""
    inside = ["distil.relations=1", "distil.hidden=1", "distil.gold=0", "train.steps=60", *QUICK[:1], *QUICK[2:]]
    many, asked = bare(written(tokenizer, 600, 3)), written(tokenizer, 200, 4)
    distill(taught, many, tmp_path / "run", Wish(layers=1, inner=32), settings=inside, quiet=True)
    assert right(tmp_path / "run", asked) > 0.9
    found = load(tmp_path / "run")
    assert (found.config.layers, found.config.inner) == (1, 32)
    steps = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    steps = [line for line in steps if "relation_loss" in line]
    for name in ("soft_loss", "relation_loss", "hidden_loss"):
        assert steps[-1][name] < 0.7 * steps[0][name], name


@pytest.mark.slow
def test_raw_text_teaches_how_the_teacher_reads(tiny_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(each.texts[0] * 3 for each in written(tokenizer, 400, 5)), encoding="utf-8")
    settings = ["train.steps=40", "train.batch_tokens=1024", "train.evaluate_every=20", "machine.threads=1"]
    corpus = Corpus(sources=(str(text),), workers=1)
    for name, wish, more in (
        ("new", WISH, NARROW), ("layers", Wish(layers="1"), ["distil.hidden=1", "distil.gold=0.5"]),
    ):  # fmt: skip
        out = tmp_path / name
        done = distill_general(tiny_folder, corpus, out, wish, settings=[*settings, *more], quiet=True)
        lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        held = [line["held"] for line in lines if "held" in line]
        assert held[-1]["relation_loss"] < held[0]["relation_loss"]
        assert held[-1]["soft_loss"] < held[0]["soft_loss"]
        assert done.outcome.state.step == 40
        assert fb.load(out).fill("今天天[MASK]很好")
        assert set(json.loads((out / "distilled.json").read_text())["held"]) == {"student", "teacher"}


def test_a_teacher_without_words_teaches_relations_of_whole_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    teacher = save(tmp_path / "teacher", small_bert(tokenizer, (), noise=0.3), tokenizer)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(TEXTS * 20), encoding="utf-8")
    corpus, settings = Corpus(sources=(str(text),), workers=1), [*NARROW, "train.steps=3", "machine.threads=1"]
    done = distill_general(teacher, corpus, tmp_path / "run", WISH, settings=settings, quiet=True)
    assert done.module.parts == ()
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert {"relation_loss", "hidden_loss"} <= json.loads(lines[-1]).keys() | json.loads(lines[0]).keys()
    with pytest.raises(InputError, match="no masked-language-model head"):
        distill_general(teacher, corpus, tmp_path / "other", WISH, settings=["distil.soft=1"], quiet=True)


# Runs that go on ------------------------------------------------------------------------------------------------------


class Dies(listeners.Silent):
    """Takes the process with it in the middle of a run."""

    def step(self, entry: Any) -> None:
        if entry["step"] == 7:
            os.kill(os.getpid(), signal.SIGKILL)


def distilled_to(teacher: Path, examples: list[Example], out: Path, **more: Any) -> None:
    settings = [*NARROW, "model.dropout=0.1", "machine.threads=1", "train.steps=12", "train.batch_tokens=512",
                "train.checkpoint_every=3", "distil.relations=1", "distil.hidden=1"]  # fmt: skip
    distill(teacher, examples, out, WISH, settings=settings, **more)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_bit_for_bit(taught: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    examples = written(tokenizer, 60, 6) + bare(written(tokenizer, 60, 7))
    distilled_to(taught, examples, tmp_path / "whole", quiet=True)
    child = multiprocessing.get_context("fork").Process(
        target=distilled_to, args=(taught, examples, tmp_path / "cut"), kwargs={"listener": Dies(), "quiet": True}
    )
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    distilled_to(taught, examples, tmp_path / "cut", quiet=True, resume=True)
    one, two = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert one == two
    other = save(tmp_path / "other", small_bert(tokenizer, ("labels",), noise=0.3), tokenizer, labels=("右", "左"))
    with pytest.raises(InputError, match="another teacher"):
        distilled_to(other, examples, tmp_path / "cut", quiet=True, resume=True)


# Smaller models -------------------------------------------------------------------------------------------------------


def test_layers_and_feed_forwards_are_taken_away(tokenizer: Tokenizer) -> None:
    assert shrink.spread(4, 8) == (0, 2, 5, 7)
    assert shrink.spread(1, 8) == (7,)
    assert shrink.chosen("0,3", 8) == (0, 3)
    whole = small_bert(tokenizer, ("labels", "mlm"), 3, layers=4)
    from filbert.nn.attention import tensors
    from filbert.pack.lay import pack
    from filbert.text.windows import encode_windows

    packed = tensors(pack([w for text in TEXTS for w in encode_windows(tokenizer, text)])[0])
    with torch.no_grad():
        assert torch.equal(shrink.shrunk(whole)(packed), whole(packed))
        for index in (1, 2):  # layers that change nothing can go
            block = whole.layers[index]
            for weight in (block.attention.out, block.feed.down):
                weight.weight.zero_(), weight.bias.zero_()
            for norm in (block.attention_norm, block.feed_norm):
                norm.weight.copy_(whole.layers[0].feed_norm.weight.clone().fill_(1.0))
                norm.bias.zero_()
        whole.layers[0].feed_norm.weight.fill_(1.0)
        whole.layers[0].feed_norm.bias.zero_()
        for layer in whole.layers:  # and inner numbers that go nowhere
            layer.feed.down.weight[:, 20:] = 0
        small = shrink.shrunk(whole, layers=[0, 3], inner=20)
        assert (small.config.layers, small.config.inner) == (2, 20)
        assert torch.allclose(small(packed), whole(packed), atol=1e-5)
    modern = small_bert(tokenizer, (), norm="pre", feedforward="geglu", positions="rotary", segments=0, layers=3)
    assert shrink.shrunk(modern, [1, 2], 24)(packed).shape == (packed.num_tokens, 32)
    pruned = small_bert(tokenizer, (), heads=(4, 3, 0, 1), layers=3)
    assert shrink.shrunk(pruned, "0,2").config.heads == (4, 3, 1)
    for wrong in (0, 5, "0,9", "2,1", "x"):
        with pytest.raises(InputError, match="layers is"):
            shrink.shrunk(whole, wrong)


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bad_input_is_told_in_one_sentence(
    taught: Path, tiny_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    some, out = written(tokenizer, 8, 2), tmp_path / "out"

    def refused(match: str, teacher: Path, data: Any, wish: Wish, **more: Any) -> None:
        with pytest.raises(InputError, match=match):
            distill(teacher, data, out, wish, quiet=True, **more)
        assert not out.exists() or not (out / "model").exists()

    other = Tokenizer([*tokenizer.vocabulary[:-1], "龘"])
    foreign = save(tmp_path / "foreign", small_bert(other, ()), other)
    refused("vocabulary is not that of the teacher", taught, some, Wish(student=foreign))
    refused("--general", tiny_folder, some, WISH, settings=NARROW)
    refused("has no examples", taught, [], WISH, settings=NARROW)
    refused("must be one of: tiny", taught, some, Wish(preset="tny"))
    refused("only dropout can be set", taught, some, Wish(layers=1), settings=["model.width=8"])
    refused("teaches nothing", taught, some, WISH, settings=[*NARROW, "distil.soft=0"])
    refused(
        "relation_heads is 5", taught, some, WISH, settings=[*NARROW, "distil.relations=1", "distil.relation_heads=5"]
    )
    refused(
        "teacher_layer is 9", taught, some, WISH, settings=[*NARROW, "distil.relations=1", "distil.teacher_layer=9"]
    )
    refused("not one of the 2 that the model knows", taught, [Example(("好",), "上")], WISH, settings=NARROW)
    for wrong in ({}, {"preset": "tiny", "layers": 1}):
        with pytest.raises(InputError, match="in one way"):
            Wish(**wrong)
    for field_, wrong_value in (("temperature", 0.0), ("gold", -1.0), ("pairs", "qx"), ("relation_heads", -1)):
        with pytest.raises(InputError, match=f"distil.{field_}"):
            distil.Config(**{field_: wrong_value})


@pytest.mark.slow
def test_the_command(taught: Path, tokenizer: Tokenizer, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    """Unlabelled text as a plain file, a pruned student, and both measured on a labelled one."""
    plain, test = tmp_path / "plain.txt", tmp_path / "test.tsv"
    plain.write_text("\n".join(each.texts[0] for each in written(tokenizer, 100, 8)) + "\n", encoding="utf-8")
    rows = [f"{each.texts[0]}\t{each.gold}" for each in written(tokenizer, 60, 9)]
    test.write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    small = tmp_path / "small"
    ran = filbert("prune", taught, "--layers", "1", "--out", small)
    assert ran.code == 0, ran.err
    assert load(small).config.layers == 1
    out = tmp_path / "run"
    words = ("distill", taught, "--student", small, "--data", plain, "--test", test, "--out", out, "--epochs", "2")
    ran = filbert(*words, "--set", "machine.threads=1", "--set", "train.steps=30", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["steps"] == 30
    assert 0 <= told["evaluations"]["test"]["kept"] <= 1.2
    assert filbert("verify", out).code == 0
    ran = filbert("distill", taught, "--preset", "tiny", "--data", plain, "--out", out, "--general", "--dev", test)
    assert ran.code == 2
    assert "--general has none" in ran.err
