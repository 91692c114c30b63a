"""Expansions: value and derivatives of the log posterior at one point, as float64 sums streamed over the rows.

    log pi(theta) + (N/m) sum over m rows of log p(x_i | theta),   m = N unless a sample of rows is asked for

and the same on average over theta ~ N(m, W W^T). One call is one pass. Chunks run wherever an executor puts them; they
are added in their order, so the bits are the same. A chunk is summed in pieces that take a fraction of a second each,
and the watch is looked at between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tallbayes.anchor.chunks import Bound, Sums, average_sums, row_sums, sums_to_third_of_rows
from tallbayes.anchor.sums import (
    Curvature,
    averaged_prior,
    prior_arrow,
    prior_probe,
    prior_terms,
)
from tallbayes.anchor.wide.curvature import minus_hessian, prior_products
from tallbayes.errors import NoConvergenceError, NonFiniteError, explain
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import Chain
from tallbayes.gaussian.low_rank import LowRank
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax
from tallbayes.rows.table import Table
from tallbayes.watch import begin_pass, count_rows, find, look
from tallbayes.workers.executors import Executor, capacity_of, in_order, runs_elsewhere

Ranges = Sequence[tuple[int, int]]

PRIOR_DRAWS, MOST_PRIOR_NUMBERS = 2**12, 2**24
ARROW_ROUNDING = 1e-9
# Of a prior's Hessian that is more than its diagonal: on average over probes an entry errs by the rest of its row.
PROBES, MOST_PRODUCTS = 32, 20_000
# Of so many the prior's Hessian takes no time at all, however it is compiled.
FEW_PARAMETERS = 64


@dataclass(frozen=True, eq=False)
class Expansion:
    """Value and derivatives of the log posterior at one point.

    `hessian` is negated; it is a matrix, an arrowhead, a diagonal, or a zero where no curvature was asked for.
    """

    theta: Floats
    value: float
    gradient: Floats
    hessian: Any
    likelihood_gradient: Floats
    likelihood_hessian: Any

    @property
    def is_curved(self) -> bool:
        """Whether any curvature was asked for."""
        return isinstance(self.hessian, Arrowhead | Chain | LowRank) or self.hessian.ndim > 0

    @property
    def is_finite(self) -> bool:
        parts = self.gradient, *jax.tree.leaves(self.hessian)
        return bool(np.isfinite(self.value) and all(np.isfinite(part).all() for part in parts))


@dataclass(frozen=True, eq=False)
class Averages:
    """The log posterior on average over N(theta, W W^T), beside its expansion at theta.

    `hessian` is negated. `error` is that of the gradient in units of W: what quadrature leaves of the rows, and a
    standard error where the prior is not Gaussian, which is averaged over draws.
    """

    here: Expansion
    value: float
    gradient: Floats
    hessian: Floats
    error: float

    @property
    def is_finite(self) -> bool:
        parts = self.value, self.gradient, self.hessian, self.error
        return self.here.is_finite and all(bool(np.isfinite(part).all()) for part in parts)


def expand(
    target: Target,
    table: Table,
    theta: Floats,
    executor: Executor | None = None,
    ranges: Ranges | None = None,
    curvature: Curvature = Curvature.DENSE,
) -> Expansion:
    """One pass over all rows, or over the row ranges given, their likelihood scaled up to N rows."""
    rows = table.num_rows if ranges is None else sum(stop - start for start, stop in ranges)
    begin_pass(rows)
    summed = Curvature.NONE if curvature is Curvature.WIDE else curvature
    total = _total(row_sums, Bound(target, table), (theta,), (summed,), executor, ranges)
    value, gradient, *curved = (terms * (table.num_rows / rows) for terms in total)
    hessian: Any = _arrowhead(target, *curved) if curvature is Curvature.ARROW else curved[0]
    look()
    prior_value, prior_gradient, prior_hessian = _prior(target, theta, summed)
    if curvature is Curvature.WIDE:
        known = float(value + prior_value), gradient + prior_gradient, minus_hessian(target, table, theta, ranges)
        return Expansion(theta, *known, likelihood_gradient=gradient, likelihood_hessian=None)
    here = Expansion(
        theta=theta,
        value=float(value + prior_value),
        gradient=gradient + prior_gradient,
        hessian=-(hessian + prior_hessian),
        likelihood_gradient=gradient,
        likelihood_hessian=hessian,
    )
    find(here, rows)
    return here


def average(
    target: Target,
    table: Table,
    theta: Floats,
    whitening: Floats,
    executor: Executor | None = None,
    ranges: Ranges | None = None,
) -> Averages:
    """One pass by quadrature, as `expand`; for models with few predictors a row, and W a matrix."""
    rows = table.num_rows if ranges is None else sum(stop - start for start, stop in ranges)
    begin_pass(rows)
    total = _total(average_sums, Bound(target, table), (theta, whitening), (), executor, ranges)
    value, gradient, hessian, *averaged, left = (terms * (table.num_rows / rows) for terms in total)
    look()
    prior = _prior(target, theta, Curvature.DENSE)
    parts = float(value + prior[0]), gradient + prior[1], -(hessian + prior[2])
    here = Expansion(theta, *parts, likelihood_gradient=gradient, likelihood_hessian=hessian)
    with jax.enable_x64(True):
        found = compiled(averaged_prior)(target, theta, whitening, prior_draws(theta.size))
        prior_value, prior_gradient, prior_hessian, error = (np.asarray(part) for part in found)
    value, gradient, hessian = averaged
    parts = float(value + prior_value), gradient + prior_gradient, -(hessian + prior_hessian)
    return Averages(here, *parts, error=float(error + left))


def sums_of_table(
    target: Target, table: Table, theta: Floats, executor: Executor | None = None, *, third: bool
) -> Sums:
    """Value, gradient and Hessian of the log likelihood at theta, and with `third` its third derivatives
    T = sum_i l'''_i x_i (x) x_i (x) x_i, (d, d, d): one pass."""
    begin_pass(table.num_rows)
    if third:
        return _total(sums_to_third_of_rows, Bound(target, table), (theta,), (), executor, None)
    return _total(row_sums, Bound(target, table), (theta,), (Curvature.DENSE,), executor, None)


def prior_draws(dimension: int) -> Floats:
    """Half of them: each stands for itself and its opposite."""
    count = max(64, min(PRIOR_DRAWS, MOST_PRIOR_NUMBERS // dimension**2))
    return np.random.default_rng(0).standard_normal((count, dimension))


def _total(
    task: Any, bound: Bound, point: tuple[Floats, ...], how: tuple[Any, ...], executor: Any, ranges: Ranges | None
) -> Sums:
    """The sums of a task over all chunks, in their order."""
    tasks = [(bound, *point, start, stop, *how) for start, stop in ranges or bound.table.chunks()]
    return reduce(_added, _parts(task, tasks, executor, ranges is not None))


def _parts(task: Any, tasks: list[tuple[Any, ...]], executor: Executor | None, of_sample: bool) -> Iterator[Sums]:
    elsewhere = executor is not None and runs_elsewhere(executor)
    # A sample of the rows is summed sooner here than anywhere else, and so is a single chunk than in another process.
    if executor is None or of_sample or (elsewhere and len(tasks) == 1):
        yield from (task(*each) for each in tasks)
        return
    for (start, stop), part in zip(
        map(task.rows_of, tasks), in_order(executor, task, iter(tasks), 4 * capacity_of(executor)), strict=True
    ):
        yield part
        if elsewhere:
            count_rows(stop - start)


def _added(first: Sums, second: Sums) -> Sums:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def prior_expansion(target: Target, theta: Floats, curvature: Curvature = Curvature.DENSE) -> Expansion:
    """The log prior alone; no rows."""
    value, gradient, hessian = _prior(target, theta, curvature)
    return Expansion(
        theta, float(value), gradient, -hessian, np.zeros_like(gradient), jax.tree.map(np.zeros_like, hessian)
    )


def _arrowhead(target: Target, diagonal: Floats, limbs: Floats, corner: Floats) -> Arrowhead:
    assert target.layout.arms is not None
    return Arrowhead(target.layout.arms.first, diagonal, limbs, corner)


def _prior(target: Target, theta: Floats, curvature: Curvature) -> list[Any]:
    with jax.enable_x64(True):
        point = np.asarray(theta, np.float64)
        if curvature is Curvature.DENSE:
            program = compiled(prior_terms, quickly=theta.size <= FEW_PARAMETERS)
            return [np.asarray(term) for term in program(target, point)]
        if curvature is Curvature.ARROW:
            return _prior_as_arrow(target, point)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], theta.size)
        terms = compiled(prior_probe)(target, point, signs)
        value, gradient, diagonal = (np.asarray(term) for term in terms)
    if curvature is not Curvature.DIAGONAL:
        return [value, gradient, np.zeros(())]
    # Probed through correlations it can have the wrong sign: kept at zero, where it adds nothing.
    return [value, gradient, np.minimum(_prior_diagonal(target, theta, diagonal), 0.0)]


def _prior_diagonal(target: Target, theta: Floats, probed: Floats) -> Floats:
    """As one probe shows it where another agrees, which is then all of the Hessian; else by a product for each of them,
    or on average over probes where that takes too long."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (PROBES, theta.size))
    second = signs[0] * prior_products(target, theta, signs[:1])[0]
    if np.all(np.abs(second - probed) <= ARROW_ROUNDING * (np.abs(second) + np.abs(probed))):
        return probed
    if theta.size <= MOST_PRODUCTS:
        firsts = range(0, theta.size, PROBES)
        parts = (prior_products(target, theta, np.eye(PROBES, theta.size, first)) for first in firsts)
        return np.concatenate([np.diagonal(part, first) for first, part in zip(firsts, parts, strict=True)])
    return np.asarray((signs * prior_products(target, theta, signs)).mean(axis=0))


def _prior_as_arrow(target: Target, point: Any) -> list[Any]:
    """Refused where a product with random numbers shows that the prior's Hessian is none."""
    probes = np.random.default_rng(0).standard_normal((2, point.size))
    value, gradient, *parts, seen = (np.asarray(each) for each in compiled(prior_arrow)(target, point, probes))
    hessian = _arrowhead(target, *parts)
    largest = jax.tree.map(np.abs, hessian).times(np.abs(probes)) + np.abs(seen)
    if np.any(np.abs(seen - hessian.times(probes)) > ARROW_ROUNDING * largest):
        got, hint = "one that ties levels of a category to each other", "independent priors of its levels"
        raise NoConvergenceError(explain("a prior whose Hessian is diagonal among levels", got, hint))
    return [value, gradient, hessian]


def ties_levels(target: Target, theta: Floats) -> bool:
    """Whether the prior's Hessian is no arrowhead at this point."""
    try:
        _prior(target, theta, Curvature.ARROW)
    except NoConvergenceError:
        return True
    return False


@dataclass
class Survey:
    """The log posterior of a table as a function of theta, which counts the rows it reads."""

    target: Target
    table: Table
    executor: Executor | None = None
    curvature: Curvature = Curvature.DENSE
    rows_read: int = 0

    def __call__(self, theta: Floats, ranges: Ranges | None = None, curvature: Curvature | None = None) -> Expansion:
        self.rows_read += sum(stop - start for start, stop in ranges or self.table.chunks())
        return expand(self.target, self.table, theta, self.executor, ranges, curvature or self.curvature)

    @property
    def passes(self) -> float:
        return self.rows_read / self.table.num_rows


def require_finite(here: Expansion, where: str) -> None:
    """Raise a NonFiniteError that names the part which is not finite."""
    parts: dict[str, Any] = {"value": here.value, "gradient": here.gradient, "Hessian": here.hessian}
    for name, part in parts.items():
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(part)):
            raise NonFiniteError(
                explain(
                    f"a finite log posterior {where}",
                    f"a {name} that is not finite",
                    "evaluate log_prior and log_likelihood there by hand; move `initial` inside their domain",
                )
            )
