"""Packing: between Arrow's columns and rows of numbers, both ways, in memory that does not grow with the rows.

    pack             batches as rows of float64, and what has been learnt of every column on the way
    packed_batches   the fields of a table on disk, as the columns that they were made of

The number of a row in its source is packed beside its columns, and is a file of its own in a table.

Text is packed as codes in the order in which levels came; what is missing is -1, or NaN where all of a batch is. In a
table it is codes of the sorted levels, and what is missing is -1 among "codes" and NaN among "numbers". A column comes
back as it was read from its file, and what is missing as null; float32 numbers as the shortest decimals that stand for
them where they are few, since they may be labels then.

Dates and times are seconds of float64 among "times", which formulas take parts of and models of one's own do not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import (
    BATCH_ROWS,
    DAY,
    TIME_KINDS,
    WEEKDAYS,
    TimePart,
    is_text,
    microseconds,
    part_of,
    part_values,
    require,
    require_part,
    time_kind,
    type_of_kind,
    unusable,
)
from tallbayes.rows.on_disk import Column, Stored
from tallbayes.rows.statistics import ColumnStatistics

MOST_LEVELS = 100_000
BLOCK_BYTES = 2**18
# Whole numbers up to here are exact in float32.
EXACT_IN_FLOAT32 = 2.0**24
PROBE_ROWS = 2**12
MOST_LABELS = 1000
MICROSECONDS = 1e6


@dataclass
class LearntColumn:
    """What the rows so far tell of a column; `kind` is empty while all values are missing."""

    name: str
    kind: str = ""
    single: bool = True
    missing: int = 0
    statistics: ColumnStatistics = field(default_factory=ColumnStatistics)
    levels: dict[str, int] = field(default_factory=dict)

    @property
    def is_code(self) -> bool:
        if self.kind == "whole":
            found = self.statistics
            return not self.missing and bool(found.least[0] >= -(2**31) and found.largest[0] < 2**31)
        return self.kind in ("bool", "text")

    @property
    def home(self) -> str:
        return "times" if self.kind in TIME_KINDS else "codes" if self.is_code else "numbers"

    @property
    def needs_float64(self) -> bool:
        if self.kind == "whole":
            return bool(self.statistics.size[0] > EXACT_IN_FLOAT32)
        return not self.single and self.statistics.needs_float64()

    def merge_kind(self, kind: str, where: str) -> None:
        """Numbers are wider than whole numbers; any other two kinds do not go together."""
        self.kind = merged(self.kind, kind, self.name, where)

    def to_json(self) -> dict[str, Any]:
        found = {**vars(self), "ranges": self.statistics.to_json(), "levels": list(self.levels)}
        del found["statistics"]
        return found

    @staticmethod
    def from_json(found: dict[str, Any]) -> LearntColumn:
        levels = {level: code for code, level in enumerate(found["levels"])}
        known = {name: value for name, value in found.items() if name != "ranges"}
        return LearntColumn(**{**known, "statistics": ColumnStatistics.from_json(found["ranges"]), "levels": levels})


def merged(before: str, kind: str, name: str, where: str) -> str:
    """The kind of a column that was `before` and is `kind` here."""
    if not before or not kind or before == kind:
        return before or kind
    if {before, kind} == {"whole", "number"}:
        return "number"
    hint = "write the column the same way in all files, or leave it out with columns=[...]"
    raise DataError(explain(f"column {name!r} of kind {before!r} in {where} too", f"{kind!r}", hint))


def kind_of_type(name: str, type_: Any, where: str) -> str:
    """The kind of an Arrow type; lists and the like are refused."""
    types = require("pyarrow").types
    if types.is_dictionary(type_):
        return kind_of_type(name, type_.value_type, where)
    if is_text(type_):
        return "text"
    if types.is_boolean(type_):
        return "bool"
    if types.is_integer(type_):
        return "whole"
    if types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_null(type_):
        return ""
    if time_kind(type_):
        return time_kind(type_)
    raise unusable(name, type_, f" of {where}")


def packed_size(columns: int) -> int:
    """Bytes of a packed row."""
    return 8 * (columns + 1)


def pack(batch: Any, learnt: list[LearntColumn], where: str, first_row: int, first_number: int) -> np.ndarray:
    """A batch of the columns in their order, packed, and the numbers of its rows in the last place.

    `first_row` is its place in the file, for messages, and `first_number` that among the rows of all files.
    """
    columns = []
    for place, column in enumerate(learnt):
        values = batch.column(place)
        kind = kind_of_type(column.name, values.type, where)
        if kind:
            column.merge_kind(kind, where)
        if kind == "text":
            columns.append(_codes(values, column, where))
        else:
            columns.append(_numbers(values, column, where, first_row))
    rows = np.empty((batch.num_rows, len(learnt) + 1))
    rows[:, -1] = np.arange(first_number, first_number + len(rows))
    size = max(BLOCK_BYTES // (8 * len(learnt)), 1)
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        for place, numbers in enumerate(columns):
            rows[block, place] = numbers[block]
    return rows


def _numbers(values: Any, column: LearntColumn, where: str, first_row: int) -> np.ndarray:
    arrow = require("pyarrow")
    types = arrow.types
    if types.is_null(values.type):
        column.missing += len(values)
        return np.full(len(values), np.nan)
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    is_time = bool(time_kind(values.type))
    if is_time:
        values = microseconds(values)
    if types.is_boolean(values.type):
        values = values.cast(arrow.int8())
    elif types.is_decimal(values.type):
        values = values.cast(arrow.float64())
    column.single &= values.type in (arrow.float16(), arrow.float32())
    numbers = np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
    if is_time:
        numbers = numbers / MICROSECONDS
    present = numbers
    if column.kind == "number" or values.null_count:
        blank = np.isnan(numbers)
        missing = int(np.count_nonzero(blank))
        column.missing += missing
        present = numbers[~blank] if missing else numbers
    column.statistics.add(present[:, None])
    if column.kind == "time":
        found = np.unique(((present * MICROSECONDS) // DAY + 3) % 7).astype(int)
        column.levels.update({WEEKDAYS[each]: int(each) for each in found})
    if column.statistics.count and not np.isfinite(column.statistics.size[0]):
        _refuse_infinite(numbers, column.name, where, first_row)
    return numbers


def _refuse_infinite(numbers: np.ndarray, name: str, where: str, first_row: int) -> None:
    row = int(np.flatnonzero(np.isinf(numbers))[0])
    hint = "leave it empty if it is missing, or drop the row"
    got = f"{numbers[row]} in row {first_row + row + 1:,} of {where}"
    raise DataError(explain(f"finite numbers in column {name!r}", got, hint))


def _codes(values: Any, column: LearntColumn, where: str) -> np.ndarray:
    """Codes in the order of appearance: levels are looked up once a batch, not once a row."""
    arrow = require("pyarrow")
    encoded = values if arrow.types.is_dictionary(values.type) else values.dictionary_encode()
    indices = encoded.indices.cast(arrow.int64())
    if indices.null_count:
        indices = indices.fill_null(len(encoded.dictionary))
    places = indices.to_numpy()
    codes = np.full(len(encoded.dictionary) + 1, -1.0)
    present = np.bincount(places, minlength=len(codes)) > 0
    for place, level in enumerate(encoded.dictionary.to_pylist()):
        if present[place] and level is not None:
            codes[place] = column.levels.setdefault(level, len(column.levels))
    if len(column.levels) > MOST_LEVELS:
        hint = "leave the column out with columns=[...]: an id tells nothing about the next row"
        got = f"more of them by {where}"
        raise DataError(explain(f"at most {MOST_LEVELS:,} levels in text column {column.name!r}", got, hint))
    packed = codes[places]
    column.missing += int(np.count_nonzero(packed < 0))
    return packed


def column_of(stored: Stored, name: str, as_it_came: bool = False) -> Column:
    """A column of a table, or what there is to know of a part of one."""
    columns = {column.name: column for column in stored.columns}
    part = part_of(name, tuple(columns))
    if part is None:
        if columns[name].kind in TIME_KINDS and not as_it_came:
            raise unusable(name, type_of_kind(columns[name].kind))
        return columns[name]
    of = columns[part.column]
    if of.kind not in TIME_KINDS:
        hint = "a column that is one in its files; text there may be made dates before it is ingested"
        raise DataError(explain(f"dates or times in column {part.column!r}, for {name}", of.kind, hint))
    require_part(part, of.kind)
    kind = "text" if part.function == "weekday" else "number" if part.function == "days" else "whole"
    return replace(of, name=name, kind=kind, levels=of.levels if kind == "text" else ())


def require_columns(stored: Stored) -> None:
    """Refuse a table of arrays, which has no columns that a formula could name."""
    if not stored.columns:
        fields = ", ".join(field.name for field in stored.fields)
        hint = "tb.estimate(tb.families.logistic(), table, ...), or a table made by tb.ingest"
        raise DataError(explain("a table of columns", f"one of the arrays {fields} at {str(stored.path)!r}", hint))


def packed_batches(
    stored: Stored,
    wanted: Sequence[str],
    size: int | None = None,
    order: np.ndarray | None = None,
    as_they_came: bool = False,
    first: int = 0,
    rows: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Any]:
    """Arrow tables of these columns in this order; of the rows as they lie, from one on, or in the `order` of these
    places. Other `rows` in the fields of the table are read as its own are.

    Dates are refused, being neither numbers nor text, unless columns are wanted `as_they_came`.
    """
    arrow, size = require("pyarrow"), size or BATCH_ROWS
    arrays = stored.rows()
    made = {name: _part_in(stored, name) for name in wanted}
    columns: dict[str, Column] = {}
    ranks: dict[str, np.ndarray] = {}
    for name in wanted:
        columns[name], rank = _with_sorted_levels(column_of(stored, name, as_they_came), made[name] is not None)
        ranks |= {} if rank is None else {name: rank}
    levels = {name: arrow.array(columns[name].levels, arrow.string()) for name in wanted}
    labels = [name for name in wanted if _may_be_labels(arrays[columns[name].field][:PROBE_ROWS, columns[name].place])]
    arrays = arrays if rows is None else dict(rows)
    for start in range(first, len(next(iter(arrays.values()))), size):
        parts = {}
        for name in wanted:
            column = columns[name]
            places = slice(start, start + size) if order is None else order[start : start + size]
            values = arrays[column.field][places, column.place]
            values = ranks[name][values] if name in ranks else values
            part = made[name]
            if part is not None:
                parts[name] = _part_as_arrow(*part, values, column.levels)
                continue
            parts[name] = _as_arrow(column, _shortest(values) if name in labels else values, levels[name])
        yield arrow.table(parts)


def _with_sorted_levels(column: Column, is_part: bool) -> tuple[Column, np.ndarray | None]:
    """A column whose levels are in order, which those that came later are not, and the new code of each old one."""
    levels = tuple(sorted(column.levels, key=WEEKDAYS.index if is_part else None))
    if levels == column.levels or column.kind != "text":
        return column, None
    rank = {level: place for place, level in enumerate(levels)}
    codes = np.array([*(rank[level] for level in column.levels), -1], np.int32)
    return replace(column, levels=levels), None if is_part else codes


def _part_in(stored: Stored, name: str) -> tuple[TimePart, str] | None:
    """A part, and the kind of column that it is one of; None for a column."""
    kinds = {column.name: column.kind for column in stored.columns}
    part = part_of(name, tuple(kinds))
    return None if part is None else (part, kinds[part.column])


def _part_as_arrow(part: TimePart, kind: str, seconds: np.ndarray, levels: tuple[str, ...]) -> Any:
    counts, blank = _counts(seconds)
    made = part_values(part, kind, counts, blank if blank.any() else None)
    if part.function != "weekday":
        return made
    arrow, place = (
        require("pyarrow"),
        np.array([levels.index(day) if day in levels else -1 for day in WEEKDAYS], np.int32),
    )
    indices = arrow.array(place[np.asarray(made.indices.fill_null(0))], mask=blank if blank.any() else None)
    return arrow.DictionaryArray.from_arrays(indices, arrow.array(levels, arrow.string()))


def read_packed(stored: Stored, wanted: Sequence[str]) -> Any:
    """All rows in one Arrow table."""
    return next(packed_batches(stored, wanted, stored.num_rows))


def _counts(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole microseconds, and which of them are missing."""
    blank = np.isnan(seconds)
    return np.rint(np.where(blank, 0.0, seconds) * MICROSECONDS).astype(np.int64), blank


def _as_arrow(column: Column, values: np.ndarray, levels: Any) -> Any:
    arrow = require("pyarrow")
    if column.kind in TIME_KINDS:
        counts, absent = _counts(values)
        return arrow.array(counts, mask=absent).cast(type_of_kind(column.kind))
    blank = None
    if column.missing:
        blank = np.isnan(values) if values.dtype.kind == "f" else values < 0
    if column.kind == "number":
        return arrow.array(np.ascontiguousarray(values), mask=blank)
    if column.kind == "bool":
        return arrow.array(values > 0, mask=blank)
    if column.kind == "text":
        indices = arrow.array(np.ascontiguousarray(values), mask=blank)
        return arrow.DictionaryArray.from_arrays(indices, levels)
    whole = values if blank is None else np.where(blank, 0, values)
    return arrow.array(whole.astype(np.int64), mask=blank)


def _may_be_labels(values: np.ndarray) -> bool:
    """Whether these first numbers of a column are few."""
    return values.dtype == np.float32 and len(np.unique(values)) <= MOST_LABELS


def _shortest(values: np.ndarray) -> np.ndarray:
    """0.1 instead of 0.10000000149: float64 numbers with the digits that tell one float32 from the next."""
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([float(str(each)) for each in distinct])[places]
