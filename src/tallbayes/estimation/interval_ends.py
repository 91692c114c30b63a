"""Interval ends to a tolerance of their own: more samples of a run that has met its other tolerances.

A posterior mean to 1% of its sd needs few paths; the ends of an interval to the same accuracy need many times as many
where the posterior is not near its Gaussian. So they are only as accurate as the paths of a run make them, and say how
accurate that is, unless asked for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tallbayes.estimation.conclusion import posterior_of
from tallbayes.estimator.adaptive import GROWTH, fill, whole_blocks
from tallbayes.estimator.allocation import optimal_samples
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.foresight import PILOT_PATHS
from tallbayes.estimator.run import assess, trouble
from tallbayes.methods.method import Finished
from tallbayes.moments import Floats
from tallbayes.results.coefficients import INTERVAL, end_unit
from tallbayes.setup.preparation import Prepared
from tallbayes.watch import OutOfTime, aside

MOST_BYTES = 2**30


def refine_ends(finished: Finished, prepared: Prepared, tolerance: float) -> Finished:
    """Go on until the 2.5% and 97.5% ends of every parameter have errors of at most `tolerance` posterior sds."""
    status = finished.status
    while status is Status.converged:
        try:
            found, allowed = aside(_ends, finished, prepared, tolerance)
            if np.all(found.flat_error <= allowed):
                break
            targets = _targets(finished, found, allowed)
            if targets is None:
                status = Status.max_levels
            else:
                status = fill(finished.run, targets) or trouble(finished.run) or Status.converged
        except (OutOfTime, KeyboardInterrupt) as end:
            status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
        finished = replace(finished, status=status, final=assess(finished.run))
    return finished


def _ends(finished: Finished, prepared: Prepared, tolerance: float) -> tuple[Estimate, Floats]:
    posterior = posterior_of(finished, prepared)
    assert posterior is not None
    found = posterior.quantile(INTERVAL)
    lower, upper = found.flat_value.reshape(2, -1)
    return found, np.tile(tolerance * end_unit(lower, upper), 2)


def _targets(finished: Finished, found: Estimate, allowed: Floats) -> list[int] | None:
    """Samples by level for the statistical part, and one more level where the bias is what is left; None at the cap."""
    run = finished.run
    assert found.level_variance is not None
    share = allowed / np.sqrt(2)
    demand = optimal_samples(found.level_variance, run.costs, share)
    grown = whole_blocks(run, np.maximum(np.minimum(demand, GROWTH * run.samples), run.samples))
    if np.any(demand > run.samples):
        return grown
    # What bounds the bias is mostly the error of the last levels: twice the samples there cost less than a level more.
    last = run.samples.copy()
    last[1:] *= 2
    if np.sum(last[1:] * run.costs[1:]) <= 4 * PILOT_PATHS * run.problem.evaluations(len(run.levels)):
        return whole_blocks(run, last)
    return None if len(run.levels) >= run.budget.max_levels else [*grown, PILOT_PATHS]
