"""The anchor: the posterior's mode and the Gaussian there (Laplace's approximation), as plain numbers.

    theta_0 = argmax log pi(theta | X),   H = -Hessian of log pi(. | X) at theta_0,   N(theta_0, H^-1)
    theta = theta_0 + W z,   W W^T = H^-1

The mode need not be exact to the last digit: its gradient stays in every drift. With very many parameters H is an
arrowhead where a category has most of them, a chain where they stand in time, and else its diagonal with the few lines
beside it that a sketch shows, or alone, held as a vector: a valid whitening, but correlations are lost (see
`Anchor.note`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening
from tallbayes.gaussian.chain import Chain, ChainWhitening
from tallbayes.gaussian.low_rank import LowRank, LowRankWhitening
from tallbayes.gaussian.roots import inverse_root, row_squares
from tallbayes.gaussian.whitening import DenseWhitening, DiagonalWhitening, Whitening
from tallbayes.moments import Floats

# Beyond, a matrix is made and solved by blocks (`anchor.wide`), and none is kept that can be had from another.
WIDE_FROM = 2_000


@dataclass(frozen=True, eq=False)
class Derived:
    """Roots and inverses of an anchor's matrices, which another number of threads may round otherwise.

    Of an arrowhead they are those of S, what is left of its corner; the rest is divisions. Of thousands of parameters
    it is the root alone, of a chain the inverses of its blocks' factors, of a diagonal with lines
    nothing but divisions.
    """

    factor: Floats | None
    whitening: Floats
    mismatch: Floats | None
    covariance: Floats | None


@dataclass(frozen=True, eq=False)
class Anchor:
    """What every path is expanded about; plain float64 arrays, reusable for the same model and data.

    `gradient` is that of the log posterior at the mode, `passes` the rows read to find it, in units of N.
    Where `precision` is a vector, or a matrix of thousands of rows, `likelihood_hessian` is None.
    Where an anchor was recentred, `mode` is the mean of a
    Gaussian that is right on average, `precision` its own, and `hessian` minus that of the log posterior there; where
    no climb reached a mode, `has_mode` is false. Where they are known exactly, `mean_gradient` and `mean_hessian` are
    gradient and minus Hessian of the log posterior on average over the Gaussian; Laplace's own, from which it was
    moved, stays beside it. Where rows are expanded about another point, a `step` leads from there to `mode`: value,
    gradient and Hessian of the log likelihood are then what that expansion says of it (`arrivals`), to second order, or
    to third where its `third` derivatives are known. `reason` says why this one was taken. `derived` is what was
    computed from these where that is known.
    """

    mode: Floats
    likelihood_gradient: Floats
    likelihood_hessian: Floats | Arrowhead | None
    precision: Floats | Arrowhead | Chain | LowRank
    log_density: float
    passes: float
    num_rows: int
    gradient: Floats
    hessian: Floats | Arrowhead | Chain | LowRank | None = None
    has_mode: bool = True
    mean_gradient: Floats | None = None
    mean_hessian: Floats | None = None
    laplace_mode: Floats | None = None
    laplace_precision: Floats | None = None
    reason: str = ""
    step: Floats | None = None
    third: Floats | None = None
    derived: Derived | None = field(default=None, repr=False, metadata={"kept": False})

    def __repr__(self) -> str:
        kind = "the mode" if self.has_mode and not self.recentred else "a Gaussian in balance"
        return f"<tallbayes.Anchor at {kind}: {len(self.mode):,} parameters, {self.num_rows:,} rows>"

    def with_derived(self) -> Anchor:
        """The same to the bit wherever it is taken."""
        beside = (None, None) if self.is_large else (self.factor, self.covariance)
        parts = beside[0], self.whitening, self.mismatch, beside[1]
        return replace(self, derived=Derived(*parts))

    @property
    def recentred(self) -> bool:
        """Whether `mode` is another point than the mode."""
        return self.hessian is not None

    @property
    def laplace(self) -> Anchor:
        """Mode and precision of Laplace's approximation, where they are known; those of the anchor else."""
        if self.laplace_mode is None or self.laplace_precision is None:
            return self
        there = replace(self, mode=self.laplace_mode, precision=self.laplace_precision)
        return replace(there, hessian=None, mean_gradient=None, mean_hessian=None, derived=None)

    @property
    def knows_averages(self) -> bool:
        """Whether E grad log pi over the Gaussian is known, and E grad^2 log pi where that is a small matrix."""
        return self.mean_gradient is not None

    @property
    def is_diagonal(self) -> bool:
        """Whether H is known by its diagonal alone."""
        return isinstance(self.precision, np.ndarray) and self.precision.ndim == 1

    @property
    def is_wide(self) -> bool:
        """Whether H is a matrix of which no other of its size is kept but W."""
        return isinstance(self.precision, np.ndarray) and self.precision.ndim == 2 and len(self.mode) > WIDE_FROM

    @property
    def is_large(self) -> bool:
        """Whether there are too many parameters for what asks for matrices beside H: that, a chain of blocks, or a
        diagonal with lines."""
        return self.is_wide or isinstance(self.precision, Chain | LowRank)

    @property
    def is_partial(self) -> bool:
        """Whether H is known in part: by its diagonal, or by that and a few lines."""
        return self.is_diagonal or isinstance(self.precision, LowRank)

    @property
    def prior_hessian(self) -> Floats | None:
        """That of the log prior at the mode; None where Hessians are no matrices."""
        whole = self.precision if self.hessian is None else self.hessian
        if not isinstance(whole, np.ndarray) or whole.ndim < 2 or not isinstance(self.likelihood_hessian, np.ndarray):
            return None
        return -whole - self.likelihood_hessian

    @property
    def note(self) -> str:
        """What is lost beside a dense H, or how it is done without one; empty where H is dense."""
        if isinstance(self.precision, Arrowhead):
            levels, others = self.precision.limbs.shape
            return f"precision: an arrow, {levels:,} levels eliminated before {others:,} other parameters"
        if isinstance(self.precision, Chain):
            length, block = self.precision.diagonals_of_blocks.shape[:2]
            return f"precision: a chain of {length:,} blocks of {block:,} parameters, each with links to the next alone"
        if isinstance(self.precision, LowRank):
            kept = self.precision.lines.shape[1]
            return (
                f"precision: a diagonal of {len(self.mode):,} and {kept:,} lines beside it, as a sketch of the "
                "Hessian's products shows them; what it misses contracts slower, and Laplace's sds lack it"
            )
        if self.is_wide:
            d = len(self.mode)
            return f"precision: a matrix of {d:,} parameters, {8e-9 * d**2:.1f} GB, and its root of the same size"
        if not self.is_diagonal:
            return ""
        return (
            f"{len(self.mode)} parameters are too many for a dense Hessian: whitened by its diagonal, so correlated "
            "parameters contract slower, Laplace's sds are conditional ones (too small), and collinear columns "
            "under a flat prior go unseen"
        )

    @cached_property
    def factor(self) -> Floats:
        """Lower Cholesky factor of H, or of S where H is an arrowhead; its diagonal, where H is one."""
        if self.derived is not None and self.derived.factor is not None:
            return self.derived.factor
        if isinstance(self.precision, Arrowhead):
            return np.linalg.cholesky(self.precision.schur)
        if isinstance(self.precision, Chain | LowRank):
            # They have their own, block by block or line by line: no matrix of all of it is asked for.
            raise TypeError(f"a {type(self.precision).__name__} has no factor that is a matrix")
        return np.sqrt(self.precision) if self.is_diagonal else np.linalg.cholesky(self.precision)

    @cached_property
    def whitening(self) -> Floats:
        """W with W W^T = H^-1: the inverse transpose of the factor, or its diagonal. Of an arrowhead, R."""
        if self.derived is not None:
            return self.derived.whitening
        if isinstance(self.precision, Chain):
            return np.asarray(ChainWhitening.of(self.precision).inverses)
        if isinstance(self.precision, LowRank):
            return np.asarray(1 / self.precision.scale)
        if self.is_wide:
            return inverse_root(np.asarray(self.precision))
        return 1 / self.factor if self.is_diagonal else np.ascontiguousarray(np.linalg.inv(self.factor).T)

    @cached_property
    def whitener(self) -> Whitening:
        """W as what it does."""
        if isinstance(self.precision, Arrowhead):
            return ArrowWhitening.of(self.precision, self.whitening)
        if isinstance(self.precision, Chain):
            return ChainWhitening.of(self.precision, self.whitening)
        if isinstance(self.precision, LowRank):
            return LowRankWhitening(self.precision)
        return (DiagonalWhitening if self.is_diagonal else DenseWhitening)(self.precision, self.whitening)

    @cached_property
    def mismatch(self) -> Floats | None:
        """I - W^T H' W, H' minus the Hessian of the log posterior at the centre; None where H' is H."""
        if self.derived is not None:
            return self.derived.mismatch
        if self.hessian is None:
            return None
        return np.eye(len(self.mode)) - self.whitening.T @ self.hessian @ self.whitening

    @property
    def knows_control(self) -> bool:
        """Whether the means of a control of paths are known exactly: by averages, or by third derivatives."""
        return self.knows_averages or self.third is not None

    @property
    def mean_remainder(self) -> tuple[Floats, Floats | None]:
        """E r(u) = W^T E grad log pi and E grad r(u) = I + W^T E grad^2 log pi W over the Gaussian, where known: of
        thousands of parameters the first alone, and where third derivatives are known those of W^T T(W u, W u) / 2."""
        if self.third is not None:
            pushed = np.tensordot(self.third, self.covariance, 2) / 2
            return pushed @ self.whitening, np.zeros_like(self.whitening)
        assert self.mean_gradient is not None
        if self.mean_hessian is None:
            return self.whitener.pull_back(self.mean_gradient), None
        bend = np.eye(len(self.mode)) - self.whitening.T @ self.mean_hessian @ self.whitening
        return self.mean_gradient @ self.whitening, (bend + bend.T) / 2

    @cached_property
    def covariance(self) -> Floats:
        """H^-1; its diagonal, where H is one; S^-1, where it is an arrowhead."""
        if self.derived is not None and self.derived.covariance is not None:
            return self.derived.covariance
        return self.whitening**2 if self.is_diagonal else self.whitening @ self.whitening.T

    @cached_property
    def sd(self) -> Floats:
        """Laplace's standard deviation of every parameter."""
        if isinstance(self.precision, Arrowhead | Chain | LowRank):
            return np.sqrt(self.whitener.variances)
        if self.is_wide:
            return np.sqrt(row_squares(self.whitening))
        return np.sqrt(self.covariance if self.is_diagonal else np.diag(self.covariance))

    @property
    def is_proper(self) -> bool:
        """Whether H is positive definite; a LinAlgError may say that it is not."""
        if isinstance(self.precision, Arrowhead):
            return bool(np.all(self.precision.diagonal > 0) and np.isfinite(self.factor).all())
        if self.is_large:
            return bool(np.isfinite(self.sd).all())
        return bool(np.all(self.curvatures > 0))

    @cached_property
    def curvatures(self) -> Floats:
        """Eigenvalues of H, ascending: the contraction rates of the Langevin equation near the mode."""
        return self.whitener.curvatures

    def sd_along(self, direction: Floats) -> float:
        """Laplace's standard deviation of direction . theta."""
        return float(np.sqrt(np.sum(self.whitener.pull_back(direction) ** 2)))

    def displacements(self, z: Floats) -> Floats:
        """theta - theta_0 = W z, for whitened vectors along the last axis."""
        return self.whitener.move(z)

    def draws(self, count: int, seed: int = 0) -> Floats:
        """Displacements theta - theta_0 drawn from N(0, H^-1)."""
        return self.displacements(np.random.default_rng(seed).standard_normal((count, len(self.mode))))
