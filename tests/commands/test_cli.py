"""The command line: answers, exit codes, what is written and when nothing is.

Bad input is in test_cli_refusals.py, `reproduce` in test_experiments.py.

Three fits are made: one in this process, that most tests look at, one with a budget, and one under a terminal of its
own that is interrupted. Everything else is refused early or given the first fit's result.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flight_files import FORMULA, NAMES, NUM_ROWS, write_flights

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.model import families
from tallbayes.progress import shorten
from tallbayes.results.run_folder import LEDGER, RESULT, SETTINGS, read_run, write_run
from tallbayes.structure import Structure
from tallbayes.views.document import to_json
from tallbayes.views.summary import brief


@pytest.fixture(autouse=True)
def _without_compile_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would change a setting of JAX for all tests after these."""
    monkeypatch.setenv("TALLBAYES_CACHE", "")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)


class Fitted:
    """A run that was made once: the command's exit code, stdout, its folder and the data."""

    def __init__(self, folder: Path) -> None:
        self.data, self.folder = write_flights(folder), folder / "run1"
        command = ["fit", str(self.data), "--formula", FORMULA, "--tolerance", "0.05", "--seed", "1", "--json"]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.code = cli.main([*command, "--out", str(self.folder)])
        self.output = output.getvalue()

    @property
    def result(self) -> tb.Result:
        return tb.load(self.folder / RESULT)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fitted]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLBAYES_CACHE", "")
        yield Fitted(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def instead(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Put a finished result in place of what a fit would compute; the options that it was given."""

    def replace_fit(outcome: Any = None, **changes: Any) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def fit(formula: str, table: Any, family: str, **options: Any) -> tb.Result:
            seen.update(options, formula=formula, family=family)
            if isinstance(outcome, BaseException):
                raise outcome
            return replace(fitted.result, **changes)

        monkeypatch.setattr("tallbayes.formula.fit.fit", fit)
        return seen

    return replace_fit


def test_a_fit_converges_and_is_kept_whole(fitted: Fitted) -> None:
    assert fitted.code == 0
    assert sorted(path.name for path in fitted.folder.iterdir()) == sorted([LEDGER, RESULT, SETTINGS])
    assert sorted(path.name for path in fitted.folder.parent.iterdir()) == ["flights.csv", "run1"]
    assert list(fitted.result["mean"].value) == NAMES
    assert fitted.result.converged


def test_the_run_remembers_what_was_asked(fitted: Fitted) -> None:
    settings = json.loads((fitted.folder / SETTINGS).read_text())
    assert settings["data"] == str(fitted.data)
    assert (settings["formula"], settings["family"]) == (FORMULA, "logistic")
    assert (settings["tolerance"], settings["seed"]) == (0.05, 1)
    assert settings["versions"]["tallbayes"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", settings["created"])


def test_the_command_gives_the_numbers_of_the_library(fitted: Fitted) -> None:
    again = tb.fit(FORMULA, fitted.data, tolerance=0.05, seed=1)
    for quantity in ("mean", "sd"):
        np.testing.assert_array_equal(again[quantity].flat_value, fitted.result[quantity].flat_value)


def test_json_has_every_number(fitted: Fitted) -> None:
    document, result = json.loads(fitted.output), fitted.result
    assert (document["status"], document["converged"]) == ("converged", True)
    assert list(document["quantities"]) == ["mean", "sd"]
    for quantity, components in document["quantities"].items():
        estimate = result[quantity]
        assert list(components) == NAMES
        for name, numbers in components.items():
            assert numbers["value"] == estimate.value[name]
            assert numbers["standard_error"] == estimate.standard_error[name]
            assert numbers["bias_bound"] == estimate.bias_bound[name]
            assert numbers["interval"] == [end[name] for end in estimate.interval]
            assert numbers["tolerance"] == estimate.tolerance[name]
            assert numbers["met"] is True
    assert document["cost"]["num_data"] == NUM_ROWS
    assert document["method"].startswith("Anchored")
    assert document["notes"] == list(result.notes)
    assert document["settings"]["formula"] == FORMULA


def test_fit_and_show_print_the_same_document(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(fitted.folder), "--json"]) == 0
    assert capsys.readouterr().out == fitted.output


def test_numbers_that_are_not_finite_are_null(fitted: Fitted) -> None:
    estimate = replace(fitted.result["mean"], flat_bias_bound=np.full(4, np.inf))
    document = json.loads(to_json(replace(fitted.result, estimates={"mean": estimate}), {}), parse_constant=pytest.fail)
    numbers = document["quantities"]["mean"]["hour"]
    assert numbers["bias_bound"] is None
    assert numbers["interval"] == [None, None]
    assert numbers["met"] is False


def shown(fitted: Fitted, capsys: pytest.CaptureFixture[str], *options: str, path: Path | None = None) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        # Whatever terminal the tests run in; too narrow for moments and interval ends side by side.
        patch.setenv("COLUMNS", "80")
        assert cli.main(["show", str(path or fitted.folder), *options]) == 0
    output, error = capsys.readouterr()
    assert error == ""
    return output.splitlines()


def test_show_gives_the_answer_first(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(fitted, capsys)
    assert lines[0] == FORMULA
    assert lines[1] == "logistic, 2,000 rows of flights.csv"
    assert lines[3].split() == ["coefficient", "mean", "error", "sd", "error"]
    result = fitted.result
    for name, line in zip(NAMES, lines[4:8], strict=True):
        label, *numbers = line.split()
        mean, mean_error, sd, sd_error = map(float, numbers)
        assert label == name
        for quantity, value, error in (("mean", mean, mean_error), ("sd", sd, sd_error)):
            exact = result[quantity]
            # Two digits of the error, and the value to the second of them.
            place = NAMES.index(name)
            assert abs(error / exact.flat_error[place] - 1) < 0.051
            assert abs(value - exact.flat_value[place]) < 0.06 * error
    text = "\n".join(lines)
    assert "status    converged: every quantity met its tolerance" in text
    assert "each number to 0.05 posterior sd" in text
    assert "late = 'yes' is 1, 'no' is 0" in text
    assert max(map(len, lines)) <= 100


def test_points_stand_below_points(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(fitted, capsys)[4:8]
    assert len({line.split(" ", 1)[1].index(".") + len(line.split(" ", 1)[0]) for line in table}) == 1


def test_show_takes_the_file_as_well_as_the_folder(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(fitted, capsys, path=fitted.folder / RESULT) == shown(fitted, capsys)


def test_show_takes_a_result_that_was_saved_from_python(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted.result.save(tmp_path / "mine.tallbayes")
    lines = shown(fitted, capsys, path=tmp_path / "mine.tallbayes")
    assert lines[0].split()[0] == "coefficient"


def test_show_full_tells_everything(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(shown(fitted, capsys, "--full"))
    for word in ("coefficient", "bias bound", "kurtosis", "contraction", "rows a step", "method: Anchored", "status: "):
        assert word in text
    prose = [line for line in text.splitlines() if "  " not in line.strip()]
    assert max(map(len, prose)) <= 100


def test_long_names_are_cut_in_the_middle(fitted: Fitted) -> None:
    names = ["C(" + letter * 80 + ")[T.AA]" for letter in "abcd"]
    structure = Structure.container("dict", [(name, Structure.leaf(())) for name in names])
    estimates = {name: replace(each, structure=structure) for name, each in fitted.result.estimates.items()}
    for width in (60, 80, 100):
        lines = brief(replace(fitted.result, estimates=estimates), {}, width).splitlines()
        assert max(map(len, lines)) <= width
        assert len({line.split()[0] for line in lines[1:5]}) == 4
        assert all("..." in line and "[T.AA]" in line for line in lines[1:5]) or width == 60
    assert shorten("of two\nlines", 20) == "of two lines"


def many(fitted: Fitted, name: str, **changes: Any) -> tb.Estimate:
    parts = ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance")
    arrays = {part: np.arange(1.0, 101.0) for part in parts}
    return replace(fitted.result["mean"], name=name, structure=Structure.leaf((100,)), **(arrays | changes))


def test_many_components_are_cut_short_unless_all_are_wanted(fitted: Fitted) -> None:
    result = replace(fitted.result, estimates={name: many(fitted, name) for name in ("mean", "sd")})
    assert "... and 60 more; --full and --json have all" in brief(result, {})
    assert brief(result, {}, full=True).split("\n\n")[0].count("\n") == 100
    assert len(json.loads(to_json(result, {}))["quantities"]["mean"]) == 100


def test_a_long_formula_is_wrapped(fitted: Fitted) -> None:
    settings = {
        "formula": "late ~ " + " + ".join(f"column_{i}" for i in range(40)),
        "family": "probit",
        "data": "a.csv",
    }
    lines = brief(fitted.result, settings, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert "probit, 2,000 rows of a.csv" in lines


def test_other_quantities_have_tables_of_their_own(fitted: Fitted) -> None:
    single = replace(many(fitted, "odds"), structure=Structure.leaf((100,)))
    result = replace(fitted.result, estimates={**fitted.result.estimates, "odds": single})
    head, *rows = brief(result, {}).split("\n\n")[1].splitlines()
    assert head.split() == ["odds", "value", "error"]
    assert rows[0].split()[0] == "[0]"


def test_what_is_not_known_is_said_so(fitted: Fitted) -> None:
    unknown = many(fitted, "mean", flat_bias_bound=np.full(100, np.inf), flat_value=np.full(100, np.nan))
    rows = brief(replace(fitted.result, estimates={"mean": unknown}), {}).splitlines()[1:3]
    assert [row.split() for row in rows] == [[f"[{i}]", "unknown", "unknown", "not", "met"] for i in (0, 1)]


SIZES = {1e-7: "1.00000e-7", 0.5: "0.50000", 12_345_678.0: "12345678", 1e12: "1.00000e12"}


@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_any_size_are_given_to_the_second_digit_of_their_error(fitted: Fitted, size: float) -> None:
    value, error = np.full(100, size), np.full(100, size * 2e-4 if size != 12_345_678.0 else 55.0)
    estimate = many(fitted, "g", flat_value=value, flat_standard_error=error, flat_bias_bound=0 * error)
    row = brief(replace(fitted.result, estimates={"g": estimate}), {}).splitlines()[1].split()
    assert row[1] == SIZES[size]
    assert float(row[2]) == pytest.approx(error[0], rel=0.05)


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
        "--family student_t --relative-tolerance 0.1 --prior-scale inf --intercept-scale 3 --raw --missing drop "
        "--weights w --offset o --noise-scale 2 --degrees-of-freedom 5 --seed 7 --max-seconds 60 "
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


def test_the_default_tolerance_is_one_percent(fitted: Fitted, instead: Callable[..., Any]) -> None:
    seen = instead()
    assert cli.main(["fit", str(fitted.data), "--formula", FORMULA, "--quiet"]) == 0
    assert [seen[f"{kind}tolerance"] for kind in ("", "relative_", "absolute_")] == [0.01, None, None]
    assert isinstance(seen["method"], tb.Anchored)


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
    assert output.startswith(FORMULA)
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
    assert header == "prediction,sd,error,sd_error"
    values = np.array([row.split(",") for row in rows], float)
    np.testing.assert_allclose(values[:, 0], fitted.result.predict(new).mean, rtol=1e-6)
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


def test_the_help_names_every_family() -> None:
    (action,) = (action for action in fit_actions() if action.dest == "family")
    assert action.help == f"{', '.join(families.FAMILIES)}; default {action.default}"


def test_messages_speak_of_options() -> None:
    options = {option for action in fit_actions() for option in action.option_strings}
    for keyword in cli.KEYWORDS.split("|"):
        assert f"--{keyword.replace('_', '-')}" in options
    assert (
        cli.in_options("Try: tb.families.linear, or method='anchored'.")
        == "Try: --family linear, or --method anchored."
    )


def fit_actions() -> list[Any]:
    commands = next(action for action in cli._parser()._actions if action.dest == "==SUPPRESS==")
    return list(commands.choices["fit"]._actions)


LOADED = """
import sys
from tallbayes.commands.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stopped:
    code = stopped.code
print(*[name for name in ("jax", "jaxlib", "numpy", "rich", "scipy") if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def loaded(*command: str) -> tuple[str, list[str]]:
    done = subprocess.run([sys.executable, "-c", LOADED, *command], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.split()


@pytest.mark.parametrize("command", [["--help"], ["fit", "--help"], ["show", "--help"]], ids=" ".join)
def test_help_answers_without_jax_or_numpy(command: list[str]) -> None:
    output, modules = loaded(*command)
    assert output.startswith("usage: tallbayes")
    assert modules == []


@pytest.mark.parametrize("options", [[], ["--json"], ["--full"]], ids=str)
def test_show_answers_without_jax(options: list[str], fitted: Fitted) -> None:
    output, modules = loaded("show", str(fitted.folder), *options)
    assert "C(carrier)[T.DL]" in output
    assert not {"jax", "jaxlib", "rich"} & set(modules)
    # The control: the modules that it does load are seen.
    assert "numpy" in modules


def test_a_reader_that_leaves_is_no_defect(fitted: Fitted) -> None:
    command = [sys.executable, "-m", "tallbayes", "show", str(fitted.folder)]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_names_that_a_terminal_cannot_write_do_not_stop_it(fitted: Fitted) -> None:
    names = ["Sabit", "saat", "taşıyıcı", "yön"]
    structure = Structure.container("dict", [(name, Structure.leaf(())) for name in names])
    estimates = {name: replace(each, structure=structure) for name, each in fitted.result.estimates.items()}
    path = fitted.folder.parent / "turkish.tallbayes"
    replace(fitted.result, estimates=estimates).save(path)
    command = [sys.executable, "-m", "tallbayes", "show", str(path)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    path.unlink()
    assert r"y\xf6n" in done.stdout


CACHES = """
import os, pathlib, sys
from tallbayes.programs.disk_cache import use_compile_cache
base = pathlib.Path(sys.argv[1])
os.environ["TALLBAYES_CACHE"] = ""
assert use_compile_cache() is None
(base / "file").write_text("")
os.environ["TALLBAYES_CACHE"] = str(base / "file")
assert use_compile_cache() is None
import jax
assert not jax.config.jax_compilation_cache_dir
os.environ["TALLBAYES_CACHE"] = str(base / "mine")
folder = use_compile_cache()
assert folder.parent == base / "mine" and folder.stat().st_mode & 0o077 == 0
assert jax.config.jax_compilation_cache_dir == str(folder)
del os.environ["TALLBAYES_CACHE"]
jax.config.update("jax_compilation_cache_dir", None)
os.environ["XDG_CACHE_HOME"] = str(base / "xdg")
old = folder / "old-cache"
old.write_text("")
os.utime(old, (0, 0))
assert use_compile_cache().parent == base / "xdg" / "tallbayes"
jax.config.update("jax_compilation_cache_dir", None)
os.environ["TALLBAYES_CACHE"] = str(base / "mine")
assert use_compile_cache() == folder and not old.exists()
jax.config.update("jax_compilation_cache_dir", "elsewhere")
assert use_compile_cache() is None
assert jax.config.jax_compilation_cache_dir == "elsewhere"
"""


def test_the_compile_cache_is_where_it_was_asked_for_or_off(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", CACHES, str(tmp_path)], check=True)


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, *command: str, cache: Path) -> None:
        main, terminal = pty.openpty()
        # A shell that runs tests in the background has its children ignore Ctrl-C.
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from tallbayes.commands.cli import main; sys.exit(main(sys.argv[1:]))"
        )
        environment = os.environ | {"TALLBAYES_CACHE": str(cache), "TERM": "xterm", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=environment,
            text=True,
        )
        os.close(terminal)
        self.main, self.seen = main, ""

    def wait_for(self, pattern: str, seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, self.seen[-2000:]
            if select.select([self.main], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self.main, 65_536).decode(errors="replace")
                except OSError:
                    pytest.fail(f"ended before {pattern}: {self.seen[-2000:]}")

    def interrupt(self) -> tuple[int, str]:
        """The exit code and stdout."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=240)
        with contextlib.suppress(OSError):
            while part := os.read(self.main, 65_536):
                self.seen += part.decode(errors="replace")
        return self.process.returncode, output


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*command: str) -> Terminal:
        opened.append(Terminal(*command, cache=tmp_path / "cache"))
        return opened[-1]

    yield open_terminal
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
        os.close(each.main)


def test_ctrl_c_while_sampling_keeps_the_run(fitted: Fitted, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("fit", str(fitted.data), "--formula", FORMULA, "--absolute-tolerance", "1e-6", "--out", str(out))
    here = terminal(*command)
    here.wait_for(r"about [\d.]+ \w+ left \| (mean|sd)\.")
    code, output = here.interrupt()
    assert code == 3
    assert "interrupted before the tolerance was met" in output
    assert "not met" in output
    assert read_run(out)[0].status is tb.Status.interrupted
    assert np.all(np.isfinite(read_run(out)[0]["mean"].flat_value))
    for phase in ("starting", "reading the table", "tuning", "? left"):
        assert phase in here.seen
    assert "saved in" in here.seen
    assert "Traceback" not in here.seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "run"]
    assert any((tmp_path / "cache").glob("*/*-cache"))


def test_ctrl_c_while_starting_ends_in_one_line(
    fitted: Fitted, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    here = terminal("fit", str(fitted.data), "--formula", FORMULA, "--out", str(tmp_path / "run"))
    here.wait_for("starting")
    code, output = here.interrupt()
    assert (code, output) == (130, "")
    assert here.seen.count("interrupted before there was anything to keep") == 1
    assert "Traceback" not in here.seen
    assert not (tmp_path / "run").exists()


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
