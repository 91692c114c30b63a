"""Again: a run on a table on disk as another process goes on with it, without reading the rows.

The question comes from the run's settings, the coding from the design of the formula, the standing from its day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from tallbayes.arrivals.days import Standing, head_of
from tallbayes.arrivals.disk.state import DayOnRecord, kept_of, read_state, standing_from, write_state
from tallbayes.arrivals.disk.tables import OnDisk
from tallbayes.arrivals.order import Order
from tallbayes.arrivals.standing import Carried, carries_on
from tallbayes.errors import InputError, explain
from tallbayes.estimation.question import Question
from tallbayes.estimation.walk import check_rows
from tallbayes.estimator.run import budget_within
from tallbayes.formula.again.arriving import FormulaDoor
from tallbayes.formula.again.rows import model_again
from tallbayes.formula.design_steps import Design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.fit import find_family
from tallbayes.formula.streaming import encoding_of
from tallbayes.methods.anchored import Anchored
from tallbayes.model.model import Model
from tallbayes.model.parts.making import with_width
from tallbayes.model.weights import WEIGHT
from tallbayes.results.draws.again import levels_again
from tallbayes.results.fitted import FitTable, Fitted
from tallbayes.results.result import Result
from tallbayes.results.result_file import load
from tallbayes.rows.on_disk import Stored, open_table
from tallbayes.setup.preparation import bind_rows
from tallbayes.workers.executors import default_executor


def result_of(folder: Path, day: int) -> Path:
    """Where the result of a day is kept until there is a later one."""
    return folder / "days" / f"{day:04d}.tallbayes"


def settled_first(result: Result, standing: Standing) -> Result:
    """A fit about a centre of its rows, from which a day's rows are enough; refused where there is none to be had."""
    if not isinstance(standing, Carried) or not carries_on(
        standing.question, standing.target, standing.start, standing.search
    ):
        got = "several modes, a shrinkage prior, another method or very many coefficients"
        hint = "tallbayes fit of the table as it is now, for every day"
        raise InputError(explain("a posterior that sums about one centre tell, for a table on disk", got, hint))
    with default_executor() as threads:
        return replace(result, standing=replace(standing.settled(threads), told=(), read=0))


def keep(folder: Path, result: Result) -> None:
    """The standing that a result leaves, and the result itself; without the day's file neither counts."""
    assert isinstance(result.standing, Carried)
    assert isinstance(result.door, FormulaDoor)
    (folder / "days").mkdir(exist_ok=True)
    write_state(folder, kept_of(result.standing, result.door.notes))
    result.save(result_of(folder, result.standing.day))


def gone_on(folder: Path, settings: Mapping[str, Any], day: int) -> Result:
    """The result of the last day, standing where that has ended."""
    return on_standing(load(result_of(folder, day)), *stood(folder, settings, day, evening=True))


def on_standing(result: Result, standing: Carried, door: FormulaDoor) -> Result:
    """A result that was loaded, or another one, with what it stands on, so that it can go on."""
    own: dict[str, Any] = {"standing": standing, "door": door, "question": standing.question, "fit_table": door.table}
    found = replace(result, fitted_source=partial(_fitted, standing), **own)
    if standing.order is None or result.posterior is None or result.posterior.weighted is not None:
        return found
    # A list of its own would take a pass over all rows.
    return replace(found, path_source=cache(partial(_levels, found, standing.order)))


def stood(folder: Path, settings: Mapping[str, Any], day: int, evening: bool) -> tuple[Carried, FormulaDoor]:
    """The standing of a day, when its answer was asked for or when it was left."""
    kept = read_state(folder, day)
    read, source = kept.tables
    now = open_table(read.path)
    encoding = replace(Encoding.from_plain(encoding_of(now)), offset=settings.get("offset"))
    model = _model(settings, kept, now, encoding)
    weights = WEIGHT if any(field.name == WEIGHT for field in now.fields) else None
    question = Question(
        model=model,
        data=read,
        weights=weights,
        quantities=None,
        accuracy=kept.accuracy,
        method=Anchored(),
        seed=kept.seed,
        anchor=None,
        executor=None,
        budget=budget_within(None, None, None),
        keep_posterior=True,
        ledger=None,
    )
    bound_model, arrays = check_rows(model, head_of(now), weights)
    target, start = bind_rows(bound_model, arrays)
    fields = [field.name for field in read.fields]
    rows = OnDisk(read, source, {name: name for name in fields}, model.units, encoding)
    blank = Carried(question, target, start, kept.precision, rows)
    door = FormulaDoor(
        encoding,
        find_family(settings["family"])[0].name,
        kept.notes,
        FitTable(source, settings.get("weights")),
        partial(_remade, settings),
    )
    return standing_from(folder, kept, blank, evening), door


def _model(settings: Mapping[str, Any], kept: DayOnRecord, rows: Stored, encoding: Encoding) -> Model:
    model = model_again(settings, Design(rows, None, 0, encoding, ()))
    return model if kept.width is None else with_width(model, kept.width)


def _remade(settings: Mapping[str, Any], encoding: Encoding, rows: Any) -> Model:
    return model_again(settings, Design(rows, None, 0, encoding, ()))


def _levels(result: Result, order: Order) -> Any:
    return levels_again(result, order.listing())


def _fitted(standing: Carried) -> Fitted:
    return Fitted(standing.target, standing.table)
