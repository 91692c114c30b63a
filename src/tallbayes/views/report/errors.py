"""How sure: where the errors come from, and what was checked.

in words         how large the errors are, beside all that is uncertain anyhow; all else is folded below
error budget     standard error and bias bound against the tolerance, the worst component of every quantity
interval ends    their errors, the rate at which their levels' variance falls, and what more accuracy would cost
levels           see `report_levels`
Laplace          what the approximation alone would have said
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.moments import Floats
from tallbayes.results.coefficients import end_tolerance, end_unit, own_parameters
from tallbayes.results.result import Result
from tallbayes.results.verdict import has_numbers
from tallbayes.views.advice import DOUBTFUL, UNTRUSTED
from tallbayes.views.report.charts import ForestRow, Panel, intervals
from tallbayes.views.report.effects import Effect, ReportedEffects, readable
from tallbayes.views.report.levels import BETA, levels
from tallbayes.views.report.markup import (
    Markup,
    PageColumn,
    column,
    counted,
    element,
    figures,
    fixed,
    folded,
    join,
    measured,
    plain,
    share,
    table,
)
from tallbayes.views.tables import component_names

MOST_MOVED = 12
FINER = 0.01
DEFAULT_ALLOWED = 0.05
# In posterior sds: an interval grows by the square of this.
NOTHING = 0.1


def certainty(result: Result, effects: ReportedEffects) -> Markup:
    """All of it, below its heading."""
    if not has_numbers(result):
        return join([element("p", "There is no number of which to state an error."), levels(result)])
    parts = [_budget(result, effects), _ends(result, effects), levels(result), _laplace(result, effects)]
    return join([element("p", in_words(result)), folded("Where the errors come from, and what was checked", parts)])


def in_words(result: Result) -> str:
    """The largest error of a mean beside what the rows leave open, for those who read no further."""
    means, sds = (result.estimates.get(name) for name in ("mean", "sd"))
    if result.status in (*UNTRUSTED, *DOUBTFUL) or not result.is_sampled:
        return "The errors that are stated may be too small: see above how the run ended."
    if means is None or sds is None or means.structure != sds.structure:
        return "How far the numbers may be off, and how that is known."
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = means.flat_error / sds.flat_value
    known = errors[np.isfinite(errors)]
    if not len(known):
        return "How far the numbers are off is not known."
    most = float(known.max())
    open_ = int(len(errors) - len(known))
    more = f"; of {counted(open_, 'mean')} it is not known" if open_ else ""
    size = (
        "which is nothing beside the uncertainty that the rows themselves leave"
        if most <= NOTHING
        else "beside the uncertainty of 1 that the rows themselves leave"
    )
    return f"Every posterior mean is computed to {plain(most)} posterior sds or better, {size}{more}."


def fraction_asked(result: Result) -> float | None:
    """The tolerance in posterior sds, where it was stated so."""
    asked = result.settings.get("tolerance")
    if isinstance(asked, dict):
        asked = asked.get("mean")
    return float(asked) if isinstance(asked, int | float) else None


def _budget(result: Result, effects: ReportedEffects) -> Markup:
    """The worst component of every quantity."""
    estimates = [each for each in result.estimates.values() if each.structure.size]
    worst = [(each, _worst(each)) for each in estimates]
    shares = [_share(each)[place] for each, place in worst]
    names = [each.name for each in estimates]
    shown = {each.term.name: each.term.full for each in effects.all}
    components = [shown.get(name, name) for name in (component_names(each)[place] for each, place in worst)]
    columns = [
        PageColumn(
            "worst component", ["" if a == b else a for a, b in zip(components, names, strict=True)], numeric=False
        ),
        column("standard error", [plain(each.flat_standard_error[place]) for each, place in worst]),
        column("bias bound", [plain(each.flat_bias_bound[place]) for each, place in worst]),
        column("asked for", [plain(each.flat_tolerance[place]) for each, place in worst]),
        column("error / asked", [share(each) for each in shares]),
        PageColumn("accuracy", ["met" if each.met else "not met" for each in estimates], numeric=False),
    ]
    left = "paths (standard error), and what the levels that were not sampled would still add (bias bound)"
    if result.weighing is not None:
        left = "draws (standard error), and what their skewness and a division by their weights may add (bias bound)"
    words = (
        f"Two errors are left in every number: the statistical one of finitely many {left}. Held against the accuracy "
        f"asked for is the root of the sum of their squares. {_total(result, shares)}"
    )
    caption = "Error budget: the worst component of every quantity, in that quantity’s own units."
    return join([element("h3", "Error budget"), element("p", words), table(caption, "quantity", names, columns)])


def _total(result: Result, shares: Sequence[float]) -> str:
    if shares and all(isfinite(each) for each in shares):
        return f"At worst that is {share(max(shares))} of it."
    if len(result.levels) < 3 and result.weighing is None:
        return "Here the bias bound is unknown: that takes three levels at least."
    return "Where one of the two is unknown, so is the whole."


def _share(estimate: Estimate) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(estimate.flat_error / estimate.flat_tolerance)


def _worst(estimate: Estimate) -> int:
    """The component with the largest error for its tolerance; one whose error is unknown before all others."""
    return int(np.argmax(np.nan_to_num(_share(estimate), nan=np.inf)))


def _ends(result: Result, effects: ReportedEffects) -> Markup | None:
    if not any(each.is_known for each in effects.all):
        return None
    return join([element("h3", "Interval ends"), element("p", " ".join(_about_ends(readable(result), effects)))])


def _about_ends(result: Result, effects: ReportedEffects) -> list[str]:
    """Their errors in posterior sds, their own rate and their price."""
    if result.posterior is None:
        return ["This run kept no posterior, so it has no quantiles: the ends shown are those of a normal law."]
    ends = result.posterior.interval(0.95, first=own_parameters(result))
    unit = end_unit(ends[0].flat_value, ends[1].flat_value)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.stack([end.flat_error for end in ends]) / unit
    known = np.isfinite(errors)
    if not np.any(known):
        return ["The errors of the ends are unknown: that takes three levels at least."]
    side, place = np.unravel_index(np.argmax(np.where(known, errors, -1.0)), errors.shape)
    largest = float(errors[side, place])
    samples = "paths" if result.weighing is None else "draws"
    which = f"the {('lower', 'upper')[side]} one of {effects.in_order[place].term.short}"
    sentences = [
        f"The ends of the 95% intervals are quantiles of the same {samples}. Their Monte Carlo errors are "
        f"{share(float(np.median(errors[known])))} of a posterior sd in the median, {share(largest)} at most ({which})."
    ]
    tolerance, asked = end_tolerance(result)
    rough = int(np.sum(~(errors <= tolerance)))
    if asked:
        sentences.append(f"Asked for was {share(tolerance)}, which is {'not met' if rough else 'met'}.")
    elif rough:
        sentences.append(f"{counted(rough, 'end')} above {share(tolerance)} {'is' if rough == 1 else 'are'} marked ~.")
    if isfinite(ends[0].beta):
        rate = fixed(ends[0].beta, 2)
        sentences.append(f"The variance of their levels falls with {BETA} = {rate} (2 if smooth, 1/2 at a jump).")
    return [*sentences, _price(result, ends, unit)]


def _price(result: Result, ends: Sequence[Estimate], unit: Floats) -> str:
    """What more accuracy would cost."""
    asked, parts = fraction_asked(result), []
    for each in [FINER] if asked is None or asked <= FINER else [asked, FINER]:
        with np.errstate(divide="ignore", invalid="ignore"):
            works = [np.ravel(part) for end in ends for part in end.structure.leaves(end.price(each * unit))]
        work = float(np.max(np.nan_to_num(np.concatenate(works), nan=0.0)))
        passes = f"about {plain(work)} ({plain(work / result.cost.num_data)} passes)"
        parts.append((share(each), "no more than that" if work <= result.cost.evaluations else passes))
    first, *others = parts
    more = "".join(f", of {accuracy} {price}" for accuracy, price in others)
    return (
        f"This run took {result.cost.evaluations:,} {result.unit} gradients in all. For every end, "
        f"a standard error of {first[0]} of a posterior sd takes {first[1]}{more}."
    )


def _laplace(result: Result, effects: ReportedEffects) -> Markup | None:
    """Which coefficients the paths moved, and whether that mattered."""
    known = [each for each in effects.all if isfinite(each.coefficient.shift) and each.coefficient.laplace_sd > 0]
    if not known:
        return None
    allowed = fraction_asked(result) or DEFAULT_ALLOWED
    moved = sorted(known, key=lambda each: -abs(each.coefficient.shift))[:MOST_MOVED]
    words = _about_laplace(known, allowed, result.anchor is not None and result.anchor.laplace.recentred)
    panel = Panel("shift of the mean, in posterior sds", [_moved(each, allowed) for each in moved], band=allowed)
    caption = (
        f"{_those(len(moved), len(known))} Dot: posterior mean less Laplace’s, in posterior sds; line: two Monte Carlo "
        f"errors to either side. Shaded: within {allowed:g}; full dots lie outside."
    )
    columns = [
        measured("shift in sds", [_shift(each) for each in moved]),
        measured("sd / Laplace’s sd", [_ratio(each) for each in moved]),
    ]
    names = [each.term.full for each in moved]
    numbers = table("Means and sds beside Laplace’s.", "coefficient", names, columns)
    drawing = intervals("laplace", "Shift of posterior means from Laplace’s", words, [panel])
    return join(
        [
            element("h3", "Beside Laplace’s approximation"),
            element("p", words),
            element("figure", drawing, element("figcaption", caption)),
            element("details", element("summary", "The same in numbers, and what became of the sds"), numbers),
        ]
    )


def _those(shown: int, known: int) -> str:
    return f"The {shown} of {known:,} coefficients that moved most." if shown < known else ""


def _about_laplace(known: Sequence[Effect], allowed: float, recentred: bool) -> str:
    what = "Laplace’s approximation, a Gaussian at the mode,"
    if recentred:
        what = "The Gaussian that the run started from, moved from the mode to where the mass is,"
    shifts = [abs(each.coefficient.shift) for each in known]
    ratios = [abs(_ratio(each)[0] - 1) for each in known]
    far, wide = (sum(each > allowed for each in sizes) for sizes in (shifts, ratios))
    most = (
        f"The largest shift of a mean is {plain(max(shifts))} posterior sds "
        f"({known[int(np.argmax(shifts))].term.short}), the largest change of an sd {share(max(ratios))} "
        f"({known[int(np.argmax(ratios))].term.short})."
    )
    if not far and not wide:
        return (
            f"{what} would have been fine by itself: every mean is within "
            f"{allowed:g} posterior sds of it and every sd within {share(allowed)}. {most}"
        )
    which = [f"{counted(far, 'mean')} by more than {allowed:g} posterior sds"] if far else []
    which += [f"{counted(wide, 'sd')} by more than {share(allowed)}"] if wide else []
    return (
        f"{what} would not have been enough: "
        f"among {counted(len(known), 'coefficient')} it misses {' and '.join(which)}. {most}"
    )


def _shift(each: Effect) -> tuple[float, float]:
    found = each.coefficient
    return found.shift, found.mean.error / found.sd.value


def _ratio(each: Effect) -> tuple[float, float]:
    found = each.coefficient
    return found.sd.value / found.laplace_sd, found.sd.error / found.laplace_sd


def _moved(each: Effect, allowed: float) -> ForestRow:
    shift, error = _shift(each)
    text = " ± ".join(figures(shift, error))
    reach = 2 * error if isfinite(error) else 0.0
    return ForestRow(each.term.full, shift, shift - reach, shift + reach, ("", text), abs(shift) > allowed)
