"""Every test runs with the settings a fresh user has; nothing here changes JAX.

`make test` has its programs compiled quickly, and `make test-all` as a user has them: see the Makefile.
"""

import gc
import sys

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """What a test leaves behind is kept from the collector, and let go of with the last test of its folder.

    JAX keeps every program it has traced. Of thousands of tests that is gigabytes in a worker, and to go through them
    again and again was a sixth of the time.
    """
    if nextitem is not None and nextitem.path.parent != item.path.parent:
        gc.unfreeze()
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()
        gc.collect()
    gc.freeze()


# Traces are many small objects, few of them ever garbage: to look for it within tests took a twentieth of the time.
gc.set_threshold(1_000_000)


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
