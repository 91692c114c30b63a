"""tallbayes: posterior expectations to a prescribed accuracy, for models of many rows.

Names are loaded when first used, so that importing tallbayes imports no JAX and changes no setting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Antithetic": "couplings",
    "Blend": "gradients",
    "Blocks": "minibatch",
    "ControlVariate": "gradients",
    "Estimate": "result",
    "Euler": "dynamics",
    "Full": "gradients",
    "InputError": "errors",
    "Ladder": "ladder",
    "Model": "model",
    "Multilevel": "method",
    "Plain": "gradients",
    "PosteriorError": "errors",
    "Progress": "progress",
    "Result": "result",
    "Status": "result",
    "Synchronous": "couplings",
    "TallbayesError": "errors",
    "Taylor": "gradients",
    "WithReplacement": "minibatch",
    "WithoutReplacement": "minibatch",
    "estimate": "estimation",
    "load": "storage",
}
_MODULES = ("baselines", "families")

__all__ = [
    "Antithetic",
    "Blend",
    "Blocks",
    "ControlVariate",
    "Estimate",
    "Euler",
    "Full",
    "InputError",
    "Ladder",
    "Model",
    "Multilevel",
    "Plain",
    "PosteriorError",
    "Progress",
    "Result",
    "Status",
    "Synchronous",
    "TallbayesError",
    "Taylor",
    "WithReplacement",
    "WithoutReplacement",
    "baselines",
    "estimate",
    "families",
    "load",
]

if TYPE_CHECKING:
    from tallbayes import baselines, families
    from tallbayes.couplings import Antithetic, Synchronous
    from tallbayes.dynamics import Euler
    from tallbayes.errors import InputError, PosteriorError, TallbayesError
    from tallbayes.estimation import estimate
    from tallbayes.gradients import Blend, ControlVariate, Full, Plain, Taylor
    from tallbayes.ladder import Ladder
    from tallbayes.method import Multilevel
    from tallbayes.minibatch import Blocks, WithoutReplacement, WithReplacement
    from tallbayes.model import Model
    from tallbayes.progress import Progress
    from tallbayes.result import Estimate, Result, Status
    from tallbayes.storage import load


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
