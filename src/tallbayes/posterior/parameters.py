"""Parameters: their names, how they are read off u, and the functions of theta that stand for what is asked about them.

What may be asked about is a function of theta, the name of a parameter, or weights by name for a sum of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import Reading
from tallbayes.structure import Structure

if TYPE_CHECKING:
    from tallbayes.model.model import Target

Function = Callable[[Any], Any]
# A target, and arrays that it needs for what it reports.
Live = tuple["Target", Any]
What = Function | Mapping[str, float] | str | None


@dataclass(frozen=True, eq=False)
class Parameters:
    """As plain numbers (`stored`), or as this process's own target and units (`live`)."""

    stored: Reading | None
    live: Live | None

    @cached_property
    def reading(self) -> Reading | None:
        """As plain numbers; None where only this process knows."""
        if self.stored is not None or self.live is None:
            return self.stored
        from tallbayes.posterior.reported import reading_of

        return reading_of(*self.live)

    @property
    def structure(self) -> Structure:
        return self.live[0].structure if self.live is not None else self._required.structure

    @cached_property
    def labels(self) -> list[str]:
        return [label.removeprefix(".") for label in self.structure.labels("")]

    @property
    def reader(self) -> tuple[Any, Any]:
        """What reads them off u in JAX, and its units."""
        if self.live is not None:
            return self.live
        from tallbayes.posterior.reported import reader_of

        return reader_of(self._required)

    @property
    def _required(self) -> Reading:
        if self.reading is None:
            hint = "ask in the process that made the result: its model has a report or constraint of its own"
            raise InputError(explain("a posterior that knows its parameters", "one that does not", hint))
        return self.reading

    def weights(self, what: Mapping[str, float] | str) -> Floats:
        """One a parameter."""
        given = {what: 1.0} if isinstance(what, str) else dict(what)
        weights = np.zeros(len(self.labels))
        for label, weight in given.items():
            if label not in self.labels:
                known = ", ".join(self.labels[:20]) + (", ..." if len(self.labels) > 20 else "")
                raise InputError(explain("the name of a parameter", repr(label), f"one of {known}"))
            weights[self.labels.index(label)] += float(weight)
        return weights

    def function(self, what: What) -> Function:
        if callable(what):
            return what
        if what is None:
            return lambda theta: theta
        places = self.weights(what)
        structure = self.structure

        def weighted(theta: Any) -> Any:
            return sum(weight * number for weight, number in _numbers(list(structure.leaves(theta)), places))

        return weighted

    def component(self, place: int) -> Function:
        return self.function({self.labels[place]: 1.0})


def together(functions: Sequence[Function]) -> Function:
    """All of them, as a list."""
    return lambda theta: [function(theta) for function in functions]


def component_of(function: Function, place: int, structure: Structure) -> Function:
    """One number of what a function returns."""
    weights = np.zeros(structure.size)
    weights[place] = 1.0

    def one(theta: Any) -> Any:
        return next(number for _, number in _numbers(list(structure.leaves(function(theta))), weights))

    return one


def between(function: Function, above: float | None, below: float | None) -> Function:
    """Whether what it returns is between two numbers."""

    def event(theta: Any) -> Any:
        value = function(theta)
        inside = True if above is None else value > above
        return inside if below is None else inside & (value < below)

    return event


def _numbers(leaves: Sequence[Any], weights: Floats) -> Iterator[tuple[float, Any]]:
    """The numbers that have a weight, each with it."""
    start = 0
    for leaf in leaves:
        size = int(np.prod(np.shape(leaf)))
        for place in np.flatnonzero(weights[start : start + size]):
            yield weights[start + place], leaf if np.shape(leaf) == () else leaf.ravel()[place]
        start += size
