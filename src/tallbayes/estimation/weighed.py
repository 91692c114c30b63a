"""From draws with weights to the result that is handed over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimation.question import Question
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.methods.weighted import Weighted
from tallbayes.posterior.coordinates import Reading
from tallbayes.posterior.parameters import Live
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs
from tallbayes.results.coefficients import INTERVAL, end_unit
from tallbayes.results.parts import Cost, DrawWeights, Rates, Regression
from tallbayes.results.result import Result
from tallbayes.weighing.rounds import SHARE, Weighed, Weighing, replicate_up, weigh_up
from tallbayes.weighing.weights import Weights

MOST_ENDS = 2**18


@dataclass(frozen=True)
class HandedOver:
    """Why another method is to answer; empty where nobody needs to be told."""

    reason: str = ""


def conclude_weighed(
    weighed: Weighed,
    *,
    anchor: Anchor,
    reading: Reading | None,
    live: Live | None,
    regression: Regression | None,
    settings: Any,
    method: str,
    keep_posterior: bool,
    notes: tuple[str, ...],
    seconds: float = 0.0,
    continuation: Callable[..., Result] | None = None,
    setup_evaluations: int | None = None,
    standing_bias: float = 0.0,
) -> Result:
    """Everything a user asks a result for."""
    weighing, final = weighed.weighing, weighed.final
    drawn, estimands = weighing.drawn, weighing.estimands
    assert drawn is not None
    assert weighed.status is not None
    columns = estimands.split
    numbers = (final.summary.value, final.standard_error, final.bias_bound, final.freedom, final.tolerance)
    parts = zip(estimands.quantities, *(columns(each).values() for each in numbers), strict=True)
    rows = weighing.source.num_rows
    names = [quantity.name for quantity in estimands.quantities]
    spent = round(anchor.passes * rows) if setup_evaluations is None else setup_evaluations
    posterior = None
    if keep_posterior and weighing.replicated is None:
        posterior = Posterior(
            anchor=anchor,
            points=(anchor.displacements(drawn.z)[:, None, None, :],),
            spreads=(0.0,),
            whitened=True,
            laplace=True,
            rungs=Rungs(0.0, 2.0, np.array([float(rows)]), left=standing_bias),
            seed=weighing.proposal.seed,
            stored=reading,
            live=live,
            weighted=drawn.weights,
        )
    return Result(
        estimates={q.name: Estimate(q.name, q.structure, *arrays) for q, *arrays in parts},
        status=weighed.status,
        levels=(),
        rates=Rates(*(dict.fromkeys(names, np.nan) for _ in range(3))),
        cost=Cost(weighing.evaluations, spent, 0, rows, seconds),
        contraction=None,
        anchor=anchor,
        method=method,
        settings=settings,
        notes=notes,
        posterior=posterior,
        regression=regression,
        weighing=_summary(drawn.weights, weighing.proposal.words),
        random_tail=weighing.replicated is not None,
        continuation=continuation,
    )


def _summary(weights: Weights, about: str) -> DrawWeights:
    return DrawWeights(len(weights.posterior), weights.efficiency, weights.largest, weights.tail, about)


def finish_weighing(
    weighing: Weighing, asked: Question, method: Weighted, started: float, describe: Callable[..., Result], extend: Any
) -> Result | HandedOver:
    """To the end, as a result; `extend` goes on from where it ended."""
    weighed = replicate_up(weighing) if method.unbiased else weigh_up(weighing)
    if not weighed.trouble and asked.accuracy.interval is not None:
        weighed = refine_weighed(weighed, asked.accuracy.interval, describe)
    if weighed.trouble:
        return HandedOver(weighed.trouble)
    seconds = weighing.seconds_before + time.monotonic() - started
    kept = replace(weighed.weighing, seconds_before=seconds)
    return describe(weighed, seconds=seconds, continuation=partial(extend, kept))


def refine_weighed(weighed: Weighed, tolerance: float, describe: Callable[..., Result]) -> Weighed:
    """More draws, until the ends of all intervals err by no more than so many posterior sds."""
    while weighed.status is Status.converged and not weighed.trouble:
        posterior = describe(weighed).posterior
        assert posterior is not None
        found = posterior.quantile(INTERVAL)
        lower, upper = found.flat_value.reshape(2, -1)
        allowed = np.tile(tolerance * end_unit(lower, upper), 2)
        if np.all(found.flat_error <= allowed):
            break
        over = float(np.max(found.flat_error / (SHARE * allowed)))
        count = weighed.weighing.count
        if count >= MOST_ENDS:
            return replace(weighed, status=Status.max_levels)
        weighed = weigh_up(weighed.weighing, least=int(count * min(max(over**2, 1.2), 4.0)))
    return weighed
