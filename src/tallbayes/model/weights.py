"""Row weights: a row that stands for w equal ones, or counts for a share of one.

    log pi(theta | X) = log pi(theta) + sum_i w_i log p(x_i | theta) + constant

The weight travels in the row, so that nothing else knows of it but the choice of rows by importance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.model.model import Model
from tallbayes.programs.later import named_leaves

WEIGHT, ROW = "__weight__", "__row__"


def weigh(model: Model, arrays: Any, weights: Any) -> tuple[Model, Any]:
    """The model and the rows with weights, checked."""
    count = len(named_leaves(arrays)[0][1])
    w = np.asarray(weights)
    if w.shape != (count,) or w.dtype.kind not in "biuf":
        raise DataError(explain(f"weights: {count} numbers, one a row", f"{w.dtype} {w.shape}", "weights=None for 1"))
    w = w.astype(np.float64)
    require_weights(w)
    if not np.any(w > 0):
        raise DataError(explain("a weight above 0", "zeros alone", "weights=None to count every row once"))
    return weighted(model), {**arrays, WEIGHT: w} if isinstance(arrays, dict) else {ROW: arrays, WEIGHT: w}


def require_weights(w: np.ndarray) -> None:
    """Refuse weights that are no weights."""
    wrong = ~(np.isfinite(w) & (w >= 0))
    if np.any(wrong):
        at = int(np.argmax(wrong))
        raise DataError(explain("finite weights >= 0", f"{w[at]} at row {at}", "drop the rows that are not to count"))


def weighted(model: Model) -> Model:
    """The model of rows that have their weight among them."""
    predictor = None if model.predictor is None else _weighted(model.predictor)
    return replace(model, log_likelihood=_weighted(model.log_likelihood), predictor=predictor)


def weights_in(rows: Any) -> Any:
    """The weights among the rows; None where there are none."""
    return rows.get(WEIGHT) if isinstance(rows, dict) else None


def _weighted(function: Callable[..., Any]) -> Callable[..., Any]:
    def weighted(first: Any, row: Any) -> Any:
        own = row[ROW] if ROW in row else {key: value for key, value in row.items() if key != WEIGHT}
        return row[WEIGHT] * function(first, own)

    return weighted
