"""Values on disk: a JSON document and its float64 arrays in one zip, exact to the bit, without pickles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from io import BytesIO
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.decisions import Decision, Trial, Tuning
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.rates import Contraction
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import Chain
from tallbayes.gaussian.low_rank import LowRank


def all_fields(value: Any) -> dict[str, Any]:
    """But for those that say they are not kept."""
    return {each.name: getattr(value, each.name) for each in fields(value) if each.metadata.get("kept", True)}


class Codec:
    """Dataclasses of some types, and whatever lies in them; `fields` says what is kept of one."""

    def __init__(self, types: Iterable[type], fields: Callable[[Any], dict[str, Any]] = all_fields) -> None:
        self.types, self.fields = {each.__name__: each for each in types}, fields

    def encode(self, value: Any, arrays: dict[str, np.ndarray]) -> Any:
        """As JSON; arrays are put beside it."""
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
            return {"dict": [[key, self.encode(item, arrays)] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [self.encode(item, arrays) for item in value]}
        return {"type": type(value).__name__, "fields": self.encode(self.fields(value), arrays)}

    def decode(self, value: Any, arrays: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "array" in value:
            return arrays[value["array"]]
        if "status" in value:
            return Status[value["status"]]
        if "dict" in value:
            return {key: self.decode(item, arrays) for key, item in value["dict"]}
        for kind in (list, tuple):
            if kind.__name__ in value:
                return kind(self.decode(item, arrays) for item in value[kind.__name__])
        return self.types[value["type"]](**self.decode(value["fields"], arrays))


_ENTRIES = Codec((Anchor, Arrowhead, Chain, Contraction, Decision, Ladder, LowRank, Trial, Tuning))


def to_bytes(value: Any) -> bytes:
    """Anything that is entered into a ledger, as bytes."""
    arrays: dict[str, np.ndarray] = {}
    document = json.dumps(_ENTRIES.encode(value, arrays))
    file = BytesIO()
    np.savez(file, allow_pickle=False, document=np.array(document), **arrays)
    return file.getvalue()


def from_bytes(content: bytes) -> Any:
    """What `to_bytes` was given."""
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return _ENTRIES.decode(json.loads(str(arrays["document"])), arrays)
