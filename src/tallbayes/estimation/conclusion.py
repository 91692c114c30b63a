"""The conclusion: from a finished run to the result that is handed over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from tallbayes.estimation.group_effects import effect_source, factors_of
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.rates import cost_growth, mean_decay, variance_decay
from tallbayes.estimator.run import Run, consistency_scores
from tallbayes.methods.method import Finished, Method, describe
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs
from tallbayes.results.fitted import Fitted
from tallbayes.results.parts import Cost, Level, Rates, Regression
from tallbayes.results.result import Result
from tallbayes.sampler.dynamics import merged_last
from tallbayes.sampler.levels import Problem
from tallbayes.sampler.roles import Dynamics
from tallbayes.setup.corners import corner_note
from tallbayes.setup.preparation import Prepared
from tallbayes.setup.record import Search


def conclude(
    finished: Finished,
    prepared: Prepared,
    method: Method,
    settings: Any,
    search: Search,
    continuation: Callable[..., Result],
) -> Result:
    """Everything a user asks a result for."""
    run, final = finished.run, finished.final
    rough = prepared.integral_error - run.standing_bias
    final = replace(final, bias_bound=final.bias_bound + rough * final.summary.scale) if rough else final
    columns = run.estimands.split
    parts = zip(
        run.estimands.quantities,
        columns(final.summary.value).values(),
        columns(final.standard_error).values(),
        columns(final.bias_bound).values(),
        columns(final.freedom).values(),
        columns(final.tolerance).values(),
        strict=True,
    )
    posterior = posterior_of(finished, prepared)
    factors = factors_of(prepared)
    converged = finished.status is Status.converged
    status = Status.rough_integrals if rough and converged else finished.status
    return Result(
        estimates={q.name: Estimate(q.name, q.structure, *arrays) for q, *arrays in parts},
        status=Status.second_mode if search[0] and converged else status,
        levels=_levels(finished),
        rates=_rates(finished),
        cost=Cost(
            evaluations=run.evaluations,
            setup_evaluations=prepared.setup_evaluations,
            speculative_evaluations=run.speculative + (finished.randomised.speculative if finished.randomised else 0),
            num_data=prepared.table.num_rows,
            seconds=run.seconds_before + time.monotonic() - run.started,
        ),
        contraction=run.contraction,
        anchor=prepared.anchor,
        method=describe(method, _problem(run)),
        settings=settings,
        tuning=finished.tuning,
        notes=(
            *(factor.note for factor in factors),
            *search[1],
            *_notes_of_tails(run),
            *_notes_of_slow(run),
            *_notes_of_corners(prepared, converged),
        ),
        posterior=posterior,
        factors=factors,
        effect_source=effect_source(posterior, prepared),
        fitted_source=partial(Fitted, prepared.target, prepared.table, prepared.grouping),
        path_source=partial(_paths, run, prepared),
        regression=regression_of(prepared.target),
        random_tail=finished.randomised is not None,
        continuation=continuation,
    )


def _notes_of_corners(prepared: Prepared, converged: bool) -> tuple[str, ...]:
    """Looked for where something was amiss, in a model of one's own: the priors of families are smooth."""
    is_family = prepared.target.predictor is not None or prepared.target.parts is not None
    if is_family or (converged and prepared.anchor.has_mode):
        return ()
    return corner_note(prepared.target, prepared.anchor)


def _notes_of_tails(run: Run) -> tuple[str, ...]:
    if run.tails is None or not np.any(run.tails.endless):
        return ()
    names = [label for label, endless in zip(run.estimands.labels(), run.tails.endless, strict=True) if endless]
    named = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return (f"tails: no end to the variance of {named} out to 32 sds; a median or a quantile has an error of its own",)


def _notes_of_slow(run: Run) -> tuple[str, ...]:
    given_up = run.given_up
    if not np.any(given_up):
        return ()
    labels = run.estimands.labels()
    names = [label for label, each in zip(labels, given_up, strict=True) if each]
    named = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return (
        f"hard: paths do not settle along {named}, as where hardly a row says anything and the prior is wide; "
        "the errors of all else allow for that",
    )


def posterior_of(finished: Finished, prepared: Prepared) -> Posterior | None:
    """Where the paths ended; with a random tail their weights are not kept."""
    run = finished.run
    whole = bool(run.levels) and all(level.points for level in run.levels)
    if finished.randomised is not None or not whole or run.contraction is None:
        return None
    plan, ladder = _problem(run).plan, run.problem.ladder
    steps = [plan.dynamics.coefficients(ladder.step(l)) for l in range(len(run.levels))]
    spreads = [plan.dynamics.spread(step) for step in steps]
    if not all(_shares_last_noise(plan.dynamics, *pair) for pair in pairwise(steps)):
        return None
    return Posterior(
        anchor=prepared.anchor,
        points=tuple(np.concatenate(level.points) for level in run.levels),
        spreads=tuple(float(spread) for spread in spreads),
        whitened=plan.dynamics.whitened,
        laplace=plan.laplace,
        rungs=_rungs(run, prepared),
        seed=run.problem.seed,
        live=(prepared.target, prepared.table.units),
        probe=prepared.probe,
    )


def _rungs(run: Run, prepared: Prepared) -> Rungs:
    assert run.contraction is not None
    slow, left = run.contraction.slow, run.contraction.left + prepared.integral_error
    return Rungs(run.rho, run.problem.variance_rate, run.costs, slow, left)


def _shares_last_noise(dynamics: Dynamics, coarse: Floats, fine: Floats) -> bool:
    """Whether the noise of the last fine step moves a coarse path as it moves the fine one."""
    second = merged_last(dynamics, fine)
    return bool(np.isclose(second * dynamics.spread(coarse), dynamics.spread(fine), rtol=1e-9))


def regression_of(target: Target) -> Regression | None:
    layout = target.layout
    if target.family is None:
        return None
    scale, freedom = (None, None) if target.noise is None else target.noise[1:]
    parts = layout.heads, layout.intercept, layout.extras
    return Regression(target.family, *parts, noise_scale=scale, degrees_of_freedom=freedom, beside=layout.beside)


def _paths(run: Run, prepared: Prepared) -> Problem:
    """Its levels on the rows as this process has them."""
    return _problem(run).on(prepared.table)


def _problem(run: Run) -> Problem:
    """The sampler's own levels, which the estimator knows by their role alone."""
    return cast(Problem, run.problem)


def _levels(finished: Finished) -> tuple[Level, ...]:
    run, summary = finished.run, finished.final.summary
    split, problem = run.estimands.split, run.problem
    nothing = np.full_like(summary.value, np.nan)
    with np.errstate(invalid="ignore"):
        scores = consistency_scores(run) if len(run.levels) > 1 else nothing[None]
    levels = []
    for l, level in enumerate(finished.levels):
        last = finished.randomised is not None and l == len(run.levels)
        tail = finished.randomised.tail if finished.randomised is not None else None
        spent = tail.spent(problem) if tail is not None and last else level.samples * problem.evaluations(l)
        levels.append(
            Level(
                step=problem.ladder.step(l),
                time=problem.ladder.time(l),
                samples=level.samples,
                evaluations=spent,
                mean=split(summary.mean[l]),
                variance=split(summary.variance[l]),
                kurtosis=split(summary.kurtosis[l]),
                consistency=split(scores[l - 1] if l and not last else nothing),
            )
        )
    return tuple(levels)


@np.errstate(invalid="ignore", over="ignore")
def _rates(finished: Finished) -> Rates:
    run, summary = finished.run, finished.final.summary
    split, count = run.estimands.split, len(run.levels)
    error = np.sqrt(finished.final.variance[:count] / run.samples[:, None])
    mean, variance, kurtosis = (split(part[:count]) for part in (summary.mean, summary.variance, summary.kurtosis))
    unit, errors = split(finished.final.tolerance), split(error)
    names = [quantity.name for quantity in run.estimands.quantities]
    beta = {n: variance_decay(variance[n], kurtosis[n], run.samples, unit[n]).value for n in names}
    return Rates(
        alpha={n: mean_decay(mean[n], errors[n], unit[n]).value for n in names},
        beta=beta if finished.randomised is None else finished.randomised.beta,
        gamma=dict.fromkeys(names, cost_growth(run.costs)),
    )
