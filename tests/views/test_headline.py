"""The headline: in the first line of every view what was met, what was not, and what to do about it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from page_reader import Reader
from reports import INF, NAN, RESULTS, made, regression, with_quantities

from tallbayes.estimator.estimates import Status
from tallbayes.results.coefficients import Ends, end_unit, interval_ends
from tallbayes.results.result import Result
from tallbayes.views.advice import RUN, UNTRUSTED
from tallbayes.views.document import to_json
from tallbayes.views.headline import headline
from tallbayes.views.notebook.tables import html
from tallbayes.views.report import MEANINGS, render_report
from tallbayes.views.summary import brief

COMMAND = {"command": "fit", "formula": "y ~ x", RUN: "run1"}
ALL_MET = "converged: every mean and sd is known to 0.05 posterior sd, every interval end to 0.1 sd"


def line_of(result: Result, ends: Ends | None = None) -> str:
    return headline(result, ends, {}).line


def roughly(result: Result, lower: list[float], upper: list[float]) -> Ends:
    """The ends of a result with these errors, in posterior sds."""
    ends = interval_ends(result)
    assert ends is not None
    unit = end_unit(ends.lower.flat_value, ends.upper.flat_value)
    both = [
        replace(end, flat_standard_error=np.array(errors) * unit, flat_bias_bound=0 * unit)
        for end, errors in ((ends.lower, lower), (ends.upper, upper))
    ]
    return ends._replace(lower=both[0], upper=both[1])


def test_what_was_met_is_told_with_its_size() -> None:
    result = made(["a", "b"])
    assert line_of(result, interval_ends(result)) == ALL_MET
    assert line_of(result) == "converged: every mean and sd is known to 0.05 posterior sd"
    relative = replace(result, settings={"relative_tolerance": 0.01})
    assert line_of(relative) == "converged: every mean and sd is known to 0.01 of its value"
    by_name = replace(result, settings={"tolerance": {"mean": 0.1, "sd": 0.2}})
    assert line_of(by_name) == "converged: every mean and sd is known as accurately as was asked"
    own = with_quantities(made(["a"]), keep=False)
    assert line_of(own).startswith(
        "converged in part: 1 of 3 numbers are known to 0.05 posterior sd, not so [0] (pair)"
    )


def test_rough_ends_qualify_what_converged() -> None:
    result = made(["a", "b"])
    top = headline(result, roughly(result, [0.52, 0.01], [0.01, 0.01]), {})
    assert top.line == (
        "converged, but for interval ends: every mean and sd is known to 0.05 posterior sd; 1 of 4 interval ends are "
        "rough (marked ~), with errors up to 0.52 sd"
    )
    assert top.about_marks == "stands before an interval end whose error is above 0.1 sd, or unknown"
    assert "`tb.estimate(..., interval_tolerance=0.1)` again" in top.step
    assert not top.is_good
    some = headline(result, roughly(result, [0.52, INF], [0.01, NAN]), COMMAND)
    assert some.line.endswith("3 of 4 interval ends are rough (marked ~), with errors up to 0.52 sd and 2 unknown")
    assert "`tallbayes resume run1 --interval-tolerance 0.1`" in some.step
    lost = headline(result, roughly(result, [NAN, INF], [INF, NAN]), {})
    assert lost.line.endswith("; the errors of interval ends are unknown")


def test_one_coordinate_that_fails_alone_is_named_whatever_the_status() -> None:
    result = made(["hour", "carrier[T.OO]", "carrier[T.DL]"])
    lame = {
        name: replace(each, flat_standard_error=np.array([1e-4, NAN, 1e-4])) for name, each in result.estimates.items()
    }
    part = replace(result, estimates=lame)
    assert line_of(part) == (
        "converged in part: 4 of 6 means and sds are known to 0.05 posterior sd, not so carrier[T.OO] (mean and sd) "
        "(error unknown)"
    )
    text = part.summary()
    assert re.search(r"carrier\[T.OO\]\s+~0.15\s+unknown\s+~0.1\s+unknown", text)
    assert "~         stands before a number that is less accurate than was asked for" in text


def test_of_many_that_missed_the_first_are_named() -> None:
    result = made([f"x{number}" for number in range(9)], tolerance=0.011)
    tight = replace(result["mean"], flat_tolerance=np.where(np.arange(9) < 7, 0.0, 1.0))
    missed = replace(result, estimates={"mean": tight}, status=Status.max_seconds)
    assert line_of(missed).endswith(
        "2 of 9 means are known to 0.011 posterior sd, not so x0 (mean), x1 (mean), x2 (mean) and 4 more"
    )


@pytest.mark.parametrize("name", RESULTS)
@np.errstate(all="ignore")
def test_it_is_the_first_line_of_every_view(name: str) -> None:
    result = RESULTS[name]()
    said = headline(result, None, {}).opening
    first = " ".join(result.summary().split())
    assert first.startswith(said) or first.startswith("converged, but for interval ends")
    assert " ".join(str(result).split()).startswith(first[: len(said)])
    document = json.loads(to_json(result, {}))
    assert next(iter(document)) == "headline"
    assert document["headline"].startswith(first[: len(said)])
    shown = unescape(re.sub("<[^>]*>", " ", html(result))).strip().lower()
    assert shown.startswith(said.lower()[:12])
    page = render_report(result)
    (_, header), *_ = Reader(page).all("header")
    assert said.lower()[:12] in header.lower()


def test_the_summary_of_a_command_advises_a_command() -> None:
    rough = replace(regression("logistic", status=Status.max_seconds))
    for settings, words in ((COMMAND, "tallbayes resume run1 goes on from where"), ({}, "tb.fit(...) again")):
        assert f"next      {words}" in brief(rough, settings)
        assert json.loads(to_json(rough, settings))["next"].startswith(words)
        assert RUN not in json.loads(to_json(rough, settings))["settings"]


def test_json_says_which_ends_are_rough_and_keeps_the_order_of_the_model() -> None:
    result = regression("logistic")
    document = json.loads(to_json(result, {}))
    assert list(document["intervals"]) == list(result.posterior.labels)
    for each in document["intervals"].values():
        assert each["tolerance"] == pytest.approx(0.1 * (each["upper"] - each["lower"]) / 3.919928)
        assert each["lower_met"] is (each["lower_error"] <= each["tolerance"])
    assert document["next"] is None


OUT_OF = "Not finished, the {} ran out ({})"
UNUSED = "Do not use these numbers, {}"
ENDINGS = {
    Status.max_seconds: OUT_OF.format("time", "max_seconds"),
    Status.max_evaluations: OUT_OF.format("work allowed", "max_evaluations"),
    Status.interrupted: "Not finished, interrupted",
    Status.converged_in_part: "Converged in part",
    Status.second_mode: "Several modes, and these numbers are of the heaviest alone",
    **{each: UNUSED.format(str(each).split(":")[0]) for each in UNTRUSTED},
}


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.converged])
def test_a_run_that_did_not_converge_says_so_first(status: Status) -> None:
    page = render_report(regression("logistic", status=status))
    (_, warning), *_ = Reader(page).all("div", class_="warning")
    assert not warning.startswith("Converged") or status is Status.converged_in_part
    assert warning.split(".")[0] == ENDINGS.get(status, f"Not converged, {str(status).split(':')[0]}")
    assert "What to do: " in warning
    assert MEANINGS[status] in warning
    assert page.index('class="warning"') < page.index("<main>")
