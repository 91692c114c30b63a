"""Updates: today's posterior from sums, against one that knows of no days, and against what goes wrong without them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.arrivals import days as arrived
from tallbayes.arrivals.centre import Expanded
from tallbayes.arrivals.days import _outgrown, answered
from tallbayes.arrivals.standing import Carried
from tallbayes.estimation.question import read_changes
from tallbayes.estimator.estimates import Status

NUM_ROWS, FIRST, DAY = 9_000, 6_000, 1_000
TOLERANCE = 0.05
# Of 6 z-scores by ten days or seeds, normal or lighter: a false alarm in a million.
LARGEST = 5.6


def rows_of(start=0, stop=NUM_ROWS, but=slice(0, 0)):
    whole = logistic_rows(NUM_ROWS, (0.8, -0.5, 0.3), seed=5)
    return {name: np.delete(array[start:stop].astype(np.float32), but, axis=0) for name, array in whole.items()}


@pytest.fixture(scope="module")
def days():
    """A fit by the ladder, and three days after it."""
    found = [tb.estimate(tb.families.logistic(), rows_of(0, FIRST), tolerance=TOLERANCE, method=tb.Anchored())]
    for start in range(FIRST, NUM_ROWS, DAY):
        found.append(found[-1].update(rows_of(start, start + DAY)))
    return found


@pytest.fixture(scope="module")
def exact():
    """Of all rows, ten times as accurate."""
    return tb.estimate(tb.families.logistic(), rows_of(), tolerance=TOLERANCE / 10, seed=77)


def scores(result, reference):
    found = []
    for kind in ("mean", "sd"):
        here, there = result[kind], reference[kind]
        error = np.hypot(here.flat_standard_error + here.flat_bias_bound, there.flat_standard_error)
        found.append((here.flat_value - there.flat_value) / error)
    return np.concatenate(found)


def over(standing: Carried) -> Expanded:
    return standing.centre.over(standing.target, standing.table)


def test_every_day_is_answered(days):
    assert [result.status.name for result in days] == ["converged"] * 4
    assert [result.cost.num_data for result in days] == [6_000, 7_000, 8_000, 9_000]
    assert "rows: 1,000 came on day 3, 9,000 in all" in days[-1].notes


def test_the_last_day_agrees_with_a_fit_from_scratch(days, exact):
    assert np.abs(scores(days[-1], exact)).max() < LARGEST
    apart = np.abs(days[-1]["mean"].flat_value - exact["mean"].flat_value) / exact["sd"].flat_value
    assert apart.max() < 3 * TOLERANCE


def test_the_sums_after_three_days_are_those_of_all_rows(days):
    standing = days[-1].standing
    whole = over(standing)
    for name in ("value", "gradient", "hessian", "third"):
        np.testing.assert_allclose(getattr(standing.centre, name), getattr(whole, name), rtol=1e-9, atol=1e-7)
    assert standing.centre.num_rows == standing.num_rows == NUM_ROWS


def test_the_gaussian_is_where_newton_leads(days):
    standing = days[-1].standing
    anchor = standing.anchor()
    np.testing.assert_allclose(anchor.gradient, 0, atol=1e-6)
    from_scratch = tb.estimate(tb.families.logistic(), rows_of(), tolerance=0.5, method=tb.Anchored(anchor="mode"))
    off = (anchor.mode - from_scratch.anchor.mode) / anchor.sd
    assert np.abs(off).max() < 0.05


def test_a_day_reads_few_rows(days):
    for result in days[2:]:
        assert result.cost.setup_evaluations == 2 * DAY
        assert result.cost.evaluations < 15_000


@pytest.mark.parametrize("forgotten", [False, True])
def test_errors_cover_and_a_gradient_that_is_forgotten_shows(days, exact, forgotten):
    """The same day by ten seeds; the control forgets the day's gradient and curvature."""
    standing = days[-1].standing
    if forgotten:
        before = days[-2].standing.centre
        standing = replace(standing, centre=replace(before, num_rows=NUM_ROWS))
    found = []
    for day in range(10):
        result = answered(replace(standing, day=100 + day), read_changes(standing.question, tolerance=TOLERANCE))
        found.append(scores(result, exact))
    found = np.stack(found)
    assert (np.abs(found).max() < LARGEST) is not forgotten
    if not forgotten:
        assert np.sqrt(np.mean(found**2)) < 1.3


@pytest.mark.parametrize("budget", [None, 10**9])
def test_a_day_that_stops_where_it_has_paid_for_another_centre_is_begun_again_about_it(
    days, exact, budget, monkeypatch
):
    """With other random numbers; whoever has set a budget has said how far to go."""
    real = arrived.answer

    def stopped(asked, known, report):
        found = real(asked, known, report)
        return replace(found, status=Status.max_evaluations) if np.isfinite(known.most) else found

    monkeypatch.setattr(arrived, "answer", stopped)
    standing = days[-1].standing
    result = answered(standing, read_changes(standing.question, tolerance=TOLERANCE, max_evaluations=budget))
    moved = any(note.startswith("centre: moved") for note in result.notes)
    assert result.converged
    assert moved is (budget is None)
    assert (result.settings["seed"] != days[-1].settings["seed"]) is moved
    assert (result.cost.setup_evaluations > 2 * NUM_ROWS) is moved
    assert np.abs(scores(result, exact)).max() < LARGEST


def test_a_day_whose_rows_want_a_larger_batch_than_its_pilots_had_moves_the_centre(days):
    standing = days[-1].standing
    assert not _outgrown(standing, standing.question)
    unlike = replace(standing.looked, sums=(20 * TOLERANCE, *standing.looked.sums[1:]))
    assert _outgrown(replace(standing, looked=unlike), standing.question)


def test_a_probe_serves_another_centre_until_rows_are_twice_as_many(days):
    footing = days[-1].standing.footing
    assert footing.probed in (6_000, 7_000)
    assert footing.about_another(2 * footing.probed).probe is footing.probe
    assert footing.about_another(2 * footing.probed).decision is None
    assert footing.about_another(2 * footing.probed + 1).probe is None


def test_days_have_random_numbers_of_their_own(days):
    assert len({result.settings["seed"] for result in days}) == 4


def test_an_update_leaves_what_was_before_untouched(days):
    before = days[1]
    value, draws = before["mean"].flat_value.copy(), np.asarray(before.draws(64).value)
    before.update(rows_of(0, 10))
    np.testing.assert_array_equal(before["mean"].flat_value, value)
    np.testing.assert_array_equal(np.asarray(before.draws(64).value), draws)
    assert before.standing.num_rows == 7_000
    again = before.extend(tolerance=TOLERANCE / 2)
    assert again.converged
    assert again.cost.num_data == 7_000
    assert again.update(rows_of(7_000, 8_000)).cost.num_data == 8_000


def test_withdrawing_and_adding_back_gives_the_old_sums_and_list(days):
    last, some = days[-1], rows_of(2_000, 2_500)
    less = last.without(some)
    assert less.cost.num_data == 8_500
    assert any("500 withdrawn" in note for note in less.notes)
    back = less.update(some)
    np.testing.assert_array_equal(back.standing.order.keys, last.standing.order.keys)
    for name in ("gradient", "hessian", "third"):
        there = getattr(last.standing.centre, name)
        np.testing.assert_allclose(getattr(back.standing.centre, name), there, rtol=1e-9, atol=1e-7)
    assert scores(back, last).size


@pytest.mark.parametrize("kept", [False, True])
def test_rows_withdrawn_are_gone_and_one_that_stays_listed_shows(days, kept):
    """The control leaves them in the sums."""
    but = slice(2_000, 5_000)
    less = days[-1].without(rows_of(2_000, 5_000))
    if kept:
        less = answered(replace(less.standing, centre=days[-1].standing.centre, day=50), read_changes(less.question))
    scratch = tb.estimate(tb.families.logistic(), rows_of(but=but), tolerance=TOLERANCE / 10, seed=3)
    assert (np.abs(scores(less, scratch)).max() < LARGEST) is not kept


def test_rows_that_were_never_there_are_not_withdrawn(days):
    rows = rows_of(0, 3)
    rows["x"][1] += 1e-3
    with pytest.raises(tb.TallbayesError, match="1 of 3 that are not among them"):
        days[-1].without(rows)


def test_rows_in_another_form_are_refused(days):
    with pytest.raises(tb.TallbayesError, match="x with rows of shape"):
        days[-1].update({"x": np.zeros((3, 2)), "y": np.zeros(3)})
    with pytest.raises(tb.TallbayesError, match="no weights"):
        days[-1].update(rows_of(0, 3), weights=np.ones(3))
    with pytest.raises(tb.TallbayesError, match="a family"):
        days[-1].update(rows_of(0, 3), offset=np.ones(3))


def test_a_result_from_a_file_says_what_to_do(days, tmp_path):
    days[-1].save(tmp_path / "result.zip")
    with pytest.raises(tb.TallbayesError, match="which still has its rows"):
        tb.load(tmp_path / "result.zip").update(rows_of(0, 3))


def test_a_gaussian_model_is_exact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6_000, 3))
    rows = {"x": x, "y": x @ [1.0, -2.0, 0.5] + rng.normal(size=6_000)}
    part = {name: array[:5_000] for name, array in rows.items()}
    rest = {name: array[5_000:] for name, array in rows.items()}
    family = tb.families.linear(noise_scale=1.0, prior_scale=1.0)
    result = tb.estimate(family, part, tolerance=TOLERANCE, method=tb.Anchored()).update(rest)
    x32 = x.astype(np.float32).astype(float)
    precision = x32.T @ x32 + np.eye(3)
    mean = np.linalg.solve(precision, x32.T @ rows["y"].astype(np.float32))
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(result["mean"].flat_value, mean, atol=1e-3 * sd.min())
    np.testing.assert_allclose(result["sd"].flat_value, sd, rtol=1e-3)


def test_a_row_that_decides_a_coordinate_is_seen(exact):
    """A category that comes with the day: its rows alone know of its coefficient."""
    first = rows_of(0, FIRST)
    first["x"][:, 2] = 0
    result = tb.estimate(tb.families.logistic(), first, tolerance=TOLERANCE, method=tb.Anchored())
    day = rows_of(FIRST, FIRST + 20)
    result = result.update(day)
    whole = {name: np.concatenate([first[name], day[name]]) for name in first}
    scratch = tb.estimate(tb.families.logistic(), whole, tolerance=TOLERANCE / 5, seed=8)
    assert np.abs(scores(result, scratch)).max() < LARGEST


def test_a_day_without_time_is_told_and_the_next_one_goes_on(days):
    cut = days[-2].update(rows_of(8_000, 9_000), max_seconds=1e-9)
    assert cut.status.name == "max_seconds"
    assert cut.standing.num_rows == NUM_ROWS
    assert cut.extend(tolerance=TOLERANCE).status.name == "converged"
    after = cut.update(rows_of(0, 100))
    assert after.converged
    assert after.cost.num_data == 9_100


def test_a_day_by_an_executor_has_the_same_bits(days):
    with ThreadPoolExecutor(2) as threads:
        found = days[-2].update(rows_of(8_000, 9_000), executor=threads)
    np.testing.assert_array_equal(found["mean"].flat_value, days[-1]["mean"].flat_value)
