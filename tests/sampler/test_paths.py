"""One coupled path against the same path written out in NumPy: same draws, every gradient and coupling, float64.

Nothing is random here but the draws both sides share, so they must agree to rounding.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import paper
import pytest
from scipy.linalg import expm

import tallbayes as tb
from tallbayes.anchor.mode import find_anchor
from tallbayes.estimator.levels import Stream, sample_level
from tallbayes.model.model import bind
from tallbayes.model.observables import Observables
from tallbayes.rows.table import check_rows, make_table
from tallbayes.sampler.draws import STRETCH, gather, pick
from tallbayes.sampler.levels import make_problem, schedule_of
from tallbayes.sampler.paths import PHASES, Plan, make_drawer, sample_path
from tallbayes.sampler.randomness import path_key, phase_words, seed_words

NUM_ROWS, SIZE, SEED, PATH = 40, 3, 11, 5
GRADIENTS = [
    tb.Full(),
    tb.Plain(SIZE),
    tb.ControlVariate(SIZE),
    tb.Taylor(SIZE),
    tb.Blend(SIZE),
    tb.Blend(SIZE, partner=tb.Plain, radius=1.5),
]
EULER, KINETIC = tb.Euler(), tb.Kinetic(friction=1.5)


@cache
def by_hand():
    def log_likelihood(theta, row):
        eta = row["x"] @ theta
        return row["y"] * eta - jnp.logaddexp(0.0, eta)

    return tb.Model(lambda theta: -0.5 * jnp.sum(theta**2), log_likelihood, np.zeros(3))


@cache
def prepared(model, precision):
    data = check_rows(paper.rows(NUM_ROWS))
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, precision)
    return target, table, find_anchor(target, table, start)


def make(model, gradient, coupling, window_steps, precision="float64", dynamics=EULER):
    target, table, anchor = prepared(model, precision)
    plan = Plan(target, gradient, dynamics, coupling, Observables(True, ()), precision)
    first_step = 0.8 if dynamics.whitened else 0.4 / anchor.curvatures[-1]
    ladder = tb.Ladder(first_step, start_steps=4, added_steps=3, window_steps=window_steps)
    return make_problem(plan, table, anchor, ladder, SEED, pairs=()), anchor


def gradient_by_hand(gradient, anchor, v, x, y):
    """The estimate at theta_0 + v on the rows x, y."""
    theta = anchor.mode + v
    prior = -theta
    if gradient.batch_size is None:
        rows = paper.rows(NUM_ROWS)
        x, y = rows["x"], rows["y"]
        return prior + x.T @ (y - _sigmoid(x @ theta))
    w = 1.0
    if isinstance(gradient, tb.Blend):
        radius = gradient.radius or 2 * np.sqrt(len(v))
        w = 1 / (1 + (v @ anchor.precision @ v / radius**2) ** 2)
    b = {tb.Plain: 0.0, tb.ControlVariate: 1.0, tb.Taylor: 1.0}.get(type(gradient))
    c = {tb.Plain: 0.0, tb.ControlVariate: 0.0, tb.Taylor: 1.0}.get(type(gradient), w)
    if b is None:
        b = w if gradient.partner is tb.Plain else 1.0
    total = b * anchor.likelihood_gradient + c * anchor.likelihood_hessian @ v
    for row, response in zip(x, y, strict=True):
        at_mode = _sigmoid(row @ anchor.mode)
        first = row * (response - at_mode)
        second = -row * at_mode * (1 - at_mode) * (row @ v)
        here = row * (response - _sigmoid(row @ theta))
        total = total + NUM_ROWS / len(x) * (here - b * first - c * second)
    return prior + total


def _sigmoid(eta):
    return 1 / (1 + np.exp(-eta))


@partial(jax.jit, static_argnums=(0, 1, 2))
def stretch_of(plan, number, extra, inputs, key, which):
    """Noise, rows and spare words of all steps of a stretch."""
    noise, index, spare = make_drawer(plan, inputs).draw(jax.random.fold_in(key, which), STRETCH, number, extra)
    return noise, gather(inputs.rows, index), spare


class EulerByHand:
    """States are displacements."""

    def __init__(self, anchor, gradient):
        self.gradient = gradient

    start = np.zeros(3)

    def step(self, v, h, noise, batch):
        return v + h * self.gradient(v, batch) + np.sqrt(2 * h) * noise

    def merged(self, h, first, second):
        return (first + second) / np.sqrt(2)

    def displacement(self, v):
        return v


class KineticByHand:
    """States are z and a velocity, (2, 3), and noises two pairs of them."""

    def __init__(self, anchor, gradient):
        self.gradient, self.whitening = gradient, anchor.whitening

    start = np.zeros((2, 3))

    def flow(self, time):
        flow = expm(time * np.array([[0.0, 1.0], [-1.0, -KINETIC.friction]]))
        return flow, np.linalg.cholesky(np.eye(2) - flow @ flow.T)

    def step(self, x, h, noise, batch):
        (flow, root), noise = self.flow(h / 2), noise.reshape(2, 2, 3)
        z, v = flow @ x + root @ noise[0]
        r = self.whitening.T @ self.gradient(self.whitening @ z, batch) + z
        strain = h * np.linalg.norm(r) / (KINETIC.bound * np.sqrt(3))
        return flow @ np.stack([z, v + h * r / (1 + strain**4) ** 0.25]) + root @ noise[1]

    def merged(self, h, first, second):
        (flow, root), (_, twice) = self.flow(h / 2), self.flow(h)
        pairs = (np.reshape(each, (2, 2, 3)) for each in (first, second))
        return np.concatenate([np.linalg.solve(twice, flow @ root @ one + root @ two).ravel() for one, two in pairs])

    def displacement(self, x):
        return self.whitening @ x[0]


def replay(problem, anchor, level):
    """Delta of (v, v^2) for one path, in plain loops over the shared draws."""
    ladder, plan = problem.ladder, problem.plan
    drawer = make_drawer(plan, problem.inputs)
    coupling, gradient = plan.coupling, plan.gradient
    h = ladder.step(level)

    def estimate(v, batch):
        x, y = (np.asarray(batch[k]) for k in ("x", "y")) if batch else (None, None)
        return gradient_by_hand(gradient, anchor, v, x, y)

    hand = (KineticByHand if plan.dynamics == KINETIC else EulerByHand)(anchor, estimate)

    @cache
    def stretch(phase, which, number, extra):
        return jax.tree.map(np.asarray, stretch_of(plan, number, extra, problem.inputs, (solo, joint)[phase], which))

    def draws(phase, k, number, extra=0):
        """Noise, raw batches and spare words of step k, from the stretch it belongs to."""
        noise, batches, spare = pick(stretch(phase, k // STRETCH, number, extra), k % STRETCH)
        return noise, batches, drawer.source(jnp.asarray(spare))

    key = path_key(seed_words(SEED), int(Stream.LEVEL), level, PATH)
    solo, joint = (jax.random.fold_in(key, phase) for phase in (0, 1))
    fine, fine_points, coarse_points = hand.start, [], []
    for k in range(ladder.shift_steps(level)):
        noise, batches, _ = draws(0, k, 1)
        fine = hand.step(fine, h, noise[0], pick(batches, 0))
        fine_points.append(fine)
    coarse = [hand.start] * coupling.num_coarse
    extra = coupling.num_indices(SIZE) if gradient.batch_size else 0
    for k in range(ladder.joint_steps(level)):
        noise, batches, words = draws(1, k, 2, extra)
        for j in (0, 1):
            fine = hand.step(fine, h, noise[j], pick(batches, j))
            fine_points.append(fine)
        seen = coupling.coarse_batches(words.integers, gradient.batch_size or 0, batches)
        merged = hand.merged(h, noise[0], noise[1])
        coarse = [hand.step(c, 2 * h, merged, pick(seen, i)) for i, c in enumerate(coarse)]
        coarse_points.append(np.mean([read(hand.displacement(c)) for c in coarse], axis=0))
    reads = [read(hand.displacement(x)) for x in fine_points]
    result = np.mean(reads[-max(ladder.window(level), 1) :], axis=0)
    if level:
        result = result - np.mean(coarse_points[-max(ladder.window(level - 1), 1) :], axis=0)
    return result


def read(v):
    return np.concatenate([v, v**2])


COMBINATIONS = [(gradient, tb.Antithetic(), EULER) for gradient in GRADIENTS] + [
    (tb.Taylor(SIZE), tb.Synchronous("union"), EULER),
    (tb.Plain(SIZE), tb.Synchronous("coin"), EULER),
    (tb.Full(), tb.Synchronous("union"), EULER),
    pytest.param(tb.Full(), tb.Antithetic(), KINETIC, marks=pytest.mark.slow),
    (tb.Taylor(SIZE), tb.Synchronous("union"), KINETIC),
]


@pytest.mark.parametrize(("gradient", "coupling", "dynamics"), COMBINATIONS, ids=str)
def test_paths_are_what_the_equations_say(gradient, coupling, dynamics):
    model = paper.MODEL if coupling == tb.Antithetic() else by_hand()
    for window_steps in (0, 2):
        problem, anchor = make(model, gradient, coupling, window_steps, dynamics=dynamics)
        with jax.enable_x64(True):
            for level in (0, 1, 2):
                words = phase_words(SEED, int(Stream.LEVEL), level, PATH, phases=PHASES)
                end = jax.jit(sample_path, static_argnums=0)(
                    problem.plan, problem.inputs, schedule_of(problem, level), words
                )
                np.testing.assert_allclose(end.delta, replay(problem, anchor, level), rtol=1e-9, atol=1e-12)


def test_family_and_own_model_take_the_same_paths():
    """The cheap form of a generalised linear model and derivatives by JAX agree to float32 rounding."""
    family, own = (make(model, tb.Taylor(SIZE), tb.Antithetic(), 0, "float32")[0] for model in (paper.MODEL, by_hand()))
    for level in (0, 2):
        one, two = (sample_level(problem, level, 0) for problem in (family, own))
        np.testing.assert_allclose(one.delta.mean, two.delta.mean, rtol=1e-3, atol=2e-6)
        np.testing.assert_allclose(one.delta.variance, two.delta.variance, rtol=1e-3, atol=1e-9)


@pytest.mark.slow
def test_family_and_own_model_give_the_same_numbers():
    """Of whole runs: the same paths, stopped at the same samples."""
    settings = {"tolerance": 0.3, "seed": 4, "method": tb.Multilevel(gradient=tb.Taylor(5))}
    family = tb.estimate(paper.MODEL, paper.rows(NUM_ROWS), **settings)
    own = tb.estimate(by_hand(), paper.rows(NUM_ROWS), **settings)
    for name in ("mean", "sd"):
        np.testing.assert_allclose(own[name].value, family[name].value, rtol=2e-5)
        np.testing.assert_allclose(own[name].standard_error, family[name].standard_error, rtol=1e-3)
    assert own.cost.evaluations == family.cost.evaluations
