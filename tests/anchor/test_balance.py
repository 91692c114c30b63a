"""No mode to climb to: centred effects are anchored in balance, end in a result, and what is open is named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.balance import Balance, Gaussian, ascend, first_gaussian
from tallbayes.anchor.expansion import Survey
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.recentring import find_mode_or_balance
from tallbayes.errors import NoConvergenceError
from tallbayes.model.model import bind
from tallbayes.rows.table import make_table

SCHOOLS = {
    "school": np.arange(8, dtype=np.int32),
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    "sd": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
}


def eight_schools() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """theta_j ~ N(mu, tau^2), y_j ~ N(theta_j, sd_j^2), mu ~ N(0, 5^2), tau half-Cauchy(5): centred."""

    def log_prior(theta: Any) -> Any:
        effects = -8 * jnp.log(theta["tau"]) - 0.5 * jnp.sum((theta["theta"] - theta["mu"]) ** 2) / theta["tau"] ** 2
        return effects - 0.5 * (theta["mu"] / 5) ** 2 - jnp.log1p((theta["tau"] / 5) ** 2)

    model = tb.Model(
        log_prior,
        lambda theta, row: -0.5 * ((row["y"] - theta["theta"][row["school"]]) / row["sd"]) ** 2,
        {"mu": 0.0, "tau": 1.0, "theta": np.zeros(8)},
        constraints={"tau": tb.constraints.positive},
    )
    return model, SCHOOLS


STUDENTS, LECTURERS, NOISE = 40, 15, 1.1


def crossed(logistic: bool = False) -> tuple[tb.Model, dict[str, np.ndarray]]:
    """Students and lecturers, crossed and centred, with half-normal scales."""
    rng = np.random.default_rng(0)
    rows = {"s": rng.integers(0, STUDENTS, 600).astype(np.int32), "l": rng.integers(0, LECTURERS, 600).astype(np.int32)}
    eta = 0.3 + 0.5 * rng.normal(size=STUDENTS)[rows["s"]] + 0.6 * rng.normal(size=LECTURERS)[rows["l"]]
    y = (rng.random(600) < 1 / (1 + np.exp(-eta))).astype(float) if logistic else eta + NOISE * rng.normal(size=600)

    def effects(each: Any, scale: Any) -> Any:
        return -len(each) * jnp.log(scale) - 0.5 * jnp.sum((each / scale) ** 2) - 0.5 * scale**2

    def log_prior(theta: Any) -> Any:
        scales = theta["scale"]
        return effects(theta["a"], scales[0]) + effects(theta["b"], scales[1]) - 0.5 * (theta["mu"] / 5) ** 2

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = theta["mu"] + theta["a"][row["s"]] + theta["b"][row["l"]]
        if logistic:
            return row["y"] * eta - jax.nn.softplus(eta)
        return -0.5 * ((row["y"] - eta) / NOISE) ** 2

    start = {"mu": 0.0, "a": np.zeros(STUDENTS), "b": np.zeros(LECTURERS), "scale": np.ones(2)}
    return tb.Model(log_prior, log_likelihood, start, constraints={"scale": tb.constraints.positive}), rows | {"y": y}


def placed(model: tb.Model, rows: Any) -> Any:
    target, start = bind(model, jax.tree.map(lambda array: array[0], rows))
    return target, make_table(rows, "float64"), start


CENTRED = {"schools": eight_schools, "normal": crossed, "logistic": lambda: crossed(logistic=True)}


@pytest.mark.parametrize(
    "name",
    ["schools", pytest.param("normal", marks=pytest.mark.slow), pytest.param("logistic", marks=pytest.mark.slow)],
)
def test_centred_effects_are_anchored_in_balance(name: str) -> None:
    target, table, start = placed(*CENTRED[name]())
    anchor = find_mode_or_balance(target, table, start)
    assert not anchor.has_mode
    assert anchor.recentred
    assert anchor.curvatures[0] > 0
    assert anchor.passes > 0
    survey = Survey(target, table)
    balance, found = Balance(survey, target.dimension), Gaussian(anchor.mode, anchor.precision)
    # In balance by draws that the climb has not seen, and better than where it began.
    balance.z = np.random.default_rng(1).standard_normal((256, target.dimension))
    mean = balance.gradients(found, anchor.gradient).mean(axis=0)
    assert np.linalg.norm(mean) < 0.5 * np.sqrt(target.dimension)
    assert balance.bound(found) > balance.bound(first_gaussian(survey(start))) + 10


def test_control_no_climb_ends() -> None:
    with pytest.raises(NoConvergenceError):
        find_anchor(*placed(*eight_schools()))


def normal_scales(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of both scales by quadrature, with mu and the effects integrated out."""
    y, ones = rows["y"], np.ones(len(rows["y"]))
    design = np.column_stack([ones, np.eye(STUDENTS)[rows["s"]], np.eye(LECTURERS)[rows["l"]]])
    gram, moments = design.T @ design / NOISE**2, design.T @ y / NOISE**2
    grid = np.linspace(0.1, 1.6, 91)
    value = np.empty((len(grid), len(grid)))
    for i, first in enumerate(grid):
        for j, second in enumerate(grid):
            prior = np.concatenate([[1 / 25], np.full(STUDENTS, first**-2), np.full(LECTURERS, second**-2)])
            factor = np.linalg.cholesky(gram + np.diag(prior))
            half = np.linalg.solve(factor, moments)
            value[i, j] = half @ half / 2 - np.log(np.diag(factor)).sum() + np.log(prior).sum() / 2
            value[i, j] -= (first**2 + second**2) / 2
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    margins = [weight.sum(axis=1), weight.sum(axis=0)]
    mean = np.array([margin @ grid for margin in margins])
    return mean, np.sqrt([margin @ (grid - m) ** 2 for margin, m in zip(margins, mean, strict=True)])


@pytest.mark.slow
def test_crossed_effects_agree_with_quadrature() -> None:
    """Four tolerances for four numbers: one false alarm in 4,000 by chance; the seed is fixed."""
    model, rows = crossed()
    result = tb.estimate(model, rows, tolerance=0.1, seed=1)
    assert result.converged, str(result)
    assert result.notes[0].startswith("centre: the joint density has no mode")
    mean, sd = normal_scales(rows)
    assert np.all(np.abs(result["mean"].value["scale"] - mean) < 0.4 * sd)
    assert np.all(np.abs(result["sd"].value["scale"] - sd) < 0.4 * sd)
    again = tb.estimate(model, rows, ["mean"], tolerance=0.5, seed=2, anchor=result.anchor)
    assert not again.anchor.has_mode


@pytest.mark.slow
def test_eight_schools_end_in_a_result() -> None:
    """The neck of the funnel: no step fits it, and no claim is made within this budget."""
    model, rows = eight_schools()
    result = tb.estimate(model, rows, ["mean"], tolerance=0.2, seed=1, max_evaluations=1e6)
    assert not result.converged
    assert np.all(np.isfinite(result["mean"].flat_value))


def test_a_posterior_without_balance_names_its_parameters() -> None:
    """Nothing holds the scale from below, nor the slope from above."""
    model = tb.Model(
        lambda theta: -jnp.log(theta["scale"]) * 20 + theta["slope"],
        lambda theta, row: -0.5 * jnp.sum((theta["effects"] / theta["scale"]) ** 2) + 0.0 * row,
        {"effects": np.zeros(3), "scale": 1.0, "slope": 0.0},
        constraints={"scale": tb.constraints.positive},
    )
    with pytest.raises(tb.PosteriorError, match=r"slope|scale") as caught:
        find_mode_or_balance(*placed(model, np.ones(5)))
    assert all(part in str(caught.value) for part in ("expected", "got", "Try", "non-centred"))


def test_labels_are_the_owners_names() -> None:
    target, _, _ = placed(*eight_schools())
    assert target.space.labels() == ["mu", "tau", *(f"theta[{j}]" for j in range(8))]


def test_a_gaussian_is_its_own_balance() -> None:
    """E grad and E Hessian of a Gaussian are exact by any draws: one full move and a geometric renewal of P."""
    precision = np.array([[2.0, 0.5], [0.5, 1.0]])
    model = tb.Model(lambda t: -0.5 * (t - 3.0) @ precision @ (t - 3.0), lambda t, row: 0.0 * t[0] * row, np.zeros(2))
    target, table, start = placed(model, np.ones(4))
    survey = Survey(target, table)
    found, everywhere = ascend(Balance(survey, 2), Gaussian(start, 5 * np.eye(2)))
    assert everywhere is not None
    assert np.linalg.norm(found.theta - 3.0) < 0.5
    ratios = np.linalg.eigvalsh(np.linalg.solve(found.precision, precision))
    assert np.all((ratios > 0.5) & (ratios < 2))
