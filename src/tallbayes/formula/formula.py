"""Formulas: from "late ~ hour + C(carrier)" and a table to the arrays of a regression.

build_design(formula, table)   x (N, d) standardised and without the intercept, y, names, offset, weights,
                               and the encoding that makes x of new rows
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import Coding, learn
from tallbayes.formula.encoding import Encoding, require_complete
from tallbayes.formula.expressions import Parsed, parse
from tallbayes.formula.outcomes import Outcome, read_outcome
from tallbayes.formula.standardising import standardise as standardise_columns
from tallbayes.rows.columns import count_missing, drop_missing, kind_of, levels_of
from tallbayes.rows.sources import Source, as_arrow, open_source

MISSING = ("error", "drop")


@dataclass(frozen=True, eq=False)
class Design:
    """The arrays of a regression, the names of the columns of x, and how they came about.

    x = (raw - means) / scales with the encoding's means and scales; `dropped` rows had a missing value; `notes` say
    in words what was decided.
    """

    x: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]
    intercept: bool
    offset: np.ndarray | None
    weights: np.ndarray | None
    dropped: int
    encoding: Encoding
    notes: tuple[str, ...]

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """What a family reads; an intercept alone is a column of ones."""
        x = self.x if self.names else np.ones((len(self.y), 1), np.float32)
        return {"x": x, "y": self.y} | ({} if self.offset is None else {"offset": self.offset})


def build_design(
    formula: str,
    table: Any,
    *,
    standardise: bool = True,
    missing: str = "error",
    weights: Any = None,
    offset: Any = None,
    response: str = "binary",
    standardise_response: bool = False,
) -> Design:
    """Read the columns that a formula names and make the arrays of a regression of them.

    With `standardise` every column of x, those of categories too, is centred and divided by its standard deviation
    over the rows, whatever their weights; without an intercept in the formula it is divided only. `weights` and
    `offset` are arrays or names of columns. Rows with a missing value in any column used are refused, or dropped with
    `missing="drop"`. With `standardise_response` y is in standard deviations, about its mean where there is an
    intercept to take that up.

    >>> rows = {"late": ["no", "yes", "no", "yes"], "hour": [6.0, 18.0, 12.0, 12.0]}
    >>> design = build_design("late ~ hour", rows, standardise=False)
    >>> design.names, design.x.ravel().tolist(), design.y.tolist()
    (('hour',), [6.0, 18.0, 12.0, 12.0], [0.0, 1.0, 0.0, 1.0])
    """
    source = open_source(table)
    beside = {"weights": weights, "offset": offset}
    parsed = read_formula(formula, source, beside, missing)
    rows, num_rows = _complete_rows(source, parsed, beside, missing)
    outcome = read_outcome(parsed, rows, response)
    # A formula of the intercept alone reads no column, and a table of no columns has no rows.
    right = rows.select(parsed.right_columns or parsed.left_columns)
    coding = learn(parsed.right, parsed.right_columns, right)
    require_terms(coding, formula)
    done = standardise_columns(coding, right, standardise)
    means, scales = tuple(done.means.tolist()), tuple(done.scales.tolist())
    dropped = num_rows - rows.num_rows
    design = Design(
        x=done.x,
        y=outcome.y,
        names=coding.names,
        intercept=coding.intercept,
        offset=numbers_beside("offset", offset, rows),
        weights=numbers_beside("weights", weights, rows),
        dropped=dropped,
        encoding=Encoding(coding, means, scales, parsed.left, outcome.classes),
        notes=notes_of(parsed, outcome, dropped, num_rows),
    )
    return _with_standardised_response(design) if standardise_response else design


def read_formula(formula: str, source: Source, beside: dict[str, Any], missing: str) -> Parsed:
    """The sides of a formula that fits the columns of a source."""
    if missing not in MISSING:
        raise InputError(explain(f"missing one of {MISSING}", repr(missing), "missing='drop'"))
    parsed = parse(formula, source, apart=[name for name in beside.values() if isinstance(name, str)])
    _require_response_apart(parsed)
    return parsed


def require_terms(coding: Coding, formula: str) -> None:
    if not coding.names and not coding.intercept:
        raise InputError(explain("at least one term or the intercept", repr(formula), "late ~ 1"))


def notes_of(parsed: Parsed, outcome: Outcome, dropped: int, num_rows: int) -> tuple[str, ...]:
    """What was decided on the way to the rows, in words."""
    notes = outcome.notes(parsed.left)
    if dropped:
        notes += (f"missing: {dropped} of {num_rows} rows had a missing value and were dropped",)
    return notes


def _with_standardised_response(design: Design) -> Design:
    mean = float(design.y.mean()) if design.intercept else 0.0
    scale = float(design.y.std())
    note = response_units(design.encoding.response, mean, scale, design.intercept)
    encoding = replace(design.encoding, response_mean=mean, response_scale=scale)
    return replace(
        design,
        y=in_units(design.y, encoding),
        offset=None if design.offset is None else design.offset / scale,
        encoding=encoding,
        notes=(*design.notes, note),
    )


def response_units(response: str, mean: float, scale: float, intercept: bool) -> str:
    """A note on the units of a standardised response, which must vary."""
    if scale == 0:
        raise DataError(explain(f"a response {response!r} that varies", f"{mean:g} in all rows", "check the column"))
    about = f"taken about its mean {mean:.6g}, and " if intercept else ""
    return (
        f"response: {response} is {about}in units of its sd {scale:.6g} inside, and so are the scales of all priors; "
        "results are in its own units"
    )


def in_units(y: np.ndarray, encoding: Encoding) -> np.ndarray:
    """A response about its mean, in standard deviations."""
    return ((y - encoding.response_mean) / encoding.response_scale).astype(np.float32)


def _require_response_apart(parsed: Parsed) -> None:
    if parsed.is_column and parsed.left_columns[0] in parsed.right_columns:
        hint = "leave it out on the right"
        raise InputError(explain("a response that is not among the terms", f"{parsed.left!r} on both sides", hint))


def _complete_rows(source: Source, parsed: Parsed, beside: dict[str, Any], missing: str) -> tuple[Any, int]:
    """All columns that are used, without the rows that miss a value; and how many rows there were."""
    named = [name for name in beside.values() if isinstance(name, str)]
    rows = source.read([*parsed.left_columns, *parsed.right_columns, *named])
    for name, values in beside.items():
        if values is not None and not isinstance(values, str):
            column = as_arrow(name, values)
            if len(column) != rows.num_rows:
                got = f"{len(column)} {name}, {rows.num_rows} rows"
                raise DataError(explain(f"{name} with one number a row", got, "check how they were cut"))
            rows = rows.append_column(_place(name, values), column)
    if missing == "error":
        require_complete(rows)
        return rows, rows.num_rows
    kept = drop_missing(rows) if count_missing(rows) else rows
    if kept.num_rows == 0:
        hint = "leave out the columns where most is missing"
        raise DataError(explain("rows without a missing value", f"none of {rows.num_rows}", hint))
    return kept, rows.num_rows


def _place(name: str, given: Any) -> str:
    """The column of the weights or the offset; what was given as an array has a name no column has in a formula."""
    return given if isinstance(given, str) else f"{name}="


def numbers_beside(name: str, given: Any, rows: Any) -> np.ndarray | None:
    """The weights or the offset of rows, whether a column of theirs or an array beside."""
    if given is None:
        return None
    column = rows.column(_place(name, given))
    if kind_of(column) == "categories":
        got = f"text such as {levels_of(column)[0]!r}"
        raise DataError(explain(f"numbers in the {name}", got, "a column of numbers"))
    return np.asarray(column).astype(np.float64)
