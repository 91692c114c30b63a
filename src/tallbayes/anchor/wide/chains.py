"""Models whose parameters stand in time: whether their Hessian is a chain of blocks, seen by a few of its products.

Where all leaves of theta share the length of their last axis, or of their first, what stands at one place of it is a
block. H times random numbers in one block shows whether it reaches beyond the next; then H times the units of every
third block at once has all blocks and links side by side,

    H e = (..., C_(t-1)^T, D_t, C_t, ...) at every t = c mod 3,   3 b products for blocks of b

and H times random numbers everywhere must be that of the chain. Nothing of d x d is made on the way.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tallbayes.anchor.expansion import Expansion, Survey, expand
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide.curvature import hessian_products
from tallbayes.gaussian.chain import Chain
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table

log = logging.getLogger("tallbayes")

LEAST_LENGTH, LARGEST_BLOCK = 8, 512
# Of the largest number of a product: what rounding leaves where there is nothing.
NOTHING = 1e-8
PRODUCTS_TOGETHER = 24


def chain_order(target: Target, table: Table, theta: Floats) -> Any:
    """Places of theta by block, (T, b), of the first axis of time along which nothing is seen to reach beyond the next
    block; None where there is none."""
    if target.predictor is not None or target.integrated is not None:
        return None
    for axis in (-1, 0):
        order = _along(target, axis)
        if order is not None and _reaches_next_alone(target, table, theta, order):
            return order
    return None


def _along(target: Target, axis: int) -> Any:
    shapes = target.space.shapes
    lengths = {shape[axis] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or (length := lengths.pop()) < LEAST_LENGTH or target.dimension // length > LARGEST_BLOCK:
        return None
    parts, first = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        places = np.arange(first, first + size).reshape(shape)
        parts.append(np.moveaxis(places, axis, 0).reshape(length, -1))
        first += size
    return np.concatenate(parts, axis=1)


def _reaches_next_alone(target: Target, table: Table, theta: Floats, order: Any) -> bool:
    middle, probe = len(order) // 2, np.zeros(theta.size)
    probe[order[middle]] = np.random.default_rng(0).standard_normal(order.shape[1])
    seen = np.abs(hessian_products(target, table, theta, probe[None])[0][order]).max(axis=1)
    beyond = np.abs(np.arange(len(order)) - middle) > 1
    return bool(seen.max() > 0 and seen[~beyond].sum() > seen[middle] and seen[beyond].max() <= NOTHING * seen.max())


def expand_chain(survey: Survey, theta: Floats, order: Any) -> Expansion | None:
    """The log posterior at theta with its Hessian as a chain; None where it is none."""
    target, table = survey.target, survey.table
    here = expand(target, table, theta, survey.executor, None, Curvature.NONE)
    survey.rows_read += (3 * order.shape[1] + 2) * table.num_rows
    chain = _chain_at(target, table, theta, order)
    z = np.random.default_rng(1).standard_normal(theta.size)
    apart = np.abs(hessian_products(target, table, theta, z[None])[0] - chain.times(z)).max()
    if not apart <= NOTHING * np.abs(chain.diagonals).max():
        log.debug("no chain: products are off by %.2g", apart)
        return None
    known = here.value, here.gradient, chain
    return Expansion(theta, *known, likelihood_gradient=here.likelihood_gradient, likelihood_hessian=None)


def _chain_at(target: Target, table: Table, theta: Floats, order: Any) -> Chain:
    length, block = order.shape
    own, links = np.zeros((length, block, block)), np.zeros((length - 1, block, block))
    pairs = [(colour, place) for colour in range(3) for place in range(block)]
    for first in range(0, len(pairs), PRODUCTS_TOGETHER):
        some = pairs[first : first + PRODUCTS_TOGETHER]
        units = np.zeros((len(some), theta.size))
        for unit, (colour, place) in zip(units, some, strict=True):
            unit[order[colour::3, place]] = 1.0
        for found, (colour, place) in zip(hessian_products(target, table, theta, units), some, strict=True):
            seen = found[order]
            own[colour::3, :, place] = seen[colour::3]
            links[colour::3, :, place] = seen[colour + 1 :: 3][: len(links[colour::3])]
    return Chain.of(order.ravel(), (own + own.transpose(0, 2, 1)) / 2, links)
