"""The commands `loo` and `rank`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fitted_flights import Fitted

from tallbayes.commands import cli

pytestmark = pytest.mark.usefixtures("without_compile_cache")


def test_a_run_is_left_out_and_ranked(fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.csv"
    assert cli.main(["loo", str(fitted.folder), "--pointwise", str(out), "--json"]) == 0
    output, error = capsys.readouterr()
    found = json.loads(output)
    rows = np.genfromtxt(out, delimiter=",", names=True)
    assert len(rows) == found["num_rows"]
    assert rows["elpd"].sum() == pytest.approx(found["elpd"], abs=0.1 * found["sampling_error"])
    assert error.startswith(f"tallbayes: {found['num_rows']:,} rows in ")
    assert cli.main(["loo", str(fitted.folder), "--pointwise", str(out)]) == 2
    assert "which exists" in capsys.readouterr().err
    assert cli.main(["loo", str(fitted.folder), "--unit", "group"]) == 2
    assert "a fit with effects by group" in capsys.readouterr().err
    shutil.copytree(fitted.folder, tmp_path / "again")
    assert cli.main(["rank", str(fitted.folder), str(tmp_path / "again")]) == 0
    output = capsys.readouterr().out
    assert "behind the first" in output
    assert str(tmp_path / "again") in output
    assert cli.main(["rank", str(fitted.folder)]) == 2
    assert "two results or more" in capsys.readouterr().err
