"""Programs: a PyMC model as JAX functions, its free variables answered from outside.

inside    the terms of one row (`rows`)
outside   log p of the free variables, and of whatever else is not of the rows
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.plates.programs import Answer, Message, NormalLaw
from tallbayes.doors.pymc.graphs import JaxGraph, ModelGraph
from tallbayes.doors.pymc.rows import RowTerms
from tallbayes.doors.pymc.supports import is_apart
from tallbayes.model.constraints import Constraint
from tallbayes.model.model import Model


@dataclass(frozen=True, eq=False)
class NormalSite:
    """Mean and sd, or mean and covariance, of a normal variable, of those before it."""

    graph: JaxGraph
    is_vector: bool


@dataclass(frozen=True, eq=False)
class PymcProgram:
    """`free` are in the order in which the model draws them; `rest` are the terms outside, by name; `others` are
    deterministics that are shown in the place of a variable."""

    free: tuple[str, ...]
    rows: RowTerms
    rest: JaxGraph
    rest_names: tuple[str, ...]
    constraints: Mapping[str, Constraint]
    normals: Mapping[str, NormalSite]
    others: Mapping[str, tuple[str, JaxGraph]]

    plates = frozenset[str]()

    def log_density(self, theta: dict[str, Any]) -> jax.Array:
        return sum_of(self.log_probs({}, 0, self.values_of(theta), inside=False), theta)

    def log_probs(self, rows: dict[str, Any], count: int, value_of: Answer, *, inside: bool) -> dict[str, Any]:
        theta = self._answered(value_of)
        if inside:
            return self.rows(theta, jax.tree.map(lambda leaf: leaf[0], rows))
        return dict(zip(self.rest_names, self.rest(theta), strict=True))

    def run(self, rows: dict[str, Any], count: int, value_of: Answer) -> dict[str, Message]:
        theta = self._answered(value_of)
        return {name: {"name": name, "value": value, "all": theta} for name, value in theta.items()}

    def _answered(self, value_of: Answer) -> dict[str, Any]:
        theta: dict[str, Any] = {}
        for name in self.free:
            theta[name] = value_of({"name": name, "all": theta})
        return theta

    def values_of(self, theta: dict[str, Any]) -> Answer:
        return lambda message: jnp.asarray(theta[message["name"]])

    def law(self, message: Message) -> NormalLaw:
        own = self.normals[message["name"]]
        loc, spread = own.graph(message["all"])
        return NormalLaw(loc, root=jnp.linalg.cholesky(spread)) if own.is_vector else NormalLaw(loc, spread)

    def can_standardise(self, message: Message, axis: int, run: dict[str, Message]) -> bool:
        own = self.normals.get(message["name"])
        return own is not None and not (own.is_vector and axis == np.ndim(message["value"]) - 1)

    def axis(self, message: Message, dim: int, ndim: int) -> int:
        return ndim + dim

    def is_apart(self, message: Message, axis: int) -> bool:
        return is_apart(self.constraints[message["name"]])

    def told(self, name: str) -> str | None:
        return self.others[name][0] if name in self.others else None

    def answering(self, model: Model, form: Any, names: dict[str, str], rows: dict[str, Any]) -> Model:
        return model

    def tell(self, message: Message) -> Any:
        return self.others[message["name"]][1](message["all"])[0]


def sum_of(terms: dict[str, Any], theta: dict[str, Any]) -> jax.Array:
    """All terms together, of the float type of theta."""
    dtype = jnp.result_type(*theta.values())
    return sum((jnp.sum(term).astype(dtype) for term in terms.values()), jnp.zeros((), dtype))


def normals_of(graph: ModelGraph) -> dict[str, NormalSite]:
    """The free variables that are normal and not bent by a transform."""
    from pytensor.tensor.random.basic import MvNormalRV, NormalRV

    found = {}
    for rv in graph.free:
        operation = rv.owner.op
        if graph.model.rvs_to_transforms[rv] is None and type(operation) in (NormalRV, MvNormalRV):
            parameters = graph.of_values(operation.dist_params(rv.owner))
            found[rv.name] = NormalSite(graph.compiled(parameters[:2]), type(operation) is MvNormalRV)
    return found
