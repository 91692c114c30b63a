"""Laws of the variances of coefficients: how a shrinkage prior spreads them, and moves that leave their posterior.

    beta_j ~ N(0, v_j)

    horseshoe              v_j = (tau lambda_j)^2,   lambda_j ~ C+(0, 1),   tau ~ C+(0, tau_0)
    regularised horseshoe  1 / v_j = 1 / c^2 + 1 / (tau lambda_j)^2,   c^2 ~ InvGamma(nu / 2, nu s^2 / 2)
    R2D2                   v_j = sigma^2 W phi_j,   phi ~ Dirichlet(alpha),   W = R^2 / (1 - R^2),   R^2 ~ Beta(a, b)

A move is by slices along one number of every chain, or along each of its columns where these are independent given all
else. What all columns share is moved along three kinds of lines, since each alone is slow where another is not: with
the coefficients held, with beta_j / sqrt(v_j) held, and against the local scales with v_j held. `pull(beta)` is the
log likelihood of the coefficients given all else in u, by chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tallbayes.moments import Floats
from tallbayes.shrinkage.slices import slice_moved

Pull = Callable[[Floats], Floats]
# A slice's first interval, in units of a logarithm: scales are known to a factor of about that.
LOCAL_WIDTH, SHARED_WIDTH = 3.0, 1.0
# Of how often local scales are moved in a sweep: they cost little beside a factorisation.
LOCAL_MOVES = 2


class ScaleLaw(Protocol):
    """What chains need to know of a prior."""

    def start(self, log_sd: Floats) -> Any:
        """Scales of chains whose coefficients all have these log sds (chains,)."""
        ...

    def log_variance(self, scales: Any) -> Floats:
        """log v (chains, columns)."""
        ...

    def moved(self, scales: Any, beta: Floats, pull: Pull, rng: np.random.Generator) -> tuple[Any, Floats]:
        """One sweep over all scales; coefficients move along."""
        ...

    def shared(self, scales: Any) -> dict[str, Floats]:
        """What is told of the scales that all columns share, by name, (chains,)."""
        ...

    def drawn(self, rng: np.random.Generator, count: int) -> Floats:
        """log v of independent draws of the prior, (count, columns)."""
        ...


class HorseshoeScales(NamedTuple):
    """Logarithms of lambda (chains, columns), of tau and of c^2 (chains,); the last is infinite without a slab."""

    local: Floats
    common: Floats
    slab: Floats


@dataclass(frozen=True)
class HorseshoeLaw:
    """tau_0 and the slab's scale s and degrees of freedom nu, None for no slab."""

    columns: int
    scale: float
    slab: tuple[float, float] | None = None

    def start(self, log_sd: Floats) -> HorseshoeScales:
        slab = np.full(log_sd.shape, np.inf if self.slab is None else 2 * np.log(self.slab[0]))
        return HorseshoeScales(np.zeros((len(log_sd), self.columns)), log_sd.copy(), slab)

    def log_variance(self, scales: HorseshoeScales) -> Floats:
        return _tempered(scales.local + scales.common[:, None], scales.slab)

    def moved(
        self, scales: HorseshoeScales, beta: Floats, pull: Pull, rng: np.random.Generator
    ) -> tuple[HorseshoeScales, Floats]:
        square = beta**2
        local, common, slab = scales
        for _ in range(LOCAL_MOVES):
            local = slice_moved(
                lambda x: log_half_cauchy(x) + log_normal(square, _tempered(x + common[:, None], slab)),
                local,
                LOCAL_WIDTH,
                rng,
            )

        def of_shift(a: Floats) -> Floats:
            return self._of_common(common + a) + log_half_cauchy(local - a[:, None]).sum(axis=1)

        shift = slice_moved(of_shift, np.zeros_like(common), SHARED_WIDTH, rng)
        local, common = local - shift[:, None], common + shift

        def with_beta_held(t: Floats, y: Floats) -> Floats:
            return log_normal(square, _tempered(local + t[:, None], y)).sum(axis=1)

        common = slice_moved(lambda t: self._of_common(t) + with_beta_held(t, slab), common, SHARED_WIDTH, rng)
        if self.slab is not None:
            slab = slice_moved(lambda y: self._of_slab(y) + with_beta_held(common, y), slab, SHARED_WIDTH, rng)

        unit = beta * np.exp(-0.5 * _tempered(local + common[:, None], slab))

        def stretched(t: Floats, y: Floats) -> Floats:
            return unit * np.exp(0.5 * _tempered(local + t[:, None], y))

        common = slice_moved(lambda t: self._of_common(t) + pull(stretched(t, slab)), common, SHARED_WIDTH, rng)
        if self.slab is not None:
            slab = slice_moved(lambda y: self._of_slab(y) + pull(stretched(common, y)), slab, SHARED_WIDTH, rng)
        return HorseshoeScales(local, common, slab), stretched(common, slab)

    def shared(self, scales: HorseshoeScales) -> dict[str, Floats]:
        told = {"log_global_scale": scales.common}
        return told if self.slab is None else told | {"log_slab_scale": scales.slab / 2}

    def drawn(self, rng: np.random.Generator, count: int) -> Floats:
        local, common = np.abs(rng.standard_cauchy((count, self.columns))), np.abs(rng.standard_cauchy(count))
        slab = np.full(count, np.inf)
        if self.slab is not None:
            scale, freedom = self.slab
            slab = np.log(freedom * scale**2 / 2) - np.log(rng.gamma(freedom / 2, size=count))
        return _tempered(np.log(local) + np.log(self.scale * common)[:, None], slab)

    def _of_common(self, log_scale: Floats) -> Floats:
        return log_half_cauchy(log_scale - np.log(self.scale))

    def _of_slab(self, log_square: Floats) -> Floats:
        assert self.slab is not None
        scale, freedom = self.slab
        return -0.5 * freedom * (log_square + scale**2 * np.exp(-log_square))


@dataclass(frozen=True)
class R2D2Law:
    """a and b of R^2, alpha of the shares, and the scale sigma of the noise.

    In w_j = W phi_j, with S = sum_j w_j, the prior is S^(a - p alpha) (1 + S)^-(a + b) prod_j w_j^(alpha - 1). Given
    xi ~ Gamma(a + b, 1 + S) and t ~ Gamma(p alpha - a, S) columns are independent: w_j^(alpha - 1) e^(-(xi + t) w_j).
    Where a > p alpha there is no such t: a move of all columns under (1 + S)^-(p alpha + b), xi ~ Gamma(p alpha + b,
    1 + S), is then taken with the probability by which [S / (1 + S)]^(a - p alpha) grows, or with 1.
    """

    columns: int
    of_one: float
    of_rest: float
    concentration: float
    noise: float

    def start(self, log_sd: Floats) -> Floats:
        return np.tile(2 * (log_sd[:, None] - np.log(self.noise)), self.columns)

    def log_variance(self, scales: Floats) -> Floats:
        return scales + 2 * np.log(self.noise)

    def moved(self, scales: Floats, beta: Floats, pull: Pull, rng: np.random.Generator) -> tuple[Floats, Floats]:
        square = (beta / self.noise) ** 2
        for _ in range(LOCAL_MOVES):
            scales = self._local(scales, square, rng)
        held = slice_moved(
            lambda s: self._of_all(scales, s) + log_normal(square, scales + s[:, None]).sum(axis=1),
            np.zeros(len(scales)),
            SHARED_WIDTH,
            rng,
        )
        scales = scales + held[:, None]
        along = slice_moved(
            lambda s: self._of_all(scales, s) + pull(beta * np.exp(0.5 * s)[:, None]),
            np.zeros(len(scales)),
            SHARED_WIDTH,
            rng,
        )
        return scales + along[:, None], beta * np.exp(0.5 * along)[:, None]

    def shared(self, scales: Floats) -> dict[str, Floats]:
        total = np.exp(scales).sum(axis=1)
        return {"R2": total / (1 + total)}

    def drawn(self, rng: np.random.Generator, count: int) -> Floats:
        # Of gamma numbers of a shape near 0 most are 0: Gamma(a) is Gamma(a + 1) U^(1 / a).
        size = (count, self.columns)
        shares = np.log(rng.gamma(self.concentration + 1, size=size)) + np.log(rng.random(size)) / self.concentration
        shares -= np.logaddexp.reduce(shares, axis=1, keepdims=True)
        explained, rest = np.log(rng.gamma(self.of_one, size=count)), np.log(rng.gamma(self.of_rest, size=count))
        return self.log_variance(shares + (explained - rest)[:, None])

    def _local(self, scales: Floats, square: Floats, rng: np.random.Generator) -> Floats:
        total, surplus = np.exp(scales).sum(axis=1), self.columns * self.concentration - self.of_one
        rate = rng.gamma(self.of_one + self.of_rest, size=len(scales)) / (1 + total)
        if surplus > 0:
            rate += rng.gamma(surplus, size=len(scales)) / total
        elif surplus < 0:
            rate = rng.gamma(self.columns * self.concentration + self.of_rest, size=len(scales)) / (1 + total)
        moved = slice_moved(
            lambda x: self.concentration * x - rate[:, None] * np.exp(x) + log_normal(square, x),
            scales,
            LOCAL_WIDTH,
            rng,
        )
        if surplus >= 0:
            return moved
        # Towards S^(a - p alpha) (1 + S)^-(a + b) from (1 + S)^-(p alpha + b), which the auxiliary rate stands for.
        gain = -surplus * (np.log(np.exp(moved).sum(axis=1)) - np.log(total))
        gain += surplus * (np.log1p(np.exp(moved).sum(axis=1)) - np.log1p(total))
        taken = rng.random(len(scales)) < np.exp(np.minimum(gain, 0.0))
        return np.where(taken[:, None], moved, scales)

    def _of_all(self, scales: Floats, shift: Floats) -> Floats:
        """Of S e^s, in logarithms of all w_j."""
        total = np.exp(scales).sum(axis=1) * np.exp(shift)
        return self.of_one * shift - (self.of_one + self.of_rest) * np.log1p(total)


def log_half_cauchy(log_scale: Floats) -> Floats:
    """Of the logarithm of a number from C+(0, 1), up to a constant."""
    return log_scale - np.logaddexp(0.0, 2 * log_scale)


def log_normal(square: Floats, log_variance: Floats) -> Floats:
    """Of numbers with these squares, up to a constant."""
    with np.errstate(over="ignore", divide="ignore"):
        return -0.5 * (log_variance + np.exp(np.log(square) - log_variance))


def _tempered(log_scale: Floats, log_slab: Floats) -> Floats:
    """log v of scales tau lambda (chains, columns) and slabs c^2 (chains,)."""
    if np.isinf(log_slab[0]):
        return 2 * log_scale
    return -np.logaddexp(-log_slab[:, None], -2 * log_scale)
