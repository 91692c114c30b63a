"""Whether two results are the same, to the last bit."""

from __future__ import annotations

import numpy as np

import tallbayes as tb


def assert_same(one: tb.Result, other: tb.Result) -> None:
    """All numbers, to the last bit, and what they cost in rows."""
    assert one.status is other.status
    assert [level.samples for level in one.levels] == [level.samples for level in other.levels]
    assert one.cost.evaluations == other.cost.evaluations
    assert one.cost.setup_evaluations == other.cost.setup_evaluations
    assert one.tuning == other.tuning
    for name in one.estimates:
        for part in ("flat_value", "flat_error"):
            np.testing.assert_array_equal(getattr(one[name], part), getattr(other[name], part))
    if one.posterior is not None:
        assert other.posterior is not None
        for mine, theirs in zip(one.posterior.points, other.posterior.points, strict=True):
            np.testing.assert_array_equal(mine, theirs)
