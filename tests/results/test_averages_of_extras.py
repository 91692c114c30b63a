"""Average effects of families whose mean hangs on extras too, against brute force over draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from averaged import departure, weighted_draws
from scipy import stats
from scipy.special import expit, gammaln

import tallbayes as tb
from tallbayes.moments import Floats

# Two-sided false alarms of a normal error at so many standard errors: 6e-7.
FAR = 5.0
ROWS, DRAWS = 90, 40_000


def table() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    x, t = rng.normal(size=ROWS), rng.integers(0, 2, ROWS).astype(float)
    return {"x": x, "t": t, "eta": 0.4 + 0.5 * x + 0.6 * t, "rng": rng}


def fitted(y: Floats, rows: dict[str, Any], family: str) -> tb.Result:
    columns = {"y": y, "x": rows["x"], "t": rows["t"]}
    return tb.fit("y ~ x + t", columns, family=family, standardise=False, tolerance=0.05)


def drawn(result: tb.Result, log_density: Any, names: list[str], logs: list[str]) -> tuple[Floats, Floats]:
    """Draws of the posterior by its definition, of what is named and the log of the rest; the proposal is the fit's."""
    mean = [result["mean"].value[name] for name in names]
    sd = [result["sd"].value[name] for name in names]
    for name in logs:
        value, spread = result["mean"].value[name], result["sd"].value[name]
        mean.append(np.log(value))
        sd.append(spread / value)
    return weighted_draws(log_density, np.array(mean), 1.5 * np.diag(np.square(sd)), count=DRAWS)


def prior(theta: Floats) -> Floats:
    """Of the intercept and two coefficients."""
    return np.asarray(-0.5 * np.sum((theta[:, :3] / [10.0, 1.0, 1.0]) ** 2, axis=1))


def predictor(theta: Floats, x: Floats, t: Any) -> Floats:
    return np.asarray(theta[:, :1] + theta[:, 1:2] * x + theta[:, 2:3] * t)


NAMES = ["Intercept", "x", "t"]


def test_of_log_normal_times() -> None:
    """mean = exp(eta + sigma^2 / 2); the control is that of the median."""
    rows = table()
    y = np.exp(rows["eta"] + 0.8 * rows["rng"].normal(size=ROWS))
    result = fitted(y, rows, "log_normal")

    def log_density(theta: Floats) -> Floats:
        sigma = np.exp(theta[:, 3:])
        z = (np.log(y) - predictor(theta, rows["x"], rows["t"])) / sigma
        own = -0.5 * np.sum(z**2, axis=1) - (ROWS - 1) * theta[:, 3]
        return np.asarray(own - 0.5 * sigma[:, 0] ** 2 + prior(theta))

    theta, weights = drawn(result, log_density, NAMES, ["noise_scale"])
    moved = np.mean(np.exp(predictor(theta, rows["x"], 1.0)) - np.exp(predictor(theta, rows["x"], 0.0)), axis=1)
    found = result.average_effect("t", 1, 0)
    assert departure(found, moved * np.exp(np.exp(2 * theta[:, 3]) / 2), weights) < FAR
    assert departure(found, moved, weights) > FAR
    ratio = result.average_effect("t", 1, 0, ratio=True)
    assert departure(ratio, np.exp(theta[:, 2]), weights) < FAR


def test_of_counts_over_a_hurdle() -> None:
    """mean = (1 - pi) mu / (1 - exp(-mu)); the control is that of counts without the hurdle."""
    rows = table()
    rng, mu = rows["rng"], np.exp(rows["eta"])
    some = stats.poisson.ppf(rng.uniform(np.exp(-mu), 1.0), mu)
    y = np.where(rng.random(ROWS) < 0.3, 0.0, some)
    result = fitted(y, rows, "hurdle_poisson")
    zeros, above = float(np.sum(y == 0)), y > 0

    def log_density(theta: Floats) -> Floats:
        eta, logit = predictor(theta, rows["x"], rows["t"]), theta[:, 3]
        mean = np.exp(eta)
        own = (y * eta - mean - np.log(-np.expm1(-mean)) - gammaln(y + 1))[:, above].sum(axis=1)
        own += (zeros + 1) * -np.logaddexp(0, -logit) - (ROWS - zeros + 1) * np.logaddexp(0, logit)
        return np.asarray(own + prior(theta))

    share, spread = (result[each].value["zero_share"] for each in ("mean", "sd"))
    centre = np.array([*(result["mean"].value[name] for name in NAMES), np.log(share / (1 - share))])
    sd = np.array([*(result["sd"].value[name] for name in NAMES), spread / (share * (1 - share))])
    theta, weights = weighted_draws(log_density, centre, 1.5 * np.diag(sd**2), count=DRAWS)
    low, high = (np.exp(predictor(theta, rows["x"], t)) for t in (0.0, 1.0))
    moved = np.mean(high / -np.expm1(-high) - low / -np.expm1(-low), axis=1) * expit(-theta[:, 3])
    found = result.average_effect("t", 1, 0)
    assert departure(found, moved, weights) < FAR
    assert departure(found, np.mean(high - low, axis=1) * expit(-theta[:, 3]), weights) > FAR


@pytest.mark.slow
def test_of_ordered_classes_by_name() -> None:
    """There is one effect a class, of its chance, and they add up to none; the control has their order the other way
    round."""
    rows = table()
    code = np.digitize(rows["eta"] + rows["rng"].logistic(size=ROWS), [0.0, 1.5])
    words = np.array(["low", "middle", "high"])
    columns = {"x": rows["x"], "t": rows["t"], "y": words[code]}
    result = tb.fit(
        'ordered(y, "low", "middle", "high") ~ x + t', columns, family="ordinal", standardise=False, tolerance=0.1
    )

    def chances(theta: Floats, t: Any) -> Floats:
        eta = theta[:, :1] * rows["x"] + theta[:, 1:2] * t
        cuts = theta[:, 2], theta[:, 2] + np.exp(theta[:, 3])
        below = [np.zeros_like(eta), *(expit(cut[:, None] - eta) for cut in cuts), np.ones_like(eta)]
        return np.diff(np.stack(below, axis=-1), axis=-1)

    def log_density(theta: Floats) -> Floats:
        chance = chances(theta, rows["t"])[:, np.arange(ROWS), code]
        own = np.log(np.maximum(chance, 1e-300)).sum(axis=1)
        cuts = np.stack([theta[:, 2], theta[:, 2] + np.exp(theta[:, 3])])
        return np.asarray(
            own - 0.5 * np.sum((cuts / 10) ** 2, axis=0) + theta[:, 3] - 0.5 * np.sum(theta[:, :2] ** 2, axis=1)
        )

    mean, sd = result["mean"].value, result["sd"].value
    gap = mean["middle|high"] - mean["low|middle"]
    centre = np.array([mean["x"], mean["t"], mean["low|middle"], np.log(gap)])
    spread = np.array([sd["x"], sd["t"], sd["low|middle"], sd["middle|high"] / gap])
    theta, weights = weighted_draws(log_density, centre, 1.5 * np.diag(spread**2), count=DRAWS)
    moved = (chances(theta, 1.0) - chances(theta, 0.0)).mean(axis=1)
    found = result.average_effect("t", 1, 0)
    assert tuple(found) == ("low", "middle", "high")
    for place, name in enumerate(found):
        assert departure(found[name], moved[:, place], weights) < FAR
    assert departure(found["low"], moved[:, 2], weights) > FAR
    assert sum(found[name].mean.value for name in found) == pytest.approx(0.0, abs=1e-9)
