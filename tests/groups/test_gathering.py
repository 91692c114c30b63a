"""Units of rows on disk, which are those of the same rows in memory; and what is left of their files."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import DataError
from tallbayes.groups import gathering
from tallbayes.groups.placing import Gathered, gather
from tallbayes.model.groups.mixed import EffectTerm, with_effects
from tallbayes.rows.on_disk import Stored

ROWS, GROUPS = 400, 23
WEIGHTS = "w"
TOLERANCE = 0.1


def rows(family: str = "poisson") -> dict[str, np.ndarray]:
    """Groups of very different size, numbered with gaps."""
    rng = np.random.default_rng(3)
    code = np.minimum(rng.geometric(0.12, ROWS) - 1, GROUPS - 1)
    code[:GROUPS] = np.arange(GROUPS)
    x, effects = rng.standard_normal((ROWS, 2)).astype(np.float32), 0.5 * rng.standard_normal(GROUPS)
    eta = 0.4 + x @ [0.3, -0.2] + effects[code]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else eta + rng.standard_normal(ROWS)
    weights = rng.integers(1, 4, ROWS).astype(np.float32)
    return {"x": x, "y": y.astype(np.float32), "g": (7 * code + 3).astype(np.int32), WEIGHTS: weights}


def model(family: str = "poisson") -> tb.Model:
    return with_effects(tb.families.FAMILIES[family](intercept_scale=2.0), EffectTerm("g"))


def stored(folder: Path, data: dict[str, np.ndarray]) -> Stored:
    """In the order they come."""
    return tb.write_table(folder / "rows.table", data, shuffled=True)


def both(folder: Path, family: str, weighted: bool) -> tuple[Gathered, Gathered]:
    data = rows(family)
    weights = data[WEIGHTS] if weighted else None
    plain = {name: each for name, each in data.items() if name != WEIGHTS}
    here = gather(model(family), plain, weights)
    there = gather(model(family), stored(folder, data if weighted else plain), WEIGHTS if weighted else None)
    return here, there


@pytest.mark.parametrize("weighted", [False, True])
def test_units_on_disk_are_those_in_memory(weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, however many chunks and buckets there are, but for the order of the groups."""
    monkeypatch.setattr(gathering, "CHUNK_ROWS", 57)
    monkeypatch.setattr(gathering, "buckets_for", lambda size: 5)
    here, there = both(tmp_path, "poisson", weighted)
    assert there.stored is not None
    assert there.stored.num_rows == GROUPS
    order = there.units["group"]
    assert np.any(np.diff(order) < 0)
    expected = jax.tree.map(lambda array: np.asarray(array)[order], here.units)
    assert set(there.units) == set(expected)
    # A chunk at a time a row weighs by a sample, here of all rows.
    for name, array in expected["rows"].items():
        np.testing.assert_array_equal(there.units["rows"][name], array)
    for name in ("count", "group", "information", "centre", "slope", "root"):
        np.testing.assert_array_equal(there.units[name], expected[name])
    np.testing.assert_array_equal(there.grouping.levels, here.grouping.levels)
    np.testing.assert_array_equal(there.grouping.counts, here.grouping.counts)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_do_not_depend_on_chunks(weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "CHUNK_ROWS", 57)
    here, there = both(tmp_path, "linear", weighted)
    assert there.stored is None
    for name, array in here.units.items():
        np.testing.assert_array_equal(there.units[name], array)
    y, g = rows("linear")["y"].astype(float), rows("linear")["g"]
    w = rows("linear")[WEIGHTS].astype(float) if weighted else np.ones(ROWS)
    first = g == there.grouping.levels[0]
    np.testing.assert_allclose(there.units["sums"][0, -1, -1], np.sum((w * y**2)[first]), rtol=1e-12)


def test_rows_on_disk_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "CHUNK_ROWS", 57)
    data = {name: each for name, each in rows().items() if name != WEIGHTS}
    wrong = data["y"].copy()
    wrong[300] = -1.0
    with pytest.raises(DataError, match=r"counts|whole"):
        gather(model(), stored(tmp_path, {**data, "y": wrong}))
    with pytest.raises(tb.InputError, match="name of an array"):
        gather(model(), tb.open_table(tmp_path / "rows.table"), "v")


def test_what_does_not_fit_on_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {name: each for name, each in rows().items() if name != WEIGHTS}
    table = stored(tmp_path, data)
    monkeypatch.setattr(gathering.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10_000})())
    with pytest.raises(DataError, match="largest groups"):
        gather(model(), table)
    gc.collect()
    assert units_beside(tmp_path) == []


def units_beside(folder: Path) -> list[Path]:
    return list(folder.rglob(".tallbayes-*"))


def test_units_go_with_the_last_who_holds_them(tmp_path: Path) -> None:
    data = {name: each for name, each in rows().items() if name != WEIGHTS}
    gathered = gather(model(), stored(tmp_path, data))
    grouping = gathered.grouping
    del gathered
    gc.collect()
    (folder,) = units_beside(tmp_path)
    assert (folder / "units" / "table.json").is_file()
    assert list(folder.glob("*.bucket")) == []
    del grouping
    gc.collect()
    assert units_beside(tmp_path) == []


@pytest.mark.slow
def test_a_fit_from_disk_is_one_from_memory_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Up to the order in which groups are added up: a hundredth of the stated errors."""
    whole, some = rows(), few(rows()["g"])
    data = {name: each[some] for name, each in whole.items() if name != WEIGHTS}
    results = [tb.estimate(model(), each, tolerance=TOLERANCE, seed=1) for each in (data, stored(tmp_path, data))]
    here, there = results
    for quantity in ("mean", "sd"):
        apart = worst_apart(here, there, quantity)
        assert apart < 0.01
    one, other = here.effects(), there.effects()
    assert one.levels == other.levels
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_allclose(one.raw, other.raw, rtol=1e-5)
    assert np.max(np.abs(one.mean - other.mean) / one.mean_error) < 0.05
    assert len(units_beside(tmp_path)) == 1
    del there, other, results
    gc.collect()
    assert units_beside(tmp_path) == []


def few(groups: np.ndarray, most: int = 4) -> np.ndarray:
    """The first rows of every group."""
    return np.array([place for place, each in enumerate(groups) if np.sum(groups[:place] == each) < most])


def worst_apart(one: tb.Result, other: tb.Result, quantity: str) -> float:
    def flat(part: Any) -> np.ndarray:
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(part)])

    mine, theirs = one[quantity], other[quantity]
    return float(
        np.max(
            np.abs(flat(mine.value) - flat(theirs.value)) / np.hypot(flat(mine.standard_error), flat(mine.bias_bound))
        )
    )
