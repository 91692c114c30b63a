"""Responses of a model of one's own, drawn by the function that it gives, for all draws and rows of a batch at once.

    y_ik = simulate(key_ik, theta_k, row_i),   with groups simulate(key_ik, theta_k, b_k, row_i)

A key hangs on the seed, the number of the row and that of the draw alone. What is expected of a row is what `predict`
says, and where there is none the mean of its responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, ModelError, explain
from tallbayes.estimator.levels import Stream
from tallbayes.groups.known import KnownGroups
from tallbayes.model.model import Target
from tallbayes.model.space import Space
from tallbayes.model.weights import WEIGHT
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.results.checks.batches import RowBatch
from tallbayes.results.checks.own_rows import rows_in_parts
from tallbayes.results.draws.drawn import PosteriorDraws
from tallbayes.results.draws.given import draw_effects
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.groups.predictions import known_of
from tallbayes.results.result import Result


class OwnResponses(NamedTuple):
    """What shapes the program: theta, the function, and what an effect is to it."""

    space: Space
    simulate: Callable[..., Any]
    predict: Callable[..., Any] | None
    effect: Callable[[Any], Any] | None

    def drawn(self, key: Any, vector: jax.Array, b: Any, row: Any) -> Any:
        """A response, and what is expected."""
        theta = self.space.theta(vector)
        given = (theta, row) if self.effect is None else (theta, self.effect(b), row)
        y = jnp.asarray(self.simulate(key, *given)).astype(vector.dtype)
        mean = y if self.predict is None else jnp.asarray(self.predict(*given)).astype(vector.dtype)
        return y, mean


@dataclass(eq=False)
class OwnDrawer:
    """Responses and expectations of batches of rows, for every one of some draws."""

    result: Result
    draws: PosteriorDraws
    target: Target
    known: KnownGroups | None

    @classmethod
    def of(cls, result: Result, draws: PosteriorDraws) -> OwnDrawer:
        live = kept_posterior(result).live
        if live is None:
            hint = "in the process that made the result: functions are not kept in a file"
            raise InputError(explain("a model of one's own with its functions", "a result read from a file", hint))
        target = live[0]
        takes = "key, theta, row" if target.integrated is None else "key, theta, b, row"
        if target.simulate is None:
            hint = f"tb.Model(..., simulate=lambda {takes}: ...), which draws a response"
            raise InputError(explain("a family of tb.families, or a model with simulate=", "one without", hint))
        known = None if target.integrated is None else known_of(result)
        return cls(result, draws, target, known)

    def batches(self, rows: Any, size: int) -> Iterator[RowBatch]:
        """With what functions read of each row, and the response that was seen where it is there."""
        for part, places, numbers in rows_in_parts(self.result, rows, self.known)():
            part.pop(WEIGHT, None)
            for start in range(0, len(numbers), size):
                some = slice(start, start + size)
                own = jax.tree.map(lambda leaf, some=some: np.asarray(leaf)[some], part)
                groups = None
                if places is not None and self.known is not None:
                    groups = own[self.known.integral.groups.by]
                count = len(numbers[some])
                yield RowBatch(
                    numbers[some],
                    np.zeros((count, 0)),
                    np.zeros(count),
                    self._seen(own),
                    groups=groups,
                    own={name: each for name, each in own.items() if each.dtype.kind in "biuf"},
                    places=None if places is None else places[some],
                )

    def _seen(self, rows: Any) -> Floats | None:
        response = self.target.response
        if callable(response):
            with jax.enable_x64(True):
                plain = {name: each for name, each in rows.items() if each.dtype.kind in "biuf"}
                return np.asarray(jax.vmap(response)(plain), np.float64)
        if response not in rows:
            return None
        seen = np.asarray(rows[response], np.float64)
        if seen.ndim != 1:
            raise InputError(explain("a response of one number a row", f"shape {seen.shape}", "response= another one"))
        return seen

    def replicated(self, batch: RowBatch) -> tuple[Floats, Floats]:
        """Responses and expectations (draws, rows)."""
        own, points = batch.own, self.draws.points
        assert self.target.simulate is not None
        effects: Floats = np.zeros((len(points), 1, 0))
        effect = None
        which = np.zeros(len(batch), np.int32)
        if self.known is not None:
            assert batch.places is not None
            places, inverse = np.unique(batch.places, return_inverse=True)
            which = inverse.astype(np.int32)
            effects = draw_effects(self.known, self.target.space, points, places, self.draws.seed, shown=False)[0]
            effect = self.known.integral.groups.vector
        kind = OwnResponses(self.target.space, self.target.simulate, self.target.predict, effect)
        self._require_number(kind, own, effects)
        with jax.enable_x64(True):
            key = jax.random.fold_in(
                jax.random.key(self.draws.seed, impl="threefry2x32"), np.uint32(int(Stream.RESPONSES))
            )
            numbers = batch.numbers.astype(np.uint32)
            found = compiled(_responses)(kind, own, which, effects, points, numbers, key)
        return np.asarray(found[0], np.float64), np.asarray(found[1], np.float64)

    def _require_number(self, kind: OwnResponses, rows: Any, effects: Floats) -> None:
        row = jax.tree.map(lambda leaf: leaf[0], rows)
        key = jax.random.key(0, impl="threefry2x32")
        try:
            with jax.enable_x64(True):
                out = jax.eval_shape(kind.drawn, key, self.draws.points[0], effects[0, 0], row)
        except ModelError:
            raise
        except Exception as error:
            hint = "jnp and jax.random alone, of the key that it is given"
            got = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise ModelError(explain("simulate= that JAX can trace on theta and one row", got, hint)) from error
        if any(jnp.shape(each) != () for each in out):
            got = f"shape {jnp.shape(out[0])}, and {jnp.shape(out[1])} by predict="
            raise ModelError(explain("one number a row of simulate=, and of predict=", got, "a response at a time"))


def _responses(
    kind: OwnResponses, rows: Any, which: Any, effects: Any, points: Any, numbers: Any, key: Any
) -> tuple[Any, Any]:
    def of_draw(vector: Any, own: Any, draw: Any) -> Any:
        def of_row(row: Any, group: Any, number: Any) -> Any:
            return kind.drawn(jax.random.fold_in(jax.random.fold_in(key, number), draw), vector, own[group], row)

        return jax.vmap(of_row)(rows, which, numbers)

    found: tuple[Any, Any] = jax.vmap(of_draw)(points, effects, jnp.arange(len(points), dtype=jnp.uint32))
    return found
