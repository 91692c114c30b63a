"""What one holds beside a result, in a notebook: tables whose tags close, with every number and its error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from named_results import awkward_run
from page_reader import Cells

import tallbayes as tb
from tallbayes.posterior.prediction import Prediction
from tallbayes.results.checks.check import Check
from tallbayes.results.coefficients import Number
from tallbayes.results.comparisons import Comparison
from tallbayes.results.draws.drawn import PosteriorDraws
from tallbayes.results.groups.comparisons import GroupContrast
from tallbayes.results.groups.effects import Effects
from tallbayes.results.groups.partition import VariancePartition
from tallbayes.views.notebook.displays import shown

NUMBER = Number(0.5, 0.01)
EFFECTS = Effects(
    "school",
    tuple(f"s<{place}" for place in range(30)),
    ("Intercept",),
    np.full(30, 12.0),
    *(np.linspace(0.1, 1.0, 30)[:, None] for _ in range(8)),
    raw=np.linspace(0.1, 1.0, 30),
)


def cells(thing: Any) -> list[list[str]]:
    return Cells(thing._repr_html_()).rows


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return awkward_run()


def test_estimates_predictions_and_comparisons_show_themselves(result: tb.Result) -> None:
    assert [row[0] for row in cells(result["odds"])] == ["odds", "a<b[0]", "a<b[1]"]
    numbers = np.linspace(0.1, 0.9, 3)
    assert cells(Prediction(*[numbers] * 6))[0] == ["row", "prediction", "sd", "error", "sd_error"]
    compared = Comparison("a<b", "c", *[NUMBER] * 6, "odds ratio")
    assert [row[0] for row in cells(compared)] == ["", "a<b - c", "odds ratio"]


def test_effects_show_the_extremes_by_name() -> None:
    rows = cells(EFFECTS)
    assert rows[0] == ["school", "rows", "raw mean", "mean", "sd", "2.5%", "97.5%"]
    assert [row[0] for row in rows[1:]] == [f"s<{place}" for place in (0, 1, 2, 3, 4, 25, 26, 27, 28, 29)]
    assert "lowest and highest of 30" in EFFECTS._repr_html_()


def test_a_contrast_and_shares_have_a_row_each() -> None:
    rows = cells(GroupContrast("a", "b", *[NUMBER] * 6))
    assert rows == [["", "mean", "sd", "median", "lower", "upper", "P(a > b)"], ["a - b", *["0.500\xa0± 0.010"] * 6]]
    shares = VariancePartition(("school", "residual"), np.full((2, 3), 0.5), np.full((2, 3), 0.01), "that of a row")
    assert [row[0] for row in cells(shares)] == ["variance of", "school", "residual"]


def test_a_check_shows_the_first_of_many_numbers() -> None:
    rng = np.random.default_rng(0)
    labels = tuple(f"[{place}]" for place in range(50))
    check = Check("bins", "Bins of the response", labels, np.arange(50.0), rng.normal(size=(20, 50)))
    rows = cells(check)
    assert rows[0] == ["bins", "observed", "replicated", "sd", "p"]
    assert len(rows) == 41
    assert "... and 10 more" in check._repr_html_()


def test_evidence_has_its_facts() -> None:
    found = tb.Evidence(
        -10.0, 0.003, 0.0, (-10.006, -9.994), 0.01, tb.Status.converged, -10.1, -10.05, 0.001, 64, 640, 10, 2, 0.9, 1.0
    )
    rows = dict(row for row in cells(found) if len(row) == 2)
    assert rows["log evidence"] == "-10.0000 ± 0.0030"
    assert rows["Laplace at the mode"].endswith("off by -0.1000")


def test_draws_state_errors_of_their_number_and_their_law(result: tb.Result) -> None:
    size = len(result.posterior.labels) if result.posterior is not None else 0
    flat = np.random.default_rng(0).normal(size=(400, size))
    rows = cells(PosteriorDraws(result, flat, flat, 0, 0.0, "by hand", 1.0))
    assert [row[0] for row in rows[1:]] == result.posterior.labels
    sd = flat[:, 0].std(ddof=1)
    assert rows[1][1].endswith(f"± {sd / 20:.3f}")
    of_law = PosteriorDraws(result, flat, flat, 0, 0.5, "by hand", 1.0)
    assert cells(of_law)[1][1].endswith(f"± {sd * np.hypot(1 / 20, 0.5):.2f}")


def test_models_and_tables_show_what_they_are_made_of(tmp_path: Path) -> None:
    model = tb.Model(lambda theta: 0.0, lambda theta, row: 0.0, {"a<b": 0.0, "c": np.zeros(5)}, notes=("a note",))
    rows = cells(model)
    assert [row[:2] for row in rows] == [["parameter", "numbers"], ["['a<b']", "1"], ["['c']", "5"]]
    assert rows[2][2] == "0, 0, 0, ..."
    assert "family logistic" in tb.families.logistic()._repr_html_()
    table = tb.write_table(tmp_path / "rows", {"x": np.ones((300, 2)), "y": np.ones(300)})
    assert [row[:3:2] for row in cells(table)] == [["array", "numbers a row"], ["x", "2"], ["y", "1"]]
    assert "300 rows" in table._repr_html_()


def test_what_has_no_table_is_shown_as_its_text() -> None:
    assert shown("a<b\nc") == '<div class="tex2jax_ignore mathjax_ignore">a&lt;b<br>c</div>'
