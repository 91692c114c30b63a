"""Programs are compiled with the package's own options, but for those that XLA_FLAGS names."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tallbayes.programs.compilation import CPU_OPTIONS, QUICK_OPTIONS, compiled, own_options

LEVEL, EMITTERS = CPU_OPTIONS


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ("", {LEVEL, EMITTERS}),
        ("--xla_cpu_max_isa=AVX2", {LEVEL, EMITTERS}),
        (f"--{LEVEL}=0", {EMITTERS}),
        (f"--xla_dump_to=x  --{EMITTERS} --{LEVEL}=3", set()),
        (f"--{LEVEL}_of_another_kind=0", {LEVEL, EMITTERS}),
    ],
)
def test_an_option_that_xla_flags_names_is_left_to_it(flags: str, left: set[str]) -> None:
    assert set(own_options(flags)) == left


def test_a_quick_program_differs_in_its_level_and_gives_way_to_xla_flags_too() -> None:
    assert own_options("", quickly=True) == QUICK_OPTIONS
    assert QUICK_OPTIONS == CPU_OPTIONS | {LEVEL: 0}
    assert set(own_options(f"--{LEVEL}=2", quickly=True)) == {EMITTERS}


def power(exponent: int, x: Any) -> Any:
    return jnp.sum(x**exponent)


def test_a_program_belongs_to_the_flags_it_was_made_under(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = []
    for flags in ("", f"--{LEVEL}=0", ""):
        monkeypatch.setenv("XLA_FLAGS", flags)
        programs.append(compiled(power))
        assert float(programs[-1](3, np.arange(4, dtype=np.float32))) == 36.0
    assert programs[0] is programs[2]
    assert programs[0] is not compiled(power, quickly=True)
    assert programs[0] is not programs[1]
