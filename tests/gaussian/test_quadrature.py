"""Gaussian integrals of what families predict, against many small pieces, at sds of eta from 0.1 to 1,000.

Deterministic: an answer must lie within its stated error, and that within 1e-9. Hermite's 32 nodes are the control.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy.special import expit, gammainc, ndtr
from scipy.stats import nbinom, norm

from tallbayes.gaussian.quadrature import MOST_NODES, Curve, Integral, integrate
from tallbayes.model.links import SIGMOID, Wanted

SDS = (0.1, 1.0, 8.0, 20.0, 100.0, 1000.0)
MEANS = np.array([-50.0, -7.3, -1.0, 0.0, 0.4, 3.0, 12.0, 50.0])
Function = Callable[[np.ndarray], np.ndarray]


def in_pieces(function: Function, mean: float, sd: float, ends: tuple[float, float]) -> tuple[float, float]:
    """E of the difference from the value at the mean, and of its square: by Gauss and Legendre on hundreds of pieces,
    about where the function rises and where the Gaussian is."""
    places = np.concatenate([np.linspace(*ends, 121), mean + sd * np.linspace(-10, 10, 81)])
    edges = np.unique(np.clip(places, mean - 10 * sd, mean + 10 * sd))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (1 + nodes)
    chance = half * weights * norm.pdf(x, mean, sd)
    difference = function(x) - function(np.array(mean))
    return float(np.sum(chance * difference)), float(np.sum(chance * difference**2))


def found(wanted: Wanted, mean: np.ndarray, sd: float, log_excess: float | None = None) -> Integral:
    with jax.enable_x64(True):
        parts = jax.jit(lambda m, s: wanted.gaussian(m, s, log_excess))(mean, np.full(len(mean), sd))
        return Integral(*(np.asarray(part) for part in parts))


CURVES: dict[str, tuple[Wanted, int, Function, tuple[float, float]]] = {
    "logistic": (Wanted("logistic"), 0, expit, (-40, 40)),
    "first of two classes": (Wanted("multinomial"), 0, lambda x: expit(-x), (-40, 40)),
    "second of two classes": (Wanted("multinomial"), 1, expit, (-40, 40)),
    "probit": (Wanted("probit"), 0, ndtr, (-9, 9)),
    **{
        f"a count of {k}": (Wanted("poisson", (k,)), 1, lambda x, k=k: gammainc(k, np.exp(np.minimum(x, 300))), ends)
        for k, ends in ((1, (-40, 4)), (5, (-9, 4.2)), (200, (4, 6.5)))
    },
}


@pytest.mark.parametrize("sd", [pytest.param(sd, marks=[pytest.mark.slow] * (sd in (0.1, 8.0, 100.0))) for sd in SDS])
@pytest.mark.parametrize("name", CURVES)
def test_what_rises_from_0_to_1_is_integrated_at_any_width(name: str, sd: float) -> None:
    wanted, output, function, ends = CURVES[name]
    integral = found(wanted, MEANS, sd)
    exact = np.array([in_pieces(function, mean, sd, ends) for mean in MEANS]).T
    assert np.all(np.abs(integral.moments[0, output] - exact[0]) < 1e-12 + integral.error[output])
    assert np.all(np.abs(integral.moments[1, output] - exact[1]) < 1e-12 + 2 * integral.error[output])
    assert integral.error[output].max() < 1e-9


def test_control_hermite_nodes_are_off_by_a_hundredth() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    for sd, least in ((8.0, 0.005), (20.0, 0.03)):
        means = np.linspace(-sd, sd, 41)
        exact = found(Wanted("logistic"), means, sd).moments[0, 0] + expit(means)
        hermite = expit(means[:, None] + sd * nodes) @ weights / weights.sum()
        assert np.abs(hermite - exact).max() > least


def test_a_probit_has_a_closed_form() -> None:
    for sd in SDS:
        mean = found(Wanted("probit"), MEANS, sd).moments[0, 0] + ndtr(MEANS)
        np.testing.assert_allclose(mean, ndtr(MEANS / np.sqrt(1 + sd**2)), atol=1e-12)


def test_lines_and_exponentials_are_closed_forms() -> None:
    line = found(Wanted("linear"), MEANS, 3.0)
    np.testing.assert_array_equal(line.moments[0], 0.0)
    np.testing.assert_allclose(line.moments[1], 9.0, rtol=1e-14)
    for sd in (1e-4, 0.1, 1.0, 8.0):
        rate = found(Wanted("poisson"), MEANS, sd)
        whole = rate.moments[0, 0] + np.exp(MEANS)
        np.testing.assert_allclose(whole, np.exp(MEANS + sd**2 / 2), rtol=1e-12)
        variance = rate.moments[1, 0] - rate.moments[0, 0] ** 2
        np.testing.assert_allclose(variance, np.exp(2 * MEANS + sd**2) * np.expm1(sd**2), rtol=1e-9)
        assert not np.any(rate.error)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("log_excess", [-3.0, 0.0, 2.5])
def test_tails_of_overdispersed_counts(k: int, log_excess: float) -> None:
    """With much overdispersion P(y < k) is felt far beyond the window: the stated error covers that."""
    size = np.exp(-log_excess)

    def tail(x: np.ndarray) -> np.ndarray:
        return nbinom.sf(k - 1, size, size / (size + np.exp(np.minimum(x, 500))))

    for sd in (0.1, 1.0, 20.0):
        parts = found(Wanted("negative_binomial", (k,)), MEANS, sd, log_excess)
        exact = np.array([in_pieces(tail, mean, sd, (-40, 60)) for mean in MEANS]).T
        assert np.all(np.abs(parts.moments[0, 1] - exact[0]) < 1e-10 + parts.error[1])
        assert np.all(np.abs(parts.moments[1, 1] - exact[1]) < 1e-10 + 2 * parts.error[1])


def test_too_few_nodes_are_told() -> None:
    """A step that would need more nodes than there may be shows in the error."""
    steep = Curve(lambda x: jax.nn.sigmoid(40 * x), -37.0, 37.0, 0.55 / 40)
    assert steep.nodes == MOST_NODES + 1
    with jax.enable_x64(True):
        parts = jax.jit(lambda m, s: integrate(steep, m, s))(np.array([0.01, 3.0]), np.array([5.0, 20.0]))
        integral = Integral(*(np.asarray(part) for part in parts))
    exact = np.array([in_pieces(lambda x: expit(40 * x), m, s, (-1.0, 1.0)) for m, s in ((0.01, 5.0), (3.0, 20.0))]).T
    assert np.all(np.abs(integral.moments[0] - exact[0]) < 1e-12 + integral.error)
    assert np.all(np.abs(integral.moments[1] - exact[1]) < 1e-12 + 2 * integral.error)
    assert SIGMOID.nodes < 200
