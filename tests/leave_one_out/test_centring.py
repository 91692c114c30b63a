"""The Gaussian that draws are made about moves to where weights are worth something, or is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import Expansion
from tallbayes.anchor.mode import anchor_at
from tallbayes.leave_one_out import centring
from tallbayes.leave_one_out.centring import centred
from tallbayes.weighing.bending import bent_proposal
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.scales import BentByScales
from tallbayes.weighing.weights import Weights


@dataclass(frozen=True)
class Shifted:
    """N(2, 4 I), and an anchor that takes it for N(0, I)."""

    anchor: Anchor
    bent: Proposal | None = None

    def log_posteriors(self, moves: Any) -> list[Any]:
        return [-0.125 * np.sum((self.anchor.mode + moves - 2.0) ** 2, axis=1)]


@dataclass(frozen=True)
class Funnel:
    """s ~ N(0, 1), as a scale is, and ten numbers N(s^2 / 5, exp(s)) that are as wide as it says."""

    anchor: Anchor
    bent: Proposal | None = None
    target: Any = None
    table: Any = None
    rows_read: int = 1
    most: float = 1e6

    def log_posteriors(self, moves: Any) -> list[Any]:
        s, r = (self.anchor.mode + moves)[:, :1], (self.anchor.mode + moves)[:, 1:]
        own = s[:, 0] ** 2 / 2 + r.shape[1] * s[:, 0] / 2
        return [-own - np.sum((r - s**2 / 5) ** 2 * np.exp(-s), axis=1) / 2]


def plain_anchor(d: int) -> Anchor:
    return anchor_at(Expansion(np.zeros(d), 0.0, np.zeros(d), np.eye(d), np.zeros(d), np.eye(d)), 1.0, 100)


def shifted(d: int) -> Shifted:
    return Shifted(plain_anchor(d))


def bent_derivatives(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the funnel, in r."""
    gradient, precision = -(z - z[0] ** 2 / 5) * np.exp(-z[0]), np.eye(len(z)) * np.exp(-z[0])
    gradient[0], precision[0, 0] = 0.0, 1.0
    return gradient, precision


def test_no_climbs_are_made_where_all_draws_are_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centring, "bent_by_scales", lambda *given: pytest.fail("climbed"))
    source: Any = replace(Funnel(plain_anchor(11)), rows_read=10_000)
    assert centred(source, 0).bent is None


@pytest.mark.parametrize("bends", [True, False])
def test_effects_that_are_wide_as_their_scale_is_have_draws_that_bend(
    bends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without these no Gaussian's weights behave, wherever it moves to."""
    proposal = bent_proposal(bent_derivatives, np.eye(11), [0], seed=0)
    asked = BentByScales(proposal if bends else None, 1)
    monkeypatch.setattr(centring, "bent_by_scales", lambda *given: asked)
    source: Any = Funnel(plain_anchor(11))
    found = centred(source, 0)
    chosen = found.bent or Proposal.about(11, 1)
    z = np.concatenate([chosen.block(number) for number in range(16)])
    log_gaussian = chosen.log_gaussian(z)
    whole = found.log_posteriors(found.anchor.displacements(z))[0] + log_gaussian + np.sum(z**2, axis=1) / 2
    weights = Weights.of(whole, log_gaussian)
    assert (weights.trouble == "") == bends
    assert (weights.efficiency > 0.6) == bends


def test_draws_move_to_the_mean_and_covariance() -> None:
    source: Any = shifted(2)
    found = centred(source, 0)
    # Half an sd, which is 2.
    assert np.abs(found.anchor.mode - 2.0).max() < 1.0
    z = Proposal.about(2, 1).block(0)
    log_gaussian = Proposal.about(2, 1).log_gaussian(z)
    whole = found.log_posteriors(found.anchor.displacements(z))[0] + log_gaussian + np.sum(z**2, axis=1) / 2
    assert Weights.of(whole, log_gaussian).trouble == ""


def test_hundreds_of_parameters_are_refused() -> None:
    source: Any = shifted(200)
    with pytest.raises(tb.InputError, match="200 parameters, most of them effects of crossed factors"):
        centred(source, 0)
