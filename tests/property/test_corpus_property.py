"""Random documents come in, written in every way a file can be; what is read back must be what was written."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.core.errors import InputError
from filbert.doctor.diagnosis import examine, rendered
from filbert.forms.datasets import examples, label_table
from filbert.forms.spec import task_names
from filbert.text import streams
from filbert.text.corpus import CorpusReport, documents
from filbert.text.sentences import sentences
from filbert.text.words import segmenter, word_spans

# Characters that readers trip over, beside any other but surrogates, NUL and the byte order mark.
AWKWARD = "\u2028\u2029\u0085\v\f\x1c\u3000\u00a0 \t\",;|'\\{}[]“”。.!?…"
CHARACTERS = st.one_of(
    st.sampled_from(AWKWARD),
    st.sampled_from("今天天气很好abcXYZ019"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"),
)
LINES = st.text(CHARACTERS, min_size=1, max_size=30).filter(lambda line: not line.isspace())
DOCUMENTS = st.lists(st.lists(LINES, min_size=1, max_size=4).map("\n".join), min_size=1, max_size=6)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def read(name: str, data: bytes, **options: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        found = documents(path, report=CorpusReport(), **options)  # type: ignore[arg-type]
        return [document.text for document in found]


@pytest.mark.slow
@given(
    texts=DOCUMENTS,
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=3),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32-be", "gb18030"]),
    suffix=st.sampled_from(sorted(PACK)),
)
@settings(max_examples=80, deadline=None)
def test_documents_survive_line_ends_encodings_and_compressions(
    texts: list[str], ends: list[str], encoding: str, suffix: str
) -> None:
    lines = "\n\n".join(texts).split("\n")
    # A lone CR before an LF would make one line end of two, so mixed ends alternate only CRLF and LF.
    ends = ends if len(set(ends)) == 1 else ["\r\n", "\n"]
    data = "".join(line + ends[number % len(ends)] for number, line in enumerate(lines)).encode(encoding)
    assert read(f"a.txt{suffix}", PACK[suffix](data), encoding=encoding) == texts


@given(texts=DOCUMENTS, size=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_where_blocks_end_changes_nothing(texts: list[str], size: int) -> None:
    data = "\r\n\r\n".join(text.replace("\n", "\r\n") for text in texts).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK_BYTES", size)
        assert read("a.txt", data) == texts


@pytest.mark.slow
@given(texts=DOCUMENTS)
@settings(max_examples=40, deadline=None)
def test_tables_give_back_what_was_written(texts: list[str]) -> None:
    quoted = "".join('"' + text.replace('"', '""') + f'",{number}\r\n' for number, text in enumerate(texts))
    assert read("a.csv", f"text,id\r\n{quoted}".encode()) == texts
    for is_ascii in (True, False):
        rows = "\n".join(json.dumps({"id": 1, "text": text}, ensure_ascii=is_ascii) for text in texts)
        assert read("a.jsonl", rows.encode()) == texts
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), buffer)
    assert read("a.parquet", buffer.getvalue()) == texts


@given(rows=st.lists(st.tuples(LINES, st.sampled_from(["正", "负"])), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_tab_separated_examples_survive(rows: list[tuple[str, str]]) -> None:
    rows = [(text.replace("\t", " ") + "x", label) for text, label in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tsv"
        path.write_bytes("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]).encode())
        assert [(example.texts[0], example.gold) for example in examples(path, "classify")] == rows


@pytest.mark.slow
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".txt", ".csv", ".jsonl", ".json", ".txt.gz", ".tsv"]))
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_documents_or_a_sentence(data: bytes, suffix: str) -> None:
    for errors in ("strict", "replace"):
        with contextlib.suppress(InputError):  # any other exception is a bug
            assert all(text.strip() for text in read(f"a{suffix}", data, errors=errors))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        path.write_bytes(data)
        assert rendered(examine(path))


KEYS = "text label entities question context answers head tail sentence1 sentence2 data qas start end choice answer"
LEAVES = st.sampled_from(["北京", "在北京", "", "a\ud800", "x\0y", 0, 1, -1, 2, 10**30, None, True, 1.5, float("nan")])
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4)
    ),
    max_leaves=12,
)
SHAPED = st.one_of(
    JSON,
    st.builds(
        lambda x, y, z: {"data": [{"paragraphs": [{"context": x, "qas": [{"question": y, "answers": z}]}]}]},
        *[JSON] * 3,
    ),
    st.builds(lambda x, y: {"text": "在北京", "entities": x, "label": y}, JSON, JSON),
    st.builds(lambda x, y: [[x, [{"question": "?", "choice": y, "answer": y}], "id"]], JSON, JSON),
)


@pytest.mark.slow
@given(values=st.lists(SHAPED, min_size=1, max_size=3), task=st.sampled_from(task_names()))
@settings(max_examples=200, deadline=None)
def test_any_json_gives_examples_or_a_sentence(values: list[object], task: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text("\n".join(map(json.dumps, values)), encoding="utf-8")
        with contextlib.suppress(InputError):  # any other exception is a bug
            label_table(examples(path, task))
        assert rendered(examine(path, task))


@given(st.text(st.one_of(CHARACTERS, st.sampled_from("\n.。！？…”’\"'()（）《》A1a ")), max_size=80))
@settings(max_examples=300, deadline=None)
def test_sentences_tile_the_text(text: str) -> None:
    spans = sentences(text)
    place = 0
    for start, end in spans:
        assert place <= start < end
        assert not text[place:start].strip()
        assert text[start:end] == text[start:end].strip()
        assert "\n" not in text[start:end]
        place = end
    assert not text[place:].strip()


@pytest.mark.slow
@given(st.text(max_size=60), st.sampled_from(["auto", "jieba", "whitespace", "character"]))
@settings(max_examples=200, deadline=None)
def test_words_concatenate(text: str, name: str) -> None:
    cut = segmenter(name)
    assert "".join(cut(text)) == text
    spans = word_spans(text, cut)
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
