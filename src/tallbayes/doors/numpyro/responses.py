"""Responses: the observed site of a NumPyro model on one row, drawn from its own distribution, or what this expects.

    y ~ p_s(. | theta, row),     E y,     site after site, so that one which hangs on another is given what was drawn

An effect that was integrated out is offered to the whole of its plate: a row reads its own entry alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from tallbayes.doors.numpyro.programs import NumpyroProgram
from tallbayes.doors.plates.programs import Answer, Message
from tallbayes.errors import ModelError, explain
from tallbayes.model.model import Model

if TYPE_CHECKING:
    from tallbayes.doors.plates.forms import PlateForm, RowForm

Offer = Callable[[dict[str, Any], Any], Answer]


@dataclass(frozen=True, eq=False)
class RowResponses:
    """Of one row: `answer(theta, b)` answers latent sites, `names` are the row's own by those of the model."""

    program: NumpyroProgram
    answer: Offer

    def simulate(self, key: Any, theta: dict[str, Any], b: Any, row: dict[str, Any]) -> Any:
        drawn: list[str] = []

        def draw(message: Message) -> Any:
            drawn.append(message["name"])
            return message["fn"].sample(jax.random.fold_in(key, len(drawn)))

        return self._only(self._run(theta, b, row, draw), lambda message: message["value"])

    def predict(self, theta: dict[str, Any], b: Any, row: dict[str, Any]) -> Any:
        def expect(message: Message) -> Any:
            return jnp.reshape(message["fn"].mean, message["fn"].shape())

        return self._only(self._run(theta, b, row, None), expect)

    def seen(self, row: dict[str, Any], theta: dict[str, Any], b: Any) -> Any:
        """What was observed of a row, whatever theta is."""
        return self._only(self._run(theta, b, row, None), lambda message: message["value"])

    def _run(self, theta: dict[str, Any], b: Any, row: dict[str, Any], observed: Answer | None) -> list[Message]:
        one = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), row)
        messages = self.program.run(one, 1, self.answer(theta, b), observed)
        return [each for each in messages.values() if self.program.is_response(each)]

    def _only(self, messages: list[Message], read: Callable[[Message], Any]) -> Any:
        """The one number of a row that was observed."""
        values = {each["name"]: jnp.asarray(read(each)) for each in messages}
        if len(values) != 1 or any(jnp.size(each) != 1 for each in values.values()):
            got = ", ".join(f"{name!r} of {jnp.size(each)} numbers a row" for name, each in values.items())
            hint = (
                "tb.Model(..., simulate=...) of one of them, or dataclasses.replace(model, simulate=..., predict=...)"
            )
            raise ModelError(explain("one observed site of one number a row", got, hint))
        (value,) = values.values()
        return jnp.reshape(value, ())


def with_responses(model: Model, program: NumpyroProgram, rows: dict[str, Any]) -> Model:
    """A model of explicit parameters that can be simulated from, and predicts where its distribution has a mean."""
    own = RowResponses(program, lambda theta, b: program.values_of(theta))

    def predict(theta: dict[str, Any], row: dict[str, Any]) -> Any:
        return own.predict(theta, None, row)

    return replace(
        model,
        simulate=lambda key, theta, row: own.simulate(key, theta, None, row),
        predict=predict if _says(predict, model.initial, rows) else None,
        response=lambda row: own.seen(row, model.initial, None),
    )


def _says(predict: Callable[..., Any], *given: Any) -> bool:
    """Whether the distributions of what was observed have means that can be told, and are of one number a row."""
    *before, rows = given
    try:
        jax.eval_shape(predict, *before, jax.tree.map(lambda leaf: leaf[0], rows))
    except (ModelError, NotImplementedError, AttributeError, TypeError, ValueError):
        return False
    return True


def with_group_responses(
    model: Model, form: PlateForm | RowForm, names: dict[str, str], own_name: str, rows: dict[str, Any]
) -> Model:
    """The same given a group's effect; `names` are those of the model by those of the `rows`."""
    assert isinstance(form.program, NumpyroProgram)
    own = RowResponses(form.program, form.everywhere)
    start = model.groups.effect if model.groups is not None else 0.0

    def plain(row: dict[str, Any]) -> dict[str, Any]:
        found = {names[name]: each for name, each in row.items() if name in names}
        return {name: each for name, each in found.items() if name != own_name}

    def predict(theta: dict[str, Any], b: Any, row: dict[str, Any]) -> Any:
        return own.predict(theta, b, plain(row))

    return replace(
        model,
        simulate=lambda key, theta, b, row: own.simulate(key, theta, b, plain(row)),
        predict=predict if _says(predict, model.initial, start, rows) else None,
        response=lambda row: own.seen(plain(row), model.initial, start),
    )
