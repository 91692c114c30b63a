"""Expansions: value and derivatives of the log posterior at one point, as float64 sums streamed over the rows.

    log pi(theta) + (N/m) sum over m rows of log p(x_i | theta),   m = N unless a sample of rows is asked for

and the same on average over theta ~ N(m, W W^T). One call is one pass. Chunks run wherever an executor puts them; they
are added in their order, so the bits are the same. A chunk is summed in pieces that take a fraction of a second each,
and the watch is looked at between them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256
from typing import Any

import numpy as np

from tallbayes.anchor.sums import (
    Curvature,
    averaged_prior,
    averaged_sums,
    likelihood_sums,
    prior_arrow,
    prior_probe,
    prior_terms,
    shapes_of_sums,
    sums_to_third,
)
from tallbayes.anchor.wide.curvature import minus_hessian
from tallbayes.errors import NoConvergenceError, NonFiniteError, explain
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import Chain
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.watch import begin_pass, count_rows, find, look
from tallbayes.workers.executors import Executor, capacity_of, in_order, runs_elsewhere
from tallbayes.workers.tasks import Book

Ranges = Sequence[tuple[int, int]]
Sums = tuple[Floats, ...]

FIRST_PIECE = 16 * TILE_ROWS
# Larger sums over a chunk of rows are not kept where there are many chunks; of a pass, no more than so many bytes.
MOST_SUMS, MOST_OF_A_PASS = 2**15, 2**24
PIECE_SECONDS = 0.2
PRIOR_DRAWS, MOST_PRIOR_NUMBERS = 2**12, 2**24
MOST_GROWTH = 16.0
ARROW_ROUNDING = 1e-9
# Of so many the prior's Hessian takes no time at all, however it is compiled.
FEW_PARAMETERS = 64

SUMS = {curvature: partial(likelihood_sums, curvature=curvature) for curvature in Curvature}


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
        return isinstance(self.hessian, Arrowhead | Chain) or self.hessian.ndim > 0

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


@dataclass(frozen=True, eq=False)
class Bound:
    """A target and the rows it is about: what a sum over some of them needs."""

    target: Target
    table: Table


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


@dataclass(frozen=True)
class RowSums:
    """The task of value, gradient and curvature of the log likelihood of rows start..stop-1."""

    def __call__(self, bound: Bound, theta: Floats, start: int, stop: int, curvature: Curvature) -> Sums:
        shapes = shapes_of_sums(bound.target, curvature)
        return _in_pieces(SUMS[curvature], bound, (theta,), start, stop, shapes)

    def rows_of(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        _, _, start, stop, _ = arguments
        return start, stop

    def record(
        self, kept_bytes: float, bound: Bound, theta: Floats, start: int, stop: int, curvature: Curvature
    ) -> SumsRecord | None:
        """By the point and the rows, until set-up is on record as a whole; None where there would be too much of it."""
        largest = max(int(np.prod(shape)) for shape in shapes_of_sums(bound.target, curvature)[2:])
        return _record_of(bound, largest, (theta,), f"{start} {stop} {curvature.name}")


@dataclass(frozen=True)
class AverageSums:
    """The task of the same and of their averages over N(theta, W W^T), of rows start..stop-1."""

    def __call__(self, bound: Bound, theta: Floats, whitening: Floats, start: int, stop: int) -> Sums:
        shapes = (*2 * shapes_of_sums(bound.target, Curvature.DENSE), ())
        return _in_pieces(averaged_sums, bound, (theta, whitening), start, stop, shapes)

    def rows_of(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        _, _, _, start, stop = arguments
        return start, stop

    def record(
        self, kept_bytes: float, bound: Bound, theta: Floats, whitening: Floats, start: int, stop: int
    ) -> SumsRecord | None:
        """By the point, W and the rows."""
        return _record_of(bound, 2 * theta.size**2, (theta, whitening), f"{start} {stop} averages")


@dataclass(frozen=True)
class ThirdSums:
    """The task of value, gradient, Hessian and third derivatives of the log likelihood of rows start..stop-1."""

    def __call__(self, bound: Bound, theta: Floats, start: int, stop: int) -> Sums:
        shapes = *shapes_of_sums(bound.target, Curvature.DENSE), (theta.size,) * 3
        return _in_pieces(sums_to_third, bound, (theta,), start, stop, shapes)

    def rows_of(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        _, _, start, stop = arguments
        return start, stop

    def record(self, kept_bytes: float, bound: Bound, theta: Floats, start: int, stop: int) -> SumsRecord | None:
        """By the point and the rows."""
        return _record_of(bound, theta.size**3, (theta,), f"{start} {stop} to third")


row_sums, average_sums, sums_to_third_of_rows = RowSums(), AverageSums(), ThirdSums()


def _in_pieces(
    program: Any, bound: Bound, point: tuple[Floats, ...], start: int, stop: int, shapes: tuple[tuple[int, ...], ...]
) -> Sums:
    """A chunk in pieces that take a fraction of a second each."""
    # The setting belongs to a thread, so it is entered inside the task.
    with jax.enable_x64(True):
        at = tuple(jax.device_put(np.asarray(each, np.float64)) for each in point)
        sums: Any = tuple(np.zeros(shape) for shape in shapes)
        first, size = start, FIRST_PIECE
        while first < stop:
            last, begun = min(first + size, stop), time.monotonic()
            ends = np.int32(first), np.int32(last)
            sums = compiled(program)(bound.target, bound.table.rows, *ends, *at, sums)
            sums = tuple(part.block_until_ready() for part in sums)
            count_rows(last - first)
            first, size = last, _next_piece(last - first, time.monotonic() - begun)
        return tuple(np.asarray(part) for part in sums)


def _record_of(bound: Bound, numbers: int, point: tuple[Floats, ...], name: str) -> SumsRecord | None:
    if 8 * numbers > max(MOST_SUMS, MOST_OF_A_PASS // len(bound.table.chunks())):
        return None
    total = sha256()
    for each in point:
        total.update(np.ascontiguousarray(each, np.float64).tobytes())
    return SumsRecord(f"{total.hexdigest()} {name}")


@dataclass(frozen=True)
class SumsRecord:
    """Sums over a chunk of rows, among the entries of a book."""

    name: str

    def find(self, book: Book) -> Sums | None:
        return book.entry(None, "sums", self.name)

    def write(self, book: Book, sums: Sums) -> None:
        book.enter(None, "sums", self.name, sums)


def _next_piece(rows: int, seconds: float) -> int:
    """Rows that should take a fraction of a second, in whole tiles, if so many took so long."""
    growth = min(PIECE_SECONDS / max(seconds, 1e-9), MOST_GROWTH)
    return TILE_ROWS * max(1, int(growth * rows / TILE_ROWS))


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
    # A diagonal probed through correlations can have the wrong sign: kept at zero, where it adds nothing.
    kept = np.minimum(diagonal, 0.0) if curvature is Curvature.DIAGONAL else np.zeros(())
    return [value, gradient, kept]


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
