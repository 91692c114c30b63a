"""tallbayes: posterior expectations to a prescribed accuracy, for models of many rows.

Names are loaded when first used, so that importing tallbayes imports no JAX and changes no setting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Anchored": "methods.anchored",
    "Antithetic": "sampler.couplings",
    "Blend": "sampler.gradients",
    "Blocks": "sampler.minibatch",
    "ControlVariate": "sampler.gradients",
    "DependencyError": "errors",
    "Estimate": "results.result",
    "Euler": "sampler.dynamics",
    "Evidence": "evidence.evidence",
    "Exponential": "sampler.dynamics",
    "Full": "sampler.gradients",
    "Groups": "model.groups.integral",
    "InputError": "errors",
    "Kinetic": "sampler.kinetic",
    "Ladder": "estimator.ladder",
    "LedgerError": "errors",
    "Model": "model.model",
    "Multilevel": "methods.multilevel",
    "Plain": "sampler.gradients",
    "PosteriorError": "errors",
    "Progress": "progress",
    "Randomised": "methods.randomised",
    "Randomized": "methods.randomised",
    "Result": "results.result",
    "Status": "results.result",
    "Synchronous": "sampler.couplings",
    "TallClassifier": "doors.sklearn.estimators",
    "TallCountRegressor": "doors.sklearn.estimators",
    "TallRegressor": "doors.sklearn.estimators",
    "TallbayesError": "errors",
    "Taylor": "sampler.gradients",
    "Tuning": "results.result",
    "Weighted": "methods.weighted",
    "WithReplacement": "sampler.minibatch",
    "WithoutReplacement": "sampler.minibatch",
    "WorkerError": "errors",
    "cache_programs": "programs.disk_cache",
    "estimate": "estimation.estimate",
    "fit": "formula.fit",
    "from_bambi": "doors.pymc.bambi",
    "from_numpyro": "doors.numpyro.model",
    "from_pymc": "doors.pymc.model",
    "history": "arrivals.history",
    "ingest": "rows.ingest",
    "load": "results.result_file",
    "merge_ledgers": "records.ledger",
    "open_table": "rows.on_disk",
    "prior_predictive": "formula.priors.predictive",
    "rank": "leave_one_out.ranking",
    "write_table": "rows.writing",
}
_MODULES = {
    "baselines": "baselines",
    "constraints": "model.constraints",
    "families": "model.families",
    "priors": "model.priors.named",
}

__all__ = [
    "Anchored",
    "Antithetic",
    "Blend",
    "Blocks",
    "ControlVariate",
    "DependencyError",
    "Estimate",
    "Euler",
    "Evidence",
    "Exponential",
    "Full",
    "Groups",
    "InputError",
    "Kinetic",
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
    "Weighted",
    "WithReplacement",
    "WithoutReplacement",
    "WorkerError",
    "baselines",
    "cache_programs",
    "constraints",
    "estimate",
    "families",
    "fit",
    "from_bambi",
    "from_numpyro",
    "from_pymc",
    "history",
    "ingest",
    "load",
    "merge_ledgers",
    "open_table",
    "prior_predictive",
    "priors",
    "rank",
    "write_table",
]

if TYPE_CHECKING:
    __version__: str
    from tallbayes import baselines
    from tallbayes.arrivals.history import history
    from tallbayes.doors.numpyro.model import from_numpyro
    from tallbayes.doors.pymc.bambi import from_bambi
    from tallbayes.doors.pymc.model import from_pymc
    from tallbayes.doors.sklearn.estimators import TallClassifier, TallCountRegressor, TallRegressor
    from tallbayes.errors import DependencyError, InputError, LedgerError, PosteriorError, TallbayesError, WorkerError
    from tallbayes.estimation.estimate import estimate
    from tallbayes.estimator.decisions import Tuning
    from tallbayes.estimator.estimates import Estimate, Status
    from tallbayes.estimator.ladder import Ladder
    from tallbayes.evidence.evidence import Evidence
    from tallbayes.formula.fit import fit
    from tallbayes.formula.priors.predictive import prior_predictive
    from tallbayes.leave_one_out.ranking import rank
    from tallbayes.methods.anchored import Anchored
    from tallbayes.methods.multilevel import Multilevel
    from tallbayes.methods.randomised import Randomised, Randomized
    from tallbayes.methods.weighted import Weighted
    from tallbayes.model import constraints, families
    from tallbayes.model.groups.integral import Groups
    from tallbayes.model.model import Model
    from tallbayes.model.priors import named as priors
    from tallbayes.programs.disk_cache import cache_programs
    from tallbayes.progress import Progress
    from tallbayes.records.ledger import merge_ledgers
    from tallbayes.results.result import Result
    from tallbayes.results.result_file import load
    from tallbayes.rows.ingest import ingest
    from tallbayes.rows.on_disk import open_table
    from tallbayes.rows.writing import write_table
    from tallbayes.sampler.couplings import Antithetic, Synchronous
    from tallbayes.sampler.dynamics import Euler, Exponential
    from tallbayes.sampler.gradients import Blend, ControlVariate, Full, Plain, Taylor
    from tallbayes.sampler.kinetic import Kinetic
    from tallbayes.sampler.minibatch import Blocks, WithoutReplacement, WithReplacement


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # The version is written in pyproject.toml alone; to look it up takes as long as the whole of --help.
        return import_module("importlib.metadata").version("tallbayes")
    if name in _MODULES:
        return import_module(f"tallbayes.{_MODULES[name]}")
    if name in _HOMES:
        value = getattr(import_module(f"tallbayes.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tallbayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
