"""Responses: what y may be in each family, and what to say where it is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import DataError, ModelError, explain
from tallbayes.model.catalogue import BESIDE, CATALOGUE, TRIALS
from tallbayes.model.linear import Layout

Beside = Mapping[str, np.ndarray]
Check = Callable[[np.ndarray, Beside], None]


def check_regression(
    check_response: Check, reads: tuple[str, ...], prior_scale: Any, data: Any, *, layout: Layout = Layout()
) -> Any:
    """The rows {"x": (N, d), "y": (N,)} and perhaps "offset" (N,), as numbers of a floating type; and what the family
    `reads` beside y."""
    if layout.indexed is not None and not layout.indexed.columns:
        data = {"x": np.empty((len(data["y"]), 0), np.float32), **data}
    if not isinstance(data, dict) or not {"x", "y"} <= set(data):
        got = sorted(data) if isinstance(data, dict) else type(data).__name__
        raise DataError(explain('data {"x": (N, d), "y": (N,)}', f"{got}", "name the two arrays"))
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    if x.ndim != 2 or y.ndim != 1:
        raise DataError(
            explain(
                "x of shape (N, d) and y of shape (N,)",
                f"x {x.shape}, y {y.shape}",
                "reshape them, e.g. y.ravel()",
            )
        )
    if "offset" in data and np.ndim(data["offset"]) != 1:
        got = f"shape {np.shape(data['offset'])}"
        raise DataError(explain("offset of shape (N,)", got, "one number a row, on the scale of x . theta"))
    width = layout.width({"x": x})
    if np.ndim(prior_scale) and np.shape(prior_scale) != (width,):
        got = f"shape {np.shape(prior_scale)}"
        raise ModelError(explain(f"{width} prior scales, one a column of x", got, "one number for all"))
    if layout.beside > width:
        got = f"{width}, of which {layout.beside} are those of the noise scale"
        raise DataError(explain("columns of x", got, "the columns of the mean, and after them those of the noise"))
    beside = _beside(reads, data, len(y))
    check_response(y, beside)
    numbers = {name: _as_floats(np.asarray(data[name])) for name in ("x", "y", "offset", *beside) if name in data}
    return {name: array for name, array in {**data, **numbers}.items() if np.shape(array)[1:] != (0,)}


def _beside(reads: tuple[str, ...], data: Any, count: int) -> dict[str, np.ndarray]:
    """What rows tell of y beside itself."""
    for name in BESIDE:
        if name in data and name not in reads:
            families = ", ".join(family.name for family in CATALOGUE.values() if name in family.reads)
            hint = f"leave it out; read by {families}"
            raise DataError(explain("rows with what the family reads of them", f"{name!r} among them", hint))
        if name in data and (np.shape(data[name]) != (count,) or np.asarray(data[name]).dtype.kind not in "biuf"):
            got = f"{np.asarray(data[name]).dtype} of shape {np.shape(data[name])}"
            raise DataError(explain(f"{name} of shape ({count},)", got, "one number a row"))
    return {name: np.asarray(data[name]) for name in reads if name in data}


def check_multinomial(
    check_response: Check, reads: tuple[str, ...], prior_scale: Any, data: Any, *, layout: Layout = Layout()
) -> Any:
    """The same without an offset: there is a linear predictor for every class but the first, and no offset for each."""
    if isinstance(data, dict) and "offset" in data:
        hint = "leave it out, or make it a column of x, with a coefficient for every class"
        raise DataError(explain("no offset in a multinomial regression", 'data with "offset"', hint))
    return check_regression(check_response, reads, prior_scale, data, layout=layout)


def _as_floats(array: np.ndarray) -> np.ndarray:
    """Whole numbers as the smallest type that holds them exactly."""
    if array.dtype.kind not in "biu":
        return array
    exact = int(array.max()) <= 2**24 and int(array.min()) >= -(2**24)
    return array.astype(np.float32 if exact else np.float64)


def check_binary(y: np.ndarray, beside: Beside) -> None:
    """0 or 1, or so many of the row's trials."""
    if "trials" not in beside:
        hint = f"recode the two classes as 0 and 1 (for -1 and 1: (y + 1) / 2); {TRIALS}"
        _refuse((y != 0) & (y != 1), y, "y in {0, 1}", hint)
        return
    trials = beside["trials"]
    _refuse((trials < 1) | (trials != np.floor(trials)), trials, "whole numbers of trials, 1 or more", "drop the rest")
    outside = (y < 0) | (y > trials) | (y != np.floor(y))
    _refuse(outside, y, "whole numbers of successes, from 0 to the row's trials", "successes first, then trials")


def check_real(y: np.ndarray, beside: Beside) -> None:
    """Any finite number will do, and finiteness is checked for every array."""


def check_count(y: np.ndarray, beside: Beside) -> None:
    hint = "tb.families.linear for measurements; a rate is a count with offset log(exposure)"
    _refuse((y < 0) | (y != np.floor(y)), y, "counts 0, 1, 2, ... in y", hint)


def check_positive(y: np.ndarray, beside: Beside) -> None:
    hint = "zeros apart, with a family of whether y > 0; tb.families.linear for numbers of both signs"
    _refuse(~(y > 0), y, "numbers above 0 in y", hint)


def check_share(y: np.ndarray, beside: Beside) -> None:
    hint = "shares as numbers strictly between 0 and 1: 0 and 1 themselves are none; successes of trials are binomial"
    _refuse(~((y > 0) & (y < 1)), y, "shares strictly between 0 and 1 in y", hint)


def check_survival(y: np.ndarray, beside: Beside) -> None:
    """Times above 0, censored by 0, 1, -1 or 2, and upper bounds above them where that is 2."""
    hint = "times since the start, without rows that never were at risk"
    _refuse(~(y > 0), y, "times above 0 in y", hint)
    how = beside.get("censored", np.zeros(len(y)))
    _refuse(~np.isin(how, (0, 1, -1, 2)), how, "censored of 0 (event), 1 (right), -1 (left) or 2 (interval)", "mend it")
    if "upper" in beside:
        upper = beside["upper"]
        _refuse(
            (how == 2) & ~(upper > y), upper, "upper bounds above the lower ones", "the same bound twice is an event"
        )
    elif np.any(how == 2):
        raise DataError(explain('"upper" beside y where censored is 2', "none", "the upper bounds of those times"))


CHECKS: dict[str, Check] = {
    "binary": check_binary,
    "real": check_real,
    "count": check_count,
    "positive": check_positive,
    "share": check_share,
    "survival": check_survival,
}


def check_class(num_classes: int) -> Check:
    return partial(_check_class, num_classes)


def _check_class(num_classes: int, y: np.ndarray, beside: Beside) -> None:
    outside = (y < 0) | (y >= num_classes) | (y != np.floor(y))
    hint = "num_classes as many as there are, and np.unique(labels, return_inverse=True)[1] for y"
    _refuse(outside, y, f"y in 0..{num_classes - 1}", hint)


def _refuse(outside: np.ndarray, y: np.ndarray, expected: str, hint: str) -> None:
    if np.any(outside):
        got = f"{y[outside][0]} at row {int(np.argmax(outside))} ({int(outside.sum())} such rows)"
        raise DataError(explain(expected, got, hint))
