"""Flights in a file, for the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NUM_ROWS = 2000
FORMULA = "late ~ hour + C(carrier)"
NAMES = ["Intercept", "hour", "C(carrier)[T.DL]", "C(carrier)[T.UA]"]


def write_flights(folder: Path) -> Path:
    generator = np.random.default_rng(3)
    hour = generator.integers(0, 24, NUM_ROWS)
    carrier = np.array(["AA", "DL", "UA"])[generator.integers(0, 3, NUM_ROWS)]
    late = generator.random(NUM_ROWS) < 1 / (1 + np.exp(2.0 - 0.1 * hour - 0.3 * (carrier == "UA")))
    lines = [f"{'yes' if a else 'no'},{b},{c}" for a, b, c in zip(late, hour, carrier, strict=True)]
    path = folder / "flights.csv"
    path.write_text("\n".join(["late,hour,carrier", *lines]) + "\n")
    return path
