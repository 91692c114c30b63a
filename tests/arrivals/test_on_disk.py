"""Rows that arrive on disk: the same days as in memory, to the bit, whatever is interrupted, and refused without a
change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.arrivals import doors
from tallbayes.arrivals.disk import tables
from tallbayes.rows.on_disk import Stored

# In tables of as many places as those of test_updates.
FIRST, DAY, TOLERANCE = 8_400, 500, 0.05
FORMULA = "late ~ x + carrier"


def rows_of(start: int, stop: int) -> dict[str, np.ndarray]:
    whole = logistic_rows(FIRST + 2 * DAY, (0.8, -0.5, 0.3), seed=5)
    return {name: array[start:stop].astype(np.float32) for name, array in whole.items()}


def day_of(number: int) -> dict[str, np.ndarray]:
    return rows_of(FIRST + number * DAY, FIRST + (number + 1) * DAY)


def numbers(result: Any) -> np.ndarray:
    return np.concatenate([result["mean"].flat_value, result["sd"].flat_value, result["mean"].flat_standard_error])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """A day that comes, goes, and comes again: on disk and in memory."""
    place = tmp_path_factory.mktemp("rows") / "t"
    first = rows_of(0, FIRST)
    found: dict[str, list[Any]] = {}
    for kind, data in (("disk", tb.write_table(place, first)), ("memory", first)):
        days = [tb.estimate(tb.families.logistic(), data, tolerance=TOLERANCE, method=tb.Anchored())]
        days.append(days[-1].update(day_of(0)))
        days.append(days[-1].without(day_of(0)))
        days.append(days[-1].update(day_of(0)))
        found[kind] = days
    return found


def test_days_on_disk_are_those_in_memory(both: dict[str, list[Any]]) -> None:
    """But for the order that tables lie in, which sums over them round by: what is random is the same."""
    for there, here in zip(both["disk"][1:], both["memory"][1:], strict=True):
        assert there.status.name == here.status.name == "converged"
        np.testing.assert_array_equal(there.standing.order.keys, here.standing.order.keys)
        np.testing.assert_allclose(numbers(there), numbers(here), rtol=1e-6, atol=1e-7)


def test_a_day_on_disk_reads_its_rows_alone(both: dict[str, list[Any]]) -> None:
    assert [day.cost.setup_evaluations for day in both["disk"][2:]] == [2 * DAY] * 2


def test_sums_on_disk_are_those_of_all_rows(both: dict[str, list[Any]]) -> None:
    standing = both["disk"][-1].standing
    whole = standing.centre.over(standing.target, standing.table)
    for name in ("value", "gradient", "hessian"):
        np.testing.assert_allclose(getattr(standing.centre, name), getattr(whole, name), rtol=1e-9, atol=1e-7)
    assert len(tb.open_table(standing.rows.source.path)) == standing.num_rows == FIRST + DAY


def test_a_result_whose_rows_are_gone_is_refused(both: dict[str, list[Any]]) -> None:
    with pytest.raises(tb.TallbayesError, match="1 withdrawals, where there were 0"):
        both["disk"][1].update(day_of(1))


def test_other_rows_are_refused_and_nothing_is_changed(both: dict[str, list[Any]]) -> None:
    last = both["disk"][-1]
    digest = tb.open_table(last.standing.rows.source.path).digest
    wrong = day_of(0)
    wrong["x"][3] += 1e-3
    for refused, said in (
        (lambda: last.without(wrong), "1 of 500 that are not among them"),
        (lambda: last.update({"x": np.zeros((3, 2)), "y": np.zeros(3)}), "x"),
        (lambda: last.update({"x": np.full((3, 3), np.nan), "y": np.zeros(3)}), "finite"),
        (lambda: last.update(last.standing.rows.source), "all of which are in the fit"),
    ):
        with pytest.raises(tb.TallbayesError, match=said):
            refused()
    assert tb.open_table(last.standing.rows.source.path).digest == digest


def flights(place: Path, number: int, count: int, carriers: str = "abc") -> Path:
    rng = np.random.default_rng(number)
    x, carrier = rng.normal(size=count), rng.integers(0, len(carriers), count)
    late = rng.random(count) < 1 / (1 + np.exp(-(0.3 + 0.8 * x + 0.4 * (carrier == 1))))
    values = {"x": x, "carrier": np.array(list(carriers))[carrier], "late": late, "beside": rng.normal(size=count)}
    path = place / f"{number}.parquet"
    parquet.write_table(pa.table(values), path)
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    place = tmp_path_factory.mktemp("flights")
    return place, tb.fit(FORMULA, tb.ingest(flights(place, 0, 3_000), place / "t"), tolerance=TOLERANCE)


def test_a_level_that_is_new_is_refused_on_disk(fitted: tuple[Path, Any]) -> None:
    place, result = fitted
    file = flights(place, 4, 30, "abcz")
    for new_levels in ("refuse", "add"):
        with pytest.raises(tb.TallbayesError, match="nothing was added"):
            result.update(file, new_levels=new_levels)


class StoppedError(Exception):
    pass


def stop(*_: Any) -> Any:
    raise StoppedError


def stands(standing: Any, _: Any) -> Any:
    """In place of an answer, which is a function of it: the standing about its centre."""
    result = tb.estimate(tb.families.linear(noise_scale=1.0), rows_of(0, 40), tolerance=1.0)
    return replace(result, standing=standing.settled(None))


def same(first: Any, second: Any) -> bool:
    one, other = first.standing, second.standing
    pairs = [(one.order.keys, other.order.keys), (one.order.rows, other.order.rows)]
    pairs += [(getattr(one.centre, name), getattr(other.centre, name)) for name in ("gradient", "hessian")]
    assert one.day == other.day
    return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


def test_what_is_stopped_goes_on_to_the_same_bits(fitted: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """After the rows are in the table, after they are in the design, and before all; and so does a withdrawal."""
    place, result = fitted
    monkeypatch.setattr(doors, "answered", stands)
    result = result.update(flights(place, 1, 300))
    file = flights(place, 2, 200)
    for where, name in ((tables, "land"), (tables, "appended"), (doors, "answered")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, stop)
            with pytest.raises(StoppedError):
                result.update(file)
    with pytest.raises(tb.TallbayesError, match="200 rows behind them that are not these"):
        result.update(flights(place, 3, 10))
    found = result.update(file)
    assert found.standing.num_rows == len(tb.open_table(place / "t")) == 3_500
    assert same(found, result.update(place / "t"))
    gone = place / "1.parquet"
    for where, name in ((tables, "withdraw"), (tables, "withdrawn"), (doors, "answered")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, stop)
            with pytest.raises(StoppedError):
                found.without(gone)
    with pytest.raises(tb.TallbayesError, match="withdraw"):
        found.without(place / "2.parquet")
    less = found.without(gone)
    assert same(less, found.without(gone))
    assert not same(replace(less, standing=replace(less.standing, centre=found.standing.centre)), less)
    assert less.standing.num_rows == len(tb.open_table(place / "t")) == less.standing.rows.read.num_rows == 3_200
    back = less.update(parquet.read_table(gone).to_pandas())
    np.testing.assert_array_equal(back.standing.order.keys, found.standing.order.keys)
    for each in (less.standing.centre, less.standing.centre.over(less.standing.target, less.standing.table)):
        assert each.num_rows == 3_200
    whole = back.standing.centre.over(back.standing.target, back.standing.table)
    np.testing.assert_allclose(back.standing.centre.gradient, whole.gradient, rtol=1e-9, atol=1e-7)


def squares(theta: Any, row: Any) -> Any:
    return -0.5 * (row["y"] - theta["a"] * row["x"]) ** 2


def test_a_model_of_columns_is_updated_by_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standing; the answer is that of any other."""
    rng = np.random.default_rng(0)

    def file(number: int, count: int) -> Path:
        x = rng.normal(size=count)
        path = tmp_path / f"{number}.parquet"
        parquet.write_table(pa.table({"x": x, "y": 2 * x + rng.normal(size=count)}), path)
        return path

    model = tb.Model(lambda theta: -0.5 * theta["a"] ** 2, squares, {"a": 0.0})
    table = tb.ingest(file(0, 600), tmp_path / "t")
    result = tb.estimate(model, table, tolerance=TOLERANCE, max_seconds=1e-9)
    monkeypatch.setattr(doors, "answered", lambda standing, _: replace(result, standing=standing.settled(None)))
    more = result.update(file(1, 500)).update(file(2, 400))
    less = more.without(tmp_path / "1.parquet")
    rows: Stored = less.standing.rows.read
    assert [each.standing.num_rows for each in (more, less)] == [900 + 600, 400 + 600]
    assert len(tb.open_table(tmp_path / "t")) == rows.num_rows
    x, y = (rows.rows()["numbers"][:, place].astype(np.float64) for place in (0, 1))
    mean = np.sum(x * y) / (1 + np.sum(x * x))
    assert abs(less.standing.anchor().mode[0] - mean) < 1e-6
