"""Files and folders that are there whole or not at all, whenever their making is interrupted.

with replacing(file) as partial: partial.write_text(...)       beside its place, then renamed
take_place(new, place, older, replaces=True)                   the same for a folder; the older one may come back
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
