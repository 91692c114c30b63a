"""A run on disk: one folder that holds the answer and the question.

    RUN/result.tallbayes   the result, as `result.save` writes it
    RUN/run.json           data, formula, family, accuracy and all other options, versions, and when

It is written beside its place and then renamed, so that a RUN that exists is a whole one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tallbayes.errors import InputError, ResultFileError, explain
from tallbayes.result import Result
from tallbayes.storage import load

RESULT = "result.tallbayes"
SETTINGS = "run.json"


def require_free(folder: Path, force: bool) -> None:
    """Refuse, before any work, a place that is taken or cannot be written; with `force` another run may be there."""
    folder = folder.absolute()
    if os.path.lexists(folder):
        if not force:
            what = f"{str(folder)!r}, which exists"
            raise InputError(explain("a new folder for --out", what, "another --out, or --force to replace that run"))
        if not (folder / SETTINGS).is_file() or folder.is_symlink():
            what = f"{str(folder)!r}, which is none"
            raise InputError(explain("a run for --force to replace", what, "another --out, or remove it yourself"))
    if not folder.parent.is_dir():
        what = f"no folder {str(folder.parent)!r}"
        raise InputError(explain(f"a folder to put {folder.name!r} in", what, f"mkdir -p {folder.parent}"))
    if not os.access(folder.parent, os.W_OK | os.X_OK):
        what = f"no permission to write in {str(folder.parent)!r}"
        raise InputError(explain("a place for --out that can be written", what, "another --out"))


def write_run(folder: Path, result: Result, settings: dict[str, Any], force: bool) -> Path:
    """Write the whole folder or nothing; where it is now, which is beside `folder` if that was taken meanwhile."""
    folder = folder.absolute()
    partial = _beside(folder, "partial")
    try:
        partial.mkdir()
        result.save(partial / RESULT)
        (partial / SETTINGS).write_text(json.dumps(settings, indent=2, allow_nan=False) + "\n")
        if not os.path.lexists(folder):
            os.rename(partial, folder)
        elif force:
            _replace(folder, partial)
        else:
            folder = folder.with_name(f"{folder.name}-{os.getpid()}")
            os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _replace(folder: Path, new: Path) -> None:
    """The old folder comes back if the new one cannot take its place."""
    old = _beside(folder, "old")
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except BaseException:
        os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _beside(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{os.getpid()}.{kind}")


def read_run(path: Path) -> tuple[Result, dict[str, Any]]:
    """The result of a run and its settings, from its folder or the result within; a lone result has no settings."""
    if not path.is_dir():
        if not path.exists():
            what = f"nothing at {str(path)!r}"
            raise ResultFileError(explain("a run", what, "the folder given to --out of tallbayes fit"))
        return load(path), _settings(path.with_name(SETTINGS)) if path.name == RESULT else {}
    if not (path / RESULT).exists():
        what = f"the folder {str(path)!r} without {RESULT}"
        raise ResultFileError(explain("a run", what, "the folder given to --out of tallbayes fit"))
    return load(path / RESULT), _settings(path / SETTINGS)


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        return dict(found)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ResultFileError(explain(f"settings of a run in {str(path)!r}", what, "remove that file")) from error
