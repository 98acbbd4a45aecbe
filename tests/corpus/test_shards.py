"""Shards: ids as sentence by sentence, the same bytes however they were made, and nothing lost when it is cut off."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from filbert.builtin.texts import sample
from filbert.core.errors import FilbertError, InputError
from filbert.corpus import shards, writer
from filbert.corpus.shards import Options, Shards, build, opened
from filbert.text.sentences import sentences
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train
from filbert.text.words import segmenter, word_spans

TEXTS = ["\n".join(document.sentences) for document in sample()][::12]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train(TEXTS, size=1_500).tokens)


def corpus(path: Path, texts: list[str]) -> Path:
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return path


def files_of(folder: Path) -> dict[str, str]:
    """Every file but meta.json, which tells how long it took, by its digest; hidden ones too."""
    names = sorted(name for name in os.listdir(folder) if name != "meta.json")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def documents_of(split: shards.Split) -> list[list[int]]:
    return [
        shard.ids[a:b].tolist()
        for shard in split.shards
        for a, b in zip(shard.documents[:-1], shard.documents[1:], strict=True)
    ]


def expected(text: str, tokenizer: Tokenizer, name: str = "auto") -> tuple[list[list[int]], list[list[int]]]:
    """Ids and word marks of each sentence by itself, by the rule that mlm_nsp began with."""
    ids, marks = [], []
    for start, end in sentences(text):
        sentence = text[start:end]
        tokens = tokenizer.pieces([sentence])[0]
        if not len(tokens.ids):
            continue
        begins = [begin for begin, _ in word_spans(sentence, segmenter(name))] or [0]
        words = np.maximum.accumulate(np.maximum(np.searchsorted(begins, tokens.starts, side="right") - 1, 0))
        for at in np.flatnonzero(tokenizer.continues[tokens.ids]):
            words[at] = words[at - 1] if at else words[at]
        ids.append(tokens.ids.tolist())
        marks.append(np.diff(words, prepend=-1).astype(bool).astype(int).tolist())
    return ids, marks


AWKWARD = [
    "他说：“好！”然后走了。playing football（很好。）再见\u200b世界ＡＢＣ naïve Σίσυφος 大卫.盖罗 e.g. this.",
    "\u200b \u00ad",  # no token
    "Unaffordable… 2024年3.5%增长！？\tTab\u3000宽\r\n\x85下一行",
    "x" * 500 + " 中国人民银行行长",
    "𠀀𠀁 日本語のテキスト 한국어 ##ing [MASK] [UNK]",
]


@pytest.mark.parametrize("name", ["auto", "jieba", "whitespace", "character", "builtins:list"])
def test_ids_words_and_boundaries_are_those_of_each_sentence(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    if name in ("auto", "jieba"):
        pytest.importorskip("rjieba")
    texts = [*TEXTS, *AWKWARD]
    source = tmp_path / "c.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    made = build(source, tokenizer, tmp_path / "out", Options(held=0, segmenter=name), workers=1)
    assert not made.held.shards
    (shard,) = made.train.shards
    wanted = [found for found in (expected(text, tokenizer, name) for text in texts) if found[0]]
    assert len(wanted) == len(texts) - 1 == shard.num_documents
    assert shard.ids.dtype == np.uint16
    assert shard.ids.tolist() == [i for ids, _ in wanted for sentence in ids for i in sentence]
    assert shard.words.tolist() == [i for _, marks in wanted for sentence in marks for i in sentence]
    assert np.diff(shard.sentences).tolist() == [len(sentence) for ids, _ in wanted for sentence in ids]
    assert np.diff(shard.documents).tolist() == [sum(map(len, ids)) for ids, _ in wanted]
    assert shard.documents[0] == shard.sentences[0] == 0
    assert shard.documents[-1] == shard.sentences[-1] == shard.num_tokens == made.num_tokens == len(shard.ids)
    assert np.isin(shard.documents, shard.sentences).all()
    assert made.report.num_empty == 1
    assert made.report.num_unknown == np.count_nonzero(shard.ids == tokenizer.unk_id) > 0
    assert made.has_words
    made.verify()


def test_without_words_every_token_but_a_later_piece_begins_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    made = build(corpus(tmp_path / "c.txt", TEXTS), tokenizer, tmp_path / "out", Options(words=False), workers=1)
    for split in (made.train, made.held):
        for shard in split.shards:
            assert np.array_equal(shard.words == 0, tokenizer.continues[shard.ids])
    assert not made.has_words


def test_a_large_vocabulary_has_ids_of_four_bytes(tmp_path: Path, tokenizer: Tokenizer) -> None:
    many = Tokenizer([*tokenizer.vocabulary, *(f"extra{i}" for i in range(2**16))])
    made = build(corpus(tmp_path / "c.txt", ["extra65535 中国"]), many, tmp_path / "out", workers=1)
    assert made.train.shards[0].ids.dtype == np.uint32
    assert made.train.shards[0].ids[0] == many.vocab_size - 1
    assert made.vocab_size == many.vocab_size


def test_repeated_documents_are_dropped_and_the_first_stays(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [TEXTS[0], TEXTS[1], f"  {TEXTS[0]}　", TEXTS[2], TEXTS[1], TEXTS[0]]
    once = build(corpus(tmp_path / "a.txt", TEXTS[:3]), tokenizer, tmp_path / "a", Options(held=0), workers=1)
    made = build(corpus(tmp_path / "b.txt", texts), tokenizer, tmp_path / "b", Options(held=0), workers=1)
    assert documents_of(made.train) == documents_of(once.train)
    assert (made.report.num_read, made.report.num_kept, made.report.num_duplicate) == (6, 3, 3)
    assert any("3 documents were dropped, for the same text stood before." in line for line in made.report.remarks())


def test_many_digests_are_remembered_while_the_table_grows(tmp_path: Path) -> None:
    seen = writer.Seen(tmp_path, slots=16)
    digests = [hashlib.blake2b(str(i).encode(), digest_size=16).digest() for i in range(20_000)]
    assert all(seen.added(digest) for digest in digests)
    assert not any(seen.added(digest) for digest in digests)
    assert seen.count == 20_000 < seen.slots // 2
    assert os.listdir(tmp_path) == []
    seen.close()


class Without:
    """Excludes texts that hold a word."""

    def __init__(self, word: str) -> None:
        self.word, self.digest = word, f"without {word}"

    def __call__(self, texts: list[str]) -> list[bool]:
        return [self.word in text for text in texts]


def test_excluded_documents_are_dropped_and_part_of_the_identity(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source = corpus(tmp_path / "c.txt", [*TEXTS, "one zebra here.", "another zebra there."])
    made = build(source, tokenizer, tmp_path / "out", workers=1, exclude=Without("zebra"))
    assert made.report.num_excluded == 2
    assert made.report.num_kept == len(TEXTS)
    assert build(source, tokenizer, tmp_path / "out", workers=1).report.num_excluded == 0
    with pytest.raises(InputError, match="no document is left to learn from: 0 have no token and 25 are excluded"):
        build(source, tokenizer, tmp_path / "none", workers=1, exclude=Without(""))


def numbered(count: int) -> list[str]:
    return [f"第{i}篇。{TEXTS[i % len(TEXTS)][: 200 + i % 97].strip()}\nPlaying number {i}." for i in range(count)]


@pytest.mark.slow
def test_a_document_is_held_by_its_text_wherever_it_stands(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = numbered(200)
    options = Options(held=0.1, words=False)
    made = build(corpus(tmp_path / "a.txt", texts), tokenizer, tmp_path / "a", options, workers=1)
    turned = build(corpus(tmp_path / "b.txt", texts[::-1]), tokenizer, tmp_path / "b", options, workers=1)
    assert 8 < made.report.num_held == made.held.num_documents < 40
    assert made.train.num_documents == 200 - made.report.num_held
    assert sorted(documents_of(made.held)) == sorted(documents_of(turned.held))
    assert sorted(documents_of(made.train)) == sorted(documents_of(turned.train))
    whole = [[i for ids in expected(text, tokenizer)[0] for i in ids] for text in texts]
    assert sorted(documents_of(made.held) + documents_of(made.train)) == sorted(whole)


@pytest.mark.parametrize(("count", "held", "num_held"), [(19, 1e-9, 0), (20, 1e-9, 1), (25, 0.0, 0)])
def test_twenty_documents_hold_back_one(
    count: int, held: float, num_held: int, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    source = corpus(tmp_path / "c.txt", numbered(count))
    made = build(source, tokenizer, tmp_path / "out", Options(held=held, words=False), workers=1)
    assert (made.held.num_documents, made.train.num_documents) == (num_held, count - num_held)


SMALL = Options(shard_tokens=2_000, held=0.1)


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHUNK_CHARS", 3_000)  # the parent alone cuts chunks
    source = tmp_path / "c.txt.gz"
    with gzip.open(source, "wt", encoding="utf-8") as handle:
        handle.write("\n\n".join(numbered(150)))
    told: list[shards.Progress] = []
    made = [
        build(source, tokenizer, tmp_path / str(n), SMALL, workers=n, exclude=Without("第7篇"), on_progress=told.append)
        for n in (1, 2, 3)
    ]
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2") == files_of(tmp_path / "3")
    assert len(made[0].train.shards) > 3
    first, *others = [{**asdict(one.report), "seconds": 0} for one in made]
    assert all(other == first for other in others)
    assert told[-1].num_documents == 150
    assert told[-1].num_shards == made[0].report.num_shards
    assert told[-1].num_tokens == made[0].num_tokens


def test_the_second_run_tokenises_nothing(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = corpus(tmp_path / "c.txt", numbered(60))
    first = build(source, tokenizer, tmp_path / "out", SMALL, workers=1)
    monkeypatch.setattr(shards, "documents", None)
    monkeypatch.setattr(writer, "cuts", None)
    again = build([str(source)], tokenizer, tmp_path / "out", SMALL, workers=2)
    assert again.meta == first.meta == opened(tmp_path / "out").meta
    assert again.report.remarks() == first.report.remarks()
    json.dumps(asdict(again.report))


def test_whatever_fixes_the_shards_makes_them_anew(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source, folder = corpus(tmp_path / "c.txt", numbered(60)), tmp_path / "out"
    build(source, tokenizer, folder, SMALL, workers=1)
    before = files_of(folder)
    cased = Tokenizer(tokenizer.settings.tokens, lowercase=False)
    one = Options(held=0.1)
    assert build(source, cased, folder, SMALL, workers=1).report.num_made == len(before)
    assert build(source, cased, folder, one, workers=1).report.num_shards == 1 == len(files_of(folder))
    corpus(source, numbered(61))
    assert build(source, cased, folder, one, workers=1).report.num_read == 61
    os.utime(source, ns=(1, 1))
    assert build(source, cased, folder, one, workers=1).report.num_made == 1
    assert build(source, cased, folder, one, workers=1).report.num_made == 1


KILLED = """
import os, signal, sys
from filbert.corpus import shards, writer
from filbert.text.tokenizer import Tokenizer

source, vocab, folder, place, count, workers = sys.argv[1:]
left = int(count)
old_write, old_replace = writer._write, os.replace

def killed(*given):
    os.kill(os.getpid(), signal.SIGKILL)

def write(path, header, buffers):
    global left
    left -= 1
    if left == 0 and place == "before":
        killed()
    if left == 0 and place == "half":
        half = len(buffers) // 2
        old_write(path, header, [*buffers[:half], Bomb()])
    if left == 0 and place == "renaming":
        os.replace = killed
    old_write(path, header, buffers)
    if left == 0 and place == "after":
        killed()

class Bomb:
    data = property(killed)

if __name__ == "__main__":
    writer._write = write
    options = shards.Options(shard_tokens=2000, held=0.1)
    shards.build(source, Tokenizer.load(vocab), folder, options, workers=int(workers))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "count", "workers"),
    [("before", 1, 1), ("half", 2, 1), ("renaming", 4, 1), ("after", 3, 1), ("half", 3, 2), ("after", 99, 1)],
)
def test_d25_a_killed_build_goes_on_with_what_is_missing(
    place: str, count: int, workers: int, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    source = corpus(tmp_path / "c.txt", numbered(120))
    tokenizer.save(tmp_path / "vocab")
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    given = [source, tmp_path / "vocab", tmp_path / "out", place, count, workers]
    ended = subprocess.run([sys.executable, str(script), *map(str, given)], check=False)
    whole = build(source, tokenizer, tmp_path / "whole", SMALL, workers=1)
    total = whole.report.num_shards
    assert total >= 5
    assert ended.returncode == (0 if count > total else -signal.SIGKILL)
    kept = {name: found for name, found in files_of(tmp_path / "out").items() if not name.startswith(".")}
    assert len(kept) == (total if count > total else count - (place != "after"))
    if count <= total:
        with pytest.raises(InputError, match="not finished; run the same build again"):
            opened(tmp_path / "out")
    times = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in kept}
    made = build(source, tokenizer, tmp_path / "out", SMALL, workers=1)
    assert made.report.num_made == (total - len(kept) if count <= total else total)
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in kept} == times
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    one, two = ({**asdict(found.report), "seconds": 0, "num_made": 0} for found in (made, whole))
    assert one == two


@pytest.mark.parametrize("damage", ["truncated", "missing", "longer", "foreign header"])
def test_a_damaged_shard_is_named_and_made_again(damage: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    source, folder = corpus(tmp_path / "c.txt", numbered(60)), tmp_path / "out"
    first = build(source, tokenizer, folder, SMALL, workers=1)
    before, path = files_of(folder), folder / "00001.shard"
    raw = path.read_bytes()
    path.unlink()
    if damage != "missing":
        changed = {"truncated": raw[:-1], "longer": raw + b"\0", "foreign header": b"x" * (len(raw) + 1)}
        path.write_bytes(changed[damage])
    with pytest.raises(InputError, match=r"00001.shard: is missing or cut short; run the same build again"):
        opened(folder)
    with pytest.raises(InputError, match=r"00001.shard: (has .* bytes where .* were written|cannot be mapped)"):
        _ = first.train.shards[1].ids
    again = build(source, tokenizer, folder, SMALL, workers=1)
    assert again.report.num_made == 1
    assert files_of(folder) == before


def test_changed_bytes_are_found_by_verify(tmp_path: Path, tokenizer: Tokenizer) -> None:
    made = build(corpus(tmp_path / "c.txt", TEXTS), tokenizer, tmp_path / "out", workers=1)
    path = tmp_path / "out" / "00000.shard"
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"00000.shard: its contents have changed since it was written"):
        made.verify()


def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source, folder = corpus(tmp_path / "c.txt", TEXTS), tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.doc").write_text("mine")
    with pytest.raises(
        InputError, match=r"holds 'thesis.doc', which is not a shard of filbert's; name an empty folder"
    ):
        build(source, tokenizer, folder, workers=1)
    assert os.listdir(folder) == ["thesis.doc"]
    (folder / "thesis.doc").rename(folder / "meta.json")
    (folder / "meta.json").write_text('{"kind": "other"}')
    with pytest.raises(InputError, match=r"meta.json: was not written by filbert for shards"):
        build(source, tokenizer, folder, workers=1)
    with pytest.raises(InputError, match=r"holds no meta.json"):
        opened(tmp_path)


def test_shards_inside_the_corpus_folder_are_not_read_as_corpus(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus(tmp_path / "c.txt", TEXTS)
    for _ in range(2):
        made = build(tmp_path, tokenizer, tmp_path / "out", workers=1)
        assert made.report.num_read == len(TEXTS)


@pytest.mark.parametrize("content", ["", " \n\n \n"])
def test_an_empty_corpus_is_refused(content: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "c.txt").write_text(content)
    with pytest.raises(InputError, match="no text; every file is empty or blank"):
        build(tmp_path / "c.txt", tokenizer, tmp_path / "out", workers=1)
    with pytest.raises(InputError, match="there is no such file"):
        build(tmp_path / "other.txt", tokenizer, tmp_path / "other", workers=1)
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_standard_input_is_never_reused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "vocab")
    code = (
        "import sys; from filbert.corpus import shards; from filbert.text.tokenizer import Tokenizer;"
        "made = shards.build('-', Tokenizer.load(sys.argv[1]), sys.argv[2], workers=1);"
        "print(made.report.num_read, made.report.num_made, made.report.remarks()[-1])"
    )
    for texts in (TEXTS, TEXTS[:5]):
        command = [sys.executable, "-c", code, str(tmp_path / "vocab"), str(tmp_path / "out")]
        done = subprocess.run(command, input="\n\n".join(texts), capture_output=True, text=True, check=True)
        assert done.stdout.startswith(f"{len(texts)} 1 standard input cannot be read twice")


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_leaves_no_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The limit on a file's size stands in for the disk: the system refuses to write on."""
    source = corpus(tmp_path / "c.txt", numbered(400))
    tokenizer.save(tmp_path / "vocab")
    code = (
        "import errno, os, resource, signal, sys; from filbert.core import errors; from filbert.corpus import shards;"
        "from filbert.text.tokenizer import Tokenizer;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "tokenizer = Tokenizer.load(sys.argv[2]);"
        "errno.ENOSPC = errno.EFBIG;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16));"
        "shards.writer.Seen.__init__.__defaults__ = (2**11,);"
        "\ntry: shards.build(sys.argv[1], tokenizer, sys.argv[3], workers=1)"
        "\nexcept errors.InputError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "vocab"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("00000.shard: the disk is full; make room and run again, and the shards that are "
                                "finished will be kept.\n")  # fmt: skip
    assert os.listdir(tmp_path / "out") == ["meta.json"]


class Deadly:
    """Kills the process that asks it, if that is a worker."""

    digest = "deadly"

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __call__(self, texts: list[str]) -> list[bool]:
        if os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return [False] * len(texts)


@pytest.mark.slow
def test_a_worker_that_dies_is_one_sentence(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHUNK_CHARS", 3_000)
    source = corpus(tmp_path / "c.txt", numbered(60))
    with pytest.raises(FilbertError, match="a worker process died while it tokenised"):
        build(source, tokenizer, tmp_path / "out", SMALL, workers=2, exclude=Deadly())
    assert build(source, tokenizer, tmp_path / "out", SMALL, workers=1).report.num_read == 60


def test_ctrl_c_leaves_a_build_that_goes_on(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source, folder = corpus(tmp_path / "c.txt", numbered(120)), tmp_path / "out"

    def stop(progress: shards.Progress) -> None:
        if progress.num_shards == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(source, tokenizer, folder, SMALL, workers=1, on_progress=stop)
    assert sorted(os.listdir(folder)) == ["00000.shard", "00001.shard", "meta.json"]
    made = build(source, tokenizer, folder, SMALL, workers=1)
    assert made.report.num_made == made.report.num_shards - 2


def test_shards_travel_as_little_more_than_a_path(tmp_path: Path, tokenizer: Tokenizer) -> None:
    made = build(corpus(tmp_path / "c.txt", numbered(60)), tokenizer, tmp_path / "out", SMALL, workers=1)
    ids = made.train.shards[0].ids  # mapped by now
    raw = pickle.dumps((made, made.train.shards[0]))
    assert len(raw) < 20_000
    copy, shard = pickle.loads(raw)
    assert isinstance(copy, Shards)
    assert np.array_equal(copy.train.shards[0].ids, ids)
    assert np.array_equal(shard.ids, ids)
    assert not shard.ids.flags.writeable


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held": 1.0}, "held is 1.0, but must be from 0 up to 1"),
        ({"shard_tokens": 0}, "shard_tokens is 0, but must be 1 or more"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Options(**options)  # type: ignore[arg-type]


MEASURED = """
import sys
from filbert.corpus import shards
from filbert.text.tokenizer import Tokenizer

options = shards.Options(words=False, shard_tokens=2**18, unit=sys.argv[4])
shards.build(sys.argv[1], Tokenizer.load(sys.argv[2]), sys.argv[3], options, workers=1)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is read from /proc")
def test_memory_stays_flat(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Many small documents, or one line of 50 MB: little more memory than for a tenth of them."""
    tokenizer.save(tmp_path / "vocab")
    source = tmp_path / "c.txt"

    def peak_mb(name: str, unit: str) -> float:
        command = [sys.executable, "-c", MEASURED, str(source), str(tmp_path / "vocab"), str(tmp_path / name), unit]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout) / 1000

    def lines(count: int) -> str:  # of ideographs, since words would fill the tokenizer's memory, which has its own cap
        return "".join(
            f"第{''.join('零一二三四五六七八九'[int(digit)] for digit in str(i))}行。\n" for i in range(count)
        )

    source.write_text(lines(40_000), encoding="utf-8")
    small = peak_mb("small", "line")
    source.write_text(lines(200_000), encoding="utf-8")
    assert peak_mb("large", "line") < small + 60
    with source.open("w", encoding="utf-8") as handle:
        for i in range(50):
            handle.write(f"{i}，" + TEXTS[8].replace("\n", "")[:1000] * (10**6 // len(TEXTS[8].encode()[:3000])))
    assert source.stat().st_size > 40e6
    assert peak_mb("giant", "blank") < small + 250
