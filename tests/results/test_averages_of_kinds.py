"""Average effects of mixed models, of classes and of models of one's own, against brute force over draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from averaged import departure, weighted_draws
from clubs import SCALE, closed_form, gaussian_rows
from small_schools import FORMULA, PUPILS, SCHOOLS, Drawn, drawn, fitted, rows

import tallbayes as tb
from tallbayes.formula.again.rows import with_rows
from tallbayes.moments import Floats
from tallbayes.results.averages.totals import Sample
from tallbayes.results.averages.units import Units

# Two-sided false alarms of a normal error at so many standard errors: 6e-7.
FAR = 5.0
SCHOOL = np.repeat(np.arange(SCHOOLS), PUPILS)


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallbayes.results.averages.targets.MOST_EVALUATIONS", 2**24)


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return fitted()


@pytest.fixture(scope="module")
def brute() -> Drawn:
    return drawn()


def chance(eta: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-eta)))


def both(brute: Drawn, schools: np.ndarray = SCHOOL, low: float = 0.0) -> tuple[Floats, Floats]:
    """The mean response with x at 1 and at `low`, over rows of some schools."""
    return tuple(chance(brute.eta(x, schools)).mean(axis=1) for x in (1.0, low))  # type: ignore[return-value]


def part(schools: list[int]) -> dict[str, Any]:
    """Rows of some schools."""
    inside = np.isin(SCHOOL, schools)
    return {name: list(np.asarray(each)[inside]) for name, each in rows().items()}


def test_a_row_has_the_effect_of_its_own_group(result: tb.Result, brute: Drawn) -> None:
    high, low = both(brute)
    found = result.average_effect("x", 1.0, 0.0)
    assert found.rows == SCHOOLS * PUPILS
    assert departure(found, high - low, brute.weight) < FAR
    assert departure(result.average_effect("x", 1.0, 0.0, ratio=True), high / low, brute.weight) < FAR
    x, slopes = rows()["x"], np.zeros(len(brute.weight))
    for each, school in zip(x, SCHOOL, strict=True):
        p = chance(brute.eta(each, np.array([school])))[:, 0]
        slopes += p * (1 - p) * brute.theta[:, 1] / len(x)
    assert departure(result.average_slope("x"), slopes, brute.weight) < FAR


def test_what_is_unknown_of_an_effect_is_in_the_interval(result: tb.Result, brute: Drawn) -> None:
    """Of the ten rows of one school, whose effect has most of the variance; the control is what theta alone has."""
    found = result.average_effect("x", 1.0, -3.0, rows=part([3]))
    high, low = both(brute, np.array([3]), -3.0)
    assert departure(found, high - low, brute.weight) < FAR
    swapped = brute._replace(z=np.broadcast_to((brute.weight @ brute.z), brute.z.shape))
    high, low = both(swapped, np.array([3]), -3.0)
    assert departure(found, high - low, brute.weight) > FAR


def test_of_new_groups_effects_are_integrated_over_their_law(result: tb.Result, brute: Drawn) -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    level, slope, tau = brute.theta.T[:, :, None]
    high, low = (chance(level + slope * x + tau * nodes) @ (weights / weights.sum()) for x in (1.0, 0.0))
    found = result.average_effect("x", 1.0, 0.0, groups="new")
    assert departure(found, high - low, brute.weight) < FAR
    plain = chance(level + slope) - chance(level)
    assert departure(found, plain[:, 0], brute.weight) > FAR


def test_levels_share_the_effects_of_their_groups(result: tb.Result, brute: Drawn) -> None:
    """Halves of every school: their contrast has less variance than two that know nothing of each other would."""
    table, half = rows(), np.where(np.arange(SCHOOLS * PUPILS) % 2, "odd", "even")
    table["half"] = half
    few = result.average_effect("x", 2.0, 0.5, rows=_of_some(table, half), by="half")
    odd, even = SCHOOL[(half == "odd") & (SCHOOL < 7)], SCHOOL[half == "even"]
    first, other = ((chance(brute.eta(2.0, own)) - chance(brute.eta(0.5, own))).mean(axis=1) for own in (odd, even))
    assert tuple(few) == ("even", "odd")
    assert departure(few["odd"], first, brute.weight) < FAR
    assert departure(few["even"], other, brute.weight) < FAR
    found = few.contrast("odd", "even")
    assert departure(found, first - other, brute.weight) < FAR
    apart = np.hypot(few["odd"].sd.value, few["even"].sd.value)
    assert abs(found.sd.value - apart) > FAR * found.sd.error


def _of_some(table: dict[str, Any], half: np.ndarray) -> dict[str, Any]:
    """Odd rows of the first seven schools alone, and even ones of all."""
    inside = (half == "even") | (SCHOOL < 7)
    return {name: list(np.asarray(each)[inside]) for name, each in table.items()}


def test_rows_on_disk_say_the_same(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    here = result.average_effect("x", 1.0, 0.0)
    monkeypatch.setattr("tallbayes.results.averages.units.IN_MEMORY", 1)
    np.testing.assert_array_equal(result.average_effect("x", 1.0, 0.0).values, here.values)


def test_a_sample_of_groups_knows_what_it_misses(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight of the fourteen schools; slopes and what is known at the centre are of all."""
    whole = result.average_effect("x", 1.0, -3.0)
    monkeypatch.setattr("tallbayes.results.averages.totals.FEWEST_UNITS", 8)
    monkeypatch.setattr("tallbayes.results.averages.targets.MOST_EVALUATIONS", 0)
    seen = []
    for seed in range(8):
        monkeypatch.setattr("tallbayes.results.averages.totals.SEED", seed)
        some = result.average_effect("x", 1.0, -3.0)
        seen.append((some.values[:2] - whole.values[:2]) / some.standard_errors[:2])
        assert abs(some.mean.value - whole.mean.value) < 0.1 * whole.sd.value
    assert 0 < np.abs(seen).max() < FAR


def test_no_unit_of_a_length_may_be_kept() -> None:
    """Of two lengths with far smaller keys at one of them."""
    sample = Sample(2)
    for length, keys in ((1, np.array([5.0, 6.0])), (4, np.array([1.0, 2.0, 3.0, 4.0]))):
        count = len(keys)
        places = np.full((count, length), 0)
        sample.add(keys, np.ones(count), Units({"x": np.zeros((count, length, 2))}, 1.0 + places, places, places[:, 0]))
    ((units, member),) = sample.weighted()
    assert len(units) == 2
    assert member.shape == (2, 17)


@pytest.mark.slow
def test_a_run_answers_from_its_table(result: tb.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.tallbayes")
    loaded, path = tb.load(tmp_path / "result.tallbayes"), tmp_path / "schools.csv"
    lines = [f"{float(x)!r},{int(y)},{school}" for x, y, school in zip(*rows().values(), strict=True)]
    path.write_text("\n".join(["x,y,school", *lines]))
    with pytest.raises(tb.InputError, match="rows"):
        loaded.average_effect("x", 1.0, 0.0, rows=path)
    new = loaded.average_effect("x", 1.0, 0.0, rows=path, groups="new")
    np.testing.assert_allclose(new.values, result.average_effect("x", 1.0, 0.0, groups="new").values, rtol=1e-6)
    settings = {"data": str(path), "formula": FORMULA, "family": "logistic", "raw": True}
    again, here = with_rows(loaded, settings).average_effect("x", 1.0, 0.0), result.average_effect("x", 1.0, 0.0)
    assert np.all(np.abs(again.values - here.values) < FAR * np.hypot(again.errors, here.errors))


def test_what_cannot_be_asked_of_groups(result: tb.Result) -> None:
    with pytest.raises(tb.InputError, match="rows of groups of 'school' that were fitted"):
        result.average_effect("x", 1.0, 0.0, rows={"x": [0.0, 1.0], "school": ["s0", "none"], "y": [True, False]})
    with pytest.raises(tb.InputError, match=r"result\.compare\('school', a, b\)"):
        result.average_effect("school", "s0", "s1")
    table = rows() | {"many": [str(each) for each in range(SCHOOLS * PUPILS)]}
    with pytest.raises(tb.InputError, match="at most 16 levels"):
        result.average_effect("x", 1.0, 0.0, rows=table, by="many")


# Several classes.

CLASSES = ("no", "yes", "zed")


def class_rows() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x, t = rng.normal(size=120), rng.integers(0, 2, 120).astype(float)
    chances = class_chances(np.array([[0.0, 0.5, 0.8, 0.0, -0.6, 0.3]]), x, t)[0]
    y = (rng.random((120, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    return {"x": x, "t": t, "y": [CLASSES[min(each, 2)] for each in y], "side": np.where(x > 0, "right", "left")}


def class_chances(theta: Floats, x: Floats, t: Floats) -> Floats:
    """Of theta by class as intercept, x and t: (draws, rows, classes)."""
    columns = np.stack([np.ones_like(x), x, t])
    eta = np.stack([np.zeros((len(theta), len(x))), theta[:, :3] @ columns, theta[:, 3:] @ columns], axis=-1)
    found = np.exp(eta - eta.max(axis=-1, keepdims=True))
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def test_there_is_one_effect_a_class() -> None:
    table = class_rows()
    plain = {name: table[name] for name in ("x", "t", "y")}
    result = tb.fit("y ~ x + t", plain, family="multinomial", standardise=False, tolerance=0.05)
    y = np.array([CLASSES.index(each) for each in table["y"]])

    def log_density(theta: Floats) -> Floats:
        chances = class_chances(theta, table["x"], table["t"])
        own = np.log(chances[:, np.arange(len(y)), y]).sum(axis=1)
        return np.asarray(own - 0.5 * np.sum((theta / [10.0, 1, 1, 10, 1, 1]) ** 2, axis=1))

    flat = [result["mean"].value[name][term] for name in CLASSES[1:] for term in ("Intercept", "x", "t")]
    spread = [result["sd"].value[name][term] for name in CLASSES[1:] for term in ("Intercept", "x", "t")]
    theta, weights = weighted_draws(log_density, np.array(flat), np.diag(1.2 * np.square(spread)), count=30_000)
    ones = np.ones(len(y))
    moved = class_chances(theta, table["x"], ones) - class_chances(theta, table["x"], 0 * ones)
    found = result.average_effect("t", 1, 0)
    assert tuple(found) == CLASSES
    for place, name in enumerate(CLASSES):
        assert departure(found[name], moved[..., place].mean(axis=1), weights) < FAR
    assert sum(found[name].mean.value for name in found) == pytest.approx(0.0, abs=1e-12)
    gap = found.contrast("yes", "zed")
    assert gap.rows == len(y)
    assert departure(gap, (moved[..., 1] - moved[..., 2]).mean(axis=1), weights) < FAR
    assert departure(gap, (moved[..., 2] - moved[..., 1]).mean(axis=1), weights) > 4 * FAR
    by = result.average_effect("t", 1, 0, by="side", rows=table)
    left = table["side"] == "left"
    assert departure(by["left", "yes"], moved[:, left, 1].mean(axis=1), weights) < FAR
    assert list(by.to_pandas()["side"][:3]) == ["left"] * 3
    assert by.contrast(("left", "yes"), ("right", "yes")).rows == len(y)


# Models of one's own.


def own_rows() -> dict[str, Floats]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 2))
    return {"x": x, "z": x[:, 0].copy(), "y": rng.poisson(np.exp(0.3 + 0.5 * x[:, 0])).astype(float)}


def own_mean(theta: Any, row: Any) -> Any:
    return jnp.exp(theta["level"] + theta["slopes"] @ row["x"])


def test_a_model_of_ones_own_says_what_it_expects() -> None:
    rows = own_rows()
    model = tb.Model(
        log_prior=lambda theta: -0.5 * (theta["level"] ** 2 + jnp.sum(theta["slopes"] ** 2)),
        log_likelihood=lambda theta, row: row["y"] * jnp.log(own_mean(theta, row)) - own_mean(theta, row),
        initial={"level": 0.0, "slopes": np.zeros(2)},
        predict=own_mean,
    )
    result = tb.estimate(model, rows, tolerance=0.05)
    x, y = rows["x"], rows["y"]

    def log_density(theta: Floats) -> Floats:
        eta = theta[:, :1] + theta[:, 1:] @ x.T
        return np.asarray(eta @ y - np.exp(eta).sum(axis=1) - 0.5 * np.sum(theta**2, axis=1))

    mean, sd = (np.append(result[each].value["level"], result[each].value["slopes"]) for each in ("mean", "sd"))
    theta, weights = weighted_draws(log_density, mean, np.diag(1.3 * sd**2), count=60_000)
    rest = np.exp(theta[:, :1] + theta[:, 2:] * x[:, 1]).mean(axis=1)
    moved = rest * (np.exp(theta[:, 1]) - 1)
    assert departure(result.average_effect(("x", 0), 1.0, 0.0), moved, weights) < FAR
    slope = (theta[:, 2:] * np.exp(theta[:, :1] + theta[:, 1:] @ x.T)).mean(axis=1)
    assert departure(result.average_slope(("x", 1)), slope, weights) < FAR
    two = result.average_effect(
        ("x", 0),
        1.0,
        0.0,
        response=lambda theta, row: {"log": jnp.log(own_mean(theta, row)), "own": own_mean(theta, row)},
    )
    assert tuple(two) == ("log", "own")
    assert departure(two["log"], theta[:, 1], weights) < FAR
    assert departure(two["own"], moved, weights) < FAR
    for column in ("x", ("x", 2), "nothing"):
        with pytest.raises(tb.InputError, match=r"expected (one number a row|an array of the rows)"):
            result.average_effect(column, 1.0, 0.0)
    with pytest.raises(tb.InputError, match="a model that says what to expect of a row"):
        result.average_effect("z", 1.0, 0.0, response=1)


def test_a_model_of_ones_own_has_groups() -> None:
    """y ~ N(b, 0.5^2), b ~ N(m, 0.2^2): what is asked for is linear in the effects, and known in closed form."""
    table = gaussian_rows() | {"dose": np.zeros(len(gaussian_rows()["y"]))}
    model = tb.Model(
        log_prior=lambda theta: -0.5 * theta**2,
        log_likelihood=lambda theta, b, row: -0.5 * ((row["y"] - b) / 0.5) ** 2,
        initial=0.0,
        groups=tb.Groups("club", 0.0, lambda theta, b: -0.5 * ((b - theta) / SCALE) ** 2),
        predict=lambda theta, b, row: b * row["dose"],
    )
    result = tb.estimate(model, table, tolerance=0.05)
    mean, covariance = closed_form()

    def close(found: Any, weights: Floats) -> bool:
        exact = weights @ mean, np.sqrt(weights @ covariance @ weights)
        return bool(np.all(np.abs(found.values[:2] - exact) < FAR * found.errors[:2] + 1e-6))

    own = np.append(0.0, np.full(len(mean) - 1, 2 / (len(mean) - 1)))
    first = np.zeros(len(mean))
    first[1] = 2.0
    whole = result.average_effect("dose", 2.0, 0.0)
    assert close(whole, own)
    assert not close(whole, first)
    by = result.average_effect("dose", 2.0, 0.0, by="club")
    assert close(by[0], first)
    lower = first @ mean - 1.96 * np.sqrt(first @ covariance @ first)
    assert abs(by[0].lower.value - lower) < FAR * by[0].lower.error + 1e-3
    new = result.average_effect("dose", 2.0, 0.0, groups="new")
    assert close(new, 2 * np.eye(len(mean))[0])


def group_rows() -> dict[str, Any]:
    rng = np.random.default_rng(6)
    school, x = rng.integers(0, 8, 160), rng.normal(size=160)
    slopes = 0.8 + 0.6 * rng.normal(size=8)
    return {"y": 3.0 + slopes[school] * x + 0.5 * rng.normal(size=160), "x": x, "school": [f"s{g}" for g in school]}


@pytest.mark.slow
def test_slopes_that_vary_are_those_of_their_groups() -> None:
    """Of a linear model an effect is the slope and the mean of the schools' own, by their rows; of new schools it is
    the slope alone."""
    result = tb.fit("y ~ x + (1 + x | school)", group_rows(), "linear", tolerance=0.1)
    effects, mean = result.effects("school"), result["mean"].value["x"]
    share, place = effects.counts / effects.counts.sum(), effects.names.index("x")
    own, error = mean + share @ effects.mean[:, place], result["mean"].flat_error.max()
    allowed = error + share @ effects.mean_error[:, place]
    found, new = (result.average_effect("x", 2.0, 0.0, groups=each) for each in ("own", "new"))
    assert abs(found.mean.value - 2 * own) < FAR * (found.mean.error + 2 * allowed)
    assert abs(new.mean.value - 2 * mean) < FAR * (new.mean.error + 2 * error)
    assert new.sd.value > 2 * found.sd.value
    assert abs(result.average_slope("x").mean.value - own) < FAR * (found.mean.error + allowed)


@pytest.mark.slow
def test_paths_say_the_same_of_own_groups(brute: Drawn) -> None:
    found = fitted(method=tb.Anchored()).average_effect("x", 1.0, -3.0, rows=part([3]))
    high, low = both(brute, np.array([3]), -3.0)
    assert departure(found, high - low, brute.weight) < FAR


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_errors_cover_what_they_should_over_seeds() -> None:
    """Fifty fits: of 400 numbers, correlated within a fit, those within 1.96 errors are 95% less five standard errors
    of fifty, and their root mean square is no more than 1.3."""
    brute = drawn(120_000, seed=3)
    weight, third, exact = brute.weight, np.array([3]), {}
    asked = {"own": (SCHOOL, 0.0), "one": (third, -3.0)}
    for name, (schools, low) in asked.items():
        high, other = both(brute, schools, low)
        values, order = high - other, np.argsort(high - other)
        centre = weight @ values
        ends = np.interp([0.025, 0.975], np.cumsum(weight[order]), values[order])
        exact[name] = np.array([centre, np.sqrt(weight @ (values - centre) ** 2), *ends])
    scores, own = [], part([3])
    for seed in range(50):
        result = fitted(seed=seed)
        found = result.average_effect("x", 1.0, 0.0), result.average_effect("x", 1.0, -3.0, rows=own)
        scores.append([(each.values - exact[name]) / each.errors for each, name in zip(found, asked, strict=True)])
    z = np.array(scores)
    inside = np.abs(z) < 1.96
    told = {name: (inside[:, k].mean(axis=0), np.sqrt((z[:, k] ** 2).mean(axis=0))) for k, name in enumerate(asked)}
    assert inside.mean() > 0.95 - FAR * np.sqrt(0.05 * 0.95 / 50), told
    assert np.sqrt(np.mean(z**2)) < 1.3, told
