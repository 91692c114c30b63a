"""Results of experiments: one JSON file a figure, made of pieces; a piece that is there already is not run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallbayes.rows.atomic import replacing

PACKAGES = ("tallbayes", "jax", "jaxlib", "numpy", "scipy")


@dataclass(frozen=True)
class Measurement:
    """A unit of work: what it depends on, and how to do it. The settings hold the seeds."""

    settings: dict[str, Any]
    compute: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    folder: Path

    def path(self, figure: str) -> Path:
        return self.folder / f"{figure}.json"

    def read(self, figure: str) -> dict[str, Any]:
        """All pieces of a figure: settings, seconds and result by name."""
        path = self.path(figure)
        if not path.exists():
            return {}
        document: dict[str, Any] = json.loads(path.read_text())
        return dict(document["pieces"])

    def results(self, figure: str) -> dict[str, Any]:
        """The results alone, by piece."""
        return {name: piece["result"] for name, piece in self.read(figure).items()}

    def complete(self, figure: str, pieces: dict[str, Measurement], tell: Callable[[str], None]) -> None:
        """Run what is missing or was run with other settings, and save after every piece."""
        done = {
            name: piece
            for name, piece in self.read(figure).items()
            if name in pieces and piece["settings"] == _plain(pieces[name].settings)
        }
        for number, (name, piece) in enumerate(pieces.items(), 1):
            if name in done:
                continue
            tell(f"{figure} {number}/{len(pieces)}: {name}")
            started = time.monotonic()
            result = piece.compute()
            done[name] = {
                "settings": _plain(piece.settings),
                "seconds": round(time.monotonic() - started, 2),
                "result": _plain(result),
            }
            self._write(figure, done)

    def _write(self, figure: str, pieces: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        document = {
            "figure": figure,
            "versions": {name: version(name) for name in PACKAGES},
            "pieces": pieces,
        }
        with replacing(self.path(figure)) as partial:
            partial.write_text(json.dumps(document, indent=1) + "\n")


def numbers(results: dict[str, Any], kind: str = "") -> list[int]:
    """Which numbers the names of the measurements of a kind end with, in order.

    >>> numbers({"MALA, N = 1000": 0, "MALA, N = 100": 0, "ours, N = 10": 0}, "MALA")
    [100, 1000]
    """
    return sorted({int(name.rsplit(" ", 1)[1]) for name in results if name.startswith(kind)})


def _plain(value: Any) -> Any:
    """As it will be read back."""
    return json.loads(json.dumps(value))
