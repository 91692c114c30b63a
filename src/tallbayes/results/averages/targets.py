"""Targets: averages by level of `by` and by output, at the points of the posterior, of a model of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.results.averages.asking import AskedAverage
from tallbayes.results.averages.ensemble import PAIRS, PATHS_READ, Contrast, DrawnAverages, Points, points_of
from tallbayes.results.averages.noise import EffectNoise
from tallbayes.results.averages.sums import GROUPS
from tallbayes.results.averages.totals import Averager, Pass, UnitSums
from tallbayes.results.averages.units import DealtRows, RowLevels, Units, single_rows

# Rows, or rows times nodes, times points at which they are evaluated.
MOST_EVALUATIONS = 2**28
# Pairs of the Gaussian's draws beside paths, and beside draws with weights; paths a level, and such draws: the fewest.
FEWEST_PAIRS, FEWEST_PATHS, FEWEST_DRAWS = (64, 512), 32, 512
# Of targets, whose covariance given theta is found where groups have effects of their own.
MOST_TARGETS, MOST_JOINT = 64, 16


class TargetAnswer(NamedTuple):
    """One for every level and output: which these are, over how many rows, and T at all points."""

    level: Any
    output: Any
    rows: int
    drawn: DrawnAverages


def averaged(asked: AskedAverage, posterior: Posterior, contrast: Contrast, num_rows: int) -> list[TargetAnswer]:
    """In the order of levels, then of outputs; rows without groups are about so many."""
    outputs = 1 if asked.outputs is None else len(asked.outputs)
    levels = RowLevels(max((MOST_JOINT if asked.kind.varies else MOST_TARGETS) // outputs, 1))
    every: Callable[[], Iterable[Units]]
    unit_rows = 1.0
    if asked.known is None:
        if asked.by_level:
            for batch in asked.batches():
                levels.labels(batch)
        every = partial(_single_rows, asked, levels)
    else:
        dealt = DealtRows(asked.batches(), levels, len(asked.known.order))
        num_rows, unit_rows = dealt.rows, dealt.rows / len(asked.known.order)
        every = partial(iter, dealt)
    sums = UnitSums(asked.kind, len(levels.names) or 1, outputs)
    gradient = np.broadcast_to(contrast.scale * np.array([-1.0, 1.0]), (sums.targets, 2))
    averager = Averager(sums, posterior, np.ascontiguousarray(gradient), asked.take)
    work = averager.work(next(iter(every()), None))
    points = _points(posterior, num_rows * work)
    most = int(MOST_EVALUATIONS / (points.count * unit_rows * work))
    done = averager.over(every(), most)
    weight = np.repeat(levels.weight, outputs)
    if contrast.is_ratio:
        own = [contrast.derivatives(each)[0] for each in done.given.mean / weight[:, None]]
        averager = replace(averager, gradient=np.array(own))
        # Effects that are unknown are held along the contrast.
        done = averager.over(every(), most) if asked.kind.varies else done
    found = _drawn(averager, done, points, contrast, weight)
    order = sorted(levels.names, key=lambda name: (str(type(name)), name))
    names: Any = asked.outputs or (None,)
    return [
        TargetAnswer(level, output, levels.rows[place], found[place * outputs + k])
        for level in order
        for place in (levels.names[level],)
        for k, output in enumerate(names)
    ]


def _points(posterior: Posterior, work: float) -> Points:
    """As many as all rows can be evaluated at, within limits."""
    every = [each[:PATHS_READ] for each in posterior.points] if posterior.weighted is None else posterior.points
    full = 2 * PAIRS + sum(each.size // each.shape[-1] for each in every)
    share = MOST_EVALUATIONS / (work * full)

    def some(fewest: int, most: int) -> int:
        return int(np.clip(share * most, min(fewest, most), most))

    draws = some(FEWEST_DRAWS, len(posterior.points[0]))
    pairs = some(FEWEST_PAIRS[posterior.weighted is not None], PAIRS)
    return points_of(posterior, pairs, (some(FEWEST_PATHS, PATHS_READ), draws))


def _single_rows(asked: AskedAverage, levels: RowLevels) -> Iterator[Units]:
    levels.forget_rows()
    return single_rows(asked.batches(), levels)


def _drawn(averager: Averager, done: Pass, points: Points, contrast: Contrast, weight: Floats) -> list[DrawnAverages]:
    """Target by target."""
    posterior, kind = averager.posterior, averager.sums.kind
    columns = posterior.anchor.displacements(np.eye(len(posterior.anchor.mode)))
    every = [points.gaussian, *points.levels, *(points.probed or ())]
    moves = np.concatenate([each.reshape(-1, each.shape[-1]) for each in every])
    rest, moved, whole = averager.moved(done, moves)
    straight = done.given.mean + np.einsum("tvd,pd->ptv", done.slope, moves)
    averages = (straight[:, None] + _by_group(rest, whole)) / weight[:, None]
    splits = np.cumsum([each.size // each.shape[-1] for each in every])[:-1]
    shapes = [each.shape[:-1] for each in every]
    off_mean, off_covariance = averager.off_by_nodes(done)

    def apart(flat: Floats) -> list[Floats]:
        parts = np.split(flat, splits)
        return [part.reshape(*shape, *part.shape[1:]) for part, shape in zip(parts, shapes, strict=True)]

    count = len(points.levels)
    noise = None
    if kind.varies:
        pairs = weight[:, None] * weight
        spread = apart((done.given.covariance + _by_group(moved, whole)) / pairs)
        noise = EffectNoise(
            np.zeros(len(weight)),
            spread[0],
            tuple(spread[1 : 1 + count]),
            (spread[1 + count], spread[2 + count]) if points.probed is not None else None,
            done.given.covariance / pairs,
            done.given.third / weight**3,
            done.given.fourth / weight**4,
            done.given.square / weight**4,
            off_covariance / pairs,
            np.zeros(len(weight)),
        )
    found = []
    for target in range(len(weight)):
        values = apart(contrast(averages[:, :, target]))
        start = done.given.mean[target] / weight[target]
        first, _ = contrast.derivatives(start)
        own = first @ done.slope[target] / weight[target]
        value = float(contrast(start))
        probed = (values[1 + count], values[2 + count]) if points.probed is not None else None
        single = None
        if noise is not None:
            single = replace(noise, along=np.eye(len(weight))[target], curved=_curved(done, contrast, weight))
        found.append(
            DrawnAverages(
                values[0],
                tuple(values[1 : 1 + count]),
                probed,
                value,
                columns @ own,
                own,
                0.0,
                value + points.gaussian @ own,
                points.weights,
                single,
                True,
                float(off_mean[target] / weight[target]),
            )
        )
    return found


def _by_group(parts: Floats, whole: bool) -> Floats:
    """Sums of all, and without each group of the sample; parts (points, 1 + GROUPS, ...)."""
    certain, groups = parts[:, :1], parts[:, 1:]
    total = groups.sum(axis=1, keepdims=True)
    if whole:
        return certain + total
    return np.concatenate([certain + total, certain + GROUPS / (GROUPS - 1) * (total - groups)], axis=1)


def _curved(done: Pass, contrast: Contrast, weight: Floats) -> Floats:
    """Of a ratio, by which effects that are unknown move its mean: at most sd(T) sd(low) / low."""
    if not contrast.is_ratio:
        return np.zeros(len(weight))
    low = contrast.scale * done.given.mean[:, 0] / weight + contrast.shift
    own = np.sqrt(np.diag(done.given.covariance)) / weight
    return np.asarray(own * np.sqrt(done.given.low) / weight * abs(contrast.scale) / np.abs(low))
