"""Arrowheads: their arithmetic, and the ends of a spectrum that is never written out."""

from __future__ import annotations

import numpy as np
import pytest

from tallbayes.gaussian import arrowhead
from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening


def made(arms: int, rest: int, first: int, seed: int = 0) -> Arrowhead:
    rng = np.random.default_rng(seed)
    diagonal, limbs = rng.uniform(1, 5, arms), rng.normal(size=(arms, rest))
    corner = limbs.T @ (limbs / diagonal[:, None]) + np.diag(rng.uniform(0.5, 2, rest))
    return Arrowhead(first, diagonal, limbs, corner).symmetric


@pytest.mark.parametrize("first", [0, 2, 3])
def test_sums_and_products_are_those_of_the_matrices(first: int) -> None:
    one, other = made(5, 3, first), made(5, 3, first, seed=1)
    v = np.random.default_rng(2).normal(size=8)
    np.testing.assert_allclose((one + other).whole(), one.whole() + other.whole(), rtol=1e-14)
    np.testing.assert_allclose((one - other).whole(), one.whole() - other.whole(), atol=1e-14)
    np.testing.assert_allclose((np.float64(2) * -one).whole(), -2 * one.whole(), rtol=1e-14)
    np.testing.assert_allclose(v @ one, v @ one.whole(), rtol=1e-13)
    assert v @ one @ v == pytest.approx(v @ one.whole() @ v, rel=1e-13)
    np.testing.assert_array_equal(one.diagonals, np.diag(one.whole()))
    np.testing.assert_array_equal(one.joined(*one.split(v)), v)


def test_the_ends_of_a_large_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(40, 4, 1)
    exact = np.linalg.eigvalsh(found.whole())
    monkeypatch.setattr(arrowhead, "LARGEST_WHOLE", 10)
    ends = ArrowWhitening.of(found, np.linalg.inv(np.linalg.cholesky(found.schur)).T).curvatures
    np.testing.assert_allclose(ends[[0, -1]], exact[[0, -1]], rtol=1e-5)
    assert len(ends) == len(exact)
    assert np.all(np.diff(ends) >= 0)
    with pytest.raises(MemoryError, match="44 rows"):
        found.whole()
