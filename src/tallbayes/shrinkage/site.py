"""The site: a Gaussian in place of the likelihood, with which chains need no rows.

    log p(y | u) ~ g . (u - m) - (u - m)^T Lambda (u - m) / 2,   g = E grad log p,   Lambda = -E grad^2 log p

on average over N(m, C), where the mass of the posterior is: in balance as in `weighing.balance`, but of the likelihood
alone. Priors that are Gaussian, of an intercept, are in it, and that of an extra is to second order. What it leaves out
is in the weights.

Given the variances v of its coefficients the posterior of u = S z is N(M^-1 S h, M^-1) in z, where S = diag(sqrt(v)),
h = g + Lambda m and M = I + S Lambda S, with ones and zeros of what has no v in place of S and I.

A likelihood of few rows falls more slowly than a Gaussian, and weights of the rare draws where it does have no
variance. There the site is Student's t of nu degrees of freedom, a little wider, whose tails bound them, as a Gaussian
of a width of its own:

    (1 + q / nu)^(-(nu + d) / 2) = E exp(-omega q / 2),   omega ~ Gamma((nu + d) / 2, (nu + q) / 2) given u

where q = (u - c)^T Lambda (u - c) about the Gaussian's own mean c = Lambda^-1 h; Lambda and h are then omega times
that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tallbayes.moments import Floats
from tallbayes.shrinkage.scales import Pull
from tallbayes.watch import look
from tallbayes.weighing.regression import PlainRegression

# Of the largest eigenvalue, in units of the diagonal.
LEAST_CURVATURE = 1e-10
# Degrees of freedom at the least, and by how much wider than the Gaussian, over the root of the number of parameters.
LEAST_FREEDOM, WIDER = 5.0, 1.5


@dataclass(frozen=True, eq=False)
class LikelihoodSite:
    """Of u = (coefficients, all else); `centre` m, `gradient` g, `precision` Lambda, and nu, infinite of a Gaussian."""

    centre: Floats
    gradient: Floats
    precision: Floats
    columns: int
    freedom: float = np.inf

    @classmethod
    def about(cls, regression: PlainRegression, centre: Floats, covariance: Floats) -> LikelihoodSite:
        """In balance over N(centre, covariance); one pass over the rows."""
        there = regression.about(centre, np.linalg.cholesky(covariance))
        columns = regression.design.shape[1] - regression.layout.intercept
        return cls(centre, there.gradient, mended(there.curvature), columns)

    @cached_property
    def shift(self) -> Floats:
        """h."""
        return self.gradient + self.precision @ self.centre

    @property
    def data_precision(self) -> Floats:
        """Of every coefficient, all else held."""
        return np.diag(self.precision)[: self.columns]

    @property
    def widened(self) -> LikelihoodSite:
        """With tails that bound the weights."""
        share = 1 / (1 + WIDER / len(self.centre) ** 0.5)
        parts = {"gradient": share * self.gradient, "precision": share * self.precision}
        return replace(self, freedom=max(LEAST_FREEDOM, len(self.centre) / 4), **parts)

    def log_density(self, points: Floats) -> Floats:
        if not np.isinf(self.freedom):
            return -0.5 * (self.freedom + len(self.centre)) * np.log1p(self._distances(points) / self.freedom)
        moves = points - self.centre
        return moves @ self.gradient - 0.5 * np.sum((moves @ self.precision) * moves, axis=1)

    def widths(self, points: Floats, rng: np.random.Generator) -> Floats:
        """omega of every chain."""
        if np.isinf(self.freedom):
            return np.ones(len(points))
        rate = (self.freedom + self._distances(points)) / 2
        return rng.gamma((self.freedom + len(self.centre)) / 2, size=len(points)) / rate

    def _distances(self, points: Floats) -> Floats:
        moves = points - self._mean
        return np.asarray(np.sum((moves @ self.precision) * moves, axis=1))

    @cached_property
    def _mean(self) -> Floats:
        return self.centre + np.linalg.solve(self.precision, self.gradient)

    def pull(self, points: Floats, widths: Floats) -> Pull:
        """The log likelihood of coefficients (chains, columns), all else being that of these points."""
        p = self.columns
        slope = self.shift[:p] - points[:, p:] @ self.precision[p:, :p]
        own = np.ascontiguousarray(self.precision[:p, :p])
        return lambda beta: widths * np.sum(beta * (slope - 0.5 * (beta @ own)), axis=1)

    def draw(self, log_variance: Floats, widths: Floats, rng: np.random.Generator) -> Floats:
        """u of every chain given its variances (chains, columns)."""
        from scipy.linalg.lapack import dpotrf, dtrtrs

        p, d = self.columns, len(self.centre)
        scale = np.ones((len(log_variance), d))
        scale[:, :p] = np.exp(0.5 * log_variance)
        scale[:, p:] = 1 / np.sqrt(np.diag(self.precision)[p:])
        normals = rng.standard_normal(scale.shape)
        own = np.arange(p)
        for each, normal, width in zip(scale, normals, widths, strict=True):
            look()
            scaled = (width * each)[:, None] * self.precision * each
            scaled[own, own] += 1.0
            # A symmetric matrix is its own transpose: Fortran's order costs no copy.
            root, trouble = dpotrf(scaled.T, lower=1, overwrite_a=1, clean=0)
            if trouble:
                raise np.linalg.LinAlgError("the curvature of the likelihood is not positive")
            inner = dtrtrs(root, width * each * self.shift, lower=1)[0]
            normal[:] = dtrtrs(root, inner + normal, lower=1, trans=1)[0]
        return scale * normals


def mended(matrix: Floats) -> Floats:
    """A symmetric matrix with all eigenvalues above 0, where draws are few or a likelihood is not concave."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    root = scale[:, None] * vectors * np.sqrt(np.maximum(values, LEAST_CURVATURE * values[-1]))
    return root @ root.T
