"""Results, estimates, predictions and comparisons as HTML for notebooks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from named_results import COEFFICIENTS, as_fitted, awkward_run, reshaped
from page_reader import Cells

import tallbayes as tb
from tallbayes.posterior.coordinates import Part
from tallbayes.structure import Structure
from tallbayes.views.notebook import tables as notebook


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return awkward_run()


@pytest.fixture(scope="module")
def fitted(result: tb.Result) -> tb.Result:
    return as_fitted(result)


def test_the_html_has_every_coefficient_with_its_errors(fitted: tb.Result) -> None:
    text = notebook.html(fitted)
    rows = Cells(text).rows
    assert rows[0] == ["coefficient", "mean", "sd", "2.5%", "97.5%"]
    assert [row[0] for row in rows[1:5]] == list(COEFFICIENTS.keys)
    assert "a<b" not in text
    for row, known in zip(rows[1:5], fitted.coefficients(), strict=True):
        for cell, number in zip(row[1:], (known.mean, known.sd, known.lower, known.upper), strict=True):
            value, error = (float(part.removeprefix("~")) for part in cell.split("±"))
            assert abs(value - number.value) <= 0.1 * number.error
            assert error == pytest.approx(number.error, rel=0.06)
    assert [row[0] for row in rows[5:]] == ["quantity", "odds.a<b[0]", "odds.a<b[1]", "[0]"]
    assert "late ~ hour + C(kind)</b> · logistic · 200 rows" in text
    assert str(fitted.status) in text
    assert f"{fitted.cost.evaluations:,} row gradients" in text


def test_the_html_says_what_failed(result: tb.Result) -> None:
    strict = replace(result["mean"], flat_tolerance=np.array([1.0, 0.0, np.nan, 1.0]))
    notes = ("<script>alert(1)</script>",)
    failed = replace(result, estimates={"mean": strict}, status=tb.Status.max_seconds, notes=notes)
    text = notebook.html(failed)
    assert [row[-1] for row in Cells(text).rows[1:]] == ["", "not met", "not met", ""]
    assert "<div><b>Not finished, the time ran out (max_seconds)</b>: 2 of 4 means are known" in text
    assert str(tb.Status.max_seconds) in text


def test_the_html_of_little(result: tb.Result) -> None:
    """No paths; no parameters; a function of the user's own that is called mean; nothing at all."""
    assert Cells(notebook.html(replace(result, posterior=None))).rows[0] == ["coefficient", "mean", "sd"]
    only = replace(result, posterior=None, estimates={"odds": result["odds"]})
    assert Cells(notebook.html(only)).rows[0] == ["quantity", "expectation"]
    own = replace(result["odds"], name="mean")
    rows = Cells(notebook.html(replace(result, estimates={"mean": own}))).rows
    assert [row[0] for row in rows[-2:]] == ["mean.a<b[0]", "mean.a<b[1]"]
    assert Cells(notebook.html(replace(result, posterior=None, estimates={}))).rows == []


def test_the_html_leaves_out_what_would_take_long(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MOST_WORK", 100)
    monkeypatch.setattr(notebook, "MAX_ROWS", 3)
    text = notebook.html(result)
    assert Cells(text).rows[0] == ["coefficient", "mean", "sd"]
    assert "... and 1 more" in text
    other = reshaped(result, Structure.leaf((4,)), (Part("ordered", (), (4,)),))
    monkeypatch.setattr(notebook, "MOST_WORK", 10**9)
    assert Cells(notebook.html(other)).rows[0] == ["coefficient", "mean", "sd"]
