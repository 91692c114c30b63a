"""Curves: what a fit says of one column of numbers, on the scale of the linear predictor.

    f(x) = sum of beta_j (c_j(x) - mean_j)      over all columns c_j of the design that are made of x alone

so that f is about its mean over the rows of the fit; flags of 0 and 1, and columns that were not centred, are as they
are, unless f is `against` its value elsewhere. Mean, sd and interval at every x, each with its Monte Carlo error. f is
linear in the coefficients: of those that are lines of u all follows from projections, of smooths from the signed
ensemble itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.moments import Floats
from tallbayes.posterior.predictor import FamilyResponse, OwnResponse, make_predictor
from tallbayes.posterior.reported import StoredReader
from tallbayes.posterior.signed_draws import signed_quantiles
from tallbayes.results.fitted import family_of, has_smooths, kept_posterior
from tallbayes.results.result import Result
from tallbayes.results.smooths.predictions import CoefficientSum
from tallbayes.rows.columns import kind_of
from tallbayes.rows.sources import open_source
from tallbayes.structure import Structure

if TYPE_CHECKING:
    import pandas

    from tallbayes.formula.encoding import Encoding
    from tallbayes.posterior.posterior import Posterior

POINTS = 50
NUMBERS = ("mean", "mean_error", "sd", "sd_error", "lower", "lower_error", "upper", "upper_error")
# Where nothing says where rows are, in sds about their mean.
WIDTH = 2.0


@dataclass(frozen=True, eq=False)
class ColumnCurve:
    """f at the points x of a column: mean and sd, the ends of equal-tailed intervals, and an error of each.

    `terms` are the columns of the design that it is made of, `left_out` terms that other columns have a part in.
    """

    column: str
    x: Floats
    mean: Floats
    mean_error: Floats
    sd: Floats
    sd_error: Floats
    lower: Floats
    lower_error: Floats
    upper: Floats
    upper_error: Floats
    probability: float
    terms: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a point, with errors beside the numbers."""
        return require_extra("pandas", "data", "data frames").DataFrame(self.columns())

    def columns(self) -> dict[str, Floats]:
        """By name: the points, and each number beside its error."""
        return {self.column: self.x} | {each: getattr(self, each) for each in NUMBERS}

    def __str__(self) -> str:
        from tallbayes.views.averages import curve_text

        return curve_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.averages import curve_html

        return curve_html(self)


def curve(result: Result, column: str, points: Any, against: float | None, probability: float) -> ColumnCurve:
    """See `Result.curve`."""
    from tallbayes.formula.encoding import Encoding

    posterior, family = kept_posterior(result), family_of(result)
    if not 0 < probability < 1:
        raise InputError(explain("a probability strictly between 0 and 1", repr(probability), "0.95"))
    if result.encoding is None or family is None or family.by_class:
        got = "several classes" if family is not None and family.by_class else "no formula"
        raise InputError(explain("a fit by a formula with one linear predictor", got, "result.predict(rows)"))
    encoding = Encoding.from_plain(result.encoding)
    _require_numbers(encoding, column)
    x = _points(result, encoding, column, points)
    table = open_source({column: np.append(x, x[:1] if against is None else float(against))}).read([column])
    places, columns, left_out = encoding.coding.columns_of(column, table)
    if not places:
        got = f"none but {', '.join(left_out)}" if left_out else "none"
        hint = "result.predict(rows), with the other columns at values of your choice"
        raise InputError(explain(f"a term of {column!r} alone", got, hint))
    means, scales = (np.array(each)[list(places)] for each in (encoding.means, encoding.scales))
    columns, last = columns[:-1], columns[-1]
    rows = np.zeros((len(x), len(encoding.coding.names)))
    rows[:, places] = (columns - (means if against is None else last)) / scales
    found = _mean_and_sd(result, posterior, rows)
    moments = [encoding.response_scale * each[:, 0] for each in (found.mean, found.error, found.sd, found.sd_error)]
    names = tuple(encoding.coding.names[place] for place in places)
    weights = columns - (means if against is None else last)
    ends = _ends(result, posterior, weights, names, moments[2], probability)
    numbers = zip(NUMBERS, (*moments, *ends), strict=True)
    return ColumnCurve(column, x, **dict(numbers), probability=probability, terms=names, left_out=left_out)


def _require_numbers(encoding: Encoding, column: str) -> None:
    kinds = encoding.coding.kinds
    if column not in kinds or kinds[column] == "categories":
        numbers = [name for name, kind in kinds.items() if kind != "categories"]
        got = repr(column) if column not in kinds else f"{column!r}, a category"
        hint = f"one of {', '.join(numbers)}" if numbers else "result.compare(column, level, level)"
        raise InputError(explain("a column of numbers on the right of the formula", got, hint))


def _points(result: Result, encoding: Encoding, column: str, points: Any) -> Floats:
    if points is not None and np.ndim(points):
        x = np.asarray(points, np.float64)
        if x.ndim != 1 or not np.all(np.isfinite(x)) or not len(x):
            raise InputError(explain("points that are numbers", repr(points), "np.linspace(0, 24, 97)"))
        return x
    count = POINTS if points is None else int(points)
    return np.linspace(*_range(result, encoding, column), max(count, 2))


def _range(result: Result, encoding: Encoding, column: str) -> tuple[float, float]:
    """Of the rows of the fit: by the knots of a smooth, the table, or mean and sd."""
    states = encoding.coding.states
    for smooth in encoding.coding.smooths:
        if smooth.factor.startswith((f"s({column},", f"s({column})", f"s(`{column}`")):
            knots = np.asarray(states[smooth.factor]["at"])
            return float(knots[0]), float(knots[-1])
    if result.fit_table is not None:
        values = open_source(result.fit_table.data).read([column]).column(column)
        if kind_of(values) != "categories":
            numbers = np.asarray(values, np.float64)
            return float(np.nanmin(numbers)), float(np.nanmax(numbers))
    mean, scale = encoding.units.get(column, (0.0, 0.0))
    if not scale:
        raise InputError(explain(f"points of {column!r}", "none", "curve(column, np.linspace(0, 24, 97))"))
    return mean - WIDTH * scale, mean + WIDTH * scale


def _mean_and_sd(result: Result, posterior: Posterior, rows: Floats) -> Any:
    """Of rows . beta, which stand first in theta."""
    if not has_smooths(result):
        kind: Any = FamilyResponse(Wanted("linear"), Layout())
        parts = rows, np.zeros(len(rows))
        return make_predictor(posterior, kind, parts).all(parts)
    reading = posterior.reading
    assert reading is not None
    reader = StoredReader(reading.parts, Structure.leaf((sum(part.theta_size for part in reading.parts),)))
    return make_predictor(posterior, OwnResponse(CoefficientSum(reader)), rows).all(rows)


def _ends(
    result: Result, posterior: Posterior, weights: Floats, names: tuple[str, ...], sd: Floats, probability: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Lower and upper ends with their errors, of sums of reported coefficients.

    Of no line the error at one point hangs on a few draws in a tail, and is known roughly; all points together know
    it well. None is taken for smaller than their root mean square, in sds of f.
    """
    p = np.array([(1 - probability) / 2, (1 + probability) / 2])
    values, errors = np.zeros((2, len(weights), 2))
    # Against itself there is nothing to know.
    moved = np.any(weights != 0, axis=1)
    if has_smooths(result):
        found = _quantiles_of_sums(posterior, names, weights[moved], p)
    else:
        found = [posterior.quantile(p.tolist(), dict(zip(names, row, strict=True))) for row in weights[moved]]
    if found:
        values[moved], errors[moved] = (
            [getattr(each, what) for each in found] for what in ("flat_value", "flat_error")
        )
    if found and has_smooths(result):
        pooled = np.sqrt(np.mean((errors[moved] / sd[moved, None]) ** 2, axis=0))
        errors[moved] = np.maximum(errors[moved], pooled * sd[moved, None])
    return values[:, 0], errors[:, 0], values[:, 1], errors[:, 1]


def _quantiles_of_sums(posterior: Posterior, names: tuple[str, ...], weights: Floats, p: Floats) -> list[Any]:
    """Of sums of numbers that are no lines, from their values at all points."""
    from tallbayes.posterior import expectations
    from tallbayes.posterior.posterior import QUANTILE_DRAWS

    def numbers(theta: Any) -> Any:
        return [theta[name] for name in names]

    integrand = expectations.make_integrand("curve", numbers, *posterior.parameters.reader, posterior.anchor.mode)
    base: Floats = np.empty((0, len(names)))
    if posterior.laplace:
        base = expectations.gaussian_values(integrand, posterior, QUANTILE_DRAWS)
    levels = [
        np.concatenate(list(expectations.level_values(integrand, posterior, level)))
        for level in range(len(posterior.points))
    ]
    probed = None if posterior.probed is None else expectations.probe_values(integrand, posterior)
    found = []
    for row in weights:
        least = None if probed is None else partial(_least_below, posterior, [each @ row for each in probed])
        parts = base @ row, [level @ row for level in levels]
        rungs, structure = posterior.rungs.along(None), Structure.leaf((len(p),))
        found.append(signed_quantiles(*parts, p, rungs, "curve", structure, least, posterior.weighted))
    return found


def _least_below(posterior: Posterior, values: list[Floats], edges: Floats) -> Any:
    assert posterior.probed is not None
    return posterior.probed.least(*((each[..., None] <= edges).mean(axis=1) for each in values))
