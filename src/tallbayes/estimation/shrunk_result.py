"""From chains and weights to the result of a shrinkage prior.

Beside means and sds of the parameters there are

    kept                1 - kappa_j = v_j / (v_j + 1 / Lambda_jj), the part of what the rows say of a coefficient that
                        the prior lets stand: near 1 of a signal, near 0 of what is shrunk; Lambda_jj is the curvature
                        of the log likelihood in it
    effective_nonzero   the sum of these
    log_global_scale    and what else all coefficients share, each with its mean and sd

What is kept as a posterior are draws of the chains, as often as their weights say: a chain counts as one sample, so
that errors of what is asked afterwards need no word on how its draws hang together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimation.small import regression_record
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.levels import Stream
from tallbayes.model.model import Model
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import Reading
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs
from tallbayes.results.parts import Cost, DrawWeights, Rates
from tallbayes.results.result import Result
from tallbayes.shrinkage.assessment import Findings, Readings, WeighedSweeps
from tallbayes.shrinkage.chains import CHAINS, SEGMENT
from tallbayes.shrinkage.rounds import Shrinking
from tallbayes.shrinkage.scales import ScaleLaw
from tallbayes.shrinkage.site import LikelihoodSite, mended
from tallbayes.structure import Structure
from tallbayes.views.numbers import neat

# Draws have no noise of their own: what they are given so that their law is smooth, in posterior sds.
SMOOTHING = 0.005
# A t of as many degrees of freedom as there are chains but one.
FREEDOM = CHAINS - 1.0
BOTH = Structure.container("dict", [("mean", Structure.leaf(())), ("sd", Structure.leaf(()))])


@dataclass(frozen=True)
class ShrunkAnswer:
    """One estimate: its name and shape, and where its numbers stand among those read (see `Readings`)."""

    name: str
    structure: Structure
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Described:
    """How parameters are read off chains, which answers are made of them, and what is told beside them.

    `at` is where reported parameters are at the first centre: numbers are less that.
    """

    model: Model
    reading: Reading
    matrix: Floats
    at: Floats
    components: tuple[ShrunkAnswer, ...]
    passes: float
    # Of runs that this one goes on from, and of its own once it has ended.
    seconds_before: float = 0.0

    @classmethod
    def of(
        cls,
        model: Model,
        reading: Reading,
        matrix: Floats,
        law: ScaleLaw,
        site: LikelihoodSite,
        names: tuple[str, ...],
        passes: float,
    ) -> Described:
        m, p = len(matrix), site.columns
        parameters = tuple(range(m)), tuple(range(m, 2 * m))
        told = [
            ShrunkAnswer(name, reading.structure, parameters[0], parameters[1] if name == "sd" else (-1,) * m)
            for name in names
        ]
        own = Structure.leaf((p,))
        if model.columns:
            own = Structure.container("dict", [(name, Structure.leaf(())) for name in model.columns])
        told.append(ShrunkAnswer("kept", own, tuple(range(2 * m, 2 * m + p)), (-1,) * p))
        told.append(ShrunkAnswer("effective_nonzero", Structure.leaf(()), (2 * m + p,), (-1,)))
        shared = tuple(law.shared(law.start(np.zeros(1))))
        for place, name in enumerate(shared):
            first = 2 * m + p + 1 + place
            told.append(ShrunkAnswer(name, BOTH, (first, first), (-1, first + len(shared))))
        described = cls(model, reading, matrix, np.zeros(m), tuple(told), passes)
        return cls(model, reading, matrix, described._reported(site.centre[None])[0], tuple(told), passes)

    def read(self, data_precision: Floats, points: Floats, log_variance: Floats, shared: dict[str, Floats]) -> Floats:
        """A `Reader`, but for what rows tell of every coefficient."""
        moved = self._reported(points) - self.at
        kept = 1 / (1 + np.exp(-log_variance) / data_precision)
        numbers = np.column_stack(list(shared.values()))
        return np.hstack([moved, moved**2, kept, kept.sum(axis=1, keepdims=True), numbers, numbers**2])

    @property
    def answers(self) -> Readings:
        first, second = (
            np.concatenate([getattr(each, side) for each in self.components]) for side in ("first", "second")
        )
        at = np.where(first < len(self.at), self.at[np.minimum(first, len(self.at) - 1)], 0.0)
        return Readings(first, second, at)

    @property
    def labels(self) -> list[str]:
        return [label for each in self.components for label in each.structure.labels(each.name)]

    def split(self, *arrays: Floats) -> Iterator[tuple[Any, ...]]:
        """Components with their parts of arrays by number."""
        start = 0
        for each in self.components:
            stop = start + each.structure.size
            yield each, *(array[start:stop] for array in arrays)
            start = stop

    def _reported(self, points: Floats) -> Floats:
        extras = self.model.layout.extras
        theta = points
        if extras:
            theta = points.copy()
            theta[:, -extras:] = np.exp(points[:, -extras:])
        return theta @ self.matrix.T + (0.0 if self.reading.offset is None else self.reading.offset)


def conclude_shrunk(
    run: Shrinking, described: Described, status: Status, now: Findings, allowed: Floats, keep: bool, settings: Any
) -> Result:
    """Everything a user asks a result for."""
    sound = now.is_mixed and run.weighed is not None and not run.weighed.trouble
    # Where tails are what ended the run its status says what errors are worth.
    known = sound or (now.is_mixed and status is Status.heavy_tails)
    error = now.standard_error if known else np.full_like(now.value, np.inf)
    bias = now.bias if known else np.full_like(now.value, np.inf)
    freedom = np.full_like(now.value, FREEDOM)
    estimates = {
        each.name: Estimate(each.name, each.structure, *numbers)
        for each, *numbers in described.split(now.value, error, bias, freedom, allowed)
    }
    anchor = anchor_of(run, described)
    names, rows = list(estimates), run.regression.num_rows
    return Result(
        estimates=estimates,
        status=status,
        levels=(),
        rates=Rates(*(dict.fromkeys(names, np.nan) for _ in range(3))),
        cost=Cost(run.evaluations, round(described.passes * rows), 0, rows, described.seconds_before),
        contraction=None,
        anchor=anchor,
        method=f"{CHAINS} chains of {len(run.kept) * SEGMENT:,} sweeps on a Gaussian likelihood, and weights",
        settings=settings,
        notes=_notes(run, described, now),
        posterior=posterior_of(run, anchor, described) if keep and sound else None,
        regression=regression_record(described.model),
        weighing=_summary(run.weighed),
    )


def _summary(weighed: WeighedSweeps | None) -> DrawWeights:
    """Of none where there was no time."""
    about = "of chains on a Gaussian likelihood"
    if weighed is None:
        return DrawWeights(0, np.nan, np.nan, np.nan, about)
    weights = weighed.weights
    return DrawWeights(len(weights.posterior), weights.efficiency, weights.largest, weights.tail, about)


def _notes(run: Shrinking, described: Described, now: Findings) -> tuple[str, ...]:
    assert described.model.shrinkage is not None
    told = [f"shrinkage: {described.model.shrinkage.words}"]
    if run.weighed is not None:
        told += _about_shared(run.weighed, described)
    effective, apart = neat(min(now.effective, 1e6), 2), neat(now.apart, 2)
    told.append(
        f"mixing: the sweeps of a chain are worth {effective} independent ones at the least; chains from below and "
        f"from above differ by {apart} standard errors at the most, of all numbers that are read"
    )
    if run.weighed is None:
        told.append("answer: that of a Gaussian likelihood; how far off it is, is not known")
    return tuple(told)


def _about_shared(weighed: WeighedSweeps, described: Described) -> Iterator[str]:
    """Median and interval of the scales that are known by their logarithms."""
    values = weighed.values.reshape(-1, weighed.values.shape[-1])
    for each in described.components:
        if each.structure is not BOTH or not each.name.startswith("log_"):
            continue
        number = values[:, each.first[0]]
        order = np.argsort(number)
        total = np.cumsum(weighed.weights.posterior[order])
        low, middle, high = np.exp(number[order][np.searchsorted(total, np.array([0.025, 0.5, 0.975]) * total[-1])])
        name = each.name.removeprefix("log_").replace("_", " ")
        yield f"scales: {name} {neat(middle, 2)}, 95% from {neat(low, 2)} to {neat(high, 2)}"


def anchor_of(run: Shrinking, described: Described) -> Anchor:
    """The Gaussian of the posterior's own mean and covariance, as weighed draws have them."""
    weighed, site = run.weighed, run.site
    points = _drawn(run, run.drawn)
    share = np.full(len(points), 1 / len(points))
    if weighed is not None and np.all(np.isfinite(weighed.weights.posterior)):
        points = _drawn(run, run.weighed_segments)
        share = weighed.weights.posterior / len(points)
    centre = share @ points
    covariance = mended((points - centre).T @ (share[:, None] * (points - centre)))
    slope = site.shift - site.precision @ centre
    return Anchor(
        mode=centre,
        likelihood_gradient=slope,
        likelihood_hessian=-site.precision,
        precision=np.linalg.inv(covariance),
        log_density=float(site.log_density(centre[None])[0]),
        passes=described.passes,
        num_rows=run.regression.num_rows,
        gradient=np.zeros_like(slope),
        hessian=np.linalg.inv(covariance),
        has_mode=False,
        reason="mean and covariance of the posterior under a shrinkage prior",
    )


def _drawn(run: Shrinking, segments: Iterable[int]) -> Floats:
    """Points of all draws of these, (draws, d)."""
    return np.concatenate([run.segments[each].points for each in segments]).reshape(-1, len(run.site.centre))


def posterior_of(run: Shrinking, anchor: Anchor, described: Described) -> Posterior:
    points, log_weights = (
        np.concatenate(each).swapaxes(0, 1)
        for each in zip(*((run.segments[i].points, run.log_weights[i]) for i in run.weighed_segments), strict=True)
    )
    total = np.cumsum(np.exp(log_weights - log_weights.max()).ravel())
    rng = np.random.default_rng(np.random.SeedSequence([run.seed, int(Stream.SHRINKAGE), 0, 1]))
    places = np.searchsorted(total, (rng.random() + np.arange(len(total))) / len(total) * total[-1])
    ends = points.reshape(len(total), -1)[np.minimum(places, len(total) - 1)].reshape(points.shape)
    return Posterior(
        anchor=anchor,
        points=((ends - anchor.mode)[:, :, None, :],),
        spreads=(SMOOTHING,),
        whitened=True,
        laplace=False,
        rungs=Rungs(0.0, 2.0, np.array([float(run.regression.num_rows)])),
        seed=run.seed,
        stored=described.reading,
    )
