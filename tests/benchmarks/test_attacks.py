"""The studies of what was tried to break: their exact answers are right, and their judge can turn red.

References are held against closed forms or brute force. The judge is given made-up runs: errors N(0, se^2), 50 seeds of
six quantities, at a bound of 1e-4 a test, of which there are twelve: a false alarm in 1e-3, and the seeds are fixed.
"""

from __future__ import annotations

import json
from typing import Any

import attack_modes
import attack_page
import attack_tails
import attack_units
import attacks
import hard_models
import judging
import numpy as np
import pytest
import quadrature
import questions
import rows_that_matter
from scipy import stats
from scipy.special import digamma, polygamma

from tallbayes.setup import preparation

BOUND = 1e-4
SEEDS, QUANTITIES = 50, 6
FLAT = 1e4


def test_a_log_rate_is_the_logarithm_of_a_gamma() -> None:
    found, law = quadrature.log_rate(5, 50, FLAT), stats.gamma(5, scale=1 / 50)
    assert found.mean() == pytest.approx(digamma(5) - np.log(50), abs=1e-6)
    assert found.sd() == pytest.approx(np.sqrt(polygamma(1, 5)), abs=1e-6)
    assert found.mean(lambda at: np.exp(-2 * at)) == pytest.approx(50**2 / (4 * 3), rel=1e-5)
    for p in attack_tails.ENDS:
        assert found.quantile(p) == pytest.approx(np.log(law.ppf(p)), abs=1e-6)
    at = np.log(law.ppf([0.001, 0.5, 0.999]))
    assert found.density_at(at) == pytest.approx(law.pdf(np.exp(at)) * np.exp(at), rel=1e-6)
    assert found.above(np.log(0.1)) == pytest.approx(law.sf(0.1), abs=1e-7)
    hinge = stats.gamma.expect(lambda x: np.log(x / 0.1), (5,), scale=1 / 50, lb=0.1)
    assert found.mean(lambda at: np.maximum(at - np.log(0.1), 0)) == pytest.approx(hinge, rel=1e-5)


def test_a_regression_on_categories_is_one_of_independent_log_rates() -> None:
    rng = np.random.default_rng(0)
    group, time = rng.integers(0, 2, 30), rng.uniform(0.5, 2.0, 30)
    y, weight = rng.poisson(2.0 * time).astype(float), rng.integers(1, 4, 30).astype(float)
    found = quadrature.Regression.of(quadrature.POISSON, np.eye(2)[group], y, np.log(time), weight, 3.0).moments()
    known = quadrature.levels(np.bincount(group, weight * y), np.bincount(group, weight * time), 3.0)
    for name, each in known.items():
        assert found[name] == pytest.approx(each, abs=1e-6)


def test_equal_rows_are_taken_together() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 2, (40, 2)).astype(float), rng.integers(0, 2, 40).astype(float)
    together = quadrature.Regression.of(quadrature.LOGISTIC, x, y)
    apart = quadrature.Regression(quadrature.LOGISTIC, x, y, np.zeros(40), np.ones(40), 1.0)
    assert len(together.y) == 8
    theta = rng.normal(size=(5, 2))
    assert together.log_density(theta) == pytest.approx(apart.log_density(theta))
    by_hand = [stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-x @ each))).sum() - each @ each / 2 for each in theta]
    assert apart.log_density(theta) == pytest.approx(np.array(by_hand))


def test_coefficients_given_the_noise_are_integrated() -> None:
    rng = np.random.default_rng(2)
    x, y = np.ones((5, 1)), rng.normal(1.0, 1.0, 5)
    found = quadrature.UnknownNoise(x, y, 1.5, 2.0).moments(-6.0, 4.0)
    theta, log_sigma = np.meshgrid(np.linspace(-9, 9, 1201), np.linspace(-6, 4, 1201), indexing="ij")
    sigma = np.exp(log_sigma)
    height = sum(stats.norm.logpdf(each, theta, sigma) for each in y) + log_sigma
    weight = np.exp(height - theta**2 / (2 * 1.5**2) - sigma**2 / (2 * 2.0**2))
    weight /= weight.sum()
    mean = np.array([np.sum(weight * theta), np.sum(weight * sigma)])
    assert found["mean"] == pytest.approx(mean, rel=1e-6)
    square = np.array([np.sum(weight * theta**2), np.sum(weight * sigma**2)])
    assert found["sd"] == pytest.approx(np.sqrt(square - mean**2), rel=1e-5)


def test_the_negative_binomial_is_that_of_scipy() -> None:
    y, a, eta = np.array([0.0, 3.0, 3.0, 7.0]), np.array([0.05, 0.4]), np.array([0.3, 1.5])
    exact = [stats.nbinom.logpmf(y, 1 / each, 1 / (1 + each * np.exp(b))).sum() for each, b in zip(a, eta, strict=True)]
    found = attack_units.count_likelihood(eta, a, y)
    assert found[1] - found[0] == pytest.approx(exact[1] - exact[0])


def test_quantiles_of_the_curved_posterior_hold_their_mass() -> None:
    truth = attack_tails.curved_quantiles(0.1).truth["quantile"]
    a, b = np.meshgrid(np.linspace(-25, 6, 4001), np.linspace(-6, 6, 601), indexing="ij")
    weight = np.exp(-0.5 * (a / attack_tails.BENT) ** 2 - 0.5 * b**2 - 0.5 * 4 * (a + b**2) ** 2)
    below = [weight[a < each].sum() / weight.sum() for each in truth]
    assert below == pytest.approx(attack_tails.ENDS, rel=0.05)


def test_moments_of_a_mixture() -> None:
    truth = attack_modes.minor_mode(0.1).truth
    draws = np.random.default_rng(3).normal(size=200_000) + 6.0 * (np.arange(200_000) % 10 == 0)
    assert truth["mean"] == pytest.approx([draws.mean()], abs=0.02)
    assert truth["sd"] == pytest.approx([draws.std()], abs=0.02)


def test_the_answer_does_not_depend_on_the_unit() -> None:
    dollars, scaled = (attack_units.earnings(unit, 0.1).truth for unit in (1.0, 19_000.0))
    for name, each in dollars.items():
        assert each == pytest.approx(19_000 * scaled[name], rel=1e-9)


@pytest.mark.parametrize("shape", rows_that_matter.SHAPES)
def test_deciding_rows_decide(shape: str) -> None:
    """Without them a coefficient, or the other, has another posterior altogether: by half an sd, or half its sd."""
    this = rows_that_matter.SHAPES[shape](np.random.default_rng(4), 1000, 3)
    deciding = {
        "exposure": this.y > 0,
        "rare": this.y > 0,
        "weights": None if this.weight is None else this.weight > 1,
        "leverage": this.x[:, 0] != 0,
        "level": this.x[:, 1] == 0,
    }[shape]
    assert deciding.sum() == 3
    sides = [
        np.zeros(1000) if this.offset is None else this.offset,
        np.ones(1000) if this.weight is None else this.weight,
    ]
    response = rows_that_matter.RESPONSES[this.response]
    whole, rest = (
        quadrature.Regression.of(response, this.x[kept], this.y[kept], *(each[kept] for each in sides), scale=3.0)
        for kept in (np.ones(1000, bool), ~deciding)
    )
    moved = np.abs(whole.moments()["mean"] - rest.moments()["mean"]) / rest.moments()["sd"]
    narrowed = whole.moments()["sd"] / rest.moments()["sd"]
    assert max(moved.max(), 1 - narrowed.min()) > 0.4


def made_up(seed: int = 0, bar: float = 1.0, shift: float = 0.0) -> judging.Runs:
    """Lines of runs whose errors are N(shift, 1) and whose intervals are `bar` times as long as they should be."""
    error = np.random.default_rng(seed).normal(shift, 1.0, (SEEDS, QUANTITIES))
    lines = [
        {
            "status": "converged", "seconds": 1.0, "names": [f"q{number}" for number in range(QUANTITIES)],
            "value": list(each), "lower": list(each - 1.96 * bar), "upper": list(each + 1.96 * bar),
            "standard_error": QUANTITIES * [bar], "allowed": QUANTITIES * [1.5], "truth": QUANTITIES * [0.0],
        }
        for each in error
    ]  # fmt: skip
    return judging.runs_of(lines)


def test_honest_runs_are_green() -> None:
    verdict = judging.judge(made_up(), BOUND)
    assert not verdict.is_red
    assert verdict.pooled_coverage == pytest.approx(0.95, abs=0.03)
    assert verdict.rmse == pytest.approx(1 / 1.5, rel=0.2)
    assert verdict.runs == verdict.counted == SEEDS


@pytest.mark.parametrize("runs", [made_up().halved(), made_up(bar=0.5), made_up(shift=2.5)])
def test_control_half_error_bars_and_shifts_are_red(runs: judging.Runs) -> None:
    assert judging.judge(runs, BOUND).is_red


def line(status: str, lower: float | None = -1.0) -> dict:
    upper = None if lower is None else 5.0
    numbers = {"value": [0.5], "lower": [lower], "upper": [upper], "standard_error": [1.0], "allowed": [1.0]}
    return {"status": status, "seconds": 1.0, "names": ["q"], "truth": [0.0]} | numbers


def test_only_runs_that_converged_count() -> None:
    wrong = [line("heavy_tails", lower=1.0)] * 20
    assert judging.judge(judging.runs_of(wrong), BOUND).worst_coverage is None
    assert not judging.judge(judging.runs_of(wrong), BOUND).is_red
    assert judging.judge(judging.runs_of(wrong, counts_all=True), BOUND).is_red
    crashed = {"status": "IndexError", "seconds": 1.0, "message": ""}
    assert judging.judge(judging.runs_of([crashed, line("converged")]), BOUND).statuses == {
        "IndexError": 1,
        "converged": 1,
    }


def test_an_error_that_is_not_known_covers_and_is_told() -> None:
    verdict = judging.judge(judging.runs_of([line("converged", lower=None)] * 3), BOUND)
    assert (verdict.worst_coverage, verdict.known) == (1.0, 0.0)


def test_what_does_not_exist_must_not_converge() -> None:
    assert judging.judge(judging.runs_of([line("converged"), line("heavy_tails")]), BOUND, exists=False).is_red
    assert not judging.judge(judging.runs_of([line("heavy_tails")] * 3), BOUND, exists=False).is_red


def test_a_bug_is_found_out_by_silence_too() -> None:
    silent, sound = [line("heavy_tails")] * 3, [line("converged")] * 3
    judged = {name: judging.judge(judging.runs_of(each), BOUND) for name, each in {"a": silent, "b": sound}.items()}
    assert rows_that_matter.found_out(judged) == ["a"]


def test_the_listing_can_be_switched_off() -> None:
    kept = preparation.list_rows
    with rows_that_matter.listing(switched_on=False):
        assert preparation.list_rows(1, 2, 3) is None
    assert preparation.list_rows is kept


def test_a_run_is_a_line() -> None:
    question = attack_units.small_scale(1e-4, 0.5)
    found = json.loads(json.dumps(questions.put(question, 0)))
    assert (found["status"], found["names"]) == ("converged", ["mean", "sd"])
    assert all(len(found[field]) == 2 for field in (*questions.FIELDS, "truth"))


def spin() -> None:
    while True:
        pass


def test_what_goes_on_for_ever_is_ended() -> None:
    with pytest.raises(questions.OverTimeError), questions.limited(0.05):
        spin()


def test_an_exception_is_an_outcome() -> None:
    question = attack_units.small_scale(1e-4, -1.0)
    assert questions.put(question, 0)["status"] == "ToleranceError"


def test_names_are_of_one_class_each() -> None:
    assert len(attacks.BY_NAME) == len(attacks.ATTACKS)
    assert {each.item for each in attacks.ATTACKS} == set(attack_page.ITEMS)
    assert len(set(map(str, rows_that_matter.CLASSES))) == len(rows_that_matter.CLASSES)
    assert set(rows_that_matter.CONTROLS) <= set(rows_that_matter.CLASSES)


def test_the_page_says_what_is_stored() -> None:
    text = attack_page.PAGE.read_text()
    assert attack_page.written(text) == text, "make attack-page"


@pytest.mark.parametrize("end", [attack_page.END, attack_page.END_HARD])
def test_control_a_stale_page_is_noticed(end: str) -> None:
    text = attack_page.PAGE.read_text()
    stale = text.replace(end, f"| a case | | | |\n{end}")
    assert stale != text
    assert attack_page.written(stale) == text


HARD = {"case": "a funnel", "asked": 60.0, "taken": 61.6}
ENDED = HARD | {"status": "max_seconds", "levels": 0, "ended_at": "mode, pass 3"}
ENDED |= {"exit_seconds": 2.6, "peak_bytes": 2**31}


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        (
            ENDED | {"errors": {"met": 1, "missed": 0, "unknown": 1200}},
            ["3", "max_seconds, in set-up: mode", "1 met, 1,200 unknown", "2.0 GiB"],
        ),
        (ENDED | {"levels": 3, "errors": {"met": 2, "missed": 0}}, ["3", "max_seconds, 3 levels", "2 met", "2.0 GiB"]),
        (HARD | {"status": None, "said": "killed"}, ["", "no result: killed", "", ""]),
    ],
)
def test_hard_models_tell_how_they_ended(row: dict[str, Any], cells: list[str]) -> None:
    assert attack_page.hard_cells(row) == ["a funnel", "60", "62", *cells]


def test_every_hard_model_ended_in_a_result_and_in_time() -> None:
    cases = json.loads(hard_models.RESULTS.read_text())["cases"]
    assert [case["name"] for case in cases] == list(hard_models.CASES)
    for case in cases:
        assert case["status"] is not None
        assert case["late"] <= hard_models.MOST_LATE
        assert case["prints"]
