"""A public function in; the same function out, which refuses an unknown keyword in a sentence that helps.

Names that users of transformers and scikit-learn try in (core.names) become ours, or the sentence says what to write.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, MutableMapping
from typing import ParamSpec, TypeVar

from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.core.settings import worded

P = ParamSpec("P")
R = TypeVar("R")


def checked(kind: str = "", *, transformers_names: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The decorator. kind: what such a name should have been, "an argument of evaluate", where all are listed.

    transformers_names: whether names of other libraries are renamed to ours: an argument, or one of `settings`.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        allowed = [each.name for each in parameters]
        optional = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in sorted(set(kwargs) - set(allowed)):
                if kind:
                    raise one_of(kind, name, optional)
                if not (transformers_names and _renamed(function.__name__, name, kwargs, optional)):
                    raise _unknown(function.__name__, name, optional, transformers_names)
            return function(*args, **kwargs)

        return call

    return wrap


def _renamed(function: str, name: str, arguments: MutableMapping[str, object], optional: Collection[str]) -> bool:
    """Gives a name of another library the name that it has here, where there is one."""
    from filbert.core import names

    if name in names.SETTINGS:
        field, words = names.SETTINGS[name], worded(arguments.get("settings", ()))
        if any(word.partition("=")[0].strip() == field for word in words):
            raise InputError(f"{function} has {name} and the setting {field}, which are one; give one.")
        arguments["settings"] = [*words, f"{field}={arguments.pop(name)}"]
        return True
    ours = names.ARGUMENTS.get(name)
    if ours is None or ours not in optional or ours in arguments:
        return False
    arguments[ours] = arguments.pop(name)
    return True


def _unknown(function: str, name: str, optional: Collection[str], renames: bool) -> InputError:
    hint = f"see settings.{did_you_mean(name, optional)}"
    if "settings" not in optional:
        hint = f"it has {', '.join(optional)}.{did_you_mean(name, optional)}"
    if renames:
        from filbert.core import names

        hint = f"it is called {names.ARGUMENTS[name]}." if name in names.ARGUMENTS else names.ADVICE.get(name, hint)
    return InputError(f"{function} has no argument {name!r}; {hint}")
