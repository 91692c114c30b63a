"""JAX, later: loaded at the first use of a name of it, so that what needs no compiler does without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

_waiting: list[Callable[[], object]] = []

if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
else:

    class _Later:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            module = import_module(self._name)
            while _waiting:
                _waiting.pop()()
            return getattr(module, attribute)

    jax, jnp = _Later("jax"), _Later("jax.numpy")

__all__ = ["jax", "jitted", "jnp", "named_leaves", "when_loaded"]


def when_loaded(task: Callable[[], object]) -> None:
    """Done once there is JAX: now, or at the first use of it here."""
    if "jax" in sys.modules:
        task()
    else:
        _waiting.append(task)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a pytree, each with its path; of an array, or a dict of arrays, without JAX."""
    if isinstance(tree, np.ndarray):
        return [("", tree)]
    if type(tree) is dict and all(isinstance(leaf, np.ndarray) for leaf in tree.values()):
        return [(f"[{key!r}]", tree[key]) for key in sorted(tree)]
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def jitted(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`jax.jit` with these options, as a decorator."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def program() -> Any:
            return jax.jit(function, **options)

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return program()(*arguments, **named)

        return call

    return decorate
