"""Mixed models for views: one small fit with two factors, and effects that are made up, of any number of groups."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tallbayes as tb
from tallbayes.results.effects import Effects

SCHOOLS, YEARS, ROWS = 24, 6, 360


def school_rows() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    school, year, x = rng.integers(0, SCHOOLS, ROWS), rng.integers(0, YEARS, ROWS), rng.normal(size=ROWS)
    effects = 2.0 * rng.normal(size=SCHOOLS)[school] + 1.5 * rng.normal(size=YEARS)[year]
    y = 50 + 3 * x + effects + rng.normal(size=ROWS)
    return {"y": y, "x": x, "school": [f"s{k}" for k in school], "year": [f"y{k}" for k in year]}


@cache
def fitted_schools() -> tb.Result:
    """Schools are integrated out, years are parameters; the response is standardised within."""
    return tb.fit("y ~ x + (1 | school) + (1 | year)", school_rows(), "linear", tolerance=0.2)


def made_up_effects(groups: int, by: str = "school", probability: float = 0.95) -> Effects:
    """As of N(0, 0.8^2) between groups and rows of a logistic regression."""
    rng = np.random.default_rng(0)
    counts, spread = rng.integers(3, 120, groups).astype(float), 0.8
    alone = 1 / np.sqrt(0.2 * counts)
    kept = spread**2 / (spread**2 + alone**2)
    own = spread * rng.normal(size=groups) + alone * rng.normal(size=groups)
    mean, sd = (kept * own)[:, None], (np.sqrt(kept) * alone)[:, None]
    error = 0.01 * sd
    levels = tuple(f"s{place}" for place in range(groups))
    ends = {"lower": mean - 1.96 * sd, "upper": mean + 1.96 * sd, "end_error": 3 * error, "within": sd}
    errors = {"mean_error": error, "sd_error": error}
    raw = 1 / (1 + np.exp(-0.3 - own))
    numbers: dict[str, Any] = {"mean": mean, "sd": sd, **ends, **errors, "counts": counts, "raw": raw}
    return Effects(by, levels, ("Intercept",), probability=probability, **numbers)
