"""Levels in a report: how their variances and means decay, a table of them, and in words what was checked of them.

rates            variances must fall faster than paths become dear
contraction      paths must forget where they began
tails            errors must not rest on a few paths
consistency      coarse and fine paths of the same step size must agree
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from tallbayes.moments import Floats
from tallbayes.results.result import Result
from tallbayes.views import tables
from tallbayes.views.report.charts import Plot, Series, decay
from tallbayes.views.report.markup import Markup, columns_of, counted, element, fixed, join, noted, plain, share, table
from tallbayes.views.tables import level_names, units
from tallbayes.views.text import about_weights

MOST_SERIES = 4
ABOUT_WEIGHTS = (
    "The answer is that of a Gaussian which is right about the posterior on average, and what draws about it add, each "
    "with the weight that the posterior gives it. No step size and no length of a path is in it."
)
ROUGH = 0.2
UNUSUAL = 1.5
ALPHA, BETA = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER BETA}"


def levels(result: Result) -> Markup:
    """A drawing where there are two levels or more, sentences and a table."""
    intro = (
        "The answer is a sum over levels, each a difference between paths of one step size and of half that size. "
        "The finer the level, the smaller its variance and mean ought to be, so that few of its dear paths are enough."
    )
    if result.weighing is not None:
        told = about_weights(result.weighing).removeprefix("weights: ")
        return join([element("h3", "Weights"), element("p", f"{ABOUT_WEIGHTS} There are {told}.")])
    if not result.levels:
        return join([element("h3", "Levels"), element("p", "None: the run ended before its first paths.")])
    words = [_about_rates(result), _contraction(result), _tails(result), _agreement(result)]
    return join(
        [
            element("h3", "Levels"),
            element("p", intro),
            _decay(result) if len(result.levels) > 1 else None,
            *(element("p", noted(each)) for each in words),
            _table(result),
        ]
    )


def _decay(result: Result) -> Markup:
    names = list(result)[:MOST_SERIES]
    plots = [
        Plot("variance of a level, in squared tolerances", BETA, [_variances(result, name) for name in names]),
        Plot("|mean| of a level, in tolerances", ALPHA, [_means(result, name) for name in names]),
    ]
    drawing = decay("decay", "Variance and mean of every level", _about_rates(result), plots, level_names(result))
    left = len(result) - len(names)
    more = f" Not drawn: {counted(left, 'further quantity', 'further quantities')}." if left > 0 else ""
    caption = (
        "Average over components. Lines have the fitted rates, size ~ 2^(−rate × level) from level 1 on; whiskers are "
        f"one standard error. A mean that its whisker takes to the bottom is noise.{more}"
    )
    return element("figure", drawing, element("figcaption", caption))


def _variances(result: Result, name: str) -> Series:
    unit = units(result, name)
    sizes = [float(np.mean(level.variance[name] / unit**2)) for level in result.levels]
    tails = [max(float(np.max(level.kurtosis[name])), 3.0) - 1 for level in result.levels]
    errors = [float(np.sqrt(tail / max(level.samples, 1))) for tail, level in zip(tails, result.levels, strict=True)]
    return Series(name, sizes, errors, result.rates.beta.get(name, np.nan))


def _means(result: Result, name: str) -> Series:
    sizes, noise = _mean_and_noise(result, name)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Series(name, sizes.tolist(), (noise / sizes).tolist(), result.rates.alpha.get(name, np.nan))


def _mean_and_noise(result: Result, name: str) -> tuple[Floats, Floats]:
    """Root mean square over components of a level's mean and of its standard error, in tolerances."""
    unit = units(result, name)
    sizes = [np.sqrt(np.mean((level.mean[name] / unit) ** 2)) for level in result.levels]
    noise = [np.sqrt(np.mean(level.variance[name] / unit**2) / max(level.samples, 1)) for level in result.levels]
    return np.array(sizes), np.array(noise)


def _about_rates(result: Result) -> str:
    known = {name: rate for name, rate in result.rates.beta.items() if isfinite(rate)}
    if not known:
        return "Rates: unknown, since that takes three levels at least."
    slowest = min(known.values())
    verdict = (
        "so finer levels cost ever less in all"
        if slowest > 1
        else "which is slow: finer levels cost as much as coarse ones, or more"
    )
    factor = f"a factor {fixed(2**slowest, 1)} a level" if slowest > 0 else "nothing"
    sentence = f"Rates: variances fall by {factor} (smallest {BETA} = {fixed(slowest, 2)}), {verdict}."
    pairs = [_mean_and_noise(result, name) for name in result]
    if not all(np.all(size[1:] < 2 * noise[1:]) for size, noise in pairs):
        return sentence
    return (
        f"{sentence} No level’s mean stands out of its noise, so {ALPHA} says little; the bias bound allows for that."
    )


def _contraction(result: Result) -> str:
    found = result.contraction
    if found is None:
        return "Contraction: not measured."
    if not (isfinite(found.factor) and isfinite(found.upper)):
        return "Contraction: unknown, as pairs of paths on common noise ran apart."
    verdict = "so paths forget where they began" if found.upper < 1 else "so paths may not forget where they began"
    return (
        "Contraction: during the time that one level adds, two paths on common noise come closer by a factor "
        f"{plain(found.factor)} (at most {plain(found.upper)}), {verdict}."
    )


def _tails(result: Result) -> str:
    """How well the errors themselves are known, which is what kurtosis is about."""
    sizes = [tables.largest(result, level, "kurtosis") for level in result.levels]
    known = [place for place, size in enumerate(sizes) if isfinite(size)]
    if not known:
        return "Tails: unknown."
    place = max(known, key=lambda each: sizes[each])
    sentence = (
        f"Tails: the largest kurtosis is {plain(sizes[place])}, at level {level_names(result)[place]} (normal: 3)."
    )
    freedom = [float(np.min(each.flat_freedom)) for each in result.estimates.values() if each.flat_freedom.size]
    least = min(freedom, default=float("nan"))
    if not isfinite(least):
        return sentence
    rough = 1 / np.sqrt(2 * max(least, 0.5))
    verdict = "since a few paths carry much of it" if rough > ROUGH else "which is close"
    return (
        f"{sentence} The least certain standard error has {plain(least)} degrees of freedom, so it is known to about "
        f"{share(rough)}, {verdict}; confidence intervals allow for that."
    )


def _agreement(result: Result) -> str:
    """The largest consistency score beside what chance alone would show among so many."""
    scores = [np.abs(part[np.isfinite(part)]) for level in result.levels[1:] for part in level.consistency.values()]
    together = np.concatenate(scores) if scores else np.empty(0)
    if not together.size:
        return "Consistency: unknown, since that takes two levels."
    from scipy.special import ndtri

    usual = float(ndtri(0.5 + 0.5 * 0.5 ** (1 / together.size)))
    largest = float(together.max())
    verdict = "no more than chance shows" if largest < usual + UNUSUAL else "more than chance usually shows"
    return (
        "Consistency: coarse and fine paths of the same step size must agree. "
        f"The largest of {counted(together.size, 'difference')} is {fixed(largest, 1)} standard errors, where "
        f"{fixed(usual, 1)} is usual for so many: {verdict}."
    )


def _table(result: Result) -> Markup:
    caption = (
        "Levels. |mean| and variance are those of the largest component of any quantity, in (squared) tolerances; "
        "consistency is the largest difference between coarse and fine paths of one step size, in standard errors."
    )
    grid = tables.levels(result, in_tolerances=True)
    return table(caption, "level", grid.names, columns_of(grid, evaluations=f"{result.unit} gradients"))
