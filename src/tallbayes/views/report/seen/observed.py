"""Observed against predicted: means of the response by tenths of the rows, over what the fit expects of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallbayes.results.fitted import family_of
from tallbayes.results.result import Result
from tallbayes.views.report.asked.checks import calibration_figure
from tallbayes.views.report.markup import Markup, counted, element, join
from tallbayes.views.report.seen.at_hand import are_at_hand, can_be_asked, if_answered
from tallbayes.views.report.seen.rates import BaseRates, rates_table

if TYPE_CHECKING:
    from tallbayes.results.checks.check import Check

DRAWS = 100
NAME = "calibration"
LEAD = (
    "The rows stand in ten parts of one size, from those of which the fit expects least to those of which it expects "
    "most. A dot within its bar is no reason for doubt. These are the rows that were fitted: new ones lie a little "
    "further from the line."
)


def observed_check(result: Result, checks: Sequence[Check]) -> Check | None:
    """The one that was asked for, or else one of rows that are at hand."""
    asked = [each for each in checks if each.name == NAME]
    if asked:
        return asked[0]
    family = family_of(result)
    if family is None or family.by_class or not (are_at_hand(result) and can_be_asked(result)):
        return None
    found = if_answered(lambda: result.checks([NAME], draws=DRAWS))
    return found[0] if found else None


def observed(result: Result, check: Check | None, rates: BaseRates | None) -> Markup | None:
    """The section; None where nothing is known of what was seen."""
    below = None if rates is None else rates_table(result, rates)
    if check is None:
        return below
    outside = round(check.outside * len(check.labels))
    finding = (
        f"{len(check.labels) - outside:,} of {counted(len(check.labels), 'part')} of the rows have the response that "
        "the fit expects of them, within what chance allows in 95 of 100."
    )
    words = [element("p", finding), element("p", LEAD, class_="soft")]
    return join([*words, calibration_figure(check), below])
