"""Dates and times among the columns: no file is refused for them, and every source makes the same parts of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from scenarios import by_ladder, fit_by_ladder

import tallbayes as tb
from tallbayes.errors import DataError, InputError, ModelError
from tallbayes.formula.design import build_design
from tallbayes.rows import columns
from tallbayes.rows.sources import open_source

NUM_ROWS = 400
GENERATOR = np.random.default_rng(4)
SOLD = np.datetime64("1969-11-20T00:00:00", "us") + GENERATOR.integers(0, 10**14, NUM_ROWS).astype("timedelta64[us]")
SOLD = SOLD.astype("datetime64[s]").astype("datetime64[us]")
ROWS: dict[str, Any] = {
    "y": GENERATOR.integers(0, 2, NUM_ROWS).astype(float),
    "sold": SOLD,
    "day_of": SOLD.astype("datetime64[D]"),
    "clock": [(pd.Timestamp(each) + pd.Timedelta(0)).time() for each in SOLD],
    "took": SOLD - SOLD[0],
    "z": GENERATOR.normal(size=NUM_ROWS),
}
PARTS = ["year", "month", "day", "weekday", "hour", "minute"]


def in_parquet(place: Path) -> Path:
    pa.parquet.write_table(pa.table(ROWS), place / "a.parquet")
    return place / "a.parquet"


def in_csv(place: Path) -> Path:
    pd.DataFrame({name: ROWS[name] for name in ("y", "sold", "day_of", "clock", "z")}).to_csv(
        place / "a.csv", index=False
    )
    return place / "a.csv"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "dict": lambda _: ROWS,
    "pandas": lambda _: pd.DataFrame(ROWS),
    "polars": lambda _: pl.DataFrame(ROWS),
    "a lazy frame": lambda _: pl.DataFrame(ROWS).lazy(),
    "Arrow": lambda _: pa.table(ROWS),
    "dictionary": lambda _: pa.table(ROWS).set_column(1, "sold", pa.array(SOLD).dictionary_encode()),
    "Parquet": in_parquet,
    "CSV": in_csv,
    "on disk": lambda place: tb.ingest(in_parquet(place), place / "table"),
    "on disk, of CSV": lambda place: tb.ingest(in_csv(place), place / "table"),
}


def expected(function: str) -> list[Any]:
    """By pandas, which knows calendars."""
    accessor = pd.Series(SOLD).dt
    return accessor.strftime("%a").tolist() if function == "weekday" else getattr(accessor, function).tolist()


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_makes_the_same_parts(name: str, tmp_path: Path) -> None:
    source = open_source(SOURCES[name](tmp_path))
    wanted = [f"{each}(sold)" for each in PARTS] + ["hour(clock)", "days(day_of, '2000-01-01')", "z"]
    found = source.read(wanted)
    assert found.column_names == wanted
    columns = {each: found.column(each).to_pylist() for each in wanted}
    order: Any = np.arange(NUM_ROWS)
    if source.stored is not None:
        # Rows on disk are shuffled.
        order = np.array([int(np.argmin(np.abs(ROWS["z"] - each))) for each in columns["z"]])
    for each in PARTS:
        assert columns[f"{each}(sold)"] == [expected(each)[row] for row in order]
    assert columns["hour(clock)"] == columns["hour(sold)"]
    days = (ROWS["day_of"] - np.datetime64("2000-01-01")).astype(float)
    np.testing.assert_array_equal(columns["days(day_of, '2000-01-01')"], days[order])
    whole = pa.concat_tables([part.select(wanted) for part in source.batches(wanted)])
    assert whole.column("hour(sold)").to_pylist() == columns["hour(sold)"]


@pytest.mark.parametrize("name", SOURCES)
def test_a_formula_reads_dates_from_every_source(name: str, tmp_path: Path) -> None:
    formula = "y ~ weekday(sold) + C(hour(sold)) + days(sold, '2000-01-01') + I(minute(clock)**2)"
    design = build_design(formula, SOURCES[name](tmp_path), standardise=False)
    by_hand = build_design(formula, ROWS, standardise=False)
    assert design.names == by_hand.names
    assert design.names[:6] == tuple(f"weekday(sold)[T.{day}]" for day in columns.WEEKDAYS[1:])
    x = design.rows["x"] if isinstance(design.rows, dict) else design.rows.rows()["x"]
    np.testing.assert_allclose(np.sort(x, axis=0), np.sort(by_hand.rows["x"], axis=0), rtol=1e-6)


@pytest.mark.parametrize("name", SOURCES)
def test_a_dot_leaves_dates_out_and_says_so(name: str, tmp_path: Path) -> None:
    design = build_design("y ~ .", SOURCES[name](tmp_path))
    assert design.names == ("z",)
    (note,) = [each for each in design.notes if each.startswith("dates:")]
    assert "leaves out sold, day_of, clock" in note


def test_wall_clocks_of_other_zones_and_missing_times(tmp_path: Path) -> None:
    times = pd.Series(pd.to_datetime(["2020-07-01T02:30", None, "2020-01-01T02:30"])).dt.tz_localize("UTC")
    eastern = times.dt.tz_convert("America/New_York")
    found = open_source({"t": eastern}).read(["hour(t)", "weekday(t)"])
    assert found.column("hour(t)").to_pylist() == [22, None, 21]
    assert found.column("weekday(t)").to_pylist() == ["Tue", None, "Tue"]
    pa.parquet.write_table(pa.table({"t": eastern, "id": [0, 1, 2]}), tmp_path / "a.parquet")
    stored = tb.ingest(tmp_path / "a.parquet", tmp_path / "table")
    assert next(column for column in stored.columns if column.name == "t").levels == ("Tue",)
    again = open_source(stored).read(["id", "hour(t)", "weekday(t)"])
    rows = {row["id"]: (row["hour(t)"], row["weekday(t)"]) for row in again.to_pylist()}
    assert rows == {0: (22, "Tue"), 1: (None, None), 2: (21, "Tue")}


def test_dates_on_disk_do_not_widen_the_numbers(tmp_path: Path) -> None:
    stored = tb.ingest(in_parquet(tmp_path), tmp_path / "table")
    assert [(field.name, field.dtype, field.shape) for field in stored.fields] == [
        ("numbers", "float32", (2,)),
        ("times", "float64", (4,)),
    ]


def test_a_model_of_ones_own_does_not_see_dates_on_disk(tmp_path: Path) -> None:
    stored = tb.ingest(in_parquet(tmp_path), tmp_path / "table")
    seen = tb.Model(lambda m: -0.5 * m**2, lambda m, row: -0.5 * (row["z"] - m) ** 2, 0.0)
    result = by_ladder(seen, stored, tolerance=0.5)
    assert result.settings["precision"] == "float32"
    unseen = tb.Model(lambda m: -0.5 * m**2, lambda m, row: -0.5 * (row["sold"] - m) ** 2, 0.0)
    with pytest.raises(ModelError, match="sold"):
        by_ladder(unseen, stored, tolerance=0.5)


REFUSED: dict[str, tuple[type[Exception], str]] = {
    "y ~ sold": (DataError, "hour(sold), minute(sold), days(sold, '2020-01-01') for a number"),
    "y ~ clock": (DataError, "in the formula: hour(clock), minute(clock)"),
    "y ~ took": (DataError, "in the formula: days(took)"),
    "sold ~ z": (DataError, "got timestamp"),
    "y ~ hour(z)": (DataError, "dates or times in column 'z', for hour(z)"),
    "y ~ weekday(clock)": (DataError, "got times of day. Try: hour(clock) or minute(clock)"),
    "y ~ hour(took)": (DataError, "got durations. Try: days(took)"),
    "y ~ days(sold)": (InputError, 'Try: days(sold, "2020-01-01")'),
    "y ~ days(sold, 'May')": (InputError, "a date that days are counted from"),
    "y ~ hour(sold, '2020-01-01')": (InputError, "Try: hour(sold)"),
    "y ~ hour(sold + 1)": (InputError, "on a column by itself"),
    "y ~ hour(sodl)": (DataError, "a column 'sodl'"),
}


@pytest.mark.parametrize("kind", ["dict", "Parquet", "on disk"])
@pytest.mark.parametrize("formula", REFUSED)
def test_what_cannot_be_a_term_says_what_can(formula: str, kind: str, tmp_path: Path) -> None:
    error, part = REFUSED[formula]
    with pytest.raises(error) as caught:
        build_design(formula, SOURCES[kind](tmp_path))
    assert type(caught.value) is error
    assert part in str(caught.value)


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_times_of_numpy_may_have_any_unit(unit: str) -> None:
    times = np.array(["2021-03-04T05:06:07", "1969-01-01"], "datetime64[s]").astype(f"datetime64[{unit}]")
    found = open_source({"t": times}).read(["year(t)", "days(t, '2020-01-01')"])
    assert found.column("year(t)").to_pylist() == [2021, 1968 if unit == "W" else 1969]
    days = (times.astype("datetime64[s]") - np.datetime64("2020-01-01", "s")).astype(float) / 86_400
    np.testing.assert_allclose(found.column("days(t, '2020-01-01')").to_pylist(), days)


def test_text_that_looks_like_a_date_is_named() -> None:
    with pytest.raises(
        DataError, match=r"got text such as '01/02/2020'. Try: dates as 2020-01-31 .*pandas.to_datetime"
    ):
        build_design("y ~ hour(t)", {"y": [0.0, 1.0], "t": ["01/02/2020"] * 2})


def test_a_column_that_has_the_name_of_a_part_is_that_column() -> None:
    found = open_source({"hour(t)": [5, 6], "t": SOLD[:2]}).read(["hour(t)"])
    assert found.column("hour(t)").to_pylist() == [5, 6]


@pytest.mark.slow
def test_a_fit_with_dates_predicts_compares_and_comes_back(tmp_path: Path) -> None:
    result = fit_by_ladder("y ~ weekday(sold) + hour(sold)", ROWS, tolerance=0.5)
    monday, friday = ({"sold": dt.datetime(2021, 3, day, 9)} for day in (1, 5))
    result.save(tmp_path / "result")
    again = tb.load(tmp_path / "result")
    np.testing.assert_array_equal(again.predict([monday, friday]).mean, result.predict([monday, friday]).mean)
    difference = result.compare(monday, friday).mean.value
    assert difference == pytest.approx(-result["mean"].value["weekday(sold)[T.Fri]"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dict", "Parquet", "on disk"])
def test_predictions_can_keep_dates_and_times(kind: str, tmp_path: Path) -> None:
    """As they were given, beside the numbers of their rows, and into a file too."""
    result = fit_by_ladder("y ~ hour(sold)", ROWS, tolerance=0.5)
    source = SOURCES[kind](tmp_path)
    found = result.predict(source, keep=["sold", "clock", "took"])
    assert np.array_equal(found.rows, np.arange(NUM_ROWS))
    np.testing.assert_array_equal(np.asarray(found.kept["sold"]).astype("datetime64[us]"), SOLD)
    assert found.kept["clock"].to_pylist() == ROWS["clock"]
    np.testing.assert_array_equal(np.asarray(found.kept["took"]).astype("timedelta64[us]"), ROWS["took"])
    result.predict(source, keep="sold", out=tmp_path / "out.parquet")
    written = pa.parquet.read_table(tmp_path / "out.parquet").column("sold")
    np.testing.assert_array_equal(np.asarray(written).astype("datetime64[us]"), SOLD)
