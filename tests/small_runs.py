"""A small logistic regression, run in several ways."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scenarios import by_ladder, logistic_rows

import tallbayes as tb

ROWS = logistic_rows(200, (0.8, -0.2))
LOGISTIC = tb.families.logistic()
PAPERS = tb.Multilevel()


def run(**options: Any) -> tb.Result:
    # About the mode there is something left to sample, to stop and to go on with.
    if options.get("method") is None:
        options["method"] = tb.Anchored(anchor="mode")
    return tb.estimate(LOGISTIC, ROWS, **{"tolerance": 0.2, "seed": 1, **options})


@cache
def small_run() -> tb.Result:
    return run()


@cache
def papers_run() -> tb.Result:
    """By the paper's method, which has neither pilots of its own nor a Laplace level."""
    return run(method=PAPERS)


def pytree_model() -> tb.Model:
    """The same posterior with its parameters in a dict."""

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"][0] * theta["slopes"][0, 0] + theta["intercept"]
        return row["y"] * eta - jax.nn.softplus(eta)

    return tb.Model(
        log_prior=lambda theta: -0.5 * (jnp.sum(theta["slopes"] ** 2) + theta["intercept"] ** 2),
        log_likelihood=log_likelihood,
        initial={"slopes": np.zeros((1, 1)), "intercept": 0.0},
    )


@cache
def nested_run() -> tb.Result:
    """Quantities of several shapes, of a model whose parameters are a dict."""
    quantities = {
        "mean": "mean",
        "odds": lambda theta: {"x": jnp.exp(theta["slopes"]), "both": [theta["intercept"], None]},
        "one": lambda theta: 1.0,
        "positive": lambda theta: theta["slopes"][0, 0] > 0,
    }
    return by_ladder(pytree_model(), ROWS, quantities, tolerance=0.5, max_levels=3)
