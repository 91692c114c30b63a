"""Effects: what is known of every group's own effect, all groups streamed like rows of a prediction.

Given theta, the nodes of a group are its effect's law: mean m(theta), variance v(theta), and so on. Over the posterior

    E b = E m,     Var b = E v + Var m,     and to the next orders, with m normal over the posterior,
    third = E t,   fourth = E f + 6 E v Var m + 3 (Var m)^2

E and Var over theta are those of the signed ensemble (`predictor`). The ends of an interval are those that four moments
give (Cornish and Fisher), off by no more than the last correction, which their error takes in. What the nodes
themselves are off by, held against twice as many at the mode, is part of every bias bound.

A difference of two groups, or of two rows, is a sum of what theta says and of effects that are independent given theta:

    D = d(theta) + sum_j w_j . b_j + s t,   whose cumulants add up;     P(D > 0) = E P(D > 0 | theta)

the latter by Edgeworth's expansion of D given theta, off by no more than its last terms, which its error takes in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.model.groups.terms import EffectTerm, root_of
from tallbayes.model.model import Target
from tallbayes.model.space import Space
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Prediction
from tallbayes.programs.compilation import compiled
from tallbayes.programs.identity import Function, identify
from tallbayes.programs.later import jax, jnp

if TYPE_CHECKING:
    from tallbayes.posterior.predictor import OwnResponse, Predictor

ACCURACY = 0.01
# Of a ladder by level, and of draws with weights.
FEWEST_PATHS, MOST_PATHS, FEWEST_DRAWS = 16, 256, 512
# Some hundred draws with weights know their own variance roughly, and mostly too low.
MARGIN = 1.1
# Of an effect's sd: what draws far out, of which there are none, may add where groups are a handful.
UNSEEN = 0.002
# Of all units and points together.
MOST_DENSITIES = 2**27
PAIRS = 16
FEWEST_PAIRS = 64
PILOT_UNITS = 64
CONTRAST_PAIRS = 256
MOMENTS = 4


def _moments_at(target: Target, integral: Any, vector: jax.Array, unit: Any) -> jax.Array:
    """Of the effect of a unit, given theta: means, variances, third and fourth central moments."""
    found = integral.moments(target.space.theta(vector), vector, unit)
    return jnp.concatenate([jnp.ravel(each) for each in found])


@dataclass(frozen=True, eq=False)
class EffectNumbers:
    """Of every group, (groups, effects): mean, sd and the ends of an interval, each with its Monte Carlo error."""

    mean: Floats
    mean_error: Floats
    sd: Floats
    sd_error: Floats
    lower: Floats
    upper: Floats
    end_error: Floats
    within: Floats
    between: Floats
    median: Floats
    median_error: Floats


def effects_of(posterior: Posterior, target: Target, units: Any, probability: float = 0.95) -> EffectNumbers:
    """Of units in memory, in their order."""
    from tallbayes.posterior.predictor import OwnResponse

    assert target.integrated is not None
    mode = posterior.anchor.mode
    moments = _moments_of(target, target.integrated.integral, mode, units)
    found = _predictor(posterior, OwnResponse(moments, lines=False, work=target.work(units)), units).all(units)
    left = posterior.rungs.left
    if posterior.weighted is not None:
        left += UNSEEN
        wider = {name: MARGIN * getattr(found, name) for name in ("standard_error", "sd_standard_error")}
        found = replace(found, **wider)
    off = _off_by_nodes(target, moments, mode, units)
    return numbers_of(found, off, left, probability)


def _moments_of(target: Target, integral: Any, mode: Floats, units: Any) -> Function:
    """Known by what it computes: another fit of the same shape compiles nothing."""
    unit = jax.tree.map(lambda leaf: np.asarray(leaf[0]), units)
    return identify(partial(_moments_at, target, integral), mode, unit)


def numbers_of(found: Prediction, off: Floats, left: float, probability: float) -> EffectNumbers:
    """From four moments given theta, side by side, to those over theta too; `off` is what the nodes are off by."""
    size = found.mean.shape[1] // MOMENTS
    mean, variance, third, fourth = (found.mean[:, k * size : (k + 1) * size] for k in range(MOMENTS))
    between = found.sd[:, :size]
    sd = np.sqrt(np.maximum(variance + between**2, 0.0))
    mean_error = found.error[:, :size] + off[:, :size] + left * sd
    spread_error = found.error[:, size : 2 * size] + off[:, size : 2 * size] + 2 * between * found.sd_error[:, :size]
    with np.errstate(divide="ignore", invalid="ignore"):
        sd_error = np.where(sd > 0, spread_error / (2 * sd), 0.0) + left * sd
        skew = np.where(sd > 0, third / sd**3, 0.0)
        excess = np.where(sd > 0, (fourth + 6 * variance * between**2 + 3 * between**4) / sd**4 - 3, 0.0)
        # Of what is not skew the median is the mean, however little is known of its spread.
        bent = np.where(skew == 0, 0.0, np.abs(skew) / 6 * (np.maximum(skew**2, np.abs(excess)) * sd + sd_error))
    lower, upper, rest = _ends(probability, skew, excess)
    return EffectNumbers(
        mean=mean,
        mean_error=mean_error,
        sd=sd,
        sd_error=sd_error,
        lower=mean + lower * sd,
        upper=mean + upper * sd,
        end_error=mean_error + np.abs(upper) * sd_error + rest * sd,
        within=np.sqrt(np.maximum(variance, 0.0)),
        between=between,
        median=mean - skew / 6 * sd,
        median_error=mean_error + bent,
    )


def _ends(probability: float, skew: Floats, excess: Floats) -> tuple[Floats, Floats, Floats]:
    """In sds from the mean; and the size of the corrections of the last order."""
    from scipy.stats import norm

    z = float(norm.ppf(0.5 + probability / 2))
    first = (z**2 - 1) * skew / 6
    second = (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    return -z + first - second, z + first + second, np.abs(second)


def _predictor(posterior: Posterior, response: OwnResponse, units: Any) -> Predictor:
    """With as many paths as bring the error of a mean to a small part of the effect's own sd; of draws with weights,
    whose errors a few do not show, and of the Gaussian's own draws with as many as groups are few."""
    from tallbayes.posterior.predictor import Predictor, ends_of

    count = len(jax.tree.leaves(units)[0])
    affordable = MOST_DENSITIES // (count * response.work)
    pairs = int(np.clip(affordable // 4, PAIRS, CONTRAST_PAIRS))
    is_weighted = posterior.weighted is not None
    most = max(FEWEST_DRAWS, affordable) if is_weighted else MOST_PATHS
    levels = [ends_of(posterior, level, np.float64)[:, :most] for level in range(len(posterior.points))]
    every = Predictor(posterior, response, tuple(levels), pairs)
    if is_weighted:
        return every
    some = np.unique(np.linspace(0, count - 1, min(count, PILOT_UNITS)).astype(int))
    enough = _share_needed(every.all(jax.tree.map(lambda leaf: np.asarray(leaf)[some], units)))
    need = [int(np.clip(np.ceil(enough * each.shape[1]), FEWEST_PATHS, each.shape[1])) for each in levels]
    fewer = int(np.clip(np.ceil(enough * pairs), min(FEWEST_PAIRS, pairs), pairs))
    return replace(every, levels=tuple(each[:, :n] for each, n in zip(levels, need, strict=True)), pairs=fewer)


def _share_needed(pilot: Prediction) -> float:
    """Of the paths and pairs of a pilot, which bring the errors of nearly all means and sds down to `ACCURACY` of the
    effect's own sd."""
    size = pilot.mean.shape[1] // MOMENTS
    between, variance_error = pilot.sd[:, :size], pilot.standard_error[:, size : 2 * size]
    own = np.maximum(pilot.mean[:, size : 2 * size] + between**2, np.finfo(float).tiny)
    of_sd = (variance_error + 2 * between * pilot.sd_standard_error[:, :size]) / (2 * own)
    largest = np.maximum(pilot.standard_error[:, :size] / np.sqrt(own), of_sd)
    return float(np.quantile((largest / ACCURACY) ** 2, 0.9))


def _off_by_nodes(target: Target, moments: Function, mode: Floats, units: Any) -> Floats:
    """How far moments at the mode are from those by twice as many nodes and one."""
    assert target.integrated is not None
    integral = target.integrated.integral
    if not isinstance(integral, GroupIntegral):
        return np.zeros((1, MOMENTS * target.integrated.size))
    pair = moments, _moments_of(target, replace(integral, nodes=2 * integral.nodes + 1), mode, units)
    count, size = len(jax.tree.leaves(units)[0]), 256
    parts = []
    with jax.enable_x64(True):
        for start in range(0, count, size):
            index = np.minimum(np.arange(start, start + size), count - 1)
            part = jax.tree.map(lambda leaf, index=index: np.asarray(leaf)[index], units)
            parts.append(np.abs(np.asarray(compiled(_apart)(pair, part, np.asarray(mode, np.float64)))))
    return np.concatenate(parts)[:count]


def _apart(pair: tuple[Any, Any], units: Any, mode: jax.Array) -> jax.Array:
    first, second = (jax.vmap(lambda unit, one=one: one(mode, unit))(units) for one in pair)
    return second - first


class OfContrast(NamedTuple):
    """Of a difference D, given theta: mean, second to fourth central moments, P(D > 0), and the size of the last terms
    of that.

    {"units": groups that are known (j, ...), "weights": (j, s) of what is shown of each, "line": of u, and of a mixed
    model's term t "known{t}": levels whose effects are parameters, with weights, and "new{t}": (k, q) of new levels}
    """

    space: Space
    integral: GroupIntegral | None
    terms: tuple[EffectTerm, ...]

    def __call__(self, vector: jax.Array, item: Any) -> jax.Array:
        theta = self.space.theta(vector)
        mean, variance = item["line"] @ vector, jnp.zeros((), vector.dtype)
        third, fourth = jnp.zeros_like(variance), jnp.zeros_like(variance)
        for place, term in enumerate(self.terms):
            if f"known{place}" in item:
                known = item[f"known{place}"]
                mean = mean + jnp.sum(known["weights"] * jnp.take(theta[f"effects{place}"], known["level"], axis=0))
            if f"new{place}" in item:
                variance = variance + jnp.sum((item[f"new{place}"] @ root_of(term, theta, place)) ** 2)
        if "units" in item:
            integral = self.integral
            assert integral is not None

            def cumulants(unit: Any, weights: jax.Array) -> jax.Array:
                points, share = integral.law(theta, vector, unit)
                values = jax.vmap(lambda b: weights @ integral.shown(theta, b))(points)
                centre = share @ values
                two, three, four = (share @ (values - centre) ** power for power in (2, 3, 4))
                return jnp.stack([centre, two, three, four - 3 * two**2])

            own = jnp.sum(jax.vmap(cumulants)(item["units"], item["weights"]), axis=0)
            mean, variance, third, fourth = mean + own[0], variance + own[1], third + own[2], fourth + own[3]
        chance, rest = _chance(mean, variance, third, fourth)
        return jnp.stack([mean, variance, third, fourth + 3 * variance**2, chance, rest])


def _chance(mean: Any, variance: Any, third: Any, fourth: Any) -> tuple[Any, Any]:
    """P(D > 0) of four cumulants, and the size of the corrections of the last order."""
    sd = jnp.sqrt(variance)
    y, skew, excess = -mean / sd, third / sd**3, fourth / sd**4
    density = jnp.exp(-(y**2) / 2) / np.sqrt(2 * np.pi)
    first = density * skew * (y**2 - 1) / 6
    second = density * (excess * (y**3 - 3 * y) / 24 + skew**2 * (y**5 - 10 * y**3 + 15 * y) / 72)
    return jax.scipy.special.ndtr(-y) + first + second, jnp.abs(second)


class ContrastNumbers(NamedTuple):
    """Of a difference: its numbers, each (1, 1), and the probability that it is above 0 with its error."""

    numbers: EffectNumbers
    probability: float
    probability_error: float


def contrast_of(posterior: Posterior, response: OfContrast, item: Any, probability: float = 0.95) -> ContrastNumbers:
    """Of an item with a leading axis of one."""
    from tallbayes.posterior.predictor import OwnResponse, Predictor, ends_of

    levels = tuple(ends_of(posterior, level, np.float64) for level in range(len(posterior.points)))
    work = 1
    if response.integral is not None and "rows" in item.get("units", ()):
        length = jax.tree.leaves(item["units"]["rows"])[0].shape[2]
        work = 2 * length * response.integral.nodes**response.integral.groups.size
    mode, one = posterior.anchor.mode, jax.tree.map(lambda leaf: np.asarray(leaf[0]), item)
    # Known by what it computes: another fit of the same shape compiles nothing.
    known = identify(response.__call__, mode, one)
    found = Predictor(posterior, OwnResponse(known, lines=False, work=work), levels, CONTRAST_PAIRS).all(item)
    off = np.zeros((1, found.mean.shape[1]))
    if response.integral is not None:
        finer = response._replace(integral=replace(response.integral, nodes=2 * response.integral.nodes + 1))
        with jax.enable_x64(True):
            off = np.abs(np.asarray(compiled(_apart)((known, identify(finer.__call__, mode, one)), item, mode)))
    numbers = numbers_of(found.outputs(slice(MOMENTS)), off, posterior.rungs.left, probability)
    rest = float(np.abs(found.mean[0, MOMENTS + 1]))
    error = float(found.error[0, MOMENTS] + off[0, MOMENTS]) + rest + posterior.rungs.left / 2
    return ContrastNumbers(numbers, float(np.clip(found.mean[0, MOMENTS], 0.0, 1.0)), error)
