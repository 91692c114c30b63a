"""Designs: from "late ~ hour + C(carrier)" and a table to the rows of a regression.

build_design(formula, table)   x (N, d) standardised and without the intercept, y, offset, weights, and the encoding
                               that makes x of new rows: in memory, or on disk where the table is

In memory the columns are evaluated once, and put right in place when all of them are known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.formula.design_steps import (
    Design,
    Request,
    describe,
    in_units,
    place_of,
    read_formula,
    read_part,
    require_terms,
    right_of,
)
from tallbayes.formula.encoding import none_complete, require_complete
from tallbayes.formula.expressions import Parsed
from tallbayes.formula.groups.design import group_encoding
from tallbayes.formula.second import learn_both
from tallbayes.formula.standardising import standardise
from tallbayes.formula.streaming import stored_design
from tallbayes.rows.columns import count_missing, drop_missing
from tallbayes.rows.sources import Source, as_arrow, open_source


def build_design(formula: str, table: Any, **options: Any) -> Design:
    """Read the columns that a formula names and make the rows of a regression of them, with the options of `Request`.

    With `standardise` every column of numbers is centred and divided by its standard deviation over the rows, whatever
    their weights; without an intercept in the formula it is divided only. Flags and the levels of categories stay 0 and
    1, unless it is "all". Categories that are terms by themselves are not among the columns of x: `codes` say which
    coefficient a row takes of each. Terms with bars are not either: they are the design's `groups`. `weights` and
    `offset` are arrays or names of columns. Rows with a missing value in any column used are refused, or dropped with
    `missing="drop"`. With `standardise_response` y is in standard deviations, about its mean where an intercept takes
    that up.

    >>> rows = {"late": ["no", "yes", "no", "yes"], "hour": [6.0, 18.0, 12.0, 12.0]}
    >>> design = build_design("late ~ hour", rows, standardise=False)
    >>> design.names, design.rows["x"].ravel().tolist(), design.rows["y"].tolist()
    (('hour',), [6.0, 18.0, 12.0, 12.0], [0.0, 1.0, 0.0, 1.0])
    """
    request, source = Request(formula, **options), open_source(table)
    parsed = read_formula(request, source)
    return _in_memory(request, parsed, source) if source.stored is None else stored_design(request, parsed, source)


def _in_memory(request: Request, parsed: Parsed, source: Source) -> Design:
    rows, total = complete_rows(request, parsed, source)
    outcome, offset, weights = read_part(request, parsed, rows)
    right = right_of(parsed, rows)
    coding = learn_both(parsed, right, request.indexes)
    require_terms(coding, request.formula)
    done, y = standardise(coding, right, request.rule), outcome.y
    response = (float(y.mean()), float(y.std())) if request.standardise_response else None
    encoding, notes = describe(parsed, coding, (done.means, done.scales), outcome, (len(y), total), response)
    y, offset = in_units(request, encoding, y, offset)
    arrays = {"x": done.x if coding.names else np.ones((len(y), 1), np.float32), "y": y}
    if coding.indexed:
        arrays |= {"codes": done.codes}
    if coding.names and not coding.dense:
        del arrays["x"]
    arrays |= outcome.beside | ({} if offset is None else {"offset": offset})
    known = tuple(group_encoding(term, rows, encoding.units, request.rule) for term in parsed.groups)
    groups = tuple(each.encode(rows) for each in known)
    return Design(arrays, weights, total - len(y), replace(encoding, groups=known), notes, groups)


def complete_rows(request: Request, parsed: Parsed, source: Source) -> tuple[Any, int]:
    """All columns that are used, without the rows that miss a value; and how many rows there were."""
    named = [name for name in request.beside.values() if isinstance(name, str)]
    rows = source.read([*parsed.columns, *named])
    for name, values in request.beside.items():
        if values is not None and not isinstance(values, str):
            column = as_arrow(name, values)
            if len(column) != rows.num_rows:
                got = f"{len(column)} {name}, {rows.num_rows} rows"
                raise DataError(explain(f"{name} with one number a row", got, "check how they were cut"))
            rows = rows.append_column(place_of(name, values), column)
    if request.missing == "error":
        require_complete(rows)
        return rows, rows.num_rows
    kept = drop_missing(rows) if count_missing(rows) else rows
    if kept.num_rows == 0:
        raise none_complete(rows.num_rows)
    return kept, rows.num_rows
