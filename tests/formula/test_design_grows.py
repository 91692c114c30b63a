"""Designs on disk grow with their tables: new rows alone are read, and coded as the first ones were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import tallbayes as tb
from tallbayes.errors import DataError, InputError, TableError
from tallbayes.formula import survey
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.streaming import appended, withdrawn
from tallbayes.rows.on_disk import Stored

FORMULA = "late ~ x + C(carrier) + poly(hour, 2)"


def day(place: Path, number: int, num_rows: int = 200, **other: Any) -> Path:
    rng = np.random.default_rng(number)
    values = {
        "x": rng.standard_normal(num_rows) + number,
        "hour": rng.integers(0, 24, num_rows),
        "carrier": np.array(["UA", "AA", "B6"])[rng.integers(0, 3, num_rows)],
        "late": np.array(["no", "yes"])[rng.integers(0, 2, num_rows)],
    }
    path = place / f"{number}.parquet"
    parquet.write_table(pa.table(values | other), path)
    return path


@pytest.fixture
def first(tmp_path: Path) -> Stored:
    return tb.ingest(day(tmp_path, 0, 500), tmp_path / "t")


def digest(design: Design) -> str:
    assert isinstance(design.rows, Stored)
    return design.rows.digest


def append(table: Stored, file: Path) -> Stored:
    return tb.ingest(file, table.path, append=True)


def test_new_rows_are_coded_as_new_rows_of_a_fit_are(first: Stored, tmp_path: Path) -> None:
    design = build_design(FORMULA, first)
    then = append(first, day(tmp_path, 1))
    now = append(then, day(tmp_path, 2))
    middle, last = appended(design, then), appended(design, now)
    assert isinstance(last.rows, Stored)
    assert isinstance(middle.rows, Stored)
    assert isinstance(design.rows, Stored)
    assert last.encoding is design.encoding
    for number, start in ((1, 500), (2, 700)):
        # By hand: the file's rows in the order in which the table has them.
        raw = parquet.read_table(tmp_path / f"{number}.parquet")
        order = now.row_numbers()[start : start + 200] - start  # type: ignore[index]
        rows = raw.take(order)
        dense = list(design.encoding.coding.dense)
        expected = design.encoding.encode(rows)[:, dense]
        # The table holds x as float32.
        np.testing.assert_allclose(last.rows.rows()["x"][start : start + 200], expected, atol=1e-6)
        yes = np.array([each == "yes" for each in rows["late"].to_pylist()])
        np.testing.assert_array_equal(last.rows.rows()["y"][start : start + 200], yes)
    # Found again, each of them, and by those who ask for the first.
    assert digest(appended(design, then)) == digest(middle)
    assert digest(appended(middle, now)) == digest(last)
    assert digest(build_design(FORMULA, then.as_of(1))) == digest(design)
    assert len({digest(each) for each in (design, middle, last)}) == 3
    # What a day has shifted is not learnt: that is for a fit from scratch.
    assert build_design(FORMULA, now).encoding.means != design.encoding.means


def test_new_rows_alone_are_read(first: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design = build_design(FORMULA, first)
    now = append(first, day(tmp_path, 1))
    seen: list[int] = []
    batches = survey.packed_batches

    def counted(*arguments: Any, **options: Any) -> Any:
        for batch in batches(*arguments, **options):
            seen.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(survey, "packed_batches", counted)
    appended(design, now)
    assert seen == [200]
    appended(design, now)
    assert seen == [200]


def test_rows_that_miss_something_are_left_out_or_refused(first: Stored, tmp_path: Path) -> None:
    design, dropping = (build_design(FORMULA, first, missing=how) for how in ("error", "drop"))
    x = np.random.default_rng(0).standard_normal(200)
    now = append(first, day(tmp_path, 1, x=pa.array([None, *x[1:]])))
    less = appended(dropping, now)
    assert (len(less.rows), less.dropped) == (699, 1)
    with pytest.raises(DataError, match="1 in 'x'"):
        appended(design, now)


NEW: dict[str, tuple[dict[str, Any], str]] = {
    "a level": ({"carrier": ["AA"] * 199 + ["ZZ"]}, "a known category in column 'carrier'; got 'ZZ'"),
    "a class": ({"late": ["no"] * 199 + ["maybe"]}, "a known class in column 'late', of 'no', 'yes'; got 'maybe'"),
}


@pytest.mark.parametrize("name", NEW)
def test_what_was_not_there_is_refused_by_name(name: str, first: Stored, tmp_path: Path) -> None:
    values, message = NEW[name]
    design = build_design(FORMULA, first)
    with pytest.raises(DataError, match=message):
        appended(design, append(first, day(tmp_path, 1, **values)))
    assert digest(build_design(FORMULA, first)) == digest(design)


def test_groups_grow_by_their_own_codes(first: Stored, tmp_path: Path) -> None:
    design = build_design("late ~ x + (1 | carrier)", first)
    now = append(first, day(tmp_path, 1))
    grown = appended(design, now)
    codes, levels = grown.groups[0].codes, np.array(design.groups[0].levels.names)
    place = next(column for column in now.columns if column.name == "carrier")
    known = np.array(place.levels)[now.rows()[place.field][:, place.place]]
    np.testing.assert_array_equal(levels[codes], known)
    with pytest.raises(DataError, match="known groups of 'carrier'; got 1 rows"):
        appended(design, append(now, day(tmp_path, 2, carrier=["AA"] * 199 + ["ZZ"])))


@pytest.mark.parametrize("shuffled", [True, False])
def test_rows_that_are_withdrawn_go_from_both(shuffled: bool, first: Stored, tmp_path: Path) -> None:
    """From a design whose rows are in the order of the table's; and from one that was dealt, of a table of days."""
    design = build_design(FORMULA, first)
    now = append(first, day(tmp_path, 1))
    grown = appended(design, now) if shuffled else build_design(FORMULA, now)
    places = now.places_from(tmp_path / "1.parquet")[::2]
    less = now.without(places)
    with pytest.raises(TableError, match=r"more than 700 rows and 0 withdrawals.*600 rows and 1 withdrawals"):
        appended(grown, less)
    assert isinstance(grown.rows, Stored)
    order = grown.rows.source_order()
    assert order is not None
    left = withdrawn(grown, order[places], less)
    assert (len(left.rows), left.dropped) == (600, 0)
    again = append(less, day(tmp_path, 2))
    more = appended(left, again)
    assert isinstance(more.rows, Stored)
    column = next(each for each in again.columns if each.name == "x")
    means, scales = grown.encoding.units["x"]
    dense = [grown.encoding.coding.names[place] for place in grown.encoding.coding.dense]
    x = more.rows.rows()["x"][:, dense.index("x")] * scales + means
    known = again.rows()[column.field][:, column.place]
    np.testing.assert_allclose(np.sort(x), np.sort(known), atol=1e-5)
    assert not shuffled or np.allclose(x, known, atol=1e-5)


def test_a_design_in_memory_is_refused(first: Stored) -> None:
    design = build_design("y ~ x", {"x": [0.5, 1.5, 2.5], "y": [0, 1, 0]})
    with pytest.raises(InputError, match="a design of a table on disk"):
        appended(design, first)
