"""Preparation: checked rows on the device, the mode found or verified, and a precision that resolves the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.errors import DataError, InputError, ModelError, explain
from tallbayes.expansion import expand
from tallbayes.importance import Listing, list_rows
from tallbayes.mode import anchor_at, find_anchor
from tallbayes.model import Model, Target, bind, runs_in_float32
from tallbayes.quantities import Estimands
from tallbayes.roles import Executor
from tallbayes.sums import Curvature
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
    listing: Listing | None = None


def check_data(model: Model, data: Any) -> Any:
    """The rows as checked arrays, as the model wants them."""
    if not isinstance(model, Model):
        raise ModelError(explain("a tb.Model", type(model).__name__, "tb.Model(log_prior, log_likelihood, initial)"))
    arrays = check_rows(data)
    return model.check(arrays) if model.check is not None else arrays


def prepare(
    model: Model,
    arrays: Any,
    asked_precision: str | None,
    shuffle: bool,
    anchor: Anchor | None,
    executor: Executor | None = None,
    meanwhile: Callable[[Target, Table, np.ndarray, str], None] | None = None,
) -> Prepared:
    """Bind the model to its rows, choose the precision where it is left open, and find or renew the anchor.

    `executor`: threads of this process, for the sums over rows. `meanwhile` is told the target, its rows, the start
    and the precision before the search begins.
    """
    row = jax.tree.map(lambda array: array[0], arrays)
    target, start = bind(model, row)
    precision = asked_precision
    if precision is None:
        precision = "float64" if needs_float64(arrays) or not runs_in_float32(target, row) else "float32"
    table = make_table(arrays, precision, shuffle, model.units)
    if meanwhile is not None:
        meanwhile(target, table, start, precision)
    found = find_anchor(target, table, start, executor) if anchor is None else _renewed(target, table, anchor, executor)
    return Prepared(target, table, found, round(found.passes * table.num_rows), precision, asked_precision)


def _renewed(target: Target, table: Table, anchor: Any, executor: Executor | None) -> Anchor:
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
    curvature = Curvature.DIAGONAL if anchor.is_diagonal else Curvature.DENSE
    here = expand(target, table, anchor.mode, executor, curvature=curvature)
    apart = _apart(anchor, here.gradient, here.hessian)
    if not apart < 0.01:
        raise DataError(
            explain(
                "an anchor of this model and these rows",
                f"one that is off by {apart:.2g} posterior sds",
                "anchor=None to find the mode anew",
            )
        )
    found = anchor_at(here, passes=1, num_rows=table.num_rows)
    return replace(found, precision=anchor.precision, hessian=found.precision) if anchor.recentred else found


def _apart(anchor: Anchor, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """How far gradient and Hessian are from the anchor's own, in its posterior sds."""
    w, change = anchor.whitening, gradient - anchor.gradient
    if anchor.is_diagonal:
        return float(max(np.abs(w * change).max(), np.abs(w**2 * hessian - 1).max()))
    own = anchor.precision if anchor.hessian is None else anchor.hessian
    return float(max(np.abs(w.T @ change).max(), np.abs(w.T @ (hessian - own) @ w).max()))


def with_listing(prepared: Prepared) -> Prepared:
    """Look at every row's leverage, and list the rows by it where that is worth it: one more pass."""
    listing = list_rows(prepared.target, prepared.table, prepared.anchor)
    return replace(prepared, listing=listing, setup_evaluations=prepared.setup_evaluations + prepared.table.num_rows)


def refine_precision(prepared: Prepared, estimands: Estimands, fraction: float) -> Prepared:
    """Go to float64 where theta_0 + v in float32 would blur v by a tenth of the tolerance."""
    target, anchor = prepared.target, prepared.anchor
    moves_alone = target.predictor is not None and target.reports_linearly and not estimands.observables.functions
    if prepared.asked_precision is not None or prepared.precision == "float64" or moves_alone:
        return prepared
    blur = FLOAT32_ROUNDING * np.max(np.abs(anchor.mode) / anchor.sd)
    if blur <= 0.1 * fraction:
        return prepared
    return replace(prepared, table=prepared.table.widened(), precision="float64")
