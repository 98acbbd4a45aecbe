"""Bytes of a connection in, requests out; a client that takes too long to send one, or to read an answer, is cut off.

uvicorn closes a connection that idles after an answer, but waits for ever for a first request, for the rest of a head,
for the rest of a body, or for the end of an answer to be read. A few hundred such connections are enough to shut
everybody else out.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

LINGER_S = 2.0  # in which the rest of a refused body is thrown away, so that its sender can read the answer
FRESH_S = 0.5  # in which a connection that was just made when the server stops may still send its request
SEND_BYTES = 262_144  # of an answer, that the system holds for a client
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """One connection, with a time by which a request must have been sent."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        patience_s: float,
        on_refusal: Callable[[int], None],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience_s, self._on_refusal = patience_s, on_refusal
        self._due: asyncio.TimerHandle | None = None
        self._tail: asyncio.TimerHandle | None = None
        self._is_stopping, self._num_answers = False, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Its first request is due."""
        super().connection_made(cast(asyncio.Transport, transport))
        # asyncio does this only for sockets that say they are TCP. Without it the second part of every answer waits
        # 40 ms for the client's system to acknowledge the first.
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Else the system takes up to some MB of an answer that nobody reads, and nobody here could tell.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self._begin(self._patience_s)

    def data_received(self, data: bytes) -> None:
        """More of a request, whose time runs from its first byte, or the end of it."""
        super().data_received(data)
        if self._has_whole():
            self._stop()
        elif self._due is None:
            self._begin(self._patience_s)

    def handle_events(self) -> None:
        """What has come; a request's state says how to let its client go (serve.guard)."""
        super().handle_events()
        scope: Any = self.scope
        if scope is not None:
            scope["state"]["abort"] = self.transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._stop()
        if self._tail is not None:
            self._tail.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """An answer went out, but for its end, which must be read in time.

        If its request was refused unread, the rest of that is thrown away for a moment only.
        """
        self._num_answers += 1
        if self._tail is None and self.transport.get_write_buffer_size():
            self._tail = self.loop.call_later(2 * self._patience_s, self._unread, self._num_answers)
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is h11.SEND_BODY:
            self._begin(LINGER_S)
        elif self.conn.trailing_data[0] and self._due is None:  # of a next request, whose time has begun
            self._begin(self._patience_s)
        if self._is_stopping and not self.transport.is_closing() and self.conn.our_state is h11.IDLE:
            self.transport.close()

    def shutdown(self) -> None:
        """The server stops: a request that is on its way is still read and answered."""
        self._is_stopping = True
        scope: Any = self.scope  # None before its first request
        if scope is not None:
            scope["state"]["is_stopping"] = True  # so that the client is told to send no other request here
        cycle: Any = self.cycle  # None before its first request, whatever uvicorn's types say
        if cycle is None and not self.transport.is_closing():
            self._begin(FRESH_S)
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP; it is counted like any other answer."""
        self._on_refusal(400)
        super().send_400_response(msg)

    def _has_whole(self) -> bool:
        return self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    def _begin(self, seconds: float) -> None:
        self._stop()
        self._due = self.loop.call_later(seconds, self._late)

    def _stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _unread(self, number: int) -> None:
        """Lets a client go that has not read the end of its last answer; while one goes out, `Guard` looks after it."""
        self._tail = None
        if not self.transport.get_write_buffer_size():
            return
        if number != self._num_answers:
            self._tail = self.loop.call_later(2 * self._patience_s, self._unread, self._num_answers)
        elif self.cycle.response_complete:
            self.transport.abort()

    def _late(self) -> None:
        self._due = None
        if self.transport.is_closing():
            return
        is_answered = self.cycle is not None and self.cycle.response_started
        if not is_answered and self.conn.their_state is not h11.IDLE:
            self.scope["state"]["is_late"] = True  # so that it is counted as what the client was told
            self.transport.write(LATE)
        self.transport.close()
        self.loop.call_later(self._patience_s, self.transport.abort)  # where even that is not read
