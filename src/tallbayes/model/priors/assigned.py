"""Which parameters of a model have which priors: in the coordinates of theta, leaf by leaf.

    log p(theta) = sum over leaves, laws of a leaf, places of a law:  log f((theta - centre) / scale; shape)

Numbers of a leaf that share a law are one run of it, with arrays of centres and scales: ten thousand coefficients
cost what one does. A leaf whose last axis has the columns may have others before it, as those of classes do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.errors import ModelError, explain, suggestion
from tallbayes.model.catalogue import NOISE, SIGMA
from tallbayes.model.priors.laws import LAWS
from tallbayes.model.priors.named import as_prior
from tallbayes.model.priors.prior import Prior
from tallbayes.model.priors.shrinkage import ShrinkagePrior
from tallbayes.moments import Floats
from tallbayes.programs.later import jnp

if TYPE_CHECKING:
    from tallbayes.model.parts.extras import ExtraPart

ALIASES = {"Intercept": "intercept", SIGMA: NOISE.name}


class LawRun(NamedTuple):
    """Numbers of a leaf that have one law: their places along its last axis, all where there are none to tell."""

    law: str
    shape: tuple[float, ...]
    places: Any
    centre: Any
    scale: Any

    def log_density(self, leaf: Any) -> Any:
        """The sum of log f, without constants."""
        part = leaf if self.places is None else leaf[..., self.places]
        return jnp.sum(LAWS[self.law].log_density((part - self.centre) / self.scale, *self.shape))


Leaves = Mapping[str, tuple[LawRun, ...]]


@dataclass(frozen=True, eq=False)
class Priors:
    """The priors of a model, by leaf of theta."""

    leaves: Leaves

    @property
    def runs(self) -> list[LawRun]:
        return [run for leaf in self.leaves.values() for run in leaf]

    @property
    def log_concave(self) -> bool:
        return all(LAWS[run.law].log_concave for run in self.runs)

    @property
    def moments(self) -> float:
        """The order up to which all of them have any; flat ones, which the rows must hold, apart."""
        return min((LAWS[run.law].moments(*run.shape) for run in self.runs if LAWS[run.law].proper), default=inf)

    def log_constant(self, shapes: Mapping[str, tuple[int, ...]]) -> float:
        """What the log densities of proper laws leave out, for leaves of these shapes."""
        total = 0.0
        for name, leaf in self.leaves.items():
            for run in leaf:
                if not LAWS[run.law].proper:
                    continue
                own = shapes[name] if run.places is None else (*shapes[name][:-1], len(run.places))
                scales = np.broadcast_to(np.asarray(run.scale, np.float64), own)
                total -= scales.size * LAWS[run.law].log_normaliser(*run.shape) + float(np.sum(np.log(scales)))
        return total


def log_density(leaves: Leaves, theta: Any) -> Any:
    """log p of a vector or of a dict, without constants."""
    parts = theta if isinstance(theta, dict) else {"coefficients": theta}
    return jnp.sum(jnp.stack([run.log_density(parts[name]) for name, leaf in leaves.items() for run in leaf]))


def runs_of(priors: Prior | Sequence[Prior]) -> tuple[LawRun, ...]:
    """Those of one prior for all numbers of a leaf, or of one for each."""
    if isinstance(priors, Prior):
        return (LawRun(priors.law, priors.shape, None, priors.centre, priors.scale),)
    kinds: dict[tuple[str, tuple[float, ...]], list[int]] = {}
    for place, each in enumerate(priors):
        kinds.setdefault((each.law, each.shape), []).append(place)
    found = []
    for (law, shape), places in kinds.items():
        centre, scale = (np.array([getattr(priors[place], what) for place in places]) for what in ("centre", "scale"))
        # The plainest text that says it: equal numbers are one.
        parts = [float(each[0]) if np.all(each == each[0]) else each for each in (centre, scale)]
        found.append(LawRun(law, shape, None if len(kinds) == 1 else np.array(places), *parts))
    return tuple(found)


def without_shrinkage(priors: Any) -> tuple[Any, ShrinkagePrior | None]:
    """Priors of single numbers by the names of theta, and that of all coefficients together, if it is one of these."""
    together = priors.get("coefficients") if isinstance(priors, Mapping) else None
    if isinstance(together, str):
        together = as_prior(together, "coefficients")
    if not isinstance(together, ShrinkagePrior):
        return priors, None
    return {name: each for name, each in priors.items() if name != "coefficients"}, together


def assign(
    given: Mapping[str, Any], scales: Mapping[str, Any], extras: tuple[ExtraPart, ...]
) -> tuple[Priors, dict[str, Any], tuple[ExtraPart, ...], tuple[tuple[str, str], ...]]:
    """The priors of the leaves that `scales` names, about how wide they are, the extras with theirs, and in words what
    was stated; leaves that are not given are normal of these scales, and extras keep their usual laws."""
    if not isinstance(given, Mapping):
        raise ModelError(explain("priors by name", repr(given), 'priors={"coefficients": tb.priors.normal(0, 1)}'))
    by_name = {ALIASES.get(name, name): each for name, each in given.items()}
    known = [*scales, *(extra.name for extra in extras if extra.is_statable)]
    for name in by_name:
        if name not in known:
            hint = suggestion(str(name), known, f"priors can be stated of {', '.join(known)}")
            raise ModelError(explain("priors of parameters of this model", repr(name), hint))
    leaves: dict[str, tuple[LawRun, ...]] = {}
    spreads: dict[str, Any] = {}
    said: list[tuple[str, str]] = []
    for name, scale in scales.items():
        if name not in by_name:
            leaves[name], spreads[name] = (_default(scale),), scale
            continue
        own = _own(by_name[name], name, False)
        leaves[name] = runs_of(own)
        spreads[name] = own.spread if isinstance(own, Prior) else np.array([each.spread for each in own])
        said += [(name, own.text)] if isinstance(own, Prior) else [(f"{name}[{k}]", e.text) for k, e in enumerate(own)]
    beside = []
    for extra in extras:
        if extra.name in by_name:
            positive = extra.space != "real"
            stated = require_kind(as_prior(by_name[extra.name], extra.name), extra.name, positive, False)
            extra = replace(extra, stated=stated)
            said.append((extra.name, stated.text))
        beside.append(extra)
    return Priors(leaves), spreads, tuple(beside), tuple(said)


def _default(scale: Any) -> LawRun:
    """Infinite scales make nothing of z, which is flat."""
    return LawRun("normal", (), None, 0.0, scale)


def _own(given: Any, name: str, positive: bool) -> Prior | tuple[Prior, ...]:
    if isinstance(given, list | tuple) and not isinstance(given, Prior) and name == "coefficients":
        return tuple(require_kind(as_prior(each, name), name, positive, False) for each in given)
    return require_kind(as_prior(given, name), name, positive, False)


def require_kind(prior: Any, name: str, positive: bool, standardised: bool = True) -> Prior:
    """A prior of a positive number for one that is, and of any number for any other; and one that is not stated for
    standardised columns, where there are none."""
    if isinstance(prior, Prior) and prior.standardised and standardised is False:
        hint = "columns that are standardised before, or a formula, tb.fit"
        raise ModelError(explain(f"a prior of {name!r} in the units of x", prior.text, hint))
    if not isinstance(prior, Prior):
        raise ModelError(explain(f"a prior of one number for {name!r}", str(prior), "normal(0, 1), say"))
    if positive and not (prior.positive or prior.law == "flat"):
        half = f"half_{prior.law}" if f"half_{prior.law}" in LAWS else "half_normal"
        raise ModelError(explain(f"a prior above 0 for {name!r}, which is a scale", prior.text, f"{half}(...)"))
    if not positive and prior.positive:
        plain = prior.law.removeprefix("half_") if prior.law.startswith("half_") else "normal"
        hint = f"{plain}(...)"
        raise ModelError(explain(f"a prior on both sides of 0 for {name!r}, a coefficient", prior.text, hint))
    return prior


def own_log_prior(own: Mapping[str, Any], theta: Any) -> Any:
    """Of laws that were stated, or of the scales of Gaussian ones, up to their constants."""
    if any(isinstance(each, tuple) for each in own.values()):
        return log_density(own, theta)
    return sum(-0.5 * jnp.sum((theta[name] / scale) ** 2) for name, scale in own.items())


def gaussian_leaves(scales: Mapping[str, Any]) -> Leaves:
    """Where nothing is stated: normal priors of these scales."""
    return {name: (_default(scale),) for name, scale in scales.items()}


def draws_of(
    leaves: Leaves, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator, count: int
) -> dict[str, Floats]:
    """So many draws of every leaf, along the first axis."""
    found: dict[str, Floats] = {}
    for name, leaf in leaves.items():
        values = np.empty((count, *shapes[name]))
        for run in leaf:
            law, own = LAWS[run.law], values if run.places is None else values[..., run.places]
            if not (law.proper and np.all(np.isfinite(run.scale))):
                what = "all coefficients" if name == "coefficients" and run.places is None else f"the {name}"
                hint = "a proper prior for it, such as tb.priors.normal(0, 2.5)"
                raise ModelError(explain("priors that can be drawn from", f"a flat one of {what}", hint))
            drawn = run.centre + run.scale * law.draw(rng, own.shape, *run.shape)
            if run.places is None:
                values = drawn
            else:
                values[..., run.places] = drawn
        found[name] = values
    return found
