"""Results for other programs: data frames, and the labelled arrays that ArviZ reads.

    to_pandas          a row for every parameter: mean, sd, median, ends of an interval, each with its error
    to_datatree        an xarray.DataTree, for ArviZ 1
    to_inferencedata   the same groups as an arviz.InferenceData, for ArviZ before 1.0

Groups: `posterior`, independent draws (chain, draw, ...), of a mixed model with the effects of groups; `estimates`,
what to_pandas has by parameter; `quantities`, what else was asked for; `levels`, what every level did; of a mixed model
`effects_school`, what is known of every group by school. Numbers to report are in `estimates` and `quantities`, whose
errors are those of the whole run. Without the rows of the fit the draws are what the run kept, for plots alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.estimator.estimates import Estimate
from tallbayes.model.catalogue import EXTRAS
from tallbayes.moments import Floats
from tallbayes.results.coefficients import Coefficient, coefficients
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.groups.effects import NUMBERS as EFFECT_NUMBERS
from tallbayes.results.groups.effects import Effects, known_effects
from tallbayes.results.parts import Factor
from tallbayes.results.result import Result
from tallbayes.results.terms import is_group_scale
from tallbayes.structure import Structure

if TYPE_CHECKING:
    from tallbayes.results.draws.drawn import PosteriorDraws
    from tallbayes.results.draws.given import EffectDraws

NUMBERS = ("mean", "sd", "median", "lower", "upper")
SAMPLE_AXES = ("chain", "draw")
PATH_LEVEL = "path_level"
MOST_EFFECTS = 2**22
INDEPENDENT = (
    "independent draws ({how}), in one chain without an order; the posterior mean of their law is off by no more than "
    "law_bias posterior sds. The answers and their errors are in the group estimates."
)
ABOUT_DRAWS = (
    "ends of fine paths, for plots: approximate, since every level (path_level) has a bias of its own; independent, so "
    "that ess and r_hat say nothing about errors. The answers and their errors are in the group estimates."
)


def to_pandas(result: Result, probability: float = 0.95) -> Any:
    """A data frame with a row for every parameter, then one for every component of the other quantities.

    Columns are mean, sd, median, lower and upper (the ends of the equal-tailed interval of that probability), each
    followed by its Monte Carlo error (`mean_error`, ...), then Laplace's mean and sd. What the run did not keep is not
    a number. A quantity g of your own has E g under `mean`, and nothing else.
    """
    pandas = require_extra("pandas", "data", "data frames")
    known = coefficients(readable(result), probability)
    names = [each.name for each in known]
    columns = _columns(known)
    for estimate in _others(result):
        labels = list(estimate.structure.labels(estimate.name))
        names += [f"quantity {label}" if label in names else label for label in labels]
        nothing = np.full(len(labels), np.nan)
        found = {"mean": estimate.flat_value, "mean_error": estimate.flat_error}
        columns = {each: np.append(values, found.get(each, nothing)) for each, values in columns.items()}
    frame = pandas.DataFrame(columns, index=pandas.Index(names, name="parameter"))
    frame.attrs |= {"probability": probability, "status": str(result.status)}
    if result.factors:
        frame.attrs["groups"] = {factor.by: factor.groups for factor in result.factors}
    return frame


def to_datatree(result: Result, draws: int = 1000) -> Any:
    """An xarray.DataTree in ArviZ's layout; see the head of this file for its groups.

    A regression by a formula has one variable `coefficients`, by name along `coefficient` (and by class along `outcome`
    where there are several). Other models have a variable for every parameter at the top of their theta; one array by
    itself is called `theta`. Without kept paths there is no group `posterior`.
    """
    xarray = _xarray()
    tree = xarray.DataTree.from_dict(_groups(xarray, result, draws))
    tree.attrs |= attributes(result)
    return tree


def to_inferencedata(result: Result, draws: int = 1000) -> Any:
    """An arviz.InferenceData of the same groups; ArviZ 1 has none and reads what `to_datatree` returns."""
    # ArviZ before 1.0 is in no extra, since it and ArviZ 1 cannot be installed together.
    purpose = "an InferenceData, which result.to_datatree() does without"
    arviz = require_extra("arviz", "export", purpose, install="arviz<1")
    if int(arviz.__version__.split(".")[0]) >= 1:
        hint = "result.to_datatree(), which ArviZ 1 reads, or pip install 'arviz<1'"
        raise InputError(explain("ArviZ before 1.0, for an InferenceData", f"ArviZ {arviz.__version__}", hint))
    return arviz.InferenceData(attrs=attributes(result), **_groups(_xarray(), result, draws))


def readable(result: Result) -> Result:
    """Without a posterior that can no longer tell its parameters: one of a model's own report, loaded from a file."""
    posterior = result.posterior
    lost = posterior is not None and posterior.live is None and posterior.stored is None
    return replace(result, posterior=None) if lost else result


def formula_of(result: Result) -> str | None:
    """What was fitted, with its bars."""
    if result.encoding is None:
        return None
    encoding: Any = result.encoding
    bars = "".join(f" + {group['term']['text']}" for group in encoding.get("groups", ()))
    second: Any = encoding["coding"].get("second")
    beside = "" if second is None else f"; {second['name']} ~ {second['coding']['right']}"
    return f"{encoding['response']} ~ {encoding['coding']['right']}{bars}{beside}"


def attributes(result: Result) -> dict[str, Any]:
    """What is known of the run, as text and numbers, which is all that netCDF takes."""
    cost = result.cost
    known = {
        **_origin(result),
        "status": result.status.name,
        "message": str(result.status),
        "converged": int(result.converged),
        "formula": formula_of(result),
        "family": None if result.regression is None else result.regression.family,
        "num_data": result.num_rows,
        "groups": ", ".join(f"{each.groups} by {each.by}" for each in result.factors) or None,
        "evaluations": cost.evaluations,
        "setup_evaluations": cost.setup_evaluations,
        "seconds": cost.seconds,
        "method": result.method,
        "notes": "\n".join(result.notes) or None,
        **{name: _plain(value) for name, value in result.settings.items() if name != "versions"},
    }
    return {name: value for name, value in known.items() if value is not None}


def _origin(result: Result) -> dict[str, Any]:
    """What ArviZ's schema wants of every group."""
    return {
        "created_at": datetime.now(UTC).isoformat(),
        "creation_library": "tallbayes",
        "creation_library_language": "Python",
        "inference_library": "tallbayes",
        "inference_library_version": result.settings.get("versions", {}).get("tallbayes", "unknown"),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, default=str)


def _xarray() -> Any:
    xarray = require_extra("xarray", "export", "labelled arrays")
    if not hasattr(xarray, "DataTree"):
        hint = 'pip install "tallbayes[export]"'
        raise InputError(explain("xarray 2024.10 or newer, which has DataTree", f"xarray {xarray.__version__}", hint))
    return xarray


def _groups(xarray: Any, result: Result, draws: int) -> dict[str, Any]:
    """Data sets by the name of their group."""
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1:
        raise InputError(explain("draws a whole number, at least 1", repr(draws), "draws=1000"))
    result = readable(result)
    origin = _origin(result)
    groups = {
        "posterior": _posterior(xarray, result, int(draws)),
        "estimates": _estimates(xarray, result),
        "quantities": _quantities(xarray, result),
        "levels": _levels(xarray, result),
        **{f"effects_{each.by}".replace("/", "|"): _effects(xarray, each) for each in known_effects(result)},
    }
    return {name: group.assign_attrs(origin) for name, group in groups.items() if group is not None}


def _posterior(xarray: Any, result: Result, count: int) -> Any:
    if result.posterior is None:
        return None
    from tallbayes.results.draws.drawn import independent

    drawn = independent(result, count)
    if drawn is None:
        values, levels = result.posterior.draws(count)
    else:
        values, levels = drawn.flat, np.full(count, len(result.posterior.points) - 1)
    arrays: dict[str, Any] = {}
    axes: dict[str, Any] = {"chain": [0], "draw": np.arange(len(values)), PATH_LEVEL: ("draw", levels.astype(np.int64))}
    for each in variables(result):
        part = values[:, each.start : each.start + each.size].reshape(1, len(values), *each.shape)
        arrays[each.name] = ((*SAMPLE_AXES, *(name for name, _ in each.axes)), part)
        axes |= {name: list(labels) for name, labels in each.axes}
    about = {"note": ABOUT_DRAWS, "sample_dims": list(SAMPLE_AXES), "sampling_time": result.cost.seconds}
    if drawn is not None:
        about |= {"note": INDEPENDENT.format(how=drawn.how), "law_bias": drawn.bias, "seed": drawn.seed}
        for own in _effect_draws(result, drawn):
            arrays[f"effects_{own.by}"] = ((*SAMPLE_AXES, own.by, f"{own.by}_effect"), own.values[None])
            axes |= {own.by: [str(each) for each in own.levels], f"{own.by}_effect": list(own.names)}
    return xarray.Dataset(arrays, axes, about)


def _effect_draws(result: Result, drawn: PosteriorDraws) -> Iterator[EffectDraws]:
    """Of the groups that are integrated out, where they are not too many to be held."""
    for factor in result.factors:
        source = result.effect_source
        if factor.is_integrated and source is not None and len(drawn) * factor.count <= MOST_EFFECTS:
            yield drawn.effects(factor.by)


def _estimates(xarray: Any, result: Result) -> Any:
    known = coefficients(result)
    if not known:
        return None
    arrays = {name: ("parameter", values) for name, values in _columns(known).items()}
    note = "posterior mean, sd, median and ends of the 95% interval; _error: Monte Carlo, remaining bias included"
    return xarray.Dataset(arrays, {"parameter": [each.name for each in known]}, {"note": note})


def _effects(xarray: Any, found: Effects) -> Any:
    """Of every group by one factor, with the errors of all numbers."""
    arrays: dict[str, Any] = {name: ((found.by, "effect"), getattr(found, name)) for name in EFFECT_NUMBERS}
    arrays |= {"rows": (found.by, found.counts.astype(np.int64)), "raw": (found.by, found.raw)}
    axes = {found.by: [str(each) for each in found.levels], "effect": list(found.names)}
    note = "posterior mean, sd and ends of the 95% interval of every group's effect; raw: the mean of its response"
    return xarray.Dataset(arrays, axes, {"note": note})


def _quantities(xarray: Any, result: Result) -> Any:
    """Expectations of the other quantities, by component."""
    others = _others(result)
    if not others:
        return None
    fields = ("value", "standard_error", "bias_bound", "tolerance")
    arrays = {each: ("quantity", np.concatenate([getattr(one, f"flat_{each}") for one in others])) for each in fields}
    labels = [label for one in others for label in one.structure.labels(one.name)]
    return xarray.Dataset(arrays, {"quantity": labels}, {"note": "posterior expectations, with their errors"})


def _levels(xarray: Any, result: Result) -> Any:
    """By level; moments of what it adds, by component of every quantity."""
    levels, estimates = result.levels, result.estimates.values()
    if not levels:
        return None
    arrays: dict[str, Any] = {
        name: ("level", np.array([getattr(level, name) for level in levels]))
        for name in ("step", "time", "samples", "evaluations")
    }
    for name in ("mean", "variance", "kurtosis", "consistency"):
        rows = [np.concatenate([getattr(level, name)[one.name] for one in estimates]) for level in levels]
        arrays[name] = (("level", "component"), np.stack(rows))
    labels = [label for one in estimates for label in one.structure.labels(one.name)]
    return xarray.Dataset(arrays, {"level": np.arange(len(levels)), "component": labels})


def _columns(known: Sequence[Coefficient]) -> dict[str, Floats]:
    """Every number and its error, then Laplace's."""
    columns: dict[str, Floats] = {}
    for name in NUMBERS:
        pairs = np.array([getattr(each, name) for each in known], np.float64).reshape(-1, 2)
        columns |= {name: pairs[:, 0], f"{name}_error": pairs[:, 1]}
    laplace = {name: [getattr(each, name) for each in known] for name in ("laplace_mean", "laplace_sd")}
    return columns | {name: np.array(values, np.float64) for name, values in laplace.items()}


def _others(result: Result) -> list[Estimate]:
    """The quantities that are not the parameters' own means and sds."""
    return [estimate for name, estimate in result.estimates.items() if name not in ("mean", "sd")]


class Variable(NamedTuple):
    """A stretch of the flat parameters as an array, its axes with names and labels."""

    name: str
    start: int
    axes: tuple[tuple[str, Sequence[Any]], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(labels) for _, labels in self.axes)

    @property
    def size(self) -> int:
        return prod(self.shape)


def variables(result: Result) -> list[Variable]:
    """The parameters as ArviZ sees them."""
    structure, regression = _structure(result), result.regression
    if result.encoding is not None and result.factors:
        return _renamed(_mixed(structure, result.factors))
    if result.encoding is not None and structure.kind == "dict":
        return _by_coefficient(structure, 0 if regression is None else regression.extras)
    if structure.kind != "dict":
        return _renamed(list(_parts("theta" if regression is None else "coefficients", structure, 0)))
    found: list[Variable] = []
    start = 0
    for key, child in zip(structure.keys, structure.children, strict=True):
        found += _parts(str(key), child, start)
        start += child.size
    return _renamed(found)


def _structure(result: Result) -> Structure:
    return kept_posterior(result).parameters.structure


def _by_coefficient(structure: Structure, extras: int) -> list[Variable]:
    """Coefficients by name, or by class and name; what stands after them has a variable of its own."""
    first = structure.children[0]
    if first.kind == "dict":
        return [Variable("coefficients", 0, (("outcome", structure.keys), ("coefficient", first.keys)))]
    count = len(structure.keys) - extras
    apart = [Variable(name, place) for place, name in enumerate(structure.keys) if place >= count]
    return [Variable("coefficients", 0, (("coefficient", structure.keys[:count]),)), *apart]


def _mixed(structure: Structure, factors: Sequence[Factor]) -> list[Variable]:
    """Coefficients, then every scale and correlation by itself, then effects that are parameters, by factor."""
    keys = [str(key) for key in structure.keys]
    scales = [place for place, key in enumerate(keys) if key in EXTRAS or is_group_scale(key)]
    found = [Variable("coefficients", 0, (("coefficient", keys[: scales[0]]),))]
    found += [Variable(keys[place], place) for place in scales]
    for factor in factors:
        if factor.first is not None:
            names = keys[factor.first : factor.first + factor.count : len(factor.names)]
            levels = [name.removeprefix(f"{factor.names[0]}|{factor.by}[").removesuffix("]") for name in names]
            axes = (factor.by, levels), (f"{factor.by}_effect", factor.names)
            found.append(Variable(f"effects_{factor.by}", factor.first, axes))
    return found


def _parts(name: str, structure: Structure, start: int) -> Iterator[Variable]:
    """One variable where all children are alike, else one for each of them."""
    labels = _labels(structure)
    if labels is not None:
        if structure.size:
            yield Variable(name, start, tuple((f"{name}_dim_{i}", each) for i, each in enumerate(labels)))
        return
    for key, child in zip(structure.keys, structure.children, strict=True):
        yield from _parts(f"{name}.{key}" if structure.kind == "dict" else f"{name}[{key}]", child, start)
        start += child.size


def _labels(structure: Structure) -> list[Sequence[Any]] | None:
    """Labels along every axis of a box of numbers; None where it is none."""
    if structure.kind == "leaf":
        return [range(length) for length in structure.shape]
    if not structure.children:
        return []
    first, *others = structure.children
    inner = _labels(first)
    if inner is None or any(child != first for child in others):
        return None
    return [[str(key) for key in structure.keys] if structure.kind == "dict" else structure.keys, *inner]


def _renamed(found: Sequence[Variable]) -> list[Variable]:
    """Names that neither a tree of groups nor a data set refuses: without slashes, and no two alike."""
    taken = {*SAMPLE_AXES, PATH_LEVEL}
    named = [each._replace(name=_free(each.name, taken)) for each in found]
    return [each._replace(axes=tuple((_free(axis, taken), labels) for axis, labels in each.axes)) for each in named]


def _free(name: str, taken: set[str]) -> str:
    name = name.replace("/", "|")
    while name in taken:
        name += "_"
    taken.add(name)
    return name
