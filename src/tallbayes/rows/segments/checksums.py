"""Checksums: digests of stretches of a table's rows, and the memory of which files have been read through.

Digests are of rows alone. What lies beyond the last row of a table belongs to whoever writes there next: copies of the
first row, which a table was padded with when it was sealed, are put into its digest but not looked for in its file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallbayes.rows.atomic import replacing
from tallbayes.rows.segments.record import pieces
from tallbayes.rows.segments.redo import broken
from tallbayes.rows.table import MAX_THREADS
from tallbayes.threads import num_cores

if TYPE_CHECKING:
    from tallbayes.rows.on_disk import Field, Stored

SEEN = "verified.json"
READ_BYTES = 2**22

Piece = tuple[int, int, int]


def digests_of(stored: Stored, field: Field, wanted: Sequence[Piece] | None = None) -> tuple[str, ...]:
    """SHA-256 of every stretch of rows, or of those wanted, on threads."""
    wanted = pieces(stored.segments) if wanted is None else wanted
    file = stored.path / field.file
    with ThreadPoolExecutor(min(num_cores(), MAX_THREADS)) as threads:
        return tuple(threads.map(lambda piece: _digest(file, field.row_bytes, *piece), wanted))


def _digest(file: Path, row_bytes: int, start: int, stop: int, padded: int) -> str:
    total, left = hashlib.sha256(), (stop - start) * row_bytes
    with open(file, "rb") as opened:
        first = opened.read(row_bytes) if padded > stop else b""
        opened.seek(start * row_bytes)
        while left > 0:
            part = opened.read(min(READ_BYTES, left))
            if not part:
                break
            total.update(part)
            left -= len(part)
    copies, block = padded - stop, max(READ_BYTES // row_bytes, 1)
    while copies > 0:
        total.update(first * min(copies, block))
        copies -= block
    return total.hexdigest()


def first_wrong(stored: Stored) -> tuple[Field, int, int] | None:
    """The first field and stretch of rows that is not what its digest says; reads all files through, unless they have
    not changed since somebody did."""
    if _stamps(stored) == _remembered(stored):
        return None
    for field in stored.all_fields:
        stretches = zip(pieces(stored.segments), digests_of(stored, field), stored.digests[field.name], strict=True)
        for (start, stop, _), have, wanted in stretches:
            if have != wanted:
                return field, start, stop
    remember(stored)
    return None


def require_sizes(stored: Stored) -> None:
    """Refuse a file that is missing or too short."""
    for field in stored.all_fields:
        file, wanted = stored.path / field.file, stored.capacity * field.row_bytes
        try:
            size = file.stat().st_size
        except OSError as error:
            raise broken(file, f"{type(error).__name__}: {error}") from error
        # What is beyond was written by an addition that has not come to its end.
        if size < wanted:
            raise broken(file, f"{size:,} bytes where there should be {wanted:,}")


def _stamps(stored: Stored) -> dict[str, Any]:
    """What changes when a file does."""
    found: dict[str, Any] = {"digest": stored.digest}
    for field in stored.all_fields:
        stat = (stored.path / field.file).stat()
        found[field.name] = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    return found


def _remembered(stored: Stored) -> Any:
    try:
        return json.loads((stored.path / SEEN).read_text())
    except (OSError, ValueError):
        return None


def remember(stored: Stored) -> None:
    """That the files are what their digests say."""
    # In a folder that cannot be written the files are read through every time.
    with suppress(OSError), replacing(stored.path / SEEN, shared=True) as partial:
        partial.write_text(json.dumps(_stamps(stored)))
