"""A label for every word: the files that have one, words and labels found together, and their two scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.forms.datasets import examples
from filbert.forms.formats import shape
from filbert.tasks.tag import decode as decoding
from filbert.text.streams import Reading
from kit.files import write

PFR = """迈向/v  充满/v  希望/n  的/u  新/a  世纪/n
[中国/ns  政府/n]nt  在/p  １９９８年/t  说/v  ：/w  “/w  [/w  //w  ]/w  ”/w

他/r  用/v  GPT/nx  four/nx  。/w
"""
CONLLU = """# sent_id = 1
# text = 我爱GPT four del
1\t我\t我\tPRON\tPN\t_\t2\tnsubj\t_\tSpaceAfter=No
2\t爱\t爱\tVERB\tVV\t_\t0\troot\t_\tSpaceAfter=No
3\tGPT\tGPT\tX\tFW\t_\t2\tobj\t_\t_
4\tfour\tfour\tNUM\tCD\t_\t3\tnummod\t_\t_
4.1\t无\t无\tVERB\tVV\t_\t_\t_\t_\t_
5-6\tdel\t_\t_\t_\t_\t_\t_\t_\t_
5\tde\tde\tADP\t_\t_\t6\tcase\t_\t_
6\tel\tel\tDET\t_\t_\t3\tdet\t_\t_

1\t好\t好\tADJ\tJJ\t_\t0\troot\t_\tSpaceAfter=No
"""


def read(path: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    found = [(example.texts[0], example.gold) for example in examples(path, "tag")]
    for text, gold in found:
        assert decoding.covers(text, gold)
    return [(text, [(text[span.start : span.end], span.label) for span in gold]) for text, gold in found]


def kind(path: Path) -> str:
    return shape(str(path), Reading()).kind


# -- files -------------------------------------------------------------------------------------------------------------


def test_words_with_slashes(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.txt", PFR))
    assert [text for text, _ in found] == ["迈向充满希望的新世纪", "中国政府在１９９８年说：“[/]”", "他用GPT four。"]
    assert found[0][1][:3] == [("迈向", "v"), ("充满", "v"), ("希望", "n")]
    assert found[1][1][:2] == [("中国", "ns"), ("政府", "n")]  # the label of the bracket is not a word's
    assert found[1][1][-4:] == [("[", "w"), ("/", "w"), ("]", "w"), ("”", "w")]
    assert found[2][1][2:4] == [("GPT", "nx"), ("four", "nx")]
    assert [example.line for example in examples(tmp_path / "a.txt", "tag")] == [1, 2, 4]
    lines = PFR * 8
    with pytest.raises(InputError, match=r"b\.txt line 33: '坏' is not a word and its label with a slash"):
        read(write(tmp_path / "b.txt", lines + "坏  了/u\n"))
    dated = write(tmp_path / "c.txt", "19980101-01-001-001/m  迈向/v  世纪/n\n" * 3)
    reading = Reading()
    assert [example.texts[0] for example in examples(dated, "tag", reading=reading)] == ["迈向世纪"] * 3
    assert sum(reading.report.others.values()) == 3


def test_conllu(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conllu", CONLLU))
    assert [text for text, _ in found] == ["我爱GPT four del", "好"]
    assert found[0][1] == [("我", "PRON"), ("爱", "VERB"), ("GPT", "X"), ("four", "NUM"), ("del", "ADP+DET")]
    assert [example.line for example in examples(tmp_path / "a.conllu", "tag")] == [3, 12]
    with pytest.raises(InputError, match="line 13: has 2 columns, but a word in CoNLL-U has its number and 9 more"):
        read(write(tmp_path / "b.conllu", CONLLU + "坏\tX\n"))
    with pytest.raises(InputError, match="line 13: '好' has no part of speech in column 4"):
        read(write(tmp_path / "c.conllu", CONLLU + "2\t好\t好\t_\tJJ\t_\t0\troot\t_\t_\n"))


def test_conll_without_prefixes(tmp_path: Path) -> None:
    lines = "我 r\n爱 v\n北京 ns\n\n你 r\n去 v\n上海 ns\n"
    assert read(write(tmp_path / "a.txt", lines)) == [
        ("我爱北京", [("我", "r"), ("爱", "v"), ("北京", "ns")]),
        ("你去上海", [("你", "r"), ("去", "v"), ("上海", "ns")]),
    ]
    columns = write(tmp_path / "b.txt", lines.replace(" ", "\tx\t"))
    assert read(columns) == read(tmp_path / "a.txt")
    inside = write(tmp_path / "c.txt", "王 PER\n在 O\n北 LOC\n京 LOC\n\n在 O\n北 LOC\n京 LOC\n")
    assert kind(inside) == "inside"
    assert [example.gold for example in examples(inside, "tag")] == [
        (Span(0, 1, "PER"), Span(2, 4, "LOC")),
        (Span(1, 3, "LOC"),),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "很好\tpos\n很坏\tneg\n还行\tpos\n不行\tneg\n" * 3,  # a table of texts and labels has no blank lines
        "今天天气很好。\n\n我们去公园。\n" * 5,
        "and/or\neither/or\nboth/and\n",
        "usr/bin\nusr/lib\nhome/user\n",
        "this or that\n\nhe said so\n\nnow we go\n",
        "see https://a.b/c for more\nhe/she went to the park and/or home\n",
        "北京\n\n上海\n\n",
    ],
)
def test_other_files_are_not_taken_for_these(tmp_path: Path, text: str) -> None:
    assert kind(write(tmp_path / "a.txt", text)) in ("text", "table")


def test_one_broken_line_of_a_small_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.txt line 3: '坏' is not a token and a tag with a space or tab"):
        list(examples(write(tmp_path / "a.txt", "北 B-LOC\n京 I-LOC\n坏\n好 O\n"), "tag"))
    with pytest.raises(InputError, match=r"b\.txt line 2: the tag 'LOC' is not O or a label with B-"):
        list(examples(write(tmp_path / "b.txt", "北 B-LOC\n京 LOC\n好 O\n"), "tag"))
    with pytest.raises(InputError, match=r"c\.txt line 5: '坏' is not a token and a tag"):
        list(examples(write(tmp_path / "c.txt", "我 r\n爱 v\n书 n\n\n坏\n你 r\n爱 v\n书 n\n"), "tag"))


# -- words over tokens -------------------------------------------------------------------------------------------------


def test_each_token_goes_to_the_word_that_its_first_character_is_in() -> None:
    # 今天GPT4好: the tokens are 今, 天, gpt4, 好; the words 今天, GPT, 4好
    starts, ends = [0, 1, 2, 6], [1, 2, 6, 7]
    words = [Span(0, 2, "t"), Span(2, 5, "nx"), Span(5, 7, "a")]
    found = decoding.tiled(words, starts, ends)
    assert found.entities == ((0, 2, "t"), (2, 3, "nx"), (3, 4, "a"))
    assert found.cut == (words[1], words[2])
    assert decoding.tags(found.entities, 4, "bioes") == ["B-t", "E-t", "S-nx", "S-a"]
    lost = decoding.tiled([Span(0, 1, "a"), Span(1, 2, "b"), Span(2, 3, "c")], [0], [3])
    assert (lost.entities, lost.lost) == (((0, 1, "a"),), (Span(1, 2, "b"), Span(2, 3, "c")))
    gap = decoding.tiled([Span(1, 2, "b")], [0, 1, 2], [1, 2, 3])
    assert gap.entities == ((1, 2, "b"),)
    assert decoding.tiled([], [0], [1]).entities == ()
    assert not decoding.covers("今天好", [Span(0, 2, "t")])
    assert decoding.covers(" 今天 好 ", [Span(1, 3, "t"), Span(4, 5, "a")])
    assert not decoding.covers("今天", [Span(0, 2, "t"), Span(1, 2, "a")])


def test_the_label_of_a_given_word_is_the_likeliest_of_its_tokens_together() -> None:
    tags = decoding.tag_set(("a", "b"), "bioes")
    random = np.random.default_rng(0)
    logs = np.log(random.dirichlet(np.ones(len(tags)), size=7))
    words = decoding.rows([0, 1, 3, 6, 7], [1, 3, 6, 7, 8], [0, 1, 2, 3, 4, 5, 7], [1, 2, 3, 4, 5, 6, 8])
    found = decoding.unit_kinds(logs, tags, words, ("a", "b"))
    place = {name: index for index, name in enumerate(tags)}
    wanted = []
    for first, last in ((0, 0), (1, 2), (3, 5), (None, None), (6, 6)):
        if first is None:
            wanted.append("")
            continue
        letters = "S" if first == last else "B" + "I" * (last - first - 1) + "E"
        total = [sum(logs[first + at, place[f"{x}-{k}"]] for at, x in enumerate(letters)) for k in "ab"]
        wanted.append("ab"[int(np.argmax(total))])
    assert found == wanted
    assert decoding.unit_kinds(logs[:0], tags, decoding.rows([0], [1], [], []), ("a", "b")) == [""]


# -- the task ----------------------------------------------------------------------------------------------------------


def words_of(*pairs: tuple[str, str]) -> Example:
    text, spans = "", []
    for word, label in pairs:
        spans.append(Span(len(text), len(text) + len(word), label))
        text += word
    return Example((text,), tuple(spans))


SENTENCES = [
    words_of(("我们", "r"), ("坐", "v"), ("火车", "n"), ("去", "v"), ("公园", "n"), ("。", "w")),
    words_of(("今天", "t"), ("天气", "n"), ("很", "d"), ("好", "a"), ("。", "w")),
    words_of(("医生", "n"), ("去", "v"), ("火车站", "n"), ("，", "w"), ("我们", "r"), ("去", "v"), ("公园", "n")),
]


def test_the_scheme_follows_from_the_data(tokenizer: Any) -> None:
    from filbert.tasks.tag import spec as tag_spec

    config = tag_spec.fitted(tag_spec.Config(), SENTENCES)
    assert config.scheme == "plain"
    labels = tag_spec.label_names(config, SENTENCES)
    assert "O" not in labels
    assert len(labels) == 4 * 7
    some = [*SENTENCES, Example(("今天好",), (Span(0, 2, "t"),))]
    assert tag_spec.fitted(tag_spec.Config(), some).scheme == "bio"
    assert (
        tag_spec.fitted(tag_spec.Config(), [Example(("北京",), (Span(0, 2, "LOC"),))]).scheme == "bio"
    )  # a list of names
    assert tag_spec.fitted(tag_spec.Config(scheme="bioes"), SENTENCES).scheme == "bioes"
    task = tag_spec.items(SENTENCES, labels, tokenizer, config)
    perfect = [np.eye(len(labels))[task.gold[a:b]] * 20
               for a, b in zip(task.pieces.boundaries[:-1], task.pieces.boundaries[1:], strict=True)]  # fmt: skip
    measured = task.evaluated(perfect)
    assert (measured["f1"], measured["accuracy"], measured["num_entities"]) == (1, 1, 18)
    assert "accuracy" in measured["intervals"]
    merged = [scores.copy() for scores in perfect]
    begin, end = (labels.index(f"{letter}-r") for letter in "BE")
    merged[0][:2] = np.eye(len(labels))[[labels.index("S-r")] * 2] * 20  # 我 and 们 as two words: wrong, but its label
    merged[0][0, begin], merged[0][1, end] = 19, 19
    measured = task.evaluated(merged)
    assert measured["f1"] == pytest.approx(2 * 17 / (18 + 19))
    assert measured["accuracy"] == 1
    with pytest.raises(InputError, match=r"ner\.txt line 4: '好' has no label, but this tagger"):
        tag_spec.items([Example(("今天好",), (Span(0, 2, "t"),), 0, "ner.txt", 4)], labels, tokenizer, config)
    with pytest.raises(InputError, match="have O, which"):
        tag_spec.items(SENTENCES, ("O", *labels), tokenizer, config)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["softmax", "crf"])
@pytest.mark.usefixtures("one_thread")
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any], decoder: str) -> None:
    """From a file of words and labels to words and labels in a text that nobody cut, without an option."""
    lines = []
    for example in SENTENCES * 6:
        text = example.texts[0]
        lines.append("  ".join(f"{text[span.start : span.end]}/{span.label}" for span in example.gold))
    data, out = write(tmp_path / "train.txt", "\n".join(lines) + "\n"), tmp_path / "run"
    code, _, err = filbert(
        "finetune", "tag", "--train", data, "--dev", data, "--model", tiny_folder, "--out", out, "--epochs", "50",
        "--set", "machine.threads=1", "--set", "train.batch_tokens=128", "--set", "train.learning_rate=5e-3",
        "--set", f"task.decoder={decoder}", "--set", "train.head_rate=3",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads((out / "model" / "task.json").read_text())["scheme"] == "plain"
    code, said, err = filbert("evaluate", out, "--data", data)
    assert code == 0, err
    assert "accuracy" in said
    code, said, err = filbert("evaluate", out, "--data", data, "--json")
    measured = json.loads(said)
    assert measured["f1"] > 0.9
    assert measured["accuracy"] > 0.9
    code, said, err = filbert("predict", out, "--text", SENTENCES[0].texts[0], "--text", "", "--text", "🙂好")
    assert code == 0, err
    rows = [json.loads(line) for line in said.splitlines()]
    assert "".join(entity["text"] for entity in rows[0]["entities"]) == SENTENCES[0].texts[0]  # nothing is left out
    assert rows[1]["entities"] == []


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "num_texts", "num_words", "num_labels"),
    [
        ("pos_ud_zh_gsdsimp/zh_gsdsimp-ud-dev.conllu.xz", 500, 12_663, 16),
        ("pos_ud_zh_gsdsimp/zh_gsdsimp-ud-test.conllu.xz", 500, 12_012, 15),
    ],
)
def test_real_files(shared: Path, name: str, num_texts: int, num_words: int, num_labels: int) -> None:
    found = list(examples(shared / "data" / name, "tag"))
    assert len(found) == num_texts
    assert sum(len(example.gold) for example in found) == num_words
    assert len({span.label for example in found for span in example.gold}) == num_labels
    assert all(decoding.covers(example.texts[0], example.gold) for example in found)


@pytest.mark.slow
@pytest.mark.shared
def test_the_newspaper_is_read(shared: Path) -> None:
    path = shared / "data" / "pos_pfr199801" / "199801.txt.xz"
    assert kind(path) == "slashed"
    found = list(examples(path, "tag"))
    assert len(found) == 19_484
    assert sum(len(example.gold) for example in found) == 1_121_447
    assert all(decoding.covers(example.texts[0], example.gold) for example in found)
