"""What a run is asked about its model from the command line, its table being read again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from fitted_flights import Fitted

from tallbayes.commands import cli

pytestmark = pytest.mark.usefixtures("without_compile_cache")


def asked(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert cli.main(list(command)) == 0
    return capsys.readouterr().out


def test_an_average_effect_by_level_and_a_slope(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(fitted.folder)
    effect = asked(capsys, "effect", run, "hour", "20", "8", "--by", "carrier")
    for carrier in ("AA", "DL", "UA"):
        assert f"hour: 20 - 8, carrier = {carrier}" in effect
    assert "slope of hour" in asked(capsys, "slope", run, "hour")
    assert "f(hour)" in asked(capsys, "curve", run, "hour", "--points", "5")
    rows = list(csv.DictReader(io.StringIO(asked(capsys, "curve", run, "hour", "--points", "5", "--csv"))))
    assert len(rows) == 5
    assert all(float(row["lower"]) < float(row["mean"]) < float(row["upper"]) for row in rows if row["mean"] != "0")
    assert "hour: 20 : 8" in asked(capsys, "effect", run, "hour", "20", "8", "--ratio", "--rows", str(fitted.data))
    assert cli.main(["effect", run, "nothing", "1", "0"]) == 2
    assert "a column that the formula reads" in capsys.readouterr().err
    assert cli.main(["effect", run, "hour", "20", "8", "--groups", "new"]) == 2
    assert "a mixed model for groups='new'" in capsys.readouterr().err


def test_which_priors_matter(fitted: Fitted, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = str(fitted.folder)
    assert "hang" in asked(capsys, "sensitivity", run)
    rows = list(csv.DictReader(io.StringIO(asked(capsys, "sensitivity", run, "--csv"))))
    assert {row["density"] for row in rows} >= {"prior", "likelihood", "hour"}
    assert all(float(row["mean_error"]) >= 0 for row in rows)
    page = tmp_path / "page.html"
    asked(capsys, "report", run, "--out", str(page), "--sensitivity")
    assert "Which priors matter" in page.read_text()
