"""What a server allows in; a request's JSON, or one sentence with its HTTP status why it is refused, out.

Every limit has a number that an operator can change, and none of them cuts a text: what is too much is refused.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from filbert.core.errors import FilbertError, InputError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]  # of ASGI: method, path, headers, state, …
Receive = Callable[[], Awaitable[Message]]

# What text-embeddings-inference calls each kind of refusal, which its clients read
KINDS = {401: "unauthorized", 404: "not_found", 405: "not_found", 408: "timeout", 429: "overloaded", 499: "left",
         500: "backend", 503: "unhealthy", 504: "timeout"}  # fmt: skip
MOST_SHOWN = 2_000  # characters of a refusal
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


class Refused(FilbertError):  # an answer to a client, not a failure
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
    if len(message) > MOST_SHOWN:  # it repeats what was sent
        message = message[: MOST_SHOWN // 2] + " … " + message[-MOST_SHOWN // 2 :]
    if path.startswith("/v1/"):
        of_openai = {"message": message, "type": error.kind, "param": None, "code": error.status}
        return as_json({"error": of_openai, "request_id": request_id})
    return as_json({"error": message, "error_type": error.kind, "request_id": request_id})


def as_json(value: object) -> bytes:
    """JSON as `predict` writes it: Chinese as Chinese, and never a NaN. Arrays are lists."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def as_json_in_pieces(value: object) -> bytes:
    """The same; between its parts other threads get their turn, which one large piece would keep waiting."""
    return b"".join(_pieces(value, DEPTH))


def _pieces(value: object, depth: int) -> Iterator[bytes]:
    if isinstance(value, dict) and value and depth:
        for number, (name, part) in enumerate(value.items()):
            yield b"%s%s: " % (b", " if number else b"{", as_json(str(name)))
            yield from _pieces(part, depth - 1)
        yield b"}"
    elif isinstance(value, list | tuple) and value and depth and isinstance(value[0], _MANY):
        for number, part in enumerate(value):
            yield b", " if number else b"["
            yield from _pieces(part, depth - 1)
        yield b"]"
    else:
        yield as_json(value)


def _as_list(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_MANY = (dict, list, tuple, np.ndarray)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_list)


async def raw_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, take: Callable[[int], None]
) -> bytes:
    """The request's bytes; what is too large is read no further than the limit, what says so not at all.

    take: is called with the bytes that are kept, and refuses them where too much is in work.
    """
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > limits.body_bytes:
        raise _too_large(limits)
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
            raise _too_large(limits)
        more = message.get("more_body", False)
    if encoding in ("", "identity"):
        return bytes(raw)
    return _unpacked(bytes(raw), limits, take)


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the body has more than {limits.body_bytes:,} bytes; send the texts in several requests.")


def _unpacked(raw: bytes, limits: Limits, take: Callable[[int], None]) -> bytes:
    """A body that was sent compressed, and no more of it than an uncompressed one may have."""
    unpacked, members = bytearray(), 0
    try:
        while raw:  # a file may have several members
            members += 1
            if members > MOST_MEMBERS:
                raise Refused(413, f"the body has more than {MOST_MEMBERS} compressed parts; compress it as one.")
            reader = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # gzip or zlib, as its head says
            unpacked += reader.decompress(raw, limits.body_bytes + 1 - len(unpacked))
            if len(unpacked) > limits.body_bytes:
                raise _too_large(limits)
            if not reader.eof:
                raise zlib.error("it ends before its end")
            raw = reader.unused_data
    except zlib.error:
        raise Refused(400, "the body is not what its Content-Encoding says; send it whole, or uncompressed.") from None
    take(len(unpacked))
    return bytes(unpacked)


def parsed(raw: bytes) -> object:
    """A body's value in JSON; no NaN, and no half of a character (a lone surrogate), which no UTF-8 can write."""
    try:
        text = raw.decode(json.detect_encoding(raw))
        value: object = json.loads(text, parse_constant=_no_number, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise Refused(400, 'the body is not JSON; send such as {"texts": ["…", "…"]}.') from None
    if _HALF.search(text):
        _check_characters(value)
    return value


def _check_characters(body: object) -> None:
    """Refuses a string that holds half of a character, wherever it stands."""
    waiting: list[tuple[str, object]] = [("the body", body)]
    while waiting:
        where, part = waiting.pop()
        if isinstance(part, dict):
            waiting += [(f"a name in {where}", name) for name in part]
            waiting += [(ascii(name)[1:41], value) for name, value in part.items()]
        elif isinstance(part, list):
            waiting += [(f"{where}, {at}" if len(where) < 80 else where, value) for at, value in enumerate(part)]
        elif isinstance(part, str) and (half := _HALVES.search(part)):
            raise Refused(
                422, f"{where}: character {half.start()} is {ascii(half[0])[1:-1]}, half of a character; send whole "
                "characters, or leave it out.",
            )  # fmt: skip


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of a body; a name that stands there twice has two values, of which one would be dropped."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for name, number in Counter(name for name, _ in pairs).items() if number > 1)
        raise Refused(422, f"the body has {twice[:40]!a} twice in one object; send it once.")
    return fields


def _no_number(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity, which Python reads and JSON does not have


def fields_of(value: object, form: str, what: str = "the body") -> dict[str, object]:
    """The body, or what else must be one, as an object; anything else is refused with the form that is wanted."""
    if not isinstance(value, dict):
        raise Refused(422, f"{what} must be an object: {form}.")
    return value


def some_texts(value: object, name: str, limits: Limits) -> list[object]:
    """A list with one text or more that is not empty, and no more than are allowed; empty ones among them are texts."""
    if not isinstance(value, list) or not value:
        raise Refused(422, f'{name} must be a list with one text or more: {{"{name}": ["…", "…"]}}.')
    if len(value) > limits.texts:
        raise Refused(413, f"{len(value):,} texts are more than {limits.texts:,}; send them in several requests.")
    for index, text in enumerate(value):
        if text == []:
            raise Refused(422, f"{name}: text {index} is an empty list; leave it out.")
    check_something(value, name)
    return value


def check_something(texts: list[object], name: str) -> None:
    """Refuses a request in which there is nothing to read: each text is empty, or a list of empty texts."""
    if all(not text.strip() for each in texts for text in _inside(each)):
        raise Refused(422, f"{name}: nothing stands in any text; send one that is not empty.")


def _inside(each: object) -> list[str]:
    """The text, or those of a list; what is neither counts as something."""
    return [text if isinstance(text, str) else "?" for text in (each if isinstance(each, list) else [each])]


def strings(value: object, name: str, limits: Limits) -> list[str]:
    """A string, or a list of them; numbers, which would be the tokens of another vocabulary, are refused."""
    texts: list[str] = []
    for index, text in enumerate(some_texts([value] if isinstance(value, str) else value, name, limits)):
        if isinstance(text, int | list):
            raise Refused(422, f"{name}: text {index} is of tokens, which only their own vocabulary reads; send text.")
        if not isinstance(text, str):
            raise Refused(422, f"{name}: text {index} must be a string.")
        texts.append(text)
    return texts


def num_tokens(texts: Sequence[object]) -> list[int]:
    """About how many tokens each has, at once: Chinese has one for three bytes of UTF-8, English about one for four."""
    return [_bytes(text) // 3 + 2 for text in texts]


def _bytes(text: object) -> int:
    if isinstance(text, str):
        return len(text.encode("utf-8", "surrogatepass"))
    return sum(map(_bytes, text)) if isinstance(text, list | tuple) else 0


def check_tokens(texts: Sequence[object], count: Callable[[list[str]], int], limits: Limits) -> None:
    """Refuses more tokens than a request may have; they are counted only where there could be as many."""
    strings = [part for text in texts for part in strings_in(text)]
    if sum(map(len, strings)) + 3 * len(texts) <= limits.tokens:  # a token has a character or more
        return
    total = count(strings)
    if total > limits.tokens:
        raise Refused(
            422, f"the texts have {total:,} tokens, but a request may have {limits.tokens:,}; send them in several."
        )


def strings_in(text: object) -> list[str]:
    """The strings in what is asked."""
    if isinstance(text, str):
        return [text]
    return [part for each in text for part in strings_in(each)] if isinstance(text, list | tuple) else []
