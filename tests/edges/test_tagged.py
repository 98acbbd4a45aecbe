"""Files with a word and its label per line, as others write them: what is read, what is named, what is mended."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from filbert.core.errors import FilbertError, InputError
from filbert.core.records import Example, Span
from filbert.corpus import overlap
from filbert.doctor import mending
from filbert.doctor.diagnosis import examine
from filbert.forms import conll
from filbert.forms.datasets import examples
from filbert.forms.spec import Lines, RepairedCopy
from filbert.tasks.tag.files import FILES
from filbert.tasks.tag.words import joined
from filbert.text.streams import Reading
from kit.files import write

Ran = Callable[..., tuple[int, str, str]]


def read(path: Path, task: str = "tag") -> tuple[list[Example], list[str]]:
    """The examples, and what reading them met."""
    reading = Reading()
    return list(examples(path, task, reading=reading)), reading.report.remarks()


# -- B1: what is removed goes whole ------------------------------------------------------------------------------

CONLLU = "# sent_id = {n}\n# text = {a}{b}\n1\t{a}\t_\tNOUN" + "\t_" * 6 + "\n2\t{b}\t_\tVERB" + "\t_" * 6 + "\n\n"
LINES = {
    "a.conllu": CONLLU,
    "units.txt": "# id {n}\n{a} NOUN\n{b} VERB\n\n",
    "inside.txt": "# id {n}\n{a} PER\n{b} O\n\n",
    "tagged.txt": "# id {n} x=y\n{a} B-PER\n{b} O\n\n",
    "marked.txt": '{n}\t"<e1>{a}</e1>在<e2>{b}</e2>"\nCause-Effect(e1,e2)\nComment: none\n\n',
    "slashed.txt": "{a}/n {b}/v\n",
    "masked.txt": "父母 {a}${b}${a}和{b}{n}\n",
}


def filled(name: str, numbers: list[int]) -> str:
    return "".join(
        LINES[name].format(
            n=place, a="天地人你我他上下左右"[number % 10] * 2, b="走跑看听说读写想吃喝"[number // 10] * 2
        )
        for place, number in enumerate(numbers, 1)
    ).replace(*(("和", "和") if name != "masked.txt" else ("和", "与")))


@pytest.mark.parametrize("name", LINES)
def test_B1_a_sentence_is_removed_whole(name: str, tmp_path: Path) -> None:
    """20 sentences, of which two stand twice and one in the test file: 17 are left, and no half one."""
    task = "relation" if name in ("marked.txt", "masked.txt") else "tag"
    train = write(tmp_path / name, filled(name, [*range(17), 3, 3, 20]))
    (tmp_path / "test").mkdir()
    test = write(tmp_path / "test" / f"test-{name}", filled(name, [20, 30]))
    if name == "masked.txt":  # the number would make each another text
        for path in (train, test):
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("".join(line.rstrip("0123456789") + "\n" for line in lines), encoding="utf-8")
    before, _ = read(train, task)
    assert len(before) == 20
    done = mending.mended([train, test], tmp_path / "out", task)
    after, _ = read(tmp_path / "out" / name, task)
    assert [example.texts for example in after] == [example.texts for example in before[:17]]
    assert [example.gold for example in after] == [example.gold for example in before[:17]]
    assert sum(done.counts.values()) == 3
    text = (tmp_path / "out" / name).read_text(encoding="utf-8")
    assert text.count("#") == train.read_text(encoding="utf-8").count("#") * 17 // 20  # comments go with it
    assert text.count("Comment") == (17 if name == "marked.txt" else 0)
    told = [found.message for found in examine([tmp_path / "out" / name, test], task) if found.severity != "note"]
    assert not any("stands in another file" in line or "the same text" in line for line in told)


def test_B1_a_copy_that_lost_an_example_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", filled("units.txt", [1, 2, 3, 1]))
    forms = dict(FILES.forms)
    whole = forms["units"].repaired_lines
    assert whole is not None

    def beheading(copy: RepairedCopy, lines: Lines) -> Iterator[str]:
        return (line for place, line in enumerate(whole(copy, lines)) if place != 2)

    forms["units"] = dataclasses.replace(forms["units"], repaired_lines=beheading)
    monkeypatch.setitem(vars(FILES), "forms", forms)
    with pytest.raises(FilbertError, match="would hold 3 examples where 3 are right, or others than it had"):
        mending.mended([path], tmp_path / "out", "tag")
    assert not (tmp_path / "out").exists()


def test_B1_what_makes_a_row_an_example_is_counted(tmp_path: Path) -> None:
    """A C3 answer with a space too much is no example before, and is one after."""
    asked = [{"question": "谁？", "choice": ["王", "李"], "answer": "王 "}, {"question": "哪？", "choice": ["东", "西"],
             "answer": "东"}]  # fmt: skip
    path = write(tmp_path / "a.json", json.dumps([[["王在东。"], asked, "1"]], ensure_ascii=False))
    mending.mended([path], tmp_path / "out")
    assert len(read(tmp_path / "out" / "a.json", "choose")[0]) == 2


def test_B1_a_label_of_blanks_is_left_to_the_doctor(tmp_path: Path) -> None:
    rows = [{"text": f"第{n}条", "label": " " if n == 3 else "ab"[n % 2] + " "} for n in range(8)]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    table = write(tmp_path / "a.csv", "text,label\n" + "".join(f'{row["text"]},"{row["label"]}"\n' for row in rows))
    mending.mended([path], tmp_path / "out", "classify")
    mending.mended([table], tmp_path / "table", "classify")
    for copy in (tmp_path / "out" / "a.jsonl", tmp_path / "table" / "a.csv"):
        assert [example.gold for example in read(copy, "classify")[0]] == [*"aba", " ", *"abab"]


# -- B2, B3: columns of numbers, layers of tags --------------------------------------------------------------------

TAGGED = (("Peter", "B-PER"), ("lives", "O"), ("in", "O"), ("Oslo", "B-LOC"), (".", "O"))


def sentence(start: int = 1, *more: str, separator: str = "\t") -> str:
    return "".join(
        separator.join((str(n), word, *more, tag)) + "\n" for n, (word, tag) in enumerate(TAGGED, start)
    ) + "\n"  # fmt: skip


@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("start", [0, 1])
def test_B2_numbers_of_words_are_no_words(start: int, separator: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", sentence(start, separator=separator) * 3)
    found, told = read(path)
    assert [example.texts for example in found] == [("Peter lives in Oslo .",)] * 3
    assert found[0].gold == (Span(0, 5, "PER"), Span(15, 19, "LOC"))
    assert "words are in column 2 and tags in column 3; column 1, which counts the words, is passed over." in told


def test_B2_bare_labels_may_be_numbered_too(tmp_path: Path) -> None:
    lines = "1 Peter NNP\n2 runs VB\n3 home RB\n\n1 She PRP\n2 runs VB\n3 home RB\n\n1 Peter NNP\n2 runs VB\n"
    found, _ = read(write(tmp_path / "a.txt", lines))
    assert [example.texts[0] for example in found] == ["Peter runs home", "She runs home", "Peter runs"]


def test_B2_tokens_that_are_numbers_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "12 CD O\n7 CD B-NUM\n1990 CD B-DATE\n3 CD O\n")
    assert read(path)[0][0].texts == ("12 7 1990 3",)


GERMEVAL = (
    "#\thttp://example.org/a\t[2009-10-17]\n"
    "1\tSchartau\tB-PER\tO\n2\tsagte\tO\tO\n3\tder\tO\tO\n4\tUniversität\tB-ORG\tO\n5\tBerlin\tI-ORG\tB-LOC\n\n"
)


@pytest.mark.parametrize("inner", ["B-LOC", "O"])
def test_B2_a_second_layer_of_tags_is_named(inner: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", GERMEVAL.replace("B-LOC", inner) + GERMEVAL.replace("B-LOC", "B-PERpart") * 3)
    found, told = read(path)
    assert found[0].texts == ("Schartau sagte der Universität Berlin",)
    assert found[0].gold == (Span(0, 8, "PER"), Span(19, 37, "ORG"))
    assert "tags stand in several layers: those of column 3 are taken, and column 4 passed over." in told
    assert "4 comment lines (#) were passed over." in told


def test_B2_chunks_are_no_layer_of_entities(tmp_path: Path) -> None:
    """CoNLL-2003: word, part of speech, chunk, entity; its entities are taken, and the other columns named."""
    lines = "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\nGerman JJ B-NP B-MISC\ncall NN I-NP O\n\n"
    found, told = read(write(tmp_path / "a.txt", "-DOCSTART- -X- -X- O\n\n" + lines * 2))
    assert found[0].gold == (Span(0, 2, "ORG"), Span(11, 17, "MISC"))
    assert told == [
        "words are in column 1 and tags in column 4; columns 2, 3 are passed over.",
        "1 lines that begin a document (-DOCSTART-) were passed over.",
    ]


def test_B2_tags_of_another_kind_before_the_last_are_no_layer(tmp_path: Path) -> None:
    """German in CoNLL-2003, and chunks of any language: only the last column has the entities."""
    for chunk in ("NC", "名词块"):
        lines = f"Der der ART B-{chunk} O\nMann Mann NN I-{chunk} O\nin in APPR B-PC O\nRom Rom NE B-{chunk} B-LOC\n"
        found, told = read(write(tmp_path / "a.txt", lines))
        assert found[0].gold == (Span(12, 15, "LOC"),)
        assert told == ["words are in column 1 and tags in column 5; columns 2, 3, 4 are passed over."]


@pytest.mark.parametrize("tokens", ["G7 meets in Rome", "U2 A1 B2 play", "A1 B2 C3 D4", "K2 is high in X9"])
def test_B3_digits_of_words_stay(tokens: str, tmp_path: Path) -> None:
    lines = "".join(f"{token} {'B-LOC' if n == 3 else 'O'}\n" for n, token in enumerate(tokens.split()))
    assert read(write(tmp_path / "a.txt", lines))[0][0].texts == (tokens,)


def test_B3_characters_numbered_within_words_lose_the_number(tmp_path: Path) -> None:
    """Digits are characters too: 20 01 12 33 is 2013, as Weibo's corpus has it; so are signs that were lost."""
    path = write(
        tmp_path / "a.txt",
        "科0\tO\n技1\tO\n北0\tB-GPE\n京1\tI-GPE\n大2\tO\n学3\tO\n10\tO\n"
        "20\tO\n01\tO\n12\tO\n33\tO\n年0\tO\n侨0\tB-ORG.NAM\n联1\tI-ORG.NAM\n\ufffd\ufffd0\tO\n",
    )
    found, told = read(path)
    assert found[0].texts == ("科技北京大学12013年侨联\ufffd\ufffd",)
    assert found[0].gold == (Span(2, 4, "GPE"), Span(12, 14, "ORG.NAM"))
    assert told == ["characters are numbered within words (科0 技1); the numbers are left out."]


def test_B3_a_word_with_a_space_inside_is_no_longer_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "He B-PER\nsaw O\n" * 12 + "New York B-LOC\n")
    with pytest.raises(InputError, match=r"a\.txt line 25: has 3 columns, but the other lines have 2"):
        read(path)


# -- B4: scripts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["나는", "서울에", "산다", "."], "나는 서울에 산다 ."),
        (["삼성전자", "가", "2020", "년", "AI", "를"], "삼성전자 가 2020 년 AI 를"),
        (["大韓民國", "은", "나라", "이다"], "大韓民國 은 나라 이다"),  # Korean with Chinese characters
        (["歌手", "아이유", "来", "北京"], "歌手아이유来北京"),  # Chinese with a Korean name
        (["私", "は", "トヨタ", "で", "働く"], "私はトヨタで働く"),
        (["ผม", "รัก", "กรุงเทพ", "2020"], "ผมรักกรุงเทพ2020"),
        (["ຂ້ອຍ", "ຮັກ", "ລາວ"], "ຂ້ອຍຮັກລາວ"),
        (["ខ្ញុំ", "ស្រលាញ់", "ភ្នំពេញ"], "ខ្ញុំស្រលាញ់ភ្នំពេញ"),
        (["Я", "люблю", "Москву", "."], "Я люблю Москву ."),
        (["मैं", "दिल्ली", "में"], "मैं दिल्ली में"),
        (["今天", "用", "GPT", "four", "吧"], "今天用GPT four吧"),
    ],
)
def test_B4_words_are_joined_as_their_script_is_written(tokens: list[str], text: str) -> None:
    found, places = joined(tokens)
    assert found == text
    assert [found[start:end] for start, end in places] == tokens


def test_B4_the_file_says_whether_it_has_words_or_characters(tmp_path: Path) -> None:
    lines = "나는 O\n서울에 B-LOC\n산다 O\n\n너 B-PER\n나 B-PER\n"
    assert [example.texts[0] for example in read(write(tmp_path / "a.txt", lines))[0]] == ["나는 서울에 산다", "너 나"]
    syllables = "".join(f"{char} O\n" for char in "나는서울에산다오늘") + "2020 B-DT\n년 I-DT\n"
    assert read(write(tmp_path / "b.txt", syllables))[0][0].texts == ("나는서울에산다오늘2020년",)


# -- B16: known by what it holds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.conll", "a.tsv.gz"])
def test_B16_conll_is_known_by_what_it_holds(name: str, tmp_path: Path) -> None:
    import gzip

    text = (
        "# id 5239 domain=en\nPeter\tB-PER\nlives\tO\nin\tO\nOslo\tB-LOC\n\n# id 5240 domain=en\n#tag\tO\nOslo\tB-LOC\n"
    )
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    found, told = read(path)
    assert [example.texts[0] for example in found] == ["Peter lives in Oslo", "#tag Oslo"]
    assert [example.line for example in found] == [2, 8]
    assert told == ["2 comment lines (#) were passed over."]
    assert any("CoNLL" in finding.message for finding in examine(path))


def test_B16_multiconer_with_four_columns(tmp_path: Path) -> None:
    text = "# id a-1\tdomain=zh\n王 _ _ B-PER\n在 _ _ O\n北 _ _ B-LOC\n京 _ _ I-LOC\n\n"
    found, told = read(write(tmp_path / "a.conll", text * 2))
    assert found[0].texts == ("王在北京",)
    assert told[0] == "words are in column 1 and tags in column 4; columns 2, 3 are passed over."


def test_B16_comments_in_files_without_prefixes(tmp_path: Path) -> None:
    text = "# sent_id = 1\n我\tPRON\n爱\tVERB\n书\tNOUN\n\n# sent_id = 2\n你\tPRON\n爱\tVERB\n书\tNOUN\n\n我\tPRON\n"
    for name in ("a.txt", "a.tsv"):
        found, told = read(write(tmp_path / name, text))
        assert [example.texts[0] for example in found] == ["我爱书", "你爱书", "我"]
        assert told == ["2 comment lines (#) were passed over."]


@pytest.mark.parametrize(
    "text",
    [
        "很好\tpos\n很坏\tneg\n还行\tpos\n\n不行\tneg\n" + "好\tpos\n坏\tneg\n" * 10,  # one blank line by mistake
        "text\tlabel\nit was a fine day\tB-side\nnot so good a day\tA-side\n" + "all is well today\tB-side\n" * 9,
    ],
)
def test_B16_a_table_stays_a_table(text: str, tmp_path: Path) -> None:
    found, _ = read(write(tmp_path / "a.tsv", text), "classify")
    assert len(found) == text.strip().count("\n") + 1 - text.count("\n\n") - text.startswith("text\t")


@pytest.mark.parametrize("text", ["王,B-PER\n在,O\n\n李,B-PER\n在,O\n", "x 0 He PRP (TOP*)\nx 1 ran\n"])
def test_B16_what_is_no_tagged_file_is_told_what_one_is(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="for tag a file has a word and its tag on each line, with a tab or space"):
        read(write(tmp_path / ("a.csv" if "," in text else "a.txt"), text))


def test_B16_sentences_without_an_entity_are_sentences(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", "王 O\n在 O\n\n他 O\n来 O\n"))[0][0].texts == ("王在",)


def test_columns_say_where_a_tag_begins() -> None:
    """What --fix rewrites is the tag, in whichever column it stands."""
    lines = GERMEVAL.splitlines() * 2
    known = conll.columns(lines)
    places = [known.tag_place(line) for line in lines[:6]]
    assert [line[at : at + 2] if at else "" for line, at in zip(lines, places, strict=False)] == [
        "", "B-", "O\t", "O\t", "B-", "I-",
    ]  # fmt: skip


def test_entities_begin_in_the_column_of_the_tags(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", GERMEVAL.replace("B-ORG", "O").replace("\tB-PER\tO", "\tI-PER\tO") * 2)
    mending.mended([path], tmp_path / "out", "tag")
    text = (tmp_path / "out" / "a.tsv").read_text(encoding="utf-8")
    assert "1\tSchartau\tB-PER\tO\n" in text
    assert "5\tBerlin\tB-ORG\tB-LOC\n" in text


def test_B3_texts_that_are_kept_out_of_a_corpus_keep_their_digits(tmp_path: Path) -> None:
    """`--without` reads such files too, and what it reads otherwise it does not find."""
    words = "".join(f"{word} {tag}\n" for word, tag in (("G7", "B-ORG"), ("met", "O"), ("in", "O"), ("Bari", "B-LOC")))
    path = write(tmp_path / "a.txt", f"{words}\n" * 6)
    assert next(iter(overlap._strings(path, Reading()))).startswith("G7 met")
    numbered = write(tmp_path / "b.txt", "科0 B-ORG\n技1 I-ORG\n好0 O\n\n" * 6)
    assert next(iter(overlap._strings(numbered, Reading()))) == "科 技 好"
