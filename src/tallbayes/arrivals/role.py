"""The role of rows that come and go: in memory (`memory`), or in a table on disk (`disk.tables`).

What is given is made ready in two steps, so that nothing has changed where it is refused: the doors check it as the
model reads it, and then it lands.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tallbayes.rows.table import Table


class HeldRows(Protocol):
    """All rows so far; a later value of them may share what holds them."""

    @property
    def table(self) -> Table:
        """As paths read them."""
        ...

    @property
    def units(self) -> Any:
        """Those of the table."""
        ...

    @property
    def num_rows(self) -> int: ...

    def part(self, start: int, stop: int) -> Any:
        """The rows from here to there, as arrays of what the model reads."""
        ...

    def at(self, places: np.ndarray) -> Any:
        """The rows at these places; None where they were seen to be the right ones, and have left since."""
        ...

    def converted(self, rows: Any) -> Any:
        """Arrays of what the model reads in the types of these rows; refused where they are shaped otherwise."""
        ...

    def asked(self, weighs: Any) -> dict[str, Any]:
        """Data and weights as `estimate` takes them; `weighs` says whether there are weights, or where."""
        ...

    def new_of(self, given: Any) -> Any:
        """What is to be read of rows as they were given."""
        ...

    def missing_of(self, asked: str) -> str:
        """What is done with rows that miss a value."""
        ...

    def landed(self, given: Any, arrays: Any) -> Any:
        """Rows as they were given, and as the model reads them, at a place where they can be added from."""
        ...

    def grown(self, landed: Any) -> HeldRows:
        """With the rows that have landed, behind the others."""
        ...

    def places_of(self, given: Any) -> Any:
        """Where rows that are to be withdrawn stand in the table that was given, if that is another one than is
        read."""
        ...

    def without(self, gone: np.ndarray, places: Any = None) -> tuple[HeldRows, np.ndarray, np.ndarray]:
        """Without the rows of these numbers; which ones have moved into their places, and these."""
        ...
