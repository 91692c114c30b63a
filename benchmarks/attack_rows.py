"""Attacks by rows that are hardly ever read: rare events, exposures, rare levels, in families and models of one's own.

The rows of every question are fixed; only the run's seed changes. Groups of a model of one's own are independent, so
that each is a number of its own: their truths are one-dimensional.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import quadrature
from questions import Question

import tallbayes as tb
from tallbayes.errors import require_extra

WIDE = 10.0


def rare_logistic(num_rows: int, positives: int, slope: float, tolerance: float) -> Question:
    """Exactly so many positives, drawn like exp(slope x): what few positives of a logistic regression look like."""
    rng = np.random.default_rng([16, num_rows, positives])
    x = np.column_stack([rng.normal(size=num_rows), np.ones(num_rows)]).astype(np.float32)
    y = events_at(rng, np.exp(slope * x[:, 0].astype(float)), positives).clip(max=1).astype(np.float32)
    regression = quadrature.Regression.of(quadrature.RARE_LOGISTIC, x, y, scale=WIDE)
    truth = regression.moments(reach=8.0, step=0.5)
    return Question(tb.families.logistic(prior_scale=WIDE), {"x": x, "y": y}, truth, tolerance)


def events_at(rng: np.random.Generator, rate: np.ndarray, count: int) -> np.ndarray:
    """How many of `count` events fall on each row, no row twice."""
    where = rng.choice(len(rate), count, replace=False, p=rate / rate.sum())
    return np.bincount(where, minlength=len(rate)).astype(float)


def rare_poisson(num_rows: int, events: int, slope: float, tolerance: float, exponential: bool = False) -> Question:
    """Events drawn like exp(slope x), x normal or exponential; no offset."""
    rng = np.random.default_rng([17, num_rows, events])
    column = rng.exponential(size=num_rows) if exponential else rng.normal(size=num_rows)
    y = events_at(rng, np.exp(slope * column), events)
    return poisson(column, y, None, tolerance)


def poisson(column: np.ndarray, y: np.ndarray, offset: np.ndarray | None, tolerance: float) -> Question:
    rows = {"x": np.column_stack([column, np.ones(len(y))]), "y": y}
    if offset is not None:
        rows["offset"] = offset
    known = 0.0 if offset is None else offset
    regression = quadrature.Regression.of(quadrature.POISSON, rows["x"], y, known, scale=WIDE)
    return Question(tb.families.poisson(prior_scale=WIDE), rows, regression.moments(), tolerance)


def pareto_exposures(num_rows: int, events: int, tolerance: float) -> Question:
    """Exposures with the tail 1/t; events fall where the exposure is."""
    rng = np.random.default_rng([18, num_rows])
    exposure, column = 1 / rng.random(num_rows), rng.normal(size=num_rows)
    y = rng.multinomial(events, exposure / exposure.sum()).astype(float)
    return poisson(column, y, np.log(exposure), tolerance)


def one_exposure(num_rows: int, events: int, tolerance: float) -> Question:
    """One row has all the exposure but a millionth a row, and all the events."""
    rng = np.random.default_rng([19, num_rows])
    exposure, y = np.full(num_rows, 1e-6), np.zeros(num_rows)
    place = int(rng.integers(num_rows))
    exposure[place], y[place] = 1.0, events
    rows = {"x": np.ones((num_rows, 1)), "y": y, "offset": np.log(exposure)}
    regression = quadrature.Regression.of(quadrature.POISSON, rows["x"], y, rows["offset"], scale=WIDE)
    return Question(tb.families.poisson(prior_scale=WIDE), rows, regression.moments(), tolerance)


def wide_prior(theta: Any) -> Any:
    return -0.5 * jnp.sum((theta / WIDE) ** 2)


def count_likelihood(theta: Any, row: Any) -> Any:
    eta = theta[row["group"]]
    return row["y"] * eta - jnp.exp(eta)


def survival_likelihood(theta: Any, row: Any) -> Any:
    eta = theta[row["group"]]
    return eta - jnp.exp(eta) * row["time"]


def groups(num_rows: int, sizes: tuple[int, ...]) -> np.ndarray:
    """Rare groups of given sizes at the end, the rest in three equal parts, in random order."""
    rest = np.arange(num_rows - sum(sizes)) % 3
    rare = np.repeat(3 + np.arange(len(sizes)), sizes)
    return np.random.default_rng([20, num_rows]).permutation(np.concatenate([rest, rare])).astype(np.int32)


def own_counts(num_rows: int, sizes: tuple[int, ...], count: int, tolerance: float, numpyro: bool = False) -> Question:
    """Poisson counts by group; all rows of a rare group have the same count, so that it is fitted exactly."""
    group = groups(num_rows, sizes)
    y = np.where(group >= 3, count, np.random.default_rng(21).poisson(2.0, num_rows)).astype(float)
    size = 3 + len(sizes)
    truth = quadrature.levels(np.bincount(group, y), np.bincount(group), WIDE)
    if numpyro:
        model, rows = tb.from_numpyro(partial(numpyro_counts, size), group, y)
        return Question(model, rows, truth, tolerance)
    model = tb.Model(wide_prior, count_likelihood, np.zeros(size))
    return Question(model, {"group": group, "y": y}, truth, tolerance)


def numpyro_counts(size: int, group: Any, y: Any) -> None:
    numpyro = require_extra("numpyro", "bench", "models written in it")
    dist = require_extra("numpyro.distributions", "bench", "models written in it")

    rate = numpyro.sample("rate", dist.Normal(0, WIDE).expand([size]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(rate[group])), obs=y)


def own_survival(num_rows: int, size: int, tolerance: float) -> Question:
    """Exponential times by group; those of the rare one are alike."""
    group = groups(num_rows, (size,))
    times = np.where(group >= 3, 2.0, np.random.default_rng(22).exponential(1.0, num_rows))
    truth = quadrature.levels(np.bincount(group), np.bincount(group, times), WIDE)
    model = tb.Model(wide_prior, survival_likelihood, np.zeros(4))
    return Question(model, {"group": group, "time": times}, truth, tolerance)
