"""Formulas as text: offsets, and what other packages write that is not here, each with what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import DataError, InputError
from tallbayes.formula.design import build_design
from tallbayes.formula.expressions import parse
from tallbayes.rows.sources import open_source

NUM_ROWS = 1500
GENERATOR = np.random.default_rng(6)
ROWS: dict[str, Any] = {
    "x": GENERATOR.normal(size=NUM_ROWS),
    "g": np.array(["a", "b", "c"])[GENERATOR.integers(0, 3, NUM_ROWS)],
    "n": GENERATOR.uniform(1.0, 5.0, NUM_ROWS),
}
ROWS["count"] = GENERATOR.poisson(ROWS["n"] * np.exp(0.3 * ROWS["x"] - 0.2))
ROWS["late"] = (GENERATOR.random(NUM_ROWS) < 0.4).astype(float)
ROWS["level"] = 2.0 + 3.0 * ROWS["x"] + ROWS["n"] + GENERATOR.normal(size=NUM_ROWS)
ROWS["log_n"] = np.log(ROWS["n"])

OFFSETS = {
    "count ~ x + offset(log(n))": ("x", "log(n)"),
    "count ~ offset(log(n)) + x": ("x", "log(n)"),
    "count ~ offset(log(n))": ("1", "log(n)"),
    "count ~ offset(n) - 1 + x": ("1 - 1 + x", "n"),
    "count ~ 0 + offset(n) + x": ("0 + x", "n"),
    "count ~ x + offset(n) + offset( log(n) ) + g": ("x + g", "(n) + (log(n))"),
    "count ~ x + offset(I(2 * `log_n`))": ("x", "I(2 * `log_n`)"),
}


@pytest.mark.parametrize("formula", OFFSETS)
def test_offsets_are_taken_from_among_the_terms(formula: str) -> None:
    parsed = parse(formula, open_source(ROWS))
    assert (" ".join(parsed.right.split()), parsed.offset) == OFFSETS[formula]
    assert set(parsed.offset_columns) <= {"n", "log_n"}


@pytest.mark.parametrize(
    ("family", "response"), [("poisson", "count"), ("logistic", "late"), ("linear", "level"), ("student_t", "level")]
)
def test_an_offset_in_the_formula_is_that_of_the_option(family: str, response: str) -> None:
    """For every family with one linear predictor, the same bits; without it, other numbers."""
    by_term = tb.fit(f"{response} ~ x + offset(log(n))", ROWS, family, tolerance=0.5)
    by_option = tb.fit(f"{response} ~ x", ROWS, family, offset="log_n", tolerance=0.5)
    without = tb.fit(f"{response} ~ x", ROWS, family, tolerance=0.5)
    np.testing.assert_array_equal(by_term["mean"].flat_value, by_option["mean"].flat_value)
    assert np.all(np.abs(by_term["mean"].flat_value - without["mean"].flat_value)[0] > 1e-3)


def test_offsets_of_both_kinds_add_up() -> None:
    both = build_design("count ~ x + offset(log(n))", ROWS, offset="log_n", response="count")
    np.testing.assert_allclose(both.rows["offset"], 2 * ROWS["log_n"])


def test_predictions_have_the_offset_of_their_own_rows(tmp_path: Any) -> None:
    result = tb.fit("count ~ x + offset(log(n))", ROWS, "poisson", tolerance=0.5)
    result.save(tmp_path / "result")
    for found in (result, tb.load(tmp_path / "result")):
        one, three = (found.predict({"x": 0.5, "n": n}).mean[0] for n in (1.0, 3.0))
        assert three == pytest.approx(3 * one, rel=1e-6)
        with pytest.raises(DataError, match="a column 'n'"):
            found.predict({"x": 0.5})


def test_a_table_on_disk_has_the_same_offset(tmp_path: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pa.parquet.write_table(pa.table(ROWS), tmp_path / "a.parquet")
    stored = tb.ingest(tmp_path / "a.parquet", tmp_path / "table")
    design = build_design("count ~ x + offset(log(n))", stored, response="count")
    assert not isinstance(design.rows, dict)
    np.testing.assert_allclose(np.sort(design.rows.rows()["offset"]), np.sort(ROWS["log_n"]), atol=1e-6)


REFUSED = {
    "late ~ x | g": ("'x | g'", "(1 | g)"),
    "late ~ x + offset()": ("'offset()'", "offset(log(exposure))"),
    "late ~ x:offset(n)": ("'offset(n)'", "offset(log(exposure))"),
    "late ~ (x + offset(n))": ("'offset(n)'", "offset(log(exposure))"),
    "late ~ x + offset(scale(n))": ("'offset(scale(n))'", "functions of a row"),
    "late ~ x + offset(2)": ("'offset(2)'", "with columns"),
    "late ~ x - offset(n)": ("'offset(n)'", "offset(log(exposure))"),
    "late ~ I(offset(n))": ("'I(offset(n))'", "offset(log(exposure))"),
    "late ~ cbind(late, n)": ("'cbind'", "on the left of a formula"),
    "late | size(n) ~ x": ("'late | size(n)'", "cbind(k, n - k)"),
    "late ~ lag(n)": ("'lag'", "a column of the table"),
    "late ~ inverse(n)": ("'inverse'", "weekday"),
}


@pytest.mark.parametrize("formula", REFUSED)
def test_what_is_written_otherwise_here_is_told(formula: str) -> None:
    with pytest.raises(InputError) as caught:
        build_design(formula, ROWS)
    got, hint = str(caught.value).partition("; got ")[2].split(". Try: ")
    for part, text in zip(REFUSED[formula], (got, f"Try: {hint}"), strict=True):
        assert part in text


def test_an_offset_that_is_not_finite_is_located() -> None:
    rows = {**ROWS, "n": np.where(np.arange(NUM_ROWS) == 7, 0.0, ROWS["n"])}
    with pytest.raises(DataError, match=r"finite numbers in offset\(log\(n\)\); got -inf at row 7. Try: .*log\(0\)"):
        build_design("count ~ x + offset(log(n))", rows, response="count")


def test_a_multinomial_regression_has_no_offset() -> None:
    with pytest.raises(DataError, match="no offset in a multinomial regression"):
        tb.fit("g ~ x + offset(n)", ROWS, "multinomial")
