"""Shapes of answers: a flat vector seen as the nested dicts, lists and arrays its owner wrote.

A `Structure` is a plain value (no JAX), so that a saved result opens and prints without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Structure:
    """One node: a leaf with its shape, or a container with named children.

    >>> pair = Structure.container("dict", [("a", Structure.leaf(())), ("b", Structure.leaf((2,)))])
    >>> pair.build(np.array([1.0, 2.0, 3.0]))
    {'a': 1.0, 'b': array([2., 3.])}
    >>> list(pair.labels("mean"))
    ['mean.a', 'mean.b[0]', 'mean.b[1]']
    """

    kind: str
    shape: tuple[int, ...] = ()
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    @classmethod
    def leaf(cls, shape: tuple[int, ...]) -> Structure:
        return cls("leaf", shape=tuple(int(n) for n in shape))

    @classmethod
    def container(cls, kind: str, items: list[tuple[Any, Structure]]) -> Structure:
        return cls(kind, keys=tuple(k for k, _ in items), children=tuple(c for _, c in items))

    @classmethod
    def of(cls, tree: Any) -> Structure:
        """The structure of nested dicts, lists, tuples and None with arrays at the leaves.

        Other containers are shown as a dict from the path of each leaf to the leaf.
        """
        if tree is None:
            return cls("none")
        if type(tree) is dict:
            return cls.container("dict", [(k, cls.of(tree[k])) for k in sorted(tree)])
        if type(tree) in (list, tuple):
            return cls.container(type(tree).__name__, [(i, cls.of(child)) for i, child in enumerate(tree)])
        if isinstance(tree, np.ndarray | np.generic | bool | int | float | complex):
            return cls.leaf(np.shape(tree))
        import jax

        leaves = jax.tree_util.tree_leaves_with_path(tree)
        if len(leaves) == 1 and not leaves[0][0]:
            return cls.leaf(np.shape(tree))
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
        return cls.container("dict", [(name, cls.of(leaf)) for name, (_, leaf) in zip(names, leaves, strict=True)])

    @cached_property
    def size(self) -> int:
        """Number of scalars in the flat vector."""
        if self.kind == "leaf":
            return prod(self.shape)
        return sum(child.size for child in self.children)

    def build(self, flat: Any, number: Callable[[Any], Any] = lambda each: each.item()) -> Any:
        """Give a flat vector this structure; scalars come back as Python numbers, or as what `number` makes of them."""
        if self.kind == "none":
            return None
        if self.kind == "leaf":
            return number(flat[0]) if self.shape == () else flat.reshape(self.shape)
        parts, start = [], 0
        for child in self.children:
            parts.append(child.build(flat[start : start + child.size], number))
            start += child.size
        if self.kind == "dict":
            return dict(zip(self.keys, parts, strict=True))
        return tuple(parts) if self.kind == "tuple" else parts

    def leaves(self, tree: Any) -> Iterator[Any]:
        """The leaves of a tree that has this structure, in its order (JAX sorts the keys of a dict)."""
        if self.kind == "leaf":
            yield tree
        for key, child in zip(self.keys, self.children, strict=True):
            yield from child.leaves(tree[key])

    def labels(self, prefix: str) -> Iterator[str]:
        """A name for every scalar, in flat order."""
        if self.kind == "leaf" and not self.shape:
            yield prefix
        elif self.kind == "leaf":
            for index in np.ndindex(self.shape):
                yield f"{prefix}[{','.join(map(str, index))}]"
        for key, child in zip(self.keys, self.children, strict=True):
            name = f"{prefix}.{key}" if self.kind == "dict" else f"{prefix}[{key}]"
            yield from child.labels(name)
