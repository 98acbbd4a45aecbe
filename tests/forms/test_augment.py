"""Changed copies of texts: functions of (seed, example, copy), labels kept, own rows kept, dev data never touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.folder import folder as folders
from filbert.forms import augment
from filbert.models import bert
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer
from filbert.train import machine, tune

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ("今天的菜和服务都很好，我们喜欢。", "the playing children", "好", "", "😀😀 天气😀", "a", "再来！" * 60)


def made(texts: tuple[str, ...] = TEXTS) -> list[Example]:
    return [Example((text,), ("好", "坏")[i % 2], i, "train.tsv", i + 1) for i, text in enumerate(texts)]


def copied(examples: list[Example], kinds: str, tokenizer: Tokenizer, folder: Path, **more: Any) -> list[Example]:
    seed = more.pop("seed", 0)
    here = machine.chosen(machine.Config(threads=1))
    config = tune.Config(augment=kinds, **more)
    return tune.copies("classify", examples, config, tokenizer, folders.load(folder).model, here, seed)


@pytest.mark.parametrize("kind", augment.KINDS)
def test_a_copy_is_a_function_of_seed_example_and_copy(kind: str, tokenizer: Tokenizer, tiny_folder: Path) -> None:
    def texts(examples: list[Example], **more: Any) -> list[str]:
        return [e.texts[0] for e in copied(examples, kind, tokenizer, tiny_folder, augment_prob=0.3, **more)]

    first = texts(made())
    assert texts(made()) == first
    assert texts(made(), seed=1) != first
    both = copied(made(), kind, tokenizer, tiny_folder, augment_prob=0.3, augment_copies=2)
    assert [e.texts[0] for e in both[: len(first)]] == first
    assert [e.texts[0] for e in both[len(first) :]] != first
    alone = [text for example in made() for text in texts([example])]  # whatever else there is
    assert alone == first
    assert [e.id for e in both] == list(range(len(TEXTS), len(TEXTS) + len(both)))
    by_line = {example.line: example for example in made()}
    assert all(e.gold == by_line[e.line].gold and e.texts != by_line[e.line].texts for e in both)
    assert all(text for text in first)  # none was emptied, and the empty one has no copy


def test_words_are_left_out(tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(0)
    text = "ab cd，好 吗"
    words = np.array([(0, 2), (3, 5), (5, 6), (6, 7), (8, 9)])
    gone = augment.deleted(text, words, 0.4, random)
    assert len(gone) < len(text)
    for _ in range(20):
        kept = augment.deleted(text, words, 0.9, random).replace(" ", "")
        assert kept in ("ab", "cd", "，", "好", "吗")  # one stays
    assert augment.deleted("好", np.array([(0, 1)]), 0.9, random) == "好"
    assert augment.deleted("", np.zeros((0, 2), dtype=int), 0.5, random) == ""


def test_neighbours_are_exchanged_and_what_stands_between_stays() -> None:
    random = np.random.default_rng(0)
    words = np.array([(0, 2), (3, 5), (5, 6)])
    found = {augment.swapped("ab cd，", words, 0.1, random) for _ in range(20)}
    assert found == {"cd ab，", "ab ，cd"}
    assert augment.swapped("好", np.array([(0, 1)]), 0.9, random) == "好"


def test_pieces_of_one_word_go_together(tokenizer: Tokenizer) -> None:
    text = "children playing 今天"
    tokens = tokenizer.pieces([text])[0]
    assert tokenizer.continues[tokens.ids].any()  # some word has several pieces
    found = [text[start:end] for start, end in augment.units(tokens, tokenizer.continues).tolist()]
    assert found == ["children", "playing", "今", "天"]


def test_the_model_fills_in_what_is_hidden(tokenizer: Tokenizer, tiny_folder: Path) -> None:
    """Of a model that is sure of one word, each copy has that word in it, and nothing else is changed."""
    model = folders.load(tiny_folder).model
    sure, special = tokenizer.id_of("天"), tokenizer.mask_id
    model.mlm.bias.data[sure] = 1e4
    model.mlm.bias.data[special] = 1e5  # which is never put in, however likely
    model.mlm.bias.data[tokenizer.vocabulary.index(next(t for t in tokenizer.vocabulary if t.startswith("##")))] = 1e5
    config = tune.Config(augment="replace", augment_prob=0.25)
    texts = tuple(text for text in TEXTS if text and text.isprintable() and not text.isascii())
    here = machine.chosen(machine.Config(threads=1))
    found = tune.copies("classify", made(texts), config, tokenizer, model, here, 0)
    assert len(found) == len(texts)
    for old, new in zip(texts, found, strict=True):
        assert len(new.texts[0]) == len(old)
        changed = [b for a, b in zip(old, new.texts[0], strict=True) if a != b]
        assert set(changed) == {"天"}
    long = found[-1].texts[0]  # of several windows: words are put in everywhere
    assert {len(long[part : part + 60].replace("天", "")) < 60 for part in range(0, 180, 60)} == {True}


def test_words_are_drawn_as_often_as_they_are_likely(tokenizer: Tokenizer, tiny_folder: Path) -> None:
    model = folders.load(tiny_folder).model
    for weight in (model.mlm.norm.weight, model.mlm.norm.bias):
        weight.data.zero_()
    one, two = (tokenizer.id_of(character) for character in "天地")
    model.mlm.bias.data.fill_(-1e4)
    model.mlm.bias.data[one], model.mlm.bias.data[two] = 5.0, 5.0 + float(np.log(3))
    config = tune.Config(augment="replace", augment_prob=0.9, augment_copies=50)
    here = machine.chosen(machine.Config(threads=1))
    found = tune.copies("classify", made(("今天的菜和服务都很好",)), config, tokenizer, model, here, 0)
    drawn = "".join(e.texts[0] for e in found)
    share = drawn.count("地") / (drawn.count("地") + drawn.count("天"))
    assert share == pytest.approx(0.75, abs=0.08)


@pytest.mark.slow
def test_own_rows_stay_and_dev_data_are_never_touched(
    tiny_folder: Path, tmp_path: Path, filbert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example that reaches a task is looked at: copies only in what is learnt from."""
    from filbert.tasks.classify import items as classify

    train, dev = made(("今天的菜很好", "服务差", "我们喜欢这里", "不会再来")), made(("味道不错", "太贵了"))
    seen: list[list[str]] = []
    kept = classify.Items.__init__

    def spied(self: Any, examples: list[Example], *more: Any) -> None:
        seen.append([e.texts[0] for e in examples])
        kept(self, examples, *more)

    monkeypatch.setattr(classify.Items, "__init__", spied)
    for name, examples in (("train", train), ("dev", dev)):
        lines = "".join(f"{e.texts[0]}\t{e.gold}\n" for e in examples)
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    words = ["machine.threads=1", "tune.augment=replace, swap,delete", "tune.augment_copies=2", "train.steps=4"]
    settings = [word for each in words for word in ("--set", each)]
    out = tmp_path / "run"
    ran = filbert("finetune", "classify", "--train", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv", "--model",
                  tiny_folder, "--out", out, *settings)  # fmt: skip
    assert ran.code == 0, ran.err
    learnt, held = seen[0], seen[1]
    assert learnt[:4] == [e.texts[0] for e in train]
    assert held == [e.texts[0] for e in dev]
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["added"] == len(learnt) - 4
    assert 18 <= recipe["added"] <= 24
    card = (out / "model" / "README.md").read_text()
    assert "on 4 texts" in card
    assert f"{recipe['added']} changed copies of texts are learnt from as well." in card
    ran = filbert("evaluate", out, "--data", tmp_path / "dev.tsv", "--json")
    assert json.loads(ran.out)["num_examples"] == 2
    assert seen[-1] == held


@pytest.mark.slow
def test_killed_and_resumed(cut_short: Any) -> None:
    texts = tuple(f"今天的菜{word}，服务{word}" for word in "好坏美差快慢新旧热冷贵香")
    whole, cut = cut_short("classify", made(texts), ["tune.augment=replace,swap", "train.batch_tokens=64"])
    assert whole == cut


def test_pairs_are_changed_in_both_texts(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    pairs = [
        Example((f"今天的菜{w}吗", f"服务怎么样{w}"), ("same", "other")[i % 2], i) for i, w in enumerate("好坏美差")
    ]
    found = tune.copies(
        "pair", pairs, tune.Config(augment="swap"), tokenizer, None, machine.chosen(machine.Config()), 0
    )
    assert len(found) == 4
    for old, new in zip(pairs, found, strict=True):
        assert new.gold == old.gold
        for before, after in zip(old.texts, new.texts, strict=True):
            assert before != after
            assert sorted(before) == sorted(after)
    done = finetune("pair", pairs, tiny_folder, tmp_path, quiet=True,
                        settings=["tune.augment=delete,replace", "train.steps=2", "machine.threads=1"])  # fmt: skip
    assert done.outcome.state.step == 2


def test_where_it_cannot_be_it_is_refused(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    spans = [Example(("我在北京",), (Span(2, 4, "LOC"),), i) for i in range(4)]
    with pytest.raises(InputError, match=r"tune\.augment changes the words .* gold of tag .*for .*classify, pair\."):
        finetune("tag", spans, tiny_folder, tmp_path / "a", settings=["tune.augment=swap"])
    config = folders.load(tiny_folder).config
    folders.save(tmp_path / "bare", bert.Bert(config), tokenizer)
    with pytest.raises(InputError, match="no masked-language-model head; begin with a pretrained one, or take delete"):
        finetune("classify", made(), tmp_path / "bare", tmp_path / "b", settings=["tune.augment=replace"])
    with pytest.raises(InputError, match=r"tune\.augment is 'swop', .*Did you mean 'swap'"):
        finetune("classify", made(), tiny_folder, tmp_path / "c", settings=["tune.augment=swop"])
