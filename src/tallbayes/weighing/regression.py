"""A regression in NumPy: its log posterior at many points at once, and averages of its rows over a Gaussian.

    log pi(theta) = -sum_j (theta_j / scale_j)^2 / 2 + sum_i w_i l(eta_i, row_i),   eta = A theta   (see `linear`)

or, in place of the first sum, the log density of priors that were stated (`model.priors.plain`).

Of a row with eta ~ N(mu, L L^T) a rule of nodes z gives, from values of l alone,

    E l' = L^-T E [l z],     E l'' = L^-T E [l (z z^T - I)] L^-1

With L of next to nothing these are l' and l'' at mu. A Gaussian that is a little off costs a little of the draws'
efficiency and nothing else, so a rule need not be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from tallbayes.model.catalogue import BESIDE
from tallbayes.model.linear import Layout
from tallbayes.model.model import Model
from tallbayes.model.parts.extras import ExtraPart
from tallbayes.model.priors.plain import PlainPriors
from tallbayes.model.weights import WEIGHT
from tallbayes.moments import Floats
from tallbayes.watch import count_rows, look

# Numbers at a time, which a core's own cache holds, and rows among them.
PART_NUMBERS, LEAST_ROWS = 2**15, 32
NODES, NODES_OF_TWO, NODES_AT_POINT = 15, 7, 3
# L where a derivative at a point is meant, in units in which l changes by about one.
POINT = 0.02


class PlainTerms(NamedTuple):
    """Value, gradient and minus the Hessian of the log posterior, at a point or on average over a Gaussian."""

    value: float
    gradient: Floats
    curvature: Floats


@dataclass(frozen=True, eq=False)
class PlainRegression:
    """A family with its rows, as arrays of NumPy.

    `design` has a column for every coefficient of a head, and ones for its intercept; `moving` are the columns that
    move the last extra, whose coefficients are the last. `scales` are those of the Gaussian priors, one a parameter;
    of `extras`, which come last, their own laws hold. Of priors of coefficients that were `stated` scales are about
    how wide these are.
    """

    density: Callable[..., Any]
    layout: Layout
    design: Floats
    row: dict[str, Floats]
    weights: Floats | None
    scales: Floats
    unit: float
    extras: tuple[ExtraPart, ...] = ()
    stated: PlainPriors | None = None
    moving: Floats | None = None

    @property
    def num_rows(self) -> int:
        return len(self.design)

    @property
    def dimension(self) -> int:
        return len(self.scales)

    @cached_property
    def places(self) -> list[np.ndarray]:
        """Where the columns of the design stand in theta, head by head."""
        q, p, beside = self.layout.heads, self.design.shape[1], self.layout.beside
        d = p - self.layout.intercept + beside
        ends = [[q * d + head] if self.layout.intercept else [] for head in range(q)]
        return [np.array([*range(head * d, (head + 1) * d - beside), *ends[head]], int) for head in range(q)]

    @cached_property
    def predictors(self) -> list[tuple[Floats, np.ndarray]]:
        """Columns of every predictor, extras' own too, and where they stand in theta."""
        ones, first = np.ones((len(self.design), 1)), self.dimension - self.layout.extras
        found = [(self.design, places) for places in self.places]
        found += [(ones, np.array([first + e])) for e in range(self.layout.extras)]
        if self.moving is not None:
            found[-1] = np.hstack([self.moving, ones]), np.append(self.moving_places, self.dimension - 1)
        return found

    @property
    def moving_places(self) -> np.ndarray:
        """Of the coefficients of the columns that move the last extra."""
        return self.design.shape[1] - self.layout.intercept + np.arange(self.layout.beside)

    def log_density(self, points: Floats) -> Floats:
        """log pi at every point (points, dimension), a part of them at a time."""
        size = max(1, PART_NUMBERS // (LEAST_ROWS * self.layout.size))
        parts = [self._log_density(points[start : start + size]) for start in range(0, len(points), size)]
        return np.concatenate(parts) if parts else np.empty(0)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _log_density(self, points: Floats) -> Floats:
        """So many rows at a time that their numbers stay in the cache, which halves the time."""
        q, total = self.layout.heads, self.log_prior(points)
        columns = [np.ascontiguousarray(points[:, places].T) for places in self.places]
        for part in self._parts(len(points)):
            look()
            eta = np.empty((self.layout.size, part.stop - part.start, len(points)))
            for head in range(q):
                np.matmul(self.design[part], columns[head], out=eta[head])
            eta[q:] = points[:, self._extras].T[:, None, :]
            if self.moving is not None:
                eta[-1] += self.moving[part] @ points[:, self.moving_places].T
            rows = self._values(eta, part)
            total += rows.sum(axis=0) if self.weights is None else self.weights[part] @ rows
        count_rows(self.num_rows * len(points))
        return total

    def _parts(self, points: int) -> Iterator[slice]:
        """Of the rows, where each has so many points."""
        size = max(LEAST_ROWS, PART_NUMBERS // (points * self.layout.size))
        for start in range(0, self.num_rows, size):
            yield slice(start, min(start + size, self.num_rows))

    def _values(self, eta: Floats, part: slice) -> Floats:
        """l of some rows at eta (predictors, rows, points)."""
        row = {name: numbers[part] for name, numbers in self.row.items()}
        return self.density(eta[0] if self.layout.is_scalar else eta, row)

    def log_prior(self, points: Floats) -> Floats:
        first = self.dimension - self.layout.extras
        if self.stated is not None:
            total = self.stated.log_density(points[:, :first])
        else:
            total = -0.5 * np.sum((points[:, :first] / self.scales[:first]) ** 2, axis=1)
        for place, extra in enumerate(self.extras, first):
            total = total + extra.log_density(points[:, place])
        return total

    @property
    def _extras(self) -> slice:
        return slice(self.dimension - self.layout.extras, None)

    def at(self, theta: Floats) -> PlainTerms:
        """At a point."""
        return self._terms(theta, np.zeros((self.dimension, self.dimension)))

    def about(self, theta: Floats, whitening: Floats) -> PlainTerms:
        """On average over N(theta, W W^T); the prior of an extra at its centre."""
        return self._terms(theta, whitening)

    def _rule(self, whitening: Floats) -> Rule:
        """At a point nine nodes do: densities of counts with an overdispersion take long."""
        excess = bool(self.extras) and self.extras[0].space == "excess"
        return rule(self.layout.size, NODES_AT_POINT if excess and not whitening.any() else NODES_OF_TWO)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _terms(self, theta: Floats, whitening: Floats) -> PlainTerms:
        k, n = self.layout.size, self.num_rows
        value, slope, bend = 0.0, np.empty((n, k)), np.empty((n, k, k))
        for part in self._parts(len(self._rule(whitening)[1])):
            more, slope[part], bend[part] = self._averages(part, theta, whitening)
            value += more
        count_rows(n)
        return self._assembled(theta, whitening, value, slope, bend)

    def _averages(self, part: slice, theta: Floats, whitening: Floats) -> tuple[float, Floats, Floats]:
        """Of some rows: the sum of E l, and E l' and E l'' of each."""
        design, k, extras = self.design[part], self.layout.size, self.layout.extras
        n = len(design)
        moved, mean = np.empty((k, n, self.dimension)), np.empty((k, n))
        for head, places in enumerate(self.places):
            moved[head], mean[head] = design @ whitening[places], design @ theta[places]
        moved[k - extras :], mean[k - extras :] = whitening[self._extras][:, None, :], theta[self._extras, None]
        if self.moving is not None:
            places, columns = self.moving_places, self.moving[part]
            moved[-1] += columns @ whitening[places]
            mean[-1] += columns @ theta[places]
        spread = np.einsum("anj,bnj->nab", moved, moved) + np.eye(k) * self._point(theta, mean)[:, None] ** 2
        factor = np.linalg.cholesky(spread)
        value, slope, bend = 0.0, np.zeros((n, k)), np.zeros((n, k * k))
        for nodes, weights in _parts_of(self._rule(whitening), max(1, PART_NUMBERS // (n * k))):
            eta = mean[:, :, None] + np.einsum("nab,zb->anz", factor, nodes)
            rows = self._values(eta, part) * weights
            rows = rows if self.weights is None else self.weights[part, None] * rows
            value += float(rows.sum())
            slope += rows @ nodes
            bend += rows @ (nodes[:, :, None] * nodes[:, None, :] - np.eye(k)).reshape(-1, k * k)
        back = np.linalg.inv(factor)
        slope = np.einsum("nba,nb->na", back, slope)
        return value, slope, back.transpose(0, 2, 1) @ bend.reshape(n, k, k) @ back

    def _point(self, theta: Floats, mean: Floats) -> Floats:
        """L along every predictor where it is to be next to nothing, beside the noise or what a shape or a precision
        leaves of it: (1, predictors), or row by row where these scatter by themselves. Were it not in units of that,
        the value would change with it and climbs not settle."""
        scale: Any = np.array([self.unit if np.isfinite(self.unit) else 1.0])
        if self.moving is not None:
            scale = np.minimum(scale, np.exp(np.clip(mean[-1], -300, 300)))
        elif self.extras and self.extras[-1].space == "positive":
            scale = np.minimum(scale, np.exp(np.clip(self.extras[-1].loose * theta[-1:], -300, 300)))
        lengths = np.full((len(scale), self.layout.size), POINT)
        lengths[:, : self.layout.size - self.layout.extras] *= scale[:, None]
        return lengths

    def _assembled(self, theta: Floats, whitening: Floats, value: float, slope: Floats, bend: Floats) -> PlainTerms:
        """A^T of the rows' derivatives, and the prior."""
        d = self.dimension
        gradient, curvature = np.zeros(d), np.zeros((d, d))
        for a, (columns, left) in enumerate(self.predictors):
            gradient[left] += columns.T @ slope[:, a]
            for b, (others, right) in enumerate(self.predictors):
                curvature[np.ix_(left, right)] -= (columns.T * bend[:, a, b]) @ others
        prior = self.prior(theta, whitening)
        return PlainTerms(value + prior.value, gradient + prior.gradient, curvature + prior.curvature)

    def prior(self, theta: Floats, whitening: Floats | None = None) -> PlainTerms:
        """The prior's own part, at a point; one that was stated on average over N(theta, W W^T), number by number."""
        first = self.dimension - self.layout.extras
        curvature = self.scales**-2.0
        gradient = -theta * curvature
        if self.stated is not None:
            sd = np.zeros(first) if whitening is None else np.sqrt(np.sum(whitening[:first] ** 2, axis=1))
            gradient[:first], curvature[:first] = self.stated.about(theta[:first], sd)
        for place, extra in enumerate(self.extras, first):
            gradient[place], bend = extra.derivatives(float(theta[place]))
            curvature[place] = -bend
        return PlainTerms(float(self.log_prior(theta[None])[0]), gradient, np.diag(curvature))


def plain_regression(model: Model, rows: dict[str, Any], unit: float) -> PlainRegression:
    """Of checked rows; `unit` is the size of the response where it has one, and infinite elsewhere."""
    assert model.parts is not None
    layout, density, scales = model.layout, model.parts.density, model.parts.scales
    y = np.asarray(rows["y"], np.float64)
    width = layout.width(rows)
    design = np.zeros((len(y), width + layout.intercept))
    columns = np.arange(width) if layout.indexed is None else np.array(layout.indexed.columns, int)
    if len(columns):
        design[:, columns] = rows["x"]
    if layout.indexed is not None:
        for codes in np.asarray(rows["codes"]).T:
            (named,) = np.nonzero(codes < width)
            design[named, codes[named]] += 1.0
    if layout.intercept:
        design[:, -1] = 1.0
    moving = None
    if layout.beside:
        moving = design[:, width - layout.beside : width]
        design = np.hstack([design[:, : width - layout.beside], design[:, width:]])
    row: dict[str, Floats] = {
        name: np.asarray(rows[name], np.float64)[:, None] for name in ("y", "offset", *BESIDE) if name in rows
    }
    weights = np.asarray(rows[WEIGHT], np.float64) if WEIGHT in rows else None
    q = layout.heads
    flat = [np.broadcast_to(scales["coefficients"], (q, width)).ravel()]
    flat += [
        np.full(q if name == "intercept" else 1, scale) for name, scale in scales.items() if name != "coefficients"
    ]
    stated = None
    if model.parts.priors is not None:
        shapes: dict[str, tuple[int, ...]] = {"coefficients": (q, width)}
        shapes |= {"intercept": (q,)} if layout.intercept else {}
        stated = PlainPriors.of(model.parts.priors, shapes, ())
    every = np.concatenate(flat).astype(np.float64)
    return PlainRegression(density, layout, design, row, weights, every, unit, model.parts.extras, stated, moving)


Rule = tuple[Floats, Floats]


@cache
def rule(dimension: int, nodes_of_two: int = NODES_OF_TWO) -> Rule:
    """Nodes (nodes, dimension) and weights for a standard normal: Gauss and Hermite's for one and two dimensions, and
    beyond that Stroud's of the fifth degree."""
    if dimension <= 2:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES if dimension == 1 else nodes_of_two)
        weights = weights / weights.sum()
        if dimension == 1:
            return nodes[:, None], weights
        return np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2), np.outer(weights, weights).ravel()
    k, unit = dimension, np.eye(dimension)
    axes = np.sqrt(k + 2) * np.concatenate([unit, -unit])
    pairs = [
        np.sqrt((k + 2) / 2) * (one * unit[i] + other * unit[j])
        for i in range(k)
        for j in range(i)
        for one in (1, -1)
        for other in (1, -1)
    ]
    shares = [2 / (k + 2), *[(4 - k) / (2 * (k + 2) ** 2)] * (2 * k), *[1 / (k + 2) ** 2] * len(pairs)]
    return np.vstack([np.zeros(k), axes, pairs]), np.array(shares)


def _parts_of(whole: Rule, size: int) -> Iterator[Rule]:
    nodes, weights = whole
    for start in range(0, len(weights), size):
        yield nodes[start : start + size], weights[start : start + size]
