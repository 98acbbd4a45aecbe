"""A file of hashes, or FILBERT_KEYS, in; whether a request brings a key that fits one of them out.

Keys are random and long, so their SHA-256 needs no salt. Every hash is compared, in constant time, whatever fits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from filbert.core.errors import InputError

VARIABLE, FILE_VARIABLE = "FILBERT_KEYS", "FILBERT_KEYS_FILE"
OPEN = ("/health", "/live", "/ready")  # for whoever watches over the process
CHALLENGE = 'Bearer realm="filbert", Basic realm="filbert"'
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_LINE_END = re.compile(r"\r\n|\n|\r")  # not those of Unicode, which may stand in a note
# What a recipe hashes whose variable is empty; with it, whoever sends no key would be let in.
NOTHING = frozenset(hashlib.sha256(empty).hexdigest() for empty in (b"", b"\n", b"\r\n", b" "))
_HOW = 'make one with: printf %s "$KEY" | sha256sum'


def hashes(path: Path | str | None) -> tuple[str, ...]:
    """The SHA-256 hashes of a file, one a line with an optional name behind it, and of FILBERT_KEYS, by commas."""
    lines: list[tuple[str, str]] = []
    if path is None and os.environ.get(FILE_VARIABLE) == "":
        raise InputError(f"{FILE_VARIABLE} is empty, so everybody could ask; name a file of keys, or unset it.")
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read as a list of keys ({error}).") from None
        lines += [(f"{path} line {number}", line) for number, line in enumerate(_LINE_END.split(text), 1)]
    variable = os.environ.get(VARIABLE)
    if variable is not None:
        lines += [(f"{VARIABLE}, {number}", line) for number, line in enumerate(variable.split(","), 1)]
    every = []
    for where, line in lines:
        words = line.split("#")[0].split()
        if words and not _HASH.fullmatch(words[0]):
            raise InputError(f"{where}: is not a SHA-256 hash of 64 hexadecimal digits; {_HOW}.")
        if words and words[0].lower() in NOTHING:
            raise InputError(f"{where}: is the hash of nothing, which would let everybody in; is $KEY set? {_HOW}.")
        every += [words[0].lower()] if words else []
    if lines and not every:
        raise InputError(f"{path or VARIABLE}: has no key, so nobody could ask anything; {_HOW}.")
    return tuple(every)


def fits(headers: Mapping[bytes, bytes], hashes: Sequence[str]) -> bool:
    """Whether the key in Authorization (Bearer, or Basic with it as the password) or X-API-Key is one of these."""
    # Each that it brings: Authorization may be for a proxy before this server.
    sent = [hashlib.sha256(key).hexdigest() for key in (_authorized(headers), headers.get(b"x-api-key")) if key]
    equal = [hmac.compare_digest(one, other) for one in sent for other in hashes]  # all of them, in constant time
    return any(equal)


def _authorized(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key in Authorization; None: there is none, or not one that can be read."""
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip() or None
    if scheme.lower() == b"basic":  # what a browser sends, so that the page can be used
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2] or None
        except binascii.Error:
            return None
    return None
