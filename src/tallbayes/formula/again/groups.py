"""The groups of a run read again from its table, for predictions in another process.

What a group's rows say of its effect hangs on theta, so that no few numbers could stand for them. A table that is not
the one that was fitted is told by the number of rows of its groups, and by the means of their response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.estimation.group_effects import known_groups, raw_means
from tallbayes.groups.known import KnownGroups
from tallbayes.groups.placing import gather, place_again
from tallbayes.model.model import Model
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.result import Result

TOLERANCE = 0.05


def gather_again(result: Result, read: Callable[[], tuple[Model, Any, Any]], data: str) -> KnownGroups:
    """The groups of the table that is read, with nodes at the centre of the result's posterior."""
    placed = place_again(gather(*read()), kept_posterior(result).anchor, TOLERANCE)
    found = known_groups(placed)
    _require_same(result, found, data)
    return found


def _require_same(result: Result, found: KnownGroups, data: str) -> None:
    for effects in result.stored_effects:
        if effects.by != found.integral.groups.by:
            continue
        counts, raw = (each[found.order] for each in (np.ravel(found.units["count"]), raw_means(found.units)))
        same = len(counts) == len(effects) and np.array_equal(counts, effects.counts)
        if not same or not np.allclose(raw, effects.raw, rtol=1e-4, atol=1e-4, equal_nan=True):
            got = f"{data!r}, whose groups have other rows"
            raise DataError(explain("the table that was fitted", got, "tallbayes fit anew"))
