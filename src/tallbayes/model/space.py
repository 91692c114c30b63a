"""Spaces: a flat vector u in R^d seen as the pytree theta its owner wrote, constraints and all.

theta = c(u) leaf by leaf,   log |d theta / d u| = the sum over leaves

Effects by level and the coefficients of smooths are made of their own part of u and of scales in theta
(`groups.terms.Stretched`, `smooths.Smoothed`): they come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model.constraints import Constraint, Real
from tallbayes.model.groups.terms import Stretched
from tallbayes.model.smooths import Smoothed
from tallbayes.programs.later import jax, jnp


@dataclass(frozen=True)
class Space:
    """The leaves of theta: how they are put together, their shapes in R^d and their constraints."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    constraints: tuple[Constraint | Stretched | Smoothed, ...]

    @property
    def dimension(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    @property
    def is_free(self) -> bool:
        """Whether theta is u, but for its shape."""
        return all(isinstance(constraint, Real) for constraint in self.constraints)

    def labels(self) -> list[str]:
        """A name for every entry of the flat vector: of the leaf it belongs to, and its place there."""
        numbered = jax.tree.unflatten(self.treedef, range(len(self.shapes)))
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(numbered)]
        names = [jax.tree_util.keystr(path, simple=True, separator=".") or "theta" for path in paths]
        return [
            name + (f"[{','.join(map(str, index))}]" if index else "")
            for name, shape in zip(names, self.shapes, strict=True)
            for index in np.ndindex(shape)
        ]

    def paths(self) -> list[str]:
        """The same as their owner would write them: theta["slope"][3]."""
        numbered = jax.tree.unflatten(self.treedef, range(len(self.shapes)))
        leaves = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(numbered)]
        return [
            f"theta{leaf}".replace("'", '"') + (f"[{', '.join(map(str, index))}]" if index else "")
            for leaf, shape in zip(leaves, self.shapes, strict=True)
            for index in np.ndindex(shape)
        ]

    def theta(self, vector: jax.Array | np.ndarray, levels: Mapping[str, Any] | None = None) -> Any:
        """The pytree; where effects are those of some levels alone, `levels` are these by name."""
        pairs = zip(self.constraints, self._parts(vector), strict=True)
        leaves = [
            part if isinstance(each, Real | Stretched | Smoothed) else each.constrain(part) for each, part in pairs
        ]
        theta = jax.tree.unflatten(self.treedef, leaves)
        for each in self._stretched:
            own = None if levels is None else levels.get(each.name)
            theta = {**theta, each.name: each.constrain(theta[each.name], theta, own)}
        return theta

    def log_jacobian(self, vector: jax.Array) -> Any:
        """log |d theta / d u|."""
        pairs = zip(self.constraints, self._parts(vector), strict=True)
        by_leaf = [each.log_jacobian(part) for each, part in pairs if not isinstance(each, Real | Stretched | Smoothed)]
        if not self._stretched:
            return sum(by_leaf)
        theta = self.theta(vector)
        return sum(by_leaf) + sum(each.log_jacobian(theta) for each in self._stretched)

    @property
    def _stretched(self) -> list[Stretched | Smoothed]:
        return [each for each in self.constraints if isinstance(each, Stretched | Smoothed)]

    def _parts(self, vector: jax.Array | np.ndarray) -> list[Any]:
        parts, offset = [], 0
        for shape in self.shapes:
            parts.append(vector[offset : offset + prod(shape)].reshape(shape))
            offset += prod(shape)
        return parts


def make_space(initial: Any, constraints: Any) -> tuple[Space, np.ndarray]:
    """The space of these start values, and the flat vector that they are."""
    leaves, treedef = jax.tree.flatten(initial)
    if not leaves:
        raise ModelError(explain("initial to hold at least one parameter", repr(initial), "pass start values"))
    try:
        values = [np.asarray(leaf, np.float64) for leaf in leaves]
    except (TypeError, ValueError) as error:
        raise ModelError(explain("start values that are numbers", repr(initial), "zeros, or a rough guess")) from error
    if not all(np.all(np.isfinite(value)) for value in values):
        raise ModelError(explain("finite start values", f"{initial}", "zeros, or a rough guess"))
    by_leaf = _spread(constraints, initial, "constraints")
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(initial)]
    for path, each, value in zip(paths, by_leaf, values, strict=True):
        each.require(f"initial{path}", value)
    shapes = tuple(tuple(each.free_shape(value.shape)) for each, value in zip(by_leaf, values, strict=True))
    with jax.enable_x64(True):
        free = [np.ravel(np.asarray(each.unconstrain(value))) for each, value in zip(by_leaf, values, strict=True)]
    return Space(treedef, shapes, tuple(by_leaf)), np.concatenate(free).astype(np.float64)


def _spread(constraint: Any, tree: Any, name: str) -> list[Any]:
    """A constraint for every leaf below: None is none, one holds for all below it, a dict may leave out keys."""
    if constraint is None or hasattr(constraint, "log_jacobian"):
        return [constraint or Real()] * len(jax.tree.leaves(tree))
    if isinstance(constraint, dict) and isinstance(tree, dict):
        unknown = sorted(set(constraint) - set(tree), key=str)
        if not unknown:
            return [
                each for key in sorted(tree) for each in _spread(constraint.get(key), tree[key], f"{name}[{key!r}]")
            ]
        raise ModelError(explain(f"{name} of {sorted(tree, key=str)}", f"{unknown}", "the names that `initial` has"))
    if isinstance(constraint, list | tuple) and isinstance(tree, list | tuple) and len(constraint) == len(tree):
        pairs = enumerate(zip(constraint, tree, strict=True))
        return [each for i, (part, below) in pairs for each in _spread(part, below, f"{name}[{i}]")]
    raise ModelError(
        explain(
            f"{name} shaped like `initial`, of values such as tb.constraints.positive",
            repr(constraint),
            '{"scale": tb.constraints.positive}',
        )
    )


def shaped(tree: Any) -> Any:
    """Empty arrays in the place of abstract ones."""
    return jax.tree.map(lambda leaf: np.empty(jnp.shape(leaf)), tree)
