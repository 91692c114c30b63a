"""The integral over theta, by draws about a Gaussian with weights, as many as its tolerance takes.

    log Z = log E_q [ pi / q ],   q Student's t about the anchor's Gaussian phi   (see `estimate`)

All rows are in every weight, so that no row is left to chance, whatever it weighs; a reading of the rows serves 64
draws. Where rows are many, pi is so nearly phi that 64 will do: what is left has a variance that falls as 1 / N.

With effects integrated out by nodes, log pi is off by delta = by 2K+1 nodes - by K, and log Z by its mean and half its
variance: that joins the bias bound, and K grows where it is no small part of the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.levels import Stream
from tallbayes.evidence.densities import POINTS, LogPosterior
from tallbayes.evidence.estimate import LogMean, log_mean
from tallbayes.evidence.gaussians import DrawCentre
from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.moments import Floats
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.weights import Weights

# Draws to begin with, fewer where they read more rows than that.
FIRST_DRAWS, FIRST_ROWS = 512, 2**25
# Of what draws about a posterior that is the Gaussian would be worth: below it, the Gaussian moves.
WORTH_MOVING, MOST_MOVES, DRAWS_A_PARAMETER = 0.5, 5, 32
# Parameters whose covariance draws with weights can tell.
MOST_MOVED = 128
# Draws that tell whether weights behave, and where it is no use to hope that more of them will.
TELLING, MOST_DOUBTED = 512, 2**14
SHARE, MOST_GROWTH = 0.8, 4.0
# Of draws whose weights do not behave, though there are enough: looks are few, so that none is a lucky one.
GROWTH_IN_DOUBT = 2.0
# Of the tolerance: what integrals over effects may take before they get more nodes.
INTEGRAL_SHARE = 0.2
MOST_NODES = {1: 63, 2: 23, 3: 15}
DRAWN = ("z", "log_posterior", "log_gaussian")


@dataclass(frozen=True, eq=False)
class WeighedDraws:
    """Draws z about a Gaussian, log pi there, and log phi / q."""

    gaussian: DrawCentre
    proposal: Proposal
    z: Floats
    log_posterior: Floats
    log_gaussian: Floats

    @property
    def beyond(self) -> Floats:
        """log pi - log phi."""
        return self.log_posterior - self.gaussian.log_density(self.z)

    @property
    def log_weights(self) -> Floats:
        return self.beyond + self.log_gaussian

    @property
    def estimate(self) -> LogMean:
        return log_mean(self.log_weights, self.log_gaussian)

    @property
    def weights(self) -> Weights:
        return Weights.of(self.log_weights, self.log_gaussian)

    @property
    def worth(self) -> float:
        """Efficiency of the weights, in units of that of the Gaussian's own."""
        with np.errstate(invalid="ignore"):
            found = self.weights.efficiency * float(np.mean(self.weights.gaussian**2))
        return found if np.isfinite(found) else 0.0


@dataclass(frozen=True, eq=False)
class IntegrationEnd:
    """How an integral ended; `integral_bias` is what the nodes of effects may leave in it."""

    weighed: WeighedDraws
    status: Status
    integral_bias: float
    notes: tuple[str, ...] = ()


@dataclass(eq=False)
class Integration:
    """One posterior's: where it is looked at, to which tolerance, with which seed, at how many rows at the most."""

    log_posterior: LogPosterior
    anchor: Anchor
    tolerance: float
    seed: int
    most_rows: float
    notes: list[str] = field(default_factory=list)

    def run(self) -> IntegrationEnd:
        gaussian = DrawCentre.of(self.anchor)
        gaussian, weighed = self._centred(gaussian)
        bias = self._choose_nodes(gaussian)
        if bias is not None:
            # With other nodes the densities are others.
            weighed = self._drawn(gaussian, len(weighed.z)) if self.log_posterior.nodes else weighed
        left = bias or 0.0
        while True:
            now, count = weighed.estimate, len(weighed.z)
            if not np.all(weighed.log_posterior < np.inf):
                return self._ended(weighed, Status.heavy_tails, left)
            trouble = weighed.weights.trouble_of_mean if count >= TELLING else ""
            met = np.hypot(now.standard_error, now.bias_bound + left) <= self.tolerance
            if trouble and count >= MOST_DOUBTED:
                self.notes.append(f"weights: {trouble}")
                return self._ended(weighed, Status.heavy_tails, left)
            if met and not trouble:
                return self._ended(weighed, Status.converged, left)
            if left >= self.tolerance:
                return self._ended(weighed, Status.rough_integrals, left)
            draws = max(self._needed(now, count, left), int(GROWTH_IN_DOUBT * count) if trouble else 0)
            if self.log_posterior.rows_read + (draws - count) * self.log_posterior.table.num_rows > self.most_rows:
                return self._ended(weighed, Status.max_evaluations, left)
            weighed = self._drawn(gaussian, draws, weighed)

    def _ended(self, weighed: WeighedDraws, status: Status, bias: float) -> IntegrationEnd:
        return IntegrationEnd(weighed, status, bias, tuple(self.notes))

    def _needed(self, now: LogMean, count: int, left: float) -> int:
        """Draws that should do, in whole readings, and a few times as many as there are at the most."""
        allowed = max(SHARE * self.tolerance - left, 0.2 * self.tolerance)
        need = count * max((now.standard_error / allowed) ** 2, now.bias_bound / allowed, 1.0) * 1.05
        return -(-int(min(max(need, count + POINTS), MOST_GROWTH * count)) // POINTS) * POINTS

    @property
    def first_draws(self) -> int:
        rows = self.log_posterior.table.num_rows * self.log_posterior.target.work(self.log_posterior.table.rows)
        return int(np.clip(FIRST_ROWS / rows, POINTS, FIRST_DRAWS)) // POINTS * POINTS

    def _centred(self, gaussian: DrawCentre) -> tuple[DrawCentre, WeighedDraws]:
        """A Gaussian whose draws are worth something, and the first of them."""
        for move in range(MOST_MOVES):
            weighed = self._drawn(gaussian, self.first_draws)
            if weighed.worth > WORTH_MOVING:
                return gaussian, weighed
            if len(gaussian.mean) > MOST_MOVED:
                break
            count = max(self.first_draws, DRAWS_A_PARAMETER * len(gaussian.mean))
            pilot = self._drawn(gaussian, count, stream=Stream.EVIDENCE_PILOT, start=move * 2**20)
            if not np.isfinite(pilot.log_weights).any():
                break
            gaussian = gaussian.moved(pilot.z, np.nan_to_num(pilot.log_weights, nan=-np.inf))
            self.notes[:] = ["draws are about the mean and covariance of the posterior, far from those of the anchor"]
        return gaussian, self._drawn(gaussian, self.first_draws)

    def _drawn(
        self,
        gaussian: DrawCentre,
        count: int,
        before: WeighedDraws | None = None,
        stream: Stream = Stream.EVIDENCE,
        start: int = 0,
    ) -> WeighedDraws:
        """At least so many draws, in blocks that hang on the seed and their number alone."""
        proposal = Proposal.about(len(gaussian.mean), self.seed)
        have = 0 if before is None else len(before.z)
        numbers = range(start + have // POINTS, start + -(-count // POINTS))
        words = [np.random.SeedSequence([self.seed, int(stream), number]) for number in numbers]
        z = np.concatenate([proposal.draws(np.random.default_rng(each), POINTS) for each in words])
        heights = self.log_posterior(gaussian.points(z))
        more = WeighedDraws(gaussian, proposal, z, heights, proposal.log_gaussian(z))
        if before is None:
            return more
        parts = [np.concatenate([getattr(each, name) for each in (before, more)]) for name in DRAWN]
        return WeighedDraws(gaussian, proposal, *parts)

    def _choose_nodes(self, gaussian: DrawCentre) -> float | None:
        """What nodes leave of log Z, as a bound; None where there are none. They are doubled until it is little."""
        within = self.log_posterior.target.integrated
        if within is None or not isinstance(within.integral, GroupIntegral):
            return None
        words = np.random.SeedSequence([self.seed, int(Stream.EVIDENCE_PILOT), 2**30])
        points = gaussian.points(np.random.default_rng(words).standard_normal((POINTS, len(gaussian.mean))))
        nodes, most = within.nodes, MOST_NODES[within.size]
        heights, best = self._with_nodes(nodes, points), (np.inf, nodes)
        while 2 * nodes + 1 <= most or not np.isfinite(best[0]):
            finer = self._with_nodes(2 * nodes + 1, points)
            bias = _shift(finer - heights)
            best = min(best, (bias, nodes))
            if bias <= INTEGRAL_SHARE * self.tolerance or 2 * nodes + 1 > most:
                break
            nodes, heights = 2 * nodes + 1, finer
        bias, nodes = best
        self.log_posterior.nodes = None if nodes == within.nodes else nodes
        if self.log_posterior.nodes:
            self.notes.append(f"integrals over effects by {nodes} nodes a direction, where the fit had {within.nodes}")
        return bias

    def _with_nodes(self, nodes: int, points: Floats) -> Floats:
        finer = replace(self.log_posterior, nodes=nodes, rows_read=0)
        found = finer(points)
        self.log_posterior.rows_read += finer.rows_read
        return found


def _shift(delta: Floats) -> float:
    """By how much E exp(delta) can move log Z: its mean with two standard errors, and half its variance."""
    if not np.isfinite(delta).all():
        return float("inf")
    return float(abs(delta.mean()) + 2 * delta.std() / np.sqrt(len(delta)) + delta.var() / 2)
