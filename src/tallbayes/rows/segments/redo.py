"""Redo: what a withdrawal is going to write, written down before any of it is.

    1. the file `withdrawal.redo`: which rows come to which places, how many are left, and the header afterwards
    2. the rows, at their places; copies of the first row over those that are left behind
    3. the header
    4. the file is removed

Whoever opens a table with such a file does the last three again, to the same bytes: so a withdrawal has happened as
soon as the file is there, and not before.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallbayes.errors import TableError, explain
from tallbayes.rows.atomic import alone, replacing, sync_file, writing

HEADER = "table.json"
REDO = "withdrawal.redo"
FILL_ROWS = 2**12
# The count stands before anything else in a header but its format.
HEAD_BYTES = 200
_WITHDRAWALS = re.compile(rb'"withdrawals": (\d+)')


@dataclass(frozen=True, eq=False)
class Redo:
    """Rows by the file of their field, as bytes (rows, row_bytes), for these places among the `left` that remain; up to
    `end` lies what has to go."""

    left: int
    end: int
    places: np.ndarray
    rows: dict[str, np.ndarray]
    header: str


def carry_out(folder: Path, redo: Redo) -> None:
    """Write down what is to be done, and do it; by whoever is alone with the table."""
    _write_down(folder, redo)
    _apply(folder, redo)


def finish_withdrawal(folder: Path) -> None:
    """Do what was written down and perhaps not done."""
    if not (folder / REDO).is_file():
        return
    with writing(folder), alone(folder, wait=True):
        settle(folder)


def settle(folder: Path) -> None:
    """The same, by whoever is alone with the table."""
    if (folder / REDO).is_file():
        _apply(folder, _read(folder / REDO))


def require_same_rows(folder: Path, withdrawals: int) -> None:
    """Refuse rows that have seen more withdrawals by their header, or have one under way."""
    seen = 0
    with suppress(OSError), open(folder / HEADER, "rb") as opened:
        found = _WITHDRAWALS.search(opened.read(HEAD_BYTES))
        seen = int(found[1]) if found else 0
    if seen != withdrawals or (folder / REDO).is_file():
        got = "others in the places of rows that were withdrawn since"
        raise TableError(explain(f"the rows of {str(folder)!r} as they were opened", got, "tb.open_table again"))


def write_header(folder: Path, header: str) -> None:
    with replacing(folder / HEADER) as partial:
        partial.write_text(header)
        sync_file(partial)
    sync_file(folder)


def _write_down(folder: Path, redo: Redo) -> None:
    blocks = [redo.places.astype("<i8"), *redo.rows.values()]
    total = hashlib.sha256()
    for block in blocks:
        total.update(np.ascontiguousarray(block).data)
    about = {
        "left": redo.left,
        "end": redo.end,
        "count": len(redo.places),
        "files": [[file, rows.shape[1]] for file, rows in redo.rows.items()],
        "header": redo.header,
        "digest": total.hexdigest(),
    }
    with replacing(folder / REDO) as partial:
        with open(partial, "wb") as opened:
            opened.write(json.dumps(about).encode() + b"\n")
            for block in blocks:
                opened.write(np.ascontiguousarray(block).data)
        sync_file(partial)
    sync_file(folder)


def _read(file: Path) -> Redo:
    try:
        with open(file, "rb") as opened:
            about = json.loads(opened.readline())
            content = opened.read()
        if hashlib.sha256(content).hexdigest() != about["digest"]:
            raise ValueError("other bytes than were written")
        places, rest, rows = np.frombuffer(content, "<i8", about["count"]), 8 * about["count"], {}
        for name, row_bytes in about["files"]:
            size = about["count"] * row_bytes
            rows[name] = np.frombuffer(content, np.uint8, size, rest).reshape(-1, row_bytes)
            rest += size
        return Redo(about["left"], about["end"], places, rows, about["header"])
    except (ValueError, KeyError, TypeError) as error:
        raise broken(file, f"{type(error).__name__}: {error}") from error


def broken(file: Path, got: str) -> TableError:
    hint = "make the table again from its files, with tallbayes ingest or tb.write_table"
    return TableError(explain(f"a whole {file.name!r} in {str(file.parent)!r}", got, hint))


def _apply(folder: Path, redo: Redo) -> None:
    for name, rows in redo.rows.items():
        mapped = np.memmap(folder / name, np.uint8, "r+", shape=(redo.end, rows.shape[1]))
        mapped[redo.places] = rows
        for start in range(redo.left, redo.end, FILL_ROWS):
            mapped[start : start + FILL_ROWS] = mapped[0]
        mapped.flush()
        del mapped
        sync_file(folder / name)
    write_header(folder, redo.header)
    (folder / REDO).unlink(missing_ok=True)
    sync_file(folder)
