"""What one holds beside a result, as HTML for notebooks: `shown(thing)`, one function a kind.

    numbers       estimates, predictions, comparisons, effects of groups, shares of variance, checks, evidence
    draws         the first numbers of each, and where they come from
    what is asked models and tables on disk, by their parts

What has no table of its own is shown as its text.
"""

from __future__ import annotations

from functools import partial, singledispatch
from html import escape
from typing import Any

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.evidence.evidence import Evidence
from tallbayes.model.model import Model
from tallbayes.posterior.prediction import Prediction
from tallbayes.results.checks.check import Check
from tallbayes.results.comparisons import Comparison
from tallbayes.results.draws.drawn import PosteriorDraws
from tallbayes.results.groups.comparisons import GroupContrast
from tallbayes.results.groups.effects import Effects
from tallbayes.results.groups.partition import VariancePartition
from tallbayes.rows.on_disk import Stored
from tallbayes.views.evidence import evidence_facts
from tallbayes.views.groups import ABOUT_ERRORS, about_effects, about_partition
from tallbayes.views.notebook.tables import MAX_ROWS, comparison_html, estimate_html, grid_html, prediction_html
from tallbayes.views.numbers import neat, plain
from tallbayes.views.tables import Cell, Grid, count, effects, partition, with_errors

# Start values of an array that are shown.
FIRST = 3
ABOUT_P = "p: the share of replicated responses whose statistic is at least the observed one, ties by half"
OF_DRAWS = "mean and sd of these draws, with the error that their number and their law leave"


@singledispatch
def shown(thing: Any) -> str:
    """As its text has it, line by line."""
    lines = "<br>".join(escape(line) for line in str(thing).splitlines())
    return f'<div class="tex2jax_ignore mathjax_ignore">{lines}</div>'


shown.register(Estimate)(estimate_html)
shown.register(Prediction)(prediction_html)
shown.register(Comparison)(comparison_html)


@shown.register
def _effects(found: Effects) -> str:
    grids = [effects(found, place) for place in range(len(found.names))]
    facts = [_fact(*each) for each in (*about_effects(found), ABOUT_ERRORS)]
    return grid_html(repr(found)[1:-1], [(found.by, grid) for _, grid in grids], [*(head for head, _ in grids), *facts])


@shown.register
def _contrast(found: GroupContrast) -> str:
    numbers = {name: [_cell(getattr(found, name))] for name in ("mean", "sd", "median", "lower", "upper")}
    grid = Grid([f"{found.a} - {found.b}"], {**numbers, f"P({found.a} > {found.b})": [_cell(found.probability)]})
    return grid_html("", [("", grid)], [_fact(*ABOUT_ERRORS)])


@shown.register
def _shares(found: VariancePartition) -> str:
    facts = [_fact(*each) for each in (about_partition(found), ABOUT_ERRORS)]
    return grid_html("", [("variance of", partition(found))], facts)


@shown.register
def _check(found: Check) -> str:
    """Observed beside replicated, by number of the statistic."""
    most = slice(MAX_ROWS)
    columns = {
        "observed": _column(found.observed[most]),
        "replicated": with_errors(found.mean[most], found.mean_error[most]),
        "sd": with_errors(found.sd[most], found.sd_error[most]),
        "p": with_errors(found.p_value[most], found.p_error[most]),
    }
    names = [label or found.name for label in found.labels]
    more = [f"... and {len(names) - MAX_ROWS:,} more"] if len(names) > MAX_ROWS else []
    return grid_html(found.title, [(found.name, Grid(names[most], columns))], [*more, ABOUT_P])


@shown.register
def _evidence(found: Evidence) -> str:
    facts = evidence_facts(found)
    grid = Grid([name for name, _ in facts], {"": [Cell(text) for _, text in facts]})
    return grid_html("", [("", grid)], found.notes)


@shown.register
def _draws(found: PosteriorDraws) -> str:
    """Of the first numbers what a glance at their draws says."""
    flat = found.flat[:, :MAX_ROWS]
    apart = flat - flat.mean(axis=0)
    sd = np.sqrt(np.sum(apart**2, axis=0) / (len(flat) - 1 or np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        of_sd = np.sqrt(np.mean(apart**4, axis=0) / sd**4 - 1) / 2
    columns = {
        "mean": with_errors(flat.mean(axis=0), sd * np.hypot(len(flat) ** -0.5, found.bias)),
        "sd": with_errors(sd, sd * np.hypot(of_sd * len(flat) ** -0.5, found.bias)),
    }
    numbers = found.flat.shape[1]
    more = [f"... and {numbers - MAX_ROWS:,} more"] if numbers > MAX_ROWS else []
    grid = Grid(found.labels[:MAX_ROWS], columns)
    return grid_html(repr(found)[1:-1], [("parameter", grid)], [*more, OF_DRAWS])


@shown.register
def _table(found: Stored) -> str:
    """Its columns, or the arrays it is made of."""
    if found.columns:
        names = [each.name for each in found.columns]
        columns = {
            "kind": [Cell(each.kind) for each in found.columns],
            "levels": [Cell(f"{len(each.levels):,}" if each.levels else "") for each in found.columns],
            "missing": [Cell(each.missing, count) for each in found.columns],
        }
    else:
        names = [each.name for each in found.fields]
        shapes = [" x ".join(map(str, each.shape)) or "1" for each in found.fields]
        columns = {"type": [Cell(each.dtype) for each in found.fields], "numbers a row": list(map(Cell, shapes))}
    top = f"{found.num_rows:,} rows, {found.num_bytes / 1e6:,.1f} MB on disk"
    order = "in an order of chance" if found.shuffled else "in the order they came in"
    grid = Grid(names[:MAX_ROWS], {head: cells[:MAX_ROWS] for head, cells in columns.items()})
    more = [f"... and {len(names) - MAX_ROWS:,} more"] if len(names) > MAX_ROWS else []
    return grid_html(top, [("column" if found.columns else "array", grid)], [*more, f"rows lie {order}"])


@shown.register
def _model(found: Model) -> str:
    """Its parameters with their start values, and what stands beside them."""
    import jax

    what = f"family {found.family}" if found.family else "a model of its owner's"
    by = f", with an effect of every group by {found.groups.by}" if found.groups is not None else ""
    if callable(found.initial):
        return grid_html(f"{what}{by}", [], ["its parameters hang on the columns of the rows", *found.notes])
    leaves, _ = jax.tree_util.tree_flatten_with_path(found.initial)
    names = [jax.tree_util.keystr(path) or "theta" for path, _ in leaves]
    shapes = [" x ".join(map(str, np.shape(leaf))) or "1" for _, leaf in leaves]
    words = [", ".join(map(neat, np.ravel(leaf)[:FIRST])) + ", ..." * (np.size(leaf) > FIRST) for _, leaf in leaves]
    grid = Grid(names, {"numbers": list(map(Cell, shapes)), "start": list(map(Cell, words))})
    return grid_html(f"{what}{by}", [("parameter", grid)], found.notes)


def _cell(number: Any) -> Cell:
    return Cell(number.value, error=number.error)


def _column(values: Any) -> list[Cell]:
    return [Cell(float(value), partial(plain, digits=4)) for value in values]


def _fact(word: str, text: str) -> str:
    return f"{word}: {text}"
