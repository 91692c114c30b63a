"""Where importance draws of (beta, log tau, atanh rho, log sigma) come from: a bulk, and a tail for every scale.

    bulk:  a multivariate t at the posterior's mean and covariance
    tail:  tau_j half-normal about 0, rho from its prior, all else a t about its maximum at tau_j near 0

As tau_j goes to 0 the likelihood no longer depends on tau_j and rho, so the density of log tau_j falls like exp(log
tau_j) alone: twenty sds below the mean it can hold 1e-5 of the mass, where a t of many dimensions has next to nothing
and a single draw would weigh as much as thousands. Each proposal takes its own Sobol' points, and a draw is weighed by
the density of the whole mixture. A proposal turns uniforms (count, dimension + 1) into phi, and knows its log density.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, betaln, chdtri, gammaln, logsumexp, ndtri
from scipy.stats import qmc

EDGE = 1e-12


@dataclass(frozen=True, eq=False)
class Bulk:
    """A multivariate t: phi = centre + root z / sqrt(chi^2 / freedom)."""

    centre: np.ndarray
    root: np.ndarray
    freedom: float

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        z = ndtri(uniforms[:, 1:])
        scaled = z / np.sqrt(chdtri(self.freedom, uniforms[:, :1]) / self.freedom)
        return self.centre + scaled @ self.root.T

    def log_density(self, phi: np.ndarray) -> np.ndarray:
        d, half = len(self.centre), self.freedom / 2
        scaled = np.linalg.solve(self.root, (phi - self.centre).T)
        constant = gammaln(half + d / 2) - gammaln(half) - d / 2 * np.log(np.pi * self.freedom)
        constant -= np.sum(np.log(np.abs(np.diag(self.root))))
        return constant - (half + d / 2) * np.log1p(np.sum(scaled**2, axis=0) / self.freedom)


@dataclass(frozen=True, eq=False)
class Tail:
    """One scale near 0: phi[place] = log of a half-normal, phi[correlation] from LKJ(shape), the rest from a t."""

    rest: Bulk
    others: list[int]
    place: int
    scale: float
    correlation: int | None
    shape: float

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        phi = np.empty((len(uniforms), uniforms.shape[1] - 1))
        phi[:, self.place] = np.log(self.scale * ndtri((1 + uniforms[:, 0]) / 2))
        if self.correlation is not None:
            rho = 2 * betaincinv(self.shape, self.shape, uniforms[:, -1]) - 1
            phi[:, self.correlation] = np.arctanh(rho)
        phi[:, self.others] = self.rest.draw(uniforms[:, 1 : len(self.others) + 2])
        return phi

    def log_density(self, phi: np.ndarray) -> np.ndarray:
        at = phi[:, self.place]
        found = self.rest.log_density(phi[:, self.others]) + 0.5 * np.log(2 / np.pi)
        found += at - np.log(self.scale) - 0.5 * np.exp(2 * (at - np.log(self.scale)))
        if self.correlation is not None:
            log_rest = -2 * np.log(np.cosh(phi[:, self.correlation]))
            constant = (2 * self.shape - 1) * np.log(2) + betaln(self.shape, self.shape)
            found += self.shape * log_rest - constant
        return found


@dataclass(frozen=True, eq=False)
class Mixture:
    """A bulk, and tails of which each takes a draw for every `ratio` of the bulk's."""

    bulk: Bulk
    tails: tuple[Tail, ...]
    ratio: int = 4

    def scramble(self, seed: int) -> list[qmc.Sobol]:
        d = len(self.bulk.centre)
        streams = np.random.SeedSequence(seed).spawn(1 + len(self.tails))
        return [qmc.Sobol(d + 1, rng=np.random.default_rng(stream)) for stream in streams]

    def draw(self, sobols: list[qmc.Sobol], size: int) -> tuple[np.ndarray, np.ndarray]:
        """The next points of every sequence, `size` of the bulk's, with the log density of the mixture."""
        parts = (self.bulk, *self.tails)
        counts = [size, *(size // self.ratio for _ in self.tails)]
        points = [sobol.random(count) for sobol, count in zip(sobols, counts, strict=True)]
        phi = np.vstack([part.draw(np.clip(u, EDGE, 1 - EDGE)) for part, u in zip(parts, points, strict=True)])
        logs = [np.log(count / sum(counts)) + part.log_density(phi) for part, count in zip(parts, counts, strict=True)]
        return phi, logsumexp(logs, axis=0)
