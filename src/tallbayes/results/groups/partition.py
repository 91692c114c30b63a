"""The variance partition of a mixed model: what share of the variance of a row, about its mean, is that of each factor.

    V_f = sum_jk M_jk cov_jk,   M = mean over rows of z z^T,   share_f = V_f / (sum of all V + residual)

on the scale of the linear predictor; with an intercept alone V_f = sd^2, and the share is the intraclass correlation.
The residual is that of the law behind the response: sigma^2 (sigma^2 nu / (nu - 2) of Student's t), pi^2 / 3 of a
logistic variable, 1 of a normal one. A count has none: its variance changes with its mean, and so would the share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.model.catalogue import DEGREES_OF_FREEDOM
from tallbayes.moments import Floats
from tallbayes.results.coefficients import Number
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.parts import Factor
from tallbayes.results.result import Result

if TYPE_CHECKING:
    import pandas

RESIDUAL = "residual"
NUMBERS = ("share", "lower", "upper")


@dataclass(frozen=True)
class VarianceShare:
    """The share of one factor, or of the residual: posterior mean and ends of an interval, each with its error."""

    name: str
    share: Number
    lower: Number
    upper: Number


@dataclass(frozen=True, eq=False)
class VariancePartition:
    """Shares that add up to one, by factor and at last the rest, of which `residual` says what it is.

    `values` (shares, 3) are posterior mean and both ends of the interval, `errors` those of Monte Carlo.
    """

    names: tuple[str, ...]
    values: Floats
    errors: Floats
    residual: str
    probability: float = 0.95

    @property
    def shares(self) -> tuple[VarianceShare, ...]:
        parts = zip(self.names, self.values.tolist(), self.errors.tolist(), strict=True)
        return tuple(VarianceShare(name, *map(Number, values, errors)) for name, values, errors in parts)

    def __getitem__(self, name: str) -> VarianceShare:
        for each in self.shares:
            if each.name == name:
                return each
        raise KeyError(name)

    def __iter__(self) -> Iterator[VarianceShare]:
        return iter(self.shares)

    def __len__(self) -> int:
        return len(self.names)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a share, with the error of every number beside it."""
        frame = require_extra("pandas", "data", "data frames").DataFrame
        columns: dict[str, Floats] = {}
        for place, name in enumerate(NUMBERS):
            columns |= {name: self.values[:, place], f"{name}_error": self.errors[:, place]}
        return frame({"of": list(self.names), **columns})

    def __str__(self) -> str:
        from tallbayes.views.groups import partition_text

        return partition_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def variance_partition(result: Result) -> VariancePartition:
    """Of the result's factors; found once, and kept with it."""
    if result.stored_partition is not None:
        return result.stored_partition
    source = result.effect_source
    if source is not None and source.partition is not None:
        return source.partition
    found = _partition(result)
    if source is not None:
        source.partition = found
    return found


def known_partition(result: Result) -> VariancePartition | None:
    """None where there is none, or nothing is left to find it from."""
    if not result.factors or (result.posterior is None and result.stored_partition is None):
        return None
    try:
        return variance_partition(result)
    except InputError:
        return None


def _partition(result: Result, probability: float = 0.95) -> VariancePartition:
    if not result.factors or not all(factor.spread for factor in result.factors):
        got = (
            "groups of a model of one's own, whose scales only it knows"
            if result.factors
            else "a result without groups"
        )
        hint = 'tb.fit("y ~ x + (1 | school)", ...); of a model of your own, result.posterior.expectation(function)'
        raise InputError(explain("a mixed model that a formula describes", got, hint))
    residual, words = _residual(result)
    posterior, names = kept_posterior(result), [*(factor.by for factor in result.factors), RESIDUAL]
    variances = [_variance(factor) for factor in result.factors]

    def shares(theta: Any) -> list[Any]:
        parts = [*(each(theta) for each in variances), residual(theta)]
        total = sum(parts)
        return [part / total for part in parts]

    means = posterior.expectation(shares, "share")
    tails = [(1 - probability) / 2, (1 + probability) / 2]
    ends = posterior.quantile(tails, shares)
    values, errors = (
        np.concatenate([getattr(each, part) for each in (means, ends)]).reshape(3, -1).T
        for part in ("flat_value", "flat_error")
    )
    return VariancePartition(tuple(names), values, errors, words, probability)


def _variance(factor: Factor) -> Callable[[Any], Any]:
    """V_f of the reported scales and correlations."""
    names, by, spread = factor.names, factor.by, np.asarray(factor.spread)

    def variance(theta: Any) -> Any:
        sds = [theta[f"sd({name}|{by})"] for name in names]
        total = sum(spread[j, j] * sds[j] ** 2 for j in range(len(names)))
        for j in range(len(names)):
            for k in range(j):
                between = theta.get(f"cor({names[k]},{names[j]}|{by})")
                if between is not None:
                    total = total + 2 * spread[j, k] * between * sds[j] * sds[k]
        return total

    return variance


def _residual(result: Result) -> tuple[Callable[[Any], Any], str]:
    """The variance of a row that no factor has, as a function of theta, and what it is."""
    regression = result.regression
    family = None if regression is None else regression.family
    if family in ("linear", "student_t"):
        assert regression is not None
        factor, words = 1.0, "the variance of the noise"
        if family == "student_t":
            nu = regression.degrees_of_freedom or DEGREES_OF_FREEDOM
            if nu <= 2:
                hint = "degrees_of_freedom above 2, or the scales sd(...) and noise_scale themselves"
                raise InputError(explain("noise with a variance", f"Student's t with {nu:g} degrees of freedom", hint))
            factor = nu / (nu - 2)
        known = regression.noise_scale
        if known is not None:
            scale = 1.0 if result.encoding is None else float(result.encoding.get("response_scale", 1.0))
            return lambda theta: factor * (known * scale) ** 2, f"{words}, which was known"
        return lambda theta: factor * theta["noise_scale"] ** 2, words
    if family == "logistic":
        return lambda theta: pi**2 / 3, "pi^2 / 3, the variance of the logistic variable behind a response of 0 or 1"
    if family == "probit":
        return lambda theta: 1.0, "1, the variance of the normal variable behind a response of 0 or 1"
    hint = "the scales themselves, sd(Intercept|school), which are on the scale of the linear predictor"
    got = f"{family}, where the variance of a count changes with its mean"
    raise InputError(explain("a family whose rows have one variance on the scale of the linear predictor", got, hint))
