"""A server and SIGTERM in; a time to be taken out of a proxy's list, the last answers, and in any case an end, out."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType

import uvicorn

from filbert.serve.logs import Log
from filbert.serve.metrics import DRAINING, Tally


class Server(uvicorn.Server):
    """uvicorn's, which ends for certain.

    drain_s: after the first signal it goes on as ever for so long, but /ready says 503. latest_s: so long after that
    the process ends, wherever its threads are: a call into a library cannot be told to stop.
    """

    def __init__(self, config: uvicorn.Config, tally: Tally, log: Log, *, drain_s: float, latest_s: float) -> None:
        super().__init__(config)
        self._tally, self._log, self._drain_s, self._latest_s = tally, log, drain_s, latest_s
        self._is_stopping = False

    @property
    def is_stopping(self) -> bool:
        """Whether it is to end."""
        return self._is_stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; the second one ends the draining."""
        is_first, self._is_stopping = not self._is_stopping, True
        if is_first:
            self._tally.set_state(DRAINING)
            self._end_after(self._drain_s + self._latest_s)
            if self._drain_s > 0:
                self._captured_signals.append(sig)
                threading.Thread(target=self._drain, name="filbert-drain", daemon=True).start()
                return
        elif not self.should_exit:  # it drains no more, and has as long as ever from here on
            self._end_after(self._latest_s)
        super().handle_exit(sig, frame)

    def _drain(self) -> None:
        time.sleep(self._drain_s)
        self.should_exit = True

    def _end_after(self, seconds: float) -> None:
        threading.Thread(target=self._at_the_latest, args=(seconds,), name="filbert-end", daemon=True).start()

    def _at_the_latest(self, seconds: float) -> None:
        time.sleep(seconds)
        self._log.event("stopped late")  # some thread is in a call that does not return, and its work is lost
        sys.stderr.flush()
        os._exit(1)
