"""What the tests of the command line share.

Three fits are made: one in this process, that most tests look at, one with a budget, and one under a terminal of its
own that is interrupted. Everything else is refused early or given the first fit's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fitted_flights import Fitted

import tallbayes as tb


@pytest.fixture
def without_compile_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would change a setting of JAX for all tests after these."""
    monkeypatch.setenv("TALLBAYES_CACHE", "")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLBAYES_CACHE", "")
        return Fitted(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def instead(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Put a finished result in place of what a fit would compute; the options that it was given."""

    def replace_fit(outcome: Any = None, **changes: Any) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def fit(formula: str, table: Any, family: str, **options: Any) -> tb.Result:
            seen.update(options, formula=formula, family=family)
            if isinstance(outcome, BaseException):
                raise outcome
            return replace(fitted.result, **changes)

        monkeypatch.setattr("tallbayes.formula.fit.fit", fit)
        return seen

    return replace_fit
