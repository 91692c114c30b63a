"""Centres: the gradient about a Gaussian that has moved without a pass, and the control whose means are drawn."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from scenarios import logistic_by_hand, logistic_rows

import tallbayes as tb
from tallbayes.anchor.expansion import average, expand, sums_of_table
from tallbayes.anchor.mode import expanded_there, find_anchor
from tallbayes.arrivals.centre import Expanded, has_third
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.methods.anchored import Anchored
from tallbayes.model.model import bind
from tallbayes.rows.table import check_rows, make_table
from tallbayes.sampler.gradients import Blend, Taylor, whitened_remainder
from tallbayes.sampler.inputs import make_inputs
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.minibatch import Blocks
from tallbayes.setup.guide import Guide
from tallbayes.setup.preparation import Prepared
from tallbayes.setup.quantities import make_estimands

NUM_ROWS = 256


def moved(by_hand=False, rows=NUM_ROWS, far=0.4, third=False):
    """An anchor a step from where rows are expanded, of rows that pull it from there; perhaps to third order."""
    data = check_rows(logistic_rows(rows, (0.9, -0.6, 0.4), seed=2))
    model = logistic_by_hand(3) if by_hand else tb.families.logistic()
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, "float64")
    mode = find_anchor(target, table, start)
    here = expand(target, table, mode.mode + far * mode.displacements(np.array([1.0, -1.0, 0.5])))
    centre = Expanded(here.theta, here.value, here.likelihood_gradient, here.likelihood_hessian, table.num_rows)
    return target, table, mode, (centre.with_third(target, table, None) if third else centre).anchor(target)


def remainder_of_all(target, table, anchor, gradient, points):
    """r at points by a batch that is all rows."""
    method = Anchored(precision="float64")
    prepared = Prepared(target, table, anchor, 0, "float64", "float64")
    estimands = make_estimands(None, target, anchor, table.units)
    plan = method.problem(prepared, estimands, 0).plan
    problem = make_problem(replace(plan, gradient=gradient), table, anchor, tb.Ladder(1.0), 0, (), table.num_rows)
    with jax.enable_x64(True):
        one = partial(whitened_remainder, target, gradient, problem.inputs)
        return np.stack([np.asarray(one(point, np.int32(0))) for point in points])


@pytest.mark.parametrize("gradient", [Taylor(1, Blocks()), Blend(1, Blocks()), Blend(1, Blocks(), radius=0.5)])
@pytest.mark.parametrize(("by_hand", "third"), [(False, False), (True, False), (False, True)])
def test_the_gradient_of_all_rows_is_exact_wherever_they_are_expanded(gradient, by_hand, third):
    target, table, _, anchor = moved(by_hand, third=third)
    assert (anchor.third is not None) is third
    points = np.random.default_rng(0).standard_normal((3, 3))
    found = remainder_of_all(target, table, anchor, gradient, points)
    for point, each in zip(points, found, strict=True):
        slope = expand(target, table, anchor.mode + anchor.displacements(point)).gradient
        np.testing.assert_allclose(each, anchor.whitening.T @ slope + point, atol=1e-9)


def test_without_the_step_it_would_be_another():
    """The control."""
    target, table, _, anchor = moved()
    points = np.random.default_rng(0).standard_normal((1, 3))
    found, without = (
        remainder_of_all(target, table, each, Taylor(1, Blocks()), points)
        for each in (anchor, replace(anchor, step=None))
    )
    assert np.abs(found - without).max() > 1e-3


def remainders_by_row(target, table, anchor, points):
    """r at points by every batch of one row, (points, rows, d)."""
    inputs = make_inputs(table, anchor, "float64", 1)
    with jax.enable_x64(True):
        one = partial(whitened_remainder, target, Taylor(1, Blocks()), inputs)
        firsts = np.arange(table.num_rows, dtype=np.int32)
        return np.asarray(jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(points, firsts))


def test_batches_about_third_derivatives_are_right_on_average_and_quiet():
    """Over all of them, so that nothing is random; far out as well, where the square lets go. With derivatives that are
    a tenth off they are not."""
    target, table, _, anchor = moved(third=True)
    points = np.random.default_rng(0).standard_normal((2, 3)) * np.array([[1.0], [6.0]])
    exact = np.stack([expand(target, table, anchor.mode + anchor.displacements(u)).gradient for u in points])
    exact = exact @ anchor.whitening + points
    found = remainders_by_row(target, table, anchor, points)
    np.testing.assert_allclose(found.mean(axis=1), exact, atol=1e-9)
    off = remainders_by_row(target, table, replace(anchor, third=1.1 * anchor.third), points)
    assert np.abs(off.mean(axis=1) - exact)[0].max() > 1e-4
    second = remainders_by_row(target, table, moved()[3], points)
    assert found[0].var(axis=0).sum() < second[0].var(axis=0).sum() / 20


def test_one_pass_where_the_sums_lead_makes_a_centre_and_elsewhere_none():
    target, table, _, anchor = moved(third=True)
    found = Expanded.to_third(target, table, anchor.mode, None).anchor(target)
    np.testing.assert_allclose(found.gradient, 0, atol=1e-6)
    assert np.abs((found.mode - anchor.mode) / anchor.sd).max() < 0.05
    assert Expanded.to_third(target, table, anchor.mode + 100 * anchor.sd, None) is None


def test_third_derivatives_are_those_of_the_hessian():
    target, table, mode, _ = moved()
    *_, third = sums_of_table(target, table, mode.mode, third=True)
    along = mode.sd * 1e-3
    there, opposite = (expand(target, table, mode.mode + sign * along).likelihood_hessian for sign in (1, -1))
    np.testing.assert_allclose(third @ along, (there - opposite) / 2, rtol=1e-5, atol=1e-9 * np.abs(third).max())
    # Whatever the order of its axes, and by codes as by columns.
    np.testing.assert_allclose(third, third.transpose(2, 0, 1), rtol=1e-9)
    assert not has_third(target, 10**12)
    assert not has_third(moved(by_hand=True)[0], 10)


def test_sums_of_third_derivatives_lead_closer_to_the_mode():
    """From a whole sd away, of few rows."""
    off = []
    for third in (False, True):
        _, _, mode, anchor = moved(rows=400, far=1.0, third=third)
        off.append(np.abs(mode.factor.T @ (anchor.mode - mode.mode)).max())
    assert off[1] < off[0] / 5


def test_a_step_leads_to_the_mode_as_newton_does():
    _, _, mode, anchor = moved(rows=20_000, far=1.0)
    off = mode.factor.T @ (anchor.mode - mode.mode)
    assert np.linalg.norm(anchor.factor.T @ anchor.step) > 1
    assert np.abs(off).max() < 0.05
    np.testing.assert_allclose(anchor.gradient, 0, atol=1e-6)


def test_an_anchor_is_expanded_where_it_is_for_who_needs_it():
    target, table, _, anchor = moved()
    exact = expanded_there(target, table, anchor)
    here = expand(target, table, anchor.mode)
    np.testing.assert_allclose(exact.gradient, here.gradient)
    np.testing.assert_allclose(exact.hessian, here.hessian)
    np.testing.assert_array_equal(exact.precision, anchor.precision)
    assert exact.step is None
    assert expanded_there(target, table, exact) is exact


@pytest.mark.parametrize("forgets_half", [False, True])
def test_a_guide_knows_its_means_within_its_errors(forgets_half):
    """E r and E grad r by quadrature; the control is a guide that takes r(u) for its even part."""
    target, table, mode, _ = moved(rows=40, far=0.0)
    averages = average(target, table, mode.mode, mode.whitening)
    prepared = Prepared(target, table, mode, 0, "float64", "float64")
    estimands = make_estimands(None, target, mode, table.units)
    problem = Anchored(precision="float64").problem(prepared, estimands, 5)
    problem = problem.with_choice(problem.ladder, 4)
    found = np.concatenate([problem.remainders(block) for block in range(128)])
    assert found.shape == (128 * BLOCK_PATHS, 3, 3)
    guide = Guide.of(found, 0)
    even = found[:, 1] / 2 if forgets_half else guide.even
    exact = averages.gradient @ mode.whitening
    error = even.std(axis=0) / np.sqrt(len(even))
    # Of three normal numbers: five sds have a chance of 2e-6.
    assert (np.abs((even.mean(axis=0) - exact) / error).max() < 5) is not forgets_half
    bend = np.eye(3) - mode.whitening.T @ averages.hessian @ mode.whitening
    products = guide.odd[:, :, None] * guide.points[:, None]
    off = (products.mean(axis=0) - bend) / (products.std(axis=0) / np.sqrt(len(products)))
    assert np.abs(off).max() < 5.2
    known = guide.known_by(mode)
    shift, again = known.mean_remainder
    np.testing.assert_allclose(shift, guide.even.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(again, (products.mean(axis=0) + products.mean(axis=0).T) / 2, atol=1e-9)
