"""What a fit says of rows before it has seen them: closed forms, and p-values that are true where the model is."""

from __future__ import annotations

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.arrivals.foretold import SURPRISING
from tallbayes.arrivals.history import Day, History

SIGMA, PRIOR = 1.3, 2.0


def rows_of(rng, count, theta, sigma=SIGMA):
    x = np.column_stack([rng.normal(size=count), np.ones(count)])
    return {"x": x, "y": x @ theta + sigma * rng.normal(size=count)}


@pytest.fixture(scope="module")
def gaussian():
    """A linear model, whose predictive law is a normal one: the fit, its rows and its posterior."""
    rng = np.random.default_rng(5)
    rows = rows_of(rng, 400, np.array([0.6, -0.2]))
    result = tb.estimate(tb.families.linear(prior_scale=PRIOR, noise_scale=SIGMA), rows, tolerance=0.05)
    precision = np.eye(2) / PRIOR**2 + rows["x"].T @ rows["x"] / SIGMA**2
    covariance = np.linalg.inv(precision)
    return result, covariance @ rows["x"].T @ rows["y"] / SIGMA**2, covariance


def exact(gaussian, new):
    _, mean, covariance = gaussian
    apart = new["y"] - new["x"] @ mean
    whole = SIGMA**2 * np.eye(len(apart)) + new["x"] @ covariance @ new["x"].T
    one = np.diag(whole)
    together = -0.5 * (apart @ np.linalg.solve(whole, apart) + np.linalg.slogdet(2 * np.pi * whole)[1])
    return float(np.sum(-0.5 * (apart**2 / one + np.log(2 * np.pi * one)))), float(together)


def test_scores_are_those_of_the_normal_law(gaussian):
    """Within five of the stated errors, a false alarm in 6e-7 each."""
    new = rows_of(np.random.default_rng(8), 60, np.array([0.6, -0.2]))
    found, (score, together) = gaussian[0].foretell(new), exact(gaussian, new)
    assert abs(found.score - score) < 5 * found.score_error
    assert abs(found.together - together) < 5 * found.together_error
    assert found.score_error < 0.1


def test_p_values_are_uniform_where_the_model_is_right_and_not_else(gaussian):
    """Of 20 days with responses of the model itself at most 11 have p < 0.1 (chance of more: 6e-8; p is the smaller of
    two, doubled). Days whose intercept is off by 0.6 sd of a response are found; so are days that are twice
    as noisy, and days that are far too regular."""
    result, mean, covariance = gaussian
    rng = np.random.default_rng(11)

    def p_of(shift=0.0, sigma=SIGMA):
        theta = rng.multivariate_normal(mean, covariance) + np.array([0.0, shift])
        return result.foretell(rows_of(rng, 100, theta, sigma)).p_value

    right = [p_of() for _ in range(20)]
    assert sum(p < 0.1 for p in right) <= 11
    assert sum(p > 0.5 for p in right) >= 2
    assert p_of(shift=0.6 * SIGMA) < 0.01
    assert p_of(sigma=2 * SIGMA) < 0.01
    assert p_of(sigma=0.4 * SIGMA) < 0.01


def test_what_days_add_is_the_evidence_of_all_their_rows(gaussian):
    """log p(both days | fit) = log p(first | fit) + log p(second | fit and first), exactly for a normal law: the sum
    over the two updates is within five stated errors of it. With the second day foretold by the fit alone it is not the
    same number: that control is exact."""
    result = gaussian[0]
    rng = np.random.default_rng(21)
    first, second = (rows_of(rng, 150, np.array([0.6, -0.2])) for _ in range(2))
    one = result.update(first, foretell=True)
    two = one.update(second, foretell=True)
    found = tb.history([result, one, two])
    value, error = (each[-1] for each in found.evidence)
    both = {name: np.concatenate([first[name], second[name]]) for name in first}
    truth = exact(gaussian, both)[1]
    assert abs(value - truth) < 5 * error
    assert error < 0.3
    assert abs(exact(gaussian, first)[1] + exact(gaussian, second)[1] - truth) > 0.01
    assert [day.came for day in found] == [0, 150, 150]
    assert [day.rows for day in found] == [400, 550, 700]


def day(number, mean, p=None, **beside):
    from tallbayes.arrivals.foretold import Foretold

    told = None if p is None else Foretold(10, -6.0, 0.1, -5.9, 0.2, 1.0, 1.0, p, 0.01)
    parts = {"hour": {"mean": (mean, 0.01), "sd": (0.5, 0.01), "lower": (mean - 1, 0.02), "upper": (mean + 1, 0.02)}}
    return Day(number, 100 + 10 * number, "converged", parts, came=10 * (number > 0), foretold=told, **beside)


def test_a_history_tells_tracks_moves_and_surprises():
    found = History((day(0, 1.0), day(1, 1.1, p=0.4), day(2, 2.0, p=SURPRISING / 2)))
    value, error = found.track("hour")
    np.testing.assert_array_equal(value, [1.0, 1.1, 2.0])
    np.testing.assert_array_equal(error, [0.01] * 3)
    assert [each.number for each in found.surprises] == [2]
    assert "+1.80" in str(found)
    assert "surprising" in str(found)
    np.testing.assert_allclose(found.evidence[0], [0.0, -5.9, -11.8])
    np.testing.assert_allclose(found.evidence[1], [0.0, 0.2, 0.2 * 2**0.5])
    with pytest.raises(tb.InputError, match="hour"):
        found.track("hours")


def test_what_withdrawals_and_few_draws_leave_of_the_evidence():
    gone = History((day(0, 1.0), day(1, 1.1, p=0.4), day(2, 1.0, withdrawn=3)))
    assert np.isfinite(gone.evidence[0][1])
    assert np.isnan(gone.evidence[0][2])


def test_days_are_read_as_they_were_written():
    before = day(1, 1.25, p=0.3, source="monday.csv", digest="ab")
    assert Day.from_plain(before.to_plain()) == before


@pytest.mark.parametrize("given", [[], ["monday"], [1, 2]])
def test_a_history_of_nothing_is_refused(given):
    with pytest.raises(tb.InputError, match="results in their order"):
        tb.history(given)


def test_a_run_that_was_never_updated_has_none(tmp_path):
    with pytest.raises(tb.TallbayesError, match="tallbayes update"):
        tb.history(tmp_path)
