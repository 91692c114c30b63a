"""Posteriors under shrinkage priors by quadrature, to hold chains against.

    p(beta, v, phi | y),   rows of which the likelihood of beta is prod_j N(b_j; beta_j, s_j^2):
    given phi, what all columns share, columns are independent, and given v_j all of beta_j is Gaussian

Sums are over even grids of logarithms, on which smooth densities that end are integrated to many digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Floats = np.ndarray


class Moments(NamedTuple):
    """Mean and sd of every coefficient, the mean of v / (v + s^2), and mean and sd of a shared number."""

    mean: Floats
    sd: Floats
    kept: Floats
    shared: float
    shared_sd: float


def given_shared(
    b: Floats, s: Floats, variances: Floats, log_shares: Floats, shared: Floats, log_prior: Floats
) -> Moments:
    """v of a column is one of `variances` (shared values, grid) with `log_shares`, whatever the column."""
    spread = variances[None] + s[:, None, None] ** 2
    log_parts = log_shares - 0.5 * np.log(spread) - 0.5 * b[:, None, None] ** 2 / spread
    most = log_parts.max(axis=2, keepdims=True)
    parts = np.exp(log_parts - most)
    total = parts.sum(axis=2)
    kept = variances[None] / spread
    of_columns = most[..., 0] + np.log(total)
    log_posterior = log_prior + of_columns.sum(axis=0)
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()

    def averaged(values: Floats) -> Floats:
        return ((parts * values).sum(axis=2) / total) @ weight

    first = averaged(kept) * b
    second = averaged(kept**2 * b[:, None, None] ** 2 + kept * s[:, None, None] ** 2)
    mean = float(weight @ shared)
    return Moments(
        first, np.sqrt(second - first**2), averaged(kept), mean, float(np.sqrt(weight @ (shared - mean) ** 2))
    )


def half_cauchy(log_scale: Floats) -> Floats:
    """Of a logarithm."""
    return log_scale - np.log1p(np.exp(2 * log_scale))


def horseshoe(b: Floats, s: Floats, scale: float, slab: tuple[float, float] | None = None) -> Moments:
    """The shared number is log tau."""
    local = np.arange(-24.0, 24.0, 0.25)
    common = np.log(scale) + np.arange(-14.0, 12.0, 0.25)
    log_slab = np.array([np.inf]) if slab is None else np.arange(-3.0, 10.0, 0.4) + 2 * np.log(slab[0])
    t, y = (each.ravel() for each in np.meshgrid(common, log_slab))
    prior = half_cauchy(t - np.log(scale))
    if slab is not None:
        prior = prior - 0.5 * slab[1] * (y + slab[0] ** 2 * np.exp(-y))
    variances = 1 / (np.exp(-y)[:, None] + np.exp(-2 * (t[:, None] + local)))
    return given_shared(b, s, variances, half_cauchy(local), t, prior)


def r2d2_of_two(b: Floats, s: Floats, first: float, second: float, concentration: float, noise: float) -> Moments:
    """Two columns, whose shares add to one; the shared number is R^2."""
    logit = np.arange(-25.0, 25.0, 0.05) if concentration >= 0.5 else np.arange(-60.0, 60.0, 0.05)
    total, share = (each.ravel() for each in np.meshgrid(np.arange(-30.0, 30.0, 0.05), logit))
    r2, part = 1 / (1 + np.exp(-total)), 1 / (1 + np.exp(-share))
    rest, other = 1 / (1 + np.exp(total)), 1 / (1 + np.exp(share))
    log_prior = first * np.log(r2) + second * np.log(rest) + concentration * (np.log(part) + np.log(other))
    variances = noise**2 * np.exp(total) * np.stack([part, other])
    spread = variances + s[:, None] ** 2
    log_posterior = log_prior - 0.5 * np.sum(np.log(spread) + b[:, None] ** 2 / spread, axis=0)
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    kept = variances / spread
    mean, square = (kept * b[:, None]) @ weight, ((kept * b[:, None]) ** 2 + kept * s[:, None] ** 2) @ weight
    shared = float(weight @ r2)
    return Moments(mean, np.sqrt(square - mean**2), kept @ weight, shared, float(np.sqrt(weight @ (r2 - shared) ** 2)))


def logistic_horseshoe(x: Floats, y: Floats, scale: float) -> tuple[Floats, Floats]:
    """Mean and sd of two coefficients of a logistic regression without an intercept, on a grid of both, finer near 0
    where the prior has a spike.

    p(beta) = int p(tau) prod_j p(beta_j | tau) dtau,   p(beta_j | tau) = int N(beta_j; 0, (tau lambda)^2) p(lambda)
    """
    # Half a step beside 0, where the density is infinite.
    root = np.arange(-5.995, 6.0, 0.01)
    grid, step = np.sinh(root) * 0.1, np.cosh(root) * 0.1
    local, common = np.arange(-25.0, 25.0, 0.2), np.log(scale) + np.arange(-14.0, 12.0, 0.2)
    scales = common[:, None] + local
    given = np.empty((len(common), len(grid)))
    for place, beta in enumerate(np.abs(grid)):
        with np.errstate(over="ignore", divide="ignore"):
            log_parts = half_cauchy(local) - scales - 0.5 * np.exp(2 * (np.log(beta) - scales))
        given[:, place] = np.exp(log_parts).sum(axis=1)
    weight = np.exp(half_cauchy(common - np.log(scale)))
    prior = (weight[:, None] * given).T @ given
    log_likelihood = np.zeros((len(grid), len(grid)))
    for (first, second), each in zip(x, y, strict=True):
        eta = first * grid[:, None] + second * grid
        log_likelihood += each * eta - np.logaddexp(0.0, eta)
    density = prior * np.exp(log_likelihood - log_likelihood.max()) * step[:, None] * step
    density /= density.sum()
    marginals = density.sum(axis=1), density.sum(axis=0)
    mean = np.array([each @ grid for each in marginals])
    return mean, np.sqrt(np.array([each @ grid**2 for each in marginals]) - mean**2)
