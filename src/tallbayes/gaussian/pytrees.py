"""Pytrees: precisions and whitenings go through compiled programs as they are. Imported for its effect."""

from __future__ import annotations

from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening
from tallbayes.gaussian.chain import Chain, ChainWhitening
from tallbayes.gaussian.low_rank import LowRank, LowRankWhitening
from tallbayes.gaussian.whitening import DenseWhitening, DiagonalWhitening, Sketch
from tallbayes.programs.later import when_loaded


def _register() -> None:
    from jax.tree_util import register_dataclass

    for kind in (DenseWhitening, DiagonalWhitening):
        register_dataclass(kind, data_fields=["precision", "root"], meta_fields=[])
    register_dataclass(Sketch, data_fields=["draws", "moves", "variances"], meta_fields=[])
    register_dataclass(Arrowhead, data_fields=["diagonal", "limbs", "corner"], meta_fields=["first"])
    register_dataclass(ArrowWhitening, data_fields=["precision", "narrow", "pulls", "root"], meta_fields=[])
    register_dataclass(Chain, data_fields=["order", "places", "diagonals_of_blocks", "links"], meta_fields=[])
    register_dataclass(ChainWhitening, data_fields=["precision", "inverses", "onward"], meta_fields=[])
    register_dataclass(LowRank, data_fields=["scale", "lines", "sizes"], meta_fields=[])
    register_dataclass(LowRankWhitening, data_fields=["precision"], meta_fields=[])


when_loaded(_register)
