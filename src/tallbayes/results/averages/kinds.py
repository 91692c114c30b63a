"""What of a row is averaged, as a function of a place u in R^d: the response that is expected of it, given theta and,
where it belongs to a group, the effect of that.

    f_i(u, b)       b the effect of the row's own group: with nodes b_k(u) and shares w_k(u), `groups`
    E f_i(u, b)     over the law of an effect, as of a new group; or of a row without groups, f_i(u) itself

A kind reads a unit at u, and says what a row of it is worth at every node, (k, outputs), and the nodes' shares, (k,).
Where it `varies` the nodes are all that is known of an effect, which all rows of the unit share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.model.space import Space
from tallbayes.posterior.group_predictions import MixedOutcome, OfRows, OwnOutcome
from tallbayes.posterior.predictor import FamilyResponse
from tallbayes.programs.later import jax, jnp

Values = Callable[[Any], Any]


class FamilyRow(NamedTuple):
    """Of a family on its linear predictors: of several classes their chances."""

    response: FamilyResponse

    @property
    def varies(self) -> bool:
        return False

    def read(self, vector: jax.Array, unit: Any) -> tuple[Values, Any]:
        def values(row: Any) -> Any:
            return self.response.centre((row["x"][None], row["offset"][None]), vector).T

        return values, jnp.ones(1, vector.dtype)

    @property
    def finer(self) -> None:
        return None

    def work(self, unit: Any, rows: int) -> int:
        return rows


class OwnRow(NamedTuple):
    """Of its owner's function of theta and one row."""

    space: Space
    function: Callable[[Any, Any], Any]

    @property
    def varies(self) -> bool:
        return False

    def read(self, vector: jax.Array, unit: Any) -> tuple[Values, Any]:
        theta = self.space.theta(vector)

        def values(row: Any) -> Any:
            leaves = jax.tree.leaves(self.function(theta, row))
            return jnp.concatenate([jnp.ravel(leaf).astype(vector.dtype) for leaf in leaves])[None]

        return values, jnp.ones(1, vector.dtype)

    @property
    def finer(self) -> None:
        return None

    def work(self, unit: Any, rows: int) -> int:
        return rows


class NewGroupRow(NamedTuple):
    """Over the law of the effects of a group that was not there; a unit is one without rows, if there is any."""

    of: OfRows
    outputs: int

    @property
    def varies(self) -> bool:
        return False

    def read(self, vector: jax.Array, unit: Any) -> tuple[Values, Any]:
        def values(row: Any) -> Any:
            rows = jax.tree.map(lambda leaf: leaf[None], row)
            return self.of(vector, {"rows": rows, "unit": unit})[None, : self.outputs]

        return values, jnp.ones(1, vector.dtype)

    @property
    def finer(self) -> NewGroupRow:
        return self._replace(of=self.of.finer)

    def work(self, unit: Any, rows: int) -> int:
        outcome = self.of.outcome
        if self.of.integral is None:
            assert isinstance(outcome, MixedOutcome)
            return rows * outcome.nodes
        return rows * int(self.of.integral.nodes**self.of.integral.groups.size)


class OwnGroupRows(NamedTuple):
    """Of rows with the effect of their own group, which is a unit of the fit."""

    space: Space
    outcome: MixedOutcome | OwnOutcome
    integral: Any

    @property
    def varies(self) -> bool:
        return True

    def read(self, vector: jax.Array, unit: Any) -> tuple[Values, Any]:
        theta = self.space.theta(vector)
        points, share = self.integral.law(theta, vector, unit)
        return lambda row: self.outcome.given(theta, points, row), share

    @property
    def finer(self) -> OwnGroupRows | None:
        """None where nodes are exact."""
        if not isinstance(self.integral, GroupIntegral):
            return None
        return self._replace(integral=replace(self.integral, nodes=2 * self.integral.nodes + 1))

    def work(self, unit: Any, rows: int) -> int:
        length = jax.tree.leaves(unit["rows"])[0].shape[1] if "rows" in unit else 1
        return int(self.integral.nodes**self.integral.groups.size) * (length + 2 * rows)


Kind = FamilyRow | OwnRow | NewGroupRow | OwnGroupRows
