"""Rows of some schools in some years: groups that cross, nest and are missing."""

from typing import Any

import numpy as np

NUM_ROWS = 600
GENERATOR = np.random.default_rng(11)
SCHOOL = np.array(["Oak", "elm", "ash:1", "Birch, N."])[GENERATOR.integers(0, 4, NUM_ROWS)]
YEAR = GENERATOR.integers(-2, 40, NUM_ROWS) * 3
ROWS: dict[str, Any] = {
    "y": (GENERATOR.random(NUM_ROWS) < 0.4).astype(float),
    "x": GENERATOR.normal(7.0, 2.0, NUM_ROWS),
    "w": GENERATOR.gamma(2.0, 1.0, NUM_ROWS) + 0.5,
    "k": np.array(["p", "q", "r"])[GENERATOR.integers(0, 3, NUM_ROWS)],
    "flag": GENERATOR.random(NUM_ROWS) < 0.3,
    "school": SCHOOL,
    "year": YEAR,
    "half": YEAR.astype(float),
    "air time": GENERATOR.normal(2.0, 1.0, NUM_ROWS),
    "the group": GENERATOR.integers(0, 9, NUM_ROWS),
}
ROW = np.arange(NUM_ROWS)


def gappy() -> dict[str, Any]:
    school = [None if row % 7 == 0 or name == "elm" else name for row, name in enumerate(SCHOOL)]
    return {**ROWS, "school": school, "half": np.where(ROW % 5 == 0, np.nan, ROWS["half"])}
