"""Forms: a model as its owner wrote it, given one group's effect b instead of the effects of all.

    log p(row | theta, b),    log p(b | theta),    log p(theta),    and what is shown of b

`PlateForm` is for a plate of groups, whose entry g alone is followed through the model (`entries`); `RowForm` for
latent sites in the plate of the rows, each of which is a group of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from tallbayes.doors.plates.effects import EffectSites
from tallbayes.doors.plates.entries import EntryWalk, reaches
from tallbayes.doors.plates.programs import Answer, Message, SiteProgram
from tallbayes.doors.plates.steps import Along, NotApartError, whole

OWN = "__own__"
MOST_INFORMATION = 1e12
TOLD, VALUE, DEVIATION, STANDARD = "told", "value", "deviation", "standard"
SHOWN = {TOLD: "{}", VALUE: "{}", DEVIATION: "{} - its mean", STANDARD: "{} standardised"}


@dataclass(frozen=True, eq=False)
class PlateForm:
    """The model given the effect of one entry of a plate of `length`; `first` is one row.

    With some rows for a `sample`, free numbers are a = r(theta) b, where r is about the sd of a once `share` such rows
    are seen: nodes that are put down once for b then follow a wherever the scale of an effect goes.
    """

    program: SiteProgram
    effects: EffectSites
    length: int
    first: dict[str, Any]
    shows: str = VALUE
    sample: dict[str, Any] | None = None
    share: float = 0.0

    def log_likelihood(self, theta: dict[str, Any], b: Any, row: dict[str, Any]) -> jax.Array:
        return self._given(theta, self.width(theta, b) * b, row)

    def _given(self, theta: dict[str, Any], a: Any, row: dict[str, Any]) -> jax.Array:
        rest = {name: each for name, each in row.items() if name != OWN}
        return self._row(EntryWalk(self.length, row.get(OWN)), theta, a, rest)

    def width(self, theta: dict[str, Any], b: Any) -> jax.Array:
        """r = (1 + I^2)^-1/4 by number, I the curvature of `share` rows like those of the sample where a = 0."""
        if self.sample is None:
            return jnp.ones_like(b)
        zero = jnp.zeros(self.effects.size, jnp.result_type(b))

        def curvature(row: dict[str, Any]) -> jax.Array:
            return -jnp.diagonal(jax.hessian(lambda a: self._given(theta, a, row))(zero))

        information = self.share * jnp.mean(jax.vmap(curvature)(self.sample), axis=0)
        known = jnp.clip(information, -MOST_INFORMATION, MOST_INFORMATION)
        return jnp.reshape((1 + known**2) ** -0.25, jnp.shape(b))

    def read(self, theta: dict[str, Any], b: Any, own: Any, row: dict[str, Any]) -> jax.Array:
        """The indices of the plate at which a row reads it."""
        walk = EntryWalk(self.length, own)
        self._row(walk, theta, b, row)
        return jnp.concatenate([jnp.ravel(each) for each in walk.read] or [jnp.zeros(0, jnp.int32)])

    def slices(self, theta: dict[str, Any], b: Any, row: dict[str, Any]) -> bool:
        """Whether a row needs the number of its group for more than the effect."""
        walk = EntryWalk(self.length, jnp.int32(0))
        jax.eval_shape(lambda *given: self._row(walk, *given), theta, b, row)
        return walk.slices

    def _row(self, walk: EntryWalk, theta: dict[str, Any], b: Any, row: dict[str, Any]) -> jax.Array:
        def total(offered: dict[str, Any], theta: dict[str, Any], row: dict[str, Any]) -> jax.Array:
            one = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), row)
            terms = self.program.log_probs(one, 1, self.answer(theta, offered), inside=True)
            return _total(terms, _dtype(theta, offered))

        found = self._through(walk, total, b, theta, row)
        if isinstance(found, Along) and found.axis is not None:
            raise NotApartError("a row reads all its entries")
        return whole(found)

    def log_prior(self, theta: dict[str, Any]) -> jax.Array:
        return self._prior(theta, jnp.zeros(self.effects.size, _dtype(theta)))[0]

    def log_density(self, theta: dict[str, Any], b: Any) -> jax.Array:
        width = self.width(theta, b)
        return self._prior(theta, width * b)[1] + jnp.sum(jnp.log(width))

    def _prior(self, theta: dict[str, Any], b: Any) -> tuple[jax.Array, jax.Array]:
        """log p(theta), and log p(b | theta) with the free numbers' volume."""
        normal = {site.name for site in self.effects.sites if site.normal}

        def terms(offered: dict[str, Any], theta: dict[str, Any]) -> dict[str, Any]:
            found = self.program.log_probs(self.first, 1, self.answer(theta, offered), inside=False)
            return {name: jnp.asarray(term) for name, term in found.items() if name not in normal}

        walk = EntryWalk(self.length)
        dtype = _dtype(theta, {"b": b})
        prior, density = jnp.zeros((), dtype), jnp.asarray(self.effects.log_weight(b), dtype)
        for term in self._through(walk, terms, b, theta).values():
            if isinstance(term, Along) and term.axis is not None:
                density += jnp.sum(walk.full(term, term.axis)).astype(dtype)
            else:
                prior += jnp.sum(whole(term)).astype(dtype)
        if walk.read:
            raise NotApartError("the prior reads single entries")
        return prior, density

    def shown(self, theta: dict[str, Any], b: Any) -> jax.Array:
        walk = EntryWalk(self.length)

        def values(offered: dict[str, Any], theta: dict[str, Any]) -> dict[str, Any]:
            return _shown(self.program, self.effects, self.first, self.answer(theta, offered), offered, self.shows)

        found = self._through(walk, values, self.width(theta, b) * b, theta)
        entries = [_entry(walk, found[site.name], site.axis) for site in self.effects.sites]
        return jnp.concatenate([jnp.ravel(entry) for entry in entries])

    def showing(self, theta: dict[str, Any], b: Any) -> PlateForm:
        """With as much shown as hangs on no more than theta and b."""
        told = any(self.program.told(site.name) for site in self.effects.sites)
        for shows in (*[TOLD][:told], VALUE, DEVIATION):
            form = replace(self, shows=shows)
            try:
                jax.eval_shape(form.shown, theta, b)
            except NotApartError:
                continue
            return form
        return replace(self, shows=STANDARD)

    def answer(self, theta: dict[str, Any], offered: dict[str, Any]) -> Answer:
        return answering(self.program, self.effects, theta, offered)

    def everywhere(self, theta: dict[str, Any], b: Any) -> Answer:
        """Every entry of the plate is that of b, of which a row reads its own."""
        sites = self.effects.by_name
        offered = {
            name: jnp.broadcast_to(jnp.expand_dims(entry, sites[name].axis), sites[name].shape)
            for name, entry in self.effects.offered(self.width(theta, b) * b).items()
        }
        return self.answer(theta, offered)

    def _through(self, walk: EntryWalk, function: Callable[..., Any], b: Any, *rest: Any) -> Any:
        """A function of what the sites are offered along the plate, followed for one entry."""
        entries = self.effects.offered(b)
        sites = self.effects.by_name
        wide = {name: _abstract(sites[name].shape, entry.dtype) for name, entry in entries.items()}
        closed, shape = jax.make_jaxpr(function, return_shape=True)(wide, *rest)
        along = {
            name: Along(jnp.expand_dims(entry, sites[name].axis), sites[name].shape, sites[name].axis)
            for name, entry in entries.items()
        }
        found = walk.through(closed.jaxpr, closed.consts, jax.tree.leaves((along, *rest)))
        return jax.tree.unflatten(jax.tree.structure(shape), found)


@dataclass(frozen=True, eq=False)
class RowForm:
    """The model given the latent sites of one row."""

    program: SiteProgram
    effects: EffectSites
    first: dict[str, Any]
    shows: str = VALUE

    def log_likelihood(self, theta: dict[str, Any], b: Any, row: dict[str, Any]) -> jax.Array:
        one = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), row)
        offered = self.one(b)
        terms = self.program.log_probs(one, 1, self.answer(theta, offered), inside=True)
        normal = {site.name for site in self.effects.sites if site.normal}
        return _total({name: term for name, term in terms.items() if name not in normal}, _dtype(theta, offered))

    def log_prior(self, theta: dict[str, Any]) -> jax.Array:
        offered = self.one(jnp.zeros(self.effects.size, _dtype(theta)))
        terms = self.program.log_probs(self.first, 1, self.answer(theta, offered), inside=False)
        return _total(terms, _dtype(theta))

    def log_density(self, theta: dict[str, Any], b: Any) -> jax.Array:
        return jnp.asarray(self.effects.log_weight(b), _dtype(theta, {"b": b}))

    def shown(self, theta: dict[str, Any], b: Any) -> jax.Array:
        return self._shown(theta, b, self.first)

    def showing(self, theta: dict[str, Any], b: Any) -> RowForm:
        """With as much shown as hangs on no more than theta and b."""
        for shows in (VALUE, DEVIATION):
            form = replace(self, shows=shows)
            if not reaches(form._shown, theta, b, self.first)[2]:
                return form
        return replace(self, shows=STANDARD)

    def _shown(self, theta: dict[str, Any], b: Any, first: dict[str, Any]) -> jax.Array:
        offered = self.one(b)
        found = _shown(self.program, self.effects, first, self.answer(theta, offered), offered, self.shows)
        return jnp.concatenate([jnp.ravel(found[site.name]) for site in self.effects.sites])

    def answer(self, theta: dict[str, Any], offered: dict[str, Any]) -> Answer:
        return answering(self.program, self.effects, theta, offered)

    def everywhere(self, theta: dict[str, Any], b: Any) -> Answer:
        return self.answer(theta, self.one(b))

    def one(self, b: Any) -> dict[str, Any]:
        """What the sites are offered on one row."""
        sites = self.effects.by_name
        return {name: jnp.expand_dims(entry, sites[name].axis) for name, entry in self.effects.offered(b).items()}


def answering(program: SiteProgram, effects: EffectSites, theta: dict[str, Any], offered: dict[str, Any]) -> Answer:
    """Sites of effects answered by what they are offered, all others by their values."""
    others, sites = program.values_of(theta), effects.by_name

    def value_of(message: Message) -> Any:
        site = sites.get(message["name"])
        return others(message) if site is None else site.value(lambda: program.law(message), offered[site.name])

    return value_of


def _shown(
    program: SiteProgram, effects: EffectSites, rows: Any, value_of: Answer, offered: dict[str, Any], shows: str
) -> dict[str, Any]:
    run = program.run(rows, 1, value_of)
    found = {}
    for site in effects.sites:
        if shows == TOLD and program.told(site.name):
            found[site.name] = program.tell(run[site.name])
        elif shows in (TOLD, VALUE) or not site.normal:
            found[site.name] = run[site.name]["value"]
        else:
            wide = offered[site.name]
            found[site.name] = program.law(run[site.name]).deviation(wide) if shows == DEVIATION else wide
    return found


def _entry(walk: EntryWalk, value: Any, axis: int) -> Any:
    return walk.full(value, axis) if isinstance(value, Along) else walk.entry(value, axis)


def _abstract(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def _total(terms: dict[str, Any], dtype: Any) -> jax.Array:
    return sum((jnp.sum(term).astype(dtype) for term in terms.values()), jnp.zeros((), dtype))


def _dtype(*values: dict[str, Any]) -> Any:
    return jnp.result_type(*(each for group in values for each in group.values()))
