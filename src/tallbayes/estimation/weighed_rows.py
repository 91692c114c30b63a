"""Draws with weights of any model: log densities by one compiled program, wherever an executor puts them.

A block of draws is a pure function of the posterior, the seed and its number; a ledger keeps what it found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.gaussian_level import laplace_level
from tallbayes.anchor.mode import anchor_at
from tallbayes.anchor.screening import log_densities
from tallbayes.estimation.conclusion import regression_of
from tallbayes.estimation.group_effects import effect_source, factors_of
from tallbayes.estimation.question import FINE_SHARE, Question, read_changes
from tallbayes.estimation.small import MOST_PARAMETERS
from tallbayes.estimation.weighed import HandedOver, conclude_weighed, finish_weighing
from tallbayes.estimator.estimands import Estimands, resolve_tolerances
from tallbayes.estimator.run import Goal
from tallbayes.methods.weighted import Weighted
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.moments import Floats
from tallbayes.progress import Report, reporter, teller
from tallbayes.results.fitted import Fitted
from tallbayes.results.result import Result
from tallbayes.rows.table import Table
from tallbayes.setup.preparation import Prepared, with_probe
from tallbayes.setup.quantities import observed_values
from tallbayes.setup.record import Search
from tallbayes.setup.tail_variances import tails_of
from tallbayes.watch import aside, begin, count_rows, watching
from tallbayes.weighing.adaptation import DRAWS, weighted_moments
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.replicates import Replicated, replicate_block
from tallbayes.weighing.rounds import FIRST_DRAWS, Weighed, Weighing
from tallbayes.weighing.scales import bent_by_scales
from tallbayes.workers.executors import Executor, capacity_of, in_order
from tallbayes.workers.sharing import hire
from tallbayes.workers.tasks import Book

Block = tuple[Floats, Floats]

# Of groups, whose integrals are compiled programs: as many as take some ten seconds, when a ladder is cheaper.
MOST_DENSITIES = 1e9
# Where a compiler is needed whatever is done, a ladder is the faster one sooner.
MOST_ROWS, MOST_NUMBERS, MOST_ROWS_READ = 2**14, 2**21, 1e8
# Of smooths rows say next to nothing about the scales however many they are: there a ladder's paths cost as much as
# at few rows, times what their steps read, and weights what they do at few rows, a draw at a time.
MOST_OF_SMOOTHS, MOST_NUMBERS_OF_SMOOTHS, MOST_READ_OF_SMOOTHS = 2**18, 2**23, 1e9
# A covariance of more numbers than that is not known by a few hundred draws.
MOST_ADAPTED = 24


@dataclass(frozen=True, eq=False)
class DrawGround:
    """What a block of draws stands on."""

    target: Target
    table: Table
    anchor: Anchor
    observables: Observables
    proposal: Proposal

    def look(self, z: Floats) -> Block:
        """log pi and the observables at draws z."""
        anchor, moves = self.anchor, self.anchor.displacements(z)
        found = log_densities(self.target, self.table, anchor.mode + moves, None)
        count_rows(self.table.num_rows * len(moves))
        units = self.table.units
        values, _ = observed_values(self.target, self.observables, anchor.mode, moves, 0 * moves, units)
        return found, values


@dataclass(frozen=True)
class DrawBlock:
    """The task of one block of draws: log pi, and the observables."""

    def __call__(self, ground: DrawGround, number: int) -> Block:
        return ground.look(ground.proposal.block(number))

    def record(self, kept_bytes: float, ground: DrawGround, number: int) -> DrawRecord:
        return DrawRecord(ground.proposal.seed, f"{ground.proposal.name} {number}")


draw_block = DrawBlock()


@dataclass(frozen=True)
class PairsBlock:
    """The task of one block of unbiased replicates."""

    def __call__(self, ground: DrawGround, number: int, base: Floats, exact: np.ndarray) -> Replicated:
        return replicate_block(ground.look, ground.proposal, number, base, exact)

    def record(self, kept_bytes: float, ground: DrawGround, number: int, base: Floats, exact: Any) -> PairsRecord:
        return PairsRecord(ground.proposal.seed, f"pairs {ground.proposal.name} {number}")


pairs_block = PairsBlock()


@dataclass(frozen=True)
class DrawRecord:
    """What a block of draws found, among the entries of a book."""

    seed: int
    name: str

    def find(self, book: Book) -> Block | None:
        known = book.entry(self.seed, "draws", self.name)
        return None if known is None else (np.asarray(known[0]), np.asarray(known[1]))

    def write(self, book: Book, block: Block) -> None:
        book.enter(self.seed, "draws", self.name, list(block))


@dataclass(frozen=True)
class PairsRecord:
    """The same of a block of replicates."""

    seed: int
    name: str

    def find(self, book: Book) -> Replicated | None:
        known = book.entry(self.seed, "draws", self.name)
        return None if known is None else Replicated(np.asarray(known[0]), int(known[1]))

    def write(self, book: Book, block: Replicated) -> None:
        book.enter(self.seed, "draws", self.name, list(block))


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Blocks of draws by an executor: a `DrawSource`."""

    ground: DrawGround
    executor: Executor

    @property
    def num_rows(self) -> int:
        return self.ground.table.num_rows

    def blocks(self, numbers: range) -> Iterator[tuple[Floats, Floats, Floats]]:
        tasks = ((self.ground, number) for number in numbers)
        found = in_order(self.executor, draw_block, tasks, 2 * capacity_of(self.executor))
        for number, (log_density, values) in zip(numbers, found, strict=True):
            yield self.ground.proposal.block(number), log_density, values

    def replicates(self, numbers: range, base: Floats, exact: np.ndarray) -> Iterator[Replicated]:
        tasks = ((self.ground, number, base, exact) for number in numbers)
        yield from in_order(self.executor, pairs_block, tasks, 2 * capacity_of(self.executor))


@dataclass(frozen=True, eq=False)
class WantedRows:
    """What a posterior that is set up is asked for, and by whom."""

    asked: Question
    prepared: Prepared
    search: Search

    @property
    def method(self) -> Weighted:
        assert self.asked.weighted is not None
        return self.asked.weighted


def applies(asked: Question, prepared: Prepared, search: Search) -> bool:
    """A table that is small enough, with one mode and a Gaussian that knows all correlations."""
    anchor, rows = prepared.anchor, prepared.table.num_rows
    smooth = _has_smooths(prepared.target)
    most, numbers = (MOST_OF_SMOOTHS, MOST_NUMBERS_OF_SMOOTHS) if smooth else (MOST_ROWS, MOST_NUMBERS)
    small = rows <= most and len(anchor.mode) <= MOST_PARAMETERS and rows * len(anchor.mode) <= numbers
    plain = anchor.has_mode and not anchor.is_diagonal and not search[0] and not asked.one_of_several
    affordable = asked.budget.max_evaluations >= 2 * FIRST_DRAWS * rows
    affordable &= 2 * FIRST_DRAWS * rows <= _most_rows(prepared)
    known = prepared.integral_error <= FINE_SHARE * asked.accuracy.finest
    return asked.weighted is not None and small and plain and affordable and known


def about_moments(prepared: Prepared, executor: Executor) -> Prepared:
    """Groups, about the mean and covariance of the posterior, where draws with weights about the mode tell them."""
    target, table, anchor = prepared.target, prepared.table, prepared.anchor
    if target.integrated is None or len(anchor.mode) > MOST_ADAPTED:
        return prepared
    begin("recentring")

    def log_density(z: Floats) -> Floats:
        found = log_densities(target, table, anchor.mode + anchor.displacements(z), None)
        count_rows(table.num_rows * len(z))
        return found

    found = weighted_moments(log_density, len(anchor.mode))
    if found is None:
        return prepared
    mean, covariance = found
    root = anchor.displacements(np.linalg.cholesky(covariance).T).T
    inverse = np.linalg.inv(root)
    here = expand(target, table, anchor.mode + anchor.displacements(mean[None])[0], executor)
    moved = anchor_at(here, anchor.passes, anchor.num_rows)
    moved = replace(moved, precision=inverse.T @ inverse, hessian=moved.precision, has_mode=anchor.has_mode)
    spent = prepared.setup_evaluations + (DRAWS + 1) * table.num_rows
    return replace(prepared, anchor=moved, setup_evaluations=spent)


def _most_rows(prepared: Prepared) -> float:
    """That may be read by draws in all."""
    if _has_smooths(prepared.target):
        return MOST_READ_OF_SMOOTHS
    work = prepared.target.work(prepared.table.rows)
    return MOST_ROWS_READ if work == 1 else MOST_DENSITIES / work


def weigh_rows(
    asked: Question,
    prepared: Prepared,
    search: Search,
    estimands: Estimands,
    goal: Goal,
    executor: Executor,
    report: Report,
    started: float,
) -> Result | HandedOver:
    """The result, or why there is none by these means."""
    prepared, proposal = _proposal(asked, prepared, executor)
    wanted = WantedRows(asked, prepared, search)
    target, table, anchor = prepared.target, prepared.table, prepared.anchor
    begin("Gaussian level")
    level = aside(laplace_level, target, estimands.observables, anchor, estimands.jump, asked.seed, table.units)
    source = DrawnRows(DrawGround(target, table, anchor, estimands.observables, proposal), executor)
    parts = source, proposal, estimands, level, goal, asked.budget, report
    if _has_endless_tails(prepared, estimands, executor):
        return HandedOver("weights: the tails of a quantity have no end")
    begin("sampling")
    weighing = Weighing(*parts, _most_rows(prepared), standing_bias=prepared.integral_error)
    return _finished(wanted, weighing, started)


def _proposal(asked: Question, prepared: Prepared, executor: Executor) -> tuple[Prepared, Proposal]:
    """Of smooths, and of a mixed model with more parameters than draws know the moments of, one that bends with the
    scales."""
    assert asked.weighted is not None
    anchor, freedom = prepared.anchor, asked.weighted.degrees_of_freedom
    plain = Proposal.about(len(anchor.mode), asked.seed, freedom)
    bends = _has_smooths(prepared.target) or (_is_mixed(prepared.target) and len(anchor.mode) > MOST_ADAPTED)
    if anchor.recentred or freedom is not None or not bends:
        return prepared, plain
    begin("proposal")
    found = aside(bent_by_scales, prepared.target, prepared.table, anchor, asked.seed, executor)
    spent = prepared.setup_evaluations + found.passes * prepared.table.num_rows
    return replace(prepared, setup_evaluations=spent), found.proposal or plain


def _is_mixed(target: Target) -> bool:
    """Whether it is a family's model with effects by group (`model.groups.mixed`)."""
    integrated = target.integrated
    return integrated is not None and integrated.integral.groups.weigh_rows is not None


def _has_smooths(target: Target) -> bool:
    return target.parts is not None and bool(target.parts.smooths)


def _has_endless_tails(prepared: Prepared, estimands: Estimands, executor: Executor) -> bool:
    """Looked for in a model of one's own, and where a prior that was stated for a family's has heavy tails."""
    target = prepared.target
    is_family = target.predictor is not None or target.parts is not None
    if target.log_concave or (is_family and (target.parts is None or target.parts.moments == np.inf)):
        return False
    begin("tails")
    probed = aside(with_probe, prepared, executor)
    if probed.probe is None:
        return False
    parts = prepared.target, estimands, prepared.anchor, prepared.table.units
    return bool(np.any(aside(tails_of, *parts, probed.probe).endless))


def _finished(wanted: WantedRows, weighing: Weighing, started: float) -> Result | HandedOver:
    asked, prepared = wanted.asked, wanted.prepared
    describe = partial(
        _described,
        prepared,
        anchor=prepared.anchor,
        reading=None,
        live=(prepared.target, prepared.table.units),
        regression=regression_of(prepared.target),
        settings=asked.settings("float64"),
        method=wanted.method.in_brief,
        keep_posterior=asked.keep_posterior,
        notes=wanted.search[1],
        setup_evaluations=prepared.setup_evaluations,
    )
    return finish_weighing(weighing, asked, wanted.method, started, describe, partial(_extend, wanted))


def _described(prepared: Prepared, weighed: Weighed, **parts: Any) -> Result:
    found = conclude_weighed(weighed, standing_bias=prepared.integral_error, **parts)
    factors = factors_of(prepared)
    notes = (*(factor.note for factor in factors), *found.notes)
    own: dict[str, Any] = {"effect_source": effect_source(found.posterior, prepared)}
    own["fitted_source"] = partial(Fitted, prepared.target, prepared.table, prepared.grouping)
    return replace(found, notes=notes, factors=factors, **own)


def _extend(wanted: WantedRows, weighing: Weighing, **changes: Any) -> Result:
    """Go on to another tolerance or budget; by the other method, where weights no longer do."""
    from tallbayes.estimation.estimate import answer_otherwise

    asked, source = wanted.asked, weighing.source
    assert isinstance(source, DrawnRows)
    changed = read_changes(asked, **changes)
    question = changed.applied(asked)
    goal = resolve_tolerances(question.accuracy.kind, question.accuracy.size, weighing.estimands)
    with (
        reporter(changed.progress) as report,
        watching(changed.budget.max_seconds, teller(report)) as watch,
        hire(changed.executor, source.ground.table) as hired,
    ):
        ground = replace(source.ground, table=hired.table)
        onward = replace(weighing, source=DrawnRows(ground, hired.executor), goal=goal, budget=changed.budget)
        found = _finished(replace(wanted, asked=question), replace(onward, report=report), watch.started)
    return found if isinstance(found, Result) else answer_otherwise(question, found)
