"""Whether the rows of a fit are at hand, and few enough to be looked at by a report that was not asked to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallbayes.errors import TallbayesError
from tallbayes.results.result import Result
from tallbayes.results.verdict import has_numbers

MOST_ROWS = 200_000

Found = TypeVar("Found")


def are_at_hand(result: Result) -> bool:
    """Of a regression that can be asked about its rows."""
    known = result.regression is not None and result.fitted_source is not None
    return known and 0 < result.num_rows <= MOST_ROWS


def can_be_asked(result: Result) -> bool:
    """Whether it has kept a posterior that its paths say something of."""
    return result.posterior is not None and result.is_sampled and has_numbers(result)


def if_answered(ask: Callable[[], Found]) -> Found | None:
    """None where the question has no answer for this fit: a page does without what it was not asked for."""
    try:
        return ask()
    except TallbayesError:
        return None
