"""Fields of a config.json in; labels, words and notes on ignored fields out, each checked. No torch.

Every field is used, refused or known to be harmless; any other is named in the notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from filbert.core.errors import InputError, one_of
from filbert.core.files import Json
from filbert.folder.weights import inside, small_json
from filbert.text import tokenizer_files

CODE = ("auto_map", "trust_remote_code", "custom_pipelines")  # and _attn_implementation*: they choose code to run
PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")
MOST_LABELS = 1_000_000
GENERATION, ADAPTER = "generation_config.json", "adapter_config.json"
GENERATION_HARMLESS = ("_from_model_config", "transformers_version", "pad_token_id", "bos_token_id", "eos_token_id",
                       "decoder_start_token_id", "use_cache", "output_attentions", "output_hidden_states")  # fmt: skip
USED = {  # fields that some reader here uses, or refuses by their value; of BERT and ModernBERT, whatever the kind
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "model_type", "architectures", "hidden_act", "layer_norm_eps",
    "hidden_dropout_prob", "id2label", "label2id", "num_labels", "problem_type", "dtype", "torch_dtype",
    "tie_word_embeddings", "is_decoder", "is_encoder_decoder", "add_cross_attention", "position_embedding_type",
    "quantization_config", "pruned_heads", "tokenizer_class", "filbert", "sentence_transformers",
    "sbert_ce_default_activation_function", "attention_bias", "mlp_bias", "norm_bias", "classifier_bias",
    "decoder_bias", "hidden_activation", "classifier_activation", "local_attention", "global_attn_every_n_layers",
    "global_rope_theta", "local_rope_theta", "rope_scaling", "rope_parameters", "layer_types", "norm_eps",
    "mlp_dropout",
}  # fmt: skip
TRAINING = "training alone knows it, and what a folder says does not change by it"
SHAPE = "what transformers gives back besides the numbers"
HISTORY = "where the folder came from"
POOLER = "of a pooler that was planned in 2018; no reader has it"
HARMLESS = {  # what else published folders carry, and why it changes nothing that a folder says
    "attention_probs_dropout_prob": f"{TRAINING}; the attention here drops nothing (docs/folders.md)",
    "attention_dropout": f"{TRAINING}; the attention here drops nothing (docs/folders.md)",
    "classifier_dropout": f"{TRAINING}; heads drop as much as hidden_dropout_prob says (docs/folders.md)",
    "embedding_dropout": f"{TRAINING}; the embeddings drop as much as mlp_dropout says (docs/folders.md)",
    "initializer_range": TRAINING, "initializer_cutoff_factor": TRAINING, "gradient_checkpointing": TRAINING,
    "sparse_prediction": TRAINING, "sparse_pred_ignore_index": TRAINING, "repad_logits_with_grad": TRAINING,
    "label_smoothing": TRAINING, "deterministic_flash_attn": TRAINING, "reference_compile": TRAINING,
    "output_attentions": SHAPE, "output_hidden_states": SHAPE, "return_dict": SHAPE, "output_past": SHAPE,
    "torchscript": SHAPE, "use_cache": SHAPE, "use_return_dict": SHAPE, "compile": SHAPE,
    "chunk_size_feed_forward": "the same numbers in smaller pieces",
    "qa_dropout": f"{TRAINING}; heads drop as much as dropout says (docs/folders.md)",
    "seq_classif_dropout": f"{TRAINING}; heads drop as much as dropout says (docs/folders.md)",
    "summary_last_dropout": f"{TRAINING}; heads drop as much as hidden_dropout_prob says (docs/folders.md)",
    "sinusoidal_pos_embds": "the table of positions is in the weights, however it was made",
    "pad_token_id": "nothing is padded here", "bos_token_id": "the tokenizer says what begins a text",
    "eos_token_id": "the tokenizer says what ends a text", "cls_token_id": "the tokenizer says what begins a text",
    "sep_token_id": "the tokenizer says what ends a text", "mask_token_id": "the tokenizer knows its [MASK]",
    "classifier_pooling": "of ModernBERT's classification heads, which are refused by their name",
    "dtype": "the weight file says how numbers are stored; here they are float32 unless asked otherwise",
    "torch_dtype": "the old name of dtype",
    "prefix": "of models that write on", "task_specific_params": "of models that write on",
    "decoder_start_token_id": "of models that write on",
    "_name_or_path": HISTORY, "name_or_path": HISTORY, "transformers_version": HISTORY, "finetuning_task": HISTORY,
    "_num_labels": "num_labels and id2label say it", "use_bfloat16": "dtype says it",
    "_commit_hash": HISTORY, "language": HISTORY, "name": HISTORY, "license": HISTORY,
    "directionality": POOLER, "pooler_fc_size": POOLER, "pooler_num_attention_heads": POOLER,
    "pooler_num_fc_layers": POOLER, "pooler_size_per_head": POOLER, "pooler_type": POOLER,
}  # fmt: skip


def short(value: object) -> object:
    """The value, or the beginning of a long one: it will stand in a sentence."""
    return value if isinstance(value, int | float | bool | None) and abs(value or 0) < 10**20 else str(value)[:60]


def must_be(path: Path, name: str, value: object, allowed: object) -> None:
    """Refuses a field that changes the arithmetic; what is absent, or empty where that is meant, is as usual."""
    if value is None or (value == allowed and isinstance(value, bool) == isinstance(allowed, bool)):
        return
    if allowed in (None, {}) and not value:
        return
    shown = "absent" if allowed in (None, {}) else repr(allowed)
    raise InputError(f"{path}: {name} is {short(value)!r}, but must be {shown}: filbert computes nothing else.")


def word(path: Path, fields: Json, name: str, allowed: Sequence[str]) -> str | None:
    """The field, if it is one of the words that are allowed; None where it is absent."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or value.removeprefix("torch.") not in allowed:
        raise one_of(f"{path}: {name}", short(value), allowed)
    return value.removeprefix("torch.")


def listed(names: Iterable[str]) -> str:
    """Names with commas between, each cut where it is long."""
    return ", ".join(name[:60] for name in names)


def passed_over(path: Path, fields: dict[str, object], used: Collection[str] = ()) -> list[str]:
    """Takes out fields that name code to run; notes that name them, and the fields that are not known here."""
    code = sorted(name for name in fields if name in CODE or name.startswith("_attn_implementation"))
    values = [fields.pop(name) for name in code]
    notes = []
    if any(values):
        notes.append(f"{path}: ignored {listed(code)}: filbert never runs code that a folder names.")
    unknown = sorted(name for name in fields if name not in USED and name not in HARMLESS and name not in used)
    if unknown:
        more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
        notes.append(f"{path}: passed over {listed(unknown[:20])}{more}: not known here.")
    return notes


def labels(path: Path, fields: Json) -> tuple[list[str], int | None, list[str]]:
    """The names of id2label (else label2id) in order, how many labels there are said to be, and what is odd of them."""
    count = fields.get("num_labels")
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_LABELS):
        raise InputError(
            f"{path}: num_labels is {short(count)!r}, but must be a whole number from 1 to {MOST_LABELS:,}."
        )
    names, places = fields.get("id2label"), fields.get("label2id")
    swapped = _by_place(places)
    source = "id2label" if names is not None else "label2id"
    if names is None:
        if places and swapped is None:
            raise InputError(f"{path}: label2id must give each label a number of its own, from 0 on.")
        names = swapped
    if not names:
        return [], count, []
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise InputError(f"{path}: id2label must map each number from 0 to a label's name.")
    labels = [names.get(str(i)) for i in range(len(names))]
    if None in labels:
        raise InputError(f"{path}: id2label has no entry {labels.index(None)}, but needs every number from 0.")
    for name, times in Counter(map(str, labels)).items():
        if times > 1:
            both = [str(place) for place, other in enumerate(labels) if other == name][:2]
            raise InputError(
                f"{path}: {source} names {' and '.join(both)} both {name[:60]!r}; each needs its own name."
            )
        if not _is_text(name):
            raise InputError(f"{path}: {source} has {name!r:.60}, which holds half a character; names may not.")
    if count is not None and count != len(labels):
        raise InputError(f"{path}: num_labels is {count}, but {source} names {len(labels)}; let them agree.")
    odd = [f"{path}: label2id says otherwise than id2label, which is read."] if places and swapped != names else []
    return labels, len(labels), odd  # type: ignore[return-value]


def _is_text(name: str) -> bool:
    """Whether UTF-8 can hold it."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _by_place(places: object) -> dict[str, str] | None:
    """label2id the other way round; None where it gives a number twice or none."""
    if not isinstance(places, dict):
        return None
    labels = {str(place): label for label, place in places.items()}
    return labels if len(labels) == len(places) and set(labels) == {str(i) for i in range(len(labels))} else None


def beside(folder: Path, fields: Json) -> list[str]:
    """Notes on what the files beside config.json ask for and filbert does not do; an adapter is refused."""
    if (folder / ADAPTER).exists() or (folder / "adapter_model.safetensors").exists():
        raise InputError(adapter(folder))
    tokenizer_files.check_class(folder / "config.json", fields.get("tokenizer_class"))
    notes = list(tokenizer_files.read(folder).notes)
    settings = fields.get("sentence_transformers")
    activation = fields.get("sbert_ce_default_activation_function")
    if isinstance(settings, dict):
        activation = settings.get("activation_fn")
    notes += squeezed(folder / "config.json", activation)
    if (folder / GENERATION).exists():
        path = inside(folder, GENERATION)
        ignored = sorted(name for name in small_json(path) if name not in GENERATION_HARMLESS)
        if ignored:
            notes.append(
                f"{path}: passed over {listed(ignored[:20])}: how to write on is said where filbert is asked to."
            )
    return notes


def squeezed(path: Path, activation: object) -> list[str]:
    """A note on what sentence-transformers does to a cross-encoder's numbers and nothing here does."""
    if activation is None or str(activation).rpartition(".")[2] == "Identity":
        return []
    name = str(activation).rpartition(".")[2][:40]
    return [f"{path}: {name} is not applied to its numbers: they are as the head gives them; /rerank squeezes them."]


def adapter(folder: Path) -> str:
    """The sentence for a folder with an adapter, with the model that it belongs to."""
    config = small_json(inside(folder, ADAPTER)) if (folder / ADAPTER).exists() else {}
    base = str(config.get("base_model_name_or_path") or "its model")[:80]
    return (
        f"{folder / ADAPTER}: holds an adapter ({str(config.get('peft_type') or 'PEFT')[:20]}) on {base}, which is not "
        "read by itself; merge it once where peft is: PeftModel.from_pretrained(…).merge_and_unload(), and save that."
    )
