"""The references of the benchmarks are right: importance sampling against quadrature, where two parameters allow it."""

from __future__ import annotations

import numpy as np
import pytest
import references


def rows_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=40), np.ones(40)])
    eta = x @ [0.9, -0.4]
    responses = {
        "logistic": (rng.random(40) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
        "student": eta + rng.standard_t(4, size=40),
    }
    return x, responses[kind]


def log_likelihood(kind: str, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Written a second time, term by term."""
    if kind == "logistic":
        return y * eta - np.logaddexp(0, eta)
    if kind == "poisson":
        return y * eta - np.exp(eta)
    return -2.5 * np.log1p((y - eta) ** 2 / 4)


def quadrature(kind: str, x: np.ndarray, y: np.ndarray, nodes: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd on a square grid that reaches past the prior's and the likelihood's mass; spectrally accurate."""
    axis = np.linspace(-4, 4, nodes)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = log_likelihood(kind, theta @ x.T, y).sum(axis=1) - 0.5 * np.sum(theta**2, axis=1)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight @ (theta - mean) ** 2)


@pytest.mark.parametrize(
    ("kind", "freedom"),
    [
        ("poisson", None),
        ("student", 10.0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("poisson", 10.0), ("student", None))),
        *(pytest.param("logistic", each, marks=pytest.mark.slow) for each in (None, 10.0)),
    ],
)
def test_importance_sampling_agrees_with_quadrature(kind: str, freedom: float | None) -> None:
    """4 numbers a problem, errors from 32 batches: |t_31| > 7 comes up by chance once in 1e7; 24 numbers, 2e-6."""
    x, y = rows_of(kind)
    found = references.solve(references.Posterior(references.LIKELIHOODS[kind], x, y), goal=1e-3, freedom=freedom)
    mean, sd = quadrature(kind, x, y)
    assert found.worst_error <= 1e-3
    assert np.all(np.abs(found.mean - mean) < 7 * np.array(found.mean_error))
    assert np.all(np.abs(found.sd - sd) < 7 * np.array(found.sd_error))


def test_a_wrong_likelihood_is_seen() -> None:
    """The negative control: the reference of other noise is not within 7 errors of quadrature."""
    x, y = rows_of("student")
    found = references.solve(references.Posterior(references.GAUSSIAN, x, y), goal=1e-3, freedom=10.0)
    mean, sd = quadrature("student", x, y)
    assert np.max(np.abs(found.mean - mean)) > 7 * max(found.mean_error)
    assert np.max(np.abs(found.sd - sd)) > 7 * max(found.sd_error)


def test_the_closed_form_of_a_gaussian() -> None:
    x, y = rows_of("student")
    found = references.closed_form(references.Posterior(references.GAUSSIAN, x, y))
    precision = x.T @ x + np.eye(2)
    np.testing.assert_allclose(found.mean, np.linalg.solve(precision, x.T @ y), rtol=1e-12)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-12)
