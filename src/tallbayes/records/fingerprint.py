"""Fingerprints: what a ledger is of. Two runs with the same one may share blocks; any difference has a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np

from tallbayes.estimator.estimands import Quantity
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.model.model import Target
from tallbayes.programs.identity import Function
from tallbayes.programs.later import jax
from tallbayes.rows.table import Table

# To be raised with every change that makes other numbers of the same seed.
METHOD_VERSION = 8
READ_BYTES = 2**22


def fingerprint(
    target: Target,
    table: Table,
    quantities: Sequence[Quantity],
    functions: Iterable[Function],
    method: str,
    anchor: Any,
) -> dict[str, Any]:
    """Model, rows, quantities with their functions, method and versions, each in a few characters."""
    called = iter(functions)
    return {
        "model": _model(target),
        "rows": table.num_rows,
        "content": _content(table),
        "units": _digest(jax.tree.leaves(table.units)),
        "quantities": {q.name: next(called).fingerprint if q.kind == "expectation" else q.kind for q in quantities},
        "method": method,
        "anchor": "found" if anchor is None else _digest(jax.tree.leaves([anchor.mode, anchor.precision])),
        "block": BLOCK_PATHS,
        "versions": {
            **{name: version(name) for name in ("tallbayes", "jax", "jaxlib")},
            "method": METHOD_VERSION,
            "backend": jax.default_backend(),
        },
    }


def _model(target: Target) -> str:
    functions = target.log_prior, target.log_likelihood, target.predictor, target.report
    parts = [None if each is None else each.fingerprint for each in functions]
    return sha256(repr((parts, target.layout, target.space, target.order)).encode()).hexdigest()


def _content(table: Table) -> str:
    """Of the rows themselves; a table on disk is known by its own digest, and by what is beside it."""
    if table.stored is not None:
        beside = [leaf for leaf in jax.tree.leaves(table.names) if not isinstance(leaf, str)]
        return str(table.stored.digest) + (f" {_digest(beside)}" if beside else "")
    return _digest([np.asarray(leaf)[: table.num_rows] for leaf in jax.tree.leaves(table.rows)])


def _digest(arrays: list[Any]) -> str:
    total = sha256()
    for array in arrays:
        numbers = np.ascontiguousarray(array)
        total.update(f"{numbers.dtype} {numbers.shape}".encode())
        content = numbers.reshape(-1).view(np.uint8)
        for first in range(0, len(content), READ_BYTES):
            total.update(content[first : first + READ_BYTES].tobytes())
    return total.hexdigest()
