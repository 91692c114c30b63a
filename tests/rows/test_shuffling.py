"""The shuffle: every order of the rows is equally likely, and the tests would see it if it were not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallbayes.rows import shuffling
from tallbayes.rows.shuffling import Deal


def shuffle(folder: Path, num_rows: int, num_buckets: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The order in which the rows 0, 1, ... come out."""
    monkeypatch.setattr(shuffling, "SHUFFLE_SEED", seed)
    folder.mkdir()
    deal = Deal(folder, 8, num_buckets)
    for part in np.array_split(np.arange(num_rows), 3):
        deal.add(part)
    deal.flush()
    blocks = [block.view(np.int64) for bucket in range(num_buckets) for block in deal.shuffled(bucket)]
    return np.concatenate(blocks)


def excess(counts: np.ndarray) -> float:
    """Pearson's chi-square against equal counts, in standard deviations of its law."""
    expected, degrees = counts.sum() / counts.size, counts.size - 1
    return float((np.sum((counts - expected) ** 2) / expected - degrees) / np.sqrt(2 * degrees))


# Chi-square with 399 degrees is near enough to normal that 6 sd are passed with probability 1e-6 at most, and that
# with 23 degrees passes 7.5 sd (73.9) with 3e-7; a Poisson(1) count passes 9 with 1e-7 each way.
MOST_SDS = {400: 6.0, 24: 7.5}
MOST_NEIGHBOURS = 9


def unevenness(order: np.ndarray) -> tuple[float, int]:
    """Where rows of each twentieth went, and how many rows still follow the one before them."""
    cells = (order * 20 // len(order)) * 20 + np.arange(len(order)) * 20 // len(order)
    return excess(np.bincount(cells, minlength=400)), int(np.sum(np.diff(order) == 1))


@pytest.mark.parametrize("parts", [False, True])
def test_every_place_is_equally_likely(parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if parts:
        monkeypatch.setattr(shuffling, "BUCKET_BYTES", 2**14)
        monkeypatch.setattr(shuffling, "LARGEST_BUCKET_BYTES", 2**15)
    order = shuffle(tmp_path / "buckets", 100_000, 7, 1, monkeypatch)
    assert sorted(order) == list(range(100_000))
    spread, neighbours = unevenness(order)
    assert spread < MOST_SDS[400]
    assert neighbours <= MOST_NEIGHBOURS


def test_a_shuffle_without_dealing_or_without_permuting_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shuffling, "_buckets", lambda above, start, count, num: (start + np.arange(count)) // 14_286)
        spread, _ = unevenness(shuffle(tmp_path / "blocks", 100_000, 7, 1, patch))
    assert spread > MOST_SDS[400]

    class Sorted:
        def __init__(self, _: Any) -> None: ...
        def shuffle(self, _: np.ndarray) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(np.random, "Generator", Sorted)
        _, neighbours = unevenness(shuffle(tmp_path / "sorted", 100_000, 7, 1, patch))
    assert neighbours > MOST_NEIGHBOURS


def test_every_order_of_four_rows_is_equally_likely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = [tuple(shuffle(tmp_path / str(seed), 4, 3, seed, monkeypatch)) for seed in range(1200)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert excess(counts) < MOST_SDS[24]


def test_buckets_depend_on_the_row_alone() -> None:
    whole = shuffling._buckets((), 0, 1000, 50)
    for start, stop in ((1, 2), (3, 900), (998, 1000)):
        np.testing.assert_array_equal(shuffling._buckets((), start, stop - start, 50), whole[start:stop])
