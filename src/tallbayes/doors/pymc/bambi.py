"""bambi models in place of their `fit`: the PyMC model behind them, and answers under bambi's names.

bambi moves its predictors by their means, and takes that out of the intercept afterwards; so does this:

    Intercept  =  the intercept of centred predictors - mean(X) . coefficients
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tallbayes.doors.pymc.model import from_pymc
from tallbayes.errors import ModelError, explain, require_extra
from tallbayes.model.model import Model

FACTOR, OFFSET = "__factor_dim", "_offset"


class Centred(NamedTuple):
    """An intercept, the coefficients of the predictors that were moved, by how much, and a column for each level."""

    intercept: str
    coefficients: tuple[str, ...]
    means: np.ndarray
    levels: int


def from_bambi(model: Any, /, *, integrate: bool = True) -> tuple[Model, dict[str, Any]]:
    """A bambi model and its rows, for `tb.estimate` in place of its `fit`.

    Names are bambi's, and so is the intercept: that of predictors as they are, not of the centred ones that bambi hands
    to PyMC. Effects of the factor with the most groups are integrated out: `result.effects("county")` has `1|county`.

    >>> import bambi, numpy as np, pandas as pd
    >>> x = np.arange(6.0)
    >>> model, data = from_bambi(bambi.Model("y ~ x", pd.DataFrame({"x": x, "y": np.sin(x)})))
    >>> sorted(model.initial)
    ['Intercept', 'sigma', 'x']
    """
    bambi = require_extra("bambi", "pymc", "tb.from_bambi")
    if not isinstance(model, bambi.Model):
        raise ModelError(
            explain("a bambi.Model", type(model).__name__, "the model itself; tb.from_pymc for a pm.Model")
        )
    if not model.built:
        model.build()
    found, data = from_pymc(model.backend.model, integrate=integrate)
    found, data = _by_factor(found, data)
    return _in_its_own_terms(found, _centred(model)), data


def _by_factor(model: Model, data: dict[str, Any]) -> tuple[Model, dict[str, Any]]:
    """Groups by the factor, and not by PyMC's name for its dimension."""
    notes = tuple(note.replace(FACTOR, "") for note in model.notes)
    if model.groups is None:
        return replace(model, notes=notes), data
    dim = model.groups.by
    by = dim.removesuffix(FACTOR)
    columns = {by if name == dim else name: column for name, column in data.items()}
    return replace(model, notes=notes, groups=replace(model.groups, by=by)), columns


def _centred(model: Any) -> list[Centred]:
    from bambi.utils import get_aliased_name

    found = []
    levels = model.response_component.term.coords
    for part in model.backend.distributional_components.values():
        own = part.component
        if own.intercept_term and own.common_terms and model.center_predictors:
            names = tuple(get_aliased_name(term) for term in own.common_terms.values())
            means = np.asarray(part.design_matrix_without_intercept, np.float64).mean(0)
            size = len(next(iter(levels.values()))) if levels else 0
            found.append(Centred(get_aliased_name(own.intercept_term), names, means, size))
    return found


def _in_its_own_terms(model: Model, centred: Sequence[Centred]) -> Model:
    """Intercepts as bambi reports them, and offsets left out where what they stand for is reported."""
    before = model.report

    def report(theta: dict[str, Any], units: Any) -> dict[str, Any]:
        found = dict(theta) if before is None else before(theta, units)
        for each in centred:
            parts = [jnp.reshape(theta[name], (-1, each.levels or 1)) for name in each.coefficients]
            coefficients = jnp.concatenate(parts)
            moved = jnp.asarray(each.means, coefficients.dtype) @ coefficients
            found[each.intercept] = found[each.intercept] - jnp.reshape(moved, jnp.shape(found[each.intercept]))
        return {name: value for name, value in found.items() if name.removesuffix(OFFSET) not in set(found) - {name}}

    return replace(model, report=report)
