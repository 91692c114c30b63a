"""A small table of flights that the tests of formulas share, with columns of every kind; fixed by its seed."""

from __future__ import annotations

from typing import Any

import numpy as np

NUM_ROWS = 500
GENERATOR = np.random.default_rng(1)
HOUR = GENERATOR.integers(0, 24, NUM_ROWS).astype(np.int8)
DISTANCE = GENERATOR.gamma(2.0, 500.0, NUM_ROWS) + 1.0
CARRIER = np.array(["AA", "DL", "UA"])[GENERATOR.integers(0, 3, NUM_ROWS)]
LATE = GENERATOR.random(NUM_ROWS) < 0.4
ROWS: dict[str, Any] = {
    "late": LATE,
    "hour": HOUR,
    "distance": DISTANCE,
    "carrier": CARRIER,
    "air time": DISTANCE / 8 + GENERATOR.normal(size=NUM_ROWS),
    "exposure": GENERATOR.random(NUM_ROWS) + 0.5,
    "delay": GENERATOR.normal(10.0, 20.0, NUM_ROWS),
    "count": GENERATOR.poisson(2.0, NUM_ROWS),
}
IS_DL, IS_UA = (CARRIER == "DL").astype(float), (CARRIER == "UA").astype(float)
WIDE_HOUR = HOUR.astype(float)
