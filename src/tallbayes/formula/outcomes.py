"""Outcomes: the left side of a formula as the numbers y of a family, and the classes behind them.

binary   0 and 1, bools, or two categories: the first is 0      real    numbers
class    categories, bools or whole numbers: 0, 1, 2, ...       count   0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import LEVEL_LIMIT, evaluate_response
from tallbayes.formula.expressions import Parsed
from tallbayes.model.responses import CHECKS
from tallbayes.rows.columns import kind_of, levels_of

KINDS = (*CHECKS, "class")


@dataclass(frozen=True, eq=False)
class Outcome:
    """The numbers, and what 0, 1, ... stand for where that is not the numbers themselves."""

    y: np.ndarray
    classes: tuple[Any, ...] | None = None

    def notes(self, name: str) -> tuple[str, ...]:
        """Which class is which, in words."""
        if self.classes is None:
            return ()
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
) -> Outcome:
    """The response of every row in the way of `kind`, or a DataError that names what stands against it.

    `states` and `levels` are what is known of all rows, where these are only some of them: the memory of transforms on
    the left side, and the sorted numbers that stand for classes.
    """
    if kind not in KINDS:
        raise InputError(explain(f"one of {KINDS} for the response", repr(kind), "response='binary'"))
    if parsed.is_column and kind_of(table.column(parsed.left_columns[0])) == "categories":
        return _from_categories(parsed.left, table.column(parsed.left_columns[0]), kind)
    return _from_numbers(parsed.left, response_numbers(parsed, table, states), kind, levels)


def response_numbers(parsed: Parsed, table: Any, states: Mapping[str, Any] | None = None) -> np.ndarray:
    """The values of a left side that is not text."""
    if parsed.is_column:
        return np.asarray(table.column(parsed.left_columns[0]))
    return evaluate_response(parsed.left, table.select(parsed.left_columns), states)


def _from_categories(name: str, column: Any, kind: str) -> Outcome:
    if kind in ("real", "count"):
        example = repr(levels_of(column)[0])
        raise DataError(explain(f"numbers in the response {name!r}", f"text such as {example}", "family='multinomial'"))
    codes = np.concatenate([np.asarray(chunk.indices) for chunk in column.chunks])
    return Outcome(codes.astype(np.float32), _require_classes(name, levels_of(column), kind))


def _from_numbers(name: str, values: np.ndarray, kind: str, levels: np.ndarray | None) -> Outcome:
    if values.dtype == np.bool_ and kind in ("binary", "class"):
        return Outcome(values.astype(np.float32), (False, True))
    if kind == "class":
        levels = np.unique(values) if levels is None else levels
        codes = np.searchsorted(levels, values)
        if np.any(levels != np.floor(levels)):
            broken = levels[levels != np.floor(levels)][0]
            raise DataError(explain(f"classes in the response {name!r}", f"{broken}", "family='linear' for numbers"))
        return Outcome(codes.astype(np.float32), _require_classes(name, tuple(levels.astype(int).tolist()), kind))
    y = values.astype(np.float64)
    if not np.all(np.isfinite(y)):
        row = int(np.argmin(np.isfinite(y)))
        raise DataError(explain(f"finite numbers in the response {name!r}", f"{y[row]} at row {row}", "mend the rows"))
    CHECKS[kind](y)
    return Outcome(y.astype(np.float32) if kind == "binary" else y)


def _require_classes(name: str, levels: tuple[Any, ...], kind: str) -> tuple[Any, ...]:
    most = 2 if kind == "binary" else LEVEL_LIMIT
    if not 2 <= len(levels) <= most:
        shown = ", ".join(map(repr, levels[:6])) + (", ..." if len(levels) > 6 else "")
        wanted = "two classes" if kind == "binary" else f"2 to {LEVEL_LIMIT} classes"
        hint = "family='multinomial' for more, or a comparison on the left such as carrier == 'AA'"
        raise DataError(explain(f"{wanted} in the response {name!r}", f"{len(levels)}: {shown}", hint))
    return levels
