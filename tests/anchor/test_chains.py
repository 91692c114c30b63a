"""Parameters that stand in time: their chain found by products, and answers with it, against closed forms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor import mode
from tallbayes.anchor.expansion import Survey
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide.chains import chain_order, expand_chain
from tallbayes.gaussian.chain import Chain
from tallbayes.model.model import Target, bind
from tallbayes.rows.table import Table, check_rows, make_table

TEAMS, WEEKS = 3, 10
SIZE = 2 * TEAMS * WEEKS


def strengths(reach: int = 1, last: bool = True) -> tb.Model:
    """Attack and defence that walk at random from week to week, and scores of a Gaussian about their sum."""

    def apart(part: Any) -> Any:
        part = part if last else part.T
        return jnp.sum((part[:, reach:] - part[:, :-reach]) ** 2)

    def log_prior(theta: Any) -> Any:
        return -2.0 * (apart(theta["attack"]) + apart(theta["defence"])) - 0.5 * sum(
            jnp.sum(part**2) for part in theta.values()
        )

    def log_likelihood(theta: Any, row: Any) -> Any:
        attack, defence = (part if last else part.T for part in (theta["attack"], theta["defence"]))
        return -0.5 * (row["y"] - attack[row["home"], row["week"]] - defence[row["away"], row["week"]]) ** 2

    shape = (TEAMS, WEEKS) if last else (WEEKS, TEAMS)
    initial = {"attack": np.zeros(shape), "defence": np.zeros(shape)}
    return tb.Model(log_prior, log_likelihood, initial, log_concave=True)


def scores(count: int = 900) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    home, away, week = (rng.integers(0, most, count) for most in (TEAMS, TEAMS, WEEKS))
    return {"home": home, "away": away, "week": week, "y": rng.normal(0.3 * home - 0.2 * away + 0.05 * week)}


def placed(model: tb.Model) -> tuple[Target, Table, Any]:
    data = check_rows(scores())
    target, start = bind(model, jax.tree.map(lambda array: array[0], data))
    return target, make_table(data, "float64", shuffle=True), start


def exact(model: tb.Model) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of a log posterior that is quadratic."""
    target, table, start = placed(model)
    rows = {name: array[: table.num_rows] for name, array in table.rows.items()}
    with jax.enable_x64(True):

        def value(theta: Any) -> Any:
            terms = jax.vmap(target.log_likelihood.call, (None, 0))(theta, rows)
            return jnp.sum(terms) + target.log_prior.call(theta)

        slope, precision = np.asarray(jax.grad(value)(start)), -np.asarray(jax.hessian(value)(start))
    return np.linalg.solve(precision, slope), precision


@pytest.mark.parametrize("last", [True, False], ids=["last axis", "first axis"])
def test_a_chain_is_found_and_is_the_hessian(last: bool) -> None:
    model = strengths(last=last)
    target, table, start = placed(model)
    order = chain_order(target, table, start)
    assert order.shape == (WEEKS, 2 * TEAMS)
    mean, precision = exact(model)
    found = expand_chain(Survey(target, table, None, Curvature.NONE), start, order)
    assert found is not None
    np.testing.assert_allclose(found.hessian.whole(), precision, rtol=1e-9, atol=1e-9)
    anchor = find_anchor(target, table, start, dense_limit=0)
    assert isinstance(anchor.precision, Chain)
    assert "a chain of 10 blocks of 6 parameters" in anchor.note
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.abs((anchor.mode - mean) / sd).max() < 1e-4
    np.testing.assert_allclose(anchor.sd, sd, rtol=1e-9)


def test_links_beyond_the_next_block_are_no_chain() -> None:
    target, table, start = placed(strengths(reach=2))
    assert chain_order(target, table, start) is None
    assert find_anchor(target, table, start, dense_limit=0).is_partial
    blocks = chain_order(*placed(strengths()))
    assert expand_chain(Survey(target, table, None, Curvature.NONE), start, blocks) is None


@pytest.mark.slow
def test_answers_and_what_is_asked_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A posterior that is Gaussian: means and sds to rounding, whatever the paths do; saved, extended, renewed."""
    monkeypatch.setattr(mode, "DENSE_LIMIT", 4)
    model = strengths()
    found = tb.estimate(model, scores(), tolerance=0.1, method=tb.Anchored())
    mean, precision = exact(model)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert found.converged
    assert any("a chain of 10 blocks" in note for note in found.notes)

    def flat(name: str) -> np.ndarray:
        return np.concatenate([np.ravel(found[name].value[each]) for each in ("attack", "defence")])

    assert np.abs((flat("mean") - mean) / sd).max() < 1e-3
    assert np.abs(flat("sd") / sd - 1).max() < 1e-3
    found.save(tmp_path / "answer")
    kept = tb.load(tmp_path / "answer").anchor
    np.testing.assert_array_equal(kept.precision.links, found.anchor.precision.links)
    again = tb.estimate(model, scores(), tolerance=0.2, anchor=kept, method=tb.Anchored())
    assert again.converged
