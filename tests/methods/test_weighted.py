"""The method of weights as a value."""

from __future__ import annotations

from typing import Any

import pytest

import tallbayes as tb
from tallbayes.methods.weighted import Weighted, weighted_first


def test_it_is_tried_first_unless_another_method_is_asked_for() -> None:
    assert weighted_first(None) == (Weighted(), None)
    ladder = tb.Anchored(batch_size=8)
    assert weighted_first(ladder) == (None, ladder)
    mine = Weighted(degrees_of_freedom=10.0, otherwise=ladder)
    assert weighted_first(mine) == (mine, ladder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"degrees_of_freedom": 1.0},
        {"degrees_of_freedom": "5"},
        {"unbiased": 1},
        {"otherwise": Weighted()},
        {"otherwise": tb.Anchored},
    ],
)
def test_bad_parts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(tb.InputError):
        Weighted(**wrong)


def test_the_result_tells_what_of_it_was_used() -> None:
    assert Weighted().in_brief == "Weighted()"
    assert Weighted(7.0, unbiased=True).in_brief == "Weighted(degrees_of_freedom=7, unbiased=True)"
