"""Values along a plate, and one operation at a time run on them as JAX would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np


class NotApartError(Exception):
    """Entries of a plate are not kept apart; in words."""


@dataclass(frozen=True)
class Along:
    """A value of this `shape`, kept with axes of length 1 where it is the same all along.

    With an `axis` it is of the plate: what is kept is the entry g of that axis.
    """

    kept: Any
    shape: tuple[int, ...]
    axis: int | None = None


def whole(value: Any) -> Any:
    """A value that is not of the plate, written out."""
    return jnp.broadcast_to(value.kept, value.shape) if isinstance(value, Along) else value


def plate_axis(inputs: list[Any]) -> int | None:
    """The axis of the plate in values that stand side by side."""
    axes = {each.axis for each in inputs if isinstance(each, Along) and each.axis is not None}
    if len(axes) > 1:
        raise NotApartError("its entries meet one another")
    return axes.pop() if axes else None


def run_step(step: Any, inputs: list[Any], **changed: Any) -> list[Any]:
    """An operation on these inputs, some of its parameters changed."""
    params = step.primitive.get_bind_params({**step.params, **changed})
    with step.ctx.manager:
        found = step.primitive.bind(*inputs, **params)
    return list(found) if step.primitive.multiple_results else [found]


def as_along(kept: Any, step: Any, axis: int | None) -> Any:
    """The output of an operation, of which this is kept."""
    shape = tuple(np.shape(step.outvars[0].aval))
    return kept if axis is None and np.shape(kept) == shape else Along(kept, shape, axis)


def some(step: Any, *names: str) -> dict[str, Any]:
    """Some parameters of an operation."""
    return {name: step.params[name] for name in names}


def words_of(step: Any) -> str:
    """What an operation is called."""
    return f"{step.primitive.name.replace('_', ' ')}"
