"""Families by the formula door: orders that are stated, cut points in the table's units, censored times, groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes.errors import DataError, InputError

COUNT = 300
WORDS = np.array(["low", "middle", "high"])


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = 5 + 2 * rng.normal(size=COUNT)
    g = rng.integers(0, 20, COUNT)
    eta = 0.4 * (x - 5) + 0.6 * rng.normal(size=20)[g]
    code = np.digitize(eta + rng.logistic(size=COUNT), [-1.0, 1.0])
    time, end = np.exp(eta) * rng.standard_exponential(COUNT), 6 * rng.random(COUNT)
    return {
        "x": x,
        "g": np.array([f"g{each}" for each in g]),
        "word": WORDS[code],
        "code": code,
        "time": np.minimum(time, end),
        "seen": time < end,
        "cost": np.exp(eta) * rng.gamma(3.0, 1 / 3, COUNT),
    }


@pytest.fixture(scope="module")
def ordinal(table: dict[str, Any]) -> tb.Result:
    formula = 'ordered(word, "low", "middle", "high") ~ x'
    return tb.fit(formula, table, family="ordinal", tolerance=0.05)


def test_cut_points_are_in_the_table_s_units(ordinal: tb.Result, table: dict[str, Any]) -> None:
    """The mode of the same model by hand, on raw columns under a prior that is nearly flat, within half an sd."""
    from scipy.optimize import minimize

    def loss(theta: np.ndarray) -> float:
        cuts = np.concatenate([[-np.inf], [theta[0]], [theta[0] + np.exp(theta[1])], [np.inf]])
        eta = theta[2] * table["x"]
        chance = stats.logistic.cdf(cuts[table["code"] + 1] - eta) - stats.logistic.cdf(cuts[table["code"]] - eta)
        return float(-np.log(np.maximum(chance, 1e-300)).sum())

    best = minimize(loss, [0.0, 0.0, 0.0], method="Nelder-Mead", options={"maxiter": 4_000, "xatol": 1e-6}).x
    mean, sd = ordinal["mean"].value, ordinal["sd"].value
    assert list(mean) == ["x", "low|middle", "middle|high"]
    for name, exact in (("x", best[2]), ("low|middle", best[0]), ("middle|high", best[0] + np.exp(best[1]))):
        assert abs(mean[name] - exact) < 0.5 * sd[name]
    assert any("'low' < 'middle' < 'high'" in note for note in ordinal.notes)
    assert any("cut points N(0, 10^2), in their order" in note for note in ordinal.notes)


def test_chances_of_ordered_classes(ordinal: tb.Result, table: dict[str, Any]) -> None:
    """Averaged over the rows they are the shares of the classes, within 4 sds of a share."""
    found = ordinal.predict(table, interval=None)
    assert found.classes == ("low", "middle", "high")
    np.testing.assert_allclose(found.mean.sum(axis=1), 1.0, atol=1e-9)
    shares = np.bincount(table["code"]) / COUNT
    assert np.abs(found.mean.mean(axis=0) - shares).max() < 4 * 0.5 / COUNT**0.5
    (check,) = ordinal.checks(draws=100)
    assert check.labels == ("low", "middle", "high")
    assert np.all((check.p_value > 0.001) & (check.p_value < 0.999))


def test_an_order_must_be_stated(table: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"whose order is not stated.*ordered\(word"):
        tb.fit("word ~ x", table, family="ordinal", tolerance=0.1)
    with pytest.raises(DataError, match="got 'high'"):
        tb.fit('ordered(word, "low", "middle") ~ x', table, family="ordinal", tolerance=0.1)
    for formula in ("code ~ 0 + x", "code ~ 1"):
        with pytest.raises(InputError, match="cut points"):
            tb.fit(formula, table, family="ordinal", tolerance=0.1)


def test_an_ordered_category_states_its_own(table: dict[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    from tallbayes.formula.design import build_design

    frame = pandas.DataFrame({"x": table["x"], "word": pandas.Categorical(table["word"], WORDS, ordered=True)})
    design = build_design("word ~ x", frame, response="ordered")
    assert design.encoding.classes == ("low", "middle", "high")
    np.testing.assert_array_equal(design.rows["y"], table["code"])
    numbers = build_design("code ~ x", table, response="ordered")
    assert numbers.encoding.classes == (0, 1, 2)


@pytest.mark.parametrize("formula", ["Surv(time, seen) ~ x", "censored(time, status) ~ x"])
def test_censored_times(formula: str, table: dict[str, Any]) -> None:
    """A rate alone: with a wide prior exp(-intercept) is about events over time, within 3 sds."""
    data = {**table, "status": np.where(table["seen"], "none", "right"), "x": np.zeros(COUNT) + table["x"]}
    result = tb.fit(formula.replace("~ x", "~ 1"), data, family="exponential", tolerance=0.05)
    events, total = table["seen"].sum(), table["time"].sum()
    mean, sd = result["mean"].value["Intercept"], result["sd"].value["Intercept"]
    assert abs(mean - np.log(total / events)) < 0.1 * sd + 1 / events
    assert sd == pytest.approx(events**-0.5, rel=0.1)
    assert any("ratio of hazards is 1 / time ratio" in note for note in result.notes)
    with pytest.raises(InputError, match="only bounds"):
        result.checks()


def test_a_new_time_has_the_interval_of_its_law(table: dict[str, Any]) -> None:
    """Of an exponential time with so many events, near to that of a known mean; and its chance there is as asked."""
    result = tb.fit("Surv(time, seen) ~ x", table, family="weibull", tolerance=0.05)
    found = result.predict({"x": [5.0]}, interval=0.9)
    seen = found.observation
    assert seen is not None
    drawn = np.concatenate(list(result.simulate({"x": [5.0] * 400}, draws=200)), axis=1).ravel()
    assert np.mean(drawn < seen.lower[0]) == pytest.approx(0.05, abs=0.005)
    assert np.mean(drawn < seen.upper[0]) == pytest.approx(0.95, abs=0.005)
    assert seen.sd[0] == pytest.approx(drawn.std(), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "family"),
    [("code ~ x + (1 | g)", "ordinal"), ("cost ~ x + (1 | g)", "gamma")],
    ids=["ordinal", "gamma"],
)
def test_groups(formula: str, family: str, table: dict[str, Any]) -> None:
    result = tb.fit(formula, table, family=family, tolerance=0.1)
    assert result.converged
    assert 0.3 < result["mean"].value["sd(Intercept|g)"] < 1.2
    effects = result.effects("g")
    assert len(effects.levels) == 20
    found = result.predict({"x": [5.0, 5.0], "g": ["g3", "never seen"]})
    if family == "ordinal":
        np.testing.assert_allclose(found.mean.sum(axis=1), 1.0, atol=1e-6)
        with pytest.raises(InputError, match="a mixed model whose mean hangs on the linear predictor alone"):
            result.average_effect("x", 7.0, 3.0)
    else:
        assert np.all(found.mean > 0)
    checks = result.checks(draws=50)
    assert np.all(checks[0].p_value > 0.001)
