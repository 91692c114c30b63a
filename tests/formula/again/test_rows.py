"""A run's table read again: the same log posterior of the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.expansion import expand
from tallbayes.errors import DataError, InputError
from tallbayes.formula.again.rows import with_rows
from tallbayes.results.fitted import fitted_of

FORMULA = "y ~ x + late"


def rows(count: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x, late = rng.normal(3.0, 2.0, count), rng.choice(["a", "b", "c"], count)
    return {"x": x, "late": late, "y": (rng.random(count) < 0.4).astype(int)}


def test_a_loaded_run_has_the_rows_it_was_fitted_to(tmp_path: Path) -> None:
    table = rows()
    lines = [f"{float(x)!r},{late},{y}" for x, late, y in zip(*table.values(), strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["x,late,y", *lines]))
    result = tb.fit(FORMULA, str(path), prior_scale=0.7, tolerance=0.2)
    result.save(tmp_path / "result.tallbayes")
    loaded = tb.load(tmp_path / "result.tallbayes")
    with pytest.raises(InputError, match="the rows that it was fitted to"):
        fitted_of(loaded)
    settings = {"data": str(path), "formula": FORMULA, "family": "logistic", "prior_scale": 0.7}
    again, here = fitted_of(with_rows(loaded, settings)), fitted_of(result)
    point = result.anchor.mode + 0.3
    values = [expand(each.target, each.table, point).value for each in (again, here)]
    assert np.isclose(*values, rtol=1e-12)
    path.write_text(path.read_text() + "\n0.5,a,1")
    with pytest.raises(DataError, match="the table that was fitted, of 300"):
        fitted_of(with_rows(loaded, settings))
