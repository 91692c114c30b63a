"""Sites: the free variables of a PyMC model, and the plates along which they lie.

PyMC has no plates. Of a variable that has a spread of its own, z ~ N(m, s) or s z with another variable s, every axis
is one, by the name of its dimension; where it has none, variables of one length share a plate, by the first's name.
Coefficients with a fixed prior are parameters, however they are indexed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tallbayes.doors.plates.programs import Site
from tallbayes.doors.pymc.graphs import JaxGraph, ModelGraph

# Deterministics of more numbers are not reported.
MOST_REPORTED = 4096


class Plate(NamedTuple):
    name: str
    dim: int
    size: int


def sites_of(graph: ModelGraph, terms: dict[str, Any], rest: dict[str, Any], starts: dict[str, Any]) -> list[Site]:
    """All free variables with their plates."""
    shared: dict[int, str] = {}
    found = []
    known = graph.known(list(terms.values()))
    for rv in graph.free:
        shape, plates = np.shape(starts[rv.name]), []
        if shape and _has_spread(graph, rv, known, rest[rv.name]):
            dims = graph.model.named_vars_to_dims.get(rv.name) or [None] * len(shape)
            for place, (size, dim) in enumerate(zip(shape, dims, strict=True)):
                if size > 1:
                    name = dim if dim is not None else shared.setdefault(size, rv.name)
                    plates.append(Plate(str(name), place - len(shape), size))
        found.append(Site(rv.name, False, tuple(plates), shape))
    return found


def _has_spread(graph: ModelGraph, rv: Any, terms: Sequence[Any], density: Any) -> bool:
    """Whether its law hangs on other free variables, or it is multiplied by them where it is read."""
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.traversal import ancestors
    from pytensor.scalar.basic import Mul, TrueDiv
    from pytensor.tensor.elemwise import DimShuffle, Elemwise
    from pytensor.tensor.math import Dot
    from pytensor.tensor.subtensor import AdvancedSubtensor, AdvancedSubtensor1, Subtensor

    own = graph.values[rv]
    others = {graph.values[each] for each in graph.free} - {own}
    if others & set(ancestors(graph.known([density]))):
        return True
    clients = FunctionGraph(outputs=list(terms), clone=False).clients
    reading, seen = [own], set()
    while reading:
        variable = reading.pop()
        for node, _ in clients.get(variable, []):
            if node in seen or not node.outputs:
                continue
            seen.add(node)
            beside = [each for each in node.inputs if each is not variable]
            times = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul | TrueDiv)
            if (times or isinstance(node.op, Dot)) and others & set(ancestors(beside)):
                return True
            if times or isinstance(node.op, DimShuffle | Subtensor | AdvancedSubtensor | AdvancedSubtensor1):
                reading.append(node.outputs[0])
    return False


def deterministics_of(graph: ModelGraph, theta: dict[str, np.ndarray], length: int) -> dict[str, JaxGraph]:
    """Deterministics that hang on parameters and not on rows, as functions of them."""
    import jax

    found = {}
    for variable in graph.model.deterministics:
        compiled = graph.compiled(graph.of_values([variable]))
        if not compiled.free:
            continue
        shape = jax.eval_shape(compiled, {name: theta[name] for name in compiled.free})[0].shape
        of_rows = shape[:1] == (length,) and any(length in np.shape(array) for array in compiled.constants)
        if not of_rows and np.prod(shape) <= MOST_REPORTED:
            found[variable.name] = compiled
    return found
