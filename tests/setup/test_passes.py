"""Passes of set-up: counted, so they are held to the number; and what is saved costs no mode and no balance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import setup_passes
from problems import make
from setup_passes import PROBLEMS, passes

import tallbayes as tb
from tallbayes.anchor import balance, other_modes
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.balance import BALANCED, MATCHED
from tallbayes.anchor.mode import CLOSE, ROUGH, find_anchor, off_mode, settle
from tallbayes.anchor.other_modes import search_modes
from tallbayes.anchor.recentring import put_in_balance
from tallbayes.model.model import Target, bind
from tallbayes.rows.table import Table, make_table

STAGES_ON_ALL_ROWS = ("mode", "modes", "centre", "listing")


def placed(model: tb.Model, rows: Any) -> tuple[Target, Table, np.ndarray]:
    target, start = bind(model, {name: array[0] for name, array in rows.items()})
    return target, make_table(rows, "float64", True), start


@pytest.fixture(scope="module")
def logistic() -> tuple[Target, Table, np.ndarray]:
    return placed(*make("logistic-10000-20"))


@pytest.fixture(scope="module")
def rough(logistic: Any) -> Anchor:
    return find_anchor(*logistic, rough=True)


@pytest.mark.parametrize("name", ["logistic-10000-20", "logistic-10000-20 balanced", "poisson-10000-10 balanced"])
def test_a_family_takes_five_passes_with_listing_and_balance(name: str) -> None:
    """Beside the probe of the tails, whose rows do not grow with the table's."""
    problem, anchor = PROBLEMS[name]
    found = passes(*problem(), anchor)
    assert sum(found[stage] for stage in STAGES_ON_ALL_ROWS) <= 5
    assert found["tails"] * 10_000 <= 2**10 * 312


def test_a_model_of_ones_own_reads_all_rows_four_times() -> None:
    """On 100,000 rows: three passes and the listing; all else is looked at on 1,024 rows."""
    found = passes(*setup_passes.robust(100_000))
    assert found["mode"] + found["listing"] <= 3.5
    assert found["modes"] <= 7
    assert found["centre"] <= 0.2


def test_a_rough_anchor_is_settled_in_one_pass(logistic: Any, rough: Anchor) -> None:
    target, table, _ = logistic
    assert CLOSE < off_mode(rough) < ROUGH
    settled = settle(target, table, rough)
    assert settled.passes == rough.passes + 1
    assert off_mode(settled) < CLOSE
    assert settle(target, table, settled) is settled


def test_balance_from_a_rough_anchor_takes_one_pass(logistic: Any, rough: Anchor) -> None:
    target, table, _ = logistic
    found = put_in_balance(target, table, rough)
    assert table.num_rows < found.evaluations < 1.5 * table.num_rows
    shift, bend = found.anchor.mean_remainder
    assert np.linalg.norm(shift) < BALANCED
    assert np.abs(np.linalg.eigvalsh(bend)).max() < MATCHED
    # Laplace's mean is the mode, as near as one that was climbed to; the rough one is not.
    mode = settle(target, table, rough)
    assert np.linalg.norm((found.anchor.laplace.mode - mode.mode) @ mode.factor) < CLOSE
    assert np.linalg.norm((rough.mode - mode.mode) @ mode.factor) > CLOSE


def test_control_what_a_sample_foresees_wrongly_is_not_taken(
    logistic: Any, rough: Anchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Gaussian three sds off: one pass says so, and balance is found from the anchor."""
    target, table, _ = logistic

    def astray(*arguments: Any) -> Any:
        at = arguments[-1]
        return balance.Gaussian(at.theta + 3 * at.whitening[:, 0], at.precision), 1.0, 0

    monkeypatch.setattr(balance, "foresee_balance", astray)
    found = put_in_balance(target, table, rough)
    assert found.evaluations >= 3 * table.num_rows
    shift, _ = found.anchor.mean_remainder
    assert np.linalg.norm(shift) < BALANCED


def test_a_climb_that_is_cut_short_would_have_ended_there(monkeypatch: pytest.MonkeyPatch) -> None:
    target, table, start = placed(*make("student-1000-5"))
    anchor = find_anchor(target, table, start)
    short = search_modes(target, table, anchor)
    monkeypatch.setattr(other_modes, "_on_slopes", lambda *_: None)
    whole = search_modes(target, table, anchor)
    assert short.evaluations < whole.evaluations
    assert (short.climbs, short.points, short.others) == (whole.climbs, whole.points, whole.others) == (10, 760, ())
