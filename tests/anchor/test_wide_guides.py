"""The control of thousands of parameters, whose means alone are drawn: against quadrature, and what it leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tallbayes.anchor import anchor as anchors
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import average
from tallbayes.anchor.mode import find_anchor
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.methods.anchored import Anchored
from tallbayes.model.families import multinomial
from tallbayes.model.model import bind
from tallbayes.moments import Floats
from tallbayes.rows.table import check_rows, make_table
from tallbayes.setup.guide import MeanGuide
from tallbayes.setup.preparation import Prepared
from tallbayes.setup.quantities import make_estimands

ROWS, COLUMNS, PAIRS = 400, 2, 4_096


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """Few rows of three classes, four parameters that are held for thousands."""
    monkeypatch.setattr(anchors, "WIDE_FROM", 3)
    rng = np.random.default_rng(0)
    data = check_rows({"x": rng.normal(1.0, 1.0, (ROWS, COLUMNS)), "y": rng.integers(0, 3, ROWS)})
    target, start = bind(multinomial(3, 1.0), {name: array[0] for name, array in data.items()})
    table = make_table(data, "float64", shuffle=True)
    found = find_anchor(target, table, start)
    wide = replace(found, likelihood_hessian=None)
    assert isinstance(wide, Anchor)
    assert wide.is_wide
    return Prepared(target, table, wide, 0, "float64", "float64")


def exact_mean(prepared: Prepared) -> Floats:
    """E r, whitened, by quadrature."""
    anchor = prepared.anchor
    found = average(prepared.target, prepared.table, anchor.mode, anchor.whitening)
    return np.asarray(anchor.whitener.pull_back(found.gradient))


@pytest.mark.parametrize("forgets_half", [False, True])
def test_a_guide_of_means_is_right_within_its_errors(prepared: Prepared, forgets_half: bool) -> None:
    """One that takes r(u) for the sum of both, as if r were even by itself half of the time, is not."""
    anchor = prepared.anchor
    estimands = make_estimands(["mean"], prepared.target, anchor, prepared.table.units)
    problem = Anchored(precision="float64").problem(prepared, estimands, 5)
    problem = problem.with_choice(problem.ladder, 4)
    found = np.concatenate([problem.remainders(block) for block in range(PAIRS // BLOCK_PATHS)])
    if forgets_half:
        found[:, 2] = 0.0
    halves = MeanGuide.of(anchor, found[::2], 0).plus(MeanGuide.of(anchor, found[1::2], 0))
    known = halves.known_by(anchor)
    shift, bend = known.mean_remainder
    assert bend is None
    off = anchor.displacements(shift - exact_mean(prepared)) / anchor.sd / halves.errors(anchor)[0]
    # Of four normal numbers: 5.1 sds have a chance of 1.4e-6.
    assert (np.abs(off).max() < 5.1) is not forgets_half
    values = halves.values(9, ((0, 4),))
    np.testing.assert_allclose(values.mean[:4], anchor.displacements(shift), atol=1e-12)
    assert not values.variance[4:].any()


@pytest.mark.parametrize("knows_nothing", [False, True])
def test_levels_with_a_control_of_means_have_the_same_sum(prepared: Prepared, knows_nothing: bool) -> None:
    """Level 0 with its control less that without, on the same paths: nothing but chance for the means, of which it
    leaves a part; and nothing at all for the squares. A control whose mean is taken for 0 is off."""
    anchor = prepared.anchor
    mean = np.zeros(4) if knows_nothing else exact_mean(prepared)
    known = replace(anchor, mean_gradient=anchor.whitener.times(anchor.displacements(mean)))
    estimands = make_estimands(["mean"], prepared.target, anchor, prepared.table.units)
    guided = Anchored(precision="float64").problem(replace(prepared, anchor=known), estimands, 2)
    assert guided.controlled
    guided = guided.with_choice(Ladder(0.5, 4, 4), 8)
    plain = guided.uncontrolled()
    assert plain is not None
    with_control, without = (
        np.concatenate([problem.differences(0, block) for block in range(32)]) for problem in (guided, plain)
    )
    apart = with_control - without
    np.testing.assert_allclose(apart[:, 4:], 0.0, atol=1e-12)
    off = apart[:, :4].mean(axis=0) / (apart[:, :4].std(axis=0) / np.sqrt(len(apart)))
    assert (np.abs(off).max() < 5.1) is not knows_nothing
    assert (with_control.var(axis=0)[:4] < 0.5 * without.var(axis=0)[:4]).all()
