"""Compilation: programs of many short loops, compiled quickly on a CPU, once, and ahead of need.

Measured on a coupled level (jaxlib 0.10): with LLVM's first level of optimisation and the older fusion emitters a
program compiles in 0.6 of the time and runs as fast. An option that XLA_FLAGS names is left to it: with
--xla_backend_optimization_level=0 a program compiles in half of that time and runs for four times as long. A version
of XLA that knows no such option does without. Two threads that call a new program at once would each compile it: the
second one waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

from tallbayes.programs.later import jax
from tallbayes.watch import compiling, look

CPU_OPTIONS = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
# For what runs for milliseconds in all.
QUICK_OPTIONS = CPU_OPTIONS | {"xla_backend_optimization_level": 0}

# Only one thread at a time gets anywhere with a trace. Together they would all end late, and the compiler begin late.
_TRACING = threading.RLock()


def compiled(function: Callable[..., Any], quickly: bool = False) -> Program:
    """Jit with a static first argument, on CPU with `CPU_OPTIONS`; nothing happens before the first call.

    `quickly` is with `QUICK_OPTIONS`: another program, which rounds otherwise. So what it is for must not hang on how
    busy a process has been, but on the problem alone.
    """
    return _program(function, jax.default_backend(), os.environ.get("XLA_FLAGS", ""), quickly)


class Program:
    """A jitted function whose first call for arguments of one shape is made by one thread alone."""

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted
        self._lock = threading.Lock()
        self._turns: dict[Any, threading.Lock] = {}
        self._ready: set[Any] = set()

    def __call__(self, static: Hashable, *arguments: Any) -> Any:
        leaves, treedef = jax.tree.flatten(arguments)
        key = static, treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key in self._ready:
            return self.jitted(static, *arguments)
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with compiling(), turn:
            if key not in self._ready:
                # An exit waits for a compiler: none is begun where the time is over.
                look()
                with _TRACING:
                    lowered = self.jitted.lower(static, *arguments)
                lowered.compile()
                self._ready.add(key)
        # Compiled, but not begun where the time is over by now.
        look()
        return self.jitted(static, *arguments)


@cache
def _program(function: Callable[..., Any], backend: str, flags: str, quickly: bool) -> Program:
    options = own_options(flags, quickly) if backend == "cpu" and _known() else None
    return Program(jax.jit(function, static_argnums=0, compiler_options=options))


def own_options(flags: str, quickly: bool = False) -> dict[str, Any]:
    """Those of `CPU_OPTIONS`, or of `QUICK_OPTIONS`, that XLA_FLAGS leaves open."""
    named = {flag.lstrip("-").partition("=")[0] for flag in flags.split()}
    options = QUICK_OPTIONS if quickly else CPU_OPTIONS
    return {name: value for name, value in options.items() if name not in named}


@cache
def _known() -> bool:
    try:
        jax.jit(lambda x: x + 1, compiler_options=CPU_OPTIONS)(0)
    except Exception:
        return False
    return True
