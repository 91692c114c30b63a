"""Has a bit changed? Small calls through every public name, and a hash of all numbers that each of them answers.

    python benchmarks/same_bits.py [--out FILE] [--against FILE] [--only PART ...]

A refactoring must not change an answer. Run this before it with `--out`, and after it with `--against`, which prints
the calls that differ, each with its first number that does, and ends with exit code 1 if one differs or is missing.
`--only` takes parts, the words before the colon of a call's name: asked, command, executor, family, formula, ledger,
method, model, numpyro, question, refusal, saved, sklearn, table, and text, which are the views for people. A call that
raises is known by the type and message of its error.

    bits_calls      families, methods, models, questions, executors
    bits_doors      formulas, scikit-learn, NumPyro, ledgers, tables
    bits_commands   the command line, and texts for people
    bits_refusals   bad input
    bits_rows       the tables and models they share
    bits_numbers    what an answer consists of, and what of a text is the clock's

FILE is JSON, a line a call: {call: {hash, numbers, seconds, marks}}, with the first numbers, rounded, and two digits
of a hash for each of the first 250. It holds for one version of jaxlib on processors of one kind, without XLA_FLAGS.
Compiling takes most of the time: with JAX_COMPILATION_CACHE_DIR, as `make same-bits` sets it, a second run reads what
the first one compiled, and has the same bits.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ages
from bits_numbers import Leaf, bits, few, leaves, marks, masked

RAISED = "raised"


class Answer(NamedTuple):
    """What a call answered, leaf by leaf, and how long it took."""

    leaves: list[Leaf]
    seconds: float

    @property
    def error(self) -> str:
        label, value = self.leaves[0] if self.leaves else ("", "")
        return str(value) if label == RAISED else ""

    def entry(self) -> dict[str, Any]:
        kept = {"hash": bits(self.leaves), "numbers": few(self.leaves), "seconds": round(self.seconds, 1)}
        return kept | {"marks": marks(self.leaves)}


def main() -> int:
    options = _options()
    _prepare()
    calls = {name: call for name, call in all_calls().items() if _is_wanted(name, options.only)}
    if not calls:
        sys.exit(f"same_bits: no call is of {', '.join(options.only)}; see the head of this file for the parts")
    started = time.monotonic()
    answers = dict(_answered(calls))
    print(f"{len(answers)} calls, {time.monotonic() - started:.0f} s", flush=True)
    if options.out is not None:
        write(options.out, answers)
        ages.record(options.out)
    if options.against is None:
        return 0
    before = json.loads(options.against.read_text())
    return compare({name: entry for name, entry in before.items() if _is_wanted(name, options.only)}, answers)


def all_calls() -> dict[str, Callable[[], Any]]:
    # They import JAX, which reads its settings then.
    import bits_calls
    import bits_commands
    import bits_doors
    import bits_refusals

    groups = (
        bits_calls.families,
        bits_calls.methods,
        bits_calls.models,
        bits_calls.questions,
        bits_calls.executors,
        bits_doors.formulas,
        bits_doors.estimators,
        bits_doors.numpyro_models,
        bits_doors.ledgers,
        bits_doors.tables,
        bits_commands.commands,
        bits_refusals.refusals,
        bits_commands.texts,
    )
    return {name: call for group in groups for name, call in group().items()}


def answer_of(call: Callable[[], Any]) -> Answer:
    """Of one call, the leaves of what it returns or the error that it raises."""
    from bits_rows import folder

    started = time.monotonic()
    try:
        found = list(leaves(call()))
    except Exception as error:
        found = [(RAISED, masked(f"{type(error).__name__}: {error}", folder()))]
    return Answer(found, time.monotonic() - started)


def write(place: Path, answers: dict[str, Answer]) -> None:
    """A line a call, so that versions of the file can be compared by eye."""
    entries = (f"{json.dumps(name)}: {json.dumps(answer.entry())}" for name, answer in answers.items())
    place.write_text("{\n" + ",\n".join(entries) + "\n}\n")


def compare(before: dict[str, dict[str, Any]], answers: dict[str, Answer]) -> int:
    """Print what differs from an earlier run; the exit code."""
    missing = [name for name in before if name not in answers]
    new = [name for name in answers if name not in before]
    differing = [name for name in answers if name in before and bits(answers[name].leaves) != before[name]["hash"]]
    for name in missing:
        print(f"MISSING  {name}")
    for name in new:
        print(f"new      {name}")
    for name in differing:
        print(f"DIFFERS  {name}: {first_difference(before[name], answers[name].leaves)}")
    print(f"{len(differing)} differ, {len(missing)} missing, {len(new)} new, of {len(answers)} calls")
    return 1 if differing or missing else 0


def first_difference(before: dict[str, Any], found: list[Leaf]) -> str:
    """The first leaf that is another one, as far as the marks of before can tell."""
    now = marks(found)
    for place in range(min(len(now), len(before["marks"])) // 2):
        part = slice(2 * place, 2 * place + 2)
        if now[part] != before["marks"][part]:
            label, value = found[place]
            known = before["numbers"]
            was = f"{known[place]!r}, rounded" if place < len(known) else "another"
            return f"{label or 'the answer'}, number {place + 1}, is {value!r:.200}; was {was}"
    return f"beyond its first {len(before['marks']) // 2} numbers; now there are {len(found)}"


def _answered(calls: dict[str, Callable[[], Any]]) -> Iterator[tuple[str, Answer]]:
    width = max(map(len, calls))
    print(f"{'call':{width}}  {'hash':16}  seconds")
    for name, call in calls.items():
        answer = answer_of(call)
        told = "" if name.startswith("refusal") else answer.error
        print(f"{name:{width}}  {bits(answer.leaves)}  {answer.seconds:7.1f}  {told}".rstrip(), flush=True)
        yield name, answer


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Has a bit changed?")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write hashes and first numbers there")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with an earlier run")
    parser.add_argument("--only", nargs="+", metavar="PART", help="such as family, or text")
    return parser.parse_args()


def _is_wanted(name: str, parts: list[str] | None) -> bool:
    return parts is None or name.partition(":")[0] in parts


def _prepare() -> None:
    """What this process compiles, its commands and workers need not compile again; all are quiet about it."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        compiled = tempfile.mkdtemp(prefix="same-bits-compiled-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
        atexit.register(shutil.rmtree, compiled, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
