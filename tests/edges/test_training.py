"""Rows E1–E3 and E9–E14 of the table of defects: what a run learns from, keeps, refuses and tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from filbert import run
from filbert.core.errors import InputError
from filbert.data import shards as sharding
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
CHINESE, ENGLISH = "今天天气很好，我们去公园玩第{}天。", "The weather of day {} is fine, so we walk."
STEPS = ("--preset", "tiny", "--set", "train.steps=2", "--set", "train.batch_tokens=256", "--set", "machine.threads=1")


def written(path: Path, sentence: str, count: int = 60) -> Path:
    """A corpus of that sentence, one document each, and of another number in each."""
    path.write_text("\n\n".join(sentence.format(number) for number in range(count)), encoding="utf-8")
    return path


# E1: a vocabulary of another corpus -----------------------------------------------------------------------------------


def test_E1_a_left_over_vocabulary_of_another_corpus_is_made_anew(tmp_path: Path, filbert: Any) -> None:
    english, chinese = written(tmp_path / "en.txt", ENGLISH), written(tmp_path / "zh.txt", CHINESE)
    run.vocabulary(run.Corpus(sources=(str(english),)), 200, tmp_path / "out")
    done = filbert("pretrain", chinese, "--out", tmp_path / "out", "--vocab-size", "200", *STEPS)
    assert done.code == 0, done.err
    assert "another corpus" in done.err
    assert "made anew" in done.err
    found = Tokenizer.load(tmp_path / "out" / "model")
    assert {"今", "公", "园"} <= set(found.vocabulary)
    assert sharding.opened(tmp_path / "out" / "shards").report.unknown_share < 0.01


def test_E1_the_same_corpus_again_keeps_the_vocabulary(tmp_path: Path) -> None:
    corpus, told = run.Corpus(sources=(str(written(tmp_path / "zh.txt", CHINESE)),)), list[str]()
    run.vocabulary(corpus, 200, tmp_path / "out", told.append)
    before = (tmp_path / "out" / "vocab" / "vocab.txt").stat().st_mtime_ns
    run.vocabulary(corpus, 200, tmp_path / "out", told.append)
    assert (tmp_path / "out" / "vocab" / "vocab.txt").stat().st_mtime_ns == before
    assert not told
    run.vocabulary(corpus, 150, tmp_path / "out", told.append)
    assert len(told) == 1
    (tmp_path / "out" / "vocab" / "made_of.json").unlink()  # killed before it was whole
    run.vocabulary(corpus, 150, tmp_path / "out", told.append)
    assert len(told) == 2


@pytest.mark.parametrize(
    ("word", "said"),
    [("train.batch_tokens=0", "train.batch_tokens"), ("task.mask_prob=3", "task.mask_prob"),
     ("machine.device=abacus", "machine.device"), ("model.heads=7", "7 heads"),
     ("task.max_length=4096", "task.max_length")],
)  # fmt: skip
def test_E1_a_wrong_value_is_refused_before_anything_is_made(
    word: str, said: str, tmp_path: Path, filbert: Any
) -> None:
    corpus = written(tmp_path / "zh.txt", CHINESE)
    done = filbert("pretrain", corpus, "--out", tmp_path / "out", *STEPS, "--set", word)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "out").exists()


def test_E1_a_run_in_the_folder_keeps_its_vocabulary_and_shards(tmp_path: Path, filbert: Any) -> None:
    chinese, english = written(tmp_path / "zh.txt", CHINESE), written(tmp_path / "en.txt", ENGLISH)
    out, vocab = tmp_path / "out", tmp_path / "out" / "vocab" / "vocab.txt"
    assert filbert("pretrain", chinese, "--out", out, "--vocab-size", "200", *STEPS).code == 0
    kept = vocab.read_bytes()
    again = filbert("pretrain", english, "--out", out, "--vocab-size", "200", *STEPS)
    assert again.code == 2
    assert "holds a run" in again.err
    assert sharding.opened(out / "shards").report.unknown_share < 0.01
    other = filbert("pretrain", chinese, "--out", out, "--vocab-size", "150", *STEPS, "--resume")
    assert other.code == 2
    assert "--vocab-size 200" in other.err
    assert vocab.read_bytes() == kept


def test_E1_standard_input_cannot_be_read_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard input can be read once"):
        run.vocabulary(run.Corpus(sources=("-",)), 200, tmp_path / "out")


# E12: two runs that share a folder of shards --------------------------------------------------------------------------


def test_E12_a_shard_of_another_build_is_refused_when_it_is_mapped(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus = written(tmp_path / "text.txt", CHINESE)
    whole = sharding.Options(held=0.0)
    first = sharding.build([str(corpus)], tokenizer, tmp_path / "shards", whole, workers=1)
    written(corpus, CHINESE.replace("公园", "医院"))  # as many bytes, and as many tokens
    second = sharding.build([str(corpus)], tokenizer, tmp_path / "shards", whole, workers=1)
    assert (first.train.shards[0].path, first.train.num_tokens) == (
        second.train.shards[0].path, second.train.num_tokens,
    )  # fmt: skip
    assert len(second.train.shards[0].ids) == second.train.num_tokens
    with pytest.raises(InputError, match="of another build by now"):
        _ = first.train.shards[0].ids
