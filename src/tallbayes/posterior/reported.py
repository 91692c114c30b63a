"""Readers: u to what is reported, in JAX, for the functions that a posterior is asked about afterwards.

A run in this process has its `Target`. What was stored has a `Reading`; a `StoredReader` does the same from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.model import constraints
from tallbayes.model.groups.terms import EffectTerm, Stretched, scales_and_correlations
from tallbayes.model.model import Target
from tallbayes.model.smooths import Smoothed, scale_name
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import STRETCHED, Entries, Part, Reading, ScaleCurve
from tallbayes.structure import Structure

FEW_COLUMNS = 512


@dataclass(frozen=True)
class StoredReader:
    """What a `Target` is asked for here, from the parts of a reading; its arrays are the units."""

    parts: tuple[Part, ...]
    structure: Structure = field(compare=True)
    curves: tuple[tuple[int, int, int], ...] = ()

    reports_itself = False
    reports_linearly = False

    @property
    def dimension(self) -> int:
        return sum(part.size for part in self.parts)

    def theta(self, vector: jax.Array) -> jax.Array:
        """theta, flat."""
        pieces, start = [], 0
        for part in self.parts:
            free = vector[start : start + part.size].reshape(part.shape)
            pieces.append(jnp.ravel(free if part.kind == STRETCHED else _constraint(part).constrain(free)))
            start += part.size
        flat, start = jnp.concatenate(pieces), 0
        for part in self.parts:
            if part.kind == STRETCHED:
                flat = jax.lax.dynamic_update_slice_in_dim(flat, _stretched(part, flat, start), start, 0)
            start += part.theta_size
        return flat

    def reported(self, vector: jax.Array, units: Any) -> Any:
        flat = self.theta(vector)
        if units is not None:
            terms = units["value"].astype(flat.dtype) * flat[units["column"]]
            theta = flat
            flat = units["offset"].astype(flat.dtype) + jax.ops.segment_sum(terms, units["row"], self.structure.size)
            for places, matrix in zip(self.curves, units["matrices"], strict=True):
                curved = _curved(places, theta, matrix.astype(flat.dtype))
                flat = jax.lax.dynamic_update_slice_in_dim(flat, curved, places[0], 0)
        return self.structure.build(flat, number=lambda each: each)


def reader_of(reading: Reading) -> tuple[StoredReader, Any]:
    """A reader and its units."""
    units: dict[str, Any] | None = None
    if reading.entries is not None:
        entries = reading.entries
        offset = np.zeros(reading.structure.size) if reading.offset is None else reading.offset
        units = {"row": entries.row, "column": entries.column, "value": entries.value, "offset": offset}
        units["matrices"] = [curve.matrix for curve in reading.curves]
    places = tuple((curve.row, curve.scales, curve.correlations) for curve in reading.curves)
    return StoredReader(reading.parts, reading.structure, places), units


def reading_of(target: Target, units: Any) -> Reading | None:
    """The same as plain numbers; None where a constraint is its owner's own, or the report is not affine in theta."""
    leaves = zip(target.space.constraints, target.space.shapes, strict=True)
    parts = tuple(part for constraint, shape in leaves for part in _parts(target, constraint, shape))
    if any(part is None for part in parts):
        return None
    if target.report is None and target.order is None:
        return Reading(target.structure, parts)  # type: ignore[arg-type]
    size = sum(
        np.size(leaf) for leaf in jax.tree.leaves(jax.eval_shape(target.space.theta, np.zeros(target.dimension)))
    )
    with jax.enable_x64(True):
        curves = _curves_of(target, units)
        # Partial correlations are below 1.
        points = np.stack([np.zeros(size), np.linspace(0.2, 0.8, size) if curves else np.linspace(0.5, 1.5, size)])
        offset, elsewhere = (np.array(_reported(target, point, units)) for point in points)
        row, column, value = _entries(target, size, offset, units)
        told = offset + np.bincount(row, value * points[1][column], len(offset))
        for curve in curves:
            offset[curve.rows], straight = 0.0, ~np.isin(row, curve.rows)
            row, column, value = row[straight], column[straight], value[straight]
            places = curve.row, curve.scales, curve.correlations
            told[curve.rows] = _curved_by_itself(places, points[1], curve.matrix)
    if not np.allclose(elsewhere, told, rtol=1e-9, atol=1e-9 * np.abs(value).max(initial=0.0)):
        return None
    entries = Entries(row.astype(np.int32), column.astype(np.int32), value)
    return Reading(target.structure, parts, entries, offset, curves)  # type: ignore[arg-type]


def _curves_of(target: Target, units: Any) -> tuple[ScaleCurve, ...]:
    """Of a mixed model by a formula, the scales and correlations of effects that are correlated."""
    if target.integrated is None or not isinstance(units, dict) or "effects" not in units:
        return ()
    sizes, first = _columns(target)
    matrices = [np.asarray(each, np.float64) for each in units["effects"]]
    counts = [len(m) + sizes.get(f"correlations{t}", 0) for t, m in enumerate(matrices)]
    assert target.structure is not None
    after = sum(size for name, size in sizes.items() if name.startswith("effects"))
    row, found = target.structure.size - after - sum(counts), []
    for t, (matrix, count) in enumerate(zip(matrices, counts, strict=True)):
        if f"correlations{t}" in sizes:
            found.append(ScaleCurve(row, first[f"scales{t}"], first[f"correlations{t}"], matrix))
        row += count
    return tuple(found)


def _columns(target: Target) -> tuple[dict[str, int], dict[str, int]]:
    """By name, how many numbers of theta there are, and at which place the first of them is."""
    theta = jax.eval_shape(target.space.theta, np.zeros(target.dimension))
    sizes = {str(path[0].key): np.size(leaf) for path, leaf in jax.tree.leaves_with_path(theta)}
    return sizes, dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))


def _parts(target: Target, constraint: Any, shape: tuple[int, ...]) -> list[Part | None]:
    """Of a leaf of theta: one, but of coefficients some of which are those of smooths."""
    if isinstance(constraint, Stretched):
        return [_stretched_part(target, constraint, shape)]
    if not isinstance(constraint, Smoothed):
        return [_part(constraint, shape)]
    first, found, start = _columns(target)[1], [], 0
    for place, term in enumerate(constraint.terms):
        # An effect of one number for every coefficient, whose scale is the smooth's.
        numbers = float(first[scale_name(place)]), -1.0, -1.0 if term.noise is None else float(first[term.noise])
        plain = Part("real", (), (term.places.start - start,))
        found += [plain, Part(STRETCHED, (*numbers, *term.information), (len(term.information), 1))]
        start = term.places.stop
    found.append(Part("real", (), (shape[0] - start,)))
    return [part for part in found if part.size]


def _stretched_part(target: Target, effects: Stretched, shape: tuple[int, ...]) -> Part:
    """Effects by level: the places of their scales, correlations and noise in theta, -1 for none, then C."""
    term, first = effects.term, _columns(target)[1]
    wanted = f"scales{effects.place}", f"correlations{effects.place}", term.noise
    places = [float(first.get(name, -1)) if name is not None else -1.0 for name in wanted]
    return Part(STRETCHED, (*places, *term.information), shape)


def _stretched(part: Part, theta: jax.Array, start: int) -> jax.Array:
    """Effects as they are reported, of a flat theta that has their place in R^d from `start` on."""
    scales, correlations, noise = (int(each) for each in part.numbers[:3])
    levels, size = part.shape
    own = {"scales0": theta[scales : scales + size]}
    if correlations >= 0:
        own["correlations0"] = theta[correlations : correlations + size * (size - 1) // 2]
    if noise >= 0:
        own["noise"] = theta[noise]
    name = "noise" if noise >= 0 else None
    term = EffectTerm("", size, correlations >= 0, levels=levels, information=part.numbers[3:], noise=name)
    free = theta[start : start + part.size].reshape(part.shape)
    return jnp.ravel(Stretched(term, 0).constrain(free, own))


def _curved(places: tuple[int, int, int], theta: jax.Array, matrix: Any) -> jax.Array:
    """Scales and correlations as they are reported, of a flat theta."""
    size, (_, scales, correlations) = len(matrix), places
    own = {"scales0": theta[scales : scales + size]}
    own["correlations0"] = theta[correlations : correlations + size * (size - 1) // 2]
    return jnp.concatenate(scales_and_correlations(EffectTerm("", size), own, 0, matrix))


_curved_by_itself = jax.jit(_curved, static_argnums=0)


def _entries(target: Target, size: int, offset: Floats, units: Any) -> tuple[np.ndarray, np.ndarray, Floats]:
    """Rows, columns and values of the report's matrix where it is not zero, row by row; some columns at a time."""
    found = []
    for first in range(0, size, FEW_COLUMNS):
        flats = np.eye(min(FEW_COLUMNS, size - first), size, first)
        matrix = np.asarray(_reported_columns(target, flats, units)).T - offset[:, None]
        row, column = np.nonzero(matrix)
        found.append((row, first + column, matrix[row, column]))
    row, column, value = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((column, row))
    return row[order], column[order], value[order]


@partial(jax.jit, static_argnums=0)
def _reported(target: Target, flat: jax.Array, units: Any) -> jax.Array:
    """What is reported of a flat theta (not u), in the order of the structure."""
    theta = jax.eval_shape(target.space.theta, jnp.zeros(target.dimension, flat.dtype))
    leaves, treedef = jax.tree.flatten(theta)
    parts, start = [], 0
    for leaf in leaves:
        parts.append(flat[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    tree = jax.tree.unflatten(treedef, parts)
    if target.flat_report is not None:
        return jnp.asarray(target.flat_report(tree, units)).astype(flat.dtype)
    out = jax.tree.leaves(tree if target.report is None else target.report(tree, units))
    out = out if target.order is None else [out[place] for place in target.order]
    return jnp.concatenate([jnp.ravel(leaf).astype(flat.dtype) for leaf in out])


@partial(jax.jit, static_argnums=0)
def _reported_columns(target: Target, flats: jax.Array, units: Any) -> jax.Array:
    return jax.vmap(lambda flat: _reported(target, flat, units))(flats)


def _part(constraint: Any, shape: tuple[int, ...]) -> Part | None:
    if isinstance(constraint, constraints.Interval):
        return Part("interval", (constraint.lower, constraint.upper), shape)
    if isinstance(constraint, constraints.HalfNormal):
        return Part("half_normal", (constraint.scale,), shape)
    for kind in _KINDS:
        if constraint == getattr(constraints, kind):
            return Part(kind, (), shape)
    return None


_KINDS = ("real", "positive", "simplex", "ordered", "correlation")


def _constraint(part: Part) -> constraints.Constraint:
    made = getattr(constraints, part.kind)
    return made(*part.numbers) if part.numbers else made
