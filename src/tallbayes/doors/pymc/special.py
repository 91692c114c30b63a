"""Special functions that PyTensor has no JAX code for, written in those for which it has.

    erfcx x  =  exp(x^2) erfc x                                                      x < 4
             =  1 / sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / (x + ...))))         x >= 4,  TERMS of them

erfcx is in the tails of a normal, and so in what is censored or truncated. Below -9, where no tail asks for it, it is
infinite here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TERMS, NEAR, LOWEST = 18, 4.0, -9.0


def in_known_functions(graphs: Sequence[Any]) -> list[Any]:
    """The same graphs in functions that JAX has."""
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.replace import graph_replace
    from pytensor.scalar.math import Erfcx
    from pytensor.tensor.elemwise import Elemwise

    found = list(graphs)
    while True:
        nodes = [
            node
            for node in FunctionGraph(outputs=found, clone=False).toposort()
            if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Erfcx)
        ]
        if not nodes:
            return found
        found = list(graph_replace(found, {nodes[0].outputs[0]: scaled_erfc(nodes[0].inputs[0])}, strict=False))


def scaled_erfc(x: Any) -> Any:
    """erfcx, each side where neither it nor its derivative overflows."""
    import pytensor.tensor as pt

    near, far = pt.clip(x, LOWEST, NEAR), pt.maximum(x, NEAR)
    fraction = far
    for term in range(TERMS, 0, -1):
        fraction = far + 0.5 * term / fraction
    found = pt.switch(x < NEAR, pt.exp(near**2) * pt.erfc(near), np.pi**-0.5 / fraction)
    return pt.switch(x < LOWEST, np.inf, found)
