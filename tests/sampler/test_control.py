"""The control of second order: its means in closed form, for any batch, step, window and taming.

In one dimension, log pi(u) = -u^2/2 + a u + b u^2/2 - c u^4/4 about N(0, 1): r(u) = a + b u - c u^3, so that E r = a
and K = b - 3 c. Half of the quartic is in the rows, unevenly, so that batches of one row err. 8,192 paths; every check
is at 5 standard errors, a false alarm in 6e-7 for one and below 5e-5 for all of them together; the seeds are fixed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.model.model import bind
from tallbayes.model.observables import Observables
from tallbayes.programs.identity import identify
from tallbayes.rows.table import make_table
from tallbayes.sampler.control import Control, make_control
from tallbayes.sampler.levels import Problem, _sample, make_problem
from tallbayes.sampler.paths import Plan

A, B = 0.3, 0.2
CUBIC, LINEAR = 0.1, 0.0
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
LADDER = tb.Ladder(first_step=0.5, start_steps=4, added_steps=2)
BLOCKS = 256


@cache
def placed(c: float, size: float = 1.0) -> Any:
    """With a remainder of some part of its size."""
    a, b, c = size * A, size * B, size * c

    def log_prior(theta: Any) -> Any:
        return -(theta**2) / 2 + a * theta + b * theta**2 / 2 - c * theta**4 / 8

    model = tb.Model(log_prior, lambda theta, row: -c * row["w"] * theta**4 / 8, 0.0)
    rows = {"w": WEIGHTS}
    target, _ = bind(model, jax.tree.map(lambda leaf: leaf[0], rows))
    anchor = Anchor(
        mode=np.zeros(1),
        likelihood_gradient=np.zeros(1),
        likelihood_hessian=np.zeros((1, 1)),
        precision=np.eye(1),
        log_density=0.0,
        passes=0.0,
        num_rows=4,
        gradient=np.array([a]),
        hessian=np.array([[1 - b]]),
        mean_gradient=np.array([a]),
        mean_hessian=np.array([[1 - (b - 3 * c)]]),
    )
    return target, make_table(rows, "float64", shuffle=True), anchor


def problem(c: float, ladder: tb.Ladder = LADDER, dynamics: Any = None, size: float = 1.0, **changes: Any) -> Problem:
    target, table, anchor = placed(c, size)
    parts = tb.Taylor(1, tb.Blocks()), dynamics or tb.Exponential(), tb.Antithetic(), Observables(True, ())
    plan = Plan(target, *parts, "float64", laplace=True, slabs=True, control=True)
    return make_problem(plan, table, replace(anchor, **changes), ladder, 5, (), batch_size=1)


def control_score(this: Problem, level: int) -> float:
    """How far the mean of what is taken off is from the one that is added, in standard errors."""
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda block: _sample(this, level, block)[-1], range(BLOCKS)))
    found = np.concatenate(parts)
    assert this.ground.control is not None
    error = found.std(axis=0) / np.sqrt(len(found))
    return float(np.abs((found.mean(axis=0) - this.ground.control.mean(this.ladder, level)) / error).max())


KINETIC = tb.Kinetic(friction=1.5)
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("c", "window", "dynamics"),
    [(LINEAR, 3, tb.Exponential()), (CUBIC, 0, tb.Exponential())]
    + [pytest.param(c, window, tb.Exponential(), marks=SLOW) for c, window in ((LINEAR, 0), (CUBIC, 3))]
    + [(CUBIC, 3, KINETIC), *(pytest.param(c, window, KINETIC, marks=SLOW) for c, window in ((CUBIC, 0), (LINEAR, 3)))],
)
def test_means_are_those_of_the_closed_forms(c: float, window: int, dynamics: Any) -> None:
    this = problem(c, replace(LADDER, window_steps=window), dynamics)
    assert max(control_score(this, level) for level in (0, 1, 2)) < 5


def test_means_by_hand() -> None:
    """At the end of level 0: T = 2 in steps of 1/2, for u and for u^2."""
    control = make_control(placed(CUBIC)[0], Observables(True, ()), placed(CUBIC)[2])
    decay = np.exp(-0.5)
    expected = [(1 - np.exp(-2)) * A, 2 * decay * (1 - np.exp(-4)) / (1 + decay) * (B - 3 * CUBIC)]
    np.testing.assert_allclose(control.mean(LADDER, 0), expected, rtol=1e-9)
    below = control.mean(LADDER, 0)
    fine = [(1 - np.exp(-3)) * A, 2 * np.exp(-0.25) * (1 - np.exp(-6)) / (1 + np.exp(-0.25)) * (B - 3 * CUBIC)]
    np.testing.assert_allclose(control.mean(LADDER, 1), np.array(fine) - below, rtol=1e-9)


def test_kinetic_means_by_hand() -> None:
    """One kick of h = 1/2, half a step ago: y = h E_zv(h/2) r(u), and u_z has E_zz(h/2) of where it was read."""
    dynamics = tb.Kinetic()
    control = make_control(placed(CUBIC)[0], Observables(True, ()), placed(CUBIC)[2], dynamics=dynamics)
    push, kept = 0.25 * np.exp(-0.25), 1.25 * np.exp(-0.25)
    expected = [0.5 * push * A, 2 * 0.5 * push * kept * (B - 3 * CUBIC)]
    np.testing.assert_allclose(control.mean(tb.Ladder(0.5, start_steps=1, added_steps=1), 0), expected, rtol=1e-12)
    # Of many small steps: 1 - E_zz(T), and E_zv(T)^2 / 2 + ... as integrals have it.
    first, second = dynamics.response(0.01, np.array([200]))
    assert first == pytest.approx(1 - dynamics.flow(2.0)[0, 0], rel=1e-4)
    times = np.linspace(0, 2, 2001)
    flows = dynamics.flow(times)
    assert second == pytest.approx(np.trapezoid(flows[:, 0, 1] * flows[:, 0, 0], times), rel=1e-4)


def test_a_tamed_path_leaves_the_control_as_it_is() -> None:
    """Every step is held back, and by far; the mean of y knows nothing of it."""
    this = problem(CUBIC, dynamics=tb.Exponential(bound=0.05))
    assert this.sample(0, 0).strained > 0.5
    assert max(control_score(this, level) for level in (0, 1)) < 5


@dataclass(frozen=True)
class Tamed(tb.Exponential):
    """A y that is held back like the path."""

    def follow(self, coefficients: Any, state: Any, remainder: Any) -> Any:
        return tb.Exponential.step(self, coefficients, state, remainder, jnp.zeros_like(state))


def test_control_a_tamed_y_is_another_matter() -> None:
    assert control_score(problem(CUBIC, dynamics=Tamed(bound=0.5)), 0) > 8


@pytest.mark.parametrize("part", ["mean_gradient", "mean_hessian"])
def test_control_averages_that_are_off(part: str) -> None:
    """By a tenth, of which no sample would tell."""
    wrong = getattr(placed(CUBIC)[2], part) + 0.1
    assert control_score(problem(CUBIC, **{part: wrong}), 0) > 8


def test_what_is_left_is_of_second_order() -> None:
    """A sixth of the remainder leaves a 36th of the variance's share: 512 paths tell it from a sixth."""

    def left(size: float) -> float:
        blocks = [problem(CUBIC, size=size).sample(0, block) for block in range(16)]
        return float(np.sum([b.delta.variance[0] for b in blocks]) / np.sum([b.fine.variance[0] for b in blocks]))

    assert left(1 / 6) < left(1.0) / 15


def observed(functions: Any) -> Control:
    target, _, anchor = placed(CUBIC)
    theta = np.zeros(())
    return make_control(target, Observables(False, tuple(identify(each, theta) for each in functions)), anchor)


def test_an_observable_without_a_guide_is_left_alone() -> None:
    smooth, jump, steep = lambda t: 2 * jnp.sin(t / 2), lambda t: jnp.where(t > 0.3, 1.0, 0.0), lambda t: jnp.exp(8 * t)
    control = observed([smooth, jump, steep, lambda t: jnp.sqrt(jnp.abs(t))])
    assert control.used.tolist()[0] is True
    assert not control.used[2:].any()
    np.testing.assert_array_equal(control.shift[~control.used], 0)
    # A slope of 1 and no bend at the centre.
    np.testing.assert_allclose([control.shift[0], control.bend[0]], [A, 0.0], atol=1e-12)


def test_without_a_control_no_program_changes() -> None:
    this = problem(CUBIC)
    plain = this.uncontrolled()
    assert plain is not None
    assert plain.uncontrolled() is None
    assert "controlled" in this.identity
    assert "controlled" not in plain.identity
    one, two = this.sample(1, 0), plain.sample(1, 0)
    np.testing.assert_allclose(one.fine.mean, two.fine.mean, rtol=1e-12)
    np.testing.assert_allclose(one.coarse.mean, two.coarse.mean, rtol=1e-12)
    np.testing.assert_array_equal(two.delta.mean, plain.differences(1, 0).mean(axis=0))
    np.testing.assert_allclose(one.delta.mean, this.differences(1, 0).mean(axis=0), rtol=1e-12)
