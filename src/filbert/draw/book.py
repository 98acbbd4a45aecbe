"""A view model in; one HTML file that shows it, offline from a double click or live beside a server, out.

A view model (`see.view_model.scene`, docs/design.md) is plain JSON data: the texts, attention maps, attributions and
predictions of one model run, or of two side by side. The page is the ES modules beside this file, joined into one
inline module. Its policy names that module and the style sheet by their hashes, lets nothing else run and, when saved,
nothing reach the network.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from filbert.core.records import Floats
from filbert.draw.html import text

ENTRY = "main"
LEVELS = 255  # of a weight's square root: small weights, which are most, keep their first digit
_IMPORT = re.compile(r"^import (\{[^}]*\}) from '\./(\w+)\.js';$", re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_HOLE = re.compile(r"\{\{(\w+)\}\}")
# What could end the element that holds the data, or is no character that a file can hold.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def saved(view_model: Mapping[str, object]) -> str:
    """The page of a view model as one file that needs nothing else and reaches nothing else."""
    return _page(view_model, connect="'none'")


def live(view_model: Mapping[str, object]) -> str:
    """The same page, which may also ask the server it came from: POST look, beside it."""
    return _page(view_model, connect="'self'")


def packed(values: Floats) -> str:
    """Weights from 0 to 1 as the page reads them: bytes of round(255·√w), deflated, in base64."""
    clean = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float32), nan=0.0), 0.0, 1.0)
    codes = np.rint(np.sqrt(clean) * LEVELS).astype(np.uint8)
    return base64.b64encode(zlib.compress(codes.tobytes(), 6)).decode("ascii")


def unpacked(packed_text: str, shape: Sequence[int]) -> Floats:
    """What `packed` was given, to within one level of the square root."""
    codes = np.frombuffer(zlib.decompress(base64.b64decode(packed_text)), dtype=np.uint8)
    return np.square(codes.reshape(tuple(shape)).astype(np.float32) / LEVELS)


def _page(view_model: Mapping[str, object], connect: str) -> str:
    script, style = _script(), _read("style.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",  # its own icon
            f"connect-src {connect}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",  # a string can become text, never markup, even by mistake
            "trusted-types 'none'",
        ]
    )
    parts = {
        "language": "zh" if view_model.get("language") == "zh" else "en",
        "title": text(view_model.get("title") or "filbert"),
        "policy": policy,
        "style": style,
        "scene": _data(view_model),
        "script": script,
    }
    return _HOLE.sub(lambda hole: parts[hole[1]], _read("index.html"))  # one pass: texts with {{…}} stay as they are


def _data(view_model: Mapping[str, object]) -> str:
    """The view model as JSON that no reader of HTML can take for markup."""
    data = json.dumps(_finite(view_model), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", data)


def _finite(value: object) -> object:
    """The same data with null for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _hash(part: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(part.encode()).digest()).decode("ascii")


@cache
def _read(name: str) -> str:
    return importlib.resources.files("filbert.draw").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """All modules as one, each after those it imports: a file that is opened by double click may import nothing."""
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        source = _read(f"{name}.js")
        for _, other in _IMPORT.findall(source):
            if other not in modules:
                add(other)
        modules[name] = _enclosed(name, source)

    add(ENTRY)
    return "\n" + "\n".join(modules.values())


def _enclosed(name: str, source: str) -> str:
    """A module as a function that is called once and gives what it exports; what it does not export stays inside."""
    exports = ", ".join(exported for _, exported in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = module_\2;", source))
    return f"const module_{name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"
