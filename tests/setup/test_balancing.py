"""Which anchor is taken: as asked, or as foreseen; and that an answer does not hang on it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scenarios import by_ladder, logistic_by_hand, logistic_rows, paper_rows

import tallbayes as tb
from tallbayes.methods import anchored
from tallbayes.sampler import levels
from tallbayes.setup.balancing import Wish, likely_controlled
from tallbayes.setup.preparation import bind_rows

FEW = paper_rows(300, seed=2)


@pytest.fixture(scope="module")
def answers():
    model = tb.families.logistic()
    return {
        anchor: by_ladder(model, FEW, tolerance=0.01, seed=1, method=tb.Anchored(anchor=anchor))
        for anchor in (None, "mode", "balanced")
    }


def test_of_few_rows_the_balanced_one_is_taken(answers) -> None:
    decided, mode, balanced = (answers[anchor].anchor for anchor in (None, "mode", "balanced"))
    assert decided.knows_averages
    assert balanced.knows_averages
    assert not mode.recentred
    np.testing.assert_array_equal(decided.mode, balanced.mode)
    np.testing.assert_array_equal(decided.laplace.mode, mode.mode)
    assert "anchor: balanced; sampling about the mode is foreseen to take" in str(answers[None])
    assert "anchor: the mode; asked for" in str(answers["mode"])
    assert "anchor: balanced; asked for" in str(answers["balanced"])


def test_of_many_rows_the_mode_is_kept() -> None:
    rows = logistic_rows(60_000, (0.5, -0.5))
    result = by_ladder(tb.families.logistic(), rows, ["mean"], tolerance=0.05)
    assert not result.anchor.recentred
    assert "less than balance would" in result.anchor.reason


def test_neither_biases_the_answer(answers) -> None:
    """6 standard errors of the difference and both bounds: a false alarm in 1e-7."""
    for name in ("mean", "sd"):
        one, two = (answers[anchor][name] for anchor in ("mode", "balanced"))
        error = np.hypot(one.flat_standard_error, two.flat_standard_error)
        apart = np.abs(one.flat_value - two.flat_value)
        assert np.all(apart < 6 * error + one.flat_bias_bound + two.flat_bias_bound)


def test_a_balanced_anchor_is_used_again(answers) -> None:
    before = answers["balanced"]
    again = by_ladder(tb.families.logistic(), FEW, tolerance=0.01, seed=1, anchor=before.anchor)
    assert again.cost.setup_evaluations < before.cost.setup_evaluations
    np.testing.assert_array_equal(again.anchor.precision, before.anchor.precision)
    np.testing.assert_allclose(again.anchor.mean_gradient, before.anchor.mean_gradient, atol=1e-9)
    np.testing.assert_array_equal(again["mean"].flat_value, before["mean"].flat_value)


def test_a_ledger_keeps_the_anchor(tmp_path, answers) -> None:
    """Another tolerance would decide otherwise; what is on record stays."""
    options = {"seed": 1, "ledger": tmp_path / "ledger"}
    first = by_ladder(tb.families.logistic(), FEW, tolerance=0.01, **options)
    wider = by_ladder(tb.families.logistic(), FEW, tolerance=3.0, **options)
    np.testing.assert_array_equal(first["mean"].flat_value, answers[None]["mean"].flat_value)
    np.testing.assert_array_equal(wider.anchor.mode, first.anchor.mode)
    assert wider.anchor.reason == first.anchor.reason
    assert not by_ladder(tb.families.logistic(), FEW, tolerance=3.0, seed=1).anchor.recentred


def test_a_model_of_ones_own_stays_at_its_mode() -> None:
    rows = {**FEW, "x": np.asarray(FEW["x"], float)}
    result = by_ladder(logistic_by_hand(3), rows, ["mean"], tolerance=0.2)
    assert not result.anchor.recentred
    assert "anchor: the mode; no linear predictor" in str(result)


@pytest.mark.slow
def test_averages_that_are_not_exact_keep_the_mode() -> None:
    """Forty rows and a noise scale whose prior is not Gaussian; asked for, balance is taken without one."""
    rng = np.random.default_rng(7)
    rows = {"x": rng.normal(size=(40, 2)), "y": 1.5 * rng.normal(size=40)}
    result = by_ladder(tb.families.linear(), rows, ["mean"], tolerance=0.02, max_evaluations=2e5)
    assert not result.anchor.recentred
    assert "not known well enough for a control" in result.anchor.reason
    asked = by_ladder(
        tb.families.linear(), rows, ["mean"], tolerance=0.2, method=tb.Anchored(anchor="balanced"), max_evaluations=2e5
    )
    assert asked.anchor.recentred
    assert not asked.anchor.knows_averages


def test_an_anchor_that_is_none_is_refused() -> None:
    with pytest.raises(tb.InputError, match="balanced") as caught:
        tb.Anchored(anchor="median")
    assert all(part in str(caught.value) for part in ("expected", "got", "Try"))


@pytest.mark.parametrize(
    ("kind", "size", "tolerance"), [("tolerance", {"a": 0.1, "b": 0.02}, 0.02), ("absolute_tolerance", 3.0, 0.01)]
)
def test_the_finest_tolerance_decides(kind, size, tolerance) -> None:
    assert Wish.of(None, kind, size).tolerance == tolerance


@pytest.mark.parametrize("expected", [None, True])
def test_what_is_compiled_ahead_is_what_is_run(expected: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: where a balanced anchor is expected and the mode is kept, both programs are compiled twice."""
    seen, right = set(), levels.compiled

    def noted(function, **options):
        def call(plan, *arguments):
            seen.add((function.__name__, plan, jax.tree.structure(arguments)))
            return right(function, **options)(plan, *arguments)

        return call

    monkeypatch.setattr(levels, "compiled", noted)
    if expected:
        monkeypatch.setattr(anchored, "likely_controlled", lambda *_: True)
    result = by_ladder(tb.families.logistic(), FEW, tolerance=0.1, seed=1)
    assert not result.anchor.recentred
    assert len(seen) == (4 if expected else 2)


def test_a_balanced_anchor_is_expected_where_many_rows_would_be_read() -> None:
    target, few = bind_rows(tb.families.logistic(), FEW)[0], len(FEW["y"])
    assert not likely_controlled(target, few, Wish(None, 0.1))
    assert likely_controlled(target, few, Wish(None, 0.01))
    assert likely_controlled(target, few, Wish("balanced", 0.1))
    assert not likely_controlled(target, few, Wish("mode", 0.01))
    assert not likely_controlled(target, 10_000_000, Wish(None, 0.01))
