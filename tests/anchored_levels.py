"""Levels of a small logistic regression, and how far they are from telescoping to its posterior."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.anchor import importance
from tallbayes.anchor.expansion import average, expand
from tallbayes.anchor.importance import list_rows
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.recentring import anchor_on_average, put_in_balance
from tallbayes.arrivals.centre import Expanded
from tallbayes.estimator.levels import sample_level
from tallbayes.estimator.rates import consistency
from tallbayes.model.model import bind
from tallbayes.model.observables import Observables
from tallbayes.moments import merge_all
from tallbayes.rows.table import check_rows, make_table
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.paths import Plan

NUM_ROWS, SIZE, PRIOR_SCALE = 12, 3, 1.5
MODEL = tb.families.logistic(prior_scale=PRIOR_SCALE)
ROWS = logistic_rows(NUM_ROWS, (1.5, 1.0), seed=3)
LADDER = tb.Ladder(first_step=0.5, start_steps=3, added_steps=2)
BLOCKS = (96, 64, 32, 16, 8, 8)


@cache
def prepared():
    data = MODEL.check(check_rows(ROWS))
    target, start = bind(MODEL, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, "float32", shuffle=True)
    return target, table, find_anchor(target, table, start)


@cache
def listing():
    """By leverage, although Gaussian covariates do not ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importance, "WORTHWHILE", 0.0)
        made = list_rows(*prepared())
    assert made.length > NUM_ROWS
    return made


@cache
def balanced():
    """Beside the balance by a little, so that the means of a control are not nothing."""
    target, table, anchor = prepared()
    found = put_in_balance(target, table, anchor).anchor
    beside = replace(found, mode=found.mode + [0.15, -0.1] * found.sd, precision=1.15 * found.precision)
    beside = anchor_on_average(average(target, table, beside.mode, beside.whitening), beside.precision, anchor)
    shift, bend = beside.mean_remainder
    assert np.abs(shift).max() > 0.1
    assert np.abs(bend).max() > 0.1
    return beside


@cache
def cubic():
    """Where third derivatives lead from a point beside the mode."""
    target, table, anchor = prepared()
    here = expand(target, table, anchor.mode + [0.4, -0.3] * anchor.sd)
    sums = Expanded(here.theta, here.value, here.likelihood_gradient, here.likelihood_hessian, table.num_rows)
    found = sums.with_third(target, table, None).anchor(target)
    assert np.abs(found.mean_remainder[0]).max() > 0.1
    assert np.abs(found.step / found.sd).min() > 0.2
    return found


def anchor_of(control=False, third=False):
    return cubic() if third else balanced() if control else prepared()[2]


def problem(gradient, coupling=None, listed=None, dynamics=None, seed=3, ladder=LADDER, control=False, third=False):
    target, table, _ = prepared()
    anchor = anchor_of(control, third)
    slabs = gradient.batch_size is not None and isinstance(gradient.sampling, tb.Blocks)
    parts = gradient, dynamics or tb.Exponential(), coupling or tb.Antithetic(), Observables(True, ())
    plan = Plan(target, *parts, "float32", laplace=True, slabs=slabs, control=control)
    size = SIZE if slabs else gradient.batch_size or 0
    return make_problem(plan, table, anchor, ladder, seed, pairs=(), batch_size=size, listing=listed)


def sampled(this, num_levels=len(BLOCKS), blocks=BLOCKS):
    """Merged blocks of every level: of the differences, and of both sides beyond u."""
    with ThreadPoolExecutor(2) as pool:
        levels = [list(pool.map(lambda b, l=l: sample_level(this, l, b), range(blocks[l]))) for l in range(num_levels)]
    return [
        tuple(merge_all(getattr(b, side) for b in level) for side in ("delta", "fine", "coarse")) for level in levels
    ]


def law_score(levels):
    """The largest distance of fine_{l-1} and coarse_l in standard errors, both beyond u."""
    return np.abs(consistency([fine for _, fine, _ in levels[:-1]], [coarse for *_, coarse in levels[1:]])).max()


@cache
def exact(control=False, third=False):
    """E v and E v^2 of the posterior, v = theta - theta_0, on a grid out to 8 prior sds, and the anchor's own."""
    anchor = anchor_of(control, third)
    x, y = (np.float64(np.float32(ROWS[name])) for name in ("x", "y"))
    axis = np.linspace(-8 * PRIOR_SCALE, 8 * PRIOR_SCALE, 601)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    eta = theta @ x.T
    log_density = eta @ y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum((theta / PRIOR_SCALE) ** 2, axis=1)
    weight = np.exp(log_density - log_density.max())
    v = theta - anchor.mode
    read = np.concatenate([v, v**2], axis=1)
    return weight @ read / weight.sum(), np.concatenate([np.zeros(2), anchor.sd**2])


def sum_score(levels, control=False, third=False):
    """Distance of the anchor plus all levels from quadrature, in standard errors."""
    truth, laplace = exact(control, third)
    total = laplace + sum(delta.mean for delta, *_ in levels)
    error = np.sqrt(sum(delta.variance / delta.count for delta, *_ in levels))
    return np.abs((total - truth) / error).max()
