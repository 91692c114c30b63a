"""Terms: which coefficients stand alone, so that exp of them is a ratio between two rows."""

from __future__ import annotations

import numpy as np
import pytest
from reports import encoding_of, made

from tallbayes.formula.coding import Coding, learn
from tallbayes.formula.expressions import read_side
from tallbayes.results.coefficients import are_ratios, is_ratio
from tallbayes.results.terms import terms_of
from tallbayes.rows.columns import normalised_table

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("formulaic")

ROWS = 60
RNG = np.random.default_rng(0)
TABLE = normalised_table(
    pyarrow.table(
        {
            "hour": RNG.uniform(1, 23, ROWS),
            "age": RNG.uniform(18, 90, ROWS),
            "carrier": np.array(["AA", "DL", "UA"])[np.arange(ROWS) % 3],
            "origin": np.array(["EWR", "JFK"])[np.arange(ROWS) // 3 % 2],
        }
    )
)
CARRIERS = ["carrier[T.DL]", "carrier[T.UA]"]
# By right sides, the coefficients that are ratios by themselves; all others are not.
ALONE = {
    "hour + age": ["hour", "age"],
    "hour + carrier": ["hour", *CARRIERS],
    "np.log(hour) + carrier": ["np.log(hour)", *CARRIERS],
    "scale(hour) + age": ["scale(hour)", "age"],
    "hour + I(hour**2)": [],
    "hour + I(hour**2) + age": ["age"],
    "hour + np.log(hour) + carrier": CARRIERS,
    "poly(hour, 2) + age": ["age"],
    "bs(hour, df=4) + carrier": CARRIERS,
    "cr(hour, df=3) + age": ["age"],
    "hour * age": [],
    "hour * carrier + age": ["age"],
    "carrier * origin + hour": ["hour"],
    "hour:age + carrier": CARRIERS,
    "I(hour > 12) + age": ["I(hour > 12)", "age"],
    "C(origin) + hour": ["C(origin)[T.JFK]", "hour"],
    "0 + carrier + hour": ["hour"],
}


@pytest.mark.parametrize("right", ALONE)
def test_a_coefficient_is_a_ratio_where_its_column_can_change_by_itself(right: str) -> None:
    coding = learn(right, read_side(right, tuple(TABLE.column_names)), TABLE)
    found = [name for name, is_one in zip(coding.names, alone_of(coding), strict=True) if is_one]
    assert found == ALONE[right]


def alone_of(coding: Coding) -> list[bool]:
    plain = {
        "right": coding.right,
        "names": list(coding.names),
        "kinds": dict(coding.kinds),
        "categories": {"items": [[factor, list(levels)] for factor, levels in coding.categories.items()]},
    }
    names = ["Intercept", *coding.names]
    result = made(names, family="logistic", encoding={"response": "late", "coding": plain, "classes": None})
    intercept, *ratios = are_ratios(names, result)
    assert not intercept
    return ratios


def test_classes_have_ratios_of_their_own() -> None:
    encoding = encoding_of(["hour", "I(hour ** 2)", *CARRIERS], {"carrier": ["AA", "DL", "UA"]}, ["on", "late", "gone"])
    names = ["late.Intercept", "late.hour", "late.I(hour ** 2)", "late.carrier[T.DL]", "gone.carrier[T.UA]"]
    result = made(names, family="multinomial", encoding=encoding)
    assert are_ratios(names, result) == [False, False, False, True, True]
    assert [term.is_alone for term in terms_of(result, names)] == [True, False, False, True, True]


def test_without_a_formula_every_slope_stands_alone_and_other_families_have_no_ratio() -> None:
    assert is_ratio("[3]", made(["[3]"], family="logistic"))
    assert not is_ratio("intercept", made(["intercept"], family="logistic"))
    assert not is_ratio("[3]", made(["[3]"], family="linear"))


def test_ratios_leave_out_pieces_of_a_polynomial() -> None:
    encoding = encoding_of(["hour", "I(hour ** 2)", "age"], {})
    result = made(["Intercept", "hour", "I(hour ** 2)", "age"], family="logistic", encoding=encoding)
    assert [each.name for each in result.ratios()] == ["age"]
    assert [each.name for each in result.coefficients()] == ["Intercept", "hour", "I(hour ** 2)", "age"]
    assert result.compare("hour", "I(hour ** 2)").kind is None


def test_many_levels_are_read_in_little_time() -> None:
    levels = [f"l{number:05d}" for number in range(10_000)]
    names = [f"level[T.{each}]" for each in levels[1:]]
    result = made(["Intercept"], family="logistic", encoding=encoding_of(names, {"level": levels}))
    assert all(are_ratios(names, result))
