"""Folders of other families than BERT, as transformers writes them, do here what BERT's do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.folder import folder as folders
from filbert.run.finetune import Finetuned, finetune
from filbert.ship.export import export
from filbert.ship.verify import verified
from filbert.text.tokenizer import Tokenizer
from kit.models import small_bert

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

ROWS = (
    ("今天天气很好", "好"), ("我很开心", "好"), ("太棒了", "好"), ("这个电影很好", "好"),
    ("今天很糟", "坏"), ("我很难过", "坏"), ("不喜欢这个", "坏"), ("糟透了", "坏"),
)  # fmt: skip
TEXTS = [text for text, _ in ROWS]
PARTS = (
    (), ("pooler",), ("pooler", "mlm"), ("pooler", "mlm", "nsp"), ("mlm",), ("labels",), ("pooler", "labels"),
    ("tokens",), ("tokens", "crf"), ("pooler", "span"), ("pooler", "choice"), ("choice",), ("pointer",), ("relation",),
)  # fmt: skip
FAMILIES = ("distilbert", "electra", "ernie")
HERE = ["train.steps=60", "train.learning_rate=3e-3", "machine.device=cpu", "machine.threads=1"]


def written(family: str, folder: Path) -> Path:
    """A tiny folder of that family with random weights and a head for masked words."""
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set("".join(TEXTS)))])
    shapes: dict[str, Any] = {
        "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
        "electra": {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "embedding_size": 12,
        },
        "ernie": {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "use_task_id": True,
        },
    }
    config = transformers.AutoConfig.for_model(
        family, vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **shapes[family]
    )
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def tuned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finetuned:
    """That family's folder, which has learnt eight examples."""
    home = tmp_path_factory.mktemp(request.param)
    folder = written(request.param, home / "theirs")
    return finetune("classify", ROWS, folder, home / "run", settings=[*HERE, "task.pool=cls"], quiet=True)


def chances(model: fb.Model) -> Any:
    return np.array([each.scores["好"] for each in model.predict(TEXTS)])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_blank_is_filled_as_there(family: str, tmp_path: Path) -> None:
    folder = written(family, tmp_path / "theirs")
    model = fb.load(folder, device="cpu")
    assert model.notes == []
    candidates = model.fill("今天[MASK]气很好", top=3)[0].candidates
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer("今天[MASK]气很好", return_tensors="pt")
    with torch.no_grad():
        scores = transformers.AutoModelForMaskedLM.from_pretrained(folder)(**batch).logits[0]
    wanted = scores[batch.input_ids[0] == tokenizer.mask_token_id].softmax(-1).topk(3)
    assert [each.score for each in candidates] == pytest.approx(wanted.values[0].tolist(), abs=1e-5)
    pytest.importorskip("onnxruntime")
    export(folder, tmp_path / "shipped")
    portable = fb.load(tmp_path / "shipped", runtime="onnx").fill("今天[MASK]气很好", top=3)[0].candidates
    assert [each.score for each in portable] == pytest.approx([each.score for each in candidates], abs=1e-5)
    explanation = model.explain("今天[MASK]气很好", task="fill")
    assert explanation.value == pytest.approx(explanation.baseline + explanation.scores.sum(), abs=0.05)


@pytest.mark.parametrize("tuned", FAMILIES, indirect=True)
def test_it_learns_eight_examples_and_goes_back(tuned: Finetuned, tmp_path: Path) -> None:
    model = tuned.model
    assert [each.label for each in model.predict(TEXTS)] == [label for _, label in ROWS]
    out, loads, _ = export_of(tuned, tmp_path / "theirs")
    assert loads == "AutoModelForSequenceClassification"
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    with torch.no_grad():
        shares = again(**tokenizer(TEXTS, return_tensors="pt", padding=True)).logits.softmax(-1)
    np.testing.assert_allclose(shares[:, again.config.label2id["好"]], chances(model), atol=1e-5)


def export_of(tuned: Finetuned, out: Path) -> tuple[Path, str, list[str]]:
    from filbert.folder.write_transformers import export as back

    return back(tuned.model.folder, out)


@pytest.mark.parametrize("tuned", FAMILIES, indirect=True)
def test_it_is_exported_and_answers_without_torch(tuned: Finetuned, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    export(tuned.model.folder, tmp_path / "shipped", int8=True)
    assert all(replay.holds and not replay.missing for replay in verified(tmp_path / "shipped"))
    program = (
        "import sys; sys.modules['torch'] = None\nimport filbert as fb\n"
        f"model = fb.load({str(tmp_path / 'shipped')!r}, runtime='onnx')\n"
        f"print(*(each.scores['好'] for each in model.predict({TEXTS!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    np.testing.assert_allclose([float(word) for word in done.stdout.split()], chances(tuned.model), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_import_keeps_every_bit_and_the_kind(family: str, tmp_path: Path) -> None:
    folder = written(family, tmp_path / "theirs")
    folders.import_folder(folder, tmp_path / "ours")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    wanted = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    assert type(again) is type(wanted)
    assert again.state_dict().keys() == wanted.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], one) for name, one in wanted.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
def test_output_weights_that_are_stored_a_second_time_must_be_the_word_table(family: str, tmp_path: Path) -> None:
    model = transformers.AutoModelForMaskedLM.from_pretrained(written(family, tmp_path / "theirs"))
    model.config.tie_word_embeddings = False
    table = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.get_output_embeddings().weight = table
    model.save_pretrained(tmp_path / "theirs")
    assert fb.load(tmp_path / "theirs", device="cpu").fill("今天[MASK]", top=1)
    table.data[0, 0] += 1
    model.save_pretrained(tmp_path / "theirs")
    with pytest.raises(InputError, match="is not equal to"):
        fb.load(tmp_path / "theirs", device="cpu")


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("family", ["bert", *FAMILIES])
def test_any_heads_are_read_as_they_were_saved(family: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    """Those that the family has no class for too, as a run of pretraining or fine-tuning leaves them."""
    shapes: dict[str, dict[str, Any]] = {
        "bert": {}, "distilbert": {"segments": 0, "pooler": "relu"}, "electra": {"pooler": "gelu", "embedding": 12},
        "ernie": {"task_types": 3},
    }  # fmt: skip
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气"])
    model = small_bert(tokenizer, parts, **shapes[family])
    labels = ["a", "b"] if {"labels", "tokens", "pointer", "relation"} & set(parts) else []
    folders.save(tmp_path / "model", model, tokenizer, labels=labels)
    loaded = folders.load(tmp_path / "model")
    assert loaded.kind == family
    assert loaded.model.parts == model.parts
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.model.state_dict().items())
    pytest.importorskip("onnxruntime")
    export(tmp_path / "model", tmp_path / "shipped")
    fb.load(tmp_path / "shipped", runtime="onnx")


def test_a_discriminator_is_read_without_its_head_and_says_so(tmp_path: Path) -> None:
    folder = written("electra", tmp_path / "theirs")
    config = transformers.AutoConfig.from_pretrained(folder)
    other = transformers.ElectraForPreTraining(config).eval()
    other.save_pretrained(folder)
    model = fb.load(folder, device="cpu")
    assert [note for note in model.notes if "replaced tokens" in note] == model.notes
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        wanted = other.electra(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0, 0]
    np.testing.assert_allclose(model.embed(TEXTS[:1], pool="cls", normalize=False)[0], wanted, atol=1e-5)
    pytest.importorskip("onnxruntime")
    export(folder, tmp_path / "shipped")
    portable = fb.load(tmp_path / "shipped", runtime="onnx")
    np.testing.assert_allclose(portable.embed(TEXTS[:1], pool="cls", normalize=False)[0], wanted, atol=1e-5)


@pytest.mark.parametrize("tuned", FAMILIES, indirect=True)
def test_it_is_explained(tuned: Finetuned) -> None:
    explanation = tuned.model.explain("今天天气很好")
    assert explanation.value == pytest.approx(explanation.baseline + explanation.scores.sum(), abs=0.05)
    assert explanation.certificate is not None


LONG = ("今天天气很好，我们去公园散步。", "How are you?", "人工智能正在改变世界" * 40, "。", "ＡＢＣ１２３ 全角　空格")


def test_the_real_weights_of_a_pickle_give_the_vectors_that_they_give_elsewhere(m3e: Path, tmp_path: Path) -> None:
    folders.import_folder(m3e, tmp_path / "m3e")
    model = fb.load(tmp_path / "m3e", device="cpu")
    theirs = transformers.BertModel(transformers.BertConfig.from_pretrained(m3e)).eval()
    theirs.load_state_dict(torch.load(m3e / "pytorch_model.bin", map_location="cpu", weights_only=True), strict=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(m3e / "tokenizer.json"))
    with torch.no_grad():
        batches = [tokenizer([text], return_tensors="pt", truncation=True, max_length=512) for text in LONG]
        wanted = [theirs(batch.input_ids).last_hidden_state[0].mean(0) for batch in batches]
    np.testing.assert_allclose(model.embed(LONG, pool="mean", normalize=False), np.stack(wanted), atol=1e-5)


def test_the_real_weights_of_a_pickle_in_sentence_transformers(m3e: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folders.import_folder(m3e, tmp_path / "m3e")
    wanted = library.SentenceTransformer(str(m3e), device="cpu").encode(list(LONG))
    np.testing.assert_allclose(fb.load(tmp_path / "m3e", device="cpu").embed(LONG), wanted, atol=1e-5)
