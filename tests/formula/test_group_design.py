"""Groups of rows and the effects they have: against NumPy by hand, from every kind of table, and in new rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from schools import NUM_ROWS, ROW, ROWS, SCHOOL, YEAR, gappy

from tallbayes.errors import DataError, InputError
from tallbayes.formula.design import build_design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.groups import levels as group_levels
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.formula.groups.levels import LevelCensus
from tallbayes.results.new_rows import Asked, encoded_rows


def by_hand(*columns: np.ndarray) -> tuple[list[tuple[Any, ...]], np.ndarray]:
    """The sorted combinations, and which one every row has: one row after the other."""
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    names = sorted(set(rows))
    return names, np.array([names.index(row) for row in rows])


def standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def groups(formula: str, rows: Any = ROWS, **options: Any) -> tuple[GroupDesign, ...]:
    return build_design(formula, rows, **options).groups


def only(formula: str, rows: Any = ROWS, **options: Any) -> GroupDesign:
    (found,) = groups(formula, rows, **options)
    return found


CODED = {
    "(1 | school)": (SCHOOL,),
    "(1 | C(school))": (SCHOOL,),
    "(1 | year)": (YEAR,),
    "(1 | half)": (YEAR,),
    "(1 | flag)": (ROWS["flag"],),
    "(1 | `the group`)": (ROWS["the group"],),
    "(1 | school:year)": (SCHOOL, YEAR),
    "(1 | year:school)": (YEAR, SCHOOL),
    "(1 | year:school:k)": (YEAR, SCHOOL, ROWS["k"]),
}


@pytest.mark.parametrize("term", CODED)
def test_codes_are_places_among_the_sorted_groups(term: str) -> None:
    found = only(f"y ~ x + {term}")
    names, codes = by_hand(*CODED[term])
    expected = [name[0] if len(name) == 1 else ":".join(map(str, name)) for name in names]
    assert (list(found.levels.names), len(found.levels)) == (expected, len(names))
    assert (found.codes.dtype, found.codes.shape) == (np.int32, (NUM_ROWS,))
    np.testing.assert_array_equal(found.codes, codes)
    assert (found.names, found.z.dtype) == (("Intercept",), np.float32)
    np.testing.assert_array_equal(found.z, np.ones((NUM_ROWS, 1)))


def test_nested_groups_are_those_of_the_outer_and_of_both() -> None:
    outer, inner = groups("y ~ (1 | school/year)")
    np.testing.assert_array_equal(outer.codes, by_hand(SCHOOL)[1])
    np.testing.assert_array_equal(inner.codes, by_hand(SCHOOL, YEAR)[1])


def test_combinations_of_names_with_colons_are_told_apart() -> None:
    rows = {**ROWS, "a": np.where(ROW % 2, "p:q", "p"), "b": np.where(ROW % 2, "r", "q:r")}
    found = only("y ~ (1 | a:b)", rows)
    assert found.levels.names == ("p:q:r", "p:q:r")
    np.testing.assert_array_equal(found.codes, ROW % 2)


X, W, LATER = ROWS["x"], ROWS["w"], standardised(ROWS["air time"])
DUMMIES = np.stack([ROWS["k"] == each for each in "pqr"], axis=1).astype(float)
ONE = np.ones(NUM_ROWS)
# Names, columns, and the centre and scale that brought them there.
EFFECTS: dict[str, tuple[str, list[str], list[np.ndarray]]] = {
    "the fixed column's units": ("y ~ x + (1 + x | year)", ["Intercept", "x"], [ONE, standardised(X)]),
    "an intercept that is not written": ("y ~ x + (x | year)", ["Intercept", "x"], [ONE, standardised(X)]),
    "units of its own": ("y ~ x + (`air time` | year)", ["Intercept", "air time"], [ONE, LATER]),
    "a function": ("y ~ x + (np.log(w) | year)", ["Intercept", "np.log(w)"], [ONE, standardised(np.log(W))]),
    "scaled alone without an intercept": ("y ~ x + (0 + x | year)", ["x"], [X / X.std()]),
    "scaled alone without correlation": ("y ~ x + (x || year)", ["Intercept", "x"], [ONE, X / X.std()]),
    "merged": ("y ~ x + (1 | year) + (0 + x | year)", ["Intercept", "x"], [ONE, X / X.std()]),
    "no fixed intercept": ("y ~ 0 + x + (x | year)", ["Intercept", "x"], [ONE, X / X.std()]),
    "a flag": ("y ~ x + (flag | year)", ["Intercept", "flag"], [ONE, ROWS["flag"]]),
    "dummies": ("y ~ (0 + C(k) | year)", ["C(k)[p]", "C(k)[q]", "C(k)[r]"], list(DUMMIES.T)),
    "dummies of text": ("y ~ k + (0 + k | year)", ["k[p]", "k[q]", "k[r]"], list(DUMMIES.T)),
    "against the first": ("y ~ (k | year)", ["Intercept", "k[T.q]", "k[T.r]"], [ONE, *DUMMIES.T[1:]]),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_effects_are_in_the_units_of_the_columns(name: str) -> None:
    formula, names, columns = EFFECTS[name]
    found = only(formula)
    assert list(found.names) == names
    np.testing.assert_allclose(found.z, np.stack(columns, axis=1), atol=2e-6)


@pytest.mark.parametrize("formula", ["y ~ x + (1 + x | year)", "y ~ x + (x || year)", "y ~ (x + w | year)"])
def test_effects_come_back_in_the_units_of_the_table(formula: str) -> None:
    """The predictor is z b = raw (A b), whatever b is."""
    found = only(formula)
    raw = np.stack([ONE if name == "Intercept" else ROWS[name] for name in found.names], axis=1)
    np.testing.assert_allclose(raw, found.z * found.scale + found.centre, atol=1e-5)
    np.testing.assert_allclose(found.z, raw @ found.to_own, atol=1e-5)


def test_without_standardising_effects_are_as_they_are() -> None:
    found = only("y ~ x + (x | year)", standardise=False)
    np.testing.assert_array_equal(found.z[:, 1], X.astype(found.z.dtype))
    assert (found.centre.tolist(), found.scale.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_effects_that_float32_would_blur_are_float64() -> None:
    rows = {**ROWS, "time": 1e9 + X}
    assert only("y ~ (0 + time | year)", rows).z.dtype == np.float64
    assert only("y ~ (time | year)", rows).z.dtype == np.float32


def as_csv(rows: pa.Table, folder: Path) -> Path:
    pa.csv.write_csv(rows, folder / "rows.csv")
    return folder / "rows.csv"


def as_parquet(rows: pa.Table, folder: Path) -> Path:
    pq.write_table(rows, folder / "rows.parquet")
    return folder / "rows.parquet"


def as_categories(rows: pa.Table, folder: Path) -> pd.DataFrame:
    return rows.to_pandas().astype({"school": "category"})


TABLES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "arrow": lambda rows, _: rows,
    "chunks": lambda rows, _: pa.concat_tables([rows.slice(0, 100), rows.slice(100)]),
    "pandas": lambda rows, _: rows.to_pandas(),
    "categories": as_categories,
    "polars": lambda rows, _: pl.from_arrow(rows),
    "csv": as_csv,
    "parquet": as_parquet,
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_makes_the_same_groups(kind: str, tmp_path: Path) -> None:
    formula = "y ~ x + (1 + x | school/year) + (1 | half)"
    for found, expected in zip(groups(formula, TABLES[kind](pa.table(ROWS), tmp_path)), groups(formula), strict=True):
        assert found.levels.names == expected.levels.names
        np.testing.assert_array_equal(found.codes, expected.codes)
        np.testing.assert_allclose(found.z, expected.z, atol=1e-6)


def test_the_fixed_part_is_that_of_the_formula_without_bars() -> None:
    """The same bits, and no more of them."""
    formula = "y ~ x + k + offset(w)"
    plain, grouped = (build_design(each, ROWS) for each in (formula, f"{formula} + (1 + x | year)"))
    assert plain.groups == ()
    assert "groups" not in plain.encoding.to_plain()
    assert replace(grouped.encoding, groups=()).to_plain() == plain.encoding.to_plain()
    assert grouped.rows.keys() == plain.rows.keys()
    for name in plain.rows:
        np.testing.assert_array_equal(grouped.rows[name], plain.rows[name])


def test_a_dot_does_not_stand_for_groups() -> None:
    rows = {name: ROWS[name] for name in ("y", "x", "w", "school", "year")}
    assert build_design("y ~ . + (1 | school:year)", rows).names == ("x", "w")


@pytest.mark.parametrize("formula", ["y ~ 1 + (1 | school)", "y ~ (1 | school)"])
def test_a_formula_needs_no_fixed_terms(formula: str) -> None:
    found = build_design(formula, ROWS)
    assert (found.names, found.intercept, found.rows["x"].shape) == ((), True, (NUM_ROWS, 1))


def test_missing_groups_follow_the_rule_of_the_door() -> None:
    with pytest.raises(DataError, match=r"no missing values; got .* in 'school', .* in 'half'"):
        build_design("y ~ x + (1 | school) + (1 | half)", gappy())
    design = build_design("y ~ x + (1 | school) + (1 | half)", gappy(), missing="drop")
    kept = (ROW % 7 != 0) & (SCHOOL != "elm") & (ROW % 5 != 0)
    assert design.dropped == NUM_ROWS - kept.sum()
    for found, column in zip(design.groups, (SCHOOL, YEAR), strict=True):
        names, codes = by_hand(column[kept])
        assert list(found.levels.names) == [name for (name,) in names]
        np.testing.assert_array_equal(found.codes, codes)


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "broken numbers": ("(1 | x)", {}, r"names or whole numbers of groups in column 'x'; got .* in row 0.*as an effect"),
    "infinite": ("(1 | half)", {"half": np.where(ROW == 3, np.inf, 1.0)}, "whole numbers.*inf in row 3"),
    "too large": ("(1 | half)", {"half": np.where(ROW == 3, 1e17, 1.0)}, r"whole numbers.*1e\+17 in row 3"),
    "no such column": ("(1 | schol)", {}, "a column 'schol'.*'school'"),
    "no such effect": ("(z | school)", {}, "a column 'z'"),
    "one group": ("(1 | one)", {"one": ["a"] * NUM_ROWS}, "at least two groups in 'one'; got 'a' in all rows"),
    "four dummies": ("(k | school) + (0 + year || k:year)", {"k": SCHOOL}, "at most 3 effects a group; got 4"),
    "uncorrelated dummies": ("(k || school)", {}, r"one column for each.*got 3 columns of 2 terms.*\(1 \+ k \| school"),
    "a constant effect": ("(one | school)", {"one": np.ones(NUM_ROWS)}, "'one' that varies"),
    "a combination": ("(x + twice | school)", {"twice": 2 * X}, "'twice' of its own"),
    "no logarithm": ("(np.log(x - 7) | school)", {}, "finite numbers"),
    "all rows at once": ("(I(x - np.mean(x)) | school)", {}, "np.mean"),
    "the response": ("(1 | y)", {}, "'y' on both sides"),
}


@pytest.mark.parametrize("name", BAD)
def test_columns_that_make_no_groups_are_told(name: str) -> None:
    term, columns, message = BAD[name]
    with pytest.raises(InputError, match=message):
        build_design(f"y ~ x + {term}" if "twice" not in term else f"y ~ {term}", {**ROWS, **columns})


def test_new_rows_have_the_codes_of_their_groups_or_none() -> None:
    design = build_design("y ~ x + (1 + x | school:year) + (1 | half) + (0 + k | school)", ROWS)
    plain = json.loads(json.dumps(design.encoding.to_plain()))
    new = {name: ROWS[name][:5] for name in ("x", "school", "year", "half", "k")}
    new = {**new, "school": ["nobody", *SCHOOL[1:5]], "year": [*YEAR[:1], 7777, *YEAR[2:5]]}
    for encoding in (design.encoding, Encoding.from_plain(plain)):
        assert encoding.to_plain() == design.encoding.to_plain()
        both, half, school = encoding.encode_groups(new)
        np.testing.assert_array_equal(both.codes, [-1, -1, *design.groups[0].codes[2:5]])
        np.testing.assert_array_equal(half.codes, design.groups[1].codes[:5])
        np.testing.assert_array_equal(school.codes, [-1, *design.groups[2].codes[1:5]])
        np.testing.assert_allclose(both.z, design.groups[0].z[:5], atol=1e-6)
        np.testing.assert_array_equal(school.z, design.groups[2].z[:5])
    assert take_back(encoding) == [group.term for group in design.groups]


def take_back(encoding: Encoding) -> list[Any]:
    return [group.term for group in build_design(encoding.formula, ROWS).groups]


def test_a_pair_of_known_values_that_never_met_is_a_new_group() -> None:
    rows = {**ROWS, "a": ROW % 2, "b": np.where(ROW % 2, ROW % 3, 5)}
    encoding = build_design("y ~ (1 | a:b)", rows).encoding
    (found,) = encoding.encode_groups({"a": [0, 0, 1], "b": [5, 1, 1]})
    assert [found.levels.names[code] if code >= 0 else None for code in found.codes] == ["0:5", None, "1:1"]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"school": [1], "k": ["p"]}, "text in column 'school', as before"),
        ({"school": ["Oak"], "k": ["z"]}, "a known category in column 'k'"),
        ({"school": ["Oak", None], "k": ["p", "p"]}, "no missing values"),
    ],
)
def test_new_rows_of_another_kind_are_refused(new: dict[str, Any], message: str) -> None:
    encoding = build_design("y ~ (0 + k | school)", ROWS).encoding
    with pytest.raises(DataError, match=message):
        encoding.encode_groups(new)


def test_a_census_is_that_of_all_rows_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_levels, "PENDING", 3)
    far = {"a": np.where(ROW % 2, YEAR, 2**62 - YEAR), "b": np.where(ROW % 3, YEAR, YEAR - 2**62)}
    for rows in (pa.table(ROWS), pa.table({"school": far["a"], "year": far["b"]})):
        whole, cut = LevelCensus(("school", "year")), LevelCensus(("school", "year"))
        table = rows.select(["school", "year"])
        if pa.types.is_string(table.schema.field("school").type):
            table = table.set_column(0, "school", table.column("school").combine_chunks().dictionary_encode())
        whole.add(table)
        for start in range(0, NUM_ROWS, 37):
            cut.add(table.slice(start, 37))
        assert cut.levels().names == whole.levels().names
        np.testing.assert_array_equal(cut.levels().codes(table), whole.levels().codes(table))
        assert np.array_equal(np.unique(whole.levels().codes(table)), np.arange(len(whole.levels())))


def test_batches_of_new_rows_carry_the_groups_of_the_rows_that_can_be_predicted() -> None:
    design = build_design("y ~ x + (1 + x | school:year) + (np.log(w) | half) + (0 + k | flag)", ROWS)
    new = {name: list(ROWS[name][:6]) for name in ("x", "w", "school", "year", "half", "k", "flag")}
    new["x"][0], new["w"][1], new["k"][2], new["school"][3] = None, 0.0, "z", "nobody"
    asked = Asked(missing="nan", unknown="nan")
    (batch,) = encoded_rows(design.encoding, new, asked)
    assert batch.usable.tolist() == [False, False, False, True, True, True]
    assert batch.unpredicted.rows == 3
    assert [len(each) for each in batch.inputs] == [3, 3]
    both, half, flag = batch.groups
    np.testing.assert_array_equal(both.codes, [-1, *design.groups[0].codes[4:6]])
    np.testing.assert_array_equal(half.codes, design.groups[1].codes[3:6])
    np.testing.assert_array_equal(flag.codes, ROWS["flag"][3:6])
    for found, known in zip(batch.groups, design.groups, strict=True):
        np.testing.assert_allclose(found.z, known.z[3:6], atol=1e-6)
    (last,) = encoded_rows(design.encoding, {name: values[:1] for name, values in new.items()}, asked)
    assert [group.z.shape for group in last.groups] == [(0, 2), (0, 2), (0, 3)]
    with pytest.raises(DataError, match=r"a known category in column 'k'; got 'z' in row 0"):
        list(encoded_rows(design.encoding, {name: values[2:4] for name, values in new.items()}, Asked()))
