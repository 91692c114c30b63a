"""Couplings: which minibatches the coarse paths of a level see, given the fine path's tau_1 and tau_2.

    Synchronous("union")   one coarse path; n of the 2n fine positions, without replacement
    Synchronous("coin")    one coarse path; tau_1 or tau_2 by a fair coin
    Antithetic             two coarse paths, c+ on tau_1 and c- on tau_2, each moving its own state

The telescoping law needs the coarse batch to have the law of a fine batch. The union has it only where the
entries of a batch are independent of one another; for without-replacement batches or blocks it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallbayes.errors import MethodError, explain
from tallbayes.programs.later import jax, jnp
from tallbayes.sampler.minibatch import Draws, distinct
from tallbayes.sampler.roles import Sampling


@dataclass(frozen=True)
class Synchronous:
    """One coarse path; variance decays like h, or h^2 while the gradient's noise is invisible.

    >>> import tallbayes as tb
    >>> method = tb.Multilevel(coupling=Synchronous("coin"))  # for tb.estimate(..., method=method)
    >>> method.coupling.num_coarse
    1
    """

    pick: str = "union"

    num_coarse = 1
    variance_rate = 1.0

    def __post_init__(self) -> None:
        if self.pick not in ("union", "coin"):
            raise MethodError(explain('pick "union" or "coin"', repr(self.pick), '"union"'))

    def num_indices(self, batch_size: int) -> int:
        return batch_size if self.pick == "union" else 1

    def coarse_batches(self, draws: Draws, batch_size: int, fine: Any) -> Any:
        if not batch_size:
            return fine
        if self.pick == "coin":
            coin = draws(1, jnp.int32(2))
            return jax.tree.map(lambda leaf: leaf[coin], fine)
        kept = distinct(draws, batch_size, jnp.int32(2 * batch_size))[None]
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[kept], fine)

    def check(self, sampling: Sampling) -> None:
        if self.pick == "union" and not sampling.independent_entries:
            raise MethodError(
                explain(
                    "a coarse minibatch with the law of a fine one",
                    f"the union of two batches drawn by {sampling}, whose entries are dependent: "
                    "the levels would not telescope",
                    'Antithetic(), Synchronous("coin"), or sampling=WithReplacement()',
                )
            )


@dataclass(frozen=True)
class Antithetic:
    """Two coarse paths whose minibatch errors cancel on average; variance decays like h^2.

    >>> import tallbayes as tb
    >>> tb.Multilevel().coupling == Antithetic()
    True
    """

    num_coarse = 2
    variance_rate = 2.0

    def num_indices(self, batch_size: int) -> int:
        return 0

    def coarse_batches(self, draws: Draws, batch_size: int, fine: Any) -> Any:
        return fine

    def check(self, sampling: Sampling) -> None:
        pass
