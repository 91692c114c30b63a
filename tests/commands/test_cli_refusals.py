"""Bad input through the command line: one line that says what to try, exit code 2, and nothing written."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet
import pytest

from tallbayes.commands import cli


@pytest.fixture(autouse=True)
def _without_compile_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would change a setting of JAX for all tests after these."""
    monkeypatch.setenv("TALLBAYES_CACHE", "")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    rows = [f"{i % 2},{i % 24},{'ABC'[i % 3]},{2 * (i % 24)},7,,{i % 5 - 1}" for i in range(60)]
    (folder / "good.csv").write_text("\n".join(["late,hour,carrier,double,seven,nothing,score", *rows]) + "\n")
    (folder / "gaps.csv").write_text("late,hour\n0,\n" + "".join(f"{i % 2},{i}\n" for i in range(50)))
    (folder / "empty.csv").write_text("")
    (folder / "broken.csv").write_text("late,hour\n1,2\n0,3,4\n")
    (folder / "few.csv").write_text("late,a,b,c\n1,2,3,5\n0,3,9,1\n")
    (folder / "notes.txt").write_text("late\n")
    arrow.parquet.write_table(arrow.table({"late": [0, 1] * 50, "hour": range(100)}), folder / "whole.parquet")
    whole = (folder / "whole.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    return folder


HOURS = "late ~ hour"
REFUSED = {
    "missing file": ("god.csv", HOURS, "", "good.csv"),
    "missing column": ("good.csv", "late ~ hours", "", "'hour'"),
    "missing values": ("gaps.csv", HOURS, "", "--missing drop"),
    "response outside the support": ("good.csv", "score ~ hour", "--family poisson", "-1"),
    "constant column": ("good.csv", "late ~ hour + seven", "", "'seven'"),
    "collinear columns": ("good.csv", "late ~ hour + double", "", "'double'"),
    "all-missing column": ("good.csv", "late ~ nothing", "", "'nothing'"),
    "empty file": ("empty.csv", HOURS, "", "empty"),
    "broken row": ("broken.csv", HOURS, "", "line 3"),
    "folder": (".", HOURS, "", "folder"),
    "text file": ("notes.txt", HOURS, "", ".parquet"),
    "truncated parquet": ("cut.parquet", HOURS, "", "cut.parquet"),
    "unknown family": ("good.csv", HOURS, "--family logit", "'logistic'"),
    "option of another family": ("good.csv", HOURS, "--noise-scale 2", "noise_scale"),
    "syntax of the formula": ("good.csv", "late ~ hour +* (", "", "formula"),
    "no response": ("good.csv", "hour", "", "~"),
    "more columns than rows": ("few.csv", "late ~ a + b + c", "", "4 columns, 2 rows"),
    "tolerance of zero": ("good.csv", HOURS, "--tolerance 0", "--tolerance > 0"),
    "negative tolerance": ("good.csv", HOURS, "--absolute-tolerance=-1", "--absolute-tolerance > 0"),
    "weights of no column": ("good.csv", HOURS, "--weights w", "'w'"),
    "offset of text": ("good.csv", HOURS, "--offset carrier", "'A'"),
    "negative prior scale": ("good.csv", HOURS, "--prior-scale=-1", "--prior-scale > 0"),
    "no time": ("good.csv", HOURS, "--max-seconds 0", "--max-seconds > 0"),
    "negative seed": ("good.csv", HOURS, "--seed=-1", "seed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line_and_leaves_nothing(
    case: str, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, formula, options, told = REFUSED[case]
    command = ["fit", str(tables / data), "--formula", formula, "--out", str(tmp_path / "run"), *options.split()]
    assert cli.main(command) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(r"tallbayes: expected .*; got .*\. Try: .*\.\n", error)
    assert told in error
    assert list(tmp_path.iterdir()) == []


USAGE = {
    "nothing": [],
    "unknown command": ["fti"],
    "no formula": ["fit", "flights.csv"],
    "two accuracies": ["fit", "flights.csv", "--formula", HOURS, "--tolerance", "1", "--absolute-tolerance", "1"],
    "no number": ["fit", "flights.csv", "--formula", HOURS, "--tolerance", "fine"],
    "unknown method": ["fit", "flights.csv", "--formula", HOURS, "--method", "nuts"],
    "json and full": ["show", "run1", "--json", "--full"],
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_is_told(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(USAGE[case])
    assert stopped.value.code == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert error.startswith("usage: tallbayes")
    assert error.count("\n") == 2
