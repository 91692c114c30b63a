"""Where a formula with groups ends: in the mathematics that integrates their effects, once there is any.

fit_groups(question, integrate)   the result of a mixed model
require_integration(formula)      the same refusal before any row is read
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallbayes.errors import InputError, explain
from tallbayes.formula.design_steps import Design
from tallbayes.formula.groups.terms import take_groups
from tallbayes.model.model import Model
from tallbayes.results.result import Result


@dataclass(frozen=True, eq=False)
class GroupQuestion:
    """What is asked of a mixed model.

    `model` is the family's for the fixed effects alone, reporting in the table's units; `design` holds its rows and the
    `groups`; `quantities`, and `options` with tolerances and weights, are those of `tb.estimate`.
    """

    design: Design
    model: Model
    quantities: Any
    options: Mapping[str, Any]


Integrate = Callable[[GroupQuestion], Result]


def fit_groups(question: GroupQuestion, integrate: Integrate | None = None) -> Result:
    """The result of a mixed model, by what integrates the effects of its groups."""
    if integrate is None:
        raise _no_door(question.design.groups[0].term.text, question.design.groups[0].term.by)
    return integrate(question)


def require_integration(formula: str) -> None:
    """Refuse a formula with groups, whatever its table."""
    for term in take_groups(formula)[1]:
        raise _no_door(term.text, term.by)


def _no_door(text: str, by: tuple[str, ...]) -> InputError:
    hint = (
        f"C({by[-1]}) for a coefficient a level, each with its own prior and no scale that is learnt for all of them; "
        "or group effects with such a scale in a tb.Model or a NumPyro model (docs/doors.md)"
    )
    got = f"{text}: group effects, for which there is no door yet"
    return InputError(explain("terms without a bar", got, hint))
