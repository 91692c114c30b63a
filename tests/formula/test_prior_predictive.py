"""What a prior believes before a fit: against closed forms, with the arguments of a fit, and on the command line."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.commands.cli import _parser, main
from tallbayes.commands.commands import _settings
from tallbayes.commands.priors import priors_of
from tallbayes.errors import InputError
from tallbayes.formula.again.rows import design_again
from tallbayes.results.run_folder import SETTINGS, read_settings

P = tb.priors
DRAWS = 4_000
# Standard errors of a normal number that are passed by chance once in a million.
BOUND = 4.9


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    count = 600
    return {
        "y": 50 + 8 * rng.normal(size=count),
        "late": (rng.random(count) < 0.3).astype(int),
        "visits": rng.poisson(2, count),
        "hour": 12 + 3 * rng.normal(size=count),
        "kind": rng.choice(["a", "b", "c"], count),
        "group": rng.choice([f"g{each}" for each in range(30)], count),
    }


def is_near(values, mean, sd):
    """Mean and sd of draws, by their standard errors."""
    kurtosis = np.mean((values - values.mean()) ** 4) / values.var() ** 2
    near_mean = abs(values.mean() - mean) < BOUND * sd / np.sqrt(len(values))
    return near_mean and abs(values.std() - sd) < BOUND * sd * np.sqrt((kurtosis - 1) / len(values)) / 2


@pytest.fixture(scope="module")
def linear(table):
    given = {
        "hour": P.normal(2, 0.5),
        "Intercept": P.normal(60, 3),
        "sigma": P.gamma(4, 0.5),
        "sd(group)": P.gamma(9, 3),
    }
    return tb.prior_predictive("y ~ hour + (1 | group)", table, "linear", priors=given, draws=DRAWS, rows=40, seed=1)


def test_parameters_have_their_priors(table, linear):
    middle = table["hour"].mean()
    assert linear.names == ("Intercept", "hour", "noise_scale", "sd(Intercept|group)")
    assert is_near(linear["hour"], 2, 0.5)
    assert is_near(linear["Intercept"], 60 - 2 * middle, np.hypot(3, 0.5 * middle))
    assert is_near(linear["noise_scale"], 8, 4)
    assert is_near(linear["sd(Intercept|group)"], 3, 1)
    assert not is_near(linear["hour"], 2, 0.6)


def test_responses_have_the_law_that_follows(table, linear):
    """Var y = Var of the intercept, of the slope by the row's hour, of the effect, and of the noise; a noise that is
    always 8 is told from that."""
    y, middle = linear.responses, table["hour"].mean()
    assert y.shape == (DRAWS, 40)
    hour = table["hour"][linear.rows]
    for row in (0, 17, 39):
        variance = 9 + 0.25 * (hour[row] - middle) ** 2 + (9 + 1) + (64 + 16)
        assert is_near(y[:, row], 60 + 2 * (hour[row] - middle), np.sqrt(variance))
    assert not is_near(y[:, 0], 60 + 2 * (hour[0] - middle), np.sqrt(83 + 0.25 * (hour[0] - middle) ** 2))
    same = np.corrcoef(y[:, 0], y[:, 1])[0, 1]
    assert 0.0 < same < 0.4


def test_correlations_have_theirs(table):
    """Of two effects (1 + r) / 2 ~ Beta(5, 5) under lkj(5), the column being about its mean: an sd of 11^-1/2."""
    rows = table | {"hour": table["hour"] - table["hour"].mean()}
    asked = {"priors": {"cor(group)": P.lkj(5)}, "draws": DRAWS, "rows": 5}
    found = tb.prior_predictive("y ~ hour + (1 + hour | group)", rows, "linear", **asked)
    assert is_near(found["cor(Intercept,hour|group)"], 0, 11**-0.5)
    assert not is_near(found["cor(Intercept,hour|group)"], 0, 5**-0.5)


def test_statistics_are_those_of_the_responses_beside_what_was_seen(table, linear):
    by_name = {check.name: check for check in linear.checks}
    seen = table["y"][linear.rows]
    assert np.allclose(by_name["mean"].observed, seen.mean(), rtol=1e-6)
    assert np.allclose(by_name["mean"].replicated[:, 0], linear.responses.mean(axis=1))
    assert np.allclose(by_name["quantiles"].observed[[0, 2, 4]], [seen.min(), np.median(seen), seen.max()], rtol=1e-6)
    text = str(linear)
    for word in ("Before the fit: 4,000 draws", "of 40 of 600 rows", "hour ~ normal(2, 0.5)", "95% quantile"):
        assert word in text
    assert "hour ~ normal(2, 0.5)" in linear._repr_html_()


def test_a_wide_prior_settles_binary_rows_before_any_is_seen(table):
    """With N(0, 10^2) for an intercept more than half of the rows are; with N(-1, 0.5^2) none is."""
    wide = tb.prior_predictive("late ~ hour + kind", table, draws=500, rows=None)
    tight = tb.prior_predictive(
        "late ~ hour + kind", table, priors={"Intercept": P.normal(-1, 0.5)}, draws=500, rows=None
    )
    settled = [{check.name: check for check in each.checks}["settled"].mean[0] for each in (wide, tight)]
    assert settled[0] > 0.5
    assert settled[1] < 0.05
    assert len(wide.rows) == 600


@pytest.mark.parametrize(
    ("formula", "family", "names"),
    [
        ("visits ~ hour", "negative_binomial", ("mean", "sd", "zeros", "quantiles")),
        ("kind ~ hour", "multinomial", ("shares",)),
        ("late ~ 1", "probit", ("mean", "settled")),
    ],
)
def test_every_family_has_its_statistics(table, formula, family, names):
    found = tb.prior_predictive(formula, table, family, intercept_scale=1.0, draws=50, rows=100, tolerance=0.1)
    assert tuple(check.name for check in found.checks) == names
    again = tb.prior_predictive(formula, table, family, intercept_scale=1.0, draws=50, rows=100, tolerance=0.1)
    assert all(np.array_equal(a.replicated, b.replicated) for a, b in zip(found.checks, again.checks, strict=True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"priors": {"hour": P.flat()}}, "expected priors that can be drawn from; got a flat one"),
        ({"priors": {"huor": P.normal()}}, "got 'huor'. Try: 'hour'"),
        ({"prior_scale": float("inf")}, "expected priors that can be drawn from; got a flat one"),
        ({"draws": 0}, "expected draws a whole number of 1 or more; got 0"),
        ({"rows": 2.5}, "expected rows a whole number of 1 or more; got 2.5"),
        ({"tolerence": 0.1}, "got 'tolerence'. Try: 'tolerance'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(table, given, message):
    with pytest.raises(InputError) as caught:
        tb.prior_predictive("late ~ hour", table, **given)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="the name of a parameter"):
        _ = tb.prior_predictive("late ~ 1", table, draws=2)["hours"]


@pytest.fixture
def file(table, tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("w") as out:
        writer = csv.writer(out)
        writer.writerow(("late", "hour", "kind"))
        writer.writerows(zip(table["late"], table["hour"], table["kind"], strict=True))
    return path


def test_the_command_line_says_the_same(table, file, capsys):
    priors = ["--prior", "hour=normal(0,0.1)", "--prior", "Intercept = student_t(4, -1, centre=0)"]
    assert main(["prior", str(file), "--formula", "late ~ hour", *priors]) == 2
    assert "expected numbers for student_t" in capsys.readouterr().err
    assert main(["prior", str(file), "--formula", "late ~ hour", *priors[:2], "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert float(rows[0]["observed"]) == pytest.approx(table["late"].mean())


STATED = ["--prior", "kind=student_t(30,0,1)", "--prior", "hour=normal(0.1,0.5)"]


def test_priors_are_on_record_and_found_again(file):
    """By name and as text: what reads the table once more has the same prior."""
    given = ["fit", str(file), "--formula", "late ~ hour + kind", "--tolerance", "0.1"]
    settings = json.loads(json.dumps(_settings(_parser().parse_args([*given, *STATED]))))
    assert settings["prior"] == {"kind": "student_t(30,0,1)", "hour": "normal(0.1,0.5)"}
    _, model = design_again(settings)
    assert dict(model.parts.words) == {"kind": "student_t(30, 0, 1)", "hour": "normal(0.1, 0.5)"}
    plain = _settings(_parser().parse_args(given))
    assert "prior" not in plain
    assert design_again(plain)[1].parts.priors is None


@pytest.mark.slow
def test_a_run_says_its_priors(file, tmp_path, capsys):
    run = tmp_path / "run"
    asked = ["--formula", "late ~ hour + kind", *STATED, "--tolerance", "0.3", "--quiet", "--out", str(run)]
    assert main(["fit", str(file), *asked]) == 0
    words = "kind ~ student_t(30, 0, 1) each of 2, hour ~ normal(0.1, 0.5), intercept N(0, 10^2)"
    assert words in " ".join(capsys.readouterr().out.split())
    assert main(["show", str(run)]) == 0
    assert words in " ".join(capsys.readouterr().out.split())
    assert read_settings(run / SETTINGS)["prior"]["hour"] == "normal(0.1,0.5)"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["hour=normal(0.1,0.5)"], {"hour": "normal(0.1,0.5)"}),
        (["I(x == 1)[T.True] = normal(0, sd=1)"], {"I(x == 1)[T.True]": "normal(0, sd=1)"}),
        (["sd(g)=half_cauchy(1)"], {"sd(g)": "half_cauchy(1)"}),
        (None, {}),
    ],
)
def test_a_prior_is_read_after_the_name_whatever_that_holds(given, found):
    assert priors_of(given) == found


@pytest.mark.parametrize("given", [["hour"], ["=normal(0,1)"], ["hour=normal"], ["hour=flat()", "hour=normal(0,1)"]])
def test_a_prior_that_is_none_is_refused(given):
    with pytest.raises(InputError, match="--prior"):
        priors_of(given)
