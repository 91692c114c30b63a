"""State: a standing in the folder of a run, a file a day, so that another process goes on where one has ended.

    RUN/days/0007.standing    the tables by their headers; centre and sums, sizes, footing, as they were when the day's
                              answer was asked for (its morning), and as they were left (its evening)
    the list                  what the day has put into it, by hash and copies; the whole of it where it was made anew

The list of a day is that of the last file with a whole one, with what came since. A file has the digest of its content
at its head. Once rows have been withdrawn what was written before is removed: it says what they were.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.probe import Probe
from tallbayes.arrivals.centre import Expanded
from tallbayes.arrivals.disk.tables import OnDisk
from tallbayes.arrivals.order import Order
from tallbayes.arrivals.sizes import Sizes
from tallbayes.arrivals.standing import Came, Carried, Footing
from tallbayes.errors import ResultFileError, explain
from tallbayes.estimation.question import Accuracy
from tallbayes.estimator.decisions import Decision, Trial, Tuning
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.rates import Contraction
from tallbayes.model.parts.extras import OfExcess
from tallbayes.records.values import Codec
from tallbayes.rows.atomic import replacing, sync_file
from tallbayes.rows.on_disk import Stored, header_of, read_header

FORMAT = "tallbayes standing 1"
DIGEST = 64


@dataclass(frozen=True, eq=False)
class Moment:
    """What a day changes of a standing, but for its list and its rows."""

    start: np.ndarray
    centre: Expanded | None
    looked: Sizes
    footing: Footing
    read: int

    @classmethod
    def of(cls, standing: Carried) -> Moment:
        return cls(standing.start, standing.centre, standing.looked, standing.footing, standing.read)


@dataclass(frozen=True, eq=False)
class DayOnRecord:
    """A day on record: `whole` are the lists of its morning and its evening, where they are not made of others."""

    day: int
    seed: int
    accuracy: Accuracy
    precision: str
    told: tuple[str, ...]
    notes: tuple[str, ...]
    paths: tuple[str, str]
    headers: tuple[str, str]
    morning: Moment
    evening: Moment
    came: Came | None
    whole: tuple[Order | None, Order | None]
    width: float | None = None

    @property
    def tables(self) -> tuple[Stored, Stored]:
        """What was read and what was given, as they were."""
        read, source = (
            read_header(Path(path), json.loads(each)) for path, each in zip(self.paths, self.headers, strict=True)
        )
        return read, source


_CODEC = Codec(
    (
        Accuracy,
        Came,
        Contraction,
        Decision,
        Expanded,
        Footing,
        DayOnRecord,
        Ladder,
        Order,
        Moment,
        Probe,
        Sizes,
        Trial,
        Tuning,
    )
)


def kept_of(standing: Carried, notes: tuple[str, ...]) -> DayOnRecord:
    """A standing on disk as the evening of its day."""
    rows, morning = standing.rows, standing.morning or standing
    assert isinstance(rows, OnDisk)
    both = rows.read, rows.source
    again = standing.order is not morning.order
    parts, question = standing.question.model.parts, morning.question
    density = None if parts is None else parts.density
    return DayOnRecord(
        day=standing.day,
        seed=question.seed,
        accuracy=question.accuracy,
        precision=standing.precision,
        told=standing.search[1],
        notes=notes,
        paths=(str(both[0].path), str(both[1].path)),
        headers=(header_of(both[0]), header_of(both[1])),
        morning=Moment.of(morning),
        evening=Moment.of(standing),
        came=morning.came,
        whole=(None if morning.came is not None else morning.order, standing.order if again else None),
        width=density.width if isinstance(density, OfExcess) else None,
    )


def write_state(folder: Path, kept: DayOnRecord) -> None:
    arrays: dict[str, np.ndarray] = {}
    document = json.dumps({"format": FORMAT, "kept": _CODEC.encode(kept, arrays)})
    file = BytesIO()
    np.savez(file, allow_pickle=False, document=np.array(document), **arrays)
    content = file.getbuffer()
    with replacing(_file(folder, kept.day)) as partial:
        with open(partial, "wb") as opened:
            opened.write(sha256(content).hexdigest().encode())
            opened.write(content)
        sync_file(partial)


def read_state(folder: Path, day: int) -> DayOnRecord:
    """A day on record; refused where it is not there, or not as it was written."""
    file = _file(folder, day)
    try:
        content = file.read_bytes()
        if sha256(content[DIGEST:]).hexdigest().encode() != content[:DIGEST]:
            raise ValueError("other bytes than were written")
        with np.load(BytesIO(content[DIGEST:]), allow_pickle=False) as arrays:
            document = json.loads(str(arrays["document"]))
            if document["format"] != FORMAT:
                raise ValueError(document["format"])
            found: DayOnRecord = _CODEC.decode(document["kept"], arrays)
            return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise ResultFileError(explain(f"the standing of day {day} in {str(file)!r}", got, "a copy of it")) from error


def forget_before(folder: Path, day: int) -> None:
    """Remove what was written before a day: the rows of it may be gone."""
    for file in (folder / "days").glob("*.standing"):
        if file.stem.isdecimal() and int(file.stem) < day:
            file.unlink()


def first_kept(folder: Path) -> int | None:
    """The first day that is on record."""
    days = [int(file.stem) for file in (folder / "days").glob("*.standing") if file.stem.isdecimal()]
    return min(days, default=None)


def order_of(folder: Path, kept: DayOnRecord, evening: bool) -> Order | None:
    """The list of a day: the last whole one, with what came since."""
    came: list[Came] = []
    here, late = kept, evening
    base: Order | None
    while True:
        if late and here.whole[1] is not None:
            base = here.whole[1]
            break
        if here.came is None:
            base = here.whole[0]
            break
        came.append(here.came)
        here, late = read_state(folder, here.day - 1), True
    if base is None or not came:
        return base
    came.reverse()
    hashes = np.concatenate([each.hashes for each in came])
    stop = kept.tables[0].num_rows
    numbers = np.arange(stop - len(hashes), stop, dtype=np.int32)
    return base.with_rows(hashes, numbers, np.concatenate([each.copies for each in came]))


def standing_from(folder: Path, kept: DayOnRecord, blank: Carried, evening: bool) -> Carried:
    """The standing of a day, from one of the same question that has nothing to carry."""
    part = kept.evening if evening else kept.morning
    own: dict[str, Any] = {"start": part.start, "centre": part.centre, "looked": part.looked, "footing": part.footing}
    own |= {"read": part.read}
    order = order_of(folder, kept, evening)
    return replace(blank, day=kept.day, order=order, search=((), kept.told), precision=kept.precision, **own)


def _file(folder: Path, day: int) -> Path:
    return folder / "days" / f"{day:04d}.standing"
