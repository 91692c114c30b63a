"""What is chosen for the user: the paper's ladder, the precision of the paths, and the scale of tolerances."""

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder, gaussian_rows

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.experiments.problem import make_rows
from tallbayes.methods.ladders import ladder_at
from tallbayes.setup.preparation import check_data, prepare
from tallbayes.setup.quantities import make_estimands


def anchor_with(curvatures):
    hessian = np.diag(np.array(curvatures, float))
    zero = np.zeros(len(curvatures))
    return Anchor(zero, zero, -hessian, hessian, 0.0, 1, 10, gradient=zero)


def test_the_papers_ladder_follows_the_curvature():
    """h_0 = 0.5 / lambda_max and e^(-lambda_min dT) = e^-2.5 at most."""
    ladder = ladder_at(anchor_with([4.0, 10.0, 100.0]))
    assert ladder.first_step == pytest.approx(0.005)
    assert ladder.start_steps == ladder.added_steps == 125
    assert 4.0 * ladder.added_steps * ladder.first_step >= 2.5


def test_the_papers_ladder_contracts_as_planned():
    result = by_ladder(tb.families.logistic(), make_rows(300).data, tolerance=0.5, method=tb.Multilevel())
    assert result.converged
    assert result.contraction.factor < np.exp(-2)


def test_gaussian_scale_of_any_quantity():
    """The Laplace sd of a linear and of a quadratic function, against closed forms (1,024 draws: within 15%)."""
    model, data = tb.families.linear(noise_scale=1.0), gaussian_rows(60, 2, 1.0)
    this = prepare(model, check_data(model, data), None, shuffle=False, anchor=None)
    mode, sd = this.anchor.mode, this.anchor.sd
    wanted = {"first": lambda theta: 3 * theta[0], "square": lambda theta: (theta[0] - mode[0]) ** 2}
    scale = make_estimands(wanted, this.target, this.anchor).laplace_sd
    assert scale[0] == pytest.approx(3 * sd[0], rel=0.15)
    assert scale[1] == pytest.approx(np.sqrt(2) * sd[0] ** 2, rel=0.15)


def located(offset):
    """A location model whose mode lies `offset` away from zero."""
    rows = {"y": offset + np.random.default_rng(0).normal(size=100)}
    model = tb.Model(
        lambda theta: 0.0 * theta, lambda theta, row: -0.5 * (row["y"] - theta) ** 2, initial=np.float64(offset)
    )
    return model, rows


@pytest.mark.parametrize(("offset", "precision"), [(1.0, "float32"), (5e3, "float64")])
def test_paths_go_to_float64_where_float32_would_blur_the_answer(offset, precision):
    """2^-24 * 5000 / 0.1 = 0.003 posterior sds, more than a tenth of the tolerance 0.02."""
    model, rows = located(offset)
    quantity = {"location": lambda theta: theta}
    result = by_ladder(model, rows, quantity, tolerance=0.02, max_evaluations=3e6)
    assert result.settings["precision"] == precision
    low, high = result["location"].interval
    assert low <= rows["y"].mean() <= high


def test_an_absolute_tolerance_is_in_the_quantitys_own_units():
    model, rows = located(1.0)
    result = by_ladder(model, rows, {"location": lambda theta: theta}, absolute_tolerance=0.05)
    assert result["location"].tolerance == 0.05
    assert result["location"].met
    assert result["location"].standard_error ** 2 + result["location"].bias_bound ** 2 <= 0.05**2


def test_the_precision_asked_for_is_kept():
    model, rows = located(5e3)
    method = tb.Multilevel(precision="float32")
    assert by_ladder(model, rows, tolerance=0.5, method=method).settings["precision"] == "float32"


def test_extending_beyond_what_the_paths_resolve_is_refused():
    model, rows = located(300.0)
    result = by_ladder(model, rows, {"location": lambda theta: theta}, tolerance=0.5)
    assert result.settings["precision"] == "float32"
    with pytest.raises(tb.InputError, match="float32"):
        result.extend(tolerance=1e-3)


def test_a_model_that_only_runs_in_float64_does():
    """A loop whose carry starts as a default float64 cannot be traced with float32 parameters."""
    from jax import lax

    def log_likelihood(theta, row):
        def body(carry, x):
            total, last = carry
            return (total - 0.5 * last**2, x - theta), None

        (total, last), _ = lax.scan(body, (jnp.zeros(()), jnp.zeros(())), row["y"])
        return total - 0.5 * last**2

    model = tb.Model(lambda theta: -0.5 * theta**2, log_likelihood, initial=0.0)
    rows = {"y": np.random.default_rng(0).normal(size=(60, 2))}
    result = by_ladder(model, rows, tolerance=0.5)
    assert result.converged
    assert result.settings["precision"] == "float64"
