"""Files of every kind come in; the documents and the report must be exactly what the files hold."""

from __future__ import annotations

import gzip
import io
import json
import logging
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from filbert.core.errors import InputError
from filbert.text import streams
from filbert.text.corpus import CorpusReport, cut_place, documents, files, pieces
from filbert.text.streams import PIECE_CHARS
from kit.files import write


def texts(source: object, **options: object) -> list[str]:
    return [document.text for document in documents(source, report=CorpusReport(), **options)]  # type: ignore[arg-type]


# -- plain text --------------------------------------------------------------------------------------------------


def test_units_of_plain_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "一\n二\n\n三\n")
    assert texts(path) == ["一\n二", "三"]
    assert texts(path, unit="line") == ["一", "二", "三"]
    assert texts(path, unit="file") == ["一\n二\n\n三"]


def test_documents_know_where_they_lay(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\n\n一\n二\n\n\n三")
    found = [(document.text, document.source, document.line) for document in documents(path, report=CorpusReport())]
    assert found == [("一\n二", str(path), 3), ("三", str(path), 7)]


def test_white_space_within_a_document_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "  一 \n\t二\n \t\n三")
    assert texts(path) == ["  一 \n\t二", "三"]


def test_unknown_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unit is 'page', but must be one of"):
        documents(tmp_path, unit="page")


def test_report_counts_files_documents_and_bytes(tmp_path: Path) -> None:
    report = CorpusReport()
    list(documents([write(tmp_path / "a.txt", "一\n\n二"), write(tmp_path / "b.txt", "three")], report=report))
    assert (report.num_files, report.num_documents, report.num_bytes) == (2, 3, 13)
    assert report.remarks() == []


def test_remarks_are_logged_without_a_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        list(documents(write(tmp_path / "a.txt", "a\0b")))
    assert "1 NUL characters were removed." in caplog.text


# -- sources -----------------------------------------------------------------------------------------------------


def test_folders_are_read_to_the_bottom_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden/d.txt", ".e.txt", "notes.md"):
        write(tmp_path / name, name)
    report = CorpusReport()
    assert [document.text for document in documents(tmp_path, report=report)] == ["a.txt", "b.txt", "sub/c.txt"]
    assert report.num_other_files == 1


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no file that ends in one of \.txt"):
        documents(tmp_path)
    with pytest.raises(InputError, match="no files were given"):
        documents([])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt: there is no such file"):
        texts(tmp_path / "nowhere.txt")


def test_files_keep_the_order_given(tmp_path: Path) -> None:
    assert files(["-", "b.txt", tmp_path / "a.txt"]) == ["-", "b.txt", str(tmp_path / "a.txt")]


@pytest.mark.parametrize("data", ["一\n\n二".encode(), gzip.compress("一\n\n二".encode())], ids=["plain", "gzip"])
def test_standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert texts("-") == ["一", "二"]


def test_standard_input_with_a_field_is_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"body": "one"}\n{"body": "two"}\n')))
    assert texts("-", field="body") == ["one", "two"]


# -- compression -------------------------------------------------------------------------------------------------

PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files(suffix: str, tmp_path: Path) -> None:
    packed = PACK[suffix]("一\n\n二".encode()) + PACK[suffix]("\n三".encode())  # two members, as cat makes them
    assert texts(write(tmp_path / f"a.txt{suffix}", packed)) == ["一", "二\n三"]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", PACK)
def test_a_truncated_compressed_file_is_named_with_how_far_it_got(suffix: str, tmp_path: Path) -> None:
    lines = b"".join(b"line %d of a file that is cut\n" % (number * 7919 % 100_003) for number in range(50_000))
    path = write(tmp_path / f"a.txt{suffix}", PACK[suffix](lines)[:-1000])
    with pytest.raises(
        InputError, match=r"a\.txt\.\w+: is (cut short|damaged): its compressed data \w+ after [\d,]+ bytes"
    ):
        texts(path)


@pytest.mark.parametrize("suffix", PACK)
def test_a_corrupt_compressed_file_is_named(suffix: str, tmp_path: Path) -> None:
    packed = bytearray(PACK[suffix](bytes(range(256)) * 1000))
    packed[len(packed) // 2 :] = b"\x55" * (len(packed) - len(packed) // 2)
    with pytest.raises(InputError, match=r"is (cut short|damaged)"):
        texts(write(tmp_path / f"a.txt{suffix}", bytes(packed)), errors="replace")


def test_suffix_and_content_must_agree(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"begins as a \.gz file, but is not named so"):
        texts(write(tmp_path / "a.txt", gzip.compress(b"text")))
    with pytest.raises(InputError, match=r"is named \.xz, but does not begin as such a file"):
        texts(write(tmp_path / "a.txt.xz", b"text"))
    with pytest.raises(InputError, match="is a zip archive, not text"):
        texts(write(tmp_path / "b.txt", b"PK\x03\x04rest"))


def test_a_compression_bomb_only_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "bomb.txt.zst", zstandard.ZstdCompressor().compress(b"a" * 100_000_000))
    assert path.stat().st_size < 20_000
    sizes = [len(block) for block in streams.blocks(str(path), streams.Reading())]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= streams.BLOCK_BYTES


def test_without_zstandard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt.zst", PACK[".zst"](b"text"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(InputError, match=r"pip install 'filbert\[data\]'"):
        texts(path)


# -- tables ------------------------------------------------------------------------------------------------------


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"id": 1, "text": "一"}\n\n{"id": 2, "text": "二\\n三"}\n')
    found = list(documents(path, report=CorpusReport()))
    assert [(document.text, document.line, document.fields) for document in found] == [
        ("一", 1, {"id": 1}),
        ("二\n三", 3, {"id": 2}),
    ]


def test_csv_quoting(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id,text\n1,"a, b"\n2,"line\none ""quoted"""\n3,5" disk\n4,""\n')
    report = CorpusReport()
    found = [(document.text, document.line) for document in documents(path, report=report)]
    assert found == [("a, b", 2), ('line\none "quoted"', 3), ('5" disk', 5)]
    assert report.num_blank == 1


def test_csv_delimiters(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "id;text\n1;a, b\n")) == ["a, b"]
    assert texts(write(tmp_path / "b.csv", "id\ttext\n1\ta, b\n")) == ["a, b"]
    assert texts(write(tmp_path / "c.tsv", 'id\ttext\n1\t"a", b\n')) == ['"a", b']


def test_a_large_cell_is_no_problem(tmp_path: Path) -> None:
    text = "字" * 200_000  # beyond csv.field_size_limit
    assert texts(write(tmp_path / "a.csv", f'id,text\n1,"{text}"\n2,b\n')) == [text, "b"]


def test_the_text_column(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.jsonl", '{"id": 1, "body": "one"}')) == ["one"]  # the only string
    assert texts(write(tmp_path / "b.jsonl", '{"title": "t", "content": "one"}')) == ["one"]
    path = write(tmp_path / "c.jsonl", '{"title": "t", "body": "one"}')
    assert texts(path, field="body") == ["one"]
    with pytest.raises(InputError, match=r"which column holds the text\? Name one of: title, body"):
        texts(path)
    with pytest.raises(InputError, match=r"the field is 'bdy', but must be one of: title, body\. Did you mean 'body'"):
        texts(path, field="bdy")
    with pytest.raises(InputError, match="is plain text and has no field 'text'"):
        texts(write(tmp_path / "d.txt", "text"), field="text")


def test_rows_without_text_are_faults_or_blank(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl line 2: has no field 'text'"):
        texts(write(tmp_path / "a.jsonl", '{"text": "one"}\n{"body": "two"}\n'))
    with pytest.raises(InputError, match="line 2: the field 'text' holds int, but must hold text"):
        texts(write(tmp_path / "b.jsonl", '{"text": "one"}\n{"text": 2}\n'))
    report = CorpusReport()
    path = write(tmp_path / "c.jsonl", '{"text": "one"}\n{"text": null}\n{"text": " "}\n')
    assert len(list(documents(path, report=report))) == 1
    assert report.num_blank == 2


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "text": ["一", "null", None]}), path)
    report = CorpusReport()
    found = [(document.text, document.line, document.fields) for document in documents(path, report=report)]
    assert found == [("一", 1, {"id": 1}), ("null", 2, {"id": 2})]
    assert report.num_blank == 1
    with pytest.raises(InputError, match="is not a Parquet file that can be read"):
        texts(write(tmp_path / "b.parquet", b"not parquet at all"))


# -- long documents ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["今天天气很好。", "no sentence end at all ", "word", "line\n", "他说：“走吧。”"])
def test_a_long_document_comes_in_pieces_and_loses_nothing(unit: str, tmp_path: Path) -> None:
    text = (unit * (2_500_000 // len(unit))).strip()
    report = CorpusReport()
    found = [document.text for document in documents(write(tmp_path / "a.txt", text), report=report)]
    assert "".join(found) == text
    assert len(found) == 3
    assert max(map(len, found)) <= PIECE_CHARS
    assert report.num_split == 1
    if unit != "word":
        assert all(piece[-1] in "。” \n" for piece in found[:-1])


def test_long_texts_in_tables_come_in_pieces_too(tmp_path: Path) -> None:
    text = "今天天气很好。" * 200_000
    report = CorpusReport()
    path = write(tmp_path / "a.jsonl", json.dumps({"text": text}) + '\n{"text": "short"}')
    found = [document.text for document in documents(path, report=report)]
    assert "".join(found[:-1]) == text
    assert found[-1] == "short"
    assert (report.num_split, report.num_documents) == (1, 3)


def test_cut_place() -> None:
    assert cut_place("aaaa\nbbbb。cc cc", 10) == 10  # the sentence end is in the last quarter, the line end is not
    assert cut_place("aaaaaaaa\nb", 10) == 9
    assert cut_place("aaaaaaaaaaaa", 10) == 10
    assert list(pieces("short", CorpusReport())) == ["short"]


def test_a_blank_line_longer_than_a_piece_is_not_a_document(tmp_path: Path) -> None:
    report = CorpusReport()
    path = write(tmp_path / "a.txt", "one\n\n" + " " * 3_000_000 + "\n\ntwo")
    assert [document.text for document in documents(path, report=report)] == ["one", "two"]


# -- real files --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.shared
def test_wikipedia_has_as_many_documents_as_its_manifest_says(shared: Path) -> None:
    report = CorpusReport()
    for _ in documents(shared / "data/wiki/en-a.txt.xz", report=report):
        pass
    assert (report.num_documents, report.num_split) == (3157, 0)
    assert report.remarks() == []
