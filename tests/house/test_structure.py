"""Answers come back in the shape of what was asked, in the order in which JAX flattens it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallbayes.structure import Structure


@jax.tree_util.register_dataclass
@dataclass
class Regression:
    intercept: Any
    slopes: Any


class Gamma(NamedTuple):
    """A field called `shape` must not be taken for an array's."""

    shape: Any
    rate: Any


@jax.tree_util.register_pytree_node_class
class Stack:
    """A container that names nothing."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def tree_flatten(self) -> tuple[Any, None]:
        return self.items, None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Stack:
        return cls(*children)


SCALAR = np.float64(0.5)
TREES = {
    "python number": (2.5, ["q"]),
    "numpy scalar": (SCALAR, ["q"]),
    "array": (np.zeros((2, 3)), ["q[0,0]", "q[0,1]", "q[0,2]", "q[1,0]", "q[1,1]", "q[1,2]"]),
    "jax array": (jnp.zeros(2), ["q[0]", "q[1]"]),
    "dict": ({"b": np.zeros(2), "a": 1.0}, ["q.a", "q.b[0]", "q.b[1]"]),
    "list": ([1.0, np.zeros(1)], ["q[0]", "q[1][0]"]),
    "tuple": ((1.0, (2.0,)), ["q[0]", "q[1][0]"]),
    "none inside": ({"a": None, "b": 1.0}, ["q.b"]),
    "nested": (
        {"z": [np.zeros(2), {"y": 1.0, "x": (2.0, None)}], "a": 0.0},
        ["q.a", "q.z[0][0]", "q.z[0][1]", "q.z[1].x[0]", "q.z[1].y"],
    ),
    "whole-number keys": ({2: 1.0, 10: 2.0}, ["q.2", "q.10"]),
    "empty array": ({"a": np.zeros(0), "b": 1.0}, ["q.b"]),
    "dataclass": (Regression(1.0, np.zeros(2)), ["q.intercept", "q.slopes[0]", "q.slopes[1]"]),
    "named tuple": (Gamma(1.0, np.zeros(2)), ["q.shape", "q.rate[0]", "q.rate[1]"]),
    "named tuple in a dict": ({"g": Gamma(1.0, 2.0), "a": 0.0}, ["q.a", "q.g.shape", "q.g.rate"]),
    "dict in a named tuple": (Gamma({"s": 1.0}, [2.0]), ["q.shape.s", "q.rate.0"]),
    "registered class": (Stack(1.0, Stack(2.0, 3.0)), ["q.0", "q.1.0", "q.1.1"]),
}


@pytest.mark.parametrize("name", TREES)
def test_labels_name_every_scalar_in_flat_order(name: str) -> None:
    tree, labels = TREES[name]
    structure = Structure.of(tree)
    assert list(structure.labels("q")) == labels
    assert structure.size == len(labels)


def numbered(tree: Any) -> tuple[Any, np.ndarray]:
    """The same tree with 0, 1, 2, ... at its scalars in JAX's order, and that flat vector."""
    leaves, treedef = jax.tree.flatten(tree)
    sizes = [np.size(leaf) for leaf in leaves]
    flat = np.arange(float(sum(sizes)))
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    filled = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, filled), flat


@pytest.mark.parametrize("name", TREES)
def test_build_inverts_flattening(name: str) -> None:
    tree, _ = TREES[name]
    filled, flat = numbered(tree)
    built = Structure.of(tree).build(flat)
    np.testing.assert_array_equal(np.concatenate(in_order(built)), flat)
    plain = all(type(node) in (dict, list, tuple) for node in containers(tree))
    if plain:
        assert jax.tree.structure(built) == jax.tree.structure(filled)
        jax.tree.map(np.testing.assert_array_equal, built, filled)


def in_order(built: Any) -> list[np.ndarray]:
    """The leaves as they are written, dicts by insertion."""
    if isinstance(built, dict):
        built = list(built.values())
    if isinstance(built, list | tuple):
        return [leaf for child in built for leaf in in_order(child)]
    return [] if built is None else [np.ravel(built)]


def containers(tree: Any) -> list[Any]:
    """All nodes above the leaves."""
    if jax.tree.structure(tree) in (jax.tree.structure(0), jax.tree.structure(None)):
        return []
    children = jax.tree.leaves(tree, is_leaf=lambda node: node is not tree)
    return [tree, *(node for child in children for node in containers(child))]


def test_scalars_come_back_as_python_numbers_and_arrays_in_their_shape() -> None:
    built = Structure.of({"a": 1.0, "b": np.zeros((2, 1))}).build(np.array([1.0, 2.0, 3.0]))
    assert type(built["a"]) is float
    assert built["b"].shape == (2, 1)


def test_nodes_with_names_of_their_own_come_back_as_dicts() -> None:
    assert Structure.of(Gamma(1.0, 2.0)).build(np.array([3.0, 4.0])) == {"shape": 3.0, "rate": 4.0}
    built = Structure.of(Regression(0.0, np.zeros(2))).build(np.array([1.0, 2.0, 3.0]))
    assert built["intercept"] == 1.0
    assert built["slopes"].tolist() == [2.0, 3.0]


def test_no_two_leaves_share_a_name() -> None:
    """Names joined without a mark between them would make "ab" + "c" and "a" + "bc" one key."""

    class Pair(NamedTuple):
        ab: Any
        a: Any

    built = Structure.of(Pair({"c": 0.0}, {"bc": 0.0})).build(np.array([1.0, 2.0]))
    assert sorted(built.values()) == [1.0, 2.0]


def test_structures_are_values() -> None:
    assert Structure.of({"a": 1.0, "b": [np.zeros(3)]}) == Structure.of({"b": [np.ones(3)], "a": 2})
    assert hash(Structure.of((1.0, None))) == hash(Structure.of((2.0, None)))
    assert Structure.of([1.0]) != Structure.of((1.0,))
