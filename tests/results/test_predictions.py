"""Predictions: posterior expectations for new rows, against quadrature, in every family, from tables and to files.

Held to five of their own errors, a false alarm in 10^5 or so a number; one fit for most tests.
"""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import nbinom, norm, poisson
from still import still_posterior

import tallbayes as tb
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.posterior import predictor
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.predictor import FamilyResponse, make_predictor
from tallbayes.rows import formats


def predicted(posterior: Posterior, family: str, layout: Layout, x: np.ndarray, at_least: tuple[int, ...] = ()):
    rows = x, np.zeros(len(x))
    return make_predictor(posterior, FamilyResponse(Wanted(family, at_least), layout), rows).all(rows)


def test_a_gaussian_is_exact_by_quadrature() -> None:
    """E Phi(eta) = Phi(m / sqrt(1 + v)), and the sd of a linear predictor is sqrt(v)."""
    mode, precision = np.array([0.5, -0.3, 0.2]), np.diag([4.0, 9.0, 2.0])
    x = np.random.default_rng(1).normal(size=(7, 2))
    rows = np.column_stack([x, np.ones(7)])
    variance = np.sum(rows**2 / np.diag(precision), axis=1)
    found = predicted(still_posterior(mode, precision), "probit", Layout(1, True), x)
    np.testing.assert_allclose(found.mean[:, 0], norm.cdf(rows @ mode / np.sqrt(1 + variance)), atol=1e-9)
    np.testing.assert_allclose(found.standard_error, 0, atol=1e-7)
    line = predicted(still_posterior(mode, precision), "linear", Layout(1, True), x)
    np.testing.assert_allclose(line.sd[:, 0], np.sqrt(variance), rtol=1e-6)


def test_several_classes_share_their_draws() -> None:
    mode = np.array([0.5, -0.3, 0.2, 0.1, 0.4, -0.2])
    x = np.random.default_rng(1).normal(size=(5, 2))
    found = predicted(still_posterior(mode, 50 * np.eye(6)), "multinomial", Layout(2, True), x)
    assert found.mean.shape == (5, 3)
    np.testing.assert_allclose(found.mean.sum(axis=1), 1, atol=1e-6)
    draws = mode + np.random.default_rng(3).normal(size=(200_000, 6)) / np.sqrt(50)
    eta = x @ draws[:, :4].reshape(-1, 2, 2).transpose(0, 2, 1) + draws[:, None, 4:]
    chances = softmax(np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1), axis=-1)
    # 200,000 draws err by 2e-4 at most, the ensemble by its own error.
    assert np.all(np.abs(found.mean - chances.mean(axis=0)) < 5 * np.hypot(found.standard_error, 2e-4))
    np.testing.assert_allclose(found.sd, chances.std(axis=0), rtol=0.15)


@pytest.mark.parametrize("k", [0, 1, 4, 30])
def test_tails_of_counts_are_scipys(k: int) -> None:
    """At a posterior that is next to a point, P(y >= k) is the family's own."""
    x, tight = np.array([[0.3], [2.0]]), 1e8
    mean = np.exp(x[:, 0])
    found = predicted(still_posterior(np.array([1.0]), tight * np.eye(1)), "poisson", Layout(), x, (k,))
    np.testing.assert_allclose(found.mean[:, 1], poisson.sf(k - 1, mean), atol=1e-6)
    mode, r = np.array([1.0, np.log(0.5)]), 2.0
    found = predicted(still_posterior(mode, tight * np.eye(2)), "negative_binomial", Layout(1, False, 1), x, (k,))
    np.testing.assert_allclose(found.mean[:, 1], nbinom.sf(k - 1, r, r / (r + mean)), atol=1e-6)


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    carrier = np.array(["AA", "DL", "UA"])[rng.integers(0, 3, 300)]
    hour = rng.integers(0, 24, 300)
    return {"hour": hour, "carrier": carrier, "late": rng.random(300) < expit(-1 + hour / 12 + (carrier == "UA"))}


@pytest.fixture(scope="module")
def result(table: dict[str, np.ndarray]) -> tb.Result:
    """Among its quantities is what is to be predicted."""

    def chance(theta):
        return 1 / (1 + jnp.exp(-(theta["Intercept"] + 20 * theta["hour"] + theta["carrier[T.UA]"])))

    quantities = {"mean": "mean", "sd": "sd", "chance": chance}
    # With many paths, which an ensemble that is asked afterwards is made of.
    method = tb.Anchored(anchor="mode")
    return tb.fit("late ~ hour + carrier", table, tolerance=0.05, quantities=quantities, method=method)


ROW = {"hour": 20, "carrier": "UA"}


def test_a_prediction_is_the_quantity_it_is(result: tb.Result) -> None:
    found = result.predict(ROW)
    slack = 5 * np.hypot(found.error[0], result["chance"].flat_error[0])
    assert abs(found.mean[0] - result["chance"].value) < slack
    square = result.posterior.expectation(
        lambda theta: (1 / (1 + jnp.exp(-(theta["Intercept"] + 20 * theta["hour"] + theta["carrier[T.UA]"])))) ** 2
    )
    sd = np.sqrt(square.value - result["chance"].value ** 2)
    assert found.sd[0] == pytest.approx(sd, rel=0.1)
    # The control: the probability at the mean of theta is another.
    theta = result["mean"].value
    plug_in = expit(theta["Intercept"] + 20 * theta["hour"] + theta["carrier[T.UA]"])
    assert abs(plug_in - found.mean[0]) > found.error[0]
    assert result.predict(ROW).classes == (False, True)


def test_rows_come_in_many_ways(result: tb.Result, table: dict[str, np.ndarray], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    new = {name: table[name][:30] for name in ("hour", "carrier")}
    pq.write_table(pa.table(new), tmp_path / "new.parquet")
    pa.csv = __import__("pyarrow.csv").csv
    pa.csv.write_csv(pa.table(new), tmp_path / "new.csv")
    with pa.OSFile(str(tmp_path / "new.arrow"), "wb") as sink, pa.ipc.new_file(sink, pa.table(new).schema) as writer:
        writer.write_table(pa.table(new), max_chunksize=7)
    whole = result.predict(new).mean
    listed = [{name: values[i].item() for name, values in new.items()} for i in range(30)]
    for rows in (pa.table(new), pa.table(new).to_pandas(), listed, *(tmp_path.glob("new.*"))):
        np.testing.assert_allclose(result.predict(rows).mean, whole, rtol=1e-6)
    np.testing.assert_allclose([result.predict(row).mean[0] for row in listed[:3]], whole[:3], rtol=1e-9)


def test_batches_and_blocks_do_not_change_a_row(result: tb.Result, table, tmp_path: Path, monkeypatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    new = {name: table[name] for name in ("hour", "carrier")}
    pq.write_table(pa.table(new), tmp_path / "new.parquet")
    whole = result.predict(new)
    monkeypatch.setattr(formats, "BATCH_ROWS", 64)
    monkeypatch.setattr(predictor, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(predictor, "BLOCK_ROWS", 16)
    assert result.predict(tmp_path / "new.parquet", out=tmp_path / "out.parquet") == 300
    written = pq.read_table(tmp_path / "out.parquet")
    numbers = ["prediction", "sd", "error", "sd_error", "observation_sd", "observation_sd_error"]
    assert written.column_names == ["row", *numbers]
    assert written["row"].to_pylist() == list(range(300))
    np.testing.assert_allclose(np.asarray(written["prediction"]), whole.mean, rtol=1e-6)
    assert result.predict(tmp_path / "new.parquet", out=tmp_path / "out.csv") == 300
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 301
    assert not list(tmp_path.glob("*.partial"))


def test_many_rows_take_fewer_paths_and_agree(result: tb.Result, table) -> None:
    """5,000 rows are read off as many paths as an error of 5% of the sd needs, in float32."""
    rng = np.random.default_rng(5)
    new = {"hour": rng.integers(0, 24, 5000), "carrier": np.array(["AA", "DL", "UA"])[rng.integers(0, 3, 5000)]}
    many = result.predict(new)
    few = result.predict({name: values[:50] for name, values in new.items()})
    assert np.all(np.abs(many.mean[:50] - few.mean) < 5 * np.hypot(many.error[:50], few.error))
    assert np.quantile(many.standard_error / many.sd, 0.9) < 0.1


def test_a_stored_result_predicts_the_same(result: tb.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result")
    np.testing.assert_array_equal(tb.load(tmp_path / "result").predict(ROW).mean, result.predict(ROW).mean)


def test_a_model_of_ones_own_predicts_by_its_function() -> None:
    rng = np.random.default_rng(2)
    model = tb.Model(
        log_prior=lambda t: -0.5 * t**2,
        log_likelihood=lambda t, row: -0.5 * (row["y"] - t * row["z"]) ** 2,
        initial=0.0,
        predict=lambda t, row: (t * row["z"]) ** 2,
    )
    z = rng.normal(size=400)
    result = tb.estimate(model, {"y": z + rng.normal(size=400), "z": z}, tolerance=0.05)
    mean, sd = result["mean"].value, result["sd"].value
    found = result.predict({"z": np.array([0.5, 2.0])})
    exact = (mean**2 + sd**2) * np.array([0.25, 4.0])
    assert np.all(np.abs(found.mean - exact) < 5 * found.error + 0.1 * sd * mean * np.array([0.25, 4.0]))


@pytest.mark.slow
def test_responses_in_their_own_units_and_offsets() -> None:
    rng = np.random.default_rng(4)
    hour = rng.integers(0, 24, 500)
    rows = {"hour": hour, "delay": 100 + 5 * hour + rng.normal(0, 10, 500), "log_days": rng.normal(size=500)}
    rows["count"] = rng.poisson(np.exp(0.5 + rows["log_days"]))
    line = tb.fit("delay ~ hour", rows, family="linear", tolerance=0.1)
    assert line.predict({"hour": 10}).mean[0] == pytest.approx(150, abs=5)
    rates = tb.fit("count ~ hour", rows, family="poisson", offset="log_days", tolerance=0.1)
    one, two = (rates.predict({"hour": 3, "log_days": each}, at_least=1) for each in (0.0, 1.0))
    assert two.mean[0] / one.mean[0] == pytest.approx(np.e, rel=1e-6)
    assert one.at_least[1].mean[0] == pytest.approx(1 - np.exp(-one.mean[0]), abs=0.01)
    tail = ["P(y>=1)", "sd(y>=1)", "error(y>=1)", "sd_error(y>=1)"]
    ends = [f"observation_{name}" for name in ("sd", "sd_error", "lower", "upper", "interval_error")]
    assert list(one.columns()) == ["row", "prediction", "sd", "error", "sd_error", *tail, *ends]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ({"hour": 3}, {}, "a column 'carrier'"),
        ({"hour": 3, "carrier": "XX"}, {}, "a known category"),
        ({"hour": float("nan"), "carrier": "UA"}, {}, "missing"),
        (ROW, {"missing": "drop"}, "missing one of"),
        (ROW, {"interval": 95}, "interval between 0 and 1"),
        (ROW, {"at_least": 2}, "at_least for counts"),
        (ROW, {"out": "predictions.xlsx"}, r"\.csv or \.parquet"),
        ("nowhere.parquet", {}, "nothing at"),
    ],
)
def test_rows_that_cannot_be_predicted(result: tb.Result, rows, options, message: str) -> None:
    with pytest.raises(tb.TallbayesError, match=message):
        result.predict(rows, **options)


def test_the_text_shows_the_first_rows(result: tb.Result, table) -> None:
    text = str(result.predict({name: table[name] for name in ("hour", "carrier")}))
    assert text.splitlines()[0].split() == ["row", "prediction", "sd", "error", "sd_error", "observation_sd"]
    assert "290 more rows" in text
