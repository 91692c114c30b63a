"""Preparation: checked rows on the device, the mode found or verified, and a precision that resolves the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import Survey, average, expand
from tallbayes.anchor.importance import list_rows
from tallbayes.anchor.mode import anchor_at, curvature_kept
from tallbayes.anchor.probe import Probe
from tallbayes.anchor.probing import make_probe, read_by_all_rows
from tallbayes.anchor.recentring import anchor_on_average, find_mode_or_balance
from tallbayes.anchor.sums import Curvature, can_average
from tallbayes.anchor.wide.chains import expand_chain
from tallbayes.errors import DataError, InputError, ModelError, explain
from tallbayes.estimator.estimands import Estimands, Tolerances
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import Chain
from tallbayes.gaussian.low_rank import LowRank
from tallbayes.model.model import Model, Target, bind, runs_in_float32
from tallbayes.model.weights import WEIGHT, require_weights, weighted
from tallbayes.programs.canary import require_sound
from tallbayes.programs.later import jax
from tallbayes.rows.listing import Listing
from tallbayes.rows.on_disk import Stored, map_table
from tallbayes.rows.statistics import needs_float64
from tallbayes.rows.table import CHUNK_ROWS, Table, check_rows, make_table
from tallbayes.setup.guide import Guide, MeanGuide
from tallbayes.setup.own_rows import by_name, casting, unpacking, visible
from tallbayes.setup.resolution import ROUNDING, SHARE, Blurred, worst_resolved
from tallbayes.watch import begin_pass, count_rows
from tallbayes.workers.executors import Executor


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model with its rows, its mode and what is wanted of it: the set-up, done once.

    `integral_error` is a bias that integrals over effects may leave in any answer, in posterior sds.
    """

    target: Target
    table: Table
    anchor: Anchor
    setup_evaluations: int
    precision: str
    asked_precision: str | None
    listing: Listing | None = None
    probe: Probe | None = None
    integral_error: float = 0.0
    grouping: Any = None
    guide: Guide | MeanGuide | None = None


@dataclass(frozen=True, eq=False)
class Placed:
    """A model bound to its rows, which are where paths can read them.

    Of groups: what was read to find their nodes, what it says of other modes, and the error of the integrals.
    """

    target: Target
    table: Table
    start: np.ndarray
    precision: str
    asked_precision: str | None
    spent: int = 0
    modes: str = ""
    integral_error: float = 0.0
    grouping: Any = None


def check_data(model: Model, data: Any) -> Any:
    """The rows as checked arrays, as the model wants them."""
    require_model(model)
    arrays = check_rows(data)
    return model.check(arrays) if model.check is not None else arrays


def check_stored(model: Model, stored: Stored, weights: Any = None) -> tuple[Model, Any]:
    """The model of a table's rows, and the mapped rows, looked at a chunk at a time.

    `weights` names the field that holds them. Where the table was made of columns, a row is a dict of these.
    """
    require_model(model)
    arrays: dict[str, Any] = dict(stored.rows())
    columns = visible(stored.columns)
    if stored.columns:
        arrays = {name: array for name, array in arrays.items() if name in {column.field for column in columns}}
        if not arrays:
            raise DataError(explain("columns of numbers or text", "dates alone", "tb.fit, whose formulas read dates"))
    if weights is not None:
        arrays = _with_weights(stored, arrays, weights)
    casts: set[str] = set()
    counts = weights is None
    begin_pass(stored.num_rows)
    for start in range(0, stored.num_rows, CHUNK_ROWS):
        chunk = {name: array[start : start + CHUNK_ROWS] for name, array in arrays.items()}
        if weights is not None:
            w = chunk.pop(WEIGHT)
            require_weights(w)
            counts |= bool(np.any(w > 0))
        if model.check is not None:
            seen = by_name(columns, chunk) if columns else chunk
            casts |= _changed(seen, model.check(seen), start)
        count_rows(len(next(iter(chunk.values()))))
    if not counts:
        raise DataError(explain("a weight above 0", "zeros alone", "weights=None to count every row once"))
    model = casting(model, frozenset(casts)) if casts else model
    model = unpacking(model, columns) if columns else model
    return (weighted(model) if weights is not None else model), arrays


def require_model(model: Any) -> None:
    if not isinstance(model, Model):
        raise ModelError(explain("a tb.Model", type(model).__name__, "tb.Model(log_prior, log_likelihood, initial)"))


def _with_weights(stored: Stored, arrays: dict[str, Any], weights: Any) -> dict[str, Any]:
    if stored.columns:
        hint = "tb.fit with weights='column', or tb.write_table with a field of weights"
        raise InputError(explain("no weights beside a table of columns", repr(weights), hint))
    if not isinstance(weights, str) or weights not in arrays or arrays[weights].ndim != 1:
        fields = ", ".join(field.name for field in stored.fields)
        got = repr(weights) if isinstance(weights, str) else type(weights).__name__
        hint = f"one of the fields {fields}, with one number a row"
        raise InputError(explain("weights by the name of a field, for a table on disk", got, hint))
    return {**{name: array for name, array in arrays.items() if name != weights}, WEIGHT: arrays[weights]}


def _changed(before: dict[str, Any], after: Any, start: int) -> set[str]:
    """Fields whose whole numbers a model wants as floats; any other change cannot be made to rows on disk."""
    casts = set()
    for name, array in before.items():
        wanted = np.asarray(after[name]) if isinstance(after, dict) and name in after else None
        if wanted is None or not np.array_equal(wanted, array):
            hint = "tb.write_table with the values as the model wants them"
            got = f"a check that changes {name!r} from row {start} on"
            raise DataError(explain("rows on disk as the model wants them", got, hint))
        if array.dtype.kind in "iu" and wanted.dtype.kind == "f":
            casts.add(name)
    if "x" in casts:
        raise DataError(explain("x in floats", "whole numbers", "tb.write_table with x.astype(np.float32)"))
    return casts


def bind_rows(model: Model, arrays: Any) -> tuple[Target, np.ndarray]:
    """The model bound to its first row, and where it starts."""
    return bind(model, jax.tree.map(lambda array: np.asarray(array[0]), arrays))


def place(
    model: Model,
    arrays: Any,
    asked_precision: str | None,
    shuffle: bool,
    stored: Stored | None,
    bound: tuple[Target, np.ndarray] | None = None,
) -> Placed:
    """Bind the model to its rows, choose the precision where it is left open, and put the rows on the device."""
    require_sound()
    row = jax.tree.map(lambda array: np.asarray(array[0]), arrays)
    target, start = bound or bind_rows(model, arrays)
    precision = asked_precision
    if precision is None:
        precise = _holds_float64(arrays) if stored is not None else needs_float64(arrays)
        precision = "float64" if precise or not runs_in_float32(target, row) else "float32"
    if stored is not None:
        table = map_table(stored, _names(stored, arrays), model.units)
    else:
        # Of units of many rows no place is spare.
        table = make_table(
            arrays, precision, shuffle, model.units, **({} if target.integrated is None else {"least": 1})
        )
    return Placed(target, table, start, precision, asked_precision)


def _names(stored: Stored, arrays: dict[str, Any]) -> dict[str, str]:
    """Which field each array is of: the weights go by a name of their own."""
    fields = [field.name for field in stored.fields]
    left = [name for name in fields if name not in arrays]
    return {name: name if name in fields else left[0] for name in arrays}


def _holds_float64(arrays: Any) -> bool:
    return any(array.dtype == np.float64 for array in jax.tree.leaves(arrays))


def prepare(
    model: Model,
    arrays: Any,
    asked_precision: str | None,
    shuffle: bool,
    anchor: Anchor | None,
    executor: Executor | None = None,
) -> Prepared:
    """Place the rows, and find or renew the anchor."""
    if model.shrinkage is not None:
        hint = "tb.estimate(model, rows), which has a method of its own for it; or prior_scale in place of prior"
        raise ModelError(explain("a density of the prior", model.shrinkage.words, hint))
    return find_centre(place(model, arrays, asked_precision, shuffle, None), anchor, executor)


def find_centre(
    placed: Placed, anchor: Anchor | None, executor: Executor | None = None, rough: bool = False
) -> Prepared:
    """The mode found, or one that was given verified; sums over rows run on the executor."""
    target, table = placed.target, placed.table
    if anchor is None:
        found = find_mode_or_balance(target, table, placed.start, executor, rough)
    else:
        found = _renewed(target, table, anchor, executor)
    spent = placed.spent + round(found.passes * table.num_rows)
    precision = placed.precision, placed.asked_precision
    known = placed.integral_error, placed.grouping
    return Prepared(target, table, found, spent, *precision, None, None, *known)


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
    if isinstance(anchor.precision, Chain):
        return _renewed_chain(target, table, anchor, executor)
    if isinstance(anchor.precision, LowRank):
        return _renewed_lines(target, table, anchor, executor)
    averages = None
    if anchor.knows_averages and can_average(target) and not anchor.is_large:
        averages = average(target, table, anchor.mode, anchor.whitening, executor)
    here = averages.here if averages else expand(target, table, anchor.mode, executor, curvature=curvature_kept(anchor))
    apart = _apart(anchor, here.gradient, here.hessian)
    if not apart < 0.01:
        raise DataError(
            explain(
                "an anchor of this model and these rows",
                f"one that is off by {apart:.2g} posterior sds",
                "anchor=None to find the mode anew",
            )
        )
    found = replace(anchor_at(here, passes=1, num_rows=table.num_rows), reason=anchor.reason)
    if averages is not None:
        return replace(
            anchor_on_average(averages, np.asarray(anchor.precision), anchor), passes=1, reason=anchor.reason
        )
    if not anchor.recentred:
        return found
    return replace(found, precision=anchor.precision, hessian=found.precision, has_mode=anchor.has_mode)


def _renewed_chain(target: Target, table: Table, anchor: Anchor, executor: Executor | None) -> Anchor:
    assert isinstance(anchor.precision, Chain)
    order = anchor.precision.order.reshape(anchor.precision.diagonals_of_blocks.shape[:2])
    survey = Survey(target, table, executor, Curvature.NONE)
    here = expand_chain(survey, anchor.mode, order)
    apart = np.inf if here is None else _apart(anchor, here.gradient, here.hessian)
    if here is None or not apart < 0.01:
        got, hint = f"one that is off by {apart:.2g} posterior sds", "anchor=None to find the mode anew"
        raise DataError(explain("an anchor of this model and these rows", got, hint))
    return replace(anchor_at(here, survey.passes, table.num_rows), reason=anchor.reason)


def _renewed_lines(target: Target, table: Table, anchor: Anchor, executor: Executor | None) -> Anchor:
    """With its own lines, which need not be those of the Hessian."""
    here = expand(target, table, anchor.mode, executor, curvature=Curvature.NONE)
    apart = float(np.abs(anchor.whitener.pull_back(here.gradient - anchor.gradient)).max())
    if not apart < 0.01:
        got, hint = f"one that is off by {apart:.2g} posterior sds", "anchor=None to find the mode anew"
        raise DataError(explain("an anchor of this model and these rows", got, hint))
    here = replace(here, hessian=anchor.precision, likelihood_hessian=None)
    return replace(anchor_at(here, 1, table.num_rows), reason=anchor.reason)


def _apart(anchor: Anchor, gradient: np.ndarray, hessian: Any) -> float:
    """How far gradient and Hessian are from the anchor's own, in its posterior sds."""
    w, slope = anchor.whitening, np.abs(anchor.whitener.pull_back(gradient - anchor.gradient)).max()
    own = anchor.precision if anchor.hessian is None else anchor.hessian
    if anchor.is_large:
        z = np.random.default_rng(0).standard_normal((4, len(anchor.mode)))
        change = anchor.whitener.pull_back(np.stack([(hessian @ v - own @ v) for v in anchor.displacements(z)]))
        return float(max(slope, np.abs(change).max()))
    if isinstance(own, Arrowhead):
        # Along a few random directions, each as long as all unit vectors together.
        z = np.random.default_rng(0).standard_normal((4, len(anchor.mode)))
        change = anchor.whitener.pull_back((hessian - own).times(anchor.displacements(z)))
        return float(max(slope, np.abs(change).max()))
    change = w**2 * hessian - 1 if anchor.is_diagonal else w.T @ (hessian - own) @ w
    return float(max(slope, np.abs(change).max()))


def with_listing(prepared: Prepared, executor: Executor | None = None, folder: Path | None = None) -> Prepared:
    """Look at what every row can do, and list the rows by it where that is worth it: one more pass, or two on disk."""
    listing = list_rows(prepared.target, prepared.table, prepared.anchor, executor, folder)
    passes = 1 if listing is None or folder is None else 2
    spent = prepared.setup_evaluations + passes * prepared.table.num_rows
    return replace(prepared, listing=listing, setup_evaluations=spent)


def with_probe(prepared: Prepared, executor: Executor | None = None) -> Prepared:
    """Look at the posterior where few paths go."""
    probe = make_probe(prepared.target, prepared.table, prepared.anchor, prepared.listing)
    if probe is not None:
        probe = read_by_all_rows(probe, prepared.target, prepared.table, prepared.anchor, executor)
    spent = prepared.setup_evaluations + (0 if probe is None else probe.rows_read)
    return replace(prepared, probe=probe, setup_evaluations=spent)


def refine_precision(prepared: Prepared, estimands: Estimands, goal: Tolerances) -> Prepared:
    """Go to float64 where float32 would blur theta_0 + v, or a quantity, by a tenth of the tolerance; InputError where
    float32 was asked for, or where float64 does not resolve a quantity either."""
    target, anchor = prepared.target, prepared.anchor
    worst = worst_resolved(target, anchor, prepared.table.units, estimands, goal)
    if worst and not worst["float64"].is_resolved:
        _refuse(worst["float64"], "float64", "a coarser tolerance, or the part of it that varies alone")
    if prepared.precision == "float64":
        return prepared
    if worst and not worst["float32"].is_resolved:
        if prepared.asked_precision is not None:
            _refuse(worst["float32"], "float32", "precision=None or 'float64', or the part of it that varies alone")
        return replace(prepared, precision="float64")
    moves_alone = target.predictor is not None and target.reports_linearly and not estimands.observables.functions
    blur = ROUNDING["float32"] * np.max(np.abs(anchor.mode) / anchor.sd)
    if moves_alone or prepared.asked_precision is not None or blur <= SHARE * _finest(goal):
        return prepared
    return replace(prepared, precision="float64")


def _finest(goal: Tolerances) -> float:
    """The finest fraction of a posterior sd that is asked for; 1% where it is stated in other units."""
    return min(goal.sizes) if goal.kind == "tolerance" else 0.01


def _refuse(worst: Blurred, precision: str, hint: str) -> NoReturn:
    got = f"rounding of {worst.blur:.1g} beside a tolerance of {worst.tolerance:.1g}"
    raise InputError(explain(f"quantity {worst.label!r} to be resolved by {precision}", got, hint))
