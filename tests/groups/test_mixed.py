"""Mixed models by formula, held against exact references that no code of the sampler has part in."""

from __future__ import annotations

import numpy as np
import pytest
from mixed_calibration import KINDS, _labels
from mixed_problems import make
from mixed_references import truth

import tallbayes as tb

TOLERANCE = 0.05


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


@pytest.mark.parametrize("name", ["logistic-30-20", "linear-slope-30-12", "poisson-30-10"])
def test_parameters_and_effects_are_those_of_the_reference(name: str) -> None:
    """At most 80 numbers: 5.5 errors are passed once in a million such tests if errors are normal."""
    result = fitted(name)
    assert result.converged
    assert worst(name, result) < 5.5


def test_another_prior_is_found_out() -> None:
    """The control: scales with a prior of a fifth of the width."""
    assert worst("logistic-30-20", fitted("logistic-30-20", group_scale=0.2)) > 5.5
