"""Preparation: checked rows on the device, the mode found or verified, and a precision that resolves the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.errors import DataError, InputError, ModelError, explain
from tallbayes.mode import anchor_at, expand, find_anchor
from tallbayes.model import Model, Target, bind, runs_in_float32
from tallbayes.quantities import Estimands
from tallbayes.table import Table, check_rows, make_table, needs_float64

FLOAT32_ROUNDING = 2.0**-24


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model with its rows, its mode and what is wanted of it: the set-up, done once."""

    target: Target
    table: Table
    anchor: Anchor
    setup_evaluations: int
    precision: str
    asked_precision: str | None


def check_data(model: Model, data: Any) -> Any:
    """The rows as checked arrays, as the model wants them."""
    if not isinstance(model, Model):
        raise ModelError(explain("a tb.Model", type(model).__name__, "tb.Model(log_prior, log_likelihood, initial)"))
    arrays = check_rows(data)
    return model.check(arrays) if model.check is not None else arrays


def prepare(model: Model, arrays: Any, asked_precision: str | None, shuffle: bool, anchor: Anchor | None) -> Prepared:
    """Bind the model to its rows, choose the precision where it is left open, and find or renew the anchor."""
    row = jax.tree.map(lambda array: array[0], arrays)
    target, start = bind(model, row)
    precision = asked_precision
    if precision is None:
        precision = "float64" if needs_float64(arrays) or not runs_in_float32(target, row) else "float32"
    table = make_table(arrays, precision, shuffle)
    found = find_anchor(target, table, start) if anchor is None else _renewed(target, table, anchor)
    return Prepared(target, table, found, found.passes * table.num_rows, precision, asked_precision)


def _renewed(target: Target, table: Table, anchor: Any) -> Anchor:
    """An anchor found before, expanded anew at its mode: one pass, and nothing of other rows is left in it."""
    if not isinstance(anchor, Anchor):
        raise InputError(explain("anchor=result.anchor of an earlier run", type(anchor).__name__, "anchor=None"))
    if anchor.mode.size != target.dimension or anchor.num_rows != table.num_rows:
        raise DataError(
            explain(
                f"an anchor of {target.dimension} parameters and {table.num_rows} rows",
                f"{anchor.mode.size} parameters and {anchor.num_rows} rows",
                "anchor=None to find the mode anew",
            )
        )
    here = expand(target, table, anchor.mode)
    gradient = np.linalg.solve(anchor.factor, here.gradient)
    curvature = np.linalg.solve(anchor.factor, np.linalg.solve(anchor.factor, here.hessian).T)
    apart = max(np.abs(gradient).max(), np.abs(curvature - np.eye(target.dimension)).max())
    if not apart < 0.01:
        raise DataError(
            explain(
                "an anchor of this model and these rows",
                f"one that is off by {apart:.2g} posterior sds",
                "anchor=None to find the mode anew",
            )
        )
    return anchor_at(here, passes=1, num_rows=table.num_rows)


def refine_precision(prepared: Prepared, estimands: Estimands, fraction: float) -> Prepared:
    """Go to float64 where theta_0 + v in float32 would blur v by a tenth of the tolerance."""
    moves_alone = prepared.target.predictor is not None and not estimands.observables.functions
    if prepared.asked_precision is not None or prepared.precision == "float64" or moves_alone:
        return prepared
    blur = FLOAT32_ROUNDING * np.max(np.abs(prepared.anchor.mode) / prepared.anchor.sd)
    if blur <= 0.1 * fraction:
        return prepared
    return replace(prepared, table=prepared.table.widened(), precision="float64")
