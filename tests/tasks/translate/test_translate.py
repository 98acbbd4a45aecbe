"""Texts written from texts: packs of pairs, long sources in stretches; what cannot be read is told in a sentence."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.protocols import Batch
from filbert.core.records import Example
from filbert.forms.datasets import examples
from filbert.metrics.intervals import wilson
from filbert.models import seq2seq, transformer
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import bins
from filbert.tasks.chat import items as chat
from filbert.tasks.chat import spec as chat_spec
from filbert.tasks.summarize import items as summarize
from filbert.tasks.translate import items as translate
from filbert.tasks.translate import spec as translate_spec
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import gradients, noisy

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = [
    ("今天天气很好。", "the weather is good today."),
    ("我们去公园。", "we go to the park."),
    ("她是一个医生。", "she is a doctor."),
    ("他坐火车去旅行。", "he travels by train."),
    ("今天有比赛吗？", "is there a game today?"),
    ("我喜欢喝茶。", "i like to drink tea."),
    ("他们在学校读书。", "they read books at school."),
    ("明天会下雨。", "it will rain tomorrow."),
]
SHAPES: dict[str, Callable[[int], Any]] = {
    "transformer": lambda size: transformer.Transformer(
        transformer.Config(
            vocab_size=size, width=64, layers=2, writer_layers=2, heads=4, inner=128, max_length=48, dropout=0.0
        ),
        ("writer",),
    ),
    "seq2seq": lambda size: seq2seq.Seq2seq(
        seq2seq.Config(vocab_size=size, width=64, embedding=64, layers=1, max_length=48, dropout=0.0), ("writer",)
    ),
}
TASKS = {"translate": translate, "summarize": summarize, "chat": chat}


def made(pairs: list[tuple[str, str | None]] = PAIRS) -> list[Example]:  # type: ignore[assignment]
    return [Example((one,), two, at, "pairs.tsv", at + 1) for at, (one, two) in enumerate(pairs)]


def task_of(tokenizer: Tokenizer, pairs: Any = PAIRS, name: str = "translate", **fields: Any) -> Any:
    spec = registry.task(name)
    return spec.items(made(pairs), (), tokenizer, spec.config(**{"max_length": 48, **fields}))


def model_of(tokenizer: Tokenizer, kind: str = "transformer", noise: float = 0.1) -> Any:
    torch.manual_seed(0)
    model = SHAPES[kind](tokenizer.vocab_size)
    return (noisy(model, noise) if noise else model).eval()


def batch_of(task: Any, items: Any, budget: int | None = None) -> Batch:
    return on_device(task.batch(np.asarray(items), budget), "cpu")


def raw(task: Any, model: Any, items: Any = None, budget: int = 10_000) -> list[Any]:
    items = list(range(len(task))) if items is None else items
    found: dict[int, Any] = {}
    with torch.inference_mode():
        for group in bins([task.lengths[item] for item in items], budget):
            chosen = [items[place] for place in group]
            found |= dict(zip(chosen, task.raw(TorchHost(model), batch_of(task, chosen)), strict=True))
    return [found[item] for item in items]


def learn(task: Any, model: Any, steps: int = 80, rate: float = 2e-3) -> Any:
    config = loop.Config(steps=steps, learning_rate=rate, batch_tokens=4_096)
    loop.fit(model, task, config, lambda line: None, machine=machine.Config(threads=1))
    return model.eval()


@pytest.fixture(scope="module")
def taught(tiny_folder: Path) -> dict[str, Any]:
    """Models that know the eight pairs by heart."""
    tokenizer = Tokenizer.load(tiny_folder)
    rates = {"transformer": 2e-3, "seq2seq": 1e-2}
    return {
        kind: learn(task_of(tokenizer), model_of(tokenizer, kind, noise=0.0), rate=rate) for kind, rate in rates.items()
    }


# -- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHAPES)
def test_eight_pairs_are_learnt_and_written_back(tokenizer: Tokenizer, taught: dict[str, Any], kind: str) -> None:
    task, model = task_of(tokenizer), taught[kind]
    for beam in (1, 4):
        task.config = replace(task.config, beam=beam)
        said = task.predictions(raw(task, model))
        assert [prediction.text for prediction in said] == [target for _, target in PAIRS]
        assert all(prediction.coverage == 1 and prediction.scores["score"] > 0.5 for prediction in said)
        assert all("cut" not in prediction.scores for prediction in said)
    assert task.evaluated(raw(task, model))["rouge_l"] == 1


@pytest.mark.slow
def test_what_is_written_back_has_a_bleu_of_100(tokenizer: Tokenizer, taught: dict[str, Any]) -> None:
    pytest.importorskip("sacrebleu")
    task = task_of(tokenizer)
    told = task.evaluated(raw(task, taught["transformer"]))
    assert [told[name] for name in ("bleu", "bleu_lowercase", "chrf")] == pytest.approx([100, 100, 100])
    assert list(told["intervals"]) == ["bleu", "chrf", "bleu_lowercase", "rouge_l"]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", TASKS)
def test_the_loss_is_the_definition_and_packing_changes_nothing(tokenizer: Tokenizer, kind: str, name: str) -> None:
    """Every pair by itself, a softmax over every next token in float64, against all of them in one pack."""
    long = ("今天天气很好。" * 9, "a long day.")
    task = task_of(tokenizer, [*PAIRS, long], name)
    model = model_of(tokenizer, kind)
    learnt = np.flatnonzero(task.is_learnt).tolist()
    assert len(learnt) == (8 if name == "translate" else 9)
    total = 0.0
    for item in learnt:
        batch = batch_of(task, [item])
        with torch.no_grad():
            memory, source = task.memory(model, batch)
            x_UD = model.decoded(translate.into(batch), memory, source, torch.tensor([0]))
            logs = model.word_scores(x_UD).double().log_softmax(-1)
        ids = tokenizer.pieces([task.examples[item].gold]).ids.tolist()
        assert batch.targets["into_ids"].tolist() == [tokenizer.cls_id, *ids]
        total -= sum(float(logs[at, token]) for at, token in enumerate([*ids, tokenizer.sep_id]))
    whole = task.batch(np.arange(9))
    count = sum(len(tokenizer.pieces([task.examples[item].gold]).ids) + 1 for item in learnt)
    assert task.counts(whole) == {"written_loss": count}
    for budget in (None, 600):  # a pack that is filled up to one size says the same
        with torch.no_grad():
            terms = task.loss(model, batch_of(task, np.arange(9), budget))
        assert float(terms["written_loss"].total) == pytest.approx(total, rel=1e-5)
        assert terms["written_loss"].count == count


def test_vectors_packed_are_those_one_by_one(tokenizer: Tokenizer) -> None:
    task, model = task_of(tokenizer), model_of(tokenizer)
    with torch.no_grad():
        together = batch_of(task, np.arange(8))
        memory, source = task.memory(model, together)
        target = translate.into(together)
        x_UD = model.decoded(target, memory, source, together.targets["into_owners_host"])
        edges = target.boundaries.tolist()
        rows = {tuple(target.ids[a:b].tolist()): x_UD[a:b] for a, b in itertools.pairwise(edges)}
        for item in range(8):
            alone = batch_of(task, [item])
            memory, source = task.memory(model, alone)
            wanted = model.decoded(translate.into(alone), memory, source, alone.targets["into_owners_host"])
            got = rows[tuple(alone.targets["into_ids"].tolist())]
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_what_is_written_does_not_hang_on_what_stands_beside(tokenizer: Tokenizer, name: str) -> None:
    pairs = [*PAIRS, ("今天天气很好。" * 9, "x"), ("我们去公园。" * 8, "y")]
    model = model_of(tokenizer)
    for fields in ({"beam": 3}, {"temperature": 0.7, "top_k": 50, "seed": 3}):
        task = task_of(tokenizer, pairs, name, max_new=5, max_ratio=0.0, **fields)
        alone = [raw(task, model, [item])[0] for item in range(len(pairs))]
        for together in (raw(task, model), raw(task, model, budget=60)):
            for one, other in zip(together, alone, strict=True):
                assert [part[0] for part in one] == [part[0] for part in other]
                np.testing.assert_allclose([part[1] for part in one], [part[1] for part in other], atol=1e-4)


def test_smoothing_is_for_learning_alone_and_chunks_change_nothing(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model = task_of(tokenizer, label_smoothing=0.2), model_of(tokenizer, noise=0.02)
    batch = batch_of(task, np.arange(8))

    smooth, whole = gradients(task, model, batch)
    memory, source = task.memory(model, batch)
    x_UD = model.decoded(translate.into(batch), memory, source, batch.targets["into_owners_host"])
    logs, following = model.word_scores(x_UD).log_softmax(-1), batch.targets["into_next"]
    wanted = 0.8 * F.nll_loss(logs, following, reduction="sum") - 0.2 * logs.mean(-1).sum()
    assert smooth == pytest.approx(wanted.item(), rel=1e-5)
    plain = task.loss(model.eval(), batch)["written_loss"].total.item()
    assert plain == pytest.approx(F.nll_loss(logs, following, reduction="sum").item(), rel=1e-5)
    largest: list[int] = []
    scores = model.word_scores
    monkeypatch.setattr(model, "word_scores", lambda x: largest.append(x.shape[0]) or scores(x))
    monkeypatch.setattr(translate, "CELLS", 5 * tokenizer.vocab_size)
    again, parts = gradients(task, model, batch)
    assert max(largest) == 5
    assert again == pytest.approx(smooth, rel=1e-5)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_every_weight_learns(tokenizer: Tokenizer) -> None:
    for kind in SHAPES:
        task, model = task_of(tokenizer, name="summarize", mask_prob=0.3), model_of(tokenizer, kind).train()
        task.loss(model, batch_of(task, np.arange(8)))["written_loss"].total.backward()
        idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
        assert not [name for name in idle if not name.endswith("k.bias")]


# -- long sources ----------------------------------------------------------------------------------------------------


def test_a_long_source_is_parted_at_ends_of_sentences(tokenizer: Tokenizer) -> None:
    text = "今天天气很好。我们去公园，坐火车。" * 6 + "unbelievably" * 3
    tokens = tokenizer.pieces([text])[0]
    edges = translate.stretches(text, tokens, 30, tokenizer.continues)
    sizes = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == len(tokens.ids)
    assert sizes.min() > 0
    assert sizes.max() <= 30
    for edge in edges[1:-1]:
        before = text[: tokens.starts[edge]].rstrip()
        assert before.endswith("。") or not tokenizer.continues[tokens.ids[edge]]
    assert sum(text[: tokens.starts[edge]].endswith("。") for edge in edges[1:-1]) >= 3
    one_word = "a" * 100  # no place between words
    tokens = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a"]).pieces([one_word])[0]
    continues = np.array([False] * 6 + [True])
    assert translate.stretches(one_word, tokens, 30, continues) == [0, 30, 60, 90, 100]


def test_a_long_source_is_translated_whole(tokenizer: Tokenizer, taught: dict[str, Any]) -> None:
    chosen = [0, 2, 3, 5, 7, 1, 6]
    source, wanted = "".join(PAIRS[at][0] for at in chosen), " ".join(PAIRS[at][1] for at in chosen)
    asked = task_of(tokenizer, [(source, None)], max_length=12)  # room for one sentence each
    assert len(asked.cuts.first) == len(chosen)
    (said,) = asked.predictions(raw(asked, taught["transformer"]))
    assert said.text == wanted
    assert said.coverage == 1
    assert asked.has_unknown


def test_all_stretches_are_one_memory_where_a_task_joins(tokenizer: Tokenizer) -> None:
    """The summary of an article of four stretches hangs on each of them, and on nobody else's."""
    text = "今天天气很好。我们去公园。" * 8
    task = task_of(tokenizer, [*PAIRS[:2], (text, "fine."), *PAIRS[2:]], "summarize", max_length=32)
    assert np.diff(task.cuts.edges)[2] == 4
    model = model_of(tokenizer)
    batch = batch_of(task, np.arange(9))
    memory, source = task.memory(model, batch)
    assert source.lengths[2] == task.num_sourced[2]
    assert source.positions.tolist() == [at for length in source.lengths for at in range(length)]
    ids = source.ids[source.boundaries[2] : source.boundaries[3]].tolist()
    inner = [token for token in ids if token not in (tokenizer.cls_id, tokenizer.sep_id)]
    assert inner == tokenizer.pieces([text]).ids.tolist()
    memory = memory.detach().requires_grad_()
    x_UD = model.decoded(translate.into(batch), memory, source, batch.targets["into_owners_host"])
    target = batch.targets["into_owners_host"].tolist().index(2)
    edges = batch.targets["into_boundaries"].tolist()
    x_UD[edges[target] : edges[target + 1]].square().sum().backward()
    touched = memory.grad.abs().sum(-1) > 0
    assert touched[source.boundaries[2] : source.boundaries[3]].all()
    assert int(touched.sum()) == source.lengths[2]


@pytest.mark.slow
def test_summaries_of_long_articles_are_learnt(tokenizer: Tokenizer) -> None:
    """What is to be written stands in the last of several stretches."""
    fill = "他们在学校读书。" * 8
    pairs = [(fill + one, two) for one, two in PAIRS[:4]]
    task = task_of(tokenizer, pairs, "summarize")
    assert (np.diff(task.cuts.edges) > 1).all()
    model = learn(task, model_of(tokenizer, noise=0.0))
    told = task.evaluated(raw(task, model))
    assert [said.text for said in task.predictions(raw(task, model))] == [target for _, target in pairs]
    assert told["rouge_l"] == 1
    assert told["lead_rouge_l"] == 0
    assert told["lead_difference"]["value"] == 1  # of four texts: certain of none (metrics.paired)
    assert next(iter(told["intervals"])) == "rouge_l"


# -- chat ------------------------------------------------------------------------------------------------------------


class Looping(torch.nn.Module):
    """A writer that always wants to say the same two tokens in turn; it ends only where it must."""

    def __init__(self, size: int, turn: tuple[int, int]) -> None:
        super().__init__()
        self.config, self.turn = transformer.Config(vocab_size=size, max_length=64), turn
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, packed: Any, rows: Any = None) -> torch.Tensor:
        return self.weight.expand(packed.num_tokens, 1)

    def started(self, memory: torch.Tensor, source: Any) -> Looping:
        return self

    def select(self, rows: torch.Tensor) -> Looping:
        return self

    def step(self, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        scores = torch.linspace(0, -1, self.config.vocab_size).repeat(len(ids), 1)
        one, two = self.turn
        scores[:, one] += torch.where(ids == one, 0.0, 9.0)
        scores[:, two] += torch.where(ids == one, 9.0, 0.0)
        return scores, state


@pytest.mark.parametrize("beam", [1, 4])
def test_an_answer_never_loops(tokenizer: Tokenizer, beam: int) -> None:
    turn = tokenizer.pieces(["天气"]).ids.tolist()
    model = Looping(tokenizer.vocab_size, (turn[0], turn[1]))
    asked = [("你好", None), ("今天怎么样", None)]
    for no_repeat, is_loop in ((3, False), (0, True)):
        task = task_of(tokenizer, asked, "chat", beam=beam, no_repeat=no_repeat, max_new=20)
        for ((ids, _, _),) in raw(task, model):
            runs = [tuple(ids[at : at + 3]) for at in range(len(ids) - 2)]
            assert (len(set(runs)) < len(runs)) is is_loop
    assert chat_spec.Config().no_repeat == 3
    assert chat_spec.Config().temperature == 0
    if beam == 1:  # it had to stop, and says so
        assert task.predictions(raw(task, model))[0].scores["cut"] == 1


def test_turns_have_a_mark_between_them(tokenizer: Tokenizer) -> None:
    text = "今天好吗？\n\n 很好。\n我们去公园"
    task = task_of(tokenizer, [("你好", "好"), (text, "好"), ("", "好"), ("一\n二", "好")], "chat")
    sep = [tokenizer.sep_id]
    turns = [tokenizer.pieces([turn]).ids.tolist() for turn in ("今天好吗？", "很好。", "我们去公园", "一", "二")]
    rows = [task.source_pieces[at].ids.tolist() for at in range(4)]
    assert rows[0] == tokenizer.pieces(["你好"]).ids.tolist()
    assert rows[1] == turns[0] + sep + turns[1] + sep + turns[2]
    assert rows[2] == []
    assert rows[3] == turns[3] + sep + turns[4]
    for start, end, token in zip(task.source_pieces[1].starts, task.source_pieces[1].ends, rows[1], strict=True):
        assert (text[start:end] == "") is (token == tokenizer.sep_id)
        assert token == tokenizer.sep_id or tokenizer.token_of(token).removeprefix("##") == text[start:end]


def test_chat_is_measured_by_how_it_differs(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, name="chat")
    ids = [tuple(tokenizer.pieces([gold]).ids.tolist()) for _, gold in PAIRS]
    told = task.evaluated([[(own, -1.0, True)] for own in ids])
    assert (told["rouge_l"], told["loops"]) == (1, 0)
    same = task.evaluated([[(ids[0] * 3, -1.0, True)]] * 8)
    assert same["loops"] == 1
    assert same["distinct_2"] < told["distinct_2"]


# -- gold ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_gold_against_itself_is_perfect(tokenizer: Tokenizer, name: str) -> None:
    task = task_of(tokenizer, [(two, one) for one, two in PAIRS], name)  # into Chinese
    ids = [tuple(tokenizer.pieces([gold]).ids.tolist()) for gold, _ in PAIRS]
    told = task.evaluated([[(own, -1.0, True)] for own in ids])
    assert told["rouge_l"] == 1
    assert told["intervals"]["rouge_l"] == list(wilson(len(PAIRS), len(PAIRS)))  # however perfect, it is of few
    assert told.get("bleu", 100) == pytest.approx(100)  # only of translate, and where sacrebleu is there
    assert told.get("tokenize", "zh") == "zh"


# -- what cannot be read ---------------------------------------------------------------------------------------------


def test_bad_input_is_one_sentence_each(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"^the vocabulary: \[SEP\] missing"):
        Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[MASK]", "a"])
    small = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    with pytest.raises(InputError, match=r"^task\.beam is 8, but the vocabulary has only 7 tokens"):
        task_of(small, [("a", "b")], beam=8)
    with pytest.raises(InputError, match=r"line 1: what is to be written is of type int, but must be a text"):
        task_of(tokenizer, [("今天", 3)])
    for fields in (
        {"max_length": 3}, {"beam": 0}, {"no_repeat": -1}, {"max_new": 0}, {"top_k": -1}, {"top_p": 0.0},
        {"temperature": -1}, {"length_penalty": 11}, {"max_ratio": math.nan}, {"label_smoothing": 1.0}, {"seed": -1},
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"task.{next(iter(fields))} is"):
            translate_spec.Config(**fields)


def test_what_is_not_learnt_is_told(tokenizer: Tokenizer) -> None:
    long = "今天天气很好。" * 9
    pairs = [*PAIRS, (long, "fine."), ("今天", "good " * 60), ("", "day"), ("今天", " "), ("𠮷天", "it is 🙃.")]
    task = task_of(tokenizer, pairs)
    assert task.is_learnt.tolist() == [True] * 8 + [False] * 4 + [True]
    assert task.remarks() == [
        "2 pairs have an empty side and are not learnt.",
        "1 pairs have a source of more than 46 tokens and are not learnt; raise task.max_length, or part them.",
        "1 pairs have a target of more than 47 tokens and are not learnt; raise task.max_length, or part them.",
        f"1 of {len(task.source_pieces.ids)} source tokens are not in the vocabulary, e.g. '𠮷' in pairs.tsv line 13; "
        "they are read as [UNK], which is never written.",
        f"1 of {len(task.targets.ids)} target tokens are not in the vocabulary, e.g. '🙃' in pairs.tsv line 13; "
        "they are read as [UNK], which is never written.",
    ]
    assert len(task.plan(0).lengths) == 9
    assert task.plan(0).orders(np.array([8, 0])).tolist() == [12, 0]
    assert task.teaches
    assert not task_of(tokenizer, pairs[8:9]).teaches
    assert task_of(tokenizer, pairs[8:9], "summarize").teaches
    terms = task.loss(model_of(tokenizer), batch_of(task, [8]))  # nothing of it is learnt
    assert terms["written_loss"].count == 0
    said = task.predictions(raw(task, model_of(tokenizer)))  # but all can be written from
    assert len(said) == 13
    assert said[12].scores["unknown"] == 0.5
    assert "[UNK]" not in "".join(prediction.text or "" for prediction in said)


def test_no_text_is_longer_than_allowed(tokenizer: Tokenizer) -> None:
    model = model_of(tokenizer)
    task = task_of(tokenizer, max_new=3, max_ratio=0.5)
    sizes = [len(tokenizer.pieces([source]).ids) + 2 for source, _ in PAIRS]
    for (ids, _, ended), size in zip([parts[0] for parts in raw(task, model)], sizes, strict=True):
        assert len(ids) + ended <= 3 + math.ceil(0.5 * size)
    most = task_of(tokenizer, max_new=1_000)
    assert most.batch(np.arange(8)).targets["limits_host"].tolist() == [48] * 8


def test_the_records_have_what_a_folder_and_a_card_need(tokenizer: Tokenizer) -> None:
    example = made()[0]
    (said,) = task_of(tokenizer, PAIRS[:1]).predictions([[((5, 6), -0.1, True)]])
    for name, module in TASKS.items():
        spec = registry.task(name)
        assert spec.name == name
        assert spec.part == "writer"
        assert spec.can_learn
        assert set(spec.kept) <= set(spec.config.__dataclass_fields__)
        assert spec.labels(spec.config(), []) == ()
        assert spec.card(()).startswith("A model that")
        told = spec.record(example, said, None)
        assert list(told) == ["written", "score", "gold"]
        task = task_of(tokenizer, name=name)
        assert type(task) is module.Items
        assert task.parts == (("writer", "copier") if name == "summarize" else ("writer",))
        assert task.calibrated([]).config is task.config
        assert all(isinstance(part, np.ndarray) for part in task.arrays())
        item = task.item(0, 0)
        assert len(item.sequences) == 1


# -- files -----------------------------------------------------------------------------------------------------------


def test_pairs_are_read_from_tables_and_json(tmp_path: Path) -> None:
    def read(name: str, text: str, **more: Any) -> list[tuple[Any, ...]]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return [(e.texts[0], e.gold, e.line) for e in examples(tmp_path / name, "translate", **more)]

    wanted = [("今天", "today", 1), ("明天", "tomorrow", 2)]
    assert read("a.tsv", "今天\ttoday\n明天\ttomorrow\n") == wanted
    assert read("a.txt", "今天\ttoday\n明天\ttomorrow\n") == wanted
    assert read("b.tsv", "source\ttarget\n今天\ttoday\n") == [("今天", "today", 2)]
    rows = [{"source": one, "target": two} for one, two, _ in wanted]
    assert read("a.jsonl", "\n".join(map(json.dumps, rows))) == wanted
    assert read("s.jsonl", json.dumps({"content": "长文", "title": "题"})) == [("长文", "题", 1)]
    turns = {"dialogue": ["你好", "你\n好！"], "reply": "再见"}
    assert read("c.jsonl", json.dumps(turns)) == [("你好\n你 好！", "再见", 1)]
    three = "Hi.\t嗨。\tby X\n"
    assert read("d.tsv", three, columns={"source": 2, "target": 1}) == [("嗨。", "Hi.", 1)]
    assert read("e.txt", "今天\n明天\n") == [("今天", None, 1), ("明天", None, 2)]
    with pytest.raises(InputError, match=r"has 3 columns and no header .* --columns source=NUMBER,target=NUMBER"):
        read("d.tsv", three)
    with pytest.raises(InputError, match=r"f\.jsonl line 2: the field 'target' is missing, but must hold text"):
        read("f.jsonl", '{"source": "a", "target": "b"}\n{"source": "a"}')
    with pytest.raises(InputError, match=r"g\.jsonl line 1: the field 'source' holds int"):
        read("g.jsonl", '{"source": ["a", 3], "target": "b"}')


def test_two_files_are_read_side_by_side(tmp_path: Path) -> None:
    one, two = tmp_path / "train,x.de", tmp_path / "train.en"
    one.write_text("eins\n\nzwei\n\ndrei\n", encoding="utf-8")
    two.write_text("one\n\ntwo\nblank\nthree\n", encoding="utf-8")
    reading = Reading()
    found = list(examples(f"{one},{two}", "translate", reading=reading))
    assert [(e.texts[0], e.gold, e.line) for e in found] == [
        ("eins", "one", 1),
        ("zwei", "two", 3),
        ("drei", "three", 5),
    ]
    assert found[0].source == f"{one},{two}"
    assert reading.report.num_blank == 1
    assert reading.report.others == {"pairs with an empty side were skipped": 1}
    two.write_text("one\n\ntwo\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"train,x\.de line 4: has no partner: the file has 5 lines, but .*\.en has 3"):
        list(examples(f"{one},{two}", "translate"))
    with pytest.raises(InputError, match=r"train,x\.de line 4: has no partner: the file has 5 lines, but .*\.en has 3"):
        list(examples(f"{two},{one}", "translate"))
    with pytest.raises(InputError, match="absent"):
        list(examples(f"{one},{tmp_path / 'absent'}", "translate"))
    with pytest.raises(InputError, match="names no two files"):
        list(examples("train.de,", "translate"))


def test_the_shared_pairs_are_read(shared: Path) -> None:
    data = shared / "data"
    both = f"{data / 'mt_multi30k' / 'val.de.gz'},{data / 'mt_multi30k' / 'val.en.gz'}"
    found = list(examples(both, "translate"))
    assert len(found) == 1_014
    assert all(example.gold for example in found)
    csl = list(examples(data / "sum_csl" / "ts" / "dev.tsv.xz", "translate", {"source": 2, "target": 3}))
    assert len(csl) == 1_000
