"""A response of a row, given theta and the effects of its groups, for every family of `tb.families`.

    eta = x . beta + b + offset + sum_t z_t . b_t,    y ~ p(y | eta, s)

For all draws and the rows of a batch at once, in NumPy: (draws, rows).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from tallbayes.errors import InputError, explain
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.groups.terms import root_of
from tallbayes.model.linear import Layout
from tallbayes.model.links import LINKS
from tallbayes.model.parts.extras import coordinates, with_logs
from tallbayes.model.parts.laws import LAWS
from tallbayes.moments import Floats
from tallbayes.programs.later import jax, jnp
from tallbayes.results.checks.batches import RowBatch, layout_of, mixed_of, response_units
from tallbayes.results.draws.drawn import PosteriorDraws, known_groups
from tallbayes.results.fitted import excess_width, has_smooths, require_law
from tallbayes.results.groups.predictions import Mixed
from tallbayes.results.result import Result
from tallbayes.results.smooths.predictions import FamilyTheta

# Of a mean, beyond which no count is drawn.
MOST_MEAN = 1e15
MOST_EFFECTS = 2**25


@dataclass(eq=False)
class ResponseDrawer:
    """Linear predictors, means and responses of batches of rows, for every one of some draws."""

    result: Result
    draws: PosteriorDraws
    layout: Layout
    mixed: Mixed | None
    extra: Any
    places: Floats = field(default_factory=lambda: np.empty((0, 0)))
    width: float | None = None
    known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, draws: PosteriorDraws, rows: Any) -> ResponseDrawer:
        regression = result.regression
        if regression is None or regression.family not in CATALOGUE:
            raise InputError(explain("a family of tb.families, or a formula", "another model", "simulate= of tb.Model"))
        require_law(result, "responses")
        mixed, layout, points = mixed_of(result), layout_of(result, rows), draws.points
        extra: Any = regression.noise_scale
        if mixed is not None:
            known = _mixed_parts(mixed, points)
            places = known["places"]
            extra = np.exp(places[:, -1]) if places.shape[1] else extra
            return cls(result, draws, layout, mixed, extra, places, excess_width(result), known)
        width = excess_width(result)
        if has_smooths(result):
            # What is positive comes by its log.
            points, width = FamilyTheta.of(result).of_points(points), None
        places = points[:, points.shape[1] - regression.extras :]
        extra = np.exp(places[:, -1]) if regression.extras else extra
        return cls(result, draws, layout, None, extra, places, width, {"points": points})

    @property
    def family(self) -> str:
        assert self.result.regression is not None
        return self.result.regression.family

    def predictors(self, batch: RowBatch, rng: np.random.Generator) -> Floats:
        """eta, (draws, rows), with a last axis of heads where there are several; new groups by `rng`."""
        if self.mixed is not None:
            return self._mixed_predictors(batch, rng)
        layout, points = self.layout, self.known["points"]
        width = batch.x.shape[1] if layout.indexed is None else layout.indexed.width
        heads = []
        for head in range(layout.heads):
            own = points[:, head * width : (head + 1) * width]
            plain = own if layout.indexed is None else own[:, list(layout.indexed.columns)]
            count = plain.shape[1] - layout.beside
            eta = plain[:, :count] @ batch.x[:, :count].T + batch.offset
            if batch.codes is not None:
                padded = np.column_stack([own, np.zeros(len(own))])
                for codes in batch.codes.T:
                    eta += padded[:, codes]
            heads.append(eta + points[:, [layout.heads * width + head]] if layout.intercept else eta)
        return heads[0] if layout.heads == 1 else np.stack(heads, axis=-1)

    def _shifts(self, batch: RowBatch) -> Floats:
        """By how much the log of the noise scale is moved by the columns of its own, (draws, rows)."""
        layout, points = self.layout, self.known["points"]
        width = batch.x.shape[1] if layout.indexed is None else layout.indexed.width
        moving = points[:, width - layout.beside : width]
        return np.asarray(moving @ batch.x[:, batch.x.shape[1] - layout.beside :].T, np.float64)

    def _mixed_predictors(self, batch: RowBatch, rng: np.random.Generator) -> Floats:
        theta, mixed = self.known["theta"], self.mixed
        assert mixed is not None
        eta = theta["coefficients"] @ batch.x.T + batch.offset
        if "intercept" in theta:
            eta = eta + theta["intercept"][:, None]
        for place, _ in enumerate(mixed.terms):
            z, root = np.asarray(batch.effects[f"z{place}"], np.float64), self.known["roots"][place]
            levels = self._units(batch) if place == 0 else batch.effects[f"level{place}"]
            names, which = np.unique(levels, return_inverse=True)
            if place == 0:
                free = self._integrated(names[names >= 0])
                values = np.einsum("dij,dgj->dgi", root, free)
            else:
                values = theta[f"effects{place}"][:, names[names >= 0]]
            new = int((names < 0).sum())
            if new:
                # Of a group that nobody has seen every row has one of its own.
                fresh = np.flatnonzero(levels < 0)
                noise = rng.standard_normal((len(eta), len(fresh), z.shape[1]))
                own = np.einsum("dij,drj->dri", root, noise)
                eta[:, fresh] += np.einsum("rj,drj->dr", z[fresh], own)
            seen = np.flatnonzero(levels >= 0)
            eta[:, seen] += np.einsum("rj,drj->dr", z[seen], values[:, which[seen] - new])
        return np.asarray(eta, np.float64)

    def _units(self, batch: RowBatch) -> np.ndarray:
        """Where the groups of the first term are among those that are known; -1 of a new one."""
        assert batch.groups is not None
        if np.all(batch.groups < 0):
            return batch.groups
        return known_groups(self.result).places(batch.groups)

    def _integrated(self, units: np.ndarray) -> Floats:
        """Effects of the groups at some places, in the coordinates in which they are standard normal a priori; all at
        once where they are few enough, since batches share groups."""
        from tallbayes.results.draws.given import draw_effects

        mixed = self.mixed
        assert mixed is not None
        if not len(units):
            return np.zeros((len(self.draws), 0, mixed.terms[0].size))
        known = known_groups(self.result)
        count, size, points = len(known.order), known.integral.groups.size, self.draws.points
        if count * len(points) * size > MOST_EFFECTS:
            return draw_effects(known, mixed.space, points, units, self.draws.seed, shown=False)[0]
        if "effects" not in self.known:
            every = np.arange(count)
            self.known["effects"] = draw_effects(known, mixed.space, points, every, self.draws.seed, shown=False)[0]
        return np.asarray(self.known["effects"][:, units])

    def means(self, eta: Floats, batch: RowBatch) -> Floats:
        """Of the response in the units of the table; of several classes their chances."""
        means = self._means(eta)
        return means * batch.beside["trials"] if "trials" in batch.beside else means

    def _means(self, eta: Floats) -> Floats:
        family = CATALOGUE[self.family]
        link = family.link
        if family.mean_of_extras:
            with jax.enable_x64(True):
                found = np.asarray(LINKS[link].mean(jnp.asarray(self.stacked(eta))), np.float64)
            return np.moveaxis(found, 0, -1) if family.has_classes else found[0]
        if link == "identity":
            scale, shift = response_units(self.result)
            return shift + scale * eta
        if link == "softmax":
            return _shares(eta)
        means = {"logit": expit, "probit": ndtr, "log": _rate}[link](eta)
        return np.asarray(means, np.float64)

    def stacked(self, eta: Floats) -> Floats:
        """Linear predictors, and after them the places of extras."""
        stacked = np.stack([eta, *(np.broadcast_to(each[:, None], eta.shape) for each in self.places.T)])
        return np.asarray(with_logs(self.width, stacked))

    def responses(self, eta: Floats, batch: RowBatch, rng: np.random.Generator) -> Floats:
        """y in the units of the table; a class by its place."""
        response, family = CATALOGUE[self.family].response, self.family
        if family in LAWS:
            return LAWS[family].draw(rng, self.stacked(eta))
        extra = np.asarray(1.0 if self.extra is None else self.extra, np.float64)
        extra = extra[:, None] if extra.ndim else extra
        if self.layout.beside:
            extra = extra * np.exp(self._shifts(batch))
        if "trials" in batch.beside:
            trials = batch.beside["trials"].astype(np.int64)
            return rng.binomial(trials, self._means(eta)).astype(np.float64)
        if response == "binary":
            return (rng.random(eta.shape) < self._means(eta)).astype(np.float64)
        if response == "class":
            chance = np.cumsum(_shares(eta), axis=-1)
            return np.asarray(np.sum(rng.random(eta.shape[:2])[..., None] > chance[..., :-1], axis=-1), np.float64)
        if response == "count":
            mean = _rate(eta)
            return rng.poisson(np.minimum(mean, MOST_MEAN)).astype(np.float64)
        regression = self.result.regression
        assert regression is not None
        freedom = regression.degrees_of_freedom
        noise = rng.standard_t(freedom, eta.shape) if freedom is not None else rng.standard_normal(eta.shape)
        return self._means(eta + extra * noise)


def _rate(eta: Floats) -> Floats:
    return np.exp(np.minimum(eta, np.log(MOST_MEAN)))


def _shares(eta: Floats) -> Floats:
    """Of classes, the first of which has eta = 0."""
    whole = np.concatenate([np.zeros_like(eta[..., :1]), eta], axis=-1)
    whole = np.exp(whole - whole.max(axis=-1, keepdims=True))
    return np.asarray(whole / whole.sum(axis=-1, keepdims=True))


def _mixed_parts(mixed: Mixed, points: Floats) -> dict[str, Any]:
    """theta of every draw as NumPy arrays, and the roots of the covariances of effects, term by term."""
    with jax.enable_x64(True):
        theta = jax.vmap(mixed.space.theta)(np.asarray(points, np.float64))
        terms = enumerate(mixed.terms)
        roots = [jax.vmap(lambda one, t=term, k=place: root_of(t, one, k))(theta) for place, term in terms]
        found = jax.vmap(lambda one: jnp.concatenate([jnp.zeros(0), *coordinates(mixed.extras, one)]))(theta)
        shown = {"theta": jax.tree.map(np.asarray, theta), "roots": [np.asarray(each) for each in roots]}
        return {**shown, "places": np.asarray(found)}
