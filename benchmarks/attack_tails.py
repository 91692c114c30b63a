"""Attacks by tails: what few of a run's paths see, and what has no expectation at all.

five events     a log rate of five events, skewed to the left: theta has density exp(5 theta - t exp theta)
Student's t     a location with one observation and a flat prior: the posterior is the noise's own law
curved          y ~ N(a + b^2, 1) with a, b ~ N(0, 1): a bends like -b^2
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import quadrature
from questions import Question
from scipy import stats

import tallbayes as tb

WIDE = 10.0
EVENTS, EXPOSURE = 5, 50
BENT = 5.0
ENDS = (0.001, 0.025, 0.975, 0.999)


@cache
def five_events() -> tuple[Any, dict[str, np.ndarray], quadrature.Marginal]:
    y = np.zeros(EXPOSURE)
    y[:EVENTS] = 1.0
    rows = {"x": np.ones((EXPOSURE, 1)), "y": y}
    return tb.families.poisson(prior_scale=WIDE), rows, quadrature.log_rate(EVENTS, EXPOSURE, WIDE)


def edge(p: float) -> float:
    return five_events()[2].quantile(p)


def tail(name: str, tolerance: float) -> Question:
    """Of five events: what hangs on the upper or lower hundredth."""
    model, rows, marginal = five_events()
    low, high = edge(0.02), edge(0.99)
    asked = {
        "hinge": (lambda theta: jnp.maximum(theta[0] - high, 0.0), lambda at: np.maximum(at - high, 0.0)),
        "soft": (lambda theta: jax.nn.sigmoid((low - theta[0]) / 0.1), lambda at: 1 / (1 + np.exp((at - low) / 0.1))),
        "hard": (lambda theta: theta[0] < low, None),
        "steep": (lambda theta: jnp.exp(-2 * theta[0]), lambda at: np.exp(-2 * at)),
    }
    function, exact = asked[name]
    truth = 1 - marginal.above(low) if exact is None else marginal.mean(exact)
    return Question(model, rows, {name: [truth]}, tolerance, {"quantities": {name: function}})


def quantile_ends(what: str, result: tb.Result) -> dict[str, tb.Estimate]:
    return {"quantile": result.posterior.quantile(list(ENDS), what)}


def skewed_quantiles(tolerance: float) -> Question:
    model, rows, marginal = five_events()
    truth = {"quantile": [marginal.quantile(p) for p in ENDS]}
    return Question(model, rows, truth, tolerance, read=partial(quantile_ends, "[0]"))


def tail_density(tolerance: float) -> Question:
    """Where a thousandth of the mass is left, on either side."""
    model, rows, marginal = five_events()
    points = [edge(0.001), edge(0.01), edge(0.99), edge(0.999)]

    def read(result: tb.Result) -> dict[str, tb.Estimate]:
        return {"density": result.posterior.density(points, "[0]")}

    return Question(model, rows, {"density": marginal.density_at(points)}, tolerance, read=read)


def student(freedom: float, tolerance: float, method: Any = None, quantities: Any = ("mean", "sd")) -> Question:
    """Mean 0, and sd sqrt(nu / (nu - 2)) where there is one."""
    model = tb.Model(
        lambda theta: 0.0 * theta,
        lambda theta, row: -(freedom + 1) / 2 * jnp.log1p((row["y"] - theta) ** 2 / freedom),
        0.0,
    )
    known = {"mean": [0.0 if freedom > 1 else np.nan], "sd": [stats.t(freedom).std() if freedom > 2 else np.nan]}
    arguments = {"quantities": quantities} | ({} if method is None else {"method": method})
    return Question(model, {"y": np.zeros(1)}, {each: known[each] for each in quantities}, tolerance, arguments)


def randomised_student(freedom: float, tolerance: float) -> Question:
    return student(freedom, tolerance, tb.Randomised(tb.Anchored()))


def pole(tolerance: float) -> Question:
    """E 1 / (theta - 0.9) of N(0, 1/21), whose density there is small and not 0: it does not exist."""
    rows = {"x": np.ones((20, 1)), "y": np.zeros(20)}
    asked = {"pole": lambda theta: 1 / (theta[0] - 0.9)}
    return Question(tb.families.linear(noise_scale=1.0), rows, {"pole": [np.nan]}, tolerance, {"quantities": asked})


def five_rows(tolerance: float) -> Question:
    """A straight line through five points, the noise unknown."""
    rng = np.random.default_rng(27)
    x = np.column_stack([rng.normal(size=5), np.ones(5)])
    y = x @ [0.5, 1.0] + rng.normal(size=5)
    truth = quadrature.UnknownNoise(x, y, 1.0, 1.0).moments(-7.0, 4.0)
    return Question(tb.families.linear(), {"x": x, "y": y}, truth, tolerance)


def curved_quantiles(tolerance: float, num_rows: int = 4) -> Question:
    """The bent coordinate's; a given b is Gaussian, so that its density is one sum over b."""
    model = tb.Model(
        lambda theta: -0.5 * (theta[0] / BENT) ** 2 - 0.5 * theta[1] ** 2,
        lambda theta, row: -0.5 * (row["y"] - theta[0] - theta[1] ** 2) ** 2,
        np.zeros(2),
    )
    b, a = np.linspace(-7, 7, 1401), np.linspace(-30, 6, 20_001)
    precision = num_rows + 1 / BENT**2
    weight = np.exp(-0.5 * b**2 - 0.5 * b**4 * num_rows / (num_rows * BENT**2 + 1))
    density = np.zeros_like(a)
    for each, centre in zip(weight, -num_rows * b**2 / precision, strict=True):
        density += each * np.exp(-0.5 * precision * (a - centre) ** 2)
    marginal = quadrature.Marginal(a, density / quadrature.simpson(density, a))
    truth = {"quantile": [marginal.quantile(p) for p in ENDS]}
    return Question(model, {"y": np.zeros(num_rows)}, truth, tolerance, read=partial(quantile_ends, "[0]"))
