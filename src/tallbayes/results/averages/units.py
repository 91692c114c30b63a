"""Units: changed rows by the groups that they belong to, in memory that does not grow with the rows.

    deal     every row to the bucket of its group            in memory while they are few, else in files
    go on    bucket after bucket, the rows of a group side by side, padded to one of a few lengths

Rows without groups are units of their own, as they come.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.results.averages.sides import ChangedRows

BUCKETS, IN_MEMORY = 64, 2**20
LENGTHS = np.array([4**k for k in range(16)])


@dataclass(eq=False)
class RowLevels:
    """Levels of `by` in the order in which they are met, with how many rows each has, and their weight."""

    most: int
    names: dict[Any, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    def forget_rows(self) -> None:
        """Names stay."""
        self.rows, self.weight = [0] * len(self.names), [0.0] * len(self.names)

    def labels(self, batch: ChangedRows) -> np.ndarray:
        """The number of every row's level, counted."""
        given = batch.levels.tolist() if batch.levels.dtype.kind == "O" else [0]
        for name in dict.fromkeys(given):
            if name not in self.names:
                self.names[name] = len(self.names)
                self.rows.append(0)
                self.weight.append(0.0)
                if len(self.names) > self.most:
                    hint = "cut it into fewer, or rows= a part of the table"
                    raise InputError(explain(f"by= a column of at most {self.most} levels here", "more", hint))
        labels = np.zeros(len(batch.weights), np.int32)
        if batch.levels.dtype.kind == "O":
            labels[:] = [self.names[each] for each in given]
        for name in self.names.values():
            own = labels == name
            self.rows[name] += int(own.sum())
            self.weight[name] += float(batch.weights[own].sum())
        return labels


@dataclass(frozen=True, eq=False)
class Units:
    """Some units of one length: rows, a pytree of (units, length, 2, ...), what each row is multiplied with, 0 of
    padding, its level, and where its group is among those that are known."""

    rows: Any
    scales: Floats
    labels: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.scales)

    @property
    def length(self) -> int:
        return int(self.scales.shape[1])

    def take(self, some: np.ndarray) -> Units:
        rows = jax.tree.map(lambda leaf: leaf[some], self.rows)
        return Units(rows, self.scales[some], self.labels[some], self.places[some])

    @staticmethod
    def joined(parts: list[Units]) -> Units:
        rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(each.rows for each in parts))
        rest = (np.concatenate([getattr(each, name) for each in parts]) for name in ("scales", "labels", "places"))
        return Units(rows, *rest)


def single_rows(batches: Iterator[ChangedRows], levels: RowLevels) -> Iterator[Units]:
    """Every row a unit."""
    for batch in batches:
        rows = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], batch.rows)
        scales = (batch.weights / batch.divisors)[:, None]
        labels = levels.labels(batch)[:, None]
        yield Units(rows, scales, labels, np.full(len(scales), -1))


def _close(files: list[Any]) -> None:
    for each in files:
        each.close()


class DealtRows:
    """Rows in buckets by their group, to be gone through as often as one likes."""

    def __init__(self, batches: Iterator[ChangedRows], levels: RowLevels, groups: int) -> None:
        self.count = max(1, min(BUCKETS, groups))
        self.buckets = [tempfile.SpooledTemporaryFile(IN_MEMORY) for _ in range(self.count)]  # noqa: SIM115
        weakref.finalize(self, _close, self.buckets)
        self.kind, self.shape = np.dtype([]), None
        self.rows, self.groups = 0, groups
        for batch in batches:
            self._deal(batch, levels.labels(batch))

    def _deal(self, batch: ChangedRows, labels: np.ndarray) -> None:
        places = batch.places
        assert places is not None
        leaves, shape = jax.tree.flatten(jax.tree.map(np.asarray, batch.rows))
        if self.shape is None:
            fields = [(f"row{k}", leaf.dtype, leaf.shape[1:]) for k, leaf in enumerate(leaves)]
            self.kind = np.dtype([("place", "i8"), ("scale", "f8"), ("label", "i4"), *fields])
            self.shape = shape
        whole = np.empty(len(places), self.kind)
        whole["place"], whole["scale"], whole["label"] = places, batch.weights / batch.divisors, labels
        for k, leaf in enumerate(leaves):
            whole[f"row{k}"] = leaf
        self.rows += len(whole)
        bucket = places % self.count
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(self.count + 1))
        whole = whole[order]
        for number, file in enumerate(self.buckets):
            file.write(whole[ends[number] : ends[number + 1]].tobytes())

    def __iter__(self) -> Iterator[Units]:
        for file in self.buckets:
            file.seek(0)
            whole = np.frombuffer(file.read(), self.kind)
            if len(whole):
                yield from self._by_length(whole[np.argsort(whole["place"], kind="stable")])

    def _by_length(self, whole: np.ndarray) -> Iterator[Units]:
        places, firsts, counts = np.unique(whole["place"], return_index=True, return_counts=True)
        lengths = LENGTHS[np.searchsorted(LENGTHS, counts)]
        for length in np.unique(lengths):
            some = np.flatnonzero(lengths == length)
            at = np.arange(length)
            inside = at < counts[some, None]
            index = firsts[some, None] + np.minimum(at, counts[some, None] - 1)
            leaves = [whole[f"row{k}"][index] for k in range(len(self.kind.names or ()) - 3)]
            rows = jax.tree.unflatten(self.shape, leaves)
            scales = np.where(inside, whole["scale"][index], 0.0)
            yield Units(rows, scales, whole["label"][index], places[some])
