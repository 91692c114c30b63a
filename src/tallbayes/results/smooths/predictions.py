"""Fits with smooths: what is asked of rows, whose linear predictor is not linear in what is drawn.

    eta = x . beta + intercept + offset,    beta of a smooth = s v / sqrt(1 + s^2 C)      (see `model.smooths`)

How theta is made of a place in R^d is read off the posterior's own reading, so that a file of it will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.model.noise import Noise
from tallbayes.moments import Floats
from tallbayes.posterior.group_predictions import noise_given
from tallbayes.posterior.observations import of_indicator
from tallbayes.posterior.prediction import ARRAYS, Observation, Prediction
from tallbayes.posterior.predictor import OwnResponse, Predictor, make_predictor
from tallbayes.posterior.reported import StoredReader
from tallbayes.results.fitted import kept_posterior, smooths_of
from tallbayes.results.new_rows import NewRows
from tallbayes.results.result import Result
from tallbayes.structure import Structure

WITHOUT_INTERVAL = "new observations have an sd but no interval, beside smooths"
POINTS_TOGETHER = 4_096


class FamilyTheta(NamedTuple):
    """theta as a family's layout has it, of a place in R^d: coefficients, an intercept, the log of an extra."""

    reader: StoredReader
    size: int
    extras: int

    @classmethod
    def of(cls, result: Result) -> FamilyTheta:
        posterior, regression = kept_posterior(result), result.regression
        assert regression is not None
        if posterior.reading is None:
            hint = "the result in the process that fitted it"
            raise InputError(explain("a result that tells how its parameters are made", "one that does not", hint))
        parts = posterior.reading.parts
        width = sum(part.theta_size for part in parts)
        smooths = len(smooths_of(result))
        reader = StoredReader(parts, Structure.leaf((width,)))
        return cls(reader, width - smooths - regression.extras, regression.extras)

    def __call__(self, vector: jax.Array) -> jax.Array:
        flat = self.reader.theta(vector)
        extras = flat[self.size : self.size + self.extras]
        return jnp.concatenate([flat[: self.size], jnp.log(extras)])

    def of_points(self, points: Floats) -> Floats:
        """Of many places, (points, numbers)."""
        with jax.enable_x64(True):
            parts = [
                np.asarray(_thetas(self, points[start : start + POINTS_TOGETHER]))
                for start in range(0, len(points), POINTS_TOGETHER)
            ]
        return np.concatenate(parts)


def _thetas(theta: FamilyTheta, points: Floats) -> jax.Array:
    return jax.vmap(theta.__call__)(jnp.asarray(points))


class SmoothResponse(NamedTuple):
    """Of a row (x, offset): what is wanted of its linear predictor, and Var(y | theta) where a family tells it."""

    theta: FamilyTheta
    wanted: Wanted
    layout: Layout
    noise: Noise | None

    def __call__(self, vector: jax.Array, row: Any) -> jax.Array:
        (x, offset), flat = row, self.theta(vector)
        eta = x.astype(flat.dtype) @ flat[: x.shape[0]] + offset.astype(flat.dtype)
        if self.layout.intercept:
            eta = eta + flat[x.shape[0]]
        extras = flat[self.theta.size :]
        found = self.wanted(jnp.concatenate([eta[None], extras])[:, None])[:, 0]
        own = {"extra": jnp.exp(extras[0])} if self.layout.extras else {}
        noise = noise_given(self.noise, "extra" if own else None, own)
        return found if noise is None else jnp.concatenate([found, noise(found[:1])])


class CoefficientSum(NamedTuple):
    """Of a row x: x . beta alone, of coefficients that stand first in theta."""

    reader: StoredReader

    def __call__(self, vector: jax.Array, row: Any) -> jax.Array:
        flat = self.reader.theta(vector)
        return (row.astype(flat.dtype) @ flat[: row.shape[0]])[None]


def smooth_stream(
    result: Result, batches: Iterator[NewRows], ks: tuple[int, ...], noise: Noise | None, interval: float | None
) -> Iterator[tuple[NewRows, Prediction, Observation | None]]:
    """Predictions of rows, batch by batch."""
    regression, posterior = result.regression, kept_posterior(result)
    assert regression is not None
    wanted, response = Wanted(regression.family, ks), CATALOGUE[regression.family].response
    layout = regression.layout
    told = noise if noise is not None and noise.facts.response in ("real", "count") else None
    kind, outputs = OwnResponse(SmoothResponse(FamilyTheta.of(result), wanted, layout, told)), 1 + len(ks)
    notes = (WITHOUT_INTERVAL,) if interval is not None and response != "binary" else ()
    predictor: Predictor | None = None
    for batch in batches:
        if batch.usable.any():
            predictor = predictor or make_predictor(posterior, kind, batch.inputs)
            found = predictor.all(batch.inputs)
        else:
            nothing: list[Any] = [np.empty((0, outputs + (told is not None)))] * len(ARRAYS)
            found = Prediction(*nothing)
        answer = found.outputs(slice(outputs))
        yield replace(batch, notes=(*batch.notes, *notes)), answer, _observation(found, outputs, response, told)


@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def _observation(found: Prediction, outputs: int, response: str, noise: Noise | None) -> Observation | None:
    mean, error, sd, sd_error = (each[:, 0] for each in (found.mean, found.error, found.sd, found.sd_error))
    if response == "binary":
        return of_indicator(mean, error)
    if noise is None:
        return None
    total = np.sqrt(found.mean[:, outputs] + sd**2)
    return Observation(total, (found.error[:, outputs] + (2 * sd + sd_error) * sd_error) / (2 * total))
