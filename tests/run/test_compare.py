"""`filbert compare`: models trained alike, one table and page; what is done is kept, and what differs is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.run import compare
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
GOOD, BAD = ("很好", "喜欢"), ("不好", "讨厌")
FILL = ("今天", "我们", "这个地方", "昨天晚上", "老师说")


def rows(count: int) -> str:
    """text<TAB>label, one word decides."""
    lines = []
    for index in range(count):
        words, label = ((GOOD, "good"), (BAD, "bad"))[index % 2]
        lines.append(f"{FILL[index % 5]}苹果{words[index // 2 % 2]}\t{label}\n")
    return "".join(lines)


@pytest.fixture
def data(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """Labelled files, a text and a vocabulary."""
    (tmp_path / "train.tsv").write_text(rows(40), encoding="utf-8")
    (tmp_path / "test.tsv").write_text(rows(16), encoding="utf-8")
    text = "\n\n".join(
        f"{FILL[i % 5]}天气很好，我们去公园。{FILL[i % 3]}医生说不用去医院。第{i}天。" for i in range(60)
    )
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    tokenizer.save(tmp_path / "vocab")
    return tmp_path


def asked(data: Path, models: str, *more: str) -> list[str]:
    """The command line."""
    return [
        "compare", "--models", models, "--train", str(data / "train.tsv"), "--test", str(data / "test.tsv"), "--preset",
        "tiny", "--vocab", str(data / "vocab"), "--out", str(data / "out"), "--set", "machine.threads=1", "--set",
        "train.batch_tokens=128", "--set", "train.learning_rate=5e-3", "--set", "pretrain.machine.threads=1",
        "--set", "pretrain.train.batch_tokens=512", "--tokens", "3000", *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_models_are_compared_and_what_is_done_is_kept(
    data: Path, filbert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with a row for each, a page, and the second time nothing is trained again."""
    corpus = ("--corpus", str(data / "text.txt"))
    first = filbert(*asked(data, "word2vec,han", *corpus), "--json")
    assert first.code == 0, first.err
    told = json.loads(first.out)
    assert [row["model"] for row in told["rows"]] == ["word2vec", "han"]
    vectors, documents = told["rows"]
    assert vectors["pretrained"]["tokens"] > 0
    assert documents["pretrained"] == {}  # labels alone train it
    for row in told["rows"]:
        low, high = row["intervals"]["accuracy"]
        assert low <= row["measures"]["accuracy"] <= high
        assert row["parameters"] >= row["beside_words"] >= 0
        assert row["rows_per_s"] > 0
    assert vectors["beside_words"] == 0
    page = (data / "out" / "comparison.html").read_text(encoding="utf-8")
    assert "word2vec" in page
    assert "http://" not in page.replace("http://www.w3.org", "")

    def never(*given: Any, **more: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(compare, "finetune", never)
    second = filbert(*asked(data, "word2vec,han", *corpus))
    assert second.code == 0, second.err
    assert second.out.splitlines()[0].split()[:2] == ["model", "score"]
    assert [line.split()[0] for line in second.out.splitlines()[1:3]] == ["word2vec", "han"]


@pytest.mark.slow
def test_a_row_that_was_killed_goes_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After pretraining, which is not done again; the rows before it stay."""
    contest = compare.Contest(
        task="classify", train=str(data / "train.tsv"), test=str(data / "test.tsv"), models=("nnlm",), preset="tiny",
        corpus=(str(data / "text.txt"),), tokens=2_000, vocab=str(data / "vocab"),
        settings=("machine.threads=1", "pretrain.machine.threads=1", "pretrain.train.batch_tokens=512"),
    )  # fmt: skip

    def killed(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(compare, "finetune", killed)
        with pytest.raises(KeyboardInterrupt):
            compare.compare(contest, data / "out")
    before = json.loads((data / "out" / "nnlm" / "pretrained" / "row.json").read_text())
    assert before.pop("identity")
    monkeypatch.setattr(compare, "pretrain", killed)
    found = compare.compare(contest, data / "out")
    assert found["rows"][0]["pretrained"] == before
    with pytest.raises(InputError, match="is of another comparison"):
        compare.compare(compare.Contest(**{**vars(contest), "seed": 1}), data / "out")


def test_sentences_on_which_models_part_stand_by_sense() -> None:
    """Those with a word of several senses first, then those with the most answers; where all agree, none."""
    examples = [Example((text,), "x") for text in ("天气", "苹果手机", "河边", "云")]
    said = [{"model": name, "said": list(row)} for name, row in (("a", "xyzx"), ("b", "xxyx"), ("c", "xxxx"))]
    found = compare.parted(said, examples)
    assert [entry["text"] for entry in found] == ["苹果手机", "河边"]
    assert found[0]["said"] == {"a": "y", "b": "x", "c": "x"}
    assert found[0]["senses"] == ["苹果"]
    assert compare.parted(said[:1], examples) == []


@pytest.mark.parametrize(
    ("models", "said"),
    [("", "name some models"), ("berd", "bert"), ("bert,bert", "named twice")],
)
def test_wrong_names_are_told(models: str, said: str, data: Path, filbert: Any) -> None:
    """In one sentence, before anything is trained."""
    found = filbert(*asked(data, models))
    assert found.code == 2
    assert said in found.err
    assert not (data / "out").exists()


def test_a_new_model_must_be_known(data: Path, filbert: Any) -> None:
    """`--arch` of finetune and pretrain; both --model and --arch are refused."""
    train = ("--train", str(data / "train.tsv"), "--out", str(data / "run"))
    both = filbert("finetune", "classify", "--arch", "han", "--model", "builtin", *train)
    assert both.code == 2
    assert "--arch" in both.err
    wrong = filbert("finetune", "classify", "--arch", "hann", *train)
    assert wrong.code == 2
    assert "Did you mean 'han'?" in wrong.err
    size = filbert("finetune", "classify", "--arch", "han", "--preset", "huge", *train)
    assert size.code == 2
    assert "the han preset is 'huge'" in size.err
    text = str(data / "text.txt")
    labels = filbert("pretrain", text, "--arch", "han", "--out", str(data / "p"))
    assert labels.code == 2
    assert "labelled data alone" in labels.err
    clock = filbert("pretrain", text, "--arch", "gpt", "--budget", "1m", "--out", str(data / "p"))
    assert clock.code == 2
    assert "--budget is for --arch bert" in clock.err


def test_a_pretrained_gpt_writes_on(data: Path, filbert: Any) -> None:
    """From the command line, the beginning as it was given."""
    made = filbert(
        "pretrain", str(data / "text.txt"), "--arch", "gpt", "--preset", "tiny", "--vocab", str(data / "vocab"),
        "--out", str(data / "gpt"), "--set", "train.steps=2", "--set", "machine.threads=1",
        "--set", "train.batch_tokens=256",
    )  # fmt: skip
    assert made.code == 0, made.err
    found = filbert("write", str(data / "gpt"), "--text", "今天 天气", "--tokens", "4", "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)["texts"][0]
    assert told["written"].startswith("今天 天气")
    again = filbert("write", str(data / "gpt"), "--text", "今天 天气", "--tokens", "4")
    assert again.out.strip() == told["written"]


@pytest.mark.slow
def test_a_writer_translates_from_the_command_line(data: Path, filbert: Any) -> None:
    """Trained, saved, loaded and asked; a model of another task is refused by name."""
    (data / "a.txt").write_text("今天\n天气\n医生\n公园\n" * 3, encoding="utf-8")
    (data / "b.txt").write_text("天气\n今天\n公园\n医生\n" * 3, encoding="utf-8")
    done = finetune(
        "translate", f"{data}/a.txt,{data}/b.txt", None, data / "mt", arch="transformer", preset="tiny", epochs=30,
        vocab=data / "vocab", quiet=True,
        settings=["machine.threads=1", "train.batch_tokens=64", "train.learning_rate=3e-3", "model.dropout=0"],
    )  # fmt: skip
    assert done.outcome.state.step >= 60
    found = filbert("translate", str(data / "mt"), "-t", "今天", "-t", "医生")
    assert found.code == 0, found.err
    assert found.out.splitlines() == ["天气", "公园"]
    wrong = filbert("chat", str(data / "mt"), "--text", "今天")
    assert wrong.code == 2
    assert "is a model for translate, not for chat" in wrong.err
