"""What is asked: of a model of any kind, what of a row is averaged, and its rows as that reads them.

a formula with groups       the mean response, with the effects of every row's own groups, or over those of new ones
several classes             the chance of each, of ordered ones too
a mean that extras move     of log-normal times exp(eta + sigma^2 / 2), of counts with more or other zeros theirs
a model of one's own        what `tb.Model(..., predict=...)` says of a row, or a function that is given
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.model.catalogue import CATALOGUE, Family
from tallbayes.model.links import Wanted
from tallbayes.posterior.group_predictions import NEW_NODES, MixedOutcome, OfRows
from tallbayes.posterior.predictor import FamilyResponse
from tallbayes.programs.later import jax
from tallbayes.results.averages.kinds import FamilyRow, Kind, NewGroupRow, OwnGroupRows
from tallbayes.results.averages.sides import Change, ChangedBatch, ChangedRows, batches_of, sides_of
from tallbayes.results.checks.own_rows import require_known
from tallbayes.results.draws.drawn import known_groups
from tallbayes.results.fitted import excess_width
from tallbayes.results.groups.predictions import Mixed
from tallbayes.results.result import Result

if TYPE_CHECKING:
    from tallbayes.groups.known import KnownGroups

Batches = Callable[[], Iterator[ChangedRows]]

# Of an effect in closed form, whose response is linear: exact for what is asked of it.
EXACT_NODES = 3
OWN, NEW = "own", "new"


@dataclass(frozen=True, eq=False)
class AskedAverage:
    """A kind with its rows; `outputs` names what it says of one where that is several things, `known` are the groups
    that rows belong to, and `unit` is a new group where there is one without rows."""

    kind: Kind
    batches: Batches
    outputs: tuple[Any, ...] | None = None
    known: KnownGroups | None = None
    unit: Any = None
    by_level: bool = False

    @property
    def take(self) -> Callable[[np.ndarray], Any] | None:
        """Units of groups at some places."""
        known, unit = self.known, self.unit
        if known is not None:
            return known.take
        if unit is None:
            return None
        return lambda places: jax.tree.map(lambda leaf: np.repeat(leaf, len(places), axis=0), unit)


def require_choice(groups: str, has_groups: bool) -> None:
    if groups not in (OWN, NEW):
        hint = "'own' for the effects of each row's own groups, 'new' for the average over new ones"
        raise InputError(explain(f"groups one of {(OWN, NEW)}", repr(groups), hint))
    if groups == NEW and not has_groups:
        raise InputError(explain("a mixed model for groups='new'", "a model without groups", "leave it out"))


def by_formula(result: Result, family: Family, change: Change, rows: Any, groups: str) -> AskedAverage | None:
    """Of a family; None of one whose mean is that of one predictor, and is averaged by that."""
    encoding = result.encoding
    has_groups = bool(result.factors) or "groups" in (encoding or {})
    require_choice(groups, has_groups)
    if has_groups:
        _require_known_mean(family)
        return _mixed(result, change, rows, groups)
    return _of_family(result, family, change, rows) if family.by_class or family.mean_of_extras else None


def _require_known_mean(family: Family) -> None:
    if family.mean_of_extras:
        hint = "result.predict(rows) of both kinds of rows"
        got = f"family {family.name!r}, whose mean hangs on more"
        raise InputError(explain("a mixed model whose mean hangs on the linear predictor alone", got, hint))


def _of_family(result: Result, family: Family, change: Change, rows: Any) -> AskedAverage:
    """By all of its predictors and extras."""
    regression = result.regression
    assert regression is not None
    response = FamilyResponse(Wanted(family.name, width=excess_width(result)), regression.layout)
    classes = None if result.encoding is None else result.encoding["classes"]
    names = tuple(range(response.outputs)) if classes is None else tuple(classes)

    def batches() -> Iterator[ChangedRows]:
        for sides in sides_of(result, change, rows):
            own = {"x": np.moveaxis(sides.x, 0, 1), "offset": np.moveaxis(sides.offsets, 0, 1)}
            yield ChangedRows(own, sides.weights, sides.divisors, sides.levels)

    return AskedAverage(FamilyRow(response), batches, names if family.has_classes else None)


def _mixed(result: Result, change: Change, rows: Any, groups: str) -> AskedAverage:
    if result.encoding is None:
        hint = "a formula, or predict= of a model of your own"
        raise InputError(explain("a mixed model by a formula", "a family with groups on arrays", hint))
    from tallbayes.formula.encoding import Encoding

    mixed = Mixed.of(result, Encoding.from_plain(result.encoding))
    outcome = MixedOutcome(Wanted(mixed.family), mixed.terms, mixed.extras, mixed.noise)
    is_linear = CATALOGUE[mixed.family].link == "identity"
    if groups == NEW:
        alone = outcome._replace(new_group=True, nodes=EXACT_NODES if is_linear else NEW_NODES)
        kind = NewGroupRow(OfRows(mixed.space, alone, None), 1)
        return AskedAverage(kind, lambda: (_of_new_groups(mixed, each) for each in batches_of(result, change, rows)))
    known = known_groups(result)
    integral = known.integral
    if is_linear and hasattr(integral, "is_crossed"):
        integral = replace(integral, nodes=EXACT_NODES)
    return AskedAverage(
        OwnGroupRows(mixed.space, outcome, integral),
        lambda: (_of_own_groups(mixed, known, each) for each in batches_of(result, change, rows)),
        known=known,
    )


def _both(mixed: Mixed, batch: ChangedBatch) -> tuple[dict[str, Any], np.ndarray]:
    low, codes = mixed.rows(batch.low)
    high, _ = mixed.rows(batch.high)
    return {name: np.stack([np.asarray(low[name]), np.asarray(high[name])], axis=1) for name in low}, codes


def _of_new_groups(mixed: Mixed, batch: ChangedBatch) -> ChangedRows:
    """All of a row's groups are new ones."""
    rows, _ = _both(mixed, batch)
    rows |= {name: np.full_like(each, -1) for name, each in rows.items() if name.startswith("level")}
    return ChangedRows(rows, batch.weights, batch.divisors, batch.levels)


def _of_own_groups(mixed: Mixed, known: KnownGroups, batch: ChangedBatch) -> ChangedRows:
    rows, codes = _both(mixed, batch)
    for term, own in zip(mixed.terms, [codes, *(rows[f"level{k}"] for k in range(1, len(mixed.terms)))], strict=True):
        require_known(term.by, own)
    return ChangedRows(rows, batch.weights, batch.divisors, batch.levels, known.places(codes))
