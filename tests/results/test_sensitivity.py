"""Sensitivity: closed forms, refits at other powers by quadrature, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.moments import Floats
from tallbayes.results.powers.sensitivity import CONFLICT, DRAWN, LIKELIHOOD, PRIOR, WEAK, Sensitivity

LOG2 = np.log(2.0)
# Two-sided false alarms of a normal error at this many standard errors: 6e-7; errors hold the bias bound too.
FAR = 5.0
POWERS = np.log2([0.8, 1.25])


def binary_rows(count: int = 60) -> dict[str, Floats]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 2))
    return {"x": x, "y": (rng.random(count) < 1 / (1 + np.exp(-x @ [1.6, -0.6]))).astype(float)}


def moments(rows: dict[str, Floats], prior: float, likelihood: float) -> Floats:
    """Means and sds of a logistic regression of two columns with powers, by quadrature on a grid."""
    one = np.linspace(-3, 6, 200)
    theta = np.stack([each.ravel() for each in np.meshgrid(one, one)], axis=1)
    eta = theta @ rows["x"].T
    log = likelihood * (eta * rows["y"] - np.logaddexp(0, eta)).sum(axis=1) - prior * 0.5 * (theta**2).sum(axis=1)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = weights @ theta
    return np.array([mean, np.sqrt(weights @ (theta - mean) ** 2)])


def refitted(rows: dict[str, Floats], which: str) -> Floats:
    """Slopes in log2 of a power, in posterior sds, by refits at powers 0.8 and 1.25: (means and sds, parameters)."""
    ends = [moments(rows, 2**each, 1.0) if which == PRIOR else moments(rows, 1.0, 2**each) for each in POWERS]
    return (ends[1] - ends[0]) / (POWERS[1] - POWERS[0]) / moments(rows, 1.0, 1.0)[1]


@pytest.fixture(scope="module")
def weighed() -> tb.Result:
    return tb.estimate(tb.families.logistic(), binary_rows(), tolerance=0.02)


@pytest.fixture(scope="module")
def found(weighed: tb.Result) -> Sensitivity:
    return weighed.sensitivity()


def departures(found: Sensitivity, which: str, rows: dict[str, Floats], sign: float = 1.0) -> Floats:
    place = found.densities.index(which)
    # A central difference over powers 0.8 to 1.25 is off by some thousandths.
    apart = found.values[place].T - sign * refitted(rows, which)
    return np.asarray((np.abs(apart) - 0.004) / found.errors[place].T)


@pytest.mark.parametrize("which", [PRIOR, LIKELIHOOD])
def test_it_is_what_refits_at_other_powers_say(found: Sensitivity, which: str) -> None:
    assert departures(found, which, binary_rows()).max() < FAR


def test_control_the_other_sign_is_far_off(found: Sensitivity) -> None:
    assert departures(found, PRIOR, binary_rows(), sign=-1.0).max() > 4 * FAR


@pytest.mark.slow
def test_paths_say_the_same_as_draws_with_weights() -> None:
    anchored = tb.estimate(tb.families.logistic(), binary_rows(), tolerance=0.05, method=tb.Anchored())
    found = anchored.sensitivity()
    assert departures(found, PRIOR, binary_rows()).max() < FAR
    # Beyond the Gaussian the likelihood is known but roughly, and the error says so.
    assert departures(found, LIKELIHOOD, binary_rows()).max() < FAR
    assert "likelihood" in found.notes[-1]


def test_of_a_gaussian_posterior_it_is_a_closed_form() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    rows = {"x": x, "y": x @ [1.0, 0.5, -0.2] + 2 * rng.normal(size=40)}
    scale = np.array([0.3, 1.0, 2.0])
    result = tb.estimate(tb.families.linear(prior_scale=scale, noise_scale=2.0), rows, tolerance=0.05)
    found = result.sensitivity()
    covariance = np.linalg.inv(x.T @ x / 4 + np.diag(1 / scale**2))
    mean, sd = covariance @ x.T @ rows["y"] / 4, np.sqrt(np.diag(covariance))
    for part in range(3):
        # Cov(theta_j, -theta_k^2 / 2 s_k^2) = -m_k C_jk / s_k^2, and Cov((theta_j - m_j)^2, same) = -C_jk^2 / s_k^2.
        across = covariance[:, part] / scale[part] ** 2
        expected = np.stack([-LOG2 * mean[part] * across / sd, -LOG2 * across * covariance[:, part] / (2 * sd**2)], 1)
        np.testing.assert_allclose(found.values[part], expected, atol=1e-9)
    assert np.abs(found.errors[:4]).max() < 1e-9
    # The powers of both together multiply the precision.
    total = found.values[found.densities.index(PRIOR)] + found.values[found.densities.index(LIKELIHOOD)]
    np.testing.assert_allclose(total[:, 0], 0, atol=1e-9)
    np.testing.assert_allclose(total[:, 1], -LOG2 / 2, atol=1e-9)


def test_parts_add_up_to_the_prior(found: Sensitivity) -> None:
    parts = [found.densities.index(each) for each in found.parts]
    np.testing.assert_allclose(found.values[parts].sum(axis=0), found.values[found.densities.index(PRIOR)], atol=1e-12)


def test_a_prior_that_ties_parameters_is_one_whole() -> None:
    model = tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum((theta[0] - theta[1]) ** 2) - 0.5 * theta[0] ** 2,
        log_likelihood=lambda theta, row: -0.5 * (row["y"] - row["x"] @ theta) ** 2,
        initial=np.zeros(2),
    )
    result = tb.estimate(model, binary_rows(), tolerance=0.2)
    found = result.sensitivity()
    assert found.densities == (PRIOR, LIKELIHOOD)
    assert found.hangs_on("[0]") == ""


def table(count: int = 120) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    kind = np.array(["a", "b", "rare"])[np.r_[np.zeros(70, int), np.ones(48, int), [2, 2]]]
    hour = rng.normal(12.0, 4.0, count)
    return {"y": (rng.random(count) < 1 / (1 + np.exp(-0.2 * (hour - 12)))).astype(int), "hour": hour, "kind": kind}


@pytest.fixture(scope="module")
def fitted() -> tb.Result:
    return tb.fit("y ~ hour + kind", table(), family="logistic", tolerance=0.05)


def test_parts_have_the_names_of_columns_and_a_rare_level_hangs_on_its_own(fitted: tb.Result) -> None:
    found = fitted.sensitivity()
    assert set(found.densities) == {"Intercept", "hour", "kind[T.b]", "kind[T.rare]", PRIOR, LIKELIHOOD}
    assert found.hangs_on("kind[T.rare]") == "kind[T.rare]"
    assert found.finding("kind[T.rare]") == WEAK
    assert found.ranked[0] == found.sensitive[0] == "kind[T.rare]"
    text, html = str(found), found._repr_html_()
    assert WEAK in text
    assert "kind[T.rare]" in html
    frame = found.to_pandas()
    assert len(frame) == 4 * 6
    one = frame[(frame.parameter == "hour") & (frame.density == PRIOR)].iloc[0]
    assert (one["mean"], one["mean_error"]) == found.mean("hour")


def test_the_report_says_it_where_it_is_asked_to(fitted: tb.Result, tmp_path: Path) -> None:
    plain = fitted.report(tmp_path / "plain.html").read_text()
    asked = fitted.report(tmp_path / "asked.html", sensitivity=True).read_text()
    assert "Which priors matter" not in plain
    assert "Which priors matter" in asked
    assert 'class="chart wide"' in asked


@pytest.mark.parametrize(
    ("prior", "likelihood", "said"),
    [
        ((0.01, -0.02), (0.2, -0.3), ""),
        ((-0.2, -0.02), (0.2, -0.3), CONFLICT),
        ((-0.2, -0.3), (0.2, -0.04), WEAK),
        ((-0.2, -0.02), (0.01, -0.3), DRAWN),
        ((0.0, -0.1), (0.0, -0.25), DRAWN),
    ],
)
def test_findings(prior: tuple[float, float], likelihood: tuple[float, float], said: str) -> None:
    values = np.array([[prior], [likelihood]])
    found = Sensitivity(("a",), (PRIOR, LIKELIHOOD), values, np.zeros((2, 1, 2)), np.zeros((2, 1, 2)))
    assert found.finding("a") == said


def test_what_cannot_be_asked(found: Sensitivity, weighed: tb.Result) -> None:
    with pytest.raises(tb.InputError, match="the name of a parameter"):
        found.mean("nothing")
    with pytest.raises(tb.InputError, match="a part of the prior"):
        found.mean("[0]", "nothing")
    with pytest.raises(tb.InputError, match="rows that it was fitted to"):
        replace(weighed, fitted_source=None).sensitivity()
