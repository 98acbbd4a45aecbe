"""Every key of the files that published folders carry: a changed value is honoured, refused or named.

A key that changes nothing is in a list of the reader with the reason why, and then it must truly change nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.folder import fields, sentence_transformers
from filbert.folder.folder import save
from filbert.folder.layouts.layout import layout
from filbert.models import bert
from filbert.text import tokenizer_files
from filbert.text.tokenizer import Tokenizer
from kit.models import small_bert

TEXTS = ["Café 今天 [E1] weather", "The train leaves at seven. 我们坐高铁去北京，今天天气很好。" * 2]
LABELS = ("one", "two", "three")
TYPES = [f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling")]
BASE: dict[str, Any] = {  # beside what filbert writes
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": TYPES[0]},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": TYPES[1]},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_cls_token": True},
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False},
    "config_sentence_transformers.json": {"prompts": {"query": ""}, "default_prompt_name": None},
}

# What published folders carry, each with another value than it has. A value that is a dict of one key "add" adds.
CONFIG: dict[str, Any] = {
    "model_type": "roberta", "architectures": ["BertForTokenClassification"], "hidden_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 99,
    "max_position_embeddings": 32, "type_vocab_size": 1, "hidden_act": "relu", "layer_norm_eps": 0.05,
    "hidden_dropout_prob": 0.5, "id2label": {"0": "x", "1": "y", "2": "z"}, "label2id": {"x": 0, "y": 1, "z": 2},
    "num_labels": 4, "problem_type": "multi_label_classification", "tie_word_embeddings": False, "is_decoder": True,
    "is_encoder_decoder": True, "add_cross_attention": True, "position_embedding_type": "relative_key",
    "quantization_config": {"bits": 4}, "pruned_heads": {"0": [0]}, "tokenizer_class": "BertJapaneseTokenizer",
    "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
    "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid",
    "auto_map": {"AutoModel": "code.Model"}, "trust_remote_code": True, "_attn_implementation": "flash",
    "embedding_size": 16, "rope_theta": 10.0, "embedding_scale": 2.0, "adapters": {"adapters": {"x": 1}},
}  # fmt: skip
TOKENIZER: dict[str, Any] = {
    "do_lower_case": True, "strip_accents": True, "tokenize_chinese_chars": False,
    "tokenizer_class": "BertJapaneseTokenizer", "model_max_length": 16, "pad_token": "[MASK]", "unk_token": "[MASK]",
    "cls_token": "[MASK]", "sep_token": "[MASK]", "mask_token": {"content": "[MASK]", "lstrip": True},
    "do_basic_tokenize": False, "never_split": ["weather"], "wordpieces_prefix": "@@", "split_special_tokens": True,
    "additional_special_tokens": ["le"], "extra_special_tokens": {"x": "le"},
    "added_tokens_decoder": {"3": {"content": "[E1]"}}, "word_tokenizer_type": "mecab", "my_own": 1,
}  # fmt: skip
MODULES: dict[str, Any] = {
    "type": "sentence_transformers.models.LayerNorm", "path": "../elsewhere", "kwargs": ["task"],
    "idx": 7, "name": "other",
}  # fmt: skip
POOLING: dict[str, Any] = {
    "word_embedding_dimension": 64, "embedding_dimension": 64, "pooling_mode": "mean", "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": True, "pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_cls_token": False,
    "pooling_mode_weightedmean_tokens": True, "pooling_mode_lasttoken": True, "include_prompt": False, "my_own": 1,
}  # fmt: skip
READING: dict[str, Any] = {"max_seq_length": 16, "do_lower_case": True, "my_own": 1}
PROMPTS: dict[str, Any] = {
    "prompts": {"query": "问："}, "default_prompt_name": "none such", "similarity_fn_name": "dot",
    "activation_fn": "torch.nn.modules.activation.Sigmoid", "my_own": 1,
}  # fmt: skip
GENERATION: dict[str, Any] = {
    "do_sample": True, "temperature": 0.5, "top_k": 5, "top_p": 0.5, "max_length": 20, "max_new_tokens": 3,
    "num_beams": 4, "repetition_penalty": 1.5, "length_penalty": 2.0, "no_repeat_ngram_size": 2, "bad_words_ids": [[1]],
}  # fmt: skip
ADAPTER: dict[str, Any] = {
    "peft_type": "LORA", "r": 8, "lora_alpha": 16, "base_model_name_or_path": "bert-base-chinese",
    "target_modules": ["query"], "task_type": "SEQ_CLS", "modules_to_save": ["classifier"], "inference_mode": True,
}  # fmt: skip
MODERN: dict[str, Any] = {
    **dict.fromkeys(layout("modernbert").fixed, 7), "norm_eps": 0.05, "mlp_dropout": 0.5, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 99,
    "max_position_embeddings": 32, "layer_types": ["full_attention"],
    "rope_parameters": {"full_attention": {"rope_theta": 3.0}}, "my_own": 1,
}  # fmt: skip
# And those that change nothing, each with its reason, as the readers list them.
HARMLESS: dict[str, dict[str, str]] = {
    "config.json": fields.HARMLESS,
    "modern/config.json": fields.HARMLESS,
    "tokenizer_config.json": tokenizer_files.HARMLESS,
    "generation_config.json": dict.fromkeys(fields.GENERATION_HARMLESS, "the tokenizer and config.json say it"),
    **sentence_transformers.HARMLESS,
}
FURTHER = tokenizer_files.FURTHER
OTHER = {"model_max_length": 16, "max_len": 16, "dtype": "float16", "torch_dtype": "float16"}  # where 7 is not allowed
CHECKED = ("model_max_length", "max_len", "split_special_tokens")  # used or refused elsewhere, as their reasons say
SWEPT: dict[str, dict[str, Any]] = {
    "config.json": CONFIG, "modern/config.json": MODERN, "tokenizer_config.json": TOKENIZER,
    "special_tokens_map.json": {key: own for key, own in TOKENIZER.items() if key.endswith("_token") or key in FURTHER},
    "added_tokens.json": {"[E1]": 3, "今": 4_000},
    "modules.json": MODULES, "1_Pooling/config.json": POOLING, "sentence_bert_config.json": READING,
    "config_sentence_transformers.json": PROMPTS, "generation_config.json": GENERATION, "adapter_config.json": ADAPTER,
}  # fmt: skip


def cases() -> Iterator[tuple[str, str, Any]]:
    """File, key and changed value."""
    for file, changed in SWEPT.items():
        yield from ((file, key, value) for key, value in changed.items())
        for key in HARMLESS.get(file, {}):
            if key not in changed:
                yield file, key, OTHER.get(key, 7)


@dataclass(frozen=True)
class Answers:
    """All that a folder says."""

    numbers: list[Any]
    words: tuple[Any, ...]
    notes: tuple[str, ...]

    def same(self, other: Answers) -> bool:
        """Whether both say the same, bit for bit."""
        pairs = zip(self.numbers, other.numbers, strict=True)
        return self.words == other.words and all(one.shape == two.shape and (one == two).all() for one, two in pairs)


def asked(folder: Path) -> Answers:
    """Loads a folder and asks it everything that it can be asked."""
    model = fb.load(folder, device="cpu")
    numbers = [model.embed(TEXTS)]
    if model.engine.fills:
        numbers.append(np.array([each.score for each in model.fill("今天[MASK]气")[0].candidates]))
    words: list[Any] = [model.config, model.tokenizer.settings]
    if model.labels:
        said = model.predict(TEXTS)
        numbers.append(np.array([[one.scores.get(label, 0.0) for label in model.labels] for one in said]))
        words += [tuple(model.labels), [(one.labels, one.spans) for one in said]]
    return Answers(numbers, tuple(words), tuple(model.notes))


@pytest.fixture(scope="module")
def bases(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Answers]]:
    """A classifier with sentence-transformers' files, and a ModernBERT; what each says as it is."""
    tokens, home = Tokenizer.load(tiny_folder).vocabulary, tmp_path_factory.mktemp("sweep")
    cased = Tokenizer(tokens, lowercase=False, strip_accents=False)
    classic = small_bert(cased, ("pooler", "mlm", "labels"), len(LABELS), noise=0.3)
    save(home / "classic", classic, cased, labels=LABELS)
    for name, value in BASE.items():
        put(home / "classic" / name, value)
    shape = bert.Config(
        vocab_size=cased.vocab_size, width=32, layers=3, heads=2, inner=64, max_length=64, segments=0,
        positions="rotary-local", norm="pre", feedforward="geglu", dropout=0.0, eps=1e-5,
    )  # fmt: skip
    save(home / "modern", bert.Bert(shape, ("mlm",)).eval(), cased)
    for name in ("classic", "modern"):
        (home / name / "manifest.json").unlink()
        (home / name / "added_tokens.json").write_text("{}")
    return {name: (home / name, asked(home / name)) for name in ("classic", "modern")}


def put(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def changed(folder: Path, file: str, key: str, value: Any) -> None:
    """Changes one key of one file, which may not be there yet."""
    path = folder / file
    said = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if isinstance(said, list):
        said[-1][key] = value
    else:
        said[key] = value
    if file == "config.json" and key == "label2id":  # where id2label is left out, this is what names the labels
        said.pop("id2label")
    if key == "max_len":  # which the newer name goes before
        said.pop("model_max_length")
    put(path, said)


def answers_or_refusal(folder: Path) -> Answers | str:
    """What it says, or the sentence that refuses it."""
    try:
        return asked(folder)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize(("file", "key", "value"), list(cases()), ids=lambda part: str(part)[:40])
def test_a_changed_key_is_honoured_refused_or_named(
    file: str, key: str, value: Any, bases: dict[str, tuple[Path, Answers]], tmp_path: Path
) -> None:
    kind, name = ("modern", file.removeprefix("modern/")) if file.startswith("modern/") else ("classic", file)
    source, before = bases[kind]
    folder = Path(shutil.copytree(source, tmp_path / "folder"))
    changed(folder, name, key, value)
    reason = HARMLESS.get(file, {}).get(key)
    after = answers_or_refusal(folder)
    if isinstance(after, str):
        assert Path(name).name in after or key in after
        assert reason is None or key in CHECKED
        return
    new = set(after.notes) - set(before.notes)
    is_named = any(key in note or Path(name).name in note for note in new)
    if reason is not None and key not in CHECKED:
        assert len(reason) > 10
        assert after.same(before)
    else:
        assert is_named or not after.same(before), f"{file}: {key} changes nothing, and nothing is said of it"


def test_there_are_many_cases() -> None:
    assert len(list(cases())) > 200
