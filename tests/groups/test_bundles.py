"""Several groups to a unit: the same log posterior, the same nodes and the same effects as of a unit each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.expansion import expand
from tallbayes.groups import bundling
from tallbayes.groups.bundling import plan_units
from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.placing import gather
from tallbayes.groups.units import by_place, one_group_each, places_of_groups
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.setup.preparation import place

SIZES = np.array([41, 1, 2, 30, 1, 7, 3, 1, 16, 5, 1, 1, 9, 2, 1, 1, 1, 4, 1, 1])


@pytest.fixture(autouse=True)
def however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "FEW_PLACES", 0)


def rows(family: str, size: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    code = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    x = rng.normal(size=(len(code), 2))
    eta = x @ [0.5, -0.4] + 0.8 * rng.normal(size=len(SIZES))[code]
    y = {"linear": eta + rng.normal(size=len(eta)), "poisson": rng.poisson(np.exp(eta))}
    binary = (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    z = np.column_stack([np.ones(len(code)), x[:, 0]])[:, :size]
    return {"x": x, "y": y.get(family, binary).astype(float), "z0": z, "g": code}


def placed(family: str, size: int, closed: bool, weights: Any = None) -> Any:
    """With nodes at the start values, which are as good as any."""
    model = with_effects(getattr(tb.families, family)(), EffectTerm("g", size))
    # Of rows, not of sums by group.
    closed_form = model.groups.closed
    made = (lambda groups: replace(closed_form(groups), is_crossed=True)) if closed else None
    model = replace(model, groups=replace(model.groups, nodes=9, closed=made))
    gathered = gather(model, rows(family, size), weights)
    found = place(gathered.model, gathered.units, "float64", True, None, gathered.bound)
    vector = found.start + 0.1
    table = found.table
    if "root" in table.rows:
        table = replace(table, rows=with_nodes(table, find_nodes(found.target, table, vector)))
    return found.target, table, vector


def units_of(table: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: table.num_rows], table.rows)


@pytest.mark.parametrize(
    ("family", "size", "closed"),
    [
        ("poisson", 2, False),
        pytest.param("logistic", 1, False, marks=pytest.mark.slow),
        pytest.param("linear", 2, True, marks=pytest.mark.slow),
    ],
)
def test_bundles_have_the_log_posterior_of_their_groups(
    family: str, size: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.random.default_rng(0).integers(0, 3, SIZES.sum()).astype(float) if family == "poisson" else None
    target, table, vector = placed(family, size, closed, weights)
    assert is_bundle(table.rows)
    assert table.capacity * jax.tree.leaves(table.rows["rows"])[0].shape[1] < 2 * SIZES.sum()
    monkeypatch.setattr(bundling, "PADDED", np.inf)
    alone, plain, _ = placed(family, size, closed, weights)
    assert not is_bundle(plain.rows)
    for there in (vector, vector + 0.1):
        found, wanted = (expand(*pair, there) for pair in ((target, table), (alone, plain)))
        assert np.isclose(found.value, wanted.value, rtol=1e-9)
        np.testing.assert_allclose(found.gradient, wanted.gradient, atol=1e-6)
        np.testing.assert_allclose(found.hessian, wanted.hessian, atol=1e-6)
    # The control: a group that is left out is missed.
    lost = dict(table.rows) | {"group": np.where(np.asarray(table.rows["group"]) == 3, -1, table.rows["group"])}
    assert not np.isclose(expand(target, replace(table, rows=lost), vector).value, wanted.value, rtol=1e-3)
    bundles, groups = units_of(table), units_of(plain)
    order = places_of_groups(bundles), places_of_groups(groups)
    if not closed:
        for name in ("centre", "slope", "root", "information"):
            pair = (by_place(each, each[name])[own] for each, own in zip((bundles, groups), order, strict=True))
            # Newton ends where a step is no more than 1e-5 sds.
            np.testing.assert_allclose(*pair, atol=1e-4)
    with jax.enable_x64(True):
        theta = jax.jit(target.space.theta)(vector)
        own = [one.integrated.integral for one in (target, alone)]
        found = jax.jit(jax.vmap(lambda unit: own[0].moments(theta, vector, unit)))(bundles)
        wanted = jax.jit(jax.vmap(lambda unit: own[1].moments(theta, vector, unit)))(groups)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.reshape(ours, (-1, size))[order[0]], theirs[order[1]], atol=1e-6)


def test_groups_of_bundles_are_taken_out_one_by_one() -> None:
    target, table, vector = placed("logistic", 1, False)
    units = units_of(table)
    places = places_of_groups(units)
    alone = one_group_each(units, places, 64)
    np.testing.assert_array_equal(alone["group"], np.arange(len(SIZES)))
    np.testing.assert_array_equal(alone["count"], SIZES)
    with jax.enable_x64(True):
        theta, integral = jax.jit(target.space.theta)(vector), target.integrated.integral
        each = jax.jit(jax.vmap(lambda unit: integral(theta, vector, unit)))
        assert np.isclose(np.sum(each(alone)), np.sum(each(units)), rtol=1e-12)


@pytest.mark.parametrize(
    "sizes",
    [
        SIZES,
        np.r_[5_000, np.ones(300, int)],
        np.random.default_rng(0).zipf(1.6, 3_000).clip(1, 10_000),
        np.arange(1, 90),
    ],
)
def test_every_row_has_a_place_of_its_own(sizes: np.ndarray) -> None:
    plan = plan_units(sizes)
    assert not plan.is_plain
    rng = np.random.default_rng(1)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    index, strips = plan.index(codes), plan.in_strips()
    inside = np.arange(plan.strip) < strips["filled"][..., None]
    assert np.array_equal(np.sort(index.reshape(inside.shape)[inside]), np.arange(len(codes)))
    # Whose strip it is, whose rows are in it, and padding too.
    groups = plan.at_places(np.arange(len(sizes)), empty=-1)
    whose = np.take_along_axis(groups, strips["strip"], axis=1)
    used = strips["filled"] > 0
    assert np.all(codes[index.reshape(inside.shape)][used] == whose[used][:, None])
    # In parts, as units on disk are written.
    middle = plan.units // 2
    halves = [np.flatnonzero((plan.unit[codes] < middle) == first) for first in (True, False)]
    for some, (start, stop) in zip(halves, ((0, middle), (middle, plan.units)), strict=True):
        np.testing.assert_array_equal(some[plan.index(codes[some], start, stop)], index[start:stop])


def test_uneven_groups_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    data = rows("logistic", 1)
    model = with_effects(tb.families.logistic(), EffectTerm("g"))
    stored = tb.write_table(tmp_path / "rows", data)
    memory, disk = gather(model, data), gather(model, stored)
    own, other = memory.units, disk.units
    assert is_bundle(own)
    assert is_bundle(other)
    for units in (own, other):
        places = places_of_groups(units)
        alone = one_group_each(jax.tree.map(np.asarray, units), places, 64)
        inside = np.arange(64) < alone["count"][:, None]
        sums = [np.sum(np.where(inside, alone["rows"]["x"][..., k], 0), axis=1) for k in range(2)]
        wanted = [np.bincount(data["g"], data["x"][:, k]) for k in range(2)]
        np.testing.assert_allclose(sums, wanted, atol=1e-5)
