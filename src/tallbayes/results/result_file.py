"""Results on disk: one zip of a JSON document and its float64 arrays, exact to the bit, without pickles."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import ResultFileError, explain
from tallbayes.estimator.decisions import Decision, Trial, Tuning
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.tails import Probe
from tallbayes.posterior.coordinates import Entries, Part, Reading
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs
from tallbayes.results.result import Cost, Level, Mode, Rates, Regression, Result
from tallbayes.structure import Structure

FORMAT = "tallbayes result 5"
_TYPES = {
    cls.__name__: cls
    for cls in (
        Anchor,
        Contraction,
        Cost,
        Decision,
        Entries,
        Estimate,
        Ladder,
        Level,
        Mode,
        Part,
        Posterior,
        Probe,
        Rates,
        Reading,
        Regression,
        Result,
        Rungs,
        Structure,
        Trial,
        Tuning,
    )
}


def save(result: Result, path: str | Path) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one."""
    arrays: dict[str, np.ndarray] = {}
    document = {"format": FORMAT, "result": _encode(_fields(result), arrays)}
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, document=np.array(json.dumps(document)), **arrays)
    os.replace(partial, path)


def load(path: str | Path) -> Result:
    """Read a result back; a file that is not a whole result raises ResultFileError."""
    try:
        # Opened here, since np.load leaves a file that is no zip open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            document = json.loads(str(arrays["document"]))
            if document["format"] != FORMAT:
                raise ResultFileError(
                    explain(repr(FORMAT), repr(document["format"]), "the version of tallbayes that wrote it")
                )
            return Result(**_decode(document["result"], arrays))
    except ResultFileError:
        raise
    except Exception as error:
        # A damaged zip fails in more ways than zipfile and NumPy document.
        raise ResultFileError(
            explain(
                f"a whole result file at {path}",
                f"{type(error).__name__}: {error}",
                "the path given to result.save",
            )
        ) from error


def to_bytes(value: Any) -> bytes:
    """Anything that a result is made of, as bytes."""
    arrays: dict[str, np.ndarray] = {}
    document = json.dumps(_encode(value, arrays))
    file = BytesIO()
    np.savez(file, allow_pickle=False, document=np.array(document), **arrays)
    return file.getvalue()


def from_bytes(content: bytes) -> Any:
    """What `to_bytes` was given."""
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return _decode(json.loads(str(arrays["document"])), arrays)


_RESULT_FIELDS = (
    "estimates",
    "status",
    "levels",
    "rates",
    "cost",
    "contraction",
    "anchor",
    "method",
    "settings",
    "tuning",
    "notes",
    "posterior",
    "encoding",
    "regression",
)


def _fields(value: Any) -> dict[str, Any]:
    """What is kept of a dataclass: all of it, but for what a result holds of its process; no modes, no word of them."""
    if not isinstance(value, Result):
        return {name: getattr(value, name) for name in type(value).__dataclass_fields__}
    fields = {name: getattr(value, name) for name in _RESULT_FIELDS}
    if value.posterior is not None:
        fields["posterior"] = replace(value.posterior, stored=value.posterior.reading, live=None)
    return fields | ({"modes": value.modes} if value.modes else {})


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Status):
        return {"status": value.name}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encode(item, arrays) for item in value]}
    kind = type(value).__name__
    return {"type": kind, "fields": _encode(_fields(value), arrays)}


def _decode(value: Any, arrays: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "status" in value:
        return Status[value["status"]]
    if "dict" in value:
        return {key: _decode(item, arrays) for key, item in value["dict"]}
    for kind in (list, tuple):
        if kind.__name__ in value:
            return kind(_decode(item, arrays) for item in value[kind.__name__])
    return _TYPES[value["type"]](**_decode(value["fields"], arrays))
