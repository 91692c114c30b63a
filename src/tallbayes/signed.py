"""Signed draws: quantiles of a number that is no line, from its values at draws that count for or against.

F(q) = mean over Gaussian draws 1[g <= q] + sum_l mean_i mean_k ( 1[fine_ilk <= q] - mean_c 1[coarse_ilkc <= q] )
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tallbayes.answers import Rungs, combine, scaled
from tallbayes.moments import Floats
from tallbayes.result import Estimate
from tallbayes.structure import Structure

NEAR = 0.2


def signed_quantiles(
    base: Floats, levels: list[Floats], p: Floats, rungs: Rungs, name: str, structure: Structure
) -> Estimate:
    """Quantiles of signed draws: `base` from the Gaussian, levels (paths, draws, 1 + coarse paths)."""
    values, weights = [base], [np.full(len(base), 1 / max(len(base), 1))]
    for number, level in enumerate(levels):
        paths, draws, sides = level.shape
        alone = number == 0 and not len(base)
        weight = np.full(level.shape, 1.0 / (paths * draws))
        weight[..., 1:] = 0.0 if alone else -weight[..., 1:] / (sides - 1)
        values.append(level.ravel())
        weights.append(weight.ravel())
    every, signed = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(every, kind="stable")
    ranked, total = every[order], np.cumsum(signed[order])
    q = np.array([_crossing(ranked, total, each) for each in p])
    spread = np.interp([0.16, 0.84], np.clip(np.maximum.accumulate(total), 0, 1), ranked)
    near = NEAR * max(float(np.ptp(spread)) / 2, np.finfo(float).tiny)

    def below(edge: Floats) -> tuple[Floats, list[Floats]]:
        samples = []
        for number, level in enumerate(levels):
            inside = (level[..., None] <= edge).mean(axis=1)
            alone = number == 0 and not len(base)
            samples.append(inside[:, 0] if alone else inside[:, 0] - inside[:, 1:].mean(axis=1))
        return (base[:, None] <= edge).mean(axis=0) if len(base) else np.zeros(len(edge)), samples

    def chance(edge: Floats) -> Floats:
        start, samples = below(edge)
        return start + sum(each.mean(axis=0) for each in samples)

    start, samples = below(q)
    variance = start * (1 - start) / max(len(base), 1)
    found = combine(name, structure, samples, rungs, start, variance, jump=1.0, rate=1.0)
    slope = np.maximum((chance(q + near) - chance(q - near)) / (2 * near), 1e-3 / near)
    return replace(scaled(found, 1 / slope), flat_value=q)


def _crossing(ranked: Floats, total: Floats, p: float) -> float:
    """Where the signed sum passes p: half way between its first and its last time."""
    first, last = int(np.argmax(total >= p)), len(total) - int(np.argmax(total[::-1] < p))
    return float((ranked[first] + ranked[min(last, len(ranked) - 1)]) / 2)
