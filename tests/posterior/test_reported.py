"""Readings of mixed models: what a file holds of scales and correlations says the same as the model itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from schools import ROWS

import tallbayes as tb
from tallbayes.groups.placing import gather
from tallbayes.posterior.reported import reader_of, reading_of

FORMULAS = {
    "intercepts": ("y ~ x + (1 | school)", 0),
    "apart": ("y ~ x + (1 + x || school)", 0),
    "correlated": ("y ~ x + (1 + x | year)", 1),
    "crossed": ("y ~ x + (1 + x | year) + (1 + w | school)", 2),
}


class Captured(BaseException):
    """What would have been estimated."""


def bound(formula: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The target of a formula, and its units, without a fit."""

    def estimate(model: Any, rows: Any, *_: Any, **__: Any) -> Any:
        raise Captured(model, rows)

    monkeypatch.setattr("tallbayes.formula.groups.fit.estimate", estimate)
    with pytest.raises(Captured) as caught:
        tb.fit(formula, ROWS, "linear", tolerance=0.1)
    model, rows = caught.value.args
    return gather(model, rows).bound[0], model.units


@pytest.mark.parametrize("name", FORMULAS)
def test_a_reading_reports_as_the_model_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formula, curves = FORMULAS[name]
    target, units = bound(formula, monkeypatch)
    reading = reading_of(target, units)
    assert reading is not None
    assert len(reading.curves) == curves
    reader, own = reader_of(reading)
    rng = np.random.default_rng(0)
    of_model, of_reading = jax.jit(target.reported), jax.jit(reader.reported)
    with jax.enable_x64(True):
        for _ in range(3):
            u = rng.normal(size=target.dimension)
            expected = np.array(jax.tree.leaves(of_model(u, units)))
            assert np.array(jax.tree.leaves(of_reading(u, own))) == pytest.approx(expected, rel=1e-9)
    curved = {place for curve in reading.curves for place in curve.rows}
    # Effects hang on their scales too.
    curved |= {place for place, name in enumerate(reading.structure.keys) if "|" in name and "[" in name}
    assert [reading.line(place) is None for place in range(reading.structure.size)] == [
        place in curved for place in range(reading.structure.size)
    ]


def test_control_other_units_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    target, units = bound(FORMULAS["correlated"][0], monkeypatch)
    reading = reading_of(target, units)
    assert reading is not None
    (curve,) = reading.curves
    reader, own = reader_of(replace(reading, curves=(replace(curve, matrix=1.01 * curve.matrix),)))
    with jax.enable_x64(True):
        u = np.full(target.dimension, 0.1)
        expected = np.array(jax.tree.leaves(jax.jit(target.reported)(u, units)))
        assert np.array(jax.tree.leaves(jax.jit(reader.reported)(u, own))) != pytest.approx(expected, rel=1e-9)
