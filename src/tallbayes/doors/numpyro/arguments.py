"""Arguments of a call, told apart: arrays of rows, and what is the same for every row.

    f(x, y, d=3)   =   f(*constants, *rows)   for rows {"x": x, "y": y}, or {"x": x[:1], "y": y[:1]}

An argument may be a pytree with both; in the rows its other leaves are None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import DataError, ModelError, explain


@dataclass(frozen=True, eq=False)
class Arguments:
    """The leaves of all arguments; `is_row` marks those that hold one entry for each row."""

    signature: inspect.Signature
    treedef: Any
    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    is_row: tuple[bool, ...]

    @property
    def lengths(self) -> set[int]:
        """Lengths of the leading axes of all arrays."""
        return {leaf.shape[0] for leaf in self.leaves if _is_array(leaf)}

    @property
    def rows(self) -> dict[str, Any]:
        """The arrays of rows, by the argument's name."""
        leaves = [np.asarray(leaf) if row else None for leaf, row in zip(self.leaves, self.is_row, strict=True)]
        by_name = jax.tree.unflatten(self.treedef, leaves)
        return {name: by_name[name] for name in self._row_names}

    def with_rows(self, length: int) -> Arguments:
        """Arrays of this length are rows, and nothing else is."""
        return self._marked(tuple(_is_array(leaf) and leaf.shape[0] == length for leaf in self.leaves))

    def with_rows_of(self, names: Collection[str]) -> tuple[Arguments, int]:
        """All of these arguments hold rows, and nothing else does; and the number of rows."""
        known = sorted(self.signature.parameters)
        if isinstance(names, str) or not names or not set(names) <= set(known):
            hint = 'those that hold the data, as in rows=("x", "y")'
            raise ModelError(explain(f"rows= to name some of the arguments {known}", repr(names), hint))
        is_row = tuple(name in names for name in self.names)
        rows = [leaf for leaf, row in zip(self.leaves, is_row, strict=True) if row]
        lengths = {leaf.shape[0] for leaf in rows if _is_array(leaf)}
        if len(lengths) != 1 or not all(_is_array(leaf) for leaf in rows):
            got = f"shapes {[np.shape(leaf) for leaf in rows]} in {sorted(names)}"
            raise DataError(explain("rows= to name arrays with one leading axis", got, "the names of the data alone"))
        return self._marked(is_row), lengths.pop()

    def filled(self, rows: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these rows in the place of all."""
        leaves_of_rows: Iterator[Any] = iter(jax.tree.leaves({name: rows[name] for name in self._row_names}))
        leaves = [next(leaves_of_rows) if row else leaf for leaf, row in zip(self.leaves, self.is_row, strict=True)]
        bound = inspect.BoundArguments(self.signature, jax.tree.unflatten(self.treedef, leaves))
        return bound.args, bound.kwargs

    def _marked(self, is_row: tuple[bool, ...]) -> Arguments:
        # Only a JAX array can be indexed by what is traced, as in table[group] for the group of a row.
        pairs = zip(self.leaves, is_row, strict=True)
        leaves = tuple(leaf if row or not _is_numeric(leaf) else jnp.asarray(leaf) for leaf, row in pairs)
        return replace(self, leaves=leaves, is_row=is_row)

    @property
    def _row_names(self) -> list[str]:
        return sorted({name for name, row in zip(self.names, self.is_row, strict=True) if row})


def bind_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """What `function(*args, **kwargs)` is called with; no rows are marked yet."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ModelError(explain("a model and its arguments", str(error), "those that NumPyro runs it with")) from error
    paths, treedef = jax.tree_util.tree_flatten_with_path(dict(bound.arguments))
    names = tuple(path[0].key for path, _ in paths)
    leaves = tuple(leaf for _, leaf in paths)
    return Arguments(signature, treedef, names, leaves, (False,) * len(leaves))


def _is_numeric(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "biufc"


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim > 0
