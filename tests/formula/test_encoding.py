"""Encodings make the same columns of new rows, in another process too, and refuse what they have never seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flights import CARRIER, DISTANCE, HOUR, NUM_ROWS, ROWS
from written_out import written_out

from tallbayes.errors import DataError, InputError
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.encoding import Encoding

REMEMBERED = [
    "late ~ C(carrier, contr.treatment('DL')) + I(distance**2)",
    "late ~ carrier:hour + np.log(distance)",
    "late ~ 0 + carrier + poly(distance, 3)",
    "late ~ bs(distance, df=5) + cr(delay, df=3, constraints='center') + scale(hour)",
    "late ~ C(hour) + center(`air time`) + {delay > 15}",
    "late ~ C(np.floor(distance / 2000)) + C(carrier, contr.sum)",
    "late ~ standardize(delay) + cc(hour, df=3, constraints='center')",
    "late ~ C(carrier, levels=['UA', 'AA', 'DL'])",
]


@pytest.mark.parametrize("formula", REMEMBERED)
@pytest.mark.parametrize("standardise", [True, False])
def test_new_rows_are_encoded_as_the_old_ones(formula: str, standardise: bool) -> None:
    """Rows that are a part of the old ones, in another order, without all categories and without a response."""
    design = build_design(formula, ROWS, standardise=standardise)
    chosen = np.flatnonzero((CARRIER != "UA") & (HOUR > 3))[::-3]
    new = {name: column[chosen] for name, column in ROWS.items() if name != "late"}
    again = Encoding.from_plain(json.loads(json.dumps(design.encoding.to_plain())))
    np.testing.assert_allclose(again.encode(new), written_out(design)[chosen], rtol=2e-6, atol=2e-6)


def test_an_encoding_works_in_another_process(tmp_path: Path) -> None:
    pd.DataFrame(ROWS).to_parquet(tmp_path / "rows.parquet")
    designs = [build_design(formula, ROWS) for formula in REMEMBERED]
    (tmp_path / "plain.json").write_text(json.dumps([design.encoding.to_plain() for design in designs]))
    program = (
        "import json, sys, numpy as np\n"
        "from tallbayes.formula.encoding import Encoding\n"
        "for number, plain in enumerate(json.load(open('plain.json'))):\n"
        "    np.save(f'{number}.npy', Encoding.from_plain(plain).encode('rows.parquet'))\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=tmp_path)
    for number, design in enumerate(designs):
        np.testing.assert_allclose(np.load(tmp_path / f"{number}.npy"), written_out(design), rtol=2e-6, atol=2e-6)


def test_a_stored_encoding_can_run_nothing_but_a_formula() -> None:
    plain = build_design("late ~ np.log(distance)", ROWS).encoding.to_plain()
    plain["coding"]["right"] = "I(__import__('os').getpid() * distance)"
    with pytest.raises(InputError, match="functions of a row by itself"):
        Encoding.from_plain(plain)
    with pytest.raises(InputError, match="format"):
        Encoding.from_plain({**plain, "format": 0})


def refuse_new(design: Design, **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        design.encoding.encode({**ROWS, **changes})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "formula", ["late ~ carrier", "late ~ C(carrier)", "late ~ C(carrier, levels=['AA', 'DL', 'UA'])"]
)
def test_a_category_that_was_not_there_before_is_named(formula: str) -> None:
    message = refuse_new(build_design(formula, ROWS), carrier=np.where(HOUR == 3, "ZZ", CARRIER))
    assert "'ZZ'" in message
    assert "'carrier'" in message


def test_a_category_of_numbers_or_of_an_expression_that_was_not_there_before_is_named() -> None:
    assert "99" in refuse_new(build_design("late ~ C(hour)", ROWS), hour=np.full(NUM_ROWS, 99))
    message = refuse_new(build_design("late ~ C(np.floor(hour / 6))", ROWS), hour=np.full(NUM_ROWS, 99))
    assert "16.0" in message
    assert "np.floor(hour / 6)" in message


def test_new_rows_of_another_kind_or_with_missing_values() -> None:
    design = build_design("late ~ hour + carrier", ROWS)
    assert "numbers in column 'hour'" in refuse_new(design, hour=CARRIER)
    assert "1 in 'carrier'" in refuse_new(design, carrier=[None, *CARRIER[1:]])
    assert "beyond" in refuse_new(build_design("late ~ bs(distance, df=4)", ROWS), distance=DISTANCE + 1e5)
