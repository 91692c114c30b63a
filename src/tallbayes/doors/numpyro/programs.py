"""Programs: a NumPyro model run on some rows, its latent sites and its data plates answered from outside.

    inside the data plates    sum_i sum_s log p_s(x_i | theta)
    outside                   sum_s log p_s(theta)

A plate declared with N entries and answered by n of them scales its sites by N / n: that is taken out again, so the
size a plate was declared with does not matter. `numpyro.handlers.scale` and `mask` keep their meaning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from tallbayes.doors.numpyro.arguments import Arguments
from tallbayes.doors.numpyro.supports import start_value
from tallbayes.doors.plates.forms import OWN
from tallbayes.doors.plates.programs import Answer, Message, NormalLaw, Site
from tallbayes.errors import ModelError, TallbayesError, explain
from tallbayes.model.model import Model

# NumPyro has one stack of handlers for all threads.
_handlers_in_use = threading.RLock()


@dataclass(frozen=True, eq=False)
class NumpyroProgram:
    """A model with its arguments; `plates` are those of the rows.

    `attached` are observed sites whose values came with the model and not with its arguments, as those of
    `numpyro.handlers.condition` do, each with the axis of its rows.
    """

    model: Callable[..., Any]
    arguments: Arguments
    plates: frozenset[str] = frozenset()
    attached: Mapping[str, int] = field(default_factory=dict)

    def log_density(self, theta: dict[str, Any], rows: dict[str, Any], count: int, *, inside: bool) -> jax.Array:
        """The sum of the log densities of all sites inside, or outside, the data plates on `count` rows."""
        terms = self.log_probs(rows, count, self.values_of(theta), inside=inside)
        total = jnp.zeros((), jnp.result_type(*theta.values()))
        return sum((jnp.sum(term).astype(total.dtype) for term in terms.values()), total)

    def values_of(self, theta: dict[str, Any]) -> Answer:
        """Latent sites answered by their values."""
        theta = {name: jnp.asarray(value) for name, value in theta.items()}

        def value_of(message: Message) -> Any:
            if message["name"] in theta:
                return theta[message["name"]]
            hint = "sample the same sites whatever the values are"
            raise ModelError(explain(f"latent sites {sorted(theta)}", f"also {message['name']!r}", hint))

        return value_of

    def log_probs(self, rows: dict[str, Any], count: int, value_of: Answer, *, inside: bool) -> dict[str, Any]:
        """The log densities of all sites inside, or outside, the data plates, entry by entry."""
        with _running(f"{count} of its rows"):
            messages = self.run(rows, count, value_of)
            return {
                name: self._log_prob(message, messages, count)
                for name, message in messages.items()
                if message["type"] == "sample" and self.is_inside(message["cond_indep_stack"]) == inside
            }

    def run(
        self, rows: dict[str, Any], count: int, value_of: Answer, observed: Answer | None = None
    ) -> dict[str, Message]:
        """All messages of a run on `count` rows, with latent sites answered by `value_of`; and those that were seen of
        rows by `observed`, if it is given."""
        rows = jax.tree.map(jnp.asarray, rows)

        def answer(message: Message) -> Any:
            if message["type"] == "plate" and message["name"] in self.plates:
                return jnp.arange(count)
            if message["type"] != "sample":
                return None
            if observed is not None and self.is_response(message):
                return observed(message)
            if message["name"] in self.attached:
                return jnp.moveaxis(rows[message["name"]], 0, self.attached[message["name"]])
            return None if message["is_observed"] else value_of(message)

        with _running(f"{count} of its rows"):
            return _messages(self.model, *self.arguments.filled(rows), answer)

    def is_response(self, message: Message) -> bool:
        """Whether it is a site of the rows that was observed."""
        if message["type"] != "sample" or not self.is_inside(message["cond_indep_stack"]):
            return False
        return bool(message["is_observed"]) or message["name"] in self.attached

    def is_inside(self, plates: tuple[Any, ...]) -> bool:
        return any(plate.name in self.plates for plate in plates)

    def scale(self, message: Message, messages: dict[str, Message], count: int) -> Any:
        """What a site's log density is multiplied by, plates of rows taken out."""
        scale = 1.0 if message["scale"] is None else message["scale"]
        for plate in self._around(message):
            if plate.name in messages:
                scale = scale * count / messages[plate.name]["args"][0]
        return scale

    def law(self, message: Message) -> NormalLaw:
        law = _base(message["fn"])
        return NormalLaw(law.loc, root=law.scale_tril) if _is_vector(law) else NormalLaw(law.loc, law.scale)

    def can_standardise(self, message: Message, axis: int, run: dict[str, Message]) -> bool:
        scale = self.scale(message, run, 1)
        return isinstance(scale, int | float) and scale == 1 and _is_normal(_base(message["fn"]))

    def axis(self, message: Message, dim: int, ndim: int) -> int:
        return int(ndim - message["fn"].event_dim + dim)

    def is_apart(self, message: Message, axis: int) -> bool:
        return not any(jnp.ndim(bound) for bound in jax.tree.leaves(message["fn"].support))

    def told(self, name: str) -> str | None:
        return None

    def tell(self, message: Message) -> Any:
        return message["value"]

    def answering(self, model: Model, form: Any, names: dict[str, str], rows: dict[str, Any]) -> Model:
        from tallbayes.doors.numpyro.responses import with_group_responses

        return with_group_responses(model, form, names, OWN, rows)

    def _around(self, message: Message) -> list[Any]:
        return [plate for plate in message["cond_indep_stack"] if plate.name in self.plates]

    def _log_prob(self, message: Message, messages: dict[str, Message], count: int) -> Any:
        log_prob = message["fn"].log_prob(message["value"]) * self.scale(message, messages, count)
        for plate in self._around(message):
            if plate.size != count or jnp.shape(log_prob)[plate.dim] != count:
                got = f"shape {jnp.shape(log_prob)} of site {message['name']!r} on {count} rows"
                hint = "pass every array of rows as an argument, and build plates inside the model"
                raise ModelError(explain(f"one entry in plate {plate.name!r} for each row", got, hint))
        return log_prob


def survey(model: Callable[..., Any], arguments: Arguments) -> list[Site]:
    """The sample statements of a model on all its rows, of which no value is looked at.

    Refuses parameters without a prior, subsampling and latent sites within a scan.
    """
    found: list[Site] = []
    answered: dict[str, Any] = {}

    def answer(message: Message) -> Any:
        if message["type"] in ("param", "mutable"):
            hint = "numpyro.sample with a prior in its place"
            raise ModelError(explain("sample statements alone", f"numpyro.{message['type']} {message['name']!r}", hint))
        if message["type"] == "plate":
            size, subsample = message["args"]
            if subsample not in (None, size):
                got = f"plate {message['name']!r} with {subsample} of {size}"
                raise ModelError(explain("plates without subsampling", got, "leave out subsample_size"))
        if message["type"] != "sample" or message["is_observed"]:
            return None
        answered[message["name"]] = start_value(message, 0.0)
        return answered[message["name"]]

    def look(rows: dict[str, Any]) -> int:
        for message in _messages(model, *arguments.filled(rows), answer).values():
            if message["type"] == "sample":
                plates, shape = tuple(message["cond_indep_stack"]), jnp.shape(message["value"])
                found.append(Site(message["name"], message["is_observed"], plates, shape))
                if not message["is_observed"] and shape != answered[message["name"]].shape:
                    hint = "sample all steps at once, and scan over their values"
                    raise ModelError(explain("latent sites outside of scan", f"{message['name']!r} inside", hint))
        return 0

    with _running("its arguments"):
        jax.eval_shape(look, arguments.rows)
    return found


def _base(law: Any) -> Any:
    """A distribution without what was put around it; a mask stays."""
    from numpyro.distributions import ExpandedDistribution, Independent

    while isinstance(law, ExpandedDistribution | Independent):
        law = law.base_dist
    return law


def _is_normal(law: Any) -> bool:
    from numpyro.distributions import MultivariateNormal, Normal

    return type(law) in (Normal, MultivariateNormal)


def _is_vector(law: Any) -> bool:
    from numpyro.distributions import MultivariateNormal

    return type(law) is MultivariateNormal


def _messages(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Answer) -> dict[str, Message]:
    from numpyro import handlers

    with _handlers_in_use:
        # Not seeded: every latent site has an answer, and a model that draws numbers besides fails.
        answered = handlers.substitute(model, substitute_fn=answer)
        return dict(handlers.trace(answered).get_trace(*args, **kwargs))


@contextmanager
def _running(on: str) -> Iterator[None]:
    """Whatever the model raises on rows that it was not written for, in words."""
    try:
        yield
    except TallbayesError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
        hint = "use jnp on arrays of rows, and pass what depends on their values, such as a number of groups"
        raise ModelError(explain(f"a NumPyro model that runs on {on}", got, hint)) from error
