"""What a server allows in; a request's JSON, or one sentence with its HTTP status why it is refused, out.

Every limit has a number that an operator can change, and none of them cuts a text: what is too much is refused.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from filbert.core.errors import FilbertError, InputError, did_you_mean
from filbert.serve import schemas

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

# What text-embeddings-inference calls each kind of refusal, which its clients read
KINDS = {401: "unauthorized", 404: "not_found", 405: "not_found", 408: "timeout", 429: "overloaded", 499: "left",
         500: "backend", 503: "unhealthy", 504: "timeout"}  # fmt: skip
MOST_SAID = 2_000  # characters of a refusal
MOST_MEMBERS = 64  # of a compressed body; each copies what stands behind it
ENCODINGS = ("gzip", "x-gzip", "deflate")  # of bodies
DEPTH = 3  # of an answer's lists that are written piece by piece, so that other threads get their turn
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may be half of a character
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request may ask, how much may wait, and for how long."""

    body_bytes: int = 2 * 2**20
    texts: int = 1_000  # of one request
    tokens: int = 200_000  # of one request: long texts are read whole, in windows
    waiting: int = 512  # requests for one model; more would only make all of them late
    batch_tokens: int = 0  # read together; 0: as many as are fastest
    deadline_s: float = 60.0  # from a request's last byte to its answer
    patience_s: float = 10.0  # from a request's first byte to its last; and for each 64 kB of an answer to be taken
    answer_bytes: int = 32 * 2**20  # of one answer, as it is estimated before the work
    held_bytes: int = 256 * 2**20  # of all requests and answers that a process has in work
    look_s: float = 30.0  # that a look inside a model may take; 0: nobody may look

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("batch_tokens", "look_s") else 1 if type(field.default) is int else 1e-3
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= least):
                raise InputError(f"{field.name} is {value!r}, but must be a number of {least:g} or more.")


class Refused(FilbertError):  # an answer, not a mishap
    """A request that is answered with a status other than 200, and why."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}

    @property
    def kind(self) -> str:
        """One word for a program."""
        return KINDS.get(self.status, "validation")


def overloaded(message: str, retry_s: float = 1.0) -> Refused:
    """Too much waits: the client is to come again."""
    return Refused(429, message, Retry_After=str(math.ceil(retry_s)))


def refusal(path: str, error: Refused, request_id: str) -> bytes:
    """The body that says it: as OpenAI's clients read it under /v1, else as those of text-embeddings-inference."""
    message = str(error)
    if len(message) > MOST_SAID:  # it repeats what was sent
        message = message[: MOST_SAID // 2] + " … " + message[-MOST_SAID // 2 :]
    told: dict[str, Any] = {"error": message, "error_type": error.kind}
    if path.startswith("/v1/"):
        told = {"error": {"message": message, "type": error.kind, "param": None, "code": error.status}}
    return as_json({**told, "request_id": request_id})


def as_json(value: Any) -> bytes:
    """JSON as `predict` writes it: Chinese as Chinese, and never a NaN. Arrays are lists."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def as_json_in_pieces(value: Any) -> bytes:
    """The same; between its parts other threads get their turn, which one large piece would keep waiting."""
    return b"".join(_pieces(value, DEPTH))


def _pieces(value: Any, depth: int) -> Iterator[bytes]:
    if isinstance(value, dict) and value and depth:
        for number, (name, own) in enumerate(value.items()):
            yield b"%s%s: " % (b", " if number else b"{", as_json(str(name)))
            yield from _pieces(own, depth - 1)
        yield b"}"
    elif isinstance(value, list | tuple) and value and depth and isinstance(value[0], _MANY):
        for number, own in enumerate(value):
            yield b", " if number else b"["
            yield from _pieces(own, depth - 1)
        yield b"]"
    else:
        yield as_json(value)


def _as_list(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_MANY = (dict, list, tuple, np.ndarray)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_list)


async def raw_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, take: Callable[[int], None]
) -> bytes:
    """The request's bytes; what is too large is read no further than the limit, what says so not at all.

    take: is told of every byte that is kept, and refuses it where too much is in work.
    """
    too_large = _too_large(limits)
    said = headers.get(b"content-length", b"0")
    if not said.isdigit() or int(said) > limits.body_bytes:
        raise too_large
    encoding = headers.get(b"content-encoding", b"identity").decode("ascii", "replace").strip().lower()
    if encoding not in ("", "identity", *ENCODINGS):
        raise Refused(415, "the body's Content-Encoding is not known here; send gzip, deflate or none.",
                      Accept_Encoding="gzip, deflate")  # fmt: skip
    raw = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(499, "the client left.")
        take(len(message.get("body", b"")))
        raw += message.get("body", b"")
        if len(raw) > limits.body_bytes:
            raise too_large
        more = message.get("more_body", False)
    if encoding in ("", "identity"):
        return bytes(raw)
    return _unpacked(bytes(raw), limits, take)


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the body has more than {limits.body_bytes:,} bytes; send the texts in several requests.")


def _unpacked(raw: bytes, limits: Limits, take: Callable[[int], None]) -> bytes:
    """A body that was sent compressed, and no more of it than an uncompressed one may have."""
    found, members = bytearray(), 0
    try:
        while raw:  # a file may have several members
            members += 1
            if members > MOST_MEMBERS:
                raise Refused(413, f"the body has more than {MOST_MEMBERS} compressed parts; compress it as one.")
            reader = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # gzip or zlib, as its head says
            found += reader.decompress(raw, limits.body_bytes + 1 - len(found))
            if len(found) > limits.body_bytes:
                raise _too_large(limits)
            if not reader.eof:
                raise zlib.error("it ends before its end")
            raw = reader.unused_data
    except zlib.error:
        raise Refused(400, "the body is not what its Content-Encoding says; send it whole, or uncompressed.") from None
    take(len(found))
    return bytes(found)


def parsed(raw: bytes) -> Any:
    """What a body says in JSON; no NaN, and no half of a character (a lone surrogate), which no UTF-8 can write."""
    try:
        text = raw.decode(json.detect_encoding(raw))
        given = json.loads(text, parse_constant=_no_number, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise Refused(400, 'the body is not JSON; send such as {"texts": ["…", "…"]}.') from None
    if _HALF.search(text):
        _check_characters(given)
    return given


def _check_characters(given: Any) -> None:
    """Refuses a string that holds half of a character, wherever it stands."""
    waiting: list[tuple[str, Any]] = [("the body", given)]
    while waiting:
        where, own = waiting.pop()
        if isinstance(own, dict):
            waiting += [(f"a name in {where}", name) for name in own]
            waiting += [(ascii(name)[1:41], value) for name, value in own.items()]
        elif isinstance(own, list):
            waiting += [(f"{where}, {at}" if len(where) < 80 else where, value) for at, value in enumerate(own)]
        elif isinstance(own, str) and (found := _HALVES.search(own)):
            raise Refused(
                422, f"{where}: character {found.start()} is {ascii(found[0])[1:-1]}, half of a character; send whole "
                "characters, or leave it out.",
            )  # fmt: skip


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a body; a name that stands there twice has two values, of which one would be dropped."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, number in Counter(name for name, _ in pairs).items() if number > 1)
        raise Refused(422, f"the body has {twice[:40]!a} twice in one object; send it once.")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity, which Python reads and JSON does not have


def fields_of(given: Any, form: str, what: str = "the body") -> dict[str, Any]:
    """The body, or what else must be one, as an object; anything else is told what is wanted."""
    if not isinstance(given, dict):
        raise Refused(422, f"{what} must be an object: {form}.")
    return given


def check_fields(given: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Refuses a field that nobody reads: what a client asked for by it would be missing without a word."""
    found = schemas.strange(given, dict(schema))
    if found is not None:
        name, known = found[0][:40], sorted(found[1])
        raise Refused(
            422, f"the field {name!a} is not read here; there are: {', '.join(known)}.{did_you_mean(name, known)}"
        )


def flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    """A field that is true or false; null counts as left out."""
    value = given.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise Refused(422, f"{name} must be true or false.")
    return value


def whole(given: Mapping[str, Any], name: str, default: int | None, most: int) -> int | None:
    """A field that is a whole number from 1 on; null counts as left out."""
    value = given.get(name)
    if value is None:
        return default
    if type(value) is not int or not 1 <= value <= most:
        raise Refused(422, f"{name} must be a whole number from 1 to {most:,}.")
    return value


def word(given: Mapping[str, Any], name: str) -> str | None:
    """A field that is a string; null counts as left out."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(422, f"{name} must be a string.")
    return value


def some_texts(given: Any, name: str, limits: Limits) -> list[Any]:
    """A list with one text or more that is not empty, and no more than are allowed; empty ones among them are texts."""
    if not isinstance(given, list) or not given:
        raise Refused(422, f'{name} must be a list with one text or more: {{"{name}": ["…", "…"]}}.')
    if len(given) > limits.texts:
        raise Refused(413, f"{len(given):,} texts are more than {limits.texts:,}; send them in several requests.")
    for index, text in enumerate(given):
        if text == []:
            raise Refused(422, f"{name}: text {index} is an empty list; leave it out.")
    check_something(given, name)
    return given


def check_something(given: list[Any], name: str) -> None:
    """Refuses a request in which there is nothing to read: each text is empty, or a list of empty texts."""
    if all(not text.strip() for each in given for text in _inside(each)):
        raise Refused(422, f"{name}: nothing stands in any text; send one that is not empty.")


def _inside(given: Any) -> list[str]:
    """The text, or those of a list; what is neither counts as something."""
    return [text if isinstance(text, str) else "?" for text in (given if isinstance(given, list) else [given])]


def strings(given: Any, name: str, limits: Limits) -> list[str]:
    """A string, or a list of them; numbers, which would be the tokens of another vocabulary, are refused."""
    texts = some_texts([given] if isinstance(given, str) else given, name, limits)
    for index, text in enumerate(texts):
        if isinstance(text, int | list):
            raise Refused(422, f"{name}: text {index} is of tokens, which only their own vocabulary reads; send text.")
        if not isinstance(text, str):
            raise Refused(422, f"{name}: text {index} must be a string.")
    return texts


def num_tokens(texts: list[Any]) -> list[int]:
    """About how many tokens each has, at once: Chinese has one for three bytes of UTF-8, English about one for four."""
    return [_bytes(text) // 3 + 2 for text in texts]


def _bytes(text: Any) -> int:
    if isinstance(text, str):
        return len(text.encode("utf-8", "surrogatepass"))
    return sum(map(_bytes, text)) if isinstance(text, list | tuple) else 0


def check_tokens(texts: list[Any], count: Callable[[list[str]], int], limits: Limits) -> None:
    """Refuses more tokens than a request may have; they are counted only where there could be as many."""
    if sum(map(_characters, texts)) + 3 * len(texts) <= limits.tokens:  # a token has a character or more
        return
    total = count([part for text in texts for part in strings_in(text)])
    if total > limits.tokens:
        raise Refused(
            422, f"the texts have {total:,} tokens, but a request may have {limits.tokens:,}; send them in several."
        )


def _characters(text: Any) -> int:
    return sum(map(len, strings_in(text)))


def strings_in(text: Any) -> list[str]:
    """The strings in what is asked."""
    if isinstance(text, str):
        return [text]
    return [part for each in text for part in strings_in(each)] if isinstance(text, list | tuple) else []
