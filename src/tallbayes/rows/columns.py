"""Columns: what Arrow holds, as numbers or as codes of the sorted levels of a text; and which values are missing.

normalised_table(table)         numbers as they are, text and categories as codes; anything else is refused
count_missing, drop_missing     null and NaN alike; `missing_rows` tells where
part_of, take_part              weekday(t), days(t, '2020-01-01') and the like: columns made of dates and times

Dates and times are read as a clock on the wall shows them, in their own zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import DataError, InputError, explain, require_extra

BATCH_ROWS = 2**17
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# The functions of a time, and the kinds of columns that have them.
PARTS = {
    "year": ("time",),
    "month": ("time",),
    "day": ("time",),
    "weekday": ("time",),
    "hour": ("time", "clock"),
    "minute": ("time", "clock"),
    "days": ("time", "duration"),
}
TIME_KINDS = {"time": "dates", "clock": "times of day", "duration": "durations"}
DAY = 86_400_000_000
_NAME = re.compile(rf"({'|'.join(PARTS)})\((.+?)(?:, '([^']*)')?\)")
_CALL = re.compile(
    rf"`[^`]*`|\b({'|'.join(PARTS)})\s*\(\s*(`[^`]+`|[^\W\d]\w*)\s*(?:,\s*(?P<quote>['\"])(.*?)(?P=quote)\s*)?\)"
)


def require(package: str) -> Any:
    """Import a package that tables are read with."""
    return require_extra(package, "data", "formulas and tables")


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")[:200]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_text(kind: Any) -> bool:
    types = require("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


class TimePart(NamedTuple):
    """A column made of another one, of dates or times, by one of the functions of `PARTS`."""

    function: str
    column: str
    since: str | None = None

    @property
    def name(self) -> str:
        return (
            f"{self.function}({self.column})"
            if self.since is None
            else f"{self.function}({self.column}, '{self.since}')"
        )


def part_of(name: str, names: Sequence[str]) -> TimePart | None:
    """What a name means that is not itself the name of a column.

    >>> part_of("days(sold, '2020-01-01')", ["sold", "price"])
    TimePart(function='days', column='sold', since='2020-01-01')
    """
    found = None if name in names else _NAME.fullmatch(name)
    return TimePart(*found.groups()) if found else None


def quote_parts(text: str) -> str:
    """A formula with its functions of times as names of columns.

    >>> quote_parts('late ~ C(hour(sold)) + days(`sold at`, "2020-01-01")')
    "late ~ C(`hour(sold)`) + `days(sold at, '2020-01-01')`"
    """

    def quoted(match: re.Match[str]) -> str:
        return match[0] if match[1] is None else f"`{TimePart(match[1], match[2].strip('`'), match[4]).name}`"

    return _CALL.sub(quoted, text)


def parts_in(text: str) -> tuple[str, ...]:
    """The names that `quote_parts` has put into a text."""
    return tuple(dict.fromkeys(name for name in re.findall("`([^`]*)`", text) if _NAME.fullmatch(name)))


def not_a_part(text: str) -> InputError:
    hint = "hour(t), weekday(t) or days(t, '2020-01-01') of a column t; arithmetic goes around it: I(hour(t)**2)"
    return InputError(explain("functions of a time on a column by itself", repr(text), hint))


def time_kind(type_: Any) -> str:
    """ "time", "clock" or "duration"; empty for what is none of these."""
    types = require("pyarrow").types
    if types.is_dictionary(type_):
        return time_kind(type_.value_type)
    if types.is_timestamp(type_) or types.is_date(type_):
        return "time"
    return "clock" if types.is_time(type_) else "duration" if types.is_duration(type_) else ""


def microseconds(column: Any) -> Any:
    """An Arrow column of times as whole numbers: since 1970 or midnight of the wall's clock, or of a duration."""
    arrow = require("pyarrow")
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type) and column.type.tz is not None:
        column = require("pyarrow.compute").local_timestamp(column)
    return column.cast(type_of_kind(time_kind(column.type)), safe=False).cast(arrow.int64())


def type_of_kind(kind: str) -> Any:
    """Arrow's type of a kind of times, in microseconds."""
    arrow = require("pyarrow")
    return {"time": arrow.timestamp("us"), "clock": arrow.time64("us"), "duration": arrow.duration("us")}[kind]


def take_part(part: TimePart, column: Any) -> Any:
    """The Arrow column that a part makes of times as they were read: whole numbers, days, or names of weekdays."""
    kind = time_kind(column.type)
    if not kind:
        arrow = require("pyarrow")
        shown = column.drop_null()
        text = is_text(column.type.value_type if arrow.types.is_dictionary(column.type) else column.type)
        example = f" such as {shown[0].as_py()!r}" if len(shown) else ""
        hint = "dates as 2020-01-31 or 2020-01-31 14:05:00 in a file, or pandas.to_datetime on the column"
        got = f"{'text' if text else column.type}{example}"
        raise DataError(explain(f"dates or times in column {part.column!r}, for {part.name}", got, hint))
    require_part(part, kind)
    counts = microseconds(column)
    blank = np.asarray(counts.is_null()) if counts.null_count else None
    return part_values(part, kind, counts.fill_null(0).to_numpy(), blank)


def require_part(part: TimePart, kind: str) -> None:
    """Refuse a function that such a column does not have, and days since no date."""
    name = part.column
    if kind not in PARTS[part.function]:
        usable = [each for each, kinds in PARTS.items() if kind in kinds]
        expected = (
            f"{' or '.join(TIME_KINDS[each] for each in PARTS[part.function])} in column {name!r}, for {part.name}"
        )
        raise DataError(explain(expected, TIME_KINDS[kind], " or ".join(f"{each}({name})" for each in usable)))
    needs_date = part.function == "days" and kind == "time"
    if needs_date == (part.since is None) or not _is_date(part.since):
        expected = (
            f"a date that {part.function} are counted from" if needs_date else f"{part.function} of the column alone"
        )
        hint = f"""days({name}, "2020-01-01")""" if needs_date else f"{part.function}({name})"
        raise InputError(explain(expected, part.name, hint))


def _is_date(text: str | None) -> bool:
    try:
        return text is None or not np.isnat(np.datetime64(text))
    except ValueError:
        return False


def part_values(part: TimePart, kind: str, counts: np.ndarray, blank: np.ndarray | None) -> Any:
    """The same of microseconds; `blank` are those that are missing."""
    arrow, dates = require("pyarrow"), counts.astype("datetime64[us]")
    if part.function == "weekday":
        # The first of January 1970 was a Thursday.
        codes = ((counts // DAY + 3) % 7).astype(np.int32)
        return arrow.DictionaryArray.from_arrays(arrow.array(codes, mask=blank), arrow.array(WEEKDAYS))
    if part.function == "days":
        since = 0 if kind == "duration" else np.datetime64(part.since, "us").astype(np.int64)
        return arrow.array((counts - since) / DAY, mask=blank)
    if part.function == "hour":
        return arrow.array(counts % DAY // (DAY // 24), mask=blank)
    if part.function == "minute":
        return arrow.array(counts % (DAY // 24) // (DAY // 1440), mask=blank)
    months = dates.astype("datetime64[M]")
    if part.function == "day":
        return arrow.array((dates.astype("datetime64[D]") - months).astype(np.int64) + 1, mask=blank)
    since_1970 = months.astype(np.int64)
    return arrow.array(since_1970 // 12 + 1970 if part.function == "year" else since_1970 % 12 + 1, mask=blank)


def base_columns(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """What has to be read for these columns, some of which may be parts of others."""
    parts = [(part_of(name, names), name) for name in wanted]
    return list(dict.fromkeys(name if part is None else part.column for part, name in parts))


def column_from(name: str, names: Sequence[str], read: Callable[[str], Any], keep_order: bool = False) -> Any:
    """A column or a part of one, normalised."""
    part = part_of(name, names)
    if part is None:
        return normalised(name, read(name), keep_order)
    return normalised(name, take_part(part, read(part.column)), keep_order=True)


def normalised_table(table: Any, wanted: Sequence[str] | None = None) -> Any:
    """An Arrow table with every column normalised, or with those that are wanted."""
    names = table.column_names
    return table_of({name: column_from(name, names, table.column) for name in wanted or names})


def table_of(columns: dict[str, Any]) -> Any:
    """The Arrow table of columns that must be of one length."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(explain("columns with the same number of rows", f"{lengths}", "check how they were cut"))
    return require("pyarrow").table(columns)


def normalised(name: str, column: Any, keep_order: bool) -> Any:
    """Numbers as they are, text and categories as codes of their levels in order; anything else is refused."""
    arrow = require("pyarrow")
    types, kind = arrow.types, column.type
    # The first value tells in most cases that not all are missing.
    if len(column) and _missing(column[:1]).all() and _missing(column).all():
        raise DataError(explain(f"values in column {name!r}", "all of them missing", "leave the column out"))
    if is_text(kind) or types.is_dictionary(kind):
        encoded = column if types.is_dictionary(kind) else column.dictionary_encode()
        return _in_order(encoded, keep_order=types.is_dictionary(kind) and (keep_order or kind.ordered))
    if types.is_decimal(kind) or types.is_float16(kind):
        return column.cast(arrow.float64())
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or len(column) == 0:
        return column
    raise unusable(name, kind)


def unusable(name: str, kind: Any, where: str = "") -> DataError:
    """What to say of dates, lists and the like."""
    hint = "numbers or text, text in UTF-8; or leave the column out"
    if time_kind(kind):
        usable = [each for each, kinds in PARTS.items() if time_kind(kind) in kinds and each != "days"]
        length = f"days({name})" if time_kind(kind) == "duration" else f"days({name}, '2020-01-01') for a number"
        calls = [*(f"{each}({name})" for each in usable), *([length] if time_kind(kind) != "clock" else [])]
        category = (
            "; C(...) around one makes it a category, which weekday is already" if time_kind(kind) == "time" else ""
        )
        hint = f"a part of it in the formula: {', '.join(calls)}{category}"
    return DataError(explain(f"numbers or text in column {name!r}{where}", f"{kind}", hint))


def _in_order(encoded: Any, keep_order: bool) -> Any:
    """A dictionary column without unused levels, the levels sorted unless they have an order of their own."""
    arrow = require("pyarrow")
    chunked = encoded if isinstance(encoded, arrow.ChunkedArray) else arrow.chunked_array([encoded])
    if len(chunked) == 0:
        return encoded
    whole = arrow.concat_arrays(chunked.unify_dictionaries().chunks)
    levels = whole.dictionary.to_pylist()
    codes = whole.indices.cast(arrow.int32()).fill_null(-1).to_numpy()
    present = np.bincount(codes + 1, minlength=len(levels) + 1)[1:] > 0
    used = [code for code, level in enumerate(levels) if present[code] and level is not None]
    order = used if keep_order else sorted(used, key=lambda code: levels[code])
    if order == list(range(len(levels))):
        return whole
    place = np.full(len(levels) + 1, -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    moved = place[codes]
    indices = arrow.array(moved, mask=moved < 0 if whole.null_count or None in levels else None)
    kept = arrow.array([levels[code] for code in order])
    return arrow.DictionaryArray.from_arrays(indices, kept, ordered=keep_order and encoded.type.ordered)


def count_missing(table: Any) -> dict[str, int]:
    """Missing values by column, those without any left out."""
    return {name: int(rows.sum()) for name, rows in missing_rows(table).items()}


def missing_rows(table: Any) -> dict[str, np.ndarray]:
    """Which rows miss a value, by column, those without any left out."""
    found = {name: _missing(table.column(name)) for name in table.column_names}
    return {name: rows for name, rows in found.items() if rows.any()}


def drop_missing(table: Any) -> Any:
    """The rows without a missing value, and without the levels that these no longer have."""
    return cut_levels(complete_rows(table))


def complete_rows(table: Any) -> Any:
    """The rows without a missing value, with all levels."""
    keep = np.ones(table.num_rows, bool)
    for name in table.column_names:
        keep &= ~_missing(table.column(name))
    return table.filter(require("pyarrow").array(keep))


def cut_levels(table: Any) -> Any:
    """The same rows without the levels that none of them has."""
    arrow = require("pyarrow")
    for place, column in enumerate(table.columns):
        if arrow.types.is_dictionary(column.type):
            table = table.set_column(place, table.field(place).name, _in_order(column, keep_order=True))
    return table


def _missing(column: Any) -> np.ndarray:
    if not column.null_count and not require("pyarrow").types.is_floating(column.type):
        return np.zeros(len(column), bool)
    return np.asarray(column.is_null(nan_is_null=True))


def levels_of(column: Any) -> tuple[Any, ...]:
    """The distinct values: of text in the order of its levels, of numbers in their own."""
    arrow = require("pyarrow")
    if arrow.types.is_dictionary(column.type):
        whole = column.chunk(0) if isinstance(column, arrow.ChunkedArray) else column
        return tuple(whole.dictionary.to_pylist())
    return tuple(np.unique(np.asarray(column.unique())).tolist())


def known_codes(column: Any, levels: Sequence[Any]) -> np.ndarray:
    """Where each value stands among the levels; -1 for one that is not among them."""
    arrow = require("pyarrow")
    chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
    if arrow.types.is_dictionary(column.type):
        rank = {level: place for place, level in enumerate(levels)}
        parts = []
        for chunk in chunks:
            places = np.array([rank.get(level, -1) for level in chunk.dictionary.to_pylist()] or [-1])
            parts.append(places[np.asarray(chunk.indices)])
        return np.concatenate(parts) if parts else np.empty(0, int)
    values, known = np.asarray(column), np.asarray(levels)
    order = np.argsort(known, kind="stable")
    codes = order[np.minimum(np.searchsorted(known[order], values), len(known) - 1)]
    return np.where(known[codes] == values, codes, -1)


def level_codes(column: Any, levels: Sequence[Any]) -> np.ndarray:
    """The same, but that all values must be known."""
    codes = known_codes(column, levels)
    if np.any(codes < 0):
        unknown = column[int(np.argmax(codes < 0))].as_py()
        raise DataError(explain(f"one of {len(levels)} known categories", repr(unknown), "leave such rows out"))
    return codes


def kind_of(column: Any) -> str:
    return "categories" if require("pyarrow").types.is_dictionary(column.type) else "numbers"
