"""Every test runs with the settings a fresh user has; nothing here changes JAX.

`make test` has its programs compiled quickly, and `make test-all` as a user has them: see the Makefile.
"""

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


@pytest.fixture(scope="module")
def optimised():
    """For modules whose paths take longer to run than to compile: programs as a user has them, in `make test` too."""
    import jax

    # XLA reads its flags once, with its first program.
    jax.jit(lambda x: x)(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)
        yield
