"""Shrinkage priors: a family's rows in memory, answered by chains on a Gaussian site and weights that read all rows.

    rows checked -> a mode and the site about it -> chains, weights, in balance again -> rounds -> the result

There is no other method to hand over to: where chains do not mix or weights do not behave, the status says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from math import ceil
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, MethodError, ModelError, NoConvergenceError, explain
from tallbayes.estimation.question import Question, read_changes
from tallbayes.estimation.shrunk_result import Described, anchor_of, conclude_shrunk, posterior_of
from tallbayes.estimation.small import checked_rows, fitted_rows, reading_of, unit_of
from tallbayes.estimator.estimates import Status
from tallbayes.model.model import Model
from tallbayes.moments import Floats
from tallbayes.progress import Progress, Report, reporter, teller
from tallbayes.results.coefficients import INTERVAL, end_unit
from tallbayes.results.result import Result
from tallbayes.setup.preparation import check_stored
from tallbayes.shrinkage.assessment import Findings
from tallbayes.shrinkage.laws import Facts, facts_of, law_of
from tallbayes.shrinkage.rounds import DRAWS, Shrinking, shrink_up
from tallbayes.shrinkage.site import LikelihoodSite, mended
from tallbayes.watch import OutOfTime, aside, begin, current, watching
from tallbayes.weighing.balance import find_mode, whitening_of
from tallbayes.weighing.regression import PlainRegression, plain_regression

# Of draws that are kept, at the most: for interval ends.
MOST_SEGMENTS = 512
# Numbers of x: they are held as float64. Columns: a sweep of a chain takes their cube.
MOST_NUMBERS, MOST_COLUMNS = 2**28, 1_000
# Of Gaussian priors under which a first centre is looked for, in sds of the response to an sd of a column; and of all
# else, at the most.
BROAD, MOST_SCALE = (10.0, 1.0, 0.1), 100.0
# Of numbers beside means and sds where no fraction of an sd was asked for.
USUAL_TOLERANCE = 0.05


def is_shrunk(asked: Question) -> bool:
    return getattr(asked.model, "shrinkage", None) is not None


def require_shrinkable(asked: Question, method_given: bool) -> None:
    """Of a shrinkage prior, that nothing is asked for that it has not; `method_given` where one was by name."""
    if not is_shrunk(asked):
        return
    if method_given:
        hint = "method=None: chains on a Gaussian likelihood, and weights that read all rows"
        raise MethodError(explain("no method beside a shrinkage prior", type(asked.method).__name__, hint))
    model = asked.model
    if not model.is_as_made:
        hint = "priors={...} of tb.families in its place"
        raise ModelError(explain("the log prior of the family beside a shrinkage prior", "another one", hint))
    if model.report is not None and model.flat_report is None:
        hint = "result.posterior.expectation(function) afterwards"
        raise ModelError(explain("parameters as the family has them", "a model with a report of its own", hint))
    _names_of(asked)


def answer_shrunk(asked: Question, report: Report, started: float) -> Result:
    """The result."""
    names = _names_of(asked)
    begin("checking rows")
    model, rows = aside(_rows_of, asked)
    begin("mode")
    shrinking, described = aside(_set_up, asked, model, rows, names)
    begin("sampling")
    return _finished(asked, shrinking, described, report, started)


def _finished(asked: Question, run: Shrinking, described: Described, report: Report, started: float) -> Result:
    tolerance = partial(_tolerances, asked, described)
    status = shrink_up(
        run, tolerance, asked.budget.max_evaluations, asked.keep_posterior, partial(_tell, report, described, run)
    )
    if asked.accuracy.interval is not None and status is Status.converged:
        status = _sharpened(asked, run, described, asked.accuracy.interval)
    now = run.findings()
    described = replace(described, seconds_before=described.seconds_before + time.monotonic() - started)
    found = conclude_shrunk(
        run, described, status, now, tolerance(now), asked.keep_posterior, asked.settings("float64")
    )
    source = cache(partial(fitted_rows, asked)) if asked.stored is None else None
    return replace(found, continuation=partial(_extend, asked, run, described), fitted_source=source)


def _sharpened(asked: Question, run: Shrinking, described: Described, tolerance: float) -> Status:
    """More draws, until the ends of all intervals err by no more than so many posterior sds."""
    try:
        while True:
            run.weigh(len(run.drawn))
            ends = posterior_of(run, anchor_of(run, described), described).quantile(INTERVAL)
            lower, upper = ends.flat_value.reshape(2, -1)
            over = float(np.max(ends.flat_error / np.tile(tolerance * end_unit(lower, upper), 2)))
            if over <= 1:
                return Status.converged
            if len(run.segments) >= MOST_SEGMENTS:
                return Status.max_levels
            more = ceil(len(run.segments) * min(max(1.1 * over**2, 1.2), 4.0))
            if (
                run.evaluations + (more - len(run.segments)) * DRAWS * run.regression.num_rows
                > asked.budget.max_evaluations
            ):
                return Status.max_evaluations
            run.sweep(min(more, MOST_SEGMENTS))
    except (OutOfTime, KeyboardInterrupt) as end:
        return Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted


def _extend(asked: Question, run: Shrinking, described: Described, **changes: Any) -> Result:
    """Go on to another tolerance or budget, in a run of its own: the result it goes on from stays as it was."""
    changed = read_changes(asked, **changes)
    question = changed.applied(asked)
    with reporter(changed.progress) as report, watching(changed.budget.max_seconds, teller(report)) as watch:
        return _finished(question, run.copy(), described, report, watch.started)


def _names_of(asked: Question) -> tuple[str, ...]:
    """The quantities that are asked for."""
    if asked.anchor is not None:
        raise InputError(explain("no anchor beside a shrinkage prior", "one", "anchor=None"))
    if asked.ledger is not None:
        hint = "ledger=None, and result.save(path) for the answer"
        raise InputError(explain("no ledger beside a shrinkage prior", repr(str(asked.ledger)), hint))
    wanted = asked.quantities
    names = ("mean", "sd") if wanted is None else (wanted,) if isinstance(wanted, str) else wanted
    if isinstance(names, Mapping) or not names or not all(isinstance(each, str) for each in names):
        hint = "quantities=None, and result.posterior.expectation(function) afterwards"
        raise InputError(explain('"mean" and "sd" of a model with a shrinkage prior', "functions", hint))
    unknown = sorted(set(names) - {"mean", "sd"})
    if unknown:
        raise InputError(explain('quantities "mean" and "sd"', repr(unknown[0]), "quantities=None"))
    if isinstance(asked.accuracy.size, Mapping) and set(asked.accuracy.size) != set(names):
        got = f"{sorted(asked.accuracy.size)}"
        raise InputError(explain(f"a {asked.accuracy.kind} for each of {list(names)}", got, "one number for all"))
    return tuple(dict.fromkeys(names))


def _rows_of(asked: Question) -> tuple[Model, dict[str, Any]]:
    if asked.stored is None:
        model, rows = checked_rows(asked)
    else:
        model, rows = check_stored(asked.model, asked.stored, asked.weights)
    if not isinstance(rows, dict) or "y" not in rows or (model.layout.indexed is None and "x" not in rows):
        raise DataError(
            explain('rows with "x" and "y"', f"{type(rows).__name__}", "a dict, or a table of these fields")
        )
    count, width = len(rows["y"]), model.layout.width(rows)
    if width > MOST_COLUMNS:
        hint = "fewer columns: a sweep takes the cube of their number"
        raise DataError(explain(f"at most {MOST_COLUMNS:,} columns beside a shrinkage prior", f"{width:,}", hint))
    if count * width > MOST_NUMBERS:
        got = f"{count:,} rows of {width:,}"
        hint = "a sample of the rows; they are held in memory as float64"
        raise DataError(explain(f"at most {MOST_NUMBERS:,} numbers beside a shrinkage prior", got, hint))
    return model, rows


def _set_up(asked: Question, model: Model, rows: Any, names: tuple[str, ...]) -> tuple[Shrinking, Described]:
    regression = plain_regression(model, rows, unit_of(model, rows))
    width = model.layout.width(rows)
    centre, covariance, passes = _first_centre(regression, width)
    site = LikelihoodSite.about(regression, centre, covariance)
    facts = _facts(model, regression, centre)
    assert model.shrinkage is not None
    law = law_of(model.shrinkage, width, facts)
    reading, matrix = reading_of(model, rows, width)
    described = Described.of(model, reading, matrix, law, site, names, passes + 1)
    return Shrinking.begun(regression, law, described.read, described.answers, asked.seed, site), described


def _first_centre(regression: PlainRegression, width: int) -> tuple[Floats, Floats, float]:
    """Where a climb under a Gaussian prior ends, the broadest that has an end; covariance there, and passes it took."""
    spread = np.std(regression.design[:, :width], axis=0)
    unit = regression.unit if np.isfinite(regression.unit) else 1.0
    for broad in BROAD:
        scales = regression.scales.copy()
        scales[:width] = broad * unit / np.where(spread > 0, spread, 1.0)
        scales[width:] = np.minimum(scales[width:], MOST_SCALE * max(unit, 1.0))
        try:
            found = find_mode(_held(regression, scales, width), np.zeros(regression.dimension))
        except np.linalg.LinAlgError:
            found = None
        if found is not None:
            centre, there, passes = found
            whitening = whitening_of(mended(there.curvature))
            return centre, whitening @ whitening.T, passes
    raise NoConvergenceError(
        explain(
            "a mode under a Gaussian prior", "climbs that did not end", "more rows than columns, centred and scaled"
        )
    )


def _held(regression: PlainRegression, scales: Floats, width: int) -> PlainRegression:
    """Coefficients under Gaussian priors of these scales, in place of what is flat; all else as it was stated."""
    stated = regression.stated
    if stated is not None:
        runs = tuple(
            each._replace(scale=scales[each.places]) if each.places[0] < width else each for each in stated.runs
        )
        stated = replace(stated, runs=runs)
    return replace(regression, scales=scales, stated=stated)


def _facts(model: Model, regression: PlainRegression, centre: Floats) -> Facts:
    known = None if model.noise is None else model.noise.scale
    extra = float(np.exp(centre[-1])) if model.layout.extras else float(known or 1.0)
    return facts_of(model.family or "", regression.row["y"][:, 0], regression.weights, extra)


def _tolerances(asked: Question, described: Described, now: Findings) -> Floats:
    """What each component may err by; of what stands beside means and sds a fraction of its own sd."""
    kind, size = asked.accuracy.kind, asked.accuracy.size
    own = asked.accuracy.finest if kind == "tolerance" else USUAL_TOLERANCE
    allowed = []
    for each, values, sds in described.split(now.value, now.sd):
        if each.name not in ("mean", "sd"):
            allowed.append(own * sds)
            continue
        share = float(size[each.name] if isinstance(size, Mapping) else size)
        unit = {"tolerance": sds, "relative_tolerance": np.abs(values), "absolute_tolerance": np.ones_like(sds)}[kind]
        allowed.append(share * unit)
    return np.concatenate(allowed)


def _tell(report: Report, described: Described, run: Shrinking, now: Findings, allowed: Floats) -> None:
    watch, error = current(), np.hypot(now.standard_error, now.bias)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = int(np.argmax(np.nan_to_num(error / allowed)))
    seconds = 0.0 if watch is None else time.monotonic() - watch.started
    report(
        Progress(
            quantity=described.labels[worst],
            error=float(error[worst]),
            target=float(allowed[worst]),
            levels=1,
            samples=(len(run.segments),),
            evaluations=run.evaluations,
            seconds=seconds,
            evaluations_left=None,
            budget_left=np.inf if watch is None else max(0.0, watch.end - time.monotonic()),
        )
    )
