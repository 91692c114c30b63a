"""The exceptions of tallbayes: every message says what was expected, what came, and what to try.

Bad input raises; trouble at run time does not: it ends in a `Result` whose `status` says what happened.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from math import nan
from typing import Any


class TallbayesError(Exception):
    """The root of every error raised on purpose.

    >>> import tallbayes as tb
    >>> try:
    ...     tb.load("nowhere.tallbayes")
    ... except tb.TallbayesError as error:
    ...     print(type(error).__name__)
    ResultFileError
    """


class InputError(TallbayesError, ValueError):
    """Something handed over by the caller cannot be used as it is.

    >>> import tallbayes as tb
    >>> try:
    ...     tb.families.linear(noise_scale=-1)
    ... except tb.InputError as error:
    ...     print(error)
    expected noise_scale > 0; got -1. Try: its scale in the units of y.
    """


class DataError(InputError):
    """The rows: shape, type, finiteness, or a response outside its support."""


class ModelError(InputError):
    """A model or quantity whose functions do not return what they must."""


class ToleranceError(InputError):
    """The accuracy asked for is missing, contradictory or not positive."""


class MethodError(InputError):
    """A method whose parts do not fit together or do not fit the data."""


class MissingExtraError(InputError, ImportError):
    """A package is not installed that only some doors need; the message names the extra that brings it."""


class PosteriorError(TallbayesError):
    """The posterior itself stands in the way: no mode, or no unique one.

    `places` are those of the parameters that it is about, in a flat vector, and `value` is that of the first.

    >>> error = PosteriorError("expected a mode; got none. Try: a prior.", places=(2,))
    >>> error.places
    (2,)
    """

    def __init__(self, message: str, places: tuple[int, ...] = (), value: float = nan) -> None:
        super().__init__(message)
        self.places, self.value = places, value


class RankDeficientError(PosteriorError):
    """Some direction of the parameter space is seen by neither data nor prior."""


class ImproperPosteriorError(PosteriorError):
    """The log posterior keeps rising towards infinity, as with separated data under a flat prior."""


class NonFiniteError(PosteriorError):
    """The log posterior or a derivative is not a finite number where it must be."""


class NoConvergenceError(PosteriorError):
    """Newton's method did not reach the mode."""


class TableError(DataError):
    """A table on disk that cannot be used: missing, unfinished, cut, or changed since it was written."""


class LedgerError(TallbayesError):
    """A ledger that cannot be used: torn, or of another model, other data, another method or version.

    >>> import tallbayes as tb
    >>> try:
    ...     tb.merge_ledgers("all.ledger", "nowhere.ledger")  # doctest: +SKIP
    ... except tb.LedgerError as error:
    ...     print(error)
    """


class WorkerError(TallbayesError):
    """What runs the blocks cannot do it: a worker without the table, or a pool that has broken down.

    >>> import tallbayes as tb
    >>> try:
    ...     result = tb.estimate(model, table, tolerance=0.01, executor=executor)  # doctest: +SKIP
    ... except tb.WorkerError as error:
    ...     print(error)
    """


class DependencyError(TallbayesError):
    """A library that is installed gives wrong numbers: nothing that it computes can be trusted.

    >>> import tallbayes as tb
    >>> try:
    ...     result = tb.estimate(model, rows, tolerance=0.01)  # doctest: +SKIP
    ... except tb.DependencyError as error:
    ...     print(error)  # which jaxlib, and what to install
    """


class ResultFileError(TallbayesError):
    """A saved result that cannot be read: missing, truncated, or of another format."""


def require_extra(package: str, extra: str, purpose: str, install: str | None = None) -> Any:
    """Import a package that is needed for one purpose only, or say which extra of tallbayes brings it.

    `install` is what to install instead, where no extra does.
    """
    try:
        return import_module(package)
    except ImportError as error:
        name = package.split(".")[0]
        absent = isinstance(error, ModuleNotFoundError)
        got = f"{name} not installed" if absent else " ".join(str(error).split()).rstrip(".")
        hint = f'pip install "{install or f"tallbayes[{extra}]"}"'
        raise MissingExtraError(explain(f"{name}, for {purpose}", got, hint)) from error


def explain(expected: str, got: str, hint: str) -> str:
    """Put the three parts of a message in their order."""
    return f"expected {expected}; got {got}. Try: {hint}."


def suggestion(name: str, names: Sequence[str], otherwise: str) -> str:
    """The nearest of the names, case apart, followed by `otherwise`; that alone where none is near."""
    by_lower = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"{by_lower[near[0]]!r}; {otherwise}" if near else otherwise
