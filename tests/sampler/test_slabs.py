"""Batches read in slabs, and the whitened remainder: against plain sums in NumPy, exactly, in float64.

A batch is a run of n consecutive places from a start that is drawn uniformly. So its expectation is the mean over all
starts, which is taken here in full: nothing in this file is random.
"""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import logistic_by_hand, logistic_rows

import tallbayes as tb
from tallbayes.anchor import importance
from tallbayes.anchor.importance import list_rows
from tallbayes.anchor.mode import find_anchor
from tallbayes.estimator.levels import sample_contraction, sample_level
from tallbayes.model.model import bind
from tallbayes.model.observables import Observables
from tallbayes.rows.table import SHUFFLE_SEED, check_rows, make_table
from tallbayes.sampler.gradients import centre_rows, row_terms, whitened_remainder
from tallbayes.sampler.inputs import make_inputs
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.paths import Plan

NUM_ROWS, D = 11, 3
FAMILY, BY_HAND = tb.families.logistic(prior_scale=2.0), logistic_by_hand(D, prior_scale=2.0)
ROWS = logistic_rows(NUM_ROWS, (1.0, -2.0, 0.5), seed=2)
Z = np.array([0.7, -1.1, 0.4])
GRADIENTS = [
    tb.Plain(1, tb.Blocks()),
    tb.ControlVariate(1, tb.Blocks()),
    tb.Taylor(1, tb.Blocks()),
    tb.Blend(1, tb.Blocks()),
    tb.Blend(1, tb.Blocks(), partner=tb.Plain, radius=1.5),
]


@cache
def prepared(by_hand=False, diagonal=False):
    model = BY_HAND if by_hand else FAMILY
    data = check_rows(ROWS)
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, "float64", shuffle=True)
    return target, table, find_anchor(target, table, start, dense_limit=0 if diagonal else D)


@cache
def listing(by_hand=False):
    """By leverage, although Gaussian covariates do not ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importance, "WORTHWHILE", 0.0)
        made = list_rows(*prepared(by_hand))
    assert made.length > NUM_ROWS
    return made


@cache
def sums(gradient, by_hand=False, listed=None):
    """row_terms with their controls as a function of (displacement, start, n), compiled once for all of them."""
    target, table, anchor = prepared(by_hand)
    inputs = make_inputs(table, anchor, "float64", 1, listed)

    @jax.jit
    def every_start(displacement, starts, size):
        here = inputs._replace(batch_size=size)
        b, c = gradient.controls(inputs.centre, displacement)
        return jax.vmap(lambda start: row_terms(target, gradient, here, displacement, start, b, c))(starts)

    def call(displacement, starts, size):
        with jax.enable_x64(True):
            return np.asarray(every_start(displacement, np.asarray(starts, np.int32), np.int32(size)))

    return call


def controls_by_hand(gradient, anchor, v):
    w = 1.0
    if isinstance(gradient, tb.Blend):
        w = 1 / (1 + (v @ anchor.precision @ v / (gradient.radius or 2 * np.sqrt(D)) ** 2) ** 2)
    if isinstance(gradient, tb.Plain):
        return 0.0, 0.0
    if isinstance(gradient, tb.ControlVariate):
        return 1.0, 0.0
    return (w if isinstance(gradient, tb.Blend) and gradient.partner is tb.Plain else 1.0), w


def terms_by_hand(gradient, anchor, v):
    """grad_i(theta) - b grad_i(theta_0) - c Hess_i v of every row, in the table's order."""
    order = np.random.default_rng(SHUFFLE_SEED).permutation(NUM_ROWS)
    x, y = ROWS["x"][order], ROWS["y"][order]
    b, c = controls_by_hand(gradient, anchor, v)
    here, there = (1 / (1 + np.exp(-x @ theta)) for theta in (anchor.mode, anchor.mode + v))
    return x * ((y - there) - b * (y - here) + c * here * (1 - here) * (x @ v))[:, None]


@pytest.mark.parametrize(
    ("gradient", "by_hand"), [*((gradient, False) for gradient in GRADIENTS[::2]), (GRADIENTS[-1], True)], ids=str
)
def test_a_batch_in_slabs_is_the_sum_over_its_rows(gradient, by_hand):
    """At every start, so with and without wrapping; n = 1, a multiple of four, none, and all rows."""
    anchor = prepared(by_hand)[2]
    v = anchor.whitening @ Z
    terms = terms_by_hand(gradient, anchor, v)
    for size in (1, 4, 6, NUM_ROWS):
        rows = (np.arange(NUM_ROWS)[:, None] + np.arange(size)) % NUM_ROWS
        expected = NUM_ROWS / size * terms[rows].sum(axis=1)
        found = sums(gradient, by_hand)(v, range(NUM_ROWS), size)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("by_hand", "listed"),
    [(False, False), (False, True), (True, True)],
    ids=["family", "family, list", "by hand, list"],
)
def test_batches_are_unbiased(by_hand, listed):
    """Over all starts the mean is the sum over all rows, for any n; a batch of all places is that sum at any start."""
    gradient, anchor = GRADIENTS[3], prepared(by_hand)[2]
    v = anchor.whitening @ Z
    whole = terms_by_hand(gradient, anchor, v).sum(axis=0)
    places = listing(by_hand) if listed else None
    length = places.length if listed else NUM_ROWS
    # The weights of a list are held in float32, so its sum is exact to their rounding.
    close = partial(np.testing.assert_allclose, rtol=1e-6 if listed else 1e-10, atol=1e-7 if listed else 1e-12)
    at = sums(gradient, by_hand, places)
    for size in (1, 3, 8):
        close(at(v, range(length), size).mean(axis=0), whole)
    close(at(v, range(length), length), np.tile(whole, (length, 1)))


def test_control_batches_that_do_not_wrap_are_biased():
    """Starts that leave the last rows out of no batch but give them less weight."""
    gradient, anchor = GRADIENTS[0], prepared()[2]
    v = anchor.whitening @ Z
    inside = sums(gradient)(v, range(NUM_ROWS - 4), 4).mean(axis=0)
    assert np.abs(inside - terms_by_hand(gradient, anchor, v).sum(axis=0)).max() > 0.1


def test_control_a_list_without_its_weights_is_biased():
    anchor = prepared()[2]
    v = anchor.whitening @ Z
    wrong = replace(listing(), weights=np.ones_like(listing().weights))
    found = sums(GRADIENTS[0], listed=wrong)(v, [0], wrong.length)
    assert np.abs(found - terms_by_hand(GRADIENTS[0], anchor, v).sum(axis=0)).max() > 0.1


@pytest.mark.parametrize("by_hand", [False, True], ids=["family", "by hand"])
@pytest.mark.parametrize("diagonal", [False, True], ids=["dense", "diagonal"])
def test_the_whitened_remainder_is_the_gradient_without_its_gaussian_part(by_hand, diagonal):
    """r(z) = W^T grad log pi(theta_0 + W z | X) + z by jax.grad of the whole log posterior, for batches of all rows."""
    target, table, anchor = prepared(by_hand, diagonal)
    assert anchor.is_diagonal is diagonal
    kept = GRADIENTS[:2] if diagonal else GRADIENTS[-1:] if by_hand else [*GRADIENTS, *static_gradients()]
    # Of a model by hand the prior is expanded by its matrix, as paths do.
    inputs = make_inputs(table, anchor, "float64", NUM_ROWS, by_matrix=by_hand)

    def log_posterior(z):
        theta = anchor.mode + (anchor.whitening * z if diagonal else anchor.whitening @ z)
        eta = ROWS["x"] @ theta
        return jnp.sum(ROWS["y"] * eta - jnp.logaddexp(0.0, eta)) - 0.5 * jnp.sum((theta / 2.0) ** 2)

    @jax.jit
    def remainders(z):
        everything = jax.tree.map(lambda leaf: leaf[:NUM_ROWS], table.rows)
        found = []
        for gradient in [tb.Full(), *kept]:
            static = gradient.batch_size == NUM_ROWS
            batch = centre_rows(target, inputs.centre, everything) if static else jnp.int32(5)
            found.append(whitened_remainder(target, gradient, inputs, z, batch))
        return jnp.stack(found), jax.grad(log_posterior)(z) + z

    with jax.enable_x64(True):
        for z in (Z, 0.01 * Z, 3 * Z):
            found, expected = remainders(z)
            np.testing.assert_allclose(found, np.tile(expected, (len(found), 1)), rtol=1e-8, atol=1e-10)


def static_gradients():
    return [tb.Plain(NUM_ROWS), tb.ControlVariate(NUM_ROWS), tb.Taylor(NUM_ROWS), tb.Blend(NUM_ROWS)]


def test_the_remainder_is_quadratic_at_the_mode_to_the_last_digit():
    """r(e z) / e^2 settles as e falls to 1e-6: nothing of the linear part is left to cancel."""
    target, table, anchor = prepared()
    inputs = make_inputs(table, anchor, "float64", NUM_ROWS)
    remainder = jax.jit(lambda z: whitened_remainder(target, GRADIENTS[2], inputs, z, jnp.int32(0)))
    with jax.enable_x64(True):
        far, near = ((np.asarray(remainder(e * Z)) - np.asarray(remainder(0 * Z))) / e**2 for e in (1e-3, 1e-6))
    np.testing.assert_allclose(near, far, rtol=5e-3)


def test_the_batch_size_the_step_and_the_time_are_arguments(compilations):
    """One program for all that a tuner tries, and one for pairs of paths."""
    target, table, anchor = prepared()
    plan = Plan(
        target,
        tb.Taylor(1, tb.Blocks()),
        tb.Exponential(),
        tb.Antithetic(),
        Observables(True, ()),
        "float64",
        laplace=True,
        slabs=True,
    )
    first = make_problem(plan, table, anchor, tb.Ladder(1.0, 3, 3), 0, (), batch_size=1)
    before = sample_level(first, 1, 0), sample_contraction(first, 0)
    compilations.clear()
    for this in (
        first.with_choice(first.ladder, 4),
        first.with_choice(tb.Ladder(0.125, 40, 40), NUM_ROWS),
        replace(first, ladder=tb.Ladder(0.5, 5, 7, window_steps=3)).for_tuning(),
    ):
        after = sample_level(this, 2, 1), sample_contraction(this, 1, 3.0)
        assert after[0].evaluations == 32 * this.rows_per_gradient * this.ladder.path_steps(2, 2)
        assert np.any(after[0].delta.mean != before[0].delta.mean)
    assert compilations == []


def test_control_another_gradient_is_another_program(compilations):
    target, table, anchor = prepared()
    plan = Plan(target, tb.Full(), tb.Exponential(), tb.Antithetic(), Observables(True, ()), "float64", laplace=True)
    sample_contraction(make_problem(plan, table, anchor, tb.Ladder(1.0, 3, 3), 0, ()), 0)
    assert compilations != []
