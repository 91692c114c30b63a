"""Groups of tables on disk, which are those of the same rows in memory; and where a fit with groups ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from schools import NUM_ROWS, ROWS, gappy

import tallbayes as tb
from tallbayes.formula import survey
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.groups import levels as group_levels
from tallbayes.rows import packing
from tallbayes.rows.on_disk import Stored

STORED = [
    "y ~ x + (1 | school)",
    "y ~ x + (1 + x | year)",
    "y ~ (x || half) + (1 | flag)",
    "y ~ x + (1 | school/year) + (0 + k | `the group`)",
    "y ~ scale(w) + (scale(w) + poly(x, 1) | school)",
    "I(x > 7) ~ k + (np.log(w) | year:school)",
]


def ingested(rows: dict[str, Any], folder: Path) -> Stored:
    pq.write_table(pa.table(rows), folder / "f.parquet")
    return tb.ingest(folder / "f.parquet", folder / "f.table")


def require_same(found: Design, expected: Design, order: np.ndarray) -> None:
    assert len(found.groups) == len(expected.groups) > 0
    for mine, theirs in zip(found.groups, expected.groups, strict=True):
        assert (mine.term, mine.names, mine.levels.names) == (theirs.term, theirs.names, theirs.levels.names)
        assert (mine.codes.dtype, mine.z.dtype, mine.z.shape) == (theirs.codes.dtype, theirs.z.dtype, theirs.z.shape)
        np.testing.assert_array_equal(mine.codes, theirs.codes[order])
        np.testing.assert_allclose(mine.z, theirs.z[order], atol=3e-6)
        np.testing.assert_allclose(mine.centre, theirs.centre, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(mine.scale, theirs.scale, rtol=1e-6)


@pytest.mark.parametrize("formula", STORED)
@pytest.mark.parametrize("missing", ["error", "drop"])
def test_groups_on_disk_are_those_in_memory(
    formula: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch after batch, made and found again, the rows in the order of the table."""
    monkeypatch.setattr(packing, "BATCH_ROWS", 64)
    monkeypatch.setattr(survey, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(group_levels, "PENDING", 10)
    rows = gappy() if missing == "drop" else ROWS
    table = ingested(rows, tmp_path)
    used = build_design(formula, rows, missing=missing)
    assert (used.dropped > 0) == (missing == "drop" and ("school" in formula or "half" in formula))
    numbers = table.row_numbers()
    assert numbers is not None
    kept = np.ones(NUM_ROWS, bool)
    if used.dropped:
        gone = [["school"] * ("school" in formula), ["half"] * ("half" in formula)]
        kept = ~np.any([pd.isna(np.asarray(rows[name], object)) for each in gone for name in each], axis=0)
    order = (np.cumsum(kept) - 1)[numbers[kept[numbers]]]
    for _ in range(2):
        require_same(build_design(formula, table, missing=missing), used, order)


def test_rows_on_disk_hold_codes_and_effects_but_no_column_of_ones(tmp_path: Path) -> None:
    design = build_design("y ~ x + (1 | school) + (x | year)", ingested(ROWS, tmp_path))
    assert isinstance(design.rows, Stored)
    fields = {field.name: (field.dtype, field.shape) for field in design.rows.fields}
    assert fields == {
        "x": ("float32", (1,)),
        "y": ("float32", ()),
        "group_0": ("int32", ()),
        "group_1": ("int32", ()),
        "effects_1": ("float32", (2,)),
    }
    assert design.groups[0].z.strides[0] == 0
