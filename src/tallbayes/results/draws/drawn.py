"""Independent draws of a result: where they come from, what their law is off by, and how they are handed over.

a small table (answered by weights)     by rejection: the posterior's own law, see `rejection`
a shrinkage prior                       draws of chains that the run kept, as far apart as their number allows
a tall one                              ends of fine paths of the finest level, see `ends`
neither, as its rows are not there      those that the run kept, as many as there are
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra, suggestion
from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.results.draws.rejection import Taken, draw_by_rejection, draw_from_stored
from tallbayes.results.fitted import fitted_of, kept_posterior
from tallbayes.results.result import Result
from tallbayes.rows.atomic import replacing
from tallbayes.structure import Structure

if TYPE_CHECKING:
    from tallbayes.groups.known import KnownGroups
    from tallbayes.results.draws.given import EffectDraws

MOST_DRAWS = 2**24
# What a difference in total variation may do to a mean, in sds: it is out where weights are largest.
SDS_OUT = 4.0
# Draws of a chain so far apart have forgotten one another.
MOST_APART = 8


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Independent draws from the posterior, `flat` (count, numbers) in the order of `labels`.

    `value` has them in theta's own structure, with the draws along the first axis. `bias` is what a mean of the law
    that they are of may be off by, in posterior sds; `how` says where they come from, `rows_per_draw` what one took.
    """

    result: Result = field(repr=False)
    flat: Floats = field(repr=False)
    moves: Floats = field(repr=False)
    seed: int
    bias: float
    how: str
    rows_per_draw: float

    def __len__(self) -> int:
        return len(self.flat)

    def __repr__(self) -> str:
        count, numbers = self.flat.shape
        each = f"{self.rows_per_draw:,.0f} rows each, " if self.rows_per_draw else ""
        size, law = f"{count:,} of {numbers:,} numbers", f"law within {self.bias:.2g} sd"
        return f"<tallbayes.PosteriorDraws: {size}, {self.how}; {each}{law}>"

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)

    @property
    def labels(self) -> list[str]:
        """The names of the numbers."""
        return kept_posterior(self.result).labels

    @property
    def value(self) -> Any:
        """In theta's own structure."""
        return stacked(kept_posterior(self.result).parameters.structure, self.flat)

    def __getitem__(self, label: str) -> Floats:
        """Those of one number by its name."""
        if label not in self.labels:
            among = f"{', '.join(self.labels[:8])} and so on"
            raise InputError(explain("the name of a parameter", repr(label), suggestion(label, self.labels, among)))
        return np.asarray(self.flat[:, self.labels.index(label)])

    @property
    def points(self) -> Floats:
        """Where they are in R^d, (count, d)."""
        return kept_posterior(self.result).anchor.mode + self.moves

    def effects(self, by: str | None = None, levels: Sequence[object] | None = None) -> EffectDraws:
        """Of the groups whose effects are integrated out, or of some of their `levels`: one effect for every draw.

        Drawn given the parameters: with normal noise exactly, else by a short chain for each; see
        `tallbayes.results.draws.given` for what that is off by.
        """
        from tallbayes.results.draws.given import EffectDraws, draw_effects

        known = known_groups(self.result)
        groups = known.integral.groups
        if by is not None and by != groups.by:
            hint = f"{groups.by!r}; effects of other factors are parameters, among the draws themselves"
            raise InputError(explain("the factor whose effects are integrated out", repr(by), hint))
        names = level_names(known)
        chosen = range(len(names)) if levels is None else [_place(names, each, groups.by) for each in levels]
        which = np.asarray(known.order)[list(chosen)]
        space = space_of(self.result)
        values, off = draw_effects(known, space, self.points, which, self.seed)
        size = groups.size
        shown = groups.names or (("effect",) if size == 1 else tuple(f"effect[{k}]" for k in range(size)))
        return EffectDraws(groups.by, tuple(names[each] for each in chosen), tuple(shown), values, off)

    def columns(self) -> dict[str, Floats]:
        """By name, one array a number."""
        return {label: self.flat[:, place] for place, label in enumerate(self.labels)}

    def to_pandas(self) -> Any:
        """A data frame of the columns."""
        return require_extra("pandas", "data", "data frames").DataFrame(self.columns())

    def write(self, path: str | os.PathLike[str], effects: bool = False) -> int:
        """Into a .csv, .parquet or .arrow file, a row a draw; with `effects` a column for those of every group too."""
        from tallbayes.rows.formats import WRITERS

        place = Path(path)
        if place.suffix not in WRITERS:
            raise InputError(explain(f"a path ending in {' or '.join(WRITERS)}", repr(place.name), "draws.parquet"))
        arrow = require_extra("pyarrow", "data", "files of draws")
        columns = self.columns()
        if effects:
            own = self.effects()
            for g, level in enumerate(own.levels):
                for k, name in enumerate(own.names):
                    columns[f"{name}|{own.by}[{level}]"] = own.values[:, g, k]
        table = arrow.table(columns)
        with replacing(place) as partial:
            writer = WRITERS[place.suffix](partial, table.schema)
            try:
                writer.write_table(table)
            finally:
                writer.close()
        return len(self)


def draw(result: Result, count: int = 1_000, *, seed: int = 0) -> PosteriorDraws:
    """See `Result.draws`."""
    for name, value, least in (("count", count, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= MOST_DRAWS:
            raise InputError(explain(f"{name} a whole number, at least {least}", repr(value), f"{name}={1000 * least}"))
    count, seed = int(count), int(seed)
    posterior = kept_posterior(result)
    left = posterior.rungs.left
    if posterior.weighted is not None:
        taken, how = _weighted(result, posterior, count, seed), "by rejection, from the posterior itself"
        rows = taken.proposals * result.cost.num_data / count
        return _made(result, taken.moves, seed, SDS_OUT * taken.off + left, how, rows)
    if result.weighing is not None:
        moves, apart = _of_chains(posterior, count, seed)
        return _made(result, moves, seed, left, f"of chains, {apart} of their kept draws apart", 0.0)
    finest = len(posterior.points) - 1
    moves, rows_each = _along_paths(result, posterior, count, seed)
    return _made(result, moves, seed, bias_of(result) + left, f"ends of paths of level {finest}", rows_each)


def independent(result: Result, count: int) -> PosteriorDraws | None:
    """As many, where the rows of the fit are there to be read; None elsewhere."""
    if result.posterior is None or (result.path_source is None and result.fitted_source is None):
        return None
    return draw(result, count)


def _made(result: Result, moves: Floats, seed: int, bias: float, how: str, rows: float) -> PosteriorDraws:
    return PosteriorDraws(result, kept_posterior(result).reported_at(moves), moves, seed, float(bias), how, float(rows))


def _weighted(result: Result, posterior: Posterior, count: int, seed: int) -> Taken:
    if result.fitted_source is not None:
        fitted = fitted_of(result)
        return draw_by_rejection(fitted.target, fitted.table, posterior.anchor, count, seed)
    assert posterior.weighted is not None
    kept = posterior.points[0][:, 0, 0].astype(np.float64)
    taken = draw_from_stored(kept, posterior.weighted.posterior, seed)
    _require(count, len(taken.moves))
    return Taken(taken.moves[:count], 0, taken.off)


def _of_chains(posterior: Posterior, count: int, seed: int) -> tuple[Floats, int]:
    """Those that the run kept, and how many of a chain's apart from each other: as far as there are enough of them."""
    kept = posterior.points[0][:, ::-1, 0].astype(np.float64)
    chains, length, d = kept.shape
    _require(count, chains * length)
    apart = max(1, min(MOST_APART, length // -(-count // chains)))
    among = kept[:, ::apart].reshape(-1, d)
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(Stream.DRAWS), 2]))
    return among[rng.permutation(len(among))[:count]], apart


def _along_paths(result: Result, posterior: Posterior, count: int, seed: int) -> tuple[Floats, float]:
    from tallbayes.results.draws.ends import draw_ends, kept_ends

    problem = None
    if result.path_source is not None:
        problem = result.path_source()
    elif result.fitted_source is not None:
        from tallbayes.results.draws.again import levels_again

        problem = levels_again(result)
    if problem is not None:
        return draw_ends(posterior, problem, count, seed)
    kept = kept_ends(posterior, seed)
    _require(count, len(kept))
    return kept[:count], 0.0


def _require(count: int, there: int) -> None:
    if count > there:
        hint = "the result in the process that fitted it, or a run of tallbayes fit --out whose table is in its place"
        got = f"{count:,}, and a result without its rows, whose run has kept {there:,} independent ones"
        raise InputError(explain(f"at most {there:,} draws", got, f"{there}, or {hint}"))


def bias_of(result: Result) -> float:
    """What the levels that were not taken may add to a posterior mean, in its sd: the largest of all."""
    posterior = kept_posterior(result)
    mean = result.estimates["mean"] if "mean" in result else posterior.expectation(_itself)
    if "sd" in result:
        sd = result["sd"].flat_value
    else:
        values, _ = posterior.draws(256)
        sd = values.std(axis=0)
    bias: float = np.max(mean.flat_bias_bound / np.maximum(sd, np.finfo(float).tiny), initial=0.0)
    return bias


def _itself(theta: Any) -> Any:
    return theta


def stacked(structure: Structure, flat: Floats) -> Any:
    """Rows of numbers in a structure, along the first axis of every leaf."""
    if structure.kind == "none":
        return None
    if structure.kind == "leaf":
        return flat.reshape(len(flat), *structure.shape)
    parts, start = [], 0
    for child in structure.children:
        parts.append(stacked(child, flat[:, start : start + child.size]))
        start += child.size
    if structure.kind == "dict":
        return dict(zip(structure.keys, parts, strict=True))
    return tuple(parts) if structure.kind == "tuple" else parts


def known_groups(result: Result) -> KnownGroups:
    """The groups of a fit with their rows; an error where there are none."""
    from tallbayes.results.groups.predictions import known_of

    known = known_of(result)
    if known is None:
        got = "a result without groups" if not result.factors else "a result that has their rows no longer"
        hint = 'tb.fit("y ~ x + (1 | school)", ...), in the process that fitted it or with its run and table in place'
        raise InputError(explain("a result with groups and their rows", got, hint))
    return known


def level_names(known: KnownGroups) -> list[Any]:
    """What the groups are called, in the order of their levels."""
    found = [each.item() if hasattr(each, "item") else each for each in known.levels]
    names = known.integral.groups.levels
    return found if names is None else [names[each] for each in found]


def space_of(result: Result) -> Any:
    """How u is read as theta."""
    live = kept_posterior(result).live
    if live is not None:
        return live[0].space
    return fitted_of(result).target.space


def _place(names: Sequence[Any], level: object, by: str) -> int:
    found = [place for place, each in enumerate(names) if each == level or str(each) == str(level)]
    if not found:
        texts = [str(each) for each in names]
        among = f"{', '.join(texts[:8])} and so on"
        raise InputError(explain(f"a group of {by!r}", repr(level), suggestion(str(level), texts, among)))
    return found[0]
