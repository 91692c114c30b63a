"""Unbiased replicates of a Gamma law, whose mean and mean square are known."""

from __future__ import annotations

import numpy as np

from tallbayes.weighing import replicates as module
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.replicates import FIRST, LAST, REPLICATES, replicate_block

TRUTH = np.array([6.0, 42.0])
BLOCKS = 150


def look(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = 6 + np.sqrt(6) * z[:, 0]
    return np.where(x > 0, 5 * np.log(np.maximum(x, 1e-300)) - x, -np.inf), np.stack([x, x**2], axis=1)


def scores(blocks: int, base: np.ndarray = TRUTH) -> np.ndarray:
    """How far the mean of all replicates is off, in standard errors."""
    proposal = Proposal.about(1, seed=0)
    exact = np.ones(2, bool)
    values = np.concatenate([replicate_block(look, proposal, n, base, exact).values for n in range(blocks)])
    return (values.mean(axis=0) - TRUTH) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def test_replicates_have_no_bias(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """9,600 replicates within 5 standard errors (one in two million), also where chains have hardly begun; by then
    the chain itself is off by many, which is the negative control."""
    assert np.all(np.abs(scores(BLOCKS)) < 5)
    monkeypatch.setattr(module, "FIRST", 1)
    monkeypatch.setattr(module, "LAST", 1)
    assert np.all(np.abs(scores(BLOCKS)) < 5)
    monkeypatch.setattr(module, "min", lambda *_: 0.0, raising=False)
    assert np.any(np.abs(scores(BLOCKS)) > 5)


def test_a_wrong_base_is_a_bias() -> None:
    """So that it is taken off only where it is exact."""
    assert np.all(np.abs(scores(BLOCKS, TRUTH + np.array([0.2, 2.0]))) > 5)


def test_what_is_not_exact_is_not_taken_off() -> None:
    proposal, wrong = Proposal.about(1, seed=0), TRUTH + 100.0
    exact, never = np.array([True, False]), np.zeros(2, bool)
    both = [replicate_block(look, proposal, 0, base, never).values for base in (TRUTH, wrong)]
    np.testing.assert_array_equal(*both)
    partly = replicate_block(look, proposal, 0, TRUTH, exact).values
    np.testing.assert_array_equal(partly[:, 1], both[0][:, 1])


def test_a_block_is_a_function_of_its_number_and_says_what_it_took() -> None:
    proposal = Proposal.about(1, seed=3)
    first, again = (replicate_block(look, proposal, 7, TRUTH, np.ones(2, bool)) for _ in range(2))
    np.testing.assert_array_equal(first.values, again.values)
    assert first.values.shape == (REPLICATES, 2)
    assert first.draws >= (LAST + 2) * REPLICATES > FIRST
