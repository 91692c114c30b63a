"""Rows that arrive after a fit, as its formula encoded those of the fit: nothing is learnt of them.

Means, scales, levels, knots and the units of a standardised response are those of the fit, so that coefficients and
their priors mean what they did. A category that was not there before is refused by its name, or room is made for it by
`arrivals.levels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import Coding
from tallbayes.formula.design import complete_rows
from tallbayes.formula.design_steps import Request, read_formula, read_part, right_of
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.expressions import STATEFUL, Parsed, read_expression
from tallbayes.formula.response.outcomes import Outcome
from tallbayes.formula.standardising import standardised_blocks
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.model import Model
from tallbayes.results.fitted import FitTable
from tallbayes.rows.sources import Source, open_source


@dataclass(frozen=True, eq=False)
class FormulaDoor:
    """What the formula door knows of a fit: its encoding and family, what it has to say with every result, the table
    that it was given, and how the model of another encoding is made.

    With groups, `grouped` makes what is asked of other rows' effects, and `group_order` are the terms with bars as they
    stand in the model."""

    encoding: Encoding
    family: str
    notes: tuple[str, ...]
    table: FitTable | None
    remade: Callable[[Encoding, Any], Model]
    grouped: Callable[[Encoding, Any, Any], Any] | None = None
    group_order: tuple[int, ...] = ()


def read_arriving(
    encoding: Encoding, family: str, table: Any, weights: Any = None, offset: Any = None, missing: str = "error"
) -> tuple[Encoding, Parsed, Request, Any]:
    """The complete rows of a table with the columns of the fit, and the question they answer."""
    offset = encoding.offset if offset is None and encoding.offset else offset
    request = Request(
        encoding.formula, missing=missing, weights=weights, offset=offset, response=CATALOGUE[family].response
    )
    source: Source = open_source(table)
    parsed = read_formula(request, source)
    _require_stateless(parsed)
    rows, _ = complete_rows(request, parsed, source)
    encoding.coding.require_kinds(rows)
    return encoding, parsed, request, rows


def unknown_levels(coding: Coding, rows: Any) -> dict[str, tuple[list[Any], int]]:
    """Categories that were not there before, by column, and how many rows have one."""
    found = {}
    for name, mask in coding.unknown_rows(rows).items():
        column = rows.column(name) if name in rows.column_names else None
        values = [] if column is None else [column[int(row)].as_py() for row in np.flatnonzero(mask)]
        found[name] = list(dict.fromkeys(values)), int(mask.sum())
    return found


def require_known(coding: Coding, rows: Any) -> None:
    """Refuse them: which, in how many rows, and what to do."""
    for name, (levels, count) in unknown_levels(coding, rows).items():
        shown = ", ".join(map(repr, levels[:6])) or "others"
        got = f"{shown} in {count:,} of {rows.num_rows:,} rows; nothing was added"
        hint = "new_levels='add' for a coefficient with its prior, or leave these rows out"
        raise DataError(explain(f"categories of column {name!r} that the fit knows", got, hint))


def encode_arriving(encoding: Encoding, parsed: Parsed, request: Request, rows: Any) -> tuple[dict[str, Any], Any]:
    """The arrays that the family reads, and the weights of the rows."""
    require_known(encoding.coding, rows)
    coding = encoding.coding
    outcome, offset, weights = read_part(request, parsed, rows, classes=encoding.classes)
    y, offset = _in_units(encoding, outcome, offset)
    arrays: dict[str, Any] = {"y": y}
    if not coding.names:
        arrays["x"] = np.ones((len(y), 1), np.float32)
    else:
        means, scales = np.array(encoding.means), np.array(encoding.scales)
        blocks = [block for _, block in standardised_blocks(coding, right_of(parsed, rows), means, scales)]
        if coding.dense:
            arrays["x"] = np.concatenate([block.x for block in blocks])
        if coding.indexed:
            arrays["codes"] = np.concatenate([block.codes for block in blocks])
    return arrays | outcome.beside | ({} if offset is None else {"offset": offset}), weights


def _in_units(encoding: Encoding, outcome: Outcome, offset: Any) -> tuple[np.ndarray, Any]:
    mean, scale = encoding.response_mean, encoding.response_scale
    if (mean, scale) == (0.0, 1.0):
        return outcome.y, offset
    return (outcome.y - mean) / scale, None if offset is None else offset / scale


def _require_stateless(parsed: Parsed) -> None:
    """What the left side learnt of the rows of the fit is not kept."""
    functions = set() if parsed.is_column else read_expression(parsed.left, parsed.left_columns).functions
    if set(functions) & STATEFUL:
        got = f"{parsed.left!r}, which learns from them"
        raise InputError(explain("a response that a row tells by itself, for rows that arrive", got, "a new column"))
