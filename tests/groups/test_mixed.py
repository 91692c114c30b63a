"""Mixed models by formula, held against exact references that no code of the sampler has part in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mixed_calibration import KINDS, _labels
from mixed_problems import make
from mixed_references import truth

import tallbayes as tb
from tallbayes.groups.placing import gather, place_groups
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.watch import watching

TOLERANCE = 0.05
SLOWER = ("logistic-30-20", "logistic-slope-40-25", "logistic-50-1", "logistic-30-20-null", "logistic-uneven")


def fitted(name: str, **options: object) -> tb.Result:
    problem = make(name)
    scales = {"prior_scale": problem.priors.coefficients, "intercept_scale": problem.priors.coefficients}
    return tb.fit(problem.formula, problem.table, problem.family, tolerance=TOLERANCE, seed=1, **scales, **options)


def worst(name: str, result: tb.Result) -> float:
    """The largest distance from the truth, of parameters and effects, in stated errors."""
    exact, scores = truth(name), []
    for known, label in _labels(result).items():
        for kind in KINDS:
            estimate, there = result[kind], exact["quantities"][known]
            error = np.hypot(estimate.standard_error[label], estimate.bias_bound[label])
            scores.append(abs(estimate.value[label] - there[kind]) / np.hypot(error, there[f"{kind}_error"]))
    effects = result.effects()
    order = np.argsort([str(each) for each in effects.levels])
    for place, effect in enumerate(effects.names):
        there = exact["effects"][effect]
        for kind, value, error in (("mean", effects.mean, effects.mean_error), ("sd", effects.sd, effects.sd_error)):
            off = np.abs(value[order, place] - np.array(there[kind]))
            # The references of effects are to a few thousandths of their sd.
            scores.append(np.max(off / np.hypot(error[order, place], 0.003 * np.array(there["sd"]))))
    return float(max(scores))


@pytest.mark.parametrize(
    "name",
    ["poisson-30-10", *(pytest.param(each, marks=pytest.mark.slow) for each in ("linear-slope-30-12", *SLOWER))],
)
def test_parameters_and_effects_are_those_of_the_reference(name: str) -> None:
    """At most 80 numbers: 5.5 errors are passed once in a million such tests if errors are normal."""
    result = fitted(name)
    assert result.converged
    assert worst(name, result) < 5.5


def test_another_prior_is_found_out() -> None:
    """The control: scales with a prior of a tenth of the width."""
    assert worst("poisson-30-10", fitted("poisson-30-10", group_scale=0.1)) > 5.5


def test_too_few_nodes_are_told() -> None:
    """Laplace's approximation of 50 groups of a single binary row, which is a single node."""
    model = with_effects(tb.families.logistic(), EffectTerm("g"))
    rng = np.random.default_rng(0)
    data = {"x": np.ones((50, 1)), "y": (rng.random(50) < 0.4).astype(float), "g": np.arange(50)}
    groups = model.groups
    assert groups is not None
    rough, fine = (
        error_after_placing(replace(model, groups=replace(groups, nodes=nodes, closed=None)), data) for nodes in (1, 15)
    )
    assert fine < 1e-4
    assert rough > 0.01


def error_after_placing(model: tb.Model, data: dict[str, np.ndarray]) -> float:
    with watching(np.inf, lambda watch: None):
        return place_groups(gather(model, data), "float64", True, 0.02).integral_error


@pytest.mark.slow
def test_rough_integrals_end_in_their_status() -> None:
    problem = make("logistic-50-1")
    x = np.column_stack([problem.table["x1"], np.ones(50)])
    model = with_effects(tb.families.logistic(), EffectTerm("g"))
    groups = model.groups
    assert groups is not None
    rough = replace(model, groups=replace(groups, nodes=1))
    data = {"x": x, "y": problem.table["y"], "g": problem.table["g"]}
    result = tb.estimate(rough, data, tolerance=0.005, max_evaluations=2e6)
    assert not result.converged
    assert np.all(result["mean"].flat_bias_bound > 0)
