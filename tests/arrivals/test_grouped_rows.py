"""Rows by their groups, and names of groups that are joined: closed forms, no model."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.arrivals.groups.rows import ArrivedRows, GroupedRows
from tallbayes.formula.groups.levels import GroupLevels


def arrived(names, y):
    return ArrivedRows({"y": np.asarray(y, np.float64)}, np.array(names))


@pytest.fixture
def rows():
    return GroupedRows.of(arrived(["b", "a", "b", "c"], [1.0, 2.0, 1.0, 3.0]), "g")


def test_a_group_keeps_its_number_and_names_are_in_order(rows):
    more, changed = rows.with_rows(arrived(["aa", "b"], [5.0, 6.0]))
    assert more.levels.tolist() == ["a", "b", "c", "aa"]
    assert more.counts.tolist() == [1, 3, 1, 1]
    assert changed.tolist() == [1, 3]
    assert more.ranks().tolist() == [0, 2, 3, 1]
    grouping = more.grouping(holds_rows=True)
    assert grouping.levels.tolist() == ["a", "aa", "b", "c"]
    assert grouping.counts.tolist() == [1, 1, 3, 1]
    assert grouping.rows.codes.tolist() == [2, 0, 2, 3, 1, 2]
    assert rows.counts.tolist() == [1, 2, 1]


def test_withdrawn_rows_come_back_as_they_were(rows):
    some = arrived(["b", "c"], [1.0, 3.0])
    less, changed = rows.without(some)
    assert changed.tolist() == [1, 2]
    assert less.counts.tolist() == [1, 1, 0]
    assert less.present.tolist() == [0, 1]
    assert sorted(less.asked(None)["data"]["g"].tolist()) == ["a", "b"]
    back, _ = less.with_rows(some)
    assert back.counts.tolist() == rows.counts.tolist()
    for groups in ([1], [2]):
        each = [one.arrays["y"][one.of_groups(np.array(groups))] for one in (rows, back)]
        np.testing.assert_array_equal(*each)
    np.testing.assert_array_equal(rows.arrays["y"], [1.0, 2.0, 1.0, 3.0])


@pytest.mark.parametrize(
    ("names", "y", "told"),
    [
        (["b", "b", "b"], [1.0, 1.0, 1.0], "1 of 3 that are not among them"),
        (["a", "b"], [1.0, 1.0], "1 of 2 that are not among them"),
        (["z"], [1.0], "1 of 1 that are not among them"),
        ([1], [1.0], "text in 'g', as before"),
        (["b", "a", "b", "c"], [1.0, 2.0, 1.0, 3.0], "rows that stay"),
    ],
)
def test_what_was_never_there_is_refused(rows, names, y, told):
    with pytest.raises(tb.TallbayesError, match=told):
        rows.without(arrived(names, y))


def levels(*values, members=None):
    members = np.arange(len(values[0]))[:, None] if members is None else np.array(members)
    return GroupLevels(tuple("gh"[: len(values)]), tuple(tuple(each) for each in values), members.astype(np.int32))


@pytest.mark.parametrize(
    ("known", "new", "names", "where"),
    [
        (levels("ac"), levels("bc"), ("a", "b", "c"), [0, 2]),
        # In an order of its table's own, what is new stands last.
        (levels("ca"), levels("ab"), ("c", "a", "b"), [0, 1]),
        (levels([1, 10]), levels([2, 10]), (1, 2, 10), [0, 2]),
        (
            levels("ab", [1, 2], members=[[0, 0], [1, 1]]),
            levels("b", [0, 2], members=[[0, 0], [0, 1]]),
            ("a:1", "b:0", "b:2"),
            [0, 2],
        ),
    ],
)
def test_levels_are_joined_in_order(known, new, names, where):
    found, places = known.joined(new)
    assert found.names == names
    assert places.tolist() == where


def test_levels_of_another_kind_are_refused():
    with pytest.raises(tb.TallbayesError, match="text as before"):
        levels("ab").joined(levels([1, 2]))
