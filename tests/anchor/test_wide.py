"""Anchors of thousands of parameters, made by blocks: against the matrices of the few, which are summed row by row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor import anchor as anchors
from tallbayes.anchor import mode
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.importance import list_rows, row_sizes
from tallbayes.anchor.mode import curvature_of, find_anchor, off_mode
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide import climb
from tallbayes.anchor.wide.curvature import hessian_product, minus_hessian, rounding, weighted_square
from tallbayes.anchor.wide.means import fits, means_of
from tallbayes.gaussian.roots import inverse_factor, inverse_root
from tallbayes.model.model import Target, bind
from tallbayes.posterior.predictor import OwnResponse, make_predictor
from tallbayes.rows.table import Table, check_rows, make_table

MODELS: dict[str, tuple[Any, Any]] = {
    "one predictor": (lambda: tb.families.logistic(prior_scale=0.7), lambda rng, n: rng.integers(0, 2, n) * 1.0),
    "an intercept": (lambda: tb.families.poisson(1.0, 2.0), lambda rng, n: rng.poisson(1.0, n) * 1.0),
    "classes": (lambda: tb.families.multinomial(4, 0.5, 1.0), lambda rng, n: rng.integers(0, 4, n)),
    "an extra": (lambda: tb.families.negative_binomial(1.0, 1.0), lambda rng, n: rng.poisson(2.0, n) * 1.0),
    "several": (lambda: tb.families.student_t(1.0), lambda rng, n: rng.normal(size=n)),
    "a prior that ties": (
        lambda: tb.Model(
            log_prior=lambda theta: -((theta.sum() - 1) ** 2) - (theta**2).sum(),
            log_likelihood=lambda theta, row: -((row["y"] - row["x"] @ theta) ** 2),
            predictor=lambda eta, row: -((row["y"] - eta) ** 2),
            initial=np.zeros(5),
            log_concave=True,
        ),
        lambda rng, n: rng.normal(size=n),
    ),
}


def placed(name: str, count: int = 700, precision: str = "float64") -> tuple[Target, Table, Any]:
    model, response = (part for part in MODELS[name])
    rng, model = np.random.default_rng(3), model()
    rows = {"x": rng.normal(size=(count, 5)), "y": response(rng, count)}
    data = model.check(check_rows(rows)) if model.check else check_rows(rows)
    target, start = bind(model, jax.tree.map(lambda array: array[0], data))
    return target, make_table(data, precision, shuffle=True), start


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "an extra")) for name in MODELS]
)
def test_a_hessian_by_blocks_is_that_row_by_row(name: str) -> None:
    target, table, start = placed(name)
    theta = start + np.random.default_rng(0).normal(size=start.size) / 4
    exact = expand(target, table, theta)
    np.testing.assert_allclose(minus_hessian(target, table, theta), exact.hessian, rtol=1e-10, atol=1e-9)
    found = expand(target, table, theta, curvature=Curvature.WIDE)
    np.testing.assert_allclose(found.gradient, exact.gradient, rtol=1e-12)
    v = np.random.default_rng(1).normal(size=start.size)
    np.testing.assert_allclose(hessian_product(target, table, theta, v), exact.hessian @ v, rtol=1e-9, atol=1e-8)
    some = table.chunks(100)
    scaled = expand(target, table, theta, ranges=some)
    np.testing.assert_allclose(minus_hessian(target, table, theta, some), scaled.hessian, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("weights", [np.arange(6.0), -np.arange(6.0), np.arange(6.0) - 3], ids=["up", "down", "both"])
def test_the_lower_half_is_that_of_the_square(weights: Any) -> None:
    columns = np.random.default_rng(0).normal(size=(6, 4))
    wanted = np.tril(columns.T @ np.diag(weights) @ columns)
    np.testing.assert_allclose(weighted_square(columns, weights), wanted, atol=1e-12)


def test_what_rounding_to_float32_leaves_is_seen() -> None:
    """By the probe: next to nothing of what was multiplied in float32, and all of what was put in."""
    target, table, start = placed("classes", 3_000, "float32")
    theta = start + 0.1
    found, exact = (minus_hessian(target, table, theta, precise=each) for each in (False, True))
    assert 0 < np.abs(found / exact - 1).max() < 1e-4
    whitening = inverse_root(exact)
    assert rounding(target, table, theta, exact, whitening) < 1e-9
    assert rounding(target, table, theta, found, whitening) < 1e-4
    off = exact + 0.1 * np.diag(np.diag(exact))
    assert rounding(target, table, theta, off, whitening) > 0.05


def test_a_root_in_place_is_the_inverse_of_the_factor() -> None:
    square = np.random.default_rng(0).normal(size=(9, 9))
    matrix = square @ square.T + np.eye(9)
    before, root = matrix.copy(), inverse_root(matrix)
    np.testing.assert_array_equal(matrix, before)
    np.testing.assert_allclose(root, np.linalg.inv(np.linalg.cholesky(matrix)).T, rtol=1e-10, atol=1e-12)
    assert root.flags.c_contiguous
    single = inverse_factor(matrix.astype(np.float32))
    np.testing.assert_allclose(single.T @ single, np.linalg.inv(matrix), rtol=1e-2, atol=1e-4)
    with pytest.raises(np.linalg.LinAlgError):
        inverse_root(-matrix)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if four parameters were thousands."""
    for module in (anchors, mode):
        monkeypatch.setattr(module, "WIDE_FROM", 4)
    monkeypatch.setattr(climb, "SMALLEST_SAMPLE", 256)


def of_classes(count: int = 9_000) -> tuple[Target, Table, Any]:
    return placed("classes", count)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("name", ["one predictor", "classes", "an intercept"])
def test_the_climb_ends_at_the_mode(name: str) -> None:
    target, table, start = placed(name, 9_000)
    assert curvature_of(target, start) is Curvature.WIDE
    found = find_anchor(target, table, start)
    assert found.is_wide
    assert found.likelihood_hessian is None
    assert off_mode(found) < 0.02
    assert found.passes < 40
    np.testing.assert_allclose(found.precision, expand(target, table, found.mode).hessian, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(np.linalg.inv(found.precision))), rtol=1e-9)
    assert found.with_derived().derived.covariance is None  # type: ignore[union-attr]


@pytest.mark.usefixtures("wide")
def test_rows_that_matter_are_the_same_by_a_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes to the part that 32 draws leave of a leverage."""
    target, table, start = of_classes()
    found = find_anchor(target, table, start)
    by_sketch = row_sizes(target, table, found)
    monkeypatch.setattr(anchors, "WIDE_FROM", 10_000)
    exact = row_sizes(target, table, found)
    assert np.corrcoef(by_sketch, exact)[0, 1] > 0.9
    assert by_sketch.sum() == pytest.approx(exact.sum(), rel=0.3)
    assert list_rows(target, table, found) is None


def test_what_it_takes_is_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    target, table, _ = of_classes(300)
    assert "GB and about" in str(means_of(target, table))
    assert fits(10)
    assert not fits(10**7)


def chances_of_three(vector: Any, row: Any) -> Any:
    return jax.nn.softmax(jnp.pad(vector.reshape(2, 3) @ row["x"], (1, 0)))


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_an_answer_is_that_of_few_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, by an anchor that keeps one matrix; and by one that keeps all of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3))
    y = (x @ np.array([[0.0, 1.0, -1.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.3]]) + rng.gumbel(size=(20_000, 3))).argmax(1)
    given = {"x": x, "y": y}
    model = tb.families.multinomial(3)
    found = tb.estimate(model, given, ["mean", "sd"], tolerance=0.05, method=tb.Anchored(precision="float64"))
    assert found.converged
    assert isinstance(found.anchor, Anchor)
    assert found.anchor.is_wide
    # The means of its control were drawn for that tolerance.
    assert found.anchor.knows_averages
    with pytest.raises(tb.InputError, match="drawn for that of the run"):
        found.extend(tolerance=1e-7)
    # By a function of one's own, without a derivative for every column of W, as by the family.
    rows = {"x": x[:40]}
    own = make_predictor(found.posterior, OwnResponse(chances_of_three), rows)
    assert own._rule.columns is None
    there, expected = own.all(rows), found.predict(x[:40])
    assert np.abs((there.mean - expected.mean) / expected.sd).max() < 0.1
    assert np.abs(there.sd / expected.sd - 1).max() < 0.1
    assert "a matrix of 6 parameters" in found.anchor.note
    monkeypatch.setattr(anchors, "WIDE_FROM", 2_000)
    monkeypatch.setattr(mode, "WIDE_FROM", 2_000)
    usual = tb.estimate(model, given, ["mean", "sd"], tolerance=0.05, method=tb.Anchored())
    for name in ("mean", "sd"):
        apart = np.abs(found[name].value - usual[name].value) / usual["sd"].value
        assert apart.max() < 0.1
