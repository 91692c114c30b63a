"""Results, estimates, predictions and comparisons as HTML for notebooks."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from named_results import COEFFICIENTS, as_fitted, awkward_run, reshaped

import tallbayes as tb
from tallbayes.posterior.coordinates import Part
from tallbayes.posterior.prediction import Prediction
from tallbayes.results.coefficients import Number
from tallbayes.results.comparisons import Comparison
from tallbayes.structure import Structure
from tallbayes.views import notebook


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return awkward_run()


@pytest.fixture(scope="module")
def fitted(result: tb.Result) -> tb.Result:
    return as_fitted(result)


class Reader(HTMLParser):
    """Cells of all tables, row by row; every tag must close, and nothing may run or paint."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert "background" not in text

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {
            "div",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "span",
            "b",
            "br",
            "details",
            "summary",
            "ul",
            "li",
            "code",
        }
        assert {name for name, _ in attrs} <= {"style", "class"}
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "tr" in self.open:
            self.rows[-1][-1] += data


def test_the_html_has_every_coefficient_with_its_errors(fitted: tb.Result) -> None:
    text = notebook.html(fitted)
    rows = Reader(text).rows
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
    assert [row[-1] for row in Reader(text).rows[1:]] == ["", "not met", "not met", ""]
    assert "<div><b>Not finished, the time ran out (max_seconds)</b>: 2 of 4 means are known" in text
    assert str(tb.Status.max_seconds) in text


def test_the_html_of_little(result: tb.Result) -> None:
    """No paths; no parameters; a function of the user's own that is called mean; nothing at all."""
    assert Reader(notebook.html(replace(result, posterior=None))).rows[0] == ["coefficient", "mean", "sd"]
    only = replace(result, posterior=None, estimates={"odds": result["odds"]})
    assert Reader(notebook.html(only)).rows[0] == ["quantity", "expectation"]
    own = replace(result["odds"], name="mean")
    rows = Reader(notebook.html(replace(result, estimates={"mean": own}))).rows
    assert [row[0] for row in rows[-2:]] == ["mean.a<b[0]", "mean.a<b[1]"]
    assert Reader(notebook.html(replace(result, posterior=None, estimates={}))).rows == []


def test_the_html_leaves_out_what_would_take_long(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MOST_WORK", 100)
    monkeypatch.setattr(notebook, "MAX_ROWS", 3)
    text = notebook.html(result)
    assert Reader(text).rows[0] == ["coefficient", "mean", "sd"]
    assert "... and 1 more" in text
    other = reshaped(result, Structure.leaf((4,)), (Part("ordered", (), (4,)),))
    monkeypatch.setattr(notebook, "MOST_WORK", 10**9)
    assert Reader(notebook.html(other)).rows[0] == ["coefficient", "mean", "sd"]


def test_the_html_of_parts(result: tb.Result) -> None:
    rows = Reader(notebook.estimate_html(result["odds"])).rows
    assert [row[0] for row in rows] == ["odds", "a<b[0]", "a<b[1]"]
    assert len(rows[1]) == 5
    numbers = np.linspace(0.1, 0.9, 100)
    rows = Reader(notebook.prediction_html(Prediction(*[numbers] * 6))).rows
    assert rows[0] == ["row", "prediction", "sd", "error", "sd_error"]
    assert len(rows) == notebook.MAX_ROWS + 1
    number = Number(0.5, 0.01)
    compared = Comparison("a<b", "c", number, number, number, number, number, number, "odds ratio")
    text = notebook.comparison_html(compared)
    assert [row[0] for row in Reader(text).rows] == ["", "a<b - c", "odds ratio"]
    assert "P(a&lt;b &gt; c) = 0.500" in text
