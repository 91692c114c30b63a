"""Rows by what they can do: the list is unbiased row by row, long where it matters, and absent where it does not."""

from functools import cache

import jax
import numpy as np
import pytest
from scenarios import logistic_by_hand, logistic_rows

import tallbayes as tb
from tallbayes.anchor import importance
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.importance import list_rows, row_sizes
from tallbayes.anchor.mode import find_anchor
from tallbayes.model.model import bind
from tallbayes.rows.table import SHUFFLE_SEED, capacity_for, check_rows, make_table

NUM_ROWS, RARE_ROWS = 3000, 6


def rare_rows():
    """A common and a rare category, and a covariate."""
    rng = np.random.default_rng(0)
    rare = np.zeros(NUM_ROWS)
    rare[:RARE_ROWS] = 1
    x = np.column_stack([np.ones(NUM_ROWS), rare, rng.normal(size=NUM_ROWS)])
    chance = 1 / (1 + np.exp(-x @ [0.2, 1.0, 0.5]))
    return {"x": x, "y": (rng.random(NUM_ROWS) < chance).astype(float)}


@cache
def prepared(kind="rare", by_hand=False, diagonal=False):
    data = rare_rows() if kind == "rare" else logistic_rows(NUM_ROWS, (0.5, -0.3, 0.1))
    model = logistic_by_hand(3) if by_hand else tb.families.logistic()
    target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], check_rows(data)))
    table = make_table(check_rows(data), "float32", shuffle=True)
    return data, (target, table, find_anchor(target, table, start, dense_limit=0 if diagonal else 10))


def in_table_order(array):
    return array[np.random.default_rng(SHUFFLE_SEED).permutation(len(array))]


def sigmoid(eta):
    return 1 / (1 + np.exp(-eta))


def expected_sizes(data, anchor):
    """s_i by NumPy: the remainder of the slope in eta, at the module's own draws."""
    x, eta = data["x"], data["x"] @ anchor.mode
    moved = x * anchor.whitening if anchor.is_diagonal else x @ anchor.whitening
    leverage = (moved**2).sum(axis=1)
    moves = moved @ importance._draws(3).T
    chance = sigmoid(eta)[:, None]
    rest = -(sigmoid(eta[:, None] + moves) - chance - chance * (1 - chance) * moves)
    return in_table_order(np.sqrt(leverage * np.mean(rest**2, axis=1)))


@pytest.mark.parametrize(
    ("by_hand", "diagonal"), [(False, False), (True, False), (False, True)], ids=["family", "by hand", "diagonal"]
)
def test_sizes_are_those_of_numpy(by_hand, diagonal):
    """To float32, in which rows and W are held; computed in parts, of which the last is not full."""
    data, parts = prepared(by_hand=by_hand, diagonal=diagonal)
    expected = expected_sizes(data, parts[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importance, "PART_NUMBERS", 3 * 1024)
        assert importance._part_rows(parts[1], 3) == 1024
        found = row_sizes(*parts)
    assert found.shape == (NUM_ROWS,)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6 * expected.max())


@pytest.mark.parametrize(("dimension", "rows"), [(1, 4096), (256, 4096), (257, 2048), (4_104, 128), (10**7, 1)])
def test_parts_of_many_parameters_are_of_few_rows(dimension, rows):
    """Those of 4,096 rows by 4,104 parameters took seconds each, for which an exit did not wait."""
    _, (_, table, _) = prepared()
    assert importance._part_rows(table, dimension) == rows == min(4096, table.capacity, rows)


def test_several_predictors_agree_with_the_rows_own_gradients():
    """A linear regression of unknown noise as a family, by its two predictors, and as a model of its own."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(size=200), np.ones(200)])
    data = {"x": x, "y": x @ [0.5, -0.2] + rng.normal(size=200)}
    family = tb.families.linear()
    own = tb.Model(family.log_prior, family.log_likelihood, family.initial, constraints=family.constraints)
    sizes = []
    for model in (family, own):
        target, start = bind(model, jax.tree.map(lambda leaf: leaf[0], check_rows(data)))
        table = make_table(check_rows(data), "float64", shuffle=True)
        sizes.append(row_sizes(target, table, find_anchor(target, table, start)))
    np.testing.assert_allclose(*sizes, rtol=1e-4)
    assert np.ptp(sizes[0]) > 0


def test_a_row_that_overflows_is_a_very_large_one():
    """An exposure of e^600 beside which nothing else counts: its size is finite, and it is listed."""
    offset = np.zeros(100)
    offset[3] = 600.0
    data = {"x": np.ones((100, 1)), "y": np.zeros(100), "offset": offset}
    target, _ = bind(tb.families.poisson(), jax.tree.map(lambda leaf: leaf[0], check_rows(data)))
    table = make_table(check_rows(data), "float64", shuffle=True)
    wide = Anchor(np.zeros(1), np.zeros(1), -np.ones((1, 1)), np.ones((1, 1)), 0.0, 0.0, 100, np.zeros(1))
    sizes = row_sizes(target, table, wide)
    assert np.all(np.isfinite(sizes))
    assert np.sum(sizes == importance.LARGEST) == 1


def test_the_list_is_unbiased_row_by_row():
    """Every row's weights add up to 1 over the places where it stands; so any sum over the list is that over rows."""
    listing = list_rows(*prepared()[1])
    rows, weights = listing.rows[: listing.length], listing.weights[: listing.length].astype(float)
    totals = np.bincount(rows, weights, minlength=NUM_ROWS)
    np.testing.assert_allclose(totals, 1, rtol=1e-6)
    assert len(listing.rows) == len(listing.weights) == capacity_for(listing.length)
    assert NUM_ROWS < listing.length <= 2 * NUM_ROWS


def test_copies_follow_the_size():
    """c_i = 1 + floor(N s_i / sum s); a size within rounding of a whole number may fall on either side."""
    data, parts = prepared()
    size = expected_sizes(data, parts[2])
    copies = 1 + np.floor(NUM_ROWS * size / size.sum())
    listing = list_rows(*parts)
    found = np.bincount(listing.rows[: listing.length], minlength=NUM_ROWS)
    assert np.mean(found == copies) > 0.999
    assert np.all(np.abs(found - copies) <= np.maximum(1, 1e-3 * copies))


def test_rows_of_a_rare_category_are_listed_often():
    """Six rows of 3,000 hold most of the noise: they take up most of the places beyond the first of each row."""
    data, parts = prepared()
    listing = list_rows(*parts)
    rare = in_table_order(data["x"][:, 1]) == 1
    found = np.bincount(listing.rows[: listing.length], minlength=NUM_ROWS)
    assert found[rare].min() > 100 * np.median(found[~rare])
    assert (found - 1)[rare].sum() > 0.9 * (found - 1).sum()


def test_the_list_is_shuffled():
    """Runs of it mix rows: the copies of the rare rows are spread evenly over four quarters, within 5 sds of a
    binomial (a false alarm in 2e-6)."""
    data, parts = prepared()
    listing = list_rows(*parts)
    rare = in_table_order(data["x"][:, 1]) == 1
    is_rare = rare[listing.rows[: listing.length]]
    quarters = np.array([part.sum() for part in np.array_split(is_rare, 4)])
    mean = is_rare.sum() / 4
    assert np.all(np.abs(quarters - mean) < 5 * np.sqrt(mean * 0.75))


def test_gaussian_covariates_want_no_list():
    assert list_rows(*prepared("gaussian")[1]) is None
    # Nor do rows that are all alike; and the same function does list the rare ones.
    assert list_rows(*prepared()[1]) is not None


def test_the_same_list_every_time():
    one, two = (list_rows(*prepared()[1]) for _ in range(2))
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.weights, two.weights)
