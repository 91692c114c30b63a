"""Groups as a reader meets them: text with every error beside its number, and pages that stay small."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mixed_runs import SCHOOLS, YEARS, made_up_effects, mixed
from page_reader import faults

import tallbayes as tb
from tallbayes.commands.cli import main
from tallbayes.results.coefficients import are_ratios, is_slope
from tallbayes.views.report import render_report
from tallbayes.views.report.ribbons import ribbon_of

COLUMNS = ["rows", "raw mean", "mean", "error", "sd", "error", "2.5%", "error", "97.5%", "error"]


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return mixed()


@pytest.fixture(scope="module")
def run(result: tb.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("groups") / "result.tallbayes"
    result.save(place)
    return place


def test_every_number_has_its_error_beside_it() -> None:
    text = str(made_up_effects(1000))
    assert "the 5 lowest and highest of 1,000" in text
    header = next(line for line in text.splitlines() if line.startswith("school  "))
    assert re.split(r"\s{2,}", header)[1:] == COLUMNS
    assert "is kept in the median" in " ".join(text.split())


def test_views_show_scales_and_not_every_effect(result: tb.Result) -> None:
    for text in (result.summary(), str(result), result._repr_html_()):
        assert "|year)" in text
        assert "Intercept|year[" not in text
        assert "group gradients" in text
        assert "row gradients" not in text
        assert f"{SCHOOLS} by school" in text
    assert "variance of" in result.summary()
    assert "variance of" in str(result)


def test_scales_of_groups_are_no_slopes() -> None:
    assert not is_slope("sd(Intercept|school)")
    assert not is_slope("cor(Intercept,x|school)")
    assert is_slope("sd")
    names = ["x", "sd(Intercept|school)", "Intercept|year[y0]"]
    assert are_ratios(names, mixed("logistic")) == [True, False, False]


@pytest.mark.parametrize("groups", [30, 61, 100_000])
def test_pages_stay_small_and_whole(groups: int, result: tb.Result) -> None:
    found = made_up_effects(groups)
    page = render_report(replace(result, stored_effects=(found,)))
    assert faults(page) == []
    assert len(page) < 200_000
    assert all(f">{found.levels[place]}<" in page for place in found.extremes(0, 10))
    assert ("groups between" in page) == (groups > 60)
    assert page.count("<circle") < 500
    assert "Shares of variance" in page
    assert "Intercept|year[" not in page
    assert "a + b + (1 | school) + (1 | year)" in page


def test_a_ribbon_holds_every_group_once() -> None:
    """The mean over groups is that of stretches by their lengths; of one group a stretch it is the groups."""
    values = np.sort(np.random.default_rng(0).normal(size=5000))[::-1]
    ribbon = ribbon_of("", values, values - 1, values + 2)
    edges = np.round(2500 * (1 - np.cos(np.linspace(0, np.pi, len(ribbon.middle) + 1))))
    assert np.average(ribbon.middle, weights=np.diff(edges)) == pytest.approx(values.mean())
    assert ribbon.lower == pytest.approx(ribbon.middle - 1)
    assert np.all(np.diff(ribbon.middle) < 0)
    assert np.all(ribbon.lowest <= ribbon.lower)
    assert np.all(np.diff(ribbon.down) > 0)


def test_the_command_writes_all_effects(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["effects", str(run), "--by", "school"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0])[:4] == ["school", "rows", "raw", "mean"]
    assert len(rows) == SCHOOLS
    out = tmp_path / "effects.csv"
    assert main(["effects", str(run), "--by", "year", "--out", str(out)]) == 0
    assert out.read_text().count("\n") == len(YEARS) + 1
    assert main(["effects", str(run), "--by", "year", "--out", str(out)]) == 2
    assert main(["effects", str(run)]) == 2
    assert "'school', 'year'" in capsys.readouterr().err


def test_show_prints_the_extremes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"effects by school: the 5 lowest and highest of {SCHOOLS}" in shown
    assert f"effects by year: all {len(YEARS)}" in shown
    assert main(["show", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["groups"]["school"]["groups"] == SCHOOLS
    assert set(document["variance"]) == {"school", "year", "residual"}


@pytest.mark.slow
def test_a_mixed_model_from_a_table_to_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    school, x = rng.integers(0, 12, 240), rng.normal(size=240)
    y = 50 + 3 * x + rng.normal(size=12)[school] + rng.normal(size=240)
    lines = [f"{a:.6f},{b:.6f},s{c}" for a, b, c in zip(y, x, school, strict=True)]
    table, out = tmp_path / "table.csv", tmp_path / "run"
    table.write_text("\n".join(["y,x,school", *lines]) + "\n")
    asked = ["--formula", "y ~ x + (1 | school)", "--family", "linear", "--group-scale", "2"]
    assert main(["fit", str(table), *asked, "--tolerance", "0.3", "--out", str(out), "--quiet"]) == 0
    assert "half-normal(2)" in capsys.readouterr().out
    assert main(["effects", str(out)]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    means = {row["school"]: float(row["raw"]) for row in rows}
    assert means == pytest.approx({f"s{k}": y[school == k].mean() for k in range(12)}, rel=1e-4)
    assert main(["report", str(out)]) == 0
    assert faults((out / "report.html").read_text()) == []
    assert main(["resume", str(out), "--tolerance", "0.25", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["effects", str(out)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 13
