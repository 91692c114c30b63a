"""Baselines: what the multilevel method is compared with, on the same Model and in the same cost unit."""

from tallbayes.baselines.chains import ChainEstimate, ChainResult
from tallbayes.baselines.mala import mala
from tallbayes.baselines.sgld import Decreasing, sgld

__all__ = ["ChainEstimate", "ChainResult", "Decreasing", "mala", "sgld"]
