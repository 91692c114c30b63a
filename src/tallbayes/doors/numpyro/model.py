"""NumPyro models, unchanged: the sites inside the data plate are the likelihood of a row, all others the prior.

    log p(theta, X) = sum_{sites outside} log p_s(theta) + sum_i sum_{sites inside} log p_s(x_i | theta)

The term of a row is the model run on that row alone. Whether the model is such a sum is tried on five rows, together
and one by one: a model that centres its data by their mean is none. Effects of groups are then integrated out, where
they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.numpyro.arguments import Arguments, bind_arguments
from tallbayes.doors.numpyro.programs import NumpyroProgram, survey
from tallbayes.doors.numpyro.responses import with_responses
from tallbayes.doors.numpyro.row_effects import integrate_rows
from tallbayes.doors.numpyro.supports import constraint_of, start_value
from tallbayes.doors.plates.groups import Read, integrate_groups
from tallbayes.doors.plates.programs import Message, Site
from tallbayes.errors import ModelError, explain, require_extra
from tallbayes.model.constraints import Constraint
from tallbayes.model.model import Model
from tallbayes.programs.identity import identify

COMPARED_ROWS = 5
COMPARED_STEPS = (0.1, 0.5)
AGREEMENT = 1e-5


def from_numpyro(
    model: Callable[..., Any], /, *args: Any, rows: Collection[str] | None = None, integrate: bool = True, **kwargs: Any
) -> tuple[Model, dict[str, Any]]:
    """A NumPyro model with a data plate, and its rows, for `tb.estimate`.

    The arguments are those of the NumPyro model. Arrays as long as the data plate are rows; `rows` names the arguments
    that hold them where lengths alone cannot tell. theta is a dict by site.

    The sites of a plate of groups that enter a row at its own index alone, as in z[g], and latent sites of the rows
    themselves, are integrated out: `result.effects` has them, by the name of their plate. A note says so, or why not;
    with `integrate=False` effects of groups are parameters, and latent sites of rows refused.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def normal(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0, 10))
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1))
    ...     with numpyro.plate("data", len(y)):
    ...         numpyro.sample("y", dist.Normal(mean, scale), obs=y)
    >>> model, data = from_numpyro(normal, np.array([0.5, 1.5, 1.0]))
    >>> sorted(model.initial), sorted(data)
    (['mean', 'scale'], ['y'])
    """
    require_extra("numpyro", "numpyro", "tb.from_numpyro")
    with jax.enable_x64(True):
        program, sites, length = _find_plates(model, bind_arguments(model, args, kwargs), rows)
        of_rows = _require_rows_in_plates(program, sites, length, integrate)
        initial, constraints, run = _read_latent(program, sites)
        program, data = _attach_rows(program, length, run)
        first = _slice(data, [0])

        def log_prior(theta: dict[str, Any]) -> jax.Array:
            return program.log_density(theta, first, 1, inside=False)

        def log_likelihood(theta: dict[str, Any], row: dict[str, Any]) -> jax.Array:
            one = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), row)
            return program.log_density(theta, one, 1, inside=True)

        explicit = with_responses(Model(log_prior, log_likelihood, initial, constraints=constraints), program, first)
        read = Read(program, sites, run, explicit, data)
        few = np.unique(np.linspace(0, length - 1, COMPARED_ROWS, dtype=int))
        if of_rows:
            return integrate_rows(read, of_rows, few)
        _require_sum_over_rows(program, explicit, _slice(data, few))
        return integrate_groups(read) if integrate else (explicit, data)


def _find_plates(
    model: Callable[..., Any], arguments: Arguments, rows: Collection[str] | None
) -> tuple[NumpyroProgram, list[Site], int]:
    """The program with its data plates, those around observed sites and as long as the rows; its sites; that length."""
    if rows is not None:
        arguments, length = arguments.with_rows_of(rows)
        lengths = {length}
    else:
        lengths = arguments.lengths
        arguments = arguments.with_rows(max(lengths, default=0))
    sites = survey(model, arguments)
    if not any(site.is_observed for site in sites):
        got = f"latent sites alone: {[site.name for site in sites]}"
        raise ModelError(explain("observed sites", got, "pass the model what was observed"))
    if all(site.is_observed for site in sites):
        raise ModelError(explain("latent sites to infer", "observed sites alone", "numpyro.sample without obs"))
    # Rows are the leading axis, so of two plates around a site the one further left is theirs.
    around = [[plate for plate in site.plates if plate.size in lengths] for site in sites if site.is_observed]
    outer = [min(plates, key=lambda plate: plate.dim) for plates in around if plates]
    sizes = {plate.size for plate in outer}
    if not sizes:
        plates = {plate.name: plate.size for site in sites for plate in site.plates}
        got = f"plates {plates} and arrays of length {sorted(lengths)}"
        hint = 'with numpyro.plate("data", len(y)): numpyro.sample(..., obs=y), and y an argument of the model'
        raise ModelError(explain("a plate around the observed sites, as long as the rows", got, hint))
    if len(sizes) > 1:
        got = ", ".join(sorted(f"{plate.name!r} of {plate.size}" for plate in set(outer)))
        hint = 'name the arguments that hold the rows, as in rows=("x", "y"), if the others belong to the prior'
        raise ModelError(explain("data plates of one size", got, hint))
    length = sizes.pop()
    names = frozenset(plate.name for plates in around for plate in plates if plate.size == length)
    program = NumpyroProgram(model, arguments if rows is not None else arguments.with_rows(length), names)
    return program, sites, length


def _require_rows_in_plates(program: NumpyroProgram, sites: list[Site], length: int, integrate: bool) -> list[str]:
    """The latent sites of the rows, which are to be integrated out."""
    plates, of_rows = sorted(program.plates), []
    for site in sites:
        inside = program.is_inside(site.plates)
        if inside and not site.is_observed:
            of_rows.append(site.name)
            if not integrate:
                hint = "integrate=True, or marginalise it inside the likelihood of its row"
                raise ModelError(explain(f"no latent site in plate {plates}", f"{site.name!r}: one for each row", hint))
        if site.is_observed and not inside and site.shape[:1] == (length,):
            hint = f"put it inside plate {plates}, without to_event"
            raise ModelError(explain("observations of rows in their plate", f"{site.name!r} outside it", hint))
    return of_rows


def _read_latent(
    program: NumpyroProgram, sites: list[Site]
) -> tuple[dict[str, np.ndarray], dict[str, Constraint], dict[str, Message]]:
    """Start values and constraints of the latent sites, and all messages, of a run on the first row."""
    # A latent site of the rows has one entry on one of them, whatever its length on all: that is looked at later.
    on_all = {
        site.name: None if program.is_inside(site.plates) else site.shape for site in sites if not site.is_observed
    }
    run: dict[str, Message] = {}

    def values_and_bounds(rows: dict[str, Any], shift: jax.Array) -> tuple[dict[str, Any], dict[str, Any]]:
        def start(message: Message) -> jax.Array:
            value = start_value(message, shift)
            if on_all.get(message["name"], ()) is not None:
                _require_shape(message["name"], on_all.get(message["name"]), value.shape)
            return value

        run.update(program.run(rows, 1, start))
        for name, shape in on_all.items():
            if shape is not None:
                _require_shape(name, shape, jnp.shape(run[name]["value"]) if name in run else None)
        values = {name: run[name]["value"] for name in on_all}
        return values, {name: jax.tree.leaves(run[name]["fn"].support) for name in on_all}

    first = _slice(program.arguments.rows, [0])
    compiled = _compile(values_and_bounds, first, np.float64(0.0))
    (values, bounds), (_, moved) = (compiled(first, np.float64(shift)) for shift in (0.0, 0.7))
    constraints = {}
    for name in values:
        kind = jax.tree.structure(run[name]["fn"].support)
        constraints[name] = constraint_of(jax.tree.unflatten(kind, [np.asarray(bound) for bound in bounds[name]]))
        if not all(np.array_equal(*pair) for pair in zip(bounds[name], moved[name], strict=True)):
            hint = "sample it on (0, 1) or above 0, and scale or shift it in the model"
            raise ModelError(explain("supports with fixed bounds", f"site {name!r} bounded by another site", hint))
    return {name: np.asarray(value, np.float64) for name, value in values.items()}, constraints, run


def _require_shape(name: str, on_all: tuple[int, ...] | None, on_one: tuple[int, ...] | None) -> None:
    if on_all != on_one:
        got = f"site {name!r} of shape {on_all} on all rows and {on_one} on one"
        hint = "marginalise the latent variable of a row inside its likelihood; name the data by rows= if it is none"
        raise ModelError(explain("latent sites whatever the number of rows", got, hint))


def _attach_rows(
    program: NumpyroProgram, length: int, run: dict[str, Message]
) -> tuple[NumpyroProgram, dict[str, Any]]:
    """All rows: those of the arguments and those that came with the model, as from `numpyro.handlers.condition`."""
    attached, data = {}, program.arguments.rows
    for name, message in run.items():
        plates = [plate for plate in message.get("cond_indep_stack", ()) if plate.name in program.plates]
        # Within a trace, what depends on anything is a tracer.
        if message["type"] != "sample" or not plates or isinstance(message["value"], jax.core.Tracer):
            continue
        axis = jnp.ndim(message["value"]) - message["fn"].event_dim + plates[0].dim
        if axis < 0 or jnp.shape(message["value"])[axis] != length or length == 1:
            continue
        if name in data:
            raise ModelError(explain(f"one {name!r} of rows", "an argument and a site", "rename the argument"))
        attached[name] = axis
        data[name] = np.moveaxis(np.asarray(message["value"]), axis, 0)
    return replace(program, attached=attached), data


def _require_sum_over_rows(program: NumpyroProgram, model: Model, rows: dict[str, Any]) -> None:
    """Refuse a model whose log density on a few rows is not its prior plus the terms of each row alone."""
    count = len(jax.tree.leaves(rows)[0])

    def compare(theta: dict[str, Any], rows: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        apart = model.log_prior(theta), jnp.sum(jax.vmap(model.log_likelihood, (None, 0))(theta, rows))
        together = [program.log_density(theta, rows, count, inside=inside) for inside in (False, True)]
        return jnp.stack(together), jnp.stack(apart)

    compiled = _compile(compare, model.initial, rows)
    generator = np.random.default_rng(0)
    for step in COMPARED_STEPS:
        theta = {}
        for name, start in model.initial.items():
            free = np.asarray(model.constraints[name].unconstrain(start))
            theta[name] = model.constraints[name].constrain(jnp.asarray(free + generator.normal(0, step, free.shape)))
        together, apart = (np.asarray(side) for side in compiled(theta, rows))
        if not np.allclose(together, apart, rtol=AGREEMENT, atol=AGREEMENT, equal_nan=True):
            got = "{:.6g} + {:.6g} on {} rows, and {:.6g} + {:.6g} one by one".format(*together, count, *apart)
            hint = "centre, scale, sort or shift the data before; name them by rows= if another argument is as long"
            raise ModelError(explain("a log prior plus a sum of terms of single rows", got, hint))


def _compile(function: Callable[..., Any], *examples: Any) -> Any:
    try:
        return jax.jit(identify(function, *examples).call)
    except ModelError as error:
        if not isinstance(error.__cause__, ModelError):
            raise
        refusal = error.__cause__
    # The model's own refusal, with what it was raised from, says more than that it does not compile.
    raise refusal


def _slice(rows: dict[str, Any], indices: Any) -> dict[str, Any]:
    return jax.tree.map(lambda leaf: leaf[indices], rows)
