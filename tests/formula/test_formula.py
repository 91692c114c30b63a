"""Formulas: designs equal to matrices made by hand, whatever the table comes from, and errors on one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from flights import CARRIER, DISTANCE, GENERATOR, HOUR, IS_DL, IS_UA, LATE, NUM_ROWS, ROWS, WIDE_HOUR
from written_out import written_out

from tallbayes.errors import DataError, InputError, TallbayesError
from tallbayes.formula import coding
from tallbayes.formula.design import build_design


def units_of(columns: list[np.ndarray], names: Sequence[str], centred: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Means and scales by hand: columns of numbers by their sd, levels and flags as they are, products by size."""
    means, scales = [], []
    for name, column in zip(names, columns, strict=True):
        switch = "[" in name or set(np.unique(column)) <= {0.0, 1.0}
        present = column[column != 0]
        means.append(0.0 if switch or not centred else column.mean())
        scales.append(np.sqrt(np.mean(present**2)) if switch else column.std())
    return np.array(means), np.array(scales)


def standardised(columns: list[np.ndarray], names: Sequence[str], centred: bool = True) -> np.ndarray:
    means, scales = units_of(columns, names, centred)
    return (np.stack(columns, axis=1) - means) / scales


BY_HAND: dict[str, tuple[list[str], list[np.ndarray]]] = {
    "late ~ hour": (["hour"], [WIDE_HOUR]),
    # The squares do not fit into the eight bits of the column.
    "late ~ hour + I(hour**2)": (["hour", "I(hour ** 2)"], [WIDE_HOUR, WIDE_HOUR**2]),
    "late ~ carrier": (["carrier[T.DL]", "carrier[T.UA]"], [IS_DL, IS_UA]),
    "late ~ C(carrier) + distance": (
        ["C(carrier)[T.DL]", "C(carrier)[T.UA]", "distance"],
        [IS_DL, IS_UA, DISTANCE],
    ),
    "late ~ C(carrier, contr.treatment('UA'))": (
        ["C(carrier, contr.treatment('UA'))[T.AA]", "C(carrier, contr.treatment('UA'))[T.DL]"],
        [1 - IS_DL - IS_UA, IS_DL],
    ),
    "late ~ hour * carrier": (
        ["hour", "carrier[T.DL]", "carrier[T.UA]", "hour:carrier[T.DL]", "hour:carrier[T.UA]"],
        [WIDE_HOUR, IS_DL, IS_UA, WIDE_HOUR * IS_DL, WIDE_HOUR * IS_UA],
    ),
    "late ~ np.log(distance) + hour:distance": (
        ["np.log(distance)", "hour:distance"],
        [np.log(DISTANCE), WIDE_HOUR * DISTANCE],
    ),
    "late ~ `air time` + I(`air time` / distance)": (
        ["air time", "I(`air time` / distance)"],
        [ROWS["air time"], ROWS["air time"] / DISTANCE],
    ),
    "late ~ Q('air time')": (["air time"], [ROWS["air time"]]),
    "late ~ {hour > 12}": (["hour > 12"], [(HOUR > 12).astype(float)]),
}


@pytest.mark.parametrize("formula", BY_HAND)
def test_designs_equal_matrices_made_by_hand(formula: str) -> None:
    names, columns = BY_HAND[formula]
    design, raw = build_design(formula, ROWS), build_design(formula, ROWS, standardise=False)
    assert list(design.names) == list(raw.names) == names
    assert design.intercept
    assert written_out(design).dtype == np.float32
    np.testing.assert_allclose(written_out(design), standardised(columns, names), atol=2e-6)
    np.testing.assert_allclose(written_out(raw), np.stack(columns, axis=1), rtol=1e-6)
    np.testing.assert_array_equal(design.rows["y"], LATE)
    means, scales = units_of(columns, names)
    np.testing.assert_allclose(design.encoding.means, means, rtol=1e-12)
    np.testing.assert_allclose(design.encoding.scales, scales, rtol=1e-12)


@pytest.mark.parametrize("formula", BY_HAND)
def test_levels_can_be_standardised_like_numbers(formula: str) -> None:
    _, columns = BY_HAND[formula]
    design = build_design(formula, ROWS, standardise="all")
    means, scales = np.mean(columns, axis=1), np.std(columns, axis=1)
    assert "codes" not in design.rows
    np.testing.assert_allclose(design.rows["x"], (np.stack(columns, axis=1) - means) / scales, atol=2e-6)
    np.testing.assert_allclose(design.encoding.means, means, rtol=1e-12)
    np.testing.assert_allclose(design.encoding.scales, scales, rtol=1e-12)


@pytest.mark.parametrize(
    "formula", ["late ~ 0 + carrier + hour", "late ~ carrier + hour - 1", "late ~ -1 + carrier + hour"]
)
def test_without_an_intercept_categories_keep_all_levels_and_nothing_is_centred(formula: str) -> None:
    design = build_design(formula, ROWS)
    assert not design.intercept
    assert design.names == ("carrier[AA]", "carrier[DL]", "carrier[UA]", "hour")
    columns = [1 - IS_DL - IS_UA, IS_DL, IS_UA, WIDE_HOUR]
    np.testing.assert_allclose(written_out(design), standardised(columns, design.names, centred=False), atol=2e-6)
    assert design.encoding.means == (0.0,) * 4


def test_a_dot_is_all_other_columns() -> None:
    rows = {name: ROWS[name] for name in ("late", "hour", "carrier", "exposure", "air time")}
    design = build_design("late ~ . - hour", rows, weights="exposure")
    assert design.names == ("carrier[T.DL]", "carrier[T.UA]", "air time")
    assert design.encoding.formula == "late ~ (hour + carrier + `air time`) - hour"


def test_an_intercept_alone() -> None:
    design = build_design("late ~ 1", ROWS)
    np.testing.assert_array_equal(written_out(design), np.ones((NUM_ROWS, 1)))
    assert design.intercept
    assert design.encoding.encode({"hour": HOUR}).shape == (NUM_ROWS, 0)


def test_blocks_of_rows_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    formula = "late ~ poly(distance, 3) + C(hour) + bs(delay, df=5) + carrier"
    whole = build_design(formula, ROWS)
    monkeypatch.setattr(coding, "BLOCK_ROWS", 64)
    monkeypatch.setattr(coding, "PIECE_ROWS", 10)
    pieces = build_design(formula, ROWS)
    assert pieces.names == whole.names
    np.testing.assert_allclose(written_out(pieces), written_out(whole), atol=2e-6)
    np.testing.assert_allclose(pieces.encoding.means, whole.encoding.means, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pieces.encoding.scales, whole.encoding.scales, rtol=1e-9)


def test_the_first_rows_may_lie_far_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and scales lose no digits to an origin taken from them: times in nanoseconds, the first ones constant."""
    monkeypatch.setattr(coding, "PIECE_ROWS", 10)
    time = 1.7e18 + 1e9 * np.maximum(np.arange(NUM_ROWS) - 10, 0.0)
    design = build_design("late ~ time", {"late": LATE, "time": time})
    deviation = time - time[0]
    exact = (deviation - deviation.mean()) / deviation.std()
    np.testing.assert_allclose(written_out(design)[:, 0], exact, atol=2e-6)


def test_float64_only_where_float32_would_blur() -> None:
    rows = {"late": LATE, "year": 2.0e9 + HOUR}
    assert build_design("late ~ year", rows).rows["x"].dtype == np.float32
    assert build_design("late ~ year", rows, standardise=False).rows["x"].dtype == np.float64
    assert build_design("late ~ 0 + year", rows).rows["x"].dtype == np.float64


def write_all(folder: Path) -> dict[str, Any]:
    frame, table = pd.DataFrame(ROWS), pa.table(ROWS)
    frame.to_csv(folder / "rows.csv", index=False)
    pq.write_table(table, folder / "rows.parquet", row_group_size=123)
    pa.feather.write_feather(table, str(folder / "rows.arrow"))
    return {
        "csv": folder / "rows.csv",
        "parquet": folder / "rows.parquet",
        "arrow": folder / "rows.arrow",
        "pandas": frame,
        "polars": pl.DataFrame(ROWS),
        "arrow table": table,
    }


def test_the_same_numbers_from_every_source(tmp_path: Path) -> None:
    formula = "late ~ hour + I(hour**2) + C(carrier) + `air time`"
    reference = build_design(formula, ROWS)
    for name, source in write_all(tmp_path).items():
        design = build_design(formula, source)
        np.testing.assert_array_equal(written_out(design), written_out(reference), err_msg=name)
        np.testing.assert_array_equal(design.rows["y"], reference.rows["y"], err_msg=name)
        assert design.encoding == reference.encoding, name


def refuse(error: type[TallbayesError], formula: Any, rows: Any = ROWS, **options: Any) -> str:
    """The message of the one error that a design must raise, on one line."""
    with pytest.raises(TallbayesError) as caught:
        build_design(formula, rows, **options)
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert "\n" not in message
    for part in ("expected ", "; got ", "Try: "):
        assert part in message
    return message


MISSING = {**ROWS, "distance": np.where(HOUR < 2, np.nan, DISTANCE), "carrier": [None, *CARRIER[1:]]}


def test_missing_values_are_refused_with_their_counts() -> None:
    message = refuse(DataError, "late ~ distance + carrier", MISSING)
    assert f"{int(np.sum(HOUR < 2))} in 'distance', 1 in 'carrier'" in message
    assert build_design("late ~ hour", MISSING).dropped == 0


def test_missing_values_are_dropped_where_asked() -> None:
    weights = np.where(HOUR == 5, np.nan, 1.0)
    design = build_design("late ~ distance + carrier", MISSING, missing="drop", weights=weights, offset="exposure")
    keep = (HOUR >= 2) & (HOUR != 5) & (np.arange(NUM_ROWS) > 0)
    assert design.dropped == NUM_ROWS - keep.sum()
    assert f"{design.dropped} of {NUM_ROWS} rows" in design.notes[-1]
    columns = [DISTANCE[keep], IS_DL[keep], IS_UA[keep]]
    np.testing.assert_allclose(written_out(design), standardised(columns, design.names), atol=2e-6)
    np.testing.assert_array_equal(design.rows["y"], LATE[keep])
    np.testing.assert_array_equal(design.weights, np.ones(keep.sum()))
    np.testing.assert_array_equal(design.rows["offset"], ROWS["exposure"][keep])
    everywhere = {**ROWS, "hour": np.where(LATE, np.nan, HOUR), "delay": np.where(LATE, ROWS["delay"], np.nan)}
    assert "none of 500" in refuse(DataError, "late ~ hour + delay", everywhere, missing="drop")


RESPONSES: dict[str, tuple[str, str, np.ndarray, tuple[Any, ...] | None]] = {
    "bool": ("late ~ hour", "binary", LATE, (False, True)),
    "comparison": ("delay > 15 ~ hour", "binary", ROWS["delay"] > 15, None),
    "comparison in I": ("I(delay > 15) ~ hour", "binary", ROWS["delay"] > 15, None),
    "category": ("carrier == 'AA' ~ hour", "binary", CARRIER == "AA", None),
    "real": ("np.log(distance) ~ hour", "real", np.log(DISTANCE), None),
    "quoted": ("`air time` ~ hour", "real", ROWS["air time"], None),
    "count": ("count ~ hour", "count", ROWS["count"], None),
    "classes": ("carrier ~ hour", "class", IS_DL + 2 * IS_UA, ("AA", "DL", "UA")),
    "whole numbers": ("hour ~ delay", "class", HOUR, tuple(range(24))),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(name: str) -> None:
    formula, kind, expected, classes = RESPONSES[name]
    design = build_design(formula, ROWS, response=kind)
    np.testing.assert_allclose(design.rows["y"], expected)
    assert design.encoding.classes == classes


def test_two_words_are_classes_in_their_order_and_a_note_says_which_is_one() -> None:
    rows = {**ROWS, "late": np.where(LATE, "yes", "no")}
    design = build_design("late ~ hour", rows)
    np.testing.assert_array_equal(design.rows["y"], LATE)
    assert design.notes == ("response: late = 'yes' is 1, 'no' is 0",)
    turned = {**ROWS, "late": pd.Categorical(rows["late"], categories=["yes", "no"])}
    np.testing.assert_array_equal(build_design("late ~ hour", turned).rows["y"], ~LATE)


BAD_RESPONSES = {
    "three words": ("carrier ~ hour", "binary", "3: 'AA', 'DL', 'UA'"),
    "one word": ("only ~ hour", "binary", "1: 'x'"),
    "numbers that are not 0 and 1": ("count ~ hour", "binary", "y in {0, 1}"),
    "words where numbers are needed": ("carrier ~ hour", "real", "'AA'"),
    "broken counts": ("delay ~ hour", "count", "counts 0, 1, 2"),
    "broken classes": ("delay ~ hour", "class", "classes in the response 'delay'"),
    "infinite": ("np.log(count) ~ hour", "real", "-inf at row"),
    "words in an expression": ("np.log(carrier) ~ hour", "real", "carrier"),
}


@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_bad_responses(name: str) -> None:
    formula, kind, part = BAD_RESPONSES[name]
    assert part in refuse(DataError, formula, {**ROWS, "only": ["x"] * NUM_ROWS}, response=kind)


BAD_FORMULAS = {
    "an operator too many": ("late ~ hour +", "'+'"),
    "an operator that is none": ("late ~ hour ; distance", "';'"),
    "no closing bracket": ("late ~ I(hour", "'I(hour'"),
    "broken Python": ("late ~ I(hour +)", "character 9"),
    "no operator": ("late ~ hour distance", "hour distance"),
    "no left side": ("~ hour", "on the left of ~"),
    "no tilde": ("hour + distance", "one ~"),
    "two tildes": ("late ~ hour ~ distance", "one ~"),
    "no right side": ("late ~ ", "on the right of ~"),
    "no terms at all": ("late ~ 0", "late ~ 1"),
    "not text": (3, "a int"),
    "two parts": ("late ~ hour | distance", "group effects"),
    "the response among the terms": ("late ~ hour + late", "'late' on both sides"),
    "a function of all rows": ("late ~ I(hour - np.mean(hour))", "np.mean"),
    "a method": ("late ~ hour.mean()", "hour.mean"),
    "a row seen by another": ("late ~ lag(hour)", "lag"),
    "a name of Python": ("late ~ I(open('rows.csv'))", "'open'"),
}


@pytest.mark.parametrize("name", BAD_FORMULAS)
def test_bad_formulas(name: str) -> None:
    formula, part = BAD_FORMULAS[name]
    assert part in refuse(InputError, formula)


@pytest.mark.parametrize("formula", ["late ~ Hours", "late ~ np.log(Hours)", "Hours ~ late", "late ~ `Hours`"])
def test_a_name_that_is_no_column_is_told_the_nearest(formula: str) -> None:
    assert "'hour'" in refuse(DataError, formula)


ONES = np.ones(NUM_ROWS)
BAD_COLUMNS: dict[str, tuple[str, dict[str, Any], str]] = {
    "constant": ("late ~ hour + flat", {"flat": 7.3 * ONES}, "'flat' that varies"),
    "constant category": ("late ~ 0 + hour + flat", {"flat": ["x"] * NUM_ROWS}, "'flat[x]' that varies"),
    "sum of two": ("late ~ hour + delay + both", {"both": HOUR + ROWS["delay"]}, "'both' of its own"),
    "one twice": ("late ~ distance + miles", {"miles": (DISTANCE / 1.6).astype(np.float32)}, "'miles' of its own"),
    "all dummies": ("late ~ carrier + aa", {"aa": CARRIER == "AA"}, "the levels of 'carrier' and the intercept"),
    "minus infinity": ("late ~ np.log(zero)", {"zero": np.where(HOUR == 4, 0.0, 1.0)}, "'np.log(zero)'"),
    "no number": ("late ~ np.sqrt(delay)", {}, "'np.sqrt(delay)'"),
    "infinite": ("late ~ far", {"far": np.where(HOUR == 4, np.inf, DISTANCE)}, "finite numbers in 'far'"),
    "text among numbers": ("late ~ hours", {"hours": ["late", *map(str, HOUR[1:])]}, "'late'"),
    "text in arithmetic": ("late ~ I(carrier**2)", {}, "carrier"),
    "as many categories as rows": ("late ~ C(distance)", {}, "fewer columns than rows"),
    "an unknown reference": ("late ~ C(carrier, contr.treatment('ZZ'))", {}, "ZZ"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_bad_columns(name: str) -> None:
    formula, columns, part = BAD_COLUMNS[name]
    assert part in refuse(DataError, formula, {**ROWS, **columns})


def test_what_is_nearly_a_combination_is_not_refused() -> None:
    """A thousandth of its own is enough, about a large mean too."""
    noise = 1e-3 * np.std(DISTANCE) * GENERATOR.normal(size=NUM_ROWS)
    design = build_design(
        "late ~ distance + near", {**ROWS, "distance": DISTANCE + 1e6, "near": DISTANCE + 1e6 + noise}
    )
    assert design.names == ("distance", "near")


def test_labels_that_look_like_numbers_may_be_called_categories() -> None:
    labels = np.array(["1", "2", "3", "x"])[HOUR % 4]
    assert "C(label)" in refuse(DataError, "late ~ label", {**ROWS, "label": labels})
    assert len(build_design("late ~ C(label)", {**ROWS, "label": labels}).names) == 3
    assert len(build_design("late ~ label", {**ROWS, "label": (HOUR % 4).astype(str)}).names) == 3


@pytest.mark.parametrize("name", ["weights", "offset"])
def test_weights_and_offset(name: str) -> None:
    for given in ("exposure", ROWS["exposure"], list(ROWS["exposure"])):
        design = build_design("late ~ hour", ROWS, **{name: given})
        found = design.weights if name == "weights" else design.rows["offset"]
        np.testing.assert_array_equal(found, ROWS["exposure"])
    assert name in refuse(DataError, "late ~ hour", **{name: ROWS["exposure"][1:]})
    assert "'exposure'" in refuse(DataError, "late ~ hour", **{name: "exposures"})
    assert name in refuse(DataError, "late ~ hour", **{name: "carrier"})


def test_other_words_for_missing_and_response() -> None:
    assert "'drop'" in refuse(InputError, "late ~ hour", missing="ignore")
    assert "'binary'" in refuse(InputError, "late ~ hour", response="ordinal")
