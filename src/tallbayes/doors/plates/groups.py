"""Groups: plates whose sites enter a row at the row's own index alone, recognised and integrated out.

A plate is recognised by the operations of the model itself (`entries`), whatever the values are; the index at which
every row reads it, which must be one and the same wherever it does, is the column of the groups. Then both forms are
held against each other on a few rows, with their gradients:

    log p(x_i | theta, z)  =  log p(x_i | theta, b_g(i)),        d/dz_j = 0 but for j = g(i)
    log p(theta, z) + log |dz/db|  =  log p(theta) + sum_g log p(b_g | theta)

Where any of this fails, effects stay parameters, and a note says why. Of several plates the longest is integrated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.plates.effects import EffectSites, effect_site
from tallbayes.doors.plates.entries import reaches
from tallbayes.doors.plates.forms import OWN, SHOWN, TOLD, VALUE, PlateForm, RowForm
from tallbayes.doors.plates.programs import Message, Site, SiteProgram
from tallbayes.doors.plates.steps import NotApartError
from tallbayes.errors import ModelError
from tallbayes.model.groups.integral import Groups
from tallbayes.model.groups.terms import MOST_EFFECTS
from tallbayes.model.model import Model
from tallbayes.programs.identity import identify

COMPARED_ROWS = 5
COMPARED_STEPS = (0.1, 0.5)
AGREEMENT = 1e-7
READ_ROWS = 2**16
# Rows that tell how much rows say of an effect, roughly; and for how many groups they are asked, in roots of the rows a
# group: a mode that moves with the scale goes about sqrt(n) / G of its own sds from where a straight line puts it.
SAMPLE_ROWS, FEW_GROUPS = 8, 6.0


@dataclass(frozen=True, eq=False)
class Read:
    """A model with explicit effects, as it was read: its sites, their messages on one row, and its rows."""

    program: SiteProgram
    sites: list[Site]
    run: dict[str, Message]
    model: Model
    data: dict[str, Any]

    @property
    def first(self) -> dict[str, Any]:
        return jax.tree.map(lambda leaf: leaf[[0]], self.data)


def integrate_groups(read: Read) -> tuple[Model, dict[str, Any]]:
    """The model with the effects of its longest plate of groups integrated out; as it was, with a note, where it has
    one that cannot be."""
    plates = {plate.name: plate.size for site in _latent(read) for plate in site.plates}
    notes: list[str] = []
    for plate in sorted(plates, key=lambda name: -plates[name]):
        names = [site.name for site in _latent(read) if plate in {each.name for each in site.plates}]
        named = f"{', '.join(map(repr, names))} of plate {plate!r}"
        try:
            model, data, shown = _integrated(read, plate, names)
        except (NotApartError, ModelError, TypeError, ValueError, NotImplementedError) as reason:
            why = str(reason).strip().splitlines()[0] if str(reason).strip() else type(reason).__name__
            notes.append(f"groups: {named} not integrated, because {why}; its effects are parameters")
            continue
        rest = [site.name for site in _latent(read) if site.plates and site.name not in names]
        notes.append(f"groups: {named} integrated out: result.effects({plate!r}) is of {shown}")
        if rest:
            notes.append(f"groups: {', '.join(map(repr, rest))} not integrated, because only one plate is")
        return replace(model, notes=tuple(notes)), data
    return replace(read.model, notes=tuple(notes)), read.data


def _latent(read: Read) -> list[Site]:
    return [site for site in read.sites if not site.is_observed]


def _integrated(read: Read, plate: str, names: list[str]) -> tuple[Model, dict[str, Any], str]:
    effects, length = effects_along(read, plate, names)
    theta = {name: start for name, start in read.model.initial.items() if name not in names}
    if not theta:
        raise NotApartError("no parameter would be left")
    form = PlateForm(read.program, effects, length, read.first)
    b, row = np.zeros(effects.size), jax.tree.map(lambda leaf: leaf[0], read.data)
    jax.eval_shape(form.log_density, theta, b)
    index = _index(form, theta, b, read.data)
    data = {**read.data, OWN: index.astype(np.int32)} if form.slices(theta, b, row) else read.data
    form = replace(form.showing(theta, b), **sample_of(data, length))
    _require_agreement(read, form, theta, data, index)
    return *grouped(read, form, plate, theta, (data, index)), ", ".join(labels(form))


def effects_along(read: Read, plate: str, names: list[str]) -> tuple[EffectSites, int]:
    """The sites of a plate as effects, and how long it is."""
    found, length = [], 0
    for site in read.sites:
        if site.name not in names:
            continue
        frame = next((each for each in site.plates if each.name == plate), None)
        if frame is None:
            raise NotApartError(f"{site.name!r} lies along another plate")
        message, length = read.run[site.name], frame.size
        start = read.model.initial[site.name]
        axis = read.program.axis(message, frame.dim, start.ndim)
        if axis < 0 or start.shape[axis] not in (1, length):
            raise NotApartError(f"{site.name!r} of shape {start.shape} does not lie along it")
        constraint = read.model.constraints[site.name]
        if prod(constraint.free_shape(start.shape)) != start.size or not read.program.is_apart(message, axis):
            raise NotApartError(f"{site.name!r} has a support that is not a product of fixed intervals")
        normal = read.program.can_standardise(message, axis, read.run)
        found.append(effect_site(site.name, axis, constraint, start, normal))
    effects = EffectSites(tuple(found))
    if effects.size > MOST_EFFECTS:
        raise NotApartError(f"{effects.size} numbers a group are more than {MOST_EFFECTS}")
    if length < 2:
        raise NotApartError("it has one entry")
    return effects, length


def sample_of(data: dict[str, Any], length: int) -> dict[str, Any]:
    """A few rows, and how many a group has on average; nothing where there are so many groups that their scale is known
    well, and nodes hold as they are."""
    count = len(jax.tree.leaves(data)[0])
    if length > FEW_GROUPS * np.sqrt(count / length):
        return {}
    few = np.unique(np.linspace(0, count - 1, SAMPLE_ROWS, dtype=int))
    return {"sample": jax.tree.map(lambda leaf: leaf[few], data), "share": count / length}


def labels(form: PlateForm | RowForm) -> tuple[str, ...]:
    """What effects are called, by what is shown of them."""
    found = []
    for site in form.effects.sites:
        told = form.program.told(site.name) if form.shows == TOLD else None
        shown = SHOWN[form.shows if site.normal else VALUE]
        found += [shown.format((told or site.name) + place) for place in site.places]
    return tuple(found)


def grouped(
    read: Read, form: PlateForm | RowForm, plate: str, theta: dict[str, Any], rows: tuple[dict[str, Any], np.ndarray]
) -> tuple[Model, dict[str, Any]]:
    """The model of a form, and its rows with the column of the groups, which has the plate's name."""
    data, index = rows
    # An argument of that name, often the same column, stays with the rows by another.
    taken = f"{plate} (argument)"
    names = {taken if name == plate else name: name for name in data}

    def log_likelihood(theta: dict[str, Any], b: Any, row: dict[str, Any]) -> jax.Array:
        return form.log_likelihood(theta, b, {names[name]: each for name, each in row.items()})

    groups = Groups(
        by=plate,
        effect=form.effects.start,
        log_density=form.log_density,
        shown=form.shown,
        names=labels(form),
        of_rows=isinstance(form, RowForm),
    )
    constraints = {name: each for name, each in read.model.constraints.items() if name in theta}
    model = Model(form.log_prior, log_likelihood, theta, constraints=constraints, groups=groups)
    first = {name: data[own][:1] for name, own in names.items()}
    return read.program.answering(model, form, names, first), {
        **{name: data[own] for name, own in names.items()},
        plate: index,
    }


def _index(form: PlateForm, theta: dict[str, Any], b: np.ndarray, data: dict[str, Any]) -> np.ndarray:
    """The entry that every row reads."""
    row = jax.tree.map(lambda leaf: leaf[0], data)
    if any(reaches(form.read, theta, b, np.int32(0), row)[:3]):
        raise NotApartError("the index at which a row reads it hangs on parameters")
    read = jax.jit(jax.vmap(identify(lambda row: form.read(theta, b, jnp.int32(0), row), row).call))
    count = len(jax.tree.leaves(data)[0])
    parts = []
    for start in range(0, count, READ_ROWS):
        part = jax.tree.map(lambda leaf, start=start: leaf[start : start + READ_ROWS], data)
        parts.append(np.asarray(read(part)))
    found = np.concatenate(parts)
    if not found.shape[1]:
        raise NotApartError("no row reads it")
    if np.any(found != found[:, :1]):
        raise NotApartError("a row reads it at more than one index")
    index = found[:, 0].astype(np.int64)
    if index.min() < 0 or index.max() >= form.length:
        raise NotApartError(f"rows read it at {index.min()} to {index.max()}, of {form.length}")
    return index


def _require_agreement(
    read: Read, form: PlateForm, theta: dict[str, Any], data: dict[str, Any], index: np.ndarray
) -> None:
    """Hold both forms against each other on a few rows."""
    few = np.unique(np.linspace(0, len(index) - 1, COMPARED_ROWS, dtype=int))
    rows, own_rows = (jax.tree.map(lambda leaf: leaf[few], each) for each in (read.data, data))
    own = index[few]

    def explicit(theta: dict[str, Any], b: Any, row: Any) -> jax.Array:
        return read.model.log_likelihood({**theta, **_values(form, theta, b)[0]}, row)

    def compare(theta: dict[str, Any], b: Any) -> tuple[Any, Any]:
        each = jax.vmap(jax.value_and_grad(explicit, argnums=(0, 1)), (None, None, 0))
        value, (slope, moved) = each(theta, b, rows)
        short = jax.vmap(jax.value_and_grad(form.log_likelihood, argnums=(0, 1)), (None, 0, 0))
        own_value, (own_slope, own_moved) = short(theta, b[own], own_rows)
        wide = jnp.zeros_like(moved).at[jnp.arange(len(few)), own].set(own_moved)
        values, size = _values(form, theta, b)
        prior = read.model.log_prior({**theta, **values}) + size
        apart = form.log_prior(theta) + jnp.sum(jax.vmap(form.log_density, (None, 0))(theta, b))
        return (value, slope, moved, prior), (own_value, own_slope, wide, apart)

    compared = jax.jit(identify(compare, theta, np.zeros((form.length, form.effects.size))).call)
    generator = np.random.default_rng(0)
    for step in COMPARED_STEPS:
        b = generator.normal(0, step, (form.length, form.effects.size))
        for one, other in zip(
            *map(jax.tree.leaves, compared(moved_by(read.model, theta, step, generator), b)), strict=True
        ):
            if not np.allclose(one, other, rtol=AGREEMENT, atol=AGREEMENT * (1 + np.max(np.abs(one))), equal_nan=True):
                raise NotApartError("its rows, taken by group, do not have the density of the model")


def _values(form: PlateForm, theta: dict[str, Any], b: Any) -> tuple[dict[str, Any], Any]:
    """The sites of all groups as the model has them, and log |dz/db|."""
    sites = form.effects.by_name
    width = jax.vmap(form.width, (None, 0))(theta, b)
    b = width * b
    offered = {
        name: jnp.moveaxis(entries, 0, sites[name].axis) for name, entries in jax.vmap(form.effects.offered)(b).items()
    }
    run = form.program.run(form.first, 1, form.answer(theta, offered))
    size = sum(form.program.law(run[name]).log_size(site.shape) for name, site in sites.items() if site.normal)
    size += jnp.sum(jax.vmap(form.effects.log_jacobian)(b)) + jnp.sum(jnp.log(width))
    return {name: run[name]["value"] for name in sites}, size


def moved_by(model: Model, theta: dict[str, Any], step: float, generator: np.random.Generator) -> dict[str, Any]:
    """Parameters away from their start."""
    found = {}
    for name, start in theta.items():
        constraint = model.constraints[name]
        free = np.asarray(constraint.unconstrain(start))
        found[name] = constraint.constrain(jnp.asarray(free + generator.normal(0, step, free.shape)))
    return found
