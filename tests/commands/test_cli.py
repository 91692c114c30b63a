"""The command line: what a fit and `show` print, that help and `show` answer without JAX.

Bad input is in test_cli_refusals.py, `reproduce` in test_experiments.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitted_flights import Fitted
from flight_files import FORMULA, NAMES, NUM_ROWS

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.model import families
from tallbayes.progress import shorten
from tallbayes.results.run_folder import LEDGER, RESULT, SETTINGS
from tallbayes.structure import Structure
from tallbayes.views.document import to_json
from tallbayes.views.summary import brief

pytestmark = pytest.mark.usefixtures("without_compile_cache")


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
    again = tb.fit(FORMULA, fitted.data, tolerance=0.05, seed=1, method=tb.Anchored())
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


HEADLINE = "converged: every mean and sd is known to 0.05 posterior sd, every interval end to 0.1 sd"


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
    start = lines.index(FORMULA)
    assert " ".join(each.strip() for each in lines[:start]) == HEADLINE
    lines = lines[start:]
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
    lines = shown(fitted, capsys)
    table = lines[lines.index(FORMULA) + 4 :][:4]
    assert len({line.split(" ", 1)[1].index(".") + len(line.split(" ", 1)[0]) for line in table}) == 1


def test_show_takes_the_file_as_well_as_the_folder(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(fitted, capsys, path=fitted.folder / RESULT) == shown(fitted, capsys)


def test_show_takes_a_result_that_was_saved_from_python(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted.result.save(tmp_path / "mine.tallbayes")
    lines = shown(fitted, capsys, path=tmp_path / "mine.tallbayes")
    assert " ".join(lines[:2]).startswith("converged: every mean")
    assert lines[lines.index("") + 1].split()[0] == "coefficient"


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
        lines = lines[lines.index("") + 1 :]
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
    assert brief(result, {}, full=True).split("\n\n")[1].count("\n") == 100
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
    head, *rows = brief(result, {}).split("\n\n")[2].splitlines()
    assert head.split() == ["odds", "value", "error"]
    assert rows[0].split()[0] == "[0]"


def test_what_is_not_known_is_said_so(fitted: Fitted) -> None:
    unknown = many(fitted, "mean", flat_bias_bound=np.full(100, np.inf), flat_value=np.full(100, np.nan))
    rows = brief(replace(fitted.result, estimates={"mean": unknown}), {}).split("\n\n")[1].splitlines()[1:3]
    assert [row.split() for row in rows] == [[f"[{i}]", "unknown", "unknown", "not", "met"] for i in (0, 1)]


SIZES = {1e-7: "1.00000e-7", 0.5: "0.50000", 12_345_678.0: "12345678", 1e12: "1.00000e12"}


@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_any_size_are_given_to_the_second_digit_of_their_error(fitted: Fitted, size: float) -> None:
    value, error = np.full(100, size), np.full(100, size * 2e-4 if size != 12_345_678.0 else 55.0)
    estimate = many(fitted, "g", flat_value=value, flat_standard_error=error, flat_bias_bound=0 * error)
    row = brief(replace(fitted.result, estimates={"g": estimate}), {}).split("\n\n")[1].splitlines()[1].split()
    assert row[1].removeprefix("~") == SIZES[size]
    assert float(row[2]) == pytest.approx(error[0], rel=0.05)


def test_the_help_names_every_family() -> None:
    (action,) = (action for action in actions_of("fit") if action.dest == "family")
    assert action.help == f"{', '.join(families.FAMILIES)}; default {action.default}; names of R and brms too"


def test_messages_speak_of_options() -> None:
    actions = [action for command in ("fit", "predict") for action in actions_of(command)]
    options = {option for action in actions for option in action.option_strings}
    for keyword in cli.KEYWORDS.split("|"):
        assert f"--{keyword.replace('_', '-')}" in options
    assert (
        cli.in_options("Try: tb.families.linear, or method='anchored'.")
        == "Try: --family linear, or --method anchored."
    )


def actions_of(command: str) -> list[Any]:
    commands = next(action for action in cli._parser()._actions if action.dest == "==SUPPRESS==")
    return list(commands.choices[command]._actions)


LOADED = """
import sys
import tomllib
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


def test_show_cuts_no_name_when_it_is_piped(fitted: Fitted, tmp_path: Path) -> None:
    """On a terminal names are shortened to fit; into a pipe tables are as wide as they need to be."""
    name = "C(carrier_of_the_flight_as_the_airline_itself_calls_it)[T.The One And Only Airline]"
    names = {**dict.fromkeys(["Intercept", "hour"]), name: None}
    estimates = {
        each.name: replace(
            each.part(slice(3), each.name),
            structure=Structure.container("dict", [(key, Structure.leaf(())) for key in names]),
        )
        for each in fitted.result.estimates.values()
    }
    result = replace(fitted.result, estimates=estimates, posterior=None)
    result.save(tmp_path / "long")
    command = [sys.executable, "-m", "tallbayes", "show", str(tmp_path / "long")]
    outside = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.run(command, env=outside, capture_output=True, text=True, check=True)
    assert name in done.stdout
    assert "..." not in done.stdout
    assert name not in brief(result, {}, 80)
    assert "..." in brief(result, {}, 80)


@pytest.mark.parametrize("command", [["--help"], ["fit", "--help"], ["show", "--help"]], ids=" ".join)
def test_help_answers_without_jax_or_numpy(command: list[str]) -> None:
    output, modules = loaded(*command)
    assert output.startswith("usage: tallbayes")
    assert modules == []


def test_the_version_has_one_home_and_is_told_without_jax_or_numpy() -> None:
    written = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    assert loaded("--version") == (f"tallbayes {written}\n", [])
    assert tb.__version__ == written


@pytest.mark.parametrize("options", [[], ["--json"], ["--full"]], ids=str)
def test_show_answers_without_jax(options: list[str], fitted: Fitted) -> None:
    output, modules = loaded("show", str(fitted.folder), *options)
    assert "C(carrier)[T.DL]" in output
    assert not {"jax", "jaxlib", "rich"} & set(modules)
    # The control: the modules that it does load are seen.
    assert "numpy" in modules
