"""The answer: every row by its cavity, the rows that matter most and a sample of the others certified, and the errors.

    elpd = sum_i f_i + sum_chosen a_i (c_i - f_i),   a_i = 1 of those that matter most, else how many a row stands for
    variance: of the draws Var psi / S;  of which rows were drawn (N - K)^2 / n Var (c_i - f_i);  of the two halves

DrawsAbout are added until that is a small part of the sampling error, or until they have read as many rows as they may.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import InputError, explain
from tallbayes.estimator.levels import Stream
from tallbayes.gaussian.whitening import Whitening
from tallbayes.leave_one_out.cavity import answers, has_cavity
from tallbayes.leave_one_out.centring import centred
from tallbayes.leave_one_out.certificate import Certified, Integrals, certify, known
from tallbayes.leave_one_out.own_nodes import place_nodes
from tallbayes.leave_one_out.relocation import foreseen, relocate
from tallbayes.leave_one_out.rows import ChosenRows, choose, constants_of_chunk
from tallbayes.leave_one_out.weighing import MOST_DENSITIES, AllRows, SomeRows, balanced, weigher
from tallbayes.leave_one_out.within import MOST_BENT, RowsOfGroups, rows_of_groups
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.results.fitted import Fitted
from tallbayes.rows.table import Table, capacity_for
from tallbayes.weighing.proposal import BLOCK_DRAWS, Proposal
from tallbayes.weighing.weights import Weights

FIRST_DRAWS, MOST_DRAWS, MOST_GROWTH = 512, 8192, 8.0
# So few rows are certified all; of more, those that matter most and a random sample of the others.
ALL_ROWS, HEAVY_ROWS, SAMPLED_ROWS = 2_048, 512, 1_024
# Densities of rows within groups at nodes and draws: some minutes at the most.
MOST_WITHIN = 4e9
MOST_NAMED = 10
MOST_RELOCATED = 256
PROBABILITY, QUANTILE = 0.975, 1.96


@dataclass(frozen=True, eq=False)
class Answer:
    """Sums over all rows with their errors, the rows that matter most by their places in the table, and, where it was
    asked for, every row's own."""

    elpd: float
    sampling_error: float
    standard_error: float
    bias_bound: float
    quantile: float
    p_loo: float
    p_loo_error: float
    draws: int
    certified_rows: int
    named: np.ndarray
    named_elpd: Floats
    named_influence: Floats
    named_leverage: Floats
    trouble: str
    notes: tuple[str, ...]
    pointwise: Floats | None


class Rows(NamedTuple):
    """What the pass found: sums over all rows, and those that matter most by how much their density falls."""

    elpd: float
    square: float
    fitted: float
    places: np.ndarray
    pointwise: Floats | None
    bias: float = 0.0


class LeftOutDraws(NamedTuple):
    z: Floats
    log_gaussian: Floats
    log_posteriors: list[Floats]

    @property
    def log_ratios(self) -> list[Floats]:
        """log pi / q, by all that is known and, where that is a sample, by its halves."""
        log_proposal = -0.5 * np.sum(self.z**2, axis=1) - self.log_gaussian
        return [each - log_proposal for each in self.log_posteriors]


def answer(
    target: Target, table: Table, anchor: Anchor, response_scale: float, tolerance: float, seed: int, pointwise: bool
) -> Answer:
    """Of all rows; every row's own in the order of the table."""
    anchor, count = balanced(target, table, anchor), table.num_rows
    everyone = count <= ALL_ROWS or not has_cavity(target)
    if not has_cavity(target) and count * FIRST_DRAWS > MOST_DENSITIES:
        got = f"{count:,} rows of a model without one"
        hint = "a family of tb.families, or tb.Model(..., predictor=...); or fewer rows"
        raise InputError(explain("a model with a linear predictor of at most 3 parts for so many rows", got, hint))
    passed = _pass(target, table, anchor, response_scale, pointwise, everyone)
    chosen = _chosen(table, passed.places, everyone, seed)
    facts = known(target, chosen.rows, anchor.mode, anchor.whitener)
    source = weigher(target, table, anchor, chosen.part(chosen.counts == 1), FIRST_DRAWS)
    return _by_draws(source, chosen, facts, passed, response_scale, count, tolerance, seed)


def answer_within(
    fitted: Fitted, anchor: Anchor, response_scale: float, tolerance: float, seed: int, pointwise: bool
) -> Answer:
    """Of all rows of a fit with groups, each given the others of its group; every row's own in the order of groups."""
    rows = rows_of_groups(fitted)
    if rows.work * FIRST_DRAWS > MOST_WITHIN:
        got = f"{len(rows.places):,} rows, at {rows.work // len(rows.places)} nodes each"
        expected = f"up to {int(MOST_WITHIN / FIRST_DRAWS):,} rows times nodes, which hundreds of draws can read"
        raise InputError(explain(expected, got, 'unit="group", or fewer rows'))
    source = centred(AllRows(fitted.target, fitted.table, anchor, rows.work, MOST_WITHIN), seed)
    rows, bias = place_nodes(rows, source.anchor, response_scale, tolerance)
    count = len(rows.places)
    passed = Rows(0.0, 0.0, 0.0, np.arange(count), np.zeros(count) if pointwise else None, bias)
    facts = Integrals(np.zeros(count), np.zeros(count), None)
    return _by_draws(source, rows, facts, passed, response_scale, count, tolerance, seed)


def _by_draws(
    source: AllRows | SomeRows,
    chosen: ChosenRows | RowsOfGroups,
    facts: Integrals,
    passed: Rows,
    response_scale: float,
    count: int,
    tolerance: float,
    seed: int,
) -> Answer:
    """With as many draws as it takes."""
    target, anchor = source.target, source.anchor
    draws = _more(None, source, seed, FIRST_DRAWS)
    while True:
        found = _certified(source, chosen, facts, anchor.whitener, draws)
        whole = _together(target, chosen, passed, found, draws, response_scale, count, anchor)
        reached = np.hypot(whole.standard_error, whole.bias_bound) / (tolerance * whole.sampling_error)
        most = min(MOST_DRAWS, int(source.most / source.rows_read) // FIRST_DRAWS * FIRST_DRAWS)
        if (reached <= 1 and not whole.trouble) or len(draws.z) >= most:
            return whole
        growth = np.clip(1.1 * reached**2, 2, MOST_GROWTH) if np.isfinite(reached) else MOST_GROWTH
        draws = _more(draws, source, seed, min(most, ceil(growth * len(draws.z) / FIRST_DRAWS) * FIRST_DRAWS))


def _pass(target: Target, table: Table, anchor: Anchor, response_scale: float, pointwise: bool, everyone: bool) -> Rows:
    """Every row by its cavity, constants included; nothing but sums where there is no cavity."""
    if not has_cavity(target):
        return Rows(0.0, 0.0, 0.0, np.arange(table.num_rows), np.zeros(table.num_rows) if pointwise else None)
    most = table.num_rows if everyone else HEAVY_ROWS
    total = square = fitted = 0.0
    places, sizes = np.empty(0, np.int64), np.empty(0)
    kept = np.empty(table.num_rows) if pointwise else None
    # Squares about a number near their mean keep their digits.
    shift = None
    for start, found in answers(target, table, anchor.mode, anchor.whitener):
        own = found.elpd + constants_of_chunk(target, table, start, response_scale)
        shift = float(np.mean(own)) if shift is None else shift
        total, square = total + own.sum(), square + float(np.sum((own - shift) ** 2))
        fitted += found.fitted.sum() - found.elpd.sum()
        size = np.nan_to_num(found.fitted - found.elpd, nan=np.inf)
        places, sizes = np.append(places, start + np.arange(len(own))), np.append(sizes, size)
        largest = np.argsort(-sizes, kind="stable")[:most]
        places, sizes = places[largest], sizes[largest]
        if kept is not None:
            kept[start : start + len(own)] = own
    variance = square / table.num_rows - (total / table.num_rows - (shift or 0.0)) ** 2
    return Rows(float(total), float(variance), float(fitted), places, kept)


def _chosen(table: Table, heavy: np.ndarray, everyone: bool, seed: int) -> ChosenRows:
    if everyone:
        return choose(table, np.sort(heavy), np.ones(len(heavy)))
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(Stream.LEFT_OUT), 0]))
    others = np.unique(rng.integers(0, table.num_rows, SAMPLED_ROWS))
    others = np.setdiff1d(others, heavy)
    counts = np.concatenate([np.ones(len(heavy)), np.full(len(others), (table.num_rows - len(heavy)) / len(others))])
    return choose(table, np.concatenate([heavy, others]), counts)


def _more(draws: LeftOutDraws | None, source: AllRows | SomeRows, seed: int, count: int) -> LeftOutDraws:
    """So many draws, of which there are some; a block is a pure function of the seed and its number."""
    proposal = source.bent or Proposal.about(len(source.anchor.mode), seed)
    first = 0 if draws is None else len(draws.z) // BLOCK_DRAWS
    z = np.concatenate([proposal.block(k, Stream.LEFT_OUT) for k in range(first, count // BLOCK_DRAWS)])
    found = LeftOutDraws(z, proposal.log_gaussian(z), source.log_posteriors(source.anchor.displacements(z)))
    if draws is None:
        return found
    both = [np.concatenate(each) for each in zip(draws.log_posteriors, found.log_posteriors, strict=True)]
    return LeftOutDraws(
        np.concatenate([draws.z, found.z]), np.concatenate([draws.log_gaussian, found.log_gaussian]), both
    )


@dataclass(frozen=True, eq=False)
class Found:
    """What draws say of the chosen rows, and by how much each half of a sample would have said otherwise."""

    main: Certified
    apart: float
    trouble: str
    notes: tuple[str, ...]
    doubts: Floats


def _certified(
    source: AllRows | SomeRows,
    chosen: ChosenRows | RowsOfGroups,
    facts: Integrals,
    whitening: Whitening,
    draws: LeftOutDraws,
) -> Found:
    mode, ratios = source.anchor.mode, draws.log_ratios
    finite = np.isfinite(ratios[0]).all()
    trouble = (
        Weights.of(ratios[0], draws.log_gaussian).trouble if finite else "the posterior is no number at some draws"
    )
    by = partial(certify, source.target, chosen, facts, mode, whitening, draws.z)
    main = by(ratios[0], draws.log_gaussian)
    halves = [by(each, draws.log_gaussian) for each in ratios[1:]]
    apart = abs(float(chosen.counts @ (halves[0].elpd - halves[1].elpd))) / 2 if halves else 0.0
    if trouble:
        return Found(main, apart, f"weights: {trouble}", (), np.zeros(len(main.elpd)))
    main, doubts, notes = _relocated(source, chosen, facts, whitening, draws, main)
    return Found(main, apart, "", notes, doubts)


def _relocated(
    source: AllRows | SomeRows,
    chosen: ChosenRows | RowsOfGroups,
    facts: Integrals,
    whitening: Whitening,
    draws: LeftOutDraws,
    main: Certified,
) -> tuple[Certified, Floats, tuple[str, ...]]:
    """Rows that decide much, by draws of their own: those that are foreseen, whatever the draws have shown. One that is
    taken because its weights turned out heavy is no fair choice: both of its answers are kept apart by the bound.
    """
    affordable = min(int(source.most / (source.rows_read * len(draws.z))), MOST_RELOCATED)
    certain = foreseen(facts)[:affordable]
    if isinstance(chosen, RowsOfGroups) and len(source.anchor.mode) > MOST_BENT:
        affordable = len(certain)
    late = np.setdiff1d(np.flatnonzero(main.troubled), certain)[: affordable - len(certain)]
    if not len(certain) and not main.troubled.any():
        return main, np.zeros(len(main.elpd)), ()
    elpd, by_draw, bias = main.elpd.copy(), main.by_draw.copy(), main.bias
    doubts = np.where(main.troubled, np.inf, 0.0)
    for row in [*certain, *late]:
        part = slice(int(row), int(row) + 1)
        own = chosen.part(part)
        fact = Integrals(facts.cavity[part], facts.fitted[part], _part_of(facts, part))
        found = relocate(own, fact, source, whitening, draws.z, draws.log_gaussian)
        doubts[row] = 0.0 if row in certain else abs(found.elpd - main.elpd[row])
        if found.trouble:
            doubts[row] = np.inf
            continue
        before = certify(
            source.target, own, fact, source.anchor.mode, whitening, draws.z, draws.log_ratios[0], draws.log_gaussian
        )
        elpd[row] = found.elpd
        by_draw += found.by_draw - before.by_draw
        bias += found.bias - before.bias
    notes = [f"{len(certain):,} rows that decide much alone have draws of their own"] if len(certain) else []
    if doubts.any():
        notes.append(f"{np.count_nonzero(doubts):,} rows are doubted: what draws say of them is in the bias bound")
    # Of what no draws tell, the bound is all that they say beyond the cavity.
    return Certified(elpd, main.fitted, by_draw, main.fitted_by_draw, bias, main.troubled), doubts, tuple(notes)


def _part_of(facts: Integrals, part: slice) -> Any:
    return None if facts.shape is None else type(facts.shape)(*(each[part] for each in facts.shape))


def _together(
    target: Target,
    chosen: ChosenRows | RowsOfGroups,
    passed: Rows,
    found: Found,
    draws: LeftOutDraws,
    response_scale: float,
    count: int,
    anchor: Anchor,
) -> Answer:
    """Sums and errors."""
    main, whole = found.main, len(chosen.places) == count
    own = main.elpd + chosen.constants(target, response_scale)
    by_cavity, fitted_by_cavity, leverage = _by_cavity(target, chosen, anchor)
    difference = main.elpd - by_cavity
    fitted_difference = main.fitted - fitted_by_cavity
    size, kurtosis = len(draws.z), _kurtosis(main.by_draw)
    variance = _variance_of_mean(main.by_draw)
    of_p = main.fitted_by_draw - main.by_draw
    p_variance = _variance_of_mean(of_p)
    if whole:
        elpd, spread = float(own.sum()), float(np.var(own))
        p_loo = float((main.fitted - main.elpd).sum())
    else:
        elpd, spread = passed.elpd + float(chosen.counts @ difference), passed.square
        p_loo = passed.fitted + float(chosen.counts @ (fitted_difference - difference))
        light = chosen.counts > 1
        stands = chosen.counts[light].sum()
        variance += stands**2 / light.sum() * float(np.var(difference[light], ddof=1))
        p_variance += stands**2 / light.sum() * float(np.var((fitted_difference - difference)[light], ddof=1))
    doubt = float(chosen.counts @ np.where(np.isinf(found.doubts), np.abs(difference), found.doubts))
    bias = (
        np.inf if found.trouble else passed.bias + abs(main.bias) + doubt + _lopsided(main.by_draw) * np.sqrt(variance)
    )
    pointwise = None if passed.pointwise is None else passed.pointwise.copy()
    if pointwise is not None:
        pointwise[chosen.places] = own
    named = np.argsort(-(main.fitted - main.elpd), kind="stable")[:MOST_NAMED]
    freedom = max(2 * size / max(kurtosis - 1, 2.0), 4.0)
    return Answer(
        elpd=elpd,
        sampling_error=float(np.sqrt(count * spread)),
        standard_error=float(np.sqrt(variance + found.apart**2)),
        bias_bound=float(bias),
        quantile=float(student.ppf(PROBABILITY, freedom)),
        p_loo=p_loo,
        p_loo_error=float(np.sqrt(p_variance + found.apart**2) + bias),
        draws=size,
        certified_rows=len(chosen.places),
        named=chosen.places[named],
        named_elpd=own[named],
        named_influence=(main.fitted - main.elpd)[named],
        named_leverage=leverage[named],
        trouble=found.trouble,
        notes=(*((found.trouble,) if found.trouble else ()), *found.notes),
        pointwise=pointwise,
    )


def _variance_of_mean(by_draw: Floats) -> float:
    """Few draws know their variance roughly, heavy ones mostly too low, and a run ends where it is small: a standard
    error of it is added."""
    size = len(by_draw)
    return float(np.var(by_draw, ddof=1) / size * (1 + np.sqrt((_kurtosis(by_draw) - 1) / size)))


def _lopsided(by_draw: Floats) -> float:
    """By how many standard errors an end of a t interval is off where samples are skewed, to first order."""
    centred = by_draw - by_draw.mean()
    spread = np.sqrt(np.mean(centred**2))
    skewness = abs(float(np.mean(centred**3) / spread**3)) if spread > 0 else 0.0
    return skewness * (2 * QUANTILE**2 + 1) / (6 * np.sqrt(len(by_draw)))


def _kurtosis(numbers: Floats) -> float:
    centred = numbers - numbers.mean()
    variance = np.mean(centred**2)
    return float(np.mean(centred**4) / variance**2) if variance > 0 else 3.0


def _by_cavity(target: Target, chosen: ChosenRows | RowsOfGroups, anchor: Anchor) -> tuple[Floats, Floats, Floats]:
    """What the pass said of the chosen rows, and their leverage; nothing where there is no cavity."""
    count = len(chosen.places)
    if not has_cavity(target) or isinstance(chosen, RowsOfGroups):
        nothing = np.zeros(count)
        return nothing, nothing, np.full(count, np.nan)
    table = _small_table(chosen.rows, count)
    parts = [found for _, found in answers(target, table, anchor.mode, anchor.whitener)]
    elpd, fitted, leverage = (np.concatenate(each) for each in zip(*parts, strict=True))
    return elpd, fitted, leverage


def _small_table(rows: Any, count: int) -> Table:
    capacity = capacity_for(count)

    def padded(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.repeat(leaf[:1], capacity - count, axis=0)])

    return Table(jax.tree.map(padded, rows), count)
