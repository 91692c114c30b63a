"""The Gaussian that draws are made about moves to where weights are worth something, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import Expansion
from tallbayes.anchor.mode import anchor_at
from tallbayes.leave_one_out.centring import centred
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.weights import Weights


@dataclass(frozen=True)
class Shifted:
    """N(2, 4 I), and an anchor that takes it for N(0, I)."""

    anchor: Anchor

    def log_posteriors(self, moves: Any) -> list[Any]:
        return [-0.125 * np.sum((self.anchor.mode + moves - 2.0) ** 2, axis=1)]


def shifted(d: int) -> Shifted:
    here = Expansion(np.zeros(d), 0.0, np.zeros(d), np.eye(d), np.zeros(d), np.eye(d))
    return Shifted(anchor_at(here, 1.0, 100))


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
