"""Folders that transformers wrote give the same numbers here, and go back and forth without a bit changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.records import Encoding, Packed
from filbert.folder import folder as folders
from filbert.folder import read_transformers, weights
from filbert.models import bert
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
from safetensors.torch import load_file  # noqa: E402

VOCAB, MAX_LENGTH = 211, 512
LENGTHS = (1, 130, 512, 17, 66, 129, 511, 3)  # not in order: packing must put each back in its place
CLASSIC = (
    "BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction", "BertForMultipleChoice",
    "BertForSequenceClassification", "BertForTokenClassification", "BertForQuestionAnswering",
)  # fmt: skip
MODERN = ("ModernBertModel", "ModernBertForMaskedLM")
DISTIL = (
    "DistilBertModel", "DistilBertForMaskedLM", "DistilBertForMultipleChoice", "DistilBertForSequenceClassification",
    "DistilBertForTokenClassification", "DistilBertForQuestionAnswering",
)  # fmt: skip
ERNIE = tuple(name.replace("Bert", "Ernie") for name in CLASSIC)
ELECTRA = tuple(name.replace("Distil", "").replace("Bert", "Electra") for name in DISTIL)
EVERY = CLASSIC + MODERN + DISTIL + ERNIE + ELECTRA


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def theirs(name: str, **more: Any) -> Any:
    """A transformers model of that class with random weights, large enough to make a difference everywhere."""
    torch.manual_seed(len(name))
    shape = {
        "vocab_size": VOCAB, "hidden_size": 48, "num_attention_heads": 2, "intermediate_size": 80,
        "max_position_embeddings": MAX_LENGTH, "pad_token_id": 0,
    }  # fmt: skip
    labels = {"id2label": {0: "体育", 1: "财经", 2: "其他"}} if "ation" in name else {}
    if name.startswith("Distil"):
        names = {"hidden_size": "dim", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"}
        shape = {names.get(field, field): value for field, value in shape.items()}
        config = transformers.DistilBertConfig(n_layers=3, **shape, **labels, **more)
    elif name.startswith("Ernie"):
        config = transformers.ErnieConfig(num_hidden_layers=3, use_task_id=True, **shape, **labels, **more)
    elif name.startswith("Electra"):
        config = transformers.ElectraConfig(num_hidden_layers=3, embedding_size=20, **shape, **labels, **more)
    elif name.startswith("Modern"):
        ids = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
        config = transformers.ModernBertConfig(num_hidden_layers=4, **shape, **ids, **more)
    else:
        config = transformers.BertConfig(num_hidden_layers=3, **shape, **labels, **more)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    return model


def saved(model: Any, folder: Path, **how: Any) -> Path:
    model.save_pretrained(folder, **how)
    return folder


def tokenizer() -> Tokenizer:
    return Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + i) for i in range(VOCAB - 5))])


def sequences(segments: int, lengths: tuple[int, ...] = LENGTHS, vocab: int = VOCAB) -> list[Encoding]:
    rng = np.random.default_rng(5)
    found = []
    for n in lengths:
        ids = rng.integers(1, vocab, n, dtype=np.int32)
        kinds = np.sort(rng.integers(0, segments, n)).astype(np.int32) if segments else np.zeros(n, np.int32)
        found.append(Encoding(ids, kinds, *(np.zeros(n, np.int32) for _ in range(3))))
    return found


def packed_of(every: list[Encoding]) -> tuple[Packed, list[int]]:
    packed, starts = pack(every)
    return tensors(packed), [int(start) for start in starts]


def padded_of(every: list[Encoding], segments: int) -> dict[str, torch.Tensor]:
    longest = max(map(len, every))
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if segments else [])
    batch = {name: torch.zeros(len(every), longest, dtype=torch.int64) for name in names}
    for row, one in enumerate(every):
        batch["input_ids"][row, : len(one)] = torch.as_tensor(one.ids)
        batch["attention_mask"][row, : len(one)] = 1
        if segments:
            batch["token_type_ids"][row, : len(one)] = torch.as_tensor(one.segments)
    return batch


def our_outputs(model: bert.Bert, every: list[Encoding]) -> list[torch.Tensor]:
    """What each head says, in the order in which the sequences were given: per token, then per sequence."""
    packed, starts = packed_of(every)
    x_TD = model(packed)
    order = torch.cat([torch.arange(start, start + len(one)) for start, one in zip(starts, every, strict=True)])
    x_TD = x_TD[order]
    firsts = torch.tensor(np.cumsum([0, *(len(one) for one in every[:-1])]))
    found = [x_TD] if not set(model.parts) - {"pooler"} else []
    if "mlm" in model.parts:
        found.append(model.word_scores(x_TD))
    found += [model.heads[part](x_TD) for part in ("tokens", "span") if part in model.parts]
    if "pooler" in model.parts:
        pooled = model.pooled(x_TD[firsts])
        found += [pooled] if model.parts == ("pooler",) else []
        found += [model.nsp(pooled)] if model.nsp is not None else []
        found += [model.heads[part](pooled) for part in ("labels", "choice") if part in model.parts]
    return found


def their_outputs(model: Any, every: list[Encoding], segments: int) -> list[torch.Tensor]:
    batch = padded_of(every, segments)
    mask = batch["attention_mask"].bool()
    name = type(model).__name__
    if name.endswith("ForMultipleChoice"):
        batch = {key: value.view(-1, 2, value.shape[1]) for key, value in batch.items()}
    out = model(**batch)
    if name.endswith("Model"):
        pooled = getattr(out, "pooler_output", None)
        return [out.last_hidden_state[mask]] + ([] if pooled is None else [pooled])
    if name.endswith("ForQuestionAnswering"):
        return [torch.stack((out.start_logits, out.end_logits), -1)[mask]]
    if name.endswith("ForPreTraining"):
        return [out.prediction_logits[mask], out.seq_relationship_logits]
    if name.endswith("ForMultipleChoice"):
        return [out.logits.view(-1, 1)]
    return [out.logits[mask] if out.logits.dim() == 3 else out.logits]


def scalar(outputs: list[torch.Tensor]) -> torch.Tensor:
    """A loss that every number takes part in, each with its own weight."""
    weigh = torch.Generator().manual_seed(3)
    return torch.stack([(x * torch.randn(x.shape, generator=weigh)).sum() for x in outputs]).sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_outputs_and_gradients_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    other = theirs(name)
    loaded = folders.load(saved(other, tmp_path / "x"))
    model, segments = loaded.model, loaded.config.segments
    assert not model.training
    assert not loaded.notes
    assert loaded.labels == (["体育", "财经", "其他"] if "ation" in name else [])
    every = sequences(segments)
    mine, wanted = our_outputs(model, every), their_outputs(other, every, segments)
    assert len(mine) == len(wanted)
    for one, two in zip(mine, wanted, strict=True):
        scale = max(1.0, float(two.detach().abs().max()))
        torch.testing.assert_close(one, two, atol=1e-5 * scale, rtol=0)
    scalar(mine).backward()  # type: ignore[no-untyped-call]
    scalar(wanted).backward()  # type: ignore[no-untyped-call]
    check_gradients(model, other, loaded.kind)


def check_gradients(model: bert.Bert, other: Any, kind: str) -> None:
    wanted = {name: parameter.grad for name, parameter in other.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    mine = dict(model.named_parameters())
    for ours, names in read_transformers.names(kind, model.config, model.parts):
        assert mine[ours].grad is not None, ours
        for name, gradient in zip(names, mine.pop(ours).grad.chunk(len(names)), strict=True):
            # A key's bias changes nothing (softmax is blind to it): its gradient is noise around zero in both.
            scale = max(float(wanted[name].abs().max()), largest * 1e-2)
            torch.testing.assert_close(
                gradient, wanted.pop(name), atol=1e-5 * scale, rtol=0, msg=lambda m, n=name: n + m
            )
    assert not mine
    assert not wanted


@pytest.mark.parametrize("name", EVERY)
def test_transformers_to_ours_and_back_changes_no_bit(name: str, tmp_path: Path) -> None:
    other = theirs(name)
    loaded = folders.load(saved(other, tmp_path / "theirs"))
    folders.save(tmp_path / "ours", loaded.model, tokenizer(), labels=loaded.labels, fields=loaded.fields)
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours")
    assert same(again.state_dict(), other.state_dict())
    assert again.config.id2label == other.config.id2label
    assert json.loads((tmp_path / "ours/config.json").read_text("utf-8"))["architectures"] == [name]


def test_an_ernie_without_kinds_of_tasks_is_a_bert(tmp_path: Path) -> None:
    other = theirs("ErnieModel")
    other = transformers.ErnieModel(transformers.ErnieConfig(**{**other.config.to_dict(), "use_task_id": False})).eval()
    tokenizer().save(saved(other, tmp_path / "theirs"))
    folders.import_folder(tmp_path / "theirs", tmp_path / "ours")
    again = transformers.AutoModel.from_pretrained(tmp_path / "ours")
    assert type(again) is transformers.BertModel
    assert folders.load(tmp_path / "ours").notes == []
    assert same(again.state_dict(), other.state_dict())


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("parts", "auto"),
    [
        (("pooler",), "AutoModel"),
        (("pooler", "mlm", "nsp"), "AutoModelForPreTraining"),
        (("mlm",), "AutoModelForMaskedLM"),
        (("pooler", "labels"), "AutoModelForSequenceClassification"),
        (("tokens",), "AutoModelForTokenClassification"),
        (("span",), "AutoModelForQuestionAnswering"),
        (("pooler", "choice"), "AutoModelForMultipleChoice"),
        (("pooler", "nsp"), "AutoModelForNextSentencePrediction"),
    ],
)
def test_ours_to_transformers_and_back_changes_no_bit(parts: tuple[str, ...], auto: str, tmp_path: Path) -> None:
    config = bert.Config(vocab_size=VOCAB, width=32, layers=2, heads=4, inner=48, feedforward="gelu-tanh")
    labels = ["甲", "乙", "丙"] if {"labels", "tokens"} & set(parts) else []
    round_trip(bert.Bert(config, parts, len(labels) or 2), labels, auto, tmp_path)


@pytest.mark.parametrize("parts", [(), ("mlm",)])
def test_modern_ours_to_transformers_and_back_changes_no_bit(parts: tuple[str, ...], tmp_path: Path) -> None:
    auto = "AutoModelForMaskedLM" if parts else "AutoModel"
    round_trip(bert.Bert(modern(), parts), [], auto, tmp_path)


def modern() -> bert.Config:
    return bert.Config(
        vocab_size=VOCAB, width=32, layers=4, heads=4, inner=48, max_length=600, segments=0, positions="rotary-local",
        norm="pre", feedforward="geglu", dropout=0.05, eps=1e-5,
    )  # fmt: skip


def round_trip(model: bert.Bert, labels: list[str], auto: str, tmp_path: Path) -> None:
    folders.save(tmp_path / "ours", model, tokenizer(), labels=labels)
    other = getattr(transformers, auto).from_pretrained(tmp_path / "ours")
    back = folders.load(saved(other, tmp_path / "theirs"))
    assert same(back.model.state_dict(), model.state_dict())
    assert back.labels == labels
    assert back.config == model.config
    assert back.model.parts == model.parts


def test_heads_that_transformers_lacks_ride_along_with_modernbert(tmp_path: Path) -> None:
    model = bert.Bert(modern(), ("pooler", "mlm", "nsp", "labels"), labels=2).eval()
    folders.save(tmp_path / "ours", model, tokenizer(), labels=["a", "b"])
    assert same(folders.load(tmp_path / "ours").model.state_dict(), model.state_dict())
    other = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    every = sequences(0, (5, 300))
    packed, starts = packed_of(every)
    rows = torch.cat([torch.arange(start, start + len(one)) for start, one in zip(starts, every, strict=True)])
    wanted = their_outputs(other, every, 0)[0]
    torch.testing.assert_close(model.word_scores(model(packed)[rows]), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["BertForPreTraining", "ModernBertForMaskedLM"])
def test_shards_are_read_as_one_file(name: str, tmp_path: Path) -> None:
    other = theirs(name)
    saved(other, tmp_path / "many", max_shard_size="20KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 3
    one, many = (folders.load(path) for path in (saved(other, tmp_path / "one"), tmp_path / "many"))
    assert same(one.model.state_dict(), many.model.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["BertForSequenceClassification", "ModernBertForMaskedLM"])
def test_import_keeps_every_bit_and_the_precision(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    other = theirs(name, problem_type="multi_label_classification") if "Seq" in name else theirs(name)
    source = saved(other.to(dtype), tmp_path / "in")
    tokenizer().save(source)
    (source / "vocab.txt").unlink()  # transformers 5 no longer writes it
    folders.import_folder(source, tmp_path / "out")
    before, after = (load_file(path / "model.safetensors") for path in (source, tmp_path / "out"))
    assert same(before, after)
    assert {tensor.dtype for tensor in after.values()} == {dtype}
    loaded = folders.load(tmp_path / "out", verify=True)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    stored = folders.load(tmp_path / "out", dtype="stored").model
    assert {parameter.dtype for parameter in stored.parameters()} == {dtype}
    assert torch.equal(stored.embeddings.words.weight.float(), loaded.model.embeddings.words.weight)
    again = getattr(transformers, name).from_pretrained(tmp_path / "out", dtype="auto")
    assert same(again.state_dict(), other.state_dict())
    assert again.config.id2label == other.config.id2label
    assert again.config.problem_type == other.config.problem_type
    assert Tokenizer.load(tmp_path / "out" / "vocab.txt").vocabulary == tokenizer().vocabulary


def rewritten(folder: Path, change: Callable[[str], str | None], more: dict[str, str] | None = None) -> None:
    """Renames (or, for None, drops) the folder's tensors, and adds copies under new names."""
    found = weights.read(folder / "model.safetensors")
    kept = {change(name): (t.dtype, t.shape, t.raw().copy()) for name, t in found.items()}
    for new, old in (more or {}).items():
        kept[new] = (found[old].dtype, found[old].shape, found[old].raw().copy())
    kept.pop(None, None)
    weights.write(folder / "model.safetensors", kept)  # type: ignore[arg-type]


def test_folders_of_2018_load(tmp_path: Path) -> None:
    """LayerNorm.gamma and beta, stored copies of tied tensors, stored position ids, no prefix."""
    other = theirs("BertForPreTraining")
    folder = saved(other, tmp_path / "x")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    copies = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "bert.embeddings.position_ids": "cls.predictions.bias",
    }

    def renamed(name: str) -> str:
        for new, was in old.items():
            name = name.replace(new, was)
        return name

    before = folders.load(folder).model.state_dict()
    rewritten(folder, renamed, copies)
    assert same(folders.load(folder).model.state_dict(), before)
    config = json.loads((folder / "config.json").read_text())
    for name in ("dtype", "tie_word_embeddings", "add_cross_attention", "architectures"):
        config.pop(name, None)
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
    assert same(folders.load(folder).model.state_dict(), before)
    rewritten(folder, lambda name: name.removeprefix("bert."))
    assert same(folders.load(folder).model.state_dict(), before)


def test_old_words_for_modernbert_load(tmp_path: Path) -> None:
    folder = saved(theirs("ModernBertForMaskedLM"), tmp_path / "x")
    before = folders.load(folder).model.state_dict()
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in config.items() if name not in ("rope_parameters", "layer_types")}
    old = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3}
    (folder / "config.json").write_text(json.dumps({**config, **old, "position_embedding_type": "absolute"}))
    assert same(folders.load(folder).model.state_dict(), before)


@pytest.mark.slow
def test_published_weights_answer_as_in_transformers(minilm: Path, tmp_path: Path) -> None:
    other = transformers.BertModel.from_pretrained(minilm).eval()
    folders.import_folder(minilm, tmp_path / "ours")
    loaded = folders.load(tmp_path / "ours", verify=True)
    every = sequences(2, (1, 7, 512, 33, 120, 2, 64), vocab=30_522)
    with torch.inference_mode():
        for one, two in zip(our_outputs(loaded.model, every), their_outputs(other, every, 2), strict=True):
            torch.testing.assert_close(one, two, atol=1e-5, rtol=0)
    again = transformers.BertModel.from_pretrained(tmp_path / "ours")
    assert same(again.state_dict(), other.state_dict())
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "ours" / name).read_bytes() == (minilm / name).read_bytes()
