"""PyMC models, unchanged: observed rows are the likelihood, each its own term, and all else the prior.

    log p(theta, X) = sum_s log p_s(theta) + sum_i sum_{s observed} log p_s(x_i | theta)

Its graph is read through PyTensor's JAX linker; nothing is compiled in C. Whether the terms of single rows are those of
the whole model is tried on a few of them. Effects of groups are then integrated out, where they can be.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.plates.groups import Read, integrate_groups, moved_by
from tallbayes.doors.pymc.graphs import JaxGraph, ModelGraph, jax_linker, read_graph
from tallbayes.doors.pymc.program import PymcProgram, normals_of, sum_of
from tallbayes.doors.pymc.sites import deterministics_of, sites_of
from tallbayes.doors.pymc.supports import constraint_of, start_values
from tallbayes.doors.pymc.terms import BEFORE, ModelTerms, read_terms
from tallbayes.errors import ModelError, TallbayesError, explain, require_extra
from tallbayes.model.model import Model

COMPARED_ROWS = 16
COMPARED_STEPS = (0.1, 0.5)
AGREEMENT = 1e-7
# Of variables with an entry for each row, which are not integrated out, so many may be parameters.
MOST_OF_ROWS = 1024


def from_pymc(
    model: Any, /, *, rows: Collection[str] | None = None, integrate: bool = True
) -> tuple[Model, dict[str, Any]]:
    """A PyMC model and its rows, for `tb.estimate`.

    Rows are the entries of the observed variables, along the leading axis; `rows` names those of them that are rows
    where they are of different lengths, and the others join the prior. theta is a dict by the names of the free
    variables, in their own spaces; deterministics that hang on parameters alone are reported with them.

    Variables with a spread of their own that enter a row at its own index alone, as in z[g], are integrated out:
    `result.effects` has them, by the name of their dimension or their own. A note says so, or why not; with
    `integrate=False` they are parameters.

    >>> import numpy as np, pymc as pm
    >>> with pm.Model() as normal:
    ...     mean = pm.Normal("mean", 0, 10)
    ...     scale = pm.HalfNormal("scale", 1)
    ...     y = pm.Normal("y", mean, scale, observed=np.array([0.5, 1.5, 1.0]))
    >>> model, data = from_pymc(normal)
    >>> sorted(model.initial), sorted(data)
    (['mean', 'scale'], ['y'])
    """
    pymc = require_extra("pymc", "pymc", "tb.from_pymc")
    if not isinstance(model, pymc.Model):
        hint = "the model itself, as in `with pm.Model() as model: ...`; tb.from_bambi for one of bambi"
        raise ModelError(explain("a pm.Model", f"{type(model).__name__}", hint))
    jax_linker()
    with jax.enable_x64(True), _quiet():
        return _read(model, rows, integrate)


def _read(model: Any, rows: Collection[str] | None, integrate: bool) -> tuple[Model, dict[str, Any]]:
    _require_readable(model)
    try:
        graph = read_graph(model)
        starts = start_values(graph)
        constraints = {rv.name: constraint_of(graph, rv, starts[rv.name]) for rv in graph.free}
        starts = {name: _inside(constraints[name], name, start) for name, start in starts.items()}
        terms = read_terms(graph, starts, rows)
        found = deterministics_of(graph, starts, terms.length)
        program = _program(graph, terms, constraints)
    except TallbayesError:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        hint = "pm.sample(nuts_sampler='numpyro') needs the same: look what PyTensor says there"
        got = f"{type(error).__name__}: {first}"
        raise ModelError(explain("a model that PyTensor can turn into JAX", got, hint)) from error
    data = terms.rows.data

    def log_prior(theta: dict[str, Any]) -> jax.Array:
        return program.log_density(theta)

    def log_likelihood(theta: dict[str, Any], row: dict[str, Any]) -> jax.Array:
        return sum_of(program.rows(theta, row), theta)

    explicit = Model(log_prior, log_likelihood, starts, constraints=constraints)
    _require_same(graph, terms, explicit, data)
    sites = sites_of(graph, terms.observed, terms.rest, starts)
    if not integrate:
        return _reporting(_require_few(explicit, terms, sites), found), data
    others = _shown(sites, starts, found)
    program = replace(program, others={name: (label, found[label]) for name, label in others.items()})
    first = jax.tree.map(lambda leaf: leaf[[0]], data)
    run = program.run(first, 1, program.values_of(starts))
    integrated, data = integrate_groups(Read(program, sites, run, explicit, data))
    integrated = _with_levels(_require_few(integrated, terms, sites), model)
    return _reporting(integrated, found), data


def _require_readable(model: Any) -> None:
    if not model.observed_RVs:
        got = f"free variables alone: {[rv.name for rv in model.free_RVs]}"
        raise ModelError(explain("observed variables", got, "pass observed= what was observed"))
    if not model.free_RVs:
        raise ModelError(explain("free variables to infer", "observed ones alone", "a prior for each parameter"))
    for rv in model.free_RVs:
        kind = type(rv.owner.op).__name__
        if rv.name.endswith("_unobserved"):
            hint = "leave out the rows whose response is missing, and predict them"
            raise ModelError(explain("responses without gaps", f"{rv.name!r}, imputed", hint))
        if not rv.type.dtype.startswith("float"):
            hint = "pm.Mixture, or sum over its values in pm.Potential"
            raise ModelError(explain("continuous free variables", f"{rv.name!r} of {rv.type.dtype}", hint))
        if kind in ("FlatRV", "HalfFlatRV"):
            hint = "a proper prior, such as a wide pm.Normal or pm.HalfNormal"
            raise ModelError(explain("proper priors", f"{kind[:-2]} at {rv.name!r}", hint))


def _inside(constraint: Any, name: str, start: np.ndarray) -> np.ndarray:
    """A start value inside its space: PyMC's own, or the middle."""
    try:
        constraint.require(name, start)
        return start
    except ModelError:
        return np.asarray(constraint.constrain(jnp.zeros(constraint.free_shape(start.shape))), np.float64)


def _program(graph: ModelGraph, terms: ModelTerms, constraints: dict[str, Any]) -> PymcProgram:
    rest = graph.compiled(list(terms.rest.values()))
    free = tuple(rv.name for rv in graph.free)
    return PymcProgram(free, terms.rows, rest, tuple(terms.rest), constraints, normals_of(graph), {})


def _require_same(graph: ModelGraph, terms: ModelTerms, model: Model, data: dict[str, Any]) -> None:
    """Hold the terms of single rows against those of the model as it is, and its prior likewise."""
    whole = graph.compiled(list(terms.observed.values()))
    few = np.unique(np.linspace(0, terms.length - 1, COMPARED_ROWS, dtype=int))
    some = jax.tree.map(lambda leaf: leaf[few], data)

    def compare(theta: dict[str, Any], rows: dict[str, Any], constants: Any) -> Any:
        entries = [jnp.sum(jnp.reshape(term, (terms.length, -1)), 1) for term in whole(theta, constants)]
        return jnp.stack(entries).sum(0)[few], jax.vmap(model.log_likelihood, (None, 0))(theta, rows)

    generator, compared = np.random.default_rng(0), jax.jit(compare)
    for step in COMPARED_STEPS:
        theta = moved_by(model, model.initial, step, generator)
        one, other = (np.asarray(each) for each in compared(theta, some, whole.typed(theta)))
        scale = AGREEMENT * (1 + np.max(np.abs(one[np.isfinite(one)]), initial=0.0))
        if not np.allclose(one, other, rtol=AGREEMENT, atol=scale, equal_nan=True):
            got = f"{one[0]:.6g} of the first row among all, and {other[0]:.6g} alone"
            raise ModelError(explain("terms of single rows that are those of the model", got, BEFORE))


def _require_few(model: Model, terms: ModelTerms, sites: list[Any]) -> Model:
    of_rows = [site.name for site in sites if site.name in model.initial and terms.length in site.shape]
    if terms.rows.numbered and of_rows and terms.length > MOST_OF_ROWS:
        got = f"{of_rows[0]!r}: one for each of {terms.length} rows"
        why = "".join(f" ({note})" for note in model.notes)
        hint = "integrate=True, or marginalise it inside the likelihood of its row"
        raise ModelError(explain("latent variables of rows that can be integrated out", got + why, hint))
    return model


def _shown(sites: list[Any], starts: dict[str, Any], found: dict[str, JaxGraph]) -> dict[str, str]:
    """Deterministics that say what a variable along a plate stands for, as mean + scale * z says it of z."""
    along = {site.name for site in sites if site.plates}
    told: dict[str, str] = {}
    for label, graph in found.items():
        own = along.intersection(graph.free)
        if len(own) != 1:
            continue
        (name,) = own
        shape = jax.eval_shape(graph, {each: starts[each] for each in graph.free})[0].shape
        if shape == np.shape(starts[name]):
            told.setdefault(name, label)
    return told


def _with_levels(model: Model, source: Any) -> Model:
    """Groups by the coordinates of their dimension."""
    if model.groups is None:
        return model
    levels = source.coords.get(model.groups.by)
    return model if levels is None else replace(model, groups=replace(model.groups, levels=tuple(levels)))


def _reporting(model: Model, found: dict[str, JaxGraph]) -> Model:
    """With the deterministics that hang on what is left, beside the parameters."""
    left = {name: graph for name, graph in found.items() if set(graph.free) <= set(model.initial)}
    if not left:
        return model

    def report(theta: dict[str, Any], units: Any) -> dict[str, Any]:
        dtype = jnp.result_type(*theta.values())
        return {**theta, **{name: jnp.asarray(graph(theta)[0], dtype) for name, graph in left.items()}}

    return replace(model, report=report)


class _quiet(warnings.catch_warnings):  # noqa: N801
    """What PyMC and PyTensor warn of is not about this use of them."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.simplefilter("ignore")
        return entered
