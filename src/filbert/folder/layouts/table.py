"""The kinds of published folders that are read and written: each a file here with a LAYOUT, named by model_type."""

from __future__ import annotations

import importlib
from functools import cache

from filbert.folder.layouts.layout import Layout

KINDS = ("bert", "distilbert", "modernbert")


@cache
def layout(kind: str) -> Layout:
    """The layout of a kind, imported when it is asked for: an answer needs one of them."""
    found: Layout = importlib.import_module(f"filbert.folder.layouts.{kind}").LAYOUT
    return found
