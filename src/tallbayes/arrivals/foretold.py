"""Foretold: what a fit says of rows before it has seen them.

    one by one    sum_i log p(y_i | rows so far)      the score of a forecast of every row by itself
    together      log p(y_1 ... y_n | rows so far)    what the day adds to the log evidence: the sum of it over days is
                                                      that of all rows but the first fit's
    surprise      p = P(T(y_rep) beyond T(y))         y_rep ~ p(. | rows so far)

Expectations over the posterior are means over draws, p(y) = E p(y | theta), with the error of such a mean carried
through the logarithm. There are two T, which hang on the rows so far alone, so that where the model is right y is as
good as one of the y_rep:

    sum_i log p(y_i | theta_0), too low or too high       rows that are wilder than foretold, or far too regular
    |W' sum_i grad log p(y_i | theta_0)|^2, too high      rows that pull the coefficients farther than foretold

p is twice the smaller of their two, at the most 1. So a p below 0.001 comes once in a thousand days at the most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.importance import in_float64
from tallbayes.errors import InputError, explain
from tallbayes.estimator.levels import Stream
from tallbayes.leave_one_out.rows import PART_ROWS, constants, densities, taken
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.results.checks.batches import response_units
from tallbayes.results.checks.responses import ResponseDrawer
from tallbayes.results.checks.simulation import Simulation
from tallbayes.results.draws.drawn import draw
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.result import Result

DRAWS, REPLICATES = 400, 10
SURPRISING = 0.001
# Where a single draw holds more of a mean, its error is not known.
HEAVIEST = 0.1
# Of a normal law, by so many of its sds that draws are off by.
SLOPE = 0.4
ROOM = 1024


@dataclass(frozen=True)
class Foretold:
    """Rows beside what was foretold of them.

    `score` and `together` are log predictive densities, one by one and of all at once, with their Monte Carlo errors;
    where draws are too few for the second its error is infinite. `pull` is how far the rows pull the coefficients, in
    posterior sds, and `usual_pull` how far rows of the model would; `p_value` says how surprising they are, with its
    error.
    """

    rows: int
    score: float
    score_error: float
    together: float
    together_error: float
    pull: float
    usual_pull: float
    p_value: float
    p_error: float

    @property
    def is_surprising(self) -> bool:
        """As one day in a thousand would be if the model were right."""
        return self.p_value < SURPRISING

    def __str__(self) -> str:
        a_row = f"{self.score / self.rows:.4f} a row"
        told = f"{self.rows:,} rows foretold: log score {self.score:.2f} ± {self.score_error:.2g} ({a_row}), p = "
        p = f"{self.p_value:.4f} ± {self.p_error:.2g}"
        return told + (p + ", surprising" if self.is_surprising else p)


def foretell(result: Result, target: Target, rows: Any, arrays: Any, draws: int = DRAWS, seed: int = 0) -> Foretold:
    """Of rows as they were given, and as the model reads them."""
    posterior = kept_posterior(result)
    if target.integrated is not None or not isinstance(arrays, dict) or "y" not in arrays:
        hint = "a family without effects of groups"
        raise InputError(explain("rows of a family, to foretell them", "rows of another model", hint))
    simulation = Simulation(result, rows, draw(result, draws, seed=seed))
    if not isinstance(simulation.drawer, ResponseDrawer):
        raise InputError(explain("a family, whose responses can be drawn", "a model of one's own", "tb.families"))
    scale, shift = response_units(result)
    beside = np.asarray(constants(target, arrays, scale), np.float64)
    drawn, centre = simulation.draws, posterior.anchor.mode
    by_row = np.concatenate(list(_densities(target, arrays, centre, drawn.moves))) + beside[..., None]
    seen, replicated = _looks(target, arrays, centre, simulation, (scale, shift))
    if not np.allclose(seen.y, arrays["y"], rtol=1e-4, atol=1e-4):
        got = "responses that are read otherwise than they are drawn"
        raise InputError(explain("rows whose responses were seen", got, "a family without censoring"))
    whitener = posterior.anchor.whitener
    pulls = [np.sum(whitener.pull_back(each.gradient) ** 2, axis=-1) for each in (seen, replicated)]
    return _concluded(by_row, (seen.score, replicated.score), (pulls[0], pulls[1]), float(drawn.bias))


def _densities(target: Target, arrays: Any, centre: Floats, moves: Floats) -> Any:
    count = len(arrays["y"])
    for start in range(0, count, PART_ROWS):
        yield densities(target, taken(arrays, slice(start, start + PART_ROWS)), centre, moves)


class Scored(NamedTuple):
    """Responses, with their log density at the centre and its gradient, up to constants."""

    y: Floats
    score: Floats
    gradient: Floats


def _looks(
    target: Target, arrays: Any, centre: Floats, simulation: Simulation, units: tuple[float, float]
) -> tuple[Scored, Scored]:
    """At the responses that were seen, and at replicated ones: (replicates, draws) scores and gradients."""
    scale, shift = units
    drawer: Any = simulation.drawer
    seen: list[Floats] = []
    shape = REPLICATES, len(simulation.draws)
    total, totals = np.zeros(1 + centre.size), np.zeros((*shape, 1 + centre.size))
    first = 0
    for number, each in enumerate(simulation.batches()):
        count = len(each.batch)
        part = taken(arrays, slice(first, first + count))
        rng = np.random.default_rng(np.random.SeedSequence([simulation.draws.seed, int(Stream.RESPONSES), 1, number]))
        eta = drawer.predictors(each.batch, rng)
        own = (np.asarray(each.batch.observed, np.float64) - shift) / scale
        seen.append(own)
        total += _look(target, part, centre, own[None])[0]
        for replicate in range(REPLICATES):
            y = (drawer.responses(eta, each.batch, rng) - shift) / scale
            totals[replicate] += _look(target, part, centre, y)
        first += count
    return Scored(np.concatenate(seen), total[0], total[1:]), Scored(np.zeros(0), totals[..., 0], totals[..., 1:])


def _look(target: Target, rows: Any, centre: Floats, ys: Floats) -> Floats:
    """Score and gradient of several responses of the same rows, (responses, 1 + d)."""
    count = ys.shape[1]
    room = -(-count // ROOM) * ROOM
    padded = jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], room - count, axis=0)]), rows)
    spare = np.repeat(ys[:, -1:], room - count, axis=1)
    counts = np.arange(room) < count
    with jax.enable_x64(True):
        arguments = padded, np.concatenate([ys, spare], axis=1), counts, centre
        return np.asarray(compiled(_look_program)(target, *arguments), np.float64)


def _look_program(target: Target, rows: Any, ys: jax.Array, counts: jax.Array, centre: jax.Array) -> jax.Array:
    assert target.predictor is not None
    rows, value = in_float64(rows), jax.vmap(target.predictor.call)
    kind = rows["y"].dtype

    def score(theta: jax.Array, y: jax.Array) -> jax.Array:
        each = value(target.layout.predict(rows, theta), {**rows, "y": y.astype(kind)})
        return jnp.sum(jnp.where(counts, each, 0.0))

    def one(y: jax.Array) -> jax.Array:
        here, slope = jax.value_and_grad(score)(centre, y)
        return jnp.concatenate([here[None], slope])

    return jax.lax.map(one, ys)


def _concluded(by_row: Floats, scores: tuple[Floats, Floats], pulls: tuple[Floats, Floats], bias: float) -> Foretold:
    """From log densities (rows, draws), and what was seen beside what was replicated (replicates, draws)."""
    score, score_error = _log_means(by_row)
    together, together_error, heaviest = _log_mean(by_row.sum(axis=0))
    below, error_below = _tail(scores[1] < scores[0], scores[1] == scores[0], bias)
    above, error_above = _tail(pulls[1] > pulls[0], pulls[1] == pulls[0], bias)
    wild = 2 * min(below, 1 - below), 2 * error_below
    p, error = min(wild, (above, error_above))
    return Foretold(
        rows=len(by_row),
        score=score,
        score_error=score_error,
        together=together,
        together_error=together_error if heaviest <= HEAVIEST else np.inf,
        pull=float(np.sqrt(pulls[0])),
        usual_pull=float(np.sqrt(pulls[1].mean())),
        p_value=float(min(2 * p, 1.0)),
        p_error=float(2 * error),
    )


def _log_means(by_row: Floats) -> tuple[float, float]:
    """sum_i log mean_k p_ik, less what the logarithm of a mean is low by; draws are shared by all rows."""
    draws = by_row.shape[1]
    top = by_row.max(axis=1, keepdims=True)
    weights = np.exp(by_row - top)
    mean = weights.mean(axis=1, keepdims=True)
    shares = weights / mean - 1
    low = 0.5 * np.sum(np.mean(shares**2, axis=1)) / draws
    error = np.std(shares.sum(axis=0), ddof=1) / np.sqrt(draws)
    return float(np.sum(top + np.log(mean)) + low), float(np.hypot(error, low))


def _log_mean(values: Floats) -> tuple[float, float, float]:
    """log mean exp of some numbers, its error, and the largest share that one of them has."""
    top = values.max()
    weights = np.exp(values - top)
    shares = weights / weights.mean() - 1
    low = 0.5 * np.mean(shares**2) / len(values)
    error = np.std(shares, ddof=1) / np.sqrt(len(values))
    heaviest = float(weights.max() / weights.sum())
    return float(top + np.log(weights.mean()) + low), float(np.hypot(error, low)), heaviest


def _tail(beyond: np.ndarray, tied: np.ndarray, bias: float) -> tuple[float, float]:
    """How often what was replicated lies beyond, ties by half; replicates of one draw are not independent."""
    found = (np.sum(beyond) + np.sum(tied) / 2 + 0.5) / (beyond.size + 1)
    by_draw = (beyond + tied / 2).mean(axis=0)
    error = max(float(by_draw.std(ddof=1)) / np.sqrt(len(by_draw)), float(np.sqrt(found * (1 - found) / beyond.size)))
    return float(found), error + SLOPE * bias * float(min(found, 1 - found))
