"""The effects of a run's groups, and the groups as a prediction reads them, found when they are first asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.groups.units import Grouping, by_place, places_of_groups
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.model import Target
from tallbayes.posterior.effects import effects_of
from tallbayes.posterior.posterior import Posterior
from tallbayes.programs.later import jax
from tallbayes.results.groups.effects import NUMBERS, Effects, EffectSource
from tallbayes.results.parts import Factor
from tallbayes.rows.table import by_blocks
from tallbayes.setup.preparation import Placed, Prepared

if TYPE_CHECKING:
    from tallbayes.groups.known import KnownGroups


def effect_source(posterior: Posterior | None, prepared: Prepared) -> EffectSource | None:
    """None where there are no groups, or no posterior was kept."""
    if posterior is None or prepared.target.integrated is None or prepared.grouping is None:
        return None
    return EffectSource(partial(_find, posterior, prepared), gather=partial(known_groups, prepared))


def factors_of(prepared: Prepared) -> tuple[Factor, ...]:
    """The factor whose effects are integrated out; none where there are no groups."""
    target, grouping = prepared.target, prepared.grouping
    if target.integrated is None or grouping is None:
        return ()
    counts, nodes = grouping.counts, target.integrated.nodes
    sizes = int(counts.min()), float(np.median(counts)), int(counts.max())
    error = prepared.integral_error
    return (Factor(grouping.by, _names(target), len(counts), int(counts.sum()), *sizes, nodes, error),)


def _find(posterior: Posterior, prepared: Prepared) -> tuple[Effects, ...]:
    target, grouping, units = prepared.target, prepared.grouping, units_of(prepared)
    assert target.integrated is not None
    found = effects_of(posterior, target, units)
    order, size = places_of_groups(units), target.integrated.size
    kept = (*NUMBERS, "within")
    own: dict[str, Any] = {name: getattr(found, name).reshape(-1, size)[order] for name in kept}
    return (
        Effects(
            by=grouping.by,
            levels=_levels(target, grouping),
            names=_names(target),
            counts=grouping.counts.astype(np.float64),
            raw=raw_means(units)[order],
            **own,
        ),
    )


def known_groups(prepared: Prepared | Placed) -> KnownGroups:
    """The groups of a fit, by what their column holds."""
    from tallbayes.groups.known import KnownGroups

    integrated, units = prepared.target.integrated, units_of(prepared)
    assert integrated is not None
    return KnownGroups(integrated.integral, units, prepared.grouping.levels, places_of_groups(units))


def units_of(prepared: Prepared | Placed) -> Any:
    """Without padding."""
    table = prepared.table
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: table.num_rows], table.rows)


def _levels(target: Target, grouping: Grouping) -> tuple[Any, ...]:
    assert target.integrated is not None
    names = target.integrated.integral.groups.levels
    found = tuple(each.item() if hasattr(each, "item") else each for each in grouping.levels)
    return found if names is None else tuple(names[each] for each in found)


def _names(target: Target) -> tuple[str, ...]:
    assert target.integrated is not None
    groups, size = target.integrated.integral.groups, target.integrated.size
    return groups.names or (("effect",) if size == 1 else tuple(f"effect[{k}]" for k in range(size)))


def raw_means(units: Any) -> np.ndarray:
    """The mean response of every group, by its place among all places for groups."""
    if "raw" in units:
        return np.asarray(units["raw"], np.float64)
    rows, count = units["rows"], by_place(units, np.asarray(units["count"]))
    if not isinstance(rows, dict) or "y" not in rows or np.ndim(rows["y"]) != 2:
        return np.full(len(count), np.nan)
    if is_bundle(units):
        return _raw_sums_of_bundles(units) / np.maximum(count, 1)
    places = np.arange(rows["y"].shape[1])

    def mean(start: int, stop: int) -> np.ndarray:
        y, own = np.asarray(rows["y"][start:stop], np.float64), count[start:stop]
        return np.sum(np.where(places < own[:, None], y, 0.0), axis=1) / np.maximum(own, 1)

    return np.concatenate(by_blocks(mean, rows["y"]))


def _raw_sums_of_bundles(units: Any) -> np.ndarray:
    """Sums of the response by place."""
    strip, filled = (np.asarray(units[name]) for name in ("strip", "filled"))
    slots, found = units["group"].shape[1], []
    for y, own, count in zip(units["rows"]["y"], strip, filled, strict=True):
        parts = np.asarray(y, np.float64).reshape(len(own), -1)
        sums = np.sum(np.where(np.arange(parts.shape[1]) < count[:, None], parts, 0.0), axis=1)
        found.append(np.bincount(own, sums, slots))
    return np.concatenate(found)
