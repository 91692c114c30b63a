"""Left sides: what a response is made of, where it takes more than one number a row.

    cbind(k, n - k), p(k, n), k | trials(n)       k successes in n trials
    Surv(time, event)                             1 or True where the event was seen, 0 where the time is a lower bound
    Surv(lower, upper, type="interval2")          bounds; the same twice is an event, inf and 0 are none
    Surv(..., type="left"), type="interval"       0 where the time is an upper bound; 2 for that, and 3 for two bounds
    censored(time, status), time | cens(status)   "none", "right", "left", "interval", or 0, 1, -1, 2
    censored(lower, upper, status)                with an upper bound, read where the status is "interval"
    ordered(rating, "low", "middle", "high")      classes in this order

Arguments are expressions like any other. A survival time becomes y, `censored` as 0, 1, -1, 2, and `upper`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.model.catalogue import TRIALS

CENSORED = {"none": 0.0, "right": 1.0, "left": -1.0, "interval": 2.0}
# Of brms: what stands behind the bar, and before it the response.
BARS = {"trials": "p", "cens": "censored"}
SURVIVAL = 'Surv(time, event), Surv(lower, upper, type="interval2") or censored(time, status)'
EXAMPLES = {
    "cbind": "cbind(k, n - k)",
    "p": "p(k, n)",
    "Surv": SURVIVAL,
    "censored": "censored(time, status), or censored(lower, upper, status)",
    "ordered": 'ordered(rating, "low", "middle", "high")',
}
KINDS = {"cbind": "binary", "p": "binary", "Surv": "survival", "censored": "survival", "ordered": "ordered"}
SURV_TYPES = ("right", "left", "interval", "interval2")

# From an argument's text to its numbers, or texts, a row each.
Read = Callable[[str], np.ndarray]


@dataclass(frozen=True)
class LeftCall:
    """A function of the left side, the expressions in its brackets, and what else it is told."""

    function: str
    parts: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return KINDS[self.function]


def call_of(left: str) -> LeftCall | None:
    """What a left side calls; None of a column or an expression.

    >>> call_of('Surv(low, high, type="interval2")')
    LeftCall(function='Surv', parts=('low', 'high'), options={'type': 'interval2'})
    >>> call_of("np.log(price)")
    """
    found = re.fullmatch(rf"({'|'.join(EXAMPLES)})\s*\((.*)\)", left.strip(), re.DOTALL)
    if found is None:
        return None
    parts: list[str] = []
    options: dict[str, Any] = {}
    levels: list[Any] = []
    for argument in _arguments(found[2]):
        option = re.fullmatch(r"(\w+)\s*=(?!=)\s*(.+)", argument, re.DOTALL)
        if option is not None:
            options[option[1]] = _literal(option[2], left)
        elif found[1] == "ordered" and parts:
            levels.append(_literal(argument, left))
        else:
            parts.append(argument)
    call = LeftCall(found[1], tuple(parts), options | ({"levels": tuple(levels)} if levels else {}))
    _require_form(call, left)
    return call


def without_bar(left: str) -> str:
    """brms's bars as calls.

    >>> without_bar("k | trials(n)"), without_bar("time | cens(status, upper)")
    ('p(k, n)', 'censored(time, upper, status)')
    """
    found = re.fullmatch(r"(.+?)\|\s*(\w+)\s*\((.*)\)", left.strip(), re.DOTALL)
    if found is None or found[2] not in BARS:
        return left
    arguments = list(_arguments(found[3]))
    # The status stands before the upper bound there.
    return f"{BARS[found[2]]}({', '.join([found[1].strip(), *reversed(arguments)])})"


class LeftColumns(NamedTuple):
    """The columns of a table that tell its response, those that there are."""

    left: str
    columns: tuple[str, ...]
    is_whole: bool

    def read(self, kept: Mapping[str, Any]) -> tuple[Any, dict[str, np.ndarray]]:
        """The response of kept columns, None where it is not among them; and what is told beside it."""
        call = call_of(self.left)
        if call is None:
            return (kept[self.columns[0]] if self.columns else None), {}

        def read(text: str) -> np.ndarray:
            return _worked_out(text, {name: np.asarray(each) for name, each in kept.items()})

        if self.is_whole:
            if call.kind == "ordered":
                return read(call.parts[0]), {}
            return (trials_of if call.kind == "binary" else times_of)(call, read)
        trials = call.parts[1] if call.function == "p" else ""
        return None, ({"trials": read(trials).astype(np.float64)} if trials and self.columns else {})


def left_of(left: str, names: Sequence[str]) -> LeftColumns:
    """Which columns of a table tell a response as it was written; of trials without successes those of the trials."""
    call = call_of(left) if left not in names else None
    if call is None:
        return LeftColumns(left, (left,) if left in names else (), left in names)
    by_part = [set(_names_in(part)) for part in call.parts]
    every = set().union(*by_part)
    if every <= set(names):
        return LeftColumns(left, tuple(sorted(every)), True)
    trials = by_part[1] if call.function == "p" else {""}
    return LeftColumns(left, tuple(sorted(trials)) if trials <= set(names) else (), False)


def _names_in(part: str) -> list[str]:
    """Names of columns in an expression."""
    quoted = re.findall("`([^`]*)`", part)
    tree = ast.parse(re.sub("`[^`]*`", "0", part).strip(), mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    plain = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
    return [*quoted, *(name for name in plain if name != "np")]


def _worked_out(text: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    from tallbayes.formula.functions.evaluation import evaluate_response
    from tallbayes.rows.columns import require

    name = text.strip("`")
    if name in columns:
        return columns[name]
    return evaluate_response(text, require("pyarrow").table(dict(columns)))


def trials_of(call: LeftCall, read: Read) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Successes, and the trials beside them."""
    first, second = (_numbers(part, read) for part in call.parts)
    return first, {"trials": first + second if call.function == "cbind" else second}


def times_of(call: LeftCall, read: Read) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Times, and how they are censored."""
    if call.function == "Surv":
        return _surv(call, read)
    y, status = _numbers(call.parts[0], read), _status(call.parts[-1], read)
    beside = {"censored": status}
    if len(call.parts) == 3:
        beside["upper"] = np.where(status == 2, _numbers(call.parts[1], read), y)
    elif np.any(status == 2):
        hint = "censored(lower, upper, status)"
        raise DataError(explain("an upper bound where the status is 'interval'", "none", hint))
    return y, beside


def _surv(call: LeftCall, read: Read) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    how, first = call.options.get("type", "right"), _numbers(call.parts[0], read)
    if len(call.parts) == 1:
        return first, {}
    if how in ("right", "left"):
        seen = _event(call.parts[1], read)
        return first, {"censored": np.where(seen, 0.0, CENSORED[how])}
    second = _numbers(call.parts[1], read)
    if how == "interval2":
        none_above, none_below = np.isposinf(second), first <= 0
        if np.any(none_above & none_below):
            row = int(np.argmax(none_above & none_below))
            raise DataError(explain("a bound of every time", f"none at row {row}", "leave the row out"))
        status = np.select([first == second, none_above, none_below], [0.0, 1.0, -1.0], 2.0)
        y = np.where(none_below, second, first)
    else:
        codes = _numbers(call.parts[2], read)
        _require_among(codes, (0, 1, 2, 3), call.parts[2], "0 right, 1 event, 2 left, 3 interval")
        status = np.array([1.0, 0.0, -1.0, 2.0])[codes.astype(int)]
        y = first
    return y, {"censored": status, "upper": np.where(status == 2, second, y)}


def _event(part: str, read: Read) -> np.ndarray:
    values = read(part)
    if values.dtype == np.bool_:
        return values
    numbers = _as_numbers(part, values)
    _require_among(numbers, (0, 1), part, "1 where the event was seen, 0 where not; of 1 and 2: I(status - 1)")
    return numbers == 1


def _status(part: str, read: Read) -> np.ndarray:
    values = read(part)
    if values.dtype.kind in "OUS":
        texts = np.array([str(each) for each in values])
        unknown = ~np.isin(texts, list(CENSORED))
        if np.any(unknown):
            got = f"{str(texts[unknown][0])!r} at row {int(np.argmax(unknown))}"
            raise DataError(explain(f"one of {', '.join(CENSORED)} in {part!r}", got, "mend the column"))
        return np.vectorize(CENSORED.__getitem__, otypes=[float])(texts)
    numbers = _as_numbers(part, values)
    _require_among(numbers, tuple(CENSORED.values()), part, "0 none, 1 right, -1 left, 2 interval")
    return numbers


def _numbers(part: str, read: Read) -> np.ndarray:
    return _as_numbers(part, read(part))


def _as_numbers(part: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "biuf":
        got = f"text such as {str(values[0])!r}"
        raise DataError(explain(f"numbers in {part!r}, on the left of ~", got, "a column of numbers"))
    return values.astype(np.float64)


def _require_among(values: np.ndarray, known: Sequence[float], part: str, hint: str) -> None:
    outside = ~np.isin(values, known)
    if np.any(outside):
        shown, row = ", ".join(f"{each:g}" for each in known), int(np.argmax(outside))
        raise DataError(explain(f"one of {shown} in {part!r}", f"{values[row]:g} at row {row}", hint))


def _require_form(call: LeftCall, left: str) -> None:
    """As many arguments as there is a meaning for, and no other options."""
    how = call.options.get("type", "right")
    counts = {"cbind": (2,), "p": (2,), "censored": (2, 3), "ordered": (1,)}
    if call.function == "Surv":
        counts["Surv"] = (1, 2) if how in ("right", "left") else (3,) if how == "interval" else (2,)
    known = {"Surv": {"type"}, "ordered": {"levels"}}.get(call.function, set())
    wrong_type = call.function == "Surv" and how not in SURV_TYPES
    if len(call.parts) not in counts[call.function] or set(call.options) - known or wrong_type:
        hint = EXAMPLES[call.function]
        if call.function == "Surv" and len(call.parts) == 3 and how == "right":
            hint = "rows that are followed from time 0; times of entry are not read"
        raise InputError(explain(f"{call.function}(...) in a known form", repr(left), hint))


def _literal(text: str, left: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError) as error:
        raise InputError(
            explain("text in quotes, or a number", f"{text!r} in {left!r}", EXAMPLES["ordered"])
        ) from error


def _arguments(inside: str) -> list[str]:
    """What stands between commas that are in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for character in inside:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'`":
            quote = character
        depth += 0 if quote else (character in "([{") - (character in ")]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def wrong_kind(call: LeftCall, kind: str, families: Sequence[str]) -> InputError:
    """What to say of a response that the family does not have."""
    words = " or ".join(map(repr, families))
    got = f"{call.function}(...), which is one of {words}" if words else f"{call.function}(...)"
    return InputError(explain(f"a response that is {kind}", got, f"family={families[0]!r}" if families else TRIALS))
