"""Inputs: what all paths of a run share, on the device: rows, the list that batches are runs of, the centre.

v = theta - theta_0 = W z,   W W^T = H^-1,   v^T H v the squared distance in posterior sds
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import ChainWhitening
from tallbayes.gaussian.low_rank import LowRank, LowRankWhitening
from tallbayes.gaussian.whitening import DenseWhitening, DiagonalWhitening, Whitening
from tallbayes.model.linear import Layout
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.listing import Listing
from tallbayes.rows.table import Table

SLAB_ROWS = 4
# Where a step costs as much as thousands of rows; and where the sum of a slab has tens of thousands of numbers itself,
# since a row of a model of one's own is differentiated in all of them.
LONG_SLAB_ROWS, LONGEST_SLAB_ROWS = 64, 1_024
LONGEST_FROM = 8_192
LONG_STEP_FROM = 256
# Measured as 10 to 60 rows where x has 3 to 230 columns, and 140 and 300 with codes, 24 and 222 parameters.
STEP_OVERHEAD = 4
# Of hundreds of parameters, where a slab is read whatever there is in it, and the products with W are of whole blocks.
LONG_STEP_SHARE = 8
# With codes; and at 10,000 levels, 60 ns a parameter beside 20 to 30 ns a row.
INDEXED_OVERHEAD, ARROW_OVERHEAD = 16, 2


def is_long_step(dimension: int, by_matrix: bool) -> bool:
    """Whether the products with W take as long as a hundred rows."""
    return by_matrix and dimension >= LONG_STEP_FROM


def overhead_of(anchor: Anchor, layout: Layout) -> int:
    """What a step costs beside its rows, in rows: one of codes costs a small part of what it does as columns, the
    products with W are the same."""
    precision, dimension = anchor.precision, len(anchor.mode)
    if isinstance(precision, Arrowhead):
        return ARROW_OVERHEAD * dimension
    if isinstance(precision, LowRank):
        return STEP_OVERHEAD + precision.lines.shape[1]
    if layout.indexed is not None:
        return INDEXED_OVERHEAD + dimension
    long = is_long_step(dimension, not anchor.is_diagonal)
    return LONG_SLAB_ROWS + dimension // LONG_STEP_SHARE if long else STEP_OVERHEAD


class Centre(NamedTuple):
    """The point of expansion theta_0: G and H_X of the likelihood, gradient of the posterior, its precision H with W.

    Where d is too large for a Hessian, H_X is None and H and W are diagonals; where H is a matrix of thousands of
    rows H_X is not kept beside it, being -H less what is the prior's. `mismatch` is I - W^T H' W with H'
    minus the posterior's Hessian at theta_0, where W was not made from it. `prior_hessian` is that of the log prior,
    where it is a matrix. Where rows are expanded about another point, a `step` s leads from there to theta_0: G and H_X
    are then what their expansion says of theta_0. With the `third` derivatives T of the likelihood this is of third
    order, and H_X is theirs plus T s, which is kept beside T as `turned`.
    """

    mode: jax.Array
    gradient: jax.Array
    hessian: Any
    posterior_gradient: jax.Array
    whitening: Whitening
    mismatch: Any = None
    prior_hessian: Any = None
    step: Any = None
    third: Any = None
    turned: Any = None

    @property
    def point(self) -> jax.Array:
        """Where rows are expanded."""
        return self.mode if self.step is None else self.mode - self.step

    @property
    def gradient_there(self) -> jax.Array:
        """G at that point."""
        if self.step is None:
            return self.gradient
        there = self.gradient - self.hessian @ self.step
        return there if self.third is None else there + self.turned @ self.step / 2

    def apart(self, displacement: jax.Array) -> jax.Array:
        """The displacement from that point."""
        return displacement if self.step is None else displacement + self.step

    @property
    def slab_rows(self) -> int:
        """Rows of a batch that are read together."""
        if isinstance(self.whitening, ChainWhitening) and self.mode.size >= LONGEST_FROM:
            return LONGEST_SLAB_ROWS
        wide = is_long_step(self.mode.size, isinstance(self.whitening, DenseWhitening | ChainWhitening))
        return LONG_SLAB_ROWS if wide or isinstance(self.hessian, Arrowhead) else SLAB_ROWS

    @property
    def is_whole(self) -> bool:
        """Whether H is all of it, and not its diagonal or that with a few lines."""
        return not isinstance(self.whitening, DiagonalWhitening | LowRankWhitening)

    def likelihood_bend(self, displacement: jax.Array, prior_bend: jax.Array) -> jax.Array:
        """H_X v, with H_X where rows are expanded; `prior_bend` is the Hessian of the log prior times v."""
        if self.hessian is not None:
            bend = self.hessian @ displacement
            return bend if self.third is None else bend - self.turned @ displacement
        return -self.whitening.times(displacement) - prior_bend

    def twist(self, displacement: jax.Array) -> jax.Array:
        """T(w, w) / 2."""
        return jnp.tensordot(displacement, self.third, 1) @ displacement / 2

    def whitened_twist(self, state: jax.Array) -> jax.Array:
        """W^T T(w, w) / 2, w = W z."""
        return self.pull_back(self.twist(self.move(state)))

    def twist_apart(self, displacement: jax.Array, twist: jax.Array) -> jax.Array:
        """T(v, v) / 2 with v = w + s, given T(w, w) / 2."""
        return twist + self.turned @ (displacement + self.step / 2)

    def move(self, state: jax.Array) -> jax.Array:
        """v = W z."""
        return self.whitening.move(state)

    def pull_back(self, gradient: jax.Array) -> jax.Array:
        """W^T grad."""
        return self.whitening.pull_back(gradient)

    def square_length(self, displacement: jax.Array) -> jax.Array:
        """v^T H v, the squared distance in posterior sds."""
        return displacement @ self.whitening.times(displacement)


class Runs(NamedTuple):
    """What a batch read in slabs is a run of: the table itself, or a list of its rows with their weights."""

    length: Any
    rows: Any = None
    weights: Any = None


class Inputs(NamedTuple):
    """What all paths share: the rows, how many of them count, how many a slab-wise batch reads of what, the centre, the
    units in which parameters are reported, and which observables are controlled, where any are."""

    rows: Any
    num_rows: Any
    batch_size: Any
    runs: Runs
    centre: Centre
    units: Any = None
    controlled: Any = None


def make_inputs(
    table: Table,
    anchor: Anchor,
    dtype: str,
    batch_size: int = 0,
    listing: Listing | None = None,
    places: int | None = None,
    controlled: Any = None,
    by_matrix: bool = False,
    lean: bool = False,
) -> Inputs:
    """The rows and, beside them on the device, the point of expansion in the paths' precision.

    With so many `places` there is a list whether one is given or not, so that one program serves both; `by_matrix` is
    for a prior whose Hessian at the centre is to be a matrix; a `lean` centre has W alone, where nothing asks for H.
    """

    def place(part: Any) -> Any:
        def narrow(leaf: Any) -> Any:
            numbers = np.asarray(leaf)
            return jax.device_put(numbers.astype(dtype) if numbers.dtype.kind == "f" else numbers)

        return jax.tree.map(narrow, part)

    with jax.enable_x64(True):
        centre = Centre(
            mode=place(anchor.mode),
            gradient=place(anchor.likelihood_gradient),
            hessian=place(anchor.likelihood_hessian),
            posterior_gradient=place(anchor.gradient),
            whitening=place(DenseWhitening(None, anchor.whitening) if lean else anchor.whitener),
            mismatch=place(anchor.mismatch),
            prior_hessian=place(anchor.prior_hessian) if by_matrix else None,
            step=place(anchor.step),
            third=place(anchor.third),
            turned=None if anchor.third is None or anchor.step is None else place(anchor.third @ anchor.step),
        )
        runs = Runs(np.int32(table.num_rows))
        if places is not None:
            runs = _listed(table.num_rows if listing is None else listing.length, listing, places)
        elif listing is not None:
            runs = Runs(np.int32(listing.length), jax.device_put(listing.rows), jax.device_put(listing.weights))
        parts = np.int32(table.num_rows), np.int32(batch_size), runs, centre, table.units
        return Inputs(table.rows, *parts, None if controlled is None else jax.device_put(controlled))


def _listed(length: int, listing: Listing | None, places: int) -> Runs:
    """A list of so many places; of all rows in their order, where none is given."""
    rows, weights = np.zeros(places, np.int32), np.zeros(places, np.float32)
    rows[:length] = np.arange(length) if listing is None else listing.rows[:length]
    weights[:length] = 1.0 if listing is None else listing.weights[:length]
    return Runs(np.int32(length), jax.device_put(rows), jax.device_put(weights))
