"""Settings: `section.field=value` in, configs with those fields changed out; and what configs check when made."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from filbert.core.errors import InputError, did_you_mean, one_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config")
Settings = Sequence[str] | Mapping[str, object]  # fields of a recipe: ["train.steps=500"], or {"train.steps": 500}
BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def parsed(words: Iterable[str], sections: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """{"train": {"steps": 500}} from ["train.steps=500"]; an unknown section or field is refused with a guess."""
    values: dict[str, dict[str, Any]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        section, dot, field = name.strip().partition(".")
        if not equals or not dot:
            raise InputError(f"--set {word}: must be section.field=value, e.g. train.steps=500.")
        if section not in sections:
            allowed = ", ".join(sections)
            raise InputError(
                f"--set {word}: there is no section {section!r}; there are: {allowed}.{did_you_mean(section, sections)}"
            )
        kinds = typing.get_type_hints(sections[section])
        fields = [field.name for field in dataclasses.fields(sections[section])]
        if field not in fields:
            guess = did_you_mean(field, fields)
            raise InputError(f"--set {word}: {section} has no field {field!r}; it has: {', '.join(fields)}.{guess}")
        values.setdefault(section, {})[field] = _value(word, value.strip(), kinds[field])
    return values


def worded(settings: object) -> list[str]:
    """["train.steps=500"] from that or from {"train.steps": 500}; a string alone is refused."""
    if isinstance(settings, Mapping):
        return [f"{name}={value}" for name, value in settings.items()]
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise InputError(
            f"settings is {settings!r:.60}, but must be {{'train.steps': 500}} or a list of 'train.steps=500'."
        )
    return [str(word) for word in settings]


def changed(config: Config, fields: Mapping[str, object]) -> Config:
    """The config with these fields, checked as a new one is."""
    return dataclasses.replace(config, **fields)  # type: ignore[type-var]


def check_types(where: str, config: type, fields: Mapping[str, object]) -> None:
    """Refuses fields that the config does not have, or with values of another type; where: the file that has them."""
    hints = typing.get_type_hints(config)
    names = [field.name for field in dataclasses.fields(config)]
    for name, value in fields.items():
        if name not in names:
            raise InputError(
                f"{where}: has fields other than {', '.join(names)}: {name[:60]!r}; fetch the folder again."
            )
        kinds = typing.get_args(hints[name]) or (hints[name],)
        if type(value) not in kinds and not (type(value) is int and float in kinds):
            wanted = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
            raise InputError(f"{where}: {name} is {value!r:.60}, but must be of type {wanted}; fetch the folder again.")


def check_whole(section: str, config: object, **least: int) -> None:
    """Refuses a field that is not a whole number, or is less than that."""
    for name, bound in least.items():
        value = getattr(config, name)
        if type(value) is not int or value < bound:
            raise InputError(f"{section}.{name} is {value!r}, but must be a whole number of {bound} or more.")


def check_shares(section: str, config: object, *names: str) -> None:
    """Refuses a field that is not a share of something, all of it left out."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{section}.{name} is {getattr(config, name)!r}, but must be from 0 up to 1.")


def check_positive(section: str, config: object, **most: int) -> None:
    """Refuses a field that is not above 0, or is more than that."""
    for name, bound in most.items():
        if not 0 < getattr(config, name) <= bound:
            raise InputError(
                f"{section}.{name} is {getattr(config, name)!r}, but must be above 0 and at most {bound:,}."
            )


def check_flags(section: str, config: object, *names: str) -> None:
    """Refuses a field that is neither true nor false: what a word or a number would mean is not clear."""
    for name in names:
        if not isinstance(getattr(config, name), bool):
            raise InputError(f"{section}.{name} is {getattr(config, name)!r:.60}, but must be true or false.")


def check_one_of(section: str, config: object, **allowed: Collection[str]) -> None:
    """Refuses a field that is none of these, with a guess."""
    for name, values in allowed.items():
        if getattr(config, name) not in list(values):  # a field may hold a list, which has no hash
            raise one_of(f"{section}.{name}", getattr(config, name), values)


def _value(word: str, text: str, kind: object) -> Any:
    """The text as the field's own type."""
    kinds: tuple[Any, ...] = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if types.NoneType in kinds and text.lower() in ("none", ""):
        return None
    for one in kinds:
        if one is bool and text.lower() in BOOLS:
            return BOOLS[text.lower()]
        if one in (int, float):
            try:
                return one(text.replace("_", ""))
            except ValueError:
                continue
        if one is str:
            return text
    names = {int: "a whole number", float: "a number", bool: "true or false"}
    wanted = " or ".join(names[one] for one in kinds if one in names)
    raise InputError(f"--set {word}: {text!r} is not {wanted or 'allowed here'}.")


LATER = {"later": True}  # metadata of a field that older folders and runs do not know


def stated(config: DataclassInstance) -> dict[str, Any]:
    """The fields of a config and their values, without those that came LATER and have their default: as it was."""
    late = {each.name for each in dataclasses.fields(config) if each.metadata.get("later")}
    usual = {each.name: each.default for each in dataclasses.fields(config)}
    values = dataclasses.asdict(config)
    return {name: value for name, value in values.items() if name not in late or value != usual[name]}
