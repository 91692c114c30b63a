"""What a fit has kept: its rows as it read them, with the model bound to them, its table, its posterior, its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallbayes.errors import InputError, explain
from tallbayes.groups.units import Grouping
from tallbayes.model.catalogue import CATALOGUE, Family
from tallbayes.model.model import Target
from tallbayes.posterior.posterior import Posterior
from tallbayes.rows.table import Table

if TYPE_CHECKING:
    from tallbayes.results.result import Result


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model bound to its rows, in fitted units; with groups, a row of the table is a unit of them, and the `grouping`
    knows their rows."""

    target: Target
    table: Table
    grouping: Grouping | None = None


@dataclass(frozen=True, eq=False)
class FitTable:
    """The table that a formula was fitted to, as it was given, with weights and offsets that are names or arrays."""

    data: Any
    weights: Any = None
    offset: Any = None


def fitted_of(result: Result) -> Fitted:
    """What a result was fitted to, found when it is first asked for; an error where it is not to be had."""
    if result.fitted_source is None:
        got = "a result that has them no longer, as one read from a file"
        hint = "the result in the process that fitted it, or a run of tallbayes fit --out whose table is in its place"
        raise InputError(explain("a result with the rows that it was fitted to", got, hint))
    return result.fitted_source()


def fitted_with_prior(result: Result) -> Fitted:
    """The same for what needs the density of the prior, which a shrinkage prior has not but for given scales."""
    fitted = fitted_of(result)
    if fitted.target.shrinkage is not None:
        got = f"a shrinkage prior ({fitted.target.shrinkage.words})"
        hint = "normal priors in its place; predictions, comparisons, checks and draws work for both"
        raise InputError(explain("coefficients with a prior one by one, for this question", got, hint))
    return fitted


def kept_posterior(result: Result) -> Posterior:
    """Its posterior, or an error where the run kept none."""
    if result.posterior is None:
        hint = "estimate again with keep_posterior=True and method=None"
        raise InputError(explain("a result that keeps where its paths ended", "one that does not", hint))
    return result.posterior


def excess_width(result: Result) -> float | None:
    """Of the coordinates of an overdispersion, if there is one."""
    reading = kept_posterior(result).reading
    return None if reading is None else reading.excess_width


def require_law(result: Result, answer: str) -> None:
    """Refuse what a loss does not tell, since it is no law of the rows."""
    family = family_of(result)
    if family is not None and family.pseudo:
        hint = "a family with a law of its responses, such as 'student_t'"
        raise InputError(explain(f"a law of responses, for {answer}", f"family {family.name!r}, which is a loss", hint))


def family_of(result: Result) -> Family | None:
    """What is known of its family, if it has one of `tb.families`."""
    return None if result.regression is None else CATALOGUE.get(result.regression.family)


def has_smooths(result: Result) -> bool:
    return bool(smooths_of(result))


def smooths_of(result: Result) -> list[Any]:
    coding: Any = {} if result.encoding is None else result.encoding["coding"]
    return list(coding.get("smooths", ()))
