"""How old a figure is: which version of the code each file of results was measured with, and what has changed since.

    make stale                                  files that are older than the code, and by which packages
    python benchmarks/ages.py adopt [FILE ...]  takes a file to be as old as the commit that last changed it

A benchmark calls `record` when it has written its results. The age of results/x.json is in results/ages/x.json: a
digest of what the file says, and by part of it the method, which is a digest of each package that the figure depends
on (see figures.py). The digest of a package is of its syntax without docstrings and comments: a rewording ages nothing.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from figures import FIGURES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tallbayes"
RESULTS = Path(__file__).parent / "results"
WHOLE = "all"
ABOUT = ("commits", "machine", "mixed truth", "red_below", "references", "scratch", "settings", "summary", "versions")
Method = dict[str, Any]


def meaning(node: Any) -> Any:
    """A tree of syntax as nested tuples, without docstrings, places, and empty fields, which Pythons differ in."""
    if isinstance(node, ast.AST):
        body = getattr(node, "body", None)
        told = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if told and body and isinstance(body[0], ast.Expr) and _is_text(body[0].value):
            node.body = body[1:]  # type: ignore[attr-defined]
        fields = ((name, meaning(value)) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind"))
        return type(node).__name__, *((name, value) for name, value in fields if value not in (None, ()))
    if isinstance(node, list):
        return tuple(meaning(each) for each in node)
    return None if node is None else repr(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def digest_of(text: str) -> str:
    """
    >>> digest_of("def f(x):\\n    return x") == digest_of('def f(x):  # why\\n    "What."\\n    return (x)')
    True
    """
    return hashlib.sha256(repr(meaning(ast.parse(text))).encode()).hexdigest()[:16]


@cache
def digests(source: Path = SOURCE) -> dict[str, str]:
    return digests_of(source)


def digests_of(source: Path) -> dict[str, str]:
    """By package of the source, and by module that belongs to none; maps of packages do not count."""
    found: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        if path.name not in ("__init__.py", "__main__.py"):
            part = place.parts[0] if len(place.parts) > 1 else place.stem
            found.setdefault(part, []).append(f"{place.as_posix()} {digest_of(path.read_text())}")
    return {part: hashlib.sha256("\n".join(each).encode()).hexdigest()[:12] for part, each in found.items()}


def method(name: str, source: Path = SOURCE, commit: str | None = None) -> Method:
    """With what a file of results would be measured now; a package that is not there has no digest."""
    of_all = digests(source)
    packages = {each: of_all.get(each, "") for each in FIGURES[name].packages}
    return {"commit": describe_commit() if commit is None else commit, "packages": packages}


@cache
def describe_commit() -> str:
    done = git("describe", "--always", "--dirty")
    return done.stdout.decode().strip() or "unknown"


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def record(path: Path, parts: Mapping[str, Sequence[Method] | None] | None = None) -> None:
    """Say with which methods a file of results was measured: all of it now, or its `parts`; None is as before.

    A file elsewhere, or of another name than those of `FIGURES`, has no age.
    """
    if path.name not in FIGURES or path.parent.resolve() != RESULTS.resolve():
        return
    if parts is None:
        keep(path, {WHOLE: [method(path.name)]})
        return
    keep(path, {name: before(path.name, name) if own is None else own for name, own in parts.items()})


def complete(store: Any, name: str, pieces: Mapping[str, Any]) -> None:
    """Run the pieces of a `Store` that are missing, and say of them that they are of now."""
    path, old = store.path(name), store.read(name)
    store.complete(name, pieces, lambda text: print(text, file=sys.stderr, flush=True))
    new = store.read(name)
    record(path, renewed(path.name, new, differing(old, new)))


def before(name: str, part: str) -> Sequence[Method]:
    """The methods of a part of a file of results as they are on record; all of the file's, if it is not by itself."""
    parts = read(name).get("parts", {})
    return list(parts[part]) if part in parts else [each for own in parts.values() for each in own]


def is_of_now(path: Path, part: str) -> bool:
    """Whether a part of a file of results was measured with the code as it is; a file without an age counts as such."""
    known = read(path.name)["parts"] if path.parent.resolve() == RESULTS.resolve() and read(path.name) else {}
    return all(each.get("packages") == method(path.name)["packages"] for each in known.get(part, ()))


def renewed(name: str, parts: Iterable[str], new: Iterable[str]) -> dict[str, Sequence[Method] | None]:
    """Of the parts of a file of results, `new` are of now and the others as before."""
    fresh = set(new) if name in FIGURES else set()
    return {part: [method(name)] if part in fresh else None for part in parts}


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [name for name, each in new.items() if old.get(name) != each]


def grown(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Sequence[Method] | None]:
    """Parts of a document to which runs were added: what has kept some of its runs is of before and of now."""
    known, found = _entries(old), _entries(new)
    fresh = differing(known, found)
    mixed = [part for part in fresh if part in known and _share(known[part], found[part])]
    return renewed(name, found, fresh) | {part: [*before(name, part), method(name)] for part in mixed}


def _entries(document: Mapping[str, Any]) -> dict[str, Any]:
    """By name; two names, of what holds nothing but studies that hold nothing but runs."""
    found = {}
    for name, each in document.items():
        if isinstance(each, dict) and each and all(isinstance(one, dict) and _is_nested(one) for one in each.values()):
            found.update({f"{name}/{kind}": one for kind, one in each.items()})
        else:
            found[name] = each
    return found


def _is_nested(each: Mapping[str, Any]) -> bool:
    return all(isinstance(one, dict | list) for one in each.values())


def _share(old: Any, new: Any) -> bool:
    """Whether one of the runs is in both."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return any(isinstance(one, dict | list) and new.get(name) == one for name, one in old.items())


def stamp(path: Path) -> dict[str, Method]:
    """What a line of x.jsonl says of the method of its run, where there is a results/x.json."""
    name = path.with_suffix(".json").name
    return {"method": method(name)} if name in FIGURES else {}


def of_lines(runs: Iterable[Mapping[str, Any]]) -> list[Method]:
    """The methods that stored lines were run with; of lines without one nothing is known."""
    found = {json.dumps(each.get("method", {}), sort_keys=True) for each in runs}
    return [json.loads(each) for each in sorted(found)]


def keep(path: Path, parts: Mapping[str, Sequence[Method]]) -> None:
    """Each method stands once in the file."""
    methods: list[Method] = []
    for each in (one for own in parts.values() for one in own):
        if each not in methods:
            methods.append(each)
    places = {name: sorted({methods.index(each) for each in own}) for name, own in parts.items()}
    place = RESULTS / "ages" / path.name
    place.parent.mkdir(exist_ok=True)
    document = {"content": content_of(path), "methods": methods, "parts": places}
    place.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def read(name: str) -> dict[str, Any]:
    """What is on record of a file of results: its digest, and methods by part."""
    place = RESULTS / "ages" / name
    if not place.exists():
        return {}
    document = json.loads(place.read_text())
    parts = {part: [document["methods"][each] for each in own] for part, own in document["parts"].items()}
    return {"content": document["content"], "parts": parts}


def content_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def changed(name: str, source: Path = SOURCE) -> list[str]:
    """Packages that are not as they were when a file of results was measured: none, if it is as new as the code.

    Nothing but "?" if the file has no age, or one of other contents, or is not there.
    """
    if not FIGURES[name].packages:
        return []
    known = read(name)
    if not (RESULTS / name).exists() or known.get("content") != content_of(RESULTS / name):
        return ["?"]
    now = method(name, source, "")["packages"]
    seen = [each.get("packages", {}) for part in known["parts"].values() for each in (part or [{}])]
    return [each for each in now if any(one.get(each) != now[each] for one in seen)]


def adopt(name: str) -> None:
    """The age of a file that has none: each of its runs is as old as the commit since which it reads as it does."""
    path = RESULTS / name
    commits = git("log", "--format=%h", "--", str(path)).stdout.decode().split()
    if not commits:
        sys.exit(f"expected a file that is committed; got benchmarks/results/{name}: run {FIGURES[name].command}")
    place, found = path.relative_to(ROOT).as_posix(), runs_of(json.loads(path.read_text()))
    since, same = dict.fromkeys(found, commits[0]), set(found)
    for commit in commits:
        stored = git("show", f"{commit}:{place}")
        then = runs_of(json.loads(stored.stdout)) if stored.returncode == 0 else {}
        same = {part for part in same if then.get(part) == found[part]}
        since.update(dict.fromkeys(same, commit))
    keep(path, {part: [method_at(name, commit)] for part, commit in since.items()})


def runs_of(document: Any) -> dict[str, Any]:
    """What was measured, by name, or by its digest where it has none; without what the measurements are about."""
    found: dict[str, Any] = {}
    for name, each in document.items() if isinstance(document, dict) else [("", document)]:
        if name in ABOUT or not isinstance(each, dict | list):
            continue
        if isinstance(each, list):
            found |= {f"{name}/{hashlib.sha256(repr(one).encode()).hexdigest()[:8]}": one for one in each}
        elif all(isinstance(one, dict) for one in each.values()):
            found |= {f"{name}/{key}": one for key, one in each.items()}
        else:
            found[name] = each
    return found or {WHOLE: document}


@cache
def method_at(name: str, commit: str) -> Method:
    return {"commit": commit, "packages": {each: digests_at(commit).get(each, "") for each in FIGURES[name].packages}}


@cache
def digests_at(commit: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "source.tar"
        packed.write_bytes(git("archive", commit, "src/tallbayes").stdout)
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        return digests_of(Path(folder) / "src" / "tallbayes")


def show() -> str:
    """A line for every file of results that is older than the code."""
    lines = []
    for name, figure in FIGURES.items():
        packages = changed(name)
        if packages == ["?"]:
            lines.append(f"{name}: of unknown age: {figure.command}, or python benchmarks/ages.py adopt {name}")
        elif packages:
            several = len(packages) > 6
            lines.append(f"{name}: {'most packages' if several else ', '.join(packages)}: {figure.command}")
    return "\n".join([*lines, f"{len(lines)} of {len(FIGURES)} files of results are older than the code"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("show", "adopt"), default="show")
    parser.add_argument("files", nargs="*", help="default: those without an age")
    given = parser.parse_args()
    if given.command == "adopt":
        there = [each for each in FIGURES if (RESULTS / each).exists()]
        for name in given.files or [each for each in there if read(each).get("content") != content_of(RESULTS / each)]:
            adopt(name)
    print(show())


if __name__ == "__main__":
    main()
