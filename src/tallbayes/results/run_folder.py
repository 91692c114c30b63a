"""A run on disk: one folder that holds the answer, the question, and every block of paths between them.

    RUN/result.tallbayes   the result, as `result.save` writes it
    RUN/run.json           data, formula, family, accuracy and all other options, versions, and when
    RUN/ledger.sqlite      what was computed, so that a tighter tolerance pays only the difference

Until it is finished a run is in RUN.unfinished, without a result; then that folder is renamed, so that a RUN that
exists is a whole one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from tallbayes.errors import InputError, ResultFileError, explain
from tallbayes.results.result import Result
from tallbayes.results.result_file import load
from tallbayes.rows.atomic import replacing, take_place

RESULT = "result.tallbayes"
SETTINGS = "run.json"
LEDGER = "ledger.sqlite"


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
    if os.path.lexists(unfinished(place)) and not force:
        got = f"{str(unfinished(folder))!r}, an unfinished run"
        raise InputError(explain("a new folder for --out", got, f"tallbayes resume {folder}, or --force to begin anew"))
    above = folder.parent
    if not place.parent.is_dir():
        hint = f"mkdir -p {above}"
        raise InputError(explain(f"a folder to put {folder.name!r} in", f"no folder {str(above)!r}", hint))
    if not os.access(place.parent, os.W_OK | os.X_OK):
        what = f"no permission to write in {str(above)!r}"
        raise InputError(explain("a place for --out that can be written", what, "another --out"))


def unfinished(folder: Path) -> Path:
    """Where a run is until it is finished."""
    return folder.with_name(f"{folder.name}.unfinished")


def begin_run(folder: Path, settings: dict[str, Any]) -> Path:
    """Make the folder of an unfinished run with its question in it; an older one is gone."""
    place = unfinished(folder.absolute())
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    partial = _beside(folder.absolute(), "partial")
    try:
        partial.mkdir()
        write_settings(partial, settings)
        os.rename(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place


def abandon_run(folder: Path) -> None:
    """Remove an unfinished run."""
    shutil.rmtree(unfinished(folder.absolute()), ignore_errors=True)


def write_run(folder: Path, result: Result, settings: dict[str, Any], force: bool) -> Path:
    """Put the result into the unfinished run and make it a whole one; where it is now.

    That is beside `folder` if that was taken meanwhile.
    """
    folder = folder.absolute()
    place = unfinished(folder)
    place.mkdir(exist_ok=True)
    update_run(place, result, settings)
    taken = os.path.lexists(folder)
    if taken and not force:
        folder, taken = folder.with_name(f"{folder.name}-{os.getpid()}"), False
    take_place(place, folder, _beside(folder, "old"), replaces=taken)
    return folder


def update_run(folder: Path, result: Result, settings: dict[str, Any]) -> None:
    """Write the question and then the answer, each beside its place and then renamed."""
    write_settings(folder, settings)
    result.save(folder / RESULT)


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    with replacing(folder / SETTINGS) as partial:
        partial.write_text(json.dumps(settings, indent=2, allow_nan=False) + "\n")


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
    return load(file), read_settings(file.with_name(SETTINGS)) if file.name == RESULT else {}


def read_settings(path: Path) -> dict[str, Any]:
    """The question of a run; empty where there is none."""
    try:
        found = json.loads(path.read_text())
        return dict(found)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ResultFileError(explain(f"settings of a run in {str(path)!r}", what, "remove that file")) from error
