"""Forbidden text is found wherever it stands and however it is set; other text is not."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.core.errors import InputError
from filbert.corpus.overlap import Fingerprints, runs, strings

HAN = st.integers(0x4E00, 0x9FA5).map(chr)
LETTERS = st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789")
BETWEEN = st.sampled_from(["", "", " ", "，", "\n", "  ", "。", "-", "“", "\u3000", "\u0301"])
REPETITIVE = st.text(st.sampled_from("ab一丁"), max_size=14)  # so few letters that texts meet by chance
MIXED = st.text(st.one_of(HAN, LETTERS), max_size=300)


def han(num: int, seed: int = 0) -> str:
    """Random Han characters."""
    return "".join(chr(code) for code in np.random.default_rng(seed).integers(0x4E00, 0x9FA6, num))


def letters(num: int, seed: int = 0) -> str:
    """Random small letters."""
    return "".join(chr(code) for code in np.random.default_rng(seed).integers(ord("a"), ord("z") + 1, num))


def count(text: str) -> int:
    """What a text of Han characters and ASCII letters counts for."""
    return sum(3 if char.isascii() else 8 for char in text)


def wide(char: str) -> str:
    """A letter of ASCII in the width of a Han character."""
    return chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), run=st.text(HAN, min_size=24, max_size=40), before=MIXED, after=MIXED)
def test_a_shared_run_is_found_however_it_is_set(data: st.DataObject, run: str, before: str, after: str) -> None:
    forbidden = Fingerprints.of([data.draw(MIXED), data.draw(MIXED) + run + data.draw(MIXED)])
    spaced = "".join(char + data.draw(BETWEEN) for char in run)
    assert forbidden([before + spaced + after]) == [True]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), run=st.text(LETTERS, min_size=64, max_size=90), before=MIXED, after=MIXED)
def test_letters_are_found_in_any_case_and_width(data: st.DataObject, run: str, before: str, after: str) -> None:
    shapes: list[Callable[[str], str]] = [str, str.upper, wide, lambda char: wide(char.upper())]
    forms = st.sampled_from(shapes)
    set_otherwise = "".join(data.draw(forms)(char) + data.draw(BETWEEN) for char in run)
    assert Fingerprints.of([after + run])([before + set_otherwise + after]) == [True]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(run=st.text(st.one_of(HAN, LETTERS), min_size=24, max_size=64))
def test_the_rule_is_the_one_that_is_written_down(run: str) -> None:
    forbidden = Fingerprints.of([han(40, 1) + run + han(40, 2)])
    assert forbidden([han(40, 3) + run + han(40, 4)]) == [count(run) >= 192]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(texts=st.lists(REPETITIVE, max_size=6), forbidden=st.lists(REPETITIVE, max_size=4))
def test_it_agrees_with_looking_for_every_run(texts: list[str], forbidden: list[str]) -> None:
    known = Fingerprints.of(forbidden, size=2)
    assert known(texts) == [any(_overlap(text, other, 16) for other in forbidden) for text in texts]


def _overlap(text: str, forbidden: str, size: int) -> bool:
    if size // 2 <= count(forbidden) < size:
        return forbidden in text
    ends = range(len(forbidden) + 1)
    return any(count(forbidden[a:b]) >= size and forbidden[a:b] in text for a in ends for b in ends[a:])


@pytest.mark.slow
@pytest.mark.parametrize("make", [han, letters])
def test_unrelated_text_is_never_found(make: Callable[[int, int], str]) -> None:
    forbidden = Fingerprints.of([make(60, seed) for seed in range(2000)])
    assert not any(forbidden([make(500, seed) for seed in range(10_000, 12_000)]))


@pytest.mark.parametrize(
    ("text", "is_found"), [(han(12), True), (han(11), False), (letters(32), True), (letters(31), False)]
)
def test_a_short_text_counts_only_whole_and_only_if_it_says_something(text: str, is_found: bool) -> None:
    forbidden = Fingerprints.of([text])
    assert forbidden([han(50, 5) + "，" + text + han(50, 6)]) == [is_found]
    assert forbidden([text, text[:-1], text[1:], text[:-1] + "终" + text[-1:]]) == [is_found, False, False, False]


def test_texts_between_half_a_run_and_a_run_are_found_by_their_whole_length() -> None:
    texts = [han(num, num) for num in range(12, 24)]
    forbidden = Fingerprints.of([*texts, texts[0] + "甲", texts[0] + "乙丙"])  # three begin alike
    assert all(forbidden([f"前文{text}后文" for text in texts]))
    assert forbidden([texts[0] + "丁", texts[0][1:] + "乙丙"]) == [True, False]


def test_a_run_does_not_go_from_one_document_into_the_next() -> None:
    text = han(30)
    forbidden = Fingerprints.of([text])
    assert forbidden([text[:15], text[15:]]) == [False, False]
    assert forbidden([text[:3], text[3:], text[:23], ""]) == [False, True, False, False]
    assert not any(Fingerprints.of([text[:15], text[15:-4]])([text[:14] + "，" + text[16:]]))


def test_places_at_every_edge_of_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    text = han(24)
    forbidden = Fingerprints.of([text])
    monkeypatch.setattr(forbidden._matches.__globals__["_blocks"], "__defaults__", (100,))
    texts = [han(num, num) + (text if num % 3 else "") + han(7, 9) for num in range(120)]
    assert forbidden(texts) == [num % 3 > 0 for num in range(120)]


@pytest.mark.parametrize("texts", [[], [""], ["", "。，！ \n"], ["短"]])
def test_nothing_is_forbidden_by_nothing(texts: list[str]) -> None:
    forbidden = Fingerprints.of(texts)
    assert len(forbidden) == 0
    assert forbidden([]) == []
    assert forbidden(["", han(100), "\ud800", "\0"]) == [False] * 4


def test_accents_and_compatibility_forms_are_folded() -> None:
    composed, decomposed = "éàüñç" * 14, "e\u0301a\u0300u\u0308n\u0303c\u0327" * 14
    assert Fingerprints.of([composed])([decomposed, "EAUNC" * 14, "eaunc" * 12]) == [True, True, False]


def test_it_survives_pickling_and_its_digest_names_it() -> None:
    texts = [han(40, 1), han(15, 2), letters(100, 3)]
    forbidden = Fingerprints.of(texts)
    copy = pickle.loads(pickle.dumps(forbidden))
    documents = [f"前{text}后" for text in texts] + [han(90, 4)]
    assert copy(documents) == forbidden(documents) == [True, True, True, False]
    assert copy.digest == forbidden.digest == Fingerprints.of([*reversed(texts), texts[0]]).digest
    others = [Fingerprints.of(texts[:2]), Fingerprints.of(texts, 12), Fingerprints.of([])]
    assert len({one.digest for one in [forbidden, *others]}) == 4
    # Shards are named after it, so the same text must give it on every machine and in every version.
    assert (
        Fingerprints.of(["天地玄黄宇宙洪荒" * 4]).digest
        == "3db897a2e949c4c915a174a796bb87460804704b0e54d2684c164d21ee5dbe4f"
    )


def test_matches_name_documents_and_runs() -> None:
    texts = [han(30, 1), han(14, 2), letters(80, 3)]
    known = runs(texts)
    hit, hashes = Fingerprints.of(texts).matches([han(9), texts[1], texts[2] + texts[0]])
    assert set(hit.tolist()) == {1, 2}
    assert set(hashes.tolist()) == set(known.hashes.tolist())
    assert np.bincount(known.owners).tolist() == [7, 1, 17]


def test_a_size_that_has_no_half_is_refused() -> None:
    with pytest.raises(InputError, match="size is 7, but must be an even number"):
        Fingerprints.of(["text"], size=7)


@pytest.mark.slow
def test_it_keeps_up_with_reading() -> None:
    forbidden = Fingerprints.of(han(60, seed) for seed in range(3000))
    texts = [han(2000, seed) for seed in range(800)]  # 4.8 MB
    forbidden(texts[:100])
    began = time.process_time()
    forbidden(texts)
    assert time.process_time() - began < 1.5  # about 0.1 s on a quiet machine


# -- files -------------------------------------------------------------------------------------------------------

SENTENCE = "这是一个足够长的句子，用来检查各种文件里的文字是不是都读到了。"


def _written(folder: Path) -> dict[str, Path]:
    """The sentence in every kind of file, in one column of several where the file has columns."""
    squad = {"data": [{"paragraphs": [{"context": SENTENCE, "qas": []}]}]}
    cut = [SENTENCE[place : place + 2] for place in range(0, len(SENTENCE), 2)]
    files = {
        "a.txt": f"别的\n{SENTENCE}\n",
        "a.csv": f'label,text,id\n1,"他说，""好"",{SENTENCE}",7\n',
        "open.csv": f'label,text\n1,"没有关上的引号\n0,{SENTENCE}\n',
        "semicolon.csv": f"label;text\n1;{SENTENCE}\n",
        "tabs.csv": f"0\t{SENTENCE}\t108\n",
        "a.tsv": f"1\t{SENTENCE}\t别的\n",
        "a.jsonl": json.dumps({"id": 1, "texts": ["无", {"deep": SENTENCE}]}) + "\n",
        "escaped.json": json.dumps(squad, indent=1),
        "a.json": json.dumps([[[SENTENCE], [{"question": "？"}], "id"]], ensure_ascii=False),
        "a.conll": "".join(f"{char} O\n" for char in SENTENCE) + "\n甲 B-PER\n乙 I-PER\n",
        "indexed.conll": "".join(f"{char}{place % 3}\tO\n" for place, char in enumerate(SENTENCE)),
        "a.conllu": "# sent_id = 1\n" + "".join(f"{n}\t{w}\t_\tX" + "\t_" * 6 + "\n" for n, w in enumerate(cut, 1)),
        "tagged.txt": "  ".join(f"{word}/n" for word in cut) + "\n[中共/n 中央/n]/nt  主席/n\n",
        "marked.txt": f"{SENTENCE[:9]}<e1>{SENTENCE[9:12]}</e1>{SENTENCE[12:]}\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "a.txt.gz").write_bytes(gzip.compress(files["a.txt"].encode()))
    (folder / "a.csv.xz").write_bytes(lzma.compress(files["a.csv"].encode()))
    return {path.name: path for path in folder.iterdir()}


def test_text_is_read_out_of_every_kind_of_file(tmp_path: Path) -> None:
    for name, path in _written(tmp_path).items():
        forbidden = Fingerprints.read(path)
        assert forbidden([f"前面{SENTENCE}后面", han(80)]) == [True, False], name
    everything = Fingerprints.read([tmp_path])
    assert everything.digest == Fingerprints.read(sorted(tmp_path.iterdir())).digest


def test_parquet_and_zstandard_are_read(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zstandard = pytest.importorskip("zstandard")
    parquet.write_table(arrow.table({"id": [1], "texts": [[SENTENCE]]}), tmp_path / "a.parquet")
    (tmp_path / "a.tsv.zst").write_bytes(zstandard.compress(f"1\t{SENTENCE}\n".encode()))
    for path in tmp_path.iterdir():
        assert Fingerprints.read(str(path))([SENTENCE]) == [True], path.name


def test_in_a_folder_documentation_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("README.md", "LICENSE.txt", ".hidden.txt", "inner/data"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert list(strings(tmp_path)) == ["inner/data"]
    (tmp_path / "inner/data").unlink()
    with pytest.raises(InputError, match="holds no data file"):
        list(strings(tmp_path))


def test_what_cannot_be_read_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gb.txt").write_bytes(SENTENCE.encode("gb18030"))
    (tmp_path / "broken.jsonl").write_text('{"a": "b"}\n{"a": \n', encoding="utf-8")
    for name, message in (("gb.txt", "GB18030"), ("broken.jsonl", "line 2: is not JSON"), ("none.txt", "no such file")):
        with pytest.raises(InputError, match=message):
            Fingerprints.read(tmp_path / name)


def test_the_order_of_documents_is_kept() -> None:
    texts = [han(30, seed) for seed in range(50)]
    shuffled = random.Random(0).sample(texts, 50)
    wanted = [text in texts[:20] for text in shuffled]
    assert Fingerprints.of(texts[:20])(shuffled) == wanted
