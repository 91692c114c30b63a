"""Tables on disk that grew by days: a fit of all of them, however they differ, is the fit of one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenarios import by_ladder

import tallbayes as tb
from tallbayes.anchor.importance import list_rows
from tallbayes.rows.listing import Listing
from tallbayes.rows.on_disk import Stored
from tallbayes.setup.preparation import check_stored, find_centre, place

NUM_DAYS, ROWS_A_DAY = 6, 500
MODEL = tb.families.logistic()


def sorted_days() -> list[dict[str, np.ndarray]]:
    """Rows in the order of their first column, cut into days: no day says of it what all of them do."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((NUM_DAYS * ROWS_A_DAY, 2))
    x = x[np.argsort(x[:, 0])]
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ [0.8, -0.4]))).astype(float)
    rows = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    cuts = [slice(day * ROWS_A_DAY, (day + 1) * ROWS_A_DAY) for day in range(NUM_DAYS)]
    return [{name: array[cut] for name, array in rows.items()} for cut in cuts]


@pytest.fixture(scope="module")
def days() -> list[dict[str, np.ndarray]]:
    return sorted_days()


@pytest.fixture(scope="module")
def grown(days: list[dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path = tmp_path_factory.mktemp("grown") / "days.table"
    tb.write_table(path, days[0])
    for day in days[1:]:
        table = tb.write_table(path, day, append=True)
    return table


@pytest.fixture(scope="module")
def whole(days: list[dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return tb.write_table(tmp_path_factory.mktemp("whole") / "all.table", days)


@pytest.mark.slow
def test_a_table_of_sorted_days_gives_the_answer_of_one_table(grown: Stored, whole: Stored) -> None:
    """Within 5 standard errors of both, whose false-alarm rate is 4 x 6e-7."""
    assert not grown.shuffled
    assert len(grown.segments) == NUM_DAYS
    one, other = (by_ladder(MODEL, table, tolerance=0.05, seed=3) for table in (grown, whole))
    for name in ("mean", "sd"):
        first, second = one[name], other[name]
        error = np.hypot(first.standard_error, second.standard_error)
        apart = np.abs(first.value - second.value) - first.bias_bound - second.bias_bound
        assert np.all(apart < 5 * error), name


def listed(table: Stored, folder: Path) -> Listing | None:
    model, arrays = check_stored(MODEL, table)
    placed = place(model, arrays, None, True, table)
    prepared = find_centre(placed, None)
    return list_rows(prepared.target, prepared.table, prepared.anchor, None, folder)


def test_rows_in_order_are_listed_each_once_and_in_random_order(grown: Stored, whole: Stored, tmp_path: Path) -> None:
    """Of a table in random order there is no list, rows being even: the control of why there is one."""
    found = listed(grown, tmp_path)
    assert found is not None
    assert sorted(found.rows[: found.length]) == list(range(len(grown)))
    assert np.all(found.weights[: found.length] == 1)
    # A run of 100 of the list has rows of all days: without one it would have those of one or two.
    assert len(set(np.asarray(found.rows[:100]) // ROWS_A_DAY)) == NUM_DAYS
    assert listed(whole, tmp_path) is None


def test_rows_that_go_while_they_are_read_are_refused(tmp_path: Path) -> None:
    """By whoever has read them, in the end: a small table has been read by then."""
    table = tb.write_table(
        tmp_path / "t", {"x": np.random.default_rng(0).standard_normal((300, 1)), "y": np.arange(300) % 2}
    )
    once = []

    def go(*_: Any) -> None:
        if not once:
            once.append(table.without([7]))

    with pytest.raises(tb.InputError, match="others in the places of rows that were withdrawn"):
        tb.estimate(MODEL, table, tolerance=0.5, progress=go)
    assert once


def test_a_formula_puts_the_rows_of_days_in_random_order(grown: Stored, tmp_path: Path) -> None:
    rows: dict[str, Any] = {"x": np.sort(np.random.default_rng(0).standard_normal(900)), "y": np.arange(900) % 2}
    import pyarrow as pa
    from pyarrow import parquet

    for day in range(3):
        cut = {name: values[300 * day : 300 * (day + 1)] for name, values in rows.items()}
        parquet.write_table(pa.table(cut), tmp_path / f"{day}.parquet")
        table = tb.ingest(tmp_path / f"{day}.parquet", tmp_path / "t", append=day > 0)
    from tallbayes.formula.design import build_design

    design = build_design("y ~ x", table).rows
    assert isinstance(design, Stored)
    assert design.shuffled
    assert abs(float(design.rows()["x"][:300].mean())) < 0.3
    assert float(table.rows()["numbers"][:300].mean()) < -0.8
