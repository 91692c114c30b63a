"""The posterior as a signed ensemble: Laplace's Gaussian, and what the paths found beyond it.

    E h = E_Laplace h + sum_l mean_i mean_k [ h(fine_ilk) - mean_c h(taken off_ilkc) ]

The points of level l are where its paths would have been at their stops k without the noise of the step before, which
is common to the fine path (+1/n_l) and to the coarse paths that are taken off (-1/n_l together; at level 0 the Gaussian
path u). That noise is integrated out where a formula exists, and drawn anew elsewhere: see `projections` and
`expectations`. Stops are the end of a path and, where it has a window, places within it; a path counts as one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.probe import Probe, Probed, quiet_ends
from tallbayes.errors import InputError, explain
from tallbayes.estimator.allocation import Least
from tallbayes.estimator.estimates import Estimate, side_by_side
from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import Reading, ReportedLine
from tallbayes.posterior.parameters import Live, Parameters, What, between, component_of, together
from tallbayes.posterior.projections import INDICATOR_RATE, Projection, densities, on_line, quantiles
from tallbayes.posterior.signed_draws import signed_quantiles
from tallbayes.posterior.telescoping import Rungs, combine, scaled
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights

NUMBER = Structure.leaf(())
QUANTILE_DRAWS = 2**16
TOGETHER = 16
ROUNDING = 2.0**-52
# Of an sd: what a smooth law of weighted draws takes.
GIVEN_NOISE = 0.15
MOST_LINES, MANY_PARAMETERS = 1_024, 4_096


@dataclass(frozen=True, eq=False)
class Posterior:
    """Quiet stops as displacements from the mode, (paths, stops, 1 + coarse paths, d) by level, and how far the last
    noise of each level spreads them, in units of W where paths are `whitened`.

    Without `laplace` the paths of level 0 stand for themselves. `stored` or `live` say how parameters are read off u:
    as plain numbers, or as this process's own target and units. Of `weighted` draws there is one level, without
    noise, and nothing is taken off but the same draws with the Gaussian's own weights.

    What may be asked for: `expectation`, `quantile`, `probability` and `density` of `what`, which is a function of the
    parameters, the name of one ("carrier[T.OO]"), or weights by name for a sum of several ({"a": 1, "b": -1}).
    """

    anchor: Anchor
    points: tuple[Floats, ...]
    spreads: tuple[float, ...]
    whitened: bool
    laplace: bool
    rungs: Rungs
    seed: int = 0
    stored: Reading | None = None
    live: Live | None = None
    probe: Probe | None = None
    weighted: Weights | None = None

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(points):,}" for points in self.points)
        what = f"{counts} paths by level" if self.weighted is None else f"{counts} weighted draws"
        return f"<tallbayes.Posterior of {len(self.anchor.mode):,} parameters: {what}>"

    def expectation(self, what: What, name: str = "expectation") -> Estimate:
        """E h over the posterior, in the shape of what h returns.

        >>> import numpy as np, tallbayes as tb
        >>> rows = {"x": np.ones((50, 1)), "y": np.arange(50) % 2.0}
        >>> result = tb.estimate(tb.families.logistic(), rows, tolerance=0.1)
        >>> odds = result.posterior.expectation(lambda theta: np.e ** theta[0])
        >>> 0.9 < odds.value < 1.2
        True
        """
        from tallbayes.posterior import expectations

        integrand = self._integrand(self.parameters.function(what), name)
        samples = expectations.level_samples(integrand, self)
        if not self.laplace:
            return combine(name, integrand.structure, samples, self.rungs.along(None))
        level = expectations.laplace_of(integrand, self)
        rest: dict[str, Any] = {"jump": level.jump, "rate": _rate(level.jump)}
        if self.probed is not None:
            rest["least"] = self.probed.least(
                *(each.mean(axis=1) for each in expectations.probe_values(integrand, self))
            )
        found = combine(name, integrand.structure, samples, self.rungs.along(None), **rest)
        allowed = expectations.LAPLACE_SHARE * found.flat_standard_error**2
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = np.nan_to_num(level.variance / allowed, posinf=expectations.MOST_DRAWS).max()
        level = level.extended(min(draws, expectations.MOST_DRAWS))
        variance = level.variance / max(level.draws, 1) + (ROUNDING * level.mean) ** 2
        return combine(name, integrand.structure, samples, self.rungs.along(None), level.mean, variance, **rest)

    def quantile(
        self, p: float | Sequence[float], what: What = None, name: str = "quantile", first: int | range | None = None
    ) -> Estimate:
        """Of every parameter (or of the `first` few, or of those at some places, flat), or of `what`; for several p a
        list of as many.

        Its errors are those of the probability, divided by the density there.
        """
        wanted = np.atleast_1d(np.asarray(p, np.float64))
        if wanted.ndim != 1 or not np.all((wanted > 0) & (wanted < 1)):
            raise InputError(explain("probabilities strictly between 0 and 1", repr(p), "0.975, or [0.025, 0.975]"))
        parts: list[Estimate] = []
        structure = self.parameters.structure
        places = first if isinstance(first, range) else range(structure.size)[:first]
        pieces = [None] if what is not None else _pieces(places)
        for piece in pieces:
            whole, lines = self._lines(what, name, piece)
            functions = [function for line, function in lines if line is None]
            curved = iter(self._quantiles_by_draws(functions, wanted, name))
            parts += [next(curved) if line is None else self.line_quantiles(line, wanted, name) for line, _ in lines]
        if what is not None:
            structure = whole
        elif len(parts) < structure.size:
            structure = Structure.leaf((len(parts),))
        found = side_by_side(parts, name, structure, len(wanted))
        return found if np.ndim(p) else replace(found, structure=structure)

    def interval(
        self, probability: float = 0.95, what: What = None, first: int | None = None
    ) -> tuple[Estimate, Estimate]:
        """The ends of equal-tailed intervals: quantiles with their errors, of which see the arguments."""
        if not 0 < probability < 1:
            raise InputError(explain("a probability strictly between 0 and 1", repr(probability), "0.95"))
        both = self.quantile([(1 - probability) / 2, (1 + probability) / 2], what, first=first)
        structure = both.structure.children[0]
        lower, upper = both.part(slice(structure.size), "lower"), both.part(slice(structure.size, None), "upper")
        return replace(lower, structure=structure), replace(upper, structure=structure)

    def probability(
        self, what: What, *, above: float | None = None, below: float | None = None, name: str = "probability"
    ) -> Estimate:
        """P(event): of a function that returns true or false, or of a number being `above` or `below` another.

        The second form is the more accurate one where the number is linear in the parameters.
        """
        if above is None and below is None:
            if not callable(what) or not self._integrand(what, name).is_event:
                hint = "above=0.0, or a function such as lambda theta: theta[0] > theta[1]"
                raise InputError(explain("above= or below= for a number, or an event", repr(what), hint))
            return _within_bounds(self.expectation(what, name))
        if above is not None and below is not None and not above < below:
            raise InputError(explain("above < below", f"above={above}, below={below}", "one of the two"))
        _, lines = self._lines(what, name)
        if len(lines) != 1:
            raise InputError(explain("one number", f"{len(lines)}", "a component, e.g. lambda theta: theta[0]"))
        (line, function), *_ = lines
        if line is None:
            return _within_bounds(self.expectation(between(function, above, below), name))
        return self.line_probability(line, above, below, name)

    def line_probability(
        self, line: ReportedLine, above: float | None = None, below: float | None = None, name: str = "probability"
    ) -> Estimate:
        """P(above < number < below) of a line."""
        signed = [(edge, sign) for edge, sign in ((below, 1.0), (above, -1.0)) if edge is not None]
        edges, signs = (np.array(each, np.float64) for each in zip(*signed, strict=True))
        signs = signs if line.increasing else -signs
        start = 1.0 if signs.sum() < 0 else 0.0
        projection = self._projection(line)
        base, samples = projection.cdf(line.where(edges))
        parts = [each @ signs[:, None] for each in samples]
        if not self.laplace:
            parts[0] = parts[0] + start
            return _within_bounds(combine(name, NUMBER, parts, self.rungs.along(line.direction), rate=INDICATOR_RATE))
        base = start + base @ signs[:, None]
        least = projection.least(line.where(edges), weights=signs)
        return _within_bounds(
            self._allowing_noise(
                combine(name, NUMBER, parts, self.rungs.along(line.direction), base, rate=INDICATOR_RATE, least=least),
                projection,
                line.where(edges),
            )
        )

    def _allowing_noise(self, found: Estimate, projection: Projection, edges: Floats) -> Estimate:
        """With what the noise given to weighted draws may have done."""
        blur = projection.blurred(lambda each: each.cdf(edges))
        return replace(found, flat_bias_bound=found.flat_bias_bound + np.sum(blur))

    def line_quantiles(self, line: ReportedLine, p: Floats, name: str = "quantile") -> Estimate:
        """Of a line, one for every p."""
        structure, projection = Structure.leaf((len(p),)), self._projection(line)
        rungs = self.rungs.along(line.direction)
        found = quantiles(projection, p if line.increasing else 1 - p, rungs, name, structure)
        found = replace(found, flat_bias_bound=found.flat_bias_bound + rungs.left * projection.sd)
        return on_line(line, found)

    def line_moments(self, line: ReportedLine) -> tuple[Estimate, Estimate]:
        """Mean and sd of a straight line."""
        projection = self._projection(line)
        firsts, seconds = projection.moments()
        mean = combine("mean", NUMBER, firsts, self.rungs.along(line.direction))
        total = float(mean.flat_value[0])
        linear = [second - 2 * total * first for first, second in zip(firsts, seconds, strict=True)]
        square = combine("sd", NUMBER, linear, self.rungs.along(line.direction))
        start = projection.sd**2 if self.laplace else 0.0
        variance = start + float(square.flat_value[0]) + total**2
        sd = np.sqrt(max(variance, (0.01 * projection.sd) ** 2))
        shifted = replace(mean, flat_value=mean.flat_value + line.offset + projection.mean)
        return shifted, replace(scaled(square, np.array([1 / (2 * sd)])), flat_value=np.array([sd]))

    def density(self, grid: Floats | Sequence[float], what: What, name: str = "density") -> Estimate:
        """The posterior density of one number at every point of a grid; it can be below 0 by no more than its error."""
        grid = np.asarray(grid, np.float64)
        structure = Structure.leaf(grid.shape)
        _, ((line, _), *others) = self._lines(what, name)
        if others:
            raise InputError(explain("one number", f"{len(others) + 1}", "the name of one parameter"))
        if line is None:
            hint = "quantile or probability, which need no smoothness"
            raise InputError(explain("a number that is linear in the parameters", f"{what!r}", hint))
        x = line.where(grid.ravel())
        inside = np.isfinite(x)
        found = densities(
            self._projection(line), np.where(inside, x, 0.0), self.rungs.along(line.direction), name, structure
        )
        with np.errstate(divide="ignore", over="ignore"):
            jacobian = np.where(inside, 1 / np.abs(line.slope(np.where(inside, x, 0.0))), 0.0)
        return scaled(found, jacobian)

    def draws(self, count: int = 1000) -> tuple[Floats, Floats]:
        """Stops of fine paths, with the level each is from: for plots alone, since each level has a bias of its own.

        The finest levels come first. What is returned is what is reported, flat, (count, components).
        """
        if self.weighted is not None:
            return self.reported_at(self._resampled(count)), np.zeros(count, np.int64)
        ends: list[Floats] = []
        levels: list[Floats] = []
        for level in reversed(range(len(self.points))):
            left = count - sum(len(each) for each in ends)
            quiet = self.points[level][:, :, 0].reshape(-1, len(self.anchor.mode)).astype(np.float64)[:left]
            normals = self.generator(Stream.SIGNED_DRAWS, level).standard_normal(quiet.shape)
            ends.append(quiet + self.noise(level, normals))
            levels.append(np.full(len(quiet), level))
        return self.reported_at(np.concatenate(ends)), np.concatenate(levels)

    def _resampled(self, count: int) -> Floats:
        """Draws as often as their weights say, by equal distances."""
        assert self.weighted is not None
        total = np.cumsum(self.weighted.posterior)
        start = self.generator(Stream.SIGNED_DRAWS).random()
        chosen = np.searchsorted(total, (start + np.arange(count)) / count * total[-1])
        return self.points[0][chosen, 0, 0].astype(np.float64)

    def generator(self, stream: Stream, *place: int) -> np.random.Generator:
        """Random numbers for one purpose, at one place."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, int(stream), *place]))

    def noise(self, level: int, normals: Floats) -> Floats:
        """The last noise of a level's paths, as a displacement."""
        return self.spreads[level] * (self.anchor.displacements(normals) if self.whitened else normals)

    @cached_property
    def parameters(self) -> Parameters:
        """What is reported of u, and its names."""
        return Parameters(self.stored, self.live)

    @property
    def reading(self) -> Reading | None:
        """How parameters are read off u, as plain numbers; None where only this process knows."""
        return self.parameters.reading

    @property
    def labels(self) -> list[str]:
        """The names of the parameters, one a number."""
        return self.parameters.labels

    def weights(self, what: Mapping[str, float] | str) -> Floats:
        """Of a sum of parameters by name."""
        return self.parameters.weights(what)

    def _integrand(self, function: Callable[[Any], Any], name: str) -> Any:
        from tallbayes.posterior.expectations import make_integrand

        return make_integrand(name, function, *self.parameters.reader, self.anchor.mode)

    def reported_at(self, displacements: Floats) -> Floats:
        """What is reported at these displacements from the centre, flat, (points, components)."""
        from tallbayes.posterior.expectations import reported_values

        return reported_values(*self.parameters.reader, self.anchor.mode, displacements, self.parameters.structure)

    def _lines(
        self, what: What, name: str, among: range | None = None
    ) -> tuple[Structure, list[tuple[ReportedLine | None, Any]]]:
        """The numbers that are meant, of parameters those at some places: each as a line where it is one, and as a
        function."""
        if what is None:
            reading, structure = self.reading, self.parameters.structure
            places = among or range(structure.size)
            lines = [(place, None if reading is None else reading.line(place)) for place in places]
            return structure, [(line, None if line else self.parameters.component(i)) for i, line in lines]
        if not callable(what):
            weights = self.weights(what)
            line = None
            if self.reading is not None:
                (named,) = np.nonzero(weights)
                alone = len(named) == 1 and weights[named[0]] == 1
                line = self.reading.line(int(named[0])) if alone else self.reading.combination(weights)
            return NUMBER, [(line, self.parameters.function(what))]
        from tallbayes.posterior.expectations import line_of

        integrand = self._integrand(what, name)
        if integrand.structure.size == 1:
            return integrand.structure, [(line_of(integrand, self), what)]
        parts = [component_of(what, i, integrand.structure) for i in range(integrand.structure.size)]
        return integrand.structure, [(line_of(self._integrand(each, name), self), each) for each in parts]

    def _projection(self, line: ReportedLine) -> Projection:
        c = line.direction
        length = self.anchor.sd_along(c)
        unit = length if self.whitened else float(np.sqrt(np.sum(c**2)))
        # At level 0 what is taken off is one path, in as many places as other levels have coarse paths.
        places = [slice(0, 2 if level == 0 else None) for level in range(len(self.points))]
        points = tuple(_along(each[:, :, part], c) for each, part in zip(self.points, places, strict=True))
        mean = float(c @ self.anchor.mode)
        probed = self.probed
        if probed is not None:
            probed = replace(probed, points=(probed.points[0] @ c, probed.points[1] @ c))
        spreads = tuple(s * unit for s in self.spreads) if self.weighted is None else (GIVEN_NOISE * length,)
        return Projection(mean, length, points, spreads, self.laplace, probed, self.weighted)

    @cached_property
    def probed(self) -> Probed | None:
        """Where level 0 would be seen to end by a probe; None where there is none, or nothing to take it off."""
        if self.probe is None or not (self.whitened and self.laplace):
            return None
        return quiet_ends(self.probe, self.anchor, self.spreads[0], self.points[0].shape[1])

    def _quantiles_by_draws(self, functions: Sequence[Any], p: Floats, name: str) -> Iterator[Estimate]:
        """Of numbers that are no lines, some at a time, so that one program reads several."""
        from tallbayes.posterior import expectations

        for start in range(0, len(functions), TOGETHER):
            some = functions[start : start + TOGETHER]
            integrand = self._integrand(together(some), name)
            base = (
                expectations.gaussian_values(integrand, self, QUANTILE_DRAWS)
                if self.laplace
                else np.empty((0, len(some)))
            )
            levels = [
                np.concatenate(list(expectations.level_values(integrand, self, level)))
                for level in range(len(self.points))
            ]
            probed = None if self.probed is None else expectations.probe_values(integrand, self)
            for place in range(len(some)):
                parts = base[:, place], [level[..., place] for level in levels]
                least = None if probed is None else partial(self._least_below, [each[..., place] for each in probed])
                structure, rungs = Structure.leaf((len(p),)), self.rungs.along(None)
                yield signed_quantiles(*parts, p, rungs, name, structure, least, self.weighted)

    def _least_below(self, values: Sequence[Floats], edges: Floats) -> Least:
        assert self.probed is not None
        return self.probed.least(*((each[..., None] <= edges).mean(axis=1) for each in values))


def _pieces(places: range) -> list[range | None]:
    """So many lines at a time: each has a direction as long as theta."""
    return [places[start : start + MOST_LINES] for start in range(0, len(places), MOST_LINES)]


def _along(points: Floats, direction: Floats) -> Floats:
    """points . direction; of very many parameters only those that it has."""
    if len(direction) <= MANY_PARAMETERS:
        return np.asarray(points @ direction)
    (places,) = np.nonzero(direction)
    return np.asarray(points[..., places] @ direction[places])


def _within_bounds(chance: Estimate) -> Estimate:
    """Signed parts may add up to a little less than 0 or more than 1."""
    return replace(chance, flat_value=np.clip(chance.flat_value, 0.0, 1.0))


def _rate(jump: Floats) -> float | None:
    """Of bare indicators, if there are any."""
    return 1.0 if np.any(jump > 0) else None
