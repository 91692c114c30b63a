"""The commands `watch`, `update` and `history`: files that come, files that are taken back, and restarts."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.commands.arrivals import _can_foretell

pytestmark = pytest.mark.usefixtures("without_compile_cache")
FORMULA, TOLERANCE = "y ~ x + g", "0.1"


def write_day(folder: Path, number: int, count: int = 200, shift: float = 0.0) -> Path:
    rng = np.random.default_rng(number)
    x, g = rng.normal(size=count), rng.integers(0, 3, count)
    y = rng.random(count) < 1 / (1 + np.exp(-(0.3 + shift + 0.8 * x + 0.4 * (g == 1))))
    path = folder / f"day{number:02d}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "g", "y"])
        writer.writerows(zip(x.tolist(), np.array(list("abc"))[g].tolist(), y.astype(int).tolist(), strict=True))
    return path


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A run of two files that were there, and of one that came later."""
    folder = tmp_path_factory.mktemp("watched")
    place, run = folder / "in", folder / "run"
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLBAYES_CACHE", "")
        command = ["watch", str(place), "--formula", FORMULA, "--tolerance", TOLERANCE, "--out", str(run), "--once"]
        write_day(place, 0, 1500)
        write_day(place, 1)
        assert cli.main([*command, "--quiet"]) == 0
        write_day(place, 2, shift=2.0)
        assert cli.main([*command, "--quiet"]) == 0
    return place, run, command


def test_every_file_is_a_day_once(watched, capsys):
    place, run, _ = watched
    found = tb.history(run)
    assert [day.came for day in found] == [0, 200, 200]
    assert [Path(day.source).name for day in found] == ["day00.csv", "day01.csv", "day02.csv"]
    assert [day.number for day in found.surprises] == [2]
    assert cli.main(["update", str(run), str(place / "day01.csv")]) == 0
    assert "is in since day 1; nothing was done" in capsys.readouterr().err
    assert cli.main(["history", str(run)]) == 0
    assert "surprising" in capsys.readouterr().out
    assert cli.main(["history", str(run), "--csv"]) == 0
    assert capsys.readouterr().out.startswith("day,rows,name,mean,mean_error")


def test_a_day_is_foretold_by_the_day_before_it(watched):
    """Nothing is random: the posterior is that of the day before, as a file keeps it; that of the fit is another."""
    place, run, _ = watched
    told = tb.history(run).days[2].foretold
    first = tb.fit(FORMULA, place / "day00.csv", tolerance=float(TOLERANCE), method=tb.Anchored())
    yesterday, last = first.update(place / "day01.csv"), place / "day02.csv"
    assert told.score == pytest.approx(yesterday.foretell(last).score, rel=1e-5)
    assert told.score != pytest.approx(first.foretell(last).score, rel=1e-4)


def test_the_answer_is_that_of_all_rows(watched, tmp_path):
    """Within five of the errors of both, sds apart: 1e-6 for four coefficients; without the last file it is not."""
    place, run, _ = watched
    texts = [path.read_text().splitlines() for path in sorted(place.glob("*.csv"))]

    def fit_of(parts):
        path = tmp_path / f"{len(parts)}.csv"
        path.write_text("\n".join([parts[0][0], *(line for part in parts for line in part[1:])]) + "\n")
        return tb.fit(FORMULA, path, tolerance=0.02)

    kept = tb.load(run / "result.tallbayes")
    scores = []
    for parts in (texts, texts[:-1]):
        whole = fit_of(parts)
        theirs, own = whole.coefficients(), kept.coefficients()
        apart = [
            (a.mean.value - b.mean.value) / np.hypot(a.mean.error, b.mean.error)
            for a, b in zip(theirs, own, strict=True)
        ]
        scores.append(np.abs(apart).max())
    assert scores[0] < 5 < scores[1]


def test_rows_that_are_taken_back_may_come_again_and_others_are_refused(watched, tmp_path, capsys):
    place, run, _ = watched
    own = tmp_path / "run"
    shutil.copytree(run, own)
    before = tb.history(own).days[-1]
    other = write_day(tmp_path, 7, 5)
    assert cli.main(["update", str(own), "--withdraw", str(other), "--quiet"]) == 2
    assert "that are not among them" in capsys.readouterr().err
    assert len(tb.history(own)) == 3
    assert cli.main(["update", str(own), "--withdraw", str(place / "day01.csv"), "--quiet"]) == 0
    gone = tb.history(own).days[-1]
    assert (gone.withdrawn, gone.rows) == (200, before.rows - 200)
    assert cli.main(["update", str(own), str(place / "day01.csv"), "--quiet"]) == 0
    again = tb.history(own).days[-1]
    assert again.rows == before.rows
    for name, parts in before.coefficients.items():
        apart = again.coefficients[name]["mean"][0] - parts["mean"][0]
        # Five of both errors: 1e-6 in four coefficients.
        assert abs(apart) < 5 * np.hypot(again.coefficients[name]["mean"][1], parts["mean"][1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "neither"), (["a.csv", "--withdraw", "b.csv"], "both"), (["nowhere.csv"], "a file of rows")],
)
def test_other_questions_are_refused(watched, arguments, said, capsys):
    assert cli.main(["update", str(watched[1]), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_an_earlier_day_that_has_changed_is_told(watched, tmp_path, capsys):
    _, run, _ = watched
    own = tmp_path / "run"
    shutil.copytree(run, own)
    days = own / "days" / "0001.json"
    days.write_text(days.read_text().replace("day01.csv", "day09.csv"))
    new = write_day(tmp_path, 8)
    assert cli.main(["update", str(own), str(new), "--quiet"]) == 2
    assert "the file of day 1 as it was" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_update_has_not_happened_and_happens_to_the_same_bits(watched, tmp_path):
    """kill -9 at three instants of a process of its own: the days are those of before, and the next try ends in the day
    that an undisturbed one ends in, but for the time it took."""
    _, run, _ = watched
    new = write_day(tmp_path, 9)
    env = {**os.environ, "TALLBAYES_CACHE": str(tmp_path / "programs"), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def update(folder):
        return [sys.executable, "-m", "tallbayes", "update", str(folder), str(new), "--quiet"]

    def day_of(folder):
        found = json.loads((folder / "days" / "0003.json").read_text())
        return {name: each for name, each in found.items() if name not in ("seconds", "when")}

    whole = tmp_path / "whole"
    shutil.copytree(run, whole)
    began = time.monotonic()
    subprocess.run(update(whole), env=env, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    own = tmp_path / "killed"
    shutil.copytree(run, own)
    for part in (0.5, 0.8, 0.95):
        process = subprocess.Popen(update(own), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(part * took)
        process.kill()
        process.wait()
        assert len(tb.history(own)) in (3, 4)
    subprocess.run(update(own), env=env, check=True, stdout=subprocess.DEVNULL)
    assert day_of(own) == day_of(whole)


@pytest.mark.parametrize(
    ("family", "weights", "can"),
    [("logistic", None, True), ("logistic", "n", False), ("weibull", None, False), ("quantile", None, False)],
)
def test_rows_are_foretold_where_they_can_be(family, weights, can):
    """Of censored times, rows with weights and a loss a day is an update without what was foretold."""
    question, regression = SimpleNamespace(weights=weights), SimpleNamespace(family=family)
    assert (
        _can_foretell(SimpleNamespace(question=question, regression=regression, factors=(), posterior=object())) is can
    )
