"""Splines by the names of patsy, R and mgcv, and all else that formulaic is told of.

    cr, cs, cc    formulaic's; their columns add up to 1, so that beside a constant they are centred: of the same
                  functions those whose mean over the rows is 0
    ns(x, df)     R's: natural, df - 1 knots at quantiles of x between the two at its ends, 0 at the lower end
    s(x)          see `formula.smooths`

What a spline has learnt (knots, bounds, what takes the constant out) is its memory, for other rows too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.functions.names import ELEMENTWISE
from tallbayes.formula.smooths.basis import smooth
from tallbayes.rows.columns import require

CENTRED = ("cr", "cs", "cc")


@cache
def functions(beside_constant: bool) -> dict[str, Any]:
    """By name, what an expression may call that formulaic does not know, or knows otherwise."""
    made = require("formulaic.transforms").TRANSFORMS
    stateful = require("formulaic.utils.stateful_transforms").stateful_transform
    own: dict[str, Any] = {name: getattr(np, numpy_name) for name, numpy_name in ELEMENTWISE.items()}
    own |= {"ns": stateful(_natural), "s": stateful(smooth)}
    if beside_constant:
        own |= {name: stateful(_centred(name, made[name])) for name in CENTRED}
    return own


def _centred(name: str, spline: Callable[..., Any]) -> Callable[..., Any]:
    def centred(x: Any, *given: Any, _state: Any = None, **options: Any) -> Any:
        return spline(x, *given, _state=_state, **{"constraints": "center", **options})

    return centred


def _natural(
    x: Any,
    df: int | None = None,
    knots: Any = None,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    _state: Any = None,
) -> Any:
    spline = require("formulaic.transforms").TRANSFORMS["cr"]
    if _state:
        return spline(x, knots=(), _state=_state)
    if (df is None) == (knots is None):
        raise InputError(explain("df or knots in ns(...)", "neither" if df is None else "both", "ns(x, df=4)"))
    values = np.asarray(x, np.float64)
    ends = (
        np.min(values) if lower_bound is None else lower_bound,
        np.max(values) if upper_bound is None else upper_bound,
    )
    inner = knots if df is None else np.quantile(values[(values >= ends[0]) & (values <= ends[1])], _shares(df))
    inner = np.unique(np.asarray(inner, np.float64))
    if (df is not None and len(inner) + 1 < df) or np.any((inner <= ends[0]) | (inner >= ends[1])):
        got = f"{', '.join(f'{each:g}' for each in inner)} between {ends[0]:g} and {ends[1]:g}"
        raise DataError(explain("knots of ns(...) that differ from each other and from both ends", got, "a smaller df"))
    options = {"lower_bound": float(ends[0]), "upper_bound": float(ends[1])}
    # The first of its columns is the value at the lower end.
    return spline(x, knots=inner, constraints=np.eye(1, len(inner) + 2), _state=_state, **options)


def _shares(df: Any) -> np.ndarray:
    if isinstance(df, bool) or not isinstance(df, int) or df < 1:
        raise InputError(explain("a whole df >= 1 in ns(...)", repr(df), "ns(x, df=4)"))
    return np.arange(1, df) / df
