"""Links: what a family predicts, as a function of its linear predictor eta, and what a Gaussian eta makes of it.

    logit  1 / (1 + exp(-eta))      probit  Phi(eta)      softmax  exp(eta_k) / sum_j exp(eta_j), eta_0 = 0
    identity  eta                   log  exp(eta)         and of a count its upper tail, P(y >= k)

and of extras too, which follow eta by their places u in R^d,

    ordered   F(c_k - eta) - F(c_(k-1) - eta)             log-normal  exp(eta + sigma^2 / 2)
    zero-inflated  (1 - pi) exp(eta)                      hurdle      (1 - pi) exp(eta) / (1 - p(0))

Differences from a centre are formed without cancellation. Under eta ~ N(m, s^2) those of eta and exp(eta) have closed
forms, E [exp(eta) - exp(m)] = exp(m) (exp(s^2 / 2) - 1); the others rise from 0 to 1: see `quadrature`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammainccinv, gammaincinv

from tallbayes.gaussian.quadrature import Curve, Integral, integrate
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.densities import log_no_count
from tallbayes.model.parts.extras import log_excess as excess_of
from tallbayes.model.parts.extras import with_logs

OUTSIDE = 1e-15
ROUNDING = 2.0**-22
TINY = 1e-300
SIGMOID = Curve(jax.nn.sigmoid, -37.0, 37.0, 0.55)
NORMAL_CDF = Curve(jax.scipy.special.ndtr, -9.0, 9.0, 0.45)


class Wanted(NamedTuple):
    """What is predicted: the mean response of a family or the probabilities of its classes; then P(y >= k). The `width`
    is that of an overdispersion's coordinates (`parts.extras`)."""

    family: str
    at_least: tuple[int, ...] = ()
    width: float | None = None

    @property
    def link(self) -> Link:
        return LINKS[CATALOGUE[self.family].link]

    @property
    def tails(self) -> list[tuple[int, UpperTail]]:
        name = CATALOGUE[self.family].tail
        return [(k, TAILS[name]) for k in self.at_least if name is not None]

    @property
    def reads_extras(self) -> bool:
        return CATALOGUE[self.family].mean_of_extras or any(tail.reads_extra for _, tail in self.tails)

    @property
    def is_known(self) -> bool:
        """Whether the integrals of the mean are, for one head."""
        return not CATALOGUE[self.family].mean_of_extras

    def __call__(self, eta: jax.Array) -> jax.Array:
        """From linear predictors on the first axis to predictions on the first axis."""
        eta = with_logs(self.width, eta)
        return jnp.concatenate([self.link.mean(eta), *(tail.chance(k, eta) for k, tail in self.tails)])

    def difference(self, centre: jax.Array, move: jax.Array) -> jax.Array:
        """Predictions at centre + move less those at the centre."""
        here, there = (with_logs(self.width, each) for each in (centre, centre + move))
        mean = self.link.mean
        parts = [self.link.difference(centre, move) if self.is_known else mean(there) - mean(here)]
        parts += [tail.chance(k, there) - tail.chance(k, here) for k, tail in self.tails]
        return jnp.concatenate(parts)

    def rounding(self, at_centre: jax.Array) -> jax.Array:
        """What float32 leaves of an error in a difference, by output; no more where differences are formed exactly."""
        tails = jnp.arange(len(at_centre)) >= len(at_centre) - len(self.at_least)
        return jnp.where(tails[:, None] | (not self.link.is_exact), ROUNDING * jnp.abs(at_centre), 0.0)

    def gaussian(self, mean: jax.Array, sd: jax.Array, log_excess: jax.Array | None = None) -> Integral:
        """Of every output, (outputs, rows), for one head: eta ~ N(mean, sd^2) by row, with an extra as given."""
        if log_excess is not None and self.width is not None:
            log_excess = excess_of(self.width, log_excess)
        parts = self.link.integrals(mean, sd)
        parts += [_tail_integral(tail, k, mean, sd, log_excess) for k, tail in self.tails]
        return Integral(jnp.stack([part.moments for part in parts], axis=1), jnp.stack([part.error for part in parts]))


class Link(NamedTuple):
    """The mean response, or the probabilities of classes, of linear predictors on the first axis.

    `difference(centre, move)` is that between centre + move and the centre, `is_exact` where nothing cancels in it;
    `integrals(mean, sd)` are those of it, by output, for one head and eta ~ N(mean, sd^2).
    """

    mean: Callable[[jax.Array], jax.Array]
    difference: Callable[[jax.Array, jax.Array], jax.Array]
    integrals: Callable[[jax.Array, jax.Array], list[Integral]]
    is_exact: bool = True


def _line_integrals(mean: jax.Array, sd: jax.Array) -> list[Integral]:
    nothing = jnp.zeros_like(mean)
    return [Integral(jnp.stack([nothing, sd**2, nothing, 3 * sd**4]), nothing)]


def _rate_integrals(mean: jax.Array, sd: jax.Array) -> list[Integral]:
    e1, e2, e3, e4 = (jnp.expm1(k**2 * sd**2 / 2) for k in (1, 2, 3, 4))
    terms = e1, e2 - 2 * e1, e3 - 3 * e2 + 3 * e1, e4 - 4 * e3 + 6 * e2 - 4 * e1
    moments = [jnp.exp(k * mean) * term for k, term in enumerate(terms, 1)]
    return [Integral(jnp.stack(moments), jnp.zeros_like(mean))]


def _rising(curve: Curve) -> Link:
    """By a curve with f(-eta) = 1 - f(eta)."""

    def difference(centre: jax.Array, move: jax.Array) -> jax.Array:
        first, step = centre[:1], move[:1]
        # The smaller of the two tails has no digits to lose.
        sign = jnp.where(first > 0, -1.0, 1.0).astype(first.dtype)
        return sign * (curve.function(sign * (first + step)) - curve.function(sign * first))

    return Link(lambda eta: curve.function(eta[:1]), difference, lambda mean, sd: [integrate(curve, mean, sd)])


def _shares(eta: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.concatenate([jnp.zeros_like(eta[:1]), eta]), axis=0)


def _of_extras(mean: Callable[[jax.Array], jax.Array]) -> Link:
    def unknown(mean: jax.Array, sd: jax.Array) -> list[Integral]:
        raise NotImplementedError

    return Link(mean, lambda centre, move: mean(centre + move) - mean(centre), unknown, is_exact=False)


def _ordered(curve: Callable[[jax.Array], jax.Array], eta: jax.Array) -> jax.Array:
    cuts = jnp.cumsum(jnp.concatenate([eta[1:2], jnp.exp(eta[2:])]), axis=0)
    edge = jnp.zeros_like(eta[:1])
    below = jnp.concatenate([edge, curve(cuts - eta[:1]), edge + 1])
    return below[1:] - below[:-1]


def _log_normal(eta: jax.Array) -> jax.Array:
    return jnp.exp(eta[:1] + jnp.exp(2 * eta[1:2]) / 2)


def _zero_inflated(eta: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(-eta[-1:]) * jnp.exp(eta[:1])


def _over_hurdle(eta: jax.Array) -> jax.Array:
    none = log_no_count(eta[:1], eta[1:2] if len(eta) > 2 else None)
    return jax.nn.sigmoid(-eta[-1:]) * jnp.exp(eta[:1]) / -jnp.expm1(none)


LINKS = {
    "identity": Link(lambda eta: eta[:1], lambda _, move: move[:1], _line_integrals),
    "log": Link(
        lambda eta: jnp.exp(eta[:1]),
        lambda centre, move: jnp.exp(centre[:1]) * jnp.expm1(move[:1]),
        _rate_integrals,
    ),
    "logit": _rising(SIGMOID),
    "probit": _rising(NORMAL_CDF),
    "softmax": Link(
        _shares,
        lambda centre, move: _shares(centre + move) - _shares(centre),
        lambda mean, sd: [integrate(SIGMOID, -mean, sd), integrate(SIGMOID, mean, sd)],
        is_exact=False,
    ),
    "ordered logit": _of_extras(partial(_ordered, jax.nn.sigmoid)),
    "ordered probit": _of_extras(partial(_ordered, jax.scipy.special.ndtr)),
    "log-normal": _of_extras(_log_normal),
    **{f"zero_inflated {counts}": _of_extras(_zero_inflated) for counts in ("poisson", "negative_binomial")},
    **{f"hurdle {counts}": _of_extras(_over_hurdle) for counts in ("poisson", "negative_binomial")},
}


class UpperTail(NamedTuple):
    """P(y >= k) of a count, of k and linear predictors; and as a curve in the first, of k, its step and the extra."""

    chance: Callable[[int, jax.Array], jax.Array]
    curve: Callable[[int, float, jax.Array | None], Curve]
    reads_extra: bool = False


def _poisson_curve(k: int, step: float, _: jax.Array | None) -> Curve:
    low, high = (float(np.log(end(k, OUTSIDE))) for end in (gammaincinv, gammainccinv))
    return Curve(partial(_poisson_tail, k), low, high, step)


TAILS = {
    "poisson": UpperTail(lambda k, eta: _poisson_tail(k, eta[:1]), _poisson_curve),
    "negative_binomial": UpperTail(
        lambda k, eta: _negative_binomial_tail(k, eta[1:2], eta[:1]),
        lambda k, step, log_excess: Curve(partial(_negative_binomial_tail, k, log_excess), -36.0, 40.0, step),
        reads_extra=True,
    ),
}


def _tail_integral(tail: UpperTail, k: int, mean: jax.Array, sd: jax.Array, log_excess: jax.Array | None) -> Integral:
    nothing = jnp.zeros_like(mean)
    if k <= 0:
        return Integral(jnp.stack([nothing] * 4), nothing)
    return integrate(tail.curve(k, min(0.25, 0.5 / np.sqrt(k)), log_excess), mean, sd)


def _poisson_tail(k: int, eta: jax.Array) -> jax.Array:
    """P(y >= k) at mean exp(eta): 1 less the k probabilities below, each from the one before."""
    return _tail_of(k, -jnp.exp(eta), lambda j: eta - jnp.log1p(j))


def _negative_binomial_tail(k: int, log_excess: jax.Array | None, eta: jax.Array) -> jax.Array:
    """The same, the variance being mean + excess mean^2."""
    assert log_excess is not None
    excess, spread = jnp.exp(log_excess), jax.nn.softplus(log_excess + eta)
    return _tail_of(k, -spread / excess, lambda j: eta + jnp.log1p(excess * j) - spread - jnp.log1p(j))


def _tail_of(k: int, log_first: jax.Array, log_ratio: Callable[[jax.Array], jax.Array]) -> jax.Array:
    def add(j: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, log_term = carry
        return total + jnp.exp(log_term), log_term + log_ratio(j.astype(log_term.dtype))

    below, _ = jax.lax.fori_loop(0, max(k, 0), add, (jnp.zeros_like(log_first), log_first))
    return jnp.clip(1 - below, 0, 1)


def unseen_classes(centre: jax.Array, columns: jax.Array, at_mode: jax.Array, most: jax.Array) -> jax.Array:
    """A bound on E (p_k - c_k)+ for eta ~ N(centre, columns columns'), c_k being the largest p_k that draws have shown.

    logit p_k is at most eta_k - eta_j for every j, and moves by no more than the largest of the e_j, the moves of
    eta_k - eta_j. A sigmoid has a slope of 1/4 at most. So E (p_k - c)+ <= min_j b_j(logit c - (eta_k - eta_j)) and
    <= sum_j b_j(logit c - logit p_k), eta and p_k being those at the mode, with

        b_j(l) = E min((e_j - l)+ / 4, (1 - c) [e_j > l])
    """
    edge, origin = (jnp.log(jnp.maximum(p, TINY)) - jnp.log(jnp.maximum(1 - p, TINY)) for p in (most, at_mode))
    bounds = []
    for k in range(len(centre)):
        others = np.array([j for j in range(len(centre)) if j != k])
        sd = jnp.maximum(jnp.sqrt(jnp.sum((columns[k] - columns[others]) ** 2, axis=2)), TINY)

        def beyond(rise: jax.Array, k: int = k, sd: jax.Array = sd) -> jax.Array:
            chance, density = jax.scipy.special.ndtr(-rise / sd), jax.scipy.stats.norm.pdf(rise / sd)
            return jnp.minimum((1 - most[k]) * chance, jnp.maximum(sd * density - rise * chance, 0.0) / 4)

        reached, moved = beyond(edge[k] - (centre[k] - centre[others])), beyond(edge[k] - origin[k])
        bounds.append(jnp.minimum(jnp.min(reached, axis=0), jnp.sum(moved, axis=0)))
    return jnp.stack(bounds)
