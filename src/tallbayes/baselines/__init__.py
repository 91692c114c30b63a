"""Baselines: what the multilevel method is compared with, on the same Model and in the same cost unit.

chains   what both share: counts, sums between edges, batch means, the result
mala     the Metropolis-adjusted Langevin algorithm, exact, paying all rows a step
sgld     stochastic-gradient Langevin dynamics on one level

`tb.baselines.mala` and `tb.baselines.sgld` are public, and what they take and return.
"""

from tallbayes.baselines.chains import ChainEstimate, ChainResult
from tallbayes.baselines.mala import mala
from tallbayes.baselines.sgld import Decreasing, sgld

__all__ = ["ChainEstimate", "ChainResult", "Decreasing", "mala", "sgld"]
