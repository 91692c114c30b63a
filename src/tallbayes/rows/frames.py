"""Tables: a file or a frame in memory, as one Arrow table of the columns that are needed.

    open_source(anything).names            the columns, before any row is read
    read_table(anything, ["hour", "late"]) .csv and .tsv (also .gz), .parquet, .arrow and .feather; pandas, polars,
                                           Arrow, a dict of arrays

Afterwards a column is of numbers, or of text as whole-numbered codes of its sorted levels; a pandas categorical and
an ordered Arrow dictionary keep the order of their levels. Arrow keeps columns apart and reads only those it is asked
for, so that nothing of the table's size is copied before the arrays of the model are made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import is_text, normalised, require
from tallbayes.rows.on_disk import HEADER, Stored, open_table
from tallbayes.rows.packed import read_packed, require_columns

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
MANY_COLUMNS = 20


@dataclass(frozen=True, eq=False)
class Source:
    """Where rows come from: its name in messages, the names of its columns, and how to read some of them.

    Of a table on disk, `stored`, rows can also be read without holding all of them.
    """

    label: str
    names: tuple[str, ...]
    load: Callable[[list[str]], Any]
    stored: Stored | None = None

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """An Arrow table of these columns in this order, or a DataError."""
        wanted = list(dict.fromkeys(self.names if columns is None else columns))
        self.require(wanted)
        table = self.load(wanted)
        if table.num_rows == 0:
            raise DataError(explain(f"at least one row in {self.label}", "0 rows", "check how it was written"))
        return table

    def require(self, columns: Sequence[str]) -> None:
        """Refuse names that are not there, or not once."""
        for name in columns:
            self._require_one(name)

    def _require_one(self, name: str) -> None:
        count = self.names.count(name)
        if count == 0:
            few = (
                f"the columns are {', '.join(self.names)}" if len(self.names) <= MANY_COLUMNS else "check the spelling"
            )
            got = f"no such column in {self.label}"
            raise DataError(explain(f"a column {name!r}", got, suggestion(name, self.names, few)))
        if count > 1:
            got = f"{count} of that name in {self.label}"
            raise DataError(explain(f"one column {name!r}", got, "rename one of them"))


def suggestion(name: str, names: Sequence[str], otherwise: str) -> str:
    """The nearest of the names, case apart, followed by `otherwise`; that alone where none is near."""
    by_lower = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"{by_lower[near[0]]!r}; {otherwise}" if near else otherwise


def no_such_column(name: str, names: Sequence[str], where: str) -> DataError:
    few = f"the columns are {', '.join(names)}" if len(names) <= MANY_COLUMNS else "check the spelling"
    return DataError(explain(f"a column {name!r}", f"no such column in {where}", suggestion(name, names, few)))


def read_table(source: Any, columns: Sequence[str] | None = None) -> Any:
    """The Arrow table of a file, a frame or a dict of arrays; all columns, or those named.

    >>> read_table({"late": [0, 1], "carrier": ["UA", "AA"]}, ["carrier"]).column("carrier").to_pylist()
    ['UA', 'AA']
    """
    return open_source(source).read(columns)


def open_source(source: Any) -> Source:
    """Look at the columns of a file, a frame, a dict of arrays or a table on disk, without reading its rows."""
    if isinstance(source, Source):
        return source
    arrow = require("pyarrow")
    if isinstance(source, str | os.PathLike):
        is_table = (Path(source) / HEADER).is_file()
        return _open_stored(open_table(Path(source))) if is_table else _open_file(Path(source))
    if isinstance(source, Stored):
        return _open_stored(source)
    if isinstance(source, arrow.Table):
        return _open_columns("the table", source.column_names, source.column)
    if isinstance(source, Mapping):
        return _open_columns("the dict", list(source), source.__getitem__)
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    if kind == "pandas.DataFrame":
        return _open_columns("the frame", list(source.columns), source.__getitem__)
    if kind == "polars.DataFrame":
        return _open_columns("the frame", source.columns, lambda name: source.get_column(name).to_arrow())
    expected = "a path, a pandas or polars DataFrame, an Arrow table, a dict of arrays or a table on disk"
    raise DataError(explain(expected, f"a {type(source).__name__}", '{"late": late, "hour": hour}'))


def _open_stored(stored: Stored) -> Source:
    require_columns(stored)
    names = tuple(column.name for column in stored.columns)
    return Source(repr(stored.path.name), names, partial(read_packed, stored), stored)


def _open_columns(label: str, names: list[Any], column: Callable[[str], Any]) -> Source:
    def load(wanted: list[str]) -> Any:
        return _table({name: as_arrow(name, column(name)) for name in wanted})

    # A formula can name only text.
    return Source(label, tuple(name for name in names if isinstance(name, str)), load)


def as_arrow(name: str, values: Any) -> Any:
    """One array, list or series as a normalised Arrow column."""
    arrow = require("pyarrow")
    if isinstance(values, arrow.ChunkedArray | arrow.Array):
        return normalised(name, values, keep_order=False)
    if np.ndim(values) != 1:
        raise DataError(explain(f"one value a row in {name!r}", f"shape {np.shape(values)}", "a 1-D array"))
    # Arrays of other libraries, such as JAX's, are read as NumPy's; pandas' own types are known to Arrow.
    known = isinstance(values, list | tuple | np.ndarray) or type(values).__module__.startswith("pandas")
    try:
        column = arrow.array(values if known else np.asarray(values), from_pandas=True)
    except (arrow.ArrowException, TypeError) as error:
        hint = f"make {name!r} all numbers or all text, e.g. with astype(str)"
        raise DataError(explain(f"values of one type in {name!r}", _one_line(error), hint)) from error
    return normalised(name, column, keep_order=True)


def file_kind(path: Path) -> str:
    """The format that a file's name tells."""
    suffixes = [each.lower() for each in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    kind = FORMATS.get(suffixes[-1] if suffixes else "")
    if kind is None:
        got = f"{path.name!r}"
        raise DataError(explain(f"a file ending in {', '.join(FORMATS)} or .csv.gz", got, "rename or convert it"))
    return kind


def _open_file(path: Path) -> Source:
    _require_file(path)
    kind = file_kind(path)
    if kind in DELIMITERS:
        return _open_csv(path, DELIMITERS[kind])
    return _open_parquet(path) if kind == "parquet" else _open_arrow(path)


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


def _open_csv(path: Path, delimiter: str) -> Source:
    arrow, csv = require("pyarrow"), require("pyarrow.csv")
    parse = csv.ParseOptions(delimiter=delimiter)
    # Only a single thread counts the lines.
    single, several = csv.ReadOptions(use_threads=False), csv.ReadOptions(use_threads=True)

    def read(wanted: list[str], threads: Any) -> Any:
        convert = csv.ConvertOptions(include_columns=wanted, strings_can_be_null=True, quoted_strings_can_be_null=False)
        return csv.read_csv(str(path), read_options=threads, parse_options=parse, convert_options=convert)

    def load(wanted: list[str]) -> Any:
        try:
            try:
                return normalised_table(read(wanted, several))
            except arrow.ArrowInvalid:
                return normalised_table(read(wanted, single))
        except (arrow.ArrowException, OSError) as error:
            raise broken(path, error) from error

    try:
        names = csv.open_csv(str(path), read_options=single, parse_options=parse).schema.names
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error
    return Source(repr(path.name), tuple(names), load)


def _open_parquet(path: Path) -> Source:
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    try:
        schema = parquet.read_schema(path)
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error
    text = {field.name for field in schema if is_text(field.type)}

    def load(wanted: list[str]) -> Any:
        try:
            dictionary = [name for name in wanted if name in text]
            with parquet.ParquetFile(path, read_dictionary=dictionary) as file:
                return normalised_table(file.read(columns=wanted).select(wanted))
        except (arrow.ArrowException, OSError) as error:
            raise broken(path, error) from error

    return Source(repr(path.name), tuple(schema.names), load)


def _open_arrow(path: Path) -> Source:
    arrow = require("pyarrow")

    def load(wanted: list[str]) -> Any:
        try:
            places = [names.index(name) for name in wanted]
            options = arrow.ipc.IpcReadOptions(included_fields=places)
            with arrow.memory_map(str(path)) as file:
                return normalised_table(arrow.ipc.open_file(file, options=options).read_all().select(wanted))
        except (arrow.ArrowException, OSError) as error:
            raise broken(path, error) from error

    try:
        with arrow.memory_map(str(path)) as file:
            names = arrow.ipc.open_file(file).schema.names
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error
    return Source(repr(path.name), tuple(names), load)


def broken(path: Path, error: Exception) -> DataError:
    message = _one_line(error)
    hint = "write the file again; it may be truncated or of another format"
    if "Row #" in message:
        line = message.split("Row #")[1].split(":")[0]
        hint = f"look at line {line}: its fields, quotes and delimiter"
    return DataError(explain(f"a readable file {path.name!r}", message, hint))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")[:200]


def normalised_table(table: Any) -> Any:
    return _table({name: normalised(name, table.column(name), False) for name in table.column_names})


def _table(columns: dict[str, Any]) -> Any:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(explain("columns with the same number of rows", f"{lengths}", "check how they were cut"))
    return require("pyarrow").table(columns)
