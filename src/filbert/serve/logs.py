"""What happens in a server in; one line of JSON each on standard error out, never with a word of what users wrote.

Paths are those that the server knows, errors are names and places in the code: nothing of a request is repeated.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

LEVELS = ("none", "errors", "requests")


class Log:
    """Lines of JSON; "requests" writes all of them, "errors" leaves out the answers, "none" writes nothing."""

    def __init__(self, level: str = "errors", worker: int = 0) -> None:
        self.level, self.worker = level, worker

    def request(self, method: str, path: str, status: int, seconds: float, request_id: str = "") -> None:
        """One answer; its id is that of the client's X-Request-Id, or ours."""
        if self.level == "requests":
            name = method if method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH") else "other"
            self._write("request", method=name, path=path, status=status, ms=round(seconds * 1e3, 2), id=request_id)

    def event(self, name: str, **fields: object) -> None:
        """Something about the server itself."""
        if self.level != "none":
            self._write(name, **fields)

    def error(self, error: BaseException, path: str, request_id: str = "") -> None:
        """A mistake of ours: its kind and where it came from; its message could hold a user's text."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        self.event("error", error=type(error).__name__, path=path, id=request_id, places=places)

    def _write(self, name: str, **fields: object) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e3):03}Z"
        # In ASCII: a line break or an escape sequence cannot get into the log.
        line = json.dumps({"time": stamp, "event": name, "worker": self.worker, **fields}, ensure_ascii=True)
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except OSError:
            self.level = "none"  # nobody reads it any more; that is no reason to stop answering
