"""Collinearity: columns of a design that are combinations of others, from sums over its rows.

    G = sum_i a_i a_i^T,   a = (1, x, and 1 at the level of each category)

The category with the most levels is eliminated first: its block of G is the diagonal of its counts, so that what is
left has the size of all else. Column after column of that is eliminated then, and what remains of a combination of
earlier ones is nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.formula.coding import INTERCEPT, Coding

# A column is a combination of others where they leave less than this part of its variance.
COLLINEAR = 1e-10
# Of what is left beside the largest category; beyond, a prior has to do.
MOST_COLUMNS = 4_000


class LevelSums:
    """Counts of the levels of indexed categories, sums of x by level, and counts of pairs of levels."""

    def __init__(self, coding: Coding) -> None:
        self.coding, width = coding, len(coding.names) + 1
        terms = range(len(coding.indexed))
        self.counts = [np.zeros(width) for _ in terms]
        self.sums = [np.zeros((width, len(coding.dense))) for _ in terms]
        self.pairs: dict[tuple[int, int], Any] = {(a, b): None for a in terms for b in terms if a < b}

    def add(self, x: np.ndarray, codes: np.ndarray) -> None:
        from scipy.sparse import coo_matrix

        width = len(self.coding.names) + 1
        for place, code in enumerate(codes.T):
            self.counts[place] += np.bincount(code, minlength=width)
            for column in range(x.shape[1]):
                self.sums[place][:, column] += np.bincount(code, x[:, column], minlength=width)
        for a, b in self.pairs:
            found = coo_matrix((np.ones(len(codes)), (codes[:, a], codes[:, b])), (width, width)).tocsr()
            before = self.pairs[a, b]
            self.pairs[a, b] = found if before is None else before + found


def require_rank(coding: Coding, products: np.ndarray, sums: np.ndarray, count: int, levels: LevelSums) -> None:
    """Refuse a column that is a combination of others.

    `products` and `sums` are of x, about any origin where there is an intercept, else as it is.
    """
    places = [np.arange(term.first, term.first + term.count) for term in coding.indexed]
    largest = max(range(len(places)), key=lambda each: len(places[each]), default=None)
    others = [each for each in range(len(places)) if each != largest]
    width = coding.intercept + len(coding.dense) + sum(len(places[each]) for each in others)
    if width > MOST_COLUMNS:
        return
    gram = _gram(coding, products, sums, count, levels, places, others)
    size = np.diag(gram) - (gram[0] ** 2 / count if coding.intercept else 0.0)
    if coding.intercept:
        size[0] = count
    named = [INTERCEPT] * coding.intercept + [coding.names[place] for place in coding.dense]
    named += [coding.names[place] for each in others for place in places[each]]
    left, between, weights = gram, None, None
    if largest is not None and len(places[largest]):
        between = _between(coding, levels, places, others, largest)
        weights = between / levels.counts[largest][places[largest]]
        left = gram - weights @ between.T
    scale = np.sqrt(size)
    column = _first_dependent(left / np.outer(scale, scale))
    if column is not None:
        factor = None if largest is None else coding.indexed[largest].factor
        raise _combination(named, left, column, coding.intercept, (factor, weights))


def _gram(
    coding: Coding,
    products: np.ndarray,
    sums: np.ndarray,
    count: int,
    levels: LevelSums,
    places: list[np.ndarray],
    others: list[int],
) -> np.ndarray:
    """G of the intercept, x and all categories but the largest."""
    parts = [np.block([[np.full((1, 1), float(count)), sums[None]], [sums[:, None], products]])]
    parts = parts if coding.intercept else [products]
    rest = [
        np.vstack([levels.counts[each][None, places[each]]] * coding.intercept + [levels.sums[each][places[each]].T])
        for each in others
    ]
    within = [
        [np.diag(levels.counts[a][places[a]]) if a == b else _pairs(levels, a, b, places[a], places[b]) for b in others]
        for a in others
    ]
    if not others:
        return parts[0]
    beside, inside = np.hstack(rest), np.block(within)
    return np.block([[parts[0], beside], [beside.T, inside]])


def _between(
    coding: Coding, levels: LevelSums, places: list[np.ndarray], others: list[int], largest: int
) -> np.ndarray:
    """G between all else and the largest category."""
    own = places[largest]
    rows = [levels.counts[largest][None, own]] * coding.intercept + [levels.sums[largest][own].T]
    return np.vstack(rows + [_pairs(levels, each, largest, places[each], own) for each in others])


def _pairs(levels: LevelSums, a: int, b: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    found = levels.pairs[min(a, b), max(a, b)]
    found = found if a < b else found.T
    return np.asarray(found.tocsr()[left][:, right].todense())


def _first_dependent(left: np.ndarray) -> int | None:
    """The first column of which earlier ones leave nothing."""
    left = left.copy()
    try:
        if np.diag(np.linalg.cholesky(left)).min(initial=1.0) ** 2 >= COLLINEAR:
            return None
    except np.linalg.LinAlgError:
        pass
    for column in range(len(left)):
        pivot = left[column, column]
        if pivot < COLLINEAR:
            return column
        left[column:, column:] -= np.outer(left[column:, column], left[column, column:]) / pivot
        left[column, column] = pivot
    return None


def _combination(
    names: list[str], left: np.ndarray, column: int, intercept: bool, category: tuple[str | None, np.ndarray | None]
) -> DataError:
    factor, by_level = category
    size = np.sqrt(np.maximum(np.diag(left), 0.0))
    size = np.where(size > 0, size, 1.0)
    scaled = left / np.outer(size, size)
    weights = np.linalg.lstsq(scaled[:column, :column], scaled[:column, column], rcond=None)[0]
    found = [place for place in np.flatnonzero(np.abs(weights) > 1e-4) if not (intercept and place == 0)]
    others = [repr(names[place]) for place in found]
    if by_level is not None:
        own = by_level[column] - (weights / size[:column] * size[column]) @ by_level[:column]
        others += [f"the levels of {factor!r}"] if np.any(np.abs(own) > 1e-4 * np.abs(own).max()) else []
    named = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
    got = f"a combination of {named}" + (f" and the {INTERCEPT.lower()}" if intercept else "")
    name = names[column]
    return DataError(explain(f"a column {name!r} of its own", got, f"leave out {name!r} or one of the others"))
