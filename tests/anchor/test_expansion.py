"""Averages over a Gaussian, a pass over the rows: against closed forms, grids and draws; the same bits anywhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
from scenarios import gaussian_posterior, gaussian_rows, logistic_rows

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.chunks import Bound, average_sums
from tallbayes.anchor.expansion import average, expand
from tallbayes.anchor.mode import find_anchor
from tallbayes.model.model import Target, bind
from tallbayes.records.ledger import open_ledger
from tallbayes.records.tasks import Recorded
from tallbayes.rows.table import CHUNK_ROWS, Table, check_rows, make_table


def placed(model: tb.Model, rows: Any) -> tuple[Target, Table, Anchor]:
    data = model.check(check_rows(rows)) if model.check else check_rows(rows)
    target, start = bind(model, jax.tree.map(lambda array: array[0], data))
    table = make_table(data, "float64", shuffle=True)
    return target, table, find_anchor(target, table, start)


def test_of_a_gaussian_posterior_they_are_exact() -> None:
    rows = gaussian_rows(40, 3, 0.7)
    mean, precision = gaussian_posterior(rows, 0.7, 1.0)
    target, table, _ = placed(tb.families.linear(noise_scale=0.7), rows)
    theta, whitening = np.ones(3), 0.3 * np.eye(3) + 0.05
    found = average(target, table, theta, whitening)
    np.testing.assert_allclose(found.hessian, precision, rtol=1e-12)
    np.testing.assert_allclose(found.gradient, precision @ (mean - theta), rtol=1e-11)
    lost = np.trace(precision @ whitening @ whitening.T) / 2
    assert found.value == pytest.approx(found.here.value - lost, rel=1e-12)
    assert found.error < 1e-12
    at_centre = expand(target, table, theta)
    np.testing.assert_allclose(found.here.gradient, at_centre.gradient, rtol=1e-12)
    np.testing.assert_allclose(found.here.hessian, at_centre.hessian, rtol=1e-12)


def test_one_predictor_agrees_with_a_fine_grid() -> None:
    """A sigmoid under Gaussians of leverage up to 5, by the trapezoidal rule with steps of 1/100."""
    x, y = np.array([0.2, 1.0, 2.2]), np.array([1.0, 0.0, 1.0])
    target, table, _ = placed(tb.families.logistic(prior_scale=2.0), {"x": x[:, None], "y": y})
    centre, width = 0.4, 1.0
    found = average(target, table, np.array([centre]), np.array([[width]]))
    t = np.arange(-1000, 1001) / 100
    weight = np.exp(-(t**2) / 2)
    weight /= weight.sum()
    theta = centre + width * t
    chance = 1 / (1 + np.exp(-np.outer(theta, x)))
    gradient = weight @ ((y - chance) @ x - theta / 4)
    curvature = weight @ ((chance * (1 - chance)) @ x**2 + 1 / 4)
    value = weight @ (np.outer(theta, x) @ y - np.logaddexp(0, np.outer(theta, x)).sum(axis=1) - theta**2 / 8)
    assert found.gradient[0] == pytest.approx(gradient, abs=1e-8)
    assert found.hessian[0, 0] == pytest.approx(curvature, abs=1e-8)
    assert found.value == pytest.approx(value, abs=1e-8)
    assert 1e-8 < found.error < 1e-5
    # Control: at the centre they are another matter.
    assert abs(found.here.gradient[0] - gradient) > 0.05


SEVERAL = {
    "noise scale": (tb.families.linear(), lambda rng, x: x @ [1.0, -0.5, 0.2] + rng.normal(size=len(x))),
    "overdispersion": (tb.families.negative_binomial(), lambda rng, x: rng.poisson(np.exp(x @ [0.3, -0.2, 0.5]))),
    "three classes": (tb.families.multinomial(3), lambda rng, x: rng.integers(0, 3, len(x))),
    "four classes": (tb.families.multinomial(4), lambda rng, x: rng.integers(0, 4, len(x))),
}


@pytest.mark.parametrize(
    "name",
    [
        "three classes",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("overdispersion", "noise scale", "four classes")),
    ],
)
def test_several_predictors_agree_with_draws(name: str) -> None:
    """4,000 draws in opposite pairs, 5 standard errors for at most 100 numbers: a false alarm in 6e-5."""
    model, respond = SEVERAL[name]
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=(60, 2)), np.ones(60)])
    target, table, anchor = placed(model, {"x": x, "y": np.asarray(respond(rng, x), float)})
    found = average(target, table, anchor.mode, anchor.whitening)
    draws = rng.standard_normal((2_000, target.dimension)) @ anchor.whitening.T
    looks = [[expand(target, table, anchor.mode + sign * move) for sign in (1, -1)] for move in draws[:250]]
    for part, mean in (("gradient", found.gradient), ("hessian", found.hessian)):
        each = np.array([(getattr(a, part) + getattr(b, part)) / 2 for a, b in looks])
        error = each.std(axis=0) / np.sqrt(len(each)) + found.error * np.abs(mean).max() + 1e-9
        assert np.all(np.abs(each.mean(axis=0) - mean) < 5 * error)
    assert np.any(np.abs(found.gradient - found.here.gradient) > 1e-3)


def test_a_prior_that_is_not_gaussian_is_averaged_over_draws() -> None:
    """A half-normal noise scale, its log being what is Gaussian: exp(2 s) has a mean that is known."""
    rows = gaussian_rows(30, 2, 1.0)
    target, table, anchor = placed(tb.families.linear(), rows)
    wide = average(target, table, anchor.mode, anchor.whitening)
    s, sd = anchor.mode[-1], anchor.sd[-1]
    rate = np.exp(2 * s + 2 * sd**2)
    prior = wide.gradient[-1] - average_sums(Bound(target, table), anchor.mode, anchor.whitening, 0, 30)[4][-1]
    assert 0 < wide.error < 0.01
    assert prior == pytest.approx(1 - rate, abs=5 * wide.error / sd)


@pytest.fixture(scope="module")
def tall() -> tuple[Target, Table, Anchor]:
    return placed(tb.families.logistic(), logistic_rows(CHUNK_ROWS + 300, (0.8, -0.3), seed=4))


def test_several_chunks_have_the_same_bits_on_any_executor(tall: Any, tmp_path: Any) -> None:
    target, table, anchor = tall
    assert len(table.chunks()) == 2
    where = anchor.mode, anchor.whitening
    alone = average(target, table, *where)
    with ThreadPoolExecutor(2) as pool, open_ledger(tmp_path / "ledger") as book:
        book.of({})
        for executor in (pool, Recorded(pool, book, 0.0)):
            found = average(target, table, *where, executor)
            for part in ("value", "gradient", "hessian"):
                np.testing.assert_array_equal(getattr(found, part), getattr(alone, part))
                np.testing.assert_array_equal(getattr(found.here, part), getattr(alone.here, part))
        # What is on record is not summed again, and a different W is something else.
        book_sums = average_sums.record(0.0, Bound(target, table), *where, *table.chunks()[0])
        assert book_sums is not None
        assert book_sums.find(book) is not None
        other = average_sums.record(0.0, Bound(target, table), where[0], 2 * where[1], *table.chunks()[0])
        assert other is not None
        assert other.find(book) is None


def test_a_sample_of_the_rows_stands_for_all_of_them(tall: Any) -> None:
    target, table, anchor = tall
    whole = average(target, table, anchor.mode, anchor.whitening)
    part = average(target, table, anchor.mode, anchor.whitening, ranges=[(0, 4096), (100_000, 104_096)])
    assert part.hessian == pytest.approx(whole.hessian, rel=0.1)
