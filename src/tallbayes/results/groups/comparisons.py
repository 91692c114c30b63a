"""Groups compared: two groups of a column, or two rows that belong to groups.

result.compare("school", "Oak", "Elm")            the difference of their effects; of several effects the first
result.compare("school", "Oak", "Elm", "hour")    that of another effect
result.compare({"school": "Oak", "hour": 7}, {"school": "Elm", "hour": 7})      the difference of linear predictors

Given theta the effects of two groups are independent, and one that is new is normal (`posterior.effects`). Where two
rows are of one group, whose effect they share, and differ in nothing that it varies, its effect cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, suggestion
from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.moments import Floats
from tallbayes.posterior.effects import ContrastNumbers, OfContrast, contrast_of
from tallbayes.results.coefficients import Number
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.groups.predictions import Mixed, known_of
from tallbayes.results.result import Result

if TYPE_CHECKING:
    from tallbayes.formula.encoding import Encoding
    from tallbayes.formula.groups.design import GroupDesign

MOST_NAMED = 20


@dataclass(frozen=True)
class GroupContrast:
    """Numbers of a difference, each with its error."""

    a: str
    b: str
    mean: Number
    sd: Number
    median: Number
    lower: Number
    upper: Number
    probability: Number

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def is_group(result: Result, column: str) -> bool:
    """Whether a column is that of the groups whose effects were integrated out."""
    known = known_of(result)
    if result.encoding is None:
        return known is not None and known.integral.groups.by == column
    encoding = _encoding(result)
    return bool(encoding.groups) and Mixed.of(result, encoding).terms[0].by == column


def explicit_names(result: Result, column: str, a: Any, b: Any, effect: str | None) -> tuple[str, str] | None:
    """The names of two parameters, where the effects by this column are such; None where they are not."""
    if result.encoding is None:
        return None
    group = next((each for each in _encoding(result).groups if ":".join(each.term.by) == column), None)
    if group is None:
        return None
    name = group.names[_place(group.names, effect, "effect", column)] if effect is not None else group.names[0]
    levels = group.levels.names
    first, second = (levels[_place(levels, each, "group", column)] for each in (a, b))
    return f"{name}|{column}[{first}]", f"{name}|{column}[{second}]"


def compare_groups(
    result: Result, column: str, a: Any, b: Any, effect: str | None, probability: float
) -> GroupContrast:
    """a - b of two groups that the fit has seen."""
    posterior, known = kept_posterior(result), known_of(result)
    if known is None:
        hint = "compare in the process that fitted it, or result.effects() for the effect of each"
        raise InputError(explain(f"a result that has the rows of {column!r}", "one from a file", hint))
    groups, size = known.integral.groups, _shown_size(result, known.integral)
    labels: Sequence[Any] = known.levels.tolist()
    labels = labels if groups.levels is None else [groups.levels[each] for each in labels]
    places = [_place(labels, each, "group", column) for each in (a, b)]
    if places[0] == places[1]:
        raise InputError(explain("two groups", f"{a!r} twice", "another one"))
    names = groups.names or tuple(f"effect[{k}]" for k in range(size))
    which = 0 if effect is None else _place(names, effect, "effect", column)
    weights = np.zeros((2, size))
    weights[:, which] = 1.0, -1.0
    item = {
        "units": known.take(known.order[places]),
        "weights": weights,
        "line": np.zeros(len(posterior.anchor.mode)),
    }
    space = _space(result)
    found = contrast_of(posterior, OfContrast(space, known.integral, ()), _alone(item), probability)
    told = f" ({names[which]})" if size > 1 else ""
    return _named(f"{a}{told}", f"{b}{told}", found)


def compare_rows(
    result: Result, a: Mapping[str, Any], b: Mapping[str, Any], probability: float
) -> GroupContrast | dict[str, float]:
    """The difference of two rows' linear predictors, effects included: numbers, or the weights of parameters by name
    where it is a sum of these alone."""
    encoding, posterior, known = _encoding(result), kept_posterior(result), known_of(result)
    mixed, both = Mixed.of(result, encoding), _table(encoding, a, b)
    x, designs = encoding.encode(both), encoding.encode_groups(both)
    scale, item, named = encoding.response_scale, dict[str, Any](), _of_coefficients(encoding, x[0] - x[1])
    for place, at in enumerate(mixed.order):
        design = designs[at]
        same = all(a.get(name) == b.get(name) for name in design.term.by)
        seen, new = _split(design, same)
        if place and seen:
            codes, z = (np.array(part) for part in zip(*seen, strict=True))
            item[f"known{place}"] = {"level": codes, "weights": scale * z}
            for code, own in zip(codes, z @ np.linalg.inv(design.to_own), strict=True):
                level = design.levels.names[code]
                names = (f"{effect}|{mixed.terms[place].by}[{level}]" for effect in design.names)
                named |= dict(zip(names, own.tolist(), strict=True))
        elif seen and known is not None:
            codes, z = (np.array(part) for part in zip(*seen, strict=True))
            item |= {"units": known.take(known.places(codes)), "weights": z @ np.linalg.inv(design.to_own)}
        elif seen:
            hint = "compare in the process that fitted it, or rows of new groups"
            raise InputError(explain(f"a result that has the rows of {mixed.terms[0].by!r}", "one from a file", hint))
        if new:
            item[f"new{place}"] = scale * np.array(new)
    if not any(name == "units" or name.startswith("new") for name in item):
        return named
    if encoding.coding.smooths:
        got = "rows of different groups beside smooths"
        raise InputError(explain("rows of one group", got, "result.predict of the two rows"))
    item["line"] = _direction(mixed, posterior.anchor.mode, (x[0] - x[1]) * scale)
    integral = known.integral if known is not None and "units" in item else None
    found = contrast_of(posterior, OfContrast(mixed.space, integral, mixed.terms), _alone(item), probability)
    return _named("the first row", "the second row", found)


def _split(design: GroupDesign, same: bool) -> tuple[list[tuple[int, Floats]], list[Floats]]:
    """What two rows, with signs, ask of levels that are known, by number, and of new ones; without what cancels."""
    codes, z = design.codes, np.asarray(design.z, np.float64)
    parts = [(int(codes[0]), z[0] - z[1])] if same else [(int(codes[0]), z[0]), (int(codes[1]), -z[1])]
    parts = [(code, each) for code, each in parts if np.any(each)]
    return [part for part in parts if part[0] >= 0], [each for code, each in parts if code < 0]


def _of_coefficients(encoding: Encoding, difference: Floats) -> dict[str, float]:
    """The weights of coefficients as they are reported, of a difference of columns as they were fitted."""
    own = difference * np.array(encoding.scales)
    return {name: float(each) for name, each in zip(encoding.coding.names, own, strict=True) if each}


def _direction(mixed: Mixed, mode: Floats, weights: Floats) -> Floats:
    """Of u, along which a weighted sum of coefficients moves: they are numbers of u themselves."""
    import jax
    import jax.numpy as jnp

    def total(vector: Any) -> Any:
        return jnp.sum(weights * mixed.space.theta(vector)["coefficients"])

    with jax.enable_x64(True):
        return np.asarray(jax.grad(total)(jnp.asarray(mode)), np.float64)


def _table(encoding: Encoding, a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, list[Any]]:
    from tallbayes.rows.columns import base_columns

    columns = [*encoding.coding.kinds, *(name for group in encoding.groups for name in group.columns)]
    read = base_columns(tuple(dict.fromkeys(columns)), tuple(a))
    return {name: [a.get(name), b.get(name)] for name in read}


def _alone(item: dict[str, Any]) -> dict[str, Any]:
    """With a leading axis of one."""
    import jax

    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], item)


def _shown_size(result: Result, integral: GroupIntegral) -> int:
    import jax

    start = np.zeros(len(kept_posterior(result).anchor.mode))
    space, size = _space(result), integral.groups.size
    return int(jax.eval_shape(lambda u, b: integral.shown(space.theta(u), b), start, np.zeros(size)).shape[0])


def _space(result: Result) -> Any:
    live = kept_posterior(result).live
    return live[0].space if live is not None else Mixed.of(result, _encoding(result)).space


def _encoding(result: Result) -> Encoding:
    from tallbayes.formula.encoding import Encoding

    assert result.encoding is not None
    return Encoding.from_plain(result.encoding)


def _place(names: Sequence[Any], wanted: Any, what: str, column: str) -> int:
    for place, each in enumerate(names):
        if each == wanted or str(each) == str(wanted):
            return place
    known = [str(each) for each in names]
    more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
    among = f"one of {', '.join(known[:MOST_NAMED])}{more}"
    raise InputError(
        explain(f"the name of a known {what} of {column!r}", repr(wanted), suggestion(str(wanted), known, among))
    )


def _named(a: str, b: str, found: ContrastNumbers) -> GroupContrast:
    numbers = found.numbers

    def number(value: Floats, error: Floats) -> Number:
        return Number(float(value[0, 0]), float(error[0, 0]))

    return GroupContrast(
        a,
        b,
        number(numbers.mean, numbers.mean_error),
        number(numbers.sd, numbers.sd_error),
        number(numbers.median, numbers.median_error),
        number(numbers.lower, numbers.end_error),
        number(numbers.upper, numbers.end_error),
        Number(found.probability, found.probability_error),
    )
