"""Covariances over the posterior of what is reported with log densities, each with its error.

    C1 = E (g - mu)(l - lambda),   C2 = E (g - mu)^2 (l - lambda),   V = E (g - mu)^2,   s^2 = V
    d E g / d log2 alpha / s = log 2 C1 / s,   d s / d log2 alpha / s = log 2 C2 / (2 V)

by the signed ensemble: the Gaussian's own, and what points of paths or draws with weights find beyond it. Centres are
fixed numbers near the means; what the means are off by enters the errors to first order, by path, and its square as
bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.estimator.allocation import Least
from tallbayes.moments import Floats
from tallbayes.posterior.expectations import Integrand, level_values, probe_values
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import cautious, combine, differences
from tallbayes.results.powers.gaussian import GaussianPart, Moved, gaussian_part, products
from tallbayes.structure import Structure

LOG2 = float(np.log(2.0))
# Of values at the points of one level.
MOST_NUMBERS = 2**25


@dataclass(frozen=True, eq=False)
class Powered:
    """Of one log density: how far means and sds move, (m, 2), in posterior sds; standard errors and bias bounds."""

    value: Floats
    standard_error: Floats
    bias_bound: Floats


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Values of reported numbers and of log densities at the points of every level, (paths, stops, sides, n).

    `remainder` is log pi - log phi at draws with weights, and None at points of paths, which do not know it.
    """

    posterior: Posterior
    integrand: Integrand
    levels: tuple[Floats, ...]
    probed: tuple[Floats, Floats] | None
    gaussian: GaussianPart | None
    centres: Floats
    remainder: Floats | None
    first: int

    @property
    def count(self) -> int:
        return len(self.centres)

    def powered(self, place: int, is_likelihood: bool) -> Powered:
        """Of the density at a place; that of the likelihood has what is beyond the Gaussian added."""
        own = self.remainder if is_likelihood else None
        samples = [self._samples(each, number, place, own) for number, each in enumerate(self.levels)]
        exact, beyond = self._base(place)
        shift = self._shift(exact, beyond, samples) if is_likelihood and self.remainder is None else None
        means = [b + sum(each.mean(axis=0) for each in part) for b, part in zip(_total(exact, beyond), _by(samples))]  # noqa: B905
        known = Moved(*means)
        v = known.q - known.g**2
        # The centres are off by e and eps, which are small: C1 and C2 about the means themselves.
        e, eps = known.g, known.l[0]
        c1 = known.gl - e * eps
        c2 = known.ql - 2 * e * known.gl - eps * known.q + 2 * e**2 * eps
        allowed = np.zeros((2, len(e)))
        if shift is not None:
            # Of F(t) = E g under phi e^(t rho): F'(1) is F(1) - F(0) to first order, and twice that where F'(0) is 0.
            c1, c2 = c1 + 1.5 * shift.g, c2 + 1.5 * shift.q
            allowed = np.abs(np.stack([shift.g, shift.q]))
        s = np.sqrt(v)

        def mean_of(each: Moved) -> Floats:
            return np.asarray(
                LOG2 / s * (each.gl - e * each.l - eps * each.g - c1 / (2 * v) * (each.q - 2 * e * each.g))
            )

        def sd_of(each: Moved) -> Floats:
            moved = each.ql - 2 * c1 * each.g - v * each.l - c2 / v * (each.q - 2 * e * each.g)
            return np.asarray(LOG2 / (2 * v) * moved)

        unit = np.stack([LOG2 / s, LOG2 / (2 * v)])
        value = unit * np.stack([c1, c2])
        found = [self._errors(how, samples, beyond, place) for how in (mean_of, sd_of)]
        means_off = [self._errors(how, samples, beyond, place) for how in (lambda m: m.g, lambda m: m.l + 0 * m.g)]
        product = unit[0] * np.prod([np.hypot(*each) for each in means_off], axis=0)
        bias = np.stack([each[1] for each in found]) + unit * allowed + product
        return Powered(value.T, np.stack([each[0] for each in found]).T, bias.T)

    def _samples(self, values: Floats, number: int, place: int, remainder: Floats | None) -> Moved:
        """What every path adds to each expectation."""
        alone, weighted = number == 0 and not self.posterior.laplace, self.posterior.weighted
        g, density = self._about(values, place)
        found = Moved(*(differences(each, alone, weights=weighted) for each in products(g, density)))
        if remainder is None or weighted is None:
            return found
        w, own = weighted.posterior[:, None], products(g[:, 0, 0], remainder)
        # Nothing is known of it under the Gaussian, where it is not taken off.
        plain = [w * (each - (w * each).mean(axis=0)) + (w * each).mean(axis=0) for each in own]
        return found._replace(l=found.l + plain[2], gl=found.gl + plain[3], ql=found.ql + plain[4])

    def _base(self, place: int) -> tuple[Moved, Moved]:
        if self.gaussian is not None:
            return self.gaussian.products(self.first, place, self.centres)
        nothing = np.zeros(self.first)
        none = Moved(nothing, nothing, np.zeros(1), nothing, nothing)
        return none, Moved(*(np.zeros((1, len(each))) for each in none))

    def _shift(self, exact: Moved, beyond: Moved, samples: list[Moved]) -> Moved:
        """How far E g and Var g are from the Gaussian's."""
        start = _total(exact, beyond)
        rest = [sum(each.mean(axis=0) for each in part) for part in _by(samples)]
        moved = (start[1] + rest[1]) - (start[0] + rest[0]) ** 2 - (start[1] - start[0] ** 2)
        return Moved(rest[0], moved, *start[2:])

    def _errors(
        self, how: Callable[[Moved], Floats], samples: list[Moved], beyond: Moved, place: int
    ) -> tuple[Floats, Floats]:
        """Standard errors and bias bounds of a linear combination."""
        parts = [np.broadcast_to(how(each), each.g.shape) for each in samples]
        rest = how(beyond)
        variance = 0.0 if len(rest) < 2 else rest.var(axis=0, ddof=1) / len(rest)
        found = cautious(
            combine(
                "sensitivity",
                Structure.leaf((self.first,)),
                parts,
                self.posterior.rungs.along(None),
                base_variance=variance,
                least=self._least(how, place),
            )
        )
        return found.flat_standard_error, found.flat_bias_bound + self._ratio_bias(how, place)

    def _ratio_bias(self, how: Callable[[Moved], Floats], place: int) -> Floats | float:
        """Of draws with weights, that of the divisions by their means."""
        if self.posterior.weighted is None:
            return 0.0
        g, density = self._about(self.levels[0], place)
        values = how(products(g[:, 0, 0], density[:, 0, 0]))
        return np.abs(self.posterior.weighted.ratio_bias(np.broadcast_to(values, (len(values), self.first))))

    def _about(self, values: Floats, place: int) -> tuple[Floats, Floats]:
        """What is reported and one density, about their centres."""
        return values[..., : self.first] - self.centres[: self.first], values[..., place] - self.centres[place]

    def _least(self, how: Callable[[Moved], Floats], place: int) -> Least | None:
        probed = self.posterior.probed
        if probed is None or self.probed is None:
            return None
        sides = [how(products(*self._about(each, place))) for each in self.probed]
        return probed.least(*(each.mean(axis=1) for each in sides))


def make_ensemble(posterior: Posterior, integrand: Integrand, first: int) -> Ensemble:
    """All values that are read, and their centres."""
    size = integrand.structure.size
    levels = tuple(_read(posterior, integrand, level, size) for level in range(len(posterior.points)))
    counts = [len(each) for each in levels]
    if posterior.weighted is not None:
        posterior = _with(posterior, counts[0])
    gaussian = gaussian_part(integrand, posterior, first) if posterior.laplace else None
    probed = None if posterior.probed is None else probe_values(integrand, posterior)
    start = np.zeros(size)
    if gaussian is not None:
        start = gaussian.order.value + (gaussian.values - gaussian.order.value).mean(axis=(0, 1))
    samples = (
        differences(each, number == 0 and not posterior.laplace, weights=posterior.weighted)
        for number, each in enumerate(levels)
    )
    centres = start + sum(each.mean(axis=0) for each in samples)
    return Ensemble(posterior, integrand, levels, probed, gaussian, centres, _remainder(posterior), first)


def _with(posterior: Posterior, count: int) -> Posterior:
    assert posterior.weighted is not None
    if count == len(posterior.weighted.posterior):
        return posterior
    return replace(posterior, weighted=posterior.weighted.first(count), points=(posterior.points[0][:count],))


def _read(posterior: Posterior, integrand: Integrand, level: int, size: int) -> Floats:
    """Values at the points of a level, of its first paths alone where there are very many."""
    parts, numbers = [], 0
    for part in level_values(integrand, posterior, level):
        # At level 0 what is taken off is one path, in as many places as other levels have coarse paths.
        parts.append(part[:, :, :2] if level == 0 else part)
        numbers += parts[-1].size
        if numbers > MOST_NUMBERS:
            break
    return np.concatenate(parts)


def _remainder(posterior: Posterior) -> Floats | None:
    """log pi - log phi at draws with weights, about its mean over the posterior; where a draw weighs nothing, 0."""
    weighted = posterior.weighted
    if weighted is None:
        return None
    has = weighted.posterior > 0
    with np.errstate(divide="ignore"):
        found = np.where(has, np.log(weighted.posterior) - np.log(weighted.gaussian), 0.0)
    return np.asarray(np.where(has, found - np.average(found, weights=weighted.posterior), 0.0))


def _total(exact: Moved, beyond: Moved) -> list[Any]:
    return [a + b.mean(axis=0) for a, b in zip(exact, beyond, strict=True)]


def _by(samples: list[Moved]) -> Any:
    return zip(*samples, strict=True)
