"""The posterior as a signed ensemble: what is read off it afterwards is what would have been estimated."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import gaussian_posterior, gaussian_rows
from scipy.special import expit, softmax
from scipy.stats import norm

import tallbayes as tb
from tallbayes.anchor import Anchor
from tallbayes.posterior import Posterior


def gaussian_anchor(mode: np.ndarray, precision: np.ndarray) -> Anchor:
    zero = np.zeros_like(mode)
    return Anchor(mode, zero, -precision, precision, 0.0, 1.0, 10, zero)


def test_a_gaussian_is_exact_by_quadrature():
    """Paths that found nothing beyond the Gaussian: E Phi(eta) = Phi(m / sqrt(1 + v))."""
    mode, precision = np.array([0.5, -0.3, 0.2]), np.diag([4.0, 9.0, 2.0])
    nothing = np.repeat(np.random.default_rng(0).normal(size=(64, 1, 3)), 3, axis=1).astype(np.float32)
    posterior = Posterior(gaussian_anchor(mode, precision), (nothing, nothing), laplace=True)
    x = np.random.default_rng(1).normal(size=(7, 2))
    found = posterior.predict(x, norm.cdf, intercept=True)
    rows = np.column_stack([x, np.ones(7)])
    exact = norm.cdf(rows @ mode / np.sqrt(1 + np.sum(rows**2 / np.diag(precision), axis=1)))
    np.testing.assert_allclose(found.value, exact, atol=1e-9)
    np.testing.assert_allclose(found.standard_error, 0, atol=1e-12)


def test_several_heads_share_their_draws():
    mode = np.array([0.5, -0.3, 0.2, 0.1, 0.4, -0.2])
    nothing = np.zeros((64, 3, 6), np.float32)
    posterior = Posterior(gaussian_anchor(mode, 50 * np.eye(6)), (nothing,), laplace=True)

    def link(eta: np.ndarray) -> np.ndarray:
        return softmax(np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1), axis=-1)

    x = np.random.default_rng(1).normal(size=(5, 2))
    found = posterior.predict(x, link, heads=2, intercept=True)
    assert found.value.shape == (5, 3)
    np.testing.assert_allclose(found.value.sum(axis=1), 1, atol=1e-12)
    draws = mode + np.random.default_rng(3).normal(size=(200_000, 6)) / np.sqrt(50)
    eta = x @ draws[:, :4].reshape(-1, 2, 2).transpose(0, 2, 1) + draws[:, None, 4:]
    direct = link(eta).mean(axis=0)
    # 200,000 draws err by 2e-4 at most, the ensemble by its own error: five of both, 1e-6.
    assert np.all(np.abs(found.value - direct) < 5 * np.hypot(found.standard_error, 2e-4))


@pytest.fixture(scope="module")
def small() -> tuple[tb.Result, np.ndarray]:
    """A posterior far from Gaussian, with what is to be predicted among the quantities."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (rng.random(60) < expit(x @ [1.0, -2.0] + 0.3)).astype(float)
    new = 2 * rng.normal(size=(4, 2))

    def chance(theta):
        return 1 / (1 + jnp.exp(-(new @ theta["coefficients"] + theta["intercept"])))

    model = tb.families.logistic(prior_scale=3.0, intercept_scale=5.0)
    return tb.estimate(model, {"x": x, "y": y}, {"mean": "mean", "chance": chance}, tolerance=0.05), new


def test_predictions_are_the_quantities_they_are(small):
    """The same paths, so only the Gaussian part differs: quadrature here, draws there."""
    result, new = small
    found = result.posterior.predict(new, expit, intercept=True)
    estimate = result["chance"]
    slack = 5 * np.hypot(found.standard_error, estimate.standard_error)
    assert np.all(np.abs(found.value - estimate.value) < slack)
    theta = result["mean"].value
    plug_in = expit(new @ theta["coefficients"] + theta["intercept"])
    assert np.any(np.abs(found.value - plug_in) > 5 * found.standard_error)


def test_the_ensemble_is_saved_with_the_result(small, tmp_path):
    result, new = small
    result.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result")
    before, after = (each.posterior.predict(new, expit, intercept=True) for each in (result, loaded))
    np.testing.assert_array_equal(before.value, after.value)


def test_chunks_do_not_change_a_row(small, monkeypatch):
    result, new = small
    whole = result.posterior.predict(new, expit, intercept=True)
    monkeypatch.setattr("tallbayes.posterior.CHUNK_NUMBERS", 1)
    one_by_one = result.posterior.predict(new, expit, intercept=True)
    np.testing.assert_allclose(whole.value, one_by_one.value, rtol=1e-12)


def test_paths_without_a_gaussian_stand_for_themselves():
    """The paper's ladder on a Gaussian posterior: E (x . theta) is x . mean, within its own error."""
    rows = gaussian_rows(200, 2, 0.7, seed=3)
    mean, _ = gaussian_posterior(rows, 0.7, 1.0)
    result = tb.estimate(tb.families.linear(0.7), rows, tolerance=0.3, method=tb.Multilevel(), seed=5)
    assert result.posterior is not None
    assert not result.posterior.laplace
    x = np.eye(2)
    found = result.posterior.predict(x, lambda eta: eta)
    assert np.all(np.abs(found.value - mean) < 6 * found.standard_error + result["mean"].bias_bound)
