"""The references of mixed models are right: against dense grids, and in closed form where rows are linear."""

from __future__ import annotations

import mixed_problems
import mixed_references
import numpy as np
import pytest
from mixed_likelihood import Likelihood
from mixed_problems import Priors
from scipy.special import gammaln
from scipy.stats import multivariate_normal

SIZES = np.array([1, 2, 9, 30])


def rows_of(family: str) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    group = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    x1 = rng.normal(size=len(group))
    eta = 0.3 + 0.5 * x1 + rng.normal(size=len(SIZES))[group]
    responses = {
        "logistic": rng.random(len(eta)) < 1 / (1 + np.exp(-eta)),
        "poisson": rng.poisson(np.exp(eta)),
        "linear": eta + rng.normal(size=len(eta)),
    }
    return {"Intercept": np.ones(len(eta)), "x1": x1}, group.astype(str), responses[family].astype(float)


def by_hand(family: str, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    if family == "logistic":
        return y * eta - np.logaddexp(0, eta)
    return y * eta - np.exp(eta) - gammaln(y + 1)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
@pytest.mark.parametrize(("tau", "rho"), [((1.2, 0.7), 0.5), ((0.01, 2.0), -0.8)])
def test_integrals_agree_with_a_dense_grid(family: str, tau: tuple[float, float], rho: float) -> None:
    """An even sum over |u| < 9 in two dimensions, spectrally accurate; nothing here is random."""
    columns, group, y = rows_of(family)
    root = mixed_references.roots(np.array([tau]), np.array([rho]))
    beta, likelihood = np.array([[0.2, 0.4]]), Likelihood.of_rows(family, columns, ("Intercept", "x1"), group, y)
    value, first, second = likelihood.evaluate(beta, root, np.ones(1), 41)
    axis = np.linspace(-9, 9, 361)
    u = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    b, x, total = u @ root[0].T, np.column_stack(list(columns.values())), 0.0
    for place, level in enumerate(likelihood.levels):
        mine = group == level
        log_joint = by_hand(family, (x[mine] @ beta[0])[:, None] + x[mine] @ b.T, y[mine, None]).sum(axis=0)
        log_joint -= 0.5 * np.sum(u**2, axis=1) + np.log(2 * np.pi)
        weight = np.exp(log_joint - log_joint.max())
        total += np.log(weight.sum() * (axis[1] - axis[0]) ** 2) + log_joint.max()
        weight /= weight.sum()
        np.testing.assert_allclose(first[0, place], weight @ b, atol=1e-6)
        np.testing.assert_allclose(second[0, place], weight @ b**2, atol=1e-6)
    np.testing.assert_allclose(value[0], total, atol=1e-6)


def test_linear_rows_are_a_gaussian() -> None:
    """Density of y_g ~ N(X beta, sigma^2 I + Z D Z'), and b given y_g by conditioning."""
    columns, group, y = rows_of("linear")
    tau, rho, sigma = np.array([[0.8, 0.4]]), np.array([-0.3]), 0.7
    root, beta = mixed_references.roots(tau, rho), np.array([[0.2, 0.4]])
    likelihood = Likelihood.of_rows("linear", columns, ("Intercept", "x1"), group, y)
    value, first, second = likelihood.evaluate(beta, root, np.array([sigma]), 5)
    x, spread, total = np.column_stack(list(columns.values())), root[0] @ root[0].T, 0.0
    for place, level in enumerate(likelihood.levels):
        z = x[group == level]
        residual = y[group == level] - z @ beta[0]
        whole = sigma**2 * np.eye(len(z)) + z @ spread @ z.T
        total += multivariate_normal(np.zeros(len(z)), whole).logpdf(residual)
        gain = np.linalg.solve(whole, z @ spread).T
        np.testing.assert_allclose(first[0, place], gain @ residual)
        np.testing.assert_allclose(second[0, place], (gain @ residual) ** 2 + np.diag(spread - gain @ z @ spread))
    np.testing.assert_allclose(value[0], total)


def intercept_only(priors: Priors) -> mixed_references.Posterior:
    """Twelve groups of six binary rows; the scale is poorly known and its density reaches 0."""
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(12), 6)
    y = (rng.random(72) < 1 / (1 + np.exp(-0.3 - 0.5 * rng.normal(size=12)[group]))).astype(float)
    columns = {"Intercept": np.ones(72)}
    return mixed_references.Posterior(Likelihood.of_rows("logistic", columns, ("Intercept",), group, y), priors)


def by_grid(posterior: mixed_references.Posterior, priors: Priors) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of (beta, log tau, tau) by even sums over beta, log tau and u, all written out."""
    likelihood = posterior.likelihood
    positives = np.add.reduceat(likelihood.y, likelihood.starts)
    beta, log_tau, u = np.linspace(-6, 6, 161), np.linspace(-18, 2.2, 405), np.linspace(-8, 8, 161)
    density = np.exp(-0.5 * u**2)
    weights = np.zeros((len(beta), len(log_tau)))
    for place, at in enumerate(log_tau):
        eta = beta[:, None] + np.exp(at) * u
        table = {count: np.exp(count * eta - 6 * np.logaddexp(0, eta)) @ density for count in np.unique(positives)}
        weights[:, place] = sum(np.log(table[count]) for count in positives)
        weights[:, place] += at - 0.5 * (np.exp(at) / priors.scales) ** 2 - 0.5 * (beta / priors.coefficients) ** 2
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    grids = [np.broadcast_to(each, weights.shape) for each in (beta[:, None], log_tau, np.exp(log_tau))]
    mean = np.array([np.sum(weights * grid) for grid in grids])
    return mean, np.sqrt([np.sum(weights * (grid - m) ** 2) for grid, m in zip(grids, mean, strict=True)])


def test_posterior_agrees_with_a_grid_and_other_priors_are_seen() -> None:
    """6 numbers, errors from 16 scrambles: |t_15| > 9 comes up by chance once in 5e6; the control has other priors."""
    priors = Priors()
    posterior = intercept_only(priors)
    found = mixed_references.solve(posterior, goal=0.003)
    assert found.worst_error <= 0.003
    mean, sd = by_grid(posterior, priors)
    assert np.all(np.abs(found.mean[:3] - mean) < 9 * found.mean_error[:3])
    assert np.all(np.abs(found.sd[:3] - sd) < 9 * found.sd_error[:3])
    other, _ = by_grid(posterior, Priors(scales=1.1))
    assert np.max(np.abs(found.mean[:3] - other) / found.mean_error[:3]) > 9


@pytest.mark.parametrize("name", [*mixed_problems.SMALL, "logistic-2000-5"])
def test_problems_are_the_same_on_every_call(name: str) -> None:
    first, second = (mixed_problems.make(name).table for _ in range(2))
    for column, values in first.items():
        assert np.array_equal(values, second[column])
    np.testing.assert_allclose([first["x1"].mean(), first["x1"].std()], [0, 1], atol=1e-12)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        mixed_problems.make("probit-3-4")
