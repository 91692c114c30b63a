"""Signed draws: quantiles of a number that is no line, from its values at draws that count for or against.

F(q) = mean over Gaussian draws 1[g <= q] + sum_l mean_i mean_k ( 1[fine_ilk <= q] - mean_c 1[coarse_ilkc <= q] )
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tallbayes.estimator.allocation import Least
from tallbayes.estimator.estimates import Estimate
from tallbayes.moments import Floats
from tallbayes.posterior.projections import stretches
from tallbayes.posterior.telescoping import Rungs, combine, differences, scaled
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights


def signed_quantiles(
    base: Floats,
    levels: list[Floats],
    p: Floats,
    rungs: Rungs,
    name: str,
    structure: Structure,
    least: Callable[[Floats], Least] | None = None,
    weighted: Weights | None = None,
) -> Estimate:
    """Quantiles of signed draws: `base` from the Gaussian, levels (paths, draws, 1 + coarse paths), or one level of
    `weighted` draws.

    `least` is the least variance of level 0 for the probability of being below each of some numbers.
    """
    values, weights = [base], [np.full(len(base), 1 / max(len(base), 1))]
    for number, level in enumerate(levels):
        paths, draws, sides = level.shape
        alone = number == 0 and not len(base)
        weight = np.full(level.shape, 1.0 / (paths * draws))
        if weighted is not None:
            weight *= (weighted.posterior - weighted.gaussian)[:, None, None]
        else:
            weight[..., 1:] = 0.0 if alone else -weight[..., 1:] / (sides - 1)
        values.append(level.ravel())
        weights.append(weight.ravel())
    every, signed = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(every, kind="stable")
    ranked, total = every[order], np.cumsum(signed[order])

    def quantile(chances: Floats) -> Floats:
        return np.array([_crossing(ranked, total, each) for each in chances])

    q = quantile(p)

    def below(edge: Floats) -> tuple[Floats, list[Floats]]:
        inside = (level[..., None] <= edge for level in levels)
        samples = [
            differences(each, number == 0 and not len(base), weights=weighted) for number, each in enumerate(inside)
        ]
        return (base[:, None] <= edge).mean(axis=0) if len(base) else np.zeros(len(edge)), samples

    start, samples = below(q)
    variance = start * (1 - start) / max(len(base), 1)
    known = None if least is None else least(q)
    found = combine(name, structure, samples, rungs, start, variance, jump=1.0, rate=1.0, least=known)
    stretch = stretches(q, p, found.flat_standard_error + found.flat_bias_bound, quantile)
    return replace(scaled(found, stretch), flat_value=q)


def _crossing(ranked: Floats, total: Floats, p: float) -> float:
    """Where the signed sum passes p: half way between its first and its last time."""
    first, last = int(np.argmax(total >= p)), len(total) - int(np.argmax(total[::-1] < p))
    return float((ranked[first] + ranked[min(last, len(ranked) - 1)]) / 2)
