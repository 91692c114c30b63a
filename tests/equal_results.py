"""Whether two results are the same, to the last bit."""

from __future__ import annotations

import dataclasses
from typing import Any

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


# What only the process that made a result has; a stored posterior knows its parameters as numbers instead.
LIVING = (
    "continuation", "door", "fit_table", "fitted_source", "live", "path_source", "question", "standing", "stored",
)  # fmt: skip


def assert_identical(one: Any, two: Any) -> None:
    """Equal to the bit, all the way down, in type as well."""
    assert type(one) is type(two)
    if isinstance(one, np.ndarray):
        assert one.dtype == two.dtype
        assert one.shape == two.shape
        assert one.tobytes() == two.tobytes()
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name not in LIVING:
                assert_identical(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_identical(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            assert_identical(first, second)
    elif isinstance(one, float) and np.isnan(one):
        assert np.isnan(two)
    else:
        assert one == two
