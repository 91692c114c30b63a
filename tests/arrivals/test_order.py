"""The list: a function of the set of rows, whatever came first; unbiased row by row; and rows leave as they came."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.arrivals.order import Order
from tallbayes.rows.segments.alike import contents

NUM_ROWS = 400


def some_rows(seed=0, values=50):
    """Some of them equal."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, values, NUM_ROWS).astype(np.float32)], rng.integers(1, 4, NUM_ROWS)


def by_content(order, leaves):
    """What stands at each place, in words that do not know numbers of rows."""
    return leaves[0][order.rows].tolist(), order.keys.tolist(), order.weights.tolist()


@pytest.mark.parametrize("days", [1, 3, 40])
def test_the_list_is_a_function_of_the_rows_whatever_came_first(days):
    leaves, _ = some_rows()
    copies = 1 + (leaves[0].astype(int) % 3)
    hashes, numbers = contents(leaves), np.arange(NUM_ROWS, dtype=np.int32)
    at_once = Order.empty().with_rows(hashes, numbers, copies)
    apart = Order.empty()
    for day in np.array_split(np.random.default_rng(days).permutation(NUM_ROWS), days):
        apart = apart.with_rows(hashes[day], numbers[day], copies[day])
    assert by_content(apart, leaves) == by_content(at_once, leaves)


def test_a_row_counts_once_however_often_it_stands():
    leaves, copies = some_rows()
    order = Order.empty().with_rows(contents(leaves), np.arange(NUM_ROWS, dtype=np.int32), copies)
    np.testing.assert_allclose(np.bincount(order.rows, order.weights, NUM_ROWS), 1, rtol=1e-6)
    np.testing.assert_array_equal(np.bincount(order.rows, minlength=NUM_ROWS), copies)
    assert np.all(np.diff(order.keys.astype(float)) >= 0)


def test_rows_of_all_days_stand_beside_each_other():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=20_000)
    order = Order.empty()
    for day in range(20):
        numbers = np.arange(day * 1000, (day + 1) * 1000, dtype=np.int32)
        order = order.with_rows(contents([rows[numbers]]), numbers, np.ones(1000, int))
    runs = (order.rows // 1000).reshape(-1, 1000)
    counts = np.stack([np.bincount(run, minlength=20) for run in runs])
    # Multinomial with mean 50 and sd 7: five sds and more among 400 have a chance of 1e-4, seven of 1e-9.
    assert counts.min() > 0
    assert np.abs(counts - 50).max() < 50


def test_equal_rows_that_stand_differently_often_leave_one_by_one():
    row = contents([np.zeros(1)])
    order = Order.empty()
    for number, copies in enumerate([1, 3, 2]):
        order = order.with_rows(row, np.array([number]), np.array([copies]))
    left, gone = order.without(np.repeat(row, 2))
    assert gone.tolist() == [1, 2]
    assert left.rows.tolist() == [0]
    assert left.weights.tolist() == [1.0]


def test_rows_that_leave_and_come_back_find_their_places():
    leaves, copies = some_rows(values=10_000)
    hashes, numbers = contents(leaves), np.arange(NUM_ROWS, dtype=np.int32)
    whole = Order.empty().with_rows(hashes, numbers, copies)
    some = np.sort(np.random.default_rng(1).permutation(NUM_ROWS)[:150])
    left, gone = whole.without(hashes[some])
    back = left.with_rows(hashes[gone], gone.astype(np.int32), copies[gone])
    assert by_content(back, leaves) == by_content(whole, leaves)


def test_rows_that_were_never_there_are_refused():
    leaves, copies = some_rows()
    order = Order.empty().with_rows(contents(leaves), np.arange(NUM_ROWS, dtype=np.int32), copies)
    with pytest.raises(tb.TallbayesError, match="1 of 2 that are not among them"):
        order.without(contents([np.array([leaves[0][0], -1.0])]))


def test_zero_has_one_sign_and_columns_do_not_commute():
    assert contents([np.array([0.0])]) == contents([np.array([-0.0])])
    assert contents([np.array([[1.0, 2.0]])]) != contents([np.array([[2.0, 1.0]])])
