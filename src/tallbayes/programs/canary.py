"""A canary: one small sum with a known answer, before the installed jaxlib is trusted with any other.

    |M x_i|^2,  i = 1..16,400,  M (d, d),  d = 3 and 6,  in float64

This is what jaxlib 0.10.2 gets wrong on CPU: every row past the 16,384th, without a word (jax issue 39103; decision
020). It is computed by `jax.jit` as it is, and with both sets of options of `compilation`, and compared with NumPy;
once for every process and backend, before anything else is computed.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from tallbayes.errors import DependencyError, explain
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp

ROWS = 2**14 + 16
WIDTHS = (3, 6)
ROUNDING = 1e-6
SOUND = "0.10.1"


def require_sound() -> None:
    """DependencyError where this process's JAX gives wrong numbers; after the first call it costs nothing."""
    _require(jax.default_backend())


@cache
def _require(backend: str) -> None:
    problems = [_problem(width) for width in WIDTHS]
    exact = [np.sum((rows @ matrix.T) ** 2, axis=1) for matrix, rows in problems]
    error = max(_largest(found, exact) for found in _answers(problems))
    if not error < ROUNDING:
        got = f"jaxlib {version('jaxlib')}, which on {backend} is wrong by {error:.2g} of a sum over {ROWS:,} rows"
        hint = f"pip install jax=={SOUND} jaxlib=={SOUND}"
        raise DependencyError(explain("a jaxlib that computes what it is asked to", got, hint))


def _problem(width: int) -> tuple[Floats, Floats]:
    matrix = np.cos(np.arange(width * width, dtype=np.float64)).reshape(width, width)
    return matrix, np.sin(np.arange(ROWS * width, dtype=np.float64)).reshape(ROWS, width)


def _answers(problems: list[tuple[Floats, Floats]]) -> list[list[Floats]]:
    """By every way in which programs are compiled here."""
    with jax.enable_x64(True):
        ways = jax.jit(_squares, static_argnums=0), compiled(_squares), compiled(_squares, quickly=True)
        return [[np.asarray(part) for part in way(None, problems)] for way in ways]


def _squares(_: Any, problems: Any) -> list[jax.Array]:
    return [jax.vmap(lambda row, matrix=matrix: jnp.sum((matrix @ row) ** 2))(rows) for matrix, rows in problems]


def _largest(found: list[Floats], exact: list[Floats]) -> float:
    """The largest error, relative to the largest answer."""
    return max(float(np.max(np.abs(a - b)) / np.max(b)) for a, b in zip(found, exact, strict=True))
