"""Leaving: a withdrawal from the table that was given and from what is read of it, written down before it is made.

Each of the two tables withdraws whole or not at all. Between them a process may die; then the file `leaving.json` in
the table that was given says what was under way, and the same withdrawal goes on from there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import TableError, explain
from tallbayes.rows.atomic import replacing, sync_file, writing
from tallbayes.rows.on_disk import Stored, open_table
from tallbayes.rows.segments.past import other_than

LEAVING = "leaving.json"


@dataclass(frozen=True, eq=False)
class Leaving:
    """Places in the table that was given and in the one that is read, by the digests that these had before."""

    source: str
    read: str
    places: np.ndarray
    gone: np.ndarray

    @classmethod
    def of(cls, source: Stored, read: Stored, places: Any, gone: np.ndarray) -> Leaving:
        return cls(source.digest, read.digest, np.asarray(places), np.asarray(gone))

    @property
    def name(self) -> str:
        """As whoever withdrew keeps it."""
        parts = self.source, self.read, self.places.tolist(), self.gone.tolist()
        return sha256(json.dumps(parts).encode()).hexdigest()

    def write_down(self, folder: Path) -> None:
        plain = {"source": self.source, "read": self.read, "places": self.places.tolist(), "gone": self.gone.tolist()}
        with writing(folder), replacing(folder / LEAVING) as partial:
            partial.write_text(json.dumps({**plain, "name": self.name}))
            sync_file(partial)


def under_way(source: Stored, read: Stored) -> Leaving | None:
    """The withdrawal that was begun from these two tables, if one was."""
    try:
        found = json.loads((source.path / LEAVING).read_text())
        places, gone = (np.array(found[name], np.int64) for name in ("places", "gone"))
        known = Leaving(found["source"], found["read"], places, gone)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = (known.source, known.read, known.name) == (source.digest, read.digest, found["name"])
    return known if same else None


def as_before_or_after(then: Stored, count: int) -> tuple[Stored, bool]:
    """The table now, and whether so many rows have left since, once; refused where it is neither."""
    now = open_table(then.path)
    if now.withdrawals == then.withdrawals + 1 and now.num_rows == then.num_rows - count:
        return now, True
    wrong = other_than(then, now) or ("" if now.num_rows == then.num_rows else f"{now.num_rows:,} rows")
    if wrong:
        hint = "the last result of these rows; or tb.fit or tb.estimate of the table as it is now"
        raise TableError(explain(f"the {then.num_rows:,} rows of {str(then.path)!r}", wrong, hint))
    return now, False
