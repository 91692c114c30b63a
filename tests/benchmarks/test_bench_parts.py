"""Mixed and wide posteriors beside their peers: what is run again, what is shown, and what the page says of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import bench_page
import mixed
import pytest
import wide
from peers import beyond
from processes import Child

OURS, PEER = mixed.Run("insteval", "tallbayes"), mixed.Run("insteval", "GPBoost")
SLOW = {"failure": "no answer within 100 s", "limit": 100.0}


@pytest.mark.parametrize(
    ("row", "limit", "retry", "again"),
    [
        (None, 1.0, False, True),
        ({"failure": None, "limit": 1.0}, 900.0, True, False),
        (SLOW, 100.0, False, False),
        (SLOW, 200.0, False, True),
        (SLOW, 100.0, True, True),
        ({"failure": "not installed: Rscript", "limit": 100.0}, 200.0, False, False),
    ],
)
def test_a_mixed_model_runs_again_where_it_was_stopped_sooner(
    row: dict[str, Any] | None, limit: float, retry: bool, again: bool, tmp_path: Path
) -> None:
    assert mixed.is_missing(PEER, row, tmp_path / "mixed.json", limit, retry) == again


def test_ours_runs_again_where_the_code_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    row, path, packages = {"failure": None, "limit": 1.0}, mixed.RESULTS, {"model": "then"}
    known = {"parts": {" ".join(key): [{"packages": packages}] for key in (OURS, PEER)}}
    monkeypatch.setattr(mixed.ages, "read", lambda _: known)
    monkeypatch.setattr(mixed.ages, "method", lambda _: {"packages": {"model": "now"}})
    assert mixed.is_missing(OURS, row, path, 1.0, False)
    assert not mixed.is_missing(PEER, row, path, 1.0, False)
    packages["model"] = "now"
    assert not mixed.is_missing(OURS, row, path, 1.0, False)


def test_a_wide_model_is_resumed_and_a_failure_displaces_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = tmp_path / "wide.json", []
    path.write_text(json.dumps({"mnist": {"epochs": 3.0}, "football": {"failure": "no answer", "limit": 10.0}}))

    def stopped(command: list[str], limit: float) -> Child:
        asked.append(command[-1])
        return Child(failure=f"no answer within {limit:g} s")

    monkeypatch.setattr(wide, "watch", stopped)
    names = ("mnist", "football", "components-50")
    wide.complete(names, path, 10.0)
    assert asked == ["components-50"]
    wide.complete(names, path, 20.0)
    assert asked == ["components-50", "football", "components-50"]
    wide.complete(names, path, 30.0, again=True, until=-math.inf)
    assert len(asked) == 3
    wide.complete(["mnist"], path, 30.0, again=True)
    stored = json.loads(path.read_text())
    assert stored["mnist"] == {"epochs": 3.0}
    assert stored["football"]["limit"] == stored["components-50"]["limit"] == 20.0


def test_the_page_has_the_tables_as_they_are_stored() -> None:
    text = bench_page.PAGE.read_text()
    assert bench_page.written(text) == text, "make bench-page"
    stale = text.replace("| **0", "| **1").replace("none in", "done in").replace("332, ", "333, ")
    assert stale != text
    assert bench_page.written(stale) == text


def run(seconds: float, name: str) -> dict[str, Any]:
    price = {"warm": seconds, "cold": seconds + 1.0}
    return {"problem": "flights", "contestant": name, "answered": True, "price": price}


@pytest.mark.parametrize(("ours", "said"), [(0.5, "on 1 of 1"), (3.0, "behind on flights (real), 327,346 x 38 (3.0")])
def test_the_page_says_who_is_ahead(ours: float, said: str) -> None:
    runs = bench_page.runs_of([{"runs": [run(9.0, "tallbayes")]}, {"runs": [run(ours, "tallbayes")]}])
    runs["flights"] |= {name: run(2.0 + k, name) for k, name in enumerate(bench_page.PEERS)}
    assert said in bench_page.who_is_ahead(runs)
    assert "**" in bench_page.peers_table(runs)


def test_ours_beside_what_is_published() -> None:
    row = {"status": "converged", "epochs": 90.0, "setup_passes": 10.0, "processor_seconds": 5.0}
    row |= {"epochs_an_effective_sample": 0.25, "epochs_an_effective_prediction": 0.5, "largest_standard_error": 0.02}
    cells = beyond.wide_cells(row, beyond.UBUBU["mnist"])
    assert cells == ["0.25", "0.040", "332, 3.45, 0.83, 0.19", "0.50, 0.92", "5.0"]
    told = beyond.beside_ububu({"mnist": row})
    assert "0.25 by RMSE and 0.040 by standard error against 0.19" in told
    assert "its predictions 0.50 by RMSE against 0.92" in told


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (None, ""),
        (SLOW, "none in 100 s"),
        ({"failure": "not installed: Rscript"}, "failed"),
        ({"failure": None, "processor_seconds": 2.0, "off": {"mean": -1.25}}, "2.0 (-1.25)"),
        ({"failure": None, "processor_seconds": 2.0, "effective_draws": 250.0}, "20"),
        ({"failure": None, "processor_seconds": 2.0, "effective_draws": 9e9}, "2.0"),
        ({"failure": None, "processor_seconds": 2.0, "status": "max_seconds"}, "2.0, max_seconds"),
    ],
)
def test_a_mixed_cell(row: dict[str, Any] | None, shown: str) -> None:
    assert beyond.mixed_cell(row) == shown
