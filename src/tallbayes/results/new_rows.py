"""New rows: what a prediction reads of them, batch by batch, with their numbers in the source and what is kept of them.

A row that misses a value, or has a category that the fit does not know, stops the prediction with its number, its
column and the option that lets it pass; with missing="nan" or unknown="nan" it is counted, and predicted as NaN.

Rows of a table on disk, which are in random order there, come in the order of its source: by 4 bytes a row that tell
where each of them lies. Beyond IN_ORDER_BYTES, where looking each of them up might read the disk once a row, they come
as they lie, and their numbers tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain, suggestion
from tallbayes.moments import Floats
from tallbayes.posterior.prediction import Unpredicted
from tallbayes.rows.columns import BATCH_ROWS, missing_rows, normalised_table, require
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.packing import packed_batches
from tallbayes.rows.sources import Source, open_source

if TYPE_CHECKING:
    from tallbayes.formula.encoding import Encoding
    from tallbayes.formula.groups.design import GroupDesign, GroupEncoding

CHOICES = ("error", "nan")
IN_ORDER_BYTES = 2**31
MOST_NAMED = 20
UNNUMBERED = (
    "the table has no row numbers, as those of earlier versions: predictions are in its own, shuffled order; "
    "make it again from its files, or keep a column that tells rows apart"
)
UNORDERED = "rows are in the order of the table, which is shuffled; column row has their numbers in the source"


@dataclass(frozen=True, eq=False)
class Asked:
    """What is asked of new rows beside a prediction: columns to keep, what to do with rows that cannot be predicted,
    the offset, an array or the name of a column, and whether columns are to be float64."""

    keep: tuple[str, ...] = ()
    missing: str = "error"
    unknown: str = "error"
    offset: Any = None
    precise: bool = False

    def __post_init__(self) -> None:
        for name, given in (("missing", self.missing), ("unknown", self.unknown)):
            if given not in CHOICES:
                raise InputError(explain(f"{name} one of {CHOICES}", repr(given), f"{name}='nan'"))


@dataclass(frozen=True, eq=False)
class NewRows:
    """A batch of rows: which of them are usable, and what a predictor reads of these; then what belongs to all.

    `groups` are the group terms of a formula over the rows that are usable; a group that the fit does not know has the
    code -1.
    """

    inputs: Any
    usable: np.ndarray
    numbers: np.ndarray | None
    kept: Mapping[str, Any]
    unpredicted: Unpredicted
    notes: tuple[str, ...] = ()
    groups: tuple[GroupDesign, ...] = ()


class _Sieve:
    """The rows of one batch that can be predicted, as reasons against some of them come up."""

    def __init__(self, asked: Asked, count: int, numbers: np.ndarray | None, start: int) -> None:
        self.asked, self.numbers, self.start = asked, numbers, start
        self.usable = np.ones(count, bool)
        self.missing: dict[str, int] = {}
        self.unknown: dict[str, int] = {}

    def drop_missing(self, found: Mapping[str, np.ndarray], what: str = "a missing value") -> np.ndarray:
        """Leave out those of the rows left that miss something, by column; which ones stay."""
        if found and self.asked.missing == "error":
            name, where = self._first(found)
            hint = "missing='nan' to predict such rows as NaN, or fill them in"
            raise DataError(explain(f"no missing value in {name!r}", f"{what} {where}", hint))
        return self._drop(found, self.missing)

    def drop_unknown(self, found: Mapping[str, np.ndarray], coding: Any, table: Any) -> np.ndarray:
        """The same for categories that a coding does not know in a table of the rows left."""
        if found and self.asked.unknown == "error":
            name, where = self._first(found)
            value = table.column(name)[int(np.argmax(found[name]))].as_py() if name in table.column_names else "one"
            hint = f"unknown='nan' to predict such rows as NaN; known are {coding.known_categories(name)}"
            raise DataError(explain(f"a known category in column {name!r}", f"{value!r} {where}", hint))
        return self._drop(found, self.unknown)

    def rows(self, inputs: Any, kept: Mapping[str, Any], notes: tuple[str, ...] = ()) -> NewRows:
        """The batch as it is now."""
        gone = Unpredicted(int((~self.usable).sum()), self.missing, self.unknown)
        return NewRows(inputs, self.usable, self.numbers, kept, gone, notes)

    def _drop(self, found: Mapping[str, np.ndarray], counts: dict[str, int]) -> np.ndarray:
        """A row is counted under the first of its columns, so that counts add up."""
        left = np.flatnonzero(self.usable)
        stays = np.ones(len(left), bool)
        for name, lost in found.items():
            counts[name] = counts.get(name, 0) + int((lost & stays).sum())
            stays &= ~lost
        self.usable[left[~stays]] = False
        return stays

    def _first(self, found: Mapping[str, np.ndarray]) -> tuple[str, str]:
        """The column and the place, in words, of the first row that is lost."""
        left = np.flatnonzero(self.usable)
        name = min(found, key=lambda each: int(np.argmax(found[each])))
        place, count = left[int(np.argmax(found[name]))], int(found[name].sum())
        more = f", and {count - 1:,} more in its batch" if count > 1 else ""
        if self.numbers is None:
            return name, f"at place {self.start + place:,} of a table without row numbers{more}"
        return name, f"in row {self.numbers[place]:,} (the first is 0){more}"


def encoded_rows(encoding: Encoding, rows: Any, asked: Asked) -> Iterator[NewRows]:
    """Columns and offsets of the rows of a table, by the encoding of a fit."""
    source, wanted, offset = open_source(_as_table(rows)), list(encoding.coding.kinds), asked.offset
    column = offset if isinstance(offset, str) else encoding.offset if offset is None else None
    if column == "":
        raise InputError(explain("offset=, since the fit had one", "none", "an array, or the name of a column"))
    grouped = [name for group in encoding.groups for name in group.columns]
    needed = list(dict.fromkeys([*wanted, *encoding.offset_columns, *grouped, *([column] if column else [])]))
    _require_kept(asked.keep, source.names, source.label)
    for start, numbers, piece, also in _numbered(source, [*needed, *asked.keep] or list(source.names[:1])):
        sieve = _Sieve(asked, piece.num_rows, numbers, start)
        sieve.drop_missing(missing_rows(piece.select(needed)))
        effects = [_effects(group, piece.select(list(group.columns)), sieve) for group in encoding.groups]
        x = _encoded(encoding, piece.select(wanted), sieve)
        given = np.asarray(piece.column(column), np.float64) if column else offset
        if not column and np.ndim(offset) == 1:
            given = np.asarray(offset, np.float64)[start : start + piece.num_rows]
        offsets = as_offsets(given, piece.num_rows, sieve.usable)
        if encoding.offset_terms:
            offsets = offsets + _offset_terms(encoding, piece, sieve.usable)
        offsets = offsets / encoding.response_scale
        kept = also | {name: piece.column(name) for name in asked.keep}
        found = sieve.rows((x, offsets), kept, notes_of(source.stored))
        groups = [
            group.design(codes[found.usable], z[found.usable])
            for group, (codes, z) in zip(encoding.groups, effects, strict=True)
        ]
        yield replace(found, groups=tuple(groups))


def _effects(group: GroupEncoding, piece: Any, sieve: _Sieve) -> tuple[np.ndarray, np.ndarray]:
    """Codes and effects of all rows of a piece; of those that cannot be predicted they mean nothing."""
    codes, z = np.full(piece.num_rows, -1, np.int32), np.full((piece.num_rows, len(group.names)), np.nan)
    array, coding = require("pyarrow").array, group.coding
    if sieve.usable.any():
        table = normalised_table(piece.filter(array(sieve.usable)))
        coding.require_kinds(table)
        stays = sieve.drop_unknown(coding.unknown_rows(table), coding, table)
        table = table if stays.all() else table.filter(array(stays))
    if sieve.usable.any():
        table = normalised_table(table)
        own = group.effects(table, finite=False)
        lost = {name: ~np.isfinite(column) for name, column in zip(group.names, own.T, strict=True)}
        stays = sieve.drop_missing({name: rows for name, rows in lost.items() if rows.any()}, "one that is not finite")
        codes[sieve.usable], z[sieve.usable] = group.levels.codes(table)[stays], own[stays]
    return codes, z


def _offset_terms(encoding: Encoding, piece: Any, usable: np.ndarray) -> Floats:
    """What offset(...) in the formula adds, for the rows that are usable."""
    from tallbayes.formula.encoding import offset_of

    if not usable.any():
        return np.zeros(0)
    rows = piece.select(list(encoding.offset_columns)).filter(require("pyarrow").array(usable))
    return offset_of(encoding.offset_terms, encoding.offset_columns, normalised_table(rows))


def _encoded(encoding: Encoding, piece: Any, sieve: _Sieve) -> np.ndarray:
    """The columns of those rows of a piece that can be predicted."""
    coding, array = encoding.coding, require("pyarrow").array
    if not coding.names:
        return np.ones((int(sieve.usable.sum()), 1))
    if sieve.usable.any():
        table = normalised_table(piece if sieve.usable.all() else piece.filter(array(sieve.usable)))
        coding.require_kinds(table)
        stays = sieve.drop_unknown(coding.unknown_rows(table), coding, table)
        table = table if stays.all() else table.filter(array(stays))
    if not sieve.usable.any():
        return np.empty((0, len(coding.names)))
    x = encoding.transform(normalised_table(table), finite=False, precise=sieve.asked.precise)
    lost = np.isnan(x)
    if not lost.any():
        return x
    by_name = {name: lost[:, place] for place, name in enumerate(coding.names) if lost[:, place].any()}
    return x[sieve.drop_missing(by_name, "one that is not finite")]


def array_rows(x: np.ndarray, offset: Any, numbers: np.ndarray | None, asked: Asked, start: int) -> NewRows:
    """Rows of numbers as they are; NaN is missing, and an infinity is refused."""
    if np.any(np.isinf(x)):
        row = int(np.argmax(np.isinf(x).any(axis=1)))
        raise DataError(
            explain("finite numbers in x", f"an infinite one in row {start + row:,}", "leave such rows out")
        )
    sieve, blank = _Sieve(asked, len(x), numbers, start), np.isnan(x)
    stays = sieve.drop_missing({"x": blank.any(axis=1)} if blank.any() else {})
    left = x if stays.all() else x[stays]
    return sieve.rows((left, as_offsets(offset, len(x), sieve.usable)), {})


def stored_parts(stored: Stored, asked: Asked) -> Iterator[tuple[int, np.ndarray | None, Any, Any]]:
    """First place, numbers, x and offset of the parts of a table of arrays."""
    arrays, order = stored.rows(), _order(stored)
    if "x" not in arrays:
        fields = ", ".join(arrays)
        raise DataError(explain("a field 'x' in the table", f"the fields {fields}", "the table that the fit was given"))
    if asked.keep:
        raise InputError(explain("columns to keep", "a table of arrays, which has none", "leave keep out"))
    for start in range(0, len(stored), BATCH_ROWS):
        places = slice(start, start + BATCH_ROWS) if order is None else order[start : start + BATCH_ROWS]
        offset = arrays["offset"][places] if "offset" in arrays else None
        yield start, _numbers(stored, order, start, BATCH_ROWS), np.asarray(arrays["x"][places]), offset


def _numbered(source: Source, names: list[str]) -> Iterator[tuple[int, np.ndarray | None, Any, dict[str, Any]]]:
    """First row, numbers and pieces of a source; and of a table of several files the file of every row."""
    stored, start = source.stored, 0
    order = None if stored is None else _order(stored)
    pieces = source.pieces(names)
    if stored is not None and order is not None:
        pieces = packed_batches(stored, list(dict.fromkeys(names)), order=order, as_they_came=True)
    for piece in pieces:
        numbers: np.ndarray | None = np.arange(start, start + piece.num_rows)
        if stored is not None:
            numbers = _numbers(stored, order, start, piece.num_rows)
        yield start, numbers, piece, {} if stored is None or numbers is None else _files(stored, numbers)
        start += piece.num_rows


def _order(stored: Stored) -> np.ndarray | None:
    return stored.source_order() if stored.numbered and stored.num_bytes <= IN_ORDER_BYTES else None


def _numbers(stored: Stored, order: np.ndarray | None, start: int, count: int) -> np.ndarray | None:
    if not stored.knows_rows:
        return None
    numbers = stored.row_numbers() if stored.numbered and (order is None or stored.withdrawals) else None
    if numbers is None:
        return np.arange(start, min(start + count, len(stored)))
    places = slice(start, start + count)
    return np.asarray(numbers[places if order is None else order[places]], np.int64)


def notes_of(stored: Stored | None) -> tuple[str, ...]:
    if stored is None or (stored.knows_rows and (stored.num_bytes <= IN_ORDER_BYTES or not stored.numbered)):
        return ()
    return (UNORDERED if stored.knows_rows else UNNUMBERED,)


def _files(stored: Stored, numbers: np.ndarray) -> dict[str, Any]:
    """Which file each row is of, and its number there, where there are several."""
    paths = [Path(part.path) for part in stored.parts]
    if len(paths) < 2 or not all(part.path for part in stored.parts):
        return {}
    names = [path.name for path in paths]
    arrow = require("pyarrow")
    sizes = np.array([part.rows for part in stored.parts])
    ends = np.cumsum(sizes)
    which = np.searchsorted(ends, numbers, side="right")
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    file = arrow.DictionaryArray.from_arrays(arrow.array(which.astype(np.int32)), arrow.array(labels))
    return {"file": file, "file_row": numbers - (ends - sizes)[which]}


def as_offsets(given: Any, count: int, usable: np.ndarray) -> Floats:
    """A number for each of the rows that are usable, given one for each of all, or one for all."""
    if given is None:
        return np.zeros(int(usable.sum()))
    offsets = np.broadcast_to(np.asarray(given, np.float64), (count,)) if np.ndim(given) == 0 else np.asarray(given)
    if offsets.shape != (count,) or not np.all(np.isfinite(offsets[usable])):
        raise DataError(
            explain(f"a finite offset for each of {count} rows", f"shape {offsets.shape}", "one number a row")
        )
    return offsets[usable].astype(np.float64)


def _as_table(rows: Any) -> Any:
    """One row may be given as a dict of values, several as a list of such dicts."""
    if isinstance(rows, Mapping) and rows and all(np.ndim(value) == 0 for value in rows.values()):
        rows = [rows]
    if isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows):
        return {name: [row.get(name) for row in rows] for name in rows[0]}
    return rows


def kept_arrays(keep: Sequence[str], rows: Any, count: int) -> dict[str, Any]:
    """Columns to keep, of rows that are arrays by name."""
    names = tuple(name for name in rows if isinstance(name, str)) if isinstance(rows, Mapping) else ()
    _require_kept(keep, names, "the rows")
    kept = {name: np.asarray(rows[name]) for name in keep}
    for name, values in kept.items():
        if values.shape != (count,):
            got = f"shape {values.shape}"
            raise DataError(explain(f"one value of {name!r} for each of {count:,} rows", got, "a 1-D array"))
    return kept


def _require_kept(keep: Sequence[str], names: Sequence[str], label: str) -> None:
    for name in keep:
        if name not in names:
            more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
            there = f"one of {', '.join(names[:MOST_NAMED])}{more}" if names else "leave keep out: they have no names"
            raise DataError(explain(f"a column {name!r} to keep", f"none in {label}", suggestion(name, names, there)))
