"""Tables: all rows so far in files, which grow by segments and shrink by withdrawals.

    source   the table that was given: what comes is put behind its rows, and what is withdrawn leaves it
    read     what paths read: the design of a formula, which follows it, or the same table

Both are known as they were on the day, by their headers: who holds an older value of them reads the same rows as long
as none has been withdrawn, and is refused from then on. Of what is given only a day's rows are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.arrivals.disk.landing import file_of, is_table, land, rows_behind
from tallbayes.arrivals.disk.leaving import Leaving, as_before_or_after, under_way
from tallbayes.arrivals.memory import converted, moves
from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.design_steps import Design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.streaming import appended, asked_of, made_of, withdrawn
from tallbayes.programs.later import jax
from tallbayes.rows.columns import TIME_KINDS
from tallbayes.rows.on_disk import Stored, map_table, open_table
from tallbayes.rows.packing import packed_batches
from tallbayes.rows.segments.alike import places_alike
from tallbayes.rows.segments.conversion import in_fields_of
from tallbayes.rows.segments.withdrawal import withdraw
from tallbayes.rows.sources import open_source
from tallbayes.rows.table import Table
from tallbayes.setup.own_rows import by_name, visible


@dataclass(frozen=True, eq=False)
class OnDisk:
    """Rows in files. `names` is a pytree like the rows of the names of fields, `units` are those of the table; of a
    formula there is an encoding."""

    read: Stored
    source: Stored
    names: Any
    units: Any = None
    encoding: Encoding | None = None

    @classmethod
    def of(cls, table: Table, encoding: Encoding | None, given: Any = None) -> OnDisk:
        """Of rows as they were placed, and the table that was given for a formula."""
        read: Stored = table.stored
        source = read if encoding is None else _source_of(read, given)
        return cls(read, source, table.names, table.units, encoding)

    @cached_property
    def table(self) -> Table:
        return map_table(self.read, self.names, self.units)

    @property
    def num_rows(self) -> int:
        return self.read.num_rows

    def part(self, start: int, stop: int) -> Any:
        """The rows from here to there, as arrays of what the model reads."""
        rows = self.read.rows()
        return jax.tree.map(lambda name: rows[name][start:stop], self.names)

    def at(self, places: np.ndarray) -> Any:
        """The rows at these places; None where they were seen to be the right ones, and have left since."""
        known = under_way(self.source, self.read)
        if known is not None and np.array_equal(known.gone, places) and as_before_or_after(self.read, len(places))[1]:
            return None
        rows = self.read.rows()
        return jax.tree.map(lambda name: np.asarray(rows[name][places]), self.names)

    def asked(self, weighs: Any) -> dict[str, Any]:
        """Data and weights as `estimate` takes them."""
        return {"data": self.read, "weights": weighs}

    def converted(self, rows: Any) -> Any:
        """Arrays of what the model reads in the types of the fields."""
        fields = {field.name: np.empty((0, *field.shape), field.dtype) for field in self.read.fields}
        own = jax.tree.map(lambda name: fields[name], self.names)
        return converted(own, self._packed(rows) if self.read.columns else rows)

    def new_of(self, given: Any) -> Any:
        """What is to be read of rows as they were given, in numbers as precise as the table has them; of the table
        itself those that are new."""
        if is_table(given, self.source):
            given = rows_behind(self.source)
        if not self.source.columns:
            return given
        now, rows = self._in_fields(given)
        if self.encoding is None:
            return by_name(visible(now.columns), self._of_known_levels(rows))
        names = [column.name for column in now.columns]
        return next(packed_batches(now, names, max(len(next(iter(rows.values()))), 1), as_they_came=True, rows=rows))

    def missing_of(self, asked: str) -> str:
        """What is done with rows that miss a value: what the fit did."""
        if self.encoding is None:
            return asked
        own = str(asked_of(self.read)["missing"])
        if asked not in ("error", own):
            got, hint = f"missing={asked!r}", "rows that are complete, or tb.fit with missing='drop'"
            raise InputError(explain(f"missing={own!r}, as the table on disk was fitted", got, hint))
        return own

    def landed(self, given: Any, arrays: Any) -> OnDisk:
        """The tables with these rows, in files; of arrays as the model reads them nothing is needed."""
        source = land(self.source, given)
        if self.encoding is None:
            return replace(self, read=source, source=source)
        read = appended(self._design(), source).rows
        assert isinstance(read, Stored)
        return replace(self, read=read, source=source)

    def grown(self, landed: OnDisk) -> OnDisk:
        return landed

    def places_of(self, given: Any) -> Any:
        """Where rows that are to be withdrawn stand in the table that was given."""
        if self.encoding is None:
            times = [column.name for column in self.source.columns if column.kind in TIME_KINDS]
            if times:
                hint = "table.without(places), and tb.estimate anew; or tb.fit, which knows rows by their dates too"
                got = f"one with {times[0]!r}"
                raise InputError(explain("a table without dates, to withdraw rows of a model", got, hint))
            return None
        known = under_way(self.source, self.read)
        now, has_left = as_before_or_after(self.source, 0 if known is None else len(known.places))
        if known is not None and has_left:
            return known.places
        return places_alike(now, self._in_fields(given)[1])

    def without(self, gone: np.ndarray, places: Any = None) -> tuple[OnDisk, np.ndarray, np.ndarray]:
        """Without the rows of these numbers, and without those at these places of the table that was given."""
        movers, holes = moves(self.num_rows, gone)
        places = gone if places is None else places
        known = Leaving.of(self.source, self.read, places, gone)
        begun = under_way(self.source, self.read)
        same = begun is not None and begun.name == known.name
        source, has_left = as_before_or_after(self.source, len(places) if same else 0)
        if not has_left:
            known.write_down(self.source.path)
            source = withdraw(source, places, (known.name, source.num_rows - len(places), source.withdrawals + 1))
        if self.encoding is None:
            return replace(self, read=source, source=source), movers, holes
        read, has_left = as_before_or_after(self.read, len(gone))
        if not has_left:
            found = withdrawn(replace(self._design(), rows=read), gone, source).rows
            assert isinstance(found, Stored)
            read = found
        return replace(self, read=read, source=source), movers, holes

    def _design(self) -> Design:
        assert self.encoding is not None
        return Design(self.read, None, self.source.num_rows - self.num_rows, self.encoding, ())

    def _in_fields(self, given: Any) -> tuple[Stored, dict[str, np.ndarray]]:
        path, made = file_of(self.source, given)
        try:
            return in_fields_of(open_table(self.source.path, verify=False), path)
        finally:
            if made:
                path.unlink(missing_ok=True)

    def _of_known_levels(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refused where a text is a new one."""
        for column in self.source.columns:
            if column.kind == "text" and np.any(rows[column.field][:, column.place] >= len(column.levels)):
                hint = "tb.estimate of all rows, or leave these rows out"
                got = "others; nothing was added"
                raise DataError(explain(f"categories of column {column.name!r} that the table has", got, hint))
        return rows

    def _packed(self, rows: Any) -> Any:
        """Columns by name, as a row on disk holds them."""
        count = len(next(iter(rows.values())))
        fields = {field.name: np.zeros((count, *field.shape), field.dtype) for field in self.read.fields}
        for column in visible(self.read.columns):
            fields[column.field][:, column.place] = rows[column.name]
        return jax.tree.map(lambda name: fields[name], self.names)


def _source_of(read: Stored, given: Any) -> Stored:
    """The table that a design was made of, as it was then."""
    found = open_source(given).stored
    if found is None:
        hint = "tb.fit of that table, and update from there"
        raise InputError(explain("the table on disk that was fitted", "others behind it", hint))
    _, covered, withdrawals = made_of(read)
    if found.withdrawals != withdrawals or found.num_rows < covered:
        got = f"{found.num_rows:,} rows and {found.withdrawals} withdrawals, where there were {covered:,}"
        got += f" and {withdrawals}"
        raise DataError(explain(f"{str(found.path)!r} as it was fitted", got, "tb.fit of the table as it is now"))
    return open_table(found.path).upto(covered)
