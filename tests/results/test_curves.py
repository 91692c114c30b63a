"""Curves and comparisons in the units of the table, of encodings alone: nothing is fitted."""

from __future__ import annotations

import numpy as np
import pytest

from tallbayes.formula.design import build_design
from tallbayes.results.groups.comparisons import _of_coefficients
from tallbayes.rows.sources import open_source

RNG = np.random.default_rng(8)
ROWS = {
    "y": RNG.normal(size=60),
    "x": RNG.normal(40.0, 7.0, 60),
    "z": RNG.normal(size=60),
    "g": np.array(["a", "b", "c"])[np.arange(60) % 3],
}


def test_rows_of_a_group_differ_by_their_own_columns() -> None:
    """Coefficients are reported per unit of the table: so must be what they are multiplied with."""
    encoding = build_design("y ~ x + z + (1 | g)", ROWS, response="real").encoding
    both = encoding.encode({"x": [43.0, 40.0], "z": [1.0, 3.0], "g": ["a", "a"]})
    found = _of_coefficients(encoding, both[0] - both[1])
    assert found == pytest.approx({"x": 3.0, "z": -2.0}, rel=1e-5)


def test_a_curve_is_made_of_the_columns_of_one_column_alone() -> None:
    coding = build_design("y ~ x*g + I(x**2) + s(z, k=4) + x:z", ROWS, response="real").encoding.coding
    table = open_source({"x": [1.0, 2.0, 3.0]}).read(["x"])
    places, columns, left_out = coding.columns_of("x", table)
    assert [coding.names[place] for place in places] == ["x", "I(x ** 2)"]
    np.testing.assert_allclose(columns, [[1, 1], [2, 4], [3, 9]])
    assert set(left_out) == {"x:g", "x:z"}
    places, columns, _ = coding.columns_of("z", open_source({"z": [0.5]}).read(["z"]))
    assert [coding.names[place] for place in places] == [f"s(z, k=4)[{each}]" for each in ("linear", 1, 2)]
    assert columns[0, 0] == 0.5
