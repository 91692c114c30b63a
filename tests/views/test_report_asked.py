"""Answers that a report was asked for: their own numbers, in a section that is not there otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import InputError


@pytest.fixture(scope="module")
def result() -> tb.Result:
    rng = np.random.default_rng(0)
    hour, kind = rng.normal(size=200), rng.choice(["a", "b"], 200)
    table = {"late": rng.random(200) < 1 / (1 + np.exp(-hour)), "hour": hour, "kind": kind}
    return tb.fit("late ~ hour + kind", table, tolerance=0.1)


def test_answers_stand_in_a_section_of_their_own(result: tb.Result, tmp_path: Path) -> None:
    loo, effect = result.loo(), result.average_effect("kind", "b", "a")
    page = result.report(tmp_path / "page.html", answers=[loo, effect]).read_text()
    assert "More answers" in page
    for name in ("sampling error", "p_loo", str(loo.rows[0].row), "kind: b - a"):
        assert name in page
    assert "More answers" not in result.report(tmp_path / "plain.html").read_text()


def test_what_is_no_answer_is_refused(result: tb.Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="answers that a report can show"):
        result.report(tmp_path / "page.html", answers=[3.0])
