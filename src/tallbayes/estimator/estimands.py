"""Estimands: from the moments of the levels to the numbers that were asked for.

Below the waist a path is read as one vector: the reported parameters less those at the mode, and the squares, if a mean
or an sd is wanted, then the user's functions. A posterior mean or an expectation E g is the sum over levels. The
standard deviation is not linear; its error is that of its linear part, by level

    sd = sqrt(m2 - m1^2),   (Delta2 - 2 m1 Delta1) / (2 sd),   m_k = E_Laplace + sum_l E Delta_k

whose variance needs the covariance of Delta1 and Delta2, at the Laplace level as at every other. What RMSE is allowed
for a component is asked for in one of three ways:

    tolerance           a fraction of the posterior sd: of theta_j for "mean" and "sd", of g by Laplace otherwise
    relative_tolerance  a fraction of |E g|
    absolute_tolerance  in the quantity's own units
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tallbayes.errors import ToleranceError, explain
from tallbayes.moments import Floats, Moments
from tallbayes.structure import Structure

KINDS = ("tolerance", "relative_tolerance", "absolute_tolerance")
DEFAULT_TOLERANCE = 0.01

if TYPE_CHECKING:
    from tallbayes.model.observables import Observables


class GaussianLevel(Protocol):
    """Expectations under the anchor's Gaussian, by observable: exact, or by draws that cost no data."""

    @property
    def draws(self) -> int: ...

    @property
    def mean(self) -> Floats: ...

    @property
    def variance(self) -> Floats:
        """Of one draw; zero where the expectation is exact."""
        ...

    @property
    def covariance(self) -> Floats:
        """Of one draw, between every parameter and its square."""
        ...

    @property
    def kurtosis(self) -> Floats: ...

    def extended(self, draws: float) -> Any:
        """The same with at least so many draws."""
        ...


@dataclass(frozen=True)
class Quantity:
    """One name in the result: where it stands among the observables, and its shape."""

    name: str
    kind: str
    first: int
    structure: Structure

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.structure.size)


@dataclass(frozen=True, eq=False)
class Estimands:
    """All quantities of a run, how to read them off a path, and their scale under Laplace.

    `mode` is that of the reported parameters: theta in its owner's terms at the mode of u.
    `jump` is the height of the jumps of an observable whose derivative is zero wherever it is taken, and zero for all
    others: that such a one did not vary among a few samples says little.
    """

    quantities: tuple[Quantity, ...]
    observables: Observables
    mode: Floats
    laplace_sd: Floats
    jump: Floats

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        d = len(self.mode) if self.observables.moments else 0
        return tuple((j, d + j) for j in range(d))

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Cut (..., components) by quantity."""
        sizes = [quantity.structure.size for quantity in self.quantities]
        parts = np.split(flat, np.cumsum(sizes)[:-1], axis=-1)
        return {q.name: part for q, part in zip(self.quantities, parts, strict=True)}

    @cached_property
    def size(self) -> int:
        """Components in all."""
        return sum(quantity.structure.size for quantity in self.quantities)

    def labels(self) -> list[str]:
        """The names of all components: of tens of thousands that takes a while."""
        return [label for q in self.quantities for label in q.structure.labels(q.name)]

    def observed(self, flat: np.ndarray) -> np.ndarray:
        """Reorder something given by observable so that it is given by component."""
        return np.concatenate([flat[..., q.columns] for q in self.quantities], axis=-1)

    def of_observables(self, error: Floats, scale: Floats) -> Floats:
        """An error of every component's observable as one of the component."""
        return error / np.maximum(self.in_observables(np.ones_like(scale), scale), np.finfo(float).tiny)

    @property
    def gaussian_scale(self) -> Floats:
        """The sd of what a component is measured by, under the Gaussian: of theta_j for its mean and its sd."""
        d = len(self.mode)
        return np.concatenate([self.laplace_sd[slice(0, d) if q.kind == "sd" else q.columns] for q in self.quantities])

    def in_observables(self, error: Floats, scale: Floats) -> Floats:
        """An error of every component as one of its observable: that of an sd is read off a square."""
        parts = zip(self.quantities, self.split(error).values(), self.split(scale).values(), strict=True)
        return np.concatenate([part * (2 * sd if quantity.kind == "sd" else 1.0) for quantity, part, sd in parts])


def plain_variance(estimands: Estimands, side: Moments, scale: Floats) -> Floats:
    """Of one side of level 0, by component; of an sd that of its square, as if its mean were at the centre."""
    d, parts = len(estimands.mode), []
    for quantity, sd in zip(estimands.quantities, estimands.split(scale).values(), strict=True):
        own = side.variance[quantity.columns]
        parts.append(side.variance[d : 2 * d] / (4 * sd**2) if quantity.kind == "sd" else own)
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Summary:
    """The current value of every component, and mean, variance and kurtosis of its linear part by level.

    `laplace_error` is the variance of the Laplace level's mean: zero where that is exact, or where there is none.
    """

    value: Floats
    scale: Floats
    mean: Floats
    variance: Floats
    kurtosis: Floats
    laplace_error: Floats


def summarise(estimands: Estimands, levels: Sequence[Moments], laplace: GaussianLevel | None = None) -> Summary:
    """Put the moments of all levels together, component by component."""
    mean = np.stack([level.mean for level in levels])
    variance = np.stack([level.variance for level in levels])
    kurtosis = np.stack([level.kurtosis for level in levels])
    covariance = np.stack([level.covariance for level in levels])
    total = mean.sum(axis=0) + (0.0 if laplace is None else laplace.mean)
    posterior_sd = estimands.laplace_sd
    if estimands.observables.moments:
        posterior_sd = posterior_sd.copy()
        posterior_sd[: len(estimands.mode)] = _sd(estimands, total)
    parts = [
        _sd_summary(quantity, estimands, total, mean, variance, kurtosis, covariance)
        if quantity.kind == "sd"
        else _linear_summary(quantity, estimands, posterior_sd, total, mean, variance, kurtosis)
        for quantity in estimands.quantities
    ]
    value, scale, mean, variance, kurtosis = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    error = np.zeros_like(value) if laplace is None else _laplace_error(estimands, laplace, total)
    return Summary(value, scale, mean, variance, kurtosis, laplace_error=error)


def _laplace_error(estimands: Estimands, laplace: GaussianLevel, total: Floats) -> Floats:
    """The variance of the Laplace level's mean, by component."""
    variance, covariance = laplace.variance, laplace.covariance
    parts = [
        _sd_variance(estimands, total, variance[None], covariance[None])[0]
        if quantity.kind == "sd"
        else variance[quantity.columns]
        for quantity in estimands.quantities
    ]
    return np.concatenate(parts) / max(laplace.draws, 1)


def _linear_summary(
    quantity: Quantity, estimands: Estimands, sd: Floats, total: Floats, mean: Any, variance: Any, kurtosis: Any
) -> tuple[Floats, ...]:
    columns = quantity.columns
    offset = estimands.mode if quantity.kind == "mean" else 0.0
    value = offset + total[columns]
    return value, sd[columns], mean[:, columns], variance[:, columns], kurtosis[:, columns]


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _sd_summary(
    quantity: Quantity, estimands: Estimands, total: Floats, mean: Any, variance: Any, kurtosis: Any, covariance: Any
) -> tuple[Floats, ...]:
    d = len(estimands.mode)
    one, two = slice(0, d), slice(d, 2 * d)
    m1 = total[one]
    sd = _sd(estimands, total)
    linear = (mean[:, two] - 2 * m1 * mean[:, one]) / (2 * sd)
    kurtosis = np.maximum(kurtosis[:, one], kurtosis[:, two])
    return sd, sd, linear, _sd_variance(estimands, total, variance, covariance), kurtosis


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _sd_variance(estimands: Estimands, total: Floats, variance: Floats, covariance: Floats) -> Floats:
    """Var (Delta2 - 2 m1 Delta1) / (2 sd), by level."""
    d = len(estimands.mode)
    m1, sd = total[:d], _sd(estimands, total)
    spread = variance[:, d : 2 * d] - 4 * m1 * covariance + 4 * m1**2 * variance[:, :d]
    return np.maximum(spread, 0.0) / (4 * sd**2)


def _sd(estimands: Estimands, total: Floats) -> Floats:
    d = len(estimands.mode)
    least = (0.01 * estimands.laplace_sd[:d]) ** 2
    return np.sqrt(np.maximum(total[d : 2 * d] - total[:d] ** 2, least))


@dataclass(frozen=True)
class Tolerances:
    """A kind and a size for every quantity; calling it with a summary gives the RMSE by component."""

    kind: str
    sizes: tuple[float, ...]
    lengths: tuple[int, ...]

    def __call__(self, summary: Summary) -> Floats:
        sizes = np.repeat(self.sizes, self.lengths)
        if self.kind == "tolerance":
            return sizes * summary.scale
        if self.kind == "relative_tolerance":
            return sizes * np.abs(summary.value)
        return sizes


def check_tolerances(given: Mapping[str, Any]) -> tuple[str, Any]:
    """At most one kind, positive and finite; returns it with its size or sizes, the default where none is given."""
    present = {kind: size for kind, size in given.items() if size is not None}
    if len(present) > 1:
        expected, got = f"one of {', '.join(KINDS[:-1])} and {KINDS[-1]}", " and ".join(present)
        hint = "tolerance=0.01 alone, for an error of 1% of a posterior sd"
        raise ToleranceError(explain(expected, got, hint))
    present = present or {KINDS[0]: DEFAULT_TOLERANCE}
    (kind, size), *_ = present.items()
    if isinstance(size, Mapping) and not size:
        raise ToleranceError(explain(f"a {kind} for each quantity", "an empty dict", "one number for all of them"))
    for each in size.values() if isinstance(size, Mapping) else [size]:
        number = isinstance(each, int | float | np.number) and not isinstance(each, bool)
        if not number or not 0 < each < np.inf:
            raise ToleranceError(explain(f"{kind} > 0", repr(each), "0.01; an exact answer would cost infinitely much"))
    return kind, size


def resolve_tolerances(kind: str, size: Any, estimands: Estimands) -> Tolerances:
    """Give every quantity its size."""
    names = [quantity.name for quantity in estimands.quantities]
    if isinstance(size, Mapping) and set(size) != set(names):
        raise ToleranceError(explain(f"a {kind} for each of {names}", f"{sorted(size)}", "one number for all of them"))
    sizes = tuple(float(size[name] if isinstance(size, Mapping) else size) for name in names)
    return Tolerances(kind, sizes, tuple(q.structure.size for q in estimands.quantities))
