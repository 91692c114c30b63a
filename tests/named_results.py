"""A small result whose names need care, and the same numbers as parameters of other models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from scenarios import by_ladder, logistic_rows

import tallbayes as tb
from tallbayes.posterior.coordinates import Part, Reading
from tallbayes.structure import Structure

NUMBER = Structure.leaf(())
REALS = (Part("real", (), (4,)),)
FORMULA = {"response": "late", "coding": {"right": "hour + C(kind)"}}


def named(**children: Structure) -> Structure:
    return Structure.container("dict", list(children.items()))


COEFFICIENTS = Structure.container("dict", [(name, NUMBER) for name in ("Intercept", "hour", "a<b", "cost$ in $")])


@cache
def awkward_run() -> tb.Result:
    """Four slopes, and quantities whose names need care: one is called like a parameter."""
    quantities = {"mean": "mean", "sd": "sd", "odds": lambda theta: {"a<b": theta[:2] ** 2}, "[0]": lambda theta: 1.0}
    rows = logistic_rows(200, (0.8, -0.2, 0.3, 0.1))
    return by_ladder(tb.families.logistic(), rows, quantities, tolerance=0.5, seed=1)


def reshaped(result: tb.Result, structure: Structure, parts: Any = REALS, **changes: Any) -> tb.Result:
    """The same numbers as parameters of another model, as if loaded from a file."""
    estimates = {
        name: replace(each, structure=structure) if name in ("mean", "sd") else each
        for name, each in result.estimates.items()
    }
    posterior = replace(result.posterior, stored=Reading(structure, parts), live=None)
    gone: dict[str, Any] = {"path_source": None, "fitted_source": None}
    return replace(result, estimates=estimates, posterior=posterior, **(gone | changes))


def as_fitted(result: tb.Result) -> tb.Result:
    """As by a formula."""
    return reshaped(result, COEFFICIENTS, encoding=FORMULA)
