"""Ctrl-C in; KeyboardInterrupt out, or the end of the process where a module is being imported.

A KeyboardInterrupt in the midst of an import does not arrive as one: extension modules such as NumPy's turn it into
whatever error their start ends with, or swallow it, and what they leave half-made fails later in other words. An import
has nothing to tidy up. So the process ends there, with the one sentence that every interrupt has.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

CODE = 130  # what shells call a process that Ctrl-C ended
SENTENCE = "filbert: interrupted."
_BOOTSTRAP = "importlib._bootstrap"  # frames of these files are in every import
_signals: list[int] = []


def heed() -> None:
    """Installs the handler of SIGINT, unless it is ignored or has another handler already."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _obey)


def heed_no_more() -> None:
    """Ignores SIGINT from now on: the command has ended, and nothing may disturb the end of the process."""
    if signal.getsignal(signal.SIGINT) is _obey:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def signalled() -> bool:
    """Whether an interrupt came; an error after it is its echo."""
    return bool(_signals)


def _obey(number: int, frame: FrameType | None) -> None:
    _signals.append(number)
    if _is_importing(frame):
        sys.stdout.flush()
        os.write(2, f"{SENTENCE}\n".encode())
        os._exit(CODE)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if _BOOTSTRAP in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
