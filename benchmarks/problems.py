"""The standard problems, as functions that make a model and its rows; the prior is N(0, I) throughout.

    logistic    covariates N(0, 1) and a last column of ones, theta_true ~ N(0, 3 I / d); tall with d = 20
    paper       logistic, d = 3, theta_true = (0.7, 0.9, -0.1)
    steep       logistic with large coefficients, theta_true ~ N(0, 2.25 I): far from Gaussian where N / d is small
    multinomial three classes, theta_true = (1, -0.5, ...) and (-0.5, 1, ...) a class; d columns, so 2 d parameters
    poisson     log link, rates of about 0.1 to 3, a user's own model
    student     linear regression with Student's t noise of 4 degrees of freedom and scale 1, a user's own model
    gaussian    linear regression with noise N(0, 1): the posterior is exactly Gaussian

A problem's name is kind-N-d, such as "logistic-300-5". From 10^6 rows on they are float32, made without a float64 copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tallbayes as tb
from tallbayes.programs.later import jnp

Rows = dict[str, np.ndarray]
CALIBRATION = ("logistic-300-5", "logistic-10000-10", "poisson-2000-4", "student-1000-5")
GAUSSIAN = "gaussian-1000-5"
PAPER = "paper-10000-3"
STEEP, MULTINOMIAL = "steep-200-20", "multinomial-1000-3"
TRUTH = (0.7, 0.9, -0.1)
FLOAT32_ROWS = 1_000_000
FREEDOM = 4.0
STEEP_SCALE = 1.5
CLASSES = 3


def make(name: str) -> tuple[tb.Model, Rows]:
    """A problem by its name, kind-N-d."""
    kind, num_rows, dimension = split(name)
    return KINDS[kind](num_rows, dimension)


def split(name: str) -> tuple[str, int, int]:
    kind, num_rows, dimension = name.split("-")
    return kind, int(num_rows), int(dimension)


def tall_name(num_rows: int) -> str:
    return f"logistic-{num_rows}-20"


def logistic(num_rows: int, dimension: int) -> tuple[tb.Model, Rows]:
    theta = np.random.default_rng(0).normal(size=dimension) * np.sqrt(3 / dimension)
    return tb.families.logistic(prior_scale=1.0), binary_rows(num_rows, theta)


def paper(num_rows: int, dimension: int = 3) -> tuple[tb.Model, Rows]:
    return tb.families.logistic(prior_scale=1.0), binary_rows(num_rows, np.array(TRUTH))


def steep(num_rows: int, dimension: int) -> tuple[tb.Model, Rows]:
    theta = STEEP_SCALE * np.random.default_rng(0).normal(size=dimension)
    return tb.families.logistic(prior_scale=1.0), binary_rows(num_rows, theta)


def multinomial(num_rows: int, columns: int) -> tuple[tb.Model, Rows]:
    """The class is the largest of eta_k plus Gumbel noise, eta_0 = 0."""
    rng = generator(num_rows)
    x = covariates(rng, num_rows, columns)
    theta = np.array([np.resize((1.0, -0.5), columns), np.resize((-0.5, 1.0), columns)])
    utility = np.column_stack([np.zeros(num_rows), x @ theta.T])
    rows = {"x": x, "y": np.argmax(utility + rng.gumbel(size=utility.shape), axis=1).astype(float)}
    return tb.families.multinomial(CLASSES, prior_scale=1.0), rows


def poisson(num_rows: int, dimension: int) -> tuple[tb.Model, Rows]:
    rng = generator(num_rows)
    x = covariates(rng, num_rows, dimension)
    theta = np.append(0.66 / np.sqrt(dimension - 1) * (-1.0) ** np.arange(dimension - 1), -0.6)
    rows = {"x": x, "y": rng.poisson(np.exp(x @ theta)).astype(float)}
    return tb.Model(log_prior, poisson_likelihood, np.zeros(dimension)), rows


def student(num_rows: int, dimension: int) -> tuple[tb.Model, Rows]:
    rng = generator(num_rows)
    x = covariates(rng, num_rows, dimension)
    rows = {"x": x, "y": x @ linear_truth(dimension) + rng.standard_t(FREEDOM, size=num_rows)}
    return tb.Model(log_prior, student_likelihood, np.zeros(dimension)), rows


def gaussian(num_rows: int, dimension: int) -> tuple[tb.Model, Rows]:
    rng = generator(num_rows)
    x = covariates(rng, num_rows, dimension)
    rows = {"x": x, "y": x @ linear_truth(dimension) + rng.normal(size=num_rows)}
    return tb.families.linear(noise_scale=1.0), rows


KINDS: dict[str, Callable[[int, int], tuple[tb.Model, Rows]]] = {
    "logistic": logistic,
    "paper": paper,
    "steep": steep,
    "multinomial": multinomial,
    "poisson": poisson,
    "student": student,
    "gaussian": gaussian,
}


def log_prior(theta: Any) -> Any:
    return -0.5 * jnp.sum(theta**2)


def poisson_likelihood(theta: Any, row: Any) -> Any:
    eta = row["x"] @ theta
    return row["y"] * eta - jnp.exp(eta)


def student_likelihood(theta: Any, row: Any) -> Any:
    return -(FREEDOM + 1) / 2 * jnp.log1p((row["y"] - row["x"] @ theta) ** 2 / FREEDOM)


def generator(num_rows: int) -> np.random.Generator:
    return np.random.default_rng([1, num_rows])


def linear_truth(dimension: int) -> np.ndarray:
    return np.linspace(-1.0, 1.0, dimension)


def covariates(rng: np.random.Generator, num_rows: int, dimension: int) -> np.ndarray:
    dtype = np.float32 if num_rows >= FLOAT32_ROWS else np.float64
    x = rng.standard_normal((num_rows, dimension), dtype=dtype)
    x[:, -1] = 1.0
    return x


def binary_rows(num_rows: int, theta: np.ndarray) -> Rows:
    rng = generator(num_rows)
    x = covariates(rng, num_rows, len(theta))
    eta = x @ theta.astype(x.dtype)
    return {"x": x, "y": (rng.random(num_rows, dtype=x.dtype) * (1 + np.exp(-eta)) < 1).astype(x.dtype)}
