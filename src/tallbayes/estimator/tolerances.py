"""Tolerances: the RMSE allowed for every component, from one of three kinds of request.

tolerance           a fraction of the posterior sd: of theta_j for "mean" and "sd", of g by Laplace otherwise
relative_tolerance  a fraction of |E g|
absolute_tolerance  in the quantity's own units
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import ToleranceError, explain
from tallbayes.estimator.estimands import Estimands, Summary
from tallbayes.moments import Floats

KINDS = ("tolerance", "relative_tolerance", "absolute_tolerance")


@dataclass(frozen=True)
class Tolerances:
    """A kind and a size for every quantity; calling it with a summary gives the RMSE by component."""

    kind: str
    sizes: tuple[float, ...]
    lengths: tuple[int, ...]

    def __call__(self, summary: Summary) -> Floats:
        sizes = np.repeat(self.sizes, self.lengths)
        if self.kind == "tolerance":
            return sizes * summary.scale
        if self.kind == "relative_tolerance":
            return sizes * np.abs(summary.value)
        return sizes


def check_tolerances(given: Mapping[str, Any]) -> tuple[str, Any]:
    """Exactly one kind, positive and finite; returns it with its size or sizes."""
    present = {kind: size for kind, size in given.items() if size is not None}
    if len(present) != 1:
        raise ToleranceError(
            explain(
                "exactly one of tolerance, relative_tolerance and absolute_tolerance",
                " and ".join(present) or "none",
                "tolerance=0.01 for an error of 1% of a posterior sd",
            )
        )
    (kind, size), *_ = present.items()
    if isinstance(size, Mapping) and not size:
        raise ToleranceError(explain(f"a {kind} for each quantity", "an empty dict", "one number for all of them"))
    for each in size.values() if isinstance(size, Mapping) else [size]:
        number = isinstance(each, int | float | np.number) and not isinstance(each, bool)
        if not number or not 0 < each < np.inf:
            raise ToleranceError(explain(f"{kind} > 0", repr(each), "0.01; an exact answer would cost infinitely much"))
    return kind, size


def resolve_tolerances(kind: str, size: Any, estimands: Estimands) -> Tolerances:
    """Give every quantity its size."""
    names = [quantity.name for quantity in estimands.quantities]
    if isinstance(size, Mapping) and set(size) != set(names):
        raise ToleranceError(explain(f"a {kind} for each of {names}", f"{sorted(size)}", "one number for all of them"))
    sizes = tuple(float(size[name] if isinstance(size, Mapping) else size) for name in names)
    return Tolerances(kind, sizes, tuple(q.structure.size for q in estimands.quantities))
