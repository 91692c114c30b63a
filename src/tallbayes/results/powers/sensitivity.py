"""Sensitivity: how far posterior means and sds move with the power of the prior and of the likelihood.

    d E g / d log2 alpha = log 2 Cov(g, log p),   d sd / d log2 alpha = log 2 Cov((g - E g)^2, log p) / (2 sd)

at alpha = 1, in posterior sds; log p is the log prior, a part of it, or the log likelihood (power-scaling, as in
priorsense). Read off what a fit kept, without sampling anew and without rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.results.coefficients import Number, own_parameters, parameter_names
from tallbayes.results.fitted import fitted_with_prior, kept_posterior
from tallbayes.results.result import Result

if TYPE_CHECKING:
    import pandas

PRIOR, LIKELIHOOD = "prior", "likelihood"
# In posterior sds per doubling: what counts as sensitive; priorsense has the same number for its distance.
THRESHOLD = 0.05
MOST_PARAMETERS = 512
WEAK = "the data say little"
CONFLICT = "prior and data disagree"
DRAWN = "the prior draws it"
MEANINGS = {
    WEAK: "its sd hangs more on the prior than on the likelihood",
    CONFLICT: "the prior pulls its mean one way and the likelihood the other",
    DRAWN: "the prior moves its mean or its sd, and the likelihood says more",
}


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """By parameter: how far its mean and its sd move, in posterior sds, where the power of one density is doubled.

    `values` are (densities, parameters, 2), mean and sd last, with `standard_errors` and `bias_bounds`; densities are
    the parts of the prior by name, if it has any, then "prior", the whole of it, and "likelihood". A slope at power 1:
    doubling itself moves a mean by roughly so much. `threshold` is what counts as sensitive, `priors` are those that
    were stated, by name and in words.
    """

    names: tuple[str, ...]
    densities: tuple[str, ...]
    values: Floats
    standard_errors: Floats
    bias_bounds: Floats
    threshold: float = THRESHOLD
    notes: tuple[str, ...] = ()
    priors: tuple[tuple[str, str], ...] = ()

    @property
    def errors(self) -> Floats:
        """sqrt(se^2 + bias bound^2) of every number."""
        return np.hypot(self.standard_errors, self.bias_bounds)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the prior, those first that move some number most."""
        own = [each for each in self.densities if each not in (PRIOR, LIKELIHOOD)]
        return tuple(sorted(own, key=lambda each: -self.most(each)))

    @property
    def ranked(self) -> tuple[str, ...]:
        """Parameters, those first whose mean or sd hangs most on the prior."""
        size = np.abs(self.values[self._place(PRIOR)]).max(axis=1)
        return tuple(self.names[place] for place in np.argsort(-size, kind="stable"))

    def stated(self, part: str) -> str:
        """The prior that was stated for a part, in words: that of its name, or of the term that it is of."""
        words = dict(self.priors)
        term = re.sub(r"\[[^\[\]]*\]", "", part)
        return words.get(part, words.get(term, ""))

    def most(self, density: str) -> float:
        """The most that it moves any mean or sd."""
        return float(np.abs(self.values[self._place(density)]).max())

    def mean(self, parameter: str, density: str = PRIOR) -> Number:
        """How far a mean moves."""
        return self._number(parameter, density, 0)

    def sd(self, parameter: str, density: str = PRIOR) -> Number:
        """How far an sd moves."""
        return self._number(parameter, density, 1)

    def hangs_on(self, parameter: str) -> str:
        """The part of the prior that moves it most; empty where the prior has no parts."""
        own = [each for each in self.densities if each not in (PRIOR, LIKELIHOOD)]
        place = self._parameter(parameter)
        return max(own, key=lambda each: np.abs(self.values[self._place(each), place]).max(), default="")

    def finding(self, parameter: str) -> str:
        """In a few words; empty where it is not sensitive to the prior. `MEANINGS` say more.

        A parameter is sensitive where the prior moves its mean or its sd by more than the threshold. Then the data say
        little where the prior moves its sd by more than the likelihood does; prior and data disagree where both move
        its mean by more than the threshold, apart; else the prior draws it.
        """
        (a, b), (c, d) = (self.values[self._place(each), self._parameter(parameter)] for each in (PRIOR, LIKELIHOOD))
        if not max(abs(a), abs(b)) > self.threshold:
            return ""
        if abs(b) > max(abs(d), self.threshold):
            return WEAK
        return CONFLICT if min(abs(a), abs(c)) > self.threshold and a * c < 0 else DRAWN

    @property
    def sensitive(self) -> tuple[str, ...]:
        """Parameters of which there is something to say, ranked."""
        return tuple(name for name in self.ranked if self.finding(name))

    def __len__(self) -> int:
        return len(self.names)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a parameter and a density, with errors beside the numbers."""
        frame = require_extra("pandas", "data", "data frames").DataFrame
        rows = [(name, density) for name in self.names for density in self.densities]
        columns: dict[str, object] = {"parameter": [a for a, _ in rows], "density": [b for _, b in rows]}
        errors = self.errors
        for place, what in enumerate(("mean", "sd")):
            columns |= {what: self.values[:, :, place].T.ravel(), f"{what}_error": errors[:, :, place].T.ravel()}
        return frame(columns | {"finding": [self.finding(name) for name, _ in rows]})

    def __str__(self) -> str:
        from tallbayes.views.sensitivity import sensitivity_text

        return sensitivity_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.sensitivity import sensitivity_html

        return sensitivity_html(self)

    def _number(self, parameter: str, density: str, which: int) -> Number:
        place = self._place(density), self._parameter(parameter), which
        return Number(float(self.values[place]), float(self.errors[place]))

    def _place(self, density: str) -> int:
        if density not in self.densities:
            raise InputError(explain("a part of the prior", repr(density), f"one of {', '.join(self.densities)}"))
        return self.densities.index(density)

    def _parameter(self, name: str) -> int:
        if name not in self.names:
            raise InputError(explain("the name of a parameter", repr(name), f"one of {', '.join(self.names[:20])}"))
        return self.names.index(name)


def sensitivity(result: Result) -> Sensitivity:
    """Of all parameters, but for effects of groups that are parameters themselves."""
    from tallbayes.results.powers.covariances import make_ensemble
    from tallbayes.results.powers.priors import density_integrand, prior_parts

    posterior = kept_posterior(result)
    _require_small(len(posterior.anchor.mode), posterior.anchor.precision)
    names = parameter_names(result)[: own_parameters(result)]
    target: Target = posterior.live[0] if posterior.live is not None else fitted_with_prior(result).target
    parts = prior_parts(posterior, target)
    ensemble = make_ensemble(posterior, density_integrand(posterior, target, parts, len(names)), len(names))
    densities = (*(part.name for part in parts), PRIOR, LIKELIHOOD)
    found = [ensemble.powered(len(names) + k, name == LIKELIHOOD) for k, name in enumerate(densities)]
    # What a run says that no draws remove, in posterior sds, moves what hangs on it by no more.
    left = posterior.rungs.left
    values, errors, bounds = (
        np.stack([getattr(each, what) for each in found]) for what in ("value", "standard_error", "bias_bound")
    )
    bounds = bounds + left * np.abs(values)
    priors = () if target.parts is None else target.parts.words
    return Sensitivity(tuple(names), densities, values, errors, bounds, notes=_notes(result), priors=priors)


def _notes(result: Result) -> tuple[str, ...]:
    notes = []
    if result.factors:
        notes.append("the law of the effects of groups, given their scales, is counted as likelihood")
    if result.posterior is not None and result.posterior.weighted is None:
        notes.append(
            "likelihood: beyond the Gaussian it is known by how far means and sds are from that one's, "
            "which the bias bound allows for"
        )
    return tuple(notes)


def _require_small(size: int, precision: object) -> None:
    if size > MOST_PARAMETERS or isinstance(precision, Arrowhead):
        hint = "effects of that category as groups, (1 | category), which are integrated out"
        raise InputError(explain(f"at most {MOST_PARAMETERS} parameters and a dense Gaussian", f"{size:,}", hint))
