"""The set-up reads the rows as few times as it can, and says how often; where it is approximate, it says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coded import coded_model, coded_rows
from scenarios import gaussian_posterior, gaussian_rows, logistic_by_hand, logistic_rows, paper_rows

import tallbayes as tb
from tallbayes.anchor import expansion
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.mode import FEW_ROWS, find_anchor
from tallbayes.anchor.other_modes import ModeSearch, search_modes
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide import curvature, lines
from tallbayes.errors import DataError, ImproperPosteriorError, NonFiniteError, PosteriorError, RankDeficientError
from tallbayes.gaussian.low_rank import LowRank
from tallbayes.model.model import Target, bind
from tallbayes.rows.statistics import needs_float64
from tallbayes.rows.table import CHUNK_ROWS, SHUFFLE_SEED, Table, check_rows, make_table

FLAT = float("inf")
THETA = (0.7, -0.4, 0.2, 0.5)


def bound(model: tb.Model, data: Any, shuffle: bool = False) -> tuple[Target, Table, np.ndarray]:
    arrays = model.check(data) if model.check is not None else data
    first = {name: array[0] for name, array in arrays.items()} if isinstance(arrays, dict) else arrays[0]
    target, start = bind(model, first)
    return target, make_table(arrays, "float64", shuffle), start


@pytest.fixture(scope="module")
def many_rows() -> tuple[Target, Table, np.ndarray]:
    return bound(tb.families.logistic(), logistic_rows(250_000, THETA, seed=1), shuffle=True)


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call of the compiled sums was given, and each product with a Hessian."""
    read: list[int] = []
    sums, products = expansion.row_sums, lines.hessian_products

    def recorded(bound: Any, theta: Any, start: int, stop: int, curvature: Any) -> Any:
        read.append(stop - start)
        return sums(bound, theta, start, stop, curvature)

    def multiplied(target: Any, table: Any, theta: Any, vectors: Any, sample: Any = None) -> Any:
        read.extend([table.num_rows if sample is None else sum(stop - start for start, stop in sample)] * len(vectors))
        return products(target, table, theta, vectors, sample)

    monkeypatch.setattr(expansion, "row_sums", recorded)
    for module in (curvature, lines):
        monkeypatch.setattr(module, "hessian_products", multiplied)
    return read


def distance_to_mode(anchor: Anchor) -> float:
    """Newton's decrement, in posterior sds."""
    return float(np.linalg.norm(anchor.whitening.T @ anchor.gradient))


@pytest.mark.parametrize("shuffled", [False, True])
def test_passes_are_the_rows_that_were_read(many_rows: Any, rows_read: list[int], shuffled: bool) -> None:
    target, table, start = many_rows
    anchor = find_anchor(target, replace(table, shuffled=shuffled), start)
    assert anchor.passes == sum(rows_read) / table.num_rows
    assert (anchor.passes == int(anchor.passes)) is not shuffled


def test_a_start_from_a_sample_saves_passes(many_rows: Any, rows_read: list[int]) -> None:
    target, table, start = many_rows
    anchor = find_anchor(target, table, start)
    assert rows_read.count(table.num_rows) == 2
    plain = find_anchor(target, replace(table, shuffled=False), start)
    assert anchor.passes < plain.passes - 1
    assert distance_to_mode(anchor) < 1e-2
    apart = anchor.factor.T @ (anchor.mode - plain.mode)
    assert np.linalg.norm(apart) < 0.02


def test_few_rows_are_climbed_to_rounding_whether_shuffled_or_not() -> None:
    rows = paper_rows(1_000, seed=2)
    plain, shuffled = (find_anchor(*bound(tb.families.logistic(), rows, shuffle)) for shuffle in (False, True))
    assert plain.passes == shuffled.passes
    assert max(distance_to_mode(plain), distance_to_mode(shuffled)) < 1e-8


def test_a_quadratic_log_posterior_takes_two_passes_and_is_exact(rows_read: list[int]) -> None:
    rows = gaussian_rows(FEW_ROWS + 5_000, 3, noise_scale=0.5, seed=3)
    mean, precision = gaussian_posterior(rows, noise_scale=0.5, prior_scale=1.0)
    target, table, start = bound(tb.families.linear(0.5), rows, shuffle=True)
    anchor = find_anchor(target, table, start)
    assert rows_read.count(table.num_rows) == 2
    np.testing.assert_allclose(anchor.mode, mean, rtol=1e-10)
    np.testing.assert_allclose(anchor.precision, precision, rtol=1e-10)


def test_a_sample_without_a_mode_is_passed_over() -> None:
    """Three events among 40,000 rows, none of them in the sample, under a flat prior."""
    y = np.zeros(40_000)
    y[-3:] = 1
    target, table, start = bound(tb.families.logistic(FLAT), {"x": np.ones((40_000, 1)), "y": y})
    anchor = find_anchor(target, replace(table, shuffled=True), start)
    assert anchor.mode[0] == pytest.approx(np.log(3 / 39_997), abs=0.02 * anchor.sd[0])


@pytest.mark.parametrize("curvature", Curvature)
def test_sums_have_the_same_bits_on_any_number_of_threads(curvature: Curvature) -> None:
    count = 2 * CHUNK_ROWS + 300
    coded = curvature is Curvature.ARROW
    rows = coded_rows(count) if coded else logistic_rows(count, (0.8, -0.3), seed=4)
    target, table, _ = bound(coded_model() if coded else tb.families.logistic(), rows)
    theta = np.linspace(0.4, 0.1, target.dimension)
    alone = expand(target, table, theta, curvature=curvature)
    for count in (1, 3):
        with ThreadPoolExecutor(count) as threads:
            here = expand(target, table, theta, threads, curvature=curvature)
        assert here.value == alone.value
        np.testing.assert_array_equal(here.gradient, alone.gradient)
        for one, other in zip(jax.tree.leaves(here.hessian), jax.tree.leaves(alone.hessian), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_sample_is_weighted_up_to_all_rows() -> None:
    rows = logistic_rows(3_000, THETA, seed=5)
    target, table, _ = bound(tb.families.logistic(), rows)
    theta, ranges = np.array([0.1, 0.2, 0.3, 0.4]), [(100, 400), (1_000, 1_700)]
    here = expand(target, table, theta, ranges=ranges)
    picked = np.concatenate([np.arange(*each) for each in ranges])
    x, y = rows["x"][picked], rows["y"][picked]
    chance = 1 / (1 + np.exp(-x @ theta))
    np.testing.assert_allclose(here.gradient, 3 * x.T @ (y - chance) - theta, rtol=1e-10)
    np.testing.assert_allclose(here.hessian, 3 * (x.T * (chance * (1 - chance))) @ x + np.eye(4), rtol=1e-10)


@pytest.mark.parametrize("num_rows", [5, 60_000])
def test_a_shuffled_table_holds_every_row_once_in_a_fixed_order(num_rows: int) -> None:
    rng = np.random.default_rng(6)
    data = {"x": rng.standard_normal((num_rows, 9)), "label": np.arange(num_rows)}
    table = make_table(data, "float32", shuffle=True)
    order = np.random.default_rng(SHUFFLE_SEED).permutation(num_rows)
    np.testing.assert_array_equal(table.rows["label"][:num_rows], order)
    np.testing.assert_array_equal(table.rows["x"][:num_rows], data["x"][order].astype(np.float32))
    assert np.all(np.asarray(table.rows["x"])[num_rows:] == data["x"][order[0]].astype(np.float32))
    assert table.shuffled
    assert not make_table(data, "float32").shuffled


def test_checks_see_every_block() -> None:
    x = np.random.default_rng(7).standard_normal((60_000, 9))
    assert not needs_float64({"x": x})
    assert not needs_float64({"x": np.full((60_000, 9), 0.1)})
    far = x.copy()
    far[:, 4] += 1e5
    assert needs_float64({"x": far})
    outlier = x.copy()
    outlier[59_999, 8] = 1e13
    assert needs_float64({"x": outlier})
    outlier[59_999, 8] = np.nan
    with pytest.raises(DataError, match="row 59999"):
        check_rows({"x": outlier})


@pytest.mark.parametrize("diagonal", [False, True])
def test_whitening_is_a_root_of_the_covariance(diagonal: bool) -> None:
    target, table, start = bound(tb.families.logistic(), logistic_rows(500, THETA, seed=8))
    anchor = find_anchor(target, table, start, dense_limit=3 if diagonal else 4)
    assert anchor.is_diagonal is diagonal
    dense = np.diag if diagonal else np.asarray
    w, factor = dense(anchor.whitening), dense(anchor.factor)
    np.testing.assert_allclose(w @ w.T, np.linalg.inv(dense(anchor.precision)), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(w.T @ factor, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(dense(anchor.covariance), w @ w.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(anchor.sd, np.sqrt(np.diag(w @ w.T)), rtol=1e-9)
    np.testing.assert_allclose(anchor.curvatures, np.linalg.eigvalsh(dense(anchor.precision)), rtol=1e-9)
    count = 20_000
    z = anchor.draws(count, seed=9) @ factor
    # Entries of a sample covariance have sd at most sqrt(2 / n); 16 of them, 5.3 sds: one false alarm in 500,000.
    np.testing.assert_allclose(z.T @ z / count, np.eye(4), rtol=0, atol=5.3 * np.sqrt(2 / count))
    assert bool(anchor.note) is diagonal


def correlated_rows(num_rows: int, num_columns: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(10)
    x = rng.standard_normal((num_rows, num_columns)) @ (np.eye(num_columns) + 0.1) * np.logspace(-2, 2, num_columns)
    chance = 1 / (1 + np.exp(-x @ (rng.standard_normal(num_columns) * 0.2 / np.logspace(-2, 2, num_columns))))
    return {"x": x, "y": (rng.random(num_rows) < chance).astype(float)}


@pytest.mark.parametrize("by_hand", [False, True])
def test_without_a_dense_hessian_the_mode_is_the_same(by_hand: bool, rows_read: list[int]) -> None:
    rows = correlated_rows(2_000, 50)
    target, table, start = bound(tb.families.logistic(5.0), rows)
    dense = find_anchor(target, table, start)
    rows_read.clear()
    target, table, start = bound(logistic_by_hand(50, 5.0) if by_hand else tb.families.logistic(5.0), rows)
    anchor = find_anchor(target, table, start, dense_limit=49)
    assert anchor.passes == sum(rows_read) / table.num_rows
    assert np.linalg.norm(dense.factor.T @ (anchor.mode - dense.mode)) < 1e-4
    assert anchor.likelihood_hessian is None
    # Columns are tied to each other, which a few lines beside the diagonal say.
    assert isinstance(anchor.precision, LowRank)
    # By hand: squared gradients of 2,000 rows for their curvature, equal in expectation under the model.
    np.testing.assert_allclose(anchor.precision.diagonals, np.diag(dense.precision), rtol=0.2)
    np.testing.assert_allclose(anchor.gradient, anchor.likelihood_gradient - anchor.mode / 25, rtol=1e-9, atol=1e-12)


def test_without_a_dense_hessian_a_sample_saves_passes(many_rows: Any) -> None:
    target, table, start = many_rows
    anchor = find_anchor(target, table, start, dense_limit=0)
    plain = find_anchor(target, replace(table, shuffled=False), start, dense_limit=0)
    assert anchor.passes < plain.passes
    assert np.linalg.norm((anchor.mode - plain.mode) / anchor.sd) < 0.05


ROWS = np.linspace(-1.0, 1.0, 30)


def quadratic(theta: Any, row: Any) -> Any:
    return -0.5 * (row - theta) ** 2


def constant(theta: Any, row: Any) -> Any:
    return 0.0 * theta


REFUSED = {
    "prior is NaN": (lambda theta: jnp.nan * theta, quadratic, 0.0, NonFiniteError),
    "likelihood is NaN": (lambda theta: -(theta**2), lambda theta, row: jnp.log(theta) * row, -1.0, NonFiniteError),
    "nothing at all": (lambda theta: 0.0 * theta, constant, 0.0, RankDeficientError),
    "a slope without end": (lambda theta: theta, constant, 0.0, PosteriorError),
    "a slope that flattens": (lambda theta: -jnp.exp(-theta), constant, 0.0, ImproperPosteriorError),
    "a pole": (lambda theta: 1 / (1 - theta), constant, 0.5, PosteriorError),
    "a trough": (lambda theta: theta**2, constant, 0.1, PosteriorError),
    "a saddle": (lambda theta: -((theta**2 - 1) ** 2), constant, 0.0, PosteriorError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_without_a_dense_hessian_a_model_without_a_mode_is_refused(name: str) -> None:
    *model, error = REFUSED[name]
    with pytest.raises(error) as caught:
        find_anchor(*bound(tb.Model(*model), ROWS), dense_limit=0)
    assert all(part in str(caught.value) for part in ("expected", "got", "Try"))


def test_without_a_dense_hessian_separated_data_have_no_mode_under_a_flat_prior() -> None:
    column = np.linspace(-1, 1, 40)
    rows = {"x": np.column_stack([column, np.ones(40)]), "y": (column > 0).astype(float)}
    with pytest.raises(ImproperPosteriorError, match="separated"):
        find_anchor(*bound(tb.families.logistic(FLAT), rows), dense_limit=0)
    assert np.all(np.isfinite(find_anchor(*bound(tb.families.logistic(2.5), rows), dense_limit=0).mode))


def test_without_a_dense_hessian_a_column_of_zeros_is_named() -> None:
    rows = logistic_rows(200, (0.5, 0.3, -0.2), seed=9)
    with pytest.raises(RankDeficientError, match=r"\[1\]"):
        find_anchor(*bound(tb.families.logistic(FLAT), {**rows, "x": rows["x"] * [1.0, 0.0, 1.0]}), dense_limit=0)


def mixture() -> tuple[tb.Model, np.ndarray]:
    """Two locations of equal weight: swapping them changes nothing, so every mode has a twin."""
    rng = np.random.default_rng(11)
    rows = np.where(rng.random(300) < 0.5, -1.5, 1.5) + rng.standard_normal(300)

    def log_likelihood(theta: Any, row: Any) -> Any:
        return jnp.logaddexp(-0.5 * (row - theta[0]) ** 2, -0.5 * (row - theta[1]) ** 2)

    model = tb.Model(lambda theta: -0.5 * jnp.sum((theta / 3) ** 2), log_likelihood, initial=np.array([-1.0, 1.0]))
    return model, rows


@pytest.mark.parametrize("dense_limit", [0, 2])
def test_the_twin_of_a_mixture_is_found(dense_limit: int, rows_read: list[int]) -> None:
    model, rows = mixture()
    target, table, start = bound(model, rows)
    anchor = find_anchor(target, table, start, dense_limit=dense_limit)
    rows_read.clear()
    search = search_modes(target, table, anchor)
    assert search.second is not None
    assert np.all(np.abs(search.second - anchor.mode[::-1]) < 0.2 * anchor.sd)
    assert search.share == pytest.approx(0.5, abs=0.05)
    assert search.note.startswith("second mode near [")
    looked = search.evaluations - sum(rows_read)
    # Half-way the density is low enough already: one point of those between.
    assert looked == len(rows) * (search.points + 1)


def student_regression(log_prior: Any) -> tb.Model:
    def log_likelihood(theta: Any, row: Any) -> Any:
        return -2.5 * jnp.log1p((row["y"] - row["x"] @ theta) ** 2 / 4)

    return tb.Model(log_prior, log_likelihood, initial=np.zeros(3))


PRIORS = {"Gaussian": lambda theta: -0.5 * jnp.sum((theta / 10) ** 2), "flat": lambda theta: 0.0 * jnp.sum(theta)}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("prior", PRIORS)
def test_a_regression_with_heavy_tails_has_no_second_mode_found(prior: str, shuffle: bool) -> None:
    rows = gaussian_rows(3_000, 3, noise_scale=1.0, seed=12)
    target, table, start = bound(student_regression(PRIORS[prior]), rows, shuffle)
    anchor = find_anchor(target, table, start)
    search = search_modes(target, table, anchor)
    assert search.second is None
    assert search.note == f"no second mode found from {search.climbs} climbs, among {search.points} points"
    assert search.climbs >= 4
    assert search.points > 300
    # Values on 1,024 rows, and climbs on them: nothing of all 3,000.
    assert 0 < search.evaluations < 1_024 * (search.points + 50 * search.climbs)


def test_the_search_is_left_out_where_the_model_is_log_concave(rows_read: list[int]) -> None:
    target, table, start = bound(tb.families.logistic(), paper_rows(300))
    anchor = find_anchor(target, table, start)
    rows_read.clear()
    search = search_modes(target, table, anchor)
    assert search.note == "log-concave: one mode"
    assert (search.points, search.climbs, search.evaluations, rows_read) == (0, 0, 0, [])
    assert isinstance(search, ModeSearch)
