"""The tokenizer's surface: what is encoded, decoded, saved, loaded and refused."""

from __future__ import annotations

import json
import pickle
import random
import sys
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.core.records import Encoding
from filbert.text import characters, tokenizer
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS

TOKENS = [
    *SPECIALS,
    *"今天气很好,.!?()'=`[]",
    "hello",
    "world",
    "un",
    "##aff",
    "##able",
    "mask",
    "e",
    "##e",
    "ß",
    "σ",
    "ς",
]


@pytest.fixture
def small() -> Tokenizer:
    return Tokenizer(TOKENS)


def test_encode_gives_ids_tokens_and_offsets(small: Tokenizer) -> None:
    text = "今天 Unaffable, héllo\u0301!"
    encoding = small.encode(text)
    assert isinstance(encoding, Encoding)
    assert encoding.tokens == ["[CLS]", "今", "天", "un", "##aff", "##able", ",", "hello", "!", "[SEP]"]
    assert encoding.tokens == small.tokens(encoding)
    assert [text[start:end] for start, end in encoding.offsets] == [
        "", "今", "天", "Un", "aff", "able", ",", "héllo\u0301", "!", "",
    ]  # fmt: skip
    assert encoding.ids.dtype == np.int32
    assert encoding.parts.tolist() == [-1] + [0] * 8 + [-1]


def test_a_pair_has_segments(small: Tokenizer) -> None:
    encoding = small.encode("hello", "world!")
    assert encoding.tokens == ["[CLS]", "hello", "[SEP]", "world", "!", "[SEP]"]
    assert encoding.segments.tolist() == [0, 0, 0, 1, 1, 1]
    assert encoding.parts.tolist() == [-1, 0, -1, 1, 1, -1]
    assert encoding.offsets[3:5] == [(0, 5), (5, 6)]


def test_batches_equal_single_calls(small: Tokenizer) -> None:
    texts = ["今天", "", "  ", "hello world", "ΑΣ Σ", "x" * 300, "\n", "unaffable"]
    for text, encoding in zip(texts, small.encode_batch(texts), strict=True):
        alone = small.encode(text)
        assert (alone.tokens, alone.offsets) == (encoding.tokens, encoding.offsets)
    for text, encoding in zip(texts, small.encode_batch(texts, texts[::-1]), strict=True):
        assert encoding.tokens == small.encode(text, texts[::-1][texts.index(text)]).tokens
    assert len(small.pieces([])) == 0
    with pytest.raises(InputError, match="2 texts but 1 pairs"):
        small.encode_batch(["a", "b"], ["a"])


def test_limit_cuts_each_text(small: Tokenizer) -> None:
    pieces = small.pieces(["今天气很好", "好", "", "hello world!"], limit=2)
    assert [tokens.ids.size for tokens in pieces] == [2, 1, 0, 2]
    assert pieces[3].starts.tolist() == [0, 6]


def test_unknown_word_is_one_token_over_all_of_it(small: Tokenizer) -> None:
    encoding = small.encode("a unzzz b")
    assert encoding.tokens[1:-1] == ["[UNK]"] * 3
    assert encoding.offsets[2] == (2, 7)


def test_sigma_is_lowered_by_its_word() -> None:
    letters = [*SPECIALS, *"ασς'", "##σ", "##ς", "##α"]
    cut = Tokenizer(letters)
    assert cut.encode("ΑΣ ΑΣΑ Σ ΑΣ'Α Α\u200bΣ\u00ad").tokens[1:-1] == [
        "α", "##ς", "α", "##σ", "##α", "σ", "α", "##σ", "'", "α", "α", "##ς",
    ]  # fmt: skip
    assert cut.encode("ΑΣ中").tokens[1:-1] == ["α", "##ς", "[UNK]"]
    long = "İ" * 5 + "ΑΣ"
    assert Tokenizer([*letters, "i", "##i"]).encode(long).tokens[-2] == "##ς"


def test_specials_only_when_asked(small: Tokenizer) -> None:
    plain = small.encode("今[MASK]气")
    assert small.mask_id not in plain.ids
    asked = small.encode("今[MASK]气 [mask]", specials=True)
    assert asked.tokens == ["[CLS]", "今", "[MASK]", "气", "[", "mask", "]", "[SEP]"]
    assert asked.offsets[2] == (1, 7)
    assert asked.offsets[3] == (7, 8)


def test_added_tokens_are_found_in_the_raw_text() -> None:
    cut = Tokenizer(TOKENS, added=["<e1>", "天气"])
    encoding = cut.encode("今天气<e1>hello")
    assert encoding.tokens == ["[CLS]", "今", "天气", "<e1>", "hello", "[SEP]"]
    assert encoding.offsets[2:4] == [(1, 3), (3, 7)]
    assert cut.id_of("天气") == len(TOKENS) + 1


def test_without_lower_case_accents_stay() -> None:
    cased = Tokenizer([*SPECIALS, "É", "é", "E"], lowercase=False)
    assert cased.encode("É é E e").tokens[1:-1] == ["É", "é", "E", "[UNK]"]
    kept = Tokenizer([*SPECIALS, "é", "e"], strip_accents=False)
    assert kept.encode("É E").tokens[1:-1] == ["é", "e"]
    joined = Tokenizer([*SPECIALS, "今天"], split_cjk=False)
    assert joined.encode("今天").tokens[1:-1] == ["今天"]


def test_decode(small: Tokenizer) -> None:
    assert small.decode(small.encode("Hello, 今天 unaffable world!").ids) == "hello,今天unaffable world!"
    assert small.decode([small.cls_id, small.mask_id, small.sep_id]) == "[MASK]"
    assert small.decode([small.cls_id], specials=True) == "[CLS]"


def test_names_and_numbers(small: Tokenizer) -> None:
    assert small.vocab_size == len(TOKENS)
    assert small.token_of(small.id_of("##aff")) == "##aff"
    assert "今" in small
    assert [TOKENS[index] for index in np.flatnonzero(small.continues)] == ["##aff", "##able", "##e"]
    with pytest.raises(InputError, match="'zzz' is not one of"):
        small.id_of("zzz")
    with pytest.raises(InputError, match="-1 is not between"):
        small.token_of(-1)


def test_forgetting_changes_nothing(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["今天 unaffable hello", "world unaffable ="]
    before = small.pieces(texts)
    monkeypatch.setattr(tokenizer, "MEMO_WORDS", 1)
    for _ in range(3):
        after = small.pieces(texts)
        assert np.array_equal(before.ids, after.ids)
        assert np.array_equal(before.ends, after.ends)


@pytest.mark.parametrize("lowercase", [True, False])
def test_many_new_words_at_once_are_split_as_one_by_one(lowercase: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    letters = "abcAB01"
    pieces = {"".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(150)} - {"b"}
    tokens = [*SPECIALS, *sorted(pieces), *sorted("##" + piece for piece in sorted(pieces) if draw.random() < 0.8)]
    words = ["".join(draw.choices(letters + "z" * (draw.random() < 0.1), k=draw.randint(1, 30))) for _ in range(2000)]
    text = " ".join([*words, "a" * 200, "a" * 201, "a" * 256, "a" * 257, "é", "b", *words[:50]])
    results = []
    for many in (1, 10**9):
        monkeypatch.setattr(tokenizer, "MANY_WORDS", many)
        encoding = Tokenizer(tokens, lowercase=lowercase).encode(text)
        results.append((encoding.tokens, encoding.offsets))
    assert results[0] == results[1]
    assert 0 < results[0][0].count("[UNK]") < 1900


def test_long_texts_are_read_in_stretches(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "今天 unaffable,hello\u0301 " * 40 + "un" * 400 + "\u200b" * 300 + "好 Σ" + "e\u0301" * 90 + "世"
    whole = small.encode(text)
    monkeypatch.setattr(tokenizer, "CHUNK", 64)
    pieces = small.encode(text)
    assert whole.tokens == pieces.tokens
    assert whole.offsets == pieces.offsets
    assert small.pieces([text], limit=7)[0].ids.tolist() == whole.ids[1:8].tolist()


def test_threads_share_one_tokenizer(small: Tokenizer) -> None:
    texts = [f"今 hello{index} unaffable" for index in range(300)]
    expected = [encoding.ids.tolist() for encoding in Tokenizer(TOKENS).encode_batch(texts)]
    results: list[list[list[int]]] = []

    def work() -> None:
        results.append([small.encode(text).ids.tolist() for text in texts])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_pickled_tokenizer_is_the_same(small: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(small))
    assert copy.settings == small.settings
    assert copy.encode("Hello 今").tokens == small.encode("Hello 今").tokens


@pytest.mark.parametrize("lowercase", [True, False])
def test_saved_and_loaded(tmp_path: Path, lowercase: bool) -> None:
    first = Tokenizer(TOKENS, lowercase=lowercase, max_word_chars=50, added=["<e1>"])
    first.save(tmp_path, max_length=128)
    assert Tokenizer.load(tmp_path).settings == first.settings
    assert Tokenizer.load(tmp_path / "tokenizer.json", lowercase=not lowercase).lowercase is not lowercase
    text_only = Tokenizer.load(tmp_path / "vocab.txt")
    assert text_only.vocabulary == first.vocabulary
    assert text_only.lowercase is lowercase
    (tmp_path / "tokenizer.json").unlink()
    assert Tokenizer.load(tmp_path).lowercase is lowercase
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": "yes"}), encoding="utf-8")
    with pytest.raises(InputError, match="do_lower_case is 'yes'"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither tokenizer\.json nor vocab\.txt"):
        Tokenizer.load(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        Tokenizer.load(tmp_path / "nothing.txt")


@pytest.mark.shared
@pytest.mark.parametrize(("name", "lowercase"), [("chinese", True), ("uncased", True), ("cased", False)])
def test_transformers_loads_what_we_save(shared: Path, tmp_path: Path, name: str, lowercase: bool) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.load(shared / f"data/vocab/bert-base-{name}-vocab.txt", lowercase=lowercase)
    ours.save(tmp_path, max_length=512)
    texts = [
        "今天天气很好，我们去公园。",
        "Hello, World! It's 3.14% déjà-vu…",
        "混合 mixed 文本 ABC",
        "naïve Ångström 2026-11-16",
    ]
    for cls in (transformers.AutoTokenizer, transformers.BertTokenizerFast):
        theirs = cls.from_pretrained(tmp_path)
        assert theirs.model_max_length == 512
        assert theirs.mask_token_id == ours.mask_id
        for text in texts:
            for pair in (None, texts[0]):
                mine, other = ours.encode(text, pair), theirs(text, pair)
                assert mine.ids.tolist() == other["input_ids"]
                assert mine.segments.tolist() == other["token_type_ids"]
    theirs.save_pretrained(tmp_path / "back")
    assert Tokenizer.load(tmp_path / "back").vocabulary == ours.vocabulary


def test_no_character_becomes_punctuation_and_more() -> None:
    """What characters.Characters.kind rests on, in whatever Unicode this Python has."""
    rules = characters.Characters()
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        form = unicodedata.normalize("NFD", char.lower())
        if form == char:
            continue
        kept = "".join(part for part in form if unicodedata.category(part) != "Mn")
        if any(map(characters.is_punctuation, kept)):
            assert len(kept) == 1
            assert rules.kind(char) == characters.SINGLE
        if characters.is_cjk(char):
            assert len(kept) == 1
        assert len(char.lower()) == 1 or char == "İ"
        assert not any(part.isspace() for part in kept) or characters.is_space(char)
