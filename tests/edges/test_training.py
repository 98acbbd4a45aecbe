"""Rows E1–E3 and E9–E14 of the table of defects: what a run learns from, keeps, refuses and tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from filbert.core.errors import InputError
from filbert.corpus import shards as sharding
from filbert.run.finetune import finetune
from filbert.run.pretrain import Corpus, vocabulary
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
SOURCE = Path(__file__).resolve().parents[2] / "src"
CHINESE, ENGLISH = "今天天气很好，我们去公园玩第{}天。", "The weather of day {} is fine, so we walk."
STEPS = ("--preset", "tiny", "--set", "train.steps=2", "--set", "train.batch_tokens=256", "--set", "machine.threads=1")


def written(path: Path, sentence: str, count: int = 60) -> Path:
    """A corpus of that sentence, one document each, and of another number in each."""
    path.write_text("\n\n".join(sentence.format(number) for number in range(count)), encoding="utf-8")
    return path


# E1: a vocabulary of another corpus -----------------------------------------------------------------------------------


def test_E1_a_left_over_vocabulary_of_another_corpus_is_made_anew(tmp_path: Path, filbert: Any) -> None:
    english, chinese = written(tmp_path / "en.txt", ENGLISH), written(tmp_path / "zh.txt", CHINESE)
    vocabulary(Corpus(sources=(str(english),)), 200, tmp_path / "out")
    done = filbert("pretrain", chinese, "--out", tmp_path / "out", "--vocab-size", "200", *STEPS)
    assert done.code == 0, done.err
    assert "another corpus" in done.err
    assert "made anew" in done.err
    found = Tokenizer.load(tmp_path / "out" / "model")
    assert {"今", "公", "园"} <= set(found.vocabulary)
    assert sharding.opened(tmp_path / "out" / "shards").report.unknown_share < 0.01


def test_E1_the_same_corpus_again_keeps_the_vocabulary(tmp_path: Path) -> None:
    corpus, told = Corpus(sources=(str(written(tmp_path / "zh.txt", CHINESE)),)), list[str]()
    vocabulary(corpus, 200, tmp_path / "out", told.append)
    before = (tmp_path / "out" / "vocab" / "vocab.txt").stat().st_mtime_ns
    vocabulary(corpus, 200, tmp_path / "out", told.append)
    assert (tmp_path / "out" / "vocab" / "vocab.txt").stat().st_mtime_ns == before
    assert not told
    vocabulary(corpus, 150, tmp_path / "out", told.append)
    assert len(told) == 1
    (tmp_path / "out" / "vocab" / "made_of.json").unlink()  # killed before it was whole
    vocabulary(corpus, 150, tmp_path / "out", told.append)
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
        vocabulary(Corpus(sources=("-",)), 200, tmp_path / "out")


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


# Fine-tuning: what is set, what is fitted, what may change ----------------------------------------------------------

QUICK = ("machine.threads=1", "train.steps=2", "train.batch_tokens=256", "train.learning_rate=1e-3")
WORDS = ("很好", "不好", "喜欢", "讨厌")


def labelled(path: Path, count: int, both: bool = False) -> Path:
    """text<TAB>label; with `both` some texts have two labels."""
    rows = []
    for index in range(count):
        label = "good" if index % 4 in (0, 2) else "bad"
        label = "good|bad" if both and index % 3 == 0 else label
        rows.append({"text": f"第{index}天{WORDS[index % 4]}", "label": label.split("|") if both else label})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def tuned(folder: Path, out: Path, count: int, *settings: str, both: bool = False, **more: Any) -> dict[str, Any]:
    """The task.json of a run with so many rows of dev data."""
    train = labelled(out.with_suffix(".train.jsonl"), 40, both)
    dev = labelled(out.with_suffix(".dev.jsonl"), count, both)
    finetune("classify", str(train), folder, out, dev=str(dev), settings=[*QUICK, *settings], quiet=True, **more)
    return dict(json.loads((out / "model" / "task.json").read_text(encoding="utf-8")))


def notes(out: Path) -> str:
    """What the log of a run notes."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return " ".join(line["message"] for line in lines if line.get("event") == "note")


@pytest.mark.slow
def test_E2_vectors_of_a_han_are_learnt_saved_and_given(tmp_path: Path) -> None:
    import filbert as fb

    pairs = tmp_path / "pairs.tsv"
    words = ("天气", "公园", "医院", "老师")
    pairs.write_text("".join(f"我喜欢{a}。今天{b}。\t{a}很好，{b}。\n" for a in words for b in words), encoding="utf-8")
    out = tmp_path / "out"
    done = finetune("embed", str(pairs), None, out, dev="30%", settings=QUICK, quiet=True, arch="han", preset="tiny")
    assert done.report["evaluations"]["dev"]["num_examples"]
    model = fb.load(out)
    texts = ["我喜欢天气。今天公园。", "天气很好，公园。", "长" * 600]
    vectors = model.embed(texts)
    assert vectors.shape == (3, model.config.width)
    asked = model.predict([(texts[0], texts[1])])[0].scores["similarity"]
    assert float(vectors[0] @ vectors[1]) == pytest.approx(asked, abs=1e-4)
    with pytest.raises(InputError, match="no such way to sum a text up"):
        fb.load("builtin").embed(texts, pool="own")


@pytest.mark.slow
def test_E3_what_the_user_sets_stays(tiny_folder: Path, tmp_path: Path) -> None:
    assert tuned(tiny_folder, tmp_path / "one", 60, "task.temperature=1")["temperature"] == 1.0
    assert tuned(tiny_folder, tmp_path / "half", 60, "task.several=0.5", both=True)["several"] == 0.5
    with pytest.raises(InputError, match=r"task\.several is false"):
        tuned(tiny_folder, tmp_path / "false", 60, "task.several=false", both=True)
    with pytest.raises(InputError, match="epochs is 0"):
        tuned(tiny_folder, tmp_path / "none", 60, epochs=0)


@pytest.mark.slow
def test_E4_nothing_is_fitted_from_few_rows_and_it_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    assert tuned(tiny_folder, tmp_path / "few", 4)["temperature"] == 1.0
    assert "task.temperature was not fitted on the dev data: 4 rows are too few" in notes(tmp_path / "few")
    said = json.loads((tmp_path / "few" / "report.json").read_text(encoding="utf-8"))["evaluations"]["dev"]["sentences"]
    assert any("4 rows are too few" in sentence for sentence in said)
    assert "4 rows of dev data are too few" in (tmp_path / "few" / "model" / "README.md").read_text(encoding="utf-8")
    assert tuned(tiny_folder, tmp_path / "sets", 4, both=True)["several"] == 0.5
    assert "task.several was not fitted" in notes(tmp_path / "sets")


def test_E11_what_is_other_on_resume_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    lines = [f"第{index}天{WORDS[index % 4]},另{index}文,{'ab'[index % 2]}\n" for index in range(20)]
    table.write_text("one,two,label\n" + "".join(lines), encoding="utf-8")

    def tune(column: str, *settings: str, resume: bool = True) -> None:
        columns = {"text": column, "label": "label"}
        how = {"settings": [*QUICK, *settings], "columns": columns, "quiet": True, "resume": resume}
        finetune("classify", str(table), tiny_folder, tmp_path / "out", **how)

    tune("one", resume=False)
    with pytest.raises(InputError, match=r"another data\.columns \(.*one.*now.*two"):
        tune("two")
    with pytest.raises(InputError, match=r"made with another train\.learning_rate \(0\.001, now 0\.002\);"):
        tune("one", "train.learning_rate=2e-3")
    with pytest.raises(InputError, match=r"another task\.mask_prob \(.*, now 0\.3\)"):
        tune("one", "task.mask_prob=0.3")


# E10: nothing to learn from -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["word2vec", "glove"])
def test_E10_a_corpus_without_pairs_of_words_is_refused(
    arch: str, tmp_path: Path, filbert: Any, tokenizer: Tokenizer
) -> None:
    corpus = tmp_path / "text.txt"
    letters = [token for token in tokenizer.vocabulary if len(token) == 1 and token.isalpha()]
    corpus.write_text("\n\n".join(letters), encoding="utf-8")
    tokenizer.save(tmp_path / "vocab")
    words = ("--vocab", tmp_path / "vocab", "--out", tmp_path / "out", *STEPS, "--arch", arch)
    done = filbert("pretrain", corpus, *words)
    assert done.code == 2
    assert "nothing" in done.err
    assert not (tmp_path / "out" / "model").exists()


# E13: tags are decoded by tokens --------------------------------------------------------------------------------------


def test_E13_tags_are_decoded_in_groups_of_so_many_tokens() -> None:
    from filbert.tasks.tag import decode as tags

    assert list(tags.together([3, 3, 3, 20, 1, 1], 6)) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(tags.together([], 6)) == []


def test_E13_groups_change_no_tag(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> None:
    import numpy as np

    from filbert.core.records import Example
    from filbert.nn import crf_walk
    from filbert.tasks.tag import decode as decoding
    from filbert.tasks.tag import items as tag
    from filbert.tasks.tag import spec as tag_spec

    texts = [Example(("今天天气很好" * size,)) for size in (1, 9, 2, 40, 3)]
    task = tag_spec.items(texts, decoding.tag_set(["A", "B"], "bio"), tokenizer, tag_spec.Config(max_length=64))
    random = np.random.Generator(np.random.PCG64(0))
    sizes = np.diff(task.pieces.boundaries).tolist()
    raw = [random.normal(size=(size, len(task.labels))).astype(np.float32) for size in sizes]
    whole, walked = task.predictions(raw), []
    kept = crf_walk.viterbi
    monkeypatch.setattr(tag, "CELLS", 50 * len(task.labels) ** 2)
    monkeypatch.setattr(crf_walk, "viterbi", lambda scores, *more, **how: walked.append(len(scores)) or kept(
        scores, *more, **how))  # fmt: skip
    assert task.predictions(raw) == whole
    assert len(walked) > 1
    assert all(size <= 50 or size in sizes for size in walked)


# E14: next-sentence prediction can be asked ---------------------------------------------------------------------------


def test_E14_a_pretrained_model_says_whether_a_text_follows(tiny_folder: Path, filbert: Any) -> None:
    import numpy as np
    import torch

    import filbert as fb
    from filbert.core.records import Encoding
    from filbert.pack.lay import pack

    first, second = "今天天气很好。", "我们去公园玩。"
    done = filbert("predict", tiny_folder, "--pair", first, second, "--pair", second, first)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    model = fb.load(tiny_folder)
    said = model.predict([(first, second), (second, first)])
    words = model.tokenizer
    ids, segments = [words.cls_id], [0]
    for place, text in enumerate((first, second)):
        own = [*words.pieces([text]).ids.tolist(), words.sep_id]
        ids, segments = ids + own, segments + [place] * len(own)
    nothing = np.zeros(len(ids), dtype=np.int32)
    one = Encoding(np.array(ids, dtype=np.int32), np.array(segments, dtype=np.int32), nothing, nothing, nothing)
    from filbert.nn.attention import tensors

    with torch.inference_mode():
        module = model.backbone.eval()
        packed = tensors(pack([one])[0], "cpu")
        right = module.nsp(module.pooled(module(packed, "first"))).softmax(-1)[0, 0].item()
    assert said[0].scores["follows"] == pytest.approx(right, abs=1e-5)
    assert rows[0]["scores"]["follows"] == pytest.approx(right, abs=1e-5)
    assert rows[0]["scores"]["follows"] != rows[1]["scores"]["follows"]
    assert set(said[0].scores) == {"follows", "does not follow"}


def test_E14_only_pairs_are_asked_it(tiny_folder: Path, filbert: Any, tmp_path: Path) -> None:
    done = filbert("predict", tiny_folder, "--text", "今天天气很好。")
    assert done.code == 2
    assert "has no head for a task" in done.err
    table = tmp_path / "pairs.tsv"
    table.write_text("今天天气很好。\t我们去公园玩。\n很好。\t不好。\n", encoding="utf-8")
    asked = filbert("predict", tiny_folder, "--task", "nsp", "--data", table)
    assert asked.code == 0, asked.err
    assert len(asked.out.splitlines()) == 2
    assert filbert("finetune", "nsp", "--train", table, "--model", tiny_folder, "--out", tmp_path / "out").code == 2


# E9: interrupted while modules are imported ---------------------------------------------------------------------------

STUBS = {  # what an extension module makes of a KeyboardInterrupt that comes while it starts
    "as it is": "os.kill(os.getpid(), signal.SIGINT)",
    "another error": "try:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n"
    "    raise ImportError('cannot load module more than once per process')",
    "swallowed": "try:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass",
}


@pytest.mark.slow
@pytest.mark.parametrize("stub", STUBS)
@pytest.mark.parametrize(
    "words", [("finetune", "classify", "--train", "x", "--model", "x", "-o", "x"), ("verify", "x")]
)
def test_E9_an_interrupt_while_numpy_is_imported_is_one_sentence(
    stub: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "numpy.py").write_text(f"import os, signal\n{STUBS[stub]}\n", encoding="utf-8")
    # A job of a script is begun with the signal ignored.
    begin = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    (tmp_path / "sitecustomize.py").write_text(begin, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "filbert", *words], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "filbert: interrupted.\n")


def test_E9_an_error_that_an_interrupt_became_is_one_sentence(filbert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from filbert.core import interrupts

    def broken(*words: Any) -> None:
        monkeypatch.setattr(interrupts, "_signals", [2])
        raise RuntimeError("an extension was interrupted")

    monkeypatch.setattr("filbert.cli.main.filbert.main", lambda **how: broken())
    done = filbert("verify", "x")
    assert (done.code, done.err) == (130, "filbert: interrupted.\n")
