"""New observations: how they scatter about a prediction, noise and posterior together.

    sd^2 = E Var(y | theta) + Var E(y | theta)
    F(y) = E P(Y <= y | eta, s),     F(lower) = (1 - p) / 2,   F(upper) = (1 + p) / 2

E sigma^2 and E a mu^2 are expectations of exponentials of lines, and are found as predictions through a log link are:
the sd has Monte Carlo errors alone. An interval is approximate. For it eta and s, the log of a noise scale or of an
overdispersion, are taken to be jointly normal, with the means and sds that the paths found (for counts those of exp
eta) and the covariance that they have at the mode. What is wrong with that are third moments. `interval_error` adds to
the Monte Carlo errors what a skewness of one would do:

    |z^2 - 1| / 6 (sd of the mean / sd of the noise)^3    in sds of the observation, at an end z of them away

which is next to nothing where rows are many. Where the noise scale has columns of its own, s is that of the row.
Ends of counts are whole numbers, and err by whole numbers or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import gammaincinv
from scipy.stats import norm

from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.quadrature import normal_rule
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.model.noise import Noise
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Observation, Prediction
from tallbayes.posterior.predictor import FamilyResponse, Kind, Predictor, make_predictor

# Nodes for what changes over so many sds: up to each width the CDFs of all families are integrated to 1e-5.
NODES = {0.005: 1, 0.1: 2, 0.3: 4, 1.0: 12}
WIDEST = 32.0
CLOSE = 1e-9
MOST_STEPS = 100
EXPONENTIAL = FamilyResponse(Wanted("poisson"), Layout())


class NoiseScale(NamedTuple):
    """Over the posterior: mean and sd of s, and E exp(2 s) with its error, of all rows or of each; of one that is known
    the sd is 0."""

    mean: Any
    sd: Any
    square: Any
    square_error: Any

    @classmethod
    def known(cls, value: float) -> NoiseScale:
        return cls(float(np.log(value)), 0.0, value**2, 0.0)

    @classmethod
    def of(cls, posterior: Posterior) -> NoiseScale:
        """Of the last parameter: s is taken to be normal with the mean and sd that exp(2 s) has."""
        line = np.zeros((1, len(posterior.anchor.mode)))
        line[0, -1] = 2.0
        rows = line, np.zeros(1)
        found = make_predictor(posterior, EXPONENTIAL, rows).all(rows)
        return cls.of_squares(float(found.mean[0, 0]), float(found.sd[0, 0]), float(found.error[0, 0]))

    @classmethod
    def of_squares(cls, square: Any, sd: Any, error: Any) -> NoiseScale:
        """By the mean and sd of exp(2 s), and the error of the mean."""
        variance = np.log1p((sd / square) ** 2)
        return cls((np.log(square) - variance / 2) / 2, np.sqrt(variance) / 2, square, error)

    def part(self, rows: Any) -> NoiseScale:
        """Of some of the rows."""
        return NoiseScale(*(each[rows] for each in self)) if np.ndim(self.mean) else self


@dataclass(eq=False)
class Observer:
    """Tells of new observations, batch after batch of predictions."""

    posterior: Posterior
    kind: FamilyResponse
    noise: Noise
    scale: NoiseScale | None
    probability: float | None
    excess: Predictor | None = None

    def __call__(self, found: Prediction, rows: Any) -> Observation:
        """Of predictions by (rows, outputs), of which the first is that of the mean."""
        if self.kind.layout.beside and len(found.mean):
            self.scale = self._by_row(rows[0])
        mean, sd, error, sd_error = (each[:, 0] for each in (found.mean, found.sd, found.error, found.sd_error))
        if self.noise.facts.response == "binary":
            return of_indicator(mean, error)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            variance, variance_error = self._noise(mean, error, rows)
            total = np.sqrt(variance + sd**2)
            total_error = (variance_error + (2 * sd + sd_error) * sd_error) / (2 * total)
            if self.probability is None:
                return Observation(total, total_error)
            law = self._law(mean, sd, variance, total, rows)
            tails = (1 - self.probability) / 2, (1 + self.probability) / 2
            ends = [law.end(tail, error, total_error) for tail in tails]
        (lower, one), (upper, other) = ends
        return Observation(total, total_error, lower, upper, np.maximum(one, other), self.probability)

    def _by_row(self, x: Any) -> NoiseScale:
        """Of rows whose noise has columns of its own: of the lines 2 (z, 1)."""
        beside, d = self.kind.layout.beside, x.shape[1]
        lines = np.zeros((len(x), len(self.posterior.anchor.mode)))
        lines[:, d - beside : d], lines[:, -1] = 2 * np.asarray(x[:, d - beside :], np.float64), 2.0
        doubled = lines, np.zeros(len(x))
        self.excess = self.excess or make_predictor(self.posterior, EXPONENTIAL, doubled)
        found = self.excess.all(doubled)
        return NoiseScale.of_squares(found.mean[:, 0], found.sd[:, 0], found.error[:, 0])

    def _noise(self, mean: Floats, error: Floats, rows: Any) -> tuple[Floats, Floats]:
        """E Var(y | theta) by row, and its error."""
        if not self.noise.is_count:
            assert self.scale is not None
            unit = self.noise.unit_variance
            square, square_error = (np.broadcast_to(each, len(mean)) for each in self.scale[2:])
            return unit * square, unit * square_error
        if self.scale is None or not len(mean):
            return np.maximum(mean, 0.0), error
        # a mu^2 = exp(s + 2 eta)
        x, offset = rows
        line = 2 * np.column_stack(
            [x, *([np.ones(len(x))] if self.kind.layout.intercept else []), np.full(len(x), 0.5)]
        )
        doubled = line, 2 * offset
        self.excess = self.excess or make_predictor(self.posterior, EXPONENTIAL, doubled)
        beyond = self.excess.all(doubled)
        return np.maximum(mean + beyond.mean[:, 0], 0.0), error + beyond.error[:, 0]

    def _law(self, mean: Floats, sd: Floats, variance: Floats, total: Floats, rows: Any) -> Law:
        centre, spread, unit = mean, sd, np.sqrt(variance)
        if self.noise.is_count:
            spread = np.sqrt(np.log1p((sd / mean) ** 2))
            centre = np.log(mean) - spread**2 / 2
        elif self.scale is not None:
            unit = np.broadcast_to(np.sqrt(self.scale.square), len(mean))
            total = np.hypot(unit, sd)
        slope = np.clip(self._slope(rows), -spread, spread)
        return Law(self.noise, self.scale, mean, total, sd / unit, centre, spread, slope)

    def _slope(self, rows: Any) -> Floats:
        """By how much eta moves with an sd of s, at the mode."""
        x, anchor, layout = rows[0], self.posterior.anchor, self.kind.layout
        if not layout.extras or anchor.is_diagonal:
            return np.zeros(len(x))
        if layout.beside:
            return self._slope_by_row(np.asarray(x, np.float64))
        last = np.eye(1, len(anchor.mode), len(anchor.mode) - 1)[0]
        arrow = isinstance(anchor.precision, Arrowhead)
        along = (anchor.displacements(anchor.whitener.pull_back(last)) if arrow else anchor.covariance[-1]) / anchor.sd[
            -1
        ]
        d = x.shape[1]
        return np.asarray(x @ along[:d] + (along[d] if layout.intercept else 0.0), np.float64)

    def _slope_by_row(self, x: Floats) -> Floats:
        """With s of the row itself."""
        anchor, layout, d = self.posterior.anchor, self.kind.layout, x.shape[1]
        moving = np.arange(d) >= d - layout.beside
        mean, scale = np.zeros((2, len(x), len(anchor.mode)))
        mean[:, :d], scale[:, :d] = np.where(moving, 0.0, x), np.where(moving, x, 0.0)
        mean[:, d : d + layout.intercept], scale[:, -1] = 1.0, 1.0
        a, b = (anchor.whitener.pull_back(each) for each in (mean, scale))
        return np.asarray(np.sum(a * b, axis=1) / np.linalg.norm(b, axis=1))


@dataclass(frozen=True, eq=False)
class Law:
    """The law of a new observation of every row: its mean and sd, the width of the posterior in sds of the noise; and
    centre and spread of eta, and how far that moves with an sd of s."""

    noise: Noise
    scale: NoiseScale | None
    mean: Floats
    total: Floats
    width: Floats
    centre: Floats
    spread: Floats
    slope: Floats

    def end(self, tail: float, error: Floats, total_error: Floats) -> tuple[Floats, Floats]:
        """The least y with F(y) >= tail, and what it errs by."""
        value, slack = np.full(len(self.mean), np.nan), np.full(len(self.mean), np.inf)
        fine = np.isfinite(self.total) & np.isfinite(self.centre) & np.isfinite(self.spread) & (self.total > 0)
        # In sds of the noise where that is least: at two sds below the mean of s.
        moved = 0.0 if self.scale is None else np.max(self.scale.sd)
        width = self.width * np.exp(moved**2 + 2 * moved)
        for narrow, wide in pairwise([-1.0, *NODES, np.inf]):
            rows = np.flatnonzero(fine & (width > narrow) & (width <= wide))
            if len(rows):
                part, nodes = self._part(rows), _nodes(float(width[rows].max()))
                value[rows], slack[rows] = part._end(tail, nodes, error[rows], total_error[rows])
        return value, slack

    def _part(self, rows: np.ndarray) -> Law:
        arrays = self.mean, self.total, self.width, self.centre, self.spread, self.slope
        return Law(self.noise, None if self.scale is None else self.scale.part(rows), *(each[rows] for each in arrays))

    def _end(self, tail: float, nodes: Any, error: Floats, total_error: Floats) -> tuple[Floats, Floats]:
        if not self.noise.is_count:
            value = self._solve(tail, nodes)
            return value, self._slack(value, error, total_error)
        value, below, at = self._search(tail, nodes)
        slack = self._slack(value, error, total_error)
        chance = slack / self.total * norm.pdf(np.minimum(np.abs(value - self.mean) / self.total, 3.0))
        doubtful = (below + chance >= tail) | (at - chance < tail)
        return value, np.where(doubtful, np.maximum(np.ceil(slack), 1.0), 0.0)

    def _slack(self, value: Floats, error: Floats, total_error: Floats) -> Floats:
        z = np.abs(value - self.mean) / self.total
        moved = 0.0 if self.scale is None else self.scale.sd
        shape = np.maximum(np.abs(z**2 - 1), 1.0) / 6 * np.minimum(self.width, 1e3) ** 3 + z / 6 * moved**3
        return error + z * np.where(np.isfinite(total_error), total_error, 0.0) + shape * self.total

    def cdf(self, y: Floats, nodes: Any, rows: Any = slice(None)) -> Floats:
        """F(y) of these rows."""
        centre, spread, slope = self.centre[rows], self.spread[rows], self.slope[rows]
        rest = np.sqrt(np.maximum(spread**2 - slope**2, 0.0))
        total, own = np.zeros(len(centre)), None if self.scale is None else self.scale.part(rows)
        for t, weight in zip(*self._scale_nodes(), strict=True):
            scale: Any = None if own is None else np.exp(own.mean + own.sd * t)
            eta = centre + slope * t
            if self.noise.family == "linear":
                total += weight * self.noise.standard_cdf((y - eta) / np.hypot(scale, rest))
                continue
            for z, share in zip(*nodes, strict=True):
                total += weight * share * self.noise.cdf(y, eta + rest * z, scale)
        return total

    def _scale_nodes(self) -> Any:
        # The CDFs change over an sd of log scale about as much as over three sds of the noise.
        return _nodes(0.0 if self.scale is None else 3 * float(np.max(self.scale.sd)))

    def _solve(self, tail: float, nodes: Any) -> Floats:
        """By secants, between ends that are known, on the scale on which F would be a line were there noise alone."""
        target = float(self.noise.standard_quantile(tail))
        value, rows = self.mean + target * self.total, np.arange(len(self.mean))
        low, high = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
        per_unit, gap, step = self.total.copy(), np.zeros(len(rows)), np.zeros(len(rows))
        for _ in range(MOST_STEPS):
            here = np.clip(self.cdf(value[rows], nodes, rows), 1e-300, 1 - 1e-16)
            left = target - self.noise.standard_quantile(here)
            low[rows] = np.where(left > 0, value[rows], low[rows])
            high[rows] = np.where(left < 0, value[rows], high[rows])
            slope = step[rows] / (gap[rows] - left)
            per_unit[rows] = np.where(np.isfinite(slope) & (slope > 0), slope, per_unit[rows])
            there = value[rows] + left * per_unit[rows]
            inside = (there > low[rows]) & (there < high[rows])
            there = np.where(inside | (left == 0), there, (low[rows] + high[rows]) / 2)
            gap[rows], step[rows], value[rows] = left, there - value[rows], there
            rows = rows[np.abs(step[rows]) > CLOSE * self.total[rows]]
            if not len(rows):
                break
        return value

    def _search(self, tail: float, nodes: Any) -> tuple[Floats, Floats, Floats]:
        """The least whole y with F(y) >= tail, F(y - 1) and F(y): from a gamma's end in strides that double."""
        ratio = self.total**2 / self.mean
        guess = gammaincinv(self.mean / ratio, tail) * ratio
        low, high = np.full(len(guess), -1.0), np.full(len(guess), np.inf)
        below, at = np.zeros(len(guess)), np.ones(len(guess))
        y, stride = np.maximum(np.floor(guess), 0.0), np.ones(len(guess))
        rows = np.arange(len(guess))
        while len(rows):
            here = self.cdf(y[rows], nodes, rows)
            enough = here >= tail
            high[rows[enough]], at[rows[enough]] = y[rows[enough]], here[enough]
            low[rows[~enough]], below[rows[~enough]] = y[rows[~enough]], here[~enough]
            rows = rows[high[rows] - low[rows] > 1]
            ends = low[rows], high[rows]
            up, down = ends[0] + stride[rows], np.maximum(ends[1] - stride[rows], ends[0] + 1)
            middle = np.floor((ends[0] + np.minimum(ends[1], 1e300)) / 2)
            tried = np.where(np.isinf(ends[1]), up, np.where(ends[0] < 0, down, middle))
            y[rows], stride[rows] = tried, 2 * stride[rows]
        return high, below, at


def make_observer(posterior: Posterior, kind: Kind, noise: Noise | None, probability: float | None) -> Observer | None:
    """For a family whose noise is known; of several classes a prediction says all that there is to say."""
    if noise is None or not isinstance(kind, FamilyResponse) or noise.facts.by_class:
        return None
    scale = None
    if noise.facts.extra is not None:
        if kind.layout.extras:
            scale = NoiseScale.of(posterior) if not kind.layout.beside else NoiseScale.known(1.0)
        elif noise.scale is not None:
            scale = NoiseScale.known(noise.scale)
        else:
            return None
    return Observer(posterior, kind, noise, scale, probability)


def of_indicator(chance: Floats, error: Floats) -> Observation:
    """sqrt(p (1 - p)) of a p with an error."""
    p = np.clip(chance, 0.0, 1.0)
    variance = p * (1 - p)
    spread = np.abs(1 - 2 * p) * error + error**2
    sd = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Observation(sd, np.fmin(spread / (2 * sd), np.sqrt(spread)))


def _nodes(width: float) -> tuple[Any, Any]:
    """Nodes and weights of N(0, 1) for a CDF whose own width is 1 / `width`."""
    for most, count in NODES.items():
        if width <= most:
            nodes, weights = hermegauss(count)
            return nodes, weights / weights.sum()
    return normal_rule(min(width, WIDEST))
