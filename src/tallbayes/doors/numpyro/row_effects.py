"""Row effects: latent sites in the plate of the rows, each row a group of its own.

    p(x_i | theta) = integral p(b_i | theta, x_i) p(x_i | theta, b_i) db_i

Whether the model is such a product is tried on a few rows, together and one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.plates.effects import EffectSites
from tallbayes.doors.plates.forms import RowForm, answering
from tallbayes.doors.plates.groups import AGREEMENT, COMPARED_STEPS, Read, effects_along, grouped, labels, moved_by
from tallbayes.doors.plates.steps import NotApartError
from tallbayes.errors import ModelError, explain
from tallbayes.model.model import Model
from tallbayes.programs.identity import identify


def integrate_rows(read: Read, names: list[str], few: np.ndarray) -> tuple[Model, dict[str, Any]]:
    """The model with the latent sites of its rows integrated out; refused with the reason where they cannot be."""
    site = next(each for each in read.sites if each.name == names[0])
    plates = [plate for plate in site.plates if plate.name in read.program.plates]
    plate = min(plates, key=lambda each: each.dim).name
    theta = {name: start for name, start in read.model.initial.items() if name not in names}
    try:
        effects = effects_along(read, plate, names)[0]
        if not theta:
            raise NotApartError("no parameter would be left")
    except NotApartError as reason:
        hint = "marginalise it inside the likelihood of its row, or pass what was observed of it"
        got = f"{', '.join(map(repr, names))}, of which {reason}"
        raise ModelError(explain("latent sites of rows that can be integrated out", got, hint)) from reason
    form = RowForm(read.program, effects, read.first).showing(theta, np.zeros(effects.size))
    _require_product(read, form, theta, jax.tree.map(lambda leaf: leaf[few], read.data))
    length = len(jax.tree.leaves(read.data)[0])
    model, data = grouped(read, form, plate, theta, (read.data, np.arange(length)))
    named, shown = ", ".join(map(repr, names)), ", ".join(labels(form))
    notes = [f"groups: {named} of every row integrated out: result.effects({plate!r}) is of {shown}"]
    rest = [each.name for each in read.sites if not each.is_observed and each.plates and each.name not in names]
    if rest:
        notes.append(f"groups: {', '.join(map(repr, rest))} not integrated, because only one plate is")
    return replace(model, notes=tuple(notes)), data


def _require_product(read: Read, form: RowForm, theta: dict[str, Any], rows: dict[str, Any]) -> None:
    """Refuse a model whose density on a few rows is not that of each row with its own effect."""
    count = len(jax.tree.leaves(rows)[0])
    sites = form.effects.by_name

    def wide(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        return tuple(count if place == axis else length for place, length in enumerate(shape))

    together = EffectSites(tuple(replace(site, shape=wide(site.shape, site.axis)) for site in form.effects.sites))

    def compare(theta: dict[str, Any], b: Any, rows: Any) -> tuple[Any, Any]:
        entries = jax.vmap(form.effects.offered)(b)
        offered = {name: jnp.moveaxis(entry, 0, sites[name].axis) for name, entry in entries.items()}
        value_of = answering(read.program, together, theta, offered)
        size = jnp.sum(jax.vmap(form.effects.log_jacobian)(b))
        run = read.program.run(rows, count, value_of)
        size += sum(read.program.law(run[site.name]).log_size(site.shape) for site in together.sites if site.normal)
        totals = [
            sum(jnp.sum(term) for term in read.program.log_probs(rows, count, value_of, inside=inside).values())
            for inside in (False, True)
        ]
        terms = jax.vmap(form.log_likelihood, (None, 0, 0))(theta, b, rows)
        densities = jax.vmap(form.log_density, (None, 0))(theta, b)
        return jnp.stack([totals[0], totals[1] + size]), jnp.stack([form.log_prior(theta), jnp.sum(terms + densities)])

    compared = jax.jit(identify(compare, theta, np.zeros((count, form.effects.size)), rows).call)
    generator = np.random.default_rng(0)
    for step in COMPARED_STEPS:
        b = generator.normal(0, step, (count, form.effects.size))
        sides = compared(moved_by(read.model, theta, step, generator), b, rows)
        one, other = (np.asarray(side) for side in sides)
        if not np.allclose(one, other, rtol=AGREEMENT, atol=AGREEMENT, equal_nan=True):
            got = "{:.6g} + {:.6g} on {} rows, and {:.6g} + {:.6g} one by one".format(*one, count, *other)
            hint = (
                "centre, scale, sort or shift the data before; one latent entry for every row, read by that row alone"
            )
            raise ModelError(explain("a log prior plus a sum of terms of single rows", got, hint))
