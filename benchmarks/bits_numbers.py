"""What an answer consists of, number by number, for `same_bits`: leaves, their bytes, and texts without the clock.

    leaves    (label, number or text) of results, estimates, predictions, comparisons and what holds them
    bits      sha256 of the numbers' float64 bytes and of the texts, 16 hex digits
    marks     two hex digits a leaf: which one was the first to differ
    masked    a text without seconds, dates, versions, addresses and the folder it was made in

A thing is known by the attributes that are documented of it, never by the module it comes from. What depends on the
clock is left out: seconds, and blocks that idle workers ran ahead with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

Leaf = tuple[str, float | str]

DIGITS = 16
MOST_MARKS = 250
FEW = 6
SIGNIFICANT = 9
LONGEST_TEXT = 80

# Read in this order: the first form whose attributes a thing has.
FORMS = (
    ("status", "estimates", "levels", "rates", "contraction", "cost", "tuning", "modes"),
    ("estimates", "acceptance", "step", "chains", "steps", "burn_in", "evaluations", "setup_evaluations"),
    ("value", "standard_error", "bias_bound", "degrees_of_freedom", "tolerance", "interval", "met", "beta"),
    ("step", "time", "samples", "evaluations", "mean", "variance", "kurtosis", "consistency"),
    ("alpha", "beta", "gamma"),
    ("evaluations", "setup_evaluations", "num_data", "epochs", "passes"),
    ("factor", "upper", "rate"),
    ("trials", "chosen", "time", "evaluations"),
    ("first_step", "batch_size", "price", "strained", "evaluations", "window"),
    ("share", "location", "sd", "result"),
    ("a", "b", "mean", "sd", "median", "lower", "upper", "probability", "ratio"),
    ("name", "mean", "sd", "lower", "upper", "median", "laplace_mean", "laplace_sd"),
    ("name", "median", "lower", "upper"),
    ("value", "standard_error", "effective_sample_size"),
    ("scale", "offset", "power"),
    (
        "mean",
        "sd",
        "standard_error",
        "bias_bound",
        "sd_standard_error",
        "sd_bias_bound",
        "classes",
        "at_least",
    ),
    ("coef_", "coef_sd_", "coef_error_", "intercept_", "intercept_sd_", "intercept_error_", "result_"),
)

MASKS = (
    (r"\b0x[0-9a-f]+", "0x#"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+(?:[+-]\d\d:\d\d|Z)?", "#date"),
    (r'("seconds": )[\d.e+-]+', r"\1#"),
    (r'("speculative_evaluations": )\d+', r"\1#"),
    (r"(<dt>Run ahead, unused</dt><dd>)[\d,]+", r"\1#"),
    (r"(<dt>Seconds</dt>\s*<dd>)[^<]*", r"\1#"),
    (r"\d[\d.,e+-]*(?= seconds?\b| s\b)", "#"),
    (r'("(?:tallbayes|jax|jaxlib|numpy)": )"[^"]*"', r"\1#"),
    (r"\b(tallbayes|jax|jaxlib|numpy) \d+(?:\.\w+)+", r"\1 #"),
    # Where a class is defined may change, its name may not.
    (r"\btallbayes(?:\.[a-z_]\w*)+\.(?=[A-Za-z_])", "tallbayes."),
)


def leaves(thing: Any, label: str = "") -> Iterator[Leaf]:
    """All numbers and words of a thing, in their order."""
    if thing is None or isinstance(thing, str | bool | int | float | np.generic | Enum):
        yield label, _plain(thing)
    elif isinstance(thing, Mapping):
        for key, each in thing.items():
            yield from leaves(each, f"{label}.{key}" if label else str(key))
    elif isinstance(thing, np.ndarray) and thing.dtype.kind in "biufUS":
        for place, each in enumerate(thing.ravel().tolist()):
            yield f"{label}[{place}]", _plain(each)
    elif isinstance(thing, Iterable) and not _form(thing):
        for place, each in enumerate(thing):
            yield from leaves(each, f"{label}[{place}]")
    else:
        form = _form(thing)
        if not form:
            raise TypeError(f"no form is known of a {type(thing).__name__} at {label!r}")
        for name in form:
            yield from leaves(getattr(thing, name), f"{label}.{name}" if label else name)


def lines(text: str, folder: Path | None = None) -> list[str]:
    """A masked text in pieces that a difference can be told by."""
    whole = re.sub(
        r"<style>.*?</style>", lambda sheet: " ".join(sheet[0].split()), masked(text, folder), flags=re.DOTALL
    )
    return re.split(r"\n|(?<=>)(?=<)", whole)


def masked(text: str, folder: Path | None = None) -> str:
    """Without what the clock, the machine or the place decides."""
    if folder is not None:
        text = text.replace(str(folder.resolve()), "FOLDER").replace(str(folder), "FOLDER")
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text


def bits(found: Iterable[Leaf]) -> str:
    """The hash of all leaves."""
    whole = sha256()
    for _, value in found:
        whole.update(_bytes(value))
    return whole.hexdigest()[:DIGITS]


def marks(found: Iterable[Leaf]) -> str:
    """Two digits a leaf, of as many as there is room for."""
    return "".join(sha256(_bytes(value)).hexdigest()[:2] for _, value in list(found)[:MOST_MARKS])


def few(found: Iterable[Leaf]) -> list[float | str]:
    """The first leaves, to be looked at by people."""
    return [_rounded(value) for _, value in list(found)[:FEW]]


def _form(thing: Any) -> tuple[str, ...]:
    return next((form for form in FORMS if all(hasattr(thing, name) for name in form)), ())


def _plain(thing: Any) -> float | str:
    if isinstance(thing, Enum):
        return thing.name
    return str(thing) if thing is None or isinstance(thing, str) else float(thing)


def _bytes(value: float | str) -> bytes:
    if isinstance(value, str):
        return value.encode() + b"\0"
    # There are many NaNs, and nobody asks which.
    return np.float64(np.nan if np.isnan(value) else value).tobytes()


def _rounded(value: float | str) -> float | str:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    return float(f"{value:.{SIGNIFICANT}g}") if np.isfinite(value) else str(value)
