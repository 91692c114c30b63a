"""Base rates: the response that was seen, of all rows and by the levels of the categories in the model.

Levels are read off the rows of the fit, so that those which were left out of it are left out here. Of a mixed model
that was read from a file the numbers of rows and the plain means of its groups are known, and with them the mean of
all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.model.weights import WEIGHT
from tallbayes.moments import Floats
from tallbayes.results.fitted import family_of, fitted_of
from tallbayes.results.result import Result
from tallbayes.views.report.markup import Markup, PageColumn, column, element, listed, neat, share, table
from tallbayes.views.report.seen.at_hand import are_at_hand, if_answered

if TYPE_CHECKING:
    from tallbayes.formula.encoding import Encoding
    from tallbayes.results.checks.batches import RowBatch

BATCH = 2**15
MOST_LISTED, MOST_CLASSES, MOST_FACTORS = 3, 6, 4


@dataclass(frozen=True, eq=False)
class LevelRates:
    """Of a category: its levels, how many rows each has, and the mean of the response over them."""

    factor: str
    levels: tuple[str, ...]
    counts: Floats
    means: Floats

    @property
    def in_order(self) -> list[int]:
        """Places of the levels that have rows, the largest mean first."""
        return sorted(np.flatnonzero(self.counts > 0).tolist(), key=lambda place: -float(self.means[place]))


@dataclass(frozen=True, eq=False)
class BaseRates:
    """Of the response: mean and sd, the share of zeros, and of several classes the share of each."""

    rows: int
    mean: float
    sd: float = float("nan")
    zeros: float = float("nan")
    classes: tuple[float, ...] = ()
    by: tuple[LevelRates, ...] = ()


def base_rates(result: Result) -> BaseRates | None:
    """As far as they are known; None where they are not."""
    if family_of(result) is None:
        return None
    found = if_answered(lambda: _of_rows(result)) if are_at_hand(result) else None
    return found or _of_groups(result)


def _of_groups(result: Result) -> BaseRates | None:
    """By the plain means that effects of groups keep."""
    known = [each for each in result.stored_effects if each.has_raw and np.all(np.isfinite(each.raw))]
    if not known or known[0].counts.sum() != result.num_rows:
        return None
    counts = np.asarray(known[0].counts, np.float64)
    return BaseRates(result.num_rows, float(counts @ known[0].raw / counts.sum()))


def _of_rows(result: Result) -> BaseRates | None:
    """In one pass over the rows of the fit."""
    from tallbayes.formula.encoding import Encoding
    from tallbayes.results.checks.batches import row_batches

    rows = None if result.factors else fitted_of(result).table.rows
    if isinstance(rows, Mapping) and WEIGHT in rows:
        return None
    encoding = None if result.encoding is None else Encoding.from_plain(result.encoding)
    factors = [] if encoding is None else _factors(encoding)
    width = 0 if encoding is None else len(encoding.coding.names)
    seen: list[Floats] = []
    counts, sums = ([np.zeros(len(each.levels)) for each in factors] for _ in range(2))
    for batch in row_batches(result, None, BATCH):
        assert batch.observed is not None
        y = np.asarray(batch.observed, np.float64)
        seen.append(y)
        if batch.codes is None and batch.x.shape[1] != width:
            factors = []
        for place, factor in enumerate(factors):
            codes = factor.codes(batch)
            counts[place] += np.bincount(codes, minlength=len(factor.levels))
            sums[place] += np.bincount(codes, y, minlength=len(factor.levels))
    by = [each.rates(*pair) for each, *pair in zip(factors, counts, sums, strict=False)]
    return rates_of(result, np.concatenate(seen), by)


def rates_of(result: Result, y: Floats, by: Sequence[LevelRates] = ()) -> BaseRates:
    """Of a response in the units of the table, classes by their places."""
    family = family_of(result)
    classes: tuple[float, ...] = ()
    if family is not None and family.by_class:
        size = len(_labels(result)) or int(y.max()) + 1
        classes = tuple(float(each) for each in np.bincount(y.astype(int), minlength=size) / len(y))
        by = ()
    return BaseRates(len(y), float(y.mean()), float(y.std()), float(np.mean(y == 0)), classes, tuple(by))


@dataclass(frozen=True, eq=False)
class _Factor:
    """A category that is a term by itself: which of them, the place of its first column, and all its levels, of which
    the first may have no column."""

    name: str
    levels: tuple[str, ...]
    number: int
    places: tuple[int, ...]
    middles: Floats

    def codes(self, batch: RowBatch) -> np.ndarray:
        """The level of every row: by its code, or by the flag that is above the middle of its two values."""
        without = len(self.levels) - len(self.places)
        if batch.codes is not None:
            own = np.asarray(batch.codes)[:, self.number] - self.places[0]
            return np.where((own >= 0) & (own < len(self.places)), own + without, 0)
        flags = batch.x[:, self.places] > self.middles
        return np.where(flags.any(axis=1), np.argmax(flags, axis=1) + without, 0)

    def rates(self, counts: Floats, sums: Floats) -> LevelRates:
        with np.errstate(invalid="ignore", divide="ignore"):
            return LevelRates(self.name, self.levels, counts, sums / counts)


def _factors(encoding: Encoding) -> list[_Factor]:
    made = []
    for number, term in enumerate(encoding.coding.indexed):
        places = tuple(range(term.first, term.first + term.count))
        means, scales = (np.array(each)[list(places)] for each in (encoding.means, encoding.scales))
        levels = tuple(map(str, encoding.coding.categories[term.factor]))
        made.append(_Factor(term.column, levels, number, places, (0.5 - means) / scales))
    return made


def rates_in_words(result: Result, found: BaseRates) -> str:
    """For the head of the page."""
    name, family = response_name(result), family_of(result)
    kind = None if family is None else family.response
    if found.classes:
        named = [f"{label} ({share(part)})" for label, part in _classes(result, found)[:MOST_CLASSES]]
        more = len(found.classes) - len(named)
        return f"Seen in the rows: {name} is {listed([*named, *([f'{more:,} others'] if more > 0 else [])])}."
    if kind == "binary":
        whole = f"Seen in the rows: {share(found.mean)} have {name}."
    else:
        scatter = f", with an sd of {neat(found.sd)}" if np.isfinite(found.sd) and kind == "real" else ""
        none = f"; {share(found.zeros)} of the rows have none" if kind == "count" and found.zeros > 0 else ""
        whole = f"Seen in the rows: {name} is {neat(found.mean)} on average{scatter}{none}."
    parts = [_by_level(each, kind) for each in found.by[:MOST_FACTORS] if len(each.in_order) > 1]
    return " ".join([whole, *parts])


def _by_level(found: LevelRates, kind: str | None) -> str:
    ordered = found.in_order
    named = [f"{_amount(float(found.means[place]), kind)} ({found.levels[place]})" for place in ordered]
    if len(named) <= MOST_LISTED:
        return f"By {found.factor}: {listed(named)}."
    return f"By {found.factor}: from {named[-1]} to {named[0]}, {len(named):,} levels in all."


def _amount(mean: float, kind: str | None) -> str:
    return share(mean) if kind == "binary" else neat(mean)


def rates_table(result: Result, found: BaseRates) -> Markup | None:
    """By every level."""
    family = family_of(result)
    kind, name = (None if family is None else family.response), response_name(result)
    if found.classes:
        pairs = _classes(result, found)
        return table(f"Classes of {name}.", "class", [label for label, _ in pairs], [_shares([p for _, p in pairs])])
    if not found.by:
        return None
    places = [(each, place) for each in found.by for place in each.in_order]
    means = [float(each.means[place]) for each, place in places]
    head = f"share with {name}" if kind == "binary" else f"mean of {name}"
    columns = [
        column("rows", [f"{each.counts[place]:,.0f}" for each, place in places]),
        _shares(means, head) if kind == "binary" else column(head, [neat(mean) for mean in means]),
    ]
    caption = "The response as it was seen in the rows of each level, all other columns as they happened to be."
    names, groups = [each.levels[place] for each, place in places], [each.factor for each, _ in places]
    summary = element("summary", "Seen in the rows, level by level")
    return element("details", summary, table(caption, "level", names, columns, groups))


def _shares(values: Sequence[float], head: str = "share") -> PageColumn:
    return column(head, [share(each) for each in values])


def _classes(result: Result, found: BaseRates) -> list[tuple[str, float]]:
    labels = _labels(result) or range(len(found.classes))
    return sorted(zip(map(str, labels), found.classes, strict=True), key=lambda pair: -pair[1])


def _labels(result: Result) -> list[Any]:
    return [] if result.encoding is None else list(result.encoding["classes"] or ())


def response_name(result: Result) -> str:
    """The response, of two classes the second one of it."""
    if result.encoding is None:
        return "y = 1" if getattr(family_of(result), "response", "") == "binary" else "y"
    classes, name = result.encoding["classes"], str(result.encoding["response"])
    return name if classes is None or len(classes) != 2 or classes[1] in (True, 1) else f"{name} = {classes[1]}"
