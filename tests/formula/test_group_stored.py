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
from tallbayes.errors import InputError
from tallbayes.formula import survey
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.groups import fit as junction
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


REFUSED = {
    "y ~ x + (1 | school)": ("(1 | school): group effects, for which there is no door yet", "C(school) for a coeff"),
    "y ~ (1 + x || year)": ("(1 + x || year): group effects", "a tb.Model or a NumPyro model"),
}


@pytest.mark.parametrize("formula", REFUSED)
def test_a_fit_with_groups_is_refused_before_the_table_is_read(formula: str) -> None:
    with pytest.raises(InputError) as caught:
        tb.fit(formula, "no such file.csv", tolerance=0.1)
    got, hint = str(caught.value).partition("; got ")[2].split(". Try: ")
    for part, text in zip(REFUSED[formula], (got, hint), strict=True):
        assert part in text


def test_what_arrives_where_a_fit_with_groups_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The design and the model of the fixed effects; and what integrates them may answer."""
    from tallbayes.formula import fit

    arrived: list[junction.GroupQuestion] = []
    answer = tb.fit("y ~ x", ROWS, tolerance=1.0)

    def integrate(question: junction.GroupQuestion) -> tb.Result:
        arrived.append(question)
        return answer

    monkeypatch.setattr(fit, "require_integration", lambda formula: None)
    with pytest.raises(InputError, match="no door yet"):
        tb.fit("y ~ x + (1 | school)", ROWS, tolerance=0.5)
    monkeypatch.setattr(fit, "fit_groups", lambda question: junction.fit_groups(question, integrate))
    result = tb.fit("y ~ x + (1 + x | year)", ROWS, tolerance=0.5, seed=3, weights="w")
    (question,) = arrived
    assert {name: array.shape for name, array in question.design.rows.items()} == {"x": (600, 1), "y": (600,)}
    assert [group.names for group in question.design.groups] == [("Intercept", "x")]
    assert {name: question.options[name] for name in ("tolerance", "seed")} == {"tolerance": 0.5, "seed": 3}
    np.testing.assert_allclose(question.options["weights"], ROWS["w"])
    assert list(result["mean"].value) == ["Intercept", "x"]
    assert result.encoding is not None
    assert Encoding.from_plain(result.encoding).groups[0].term.text == "(1 + x | year)"
    with pytest.raises(InputError, match=r"a fit without groups; got \(1 \+ x \| year\)"):
        result.predict(ROWS)
