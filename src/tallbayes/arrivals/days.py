"""A day: from a standing to the answer for all of its rows, by the walk that every fit takes.

`estimate` enters that walk at its beginning; a day enters it where the set-up is done. What pilots and a probe found is
taken over, until the centre moves or paths turn out not to settle any more. While rows are few they are answered by
weights, as in `estimate`; and where sums at a centre do not say all that is needed, as of several modes, a shrinkage
prior or thousands of coefficients, a day reads all rows anew, and its notes say so.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.arrivals.disk.tables import OnDisk
from tallbayes.arrivals.groups.beginning import arrived_of, begun_of_groups
from tallbayes.arrivals.groups.standing import CarriedGroups
from tallbayes.arrivals.memory import Growing
from tallbayes.arrivals.role import HeldRows
from tallbayes.arrivals.standing import Carried, Footing, carries_on
from tallbayes.errors import InputError, explain
from tallbayes.estimation.estimate import answer, noted
from tallbayes.estimation.question import Changes, Question, read_changes
from tallbayes.estimation.walk import check_rows
from tallbayes.estimator.decisions import Decision
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.foresight import PILOT_PATHS
from tallbayes.formula.again.arriving import FormulaDoor
from tallbayes.methods.anchored import Anchored
from tallbayes.methods.attempts import UNSETTLED
from tallbayes.progress import Report, reporter, teller
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.setup.known import Known
from tallbayes.setup.preparation import Prepared, bind_rows, place
from tallbayes.watch import OutOfTime, Watch, begin, watching
from tallbayes.workers.executors import default_executor

Standing = Carried | CarriedGroups

# Rows that weights read sooner than a ladder is set up.
FEW_ROWS = 2**12
# By which it is seen how a model reads a table on disk.
HEAD_ROWS = 2**12
# A step's rows, with a control and without, by how much single rows can do (decision 047): the variance of a mean that
# a batch of one row leaves is about a third of (sum s)^2, and a control leaves its square. With third derivatives
# a batch of four foresees rows whose day was an early one of its month; where sizes are next to nothing one will do.
LEFT, PAIRED, FEWEST, MOST, NEXT_TO_NOTHING = 0.3, 0.1, 4, 64, 1 / 16
UNFINISHED = (Status.max_seconds, Status.max_evaluations, Status.interrupted)


class AstrayError(Exception):
    """Rows are expanded so far away that the means of a control take too many pairs, or paths as many gradients as
    another centre: found by so many rows read."""

    def __init__(self, read: int) -> None:
        super().__init__(read)
        self.read = read


def begun(question: Question, result: Result) -> Standing:
    """A standing for what was asked, before anything came: rows in memory are placed anew, where they can grow, and
    those on disk are read where they lie."""
    stored = question.stored
    if question.model.groups is not None:
        if stored is not None:
            got = "one whose effects of groups are integrated out"
            hint = "tb.fit of the whole table anew, or rows in memory"
            raise InputError(explain("a model without groups, for a table on disk that is updated", got, hint))
        return begun_of_groups(question, result)
    # Those on disk were checked by the fit.
    data = question.data if stored is None else head_of(stored)
    model, arrays = check_rows(question.model, data, question.weights)
    bound = bind_rows(model, arrays)
    placed = place(model, arrays, question.method.precision, False, stored, bound)
    search = (), tuple(note for note in result.notes if note.startswith("modes: ")) or ("modes: as first searched",)
    start = bound[1]
    if result.anchor is not None and result.anchor.mode.shape == start.shape and result.anchor.is_proper:
        start = result.anchor.mode
    if result.modes:
        search = tuple(result.modes), search[1]  # type: ignore[assignment]
    rows: HeldRows = Growing.of(placed.table)
    if stored is not None:
        door = result.door if isinstance(result.door, FormulaDoor) else None
        formula = (None, None) if door is None or door.table is None else (door.encoding, door.table.data)
        rows = OnDisk.of(placed.table, *formula)
    return Carried(question, placed.target, start, placed.precision, rows, search=search)


def head_of(stored: Stored) -> Stored:
    """The first rows of a table alone, to look at: they are no table of their own."""
    return replace(stored, num_rows=min(HEAD_ROWS, stored.num_rows))


def arrays_of(question: Question, data: Any, weights: Any) -> Any:
    """More rows, checked as those of the fit were; with weights if these had them."""
    if isinstance(question.weights, str) and weights is None and isinstance(data, dict) and question.weights in data:
        weights, data = data[question.weights], {name: data[name] for name in data if name != question.weights}
    require_same_weights(question, weights)
    if question.model.groups is not None:
        return arrived_of(question.model, data, weights)
    return check_rows(question.model, data, weights)[1]


def require_same_weights(question: Question, weights: Any) -> None:
    """Refuse rows with weights where those of the fit had none, and rows without where they had."""
    if (weights is None) != (question.weights is None):
        expected, got = ("weights, as the fit had them", "none") if weights is None else ("no weights", "some")
        raise InputError(explain(expected, got, "weights=1 for each row that counts once, in the fit and here"))


def answered(standing: Standing, changes: Changes) -> Result:
    """The answer of a day, with the standing it leaves behind."""
    asked = replace(changes.applied(standing.question), seed=seed_of(standing), ledger=None)
    with reporter(changes.progress) as report, watching(asked.budget.max_seconds, teller(report)) as watch:
        if why := _reads_anew(standing, asked):
            return _afresh(standing, asked, why, report)
        if asked.weighted is not None and standing.centre is None and standing.num_rows <= FEW_ROWS:
            return _afresh(standing, asked, "", report)
        # Whoever goes on from weights by another method reads the rows again.
        few = isinstance(standing, CarriedGroups) and standing.are_few
        asked = replace(asked, **standing.rows.asked(asked.weights)) if few else replace(asked, weighted=None)
        before = standing
        standing = _settled(_due(standing) if _outgrown(standing, asked) else standing, asked)
        if isinstance(standing, CarriedGroups) and standing.anchor() is None:
            return _afresh(standing, asked, "groups: all read anew, since no centre was found for their sums", report)
        try:
            most = _most(standing, asked) if standing is before else np.inf
            return _from_sums(standing, *_of_a_day(standing, asked), watch, report, most)
        except AstrayError as found:
            # With other random numbers, since these were looked at.
            standing = _settled(_due(replace(standing, read=found.read)), asked)
            asked = replace(asked, seed=seed_of(standing, 1))
            return _from_sums(standing, *_of_a_day(standing, asked), watch, report)


def _reads_anew(standing: Standing, asked: Question) -> str:
    """Why all rows are read anew, where they are."""
    if isinstance(standing, CarriedGroups):
        return standing.reads_anew()
    if carries_on(asked, standing.target, standing.start, standing.search):
        return ""
    return "rows: all of them read anew, since sums about one centre do not tell this posterior"


def _of_a_day(standing: Standing, asked: Question) -> tuple[Question, bool]:
    """With a batch, and about third derivatives ends of paths, of which rows, and not steps, are spared, where these
    are left open; and whether a control, whose means have to be drawn, is worth it."""
    method = asked.method
    if not isinstance(method, Anchored) or method.gradient is not None:
        return asked, False
    variance, share = LEFT * standing.looked.sums[0] ** 2, asked.accuracy.finest**2 / 2
    wanted, third = variance / (PILOT_PATHS * share), standing.centre is not None and standing.centre.third is not None
    guided = bool(method.control is not False and not third and wanted > FEWEST)
    least = FEWEST if guided or (third and wanted > NEXT_TO_NOTHING) else 1
    if guided:
        wanted = PAIRED * standing.looked.sums[0] ** 2 / np.sqrt(share)
    if method.batch_size is None:
        size = int(np.clip(2 ** np.ceil(np.log2(max(wanted, 1e-9))), least, MOST))
        method = replace(method, batch_size=size)
    if third and method.window is None and method.ladder is None:
        method = replace(method, window=0)
    return replace(asked, method=method), guided


def seed_of(standing: Standing, *again: int) -> int:
    """Of the day: days share their rows, but no random numbers, so their errors are independent."""
    if standing.day == 0 and not again:
        return standing.question.seed
    words = [standing.question.seed, standing.day, *again]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


def _due(standing: Any) -> Any:
    """Another centre is due, whatever days have paid."""
    return replace(standing, footing=replace(standing.footing, extra=np.inf))


def _outgrown(standing: Standing, asked: Question) -> bool:
    """Whether rows want a larger batch than when there were pilots, which would have to be taken anew: about a centre
    that tells third derivatives these rows are expanded too far away by now."""
    if isinstance(standing, CarriedGroups) or standing.centre is None or standing.centre.third is None:
        return False
    method, decision = asked.method, standing.footing.decision
    if not isinstance(method, Anchored) or method.batch_size is not None or decision is None:
        return False
    here = _of_a_day(standing, asked)[0].method
    return isinstance(here, Anchored) and here.batch_size is not None and here.batch_size > decision.batch_size


def _most(standing: Standing, asked: Question) -> float:
    """The gradients beyond which it is begun again about another centre; whoever has set a budget has said how many."""
    if isinstance(standing, CarriedGroups) or standing.centre is None or np.isfinite(asked.budget.max_evaluations):
        return np.inf
    return standing.most


def _afresh(standing: Standing, asked: Question, why: str, report: Report) -> Result:
    """All rows, as `estimate` would."""
    question = replace(asked, **standing.rows.asked(standing.question.weights))
    found = noted(question, answer(question, Known(), report))
    return _with(standing, found, (*standing.told, why) if why else standing.told)


def _settled(standing: Standing, asked: Question) -> Standing:
    """About a centre that will do; without more passes than there is time for."""
    begin("recentring")
    with default_executor() as threads:
        try:
            return standing.settled(threads)
        except OutOfTime:
            return standing


def _from_sums(
    standing: Standing, asked: Question, guided: bool, watch: Watch, report: Report, most: float = np.inf
) -> Result:
    prepared = standing.prepared()
    known = Known(target=standing.target, start=standing.start, num_rows=standing.num_rows)
    known.placed, known.search = standing.placed(), standing.search
    if prepared is not None:
        known.prepared, known.centred = prepared, True
        if guided and isinstance(asked.method, Anchored):
            known.guide = partial(_guided, asked.method, standing)
        known.decision = _still(standing.footing, asked, guided)
        # Pilots are not cut short.
        known.most = np.inf if known.decision is None else most
    known.seconds = time.monotonic() - watch.started
    found = answer(asked, known, report)
    if known.decision is not None and found.status in UNSETTLED:
        known.decision, known.most, fresh = None, np.inf, found.status
        known.evaluations = found.cost.evaluations
        standing = replace(standing, footing=replace(standing.footing, decision=None))
        standing = replace(standing, told=(*standing.told, f"tuning: anew, since paths as before were {fresh.name}"))
        found = answer(asked, known, report)
    if found.status is Status.max_evaluations and np.isfinite(known.most):
        raise AstrayError(found.cost.setup_evaluations + found.cost.evaluations)
    decision = _decision_of(found, guided)
    footing = standing.footing.after(found.cost.evaluations)
    probed = footing.probed if footing.probe is not None else standing.num_rows
    footing = replace(footing, decision=decision, probe=_probe_of(known, found), guided=guided, probed=probed)
    question = replace(asked, method=standing.question.method, **standing.rows.asked(standing.question.weights))
    return _with(replace(standing, footing=footing), noted(question, found), standing.told)


def _guided(method: Anchored, standing: Standing, prepared: Prepared, *parts: Any) -> Prepared:
    """With a control whose means are drawn; none about a centre of today, if they cannot be."""
    found = method.guided(prepared, *parts)
    if found.guide is None and standing.footing.days:
        raise AstrayError(found.setup_evaluations)
    return found


def _still(footing: Footing, asked: Question, guided: bool) -> Decision | None:
    """Yesterday's decision, where today is asked for the same: what was found without a control says little of one."""
    size = getattr(asked.method, "batch_size", None)
    decision = footing.decision
    same = decision is not None and (size is None or decision.batch_size == size) and footing.guided == guided
    return decision if same else None


def _decision_of(result: Result, guided: bool) -> Decision | None:
    """How its paths ran, to be followed on the next day; None where they did not run well, or had no use of a control
    that was drawn for them."""
    if result.path_source is None or result.contraction is None or result.tuning is None:
        return None
    if result.status in UNSETTLED or result.contraction.slow:
        return None
    levels = result.path_source()
    if guided and not levels.controlled:
        return None
    parts = levels.ladder, levels.batch_size, levels.is_alternative
    return Decision(*parts, result.contraction, result.tuning, 0, uncontrolled=not levels.controlled)


def _probe_of(known: Known, result: Result) -> Any:
    probe = None if result.posterior is None else result.posterior.probe
    return probe if probe is not None else (None if known.prepared is None else known.prepared.probe)


def _with(standing: Standing, result: Result, told: tuple[str, ...]) -> Result:
    """The result with the standing it leaves behind, and so every extension of it."""

    def further(continuation: Any, **changes: Any) -> Result:
        asked = read_changes(standing.question, **changes).applied(standing.question)
        return _with(replace(standing, question=asked), continuation(**changes), told)

    continuation = None if result.continuation is None else partial(further, result.continuation)
    notes = (*told, *result.notes)
    return replace(result, notes=notes, continuation=continuation, standing=standing)
