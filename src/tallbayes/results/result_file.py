"""Results on disk: one zip of a JSON document and its float64 arrays, exact to the bit, without pickles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.probe import Probe
from tallbayes.errors import ResultFileError, explain
from tallbayes.estimator.decisions import Decision, Trial, Tuning
from tallbayes.estimator.estimates import Estimate
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.rates import Contraction
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import Chain
from tallbayes.gaussian.low_rank import LowRank
from tallbayes.posterior.coordinates import Entries, Part, Reading, ScaleCurve
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs
from tallbayes.records.values import Codec, all_fields
from tallbayes.results.groups.effects import Effects, known_effects
from tallbayes.results.groups.partition import VariancePartition, known_partition
from tallbayes.results.parts import Cost, DrawWeights, Factor, Level, Mode, Rates, Regression
from tallbayes.results.result import Result
from tallbayes.rows.atomic import replacing
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights

FORMAT = "tallbayes result 5"


def save(result: Result, path: str | Path) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one."""
    arrays: dict[str, np.ndarray] = {}
    # Beside the result, where versions of before do not look.
    told = {"format": FORMAT, "random_tail": result.random_tail}
    document = told | {"result": _CODEC.encode(_fields(result), arrays)}
    with replacing(Path(path)) as partial, open(partial, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, document=np.array(json.dumps(document)), **arrays)


def load(path: str | Path) -> Result:
    """Read a result back; a file that is not a whole result raises ResultFileError.

    >>> result.save(folder / "again.tallbayes")  # that of the example of `Result`
    >>> load(folder / "again.tallbayes").converged
    True
    """
    try:
        # Opened here, since np.load leaves a file that is no zip open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            document = json.loads(str(arrays["document"]))
            if document["format"] != FORMAT:
                raise ResultFileError(
                    explain(repr(FORMAT), repr(document["format"]), "the version of tallbayes that wrote it")
                )
            result = Result(**_CODEC.decode(document["result"], arrays))
            # Files of before do not say it.
            return _with_tail(result, document.get("random_tail", result.method.startswith("Randomised")))
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


def _with_tail(result: Result, random: bool) -> Result:
    """A result and those of its other modes, which are of the same method."""
    modes = [
        mode if mode.result is None else replace(mode, result=_with_tail(mode.result, random)) for mode in result.modes
    ]
    return replace(result, random_tail=random, modes=tuple(modes))


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
        return all_fields(value)
    fields = {name: getattr(value, name) for name in _RESULT_FIELDS}
    if value.posterior is not None:
        fields["posterior"] = replace(value.posterior, stored=value.posterior.reading, live=None)
    own: dict[str, Any] = {"modes": value.modes or None, "weighing": value.weighing}
    own |= {"factors": value.factors or None, "stored_effects": known_effects(value) or None}
    own |= {"stored_partition": known_partition(value)}
    return fields | {name: part for name, part in own.items() if part is not None}


_ANSWERS = Contraction, Cost, DrawWeights, Effects, Estimate, Level, Mode, Rates, Regression, Result
_CHOICES = Anchor, Arrowhead, Chain, Decision, Ladder, LowRank, Structure, Trial, Tuning
_GROUPS = Factor, VariancePartition
_ENSEMBLE = Entries, Part, Posterior, Probe, Reading, Rungs, ScaleCurve, Weights
_CODEC = Codec((*_ANSWERS, *_CHOICES, *_ENSEMBLE, *_GROUPS), _fields)
