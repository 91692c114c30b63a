"""Smoothness: of every smooth the scale that was learnt, and its effective degrees of freedom.

    edf = sum over its columns j of F_jj,     F = (I + P)^-1 I

I is the information of the rows on coefficients and intercept where the Gaussian is centred, and P that of the prior
given the scales there: F is by how much fitted coefficients follow those that the rows alone would have. A straight
line has an edf of 1, and a curve that nothing holds back one for each of its columns. In the coordinates v of a place
in R^d, beta = D v with D diagonal given the scales, F is D^-1 F D, whose diagonal is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.results.coefficients import Number, coefficients
from tallbayes.results.fitted import kept_posterior, smooths_of
from tallbayes.results.result import Result


@dataclass(frozen=True)
class Smoothness:
    """Of a smooth: posterior mean and sd of its scale, how many `columns` it has, and how many of these it uses."""

    name: str
    scale: Number
    scale_sd: Number
    edf: float
    columns: int

    def __str__(self) -> str:
        from tallbayes.views.numbers import with_error

        return f"{self.name}: sd {with_error(*self.scale)}, edf {self.edf:.1f} of {self.columns}"


def smooths(result: Result) -> tuple[Smoothness, ...]:
    """See `Result.smooths`."""
    stored = smooths_of(result)
    if not stored:
        hint = 'tb.fit("y ~ s(x)", ...)'
        raise InputError(explain("a result with smooths", "one without", hint))
    share, found = followed(result), {each.name: each for each in coefficients(result)}
    names = coefficient_names(result)
    answers = []
    for each in stored:
        own = [place for place, name in enumerate(names) if name.startswith(f"{each['factor']}[")]
        scale = found[f"sd({each['factor']})"]
        answers.append(Smoothness(each["factor"], scale.mean, scale.sd, float(share[own].sum()), len(own)))
    return tuple(answers)


def coefficient_names(result: Result) -> list[str]:
    """Of all columns of the formula."""
    return [] if result.encoding is None else list(result.encoding["coding"]["names"])  # type: ignore[call-overload]


def hidden_names(result: Result) -> set[str]:
    """Of coefficients of smooths, which say nothing one by one."""
    prefixes = tuple(f"{each['factor']}[" for each in smooths_of(result))
    return {name for name in coefficient_names(result) if prefixes and name.startswith(prefixes)}


def followed(result: Result) -> np.ndarray:
    """F_jj of every coefficient."""
    anchor, regression = kept_posterior(result).anchor, result.regression
    prior, likelihood = anchor.prior_hessian, anchor.likelihood_hessian
    if prior is None or not isinstance(likelihood, np.ndarray) or regression is None:
        hint = "fewer parameters, for all of whose correlations there is room"
        raise InputError(explain("a Gaussian with all correlations, for an edf", "one without", hint))
    count = len(coefficient_names(result)) + regression.intercept
    own = slice(0, count)
    information = -likelihood[own, own]
    return np.asarray(np.diag(np.linalg.solve(information - prior[own, own], information)))
