"""From a result to its evidence: rows and model found, constants added, errors put together."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.stats import t as student

from tallbayes.errors import InputError, explain
from tallbayes.estimator.estimates import Status
from tallbayes.evidence.constants import log_constant, require_proper
from tallbayes.evidence.densities import LogPosterior
from tallbayes.evidence.estimate import mean_over_gaussian
from tallbayes.evidence.evidence import Evidence
from tallbayes.evidence.gaussians import laplace
from tallbayes.evidence.integration import Integration, IntegrationEnd
from tallbayes.model.model import Target
from tallbayes.model.weights import WEIGHT
from tallbayes.results.fitted import fitted_with_prior, kept_posterior, require_law
from tallbayes.results.result import Result
from tallbayes.rows.table import Table

# Rows times draws: some minutes.
MOST_ROWS_READ = 4e9
# Of rows that are held in float32, each by itself.
ROUNDING = 2.0**-22
OWN = "of the log prior and the log likelihood as they are written: their constants are their owner's"
BY_WEIGHT = "rows count by their weights: the likelihood is the weighted one"
SECOND_MODE = "of the part of the posterior about the heaviest mode: with the others it is larger"


def evidence(
    result: Result, tolerance: float = 0.01, seed: int | None = None, max_evaluations: float | None = None
) -> Evidence:
    """log p(y) of what a result was fitted to; see `Result.evidence`."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number) or not tolerance > 0:
        raise InputError(explain("a tolerance > 0, in nats", repr(tolerance), "0.01"))
    require_law(result, "an evidence")
    begun, anchor, fitted = time.monotonic(), kept_posterior(result).anchor, fitted_with_prior(result)
    target, table = fitted.target, fitted.table
    require_proper(target, anchor.mode, _columns(result))
    log_posterior = LogPosterior(target, table)
    chosen = int(result.settings.get("seed", 0)) if seed is None else int(seed)
    most = MOST_ROWS_READ if max_evaluations is None else float(max_evaluations)
    found = Integration(log_posterior, anchor, float(tolerance), chosen, most).run()
    at_mode = laplace(log_posterior, anchor)
    status = Status.second_mode if result.modes else found.status
    notes = (*_notes(target, table, result), *found.notes)
    constant = log_constant(target, table)
    return _concluded(found, constant, at_mode, status, notes, float(tolerance), log_posterior, begun)


def _concluded(
    found: IntegrationEnd,
    constant: float,
    at_mode: float,
    status: Status,
    notes: tuple[str, ...],
    tolerance: float,
    log_posterior: LogPosterior,
    begun: float,
) -> Evidence:
    weighed, now = found.weighed, found.weighed.estimate
    bound, value = mean_over_gaussian(weighed.beyond, weighed.log_gaussian), now.value + constant
    bias = now.bias_bound + found.integral_bias + ROUNDING * np.sqrt(log_posterior.table.num_rows)
    half = float(student.ppf(0.975, max(now.freedom, 1.0))) * now.standard_error + bias
    return Evidence(
        value=value,
        standard_error=now.standard_error,
        bias_bound=bias,
        interval=(value - half, value + half),
        tolerance=tolerance,
        status=status,
        laplace=at_mode + constant,
        elbo=bound.value + constant,
        elbo_error=bound.standard_error,
        draws=len(weighed.z),
        rows_read=log_posterior.rows_read,
        num_rows=log_posterior.table.num_rows,
        parameters=weighed.z.shape[1],
        efficiency=weighed.weights.efficiency,
        seconds=time.monotonic() - begun,
        notes=notes,
    )


def _notes(target: Target, table: Table, result: Result) -> tuple[str, ...]:
    inner: Any = table.rows.get("rows", table.rows) if isinstance(table.rows, dict) else {}
    said = [OWN] if target.parts is None else []
    said += [BY_WEIGHT] if isinstance(inner, dict) and WEIGHT in inner else []
    said += [SECOND_MODE] if result.modes else []
    return tuple(said)


def _columns(result: Result) -> tuple[str, ...]:
    """Names of the coefficients, where a formula gave them."""
    coding: Any = {} if result.encoding is None else result.encoding.get("coding", {})
    return tuple(coding.get("names", ()))
