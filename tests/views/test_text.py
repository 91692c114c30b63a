"""A result as text: every section, in columns, not too wide."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from small_runs import nested_run, papers_run, small_run

import tallbayes as tb


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return small_run()


@pytest.fixture(scope="module")
def papers() -> tb.Result:
    return papers_run()


@pytest.fixture(scope="module")
def nested() -> tb.Result:
    return nested_run()


def columns_of(lines: list[str]) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


@pytest.mark.parametrize("which", ["result", "papers"])
def test_the_text_has_every_section_in_columns(which: str, request: pytest.FixtureRequest) -> None:
    this = request.getfixturevalue(which)
    top, *sections = str(this).split("\n\n")
    assert top.startswith("converged")
    tuning = ["tuning"] if this.tuning is not None else []
    heads = ["quantity", "interval", "level", "rates", "cost:", *tuning, "modes:", "status:"]
    assert [section.split()[0] for section in sections] == heads
    quantities, _, levels, rates, cost = (section.split("\n") for section in sections[:5])
    assert [row[0] for row in columns_of(quantities)[1:]] == ["mean[0]", "mean[1]", "sd[0]", "sd[1]"]
    assert all(len(row) == 7 for row in columns_of(quantities))
    assert len(levels) == len(this.levels) + 2
    assert [row[0] for row in columns_of(rates)[1:3]] == ["mean", "sd"]
    assert rates[3].startswith("contraction: ")
    assert f"{this.cost.evaluations:,} row gradients" in cost[0]
    assert cost[1] == f"method: {this.method}"
    if tuning:
        lines = sections[5].split("\n")
        assert len(lines) == len(this.tuning.trials) + 2
        assert [line.startswith("chosen") for line in lines[1:-1]] == [
            trial == this.tuning.chosen for trial in this.tuning.trials
        ]
        assert this.tuning.reason in lines[-1]
        assert f"{this.tuning.evaluations:,} row gradients in all" in lines[-1]
    assert sections[-2] == "\n".join(this.notes)
    assert sections[-1] == f"status: {this.status}"


def test_the_text_is_aligned_and_not_too_wide(result: tb.Result, nested: tb.Result) -> None:
    for text in (str(result), str(nested)):
        assert all(len(line) <= 130 for line in text.split("\n") if not line.startswith("method:"))
        assert all(line == line.rstrip() for line in text.split("\n"))
        for section in text.split("\n\n")[1:3]:
            table = [line for line in section.split("\n") if not line.startswith("(")]
            assert_right_aligned(table)


def assert_right_aligned(table: list[str]) -> None:
    """Every column but the first ends where its heading ends; the first begins at the margin."""
    heads = [match.end() for match in re.finditer(r"\S+(?: \S+)*", table[0])][1:]
    assert all(not line.startswith(" ") for line in table)
    for line in table[1:]:
        ends = {match.end() for match in re.finditer(r"\S+(?: \S+)*", line)}
        assert all(end in ends for end in heads if end <= len(line))


def test_many_components_are_cut_short_in_the_text(result: tb.Result) -> None:
    from tallbayes.structure import Structure

    many = {
        part: np.arange(1.0, 101.0)
        for part in ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance")
    }
    wide = tb.Estimate("mean", Structure.leaf((100,)), **many)
    text = str(dataclasses.replace(result, estimates={"mean": wide}))
    assert "and 76 more components" in text
    assert text.count("mean[") == 24
