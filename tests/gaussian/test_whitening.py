"""Every whitening against its matrix written out, in NumPy and through compiled programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import tallbayes.gaussian.pytrees  # noqa: F401
from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening
from tallbayes.gaussian.chain import Chain, ChainWhitening
from tallbayes.gaussian.low_rank import LowRank, LowRankWhitening, sketched
from tallbayes.gaussian.whitening import DenseWhitening, DiagonalWhitening, Whitening

SIZE, ARMS, FIRST = 12, 7, 3


def arrowhead(seed: int = 0) -> Arrowhead:
    """Positive definite, with arms in the middle."""
    rng, rest = np.random.default_rng(seed), SIZE - ARMS
    diagonal, limbs = rng.uniform(1, 5, ARMS), rng.normal(size=(ARMS, rest))
    corner = limbs.T @ (limbs / diagonal[:, None]) + np.diag(rng.uniform(0.5, 2, rest)) + 0.1
    return Arrowhead(FIRST, diagonal, limbs, corner).symmetric


def chain_of(rng: np.random.Generator, length: int = 4) -> Chain:
    """Positive definite, in an order of its own."""
    block = SIZE // length
    factors = rng.normal(size=(length, block, block)) + 2 * np.eye(block)
    links = rng.normal(size=(length - 1, block, block))
    own = factors @ factors.transpose(0, 2, 1)
    own[1:] += links @ links.transpose(0, 2, 1)
    across = links @ factors[:-1].transpose(0, 2, 1)
    return Chain.of(rng.permutation(length * block), own, across)


@dataclass(frozen=True)
class Case:
    whitening: Whitening
    matrix: Any
    root: Any


def cases() -> dict[str, Case]:
    rng = np.random.default_rng(1)
    square = rng.normal(size=(SIZE, SIZE))
    dense = square @ square.T + np.eye(SIZE)
    root, diagonal = np.linalg.inv(np.linalg.cholesky(dense)).T, rng.uniform(1, 5, SIZE)
    arrow = arrowhead()
    by_arrow = ArrowWhitening.of(arrow, np.linalg.inv(np.linalg.cholesky(arrow.schur)).T)
    chain = chain_of(rng)
    by_chain = ChainWhitening.of(chain)
    low = LowRank(rng.uniform(1, 2, SIZE), np.linalg.qr(rng.normal(size=(SIZE, 3)))[0], np.array([0.2, 3.0, 40.0]))
    by_sketch = LowRankWhitening(low)
    return {
        "chain": Case(by_chain, chain.whole(), by_chain.move(np.eye(SIZE)).T),
        "low rank": Case(by_sketch, low.times(np.eye(SIZE)), by_sketch.move(np.eye(SIZE)).T),
        "dense": Case(DenseWhitening(dense, root), dense, root),
        "diagonal": Case(DiagonalWhitening(diagonal, diagonal**-0.5), np.diag(diagonal), np.diag(diagonal**-0.5)),
        "arrow": Case(by_arrow, arrow.whole(), by_arrow.move(np.eye(SIZE)).T),
    }


@pytest.mark.parametrize("name", cases())
def test_a_whitening_does_what_its_matrix_does(name: str) -> None:
    case, z = cases()[name], np.random.default_rng(2).normal(size=(4, SIZE))
    inverse = np.linalg.inv(case.matrix)
    np.testing.assert_allclose(case.root @ case.root.T, inverse, rtol=1e-10, atol=1e-12)
    for vectors in (z, z[0]):
        np.testing.assert_allclose(case.whitening.move(vectors), vectors @ case.root.T, rtol=1e-10)
        np.testing.assert_allclose(case.whitening.pull_back(vectors), vectors @ case.root, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(case.whitening.times(vectors), vectors @ case.matrix, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(case.whitening.variances, np.diag(inverse), rtol=1e-10)
    assert case.whitening.log_det == pytest.approx(np.linalg.slogdet(case.matrix)[1], rel=1e-10)
    np.testing.assert_allclose(case.whitening.curvatures, np.linalg.eigvalsh(case.matrix), rtol=1e-10)


@pytest.mark.parametrize("name", cases())
def test_a_compiled_program_takes_a_whitening_as_it_is(name: str) -> None:
    case, z = cases()[name], np.random.default_rng(3).normal(size=SIZE)
    with jax.enable_x64(True):
        found = jax.jit(lambda w, v: (w.move(v), w.pull_back(v), w.times(v)))(case.whitening, z)
        many = jax.jit(jax.vmap(lambda w, v: w.move(v), (None, 0)))(case.whitening, z[None])
    for each, expected in zip(found, (case.root @ z, z @ case.root, case.matrix @ z), strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(many[0], case.root @ z, rtol=1e-10)


def test_parts_of_a_chain_are_added_as_matrices() -> None:
    first = chain_of(np.random.default_rng(0))
    second = Chain.of(first.order, 2 * first.diagonals_of_blocks, first.links + 1)
    np.testing.assert_allclose((first - second * 0.5).whole(), first.whole() - second.whole() / 2, atol=1e-12)
    np.testing.assert_allclose(first.diagonals, np.diag(first.whole()))
    with pytest.raises(np.linalg.LinAlgError):
        ChainWhitening.of(-first)


def test_a_sketch_has_what_is_farthest_from_the_diagonal() -> None:
    """Of a matrix of that kind all of it; of another its products along the lines, and W W^T H has fewer sizes."""
    size, rng = 60, np.random.default_rng(0)
    lines = np.linalg.qr(rng.normal(size=(size, 4)))[0]
    scale = np.ones(size)
    exact = LowRank(scale, lines, np.array([0.05, 8.0, 20.0, 300.0]))
    found = sketched(exact.times, scale**2, 4)
    np.testing.assert_allclose(found.times(np.eye(size)), exact.times(np.eye(size)), atol=1e-8)
    spread = exact.times(np.eye(size)) + np.diag(rng.uniform(0, 0.5, size))
    rough = LowRankWhitening(sketched(lambda v: v @ spread, np.diag(spread), 4))
    plain = np.linalg.cond(spread / np.sqrt(np.outer(np.diag(spread), np.diag(spread))))
    root = rough.move(np.eye(size)).T
    assert np.linalg.cond(root.T @ spread @ root) < plain / 5
