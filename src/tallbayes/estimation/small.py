"""Small tables at once: a family's rows in memory, answered by weights, in NumPy alone.

    rows checked -> the mode and the Gaussian in balance -> draws with weights -> the result

Whatever speaks against it (other rows or quantities, a second mode, weights that do not behave, too many draws) hands
the question over to another method, with a word of why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimation.question import Question, read_changes
from tallbayes.estimation.weighed import HandedOver, conclude_weighed, finish_weighing
from tallbayes.estimator.estimands import Estimands, Quantity, resolve_tolerances
from tallbayes.gaussian.quadrature import normal_rule
from tallbayes.methods.weighted import Weighted
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.model import Model
from tallbayes.model.observables import Observables
from tallbayes.model.parts.extras import ExtraPart
from tallbayes.model.parts.making import with_width
from tallbayes.model.weights import weigh
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import Entries, Part, Reading
from tallbayes.progress import Report, reporter, teller
from tallbayes.results.fitted import Fitted
from tallbayes.results.parts import Regression
from tallbayes.results.result import Result
from tallbayes.setup.preparation import check_data, place
from tallbayes.structure import Structure
from tallbayes.watch import aside, begin, watching
from tallbayes.weighing.balance import (
    STARTS,
    another_mode,
    balanced,
    endless_tails,
    find_mode,
    whitening_of,
    width_at_mode,
)
from tallbayes.weighing.excess import bent_by_excess
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.regression import PlainRegression, plain_regression
from tallbayes.weighing.replicates import Replicated, replicate_block
from tallbayes.weighing.rounds import FIRST_DRAWS, Weighing

MOST_ROWS, MOST_PARAMETERS, MOST_NUMBERS = 2**17, 256, 2**22
SAME_MODE = f"modes: climbs from {STARTS} other points end at the same mode"
HEAVY = "weights: the tails of a heavy-tailed prior, which rows do not cut off"
# Rows times draws: one to two seconds, where a compiler takes three.
MOST_ROWS_READ = 2e8
# Counts with an overdispersion take longer, a minute at most; a ladder does not end where it may be nothing.
MOST_ROWS_OF_EXCESS, MOST_READ_OF_EXCESS = 2**19, 5e8


@dataclass(frozen=True, eq=False)
class SmallTable:
    """A family with its rows, the Gaussian in balance, and how parameters are read off theta: a `DrawSource`."""

    regression: PlainRegression
    anchor: Anchor
    reading: Reading
    proposal: Proposal
    matrix: Floats

    @property
    def num_rows(self) -> int:
        return self.regression.num_rows

    def blocks(self, numbers: range) -> Iterator[tuple[Floats, Floats, Floats]]:
        for number in numbers:
            z = self.proposal.block(number)
            yield z, *self.look(z)

    def look(self, z: Floats) -> tuple[Floats, Floats]:
        moves = self.anchor.displacements(z)
        return self.regression.log_density(self.anchor.mode + moves), self.values(moves)

    def replicates(self, numbers: range, base: Floats, exact: np.ndarray) -> Iterator[Replicated]:
        for number in numbers:
            yield replicate_block(self.look, self.proposal, number, base, exact)

    def values(self, moves: Floats) -> Floats:
        """What is reported, less that at the centre, and its squares."""
        moved = self._constrained(moves) @ self.matrix.T
        return np.hstack([moved, moved**2])

    def _constrained(self, moves: Floats) -> Floats:
        """How far theta moves when u does."""
        moved = moves.copy()
        for each, extra in self._extras:
            centre = self.anchor.mode[each]
            if extra.space == "positive":
                moved[:, each] = np.exp(centre) * np.expm1(moves[:, each])
            else:
                moved[:, each] = extra.curve(centre + moves[:, each])[0] - extra.curve(centre)[0]
        return moved

    @property
    def _extras(self) -> list[tuple[int, ExtraPart]]:
        """Those that are curved, each reported by itself, with their places."""
        extras = self.regression.extras
        placed = enumerate(extras, self.regression.dimension - len(extras))
        return [(place, extra) for place, extra in placed if extra.space != "real"]

    def reported(self) -> Floats:
        """What is reported at the centre."""
        theta = self.anchor.mode.copy()
        for each, extra in self._extras:
            theta[each] = extra.curve(theta[each])[0]
        return self.matrix @ theta + (0.0 if self.reading.offset is None else self.reading.offset)

    def gaussian(self) -> Floats:
        """E of `values` under the Gaussian: exact, also of exp of a normal number; of others by a rule."""
        first = np.zeros(len(self.matrix))
        second = np.sum((self.matrix @ self.anchor.whitening) ** 2, axis=1)
        for each, extra in self._extras:
            (rows,) = np.nonzero(self.matrix[:, each])
            growth = float(self.anchor.covariance[each, each])
            if extra.space != "positive":
                centre, (nodes, weights) = self.anchor.mode[each], normal_rule(np.sqrt(growth))
                moved = extra.curve(centre + np.sqrt(growth) * nodes)[0] - extra.curve(centre)[0]
                first[rows] = self.matrix[rows, each] * (weights @ moved)
                second[rows] = self.matrix[rows, each] ** 2 * (weights @ moved**2)
                continue
            scale = self.matrix[rows, each] * np.exp(self.anchor.mode[each])
            first[rows] = scale * np.expm1(growth / 2)
            second[rows] = scale**2 * (np.exp(2 * growth) - 2 * np.exp(growth / 2) + 1)
        return np.concatenate([first, second])


@dataclass(frozen=True, eq=False)
class ExactLevel:
    """Expectations under a Gaussian that are known without draws."""

    mean: Floats
    draws: int = 0

    @property
    def variance(self) -> Floats:
        return np.zeros_like(self.mean)

    @property
    def covariance(self) -> Floats:
        return np.zeros(len(self.mean) // 2)

    @property
    def kurtosis(self) -> Floats:
        return np.full_like(self.mean, 3.0)

    def extended(self, draws: float) -> ExactLevel:
        return self


def answer_small(asked: Question, method: Weighted, report: Report, started: float) -> Result | HandedOver:
    """The result, or why there is none by these means."""
    if not _applies(asked):
        return HandedOver()
    begin("checking rows")
    model, rows = aside(checked_rows, asked)
    count, width = len(rows["y"]), model.layout.width(rows)
    dimension = model.layout.heads * (width + model.layout.intercept) + model.layout.extras
    affordable = asked.budget.max_evaluations >= 2 * FIRST_DRAWS * count
    has_excess = model.parts is not None and any(extra.space == "excess" for extra in model.parts.extras)
    most_rows, most_read = (MOST_ROWS_OF_EXCESS, MOST_READ_OF_EXCESS) if has_excess else (MOST_ROWS, MOST_ROWS_READ)
    if count > most_rows or dimension > MOST_PARAMETERS or count * dimension > MOST_NUMBERS or not affordable:
        return HandedOver()
    begin("mode")
    regression = plain_regression(model, rows, unit_of(model, rows))
    other = width_at_mode(regression)
    if other is not None:
        asked = replace(asked, model=with_width(asked.model, other))
        model, rows = aside(checked_rows, asked)
        regression = plain_regression(model, rows, unit_of(model, rows))
    try:
        found = aside(_centred, regression, model, asked.seed)
    except np.linalg.LinAlgError:
        return HandedOver("weights: no Gaussian that is one was found")
    if isinstance(found, HandedOver):
        return found
    if regression.stated is not None:
        heavy = regression.stated.heavy(found.sd[: regression.dimension - regression.layout.extras])
        if endless_tails(regression, found, heavy):
            return HandedOver(HEAVY)
    reading, matrix = reading_of(model, rows, width)
    proposal = _proposal(regression, found, asked.seed, method.degrees_of_freedom)
    source = SmallTable(regression, found, reading, proposal, matrix)
    estimands = _estimands(asked.quantities, source)
    goal = resolve_tolerances(asked.accuracy.kind, asked.accuracy.size, estimands)
    level = ExactLevel(source.gaussian())
    parts = source, proposal, estimands, level, goal, asked.budget, report
    begin("sampling")
    return _finished(asked, method, model, Weighing(*parts, most_read), started)


def _proposal(regression: PlainRegression, anchor: Anchor, seed: int, freedom: float | None) -> Proposal:
    """About the Gaussian, which bends where there is an overdispersion; tails that were asked for are those of one."""
    bent = aside(bent_by_excess, regression, anchor, seed) if freedom is None else None
    return bent or Proposal.about(regression.dimension, seed, freedom)


def _finished(
    asked: Question,
    method: Weighted,
    model: Model,
    weighing: Weighing,
    started: float,
) -> Result | HandedOver:
    table: Any = weighing.source
    describe = partial(
        conclude_weighed,
        anchor=table.anchor,
        reading=table.reading,
        live=None,
        regression=regression_record(model),
        settings=asked.settings("float64"),
        method=method.in_brief,
        keep_posterior=asked.keep_posterior,
        notes=("modes: log-concave: one mode" if model.log_concave else SAME_MODE,),
    )
    extend = partial(_extend, asked, method, model)
    found = finish_weighing(weighing, asked, method, started, describe, extend)
    return found if isinstance(found, HandedOver) else replace(found, fitted_source=cache(partial(fitted_rows, asked)))


def fitted_rows(asked: Question) -> Fitted:
    """The rows where compiled programs can read them."""
    placed = place(*checked_rows(asked), "float64", True, None)
    return Fitted(placed.target, placed.table)


def _extend(
    asked: Question,
    method: Weighted,
    model: Model,
    weighing: Weighing,
    **changes: Any,
) -> Result:
    """Go on to another tolerance or budget; by the other method, where weights no longer do."""
    from tallbayes.estimation.estimate import answer_otherwise

    changed = read_changes(asked, **changes)
    question = changed.applied(asked)
    goal = resolve_tolerances(question.accuracy.kind, question.accuracy.size, weighing.estimands)
    with reporter(changed.progress) as report, watching(changed.budget.max_seconds, teller(report)) as watch:
        further = replace(weighing, goal=goal, budget=changed.budget, report=report)
        found = _finished(question, method, model, further, watch.started)
    return found if isinstance(found, Result) else answer_otherwise(question, found)


def _applies(asked: Question) -> bool:
    wanted = (asked.quantities,) if isinstance(asked.quantities, str) else asked.quantities
    named = wanted is None or (isinstance(wanted, list | tuple) and len(wanted) > 0 and all(map(_is_moment, wanted)))
    in_memory = type(asked.data) is dict and {"x", "y"} & set(asked.data) and asked.stored is None
    model = asked.model
    if getattr(model, "groups", None) is not None:
        return False
    parts = getattr(model, "parts", None)
    if parts is not None and not all(extra.is_scalar for extra in parts.extras):
        return False
    # Of smooths the predictor is not linear in what is drawn.
    is_linear = getattr(model, "is_as_made", False) and model.predictor is not None
    is_family = is_linear and (model.report is None or model.flat_report is not None)
    return bool(is_family and named and in_memory and asked.anchor is None and _is_unneeded(asked))


def _is_unneeded(asked: Question) -> bool:
    """An executor that is one, and a ledger that could be made: an answer at once has no use for them."""
    able = asked.executor is None or callable(getattr(asked.executor, "submit", None))
    if asked.ledger is None:
        return able
    path = Path(asked.ledger)
    return able and not path.exists() and path.absolute().parent.is_dir()


def _is_moment(what: Any) -> bool:
    return isinstance(what, str) and what in ("mean", "sd")


def checked_rows(asked: Question) -> tuple[Model, Any]:
    arrays = check_data(asked.model, asked.data)
    return (asked.model, arrays) if asked.weights is None else weigh(asked.model, arrays, asked.weights)


def unit_of(model: Model, rows: Any) -> float:
    """The size of the response where it has one: of its noise, where that is known."""
    if CATALOGUE[model.family or ""].response != "real":
        return np.inf
    known = None if model.noise is None else model.noise.scale
    return float(known or np.std(rows["y"]) or 1.0)


def _centred(regression: PlainRegression, model: Model, seed: int) -> Anchor | HandedOver:
    """The Gaussian in balance; handed over where a climb does not end, or ends in several places."""
    start = np.zeros(regression.dimension)
    found = find_mode(regression, start)
    if found is None:
        return HandedOver("weights: the climb to a mode did not end")
    mode, at_mode, passes = found
    if not model.log_concave and another_mode(regression, mode, whitening_of(at_mode.curvature), seed):
        return HandedOver("weights: climbs from elsewhere do not end at the same mode")
    centre, precision, more = balanced(regression, mode, at_mode.curvature)
    here, prior = regression.at(centre), regression.prior(centre)
    return Anchor(
        mode=centre,
        likelihood_gradient=here.gradient - prior.gradient,
        likelihood_hessian=-(here.curvature - prior.curvature),
        precision=precision,
        log_density=here.value,
        passes=passes + more + 1,
        num_rows=regression.num_rows,
        gradient=here.gradient,
        hessian=here.curvature,
    )


def reading_of(model: Model, rows: Any, width: int) -> tuple[Reading, Floats]:
    """How parameters are read off theta, and the matrix of it."""
    layout, scales = model.layout, (() if model.parts is None else tuple(model.parts.scales))
    by_class = CATALOGUE[model.family or ""].by_class
    shapes: dict[str, tuple[int, ...]] = {
        "coefficients": (layout.heads, width) if by_class else (width,),
        "intercept": (layout.heads,) if by_class else (),
    }
    extras = {} if model.parts is None else {extra.name: extra for extra in model.parts.extras}
    parts = tuple(
        Part(*extras[name].reading, ()) if name in extras else Part("real", (), shapes[name]) for name in scales
    )
    size = sum(part.size for part in parts)
    if model.flat_report is None:
        one = {name: Structure.leaf(part.shape) for name, part in zip(scales, parts, strict=True)}
        whole = Structure.container("dict", list(one.items())) if len(one) > 1 else one["coefficients"]
        return Reading(whole, parts), np.eye(size)
    assert model.structure is not None
    flat_report = model.flat_report

    def reported(flat: Floats) -> Floats:
        theta, start = {}, 0
        for name, part in zip(scales, parts, strict=True):
            theta[name] = flat[start : start + part.size].reshape(part.shape)
            start += part.size
        return np.asarray(flat_report(theta if len(theta) > 1 else theta["coefficients"], model.units))

    offset = reported(np.zeros(size))
    matrix = np.stack([reported(unit) - offset for unit in np.eye(size)], axis=1)
    row, column = np.nonzero(matrix)
    entries = Entries(row.astype(np.int32), column.astype(np.int32), matrix[row, column])
    return Reading(model.structure, parts, entries, offset), matrix


def _estimands(wanted: Any, source: SmallTable) -> Estimands:
    structure, size = source.reading.structure, len(source.matrix)
    names = ("mean", "sd") if wanted is None else (wanted,) if isinstance(wanted, str) else tuple(wanted)
    quantities = tuple(Quantity(name, name, size * (name == "sd"), structure) for name in names)
    first, second = np.split(source.gaussian(), 2)
    sd = np.sqrt(np.maximum(second - first**2, 0.0))
    scale = np.concatenate([sd, np.sqrt(2) * sd**2])
    return Estimands(quantities, Observables(True, ()), source.reported(), scale, np.zeros(2 * size))


def regression_record(model: Model) -> Regression:
    layout = model.layout
    scale, freedom = (None, None) if model.noise is None else model.noise[1:]
    parts = layout.heads, layout.intercept, layout.extras
    return Regression(model.family or "", *parts, noise_scale=scale, degrees_of_freedom=freedom, beside=layout.beside)
