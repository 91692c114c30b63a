"""What few paths see: least variances by probes are right in closed form, and runs on rare events hold their word."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder

import tallbayes as tb
from tallbayes.anchor.gaussian_level import laplace_level
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.probe import Probe
from tallbayes.anchor.probing import RADII, STANDS, make_probe, read_by_all_rows
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.run import gaussian_summary
from tallbayes.estimator.tails import coupled
from tallbayes.model.model import bind
from tallbayes.rows.table import check_rows, make_table
from tallbayes.setup import preparation
from tallbayes.setup.quantities import make_estimands
from tallbayes.setup.tail_variances import tails_of

FIVE_EVENTS = {"x": np.ones((50, 1)), "y": np.repeat([1.0, 0.0], [5, 45])}
CUT = -3.6


def student(freedom):
    """A posterior that is Student's t; its rows say nothing."""
    return tb.Model(
        lambda theta: -0.5 * (freedom + 1) * jnp.log1p(theta**2 / freedom),
        lambda theta, row: 0.0 * theta * row["y"],
        0.0,
    )


def probed(model, rows, quantities=None):
    arrays = check_rows(rows)
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], arrays))
    table = make_table(arrays, "float64", shuffle=True)
    anchor = find_anchor(target, table, start)
    probe = make_probe(target, table, anchor, None)
    return probe, tails_of(target, make_estimands(quantities, target, anchor), anchor, None, probe)


def cancelling(sign):
    """Rows a_i log(1 + theta^2) whose a_i add up to 0 beside a prior N(0, 1): that alone is the posterior."""
    model = tb.Model(
        lambda theta: -0.5 * theta**2, lambda theta, row: sign * row["a"] * jnp.log1p(theta**2), 0.0, log_concave=False
    )
    rows = {"a": np.random.default_rng(0).permutation(np.repeat([1.0, -1.0], 2_500))}
    arrays = check_rows(rows)
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], arrays))
    table = make_table(arrays, "float64", shuffle=True)
    return target, table, find_anchor(target, table, start)


def test_rows_that_all_but_cancel_are_all_read_before_a_tail_is_called_endless():
    """Of 1,024 of them the density rises far out, with one of the signs; of all it is a Gaussian's."""
    risen = 0
    for sign in (1, -1):
        target, table, anchor = cancelling(sign)
        sampled = make_probe(target, table, anchor, None)
        known = read_by_all_rows(sampled, target, table, anchor, None)
        estimands = make_estimands(None, target, anchor)
        risen += bool(np.any(tails_of(target, estimands, anchor, None, sampled).endless))
        doubtful = ~(sampled.ray_log_ratio - RADII**2 / 2 < STANDS)
        np.testing.assert_allclose(known.ray_log_ratio[doubtful], 0.0, atol=1e-6)
        assert known.rows_read == sampled.rows_read + (1 + doubtful.sum()) * 5_000 * doubtful.any()
        assert not np.any(tails_of(target, estimands, anchor, None, known).endless)
    # The control: without all rows one of the two is called endless.
    assert risen == 1


def test_coupled_samples_with_weights():
    """Two Gaussians differ by 1 in sd and by 3 in mean: W_2^2 = 9 + 1, of which 1 is variance."""
    from scipy.special import ndtri

    p = (np.arange(20_000) + 0.5) / 20_000
    even = np.full(20_000, 1 / 20_000)
    variance, kurtosis = coupled(3 + 2 * ndtri(p), even, ndtri(p), even)
    assert variance == pytest.approx(1, rel=1e-3)
    assert kurtosis == pytest.approx(3, rel=0.01)
    assert coupled(ndtri(p), even, ndtri(p)[::-1], even)[0] == pytest.approx(0, abs=1e-12)


def test_the_weights_of_a_tail_lose_no_digits():
    """A point of weight 1e-25 with a value of 1e12 adds 0.1 to the square, at either end."""
    values, one, two = np.array([-1.0, 0.0, 1.0, 1e12]), np.full(4, 1 / 3), np.array([1, 1, 1, 0]) / 3
    one[3] = 1e-25
    assert coupled(values, one, values, two)[0] == pytest.approx(0.1, rel=1e-6)
    assert coupled(-values, one, -values, two)[0] == pytest.approx(0.1, rel=1e-6)


def test_a_probe_of_a_gaussian_sees_nothing():
    rows = {"x": np.ones((40, 1)), "y": np.random.default_rng(0).normal(size=40)}
    probe, tails = probed(tb.families.linear(noise_scale=1.0), rows)
    np.testing.assert_allclose(probe.log_ratio, 0, atol=1e-9 * np.max(np.sum(probe.points**2, axis=1)))
    np.testing.assert_allclose(tails.apart.variance, 0, atol=1e-18)
    np.testing.assert_allclose(tails.noise, 0, atol=1e-18)
    assert not np.any(tails.endless)


def test_a_probe_knows_the_log_posterior_and_its_gradient():
    """5 theta - 50 exp(theta) - theta^2 / 200, by hand."""
    probe, _ = probed(tb.families.poisson(prior_scale=10.0), FIVE_EVENTS)
    arrays = check_rows(FIVE_EVENTS)
    target, start = bind(tb.families.poisson(prior_scale=10.0), jax.tree.map(lambda leaf: leaf[0], arrays))
    anchor = find_anchor(target, make_table(arrays, "float64", shuffle=True), start)
    theta = anchor.mode[0] + anchor.sd[0] * probe.points[:, 0]
    near = np.abs(probe.points[:, 0]) < 6

    def value(t):
        return 5 * t - 50 * np.exp(t) - t**2 / 200

    expected = value(theta) - value(anchor.mode[0]) + probe.points[:, 0] ** 2 / 2
    np.testing.assert_allclose(probe.log_ratio[near], expected[near], atol=1e-8)
    slope = anchor.sd[0] * (5 - 50 * np.exp(theta) - theta / 100) + probe.points[:, 0]
    np.testing.assert_allclose(probe.remainder[near, 0], slope[near], atol=1e-8)


def test_weights_stand_for_the_posterior():
    """Mean and sd of a log rate after five events, to the error of two hundred draws; a control without them is off."""
    probe, _ = probed(tb.families.poisson(prior_scale=10.0), FIVE_EVENTS)
    posterior, gaussian = probe.weights()
    t = np.linspace(-14, 2, 100_001)
    density = np.exp(5 * t - 50 * np.exp(t) - t**2 / 200)
    centre, width = np.log(0.1), 1 / np.sqrt(5)
    mean = (np.sum(t * density) / density.sum() - centre) / width
    assert posterior @ probe.points[:, 0] == pytest.approx(mean, abs=0.05)
    assert gaussian @ probe.points[:, 0] == pytest.approx(0, abs=1e-9)
    assert abs(mean) > 0.2


def test_the_noise_of_rows_is_that_of_all_batches():
    """S is N times the sum of squares of the rows' remainders, less the square of their sum: by hand for one column."""
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=(300, 1)), "y": (rng.random(300) < 0.4).astype(float)}
    probe, _ = probed(tb.families.logistic(), rows)
    arrays = check_rows(rows)
    target, start = bind(tb.families.logistic(), jax.tree.map(lambda leaf: leaf[0], arrays))
    anchor = find_anchor(target, make_table(arrays, "float64", shuffle=True), start)
    x, w = rows["x"][:, 0], anchor.sd[0]
    half = np.random.default_rng(1).standard_normal((4, 1))[:, 0]
    squares = []
    for u in np.concatenate([half, -half]):
        eta, move = x * anchor.mode[0], x * w * u
        chance = 1 / (1 + np.exp(-eta))
        rest = -w * x * (1 / (1 + np.exp(-eta - move)) - chance - chance * (1 - chance) * move)
        squares.append(300 * np.sum(rest**2) - rest.sum() ** 2)
    np.testing.assert_allclose(probe.noise[0, 0], np.mean(squares), rtol=1e-6)


@pytest.mark.parametrize(
    ("freedom", "endless"),
    [(1, [True, True]), (2, [True, True]), (3, [False, True]), (6, [False, False]), (30, [False, False])],
)
def test_what_has_no_variance_is_told(freedom, endless):
    """Mean and sd of a t posterior: E x^2 has an end above 2 degrees of freedom, E x^4 above 4."""
    _, tails = probed(student(freedom), {"y": np.ones(4)})
    np.testing.assert_array_equal(tails.endless, endless)


def test_a_pole_is_told():
    """E 1 / (theta - 0.9) does not exist, though theta be 0 +- 0.2; what is steep, bends or jumps has no pole."""
    poles = {
        "pole": lambda theta: 1 / (theta[0] - 0.9),
        "none": lambda theta: 1 / (theta[0] + 100),
        "steep": lambda theta: jnp.tanh(1e3 * (theta[0] - 0.3)),
        "peak": lambda theta: jnp.exp(-(((theta[0] - 0.1) / 0.05) ** 2)),
        "event": lambda theta: theta[0] > 0.2,
        "ratio": lambda theta: -(theta[0] + 1) / (theta[0] - 1.2),
    }
    rows = {"x": np.ones((20, 1)), "y": np.zeros(20)}
    _, tails = probed(tb.families.linear(noise_scale=1.0), rows, poles)
    np.testing.assert_array_equal(tails.endless, [True, False, False, False, False, True])


def test_an_expectation_that_does_not_exist_is_never_converged():
    for seed in range(3):
        result = by_ladder(student(3), {"y": np.ones(4)}, ("sd",), tolerance=0.1, seed=seed, max_evaluations=1e7)
        assert not result.converged
        assert result["sd"].interval == (-np.inf, np.inf)
    assert Status.infinite_variance.value in str(result)


@cache
def rare_event(with_probe=True):
    """P(theta < -3.6) of a log rate after five events, 1.3%, where the Gaussian says 0.2%: misses of 12 runs."""
    t = np.linspace(-14, 2, 100_001)
    density = np.exp(5 * t - 50 * np.exp(t) - t**2 / 200)
    chance = np.sum(density / (1 + np.exp((t - CUT) / 0.05))) / density.sum()
    outside = 0
    with pytest.MonkeyPatch.context() as patch:
        if not with_probe:
            patch.setattr(preparation, "make_probe", lambda *arguments: None)
        for seed in range(12):
            result = by_ladder(
                tb.families.poisson(prior_scale=10.0),
                FIVE_EVENTS,
                {"rare": lambda theta: jax.nn.sigmoid((CUT - theta[0]) / 0.05)},
                tolerance=0.05,
                seed=seed,
            )
            low, high = result["rare"].interval
            outside += bool(not low <= chance <= high)
    return outside


def test_a_rare_event_is_not_missed():
    """Intervals that hold 99%, as these do, miss 5 or more of 12 with a chance of 8e-8."""
    assert rare_event() <= 4


def test_control_without_a_probe_it_is():
    assert rare_event(with_probe=False) >= 5


@pytest.mark.slow
def test_a_far_quantile_has_an_error_that_reaches_it():
    """The 0.1% quantile after a run to 0.1: its error covers the truth, or has no end; never a floor under a slope."""
    t = np.linspace(-14, 2, 400_001)
    density = np.exp(5 * t - 50 * np.exp(t) - t**2 / 200)
    truth = np.interp([0.001, 0.999], np.cumsum(density) / density.sum(), t)
    outside = 0
    for seed in range(8):
        result = by_ladder(tb.families.poisson(prior_scale=10.0), FIVE_EVENTS, tolerance=0.1, seed=seed)
        for what in (None, lambda theta: jnp.sinh(theta[0])):
            found = result.posterior.quantile([0.001, 0.999], what)
            expected = truth if what is None else np.sinh(truth)
            outside += int(np.sum(np.abs(found.flat_value - expected) > found.half_width()))
    # 32 intervals, 5% each: more than 10 by chance once in a million.
    assert outside <= 10


def test_a_probe_is_kept_with_the_posterior(tmp_path):
    result = by_ladder(tb.families.poisson(prior_scale=10.0), FIVE_EVENTS, tolerance=0.2)
    assert isinstance(result.posterior.probe, Probe)
    result.save(tmp_path / "kept")
    loaded = tb.load(tmp_path / "kept")
    before, after = (each.posterior.quantile(0.01) for each in (result, loaded))
    np.testing.assert_array_equal(before.flat_standard_error, after.flat_standard_error)


def in_unit(unit):
    """A mean and a positive scale, and rows, in some unit."""

    def log_likelihood(theta, row):
        return -0.5 * ((row["y"] - theta["m"]) / theta["s"]) ** 2 - jnp.log(theta["s"])

    def log_prior(theta):
        return -0.5 * (theta["m"] / (10 * unit)) ** 2 - 0.5 * (theta["s"] / (10 * unit)) ** 2

    y = unit * np.random.default_rng(0).normal(2.0, 1.5, 40)
    start = {"m": 0.0, "s": unit}
    return tb.Model(log_prior, log_likelihood, start, constraints={"s": tb.constraints.positive}), {"y": y}


def gaussian_error(unit):
    """The variance of the Gaussian level's mean and sd of both parameters."""
    model, rows = in_unit(unit)
    arrays = check_rows(rows)
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], arrays))
    anchor = find_anchor(target, make_table(arrays, "float64", shuffle=True), start)
    estimands = make_estimands(None, target, anchor)
    level = laplace_level(target, estimands.observables, anchor, estimands.jump, seed=0)
    return gaussian_summary(estimands, level).laplace_error


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_gaussian_levels_error_has_its_unit(unit):
    """Squares of errors go like the square of the unit, that of an sd like that of a mean."""
    np.testing.assert_allclose(gaussian_error(unit) / unit**2, gaussian_error(1.0), rtol=1e-3, atol=1e-20)
    assert np.all(gaussian_error(1.0)[[1, 3]] > 0)


def test_the_answer_does_not_depend_on_the_unit():
    """The same run in a unit ten thousand times as small, where errors once went on as if it were 1."""
    (model, rows), (small, small_rows) = in_unit(1.0), in_unit(1e4)
    one, other = by_ladder(model, rows, tolerance=0.2), by_ladder(small, small_rows, tolerance=0.2)
    np.testing.assert_allclose(other["sd"].flat_value / 1e4, one["sd"].flat_value, rtol=1e-4)
    np.testing.assert_allclose(other["sd"].flat_standard_error / 1e4, one["sd"].flat_standard_error, rtol=1e-2)
