"""Coefficients that rows name by code: the same numbers as with the columns written out, for every layout."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening
from tallbayes.gaussian.whitening import DenseWhitening, DiagonalWhitening
from tallbayes.model.linear import Arms, Indexed, Layout

LAYOUTS = [Layout(1, True), Layout(1), Layout(1, True, 1), Layout(3, True), Layout(2, False, 1)]
NUM_ROWS, WIDTH, COLUMNS, CATEGORIES = 50, 9, (1, 5), ((0, 2, 3, 4), (6, 7, 8))


def both(columns: tuple[int, ...] = COLUMNS) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The same rows with columns written out, and with codes; a code of WIDTH is a level without a coefficient."""
    rng = np.random.default_rng(0)
    codes = np.stack([np.array([*places, WIDTH])[rng.integers(0, len(places) + 1, NUM_ROWS)] for places in CATEGORIES])
    x, whole = rng.normal(size=(NUM_ROWS, len(columns))), np.zeros((NUM_ROWS, WIDTH + 1))
    whole[:, list(columns)] = x
    for code in codes:
        whole[np.arange(NUM_ROWS), code] = 1.0
    coded = {"codes": codes.T.astype(np.int32), "y": np.zeros(NUM_ROWS)}
    return {"x": whole[:, :-1]}, coded | ({"x": x} if columns else {})


def answers(layout: Layout, rows: Any, theta: Any, spread: Any, slopes: Any, bends: Any) -> list[jax.Array]:
    """All that a layout says of rows."""
    return [
        layout.predict(rows, theta),
        layout.pull_back(rows, slopes),
        layout.moved(rows, spread),
        layout.spread(rows, DenseWhitening(None, spread)),
        layout.spread(rows, DiagonalWhitening(None, spread[0])),
        layout.diagonal(rows, bends),
        layout.add_curvature(jnp.zeros_like(spread), rows, bends),
        layout.add_curvature(spread, rows, bends),
    ]


@pytest.mark.parametrize("columns", [COLUMNS, ()])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_stand_for_columns(layout: Layout, columns: tuple[int, ...]) -> None:
    coded_layout = Layout(layout.heads, layout.intercept, layout.extras, Indexed(WIDTH, columns))
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        whole, coded = both(columns)
        size = layout.dimension(whole)
        assert coded_layout.dimension(coded) == size
        theta, spread = rng.normal(size=size), rng.normal(size=(size, size))
        slopes = rng.normal(size=jax.eval_shape(layout.predict, whole, theta).shape)
        bends = rng.normal(size=(NUM_ROWS,) if layout.is_scalar else (NUM_ROWS, layout.size, layout.size))
        bends = bends if layout.is_scalar else bends + bends.transpose(0, 2, 1)
        first = {name: array[3] for name, array in coded.items()}
        wanted = jax.jit(partial(answers, layout))(whole, theta, spread, slopes, bends)
        found = jax.jit(partial(answers, coded_layout))(coded, theta, spread, slopes, bends)
        of_one = jax.jit(coded_layout.predict)(first, theta)
    for one, other in zip([*found, of_one], [*wanted, wanted[0][3]], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)


RUNS = ((0, 2), (4, 5))


def coded_runs() -> dict[str, np.ndarray]:
    """Rows with a column at place 2 and another at 3, and two categories that are runs of places, some without one."""
    rng = np.random.default_rng(2)
    codes = np.stack([first + rng.integers(0, count + 1, NUM_ROWS) for first, count in RUNS], axis=1)
    codes = np.where(codes == [first + count for first, count in RUNS], WIDTH, codes)
    return {"x": rng.normal(size=(NUM_ROWS, 2)), "codes": codes.astype(np.int32), "y": np.zeros(NUM_ROWS)}


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each.heads == 1])
def test_the_arrow_of_a_layout_is_its_curvature(layout: Layout) -> None:
    coded = Layout(layout.heads, layout.intercept, layout.extras, Indexed(WIDTH, (2, 3), RUNS))
    assert coded.arms == Arms(1, 4, 5)
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        rows = coded_runs()
        size = coded.dimension(rows)
        bends = rng.normal(size=(NUM_ROWS,) if layout.is_scalar else (NUM_ROWS, layout.size, layout.size))
        bends = bends if layout.is_scalar else bends + bends.transpose(0, 2, 1)
        shapes = (5,), (5, size - 5), (size - 5, size - 5)
        parts = jax.jit(coded.add_arrow)([np.zeros(shape) for shape in shapes], rows, bends)
        found = Arrowhead(4, *(np.asarray(part) for part in parts))
        dense = jax.jit(coded.add_curvature)(np.zeros((size, size)), rows, bends)
        np.testing.assert_allclose(found.times(np.eye(size)), dense, atol=1e-12)
        positive = found * 0.01 + Arrowhead(4, np.ones(5), np.zeros((5, size - 5)), np.eye(size - 5))
        whole = positive.symmetric.whole()
        root = np.linalg.inv(np.linalg.cholesky(positive.symmetric.schur)).T
        spread = jax.jit(coded.spread)(rows, ArrowWhitening.of(positive.symmetric, root))
        expected = jax.jit(coded.spread)(rows, DenseWhitening(whole, np.linalg.inv(np.linalg.cholesky(whole)).T))
        np.testing.assert_allclose(spread, expected, rtol=1e-10, atol=1e-10)


def test_several_heads_have_no_arms() -> None:
    assert Layout(3, True, 0, Indexed(WIDTH, (2, 3), RUNS)).arms is None
    assert Layout(1, True, 0, Indexed(WIDTH, (2, 3))).arms is None
