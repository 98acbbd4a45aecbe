"""The files beside a vocabulary in; settings and added tokens that they give, and what of them is passed over, out.

transformers reads tokenizer_config.json, special_tokens_map.json and added_tokens.json beside vocab.txt or
tokenizer.json, and of BERT's own classes what they say goes before tokenizer.json. So it is here. What another kind of
tokenizer would do is refused: its vocab.txt looks the same, and its tokens are others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filbert.core.errors import InputError
from filbert.core.files import json_object
from filbert.text.added import Normalized

CONFIG, SPECIALS_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# Classes that cut texts as BERT does; of the last two tokenizer.json alone says how.
CLASSES = ("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "LayoutLM", "Retribert")
GENERIC = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
SETTINGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FURTHER = ("additional_special_tokens", "extra_special_tokens")
HARMLESS = {  # what else published folders carry, and why it changes nothing here
    "model_max_length": "a bound of the windows that texts are read in: folder.sentence_transformers heeds it",
    "max_len": "the old name of model_max_length",
    "padding_side": "nothing is padded here",
    "pad_to_multiple_of": "nothing is padded here",
    "pad_token_type_id": "nothing is padded here",
    "truncation_side": "no text is cut here",
    "truncation_strategy": "no text is cut here",
    "stride": "no text is cut here: windows overlap by the task's own number",
    "max_length": "what transformers cuts texts to when asked; no text is cut here",
    "clean_up_tokenization_spaces": "how ids become text again; here texts keep their own characters",
    "model_input_names": "what transformers hands its model; here positions and segments are always handed over",
    "split_special_tokens": "only its other value cuts [SEP] in a text, and that is refused",
    "name_or_path": "where the folder came from",
    "_name_or_path": "where the folder came from",
    "special_tokens_map_file": "where the folder came from",
    "tokenizer_file": "where the folder came from",
    "vocab_file": "where the folder came from",
    "use_fast": "which of two libraries of one result transformers takes",
    "backend": "which of two libraries of one result transformers takes",
    "is_local": "how transformers found the folder",
    "local_files_only": "how transformers found the folder",
    "processor_class": "of models of pictures and sound",
    "unk_id": "the id of a token is its place in the vocabulary",
    "bos_token": "BERT begins a text with [CLS]",
    "eos_token": "BERT ends a text with [SEP]",
    "transformers_version": "which version wrote it",
    "legacy": "of tokenizers of another kind",
    "add_prefix_space": "of tokenizers of another kind",
    "auto_map": "names code, which is never run",
    "trust_remote_code": "names code, which is never run",
    "chat_template": "no prompt is made of messages here",
}


@dataclass(frozen=True, slots=True)
class Beside:
    """What the files say: settings that go before tokenizer.json, further tokens, and what was passed over."""

    settings: Mapping[str, bool | None] = field(default_factory=dict)
    overrides: bool = True  # whether they go before tokenizer.json
    added: tuple[str, ...] = ()  # found in the raw text, whether in the vocabulary or after it
    numbers: Mapping[str, int] = field(default_factory=dict)  # the ids that some of them were given
    notes: tuple[str, ...] = ()


def read(folder: Path) -> Beside:
    """The settings, tokens and notes of the files in a folder; empty where there are none."""
    config, specials, extra = (
        json_object(folder / name) if (folder / name).exists() else {} for name in (CONFIG, SPECIALS_MAP, ADDED)
    )
    where = folder / CONFIG
    overrides = check_class(where, config.get("tokenizer_class"))
    settings: dict[str, bool | None] = {name: config[name] for name in SETTINGS if name in config}
    for name, value in settings.items():
        if not isinstance(value, bool) and not (name == "strip_accents" and value is None):
            raise InputError(f"{where}: {name} is {str(value)[:60]!r}, but must be true or false.")
    _check_switches(where, config)
    files = ((where, config), (folder / SPECIALS_MAP, specials))
    for path, fields in files:
        _check_specials(path, fields)
    numbers = _numbers(where, config.get("added_tokens_decoder"), folder / ADDED, extra)
    added = sorted(numbers, key=numbers.__getitem__)
    for path, fields in files:
        for name in FURTHER:
            if fields.get(name):
                added += _further(path, name, fields[name])
    ours = {*SETTINGS, *FURTHER, "tokenizer_class", "added_tokens_decoder", "do_basic_tokenize", "never_split"}
    ours |= {f"{name}_token" for name in NAMES} | {f"{name}_token_id" for name in NAMES} | {"wordpieces_prefix"}
    unread = sorted(name for name in config if name not in ours and name not in HARMLESS)
    notes = [f"{where}: passed over {', '.join(name[:60] for name in unread[:20])}."] if unread else []
    further = dict.fromkeys(token for token in added if token not in NAMES.values())
    return Beside(settings, overrides, tuple(further), numbers, tuple(notes))


def check_class(path: Path, named: object) -> bool:
    """Whether such a class heeds tokenizer_config.json; one that cuts texts otherwise than BERT is refused."""
    if named is None or named in GENERIC:
        return named is None
    bare = str(named).removesuffix("Fast").removesuffix("Tokenizer") if isinstance(named, str) else ""
    if not isinstance(named, str) or not named.removesuffix("Fast").endswith("Tokenizer") or bare not in CLASSES:
        raise InputError(
            f"{path}: tokenizer_class is {str(named)[:60]!r}, but must be BertTokenizer or one that cuts texts as it "
            "does; this folder's texts would be read wrong."
        )
    return True


def _check_specials(path: Path, fields: Mapping[str, object]) -> None:
    """Refuses special tokens that are called otherwise than BERT's."""
    for name, token in NAMES.items():
        special = _content(path, f"{name}_token", fields.get(f"{name}_token", token))
        if special != token:
            raise InputError(f"{path}: {name}_token is {special[:60]!r}, but must be {token}: it is the only one read.")


def _check_switches(path: Path, config: Mapping[str, object]) -> None:
    """Refuses switches that give other tokens than BERT's."""
    for name, allowed in (("do_basic_tokenize", True), ("split_special_tokens", False), ("wordpieces_prefix", "##")):
        if config.get(name, allowed) not in (allowed, None):
            raise InputError(f"{path}: {name} is {str(config[name])[:60]!r}, but must be {str(allowed).lower()!r}.")
    if config.get("never_split"):
        raise InputError(f"{path}: never_split is not read; write its words into {ADDED}, with their ids.")


def _content(path: Path, name: str, value: object) -> str:
    """A token as it is written, or as an object that has it under `content`."""
    token = value.get("content") if isinstance(value, dict) else value
    if not isinstance(token, str) or not token:
        raise InputError(f"{path}: {name} is {str(value)[:60]!r}, but must be a token, or an object with its content.")
    for flag in ("lstrip", "rstrip", "single_word"):
        if isinstance(value, dict) and value.get(flag):
            raise InputError(f"{path}: the token {token[:60]!r} has {flag}, which is not supported; set it to false.")
    return token


def _token(path: Path, name: str, value: object, is_special: bool) -> str:
    """A further token; one that is not special is looked for in the folded text, unless it says otherwise."""
    token, fields = _content(path, name, value), value if isinstance(value, dict) else {}
    is_folded = fields.get("normalized", not fields.get("special", is_special))
    if not isinstance(is_folded, bool):
        raise InputError(f"{path}: the token {token[:60]!r} has normalized {is_folded!r}, but must have true or false.")
    return Normalized(token) if is_folded else token


def _further(path: Path, name: str, value: object) -> list[str]:
    """Further special tokens: a list of them, or an object of names and tokens."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise InputError(f"{path}: {name} must be a list of tokens.")
    return [_token(path, name, item, True) for item in items]


def _numbers(path: Path, decoder: object, beside: Path, extra: Mapping[str, object]) -> dict[str, int]:
    """Tokens and the ids that added_tokens_decoder and added_tokens.json give them."""
    if not isinstance(decoder, dict | None):
        raise InputError(f"{path}: added_tokens_decoder must be an object of ids and tokens.")
    numbers: dict[str, int] = {}
    for number, item in (decoder or {}).items():
        if not number.isascii() or not number.isdigit() or len(number) > 9:
            raise InputError(f"{path}: added_tokens_decoder has the id {number[:60]!r}, but ids are whole numbers.")
        numbers[_token(path, "added_tokens_decoder", item, False)] = int(number)
    for token, index in extra.items():
        if type(index) is not int or not token or numbers.get(token, index) != index:
            raise InputError(f"{beside}: {token[:60]!r} has the id {str(index)[:60]!r}; it needs one, and only one.")
        numbers.setdefault(Normalized(token), index)
    return numbers
