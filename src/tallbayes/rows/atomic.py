"""Files and folders that are there whole or not at all, whenever their making is interrupted.

with replacing(file) as partial: partial.write_text(...)       beside its place, then renamed
take_place(new, place, older, replaces=True)                   the same for a folder; the older one may come back
with alone(place): ...                                         one process at a time works on a file or a folder
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallbayes.errors import TableError, explain


@contextmanager
def replacing(file: Path, shared: bool = False) -> Iterator[Path]:
    """Where to write what takes the place of a file afterwards; `shared` if other processes may be doing the same."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial" if shared else f"{file.name}.partial")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def take_place(new: Path, place: Path, older: Path, replaces: bool) -> None:
    """Rename a folder; one that is there is called `older` until then, and comes back if its place cannot be taken."""
    if replaces:
        shutil.rmtree(older, ignore_errors=True)
        os.rename(place, older)
    try:
        os.rename(new, place)
    except BaseException:
        if replaces:
            os.rename(older, place)
        raise
    shutil.rmtree(older, ignore_errors=True)


def sync_file(file: Path) -> None:
    """Have the disk hold what a file or a folder does."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone(place: Path, wait: bool = False) -> Iterator[None]:
    """Be alone with a file or a folder among those who ask for it, in this process too; or `wait` for that."""
    try:
        import fcntl
    except ImportError:
        # A system without such locks.
        yield
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        folder = place if place.is_dir() else place.parent
        got = f"another process at work in {str(folder)!r}"
        raise TableError(explain("to be alone with the table", got, "wait until it has ended")) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Trouble with the disk, as a TableError."""
    try:
        yield
    except OSError as error:
        hint = "free some space there and do the same again, or another place"
        expected = f"a place with space that can be written at {str(place)!r}"
        raise TableError(explain(expected, error.strerror or str(error), hint)) from error
