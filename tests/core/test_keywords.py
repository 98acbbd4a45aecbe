"""Keywords that a public function does not have: the sentence that says so, and names of other libraries."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import filbert as fb
from filbert.core import keywords
from filbert.core.errors import InputError
from filbert.core.settings import Settings


@keywords.checked(transformers_names=True)
def tuned(train: str, *, epochs: int = 3, settings: Settings = (), seed: int = 0) -> tuple[int, list[str], int]:
    """As a verb that has settings."""
    return epochs, list(settings), seed


@keywords.checked("an argument of measured")
def measured(data: str, *, out: str = "", task: str = "") -> str:
    """As a verb that lists what it has."""
    return data


@keywords.checked()
def cut(*, heads: int = 1) -> int:
    """As a verb without settings."""
    return heads


def test_names_of_other_libraries_become_ours() -> None:
    assert tuned("x", num_train_epochs=2, random_state=5, lr=0.1) == (2, ["train.learning_rate=0.1"], 5)
    assert tuned("x", lr=0.1, settings={"train.steps": 3})[1] == ["train.steps=3", "train.learning_rate=0.1"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"epohcs": 1}, "tuned has no argument 'epohcs'; see settings. Did you mean 'epochs'?"),
        ({"train_file": "x"}, "tuned has no argument 'train_file'; it is called train."),
        ({"num_train_epochs": 2, "epochs": 1}, "tuned has no argument 'num_train_epochs'; it is called epochs."),
        ({"fp16": True}, "tuned has no argument 'fp16'; the setting is machine.precision."),
        (
            {"lr": 1, "settings": ["train.learning_rate=1"]},
            "tuned has lr and the setting train.learning_rate, which are one; give one.",
        ),
    ],
)
def test_what_no_verb_has_is_named(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        tuned("x", **given)  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_other_verbs_list_what_they_have() -> None:
    with pytest.raises(InputError, match="an argument of measured is 'ot', but must be one of: out, task"):
        measured("x", ot=1)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"cut has no argument 'head'; it has heads\. Did you mean 'heads'"):
        cut(head=1)  # type: ignore[call-arg]


def test_explain_has_the_defaults_of_its_config() -> None:
    from filbert.explain.explanation import Config

    spelled = inspect.signature(fb.Model.explain).parameters
    assert {each.name: each.default for each in dataclasses.fields(Config)} == {
        each.name: spelled[each.name].default for each in dataclasses.fields(Config)
    }


def test_every_public_verb_spells_its_arguments() -> None:
    for name in ("compare", "distill", "evaluate", "export", "finetune", "pretrain"):
        parameters = inspect.signature(getattr(fb, name)).parameters.values()
        assert not [each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD], name
