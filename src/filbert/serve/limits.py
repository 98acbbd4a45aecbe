"""What a server allows in; a request's JSON, or one sentence with its HTTP status why it is refused, out.

Every limit has a number that an operator can change, and none of them cuts a text: what is too much is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

from filbert.core.errors import FilbertError, InputError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

# What text-embeddings-inference calls each kind of refusal, which its clients read
KINDS = {401: "unauthorized", 404: "not_found", 405: "not_found", 408: "timeout", 429: "overloaded", 499: "left",
         500: "backend", 503: "unhealthy", 504: "timeout"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request may ask, how much may wait, and for how long."""

    body_bytes: int = 2 * 2**20
    texts: int = 1_000  # of one request
    tokens: int = 200_000  # of one request: long texts are read whole, in windows
    waiting: int = 512  # requests for one model; more would only make all of them late
    batch_tokens: int = 0  # read together; 0: as many as are fastest
    deadline_s: float = 60.0  # from a request's last byte to its answer
    patience_s: float = 10.0  # from a connection's or request's first byte to its last

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "batch_tokens" else 1 if type(field.default) is int else 1e-3
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


def overloaded(message: str) -> Refused:
    """Too much waits: the client is to come again."""
    return Refused(429, message, Retry_After="1")


def refusal(path: str, error: Refused) -> bytes:
    """The body that says it: as OpenAI's clients read it under /v1, else as those of text-embeddings-inference."""
    told: dict[str, Any] = {"error": str(error), "error_type": error.kind}
    if path.startswith("/v1/"):
        told = {"error": {"message": str(error), "type": error.kind, "param": None, "code": error.status}}
    return as_json(told)


def as_json(value: Any) -> bytes:
    """JSON as `predict` writes it: Chinese as Chinese, and never a NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")


async def body(receive: Receive, headers: Mapping[bytes, bytes], limits: Limits) -> Any:
    """The request's JSON; a body that is too large is read no further than the limit, one that says so not at all."""
    too_large = Refused(
        413, f"the body has more than {limits.body_bytes:,} bytes; send the texts in several requests.",
    )  # fmt: skip
    said = headers.get(b"content-length", b"0")
    if not said.isdigit() or int(said) > limits.body_bytes:
        raise too_large
    raw = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(499, "the client left.")
        raw += message.get("body", b"")
        if len(raw) > limits.body_bytes:
            raise too_large
        more = message.get("more_body", False)
    try:
        return json.loads(bytes(raw), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(400, 'the body is not JSON; send such as {"texts": ["…", "…"]}.') from None


def _no_number(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity, which Python reads and JSON does not have


def fields_of(given: Any, form: str) -> dict[str, Any]:
    """The body as an object; anything else is told what is wanted."""
    if not isinstance(given, dict):
        raise Refused(422, f"the body must be an object: {form}.")
    return given


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
    """A list with one text or more, and no more than are allowed; an empty text is one, as for every command."""
    if not isinstance(given, list) or not given:
        raise Refused(422, f'{name} must be a list with one text or more: {{"{name}": ["…", "…"]}}.')
    if len(given) > limits.texts:
        raise Refused(413, f"{len(given):,} texts are more than {limits.texts:,}; send them in several requests.")
    for index, text in enumerate(given):
        if text == []:
            raise Refused(422, f"{name}: text {index} is an empty list; leave it out.")
    return given


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
    total = count([part for text in texts for part in _parts(text)])
    if total > limits.tokens:
        raise Refused(
            422, f"the texts have {total:,} tokens, but a request may have {limits.tokens:,}; send them in several."
        )


def _characters(text: Any) -> int:
    return sum(map(len, _parts(text)))


def _parts(text: Any) -> list[str]:
    """The strings in what is asked."""
    if isinstance(text, str):
        return [text]
    return [part for each in text for part in _parts(each)] if isinstance(text, list | tuple) else []
