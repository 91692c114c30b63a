"""A formula of sigma: against quadrature of the model written by hand, on disk, of new rows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import tallbayes as tb
from tallbayes.errors import DataError, InputError, ModelError
from tallbayes.formula.design import build_design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.second import formula_text, split
from tallbayes.results.terms import terms_of
from tallbayes.rows.on_disk import Stored

COUNT, POINTS = 60, 41
BOTH = "y ~ x + g; sigma ~ z + g"
RNG = np.random.default_rng(22)
TABLE: dict[str, Any] = {
    "x": 2 + 3 * RNG.normal(size=COUNT),
    "z": 5 + 2 * RNG.normal(size=COUNT),
    "g": np.array(list("abc"))[np.arange(COUNT) % 3],
}
TABLE["y"] = 100 + 4 * TABLE["x"] + 8 * np.exp(0.25 * (TABLE["z"] - 5)) * RNG.normal(size=COUNT)
PRIORS: dict[str, Any] = {"sigma:z": tb.priors.normal(0.1, 0.05), "sigma:Intercept": tb.priors.normal(3.0, 0.2)}


@pytest.fixture(scope="module")
def alone() -> tb.Result:
    return tb.fit("y ~ 1; sigma ~ z", TABLE, family="gaussian", tolerance=0.05)


@pytest.fixture(scope="module")
def fitted() -> tb.Result:
    return tb.fit(BOTH, TABLE, family="gaussian", tolerance=0.05)


def exact(stated: bool) -> dict[str, Any]:
    """Means and sds of what is reported, the log evidence of y in its sds, and the elpd of rows left out, by a grid of
    the three parameters."""
    y, z = TABLE["y"], TABLE["z"]
    unit, shift, spread, centre = y.std(), y.mean(), z.std(), z.mean()
    axes = np.linspace(-0.8, 0.8, POINTS), np.linspace(-0.8, 0.8, POINTS), np.linspace(-0.9, 1.1, POINTS)
    mean, log_scale, slope = np.meshgrid(*axes, indexing="ij")
    u, w = (y - shift) / unit, (z - centre) / spread
    total = -0.5 * (mean / 10) ** 2 - np.log(10 * np.sqrt(2 * np.pi))
    laws = [(slope, 0.0, 1.0), (log_scale, 0.0, 1.0)]
    if stated:
        laws = [(slope, 0.1 * spread, 0.05 * spread), (log_scale, 3.0 - np.log(unit), 0.2)]
    for value, m, s in laws:
        total = total - 0.5 * ((value - m) / s) ** 2 - np.log(s * np.sqrt(2 * np.pi))
    rows = [
        -0.5 * ((each - mean) * np.exp(-log_scale - slope * moved)) ** 2 - log_scale - slope * moved
        for each, moved in zip(u, w, strict=True)
    ]
    total = total + sum(rows) - COUNT * np.log(2 * np.pi) / 2
    weight = np.exp(total - total.max())
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    values = {
        "Intercept": shift + unit * mean,
        "sigma:z": slope / spread,
        "sigma:Intercept": np.log(unit) + log_scale - centre * slope / spread,
    }
    weight_sum = weight.sum()
    means = {name: float((weight * each).sum() / weight_sum) for name, each in values.items()}
    sds = {
        name: float(np.sqrt((weight * (each - means[name]) ** 2).sum() / weight_sum)) for name, each in values.items()
    }
    logs = total - total.max() - np.log(weight_sum)
    left_out = [-logsumexp(logs - row) for row in rows]
    elpd = float(sum(left_out)) - COUNT * (np.log(2 * np.pi) / 2 + np.log(unit))
    evidence = float(total.max() + np.log(weight_sum * cell))
    return {"mean": means, "sd": sds, "evidence": evidence, "elpd": elpd}


def worst(result: tb.Result, reference: dict[str, Any]) -> float:
    """The largest z-score of a mean or an sd."""
    scores = []
    for what in ("mean", "sd"):
        values, errors = result[what].value, result[what].standard_error
        scores += [abs(values[name] - each) / errors[name] for name, each in reference[what].items()]
    return float(max(scores))


def test_means_sds_and_evidence_are_those_of_quadrature(alone: tb.Result) -> None:
    """Six numbers within 5 of their errors: false alarm 3e-6. The control has another prior."""
    reference = exact(False)
    assert list(alone["mean"].value) == ["Intercept", "sigma:z", "sigma:Intercept"]
    assert alone.converged
    assert worst(alone, reference) < 5
    assert worst(alone, exact(True)) > 20
    evidence = alone.evidence()
    # The response was in its sds inside, and so are the densities told for the table's own units.
    own = reference["evidence"] - COUNT * np.log(TABLE["y"].std())
    assert abs(evidence.value - own) < 5 * evidence.standard_error + 1e-3


def test_priors_by_name_are_those_of_quadrature() -> None:
    found = tb.fit("y ~ 1; sigma ~ z", TABLE, family="gaussian", tolerance=0.05, priors=PRIORS)
    assert worst(found, exact(True)) < 5
    note = next(each for each in found.notes if each.startswith("prior"))
    assert "sigma:Intercept ~ normal(3, 0.2) at the columns' means" in note


@pytest.mark.slow
def test_rows_left_out_are_those_of_quadrature(alone: tb.Result) -> None:
    found = alone.loo()
    assert abs(found.elpd - exact(False)["elpd"]) < 5 * found.standard_error + 1e-2


@pytest.mark.slow
def test_the_ladder_and_a_model_by_hand_agree_with_quadrature() -> None:
    import jax.numpy as jnp

    ladder = tb.fit("y ~ 1; sigma ~ z", TABLE, family="gaussian", tolerance=0.05, method=tb.Anchored())
    reference = exact(False)
    assert worst(ladder, reference) < 5
    unit, shift = TABLE["y"].std(), TABLE["y"].mean()
    rows = {"u": (TABLE["y"] - shift) / unit, "w": (TABLE["z"] - TABLE["z"].mean()) / TABLE["z"].std()}

    def likelihood(theta: Any, row: Any) -> Any:
        own = theta["s"] + theta["g"] * row["w"]
        return -0.5 * ((row["u"] - theta["m"]) * jnp.exp(-own)) ** 2 - own

    def prior(theta: Any) -> Any:
        return -0.5 * ((theta["m"] / 10) ** 2 + theta["s"] ** 2 + theta["g"] ** 2)

    own = tb.estimate(tb.Model(prior, likelihood, {"m": 0.0, "s": 0.0, "g": 0.0}), rows, tolerance=0.05)
    gap = own["mean"].value["g"] / TABLE["z"].std() - reference["mean"]["sigma:z"]
    assert abs(gap) < 5 * own["mean"].standard_error["g"] / TABLE["z"].std()


def test_student_noise_is_the_model_by_hand() -> None:
    """On a grid of slope and scale at the ladder's mean of the rest; the modes of both within a tenth of an sd."""
    from scipy import optimize, stats

    found = tb.fit("y ~ x; sigma ~ z", TABLE, family="student_t", tolerance=0.1)
    y, unit = TABLE["y"], TABLE["y"].std()
    w, v = ((TABLE[name] - TABLE[name].mean()) / TABLE[name].std() for name in ("z", "x"))
    u = (y - y.mean()) / unit

    def loss(theta: np.ndarray) -> float:
        own = theta[2] + theta[3] * w
        total = stats.t.logpdf((u - theta[0] - theta[1] * v) * np.exp(-own), 4.0) - own
        return float(0.5 * ((theta[0] / 10) ** 2 + np.sum(theta[1:] ** 2)) - total.sum())

    best = optimize.minimize(loss, np.zeros(4)).x
    mode = found.posterior.anchor.laplace.mode  # type: ignore[union-attr]
    sd = found.posterior.anchor.laplace.sd  # type: ignore[union-attr]
    # theta is (x, z, intercept, log of the noise); balanced, so near the mode and not at it.
    assert np.all(np.abs(mode - best[[1, 3, 0, 2]]) < 0.3 * sd)
    slope = found["mean"].value["sigma:z"] * TABLE["z"].std()
    assert abs(slope - best[3]) < 0.5 * sd[1]


def test_new_rows_have_a_noise_of_their_own(fitted: tb.Result, tmp_path: Path) -> None:
    """sd^2 = E sigma_i^2 + Var eta_i and F at the ends of the interval, by draws; and as a file of it has them."""
    new = {name: each[:7] for name, each in TABLE.items() if name != "y"}
    found = fitted.predict(new)
    seen = found.observation
    assert seen is not None
    assert seen.lower is not None
    assert seen.upper is not None
    own = fitted.draws(4_000).value
    z, x = new["z"], new["x"]
    is_b, is_c = new["g"] == "b", new["g"] == "c"

    def line(prefix: str, name: str, column: np.ndarray) -> np.ndarray:
        part = own[f"{prefix}Intercept"][:, None] + own[f"{prefix}{name}"][:, None] * column
        return part + own[f"{prefix}g[T.b]"][:, None] * is_b + own[f"{prefix}g[T.c]"][:, None] * is_c

    eta, scale = line("", "x", x), np.exp(line("sigma:", "z", z))
    squares = scale**2 + (eta - eta.mean(axis=0)) ** 2
    slack = 5 * squares.std(axis=0) / np.sqrt(len(eta))
    assert np.all(np.abs(seen.sd**2 - squares.mean(axis=0)) < slack + 2 * seen.sd * seen.sd_error)
    assert np.ptp(seen.sd) > 3
    from scipy.stats import norm

    for end, tail in ((seen.lower, 0.025), (seen.upper, 0.975)):
        chance = norm.cdf((end - eta) / scale)
        # The end's own error, in chance: its density is at most 0.06 of an sd there.
        room = 5 * chance.std(axis=0) / np.sqrt(len(eta)) + 0.07 * seen.interval_error / seen.sd + 1e-4
        assert np.all(np.abs(chance.mean(axis=0) - tail) < room)
    fitted.save(tmp_path / "r.tallbayes")
    again = tb.load(tmp_path / "r.tallbayes").predict(new)
    assert np.array_equal(again.mean, found.mean)
    assert np.array_equal(again.observation.sd, seen.sd)
    with pytest.raises(DataError, match="known category"):
        fitted.predict({**new, "g": np.array(["q"] * 7)})


def test_what_follows_from_the_noise_of_a_row(fitted: tb.Result) -> None:
    """Simulated responses scatter as predictions say; columns of sigma alone move no mean."""
    seen = fitted.predict(TABLE).observation
    assert seen is not None
    drawn = np.concatenate(list(fitted.simulate(draws=2_000)), axis=1)
    # The sd of 2,000 draws is good to 1.6%: 60 of them within 5 times that.
    assert np.all(np.abs(drawn.std(axis=0) / seen.sd - 1) < 0.09)
    assert fitted.average_slope("z").values[0] == 0
    one, other = ({"x": 1.0, "z": 5.0, "g": level} for level in "ab")
    by_rows = fitted.compare({**other, "z": 9.0}, one)
    assert by_rows.mean.value == pytest.approx(fitted.compare("g", "b", "a").mean.value)
    assert by_rows.mean.value == pytest.approx(fitted["mean"].value["g[T.b]"])


def test_terms_and_the_report_tell_the_noise_apart(fitted: tb.Result, tmp_path: Path) -> None:
    terms = {each.name: each for each in terms_of(fitted, list(fitted["mean"].value))}
    assert terms["sigma:g[T.b]"].group == "sigma by g, against a"
    assert terms["sigma:z"].label == "sigma:z"
    assert terms["sigma:Intercept"].is_intercept
    assert not terms["sigma:z"].is_intercept
    assert terms["g[T.b]"].group == "g, against a"
    page = Path(fitted.report(tmp_path / "page.html")).read_text()
    assert "y ~ x + g; sigma ~ z + g" in page
    assert "slope of x" in page
    assert "slope of z" not in page


def test_prior_predictive_draws_a_noise_of_each_row() -> None:
    stated = {"sigma:z": tb.priors.normal(0.5, 0.001), "sigma:Intercept": tb.priors.normal(0.0, 0.001)}
    found = tb.prior_predictive("y ~ 1; sigma ~ z", TABLE, "linear", priors=stated, rows=None, draws=1_000)
    residual = np.concatenate([y - mean for y, mean in found.again()])
    expected = np.exp(0.5 * (TABLE["z"] - TABLE["z"].mean()))
    # At the columns' means sigma is exp(0); the sd of 1,000 is good to 2.2%, of 60 within 5 times that.
    assert np.all(np.abs(residual.std(axis=0) / expected - 1) < 0.12)


def test_a_table_on_disk_makes_the_same_design(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(TABLE), tmp_path / "t.parquet")
    table = tb.ingest(tmp_path / "t.parquet", tmp_path / "t.table")
    asked: dict[str, Any] = {"response": "real", "standardise_response": True, "parameter": "sigma"}
    formula = "y ~ x + g; sigma ~ poly(z, 2) + g:x"
    stored, held = build_design(formula, table, **asked), build_design(formula, TABLE, **asked)
    assert stored.names == held.names
    assert held.names[3:] == ("sigma:poly(z, 2)[1]", "sigma:poly(z, 2)[2]", *(f"sigma:g[{k}]:x" for k in "abc"))
    assert isinstance(stored.rows, Stored)
    assert isinstance(held.rows, dict)
    order = np.argsort(np.asarray(stored.rows.rows()["y"]))
    for name in ("x", "codes", "y"):
        found = np.asarray(stored.rows.rows()[name])[order]
        np.testing.assert_allclose(found, held.rows[name][np.argsort(held.rows["y"])], atol=1e-5)
    encoding = Encoding.from_plain(held.encoding.to_plain())
    assert encoding.formula == formula
    new = encoding.encode({name: each[:5] for name, each in TABLE.items()})
    np.testing.assert_allclose(new[:, held.encoding.coding.dense], held.rows["x"][:5], atol=1e-5)


def test_ways_to_write_it() -> None:
    bambi = SimpleNamespace(main="y ~ x", additionals=["sigma ~ z"])
    for written in (["y ~ x", "sigma ~ z"], ("y ~ x", "sigma ~ z"), bambi):
        assert formula_text(written) == "y ~ x; sigma ~ z"
    assert split("y ~ `a;b`; sigma ~ z ;") == ("y ~ `a;b`", ("sigma ~ z",))
    plain = build_design("y ~ x; sigma ~ 1", TABLE, response="real", parameter="sigma")
    assert plain.names == ("x",)


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("y ~ x; alpha ~ z", "a formula of sigma"),
        ("y ~ x; sigma ~ z; sigma ~ g", "one formula of sigma"),
        ("y ~ x; sigma ~ (1 | g)", "groups"),
        ("y ~ x + (1 | g); sigma ~ z", "groups"),
        ("y ~ x; sigma ~ s(z)", "no smooth"),
        ("y ~ s(x); sigma ~ z", "no smooth"),
        ("y ~ x; sigma ~ offset(z)", "no offset"),
        ("y ~ x; sigma ~ 0 + z", "leave out the 0"),
        ("y ~ 0 + x; sigma ~ z", "leave out the 0"),
        ("y ~ x; sigma ~ y", "not among the terms"),
        ("y ~ x; sigma ~ nothing", "nothing"),
        ("y ~ x; sigma ~ z + I(2*z)", "combination"),
    ],
)
def test_what_is_refused_says_why(formula: str, told: str) -> None:
    with pytest.raises((InputError, DataError), match=told):
        tb.fit(formula, TABLE, family="gaussian")


def test_families_and_options_that_do_not_go_with_it() -> None:
    with pytest.raises(InputError, match="families linear and student_t"):
        tb.fit("y ~ x; sigma ~ z", TABLE, family="gamma")
    with pytest.raises(InputError, match="leave one of them out"):
        tb.fit("y ~ x; sigma ~ z", TABLE, family="linear", family_options={"noise_scale": 2.0})
    with pytest.raises(ModelError, match="shrinkage"):
        tb.fit("y ~ x; sigma ~ z", TABLE, family="linear", priors={"coefficients": tb.priors.horseshoe(0.1)})
