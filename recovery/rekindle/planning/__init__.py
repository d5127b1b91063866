"""The planner: which lost queries to bring back on the capacity that is there, and where.

solving         problem in, answer out: `solve`
loss            which queries lost something, and which of them are hopeless
instance        the problem as arrays; budget and selection of the solvers
bound           upper bound by minimum cuts
density         solver best-density, the paper's Algorithm 3 with local search
growth          the choice that best-density grows and shrinks
combination     solver auto, for problems too large to be solved exactly
swaps           its local search: one query out, one in
mixed_integer   solver exact, by HiGHS
enumeration     solver dp, dynamic programming
operator_order  solver operator-centric, the baseline
domains         placement that survives the loss of failure domains
fragmentation   what to choose where the sum of the nodes' free CPU cannot be used up
packing         nodes that fill up, the tightest first
placement       partitions on nodes: `place`
settlement      makes a choice placeable
outcome         the answer, with a reason for every query left out
waiting         why a query waits while a less important one runs, as a sentence
"""

from rekindle.planning.placement import Placement, place
from rekindle.planning.solving import AUTO, SOLVERS, solve

__all__ = ["AUTO", "SOLVERS", "Placement", "place", "solve"]
