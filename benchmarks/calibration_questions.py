"""Classes of the calibration study in which rows do not weigh alike, units are small, or tails decide.

    rare-events     logistic, 20,000 rows, 40 positives, slope 2
    exposures       Poisson, 20,000 rows with Pareto exposures, 20 events
    own-levels      a Poisson model of one's own, 5,000 rows, categories of 1, 3 and 10 rows
    small-units     log y ~ N(log s, 1) of eight rows, s about 10^-4: lognormal
    tail-steep      exp(-2 theta) of the log rate of five events; tail-hinge, tail-soft, tail-hard: as in `attack_tails`
    student-5-posterior  a t5 posterior, its mean and sd
    end-quantiles   0.1%, 2.5%, 97.5% and 99.9% quantiles of the log rate of five events

The truth is by quadrature or in closed form. Runs that say their error cannot be trusted count as such.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import attack_rows as rows
import attack_tails as tails
import attack_units as units
import problems
from questions import Question

QUESTIONS: dict[str, tuple[Callable[..., Question], float]] = {
    "rare-events": (partial(rows.rare_logistic, 20_000, 40, 2.0), 0.05),
    "exposures": (partial(rows.pareto_exposures, 20_000, 20), 0.05),
    "own-levels": (partial(rows.own_counts, 5_000, (1, 3, 10), 3), 0.05),
    "small-units": (partial(units.small_scale, 1e-4), 0.02),
    "tail-steep": (partial(tails.tail, "steep"), 0.1),
    "tail-hinge": (partial(tails.tail, "hinge"), 0.1),
    "tail-soft": (partial(tails.tail, "soft"), 0.1),
    "tail-hard": (partial(tails.tail, "hard"), 0.1),
    "student-5-posterior": (partial(tails.student, 5.0), 0.1),
    "end-quantiles": (tails.skewed_quantiles, 0.01),
}


@cache
def ask(name: str) -> Question:
    """A question, or a standard problem, of which means and sds are asked."""
    if name in QUESTIONS:
        make, tolerance = QUESTIONS[name]
        return make(tolerance=tolerance)
    return Question(*problems.make(name), truth={}, tolerance=0.0)
