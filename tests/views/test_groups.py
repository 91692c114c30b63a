"""Groups as a reader meets them: text with every error beside its number, and pages that stay small."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from mixed_runs import SCHOOLS, fitted_schools, made_up_effects
from page_reader import faults

import tallbayes as tb
from tallbayes.commands.cli import main
from tallbayes.results.coefficients import are_ratios, is_slope
from tallbayes.views.report import render_report


def with_groups(groups: int) -> tb.Result:
    """The small fit, as if it had so many schools."""
    result = fitted_schools()
    return replace(result, stored_effects=(made_up_effects(groups),), stored_partition=result.variance_partition())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("groups") / "result.tallbayes"
    fitted_schools().save(place)
    return place


def test_every_number_has_its_error_beside_it() -> None:
    text = str(made_up_effects(1000))
    assert "the 5 lowest and highest of 1,000" in text
    header = next(line for line in text.splitlines() if line.startswith("school  "))
    assert re.split(r"\s{2,}", header)[1:] == [
        "rows",
        "raw mean",
        "mean",
        "error",
        "sd",
        "error",
        "2.5%",
        "error",
        "97.5%",
        "error",
    ]
    assert "is kept in the median" in text.replace("\n", " ")


def test_the_summary_shows_scales_and_not_every_effect() -> None:
    result = fitted_schools()
    for text in (result.summary(), str(result), result._repr_html_()):
        assert "sd(Intercept|year)" in text
        assert "Intercept|year[" not in text
        assert "group gradients" in text
        assert "row gradients" not in text
    assert f"{SCHOOLS} by school" in result.summary()
    assert "variance of" in result.summary()


def test_scales_of_groups_are_no_slopes() -> None:
    assert not is_slope("sd(Intercept|school)")
    assert not is_slope("cor(Intercept,x|school)")
    assert is_slope("sd")
    assert is_slope("x")
    result = fitted_schools()
    assert result.regression is not None
    logistic = replace(result, regression=replace(result.regression, family="logistic"))
    names = ["x", "sd(Intercept|school)", "Intercept|year[y0]"]
    assert are_ratios(names, logistic) == [True, False, False]


@pytest.mark.parametrize("groups", [30, 61, 100_000])
def test_pages_stay_small_and_whole(groups: int) -> None:
    page = render_report(with_groups(groups))
    assert faults(page) == []
    assert len(page) < 300_000
    found = made_up_effects(groups)
    named = [str(found.levels[place]) for place in found.extremes(0, 10)]
    assert all(f">{name}<" in page for name in named)
    assert ("groups between" in page) == (groups > 60)
    assert page.count("<circle") < 500
    assert "Effects by school" in page
    assert "Shares of variance" in page
    assert "Intercept|year[" not in page


def test_the_command_writes_all_effects(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["effects", str(run), "--by", "school"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "school,rows,raw,mean,mean_error,sd,sd_error,lower,upper,end_error"
    assert len(lines) == SCHOOLS + 1
    out = tmp_path / "effects.csv"
    assert main(["effects", str(run), "--by", "year", "--out", str(out)]) == 0
    assert main(["effects", str(run), "--by", "year", "--out", str(out)]) == 2
    assert main(["effects", str(run)]) == 2
    assert "'school', 'year'" in capsys.readouterr().err
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "effects by school: the 5 lowest and highest of 24" in shown
    assert "effects by year: all 6" in shown
