"""Every request in, before any route sees it; let through, or answered at once with why not; counted and logged out.

It stands outermost: names of hosts, keys, bodies that say they are too large, framing that two readers could read in
two ways, a full queue. What it refuses it does not read. What goes out goes in parts, and a client that does not take
one in time is let go.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from filbert.core.errors import InputError, needed
from filbert.serve import keys
from filbert.serve.limits import Limits, Message, Receive, Refused, Scope, overloaded, refusal
from filbert.serve.logs import Log
from filbert.serve.memory import Memory, Reservation
from filbert.serve.metrics import Tally, path_label
from filbert.serve.shelf import Shelf

Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
LAST = (b"connection", b"close")  # of an answer after which the server, which is about to stop, hangs up
SAFE = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]  # of every answer
ID = b"x-request-id"
PART = 65_536  # bytes of an answer that go out at a time, each of which a client must take within `patience_s`
ANY = "*"
FILE = "null"  # what browsers send from a page that is a file
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")  # names by which only this machine calls itself
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:\[[0-9a-f:.]+\]|[^\[\]:@/?#\\\s*]+)(:[0-9]+)?")
_PORTS = {"http": ":80", "https": ":443"}  # that browsers leave out
_SAFE_ID = re.compile(rb"[A-Za-z0-9._:+/=-]{1,128}")
_FORM = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/?#\\\s]*)(:[0-9]*)?", re.IGNORECASE)  # of a host and its port


class Access(NamedTuple):
    """Who may ask: hashes of keys, the other sites whose pages may, and the names under which this server is asked."""

    key_hashes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = (ANY,)


class Watch(NamedTuple):
    """Where requests are counted and logged."""

    tally: Tally
    log: Log


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Application, shelf: Shelf, limits: Limits, access: Access, watch: Watch) -> None:
        self.app, self.shelf, self.limits, self.access, self.watch = app, shelf, limits, access, watch
        self.memory = Memory(limits.held_bytes)
        self._within = self._checked
        if access.origins:
            # Around the checks: what asks whether it may ask brings no key, and a refusal must be readable too.
            cors = needed("starlette.middleware.cors", "serve").CORSMiddleware
            self._within = cors(
                self._checked, allow_origins=list(access.origins), allow_methods=["GET", "POST"], allow_headers=["*"],
                expose_headers=["X-Request-Id", "Retry-After"],
            )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; everything but HTTP is passed on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, method, scope = time.perf_counter(), scope["method"], _routed(scope)
        path, state, status = path_label(scope["path"]), scope["state"], 499
        state["request_id"], state["held"] = _request_id(scope), Reservation(self.memory)

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                last = [LAST] if state.get("is_stopping") else []
                identity = [(ID, state["request_id"].encode())]
                message["headers"] = [*message.get("headers", ()), *SAFE, *identity, *last]
            if not await _sent(message, send, self.limits.patience_s):
                state.get("abort", lambda: None)()
                status = 499
                raise Refused(499, "the client does not read its answer.")

        try:
            await self._within(scope, receive, counted)
        except Refused:
            pass  # the client is gone; what else is refused has been answered
        except Exception as error:  # a bug: the client gets a 500 without details
            self.watch.log.error(error, path, state["request_id"])
            if status == 499:
                await _answer(counted, scope, Refused(500, "the server made a mistake; its log has more."))
        finally:
            state["held"].free()
            seconds = time.perf_counter() - start
            status = 408 if status == 499 and state.get("is_late") else status
            self.watch.tally.answered(path, status, seconds)
            self.watch.log.request(method, path, status, seconds, state["request_id"])

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            await self.app(scope, receive, send)
        except Refused as error:
            if error.status == 499:
                raise
            await _answer(send, scope, error)

    def _check(self, scope: Scope) -> None:
        names = [name for name, _ in scope["headers"]]
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise Refused(400, "a body has either a length or chunks, not both.", Connection="close")
        if names.count(b"host") > 1 or names.count(b"authorization") > 1:
            raise Refused(400, "a header that counts once is there twice.", Connection="close")
        # That of an absolute target counts before the header (RFC 9112, 3.2.2); HTTP/1.0 may have neither.
        host = scope["state"].get("authority", headers.get(b"host", b"").decode("latin-1"))
        if (host or scope["http_version"] != "1.0") and not is_allowed(host, self.access.hosts):
            raise Refused(421, "this server is not asked by that name; --hosts lists those that it answers to.")
        hashes = self.access.key_hashes
        if hashes and scope["path"] not in keys.OPEN and not keys.fits(headers, hashes):
            raise Refused(401, "a key is needed: Authorization: Bearer KEY.", WWW_Authenticate=keys.CHALLENGE)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body_bytes:
            raise Refused(413, f"the body has more than {self.limits.body_bytes:,} bytes; send several requests.")
        if scope["method"] == "POST" and scope["path"] != "/look" and self.shelf.is_full:
            raise overloaded(f"{self.limits.waiting:,} requests wait already; ask again in a second.")


def is_allowed(host: str, hosts: tuple[str, ...]) -> bool:
    """Whether a Host header, with or without a port, is one of these names; "*.example.org" is every name under it."""
    if ANY in hosts:
        return True
    parts = _FORM.fullmatch(host)
    name = parts[1].lower().rstrip(".") if parts else ""
    return any(name == each or (each.startswith("*.") and name.endswith(each[1:])) for each in hosts)


def host_name(option: str) -> str:
    """A name for `--hosts` as requests are compared with; refused where no request could ever have it."""
    name = option.strip().lower().rstrip(".")
    parts = _FORM.fullmatch(name)
    if option.strip() != ANY and (
        parts is None or not parts[1] or parts[2] or "*" in name.removeprefix("*.") or not name.isascii()
    ):
        raise InputError(
            f"--hosts {option!r}: no request asks by that name; give it without https://, port or path, in ASCII: "
            "models.example.org, *.example.org, [::1] or *."
        )
    return name


def origin(option: str) -> str:
    """A site for `--cors` as browsers name it; refused where none would ever do."""
    site = option.strip().lower()
    parts = _ORIGIN.fullmatch(site)
    if site not in (ANY, FILE) and (parts is None or not site.isascii() or parts[2] == _PORTS.get(parts[1], "")):
        raise InputError(
            f"--cors {option!r}: no browser names a site so; give it with its scheme, without a path or a usual port, "
            "in ASCII: https://example.org, http://localhost:3000 or *."
        )
    return site


def _routed(scope: Scope) -> Scope:
    """A request as routes know it: HEAD as GET, whose body is not sent; an absolute target, or a last slash, without.

    The scope that came in stays as it is: by it the server that called sends no body after HEAD.
    """
    method, path, state = scope["method"], scope["path"], scope.setdefault("state", {})
    raw = scope.get("raw_path", b"")
    if raw[:7].lower() == b"http://" or raw[:8].lower() == b"https://":
        try:
            target = urlsplit(raw.decode("ascii"))
        except ValueError:
            target = urlsplit("//invalid host/")
        state["authority"], path = target.netloc, unquote(target.path) or "/"
    if len(path) > 1 and path.endswith("/"):
        path = path[:-1]
    return {**scope, "method": "GET" if method == "HEAD" else method, "path": path, "raw_path": path.encode()}


def _request_id(scope: Scope) -> str:
    """That which came with the request, if nothing could be hidden in it; else a new one."""
    sent = dict(scope["headers"]).get(ID, b"")
    return sent.decode() if _SAFE_ID.fullmatch(sent) else uuid.uuid4().hex


async def _sent(message: Message, send: Send, patience_s: float) -> bool:
    """Sends a message, part by part; whether the client took each in time."""
    body = message.get("body", b"")
    if len(body) <= PART:
        return await _in_time(message, send, patience_s)
    view, more = memoryview(body), message.get("more_body", False)
    for begin in range(0, len(body), PART):
        is_last = begin + PART >= len(body)
        part = {**message, "body": bytes(view[begin : begin + PART]), "more_body": more or not is_last}
        if not await _in_time(part, send, patience_s):
            return False
    return True


async def _in_time(message: Message, send: Send, patience_s: float) -> bool:
    try:
        async with asyncio.timeout(patience_s):
            await send(message)
    except TimeoutError:
        return False
    return True


async def _answer(send: Send, scope: Scope, error: Refused) -> None:
    body = refusal(scope["path"], error, scope["state"]["request_id"])
    more = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    length = (b"content-length", str(len(body)).encode())
    head = [(b"content-type", b"application/json"), length, *more]
    await send({"type": "http.response.start", "status": error.status, "headers": head})
    await send({"type": "http.response.body", "body": body})
