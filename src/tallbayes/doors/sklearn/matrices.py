"""Matrices: plain columns standardised for a fit, and parameters reported in the units of the columns.

z_ij = (x_ij - m_j) / s_j,     theta_j ~ N(0, 1),     and back as in `units`

m_j is the weighted mean, or 0 where there is no intercept; s_j is the weighted standard deviation by the prior scale of
its coefficient. A column of zeros and ones has m_j = 0 and a standard deviation of 1 here, so that a rare flag has the
prior that a common one has. So has a column that never changes: about its mean it is 0, and its coefficient keeps its
prior.

Programs are compiled for a shape, and a small table takes longer to compile for than to fit. So it is given columns of
zeros up to one of a few widths, and its prior is in s_j: small tables share one program a family. The coefficient of
such a column has its prior for a posterior, independent of all others, and is left out of the result.

A sparse matrix stays sparse until then: it is standardised a tile of rows at a time, into the array that paths read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import DataError, InputError, explain, suggestion
from tallbayes.estimator.estimates import Estimate
from tallbayes.formula.units import own_extra, own_intercept, own_slopes
from tallbayes.model.catalogue import NOISE, SIGMA, Extra
from tallbayes.model.model import Model
from tallbayes.model.priors.assigned import require_kind, without_shrinkage
from tallbayes.model.priors.named import as_prior, flat, normal
from tallbayes.model.priors.prior import Prior
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import Entries, Part, Reading
from tallbayes.programs.functions import functions_of
from tallbayes.results.parts import Level
from tallbayes.results.result import Result
from tallbayes.structure import Structure

SMALL_ROWS = 4096
WIDTHS = (16, 32)
BLOCK_NUMBERS = 2**18
# Estimates of parameters; of others there are none of columns beyond.
MOMENTS = ("mean", "sd")


@dataclass(frozen=True, eq=False)
class Scaling:
    """Means and scales of columns and of the response: what is fitted is (raw - mean) / scale."""

    means: Floats
    scales: Floats
    response_mean: float = 0.0
    response_scale: float = 1.0

    @property
    def columns(self) -> int:
        return len(self.means)

    def apply(self, x: Any, width: int | None = None, dtype: Any = np.float64) -> np.ndarray:
        """The columns standardised, and zeros in the columns beyond them up to `width`."""
        z = np.zeros((x.shape[0], width or self.columns), dtype)
        for rows in tiles(x):
            z[rows, : self.columns] = (dense(x, rows) - self.means) / self.scales
        return z

    def units(self, width: int) -> dict[str, Floats]:
        """What the report needs, as arrays."""
        beyond = np.zeros(width - self.columns)
        return {
            "means": np.append(self.means, beyond),
            "scales": np.append(self.scales, beyond + 1),
            "shown": np.append(np.arange(self.columns), beyond),
            "response_mean": np.asarray(self.response_mean),
            "response_scale": np.asarray(self.response_scale),
        }


def raw_scaling(columns: int) -> Scaling:
    """That which leaves everything as it is."""
    return Scaling(np.zeros(columns), np.ones(columns))


def standard_scaling(
    x: Any, weights: Floats | None, centred: bool, response: Floats | None = None, rule: str = "numbers"
) -> Scaling:
    """By weighted means and standard deviations; the response too, where it is given.

    Columns of zeros and ones stay as they are, unless the rule is "all".
    """
    means, scales = _moments(x, weights)
    flags = _flags(x) if rule == "numbers" else np.zeros(len(means), bool)
    means, scales = np.where(flags, 0.0, means), np.where(flags, 1.0, scales)
    scaling = Scaling(means if centred else np.zeros(len(means)), scales)
    if response is None:
        return scaling
    (mean,), (scale,) = _moments(response[:, None], weights)
    return replace(scaling, response_mean=float(mean) if centred else 0.0, response_scale=float(scale))


def _flags(x: Any) -> np.ndarray:
    """Which columns are of zeros and ones, both of them there."""
    flags, ones, zeros = (np.full(x.shape[1], each) for each in (True, False, False))
    for rows in tiles(x):
        block = dense(x, rows)
        flags &= np.all((block == 0) | (block == 1), axis=0)
        ones |= np.any(block == 1, axis=0)
        zeros |= np.any(block == 0, axis=0)
    return flags & ones & zeros


def _moments(x: Any, weights: Floats | None) -> tuple[Floats, Floats]:
    """Means and standard deviations, 1 where there is none, from deviations that are exactly 0 in a constant column."""
    origin = dense(x, slice(0, 1))[0].astype(np.float64)
    total = x.shape[0] if weights is None else weights.sum()

    def average(function: Callable[[Floats], Floats]) -> Floats:
        def part(rows: slice) -> Floats:
            values = function(dense(x, rows) - origin)
            return values.sum(axis=0) if weights is None else weights[rows] @ values

        return np.sum([part(rows) for rows in tiles(x)], axis=0) / total

    with np.errstate(over="ignore", invalid="ignore"):
        shift = average(lambda deviation: deviation)
        scales = np.sqrt(average(lambda deviation: (deviation - shift) ** 2))
    if not np.all(np.isfinite(scales)):
        at = int(np.argmin(np.isfinite(scales)))
        raise DataError(explain("numbers that can be squared", f"others in column {at}", "take another unit for it"))
    return origin + shift, np.where(scales > 0, scales, 1.0)


def tiles(x: Any) -> Iterator[slice]:
    """Rows that fit into the cache once they are dense."""
    size = max(1, BLOCK_NUMBERS // x.shape[1])
    return (slice(start, start + size) for start in range(0, x.shape[0], size))


def dense(x: Any, rows: slice) -> np.ndarray:
    """Some rows of a matrix that may be sparse."""
    return np.asarray(x[rows].toarray() if issparse(x) else x[rows])


def require_room(x: Any, width: int, dtype: Any) -> None:
    """Refuse a sparse matrix that would take more than half of the machine's memory once it is dense."""
    wanted, most = x.shape[0] * width * np.dtype(dtype).itemsize, memory_bytes() // 2
    if issparse(x) and wanted > most:
        gigabytes = f"{wanted / 1e9:.3g} GB as the dense rows that paths read, where {most / 1e9:.3g} may be taken"
        hint = "fewer columns (rare ones merged), or tb.write_table in chunks and tb.estimate on rows on disk"
        raise DataError(explain("a sparse X that fits into memory", f"{x.shape[0]:,} x {width:,}: {gigabytes}", hint))


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_small(num_rows: int) -> bool:
    """Whether it takes longer to compile a program for such a table than to do some more arithmetic."""
    return num_rows <= SMALL_ROWS


def width_for(num_rows: int, columns: int) -> int:
    """The number of columns a table is widened to."""
    return next((width for width in WIDTHS if is_small(num_rows) and columns <= width), columns)


def absorb_prior(scaling: Scaling, prior_scale: Any, width: int) -> tuple[Scaling, Any]:
    """A scaling under which every coefficient is N(0, 1) a priori, or flat; and the prior scales that are left to say.

    They are 1.0, the same in every program; inf for a column whose prior is flat, but 1 for the columns beyond.
    """
    scales = np.asarray(prior_scale, np.float64)
    if scales.shape not in ((), (scaling.columns,)) or not np.all(scales > 0):
        expected = f"prior_scale > 0, one number or {scaling.columns} for as many columns"
        raise InputError(explain(expected, repr(prior_scale), "1.0, or float('inf') for a flat prior"))
    scales = np.broadcast_to(scales, scaling.columns)
    flat = np.isinf(scales)
    left = np.append(np.where(flat, np.inf, 1.0), np.ones(width - len(flat))) if flat.any() else 1.0
    return replace(scaling, scales=scaling.scales / np.where(flat, 1.0, scales)), left


def column_priors(
    given: Any, names: Sequence[str], scaling: Scaling, prior_scale: Any, width: int, extra: Extra | None
) -> dict[str, Any]:
    """Priors by name, for the family of a table of `width` columns that are not yet scaled by priors.

    Of columns and of the rest they are in their own units, b = unit theta. Columns that are not named keep their normal
    priors, and those beyond N(0, 1). A shrinkage prior is of all columns together, as they are scaled.
    """
    if not isinstance(given, Mapping):
        raise InputError(explain("priors by name, in a dict", repr(given), "{'x0': tb.priors.normal(0, 1)}"))
    unit = scaling.response_scale
    known = {"coefficients": range(len(names))} | {name: range(place, place + 1) for place, name in enumerate(names)}
    beside = {"intercept": (scaling.response_mean, unit), "Intercept": (scaling.response_mean, unit)}
    if extra is not None:
        beside[extra.name] = (0.0, unit if extra.has_units else 1.0)
    if SIGMA in given and extra == NOISE and SIGMA not in names:
        given = {NOISE.name if name == SIGMA else name: each for name, each in given.items()}
    columns = _default_priors(prior_scale, len(names), width)
    given, shrinkage = without_shrinkage(given)
    found: dict[str, Any] = {"coefficients": shrinkage or columns}
    for name in sorted(given, key=lambda each: each != "coefficients"):
        if name not in known and name not in beside:
            few = f"priors can be stated of {', '.join([*known, *beside][:20])}"
            hint = suggestion(str(name), [*known, *beside], few)
            raise InputError(explain("priors of columns or parameters", repr(name), hint))
        positive = extra is not None and name == extra.name and name not in known
        prior = require_kind(as_prior(given[name], name), name, positive)
        if name in known:
            if shrinkage is not None:
                hint = "leave it out, or give every column a prior of its own"
                raise InputError(explain(f"no priors of single columns beside {shrinkage}", f"one of {name!r}", hint))
            for place in known[name]:
                columns[place] = prior.within(0.0, unit / scaling.scales[place])
        else:
            found[name.lower()] = prior.within(*beside[name])
    return found


def _default_priors(prior_scale: Any, count: int, width: int) -> list[Prior]:
    scales = np.broadcast_to(np.asarray(prior_scale, np.float64), count)
    return [normal(0.0, each) if np.isfinite(each) else flat() for each in scales] + [normal()] * (width - count)


def named_units(model: Model, names: Names, extra: Extra | None) -> Model:
    """A model of `in_units_of` without columns beyond, for what reads its report as one vector, under its names."""
    columns = () if names.names is None else tuple(map(str, names.names))
    flat = partial(_flat_report, extra)
    return replace(model, flat_report=flat, structure=names.structure, columns=columns)


def _flat_report(extra: Extra | None, theta: Any, units: Any) -> Any:
    parts = theta if isinstance(theta, dict) else {"coefficients": theta}
    slopes = own_slopes(parts["coefficients"], units)
    columns = [slopes]
    if "intercept" in parts:
        columns.append(own_intercept(parts["intercept"], slopes, units)[..., None])
    if extra:
        columns.append(own_extra(parts[extra.name], extra, units)[..., None])
    return functions_of(slopes).concatenate(columns, axis=-1)


def in_units_of(model: Model, scaling: Scaling, width: int, extra: Extra | None) -> Model:
    """The model with its parameters reported for raw columns and response; `extra` stands beside coefficients."""
    units = scaling.units(width)
    return replace(model, report=partial(_report, extra), units=units, affine_report=extra is None)


def _report(extra: Extra | None, theta: Any, units: Any) -> Any:
    parts = theta if isinstance(theta, dict) else {"coefficients": theta}
    slopes = own_slopes(parts["coefficients"], units)
    # In the place of a column beyond the first is shown once more: what differs by rounding alone upsets a test of
    # means, and the program must not depend on how many there are.
    own = {"coefficients": jnp.take(slopes, units["shown"].astype(np.int32), axis=-1)}
    if "intercept" in parts:
        own["intercept"] = own_intercept(parts["intercept"], slopes, units)
    if extra:
        own[extra.name] = own_extra(parts[extra.name], extra, units)
    return own


@dataclass(frozen=True)
class Names:
    """What parameters are called: columns (None: by number), classes with coefficients of their own, and the rest."""

    columns: int
    names: Sequence[str] | None
    classes: Sequence[str] | None
    intercept: bool
    extra: Extra | None

    @property
    def heads(self) -> int:
        return 1 if self.classes is None else len(self.classes)

    @property
    def structure(self) -> Structure:
        number = Structure.leaf(())
        slopes = Structure.leaf((self.columns,))
        if self.names is not None:
            slopes = Structure.container("dict", [(str(name), number) for name in self.names])
        items = [("coefficients", self._by_class(slopes))]
        if self.intercept:
            items.append(("intercept", self._by_class(number)))
        if self.extra:
            items.append((self.extra.name, number))
        return Structure.container("dict", items)

    def _by_class(self, one: Structure) -> Structure:
        return one if self.classes is None else Structure.container("dict", [(each, one) for each in self.classes])

    def reading(self, scaling: Scaling, last: Part | None) -> Reading:
        """How these parameters are read off those of standardised columns, head by head; `last` is that of an extra."""
        heads, d, units = self.heads, self.columns, scaling.units(self.columns)
        size = heads * (d + self.intercept) + (self.extra is not None)
        matrix, offset, nothing = np.zeros((size, size)), np.zeros(size), np.zeros(d)
        slopes, moves = own_slopes(np.ones(d), units), {**units, "response_mean": 0.0}
        for head in range(heads):
            own, place = slice(head * d, (head + 1) * d), heads * d + head
            matrix[own, own] = np.diag(slopes)
            if self.intercept:
                matrix[place, own] = own_intercept(nothing, matrix[own, own], moves)
                matrix[place, place] = own_intercept(1.0, nothing, moves)
                offset[place] = own_intercept(0.0, nothing, units)
        parts = [Part("real", (), (size - (self.extra is not None),))]
        if self.extra:
            matrix[-1, -1] = own_extra(1.0, self.extra, units)
            parts.append(last or Part("positive", (), (1,)))
        row, column = np.nonzero(matrix)
        return Reading(self.structure, tuple(parts), Entries(row, column, matrix[row, column]), offset)

    def places(self, width: int) -> np.ndarray:
        """Where the parameters of these columns stand in a flat theta of `width` columns."""
        slopes = np.arange(self.heads * width).reshape(self.heads, width)[:, : self.columns].ravel()
        rest = self.heads * self.intercept + (self.extra is not None)
        return np.concatenate([slopes, self.heads * width + np.arange(rest)])


def narrowed(result: Result, names: Names, width: int, scaling: Scaling) -> Result:
    """The result without the columns beyond, under its names; it is not to be continued, and keeps no rows."""
    places = names.places(width)
    anchor = None if result.anchor is None else _narrowed_anchor(result.anchor, places)
    posterior = result.posterior
    if posterior is not None and result.anchor is not None and anchor is not None:
        points = tuple(each[..., places] for each in posterior.points)
        probe = posterior.probe
        if probe is not None:
            probe = probe.narrowed(result.anchor, places, anchor)
        reading = names.reading(scaling, None if posterior.reading is None else posterior.reading.parts[-1])
        posterior = replace(posterior, anchor=anchor, points=points, stored=reading, live=None, probe=probe)
    return replace(
        result,
        estimates={
            name: _narrowed_estimate(each, places, names) if name in MOMENTS else each
            for name, each in result.estimates.items()
        },
        levels=tuple(_narrowed_level(level, places) for level in result.levels),
        anchor=anchor,
        posterior=posterior,
        regression=None if result.regression is None else replace(result.regression, **vars(scaling)),
        # They know of the columns of zeros.
        continuation=None,
        fitted_source=None,
        path_source=None,
        question=None,
        standing=None,
    )


def _narrowed_estimate(estimate: Estimate, places: np.ndarray, names: Names) -> Estimate:
    flat = ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance")
    return replace(estimate, structure=names.structure, **{name: getattr(estimate, name)[places] for name in flat})


def _narrowed_level(level: Level, places: np.ndarray) -> Level:
    def part(by_quantity: dict[str, Floats]) -> dict[str, Floats]:
        return {name: flat[places] for name, flat in by_quantity.items()}

    moments = part(level.mean), part(level.variance), part(level.kurtosis), part(level.consistency)
    return Level(level.step, level.time, level.samples, level.evaluations, *moments)


def _narrowed_anchor(anchor: Anchor, places: np.ndarray) -> Anchor:
    """The Gaussian of the parameters kept: that of the others is independent of it."""

    def part(array: Floats | None) -> Any:
        if array is None:
            return None
        return array[places] if array.ndim == 1 else array[np.ix_(places, places)]

    posterior = ("mode", "likelihood_gradient", "likelihood_hessian", "precision", "gradient", "hessian")
    averages = ("mean_gradient", "mean_hessian", "laplace_mode", "laplace_precision")
    return replace(anchor, **{name: part(getattr(anchor, name)) for name in (*posterior, *averages)})
