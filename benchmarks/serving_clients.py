"""A port, a number of clients and texts in (one JSON object on standard input); latencies and statuses out.

Closed loops over plain sockets, in a process of its own: each client sends its next request when its last is answered,
or, where it was told to come again, a little later. `pause_s` makes them slower, `bad_share` sends so much that is
malformed, `together` sends so many texts in one request, `records` tells of every request when it began, when it ended
and how.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

BACK_OFF_S = 0.05  # after a 429; Retry-After says a second, and impatient clients are the harder case
LIMIT_S = 60.0  # that a client waits for an answer
BAD = (b"{", b'{"texts": 3}', b'{"texts": []}', b'{"inputs": {"a": 1}}', b"\xff\xfe")
USUAL: dict[str, Any] = {"bad_share": 0.0, "pause_s": 0.0, "records": False, "together": 1}


def request(path: str, body: bytes) -> bytes:
    """As it goes over the wire."""
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def answered(reader: asyncio.StreamReader) -> tuple[int, bool, bool]:
    """The status of one answer, read to its end; whether it says when to come again, and that it is the last."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1]), b"\r\nretry-after:" in head, b"\r\nconnection: close" in head


class Client:
    """One of them, with its connection."""

    def __init__(self, number: int, plan: dict[str, Any], found: dict[str, Any]) -> None:
        self.plan, self.found, self.at = plan, found, number * 17
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    def body(self) -> bytes:
        """The next question, or what is none."""
        texts, share = self.plan["texts"], self.plan["bad_share"]
        self.at += 1
        turn, rest = divmod(self.at, round(1 / share)) if share else (0, 1)
        if rest == 0:
            return BAD[turn % len(BAD)]
        first, many = self.at * self.plan["together"], self.plan["together"]
        return json.dumps({"texts": [texts[(first + own) % len(texts)] for own in range(many)]}).encode()

    async def asked(self) -> tuple[int | str, bool]:
        """How one request ended; a refused connection is no lost request."""
        try:
            if self.reader is None or self.writer is None:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.plan["port"])
        except OSError:
            return "refused", True
        try:
            self.writer.write(request("/predict", self.body()))
            status, is_told, is_last = await asyncio.wait_for(answered(self.reader), LIMIT_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.reader = self.writer = None
            return f"lost {type(error).__name__}", True
        if is_last:
            self.writer.close()
            self.reader = self.writer = None
        return status, is_told

    async def work(self) -> None:
        """Asks until the time is over."""
        plan, found = self.plan, self.found
        while (begun := time.monotonic()) < plan["until"]:
            status, is_told = await self.asked()
            ended = time.monotonic()
            found["total"] += status == 200
            if plan["records"]:
                found["records"].append((begun, ended, str(status)))
            if begun > plan["from"]:
                found["statuses"][str(status)] += 1
                if status == 200:
                    found["seconds"].append(ended - begun)
                elif status == 429:
                    found["refusals"].append(ended - begun)
                    found["without_retry_after"] += not is_told
            if status in (429, "refused"):
                await asyncio.sleep(BACK_OFF_S)
            await asyncio.sleep(plan["pause_s"])
        if self.writer is not None:
            self.writer.close()


async def all_clients(plan: dict[str, Any]) -> dict[str, Any]:
    """What all of them saw."""
    plan = {**USUAL, **plan}
    plan["from"] = time.monotonic() + plan["warm_s"]
    plan["until"] = plan["from"] + plan["seconds"]
    found: dict[str, Any] = {"statuses": Counter(), "seconds": [], "refusals": [], "records": [], "total": 0,
                             "without_retry_after": 0}  # fmt: skip
    await asyncio.gather(*(Client(number, plan, found).work() for number in range(plan["clients"])))
    return found


if __name__ == "__main__":
    json.dump(asyncio.run(all_clients(json.load(sys.stdin))), sys.stdout)
