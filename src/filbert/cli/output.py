"""An OSError of a command, such as a write to a full disk, in; one sentence or a quiet exit out."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

import click

from filbert.core.errors import FilbertError, InputError

READER_LEFT = 128 + 13  # what a shell shows for a command that SIGPIPE ended
RANKED = ("pretrain", "finetune", "distill")  # the commands that several processes of torchrun share


class ReaderLeftError(Exception):
    """The reader of standard output has closed it, as `head` does: not an error."""


class Watched:
    """A stream that remembers why it could not be written to; with PYTHONUNBUFFERED nothing else does."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.failed: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """As the stream does."""
        try:
            return self.stream.write(text)
        except OSError as error:
            self.failed = error
            raise

    def flush(self) -> None:
        """As the stream does."""
        try:
            self.stream.flush()
        except OSError as error:
            self.failed = error
            raise


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Standard output remembers for the block why it could not be written to."""
    before = sys.stdout
    sys.stdout = cast(TextIO, Watched(before))
    try:
        yield
    finally:
        sys.stdout = before


def open_closed() -> None:
    """Gives standard streams that were closed at the start a place, so that no file which is opened later gets theirs.

    What is written to a closed standard output fails as it would in any other program; notes are lost.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, mode)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=False)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for as long as the process lives)


def write_anything() -> None:
    """From now on a terminal that cannot write a character, for its encoding, shows the character's number instead."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_ranks(command: str) -> None:
    """Refuses, under torchrun, a command of which each process would do the whole: results would come twice."""
    world = os.environ.get("WORLD_SIZE", "1")
    if command in RANKED or not world.isdigit() or int(world) < 2:
        return
    if os.environ.get("RANK", "0") != "0":
        click.get_current_context().exit(InputError.exit_code)  # one process speaks for all
    raise InputError(
        f"{command}: {world} processes were started (WORLD_SIZE), and each would do all of the work; start it once, "
        "without torchrun."
    )


def refusal(error: OSError) -> Exception:
    """The error to raise for an OSError that no other code handled."""
    failure = sys.stdout.failed if isinstance(sys.stdout, Watched) else None
    if failure is not None:
        if isinstance(failure, BrokenPipeError):
            return ReaderLeftError()
        return FilbertError(
            f"standard output: could not be written ({failure.strerror or failure}); nothing after it was."
        )
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    reason = error.strerror or str(error) or type(error).__name__
    where = " and ".join(names) or "a file or a connection"
    advice = ""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "; look at who may read and write it"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "; make room, or choose another place"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "; raise the limit of open files (ulimit -n)"
    return FilbertError(f"{where}: could not be read or written ({reason}){advice}.")


def flush() -> None:
    """Writes out what standard output still holds; raises `refusal` of a failure."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise refusal(error) from error


def say(sentence: str) -> None:
    """A sentence on standard error, where anybody can still read that."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(sentence, err=True)


def let_go() -> None:
    """What could not be written is dropped, so that Python does not try it again, and complain, when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                handle = os.open(os.devnull, os.O_WRONLY)
                os.dup2(handle, stream.fileno())
                os.close(handle)
                stream.flush()
