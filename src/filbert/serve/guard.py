"""Every request in, before any route sees it; let through, or answered at once with why not; counted and logged out.

It stands outermost: keys, bodies that say they are too large, framing that two readers could read in two ways, a full
queue. What it refuses it does not read.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from filbert.serve import keys
from filbert.serve.limits import Limits, Message, Receive, Refused, overloaded, refusal
from filbert.serve.logs import Log
from filbert.serve.metrics import Tally, path_label
from filbert.serve.models import Shelf

Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]
LAST = (b"connection", b"close")  # of an answer after which the server, which is about to stop, hangs up
SAFE = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]  # of every answer


class Guard:
    """An ASGI application around another."""

    def __init__(
        self, app: Application, shelf: Shelf, limits: Limits, known: Sequence[str], tally: Tally, log: Log
    ) -> None:
        self.app, self.shelf, self.limits, self.known, self.tally, self.log = app, shelf, limits, known, tally, log

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request; everything but HTTP is passed on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, path, status = time.perf_counter(), path_label(scope["path"]), 499

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                last = [LAST] if scope.get("state", {}).get("is_stopping") else []
                message["headers"] = [*message.get("headers", ()), *SAFE, *last]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, counted)
        except Refused as error:
            if error.status != 499:
                await _answer(counted, scope["path"], error)
        except Exception as error:  # a mistake of ours: the client is told so, and nothing of ours
            self.log.error(error, path)
            if status == 499:
                await _answer(counted, scope["path"], Refused(500, "the server made a mistake; its log has more."))
        finally:
            seconds = time.perf_counter() - begun
            status = 408 if status == 499 and scope.get("state", {}).get("is_late") else status
            self.tally.answered(path, status, seconds)
            self.log.request(scope["method"], path, status, seconds)

    def _check(self, scope: Any) -> None:
        names = [name for name, _ in scope["headers"]]
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise Refused(400, "a body has either a length or chunks, not both.", Connection="close")
        if names.count(b"host") > 1 or names.count(b"authorization") > 1:
            raise Refused(400, "a header that counts once is there twice.", Connection="close")
        if self.known and scope["path"] not in keys.OPEN and not keys.is_known(headers, self.known):
            raise Refused(401, "a key is needed: Authorization: Bearer KEY.", WWW_Authenticate=keys.CHALLENGE)
        said = headers.get(b"content-length", b"0")
        if said.isdigit() and int(said) > self.limits.body_bytes:
            raise Refused(413, f"the body has more than {self.limits.body_bytes:,} bytes; send several requests.")
        if scope["method"] == "POST" and self.shelf.is_full:
            raise overloaded(f"{self.limits.waiting:,} requests wait already; ask again in a second.")


async def _answer(send: Send, path: str, error: Refused) -> None:
    body = refusal(path, error)
    told = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    length = (b"content-length", str(len(body)).encode())
    head = [(b"content-type", b"application/json"), length, *told]
    await send({"type": "http.response.start", "status": error.status, "headers": head})
    await send({"type": "http.response.body", "body": body})
