"""Outcomes: the left side of a formula as the numbers y of a family, and the classes behind them.

binary    0 and 1, bools, or two categories: the first is 0; or successes with their trials
class     categories, bools or whole numbers: 0, 1, 2, ...     real      numbers
ordered   the same, whose order is stated                      count     0, 1, 2, ...
survival  times with how they are censored                     positive, share      numbers above 0, within (0, 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import LEVEL_LIMIT
from tallbayes.formula.expressions import Parsed, quoted_name
from tallbayes.formula.functions.evaluation import evaluate_response
from tallbayes.formula.response.left import LeftCall, Read, call_of, times_of, trials_of, wrong_kind
from tallbayes.model.catalogue import families_of
from tallbayes.model.responses import CHECKS
from tallbayes.rows.columns import kind_of, known_codes, levels_of

CLASSES = ("class", "ordered")
KINDS = (*CHECKS, *CLASSES)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The numbers, and what 0, 1, ... stand for where that is not the numbers themselves; what a row tells `beside`."""

    y: np.ndarray
    classes: tuple[Any, ...] | None = None
    beside: dict[str, np.ndarray] = field(default_factory=dict)
    ordered: bool = False

    def notes(self, name: str) -> tuple[str, ...]:
        """Which class is which, in words."""
        if "trials" in self.beside:
            return (f"response: {name} is successes and failures; predicted is the chance of one success",)
        if "censored" in self.beside:
            return (f"response: {name}; predicted are times without censoring",)
        if self.classes is None:
            return ()
        if self.ordered:
            return (f"response: {name} in the order {' < '.join(map(repr, self.classes))}",)
        if len(self.classes) == 2:
            return (f"response: {name} = {self.classes[1]!r} is 1, {self.classes[0]!r} is 0",)
        shown = ", ".join(repr(each) for each in self.classes)
        return (f"response: classes of {name} are {shown}; the first is the reference",)


def read_outcome(
    parsed: Parsed,
    table: Any,
    kind: str,
    states: Mapping[str, Any] | None = None,
    levels: np.ndarray | None = None,
    classes: tuple[Any, ...] | None = None,
) -> Outcome:
    """The response of every row in the way of `kind`, or a DataError that names what stands against it.

    `states` and `levels` are what is known of all rows, where these are only some of them: the memory of transforms on
    the left side, and the sorted numbers that stand for classes; or the `classes` of rows that came before.
    """
    if kind not in KINDS:
        raise InputError(explain(f"one of {KINDS} for the response", repr(kind), "response='binary'"))
    call = call_of(parsed.left) if not parsed.is_column else None
    if call is not None:
        return _from_call(call, parsed, table, kind, states, levels)
    if parsed.is_column and kind_of(table.column(parsed.left_columns[0])) == "categories":
        column = table.column(parsed.left_columns[0])
        return (
            _from_categories(parsed.left, column, kind) if classes is None else _as_before(parsed.left, column, classes)
        )
    if classes is not None and kind in CLASSES and not isinstance(classes[0], str):
        levels = np.array(classes)
        _require_among(parsed.left, response_numbers(parsed, table, states), classes)
    return _from_numbers(parsed.left, response_numbers(parsed, table, states), kind, levels)


def response_numbers(parsed: Parsed, table: Any, states: Mapping[str, Any] | None = None) -> np.ndarray:
    """The values of a left side that is not text."""
    if parsed.is_column:
        return np.asarray(table.column(parsed.left_columns[0]))
    return evaluate_response(parsed.left_parts[0], table.select(parsed.left_columns), states)


def reader_of(table: Any, columns: tuple[str, ...], states: Mapping[str, Any] | None = None) -> Read:
    """The values of an expression of the left side in every row."""

    def read(text: str) -> np.ndarray:
        name = quoted_name(text) or text
        if name in columns:
            return np.asarray(table.column(name))
        return evaluate_response(text, table.select(columns), states)

    return read


def _from_call(
    call: LeftCall, parsed: Parsed, table: Any, kind: str, states: Any, levels: np.ndarray | None
) -> Outcome:
    if call.kind != kind:
        raise wrong_kind(call, kind, families_of(call.kind))
    if kind == "ordered":
        column = quoted_name(call.parts[0]) or call.parts[0]
        is_text = column in parsed.left_columns and kind_of(table.column(column)) == "categories"
        if is_text or "levels" in call.options:
            values = reader_of(table, parsed.left_columns, states)(call.parts[0])
            return _in_stated_order(call, values)
        return _from_numbers(parsed.left, response_numbers(parsed, table, states), kind, levels)
    y, beside = (trials_of if kind == "binary" else times_of)(call, reader_of(table, parsed.left_columns, states))
    _require_finite(parsed.left, y)
    for each in beside.values():
        _require_finite(parsed.left, each)
    CHECKS[kind](y, beside)
    return Outcome(y, beside=beside)


def _in_stated_order(call: LeftCall, values: np.ndarray) -> Outcome:
    """Text or numbers as their places among levels that the formula names."""
    name, levels = call.parts[0], call.options.get("levels", ())
    if not levels:
        raise _no_order(name, tuple(dict.fromkeys(values.tolist())))
    places = {level: float(place) for place, level in enumerate(levels)}
    unknown = [value for value in dict.fromkeys(values.tolist()) if value not in places]
    if unknown or len(places) < len(levels):
        got = f"{unknown[0]!r}" if unknown else "one of them twice"
        shown = ", ".join(map(repr, levels[:12]))
        raise DataError(explain(f"one of {shown} in {name!r}", got, f"ordered({name}, ...) with every level, once"))
    y = np.array([places[value] for value in values.tolist()], np.float32)
    return Outcome(y, _require_classes(name, levels, "ordered"), ordered=True)


def _no_order(name: str, levels: tuple[Any, ...]) -> DataError:
    shown = ", ".join(repr(each) for each in levels[:4])
    hint = f"ordered({name}, {shown}{', ...' if len(levels) > 4 else ''}) in their order, or an ordered category"
    return DataError(explain(f"the order of the classes of {name!r}", "text, whose order is not stated", hint))


def _from_categories(name: str, column: Any, kind: str) -> Outcome:
    if kind not in ("binary", *CLASSES):
        example = repr(levels_of(column)[0])
        raise DataError(explain(f"numbers in the response {name!r}", f"text such as {example}", "family='multinomial'"))
    if kind == "ordered" and not column.type.ordered:
        raise _no_order(name, levels_of(column))
    codes = np.concatenate([np.asarray(chunk.indices) for chunk in column.chunks])
    classes = _require_classes(name, levels_of(column), kind)
    return Outcome(codes.astype(np.float32), classes, ordered=kind == "ordered")


def _as_before(name: str, column: Any, classes: tuple[Any, ...]) -> Outcome:
    """Categories as their places among those of before; a day need not have all of them."""
    codes = known_codes(column, classes)
    if np.any(codes < 0):
        raise _not_a_class(name, column[int(np.argmax(codes < 0))].as_py(), int(np.sum(codes < 0)), classes)
    return Outcome(codes.astype(np.float32), classes)


def _require_among(name: str, values: np.ndarray, classes: tuple[Any, ...]) -> None:
    unknown = ~np.isin(values, classes)
    if np.any(unknown):
        raise _not_a_class(name, values[unknown][0].item(), int(unknown.sum()), classes)


def _not_a_class(name: str, value: Any, count: int, classes: tuple[Any, ...]) -> DataError:
    known = ", ".join(map(repr, classes[:12]))
    hint = "a fit of all rows, whose classes are others"
    return DataError(explain(f"one of {known} in the response {name!r}", f"{value!r} in {count:,} rows", hint))


def _from_numbers(name: str, values: np.ndarray, kind: str, levels: np.ndarray | None) -> Outcome:
    if values.dtype == np.bool_ and kind in ("binary", *CLASSES):
        return Outcome(values.astype(np.float32), (False, True), ordered=kind == "ordered")
    if kind in CLASSES:
        levels = np.unique(values) if levels is None else levels
        codes = np.searchsorted(levels, values)
        if np.any(levels != np.floor(levels)):
            broken = levels[levels != np.floor(levels)][0]
            raise DataError(explain(f"classes in the response {name!r}", f"{broken}", "family='linear' for numbers"))
        classes = _require_classes(name, tuple(levels.astype(int).tolist()), kind)
        return Outcome(codes.astype(np.float32), classes, ordered=kind == "ordered")
    y = values.astype(np.float64)
    _require_finite(name, y)
    CHECKS[kind](y, {})
    return Outcome(y.astype(np.float32) if kind == "binary" else y)


def _require_finite(name: str, y: np.ndarray) -> None:
    if not np.all(np.isfinite(y)):
        row = int(np.argmin(np.isfinite(y)))
        raise DataError(explain(f"finite numbers in the response {name!r}", f"{y[row]} at row {row}", "mend the rows"))


def _require_classes(name: str, levels: tuple[Any, ...], kind: str) -> tuple[Any, ...]:
    most = 2 if kind == "binary" else LEVEL_LIMIT
    if not 2 <= len(levels) <= most:
        shown = ", ".join(map(repr, levels[:6])) + (", ..." if len(levels) > 6 else "")
        wanted = "two classes" if kind == "binary" else f"2 to {LEVEL_LIMIT} classes"
        hint = "family='multinomial' for more, or a comparison on the left such as carrier == 'AA'"
        raise DataError(explain(f"{wanted} in the response {name!r}", f"{len(levels)}: {shown}", hint))
    return levels
