"""A fit of flights by the command line."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from flight_files import FORMULA, write_flights

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.results.run_folder import RESULT


class Fitted:
    """A run that was made once: the command's exit code, stdout, its folder and the data."""

    def __init__(self, folder: Path) -> None:
        self.data, self.folder = write_flights(folder), folder / "run1"
        command = ["fit", str(self.data), "--formula", FORMULA, "--tolerance", "0.05", "--seed", "1", "--json"]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.code = cli.main([*command, "--out", str(self.folder)])
        self.output = output.getvalue()

    @property
    def result(self) -> tb.Result:
        return tb.load(self.folder / RESULT)
