"""A port, a number of clients and texts in (one JSON object on standard input); latencies and statuses out.

Closed loops over plain sockets, in a process of its own: each client sends its next request when its last is answered,
or, where it was told to come again, a little later.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

BACK_OFF_S = 0.05  # after a 429; Retry-After says a second, and impatient clients are the harder case
BAD = (b"{", b'{"texts": 3}', b'{"texts": []}', b'{"inputs": {"a": 1}}', b"\xff\xfe")


def request(path: str, body: bytes) -> bytes:
    """As it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answered(reader: asyncio.StreamReader) -> int:
    """The status of one answer, read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def client(number: int, plan: dict[str, Any], found: dict[str, Any]) -> None:
    """One client until the time is over."""
    reader = writer = None
    texts, at = plan["texts"], number * 17
    while time.monotonic() < plan["until"]:
        at += 1
        turn, rest = divmod(at, round(1 / plan["bad_share"])) if plan["bad_share"] else (0, 1)
        body = BAD[turn % len(BAD)] if rest == 0 else json.dumps({"texts": [texts[at % len(texts)]]}).encode()
        begun = time.monotonic()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", plan["port"])
            writer.write(request("/predict", body))
            status = await asyncio.wait_for(answered(reader), 60)  # type: ignore[arg-type]
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            status, writer = f"lost {type(error).__name__}", None  # type: ignore[assignment]
        taken = time.monotonic() - begun
        found["total"] += status == 200
        if begun > plan["from"]:
            found["statuses"][str(status)] += 1
            if status == 200:
                found["seconds"].append(taken)
            elif status == 429:
                found["refusals"].append(taken)
        if status == 429:
            await asyncio.sleep(BACK_OFF_S)
    if writer is not None:
        writer.close()


async def all_clients(plan: dict[str, Any]) -> dict[str, Any]:
    """What all of them saw."""
    plan["from"] = time.monotonic() + plan["warm_s"]
    plan["until"] = plan["from"] + plan["seconds"]
    found: dict[str, Any] = {"statuses": Counter(), "seconds": [], "refusals": [], "total": 0}
    await asyncio.gather(*(client(number, plan, found) for number in range(plan["clients"])))
    return found


if __name__ == "__main__":
    json.dump(asyncio.run(all_clients(json.load(sys.stdin))), sys.stdout)
