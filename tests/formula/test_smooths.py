"""Smooths: their basis against closed forms, their posterior against quadrature and NUTS, and what is asked of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.special import ndtr

import tallbayes as tb
from tallbayes.errors import InputError, ModelError
from tallbayes.formula.design import build_design
from tallbayes.formula.smooths.basis import Curves, smooth

NUM_ROWS = 400


def rows_of(wiggle: float, count: int = NUM_ROWS, seed: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows = {"x": rng.uniform(-2, 2, count), "z": rng.normal(size=count), "g": rng.integers(0, 8, count)}
    rows["eta"] = wiggle * np.sin(2 * rows["x"]) + 0.5 * rows["x"] + 0.3 * rows["z"]
    rows["y"] = rows["eta"] + rng.normal(size=count)
    rows["late"] = (rng.random(count) < 1 / (1 + np.exp(-rows["eta"]))).astype(float)
    rows["count"] = rng.poisson(np.exp(0.5 * rows["eta"]))
    return rows


@pytest.mark.parametrize("bs", ["cr", "cc"])
def test_the_basis_is_of_splines_with_one_penalty_for_all(bs: str) -> None:
    """Natural or periodic splines, centred, uncorrelated, with the same integral of f''^2, and one in all of mean
    square; straight lines beyond the knots."""
    x, state = np.random.default_rng(0).gamma(2.0, size=3_000), {}
    smooth(x, k=9, bs=bs, _state=state)
    curves = Curves(*(np.asarray(state[each]) for each in ("at", "values", "bends")), cyclic=bs == "cc")
    knots = curves.knots
    spline = CubicSpline(knots, curves.values, bc_type="natural" if bs == "cr" else "periodic")
    inside, z = np.linspace(knots[0], knots[-1], 500), curves.at(x) - state["means"]
    np.testing.assert_allclose(curves.at(inside), spline(inside), atol=1e-12)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose((z**2).mean(axis=0).sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.corrcoef(z.T), np.eye(z.shape[1]), atol=1e-8)
    fine = np.linspace(knots[0], knots[-1], 200_001)
    penalties = np.trapezoid(spline(fine, 2) ** 2, fine, axis=0)
    np.testing.assert_allclose(penalties, penalties[0], rtol=1e-4)
    beyond = np.linspace(knots[-1], knots[-1] + 5, 50)
    if bs == "cr":
        assert z.shape[1] == 7
        assert np.abs((x - x.mean()) @ z).max() / len(x) < 1e-8
        np.testing.assert_allclose(np.diff(curves.at(beyond), 2, axis=0), 0.0, atol=1e-10)
    else:
        np.testing.assert_allclose(curves.at(beyond), curves.at(beyond - (knots[-1] - knots[0])), atol=1e-10)


class Exact:
    """The posterior of a linear model with known noise: normal given sd, which is left to a quadrature of one axis."""

    def __init__(self, rows: dict[str, Any], noise: float, scale: float = 1.0) -> None:
        design = build_design("y ~ s(x, k=8) + z", rows, response="real", standardise_response=True)
        encoding = design.encoding
        x = np.column_stack([np.ones(len(rows["y"])), np.asarray(design.rows["x"], float)])
        y, sigma = np.asarray(design.rows["y"], float), noise / encoding.response_scale
        t = np.linspace(-9, 3, 3_001)
        sds = np.exp(t)
        smooth_places = 1 + np.array(encoding.coding.of_smooths)
        priors = np.where(np.arange(x.shape[1]) == 0, 100.0, 1.0)[None].repeat(len(t), 0)
        priors[:, smooth_places] = sds[:, None] ** 2
        precision = x.T @ x / sigma**2 + np.eye(x.shape[1]) / priors[:, None]
        covariance = np.linalg.inv(precision)
        mean = covariance @ (x.T @ y / sigma**2)
        log = -0.5 * np.log(priors).sum(axis=1) - 0.5 * np.linalg.slogdet(precision)[1]
        log += 0.5 * mean @ (x.T @ y / sigma**2) - 0.5 * (sds / scale) ** 2 + t
        self.weights = np.exp(log - log.max())
        self.weights /= self.weights.sum()
        self.names = encoding.coding.names
        self.units, self.encoding = encoding.response_scale, encoding
        self.given_mean, self.given_covariance, self.sds = mean[:, 1:], covariance[:, 1:, 1:], sds

    def of(self, direction: np.ndarray) -> tuple[float, float]:
        """Mean and sd of a sum of standardised coefficients, in the units of the response."""
        mean = self.given_mean @ direction
        second = np.einsum("i,nij,j->n", direction, self.given_covariance, direction) + mean**2
        first, square = self.weights @ mean, self.weights @ second
        return self.units * float(first), self.units * float(np.sqrt(square - first**2))

    def quantile(self, direction: np.ndarray, p: float) -> float:
        mean = self.given_mean @ direction
        sd = np.sqrt(np.einsum("i,nij,j->n", direction, self.given_covariance, direction))
        return self.units * float(brentq(lambda q: self.weights @ ndtr((q - mean) / sd) - p, -20, 20))

    @property
    def scale(self) -> tuple[float, float]:
        first, square = self.weights @ self.sds, self.weights @ self.sds**2
        return self.units * float(first), self.units * float(np.sqrt(square - first**2))


def number_of(result: Any, quantity: str, name: str) -> tuple[float, float]:
    """A value and its error."""
    found = result[quantity]
    place = list(found.value).index(name)
    return float(found.flat_value[place]), float(found.flat_error[place])


@cache
def fitted(wiggle: float) -> tuple[Any, dict[str, Any]]:
    rows = rows_of(wiggle)
    options = {"noise_scale": 1.0}
    return tb.fit("y ~ s(x, k=8) + z", rows, "linear", tolerance=0.05, family_options=options), rows


@pytest.mark.parametrize("wiggle", [1.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_the_posterior_is_that_of_quadrature(wiggle: float) -> None:
    """Means and sds of all coefficients, of the scale and of the curve, where there is a signal and where there is
    none. Errors are root mean square: within 5 of them of 60 numbers by chance 4e-5 of the time, the seed fixed."""
    result, rows = fitted(wiggle)
    assert result.converged
    exact = Exact(rows, 1.0)
    unit = np.eye(len(exact.names))
    scales = np.array(exact.encoding.scales)
    known = {name: exact.of(unit[j] / scales[j]) for j, name in enumerate(exact.names)} | {"sd(s(x, k=8))": exact.scale}
    for quantity, place in (("mean", 0), ("sd", 1)):
        for name, numbers in known.items():
            value, error = number_of(result, quantity, name)
            assert abs(value - numbers[place]) <= 5 * error, (quantity, name)
    curve = result.curve("x", 13)
    z = np.asarray(exact.encoding.encode({"x": curve.x, "z": np.full(13, exact.encoding.units["z"][0])}), float)
    for at, row in enumerate(z):
        mean, sd = exact.of(row)
        assert abs(curve.mean[at] - mean) <= 5 * curve.mean_error[at] + 1e-6
        assert abs(curve.sd[at] - sd) <= 5 * curve.sd_error[at]
        assert abs(curve.upper[at] - exact.quantile(row, 0.975)) <= 5 * curve.upper_error[at]
    # The negative control: under a prior twice as wide the scale is another.
    other = Exact(rows, 1.0, scale=2.0).scale
    if wiggle:
        assert abs(other[0] - known["sd(s(x, k=8))"][0]) > 8 * number_of(result, "mean", "sd(s(x, k=8))")[1]


def test_predictions_of_new_rows_and_of_a_file(tmp_path: Any) -> None:
    """Exact means by quadrature; straight beyond the knots; the same from a file."""
    result, rows = fitted(1.0)
    exact = Exact(rows, 1.0)
    new = {"x": [0.5, 3.0, 4.0, 5.0], "z": [0.0] * 4}
    x = np.asarray(exact.encoding.encode(new), float)
    result.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result")
    for found in (result.predict(new), loaded.predict(new)):
        change = [exact.of(x[i] - x[0])[0] for i in range(4)]
        moved = found.mean - found.mean[0]
        assert np.all(np.abs(moved - change) <= 5 * (found.error + found.error[0]))
        assert moved[3] - moved[2] == pytest.approx(moved[2] - moved[1], abs=1e-6)
        assert np.all(found.observation_sd > 1.0)
    np.testing.assert_allclose(loaded.curve("x", 5).mean, result.curve("x", 5).mean)


def test_rows_are_compared_along_the_curve() -> None:
    result, _ = fitted(1.0)
    found = result.compare({"x": 1.0, "z": 0.0}, {"x": -1.0, "z": 0.0})
    curve = result.curve("x", [1.0], against=-1.0)
    assert abs(found.mean.value - curve.mean[0]) <= 4 * (found.mean.error + curve.mean_error[0])
    assert abs(found.sd.value - curve.sd[0]) <= 4 * (found.sd.error + curve.sd_error[0])
    assert found.mean.value > 1.5


def test_replicated_responses_follow_the_curve() -> None:
    result, rows = fitted(1.0)
    (y,) = list(result.simulate(draws=200, seed=3))
    mean = y.mean(axis=0)
    # 200 draws of sd about 1, 400 rows; a straight line would be off by 0.7.
    assert np.abs(mean - rows["eta"] - (mean - rows["eta"]).mean()).mean() < 0.2


@pytest.mark.parametrize("formula", ["y ~ x + I(x**2) + z", "y ~ poly(x, 2) + z"])
def test_a_curve_of_squares_is_a_line_at_every_point(formula: str) -> None:
    """The same function in two bases, by projections; with nothing where it is against itself."""
    _, rows = fitted(1.0)
    result = tb.fit(formula, rows, "linear", tolerance=0.03)
    curve = result.curve("x", [-1.0, 0.5, 1.0], against=0.5)
    design = np.column_stack([np.ones(NUM_ROWS), rows["x"], rows["x"] ** 2, rows["z"]])
    beta = np.linalg.lstsq(design, rows["y"])[0]
    wanted = beta[1] * (curve.x - 0.5) + beta[2] * (curve.x**2 - 0.25)
    np.testing.assert_allclose(curve.mean, wanted, atol=0.02)
    assert curve.mean[1] == curve.sd[1] == 0.0
    assert str(curve).startswith("x ")


REFUSED = {
    "a category": (lambda result: result.curve("g"), "a column of numbers"),
    "an average effect": (lambda result: result.average_effect("x", 1, 0), "a fit with smooths"),
    "a probability": (lambda result: result.curve("x", probability=2.0), "a probability"),
    "points": (lambda result: result.curve("x", [0.0, np.nan]), "points that are numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_of_a_smooth_is_told(name: str) -> None:
    ask, text = REFUSED[name]
    with pytest.raises(InputError, match=text):
        ask(fitted(1.0)[0])


def test_scales_of_smooths_are_asked_for_by_name() -> None:
    _, rows = fitted(1.0)
    with pytest.raises(InputError, match=r"group_scale=\{'s\(x\)': 2.0\}"):
        tb.fit("y ~ s(x)", rows, "linear", prior_scale={"s(x)[1]": 2.0})
    with pytest.raises(ModelError, match="one linear predictor"):
        tb.fit("g ~ s(x)", rows, "multinomial")


def test_a_table_on_disk_has_the_same_smooth(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a sample of its rows and all extremes: another basis, of the same curves."""
    import pandas as pd

    from tallbayes.formula import survey

    rows = rows_of(1.0, count=6_000)
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    stored = tb.ingest(tmp_path / "a.parquet", tmp_path / "table")
    whole = build_design("y ~ s(x) + z", rows, response="real").encoding
    same = build_design("y ~ s(x) + z", stored, response="real").encoding
    monkeypatch.setattr(survey, "SAMPLE_ROWS", 3_000)
    design = build_design("y ~ s(x) + z", stored, response="real", standardise="numbers", missing="drop")
    new = {"x": np.linspace(-3, 3, 50), "z": np.zeros(50)}
    np.testing.assert_allclose(same.encode(new), whole.encode(new), atol=1e-4)
    state = design.encoding.coding.states["s(x)"]
    np.testing.assert_allclose([state["at"][0], state["at"][-1]], [rows["x"].min(), rows["x"].max()], rtol=1e-6)
    assert any("s(x) learnt from" in note for note in design.notes)
    assert np.std(design.encoding.encode(new)[:, 1:] - whole.encode(new)[:, 1:]) < 0.05


@pytest.mark.slow
def test_beside_groups_the_curve_is_that_of_quadrature_too(tmp_path: Any) -> None:
    """Eight groups, whose effects are integrated out; against least squares with a column a group, which a wide prior
    of many rows is near. Predictions of a file are those of the process, for a group that is new."""
    rows = rows_of(1.0, count=2_000)
    effects = np.random.default_rng(3).normal(size=8)
    table = {"x": rows["x"], "g": np.char.add("g", rows["g"].astype(str)), "y": rows["y"] + effects[rows["g"]]}
    result = tb.fit("y ~ s(x) + (1 | g)", table, "linear", tolerance=0.05)
    assert result.converged
    curve = result.curve("x", np.linspace(-1.8, 1.8, 7), against=0.0)
    truth = np.sin(2 * curve.x) + 0.5 * curve.x
    # Seven points, of one seed: beyond 4.5 sds by chance 5e-5.
    assert np.all(np.abs(curve.mean - truth) <= 4.5 * curve.sd + 1e-9)
    both = result.compare({"x": 0.9, "g": "g1"}, {"x": 0.0, "g": "g1"})
    there = result.curve("x", [0.9], against=0.0)
    assert abs(both.mean.value - there.mean[0]) <= 4 * (both.mean.error + there.mean_error[0])
    result.save(tmp_path / "result")
    new = {"x": [0.5], "g": ["another"]}
    loaded = tb.load(tmp_path / "result")
    np.testing.assert_allclose(loaded.predict(new).mean, result.predict(new).mean, rtol=1e-10)
    found = result.effects("g")
    assert np.corrcoef(np.ravel(found.mean), effects)[0, 1] > 0.98
    with pytest.raises(InputError, match="rows of one group"):
        result.compare({"x": 0.9, "g": "g1"}, {"x": 0.0, "g": "g2"})


@pytest.mark.slow
def test_a_run_on_disk_is_asked_for_its_curve(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """From ingest to a curve and to predictions by the command line; beyond the knots a straight line."""
    import pandas as pd

    from tallbayes.commands import cli

    pd.DataFrame(rows_of(1.0, count=20_000)).to_parquet(tmp_path / "a.parquet")
    table, run, out = (str(tmp_path / name) for name in ("a.table", "run", "new.csv"))
    assert cli.main(["ingest", str(tmp_path / "a.parquet"), "--out", table]) == 0
    fit = ["fit", table, "--formula", "y ~ s(x) + z", "--family", "linear", "--tolerance", "0.1", "--out", run]
    assert cli.main(fit) == 0
    assert cli.main(["curve", run, "x", "--points", "5", "--csv"]) == 0
    lines = [line.split(",") for line in capsys.readouterr().out.strip().splitlines()]
    start = next(place for place, line in enumerate(lines) if line[:2] == ["x", "mean"])
    numbers = np.array(lines[start + 1 :], float)
    truth = np.sin(2 * numbers[:, 0]) + 0.5 * numbers[:, 0]
    # About its mean over the rows, which is 0 by symmetry; bounds of 5 sds and 0.03 for that and for ten knots.
    assert np.all(np.abs(numbers[:, 1] - truth) <= 5 * numbers[:, 3] + 0.05)
    pd.DataFrame({"x": [3.0, 4.0, 5.0], "z": [0.0] * 3}).to_csv(tmp_path / "in.csv", index=False)
    assert cli.main(["predict", run, str(tmp_path / "in.csv"), "--out", out]) == 0
    mean = pd.read_csv(out)["prediction"].to_numpy()
    assert mean[2] - mean[1] == pytest.approx(mean[1] - mean[0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_agreement_with_nuts(family: str) -> None:
    """4,000 draws of NumPyro in the scaled form. A z-score of 60 numbers beyond 5 by chance: 3e-5."""
    numpyro = pytest.importorskip("numpyro")
    import jax
    import numpyro.distributions as dist
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    rows, response = rows_of(1.0), {"logistic": "late", "poisson": "count"}[family]
    formula = f"{response} ~ s(x, k=8) + s(z, k=6)"
    design = build_design(formula, rows, response={"logistic": "binary", "poisson": "count"}[family])
    x, y = np.asarray(design.rows["x"], float), np.asarray(design.rows["y"], float)
    smooths = design.encoding.coding.smooths

    def model() -> None:
        intercept = numpyro.sample("intercept", dist.Normal(0, 10))
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]))
        for smooth_columns in smooths:
            sd = numpyro.sample(f"sd({smooth_columns.factor})", dist.HalfNormal(1.0))
            beta = beta * jax.numpy.where(np.isin(np.arange(x.shape[1]), smooth_columns.places), sd, 1.0)
        numpyro.deterministic("own", beta)
        eta = intercept + x @ beta
        law = dist.Bernoulli(logits=eta) if family == "logistic" else dist.Poisson(jax.numpy.exp(eta))
        numpyro.sample("y", law, obs=y)

    with jax.enable_x64(True):
        sampler = MCMC(
            NUTS(model, target_accept_prob=0.95),
            num_warmup=500,
            num_samples=2_000,
            num_chains=2,
            chain_method="sequential",
            progress_bar=False,
        )
        sampler.run(jax.random.key(1))
        draws = {name: np.asarray(each) for name, each in sampler.get_samples(group_by_chain=True).items()}
    result = tb.fit(formula, rows, family, tolerance=0.03)
    assert result.converged
    chains = {name: draws["own"][..., j] / design.encoding.scales[j] for j, name in enumerate(design.names)}
    chains |= {f"sd({each.factor})": draws[f"sd({each.factor})"] for each in smooths}
    points = {"x": np.linspace(-1.8, 1.8, 5), "z": np.linspace(-2.0, 2.0, 5)}
    numbers = [(*number_of(result, "mean", name), number_of(result, "sd", name)[0], chains[name]) for name in chains]
    for column, grid in points.items():
        curve = result.curve(column, grid)
        both = {name: grid if name == column else np.full(5, rows[name][0]) for name in points}
        places = [place for place, name in enumerate(design.names) if name.startswith(f"s({column}")]
        values = draws["own"][..., places] @ np.asarray(design.encoding.encode(both), float)[:, places].T
        numbers += [(curve.mean[k], curve.mean_error[k], curve.sd[k], values[..., k]) for k in range(5)]
    for mean, error, sd, chain in numbers:
        spread, size = chain.std(), effective_sample_size(chain)
        assert abs(mean - chain.mean()) <= 5 * np.hypot(error, spread / np.sqrt(size))
        assert sd == pytest.approx(spread, rel=0.15)


def influence(rows: dict[str, Any], scale: float) -> float:
    """The trace of the smooth's part of (X^T X / sigma^2 + P)^-1 X^T X / sigma^2, with noise 1, by hand."""
    design = build_design("y ~ s(x, k=8) + z", rows, response="real", standardise_response=True)
    assert isinstance(design.rows, dict)
    x = np.column_stack([np.asarray(design.rows["x"], float), np.ones(NUM_ROWS)])
    information, prior = x.T @ x * design.encoding.response_scale**2, np.ones(x.shape[1])
    prior[list(design.encoding.coding.of_smooths)] = scale**-2.0
    prior[-1] = 1e-2
    share = np.diag(np.linalg.solve(information + np.diag(prior), information))
    return float(share[[name.startswith("s(x") for name in (*design.names, "")]].sum())


def test_degrees_of_freedom_are_the_trace_of_the_influence() -> None:
    """At the scale where the Gaussian is centred, with another scale for a control; a straight line uses fewer."""
    from tallbayes.results.smooths.predictions import FamilyTheta

    result, rows = fitted(1.0)
    (found,) = result.smooths()
    scale = float(FamilyTheta.of(result).reader.theta(result.posterior.anchor.mode)[-1])
    assert found.columns == 7
    assert found.edf == pytest.approx(influence(rows, scale), rel=1e-3)
    assert abs(found.edf - influence(rows, scale / 3)) > 0.2
    assert found.scale.value == pytest.approx(result["mean"].value["sd(s(x, k=8))"])
    straight, _ = fitted(0.0)
    assert 1 <= straight.smooths()[0].edf < found.edf - 1
    with pytest.raises(InputError, match="with smooths"):
        tb.fit("y ~ x", rows, "linear", tolerance=0.5).smooths()


def test_the_summary_has_a_line_a_smooth(tmp_path: Any) -> None:
    result, _ = fitted(1.0)
    result.save(tmp_path / "r")
    for each in (result, tb.load(tmp_path / "r")):
        text = each.summary()
        assert "s(x, k=8)[" not in text
        assert "sd(s(x, k=8))" in text
        assert f"edf {result.smooths()[0].edf:.1f} of 7" in " ".join(text.split())
    assert sum(each.name.startswith("s(x, k=8)[") for each in result.coefficients()) == 7
    assert "draws about a Gaussian that bends with the scales" in " ".join(str(result).split())
