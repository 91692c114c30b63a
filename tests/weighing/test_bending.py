"""A proposal that bends with the scales: its density, its draws, and what it is worth for a funnel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tallbayes.weighing.bending import BentProposal, bent_proposal
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.weights import Weights

REST = 10


def funnel(z: np.ndarray) -> np.ndarray:
    """log density of s ~ N(0, 1) and r | s ~ N(s^2 / 5, exp(s)), of r in every direction, but for a constant."""
    s, r = z[:, 0], z[:, 1:]
    rest = r - s[:, None] ** 2 / 5
    return -(s**2) / 2 - REST * s / 2 - np.sum(rest**2, axis=1) * np.exp(-s) / 2


def derivatives(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and precision of that in r; in s they are not asked for."""
    gradient, precision = np.zeros(1 + REST), np.eye(1 + REST)
    gradient[1:] = -(z[1:] - z[0] ** 2 / 5) * np.exp(-z[0])
    precision[1:, 1:] *= np.exp(-z[0])
    return gradient, precision


@pytest.fixture(scope="module")
def bent() -> BentProposal:
    found = bent_proposal(derivatives, np.eye(1 + REST), [0], seed=3)
    assert found is not None
    return found


def test_the_fit_is_exact_where_logs_are_lines(bent: BentProposal) -> None:
    assert bent.bend is not None
    s = np.array([[-1.0], [0.7]])
    centre, root = bent.bend.at(s)
    # s is known up to its sign.
    turned = s * bent.bend.turn[0, 0]
    np.testing.assert_allclose(bent.bend.turn[1:, 1:] @ centre.T, np.tile(turned.T**2 / 5, (REST, 1)), atol=1e-9)
    np.testing.assert_allclose(np.diagonal(root, axis1=1, axis2=2), np.tile(np.exp(-turned / 2), REST), rtol=1e-9)


def test_draws_have_the_law_that_they_are_weighted_for(bent: BentProposal) -> None:
    """Of a law that q covers the mean weight is 1, and moments are right: within 4.9 standard errors (one in a
    million); the control, weights of a
    q that is a little wider, is off."""
    z = np.concatenate([bent.block(number) for number in range(80)])
    ratio = np.exp(funnel(z) + np.sum(z**2, axis=1) / 2 + bent.log_gaussian(z))
    for values, wanted in ((ratio, 1.0), (ratio * z[:, 0] ** 2, 1.0), (ratio * z[:, 3], 0.2)):
        assert abs(values.mean() - wanted) < 4.9 * values.std() / np.sqrt(len(values))
    wrong = np.exp(funnel(z) + np.sum(z**2, axis=1) / 2 + replace(bent, width=1.05).log_gaussian(z))
    assert abs(wrong.mean() - 1) > 4.9 * wrong.std() / np.sqrt(len(wrong))


def test_weights_of_a_funnel_behave(bent: BentProposal) -> None:
    for proposal, behaves in ((bent, True), (Proposal.about(1 + REST, 3), False)):
        z = np.concatenate([proposal.block(number) for number in range(16)])
        control = proposal.log_gaussian(z)
        weights = Weights.of(funnel(z) + np.sum(z**2, axis=1) / 2 + control, control)
        assert (weights.trouble == "") == behaves, (weights.efficiency, weights.tail)
    assert bent.name != Proposal.about(1 + REST, 3).name


def test_there_is_none_where_climbs_have_no_end() -> None:
    def saddle(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -z, np.diag([1.0, 1.0, -1.0])

    assert bent_proposal(saddle, np.eye(3), [0], seed=0) is None
    assert bent_proposal(derivatives, np.eye(1 + REST), [], seed=0) is None
