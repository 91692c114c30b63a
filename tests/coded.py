"""Rows of a small table with two categories as codes, and models of them; the first category has most levels."""

from __future__ import annotations

from typing import Any

import numpy as np

import tallbayes as tb
from tallbayes.model.linear import Indexed
from tallbayes.model.model import Target, bind
from tallbayes.model.parts.making import with_codes
from tallbayes.rows.table import Table, make_table

# Places: a column, ten levels, another column, three levels of another category; then the intercept.
LEVELS, OTHERS, WIDTH = (1, 10), (12, 3), 15
INDEXED = Indexed(WIDTH, (0, 11), (LEVELS, OTHERS))


def coded_model(prior_scale: float = 1.0, family: str = "logistic", **chosen: Any) -> tb.Model:
    made = getattr(tb.families, family)(prior_scale=prior_scale, intercept_scale=10.0, **chosen)
    return with_codes(made, INDEXED)


def coded_rows(count: int, seed: int = 0, noise: float | None = None) -> dict[str, np.ndarray]:
    """A tenth of the rows has no level of a category; y is a coin, or with `noise` a number."""
    rng = np.random.default_rng(seed)
    codes = np.stack([first + rng.integers(0, number + 1, count) for first, number in (LEVELS, OTHERS)], axis=1)
    codes = np.where(codes == [sum(LEVELS), sum(OTHERS)], WIDTH, codes).astype(np.int32)
    x, effect = rng.normal(size=(count, 2)), np.append(rng.normal(0, 0.5, WIDTH), 0.0)
    eta = x @ effect[[0, 11]] + effect[codes].sum(axis=1) - 0.5
    y = rng.random(count) < 1 / (1 + np.exp(-eta)) if noise is None else eta + noise * rng.normal(size=count)
    return {"x": x, "codes": codes, "y": y.astype(float)}


def bound(model: tb.Model, rows: Any, shuffle: bool = False) -> tuple[Target, Table, np.ndarray]:
    arrays = model.check(rows) if model.check is not None else rows
    target, start = bind(model, {name: array[0] for name, array in arrays.items()})
    return target, make_table(arrays, "float64", shuffle), start
