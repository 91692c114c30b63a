"""Attacks by second modes, and by predictions far from the rows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import quadrature
from jax.scipy.special import logsumexp
from questions import Question
from scipy.special import expit

import tallbayes as tb
from tallbayes.structure import Structure

# The error of Prediction.sd, by the name of its field; without such a field it is published without an error.
SD_ERRORS = ("sd_standard_error", "sd_bias_bound")


def mixture(weights: tuple[float, float], centres: np.ndarray, sds: tuple[float, float], tolerance: float) -> Question:
    """Two Gaussians as the prior, (2, d) their centres; the one row says nothing. It starts at zero."""
    share, size = np.array(weights), np.array(sds)

    def log_prior(theta: Any) -> Any:
        squares = jnp.sum((theta - centres) ** 2, axis=1) / size**2
        return logsumexp(jnp.log(share) - centres.shape[1] * jnp.log(size) - 0.5 * squares)

    def log_likelihood(theta: Any, row: Any) -> Any:
        return 0.0 * row["y"] * theta[0]

    mean = share @ centres
    variance = share @ (size[:, None] ** 2 + (centres - mean) ** 2)
    model = tb.Model(log_prior, log_likelihood, np.zeros(centres.shape[1]))
    return Question(model, {"y": np.zeros(1)}, {"mean": mean, "sd": np.sqrt(variance)}, tolerance)


def minor_mode(tolerance: float) -> Question:
    """A tenth of the mass, six sds away."""
    return mixture((0.9, 0.1), np.array([[0.0], [6.0]]), (1.0, 1.0), tolerance)


def heavy_mode(tolerance: float) -> Question:
    """All but a millionth of the mass is twelve sds from where the search starts."""
    return mixture((1e-6, 1 - 1e-6), np.array([[0.0], [12.0]]), (1.0, 1.0), tolerance)


def mode_in_direction(number: int, tolerance: float) -> Question:
    """In two dimensions: two fifths of the mass eight sds away, in one of twelve directions."""
    angle = 2 * np.pi * number / 12
    centres = np.array([[0.0, 0.0], [8 * np.cos(angle), 8 * np.sin(angle)]])
    return mixture((0.6, 0.4), centres, (1.0, 1.0), tolerance)


def far_rows(tolerance: float) -> Question:
    """Predictions where the sd of the linear predictor is about 8 and 20: the truth is one-dimensional in the slope."""
    rng = np.random.default_rng(28)
    x = rng.normal(size=(40, 1))
    y = (rng.random(40) < expit(0.5 * x[:, 0])).astype(float)
    regression = quadrature.Regression.of(quadrature.LOGISTIC, x, y, scale=1.0)
    (mode,), ((precision,),) = regression.mode
    sd = precision**-0.5
    marginal = quadrature.line(lambda at: regression.log_density(at[:, None]), mode - 10 * sd, mode + 10 * sd, 20_001)
    far = np.array([-20.0, -8.0, 1.0, 8.0, 20.0]) / sd
    exact = [
        (marginal.mean(lambda at, row=row: expit(row * at)), marginal.sd(lambda at, row=row: expit(row * at)))
        for row in far
    ]

    def read(result: tb.Result) -> dict[str, tb.Estimate]:
        found = result.predict({"x": far[:, None]})
        errors = {
            "mean": (found.standard_error, found.bias_bound),
            "sd": tuple(np.asarray(getattr(found, each, np.zeros(len(far)))) for each in SD_ERRORS),
        }
        return {name: predicted(name, getattr(found, name), *both) for name, both in errors.items()}

    truth = {"mean": [mean for mean, _ in exact], "sd": [spread for _, spread in exact]}
    return Question(tb.families.logistic(prior_scale=1.0), {"x": x, "y": y}, truth, tolerance, read=read)


def predicted(name: str, value: np.ndarray, standard_error: np.ndarray, bias_bound: np.ndarray) -> tb.Estimate:
    """value +- (1.96 se + bias bound); what is allowed is that, or a thousandth if it is less."""
    half = 1.96 * standard_error + bias_bound
    structure, freedom = Structure.leaf(value.shape), np.full(len(value), np.inf)
    return tb.Estimate(name, structure, value, standard_error, bias_bound, freedom, np.maximum(half, 1e-3))
