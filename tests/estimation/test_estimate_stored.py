"""Rows on disk as data: the same numbers as rows in memory, a chunk at a time, and refusals by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from equal_results import assert_same
from scenarios import by_ladder, logistic_rows

import tallbayes as tb
from tallbayes.anchor.importance import list_rows
from tallbayes.rows.on_disk import Stored, open_table
from tallbayes.rows.table import CHUNK_ROWS, SHUFFLE_SEED
from tallbayes.setup.preparation import check_data, check_stored, find_centre, place

ROWS = {name: array.astype(np.float32) for name, array in logistic_rows(3_000, (0.5, -0.5, 0.2)).items()}
MODEL = tb.families.logistic()


def write(path: Path, rows: Any = ROWS) -> Stored:
    """In the order of a table in memory, so that both hold the same rows in the same places."""
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(rows["y"]))
    return tb.write_table(path, {name: array[order] for name, array in rows.items()}, shuffled=True)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return write(tmp_path_factory.mktemp("stored") / "rows.table")


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_the_numbers_are_those_of_rows_in_memory(table: Stored, precision: str) -> None:
    options: dict[str, Any] = {"tolerance": 0.05, "seed": 2, "method": tb.Anchored(precision=precision)}
    assert_same(by_ladder(MODEL, table, **options), by_ladder(MODEL, ROWS, **options))


def test_rows_are_mapped_and_not_copied(table: Stored) -> None:
    model, arrays = check_stored(MODEL, table)
    placed = place(model, arrays, None, True, table)
    mapped = table.arrays()
    assert placed.precision == "float32"
    for name, leaf in placed.table.rows.items():
        # Two maps of one file are at two places; neither is in anonymous memory.
        np.testing.assert_array_equal(np.asarray(leaf), mapped[name])
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(str(table.path / "x.bin")) >= 2
    pointer = placed.table.rows["x"].unsafe_buffer_pointer()
    ranges = [line.split()[0].split("-") for line in maps.splitlines() if str(table.path / "x.bin") in line]
    assert any(int(first, 16) <= pointer < int(last, 16) for first, last in ranges)


@pytest.mark.slow
def test_whole_numbers_are_responses_too(table: Stored, tmp_path: Path) -> None:
    counted = write(tmp_path / "counted.table", {**ROWS, "y": ROWS["y"].astype(int)})
    assert [field.dtype for field in counted.fields if field.name == "y"] == ["int32"]
    options = {"tolerance": 0.1, "seed": 2}
    found, known = (by_ladder(tb.families.poisson(), each, **options) for each in (counted, table))
    np.testing.assert_allclose(found["mean"].value, known["mean"].value, rtol=1e-4)


def test_weights_are_a_field_by_name(tmp_path: Path) -> None:
    weights = np.random.default_rng(3).integers(0, 4, 3_000).astype(float)
    stored = write(tmp_path / "weighed.table", {**ROWS, "w": weights})
    options = {"tolerance": 0.1, "seed": 2}
    found = by_ladder(MODEL, stored, weights="w", **options)
    known = by_ladder(MODEL, ROWS, weights=weights, **options)
    np.testing.assert_allclose(found["mean"].value, known["mean"].value, rtol=1e-5)
    with pytest.raises(tb.InputError, match=r"weights by the name of a field.*one of the fields x, y, w"):
        by_ladder(MODEL, stored, weights=weights, **options)
    with pytest.raises(tb.InputError, match="'v'"):
        by_ladder(MODEL, stored, weights="v", **options)
    negative = write(tmp_path / "negative.table", {**ROWS, "w": weights - 1})
    with pytest.raises(tb.InputError, match="finite weights >= 0"):
        by_ladder(MODEL, negative, weights="w", **options)


def ingested(folder: Path, text: str) -> Stored:
    (folder / "rows.csv").write_text(text)
    return tb.ingest([folder / "rows.csv"], folder / "columns.table")


def by_columns() -> tb.Model:
    """A model of rows as their owner names them."""

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = theta["slope"] * row["a"] + theta["levels"][row["group"]]
        return row["late"] * eta - jnp.logaddexp(0.0, eta)

    return tb.Model(
        lambda theta: -0.5 * (theta["slope"] ** 2 + jnp.sum(theta["levels"] ** 2)),
        log_likelihood,
        {"slope": 0.0, "levels": np.zeros(3)},
    )


@pytest.mark.slow
def test_a_model_sees_columns_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    a, group = rng.standard_normal(800), rng.integers(0, 3, 800)
    late = rng.random(800) < 1 / (1 + np.exp(-a - group + 1))
    lines = [f"{x:.5f},{'pqr'[g]},{int(y)}" for x, g, y in zip(a, group, late, strict=True)]
    stored = ingested(tmp_path, "\n".join(["a,group,late", *lines]) + "\n")
    found = by_ladder(by_columns(), stored, tolerance=0.05)
    known = by_ladder(by_columns(), {"a": np.round(a, 5), "group": group, "late": late.astype(int)}, tolerance=0.05)
    assert found.converged
    error = np.hypot(found["mean"].flat_error, known["mean"].flat_error)
    assert np.all(np.abs(found["mean"].flat_value - known["mean"].flat_value) < 5 * error)


def test_missing_values_and_families_of_columns_are_refused(tmp_path: Path) -> None:
    stored = ingested(tmp_path, "a,group,late\n1,p,0\n,q,1\n2,r,0\n")
    with pytest.raises(tb.InputError, match=r"no missing values; got 1 in 'a'"):
        by_ladder(by_columns(), stored, tolerance=0.1)
    with pytest.raises(tb.InputError, match=r"x.*y"):
        by_ladder(MODEL, stored, tolerance=0.1)


def test_a_response_outside_its_support_is_found_in_any_chunk(tmp_path: Path) -> None:
    rows = logistic_rows(CHUNK_ROWS + 100, (0.5, 0.1))
    rows["y"][CHUNK_ROWS + 7] = 2.0
    stored = tb.write_table(tmp_path / "rows.table", rows, shuffled=True)
    with pytest.raises(tb.InputError, match=r"y in \{0, 1\}; got 2.0 at row 7"):
        by_ladder(MODEL, stored, tolerance=0.1)


def test_a_check_that_changes_values_is_refused(table: Stored) -> None:
    model = replace(MODEL, check=lambda data: {**data, "x": data["x"] / 2})
    with pytest.raises(tb.InputError, match=r"a check that changes 'x' from row 0 on"):
        by_ladder(model, table, tolerance=0.1)


def test_x_in_whole_numbers_is_refused(tmp_path: Path) -> None:
    stored = write(tmp_path / "rows.table", {**ROWS, "x": (10 * ROWS["x"]).astype(int)})
    with pytest.raises(tb.InputError, match="x in floats"):
        by_ladder(MODEL, stored, tolerance=0.1)


def test_a_table_in_order_serves_only_methods_that_read_no_runs_or_list_them(table: Stored) -> None:
    in_order = replace(table, shuffled=False)
    runs = tb.Multilevel(gradient=tb.Taylor(8, tb.Blocks()), ladder=tb.Ladder(1e-3, 8, 8))
    with pytest.raises(tb.InputError, match="a shuffled table"):
        by_ladder(MODEL, in_order, relative_tolerance=0.5, method=runs)
    method = tb.Multilevel(gradient=tb.Taylor(8), ladder=tb.Ladder(1e-3, 8, 8))
    assert by_ladder(MODEL, in_order, relative_tolerance=0.5, method=method, max_levels=4) is not None


def rare(num_rows: int) -> dict[str, np.ndarray]:
    """A few rows carry a coefficient of their own."""
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.standard_normal(num_rows), np.arange(num_rows) % 500 == 0]).astype(float)
    return {"x": x, "y": (rng.random(num_rows) < 0.4).astype(float)}


def test_rows_are_listed_on_disk_as_they_are_in_memory(tmp_path: Path) -> None:
    rows = rare(40_000)
    stored = write(tmp_path / "rows.table", rows)
    model, arrays = check_stored(MODEL, stored)
    prepared = find_centre(place(model, arrays, None, True, stored), None)
    on_disk = list_rows(prepared.target, prepared.table, prepared.anchor, None, tmp_path)
    again = find_centre(place(MODEL, check_data(MODEL, rows), None, True, None), None)
    in_memory = list_rows(again.target, again.table, again.anchor)
    assert on_disk is not None
    assert in_memory is not None
    assert on_disk.length == in_memory.length > 40_000
    for listing in (on_disk, in_memory):
        assert len(listing.rows) == len(listing.weights)
    pairs = [
        np.sort(np.asarray(each.rows[: each.length]) + 1j * np.asarray(each.weights[: each.length], np.float64))
        for each in (on_disk, in_memory)
    ]
    np.testing.assert_array_equal(*pairs)
    found = by_ladder(MODEL, stored, tolerance=0.1, seed=1)
    known = by_ladder(MODEL, rows, tolerance=0.1, seed=1)
    error = np.hypot(found["mean"].flat_error, known["mean"].flat_error)
    assert np.all(np.abs(found["mean"].flat_value - known["mean"].flat_value) < 5 * error)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["listing", "rows.table"]


def test_a_ledger_knows_a_table_by_its_digest(table: Stored, tmp_path: Path) -> None:
    ledger = tmp_path / "run.sqlite"
    first = by_ladder(MODEL, table, tolerance=0.1, ledger=ledger)
    assert_same(by_ladder(MODEL, open_table(table.path), tolerance=0.1, ledger=ledger), first)
    other = write(tmp_path / "other.table", {**ROWS, "y": 1 - ROWS["y"]})
    with pytest.raises(tb.LedgerError, match="content"):
        by_ladder(MODEL, other, tolerance=0.1, ledger=ledger)


PEAK = """
import json, sys, threading, time
import tallbayes as tb

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

peak, running = 0, True
def watch():
    global peak
    while running:
        peak = max(peak, anonymous())
        time.sleep(0.005)

watcher = threading.Thread(target=watch)
watcher.start()
for path in sys.argv[1:]:
    peak = 0
    result = by_ladder(tb.families.logistic(), tb.open_table(path), tolerance=0.05, max_seconds=20)
    print(json.dumps(peak))
running = False
watcher.join()
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Ten times the rows, in one process, and each once before: compiling takes memory of its own."""

    def chunks(count: int) -> Iterator[dict[str, np.ndarray]]:
        for seed in range(count):
            yield logistic_rows(CHUNK_ROWS, tuple(np.linspace(-0.3, 0.3, 10)), seed)

    paths = [tb.write_table(tmp_path / f"{count}.table", chunks(count), shuffled=True).path for count in (1, 10)]
    command = [sys.executable, "-c", PEAK, *map(str, [*paths, *paths])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *_, few, many = (json.loads(line) for line in done.stdout.split())
    # 115 MB of rows on disk; a copy of them in memory would be a third more.
    assert many < 1.1 * few
