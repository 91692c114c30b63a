"""What examples in docstrings share: the result of `Result`'s own, and a folder to write to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHARING = (
    "results/questions/",
    "results/result.py",
    "results/result_file.py",
    "estimator/estimates.py",
    "evidence/evidence.py",
    "leave_one_out/ranking.py",
    "rows/ingest.py",
    "rows/on_disk.py",
    "rows/writing.py",
)


@pytest.fixture(scope="session")
def example() -> Iterator[dict[str, Any]]:
    """As the docstring of `Result` has it; fitted when the first example asks for it."""
    import numpy as np

    import tallbayes as tb

    number = np.arange(200)
    hour, carrier = number % 24, np.array(["AA", "UA", "DL"])[number % 3]
    rows = {"late": 7 * number % 24 < hour, "hour": hour, "carrier": carrier}
    with tempfile.TemporaryDirectory() as folder:
        result = tb.fit("late ~ hour + carrier", rows, tolerance=0.1)
        yield {"tb": tb, "np": np, "rows": rows, "result": result, "folder": Path(folder)}


@pytest.fixture(autouse=True)
def _example_by_name(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    is_example = isinstance(request.node, pytest.DoctestItem)
    if is_example and any(each in request.path.as_posix() for each in SHARING):
        doctest_namespace.update(request.getfixturevalue("example"))
