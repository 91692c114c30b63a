"""Coefficients that rows name by code: the same numbers as with the columns written out, for every layout."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallbayes.model.linear import Indexed, Layout

LAYOUTS = [Layout(1, True), Layout(1), Layout(1, True, 1), Layout(3, True), Layout(2, False, 1)]
NUM_ROWS, WIDTH, COLUMNS, CATEGORIES = 50, 9, (1, 5), ((0, 2, 3, 4), (6, 7, 8))


def both(columns: tuple[int, ...] = COLUMNS) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """The same rows with columns written out, and with codes; a code of WIDTH is a level without a coefficient."""
    rng = np.random.default_rng(0)
    codes = np.stack([np.array([*places, WIDTH])[rng.integers(0, len(places) + 1, NUM_ROWS)] for places in CATEGORIES])
    x, whole = rng.normal(size=(NUM_ROWS, len(columns))), np.zeros((NUM_ROWS, WIDTH + 1))
    whole[:, list(columns)] = x
    for code in codes:
        whole[np.arange(NUM_ROWS), code] = 1.0
    coded = {"codes": jnp.asarray(codes.T, jnp.int32), "y": jnp.zeros(NUM_ROWS)}
    return {"x": jnp.asarray(whole[:, :-1])}, coded | ({"x": jnp.asarray(x)} if columns else {})


@pytest.mark.parametrize("columns", [COLUMNS, ()])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_stand_for_columns(layout: Layout, columns: tuple[int, ...]) -> None:
    coded_layout = Layout(layout.heads, layout.intercept, layout.extras, Indexed(WIDTH, columns))
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        whole, coded = both(columns)
        size = layout.dimension(whole)
        assert coded_layout.dimension(coded) == size
        theta, spread = jnp.asarray(rng.normal(size=size)), jnp.asarray(rng.normal(size=(size, size)))
        eta = layout.predict(whole, theta)
        slopes = rng.normal(size=eta.shape)
        bends = rng.normal(size=(NUM_ROWS,) if layout.is_scalar else (NUM_ROWS, layout.size, layout.size))
        bends = jnp.asarray(bends if layout.is_scalar else bends + bends.transpose(0, 2, 1))
        first = {name: array[3] for name, array in coded.items()}
        pairs = [
            (eta, coded_layout.predict(coded, theta)),
            (eta[3], coded_layout.predict(first, theta)),
            (layout.pull_back(whole, slopes), coded_layout.pull_back(coded, jnp.asarray(slopes))),
            (layout.moved(whole, spread), coded_layout.moved(coded, spread)),
            (layout.spread(whole, spread), coded_layout.spread(coded, spread)),
            (layout.spread(whole, spread[0]), coded_layout.spread(coded, spread[0])),
            (layout.diagonal(whole, bends), coded_layout.diagonal(coded, bends)),
            *[(layout.add_curvature(total, whole, bends), coded_layout.add_curvature(total, coded, bends))
              for total in (jnp.zeros((size, size)), spread)],
        ]  # fmt: skip
    for expected, found in pairs:
        np.testing.assert_allclose(found, expected, atol=1e-11)
