"""Fits of tables on disk: the same designs, row by row, and the same answers as the door for tables in memory."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flights import CARRIER, DISTANCE, HOUR, NUM_ROWS, ROWS
from written_out import written_out

import tallbayes as tb
from tallbayes.errors import DataError, InputError, TallbayesError
from tallbayes.estimation import walk
from tallbayes.formula import design_folder, fit, survey
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.weights import WEIGHT
from tallbayes.rows import packing
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.sources import open_source
from tallbayes.setup import preparation

TENTHS = (np.floor(HOUR / 8) / 10).astype(np.float64)
GAPS: dict[str, Any] = {
    **ROWS,
    "grade": TENTHS,
    "rare": np.where(np.arange(NUM_ROWS) < 2, "only once", CARRIER),
    "broken": np.where(np.arange(NUM_ROWS) % 10 < 3, np.nan, DISTANCE),
    "holes": [None if row % 7 == 0 else int(hour) for row, hour in enumerate(HOUR)],
}


def ingested(rows: dict[str, Any], folder: Path) -> Stored:
    pq.write_table(
        pa.table({name: pa.array(values, from_pandas=True) for name, values in rows.items()}), folder / "f.parquet"
    )
    return tb.ingest(folder / "f.parquet", folder / "f.table")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return ingested(GAPS, tmp_path_factory.mktemp("flights"))


@pytest.fixture(params=["whole", "sampled"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """All rows at once, or batch after batch with a sample to learn from; designs are made anew for each."""
    if request.param == "sampled":
        monkeypatch.setattr(packing, "BATCH_ROWS", 64)
        monkeypatch.setattr(survey, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(design_folder.Place, "folders", lambda place: [tmp_path / "beside", tmp_path / "temporary"])
    return str(request.param)


def build(formula: str, table: Any, **options: Any) -> Design:
    found = build_design(formula, table, **options)
    assert isinstance(found.rows, Stored)
    return found


def test_columns_come_back_as_they_were_written(table: Stored) -> None:
    back = open_source(table).read()
    places = np.argsort(np.asarray(back.column("distance")))
    assert back.column("late").type == pa.bool_()
    assert back.column("carrier").take(places).to_pylist() == CARRIER[np.argsort(DISTANCE)].tolist()
    assert np.asarray(back.column("hour").take(places)).tolist() == HOUR[np.argsort(DISTANCE)].tolist()
    assert back.column("holes").null_count == sum(each is None for each in GAPS["holes"])
    assert back.column("broken").null_count == np.isnan(GAPS["broken"]).sum()
    assert sum(batch.num_rows for batch in open_source(table.path).batches(["hour"])) == NUM_ROWS


EXACT = [
    "late ~ 1",
    "late ~ hour + distance",
    "late ~ carrier*hour + np.log(distance)",
    "late ~ 0 + carrier + distance",
    "late ~ C(hour) + `air time`",
    "late ~ C(np.floor(hour / 6), Sum):distance",
    "late ~ C(grade) + rare",
    "late ~ poly(distance, 3) + scale(`air time`) + center(hour):carrier",
    "late ~ bs(np.log(distance))",
    "late ~ 0 + bs(distance, knots=[500.0, 1500.0]) + cr(hour, knots=[6.0, 12.0])",
    "I(hour > 12) ~ carrier",
]


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("formula", EXACT)
def test_designs_equal_those_of_the_same_rows_in_memory(
    formula: str, standardise: bool, table: Stored, reading: str
) -> None:
    expected = build_design(formula, open_source(table).read(), standardise=standardise)
    found = build(formula, table, standardise=standardise)
    assert found.names == expected.names == build_design(formula, GAPS).names
    assert found.notes[:-1] == expected.notes
    assert found.encoding.coding.categories == expected.encoding.coding.categories
    rows = found.rows.rows()
    assert {name: rows[name].dtype for name in rows} == {name: each.dtype for name, each in expected.rows.items()}
    size = np.abs(written_out(expected)).max(axis=0)
    # Splines of rounded numbers are given room at their ends.
    near = 1e-5 if "bs(" in formula else 1e-6
    np.testing.assert_allclose(written_out(found) / size, written_out(expected) / size, atol=near)
    np.testing.assert_array_equal(rows["y"], expected.rows["y"])
    np.testing.assert_allclose(found.encoding.means, expected.encoding.means, rtol=near, atol=1e-9)
    np.testing.assert_allclose(found.encoding.scales, expected.encoding.scales, rtol=near)


@pytest.mark.parametrize(
    "formula", ["late ~ bs(distance, df=5)", "late ~ 0 + cr(hour, df=4)", "late ~ bs(scale(hour), 5)"]
)
def test_knots_come_from_a_sample_and_are_what_the_encoding_says(formula: str, table: Stored, reading: str) -> None:
    found = build(formula, table)
    np.testing.assert_allclose(written_out(found), found.encoding.encode(table), atol=1e-5)
    assert any("drawn at random" in note for note in found.notes) == (reading == "sampled")
    # The rows as they were before they were rounded are within the bounds.
    np.testing.assert_allclose(
        found.encoding.encode(GAPS).mean(axis=0), found.encoding.encode(table).mean(axis=0), atol=1e-4
    )
    state, all_state = (
        next(iter(each.encoding.coding.states.values())) for each in (found, build_design(formula, GAPS))
    )
    if "scale" not in formula:
        assert state["lower_bound"] == pytest.approx(all_state["lower_bound"], rel=1e-6)
        assert state["upper_bound"] == pytest.approx(all_state["upper_bound"], rel=1e-6)


def test_rows_with_gaps_are_dropped_with_the_levels_they_had(tmp_path: Path, reading: str) -> None:
    rows = {**GAPS, "broken": np.where(GAPS["rare"] == "only once", np.nan, GAPS["broken"])}
    table = ingested(rows, tmp_path)
    formula, options = "delay ~ rare + broken + poly(holes, 2)", {"missing": "drop", "response": "real"}
    expected = build_design(formula, open_source(table).read(), **options, standardise_response=True)
    found = build(formula, table, **options, standardise_response=True)
    assert found.names == expected.names
    assert found.dropped == expected.dropped > 100
    assert found.notes[:2] == expected.notes
    np.testing.assert_allclose(written_out(found), written_out(expected), atol=1e-5)
    np.testing.assert_allclose(found.rows.rows()["y"], expected.rows["y"], atol=1e-6)


@pytest.mark.parametrize("formula", ["count ~ hour", "carrier ~ hour", "late ~ hour"])
def test_classes_are_those_of_all_rows(formula: str, table: Stored, reading: str) -> None:
    expected = build_design(formula, open_source(table).read(), response="class")
    found = build(formula, table, response="class")
    assert found.encoding.classes == expected.encoding.classes
    np.testing.assert_array_equal(found.rows.rows()["y"], expected.rows["y"])


@pytest.mark.parametrize("left", ["scale(delay)", "np.log(distance)", "I(center(hour) * 2)"])
def test_a_response_may_be_a_transform(left: str, table: Stored, reading: str) -> None:
    options = {"response": "real", "standardise_response": True}
    expected, found = (
        build_design(f"{left} ~ carrier", open_source(table).read(), **options),
        build(f"{left} ~ carrier", table, **options),
    )
    np.testing.assert_allclose(found.rows.rows()["y"], expected.rows["y"], atol=1e-6)
    assert found.encoding.response_scale == pytest.approx(expected.encoding.response_scale, rel=1e-9)


def test_weights_and_offset_travel_with_the_rows(table: Stored, reading: str) -> None:
    options = {"weights": "exposure", "offset": "air time", "response": "real", "standardise_response": True}
    expected = build_design("delay ~ hour", open_source(table).read(), **options)
    found = build("delay ~ hour", table, **options)
    assert found.weights == WEIGHT
    np.testing.assert_allclose(found.rows.rows()[WEIGHT], expected.weights, rtol=1e-6)
    np.testing.assert_allclose(found.rows.rows()["offset"], expected.rows["offset"], rtol=1e-6)
    assert found.encoding.response_mean == pytest.approx(expected.encoding.response_mean, rel=1e-9)
    assert found.encoding.response_scale == pytest.approx(expected.encoding.response_scale, rel=1e-9)


FORMULAS = {
    "binary": "late ~ hour + carrier",
    "real": "delay ~ hour",
    "count": "count ~ hour",
    "class": "carrier ~ hour",
}


class AskedError(Exception):
    """What a fit asks of `estimate`, in place of its answer."""


def mode_of(rows: Any, formula: str, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mode and the sds of the posterior that a fit is about, without a sample of it."""

    @functools.wraps(tb.estimate)
    def ask(model: tb.Model, data: Any, quantities: Any, weights: Any = None, **_: Any) -> Any:
        raise AskedError(model, data, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "estimate", ask)
        with pytest.raises(AskedError) as asked:
            tb.fit(formula, rows, tolerance=1.0, **options)
    model, data, weights = asked.value.args
    stored = data if isinstance(data, Stored) else None
    model, arrays = walk.check_rows(model, data, weights)
    anchor = preparation.find_centre(preparation.place(model, arrays, None, False, stored), None).anchor
    return anchor.mode, anchor.sd


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("probit", "student_t", "negative_binomial")))
        for name, each in CATALOGUE.items()
        if each.is_plain and each.response in FORMULAS
    ],
)
def test_every_family_finds_the_mode_of_the_door_in_memory(family: str, table: Stored) -> None:
    kind = CATALOGUE[family].response
    options = {"family": family, "weights": "exposure"} | ({} if kind == "class" else {"offset": "grade"})
    mode, sd = mode_of(ROWS | {"grade": TENTHS}, FORMULAS[kind], **options)
    found, spread = mode_of(table, FORMULAS[kind], **options)
    np.testing.assert_allclose(found, mode, atol=0.01 * sd.min())
    np.testing.assert_allclose(spread, sd, rtol=1e-3)
    other, _ = mode_of(table, FORMULAS[kind], **options | {"weights": None})
    assert np.abs(other - mode).max() > 0.01 * sd.min()


def test_a_second_fit_builds_nothing_and_a_saved_result_predicts(
    table: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    write = design_folder.write_table

    def counted(path: Path, *rest: Any, **more: Any) -> Stored:
        made.append(path)
        return write(path, *rest, **more)

    monkeypatch.setattr(design_folder, "write_table", counted)
    formula, asked = "late ~ hour + poly(distance, 2)", {"tolerance": 1.0, "weights": "exposure"}
    first = tb.fit(formula, table, **asked)
    again = build(formula, str(table.path), weights="exposure")
    assert len(made) == 1
    assert again.rows == build(formula, table, weights="exposure").rows
    assert made[0].parent == table.path.with_name(f"{table.path.name}.designs")
    in_memory = tb.fit(formula, ROWS, **asked)
    assert list(first["mean"].value) == list(in_memory["mean"].value)
    assert f"design: 0.0 MB in {str(made[0])!r}" in " ".join(first.notes)
    kept = [note for note in first.notes if note.startswith(("prior", "response"))]
    assert kept == [note for note in in_memory.notes if note.startswith(("prior", "response"))]
    first.save(tmp_path / "result.tallbayes")
    loaded = tb.load(tmp_path / "result.tallbayes")
    new = {name: values[:5] for name, values in ROWS.items()}
    np.testing.assert_allclose(loaded.predict(new).mean, in_memory.predict(new).mean, atol=0.05)
    assert len(loaded.predict(table)) == NUM_ROWS


def test_a_torn_design_is_made_again(table: Stored, reading: str, caplog: pytest.LogCaptureFixture) -> None:
    place = build("late ~ hour", table).rows.path
    (place / "y.bin").write_bytes(b"nothing")
    assert np.isfinite(build("late ~ hour", table).rows.rows()["x"]).all()
    assert "made again" in caplog.text


def test_a_place_that_cannot_be_written_is_passed_over(
    table: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").write_text("a file, not a folder")
    monkeypatch.setattr(design_folder.Place, "folders", lambda place: [tmp_path / "beside", tmp_path / "temporary"])
    assert build("late ~ hour", table).rows.path.parent == tmp_path / "temporary"


BAD: dict[str, tuple[type[TallbayesError], str, str, dict[str, Any]]] = {
    "unknown column": (DataError, "'hour'", "late ~ hours", {}),
    "unknown weights": (DataError, "a column 'weight'", "late ~ hour", {"weights": "weight"}),
    "weights in an array": (InputError, "by name", "late ~ hour", {"weights": np.ones(NUM_ROWS)}),
    "negative weights": (DataError, "finite weights >= 0", "late ~ hour", {"weights": "delay"}),
    "offset of text": (DataError, "numbers in the offset", "late ~ hour", {"offset": "carrier"}),
    "text for counts": (DataError, "text such as 'AA'", "carrier ~ hour", {"response": "count"}),
    "three classes for two": (DataError, "two classes", "carrier ~ hour", {}),
    "numbers for classes": (DataError, "classes in the response", "delay ~ hour", {"response": "class"}),
    "fractions for counts": (DataError, "counts 0, 1, 2", "delay ~ hour", {"response": "count"}),
    "constant": (DataError, "that varies", "late ~ hour + I(0 * hour)", {}),
    "collinear": (DataError, "combination of", "late ~ hour + distance + I(hour + 2 * distance)", {}),
    "missing": (DataError, "150 in 'broken'", "late ~ broken", {}),
    "not finite": (DataError, "finite numbers in 'np.log(hour)'", "late ~ np.log(hour)", {}),
    "response on both sides": (InputError, "both sides", "late ~ late + hour", {}),
    "no terms": (InputError, "at least one term", "late ~ 0", {}),
    "another word for missing": (InputError, "missing one of", "late ~ hour", {"missing": "keep"}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, table: Stored, reading: str) -> None:
    kind, part, formula, options = BAD[name]
    with pytest.raises(kind) as caught:
        build(formula, table, **options)
    assert part in str(caught.value)
    if not {"weights in an array", "negative weights"} & {name}:
        with pytest.raises(kind) as expected:
            build_design(formula, open_source(table).read(), **options)
        if name not in ("fractions for counts", "not finite"):
            assert str(caught.value).replace("'f.table'", "the table") == str(expected.value)


def test_a_table_of_arrays_is_for_another_door(tmp_path: Path) -> None:
    arrays = tb.write_table(tmp_path / "arrays.table", {"x": np.ones((10, 1)), "y": np.arange(10.0)})
    with pytest.raises(DataError, match=r"tb\.estimate"):
        tb.fit("y ~ x", arrays, tolerance=0.1)


PEAK = """
import json, os, sys, threading, time
from dataclasses import replace
import tallbayes as tb
from tallbayes.rows import packing
from tallbayes.formula import survey
from tallbayes.formula.design import build_design
from tallbayes.rows.sources import open_source
packing.BATCH_ROWS, survey.SAMPLE_ROWS = 2**16, 2**16
peak, done = 0, False
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.002)
formula = "late ~ distance*carrier + bs(hour, df=6) + poly(delay, 2)"
source = open_source(sys.argv[1])
if sys.argv[2] == "memory":
    source = replace(source, stored=None)
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
build_design(formula, source)
done = True
watcher.join()
print(json.dumps(peak))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)

    def peak(num_rows: int, how: str) -> int:
        place = tmp_path / f"{num_rows}.table"
        if not place.exists():
            rows = {
                "late": generator.random(num_rows) < 0.3,
                "hour": generator.integers(0, 24, num_rows),
                "distance": generator.gamma(2.0, 500.0, num_rows),
                "delay": generator.normal(10.0, 20.0, num_rows),
                "carrier": np.array(list("ABCDEFGHIJ"))[generator.integers(0, 10, num_rows)],
            }
            pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
            tb.ingest(tmp_path / "rows.parquet", place)
        done = subprocess.run([sys.executable, "-c", PEAK, str(place), how], capture_output=True, text=True, check=True)
        return int(json.loads(done.stdout))

    small, large = peak(2**17, "disk"), peak(2**20, "disk")
    assert large < 1.2 * small
    held = peak(2**20, "memory")
    assert held > 1.2 * large
