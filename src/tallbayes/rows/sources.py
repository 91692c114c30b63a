"""Sources: whatever rows come from, as Arrow tables of the columns that are needed.

    source = open_source(anything)        files of all formats; pandas, polars, Arrow, a dict of arrays; tables on disk
    source.names                          the columns, before any row is read
    source.read(["hour", "late"])         the rows, as one table
    source.batches(["hour", "late"])      the same a part at a time, so that a file never has to fit into memory
    source.pieces(["hour", "id"])         the same as they came, dates and ids and all, with nothing refused

A column may be asked for that is a part of one of dates or times, "weekday(sold)"; see `columns`.

Except in pieces a column is of numbers, or of text as whole-numbered codes of its sorted levels; a pandas categorical
and an ordered Arrow dictionary keep the order of their levels. Arrow keeps columns apart and reads only those it is
asked for, so that nothing of the table's size is copied before the arrays of the model are made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain, suggestion
from tallbayes.rows.columns import (
    BATCH_ROWS,
    TIME_KINDS,
    base_columns,
    column_from,
    normalised,
    normalised_table,
    one_line,
    require,
    table_of,
    time_kind,
)
from tallbayes.rows.formats import format_of, reading
from tallbayes.rows.on_disk import Stored, open_table
from tallbayes.rows.packing import packed_batches, read_packed, require_columns
from tallbayes.rows.segments.redo import HEADER

MANY_COLUMNS = 20


@dataclass(frozen=True, eq=False)
class Source:
    """Where rows come from: its name in messages, the names of its columns, and how some are read, whole or in parts.

    `cut` gives parts as they came. `stored` is the table on disk, if it is one.
    """

    label: str
    names: tuple[str, ...]
    load: Callable[[list[str]], Any]
    stream: Callable[[list[str]], Iterator[Any]]
    cut: Callable[[list[str]], Iterator[Any]]
    stored: Stored | None = None
    is_date: Callable[[str], bool] = bool

    def dates(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Those of these columns that are dates, times of day or durations."""
        return tuple(name for name in columns if self.is_date(name))

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """An Arrow table of these columns in this order, or a DataError."""
        table = self.load(self._wanted(columns))
        if table.num_rows == 0:
            raise DataError(explain(f"at least one row in {self.label}", "0 rows", "check how it was written"))
        return table

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The same as tables of some BATCH_ROWS rows, in order."""
        return self.stream(self._wanted(columns))

    def pieces(self, columns: Sequence[str]) -> Iterator[Any]:
        """The same as they came, in tables that may hold any type."""
        return self.cut(self._wanted(columns))

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        wanted = list(dict.fromkeys(self.names if columns is None else columns))
        self.require(wanted)
        return wanted

    def require(self, columns: Sequence[str]) -> None:
        """Refuse names that are not there, or not once."""
        for name in base_columns(columns, self.names):
            count = self.names.count(name)
            if count == 0:
                raise no_such_column(name, self.names, self.label)
            if count > 1:
                got = f"{count} of that name in {self.label}"
                raise DataError(explain(f"one column {name!r}", got, "rename one of them"))


@dataclass(frozen=True, eq=False)
class Joined:
    """Tables one after the other, as they came, each of anything that `open_source` opens."""

    parts: tuple[Any, ...]

    @classmethod
    def of(cls, first: Any, second: Any) -> Joined:
        before = first.parts if isinstance(first, Joined) else (first,)
        return cls((*before, second))

    def opened(self) -> Source:
        """A source of all rows, with the columns of the first."""
        arrow, sources = require("pyarrow"), [open_source(part) for part in self.parts]

        def load(wanted: list[str]) -> Any:
            return arrow.concat_tables([each.load(wanted) for each in sources], promote_options="permissive")

        def stream(wanted: list[str]) -> Iterator[Any]:
            return (batch for each in sources for batch in each.stream(wanted))

        def cut(wanted: list[str]) -> Iterator[Any]:
            return (piece for each in sources for piece in each.cut(wanted))

        return replace(sources[0], load=load, stream=stream, cut=cut, stored=None)


def no_such_column(name: str, names: Sequence[str], where: str) -> DataError:
    few = f"the columns are {', '.join(names)}" if len(names) <= MANY_COLUMNS else "check the spelling"
    return DataError(explain(f"a column {name!r}", f"no such column in {where}", suggestion(name, names, few)))


def open_source(source: Any) -> Source:
    """Look at the columns of a file, a frame, a dict of arrays or a table on disk, without reading its rows.

    >>> open_source({"late": [0, 1], "carrier": ["UA", "AA"]}).read(["carrier"]).column("carrier").to_pylist()
    ['UA', 'AA']
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, Joined):
        return source.opened()
    arrow = require("pyarrow")
    if isinstance(source, str | os.PathLike):
        is_table = (Path(source) / HEADER).is_file()
        return _open_stored(open_table(Path(source))) if is_table else _open_file(Path(source))
    if isinstance(source, Stored):
        return _open_stored(source)
    if isinstance(source, arrow.Table):
        return _open_columns("the table", source.column_names, lambda _: source.column)
    if isinstance(source, Mapping):
        return _open_columns("the dict", list(source), lambda _: source.__getitem__)
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    if kind == "pandas.DataFrame":
        return _open_columns("the frame", list(source.columns), lambda _: source.__getitem__)
    if kind == "polars.DataFrame":
        return _open_columns("the frame", source.columns, lambda _: partial(_from_polars, source))
    if kind == "polars.LazyFrame":
        # Only what a formula names is worked out, and once.
        names = source.collect_schema().names()
        return _open_columns("the frame", names, lambda wanted: partial(_from_polars, source.select(wanted).collect()))
    expected = "a path, a pandas or polars DataFrame, an Arrow table, a dict of arrays or a table on disk"
    raise DataError(explain(expected, f"a {type(source).__name__}", '{"late": late, "hour": hour}'))


def _open_stored(stored: Stored) -> Source:
    require_columns(stored)
    kinds = {column.name: column.kind for column in stored.columns}
    return Source(
        repr(stored.path.name),
        tuple(kinds),
        partial(read_packed, stored),
        partial(packed_batches, stored),
        partial(packed_batches, stored, as_they_came=True),
        stored,
        lambda name: kinds[name] in TIME_KINDS,
    )


def _from_polars(frame: Any, name: str) -> Any:
    return frame.get_column(name).to_arrow()


def _open_columns(label: str, names: list[Any], take: Callable[[list[str]], Callable[[str], Any]]) -> Source:
    """Of columns by name, from what is taken of them."""
    arrow = require("pyarrow")

    def load(wanted: list[str]) -> Any:
        column = take(base_columns(wanted, source.names))

        def read(name: str) -> Any:
            return _as_it_came(name, column(name))

        def keeps_order(name: str) -> bool:
            return name in source.names and not isinstance(column(name), arrow.ChunkedArray | arrow.Array)

        return table_of({name: column_from(name, source.names, read, keeps_order(name)) for name in wanted})

    def stream(wanted: list[str]) -> Iterator[Any]:
        return _slices(source.read(wanted))

    def cut(wanted: list[str]) -> Iterator[Any]:
        base = base_columns(wanted, source.names)
        column = take(base)
        return _slices(_with_parts(table_of({name: _as_it_came(name, column(name)) for name in base}), wanted))

    # A formula can name only text.
    own = tuple(name for name in names if isinstance(name, str))

    def is_date(name: str) -> bool:
        return bool(time_kind(_as_it_came(name, take([name])(name)[:1]).type))

    source = Source(label, own, load, stream, cut, is_date=is_date)
    return source


def _slices(table: Any) -> Iterator[Any]:
    return (table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS))


def _with_parts(table: Any, wanted: list[str]) -> Any:
    """The columns that are wanted as they came, and parts of dates and times as they are made."""
    names = table.column_names
    return table_of(
        {each: table.column(each) if each in names else column_from(each, names, table.column) for each in wanted}
    )


def as_arrow(name: str, values: Any) -> Any:
    """One array, list or series as a normalised Arrow column."""
    arrow = require("pyarrow")
    is_arrow = isinstance(values, arrow.ChunkedArray | arrow.Array)
    return normalised(name, _as_it_came(name, values), keep_order=not is_arrow)


def _as_it_came(name: str, values: Any) -> Any:
    """One array, list or series as an Arrow column of its own type."""
    arrow = require("pyarrow")
    if isinstance(values, arrow.ChunkedArray | arrow.Array):
        return values
    if np.ndim(values) != 1:
        raise DataError(explain(f"one value a row in {name!r}", f"shape {np.shape(values)}", "a 1-D array"))
    # Arrays of other libraries, such as JAX's, are read as NumPy's; pandas' own types are known to Arrow.
    known = isinstance(values, list | tuple | np.ndarray) or type(values).__module__.startswith("pandas")
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
            values = _in_arrows_units(values)
        return arrow.array(values if known else np.asarray(values), from_pandas=True)
    except (arrow.ArrowException, TypeError) as error:
        hint = f"make {name!r} all numbers or all text, e.g. with astype(str)"
        raise DataError(explain(f"values of one type in {name!r}", one_line(error), hint)) from error


def _in_arrows_units(times: np.ndarray) -> np.ndarray:
    """NumPy's times in a unit that Arrow knows and that holds them exactly: hours in seconds, months in days."""
    unit = np.datetime_data(times.dtype)[0]
    known = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}.get(unit, unit)
    return times.astype(f"{times.dtype.kind}8[{known}]")


def _open_file(path: Path) -> Source:
    _require_file(path)
    format_ = format_of(path)
    with reading(path):
        schema = format_.schema(path)
    names = tuple(schema.names)

    def load(wanted: list[str]) -> Any:
        with reading(path):
            return normalised_table(format_.read(path, base_columns(wanted, names)), wanted)

    def stream(wanted: list[str]) -> Iterator[Any]:
        return (normalised_table(piece) for piece in cut(wanted))

    def cut(wanted: list[str]) -> Iterator[Any]:
        from_batches = require("pyarrow").Table.from_batches
        pieces = format_.pieces(path, base_columns(wanted, names), 0, {})
        return (_with_parts(from_batches([piece.rows]), wanted) for piece in pieces)

    return Source(
        repr(path.name), names, load, stream, cut, is_date=lambda name: bool(time_kind(schema.field(name).type))
    )


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(explain("a file", f"the folder {str(path)!r}", "name one file in it"))
    if not path.exists():
        folder = path.parent
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        hint = suggestion(path.name, names, "check the path")
        raise DataError(explain("a file", f"nothing at {str(path)!r}", hint))
    if path.stat().st_size == 0:
        raise DataError(explain(f"rows in {path.name!r}", "an empty file", "check how it was written"))
