"""Deep levels in blocks of fewer paths: the same paths by number, so the same law; and the same record of them."""

from __future__ import annotations

import numpy as np
import pytest
from anchored_levels import problem

import tallbayes as tb
from tallbayes.estimator.levels import BLOCK_PATHS, SampleDifferences, SampleLevel, paths_of_blocks
from tallbayes.sampler import levels


class Notes:
    """A ledger in memory."""

    def __init__(self):
        self.kept = {}

    def find(self, *key):
        return self.kept.get(key)

    def add(self, *parts):
        *key, _, content = parts
        self.kept[tuple(key)] = content


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(levels, "paths_of_blocks", lambda level, work: 8 if level >= 1 else BLOCK_PATHS)
    return problem(tb.Taylor(3, tb.Blocks()))


def test_blocks_are_cut_where_paths_are_long_and_nowhere_else():
    assert [paths_of_blocks(level, 1e4) for level in range(12)] == [32] * 12
    assert [paths_of_blocks(level, 1e12) for level in range(5)] == [32, 32, 32, 1, 1]
    # A path twice as long on every level, as of the benchmark of the scheduler.
    work = [1.2e8 * 2.7 ** (level - 2) for level in range(9)]
    paths = [paths_of_blocks(level, each) for level, each in enumerate(work)]
    assert paths == sorted(paths, reverse=True)
    assert set(paths) == {32, 8, 2, 1}


def test_paths_are_the_same_in_any_block(narrow, monkeypatch):
    """By number, but for the rounding of another program; a block further on is none of these, the control."""
    parts = [narrow.differences(1, block) for block in range(5)]
    monkeypatch.undo()
    whole = narrow.differences(1, 0)
    np.testing.assert_allclose(np.concatenate(parts[:4]), whole, rtol=1e-3, atol=2e-6)
    assert np.abs(parts[4] - whole[:8]).max() > 1e-3


@pytest.mark.parametrize("task", [SampleLevel(), SampleDifferences()], ids=["moments", "one by one"])
def test_a_narrow_block_is_read_as_it_was_written(narrow, task):
    book, arguments = Notes(), (narrow, 1, 3)
    record = task.record(1e9, *arguments)
    assert record.key[-1] == range(24, 32)
    before = task(*arguments)
    record.write(book, before)
    after = record.find(book)
    if isinstance(task, SampleLevel):
        assert after.delta.count == before.delta.count == 8
        assert after.evaluations == 8 * narrow.evaluations(1)
        np.testing.assert_array_equal(after.delta.sum2, before.delta.sum2)
        np.testing.assert_array_equal(after.points, before.points)
    else:
        np.testing.assert_array_equal(after, before)


def test_ends_of_fine_paths_come_as_before(narrow, monkeypatch):
    ends = narrow.fine_ends(1, 0)
    monkeypatch.undo()
    np.testing.assert_array_equal(narrow.fine_ends(1, 0), ends)
