"""The faults D01-D24 that readers must bear (shared/FAULTS.md): each is refused by name, or mended and counted."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from filbert.core.errors import InputError
from filbert.doctor.diagnosis import examine
from filbert.forms.datasets import examples, label_table
from filbert.text.corpus import CorpusReport, documents
from filbert.text.sentences import sentences
from filbert.text.streams import Reading
from kit.files import write


def read(path: Path, **options: str) -> tuple[list[str], CorpusReport]:
    report = CorpusReport()
    return [document.text for document in documents(path, report=report, **options)], report  # type: ignore[arg-type]


# -- D01 invalid UTF-8 -------------------------------------------------------------------------------------------


def test_D01_invalid_byte_has_file_line_and_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\r\ntwo\nthr\xffee\n")
    with pytest.raises(InputError, match=r"a\.txt line 3: byte 0xff at offset 12 is not UTF-8; give --encoding"):
        read(path)


def test_D01_invalid_byte_far_into_a_file(tmp_path: Path) -> None:
    head = (
        "今天天气很好。\n".encode() * 100_000
    )  # the byte stands in the third block, in the middle of a character's bytes
    path = write(tmp_path / "a.txt", head + b"\xe4\xb8\n")
    with pytest.raises(InputError, match=f"line 100001: byte 0xe4 at offset {len(head):,} is not UTF-8"):
        read(path)


def test_D01_gb18030_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "今天天气很好。\n\n我们去公园。\n".encode("gb18030"))
    with pytest.raises(InputError, match=r"line 1: .*reads as GB18030; use --encoding gb18030"):
        read(path)
    assert read(path, encoding="gb18030")[0] == ["今天天气很好。", "我们去公园。"]


def test_D01_latin_text_is_not_taken_for_chinese(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "Un café crème, s'il vous plaît.\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"is not UTF-8; give --encoding"):
        read(path)


def test_D01_replaced_and_counted(tmp_path: Path) -> None:
    texts, report = read(write(tmp_path / "a.txt", b"a\xffb\n\nc\xe4\xb8d\xed\xa0\x80"), errors="replace")
    assert texts == ["a\ufffdb", "c\ufffdd\ufffd\ufffd\ufffd"]
    assert report.num_replaced == 6
    assert report.remarks() == ["6 bytes could not be decoded and became U+FFFD."]


@pytest.mark.slow
def test_D01_many_bad_bytes_take_linear_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xff" * 5_000_000)
    started = time.process_time()
    _, report = read(path, errors="replace")
    assert report.num_replaced == 5_000_000
    assert time.process_time() - started < 15


def test_D01_the_doctor_names_every_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\nt\xffwo\xff\n\nthree\nf\xe4our\n")
    found = [
        (finding.line, finding.severity) for finding in examine(path, "corpus") if "is not UTF-8" in finding.message
    ]
    assert found == [(2, "error"), (5, "error")]


def test_D01_unknown_encodings_are_refused(tmp_path: Path) -> None:
    for encoding in ("utf-9", "rot13"):
        with pytest.raises(InputError, match=r"the encoding '.*' is unknown"):
            read(tmp_path / "a.txt", encoding=encoding)
    with pytest.raises(InputError, match="must be 'strict' or 'replace'"):
        read(tmp_path / "a.txt", errors="ignore")


# -- D02 to D06 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text", ["Hello there, this is a line.\n\nAnd another.\n", "今天天气很好。\n\n我们去公园。Hello\n"]
)
def test_D02_utf16_and_utf32_are_named(text: str, encoding: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", text.encode(encoding))
    with pytest.raises(InputError, match=f"UTF-{encoding[4:6]}.*--encoding {encoding[:6]}"):
        read(path)
    assert read(path, encoding=encoding)[0] == [part.strip() for part in text.split("\n\n")]


def test_D03_bom_is_stripped(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", b"\xef\xbb\xbfone"))[0] == ["one"]
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\none,1\n")
    assert read(path)[0] == ["one"]
    assert [example.texts for example in examples(path, "classify")] == [("one",)]
    assert read(write(tmp_path / "b.jsonl", b'\xef\xbb\xbf{"text": "one"}'))[0] == ["one"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_D04_line_ends_give_the_same_documents(end: str, tmp_path: Path) -> None:
    text = "一\n二\n\n三\n\n\n四".replace("\n", end)
    assert read(write(tmp_path / "a.txt", text))[0] == ["一\n二", "三", "四"]
    table = 'text,label\none,1\n"two\nlines",2\n'.replace("\n", end)
    found = [(example.texts[0], example.line) for example in examples(write(tmp_path / "a.csv", table), "classify")]
    assert found == [("one", 2), ("two\nlines", 3)]


def test_D04_mixed_line_ends_and_a_pair_cut_by_a_block(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", "一\r\n二\r\r\n三\n\r四\r\n\r\n"))[0] == ["一\n二", "三", "四"]
    texts, _ = read(write(tmp_path / "b.txt", b"a" * (2**20 - 1) + b"\r\nb"), unit="line")
    assert [len(text) for text in texts] == [2**20 - 1, 1]


def test_D05_nul_is_removed_and_counted(tmp_path: Path) -> None:
    texts, report = read(write(tmp_path / "a.txt", b"a\0b\r\0\nc\0"))
    assert (texts, report.num_nuls) == (["ab\nc"], 3)
    texts, report = read(write(tmp_path / "b.jsonl", '{"text": "a\\u0000b"}'))
    assert (texts, report.num_nuls) == (["ab"], 1)


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c"])
def test_D06_other_separators_are_not_line_breaks(char: str, tmp_path: Path) -> None:
    text = f"one{char}two\n\nthree{char}{char}four"
    assert read(write(tmp_path / "a.txt", text))[0] == text.split("\n\n")
    assert len(read(write(tmp_path / "b.txt", text), unit="line")[0]) == 2
    found = list(examples(write(tmp_path / "c.tsv", f"one{char}two\t1\nthree\t2\n"), "classify"))
    assert [(example.texts[0], example.line) for example in found] == [(f"one{char}two", 1), ("three", 2)]


# -- D07 to D14 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n\n \n", b"\xef\xbb\xbf", b"\0\0\0"])
def test_D07_a_corpus_without_text_is_refused(data: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", data)
    with pytest.raises(InputError, match=r"a\.txt: no text; every file is empty or blank"):
        read(path)
    with pytest.raises(InputError, match="is empty or blank"):
        list(examples(path, "classify"))


def test_D07_an_empty_file_among_others_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one")
    empty = write(tmp_path / "b.txt", "")
    texts, report = read(tmp_path)
    assert texts == ["one"]
    assert report.empty_files == [str(empty)]
    assert report.remarks() == [f"no text in: {empty}."]


def test_D08_blank_documents_are_skipped_and_counted(tmp_path: Path) -> None:
    texts, report = read(write(tmp_path / "a.txt", "\n\none\n\n \n\u3000\n\ntwo\n\n\n"))
    assert (texts, report.num_blank) == (["one", "two"], 6)
    texts, report = read(write(tmp_path / "b.txt", "one\n\n\t\ntwo\n"), unit="line")
    assert (texts, report.num_blank) == (["one", "two"], 2)
    texts, report = read(write(tmp_path / "c.csv", 'text,id\none,1\n" ",2\n,3\n'))
    assert (texts, report.num_blank) == (["one"], 2)


def test_D09_one_sentence_documents_are_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "今天天气很好。\n\n一。二。\n")
    texts, _ = read(path)
    assert [len(sentences(text)) for text in texts] == [1, 2]
    assert any("1 documents (50 %) have one sentence" in finding.message for finding in examine(path))


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (600 * 2**20,) * 2)
from filbert.text.corpus import documents, CorpusReport
report = CorpusReport()
print(sum(len(document.text) for document in documents(sys.argv[1], report=report)), report.num_split)
# Not ru_maxrss: that begins with what the parent held when it forked.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_D11_a_50_MB_line_is_read_within_bounded_memory(tmp_path: Path) -> None:
    num_chars = 50 * 2**20 // 3
    path = tmp_path / "a.txt"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(num_chars // 1000):
            file.write("今天天气很好我们去公园玩" * 83 + "吧。")
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, path], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - started < 30
    assert done.stdout.split()[0] == str(len(path.read_text(encoding="utf-8")))
    assert int(done.stdout.split()[-1]) < 400 * 1024


def test_D14_lone_surrogates_are_refused_or_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "ok"}\n{"text": "a\\ud800b"}\n')
    with pytest.raises(InputError, match=r"a\.jsonl line 2: holds half a surrogate pair"):
        read(path)
    texts, report = read(path, errors="replace")
    assert (texts, report.num_replaced) == (["ok", "a\ufffdb"], 1)
    with pytest.raises(InputError, match="line 2: holds half a surrogate pair"):
        list(examples(path, "classify"))
    with pytest.raises(InputError, match="byte 0xed at offset 1 is not UTF-8"):
        read(write(tmp_path / "b.txt", b"a\xed\xa0\x80b"))


# -- D19 to D24 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["NA", "null", "None", "NaN", "N/A", "nan", "1.0", "TRUE"])
def test_D19_words_that_look_missing_stay_text(word: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{word},{word}\nother,x\n")
    assert read(path)[0] == [word, "other"]
    first = next(examples(path, "classify"))
    assert (first.texts, first.gold) == ((word,), word)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("text,label\na,1\nb\n", "line 3: has 1 cells, but the header has 2: text, label"),
        ("text,label\na,1\nb, c,1\n", "line 3: has 3 cells, but the header has 2"),
        ('text,label\na,1\n"b,1\nc,1\n', "line 3: the quotation mark opened on this line is never closed"),
        ('text,label\na,1\n"b"c,1\n', "line 3: a quoted cell goes on after its closing quotation mark"),
        ("text,label,text\na,1,b\n", "line 1: the column 'text' stands twice in the header"),
    ],
)
def test_D20_broken_tables_have_line_numbers(table: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", table)
    with pytest.raises(InputError, match=rf"a\.csv {message}"):
        read(path, field="text")
    with pytest.raises(InputError, match=rf"a\.csv {message}"):
        list(examples(path, "classify"))


def test_D20_the_doctor_lists_all_broken_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "a,1\nb\nc,2,3\n" * 3 + '"open,1\n')
    found = [finding.line for finding in examine(path) if finding.severity == "error"]
    assert found == [3, 4, 6, 7, 9, 10, 11]


@pytest.mark.parametrize("tail", ['{"text": "thr', '{"text"', "{", '{"text": "three"'])
def test_D21_a_truncated_last_line_has_its_number(tail: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "one"}\n{"text": "two"}\n' + tail)
    for reader in (documents, partial(examples, task="classify")):
        with pytest.raises(InputError, match=r"a\.jsonl line 3: the file ends in the middle of a JSON object"):
            list(reader(path))  # type: ignore[operator]


def test_D21_a_broken_line_in_the_middle_has_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "one"}\n{"text": two}\n["three"]\n{"text": "four"}\n')
    with pytest.raises(InputError, match=r"line 2: is not a JSON object \(.*\); one object per line is needed"):
        read(path)
    assert [finding.line for finding in examine(path) if finding.severity == "error"] == [2, 3]


def test_D22_labels_of_two_types_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": "1"}\n')
    with pytest.raises(InputError, match="line 2: the label '1' is text, but line 1 has a number; write all alike"):
        list(examples(path, "classify"))


def test_D22_near_duplicate_labels_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,pos\nb,Pos \nc,neg\n")
    table = label_table(examples(path, "classify"))
    assert table.near_duplicates == (("Pos ", "pos"),)
    with pytest.raises(InputError, match=r"the labels 'Pos ' \(1 times\) and 'pos' \(1 times\) differ only by case"):
        table.check()
    assert any("'pos' (1) and 'Pos ' (1) differ only" in finding.message for finding in examine(path))


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [make_fifo, make_loop, make_device, make_socket])
def test_D24_what_is_no_file_is_refused_at_once(make: object, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    make(path)  # type: ignore[operator]
    started = time.perf_counter()
    for source in (path, tmp_path):  # named, or found in a folder
        with pytest.raises(InputError, match=r"a\.txt: (is a named pipe|cannot be read|is a device or socket)"):
            read(source)
    with pytest.raises(InputError, match=r"a\.txt: (is a named pipe|cannot be read|is a device or socket)"):
        list(examples(path, "classify"))
    assert time.perf_counter() - started < 10  # it waits for nobody to write


def test_D24_a_folder_where_a_file_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "a.csv"
    make_folder(folder)
    with pytest.raises(InputError, match=r"a\.csv: is a folder, but a plain file is needed here"):
        list(examples(folder, "classify", reading=Reading()))


def test_D24_a_loop_of_folders_ends(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one")
    (tmp_path / "sub").symlink_to(tmp_path)
    assert read(tmp_path)[0] == ["one"]


def test_D24_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", "one")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(InputError, match=r"a\.txt: cannot be read \(Permission denied\)"):
        read(path)
