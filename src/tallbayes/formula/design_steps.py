"""The steps from a formula to a design that a table in memory and one on disk share.

read_formula    the sides of the formula, checked against the columns of a source
read_part       response, offset and weights of some rows, or of all
describe        the encoding that makes x of new rows, and what was decided on the way, in words
in_units        response and offset in the units of a standardised response
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import Coding
from tallbayes.formula.encoding import Encoding, offset_of
from tallbayes.formula.expressions import Parsed, parse, powers
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.formula.groups.terms import take_groups
from tallbayes.formula.response.outcomes import Outcome, read_outcome
from tallbayes.formula.second import read_second, split
from tallbayes.formula.standardising import read_rule
from tallbayes.rows.columns import kind_of, levels_of
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.sources import Source

MISSING = ("error", "drop")


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked of a design; see `build_design`."""

    formula: str
    standardise: bool | str = True
    missing: str = "error"
    weights: Any = None
    offset: Any = None
    response: str = "binary"
    standardise_response: bool = False
    # Of which there may be a second formula.
    parameter: str = ""

    @property
    def rule(self) -> str:
        """How columns are standardised."""
        return read_rule(self.standardise)

    @property
    def indexes(self) -> bool:
        """Whether categories are codes: their columns are then 0 and 1."""
        return self.rule != "all"

    @property
    def beside(self) -> dict[str, Any]:
        """What is given beside the formula: arrays, or names of columns."""
        return {"weights": self.weights, "offset": self.offset}


@dataclass(frozen=True, eq=False)
class Design:
    """The rows of a regression as a family reads them, in arrays or on disk, and how they came about.

    x = (raw - means) / scales with the encoding's means and scales; an intercept alone is a column of ones; `codes` are
    the places of coefficients of categories that are no columns of x. `weights` are an array or the name of a field;
    `dropped` rows had a missing value; `notes` say in words what was decided. `groups` are the terms with bars.
    """

    rows: dict[str, np.ndarray] | Stored
    weights: np.ndarray | str | None
    dropped: int
    encoding: Encoding
    notes: tuple[str, ...]
    groups: tuple[GroupDesign, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of x."""
        return self.encoding.coding.names

    @property
    def intercept(self) -> bool:
        return self.encoding.coding.intercept


def read_formula(request: Request, source: Source) -> Parsed:
    """The sides of a formula that fits the columns of a source."""
    if request.missing not in MISSING:
        raise InputError(explain(f"missing one of {MISSING}", repr(request.missing), "missing='drop'"))
    first, second = split(request.formula)
    formula, groups = take_groups(first)
    beside = [name for name in request.beside.values() if isinstance(name, str)]
    parsed = parse(formula, source, [*beside, *(name for group in groups for name in group.by)], groups)
    parsed = replace(parsed, second=read_second(second, request.parameter, parsed, source, beside))
    if parsed.is_column and parsed.left_columns[0] in (*parsed.both_columns, *parsed.group_columns):
        hint = "leave it out on the right"
        raise InputError(explain("a response that is not among the terms", f"{parsed.left!r} on both sides", hint))
    return parsed


def right_of(parsed: Parsed, rows: Any) -> Any:
    """The columns of the terms; an intercept alone reads none, and a table of no columns has no rows."""
    return rows.select(list(dict.fromkeys(parsed.both_columns)) or parsed.left_columns)


def read_part(
    request: Request,
    parsed: Parsed,
    rows: Any,
    states: Mapping[str, Any] | None = None,
    levels: np.ndarray | None = None,
    classes: tuple[Any, ...] | None = None,
) -> tuple[Outcome, np.ndarray | None, np.ndarray | None]:
    """Response, offset and weights of rows; of some of all rows with what is known of these, as in `read_outcome`."""
    outcome = read_outcome(parsed, rows, request.response, states, levels, classes)
    offset = _numbers("offset", request.offset, rows)
    if parsed.offset:
        offset = offset_of(parsed.offset, parsed.offset_columns, rows) + (0.0 if offset is None else offset)
    return outcome, offset, _numbers("weights", request.weights, rows)


def place_of(name: str, given: Any) -> str:
    """The column of the weights or the offset; what was given as an array has a name no column has in a formula."""
    return given if isinstance(given, str) else f"{name}="


def _numbers(name: str, given: Any, rows: Any) -> np.ndarray | None:
    if given is None:
        return None
    column = rows.column(place_of(name, given))
    if kind_of(column) == "categories":
        got = f"text such as {levels_of(column)[0]!r}"
        raise DataError(explain(f"numbers in the {name}", got, "a column of numbers"))
    return np.asarray(column).astype(np.float64)


def require_terms(coding: Coding, formula: str) -> None:
    if not coding.names and not coding.intercept:
        raise InputError(explain("at least one term or the intercept", repr(formula), "late ~ 1"))


def describe(
    parsed: Parsed,
    coding: Coding,
    units: tuple[np.ndarray, np.ndarray],
    outcome: Outcome,
    counts: tuple[int, int],
    response: tuple[float, float] | None,
) -> tuple[Encoding, tuple[str, ...]]:
    """The encoding, and what was decided on the way to it, in words.

    `units` are the means and scales of the columns, `response` those of a response that is standardised; `counts` are
    the rows of the design, and all there were.
    """
    means, scales = (tuple(each.tolist()) for each in units)
    encoding = Encoding(
        coding,
        means,
        scales,
        parsed.left,
        outcome.classes,
        offset_terms=parsed.offset,
        offset_columns=parsed.offset_columns,
    )
    notes, (count, total) = outcome.notes(parsed.left), counts
    if parsed.left_out:
        dates = ", ".join(parsed.left_out)
        notes += (f"dates: the . leaves out {dates}; hour(), weekday(), month(), days() make numbers of them",)
    if parsed.unusable:
        notes += (f"columns: the . leaves out {', '.join(parsed.unusable)}",)
    notes += powers(parsed.right)
    if count < total:
        notes += (f"missing: {total - count} of {total} rows had a missing value and were dropped",)
    if response is None:
        return encoding, notes
    mean, scale = response if coding.intercept else (0.0, response[1])
    if scale == 0:
        got = f"{mean:g} in all rows"
        raise DataError(explain(f"a response {parsed.left!r} that varies", got, "check the column"))
    about = f"taken about its mean {mean:.6g}, and " if coding.intercept else ""
    note = (
        f"response: {parsed.left} is {about}in units of its sd {scale:.6g} inside, "
        "and so are the scales of all priors; results are in its own units"
    )
    return replace(encoding, response_mean=mean, response_scale=scale), (*notes, note)


def in_units(
    request: Request, encoding: Encoding, y: np.ndarray, offset: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Response and offset: in standard deviations, the response about its mean, if that is asked."""
    if not request.standardise_response:
        return y, offset
    mean, scale = encoding.response_mean, encoding.response_scale
    return ((y - mean) / scale).astype(np.float32), None if offset is None else offset / scale
