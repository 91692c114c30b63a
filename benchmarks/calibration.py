"""The statistics of a calibration study: many seeds of one class, whose truth is known, and whether a promise is kept.

    error = value - truth,   u = F_nu(error / se),   F_nu Student's t,   published interval: value +- (t_nu se + bias)

Without bias u is uniform on [0, 1]. The method may leave a bias of up to tolerance / sqrt 2, so u alone may shift: what
is promised is judged apart from what is exact. Seeds are independent; the quantities of one seed are not, so what is
pooled is averaged over them first, and its error comes from the seeds (clusters).

    red if rejected     the promise is broken
        interval        a published interval covers too seldom at some level        one-sided Kolmogorov-Smirnov
        narrow          so does t_nu se, once the mean error is taken away          the same; pooled, t of P_2(u)
        bias            |mean error| > tolerance / sqrt 2, or 0 if none is allowed  t
        rmse            RMSE > tolerance                                            t
    stated if rejected  the promise is kept, though u is not uniform
        wide            t_nu se covers too often, the mean error taken away         as for `narrow`
        shifted         mean error != 0                                             t
        uniform         u is not uniform                                            two-sided Kolmogorov-Smirnov
        moments         shift and spread of u, P_1 and P_2, are not both zero       pooled, Hotelling's T^2

All are tests of one quantity over the seeds, except where they are pooled. Where all standard errors are below a
thousandth of the tolerance, as where the posterior is exactly Gaussian, rounding has a law of its own: such a class is
exact, and red if any error is above a thousandth of the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sbc import hotelling_p, shift_and_spread
from scipy.special import ndtri, stdtr, stdtrit
from scipy.stats import binom, kstest, t

LEVELS = (0.5, 0.8, 0.95)
KINDS = ("published", "t se")
BIAS_SHARE = 1 / np.sqrt(2)
EXACT = 1e-3
LARGEST_FREEDOM = 1e9
REFERENCE_MARGIN = 5.0
FAR, FAR_OUTSIDE = 3.0, 4.5
FEWEST = 5
BROKEN = ("interval", "narrow", "bias", "rmse")
STATED = ("wide", "shifted", "uniform", "moments")


class Class(NamedTuple):
    """What is judged together."""

    problem: str
    method: str
    tolerance: float

    def __str__(self) -> str:
        return f"{self.problem} {self.method} {self.tolerance:g}"


@dataclass(frozen=True, eq=False)
class Runs:
    """What the seeds of one class found, (seeds, quantities), and the truth with its own error, (quantities,)."""

    seeds: np.ndarray
    names: tuple[str, ...]
    value: np.ndarray
    standard_error: np.ndarray
    bias_bound: np.ndarray
    freedom: np.ndarray
    tolerance: np.ndarray
    truth: np.ndarray
    blur: np.ndarray
    allowed_bias: float = BIAS_SHARE

    @property
    def error(self) -> np.ndarray:
        return self.value - self.truth

    @property
    def relative_error(self) -> np.ndarray:
        return self.error / self.tolerance

    @cached_property
    def spread(self) -> np.ndarray:
        """The standard error with that of the truth."""
        return np.hypot(self.standard_error, self.blur)

    @property
    def is_exact(self) -> bool:
        return bool(np.all(self.spread < EXACT * self.tolerance))

    @property
    def reference_margin(self) -> float:
        """How many times the truth is better known than the tolerance asks for, at least."""
        with np.errstate(divide="ignore"):
            return float(np.min(self.tolerance / self.blur))

    @cached_property
    def pit(self) -> np.ndarray:
        """u, uniform if there is no bias."""
        return self._cdf(self.error / self.spread)

    @cached_property
    def centred_pit(self) -> np.ndarray:
        """u with the mean error of every quantity taken away; the bar alone."""
        return self._cdf((self.error - self.error.mean(axis=0)) / self.spread)

    @cached_property
    def needed_level(self) -> np.ndarray:
        """The level from which on the published interval covers the truth."""
        outside = np.maximum(np.abs(self.error) - self.bias_bound, 0.0)
        return 2 * self._cdf(outside / self.spread) - 1

    def half_width(self, level: float, kind: str) -> np.ndarray:
        bar = stdtrit(self._freedom, 0.5 + level / 2) * self.spread
        return bar + self.bias_bound if kind == "published" else bar

    def covers(self, level: float, kind: str) -> np.ndarray:
        return np.abs(self.error) <= self.half_width(level, kind)

    def halved(self) -> Runs:
        """A control: the same values with error bars half as long."""
        return replace(self, standard_error=self.standard_error / 2, bias_bound=self.bias_bound / 2)

    def shifted(self) -> Runs:
        """A control: the first value is off by one tolerance."""
        value = self.value.copy()
        value[:, 0] += self.tolerance[:, 0]
        return replace(self, value=value)

    @property
    def _freedom(self) -> np.ndarray:
        return np.minimum(self.freedom, LARGEST_FREEDOM)

    def _cdf(self, score: np.ndarray) -> np.ndarray:
        return stdtr(self._freedom, score)


def p_values(runs: Runs) -> dict[str, dict[str, float]]:
    """Of every test by its name, then by quantity; "pooled" is the one over all of them.

    An exact class has none but `rmse`, at 0 or 1: its errors are all small, or they are not.
    """

    def each(values: np.ndarray, pooled: float | None = None) -> dict[str, float]:
        named = dict(zip(runs.names, map(float, values), strict=True))
        return named if pooled is None else named | {"pooled": float(pooled)}

    if runs.is_exact:
        return {"rmse": each(np.all(np.abs(runs.relative_error) <= EXACT, axis=0))}
    folded = np.abs(2 * runs.centred_pit - 1)
    pooled = shift_and_spread(runs.centred_pit)[..., 1].mean(axis=1)
    return {
        "interval": each(one_sided(runs.needed_level, "less")),
        "narrow": each(one_sided(folded, "less"), mean_p(pooled)),
        "bias": each(bias_p(runs, runs.allowed_bias)),
        "rmse": each(mean_p(runs.relative_error**2 - 1)),
        "wide": each(one_sided(folded, "greater"), mean_p(-pooled)),
        "shifted": each(bias_p(runs, 0.0)),
        "uniform": each(np.array([kstest(column, "uniform").pvalue for column in runs.pit.T])),
        "moments": {"pooled": moments_p(runs)},
    }


def moments_p(runs: Runs) -> float:
    """That shift and spread of u are zero, both averaged over the quantities of a seed first."""
    return hotelling_p(shift_and_spread(runs.pit).mean(axis=1))


def one_sided(levels: np.ndarray, alternative: str) -> np.ndarray:
    """Whether a share p of the levels is below p, at all p: "less" finds fewer, "greater" more."""
    return np.array([kstest(column, "uniform", alternative=alternative).pvalue for column in levels.T])


def mean_p(samples: np.ndarray) -> Any:
    """That means of independent rows are not positive, by Student's t."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return t.sf(samples.mean(axis=0) / error, len(samples) - 1)


def bias_p(runs: Runs, allowed: float) -> np.ndarray:
    """That mean errors are within +-allowed tolerances, both sides; the error of the truth is one of the mean too."""
    mean, error = mean_error(runs)
    return sum(t.sf((np.abs(mean) + side * allowed) / error, len(runs.error) - 1) for side in (-1, 1)).clip(max=1.0)


def mean_error(runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """By quantity, in tolerances, and its standard error."""
    relative, blur = runs.relative_error, runs.blur / runs.tolerance.mean(axis=0)
    return relative.mean(axis=0), np.hypot(relative.std(axis=0, ddof=1) / np.sqrt(len(relative)), blur)


def number_of_tests(runs: Runs) -> int:
    return sum(map(len, p_values(runs).values()))


@dataclass(frozen=True)
class Coverage:
    """How often intervals of a level cover: pooled with its clustered error, by quantity, and the least of these."""

    level: float
    kind: str
    pooled: float
    error: float
    by_quantity: tuple[float, ...]
    least_p: float

    @property
    def worst(self) -> float:
        return min(self.by_quantity)


def coverage(runs: Runs, level: float, kind: str) -> Coverage:
    """`least_p` is the chance that some quantity covers so seldom if all cover as they should (Bonferroni)."""
    inside = runs.covers(level, kind)
    shares = inside.mean(axis=1)
    count = int(inside.sum(axis=0).min())
    return Coverage(
        level=level,
        kind=kind,
        pooled=float(shares.mean()),
        error=float(shares.std(ddof=1) / np.sqrt(len(shares))),
        by_quantity=tuple(map(float, inside.mean(axis=0))),
        least_p=float(min(1.0, inside.shape[1] * binom.cdf(count, len(inside), level))),
    )


@dataclass(frozen=True)
class Scores:
    """Mean and sd of the normal scores of u over all quantities, each with its clustered error."""

    mean: float
    mean_error: float
    sd: float
    sd_error: float


def scores(runs: Runs) -> Scores:
    """Phi^-1(u): 0 and 1 if u is uniform."""
    z = ndtri(np.clip(runs.pit, 1e-300, 1 - 1e-16))
    means, squares, root = z.mean(axis=1), (z**2).mean(axis=1), np.sqrt(len(z))
    sd = np.sqrt(max(squares.mean() - means.mean() ** 2, 0.0))
    influence = (squares - 2 * means.mean() * means) / (2 * sd) if sd > 0 else squares
    return Scores(float(means.mean()), float(means.std(ddof=1) / root), float(sd), float(influence.std(ddof=1) / root))


@dataclass(frozen=True)
class Verdict:
    """What the tests below a bound are, by their names, with the quantities they are of."""

    bound: float
    broken: dict[str, list[str]]
    stated: dict[str, list[str]]

    @property
    def is_red(self) -> bool:
        return bool(self.broken)

    def __str__(self) -> str:
        if self.broken:
            return "red: " + ", ".join(f"{name} ({_few(where)})" for name, where in self.broken.items())
        told = [name for name in self.stated if name in ("wide", "shifted")] or list(self.stated)
        return ", ".join(["green", *told])


def judge(runs: Runs, bound: float) -> Verdict:
    """Red where the promise is broken; what is stated breaks none."""
    low = {name: [place for place, p in tests.items() if not p >= bound] for name, tests in p_values(runs).items()}
    return Verdict(
        bound,
        broken={name: low[name] for name in BROKEN if low.get(name)},
        stated={name: low[name] for name in STATED if low.get(name)},
    )


def bonferroni(classes: Sequence[Runs], false_alarm: float) -> float:
    """The p-value below which a test is red or stated, such that all of them together err with `false_alarm`."""
    return false_alarm / max(1, sum(map(number_of_tests, classes)))


@dataclass(frozen=True)
class Outlier:
    """A quantity of a run: its error in tolerances, and how many standard errors it lies outside its 95% interval."""

    seed: int
    quantity: str
    error: float
    outside: float

    @property
    def is_far(self) -> bool:
        """More than 3 tolerances off, or 4.5 standard errors outside."""
        return abs(self.error) > FAR or self.outside > FAR_OUTSIDE


def outliers(runs: Runs) -> list[Outlier]:
    """The worst quantity of every run, by its error in tolerances; and every other that is far off."""
    outside = (np.abs(runs.error) - runs.half_width(0.95, "published")) / runs.spread
    found = []
    for row, seed in enumerate(runs.seeds):
        worst = int(np.argmax(np.abs(runs.relative_error[row])))
        for column, name in enumerate(runs.names):
            each = Outlier(
                int(seed), name, float(runs.relative_error[row, column]), float(max(outside[row, column], 0.0))
            )
            if column == worst or (each.is_far and not runs.is_exact):
                found.append(each)
    return sorted(found, key=lambda each: -abs(each.error))


def _few(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
