"""New observations of families whose law is told by `model.laws`: an average over draws from the posterior.

    sd^2 = E Var(y | theta) + Var E(y | theta),      F(y) = mean over draws of P(Y <= y | theta)

The ends of an interval are where F passes the tails. Both err by the number of draws, and by the bias of their law:
an end by that of F over the slope that F has there; one of a count is a whole number, and errs by those or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.errors import InputError
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.linear import Layout
from tallbayes.model.parts.extras import with_logs
from tallbayes.model.parts.laws import LAWS, ScatterLaw
from tallbayes.moments import Floats
from tallbayes.posterior.prediction import Observation, Prediction
from tallbayes.results.draws.drawn import PosteriorDraws, draw
from tallbayes.results.fitted import excess_width
from tallbayes.results.result import Result

# Fewer, where a result from a file has kept no more.
DRAWS = (256, 64, 16)
BLOCK_NUMBERS = 2**18
STEPS, LEAST, WIDE = 60, 1e-300, 2.0
# Over which share of y the slope of F is taken.
NEAR = 0.02


@dataclass(frozen=True, eq=False)
class DrawnObserver:
    """Tells of new observations, batch after batch of predictions."""

    law: ScatterLaw
    is_count: bool
    layout: Layout
    points: Floats
    bias: float
    probability: float | None
    width: float | None = None

    def __call__(self, found: Prediction, rows: Any) -> Observation:
        x, offset = rows
        size = max(1, BLOCK_NUMBERS // len(self.points))
        parts = [
            self._of(self._predictors(x[start : start + size], offset[start : start + size]), found, start)
            for start in range(0, len(x), size)
        ]
        count = 2 if self.probability is None else 5
        arrays = [np.concatenate(each) for each in zip(*parts, strict=True)] if parts else [np.empty(0)] * count
        return replace(Observation(*arrays), probability=self.probability)

    def _predictors(self, x: Any, offset: Any) -> Floats:
        """(predictors, draws, rows)."""
        points, extras = self.points, self.layout.extras
        eta = points[:, : x.shape[1]] @ np.asarray(x, np.float64).T + offset
        if self.layout.intercept:
            eta = eta + points[:, [x.shape[1]]]
        beside = points[:, points.shape[1] - extras :].T
        stacked = np.stack([eta, *(np.broadcast_to(each[:, None], eta.shape) for each in beside)])
        return np.asarray(with_logs(self.width, stacked))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _of(self, eta: Floats, found: Prediction, start: int) -> list[Floats]:
        assert self.law.variance is not None
        part = slice(start, start + eta.shape[2])
        sd, sd_error = found.sd[part, 0], found.sd_error[part, 0]
        by_draw = self.law.variance(eta)
        variance, error = by_draw.mean(axis=0), self._error(by_draw)
        total = np.sqrt(variance + sd**2)
        answers = [total, (error + (2 * sd + sd_error) * sd_error) / (2 * total)]
        if self.probability is None:
            return answers
        tails = (1 - self.probability) / 2, (1 + self.probability) / 2
        (lower, one), (upper, other) = (self._end(tail, eta, found.mean[part, 0]) for tail in tails)
        return [*answers, lower, upper, np.maximum(one, other)]

    def _error(self, by_draw: Floats) -> Floats:
        """Of a mean over draws."""
        return np.asarray(by_draw.std(axis=0) * (len(self.points) ** -0.5 + self.bias))

    def _end(self, tail: float, eta: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """The least y with F(y) >= tail, by halving, and what it errs by."""
        low, high = np.zeros(len(mean)), np.maximum(mean, LEAST)
        for _ in range(STEPS):
            short = self._cdf(high, eta).mean(axis=0) < tail
            if not short.any():
                break
            low, high = np.where(short, high, low), np.where(short, WIDE * high, high)
        if self.is_count:
            low, high = np.floor(low) - 1.0, np.ceil(high)
        for _ in range(STEPS):
            # Of what is positive half of the way in logarithms, once there is a lower end.
            middle = (
                np.floor((low + high) / 2) if self.is_count else np.where(low > 0, np.sqrt(low * high), high / WIDE)
            )
            enough = self._cdf(np.maximum(middle, 0.0), eta).mean(axis=0) >= tail
            enough &= middle >= 0
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
            if np.all(high - low <= (1.0 if self.is_count else 1e-9 * high)):
                break
        if self.is_count:
            below, at = (self._cdf(np.maximum(each, 0.0), eta) for each in (low, high))
            near = np.where(low < 0, -np.inf, below.mean(axis=0) + self._error(below)) >= tail
            return high, np.where(near | (at.mean(axis=0) - self._error(at) < tail), 1.0, 0.0)
        ends = (self._cdf(high * (1 + side * NEAR), eta).mean(axis=0) for side in (-1, 1))
        before, after = ends
        return high, self._error(self._cdf(high, eta)) * 2 * NEAR * high / np.maximum(after - before, LEAST)

    def _cdf(self, y: Floats, eta: Floats) -> Floats:
        assert self.law.cdf is not None
        return self.law.cdf(y, eta)


def drawn_observer(result: Result, layout: Layout, probability: float | None) -> DrawnObserver:
    """Of a result with one linear predictor a row."""
    assert result.regression is not None
    family, draws = CATALOGUE[result.regression.family], _draws(result)
    is_count, width = family.response == "count", excess_width(result)
    return DrawnObserver(LAWS[family.name], is_count, layout, draws.points, draws.bias, probability, width)


def _draws(result: Result) -> PosteriorDraws:
    for count in DRAWS[:-1]:
        try:
            return draw(result, count)
        except InputError:
            continue
    return draw(result, DRAWS[-1])
