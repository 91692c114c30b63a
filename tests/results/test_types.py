"""What a type checker sees of a public result: no Any, but where only its owner knows the shape of theta."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.decisions import Trial
from tallbayes.estimator.rates import Contraction
from tallbayes.evidence.evidence import Evidence
from tallbayes.leave_one_out.loo import Loo
from tallbayes.model.model import Target
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Prediction
from tallbayes.results.averages.answers import AverageEffect, AverageEffects
from tallbayes.results.checks.check import Asked, Check
from tallbayes.results.checks.simulation import Simulation
from tallbayes.results.coefficients import Coefficient, Number
from tallbayes.results.comparisons import Comparison, Ratio
from tallbayes.results.curves import ColumnCurve
from tallbayes.results.draws.drawn import PosteriorDraws
from tallbayes.results.fitted import FitTable, Fitted
from tallbayes.results.groups.effects import Effects, EffectSource
from tallbayes.results.groups.partition import VariancePartition, VarianceShare
from tallbayes.results.parts import Cost, Factor, Level, Mode, Rates, Regression, Settings
from tallbayes.results.powers.sensitivity import Sensitivity
from tallbayes.sampler.levels import Problem

CLASSES = (
    tb.Result, tb.Estimate, tb.Tuning, Anchor, Coefficient, Comparison, Contraction, Cost, Factor, Level, Mode,
    Number, Posterior, Prediction, Rates, Ratio, Regression, Settings, Trial, VariancePartition, VarianceShare,
)  # fmt: skip
FUNCTIONS = (tb.estimate, tb.fit, tb.load, tb.ingest, tb.open_table, tb.write_table)
# In the shape of theta, or of what a function of it returns: a nested dict, an array, a number, as its owner wrote it.
OWNERS_SHAPE = {
    "Estimate.value", "Estimate.standard_error", "Estimate.bias_bound", "Estimate.degrees_of_freedom",
    "Estimate.tolerance", "Estimate.interval", "Estimate.price", "Mode.location", "Mode.sd",
}  # fmt: skip
# This process's own target, and the arrays that its report needs.
OWNERS_MODEL = {"Posterior.live"}


class Elsewhere:
    """In place of a class of a package that need not be installed."""


def names() -> dict[str, Any]:
    """Those that are imported for type checkers alone."""
    packages = {
        "pandas": SimpleNamespace(DataFrame=Elsewhere),
        "xarray": SimpleNamespace(DataTree=Elsewhere),
        "arviz": SimpleNamespace(InferenceData=Elsewhere),
    }
    local = {each.__name__: each for each in (Coefficient, Comparison, Ratio, Prediction, Target, tb.Result)}
    local |= {each.__name__: each for each in (Effects, EffectSource, Fitted, FitTable, VariancePartition)}
    local |= {each.__name__: each for each in (AverageEffect, AverageEffects, Check, PosteriorDraws, Problem)}
    local |= {each.__name__: each for each in (ColumnCurve, Evidence, Loo, Sensitivity, Simulation)} | {"Asked": Asked}
    return {**packages, **local, "Axes": Elsewhere}


def mentions_any(hint: Any) -> bool:
    """Whether Any is in a type: not in a function that its owner writes, nor as an array's shape."""
    if hint is Any:
        return True
    if typing.get_origin(hint) in (Callable, np.ndarray):
        return False
    return any(mentions_any(each) for each in typing.get_args(hint) if each is not Ellipsis)


def hints_of(function: Any) -> dict[str, Any]:
    return typing.get_type_hints(function, localns=names())


def offered(kind: type) -> Iterator[tuple[str, Any]]:
    """Fields, properties and what methods return."""
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or hasattr(kind, "_fields"):
        yield from ((f"{kind.__name__}.{name}", hint) for name, hint in hints_of(kind).items())
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        function = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield f"{kind.__name__}.{name}", hints_of(function).get("return", Any)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_results_have_types(kind: type) -> None:
    untyped = {name for name, hint in offered(kind) if mentions_any(hint)}
    assert untyped - OWNERS_SHAPE - OWNERS_MODEL == set()


def test_no_exception_is_left_that_needs_none() -> None:
    untyped = {name for kind in CLASSES for name, hint in offered(kind) if mentions_any(hint)}
    assert untyped == OWNERS_SHAPE | OWNERS_MODEL


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_what_doors_return_has_a_type(function: Any) -> None:
    assert not mentions_any(hints_of(function)["return"])


def test_control_any_is_found_wherever_it_hides() -> None:
    assert mentions_any(dict[str, list[Any] | None])
    assert not mentions_any(dict[str, list[int] | None])


def test_a_result_and_its_parts_are_short_at_a_prompt() -> None:
    """What print shows is another thing, and stays."""
    rows = {"x": np.random.default_rng(0).normal(size=(60, 30)), "y": np.arange(60) % 2.0}
    result = tb.estimate(tb.families.logistic(), rows, tolerance=0.5)
    assert repr(result).startswith("<tallbayes.Result: converged; mean of 30, sd of 30; ")
    assert repr(result).endswith(" s>")
    for part in (result, result["mean"], result.posterior, result.anchor, result.predict(rows["x"])):
        assert len(repr(part)) < 120
        assert "\n" not in repr(part)
    assert "status: converged" in str(result)
    assert len(str(result).splitlines()) > 30
