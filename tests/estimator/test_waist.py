"""The estimator in a process where JAX cannot be imported: tuning, the adaptive loop, and the random tail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from concurrent.futures import ThreadPoolExecutor

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            raise ImportError(f"{name} is not to be had here")

sys.meta_path.insert(0, Refusing())

from tallbayes.estimator import decisions, foresight, rates, tails
from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.randomised import prepare_randomised, run_randomised
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run
from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.ladder import FIRST_STEPS, Choices, batch_sizes_up_to
from tallbayes.estimator.tuning import Tuner, tune

goal = Tolerances("absolute_tolerance", (0.1,), (1,))
estimands = made_up_estimands()
with ThreadPoolExecutor(2) as executor:
    def fresh(levels):
        run = Run(levels, estimands, executor, lambda _: None, goal, Budget())
        run.contraction = Contraction(0.1, 0.1, 1.0)
        return run

    choices = Choices(FIRST_STEPS, batch_sizes_up_to(1000))
    levels, contraction, tuning = tune(Tuner(MadeUp(cost=None), estimands, None, goal, executor, choices))
    adaptive, final = run_multilevel(fresh(MadeUp()))
    randomised, unbiased = run_randomised(prepare_randomised(fresh(MadeUp(1)), 1))
print(json.dumps({
    "statuses": [adaptive.name, randomised.name],
    "errors": [abs(each.summary.value[0] - 2.0) for each in (final, unbiased)],
    "contracts": contraction.upper < 0.2,
    "trials": len(tuning.trials),
    "loaded": sorted(name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib")),
}))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)


def test_the_estimator_runs_where_jax_cannot_be_imported() -> None:
    """The truth is 2; five tolerances off has a false-alarm rate of 6e-7 were the RMSE the tolerance itself."""
    done = run(PROGRAM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["statuses"] == ["converged", "converged"]
    assert max(found["errors"]) < 5 * 0.1
    assert found["contracts"]
    assert found["trials"] >= 1
    assert found["loaded"] == []


@pytest.mark.parametrize("module", ["programs.functions_in_jax", "posterior.expectations"])
def test_control_what_needs_jax_is_refused_there(module: str) -> None:
    done = run(PROGRAM.replace("goal = Tol", f"import tallbayes.{module}\ngoal = Tol"))
    assert done.returncode != 0
    assert "is not to be had here" in done.stderr
