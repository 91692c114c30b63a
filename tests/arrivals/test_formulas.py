"""Formulas: rows that arrive are encoded as those of the fit were, and a category that is new has room made for it."""

import numpy as np
import pytest

import tallbayes as tb

NUM_ROWS, FIRST = 6_000, 4_500
FORMULA = "late ~ hour + carrier + C(month)"


def flights(start=0, stop=NUM_ROWS, text=True):
    rng = np.random.default_rng(4)
    hour = rng.integers(5, 24, NUM_ROWS)
    carrier = np.array(["AA", "UA", "DL"])[rng.integers(0, 3, NUM_ROWS)]
    carrier[FIRST + 200 : FIRST + 300] = "OO"
    month = np.where(np.arange(NUM_ROWS) < FIRST + 500, 1, 2)
    chance = 1 / (1 + np.exp(-(0.1 * (hour - 14) + 0.3 * (carrier == "UA") - 0.8 * (carrier == "OO") - 1)))
    late = rng.random(NUM_ROWS) < chance
    rows = {"hour": hour, "carrier": carrier, "month": month, "n": rng.integers(1, 3, NUM_ROWS)}
    rows["late"] = np.where(late, "yes", "no") if text else late
    return {name: column[start:stop] for name, column in rows.items()}


@pytest.fixture(scope="module")
def first():
    return tb.fit(FORMULA, flights(0, FIRST), tolerance=0.05, method=tb.Anchored())


@pytest.fixture(scope="module")
def grown(first):
    """A day as before, and one with a carrier and a month."""
    day = first.update(flights(FIRST, FIRST + 200))
    return day.update(flights(FIRST + 200), new_levels="add")


def from_scratch(result, **options):
    asked = result.question
    return tb.estimate(asked.model, asked.data, weights=asked.weights, tolerance=0.005, seed=9, **options)


def largest_score(result, reference):
    found = []
    for kind in ("mean", "sd"):
        here, there = result[kind], reference[kind]
        error = np.hypot(here.flat_standard_error + here.flat_bias_bound, there.flat_standard_error)
        found.append(np.abs((here.flat_value - there.flat_value) / error).max())
    return max(found)


def test_new_levels_have_coefficients_of_their_own(first, grown):
    assert list(first["mean"].value) == ["Intercept", "hour", "carrier[T.DL]", "carrier[T.UA]"]
    names = ["Intercept", "hour", "carrier[T.DL]", "carrier[T.UA]", "carrier[T.OO]", "C(month)[T.2]"]
    assert list(grown["mean"].value) == names
    assert grown.num_rows == NUM_ROWS
    assert any(note.startswith("levels: carrier 'OO', month 2 came") for note in grown.notes)
    # Of 12 normal numbers.
    assert largest_score(grown, from_scratch(grown)) < 5.3


def test_the_rows_are_those_that_one_table_makes(grown):
    """Old codes are moved on behind a new level; nothing else about a row changes."""
    from tallbayes.formula.encoding import Encoding

    x = Encoding.from_plain(grown.encoding).encode(flights())
    codes = np.asarray(grown.question.data["codes"])
    dense = np.zeros((NUM_ROWS, 6))
    for column in codes.T:
        dense[np.arange(NUM_ROWS), column] = 1
    np.testing.assert_allclose(x[:, 1:], dense[:, 1:5])
    np.testing.assert_allclose(x[:, 0], grown.question.data["x"][:, 0], rtol=1e-6)


def test_the_sums_are_those_of_all_rows(grown):
    standing = grown.standing
    whole = standing.centre.over(standing.target, standing.table)
    for name in ("value", "gradient", "hessian"):
        np.testing.assert_allclose(getattr(standing.centre, name), getattr(whole, name), rtol=1e-9, atol=1e-7)


@pytest.mark.slow
def test_the_answers_know_the_new_level(grown):
    rows = {"hour": [8, 8], "carrier": ["AA", "OO"], "month": [1, 2]}
    found = grown.predict(rows)
    assert found.mean[1] < found.mean[0]
    assert "carrier[T.OO]" in grown.summary()
    effect = grown.average_effect("hour", 20, 8)
    assert effect.mean.value > 0


def test_an_unknown_level_is_refused_by_name(first):
    with pytest.raises(tb.TallbayesError, match=r"'OO' in 100 of 300 rows; nothing was added.*new_levels='add'"):
        first.update(flights(FIRST + 200, FIRST + 500))
    with pytest.raises(tb.TallbayesError, match="new_levels one of"):
        first.update(flights(FIRST, FIRST + 10), new_levels="maybe")


def test_a_day_of_one_class_is_a_day(first):
    rows = flights(FIRST, FIRST + 200)
    on_time = {name: column[rows["late"] == "no"] for name, column in rows.items()}
    day = first.update(on_time)
    assert set(np.unique(day.question.data["y"][FIRST:])) == {0.0}
    rows["late"] = np.full(200, "perhaps")
    with pytest.raises(tb.TallbayesError, match="'perhaps' in 200 rows"):
        first.update(rows)


@pytest.mark.slow
def test_rows_are_withdrawn_by_what_they_said(grown):
    less = grown.without(flights(100, 200))
    assert less.num_rows == NUM_ROWS - 100
    with pytest.raises(tb.TallbayesError, match="the table that was fitted"):
        less.average_effect("hour", 20, 8)


@pytest.mark.slow
def test_weights_are_found_by_their_name():
    result = tb.fit("late ~ hour", flights(0, FIRST), weights="n", tolerance=0.1, method=tb.Anchored())
    result = result.update(flights(FIRST))
    np.testing.assert_array_equal(result.question.weights, flights()["n"])
    assert largest_score(result, from_scratch(result)) < 5.3


def test_units_of_the_response_stay():
    rng = np.random.default_rng(0)
    rows = {"y": 100 + 20 * rng.normal(size=3_000), "x": rng.normal(size=3_000)}
    part = {name: column[:2_000] for name, column in rows.items()}
    rest = {name: column[2_000:] for name, column in rows.items()}
    result = tb.fit("y ~ x", part, family="linear", tolerance=0.05).update(rest)
    x = np.stack([np.ones(3_000), rows["x"]], axis=1)
    exact = np.linalg.lstsq(x, rows["y"], rcond=None)[0]
    sd = 20 / np.sqrt(3_000)
    found = [result["mean"].value[name] for name in ("Intercept", "x")]
    np.testing.assert_allclose(np.ravel(found), exact, atol=0.3 * sd)
