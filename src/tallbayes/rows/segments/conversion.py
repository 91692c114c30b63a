"""Conversion: packed rows as those of a table, of one to be or of one that is there.

layout        what only all rows tell: which columns are codes, the order of levels, whether float32 is enough
known_columns what a table tells of the columns of more rows; files that have others are refused by name
layout_like   more rows as those of a table: new levels come behind the old ones, whose codes stay what they are
in_fields_of  rows of a file as they would stand in a table, which is left as it is
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import WEEKDAYS, require
from tallbayes.rows.files import File, look_at
from tallbayes.rows.formats import format_of, reading
from tallbayes.rows.on_disk import ROW, Column, Field, Stored
from tallbayes.rows.packing import EXACT_IN_FLOAT32, LearntColumn, kind_of_type, pack
from tallbayes.rows.sources import open_source
from tallbayes.rows.statistics import blurred

# How many rows of a table tell how far its numbers are spread: they were put in random order.
LOOKED_AT = 2**12
# Of CSV files types are guessed, but of dates, and those that are known taken instead.
GUESSED = (".csv", ".tsv")
AGAIN = "convert the column, or ingest all files again into a new table"


@dataclass(frozen=True)
class FieldLayout:
    """How packed rows become those of the table's fields, and their numbers."""

    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    convert: Callable[[np.ndarray], list[np.ndarray]]
    numbered: bool = True

    @property
    def files(self) -> tuple[Field, ...]:
        """What `convert` makes, in its order."""
        return (*self.fields, ROW) if self.numbered else self.fields


def layout(learnt: list[LearntColumn]) -> FieldLayout:
    """Settle what all rows have told."""
    for column in learnt:
        if not column.levels and not column.statistics.count:
            got = "all of them missing"
            raise DataError(explain(f"values in column {column.name!r}", got, "leave the column out"))
    coded, numeric, times = (
        [place for place, column in enumerate(learnt) if column.home == home] for home in ("codes", "numbers", "times")
    )
    dtype = "float64" if any(learnt[place].needs_float64 for place in numeric) else "float32"
    orders = {place: _sorted_places(learnt[place]) for place in coded if learnt[place].kind == "text"}

    def convert(rows: np.ndarray) -> list[np.ndarray]:
        codes = np.empty((len(rows), len(coded)), np.int32)
        for new, old in enumerate(coded):
            # Missing is NaN or -1; the last entry of an order stands for the latter.
            values = np.nan_to_num(rows[:, old], nan=-1.0).astype(np.int32)
            codes[:, new] = orders[old][values] if old in orders else values
        side_by_side = numeric == list(range(numeric[0], numeric[-1] + 1)) if numeric else False
        numbers = rows[:, numeric[0] : numeric[-1] + 1] if side_by_side else np.take(rows, numeric, axis=1)
        numbers = numbers.astype(dtype, order="C")
        made = [each for each in (numbers, codes, np.take(rows, times, axis=1)) if each.shape[1]]
        return [*made, rows[:, -1].astype(np.int32)]

    fields = (
        Field("numbers", dtype, (len(numeric),)),
        Field("codes", "int32", (len(coded),)),
        Field("times", "float64", (len(times),)),
    )
    among = {"numbers": numeric, "codes": coded, "times": times}
    columns = [_described(column, among[column.home].index(place)) for place, column in enumerate(learnt)]
    return FieldLayout(tuple(each for each in fields if each.shape[0]), tuple(columns), convert)


def _sorted_places(column: LearntColumn) -> np.ndarray:
    """Places among the sorted levels, by code; the last is for what is missing."""
    ranked = {level: place for place, level in enumerate(sorted(column.levels))}
    return np.array([*(ranked[level] for level in column.levels), -1], np.int32)


def _described(column: LearntColumn, place: int) -> Column:
    levels = tuple(sorted(column.levels, key=WEEKDAYS.index if column.kind == "time" else None))
    least, largest = 0.0, float(len(levels) - 1)
    if column.kind != "text":
        least, largest = float(column.statistics.least[0]), float(column.statistics.largest[0])
    return Column(column.name, column.home, place, column.kind, levels, column.missing, least, largest)


def known_columns(onto: Stored, files: Sequence[File], named: Sequence[str] | None) -> list[LearntColumn]:
    """The columns of a table, of which more rows come from files: those that it has are read, in its order."""
    names = [column.name for column in onto.columns]
    if not names:
        got = f"one of the arrays {', '.join(field.name for field in onto.fields)}"
        hint = "tb.write_table(table, rows, append=True)"
        raise DataError(explain(f"a table that was made of files at {str(onto.path)!r}", got, hint))
    if named is not None and set(named) != set(names):
        raise DataError(explain(f"the columns of the table, {', '.join(names)}", ", ".join(named), "leave columns out"))
    all_of_them = named is None and (onto.source or {}).get("columns") is None
    for file in files:
        source = open_source(file.path)
        source.require(names)
        extra = [name for name in source.names if name not in names] if all_of_them else []
        if extra:
            got = f"{extra[0]!r} in {file.label}, which {str(onto.path)!r} does not have"
            raise DataError(explain("the columns of the table", got, "name those of the table: columns=[...]"))
        _require_kinds(onto, file)
    learnt = []
    for column in onto.columns:
        levels = {level: code for code, level in enumerate(column.levels)}
        learnt.append(LearntColumn(column.name, column.kind, levels=levels))
    return learnt


def _require_kinds(onto: Stored, file: File) -> None:
    with reading(file.path):
        format_ = format_of(file.path)
        schema = format_.schema(file.path)
    types = dict(zip(schema.names, schema.types, strict=True))
    for column in onto.columns:
        kind = kind_of_type(column.name, types[column.name], file.label)
        is_guess = format_.suffixes[0] in GUESSED and column.kind in ("number", "whole", "bool", "text")
        if not (is_guess or kind in ("", column.kind) or (kind, column.kind) == ("whole", "number")):
            raise _other_kind(column, kind, file.label)


def _other_kind(column: Column, kind: str, where: str) -> DataError:
    return DataError(explain(f"column {column.name!r} of kind {column.kind!r} in {where} too", repr(kind), AGAIN))


def layout_like(onto: Stored, learnt: list[LearntColumn], where: str) -> FieldLayout:
    """Settle what more rows have told of the columns of a table; what its fields do not hold is refused by name."""
    places = {column.name: place for place, column in enumerate(learnt)}
    fields, first = {field.name: field for field in onto.fields}, onto.rows()
    grown = []
    for column in onto.columns:
        found, field = learnt[places[column.name]], fields[column.field]
        if found.kind != column.kind:
            raise _other_kind(column, found.kind, where)
        _require_held(column, found, field, first[field.name][:LOOKED_AT, column.place], where)
        grown.append(_grown(column, found))

    def convert(rows: np.ndarray) -> list[np.ndarray]:
        made = {field.name: np.empty((len(rows), *field.shape), field.dtype) for field in onto.fields}
        for column in onto.columns:
            values = rows[:, places[column.name]]
            made[column.field][:, column.place] = np.nan_to_num(values, nan=-1.0) if column.field == "codes" else values
        return [*made.values(), *([rows[:, -1].astype(np.int32)] if onto.numbered else [])]

    return FieldLayout(onto.fields, tuple(grown), convert, onto.numbered)


def _require_held(column: Column, found: LearntColumn, field: Field, before: np.ndarray, where: str) -> None:
    statistics = found.statistics
    if column.kind == "whole" and column.field == "codes":
        if found.missing:
            got = f"{found.missing:,} missing in {where}"
            raise DataError(explain(f"no missing values in column {column.name!r}, as in the table", got, AGAIN))
        if not found.is_code:
            got = f"{statistics.least[0]:,.0f} to {statistics.largest[0]:,.0f} in {where}"
            raise DataError(explain(f"whole numbers of 32 bits in column {column.name!r}", got, AGAIN))
    if field.dtype != "float32" or not statistics.count:
        return
    too_large = column.kind == "whole" and statistics.size[0] > EXACT_IN_FLOAT32
    if too_large or (not found.single and blurred(statistics, before[:, None])):
        got = f"numbers up to {statistics.size[0]:.6g} in {where}"
        raise DataError(explain(f"numbers in column {column.name!r} that float32 tells apart, as before", got, AGAIN))


def _grown(column: Column, found: LearntColumn) -> Column:
    levels, missing = tuple(found.levels), column.missing + found.missing
    if column.kind == "text":
        return replace(column, levels=levels, missing=missing, largest=float(len(levels) - 1))
    if not found.statistics.count:
        return replace(column, missing=missing)
    least = min(column.least, float(found.statistics.least[0]))
    largest = max(column.largest, float(found.statistics.largest[0]))
    return replace(column, levels=levels, missing=missing, least=least, largest=largest)


def in_fields_of(onto: Stored, path: Path) -> tuple[Stored, dict[str, np.ndarray]]:
    """The rows of a file in the fields of a table, in their order, and what it would know of its columns with them;
    refused where they could not be put behind it."""
    file = look_at(path)
    learnt, parts, count = known_columns(onto, [file], None), [], 0
    wanted = [column.name for column in learnt]
    for piece in format_of(file.path).pieces(file.path, wanted, 0, types_of(learnt)):
        parts.append(pack(piece.rows, learnt, file.label, count, count))
        count += len(parts[-1])
    if not count:
        raise DataError(explain(f"at least one row in {file.label}", "0 rows", "check how it was written"))
    settled = layout_like(onto, learnt, file.label)
    made = settled.convert(np.concatenate(parts))
    fields = {field.name: array for field, array in zip(settled.fields, made, strict=False)}
    return replace(onto, columns=settled.columns), fields


def types_of(learnt: list[LearntColumn]) -> dict[str, Any]:
    """Arrow types of columns whose kind is known: a CSV file is not asked to guess them again."""
    arrow = require("pyarrow")
    types = {"number": arrow.float64(), "whole": arrow.int64(), "bool": arrow.bool_(), "text": arrow.string()}
    return {column.name: types[column.kind] for column in learnt if column.kind in types}
