"""Columns of the last extra's own: what a layout says of rows is what the rows of A say, written out one by one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import DataError, ModelError
from tallbayes.estimation.small import unit_of
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.whitening import DenseWhitening, DiagonalWhitening
from tallbayes.model.linear import Indexed, Layout
from tallbayes.weighing.regression import plain_regression

NUM_ROWS, OWN, BESIDE, FIRST, LEVELS = 40, 2, 2, 2, 4
STEP = 1e-4


def rows_of(coded: bool) -> tuple[Layout, dict[str, np.ndarray], np.ndarray]:
    """A layout with an intercept and two extras, rows, and A (rows, predictors, dimension): columns of the mean, a
    category, columns of the last extra, the intercept, the extras."""
    rng = np.random.default_rng(5)
    x, code = rng.normal(size=(NUM_ROWS, OWN + BESIDE)), rng.integers(0, LEVELS + 1, NUM_ROWS)
    width = OWN + BESIDE + LEVELS * coded
    matrix = np.zeros((NUM_ROWS, 3, width + 3))
    matrix[:, 0, :OWN], matrix[:, 2, width - BESIDE : width] = x[:, :OWN], x[:, OWN:]
    matrix[:, [0, 1, 2], [width, width + 1, width + 2]] = 1.0
    rows = {"x": x, "y": rng.normal(size=NUM_ROWS)}
    if not coded:
        return Layout(1, True, 2, beside=BESIDE), rows, matrix
    named = code < LEVELS
    matrix[named, 0, FIRST + code[named]] = 1.0
    rows["codes"] = np.where(named, FIRST + code, width).astype(np.int32)[:, None]
    indexed = Indexed(width, (0, 1, width - 2, width - 1), ((FIRST, LEVELS),))
    return Layout(1, True, 2, indexed, beside=BESIDE), rows, matrix


@pytest.mark.parametrize("coded", [False, True])
def test_a_layout_says_what_its_matrix_says(coded: bool) -> None:
    layout, rows, matrix = rows_of(coded)
    rng, size = np.random.default_rng(6), matrix.shape[2]
    root, slopes = rng.normal(size=(size, size)), rng.normal(size=(NUM_ROWS, 3))
    bends = rng.normal(size=(NUM_ROWS, 3, 3))
    bends = bends + bends.transpose(0, 2, 1)
    hessian = np.einsum("nai,nab,nbj->ij", matrix, bends, matrix)
    theta = rng.normal(size=size)
    covariance = root @ root.T
    expected = [
        matrix @ theta,
        np.einsum("nai,na->i", matrix, slopes),
        np.einsum("nai,ij->anj", matrix, root),
        np.einsum("nai,ij,nbj->nab", matrix, covariance, matrix),
        np.einsum("nai,i,nbi->nab", matrix, root[0] ** 2, matrix),
        hessian,
    ]

    @jax.jit
    def answers(rows: Any, theta: Any, root: Any) -> list[Any]:
        return [
            layout.predict(rows, theta),
            layout.pull_back(rows, slopes),
            layout.moved(rows, root),
            layout.spread(rows, DenseWhitening(None, root)),
            layout.spread(rows, DiagonalWhitening(None, root[0])),
            layout.add_curvature(jnp.zeros_like(root), rows, bends),
        ]

    with jax.enable_x64(True):
        assert layout.dimension(rows) == size
        found = answers(rows, theta, root)
        one = layout.predict({name: each[3] for name, each in rows.items()}, theta)
        if coded:
            shapes = (LEVELS,), (LEVELS, size - LEVELS), (size - LEVELS, size - LEVELS)
            parts = jax.jit(layout.add_arrow)([np.zeros(shape) for shape in shapes], rows, bends)
            found.append(Arrowhead(FIRST, *(np.asarray(part) for part in parts)).times(np.eye(size)))
            expected.append(hessian)
        else:
            found.append(layout.diagonal(rows, bends))
            expected.append(np.einsum("nai,na->i", matrix**2, np.diagonal(bends, axis1=1, axis2=2)))
    for each, wanted in zip([*found, one], [*expected, expected[0][3]], strict=True):
        np.testing.assert_allclose(each, wanted, atol=1e-11)


@pytest.mark.parametrize("family", [tb.families.linear, tb.families.student_t])
def test_the_regression_in_numpy_is_the_one_in_jax(family: Any) -> None:
    """Its log density up to a constant, and its derivatives by differences, where noise differs a lot."""
    _, rows, _ = rows_of(False)
    model = family(noise_columns=BESIDE, intercept_scale=3.0)
    plain = plain_regression(model, model.check(rows), unit_of(model, rows))
    points = 0.5 * np.random.default_rng(7).normal(size=(5, OWN + BESIDE + 2))

    def log_density(point: Any) -> Any:
        theta = {"coefficients": point[:4], "intercept": point[4], "log_noise_scale": point[5]}
        own = jax.vmap(lambda x, y: model.log_likelihood(theta, {"x": x, "y": y}))(rows["x"], rows["y"])
        return model.log_prior(theta) + own.sum()

    with jax.enable_x64(True):
        jaxed = jax.jit(jax.vmap(log_density))(points)
    found = plain.log_density(points)
    np.testing.assert_allclose(found - found[0], jaxed - jaxed[0], atol=1e-9)
    terms, moves = plain.at(points[0]), STEP * np.eye(6)
    ends = [[plain.log_density(points[:1] + a * one)[0] for a in (1, -1)] for one in moves]
    gradient = np.array([(up - down) / (2 * STEP) for up, down in ends])
    hessian = np.array(
        [
            [
                sum(a * b * plain.log_density(points[:1] + a * one + b * two)[0] for a in (1, -1) for b in (1, -1))
                for one in moves
            ]
            for two in moves
        ]
    ) / (4 * STEP**2)
    size = np.sqrt(np.diag(-hessian))
    # By a rule of nodes at 0.02 of the noise.
    np.testing.assert_allclose(terms.gradient / size, gradient / size, atol=0.02)
    np.testing.assert_allclose(terms.curvature / np.outer(size, size), -hessian / np.outer(size, size), atol=0.02)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ModelError, match="unknown beside noise_columns"):
        tb.families.linear(noise_scale=1.0, noise_columns=1)
    with pytest.raises(ModelError, match="whole number"):
        tb.families.student_t(noise_columns=-1)
    with pytest.raises(ModelError, match="shrinkage"):
        tb.families.linear(noise_columns=1, priors={"coefficients": tb.priors.horseshoe(0.1)})
    with pytest.raises(DataError, match="columns of x"):
        tb.estimate(tb.families.linear(noise_columns=3), {"x": np.ones((9, 2)), "y": np.arange(9.0)})
