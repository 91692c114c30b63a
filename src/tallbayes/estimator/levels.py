"""The waist: what the estimator asks of a ladder of levels, and all that it knows of one.

    levels.sample(level, block) -> LevelBlock          moments of 32 samples of one level, or of fewer long ones
    levels.differences(level, block) -> Delta_l        of the same samples, one by one
    levels.contract(block, spread) -> distances        of 32 pairs of paths on common noise

Below it is the sampler, in JAX, which knows no tolerance; above it NumPy that knows no gradient. A block is a fixed
shape and a pure function of (levels, level, block): its bits depend on nobody's order, threads or settings. `MadeUp`
in `made_up` is a second implementation, of samples whose means and variances are chosen.

Blocks are asked for as tasks, task(levels, ...), which say by themselves how they are kept on record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, Protocol

import numpy as np

from tallbayes.estimator.ladder import Ladder, Motion
from tallbayes.moments import Floats, Moments
from tallbayes.workers.tasks import Book

BLOCK_PATHS = 32
# Where a block reads so many numbers (a second or two of one core), deep levels have fewer paths to a block.
FIRST_CUT, CUT_PATHS, LONG_WORK = 3, (8, 2, 1), 2.0**33
Pairs = tuple[tuple[int, int], ...]


class Stream(IntEnum):
    """What random words are for; beside seed, level and number it is all that tells them apart."""

    LEVEL = 0
    CONTRACTION = 1
    TUNING = 2
    TAIL = 3
    EXPECTATION = 7
    SIGNED_DRAWS = 8
    PREDICTION = 9
    GAUSSIAN_DRAWS = 10
    WEIGHTED = 11
    REPLICATES = 12
    DRAWS = 13
    EFFECT_DRAWS = 14
    RESPONSES = 15
    EVIDENCE = 16
    EVIDENCE_PILOT = 17
    LEFT_OUT = 21
    SHRINKAGE = 22
    REMAINDERS = 23


def paths_of_blocks(level: int, work: float) -> int:
    """Samples in a block of a level, where one of them reads so many numbers.

    A path of level l takes 2^l times as long as one of level 0, and the last level has two pilots' worth of paths: in
    blocks of 32 a few workers would have them all. Paths side by side share what they read, so that 8 by themselves
    take 1.4 times as long, path for path, as 32, and one 4 times: hence only where that is worth it.
    """
    if level < FIRST_CUT or BLOCK_PATHS * work <= LONG_WORK:
        return BLOCK_PATHS
    return next((paths for paths in CUT_PATHS if paths * work <= LONG_WORK), CUT_PATHS[-1])


@dataclass(frozen=True)
class LevelBlock:
    """Moments of one block's samples, of the fine side, and of the coarse side; and where the paths were at their
    stops, (paths, stops, 1 + coarse paths, d)."""

    delta: Moments
    fine: Moments
    coarse: Moments
    nonfinite: int
    farthest: float
    strained: float
    evaluations: int
    points: Floats | None = None


class Levels(Protocol):
    """A ladder that can be sampled."""

    @property
    def ladder(self) -> Ladder: ...

    @property
    def seed(self) -> int: ...

    @property
    def batch_size(self) -> int:
        """Rows a step, where that can be chosen; 0 where it cannot."""
        ...

    @property
    def largest_batch(self) -> int:
        """A batch that is all rows."""
        ...

    @property
    def rows_per_gradient(self) -> int: ...

    @property
    def step_overhead(self) -> int:
        """What a step costs beside its rows, in rows."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def pairs(self) -> Pairs:
        """Which observables are a parameter and its square."""
        ...

    @property
    def num_coarse(self) -> int: ...

    @property
    def variance_rate(self) -> float:
        """Beta as theory has it, to go by while samples are few."""
        ...

    @property
    def motion(self) -> Motion:
        """How its paths move."""
        ...

    @property
    def is_alternative(self) -> bool: ...

    @property
    def controlled(self) -> bool:
        """Whether a control is taken off `delta`, though not off the two sides."""
        ...

    @property
    def identity(self) -> str:
        """What tells its blocks from those of other levels of the same model and rows, by content."""
        ...

    def evaluations(self, level: int) -> int:
        """Data items of one sample of a level."""
        ...

    def contraction_evaluations(self) -> int:
        """Data items of one pair of paths in `contract`."""
        ...

    def block_paths(self, level: int) -> int:
        """Samples in each block of a level: a function of the level and of what its paths read, nothing else."""
        ...

    def sample(self, level: int, block: int) -> LevelBlock:
        """Samples n b .. n b + n - 1 of a level, n = block_paths(level)."""
        ...

    def differences(self, level: int, block: int) -> Floats:
        """Delta_l of the same samples one by one, (n, observables)."""
        ...

    def contract(self, block: int, spread: float = 1.0) -> Floats:
        """Squared distances (32, 4) of pairs at times 0, dT, 2 dT, 3 dT with the first step size; beside them, where
        they are known, those of every parameter at each of these times, (32, 4 + 4 d)."""
        ...

    def with_choice(self, ladder: Ladder, batch_size: int) -> Levels:
        """The same on another ladder, and with another batch where that can be chosen."""
        ...

    def reseeded(self, seed: int) -> Levels: ...

    def on(self, table: Any) -> Levels:
        """The same on rows that lie elsewhere."""
        ...

    def for_tuning(self) -> Levels:
        """The same on random numbers of their own, which no estimate uses."""
        ...

    def alternative(self) -> Levels | None:
        """The same by a gradient that is calmer far out, where there is one to go over to."""
        ...

    def uncontrolled(self) -> Levels | None:
        """The same without a control, where there is one."""
        ...


@dataclass(frozen=True)
class SampleLevel:
    """The task of one block of a level."""

    def __call__(self, levels: Levels, level: int, block: int) -> LevelBlock:
        return levels.sample(level, block)

    def record(self, kept_bytes: float, levels: Levels, level: int, block: int) -> BlockRecord:
        key = "level", levels.identity, levels.seed, level, paths_of(levels, level, block)
        return BlockRecord(key, levels.pairs, kept_bytes)


@dataclass(frozen=True)
class SampleDifferences:
    """The task of one block of a level, sample by sample."""

    def __call__(self, levels: Levels, level: int, block: int) -> Floats:
        return levels.differences(level, block)

    def record(self, kept_bytes: float, levels: Levels, level: int, block: int) -> ArrayRecord:
        paths = paths_of(levels, level, block)
        key = "differences", levels.identity, levels.seed, level, paths
        return ArrayRecord(key, len(paths) * levels.evaluations(level))


@dataclass(frozen=True)
class SampleContraction:
    """The task of one block of pairs on common noise."""

    def __call__(self, levels: Levels, block: int, *spread: float) -> Floats:
        return levels.contract(block, *spread)

    def record(self, kept_bytes: float, levels: Levels, block: int, *spread: float) -> ArrayRecord:
        paths = range(block * BLOCK_PATHS, (block + 1) * BLOCK_PATHS)
        key = "contraction", f"{levels.identity}, spread {list(spread)}", levels.seed, 0, paths
        return ArrayRecord(key, BLOCK_PATHS * levels.contraction_evaluations())


sample_level, sample_differences, sample_contraction = SampleLevel(), SampleDifferences(), SampleContraction()

Key = tuple[str, str, int, int, range]


def paths_of(levels: Levels, level: int, block: int) -> range:
    """The numbers of a block's paths."""
    paths = levels.block_paths(level)
    return range(block * paths, (block + 1) * paths)


@dataclass(frozen=True)
class ArrayRecord:
    """An array of numbers by path: kind, configuration, seed, level and paths; and what it cost."""

    key: Key
    evaluations: int

    def find(self, book: Book) -> np.ndarray | None:
        content = book.find(*self.key)
        return None if content is None else np.frombuffer(content, np.float64).reshape(len(self.key[-1]), -1).copy()

    def write(self, book: Book, values: np.ndarray) -> None:
        book.add(*self.key, self.evaluations, np.ascontiguousarray(values, np.float64).tobytes())


@dataclass(frozen=True)
class BlockRecord:
    """Moments of a block of a level; with the ends of its paths where a run may keep them."""

    key: Key
    pairs: Pairs
    kept_bytes: float

    def find(self, book: Book) -> LevelBlock | None:
        content = book.find(*self.key)
        return None if content is None else read_block(content, self.pairs, self.kept_bytes, self.key[-1])

    def write(self, book: Book, block: LevelBlock) -> None:
        book.add(*self.key, block.evaluations, write_block(block, self.kept_bytes, self.key[-1]))


_HEAD = struct.Struct("<9q2d")


def write_block(block: LevelBlock, kept_bytes: float, paths: range) -> bytes:
    """All numbers of a block, as they are; of where its paths ended, only what a run would keep."""
    number = paths.start // len(paths)
    shape = (0, 0, 0, 0) if block.points is None else block.points.shape
    keeps = block.points is not None and number * block.points.nbytes < kept_bytes
    counts = len(block.delta.mean), len(block.delta.cosum), *shape, keeps, block.nonfinite, block.evaluations
    head = _HEAD.pack(*counts, block.farthest, block.strained)
    parts = [np.concatenate(_arrays(each)).astype(np.float64) for each in (block.delta, block.fine, block.coarse)]
    tail = np.ascontiguousarray(block.points, np.float32).tobytes() if keeps else b""
    return head + b"".join(part.tobytes() for part in parts) + tail


def read_block(content: bytes, pairs: Pairs, kept_bytes: float, paths: range) -> LevelBlock | None:
    """What `write_block` was given; None where ends of paths are wanted that were left out."""
    number = paths.start // len(paths)
    size, paired, *shape, kept, nonfinite, evaluations, farthest, strained = _HEAD.unpack_from(content)
    if not kept and prod(shape) and number * 4 * prod(shape) < kept_bytes:
        return None
    widths = 4 * size + paired, 4 * size, 4 * size
    numbers = np.frombuffer(content, np.float64, sum(widths), _HEAD.size).copy()
    delta, fine, coarse = np.split(numbers, np.cumsum(widths)[:-1])
    points = None
    if kept:
        points = np.frombuffer(content, np.float32, prod(shape), _HEAD.size + 8 * sum(widths)).reshape(shape).copy()
    return LevelBlock(
        delta=_moments(len(paths), delta, size, pairs),
        fine=_moments(len(paths), fine, size, ()),
        coarse=_moments(len(paths), coarse, size, ()),
        nonfinite=nonfinite,
        farthest=farthest,
        strained=strained,
        evaluations=evaluations,
        points=points,
    )


def _arrays(moments: Moments) -> list[np.ndarray]:
    return [moments.mean, moments.sum2, moments.sum3, moments.sum4, moments.cosum]


def _moments(count: int, numbers: np.ndarray, size: int, pairs: Pairs) -> Moments:
    mean, sum2, sum3, sum4, cosum = np.split(numbers, [size, 2 * size, 3 * size, 4 * size])
    return Moments(count, mean, sum2, sum3, sum4, pairs, cosum)
