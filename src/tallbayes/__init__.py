"""tallbayes: posterior expectations to a prescribed accuracy, for models of many rows.

Names are loaded when first used, so that importing tallbayes imports no JAX and changes no setting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Anchored": "method",
    "Antithetic": "couplings",
    "Blend": "gradients",
    "Blocks": "minibatch",
    "ControlVariate": "gradients",
    "DependencyError": "errors",
    "Estimate": "result",
    "Euler": "dynamics",
    "Exponential": "dynamics",
    "Full": "gradients",
    "InputError": "errors",
    "Ladder": "ladder",
    "LedgerError": "errors",
    "Model": "model",
    "Multilevel": "method",
    "Plain": "gradients",
    "PosteriorError": "errors",
    "Progress": "progress",
    "Randomised": "method",
    "Randomized": "method",
    "Result": "result",
    "Status": "result",
    "Synchronous": "couplings",
    "TallClassifier": "adapters.sklearn",
    "TallCountRegressor": "adapters.sklearn",
    "TallRegressor": "adapters.sklearn",
    "TallbayesError": "errors",
    "Taylor": "gradients",
    "Tuning": "result",
    "WithReplacement": "minibatch",
    "WithoutReplacement": "minibatch",
    "WorkerError": "errors",
    "estimate": "estimation",
    "fit": "adapters.fit",
    "from_numpyro": "adapters.numpyro",
    "ingest": "adapters.ingest",
    "load": "storage",
    "merge_ledgers": "ledger",
    "open_table": "stored",
    "write_table": "writing",
}
_MODULES = ("baselines", "constraints", "families")

__all__ = [
    "Anchored",
    "Antithetic",
    "Blend",
    "Blocks",
    "ControlVariate",
    "DependencyError",
    "Estimate",
    "Euler",
    "Exponential",
    "Full",
    "InputError",
    "Ladder",
    "LedgerError",
    "Model",
    "Multilevel",
    "Plain",
    "PosteriorError",
    "Progress",
    "Randomised",
    "Randomized",
    "Result",
    "Status",
    "Synchronous",
    "TallClassifier",
    "TallCountRegressor",
    "TallRegressor",
    "TallbayesError",
    "Taylor",
    "Tuning",
    "WithReplacement",
    "WithoutReplacement",
    "WorkerError",
    "baselines",
    "constraints",
    "estimate",
    "families",
    "fit",
    "from_numpyro",
    "ingest",
    "load",
    "merge_ledgers",
    "open_table",
    "write_table",
]

if TYPE_CHECKING:
    from tallbayes import baselines, constraints, families
    from tallbayes.adapters.fit import fit
    from tallbayes.adapters.ingest import ingest
    from tallbayes.adapters.numpyro import from_numpyro
    from tallbayes.adapters.sklearn import TallClassifier, TallCountRegressor, TallRegressor
    from tallbayes.couplings import Antithetic, Synchronous
    from tallbayes.dynamics import Euler, Exponential
    from tallbayes.errors import DependencyError, InputError, LedgerError, PosteriorError, TallbayesError, WorkerError
    from tallbayes.estimation import estimate
    from tallbayes.gradients import Blend, ControlVariate, Full, Plain, Taylor
    from tallbayes.ladder import Ladder
    from tallbayes.ledger import merge_ledgers
    from tallbayes.method import Anchored, Multilevel, Randomised, Randomized
    from tallbayes.minibatch import Blocks, WithoutReplacement, WithReplacement
    from tallbayes.model import Model
    from tallbayes.progress import Progress
    from tallbayes.result import Estimate, Result, Status, Tuning
    from tallbayes.storage import load
    from tallbayes.stored import open_table
    from tallbayes.writing import write_table


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tallbayes.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"tallbayes.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tallbayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
