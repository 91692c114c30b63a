"""Results side by side: differences with common rows, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.leave_one_out import ranking

Outlier = tuple[dict[str, np.ndarray], np.ndarray, tb.Result]


@pytest.fixture(scope="module")
def ranked(outlier: Outlier) -> tuple[tb.Result, tb.Result, ranking.Ranking]:
    rows, _, large = outlier
    small = tb.estimate(tb.families.logistic(), {"x": rows["x"][:, 1:], "y": rows["y"]}, tolerance=0.1)
    return small, large, tb.rank({"small": small, "large": large})


def test_differences_have_the_error_of_common_rows(ranked: Any) -> None:
    small, large, found = ranked
    parts = {"small": small.loo(pointwise=True), "large": large.loo(pointwise=True)}
    best, other = found.names
    assert parts[best].elpd > parts[other].elpd
    apart = parts[other].pointwise - parts[best].pointwise
    assert found[other].difference == pytest.approx(apart.sum())
    assert found[other].sampling_error == pytest.approx(np.sqrt(60 * np.var(apart)))
    assert found[other].sampling_error < np.hypot(*(each.sampling_error for each in parts.values()))
    assert found[best].difference == 0
    assert found.differences[0, 1] == -found[other].difference
    assert found.sampling_errors[0, 1] == found.sampling_errors[1, 0] > 0


def test_a_ranking_is_shown(ranked: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    found = ranked[2]
    assert repr(found) == f"<tallbayes.Ranking by loo: {' > '.join(found.names)}>"
    for words in ("small", "large", "elpd", "sampling error", "Monte Carlo"):
        assert words in str(found)
        assert words in found._repr_html_()
    assert list(found.to_pandas()["model"]) == list(found.names)
    assert len(found.plot().get_yticks()) == 2


def test_other_rows_are_refused(outlier: Outlier, ranked: Any) -> None:
    rows, large = outlier[0], ranked[1]
    fewer = tb.estimate(tb.families.logistic(), {name: each[:50] for name, each in rows.items()}, tolerance=0.5)
    with pytest.raises(tb.InputError, match="expected 60 rows"):
        tb.rank(large, fewer)
    others = tb.estimate(tb.families.logistic(), {"x": rows["x"], "y": rows["y"][::-1].copy()}, tolerance=0.5)
    with pytest.raises(tb.InputError, match="another one in"):
        tb.rank(large, others)
    with pytest.raises(tb.InputError, match="two results or more"):
        tb.rank(large)
    with pytest.raises(tb.InputError, match="by='loo' or by='evidence'"):
        tb.rank(large, large, by="waic")
    with pytest.raises(tb.InputError, match="2 names"):
        tb.rank(large, large, names=["a", "a"])


def test_by_evidence_odds_are_told(ranked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large, _ = ranked
    values = {id(small): -40.0, id(large): -38.0}

    def evidence(result: Any) -> Any:
        return SimpleNamespace(value=values[id(result)], standard_error=0.03, bias_bound=0.01, interval=(0, 0))

    monkeypatch.setattr(tb.Result, "evidence", evidence, raising=False)
    found = tb.rank(small, large, by="evidence", names=["small", "large"])
    assert found.names == ("large", "small")
    assert found["small"].odds == pytest.approx(np.exp(-2))
    assert found["small"].standard_error == pytest.approx(0.03 * np.sqrt(2))
    assert found["small"].bias_bound == pytest.approx(0.02)
    assert "posterior odds" in str(found)
