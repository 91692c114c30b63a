"""New rows: numbers in the source, columns that are kept, and rows that cannot be predicted, from every source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import tallbayes as tb
from tallbayes.results import new_rows
from tallbayes.results.new_rows import UNNUMBERED, UNORDERED
from tallbayes.rows import formats, packing

NUM_ROWS = 400


def columns(count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    days = np.datetime64("2013-01-01") + np.arange(count)
    return {
        "hour": rng.integers(0, 24, count),
        "carrier": np.array(["AA", "DL", "UA"])[rng.integers(0, 3, count)],
        "distance": rng.uniform(100, 3000, count),
        "id": 10_000_000 + np.arange(count),
        "day": days,
    }


NEW = columns(NUM_ROWS, 1)


@pytest.fixture(scope="module")
def result() -> tb.Result:
    rng = np.random.default_rng(0)
    rows = columns(300, 0)
    chance = expit(-1 + rows["hour"] / 12 + (rows["carrier"] == "UA"))
    rows = {name: rows[name] for name in ("hour", "carrier", "distance")} | {"late": rng.random(300) < chance}
    return tb.fit("late ~ C(hour // 6) + carrier + np.log(distance)", rows, tolerance=0.2)


@pytest.fixture(scope="module")
def whole(result: tb.Result) -> np.ndarray:
    return result.predict(NEW).mean


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are several batches."""
    for module in (formats, packing, new_rows):
        monkeypatch.setattr(module, "BATCH_ROWS", 64)


def write_csv(folder: Path) -> Path:
    pa_csv.write_csv(pa.table(NEW), folder / "new.csv")
    return folder / "new.csv"


def write_arrow(folder: Path) -> Path:
    with pa.OSFile(str(folder / "new.arrow"), "wb") as sink, pa.ipc.new_file(sink, pa.table(NEW).schema) as writer:
        writer.write_table(pa.table(NEW))
    return folder / "new.arrow"


def write_parquet(folder: Path) -> Path:
    pq.write_table(pa.table(NEW), folder / "new.parquet", row_group_size=50)
    return folder / "new.parquet"


def as_polars(_: Path) -> Any:
    return pytest.importorskip("polars").DataFrame(NEW)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "dict": lambda _: NEW,
    "pandas": lambda _: pa.table(NEW).to_pandas(),
    "polars": as_polars,
    "arrow": lambda _: pa.table(NEW),
    "list of rows": lambda _: pa.table(NEW).to_pylist(),
    "csv file": write_csv,
    "parquet file": write_parquet,
    "arrow file": write_arrow,
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_numbers_and_what_is_kept(
    name: str, result: tb.Result, whole: np.ndarray, tmp_path: Path
) -> None:
    """A date and an id too, which a formula could not read."""
    found = result.predict(SOURCES[name](tmp_path), keep=["id", "day"])
    assert found.rows is not None
    np.testing.assert_array_equal(found.rows, np.arange(NUM_ROWS))
    np.testing.assert_allclose(found.mean, whole, rtol=1e-6)
    frame = found.to_pandas()
    assert list(frame.columns[:4]) == ["row", "id", "day", "prediction"]
    np.testing.assert_array_equal(frame["id"], NEW["id"])
    np.testing.assert_array_equal(np.asarray(frame["day"], "datetime64[D]"), NEW["day"])
    assert "2013-01-03" in str(found)


def ingested(folder: Path, names: tuple[str, ...] = ("hour", "carrier", "distance", "id")) -> Any:
    """A table of two files, the second of other rows than the first."""
    for number, rows in enumerate((slice(0, 150), slice(150, None))):
        pq.write_table(pa.table({name: NEW[name][rows] for name in names}), folder / f"{number}.parquet")
    return tb.ingest([folder / "0.parquet", folder / "1.parquet"], folder / "new.table")


def test_a_table_on_disk_is_predicted_in_the_order_of_its_source(
    result: tb.Result, whole: np.ndarray, tmp_path: Path
) -> None:
    table = ingested(tmp_path)
    found = result.predict(tmp_path / "new.table", keep="id")
    np.testing.assert_allclose(found.mean, whole, rtol=1e-6)
    assert list(found.columns())[:5] == ["row", "file", "file_row", "id", "prediction"]
    assert found.remarks == ()
    frame = found.to_pandas()
    np.testing.assert_array_equal(frame["id"], NEW["id"])
    assert frame["file"].tolist() == ["0.parquet"] * 150 + ["1.parquet"] * 250
    assert frame["file_row"].tolist() == [*range(150), *range(250)]
    # The control: in the order of the table they are others.
    numbers = table.row_numbers()
    assert not np.allclose(found.mean, found.mean[numbers])


def test_a_table_too_large_to_look_rows_up_keeps_its_order_and_the_key(
    result: tb.Result, whole: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingested(tmp_path)
    monkeypatch.setattr(new_rows, "IN_ORDER_BYTES", 0)
    found = result.predict(table, keep="id")
    np.testing.assert_array_equal(found.rows, table.row_numbers())
    np.testing.assert_allclose(found.mean, whole[found.rows], rtol=1e-6)
    np.testing.assert_array_equal(found.to_pandas()["id"], NEW["id"][found.rows])
    assert found.remarks == (UNORDERED,)


def test_a_table_of_before_says_that_it_has_no_row_numbers(
    result: tb.Result, whole: np.ndarray, tmp_path: Path
) -> None:
    older = replace(ingested(tmp_path), numbered=False)
    found = result.predict(older, keep="id")
    assert found.rows is None
    assert found.remarks == (UNNUMBERED,)
    assert UNNUMBERED in str(found)
    assert list(found.columns())[:2] == ["id", "prediction"]
    np.testing.assert_allclose(found.mean, whole[found.to_pandas()["id"] - 10_000_000], rtol=1e-6)
    written = result.predict(older, out=tmp_path / "out.csv")
    assert written.remarks == (UNNUMBERED,)


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_files_hold_the_same(ending: str, result: tb.Result, whole: np.ndarray, tmp_path: Path) -> None:
    ingested(tmp_path)
    place = tmp_path / f"out.{ending}"
    assert result.predict(tmp_path / "new.table", keep=["id", "carrier"], out=place) == NUM_ROWS
    read = {"csv": pa_csv.read_csv, "parquet": pq.read_table, "arrow": lambda file: pa.ipc.open_file(file).read_all()}
    table = read[ending](place)
    assert table.column_names[:6] == ["row", "file", "file_row", "id", "carrier", "prediction"]
    np.testing.assert_array_equal(table["row"], np.arange(NUM_ROWS))
    np.testing.assert_array_equal(table["id"], NEW["id"])
    assert table["carrier"].to_pylist() == NEW["carrier"].tolist()
    np.testing.assert_allclose(table["prediction"], whole, rtol=1e-6)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (["ids"], r"a column 'ids' to keep; got none in 'new.table'. Try: 'id'; one of hour, carrier, distance, id"),
        (["day"], "one of hour, carrier"),
    ],
)
def test_a_column_that_is_not_there_cannot_be_kept(
    keep: list[str], message: str, result: tb.Result, tmp_path: Path
) -> None:
    with pytest.raises(tb.InputError, match=message):
        result.predict(ingested(tmp_path), keep=keep)
    with pytest.raises(tb.InputError, match="'sd', which a prediction has itself"):
        result.predict(NEW | {"sd": NEW["hour"]}, keep="sd")


def spoilt() -> dict[str, Any]:
    """Row 70 misses an hour and a carrier, 71 a carrier; 200 has a carrier that is new; 300 no logarithm."""
    rows = {name: list(NEW[name]) for name in ("hour", "carrier", "distance", "id")}
    rows["hour"][70] = rows["carrier"][70] = rows["carrier"][71] = None
    rows["carrier"][200], rows["distance"][300] = "XX", 0.0
    return rows


BAD = [70, 71, 200, 300]


@pytest.mark.parametrize("kind", ["dict", "csv file", "parquet file", "table"])
def test_rows_that_cannot_be_predicted_are_nan_and_counted(
    kind: str, result: tb.Result, whole: np.ndarray, tmp_path: Path
) -> None:
    rows: Any = pa.table(spoilt())
    if kind == "csv file":
        pa_csv.write_csv(rows, tmp_path / "new.csv")
    elif kind != "dict":
        pq.write_table(rows, tmp_path / "new.parquet")
    places = {"dict": spoilt(), "csv file": tmp_path / "new.csv", "parquet file": tmp_path / "new.parquet"}
    source = tb.ingest(tmp_path / "new.parquet", tmp_path / "new.table") if kind == "table" else places[kind]
    found = result.predict(source, missing="nan", unknown="nan", keep="id")
    assert np.flatnonzero(np.isnan(found.mean)).tolist() == BAD
    assert np.flatnonzero(np.isnan(found.observation_sd)).tolist() == BAD
    good = np.setdiff1d(np.arange(NUM_ROWS), BAD)
    np.testing.assert_allclose(found.mean[good], whole[good], rtol=1e-6)
    np.testing.assert_array_equal(found.to_pandas()["id"], NEW["id"])
    lost = found.unpredicted
    assert (lost.rows, dict(lost.unknown)) == (4, {"carrier": 1})
    assert dict(lost.missing) == {"hour": 1, "carrier": 1, "np.log(distance)": 1}
    assert found.remarks == (str(lost),)
    assert str(lost).startswith("4 rows predicted as NaN: a missing value in 'hour' (1), ")
    assert str(lost) in str(found)
    written = result.predict(source, missing="nan", unknown="nan", out=tmp_path / "out.parquet")
    assert (written, written.unpredicted) == (NUM_ROWS, lost)
    assert np.flatnonzero(np.isnan(np.asarray(pq.read_table(tmp_path / "out.parquet")["prediction"]))).tolist() == BAD


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"no missing value in 'hour'; got a missing value in row 70 \(the first is 0\). Try: missing='nan'"),
        ({"unknown": "nan"}, r"no missing value in 'hour'; got a missing value in row 70 "),
        ({"missing": "nan"}, r"a known category in column 'carrier'; got 'XX' in row 200 .*unknown='nan'.*'AA', 'DL'"),
    ],
)
def test_one_such_row_is_named_with_the_way_out(
    options: dict[str, str], message: str, result: tb.Result, tmp_path: Path
) -> None:
    pq.write_table(pa.table(spoilt()), tmp_path / "new.parquet")
    table = tb.ingest(tmp_path / "new.parquet", tmp_path / "new.table")
    for source in (spoilt(), tmp_path / "new.parquet", table):
        with pytest.raises(tb.InputError, match=message):
            result.predict(source, **options)
    with pytest.raises(tb.InputError, match=r"at place .* without row numbers"):
        result.predict(replace(table, numbered=False), **options)


def test_more_reasons_of_one_row(result: tb.Result) -> None:
    """A category within C() of an expression, what is not finite, and a whole batch that misses a value."""
    with pytest.raises(tb.InputError, match=r"a known category in column 'hour // 6'.*known are 0, 1, 2, 3"):
        result.predict({"hour": 30, "carrier": "UA", "distance": 500.0})
    with pytest.raises(tb.InputError, match=r"'np.log\(distance\)'; got one that is not finite in row 0"):
        result.predict({"hour": 3, "carrier": "UA", "distance": 0.0})
    lost = result.predict({"hour": 30, "carrier": "UA", "distance": 500.0}, unknown="nan").unpredicted
    assert dict(lost.unknown) == {"hour // 6": 1}
    nothing = NEW | {"hour": np.where(np.arange(NUM_ROWS) < 100, np.nan, NEW["hour"])}
    found = result.predict(nothing, missing="nan")
    assert np.isnan(found.mean).sum() == found.unpredicted.rows == 100
    alone = result.predict({"hour": None, "carrier": "UA", "distance": 500.0}, missing="nan", at_least=None)
    assert np.isnan(alone.mean).tolist() == [True]
    assert np.isnan(alone.observation_sd).tolist() == [True]


def test_arrays_and_tables_of_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 2))
    rows = {"x": x, "y": rng.poisson(np.exp(x @ [0.3, -0.2]))}
    table = tb.write_table(tmp_path / "rows.table", rows)
    result = tb.estimate(tb.families.poisson(), table, tolerance=0.2)
    whole = result.predict(x)
    found = result.predict(table)
    # The table holds float32.
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-4)
    np.testing.assert_array_equal(found.rows, np.arange(500))
    given = result.predict(tb.write_table(tmp_path / "given.table", rows, shuffled=True))
    np.testing.assert_allclose(given.mean, whole.mean, rtol=1e-4)
    assert given.remarks == ()
    older = result.predict(replace(table, numbered=False))
    assert (older.rows, older.remarks) == (None, (UNNUMBERED,))
    blank = x.copy()
    blank[7, 1] = np.nan
    with pytest.raises(tb.InputError, match=r"no missing value in 'x'.*in row 7 .*missing='nan'"):
        result.predict(blank)
    found = result.predict({"x": blank, "id": np.arange(500) * 2}, missing="nan", keep="id")
    assert np.flatnonzero(np.isnan(found.mean)).tolist() == [7]
    assert np.flatnonzero(np.isnan(found.observation.upper)).tolist() == [7]
    assert found.kept["id"].tolist() == list(range(0, 1000, 2))
    with pytest.raises(tb.InputError, match="finite numbers in x"):
        result.predict(np.full((2, 2), np.inf), missing="nan")
    with pytest.raises(tb.InputError, match=r"a column 'id' to keep; got none in the rows. Try: leave keep out"):
        result.predict(x, keep="id")
