"""Memory: tables that grow in place.

What lies beyond the rows of a table is free for whoever writes there first; so a day's rows are written once, and
yesterday's table stays what it was. Only who comes second, or finds no room, makes a copy, with room to grow. Rows that
are taken out leave holes, which the last rows fill.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.model.weights import ROW, WEIGHT
from tallbayes.programs.later import jax, named_leaves
from tallbayes.rows.table import CHUNK_ROWS, Table, aligned, capacity_for, require_int32

# Room is made by this factor where tables are more than a chunk long, and twice as much below; there is always some.
GROWTH, LEAST_ROOM = 1.25, 2**14


def roomy(num_rows: int) -> int:
    """How many places are made for so many rows: the same for many numbers of them, so that one program serves all.

    >>> roomy(900), roomy(20_000), roomy(300_000), roomy(320_000)
    (16384, 32768, 524288, 524288)
    """
    capacity = capacity_for(num_rows, LEAST_ROOM)
    if num_rows <= CHUNK_ROWS:
        return capacity
    steps = 1
    while steps * CHUNK_ROWS < num_rows:
        steps = max(steps + 1, int(GROWTH * steps))
    return steps * CHUNK_ROWS


@dataclass(eq=False)
class Memory:
    """Where the rows of a growing table are written: how many places hold something by now."""

    arrays: Any
    filled: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def capacity(self) -> int:
        return len(jax.tree.leaves(self.arrays)[0])


@dataclass(frozen=True, eq=False)
class Growing:
    """A table in memory that it may share with older ones."""

    table: Table
    memory: Memory

    @property
    def units(self) -> Any:
        return self.table.units

    @property
    def num_rows(self) -> int:
        return self.table.num_rows

    @classmethod
    def of(cls, table: Table) -> Growing:
        """Its rows in memory of their own, in the order that they have there."""
        return _copied(jax.tree.map(np.asarray, table.rows), table, table.num_rows)

    def part(self, start: int, stop: int) -> Any:
        """Its rows from here to there, as arrays."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.memory.arrays)

    def at(self, places: np.ndarray) -> Any:
        """The rows at these places."""
        return jax.tree.map(lambda leaf: leaf[places], self.memory.arrays)

    def asked(self, weighs: Any) -> dict[str, Any]:
        """Data and weights as `estimate` takes them."""
        arrays = self.part(0, self.num_rows)
        if weighs is None:
            return {"data": arrays, "weights": None}
        rest = {name: leaf for name, leaf in arrays.items() if name != WEIGHT}
        return {"data": arrays.get(ROW, rest), "weights": arrays[WEIGHT]}

    def new_of(self, given: Any) -> Any:
        """What is new of the rows that were given: all of them."""
        return given

    def missing_of(self, asked: str) -> str:
        """What is done with rows that miss a value: what is asked."""
        return asked

    def landed(self, given: Any, arrays: Any) -> Any:
        """The rows where they can be added from: as the model reads them."""
        return arrays

    def places_of(self, given: Any) -> None:
        """Where rows stand that are to be withdrawn: the list knows."""

    def grown(self, rows: Any) -> Growing:
        """With more rows: arrays like those that the table was made of."""
        rows = self.converted(rows)
        start, stop = self.num_rows, self.num_rows + len(jax.tree.leaves(rows)[0])
        with self.memory.lock:
            here = self
            if self.memory.filled != start or stop > self.memory.capacity:
                here = _copied(self.memory.arrays, self.table, stop, start)
            jax.tree.map(lambda leaf, new: _write(leaf, start, new), here.memory.arrays, rows)
            here.memory.filled = stop
        return Growing(_table(here.memory.arrays, self.table, stop), here.memory)

    def without(self, gone: np.ndarray, places: None = None) -> tuple[Growing, np.ndarray, np.ndarray]:
        """Without some rows, in memory of its own, where they are overwritten; which rows have moved, from which number
        to which."""
        movers, holes = moves(self.num_rows, gone)
        here = _copied(self.memory.arrays, self.table, self.num_rows)
        left = self.num_rows - len(gone)
        for leaf in jax.tree.leaves(here.memory.arrays):
            leaf[holes] = leaf[movers]
            leaf[left:] = leaf[0]
        here.memory.filled = left
        return Growing(_table(here.memory.arrays, self.table, left), here.memory), movers, holes

    def converted(self, rows: Any) -> Any:
        """More rows in the types of the table, refused where they are shaped otherwise."""
        return converted(self.part(0, 1), rows)


def moves(num_rows: int, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the last rows those that fill the places of some that go, and these places."""
    left = num_rows - len(gone)
    return np.setdiff1d(np.arange(left, num_rows), gone), gone[gone < left]


def converted(own_rows: Any, rows: Any) -> Any:
    """Rows in the types of others, refused where they are shaped otherwise."""
    own = {name.strip("[']") or "data": leaf for name, leaf in named_leaves(own_rows)}
    new = {name.strip("[']") or "data": np.asarray(leaf) for name, leaf in named_leaves(rows)}
    if own.keys() != new.keys():
        hint = "rows in the form of those that were fitted, weights included"
        raise DataError(explain(f"rows of {', '.join(own)}", ", ".join(new) or "none", hint))
    for name, leaf in new.items():
        if leaf.shape[1:] != own[name].shape[1:]:
            got = f"{leaf.shape[1:]}"
            raise DataError(explain(f"{name} with rows of shape {own[name].shape[1:]}", got, "the same columns"))
        if leaf.dtype.kind in "iu":
            require_int32(name, leaf)
    return jax.tree.map(lambda leaf, new: np.asarray(new).astype(leaf.dtype), own_rows, rows)


def _write(leaf: np.ndarray, start: int, new: np.ndarray) -> None:
    leaf[start : start + len(new)] = new


def _copied(arrays: Any, table: Table, room: int, keep: int | None = None) -> Growing:
    """The first rows in new memory, with room for so many and more."""
    keep = table.num_rows if keep is None else keep
    held = max(keep, min(room, len(jax.tree.leaves(arrays)[0])))
    capacity = roomy(room)

    def copy(leaf: np.ndarray) -> np.ndarray:
        out = aligned((capacity, *leaf.shape[1:]), leaf.dtype)
        out[:held] = leaf[:held]
        out[held:] = leaf[0]
        return out

    own = jax.tree.map(copy, arrays)
    return Growing(_table(own, table, table.num_rows), Memory(own, table.num_rows))


def _table(arrays: Any, before: Table, num_rows: int) -> Table:
    """The same on the device: on a CPU the memory itself. Its order is that of arrival, which is no random one."""
    with jax.enable_x64(True):
        rows = jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=True), arrays)
    return replace(before, rows=rows, num_rows=num_rows, shuffled=False, stored=None, names=None)
