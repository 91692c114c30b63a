"""Mixed models whose rows arrive: a day changes the units of its groups, and the sums are those of all units."""

from dataclasses import replace

import numpy as np
import pytest
import small_schools

import tallbayes as tb
from tallbayes.arrivals.days import answered
from tallbayes.arrivals.doors import GivenRows, read_given, standing_of
from tallbayes.arrivals.groups.standing import CarriedGroups
from tallbayes.estimation.question import read_changes

SUMS = "value", "gradient", "hessian"
TOLERANCE = 0.05
# Of 64 z-scores, normal or lighter: a false alarm in a million.
LARGEST = 5.8


def some_of(rows, keep):
    return {name: np.asarray(column)[keep] for name, column in rows.items()}


def of_schools(first, stop, pupils=slice(None)):
    names = [f"s{each}" for each in range(first, stop)]
    school = np.asarray(small_schools.rows()["school"])
    return some_of(small_schools.rows(), np.concatenate([np.flatnonzero(school == each)[pupils] for each in names]))


def joined(*tables):
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def stood(first):
    """A standing on these rows, with its units laid out; nothing is sampled."""
    rows = joined(first, first)
    result = tb.fit(small_schools.FORMULA, rows, "logistic", tolerance=0.5, standardise=False)
    return standing_of(result).settled(None), result.door


def day(standing, door, rows, gone=False):
    standing, door, arrived = read_given(standing, door, GivenRows(rows))
    return (standing.without(arrived) if gone else standing.with_rows(arrived)), door


@pytest.fixture(scope="module")
def first():
    return stood(of_schools(0, 12))


@pytest.fixture(scope="module")
def third(first):
    """New rows of two schools, then a new school and one more row of an old one."""
    after = day(*first, of_schools(3, 5, slice(0, 4)))
    return day(*after, joined(of_schools(12, 13), of_schools(0, 1, slice(0, 1))))


def close(one, other, names=SUMS):
    return all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1e-6 * np.abs(getattr(other, name)).max())
        for name in names
    )


def over(standing: CarriedGroups):
    return standing.laid.centre.over(standing.target, standing.laid.units)


def test_sums_after_days_are_those_of_all_units(first, third):
    for standing, _ in (first, third):
        assert close(standing.centre, over(standing))
        assert standing.centre.num_rows == standing.laid.units.num_rows
    assert third[0].num_rows == 240 + 8 + 11
    assert third[0].laid.units.num_rows == 13
    # The control: a group that was left out of the sums.
    assert not close(first[0].centre, over(third[0]))


def nodes(standing):
    """Of every group by its name."""
    rows, plan = standing.rows, standing.laid.plan
    parts = [np.asarray(standing.laid.units.rows[name]) for name in ("centre", "slope", "root")]
    return {
        rows.levels[group]: np.concatenate([np.ravel(part[plan.unit[group]]) for part in parts])
        for group in rows.present
    }


def test_other_groups_keep_their_nodes(first, third):
    before, after = nodes(first[0]), nodes(third[0])
    names = third[1].encoding.groups[0].levels.names
    # Codes are those of names in order, which "s12" is not the last of.
    known = first[1].encoding.groups[0].levels.names
    same = [name for code, name in enumerate(known) if np.array_equal(before[code], after[names.index(name)])]
    assert sorted(set(known) - set(same)) == ["s0", "s3", "s4"]
    assert set(names) - set(known) == {"s12"}


def test_names_are_as_a_fit_has_them(third):
    grouping = third[0].grouping()
    levels = third[0].question.model.groups.levels
    assert [levels[each] for each in grouping.levels] == sorted(levels)
    assert third[0].target.integrated.integral.groups.levels == levels
    assert hash(third[0].target) == hash(third[0].named(()).target)
    assert grouping.counts.sum() == third[0].num_rows
    group = np.asarray(third[0].laid.units.rows["group"])[:13]
    counts = np.asarray(third[0].laid.units.rows["count"])[:13]
    assert np.array_equal(grouping.counts[group], counts)


@pytest.mark.parametrize("schools", [(2, 4), (5, 6)])
def test_withdrawing_and_adding_back_gives_the_old_sums_and_list(third, schools):
    some = of_schools(*schools, slice(0, 7))
    if schools == (5, 6):
        # All rows of a group: it goes, and comes back.
        some = joined(of_schools(5, 6), of_schools(5, 6))
    less, door = day(*third, some, gone=True)
    assert close(less.centre, over(less))
    assert less.num_units == 13 - (schools == (5, 6))
    back, _ = day(less, door, some)
    assert close(back.centre, third[0].centre)
    for name in SUMS:
        here, there = getattr(back.centre, name), getattr(third[0].centre, name)
        np.testing.assert_allclose(here, there, rtol=1e-8, atol=1e-8 * np.abs(there).max())
    lists = [each.prepared().listing for each in (back, third[0])]
    assert lists[0].length == lists[1].length
    np.testing.assert_array_equal(*(each.rows for each in lists))


def test_a_group_that_outgrows_its_unit_is_laid_out_anew(first):
    length = first[0].laid.plan.length
    many = of_schools(1, 2)
    after, _ = day(*first, joined(*[many] * (length // 10)))
    assert after.laid is None
    assert "laid out anew" in after.told[0]


def test_rows_that_were_never_there_are_not_withdrawn(third):
    rows = of_schools(0, 1, slice(0, 3))
    rows["x"] = rows["x"] + np.array([0.0, 1e-3, 0.0])
    with pytest.raises(tb.TallbayesError, match="1 of 3 that are not among them"):
        day(*third, rows, gone=True)
    with pytest.raises(tb.TallbayesError, match="10 of 10 that are not among them"):
        day(*third, of_schools(13, 14), gone=True)


def test_the_bound_on_integrals_is_of_all_units(third):
    """delta is a sum as the others are."""
    standing = third[0]
    whole = standing.laid.rough.over(standing.target, standing.laid.units)
    np.testing.assert_allclose(standing.laid.rough.delta, whole, rtol=1e-5, atol=1e-9)
    assert standing.placed().integral_error > 0


def scores(result, reference):
    found = []
    for kind in ("mean", "sd"):
        here, there = result[kind], reference[kind]
        errors = here.flat_standard_error, here.flat_bias_bound, there.flat_standard_error, there.flat_bias_bound
        found.append((here.flat_value - there.flat_value) / np.sqrt(sum(each**2 for each in errors)))
    return np.concatenate(found)


def a_day(number, count, groups=100):
    """One group more every day."""
    effects = 0.7 * np.random.default_rng(5).normal(size=200)
    rng = np.random.default_rng([7, number])
    group, x = rng.integers(0, groups + number, count), rng.normal(size=count)
    return {"y": 0.3 + 0.5 * x + effects[group] + rng.normal(size=count), "x": x, "g": group}


@pytest.mark.slow
def test_a_stream_of_groups_agrees_with_fits_from_scratch_and_a_forgotten_day_shows():
    """Eight days of 100 linear groups: parameters and effects, each beside a fit of all rows."""
    result = tb.fit("y ~ x + (1 | g)", a_day(0, 6_000), family="linear", tolerance=TOLERANCE)
    found, effects, centres = [], [], []
    for number in range(1, 9):
        result = result.update(a_day(number, 400))
        assert result.converged
        centres.append(result.standing.centre)
        asked = result.question
        scratch = tb.estimate(asked.model, asked.data, tolerance=TOLERANCE, seed=number)
        found.append(scores(result, scratch))
        here, there = result.effects("g"), scratch.effects("g")
        assert here.levels == there.levels
        effects.append((here.mean - there.mean).ravel() / np.hypot(here.mean_error, there.mean_error).ravel())
    assert result.cost.setup_evaluations < 3 * 2 * 108
    assert np.abs(found).max() < LARGEST
    # Above it one mean of 64 squares in a million.
    assert np.sqrt(np.mean(np.square(found))) < 1.45
    assert np.sqrt(np.mean(np.concatenate(effects) ** 2)) < 1.1
    standing, before = result.standing, centres[-2]
    assert np.array_equal(before.theta, standing.centre.theta)
    laid = replace(standing.laid, centre=replace(before, num_rows=standing.centre.num_rows))
    control = answered(replace(standing, laid=laid), read_changes(standing.question))
    assert np.abs(scores(control, scratch)).max() > LARGEST
