"""Formulas as users of bambi, patsy, R, lme4 and mgcv type them: which run, with which columns, and what is refused.

What formulaic knows too is held against its own design of the same rows, and of new ones. Nothing is fitted.
"""

from __future__ import annotations

from typing import Any

import formulaic
import numpy as np
import pandas as pd
import pytest

import tallbayes as tb
from tallbayes.errors import DataError, InputError
from tallbayes.formula.design import build_design
from tallbayes.formula.encoding import Encoding

NUM_ROWS = 120
GENERATOR = np.random.default_rng(22)
WHEN = np.datetime64("2024-03-01T00:00", "s")


def some_rows(count: int) -> dict[str, Any]:
    rows: dict[str, Any] = {
        "x": GENERATOR.normal(size=count),
        "z": GENERATOR.uniform(1.0, 5.0, count),
        "e": GENERATOR.uniform(1.0, 3.0, count),
        "odd name": GENERATOR.normal(size=count),
        "g": np.array(["a", "b", "c"])[np.arange(count) % 3],
        "h": np.array(["u", "v"])[GENERATOR.integers(0, 2, count)],
        "k": np.arange(count) % 5,
        "b": np.arange(count) % 2 == 0,
        "when": WHEN + GENERATOR.integers(0, 10_000, count).astype("timedelta64[h]"),
    }
    rows["x"][:2] = -4.0, 4.0
    return rows


ROWS = {**some_rows(NUM_ROWS), "y": GENERATOR.normal(size=NUM_ROWS)}
NEW = {name: each[2:22] for name, each in some_rows(30).items()}

# As it is typed here, and as formulaic wants it where that is another text.
RUN: dict[str, str] = {
    **dict.fromkeys(
        (
            "x", "x + z", "x + g", "x:g", "x*g", "g*h", "g:h", "x*z", "g*h*x", "(x + g)**2", "(x + z + g)^2",
            "(x + g + h)**2 - x:g", "(x + z):g", "g/x", "x %in% g", "h %in% g", "g + g:x",
            "-1 + x", "x - 1", "0 + x", "x + 0", "0 + g", "0 + g + x", "g - 1 + x", "0 + x:g", "1", "x + 1", "x + x",
            "x + g - g", "x^2", "I(x**2)", "x + I(x**2) + I(x**3)", "x + {x**2}", "I(x/z)", "I(-x)", "I(x) + I(z)",
            "x/z", "np.log(z)", "log(z)", "log10(z)", "log2(z)", "np.log(z + 1)", "log(z + 1) * x", "exp(x)", "exp(-x)",
            "abs(x)", "np.sqrt(z) * g", "np.power(z, 2)", "np.where(x > 0, x, 0)", "np.maximum(x, 0)",
            "np.clip(z, 2, 4)", "I(x > 3)", "I((x > 0) & (z > 2))", "I(1*(x > 0))", "b", "b*x",
            "C(k)", "C(b)", 'C(g, Treatment("b"))', 'C(g, Treatment(reference="b"))', 'C(g, contr.treatment("b"))',
            "C(g, Sum)", "C(g, contr.sum)", "C(k, contr.poly)", "C(k, Helmert)", "C(k, levels=[4, 3, 2, 1, 0])",
            "C(k):x", "scale(x)", "center(x)", "standardize(x)", "scale(np.log(z))", "scale(x):g", "poly(x, 2)",
            "poly(x, 2):g", "poly(x, 3, raw=True)", "bs(x, df=5)", "bs(x, df=4, degree=1)", "bs(x, knots=[-0.5, 0.5])",
            "0 + bs(x, df=5, include_intercept=True)", "0 + cr(x, df=5)", "bs(x, df=4):g",
            'cr(x, df=4, constraints="center")', "`odd name`", "I(`odd name`**2)",
        ),
        "",
    ),
    'Q("odd name")': "`odd name`",
    "Q('odd name') + x": "`odd name` + x",
    'I(Q("odd name")**2)': "I(`odd name`**2)",
    'np.exp(Q("odd name"))': "np.exp(`odd name`)",
    "sqrt(z)": "np.sqrt(z)",
    "log1p(z) + sin(x)": "np.log1p(z) + np.sin(x)",
    "pow(z, 2)": "np.power(z, 2)",
    "floor(z):x": "np.floor(z):x",
    "round(z)": "np.round(z)",
    "where(x > 0, x, 0)": "np.where(x > 0, x, 0)",
    "ifelse(x > 0, x, 0)": "np.where(x > 0, x, 0)",
    "pmax(x, 0) + pmin(x, 0)": "np.maximum(x, 0) + np.minimum(x, 0)",
    "factor(g)": "C(g)",
    "as.factor(k) + x": "C(k) + x",
    "factor(k):x": "C(k):x",
    "cr(x, df=4)": 'cr(x, df=4, constraints="center")',
    "cr(x, df=4) + z": 'cr(x, df=4, constraints="center") + z',
    "cs(x, 4)": 'cs(x, 4, constraints="center")',
    "cc(x, df=4)": 'cc(x, df=4, constraints="center")',
    "0 + g + cr(x, df=4)": '0 + g + cr(x, df=4, constraints="center")',
    "offset(log(e)) + x": "x",
    "x + offset(e) + g": "x + g",
    "x + (1|g)": "x",
    "x + (1 + x|g)": "x",
    "x + (x||g)": "x",
    "x + (1|g/h)": "x",
    "x + (0 + x|g:h) + (1|g:h)": "x",
}  # fmt: skip


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def frame(rows: dict[str, Any]) -> Any:
    return pd.DataFrame(rows)


def design_of(formula: str, **options: Any) -> Any:
    return build_design(f"y ~ {formula}", ROWS, response="real", standardise=False, **options)


@pytest.mark.parametrize("formula", RUN)
def test_columns_are_formulaics_own_and_so_are_those_of_new_rows(formula: str) -> None:
    design = design_of(formula)
    wanted = formulaic.model_matrix(RUN[formula] or formula, frame(ROWS))
    again = Encoding.from_plain(design.encoding.to_plain())
    for rows, theirs in ((ROWS, wanted), (NEW, wanted.model_spec.get_model_matrix(frame(NEW)))):
        theirs = np.asarray(theirs, np.float64)[:, int(design.intercept) :]
        scale = np.abs(theirs).max(axis=0, initial=1.0)
        np.testing.assert_allclose(again.encode(rows) / scale, theirs / scale, atol=2e-6)
    names = tuple(wanted.columns)
    assert ("Intercept" in names) == design.intercept
    if not RUN[formula]:
        assert names[int(design.intercept) :] == design.names


@pytest.mark.parametrize("formula", ["x + g", "x*g", "factor(g)", "C(g, Sum)", 'C(g, Treatment("b"))', "poly(x, 2):g"])
def test_a_level_that_was_not_there_is_named(formula: str) -> None:
    with pytest.raises(DataError, match="'new'"):
        design_of(formula).encoding.encode({**NEW, "g": np.where(np.arange(20) == 3, "new", NEW["g"])})


def test_ns_spans_what_rs_does() -> None:
    """Natural splines with df - 1 knots at quantiles, nothing at the lower end; and beside an intercept all of cr."""
    columns = np.asarray(design_of("ns(x, df=4)").encoding.encode(ROWS), np.float64)
    knots = np.quantile(ROWS["x"], [0.25, 0.5, 0.75]).tolist()
    theirs = np.asarray(formulaic.model_matrix(f"0 + cr(x, knots={knots})", frame(ROWS)), np.float64)
    assert columns.shape == (NUM_ROWS, 4)
    np.testing.assert_allclose(columns[np.argmin(ROWS["x"])], 0.0, atol=1e-6)
    both = np.column_stack([np.ones(NUM_ROWS), columns])
    left = theirs - both @ np.linalg.lstsq(both, theirs)[0]
    assert np.abs(left).max() < 1e-5
    # Other knots span something else.
    other = np.asarray(formulaic.model_matrix("0 + cr(x, knots=[-1.0, 0.4, 0.9])", frame(ROWS)), np.float64)
    assert np.abs(other - both @ np.linalg.lstsq(both, other)[0]).max() > 1e-3


TIMES = {
    "hour(when)": lambda t: t.hour,
    "month(when) + x": lambda t: t.month,
    "I(hour(when)**2)": lambda t: t.hour**2,
    'days(when, "2024-01-01")': lambda t: (t - pd.Timestamp("2024-01-01")) / pd.Timedelta(days=1),
    "C(hour(when))": lambda t: t.hour == 1,
    "factor(month(when))": lambda t: t.month == 2,
    "weekday(when)": lambda t: t.day_of_week == 1,
}


@pytest.mark.parametrize("formula", TIMES)
def test_parts_of_dates(formula: str) -> None:
    design, times = design_of(formula), pd.DatetimeIndex(ROWS["when"])
    np.testing.assert_allclose(design.encoding.encode(ROWS)[:, 0], np.asarray(TIMES[formula](times), float), rtol=1e-6)


# What of a refusal is quoted, and what is to be written instead.
REFUSED = {
    "te(x, z)": ("'te' in 'te(x, z)'", "s(x) + s(z)"),
    "ti(x, z)": ("'ti'", "s(x) + s(z)"),
    "s(x, z)": ("'s(x, z)'", "s(x) + s(z)"),
    "s(x, by=g)": ("'s(x, by=g)'", "s(x) + x:g"),
    's(x, bs="tp")': ("'tp'", 's(x, bs="cc")'),
    "s(x, k=2)": ("k=2", "s(x, k=10)"),
    "s(x, m=2)": ("'m'", "s(x, k=10)"),
    "s(k)": ("5", "s(x, k=5)"),
    "s(x):g": ("'s(x):g'", "s(x) + x:g"),
    "I(s(x))": ("'I(s(x))'", "s(x)"),
    "(s(x)|g)": ("s(x)", "(1 + x | g)"),
    "lag(x)": ("'lag' in 'lag(x)'", "a column of the table"),
    "x - mean(x)": ("'mean'", "center(x)"),
    "np.mean(x)": ("'np.mean'", "center(x)"),
    "rank(x)": ("'rank'", "center(x)"),
    "cut(x, 4)": ("'cut'", "C(np.floor(x / 10))"),
    'relevel(g, ref="b")': ("'relevel'", 'Treatment("reference")'),
    "ordered(k)": ("'ordered'", "C(column, contr.poly)"),
    "interaction(g, h)": ("'interaction'", "g:h"),
    "mo(k)": ("'mo'", "C(column)"),
    "gp(x)": ("'gp'", "s(x)"),
    "hashed(g, levels=4)": ("'hashed'", "C(column)"),
    "x > 0": ("'>'", "I(x > 3)"),
    "x // 2": ("'//'", "I(x > 3)"),
    "log(z, 2)": ("2 in 'log(z, 2)'", "log2(x)"),
    "x.pow(2)": ("'x.pow'", "np.log"),
    "x | g": ("'x | g'", "(1 | g)"),
    "0": ("'y ~ 0'", "late ~ 1"),
    "ns(x)": ("neither", "ns(x, df=4)"),
    "ns(k, df=9)": ("between 0 and 4", "a smaller df"),
    "when": ("timestamp", "hour(when)"),
    "missing": ("no such column", "the columns are"),
    "x:offset(e)": ("'offset(e)'", "offset(log(exposure))"),
    "__import__('os').getcwd()": ("__import__", "np.log"),
}


@pytest.mark.parametrize("formula", REFUSED)
def test_what_is_refused_says_what_to_write(formula: str) -> None:
    with pytest.raises(InputError) as caught:
        design_of(formula)
    got, hint = str(caught.value).partition("; got ")[2].split(". Try: ")
    for part, text in zip(REFUSED[formula], (got, hint), strict=True):
        assert part in text


def test_a_left_side_is_transformed() -> None:
    """That of two columns, cbind(k, n - k), is among the features below."""
    design = build_design("log(z) ~ x", ROWS, response="real", standardise=False)
    np.testing.assert_allclose(design.rows["y"], np.log(ROWS["z"]), rtol=1e-6)
    with pytest.raises(InputError, match="a response"):
        build_design("s(z) ~ x", ROWS, response="real")


# What issue 22 names, one by one: the response, what is asked beside the formula, and names of coefficients.
FEATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "y ~ x + offset(e)": ("real", ("x",)),
    "y ~ cr(x, df=4)": ("real", tuple(f"cr(x, df=4)[{k}]" for k in range(1, 5))),
    "y ~ cc(x, df=4)": ("real", tuple(f"cc(x, df=4)[{k}]" for k in range(1, 5))),
    "y ~ cs(x, 4)": ("real", tuple(f"cs(x, 4)[{k}]" for k in range(1, 5))),
    "y ~ ns(x, df=3)": ("real", tuple(f"ns(x, df=3)[{k}]" for k in range(1, 4))),
    "y ~ sqrt(z) + log1p(z)": ("real", ("sqrt(z)", "log1p(z)")),
    "y ~ s(x, k=5)": ("real", ("s(x, k=5)[linear]", *(f"s(x, k=5)[{k}]" for k in range(1, 4)))),
    "cbind(k, 10 - k) ~ x": ("binary", ("x",)),
    "p(k, 10) ~ x": ("binary", ("x",)),
    "y ~ hour(when) + weekday(when)": ("real", ("hour(when)", *(f"weekday(when)[T.{day}]" for day in DAYS[1:]))),
    "y ~ x; sigma ~ z + g": ("real", ("x", "sigma:z", "sigma:g[T.b]", "sigma:g[T.c]")),
}


@pytest.mark.parametrize("formula", FEATURES)
def test_what_was_asked_for_runs_beside_an_intercept(formula: str) -> None:
    response, names = FEATURES[formula]
    design = build_design(formula, ROWS, response=response, standardise=False, parameter="sigma")
    assert design.intercept
    assert design.names == names


def test_categories_of_many_levels_are_an_index() -> None:
    """A code a row, and not a column a level."""
    labels = np.array([f"level {k}" for k in range(5_000)])
    rows = {"y": np.arange(20_000.0) % 7, "g": labels[np.arange(20_000) % 5_000], "x": np.arange(20_000.0) % 11}
    design = build_design("y ~ x + g", rows, response="real")
    assert len(design.names) == 5_000
    assert {name: np.shape(each)[1:] for name, each in design.rows.items()} == {"x": (1,), "y": (), "codes": (1,)}
    with pytest.raises(DataError, match="at most 1,000"):
        build_design("y ~ x:g", rows, response="real")


def test_a_dot_leaves_out_what_cannot_be_a_term(tmp_path: Any) -> None:
    """In memory and on disk; what is named beside it stays, and is refused by itself."""
    rows = {
        **{name: ROWS[name] for name in ("y", "x", "g", "when")},
        "id": [f"row {i}" for i in range(NUM_ROWS)],
        "same": np.full(NUM_ROWS, 3),
        "one": ["a"] * NUM_ROWS,
        "lost": np.full(NUM_ROWS, np.nan),
    }
    design = build_design("y ~ .", rows, response="real")
    assert design.names == ("x", "g[T.b]", "g[T.c]")
    (note,) = (note for note in design.notes if note.startswith("columns:"))
    for text in ("id (a name for every row)", "same (the same in all rows)", "one (the same", "lost (missing in all"):
        assert text in note
    assert build_design("y ~ . - x", rows, response="real").names == design.names[1:]
    with pytest.raises(DataError, match="'same' that varies"):
        build_design("y ~ . + same", rows, response="real")
    pd.DataFrame({name: each for name, each in rows.items() if name != "lost"}).to_csv(tmp_path / "a.csv", index=False)
    stored = tb.ingest(tmp_path / "a.csv", tmp_path / "table")
    assert build_design("y ~ .", stored, response="real").names == design.names


def test_a_power_among_terms_is_told_to_be_none() -> None:
    assert any("I(x**2) is its power" in note for note in design_of("x^2").notes)
    assert not any("power" in note for note in design_of("(x + z)**2 + I(x**2)").notes)
