"""The decoders of tag: what each must keep, a CRF over whole texts, and spans within spans."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.nn import crf_walk, heads, pointer
from filbert.nn.positions import Rotary
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.tag import decode as decoding
from filbert.tasks.tag import items as tag
from filbert.tasks.tag import spec as tag_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.chains import weights_of
from kit.models import small_bert

FILL = "我们坐火车去公园，今天天气很好。"
DECODERS = ("softmax", "crf", "span")

pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, before: int = 0, nested: bool = False) -> list[Example]:
    """A name in one kind of brackets is a person, in another a place; within 《…》 a place may be part of a name."""
    found = []
    for index in range(count):
        text, spans = FILL * before, []
        name, place = ("医生", "我们")[index % 2], ("公园", "火车站")[index // 2 % 2]
        for kind, words, (left, right) in (("PER", name, "《》"), ("LOC", place, "（）")):
            text += "今天" + left
            spans.append(Span(len(text), len(text) + len(words), kind))
            text += words + right
        if nested:
            text += "在《"
            spans += [Span(len(text), len(text) + 4, "PER"), Span(len(text) + 2, len(text) + 4, "LOC")]
            text += "医生公园》"
        found.append(Example((text + "很好。",), tuple(sorted(spans, key=place_of)), index, "ner.jsonl", index + 1))
    return found


def place_of(span: Span) -> tuple[int, int, str]:
    return span.start, span.end, span.label


def task_of(tokenizer: Tokenizer, examples: list[Example], **fields: Any) -> tag.Items:
    config = tag_spec.Config(**{"max_length": 32, "overlap": 16, "longest": 8, **fields})
    config = tag_spec.fitted(config, made(8))
    return tag_spec.items(examples, tag_spec.label_names(config, made(8)), tokenizer, config)


def model_for(task: tag.Items, tokenizer: Tokenizer, noise: float = 0.1) -> bert.Bert:
    return small_bert(tokenizer, task.parts, len(task.labels), noise=noise)


def raw(task: tag.Items, model: bert.Bert, indices: list[int]) -> list[Any]:
    with torch.inference_mode():
        return list(task.raw(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu")))


def arrays(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def told(task: tag.Items, found: list[Any]) -> list[set[tuple[int, int, str]]]:
    return [{place_of(span) for span in said.spans} for said in task.predictions(found)]


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("before", [0, 6])
def test_packed_equals_one_by_one(tokenizer: Tokenizer, decoder: str, before: int) -> None:
    examples = [*made(6, before), Example(("",), ()), Example(("我们",), ()), Example((FILL,), None)]
    task = task_of(tokenizer, examples, decoder=decoder)
    model = model_for(task, tokenizer, 0.3)
    together = raw(task, model, list(range(9)))
    losses = dict.fromkeys(("tag_loss", "tag_f1"), 0.0)
    for index, example in enumerate(examples):
        one = task_of(tokenizer, [example], decoder=decoder)
        (alone,) = raw(one, model, [0])
        for left, right in zip(arrays(together[index]), arrays(alone), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)
        assert told(one, [alone]) == told(task, together)[index : index + 1]
        terms = one.loss(model, on_device(one.batch(np.array([0])), "cpu"))
        losses = {name: value + terms[name].total.item() for name, value in losses.items()}
    batch = task.batch(np.arange(9), budget=2_048)  # filled up with what nobody reads
    terms = task.loss(model, on_device(batch, "cpu"))
    assert terms["tag_loss"].total.item() == pytest.approx(losses["tag_loss"], rel=1e-5)
    assert terms["tag_f1"].total.item() == losses["tag_f1"]
    assert int(terms["tag_loss"].count) == task.counts(batch)["tag_loss"] > 0


def test_an_empty_text_beside_one_of_two_tokens(tokenizer: Tokenizer) -> None:
    """As many tokens as windows, but not one in each."""
    task = task_of(tokenizer, [Example(("",), ()), Example(("天气",), (Span(0, 2, "LOC"),))])
    batch = task.batch(np.array([0, 1]))
    known = batch.targets["tags"] != tag.NOTHING
    assert batch.packed.ids[known].tolist() == task.ids.tolist()
    assert len(task.ids) == 2


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["crf", "span"])
def test_examples_are_learnt_and_a_late_name_is_found(tokenizer: Tokenizer, decoder: str) -> None:
    nested = decoder == "span"
    examples = made(8, nested=nested) * 12 + made(1, 35, nested)
    task = task_of(tokenizer, examples, decoder=decoder)
    assert len(tokenizer.encode(examples[-1].texts[0][: examples[-1].gold[0].start]).ids) > 512
    assert task.remarks() == []
    model = model_for(task, tokenizer, 0.0)
    steps = loop.Config(steps=70, learning_rate=8e-3, batch_tokens=1_024)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    found = raw(task, model.eval(), list(range(len(examples))))
    measured = task.evaluated(found)
    assert measured["f1"] > 0.95
    assert measured["num_entities"] == len(examples) * (4 if nested else 2)
    assert told(task, found)[-1] >= {place_of(span) for span in examples[-1].gold}
    assert all(0 < span.score <= 1 for span in task.predictions(found)[-1].spans)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_folder_comes_back_bit_for_bit(tokenizer: Tokenizer, tmp_path: Path, decoder: str) -> None:
    task = task_of(tokenizer, made(4), decoder=decoder)
    model = model_for(task, tokenizer)
    folders.save(tmp_path / "m", model, tokenizer, labels=task.labels)
    again = folders.load(tmp_path / "m")
    assert again.model.parts == task.parts
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])
    for one, two in zip(raw(task, model, [0, 1]), raw(task, again.model, [0, 1]), strict=True):
        for left, right in zip(arrays(one), arrays(two), strict=True):
            assert np.array_equal(left, right)
    folders.import_folder(tmp_path / "m", tmp_path / "n")
    first, second = (tmp_path / name / "model.safetensors" for name in "mn")
    assert first.read_bytes() == second.read_bytes()
    assert tag_spec.from_transformers(again.model, again.labels)["decoder"] == decoder
    modern = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=1, heads=2, inner=64, max_length=64,
                         segments=0, positions="rotary-local", norm="pre", feedforward="geglu")  # fmt: skip
    other = bert.Bert(modern, task.parts, len(task.labels))
    folders.save(tmp_path / "o", other, tokenizer, labels=task.labels)
    assert folders.load(tmp_path / "o").model.parts == task.parts


def test_transformers_passes_over_what_it_does_not_know(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    chained, pointed = (task_of(tokenizer, made(4), decoder=decoder) for decoder in ("crf", "span"))
    model = model_for(chained, tokenizer)
    folders.save(tmp_path / "m", model, tokenizer, labels=chained.labels)
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path / "m")
    assert torch.equal(theirs.classifier.weight, model.heads["tokens"].weight)
    folders.save(tmp_path / "p", model_for(pointed, tokenizer), tokenizer, labels=pointed.labels)
    assert isinstance(transformers.AutoModel.from_pretrained(tmp_path / "p"), transformers.BertModel)


def test_a_folder_that_asks_for_a_huge_chain_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    task = task_of(tokenizer, made(4), decoder="crf")
    folders.save(tmp_path / "m", model_for(task, tokenizer), tokenizer, labels=task.labels)
    (tmp_path / "m" / "manifest.json").unlink()
    about = json.loads((tmp_path / "m" / "config.json").read_text())
    about |= {"num_labels": 900_000, "id2label": None, "label2id": None}
    (tmp_path / "m" / "config.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="describes a model of 8"):
        folders.load(tmp_path / "m")


def test_gold_against_itself_is_perfect(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(10, 3), decoder="crf")
    edges = list(itertools.pairwise(task.pieces.boundaries))
    chained = [(task.gold[a:b], np.eye(len(task.labels))[task.gold[a:b]]) for a, b in edges]
    assert task.evaluated(chained)["f1"] == 1
    task = task_of(tokenizer, made(10, 3, nested=True), decoder="span")
    _, first, last, kind = task.gold.T
    begins = task.pieces.boundaries
    texts = np.searchsorted(begins, first, side="right") - 1
    cells = np.stack((first - begins[texts], last - begins[texts], kind), axis=1)
    pointed = [(cells[texts == text], np.ones((texts == text).sum())) for text in range(10)]
    measured = task.evaluated(pointed)
    assert (measured["f1"], measured["macro_f1"], measured["num_entities"]) == (1, 1, 40)


# -- crf ---------------------------------------------------------------------------------------------------------------


def test_the_chain_is_that_of_the_whole_text(tokenizer: Tokenizer) -> None:
    """Its likelihood by hand: the tokens of all windows end to end, each from the window that owns it."""
    task = task_of(tokenizer, made(5, 6), decoder="crf")
    assert len(task.cuts.first) > 10
    model = model_for(task, tokenizer, 0.3)
    head = model.heads["crf"].under(task.legal)
    plain = task_of(tokenizer, made(5, 6))
    total = 0.0
    for index, scores in enumerate(raw(plain, model, list(range(5)))):
        gold = task.gold[task.pieces.boundaries[index] : task.pieces.boundaries[index + 1]]
        found = head.log_likelihood(torch.from_numpy(scores).double(), torch.from_numpy(gold), [0, len(gold)])
        total -= found.sum().item()
        weights = [getattr(head, name).detach().numpy() for name in ("begin", "transitions", "end")]
        wanted = crf_walk.viterbi(scores, [0, len(scores)], tuple(weights), task.legal)
        assert np.array_equal(raw(task, model, [index])[0][0], wanted)  # decoded without torch, to the same tags
    terms = task.loss(model, on_device(task.batch(np.array([3, 0, 4, 1, 2])), "cpu"))
    assert terms["tag_loss"].total.item() == pytest.approx(total, rel=1e-5)
    terms["tag_loss"].total.backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.heads.parameters())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["bio", "bioes", "plain"]), st.sampled_from([1, 30, 3e38]))
def test_a_chain_never_says_what_is_illegal(seed: int, scheme: str, size: float) -> None:
    from filbert.nn.crf import CRF

    random = np.random.default_rng(seed)
    labels = tag_spec._tag_set(("A", "B", "C"), scheme)
    legal = decoding.allowed(labels, "bioes" if scheme == "plain" else scheme)
    chain = CRF(len(labels))
    with torch.no_grad():
        for weight in chain.parameters():
            weight.copy_(torch.from_numpy(random.normal(size=weight.shape).astype(np.float32) * min(size, 1e9)))
    bounds = np.concatenate(([0], np.cumsum(random.integers(0, 9, 6))))
    with np.errstate(over="ignore"):
        scores = (random.normal(size=(bounds[-1], len(labels))) * size).astype(np.float32)
    found = crf_walk.viterbi(scores, bounds, weights_of(chain), legal)
    assert len(legal.broken(found, bounds)) == 0
    for start, end in itertools.pairwise(bounds):
        names = [labels[place] for place in found[start:end]]
        kind = "bioes" if scheme == "plain" else scheme
        assert decoding.entities(names, kind) == decoding.entities(names, kind, strict=True)


def test_the_chain_learns_at_the_heads_rate(tokenizer: Tokenizer) -> None:
    from filbert.train.optim import optimiser

    model = model_for(task_of(tokenizer, made(4), decoder="crf"), tokenizer)
    groups = optimiser(model, "adamw", 1e-4, 0.01, head_rate=50.0).param_groups
    scale = {name: group["scale"] for group in groups for name in group["param_names"]}
    assert {name for name, value in scale.items() if value == 50} == {
        *(f"heads.crf.{name}" for name in ("transitions", "begin", "end")), "heads.tokens.weight", "heads.tokens.bias",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["crf", "span"])
def test_killed_and_resumed_it_has_the_same_weights(
    cut_short: Callable[..., tuple[bytes, bytes]], decoder: str
) -> None:
    settings = ["train.batch_tokens=128", "train.checkpoint_every=2", "task.max_length=32", "task.overlap=8",
                "task.mask_prob=0.1", "model.dropout=0.1", f"task.decoder={decoder}"]  # fmt: skip
    whole, cut = cut_short("tag", made(16, 1), settings)
    assert whole == cut


# -- span --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_length", "overlap", "longest"), [(32, 16, 8), (16, 4, 8), (12, 0, 5), (64, 32, 64)])
def test_every_stretch_is_answered_for_once(tokenizer: Tokenizer, max_length: int, overlap: int, longest: int) -> None:
    """By the window of its first token if that sees its last, else by another that sees both, if there is one."""
    examples = [*made(3, 5), Example(("",), ()), Example(("医生",), ())]
    task = task_of(tokenizer, examples, decoder="span", max_length=max_length, overlap=overlap, longest=longest)
    answered, seen = [], set()
    for place, (start, end, own_start, own_end) in enumerate(task.cuts.first.tolist()):
        seen |= {(i, j) for i in range(start, end) for j in range(i, min(i + longest, end))}
        tokens, reach = task._reach(np.array([place]))
        for i, (low, high) in zip(tokens.tolist(), reach.tolist(), strict=True):
            answered += [(i, i + far) for far in range(low, high)]
            assert i + high <= end
            another = task._window_of(np.array([i]), np.array([i + low])) == place
            assert high == low or own_start <= i < own_end or another
    assert len(answered) == len(set(answered))
    assert set(answered) == seen


def test_what_a_pointer_cannot_learn_is_told(tokenizer: Tokenizer) -> None:
    text = FILL * 4
    long, crossing, short = Span(0, 12, "PER"), Span(28, 36, "LOC"), Span(30, 32, "LOC")
    task = task_of(tokenizer, [Example((text,), (long, crossing, short))], decoder="span", max_length=34, overlap=0)
    wide = task_of(tokenizer, [Example((text,), (long, crossing, short))], decoder="span", longest=16)
    assert wide.remarks() == []
    assert len(wide.gold) == 3
    (first, second) = task.remarks()
    assert "1 spans have more tokens than task.longest" in first
    assert "1 spans stand whole in no window" in second
    assert len(task.gold) == 1
    with pytest.raises(InputError, match="the kind of a span is 'PRE'"):
        task_of(tokenizer, [Example((text,), (Span(0, 2, "PRE"),), 0, "x.jsonl", 3)], decoder="span")
    for fields, match in (
        ({"longest": 0}, "longest"),
        ({"decoder": "beam"}, "softmax, crf"),
        ({"decoder": "crf", "label_smoothing": 0.1}, "label_smoothing is for task.decoder=softmax"),
    ):
        with pytest.raises(InputError, match=match):
            tag_spec.Config(**fields)


def test_the_pointer_and_its_loss_by_hand() -> None:
    torch.manual_seed(1)
    head = pointer.Pointer(6, 3).double()
    lengths, reach = [4, 1, 3], 3
    edges = torch.tensor([0, 4, 5, 8], dtype=torch.int32)
    x = torch.randn(8, 6, dtype=torch.double)
    positions = torch.cat([torch.arange(length) for length in lengths])
    scores = head(x, positions, reach).double()
    far = torch.arange(reach)
    is_open = far < torch.tensor([4, 3, 2, 1, 1, 3, 2, 1])[:, None]
    gold = (torch.rand(8, reach, 3) < 0.3) & is_open[:, :, None]
    mapped = head.edges(x)
    angles = [tuple(part[:, 0] for part in Rotary(heads.INNER, heads.THETA).angles(positions))][0]
    wanted = 0.0
    for begin, end in itertools.pairwise(edges.tolist()):
        for kind in range(3):
            right, wrong = [], []
            for i in range(begin, end):
                for j in range(i, min(i + reach, end)):
                    turned = [
                        side[row] * angles[0][row] + torch.cat((-side[row][32:], side[row][:32])) * angles[1][row]
                        for side, row in ((mapped[:, :64], i), (mapped[:, 64:], j))
                    ]
                    own = head.kinds(mapped)
                    score = turned[0] @ turned[1] / 8 + own[i, kind] + own[j, 3 + kind]
                    assert scores[i, j - i, kind].item() == pytest.approx(score.item(), abs=1e-5)
                    (right if gold[i, j - i, kind] else wrong).append(score.item())
            wanted += np.log1p(np.exp(wrong).sum()) + np.log1p(np.exp(-np.array(right)).sum())
    found = pointer.apart_loss(scores, gold, is_open, edges)
    assert found.item() == pytest.approx(wanted, abs=1e-4)
    huge = pointer.apart_loss((300 * scores).requires_grad_(), gold, is_open, edges)
    assert huge.isfinite()
    nothing = torch.zeros(8, reach, 3).requires_grad_()
    pointer.apart_loss(nothing, torch.zeros_like(gold), torch.zeros_like(is_open), edges).backward()
    assert (nothing.grad == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["crf", "span"])
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any], decoder: str) -> None:
    data = tmp_path / "train.jsonl"
    rows = [
        {"text": e.texts[0], "entities": [{"start": s.start, "end": s.end, "label": s.label} for s in e.gold]}
        for e in made(16, nested=decoder == "span")
    ]
    data.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    code, said, err = filbert(
        "finetune", "tag", "--train", data, "--dev", data, "--model", tiny_folder, "--out", out, "--epochs", "22",
        "--set", f"task.decoder={decoder}", "--set", "machine.threads=1", "--set", "train.batch_tokens=128",
        "--set", "train.learning_rate=5e-3", "--set", "train.head_rate=3",
    )  # fmt: skip
    assert code == 0, err
    assert "tag_f1" in said
    assert json.loads((out / "model" / "task.json").read_text())["decoder"] == decoder
    code, said, err = filbert("evaluate", out, "--data", data, "--json")
    assert code == 0, err
    assert json.loads(said)["f1"] > 0.9
    code, said, err = filbert("predict", out, "--text", rows[0]["text"], "--text", "", "--text", FILL * 30)
    assert code == 0, err
    found = [json.loads(line)["entities"] for line in said.splitlines()]
    assert [len(found), found[1]] == [3, []]
    if decoder == "span":
        assert {(entity["text"], entity["label"]) for entity in found[0]} >= {("医生公园", "PER"), ("公园", "LOC")}


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("decoder", DECODERS)
def test_the_commands_on_a_real_set(
    shared: Path, tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any], decoder: str
) -> None:
    import lzma

    with lzma.open(shared / "data" / "ner_resume" / "dev.char.bmes.xz", "rt", encoding="utf-8") as file:
        lines = file.read().split("\n\n")
    data = tmp_path / "some.char.bmes"
    data.write_text("\n\n".join(lines[:200]) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    code, _, err = filbert(
        "finetune", "tag", "--train", data, "--model", tiny_folder, "--out", out, "--epochs", "1", "--set",
        f"task.decoder={decoder}", "--set", "machine.threads=1", "--set", "train.learning_rate=3e-3", "--set",
        "task.max_length=64", "--set", "task.mask_prob=0.1",
    )  # fmt: skip
    assert code == 0, err
    code, said, err = filbert("evaluate", out, "--data", data, "--json")
    assert code == 0, err
    measured = json.loads(said)
    assert measured["num_sentences"] == 200
    assert measured["num_entities"] == sum(line[2:3] in "BS" for text in lines[:200] for line in text.split("\n"))
    code, said, err = filbert("predict", out, "--data", data)
    assert code == 0, err
    rows = [json.loads(line) for line in said.splitlines()]
    assert len(rows) == 200
    for row in rows:
        assert all(row["text"][e["start"] : e["end"]] == e["text"] for e in row["entities"])
