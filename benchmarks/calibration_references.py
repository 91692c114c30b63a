"""References of the calibration study: the benchmarks' common ones, and its own, found in the same way."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import problems
import references
from calibration_questions import QUESTIONS, ask

from tallbayes.experiments.store import Measurement, Store

RESULTS = Path(__file__).parent / "results"
REFERENCES = "calibrate_references"
STEEP_GOAL, STEEP_FREEDOM = 7e-4, 15.0


@dataclass(frozen=True, eq=False)
class MultinomialPosterior:
    """Rows of classes 0, 1, ... with the prior N(0, I), as `references.solve` wants them.

    w_c is the gradient of eta_c, zero for class 0; the log likelihood's second and third derivatives are minus the
    central moments of w under the classes' probabilities.
    """

    x: np.ndarray
    y: np.ndarray
    heads: int

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Of every row of theta, up to a constant."""
        total, size = -0.5 * np.sum(theta**2, axis=1), max(1, references.TILE_ENTRIES // len(theta))
        coefficients = np.split(theta, self.heads, axis=1)
        for start in range(0, len(self.y), size):
            x, y = self.x[start : start + size], self.y[start : start + size]
            etas = [x @ each.T for each in coefficients]
            total += sum((y == head).astype(float) @ eta for head, eta in enumerate(etas, 1))
            total -= np.log(1 + sum(map(np.exp, etas))).sum(axis=0)
        return total

    @cached_property
    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """Newton's method from zero; the mode and the negative Hessian there."""
        theta, rows = np.zeros(self.directions.shape[2]), np.arange(len(self.y))
        for _ in range(60):
            share, centred = self._centred(theta, self.directions)
            gradient = centred[rows, self.y.astype(int)].sum(axis=0) - theta
            hessian = np.einsum("nc,ncj,nck->jk", share, centred, centred) + np.eye(len(theta))
            step = np.linalg.solve(hessian, gradient)
            theta = theta + step
            if step @ hessian @ step < 1e-18:
                return theta, hessian
        raise RuntimeError("expected Newton to reach the mode in 60 steps")

    def cubic(self, root: np.ndarray) -> np.ndarray:
        """The third derivatives at the mode in the coordinates theta = mode + root z, (d, d, d)."""
        share, centred = self._centred(self.mode[0], self.directions)
        moved = centred @ root
        return -np.einsum("nc,ncj,nck,ncl->jkl", share, moved, moved, moved, optimize=True)

    @cached_property
    def directions(self) -> np.ndarray:
        """w, (rows, classes, parameters)."""
        unit = np.eye(self.heads + 1)[:, 1:]
        return np.einsum("ch,nj->nchj", unit, self.x).reshape(len(self.x), self.heads + 1, -1)

    def _centred(self, theta: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = np.exp(directions @ theta)
        share = weight / weight.sum(axis=1, keepdims=True)
        return share, directions - np.einsum("nc,ncj->nj", share, directions)[:, None]


def solve_reference(name: str) -> dict[str, Any]:
    """By importance sampling, as in `references`."""
    kind, _, _ = problems.split(name)
    _, rows = problems.make(name)
    if kind == "multinomial":
        posterior: Any = MultinomialPosterior(rows["x"], rows["y"], problems.CLASSES - 1)
    else:
        posterior = references.Posterior(references.LOGISTIC, rows["x"], rows["y"])
    goal, freedom = (STEEP_GOAL, STEEP_FREEDOM) if kind == "steep" else (references.CALIBRATION_GOAL, 10.0)
    return asdict(references.solve(posterior, goal, freedom))


@cache
def reference(name: str, folder: Path = RESULTS) -> references.Reference:
    """From the benchmarks' common store, or from this study's own, computed if it is not there."""
    common = references.load()
    if name in common:
        return common[name]
    store = Store(folder)
    others = {each: Measurement(piece["settings"], lambda: {}) for each, piece in store.read(REFERENCES).items()}
    this = {name: Measurement({"seed": references.SEED}, partial(solve_reference, name))}
    store.complete(REFERENCES, others | this, partial(print, file=sys.stderr, flush=True))
    return references.Reference(**store.results(REFERENCES)[name])


@cache
def truth(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Of every quantity of a problem, in the order they are read, and its error: none where it is by quadrature."""
    if name in QUESTIONS:
        known = np.concatenate([np.ravel(each) for each in ask(name).truth.values()]).astype(float)
        return known, np.zeros(len(known))
    found = reference(name)
    return np.array(found.mean + found.sd), np.array(found.mean_error + found.sd_error)
