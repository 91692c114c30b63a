"""Designs on disk: the arrays of a regression beside the table they were made of, to be found when asked for again.

    TABLE.designs/KEY/         the table of x, y, offset and weights
    TABLE.designs/KEY.json     what was asked, and what was learnt on the way: the encoding, the notes

KEY is a digest of the table's contents, the formula and the options. Where nothing can be written beside the table, the
folder for temporary files takes its place.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallbayes.errors import TableError, explain
from tallbayes.rows.atomic import replacing
from tallbayes.rows.on_disk import Stored, open_table
from tallbayes.rows.segments.redo import HEADER
from tallbayes.rows.writing import write_table

FORMAT = "tallbayes design 2"

log = logging.getLogger("tallbayes")


@dataclass(frozen=True)
class Place:
    """Where the design that answers a question lies, or will."""

    source: Stored
    asked: dict[str, Any]

    @property
    def key(self) -> str:
        question = json.dumps([FORMAT, self.source.digest, self.asked], sort_keys=True)
        return hashlib.sha256(question.encode()).hexdigest()[:32]

    def folders(self) -> list[Path]:
        """Beside the table, and among the temporary files of this user."""
        path = self.source.path
        return [path.with_name(f"{path.name}.designs"), Path(tempfile.gettempdir()) / f"tallbayes-{getpass.getuser()}"]

    def find(self) -> tuple[Stored, dict[str, Any]] | None:
        """A whole design and what was learnt with it, without what it has grown by since; nothing where one is torn or
        changed."""
        for folder in self.folders():
            try:
                document = json.loads((folder / f"{self.key}.json").read_text())
                if document["format"] == FORMAT and (folder / self.key / HEADER).is_file():
                    rows = open_table(folder / self.key).as_of(1)
                    if rows.num_rows == document.get("rows", rows.num_rows):
                        return rows, document
            except TableError as error:
                log.warning("design: made again, since %s", error)
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None

    def keep(self, document: dict[str, Any], chunks: Iterable[dict[str, Any]]) -> Stored:
        """Write what was learnt, and then the rows: without either there is no design."""
        folder = self._writable()
        with replacing(folder / f"{self.key}.json", shared=True) as partial:
            partial.write_text(json.dumps({"format": FORMAT, "asked": self.asked, **document}))
        is_there = (folder / self.key / HEADER).is_file()
        return write_table(folder / self.key, chunks, shuffled=self.source.shuffled, overwrite=is_there)

    @staticmethod
    def document_of(rows: Stored) -> dict[str, Any]:
        """What was learnt with the rows of a design, which may have grown since."""
        file = rows.path.with_name(f"{rows.path.name}.json")
        try:
            document = json.loads(file.read_text())
            if document["format"] == FORMAT and "left" in document:
                return dict(document)
            got = "what an older version kept"
        except (OSError, ValueError, KeyError, TypeError) as error:
            got = f"{type(error).__name__}: {error}"
        raise TableError(explain(f"what was learnt with a design, in {str(file)!r}", got, "tb.fit again"))

    def _writable(self) -> Path:
        beside, temporary = self.folders()
        try:
            beside.mkdir(exist_ok=True)
            if os.access(beside, os.W_OK | os.X_OK):
                return beside
            log.warning("design: %s cannot be written, %s is taken instead", beside, temporary)
        except OSError as error:
            log.warning("design: %s (%s), %s is taken instead", beside, error.strerror, temporary)
        temporary.mkdir(mode=0o700, exist_ok=True)
        return temporary


def size_of(stored: Stored) -> str:
    """Of its files, in words."""
    size = stored.num_bytes
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
