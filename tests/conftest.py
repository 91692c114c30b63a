"""Every test runs with the settings a fresh user has; nothing here changes JAX."""

import pytest


@pytest.fixture
def compilations():
    """A list that grows by one whenever JAX compiles a program."""
    import jax

    seen: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)
