"""Baselines: what the multilevel method is compared with, on the same Model and in the same cost unit."""

from tallbayes.baselines.mala import mala
from tallbayes.baselines.sgld import sgld

__all__ = ["mala", "sgld"]
