"""The command line: exit codes, options, what is written and when nothing is."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitted_flights import Fitted
from flight_files import FORMULA, NAMES

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.results.run_folder import LEDGER, RESULT, SETTINGS, read_run, write_run

pytestmark = pytest.mark.usefixtures("without_compile_cache")


def test_a_budget_ends_a_fit_with_code_3_and_keeps_what_there_is(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "stopped"
    command = ["fit", str(fitted.data), "--formula", FORMULA, "--max-seconds", "1e-9", "--out", str(out)]
    assert cli.main(command) == 3
    output, error = capsys.readouterr()
    assert tb.load(out / RESULT).status is tb.Status.max_seconds
    assert "stopped at max_seconds" in output
    assert error.startswith("tallbayes: saved in ")
    assert cli.main(["show", str(out)]) == 0
    assert capsys.readouterr().out == output
    assert cli.main(["resume", str(out)]) == 0
    assert tb.load(out / RESULT).converged
    assert (out / LEDGER).is_file()


@pytest.mark.parametrize("status", tb.Status)
def test_any_status_but_converged_ends_with_code_3(
    status: tb.Status, fitted: Fitted, instead: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    instead(status=status)
    code = cli.main(["fit", str(fitted.data), "--formula", FORMULA])
    assert code == (0 if status is tb.Status.converged else 3)
    output, error = capsys.readouterr()
    assert " ".join(str(status).split()[:3]) in output
    assert error == "tallbayes: not saved: --out RUN keeps it\n"


def test_every_option_reaches_the_fit(fitted: Fitted, instead: Callable[..., Any], tmp_path: Path) -> None:
    seen = instead()
    options = (
        "--family student_t --relative-tolerance 0.1 --prior-scale inf --intercept-scale 3 --group-scale 2 --raw "
        "--missing drop --weights w --offset o --noise-scale 2 --degrees-of-freedom 5 --seed 7 --max-seconds 60 "
        "--max-evaluations 1e6 --interval-tolerance 0.3 --method randomised --quiet"
    )
    out = tmp_path / "run"
    command = ["fit", str(fitted.data), "--formula", "y ~ x", "--out", str(out), *options.split()]
    assert cli.main(command) == 0
    assert isinstance(seen.pop("method"), tb.Randomised)
    assert callable(seen.pop("progress"))
    assert seen == {
        "formula": "y ~ x",
        "family": "student_t",
        "tolerance": None,
        "relative_tolerance": 0.1,
        "absolute_tolerance": None,
        "prior_scale": np.inf,
        "intercept_scale": 3.0,
        "group_scale": 2.0,
        "priors": {},
        "standardise": False,
        "missing": "drop",
        "weights": "w",
        "offset": "o",
        "family_options": {"noise_scale": 2.0, "degrees_of_freedom": 5.0},
        "seed": 7,
        "max_seconds": 60.0,
        "max_evaluations": 1e6,
        "interval_tolerance": 0.3,
        "ledger": tmp_path / "run.unfinished" / LEDGER,
        "executor": None,
    }
    settings = json.loads((out / SETTINGS).read_text())
    assert (settings["prior_scale"], settings["method"], settings["raw"]) == ("inf", "randomised", True)


def test_the_default_tolerance_is_that_of_the_library(fitted: Fitted, instead: Callable[..., Any]) -> None:
    seen = instead()
    assert cli.main(["fit", str(fitted.data), "--formula", FORMULA, "--quiet"]) == 0
    assert [seen[f"{kind}tolerance"] for kind in ("", "relative_", "absolute_")] == [None, None, None]
    assert seen["method"] is None


def test_a_number_that_missed_alone_is_no_success(
    fitted: Fitted, instead: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the status says of the others: exit code 3, and the first line names it."""
    mean = fitted.result["mean"]
    lame = replace(mean, flat_bias_bound=np.where(np.arange(len(mean.flat_value)) == 1, np.inf, mean.flat_bias_bound))
    instead(estimates=fitted.result.estimates | {"mean": lame})
    command = ["fit", str(fitted.data), "--formula", FORMULA, "--out", str(tmp_path / "run")]
    assert cli.main(command) == 3
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("converged in part: 7 of 8 means and sds are known to 0.05 posterior sd, not so")


def test_a_run_of_the_command_line_is_told_to_go_on_by_the_command_line(
    fitted: Fitted,
    instead: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instead(status=tb.Status.max_seconds)
    monkeypatch.chdir(tmp_path)
    command = ["fit", str(fitted.data), "--formula", FORMULA, "--quiet"]
    assert cli.main([*command, "--out", "run1"]) == 3
    assert "next      tallbayes resume run1 goes on from where this run stopped" in capsys.readouterr().out
    assert cli.main(["show", "run1"]) == 0
    assert "next      tallbayes resume run1 goes on from where this run stopped" in capsys.readouterr().out
    assert cli.main(["show", "run1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next"].startswith("tallbayes resume run1")
    assert cli.main(["report", "run1"]) == 0
    page = (tmp_path / "run1" / "report.html").read_text()
    assert "<code>tallbayes resume run1</code> goes on from where this run stopped" in page
    assert "result.extend" not in page
    capsys.readouterr()
    # Where nothing is kept there is nothing to go on from.
    assert cli.main(command) == 3
    assert "next      tallbayes fit ... again with more time" in capsys.readouterr().out


def test_quiet_says_nothing_beside_the_answer(
    fitted: Fitted, instead: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    instead()
    assert cli.main(["fit", str(fitted.data), "--formula", FORMULA, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(command) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(r"tallbayes: expected .*; got .*\. Try: .*\.\n", error)
    return error


def test_a_run_that_exists_is_refused_before_any_work(
    fitted: Fitted, instead: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = instead()
    before = (fitted.folder / RESULT).read_bytes()
    command = ["fit", str(fitted.data), "--formula", FORMULA, "--out", str(fitted.folder)]
    assert "--force" in refused(command, capsys)
    assert not seen
    assert (fitted.folder / RESULT).read_bytes() == before


def test_force_replaces_a_run_and_nothing_else(
    fitted: Fitted, instead: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instead(status=tb.Status.max_levels)
    out, other = tmp_path / "run", tmp_path / "letters"
    write_run(out, fitted.result, {"seed": 1}, force=False)
    other.mkdir()
    (other / "dear.txt").write_text("dear")
    command = ["fit", str(fitted.data), "--formula", FORMULA, "--force", "--out"]
    assert cli.main([*command, str(out)]) == 3
    assert read_run(out)[0].status is tb.Status.max_levels
    capsys.readouterr()
    for place in (other, other / "dear.txt", tmp_path):
        assert "which is none" in refused([*command, str(place)], capsys)
    assert (other / "dear.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters", "run"]


def test_a_folder_for_the_run_must_be_there(fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "no" / "run")
    assert "mkdir -p" in refused(["fit", str(fitted.data), "--formula", FORMULA, "--out", out], capsys)


def test_a_run_that_cannot_be_kept_is_told_all_the_same(
    fitted: Fitted,
    instead: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    instead()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tallbayes.results.result_file.save", full)
    out = tmp_path / "run"
    assert cli.main(["fit", str(fitted.data), "--formula", FORMULA, "--out", str(out)]) == 2
    output, error = capsys.readouterr()
    assert FORMULA in output.splitlines()[:3]
    assert "No space left" in error
    # What was computed is there for `resume`.
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]


def test_a_place_taken_meanwhile_is_not_overwritten(fitted: Fitted, tmp_path: Path) -> None:
    out = tmp_path / "run"
    write_run(out, fitted.result, {"seed": 1}, force=False)
    beside = write_run(out, fitted.result, {"seed": 2}, force=False)
    assert beside != out
    assert [read_run(path)[1]["seed"] for path in (out, beside)] == [1, 2]


def test_show_refuses_what_is_no_run(fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "cut", fitted.result, {}, force=False)
    whole = (fitted.folder / RESULT).read_bytes()
    (tmp_path / "cut" / RESULT).write_bytes(whole[: len(whole) // 2])
    write_run(tmp_path / "mixed", fitted.result, {}, force=False)
    (tmp_path / "mixed" / SETTINGS).write_text("{")
    for path in (tmp_path / "nothing", tmp_path / "empty", tmp_path / "cut", tmp_path / "mixed", fitted.data):
        refused(["show", str(path)], capsys)


def test_predict_prints_csv_or_writes_a_file(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new.csv"
    new.write_text("carrier,hour\nUA,19\nAA,3\n")
    assert cli.main(["predict", str(fitted.folder), str(new)]) == 0
    out, said = capsys.readouterr()
    header, *rows = out.splitlines()
    assert header == "row,prediction,sd,error,sd_error,observation_sd,observation_sd_error"
    values = np.array([row.split(",") for row in rows], float)
    assert values[:, 0].tolist() == [0, 1]
    np.testing.assert_allclose(values[:, 1], fitted.result.predict(new).mean, rtol=1e-6)
    assert said == "tallbayes: 2 rows predicted\n"
    command = ["predict", str(fitted.folder), str(new), "--out", str(tmp_path / "out.parquet")]
    assert cli.main(command) == 0
    assert "2 rows predicted in" in capsys.readouterr().err
    assert "--force" in refused(command, capsys)
    assert cli.main([*command, "--force"]) == 0
    capsys.readouterr()
    assert "at_least for counts" in refused(["predict", str(fitted.folder), str(new), "--at-least", "2"], capsys)
    (tmp_path / "other.csv").write_text("carrier,hour\nXX,19\n")
    assert "a known category" in refused(["predict", str(fitted.folder), str(tmp_path / "other.csv")], capsys)


def test_predict_keeps_columns_and_passes_over_rows(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the messages advise is there to be done, and the count is said."""
    new = tmp_path / "new.csv"
    new.write_text('carrier,hour,id,name\nUA,19,7,"a, b"\nAA,,8,c\nXX,3,9,d\n')
    command = ["predict", str(fitted.folder), str(new)]
    said = refused(command, capsys)
    assert "got a missing value in row 1 (the first is 0). Try: --missing nan" in said
    said = refused([*command, "--missing", "nan"], capsys)
    assert "got 'XX' in row 2 (the first is 0). Try: --unknown nan to predict such rows as NaN; known are 'AA'" in said
    assert "Try: one of carrier, hour, id, name" in refused([*command, "--keep", "zzz"], capsys)
    assert "names of columns between commas for --keep" in refused([*command, "--keep", "id,,"], capsys)
    lenient = [*command, "--missing", "nan", "--unknown", "nan", "--keep", "id", "--keep", "name,hour"]
    assert cli.main(lenient) == 0
    out, said = capsys.readouterr()
    header, *rows = csv.reader(out.splitlines())
    assert header[:5] == ["row", "id", "name", "hour", "prediction"]
    assert [row[:3] for row in rows] == [["0", "7", "a, b"], ["1", "8", "c"], ["2", "9", "d"]]
    assert [row[4] == "nan" for row in rows] == [False, True, True]
    lost = "2 rows predicted as NaN: a missing value in 'hour' (1), an unknown category in 'carrier' (1)"
    assert said == f"tallbayes: {lost}\ntallbayes: 3 rows predicted\n"
    assert cli.main([*lenient, "--out", str(tmp_path / "out.csv"), "--interval", "0"]) == 0
    assert lost in capsys.readouterr().err


def test_predict_of_an_ingested_table_comes_in_the_order_of_the_file(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = [hour % 24 for hour in range(100)]
    (tmp_path / "new.csv").write_text("carrier,hour,id\n" + "".join(f"UA,{h},{i}\n" for i, h in enumerate(hours)))
    assert cli.main(["ingest", str(tmp_path / "new.csv"), "--out", str(tmp_path / "new.table"), "--quiet"]) == 0
    capsys.readouterr()
    printed = []
    for place in ("new.csv", "new.table"):
        assert cli.main(["predict", str(fitted.folder), str(tmp_path / place), "--keep", "id"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert [row.split(",")[:2] for row in printed[1].splitlines()[1:]] == [[str(i), str(i)] for i in range(100)]


def test_report_writes_a_page(fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["report", str(fitted.folder), "--out", str(page), "--title", "Late & later"]) == 0
    assert capsys.readouterr().out.strip().endswith("page.html")
    text = page.read_text()
    assert "Late &amp; later" in text
    assert "C(carrier)" in text


def test_a_defect_is_one_line_and_code_1(
    fitted: Fitted,
    instead: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    instead(ZeroDivisionError("our own\nmistake"))
    command = ["fit", str(fitted.data), "--formula", FORMULA, "--out", str(tmp_path / "run")]
    assert cli.main(command) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "ZeroDivisionError: our own mistake" in error
    assert "TALLBAYES_TRACEBACK=1" in error
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TALLBAYES_TRACEBACK", "1")
    assert cli.main(command) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_interruption_before_there_is_anything_is_one_line(
    fitted: Fitted, instead: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instead(KeyboardInterrupt())
    assert cli.main(["fit", str(fitted.data), "--formula", FORMULA, "--out", str(tmp_path / "run")]) == 130
    assert capsys.readouterr() == ("", "tallbayes: interrupted before there was anything to keep\n")
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_was_ingested_is_fitted_by_the_same_command(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows are in another order, so that paths differ; the posterior is the same."""
    table, out = tmp_path / "flights.table", tmp_path / "run2"
    assert cli.main(["ingest", str(fitted.data), "--out", str(table), "--quiet"]) == 0
    capsys.readouterr()
    command = ["fit", str(table), "--formula", FORMULA, "--tolerance", "0.05", "--seed", "1"]
    assert cli.main([*command, "--out", str(out), "--quiet"]) == 0
    assert "2,000 rows of flights.table" in capsys.readouterr().out
    one, other = fitted.result, tb.load(out / RESULT)
    assert list(other["mean"].value) == NAMES
    apart = np.abs(one["mean"].flat_value - other["mean"].flat_value) / one["sd"].flat_value
    # Both errors are 0.05 sd at most; 4.5 of them together would be one false alarm in 100,000.
    assert np.all(apart < 4.5 * np.hypot(0.05, 0.05))
    missing = tmp_path / "nowhere.table"
    assert cli.main(["fit", str(missing), "--formula", FORMULA, "--tolerance", "0.05"]) == 2
