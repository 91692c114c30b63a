"""The command `evidence`, of a run whose table is in its place, and of one whose is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fitted_flights import Fitted

from tallbayes.commands import cli
from tallbayes.formula.again.rows import with_rows
from tallbayes.results.run_folder import RESULT, read_run


@pytest.mark.usefixtures("without_compile_cache")
def test_the_command_says_what_the_method_says(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evidence", str(fitted.folder), "--tolerance", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    own = with_rows(*read_run(fitted.folder)).evidence(0.05)
    assert found["value"] == own.value
    assert found["interval"] == list(own.interval)
    alone = tmp_path / RESULT
    shutil.copy(fitted.folder / RESULT, alone)
    assert cli.main(["evidence", str(alone)]) == 2
    assert "the rows that it was fitted to" in capsys.readouterr().err
