"""Models of thousands of parameters that are neither a regression nor a chain: a few lines beside the diagonal.

    H ~ S (c I + Q (diag(s) - c I) Q^T) S,   Q and s by products of S^-1 H S^-1 with a few random vectors

with S^2 the diagonal of H, so that all eigenvalues have mean 1, and c the mean of those that are not among s.
Those along which H is more than three times its diagonal, or less than a third, are kept: an exponential step of 1 that
is whitened by the diagonal is unstable along the ones, and paths take as many times longer to forget the others. Where
there are none the diagonal stays. What a sketch misses stays in the drift.
"""

from __future__ import annotations

import logging

import numpy as np

from tallbayes.anchor.expansion import Expansion, Survey
from tallbayes.anchor.wide.curvature import hessian_products
from tallbayes.gaussian.low_rank import LowRank, sketched
from tallbayes.moments import Floats

log = logging.getLogger("tallbayes")

MOST_LINES, ROUNDS = 24, 2
# At first, to see whether there are any.
GLANCED, GLANCE_ROUNDS = 8, 1
WORTHWHILE = 3.0
# Of eigenvalues that were not seen, whatever those that were leave of their sum.
LEAST_REST = 0.1
# Of a sample for a sketch, by parameter: chance alone stretches lines by (1 + sqrt(d / m))^2, 1.8 at the most.
ROWS_PER_PARAMETER, SMALLEST_SAMPLE = 8, 8_192


def lines_beside(survey: Survey, here: Expansion) -> LowRank | None:
    """What a sketch of the Hessian shows beside its diagonal at `here`; None where that is nothing worth having."""
    target, table, size = survey.target, survey.table, max(SMALLEST_SAMPLE, ROWS_PER_PARAMETER * here.theta.size)
    sample = table.chunks(size) if table.shuffled and table.num_rows > 2 * size else None
    rows = table.num_rows if sample is None else size

    def times(vectors: Floats) -> Floats:
        survey.rows_read += len(vectors) * rows
        return hessian_products(target, table, here.theta, np.ascontiguousarray(vectors), sample)

    for most, rounds in ((GLANCED, GLANCE_ROUNDS), (MOST_LINES, ROUNDS)):
        found = sketched(times, here.hessian, most, rounds)
        kept = np.abs(np.log(found.sizes)) > np.log(WORTHWHILE)
        log.debug("a sketch beside the diagonal: %s", np.sort(found.sizes))
        if not np.isfinite(found.sizes).all() or not kept.any():
            return None
    sizes, others = found.sizes[kept], here.theta.size - np.count_nonzero(kept)
    rest = max((here.theta.size - sizes.sum()) / max(others, 1), LEAST_REST)
    return LowRank(found.scale * np.sqrt(rest), np.ascontiguousarray(found.lines[:, kept]), sizes / rest)
