"""model.attention: maps by token and by word of every model that attends, of long texts too; bad input is told."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Encoding
from filbert.explain import attention_maps
from filbert.explain.attention_maps import Maps, Seen
from filbert.folder.folder import save
from filbert.nn import maps
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.run import new_models
from filbert.text.tokenizer import Tokenizer
from kit.folders import task_file
from kit.models import noisy

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "今天天气很好，the train leaves unbelievably late。"
LONG = "春天来了，河边的柳树发了芽。The river is calm today. " * 8
Made = Callable[..., fb.Model]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> fb.Model:
    return fb.load(tiny_folder, device="cpu")


@pytest.fixture
def made(tiny_folder: Path, tmp_path: Path) -> Made:
    """A model of that name with random weights, as a folder that was fine-tuned for the task gives it."""

    def folder(name: str, parts: tuple[str, ...] = (), task: dict[str, Any] | None = None, **shape: Any) -> fb.Model:
        tokenizer = Tokenizer.load(tiny_folder)
        torch.manual_seed(1)
        config = new_models.config_of(name, "tiny", tokenizer)
        config = type(config)(**{**{f: getattr(config, f) for f in config.__dataclass_fields__}, **shape})
        found = new_models.model_of(name, config, parts, tokenizer)
        noisy(found, 0.1)
        labels = ["好", "坏"] if {"labels"} & {*parts} else []
        return fb.load(
            save(tmp_path / name, found, tokenizer, labels=labels, files=task_file(task or None)), device="cpu"
        )

    return folder


def check(seen: Seen) -> None:
    """What holds of all maps: rows sum to 1, tokens and words stand where they say, words are runs of all tokens."""
    assert seen.coverage == 1.0
    for own in seen.windows:
        assert own.values.shape == (len(own.layers), len(own.heads), len(own.rows), len(own.columns))
        assert own.values.dtype == np.float32
        np.testing.assert_allclose(own.values.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(own.by_word().sum(-1), 1, atol=1e-5)
        for tokens, words in ((own.rows, own.row_words), (own.columns, own.column_words)):
            assert [place for word in words for place in word.tokens] == list(range(len(tokens)))
            for word in words:
                if word.part >= 0:
                    assert seen.texts[word.part][word.start : word.end] == word.text
                    assert word.text == word.text.strip() != ""
                    assert (word.start, word.end) == (tokens[word.tokens[0]].start, tokens[word.tokens[-1]].end)
                else:
                    assert len(word.tokens) == 1


def words_of(seen: Seen, window: int = 0) -> list[str]:
    return [word.text for word in seen.words[window]]


# The natural call -----------------------------------------------------------------------------------------------------


def test_the_natural_call_gives_layers_heads_words_words(model: fb.Model) -> None:
    seen = model.attention(TEXT, layers=[1])
    check(seen)
    words = words_of(seen)
    assert words == [
        "[CLS]", "今天天气", "很", "好", "，", "the", "train", "leaves", "unbelievably", "late", "。", "[SEP]",
    ]  # fmt: skip
    assert np.asarray(seen).shape == seen.values.shape == (1, 2, len(words), len(words))
    assert seen.map.values.shape[-1] == len(seen.map.rows) > len(words)
    assert seen.map.rows is seen.map.columns
    assert (seen.map.layers, seen.map.heads, seen.map.kind) == ((1,), (0, 1), "self")


def test_words_are_sums_of_columns_and_means_of_rows(model: fb.Model) -> None:
    own = model.attention(TEXT).map
    wanted = np.zeros((2, 2, len(own.row_words), len(own.row_words)))
    for i, one in enumerate(own.row_words):
        for j, two in enumerate(own.row_words):
            block = own.values[:, :, list(one.tokens)][..., list(two.tokens)]
            wanted[:, :, i, j] = block.sum(-1).mean(-1)
    np.testing.assert_allclose(own.by_word(), wanted, atol=1e-6)


def test_some_layers_and_heads_are_those_of_all(model: fb.Model) -> None:
    """In the order asked for; also where the run ends before the last layer."""
    whole = model.attention(TEXT).map.values
    for layers, heads in ((0, None), ([1, 0], [1]), (None, 0), (np.array([1]), (1, 0, 1))):
        own = model.attention(TEXT, layers=layers, heads=heads).map
        assert np.array_equal(own.values, whole[list(own.layers)][:, list(own.heads)])
    assert model.attention(TEXT, layers=[1, 0, 1], heads=1).map.layers == (1, 0)


def test_a_pair_is_read_as_one(model: fb.Model) -> None:
    seen = model.attention("今天天气很好", "明天呢？", layers=[0])
    check(seen)
    assert [word.part for word in seen.words[0]] == [-1, 0, 0, 0, -1, 1, 1, 1, -1]
    assert np.array_equal(seen.values, model.attention(("今天天气很好", "明天呢？"), layers=[0]).values)


def test_a_blank_is_one_token_where_the_model_fills_them(model: fb.Model) -> None:
    assert words_of(model.attention("今天[MASK]气很好")) == ["[CLS]", "今天", "[MASK]", "气", "很", "好", "[SEP]"]


# Words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("👨‍👩‍👧‍👦好👩🏽‍🚀 ok", ["👨‍👩‍👧‍👦", "好", "👩🏽‍🚀", "ok"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("مرحبا بالعالم，你好", ["مرحبا", "بالعالم", "，", "你好"]),
        ("cafe\u0301 don't", ["cafe\u0301", "don", "'", "t"]),
        ("<script>好</script>", ["<", "script", ">", "好", "<", "/", "script", ">"]),
        ("　全角　空格 ", ["全角", "空格"]),
    ],
)  # fmt: skip
def test_what_a_reader_takes_for_a_word_is_one(model: fb.Model, text: str, wanted: list[str]) -> None:
    seen = model.attention(text, layers=[0])
    check(seen)
    assert words_of(seen)[1:-1] == wanted


def test_another_segmenter(model: fb.Model) -> None:
    assert words_of(model.attention("今天天气很好", segments="character"))[1:-1] == list("今天天气很好")
    halves = model.attention("今天天气很好", segments=lambda text: [text[:2], text[2:]])
    assert words_of(halves)[1:-1] == ["今天", "天气很好"]
    with pytest.raises(InputError, match="must be one of"):
        model.attention("好", segments="nobody")
    with pytest.raises(InputError, match="concatenate"):
        model.attention("好的", segments=lambda text: ["好"])


@pytest.mark.slow
@pytest.mark.parametrize("there", [("jieba",), ()])
def test_without_rjieba_jieba_and_without_both_characters(
    model: fb.Model, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...]
) -> None:
    pytest.importorskip("jieba")
    import jieba

    jieba.setLogLevel(60)
    find = importlib.util.find_spec
    hidden = {"rjieba", "jieba"} - {*there}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in hidden else find(name, *more))
    wanted = ["北京大学", "很", "好"] if there else list("北京大学很好")
    assert words_of(model.attention("北京大学很好", layers=[0]))[1:-1] == wanted


# Long texts and bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [None, "哪条河很安静？"])
def test_nothing_of_a_long_text_is_cut(model: fb.Model, pair: str | None) -> None:
    """Each window has the maps of that window alone, and together they hold every token."""
    texts = (LONG,) if pair is None else (pair, LONG)
    seen = model.attention(*texts, layers=[1])
    check(seen)
    assert len(seen.windows) > 3
    assert [own.window for own in seen.windows] == list(range(len(seen.windows)))
    part = len(texts) - 1
    read = {(token.start, token.end) for own in seen.windows for token in own.rows if token.part == part}
    assert len(read) == len(model.tokenizer.pieces([LONG])[0].ids)
    site = maps.sites(model.backbone)[1]
    for own in seen.windows:
        ids = np.array([model.tokenizer.id_of(token.text) for token in own.rows], dtype=np.int32)
        kinds = (np.arange(len(ids)) > np.flatnonzero(ids == model.tokenizer.sep_id)[0]).astype(np.int32)
        alone = Encoding(ids, kinds, *(np.zeros_like(ids) for _ in range(3)))
        with torch.inference_mode(), maps.kept([site]) as got:
            model.backbone(tensors(pack([alone])[0]))
            wanted = maps.weights(site, got[site]).numpy()
        np.testing.assert_allclose(own.values[0], wanted, atol=1e-5)
    with pytest.raises(InputError, match=r"there are \d+ maps"):
        np.asarray(seen)
    assert [one.shape for one in seen.by_word()] == [own.by_word().shape for own in seen.windows]


def test_windows_are_those_of_the_task(made: Made) -> None:
    fine = made("bert", ("labels",), {"task": "classify", "max_length": 16, "overlap": 4, "pool": "mean"})
    seen = fine.attention(LONG, layers=[0])
    check(seen)
    assert max(len(own.rows) for own in seen.windows) == 16


@pytest.mark.slow
def test_twenty_thousand_characters(model: fb.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer is given; all that would take more memory than allowed are refused before any is taken."""
    text = "今天天气很好，我们去公园。" * 1_540
    seen = model.attention(text, layers=[0], heads=[1])
    check(seen)
    cells = sum(own.values.size for own in seen.windows)
    monkeypatch.setattr(attention_maps, "MOST_BYTES", 4 * cells)
    model.attention(text, layers=[0], heads=[1])
    with pytest.raises(InputError, match="ask for fewer layers or heads"):
        model.attention(text, layers=[0])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"text": ""}, "the text is empty"),
        ({"text": " \n　"}, "the text is empty"),
        ({"text": "", "pair": ""}, "the text is empty"),
        ({"text": 7}, "takes a text or two"),
        ({"text": ("a", "b"), "pair": "c"}, "takes a text or two"),
        ({"text": "好", "layers": [2]}, r"layers has 2, but this model has whole numbers from 0 to 1"),
        ({"text": "好", "layers": -1}, r"layers has -1"),
        ({"text": "好", "heads": [True]}, r"heads has True"),
        ({"text": "好", "heads": ["0"]}, r"heads has '0', but this model has whole numbers from 0 to 1"),
        ({"text": "好", "layers": []}, "layers names none"),
    ],
)
def test_bad_input_is_told_in_a_sentence(model: fb.Model, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        model.attention(**asked)


@pytest.mark.parametrize("name", ["word2vec", "glove", "nnlm", "elmo"])
def test_a_model_without_attention_is_refused(made: Made, name: str) -> None:
    with pytest.raises(InputError, match="without attention"):
        made(name).attention(TEXT)


def test_another_thread_reads_on_undisturbed(model: fb.Model) -> None:
    """While one thread looks, and stops its own run early, another one's answers are whole and the same."""
    packed = tensors(pack([model.tokenizer.encode(TEXT)])[0])
    with torch.inference_mode():
        wanted = model.backbone(packed)
    found: list[torch.Tensor] = []

    def reads() -> None:
        with torch.inference_mode():
            found.append(model.backbone(packed))

    with maps.kept(maps.sites(model.backbone)[:1], alone=True) as got:
        other = threading.Thread(target=reads)
        other.start()
        other.join()
        assert not got
        model.backbone(packed)
        pytest.fail("the run goes on though all that was asked for is there")
    assert got
    assert torch.equal(found[0], wanted)


# Other models ---------------------------------------------------------------------------------------------------------


def test_gpt_looks_back_alone(made: Made) -> None:
    seen = made("gpt", ("lm",)).attention(TEXT)
    check(seen)
    assert np.all(np.triu(seen.map.values, 1) == 0)
    assert np.all(np.triu(seen.values, 1) == 0)


def test_han_has_words_and_sentences(made: Made) -> None:
    model = made("han", ("labels",), {"task": "classify", "max_length": 64, "pool": "own"})
    text = "今天天气很好。我们去公园！好吗？"
    seen = model.attention(text)
    check(seen)
    words, sentences = seen.windows
    assert (words.kind, sentences.kind, words.layers, sentences.layers) == ("words", "sentences", (0,), (1,))
    assert [token.text for token in words.rows] == ["今天天气很好。", "我们去公园！", "好吗？"]
    assert [token.text for token in sentences.columns] == [token.text for token in words.rows]
    weights = model.backbone.attention_of(tensors(pack([model.tokenizer.encode(text)])[0]))
    np.testing.assert_allclose(words.values[0, 0].sum(0), weights.words_T.detach(), atol=1e-6)
    np.testing.assert_allclose(sentences.values[0, 0, 0], weights.sentences_N.detach(), atol=1e-6)
    first = [place for place, token in enumerate(words.columns) if token.end <= 7 and token.part == 0]
    assert np.all(words.values[0, 0, 1:, first] == 0)
    assert model.attention(text, layers=[1]).map.kind == "sentences"
    long = model.attention("。".join(["今天天气很好，我们去公园"] * 40))
    check(long)
    assert len(long.of("words")) == len(long.of("sentences")) > 3
    with pytest.raises(InputError, match="0 to 1"):
        model.attention(text, layers=[2])
    with pytest.raises(InputError, match="heads has 1, but this model has 0 alone"):
        model.attention(text, heads=[1])


TRANSLATES = {"task": "translate", "max_length": 24, "beam": 2, "max_new": 6, "max_ratio": 0.0}


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_what_a_writer_looks_at_while_it_writes(made: Made, name: str) -> None:
    """What it writes is what predict says; following that very text gives the same maps."""
    model = made(name, ("writer",), TRANSLATES)
    seen = model.attention("今天天气很好。")
    check(seen)
    assert seen.texts == ("今天天气很好。", model.predict(["今天天气很好。"])[0].text)
    assert [own.kind for own in seen.windows] == (["self", "written", "cross"] if name == "transformer" else ["cross"])
    cross = seen.of("cross")[0]
    assert (cross.rows[0].text, cross.columns[0].text, cross.columns[-1].text) == ("[CLS]", "[CLS]", "[SEP]")
    assert {token.part for token in cross.rows[1:]} == {1}
    assert {token.part for token in cross.columns[1:-1]} == {0}
    told = model.attention("今天天气很好。", "the weather is good")
    check(told)
    assert [token.text for token in told.of("cross")[0].rows[:2]] == ["[CLS]", "the"]
    ids = model.tokenizer.pieces([seen.texts[1]])[0].ids
    if [model.tokenizer.token_of(i) for i in ids] == [token.text for token in cross.rows[1:]]:
        again = model.attention(*seen.texts).of("cross")[0]
        np.testing.assert_allclose(again.values, cross.values, atol=1e-6)
    if name == "transformer":
        assert np.all(np.triu(told.of("written")[0].values, 1) == 0)


def test_a_recurrent_writer_tells_its_own_weights(made: Made) -> None:
    model = made("seq2seq", ("writer",), TRANSLATES)
    own = model.attention("今天天气很好。", "the weather").map
    source = tensors(pack([model.tokenizer.encode("今天天气很好。")])[0])
    ids = np.array([model.tokenizer.id_of(token.text) for token in own.rows], dtype=np.int32)
    target = tensors(pack([Encoding(ids, *(np.zeros_like(ids) for _ in range(4)))])[0])
    with torch.inference_mode():
        weights = model.backbone.attention_of(target, model.backbone(source), source, torch.zeros(1, dtype=torch.long))
    np.testing.assert_allclose(own.values[0, 0], weights[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_a_long_source_in_stretches(made: Made, name: str) -> None:
    """Translated one by one; a summary has all of them before it."""
    text = "今天天气很好，我们去公园。" * 5
    translated = made(name, ("writer",), TRANSLATES).attention(text, layers=[0])
    check(translated)
    assert len(translated.of("cross")) > 1
    sizes = [len(own.columns) for own in translated.of("cross")]
    starts = [own.columns[1].start for own in translated.of("cross")]
    assert starts == sorted(starts)
    summarized = made(name, ("writer",), {**TRANSLATES, "task": "summarize"}).attention(text, layers=[0])
    check(summarized)
    assert [len(own.columns) for own in summarized.of("cross")] == [sum(sizes)]
    with pytest.raises(InputError, match="stretches"):
        made(name, ("writer",), TRANSLATES).attention(text, "the weather")


def test_turns_of_a_dialogue(made: Made) -> None:
    model = made("transformer", ("writer",), {**TRANSLATES, "task": "chat"})
    seen = model.attention("你好吗？\n我很好。", "你呢", layers=[1], heads=[0])
    check(seen)
    assert [token.text for token in seen.of("self")[0].rows].count("[SEP]") == 2
    assert seen.of("cross")[0].values.shape[:2] == (1, 1)


def test_writers_that_cannot_be_asked(made: Made) -> None:
    with pytest.raises(InputError, match="nothing to show"):
        made("seq2seq", ("labels",), {"task": "classify", "max_length": 64, "pool": "mean"}).attention(TEXT)
    with pytest.raises(InputError, match="looks at nothing"):
        made("seq2seq", ("writer",), TRANSLATES, score="none").attention("今天天气很好。")
    model = made("transformer", ("writer",), TRANSLATES)
    for text, target, said in (
        ("", None, "empty"), ("好", "", "has 0 tokens"), ("好", "a " * 40, "must have from 1 to 23"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            model.attention(text, target)
    encoder = made("transformer", ("labels",), {"task": "classify", "max_length": 64, "pool": "mean"})
    assert encoder.attention("好").map.kind == "self"


def test_records_hold_arrays_and_no_tensors(model: fb.Model) -> None:
    own = model.attention("好").map
    assert isinstance(own, Maps)
    assert type(own.values) is np.ndarray
    assert own.values.flags.c_contiguous
