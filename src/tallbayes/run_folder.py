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
from zipfile import is_zipfile

from tallbayes.errors import InputError, ResultFileError, explain
from tallbayes.result import Result
from tallbayes.storage import load

RESULT = "result.tallbayes"
SETTINGS = "run.json"


def require_free(folder: Path, force: bool) -> None:
    """Refuse, before any work, a place that is taken or cannot be written; with `force` another run may be there."""
    place, where = folder.absolute(), repr(str(folder))
    if os.path.lexists(place):
        is_run = (place / SETTINGS).is_file() and not place.is_symlink()
        if not force:
            hint = "another --out, or --force to replace that run" if is_run else "another --out, or remove it"
            raise InputError(explain("a new folder for --out", f"{where}, which exists", hint))
        # What else is there may be dear to somebody.
        if not is_run:
            hint = "another --out, or remove it yourself"
            raise InputError(explain("a run for --force to replace", f"{where}, which is none", hint))
    above = folder.parent
    if not place.parent.is_dir():
        hint = f"mkdir -p {above}"
        raise InputError(explain(f"a folder to put {folder.name!r} in", f"no folder {str(above)!r}", hint))
    if not os.access(place.parent, os.W_OK | os.X_OK):
        what = f"no permission to write in {str(above)!r}"
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
    file = path / RESULT if path.is_dir() else path
    if not is_zipfile(file):
        what = f"the folder {str(path)!r} without {RESULT}" if path.is_dir() else f"nothing at {str(path)!r}"
        if file.exists():
            what = f"{str(file)!r}, which is not a whole result file"
        raise ResultFileError(explain("a run", what, "the folder given to --out of tallbayes fit"))
    return load(file), _settings(file.with_name(SETTINGS)) if file.name == RESULT else {}


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        return dict(found)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ResultFileError(explain(f"settings of a run in {str(path)!r}", what, "remove that file")) from error
