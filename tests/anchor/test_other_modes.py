"""Other modes: found in any direction, the heaviest answered first, the others beside it, none where there is one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grouped import grouped
from scenarios import gaussian_rows

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.other_modes import ModeSearch, search_modes
from tallbayes.anchor.screening import NEAR_RADII, Screen, directions
from tallbayes.model.model import Target, bind
from tallbayes.rows.table import Table, make_table

TOLERANCE = 0.1


def mixture(theta: Any, weight: Any, centre: Any, sd: Any = 1.0) -> Any:
    """log of (1 - w) N(0, I) + w N(centre, sd^2 I), but for a constant."""
    first = jnp.log(1 - weight) - 0.5 * jnp.sum(theta**2)
    second = jnp.log(weight) - 0.5 * jnp.sum((theta - centre) ** 2) / sd**2 - jnp.size(theta) * jnp.log(sd)
    return jnp.logaddexp(first, second)


def mixture_prior(weight: float, centre: Any) -> tb.Model:
    """A mixture of which no row says anything."""
    start = np.zeros(np.shape(centre))
    return tb.Model(lambda theta: mixture(theta, weight, centre), lambda theta, row: 0.0 * jnp.sum(theta) * row, start)


def mixture_row(dimension: int) -> tb.Model:
    """One row that says which mixture the posterior is, under a wide prior; one program for all of them."""
    return tb.Model(
        lambda theta: -0.5 * jnp.sum((theta / 50) ** 2),
        lambda theta, row: mixture(theta, row["weight"], row["centre"], row["sd"]),
        np.zeros(dimension),
    )


def searched(model: tb.Model, rows: Any, **options: Any) -> tuple[Anchor, ModeSearch]:
    target, table, start = placed(model, rows)
    anchor = find_anchor(target, table, start)
    return anchor, search_modes(target, table, anchor, **options)


def placed(model: tb.Model, rows: Any) -> tuple[Target, Table, np.ndarray]:
    target, start = bind(model, jax.tree.map(lambda array: array[0], rows))
    return target, make_table(rows, "float64"), start


def ways(dimension: int, count: int) -> np.ndarray:
    """Directions that have nothing to do with those that are looked along."""
    if dimension == 2:
        angles = 2 * np.pi * np.arange(count) / count + 0.1
        return np.column_stack([np.cos(angles), np.sin(angles)])
    z = np.random.default_rng(dimension).standard_normal((count, dimension))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


QUICK = ((1, 0.1), (2, 0.4), (5, 0.9), (10, 0.1))


@pytest.mark.parametrize(
    ("dimension", "weight"),
    [
        pytest.param(dimension, weight, marks=[] if (dimension, weight) in QUICK else [pytest.mark.slow])
        for dimension in (1, 2, 5, 10)
        for weight in (0.1, 0.4, 0.9)
    ],
)
def test_a_mode_is_found_in_every_direction(dimension: int, weight: float) -> None:
    model = mixture_row(dimension)
    for number, way in enumerate(ways(dimension, 12)):
        apart = (6.0, 12.0, 20.0)[number % 3]
        rows = {"weight": np.array([weight]), "centre": apart * way[None], "sd": np.ones(1)}
        _, search = searched(model, rows)
        (peak,) = search.others
        assert peak.share == pytest.approx(min(weight, 1 - weight), rel=0.2)
        assert search.moved is (weight > 0.5)
        heaviest = apart * way if weight > 0.5 else 0 * way
        np.testing.assert_allclose(search.anchor.mode, heaviest, atol=0.3)


@pytest.mark.parametrize("sd", [0.5, 2.0])
@pytest.mark.parametrize("dimension", [1, 2])
def test_a_narrow_or_wide_mode_is_found(dimension: int, sd: float) -> None:
    for way in ways(dimension, 8):
        rows = {"weight": np.array([0.4]), "centre": 12 * way[None], "sd": np.array([sd])}
        assert searched(mixture_row(dimension), rows)[1].others


def test_a_mixture_prior_is_seen_through_the_prior_itself() -> None:
    """0.9 and 0.1, six sds apart: the prior's own Gaussian knows nothing of the second."""
    _, search = searched(mixture_prior(0.1, np.float64(6.0)), np.ones(5))
    assert search.share == pytest.approx(0.1, abs=0.01)
    assert search.second == pytest.approx([6.0], abs=0.01)


def test_control_without_the_screen_it_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screen, "promising", lambda *_: None)
    monkeypatch.setattr(Screen, "scattered", lambda *_: [])
    _, search = searched(mixture_prior(0.1, np.float64(6.0)), np.ones(5))
    assert search.others == ()
    assert search.note.startswith("no second mode found from 0 climbs")


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 40])
def test_directions_are_opposite_pairs_that_leave_no_gap(dimension: int) -> None:
    each = directions(dimension)
    np.testing.assert_allclose(np.linalg.norm(each, axis=1), 1)
    np.testing.assert_allclose(sorted(map(tuple, each)), sorted(map(tuple, -each)), atol=1e-12)
    anywhere = ways(dimension, 200)
    nearest = np.max(anywhere @ each.T, axis=1)
    assert (
        nearest.min() > (1 if dimension == 1 else 0.99 if dimension == 2 else 0.25 if dimension < 16 else 0.05) - 1e-9
    )
    assert NEAR_RADII[0] == 3.0


def two_rows_of(weight: float, centre: float) -> dict[str, np.ndarray]:
    return {"weight": np.array([weight]), "centre": np.array([[centre]]), "sd": np.ones(1)}


@pytest.fixture(scope="module")
def both() -> tb.Result:
    """Started at the mode with 0.3 of the mass, the other 20 sds away."""
    return tb.estimate(mixture_row(1), two_rows_of(0.7, 20.0), tolerance=TOLERANCE, seed=1)


def test_the_answer_is_of_the_heaviest_mode(both: tb.Result) -> None:
    """Four tolerances: once in 16,000 by chance; the mode that was climbed first is 200 away."""
    variance = 1 / (1 + 1 / 50**2)
    assert both.status is tb.Status.second_mode
    assert abs(both["mean"].value[0] - 20.0 * variance) < 4 * TOLERANCE
    assert abs(both["sd"].value[0] - np.sqrt(variance)) < 4 * TOLERANCE
    assert any("the first climb ended at a lighter mode" in note for note in both.notes)


def test_the_other_mode_is_answered_beside_it(both: tb.Result) -> None:
    (mode,) = both.modes
    assert mode.share == pytest.approx(0.3, abs=0.05)
    assert mode.location == pytest.approx([0.0], abs=1e-3)
    assert mode.sd == pytest.approx([1.0], abs=0.01)
    assert mode.result is not None
    assert not mode.result.converged
    assert mode.result["mean"].met
    assert abs(mode.result["mean"].value[0]) < 4 * TOLERANCE


@pytest.mark.parametrize("text", [str, tb.Result.summary], ids=["print", "summary"])
def test_both_are_told_in_words(both: tb.Result, text: Any) -> None:
    told = " ".join(text(both).split())
    assert f"another mode, with {both.modes[0].share:.2g} of the posterior's mass by Laplace's estimate" in told
    assert "of the heaviest, with" in told


def test_both_are_saved(both: tb.Result, tmp_path: Any) -> None:
    both.save(tmp_path / "both.tallbayes")
    (mode,) = tb.load(tmp_path / "both.tallbayes").modes
    kept = both.modes[0]
    assert mode.result is not None
    assert kept.result is not None
    assert (mode.share, mode.reason) == (kept.share, kept.reason)
    np.testing.assert_array_equal(mode.flat_location, kept.flat_location)
    np.testing.assert_array_equal(mode.result["mean"].flat_value, kept.result["mean"].flat_value)
    assert mode.result.posterior is not None


def test_both_are_extended(both: tb.Result) -> None:
    further = both.extend(tolerance=TOLERANCE / 2)
    (mode,) = further.modes
    assert mode.result is not None
    assert mode.result["mean"].met
    assert further["mean"].met
    assert mode.result["mean"].tolerance[0] < TOLERANCE


def test_a_spent_budget_leaves_the_gaussian_of_the_other(both: tb.Result) -> None:
    spent = both.cost.evaluations + 1
    result = tb.estimate(mixture_row(1), two_rows_of(0.7, 20.0), tolerance=TOLERANCE, seed=1, max_evaluations=spent)
    (mode,) = result.modes
    assert mode.result is None
    assert "max_evaluations" in mode.reason or "budget" in mode.reason
    assert "Laplace's Gaussian there" in str(result)
    assert "not answered" in result.summary()


def test_twins_do_not_move_the_anchor() -> None:
    anchor, search = searched(mixture_row(1), two_rows_of(0.5, 12.0))
    assert search.anchor is anchor
    assert search.share == pytest.approx(0.5, abs=0.02)


def negative_binomial() -> tuple[tb.Model, Any]:
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.standard_normal(400), np.ones(400)])
    mean = np.exp(x @ [0.5, 1.0])
    return tb.families.negative_binomial(), {"x": x, "y": rng.negative_binomial(2.0, 2.0 / (2.0 + mean)).astype(float)}


def student() -> tuple[tb.Model, Any]:
    rows = gaussian_rows(300, 3, noise_scale=1.0, seed=12)
    rows["y"] = rows["y"] + np.random.default_rng(4).standard_t(2, 300)
    return tb.families.student_t(), rows


UNIMODAL = {"hierarchical": grouped, "negative binomial": negative_binomial, "student": student}


@pytest.mark.parametrize("name", UNIMODAL)
def test_one_mode_is_not_taken_for_two(name: str) -> None:
    model, rows = UNIMODAL[name]()
    _, search = searched(model, model.check(rows) if model.check is not None else rows)
    assert search.others == ()
    assert search.climbs >= 4
