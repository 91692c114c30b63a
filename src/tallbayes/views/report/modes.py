"""Other modes in a report: how much of the mass each holds, where it is, how wide, and what was answered there.

elsewhere    a sentence for the top of the page
modes        a section below the answer, which is of the heaviest mode alone
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from tallbayes.estimator.estimates import Status
from tallbayes.results.coefficients import UNKNOWN, Number
from tallbayes.results.parts import Mode
from tallbayes.results.result import Result
from tallbayes.views.report.effects import ReportedEffects, effects_of
from tallbayes.views.report.markup import (
    Markup,
    PageColumn,
    column,
    counted,
    element,
    figures,
    join,
    measured,
    plain,
    share,
    table,
)

MOST_PARAMETERS = 6
WHAT_TO_DO = (
    "What to do: see whether the modes say the same thing under other names, as the parts of a mixture do when they "
    "are swapped; then order or fix something in the model, so that one is left. If they differ in substance, show "
    "them side by side, as here, or take a method made for several modes, such as tempering or sequential Monte Carlo."
)


def elsewhere(result: Result) -> Markup | None:
    """How much of the mass the numbers of the page know nothing of, where that is known."""
    if not result.modes:
        return None
    part = share(sum(each.share for each in result.modes))
    many = "another mode" if len(result.modes) == 1 else f"{len(result.modes)} other modes"
    link = element("a", many, href="#modes")
    return element("p", f"About {part} of the posterior’s mass, by an estimate, is at ", link, ".")


def modes(result: Result, effects: ReportedEffects) -> Markup | None:
    """A table of the modes, one of where they are, and what that means; None where there is one alone."""
    if not result.modes:
        return None
    words = (
        f"The posterior has {counted(len(result.modes) + 1, 'mode')}: separate places around which its mass gathers. "
        f"The numbers above are of the heaviest mode alone, with about {share(_own(result))} of the mass; so is all "
        "else on this page but for these two tables. They are no averages over the modes. Shares of the mass are "
        "estimates by Laplace’s approximation, and how far off they are is not known."
    )
    return join(
        [
            element("h3", "Several modes", id="modes"),
            element("p", words),
            _shares(result),
            element("p", WHAT_TO_DO),
            _places(result, effects),
        ]
    )


def _own(result: Result) -> float:
    return max(0.0, 1 - sum(each.share for each in result.modes))


def _names(result: Result) -> list[str]:
    return ["1, shown above", *(str(number) for number in range(2, len(result.modes) + 2))]


def _shares(result: Result) -> Markup:
    columns = [
        column("share of the mass", [share(each) for each in (_own(result), *(mode.share for mode in result.modes))]),
        PageColumn("numbers there", [_ending(result), *(_answered(mode) for mode in result.modes)], numeric=False),
    ]
    return table("Modes, the heaviest first.", "mode", _names(result), columns)


def _answered(mode: Mode) -> str:
    return f"not answered: {mode.reason}" if mode.result is None else _ending(mode.result)


def _ending(result: Result) -> str:
    """How the numbers of one mode ended: all are of that mode alone, so none is called converged."""
    if result.status is Status.second_mode:
        return "met the accuracy asked for, about this mode alone"
    return str(result.status)


def _places(result: Result, effects: ReportedEffects) -> Markup:
    """Laplace's Gaussian and the answer of every mode, for the first parameters."""
    names = _parameters(result, effects)
    found = [_numbers(effects), *(_means_and_sds(mode) for mode in result.modes)]
    gaussians = [[(each.coefficient.laplace_mean, each.coefficient.laplace_sd) for each in effects.in_order]]
    gaussians += [list(zip(mode.flat_location, mode.flat_sd, strict=True)) for mode in result.modes]
    places = [(mode, place) for mode in range(len(found)) for place in range(len(names))]
    centres = [_at(gaussians[mode], place, UNKNOWN) for mode, place in places]
    answers = [_at(found[mode], place, (UNKNOWN, UNKNOWN)) for mode, place in places]
    columns = [
        # To a tenth of the width, in its second digit.
        column("centre", [figures(at, width / 10)[0] for at, width in centres]),
        column("width", [plain(width) for _, width in centres]),
    ]
    if any(isfinite(number.value) for each in answers for number in each):
        columns += [measured(head, [each[side] for each in answers]) for side, head in enumerate(("mean", "sd"))]
    left = result.modes[0].structure.size - len(names)
    more = f" {counted(left, 'further parameter')} not shown." if left else ""
    caption = (
        "Where the modes are. Centre and width (one sd) are those of Laplace’s Gaussian; mean and sd are what paths "
        f"about that mode found, with their Monte Carlo errors.{more}"
    )
    groups = [f"mode {name}" for name in _names(result) for _ in names]
    return table(caption, "parameter", names * len(found), columns, groups)


def _parameters(result: Result, effects: ReportedEffects) -> list[str]:
    """Names of the first."""
    structure = result.modes[0].structure
    if len(effects.all) == structure.size:
        return [each.term.short for each in effects.in_order[:MOST_PARAMETERS]]
    return [label.removeprefix(".") or "parameter" for label in structure.labels("")][:MOST_PARAMETERS]


def _means_and_sds(mode: Mode) -> list[tuple[Number, Number]]:
    # Quantiles take their time, and are not shown.
    return [] if mode.result is None else _numbers(effects_of(replace(mode.result, posterior=None)))


def _numbers(effects: ReportedEffects) -> list[tuple[Number, Number]]:
    return [(each.coefficient.mean, each.coefficient.sd) for each in effects.in_order]


def _at(known: Sequence[Any], place: int, otherwise: Any) -> Any:
    return known[place] if place < len(known) else otherwise
