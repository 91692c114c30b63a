"""The levels of a run that was read from a file, made again of its rows and of what it says of its method.

A result tells its method in the words of its parts, Anchored(Taylor(...), Exponential(...), Antithetic(), Ladder(...)),
which are read as they are: names of parts of the house, numbers and words, and nothing else.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields, is_dataclass, replace
from math import inf
from typing import Any

from tallbayes.anchor.importance import list_rows
from tallbayes.estimator.ladder import Ladder
from tallbayes.methods.anchored import reads_slabs
from tallbayes.model.observables import Observables
from tallbayes.results.fitted import fitted_of, kept_posterior
from tallbayes.results.result import Result
from tallbayes.rows.listing import Listing
from tallbayes.sampler import couplings, dynamics, gradients, kinetic, minibatch
from tallbayes.sampler.levels import Problem, make_problem
from tallbayes.sampler.paths import Plan

PARTS: dict[str, Any] = {"Ladder": Ladder, "inf": inf}
for _module in (couplings, dynamics, gradients, kinetic, minibatch):
    PARTS |= {name: part for name, part in vars(_module).items() if getattr(part, "__module__", "") == _module.__name__}


def levels_again(result: Result, listing: Listing | None = None) -> Problem | None:
    """None where its method has parts that are not of the house; with a list of its rows, where one is at hand."""
    try:
        gradient, dynamics_, coupling, ladder = read_parts(result.method)
    except (ValueError, SyntaxError, TypeError):
        return None
    posterior, fitted = kept_posterior(result), fitted_of(result)
    slabs, batch = reads_slabs(gradient), gradient.batch_size or 0
    precision = result.settings.get("precision", "float64")
    known = replace(gradient, batch_size=1) if slabs else gradient
    parts = known, dynamics_, coupling, Observables(True, ()), precision
    plan = Plan(fitted.target, *parts, laplace=posterior.laplace, slabs=slabs)
    if slabs and listing is None:
        listing = list_rows(fitted.target, fitted.table, posterior.anchor)
    listing = listing if slabs else None
    return make_problem(plan, fitted.table, posterior.anchor, ladder, 0, (), batch, listing)


def read_parts(method: str) -> tuple[Any, Any, Any, Any]:
    """Gradient, dynamics, coupling and ladder, of a method in words.

    >>> read_parts("Anchored(Taylor(batch_size=2, sampling=Blocks()), Exponential(bound=2.0), Antithetic(), "
    ...            "Ladder(first_step=0.5, start_steps=6, added_steps=6, window_steps=0))")[3].steps(1)
    24
    """
    call = ast.parse(re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", method), mode="eval").body
    if not isinstance(call, ast.Call) or len(call.args) != 4:
        raise ValueError(method)
    gradient, dynamics_, coupling, ladder = (_read(each) for each in call.args)
    return gradient, dynamics_, coupling, ladder


def _read(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in PARTS:
        return PARTS[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PARTS:
        named = {each.arg: _read(each.value) for each in node.keywords if each.arg is not None}
        return _made(PARTS[node.func.id], [_read(each) for each in node.args], named)
    return ast.literal_eval(node)


def _made(part: Any, values: list[Any], named: dict[str, Any]) -> Any:
    """A part tells all of its fields, also those that nobody chooses: Full(batch_size=None)."""
    fixed = {each.name for each in fields(part) if not each.init} if is_dataclass(part) else set()
    made = part(*values, **{name: value for name, value in named.items() if name not in fixed})
    for name in fixed & named.keys():
        if getattr(made, name) != named[name]:
            raise ValueError(f"{name}={named[name]!r}")
    return made
