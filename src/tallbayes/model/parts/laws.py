"""Laws: how y scatters in families that are not normal, Student's or plain counts, given eta and the extras' places.

    gamma   shape k, scale mean / k             beta   a = precision mean, b = precision (1 - mean)
    times   see `times`, without censoring      ordered   a class by its place
    counts  a zero more often: zero-inflated;   zero with a chance of its own, else one or more: hurdle

In NumPy, of eta (predictors, ...): a linear predictor and the places of extras in R^d, of an overdispersion its log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.moments import Floats

# Of a mean, beyond which no count is drawn; and how often one is drawn again that is to be above zero.
MOST_MEAN, MOST_TRIES = 1e15, 10_000


class ScatterLaw(NamedTuple):
    """Draws y; P(Y <= y) and Var y, where y is a number and not a class."""

    draw: Callable[[np.random.Generator, Floats], Floats]
    cdf: Callable[[Any, Floats], Floats] | None = None
    variance: Callable[[Floats], Floats] | None = None


def _expit(x: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(x))


def _gamma() -> ScatterLaw:
    from scipy.special import gammainc

    def parts(eta: Floats) -> tuple[Floats, Floats]:
        return np.exp(eta[0]), np.exp(eta[1])

    def draw(rng: np.random.Generator, eta: Floats) -> Floats:
        mean, shape = parts(eta)
        return rng.gamma(shape) * mean / shape

    def cdf(y: Any, eta: Floats) -> Floats:
        mean, shape = parts(eta)
        return np.asarray(gammainc(shape, shape * y / mean))

    return ScatterLaw(draw, cdf, lambda eta: np.exp(2 * eta[0] - eta[1]))


def _beta() -> ScatterLaw:
    from scipy.special import betainc

    def parts(eta: Floats) -> tuple[Floats, Floats]:
        return np.exp(eta[1]) * _expit(eta[0]), np.exp(eta[1]) * _expit(-eta[0])

    def variance(eta: Floats) -> Floats:
        return _expit(eta[0]) * _expit(-eta[0]) / (1 + np.exp(eta[1]))

    return ScatterLaw(
        lambda rng, eta: rng.beta(*parts(eta)),
        lambda y, eta: np.asarray(betainc(*parts(eta), np.clip(y, 0.0, 1.0))),
        variance,
    )


def _weibull(has_shape: bool) -> ScatterLaw:
    from scipy.special import gamma

    def parts(eta: Floats) -> tuple[Floats, Any]:
        shape: Any = np.exp(eta[1]) if has_shape else 1.0
        return np.exp(eta[0]) / gamma(1 + 1 / shape), shape

    def draw(rng: np.random.Generator, eta: Floats) -> Floats:
        scale, shape = parts(eta)
        return np.asarray(scale * rng.standard_exponential(scale.shape) ** (1 / shape))

    def cdf(y: Any, eta: Floats) -> Floats:
        scale, shape = parts(eta)
        return np.asarray(-np.expm1(-((y / scale) ** shape)))

    def variance(eta: Floats) -> Floats:
        scale, shape = parts(eta)
        return np.asarray(scale**2 * gamma(1 + 2 / shape) - np.exp(2 * eta[0]))

    return ScatterLaw(draw, cdf, variance)


def _log_normal() -> ScatterLaw:
    from scipy.special import ndtr

    def cdf(y: Any, eta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(ndtr((np.log(y) - eta[0]) * np.exp(-eta[1])))

    def variance(eta: Floats) -> Floats:
        square = np.exp(2 * eta[1])
        return np.asarray(np.expm1(square) * np.exp(2 * eta[0] + square))

    return ScatterLaw(
        lambda rng, eta: np.exp(eta[0] + np.exp(eta[1]) * rng.standard_normal(eta[0].shape)), cdf, variance
    )


class _Counts(NamedTuple):
    """Poisson counts, or negative binomial ones where eta has an overdispersion before the chance of a zero."""

    mean: Floats
    excess: Any

    @classmethod
    def of(cls, eta: Floats) -> _Counts:
        return cls(np.exp(np.minimum(eta[0], np.log(MOST_MEAN))), np.exp(eta[1]) if len(eta) > 2 else None)

    def draw(self, rng: np.random.Generator) -> Floats:
        mean = self.mean if self.excess is None else self.mean * rng.gamma(1 / self.excess) * self.excess
        return rng.poisson(np.minimum(mean, MOST_MEAN)).astype(np.float64)

    def cdf(self, y: Any) -> Floats:
        from scipy.special import betainc, pdtr

        if self.excess is None:
            return np.asarray(pdtr(y, self.mean))
        return np.asarray(betainc(1 / self.excess, y + 1, 1 / (1 + self.excess * self.mean)))

    @property
    def variance(self) -> Floats:
        return self.mean if self.excess is None else self.mean + self.excess * self.mean**2

    def some(self, rng: np.random.Generator) -> Floats:
        """Counts above zero."""
        if self.excess is None:
            # The first of the events comes at a time that is exponential up to the end; the rest are as ever.
            first = -np.log1p(rng.random(self.mean.shape) * np.expm1(-self.mean))
            return 1.0 + rng.poisson(np.maximum(self.mean - first, 0.0))
        y = self.draw(rng)
        for _ in range(MOST_TRIES):
            none = y == 0
            if not none.any():
                break
            y[none] = _Counts(self.mean[none], np.broadcast_to(self.excess, y.shape)[none]).draw(rng)
        return np.maximum(y, 1.0)


def _negative_binomial() -> ScatterLaw:
    def counts(eta: Floats) -> _Counts:
        return _Counts.of(eta)._replace(excess=np.exp(eta[1]))

    return ScatterLaw(
        lambda rng, eta: counts(eta).draw(rng),
        lambda y, eta: counts(eta).cdf(y),
        lambda eta: counts(eta).variance,
    )


def _zero_inflated() -> ScatterLaw:
    def draw(rng: np.random.Generator, eta: Floats) -> Floats:
        return np.where(rng.random(eta[0].shape) < _expit(eta[-1]), 0.0, _Counts.of(eta).draw(rng))

    def variance(eta: Floats) -> Floats:
        counts, chance = _Counts.of(eta), _expit(eta[-1])
        return (1 - chance) * (counts.variance + chance * counts.mean**2)

    return ScatterLaw(draw, lambda y, eta: 1 - _expit(-eta[-1]) * (1 - _Counts.of(eta).cdf(y)), variance)


def _hurdle() -> ScatterLaw:
    def draw(rng: np.random.Generator, eta: Floats) -> Floats:
        return np.where(rng.random(eta[0].shape) < _expit(eta[-1]), 0.0, _Counts.of(eta).some(rng))

    def cdf(y: Any, eta: Floats) -> Floats:
        counts = _Counts.of(eta)
        beyond = (1 - counts.cdf(y)) / (1 - counts.cdf(np.zeros_like(counts.mean)))
        return np.asarray(1 - _expit(-eta[-1]) * beyond)

    def variance(eta: Floats) -> Floats:
        counts, chance = _Counts.of(eta), _expit(eta[-1])
        some = 1 - counts.cdf(np.zeros_like(counts.mean))
        mean, square = counts.mean / some, (counts.variance + counts.mean**2) / some
        return np.asarray((1 - chance) * square - ((1 - chance) * mean) ** 2)

    return ScatterLaw(draw, cdf, variance)


def _ordered(curve: Callable[[Floats], Floats], rng: np.random.Generator, eta: Floats) -> Floats:
    cuts = np.cumsum(np.concatenate([eta[1:2], np.exp(eta[2:])]), axis=0)
    return np.asarray(np.sum(rng.random(eta[0].shape) > curve(cuts - eta[:1]), axis=0), np.float64)


def _ndtr(x: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


LAWS: dict[str, ScatterLaw] = {
    "negative_binomial": _negative_binomial(),
    "ordinal": ScatterLaw(partial(_ordered, _expit)),
    "ordinal_probit": ScatterLaw(partial(_ordered, _ndtr)),
    "gamma": _gamma(),
    "beta": _beta(),
    "exponential": _weibull(False),
    "weibull": _weibull(True),
    "log_normal": _log_normal(),
    "zero_inflated_poisson": _zero_inflated(),
    "zero_inflated_negative_binomial": _zero_inflated(),
    "hurdle_poisson": _hurdle(),
    "hurdle_negative_binomial": _hurdle(),
}
