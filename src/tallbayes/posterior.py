"""The posterior as a signed ensemble: Laplace's Gaussian, and what the paths found beyond it.

    E h = E_Laplace h + sum_l mean_i [ h(fine_il) - mean_c h(taken off_ilc) ]

The points of level l are where its paths ended: the fine path counts +1/n_l, the coarse paths (at level 0 the Gaussian
path u) share -1/n_l. What depends on theta through one linear predictor x . theta alone has its Gaussian part by
quadrature, and all of it by products of matrices, chunk of rows by chunk of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.moments import Floats

QUADRATURE_NODES = 32
GAUSSIAN_DRAWS = 1024
PATHS_READ = 2048
CHUNK_NUMBERS = 2**22

Link = Callable[[Floats], Floats]


class Prediction(NamedTuple):
    """Posterior expectations row by row, and their Monte Carlo standard errors."""

    value: Floats
    standard_error: Floats


@dataclass(frozen=True, eq=False)
class Posterior:
    """Where the paths ended, as displacements from the mode: (paths, 1 + coarse paths, d) by level.

    Without `laplace` the paths of level 0 stand for themselves.
    """

    anchor: Anchor
    points: tuple[Floats, ...]
    laplace: bool

    def predict(self, x: Floats, link: Link, heads: int = 1, intercept: bool = False) -> Prediction:
        """E link(eta) for every row of x, with eta = B x + b laid out in theta as in `predictors`.

        With one head `link` maps numbers to numbers; with several it maps vectors, on the last axis, to vectors.
        """
        x = np.asarray(x, np.float64)
        rows = np.column_stack([x, np.ones(len(x))]) if intercept else x
        design = _Design(rows, heads, intercept)
        levels = [points[:PATHS_READ] for points in self.points]
        per_row = heads * max(sum(points.shape[0] * points.shape[1] for points in levels), GAUSSIAN_DRAWS)
        size = max(1, CHUNK_NUMBERS // per_row)
        parts = [self._chunk(design.part(start, start + size), link, levels) for start in range(0, len(x), size)]
        return Prediction(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _chunk(self, design: _Design, link: Link, levels: list[Floats]) -> Prediction:
        centre = design.eta(self.anchor.mode[None])
        if self.laplace:
            value, variance = self._gaussian(design, centre, link)
        else:
            value = variance = np.zeros(())
        for number, points in enumerate(levels):
            ends = link(centre + design.eta(points.reshape(-1, points.shape[-1]).astype(np.float64)))
            ends = ends.reshape(len(ends), *points.shape[:2], *ends.shape[2:])
            delta = ends[:, :, 0]
            if number or self.laplace:
                delta = delta - ends[:, :, 1:].mean(axis=2)
            value = value + delta.mean(axis=1)
            variance = variance + delta.var(axis=1, ddof=1) / delta.shape[1]
        return Prediction(value, np.sqrt(variance))

    def _gaussian(self, design: _Design, centre: Floats, link: Link) -> tuple[Floats, Floats]:
        """E_Laplace link(eta): by quadrature for a number, by draws in opposite pairs for a vector."""
        if design.heads == 1:
            nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
            sd = np.sqrt(np.sum(design.eta(self.anchor.displacements(np.eye(len(self.anchor.mode)))) ** 2, axis=1))
            value = link(centre + sd[:, None] * nodes) @ (weights / weights.sum())
            return value, np.zeros_like(value)
        move = design.eta(self.anchor.draws(GAUSSIAN_DRAWS // 2))
        pairs = (link(centre + move) + link(centre - move)) / 2
        return pairs.mean(axis=1), pairs.var(axis=1, ddof=1) / pairs.shape[1]


class _Design(NamedTuple):
    """Rows [x, 1] and how theta is laid out."""

    rows: Floats
    heads: int
    intercept: bool

    def part(self, start: int, stop: int) -> _Design:
        return self._replace(rows=self.rows[start:stop])

    def eta(self, theta: Floats) -> Floats:
        """(rows, points), or (rows, points, heads) where there are several."""
        d = self.rows.shape[1] - self.intercept
        heads = theta[:, : self.heads * d].reshape(len(theta), self.heads, d)
        if self.intercept:
            own = theta[:, self.heads * d : self.heads * (d + 1), None]
            heads = np.concatenate([heads, own], axis=2)
        eta = self.rows @ heads.reshape(-1, self.rows.shape[1]).T
        return eta if self.heads == 1 else eta.reshape(len(self.rows), len(theta), self.heads)
