"""What went wrong, in one sentence for the user: where it was, what is allowed and what to do."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType

ONE_SEGMENT = "this model tells no second text from the first (type_vocab_size is 1), so it cannot read pairs."


class FilbertError(Exception):
    """The one family of errors that reaches a user; anything else is a bug of ours. Exit code 1."""

    exit_code = 1


class InputError(FilbertError):
    """The user's file, text, field or option cannot be used as it is. Exit code 2."""

    exit_code = 2


class MissingExtra(InputError):
    """A package that only some uses need is not installed."""


def needed(module: str, extra: str) -> ModuleType:
    """The imported module, or the sentence that names the extra which brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtra(
            f"this needs the package '{error.name}', which is not installed: pip install 'filbert[{extra}]'"
        ) from None


def did_you_mean(wrong: str, allowed: Iterable[str]) -> str:
    """ " Did you mean 'sport'?" for a near miss, else an empty string; to be put after a sentence."""
    near = difflib.get_close_matches(wrong, list(allowed), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""


def one_of(what: str, value: object, allowed: Iterable[str]) -> InputError:
    """The error for a value outside a short list: names it, lists what is allowed, guesses what was meant."""
    names = list(allowed)
    listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return InputError(f"{what} is {value!r}, but must be one of: {listed}.{did_you_mean(str(value), names)}")
