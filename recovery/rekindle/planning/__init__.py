"""The planner: which lost queries to bring back on the capacity that is there, and where.

solver               problem in, answer out: `solve`
problem_arrays       the problem as arrays; budget and selection of the solvers
upper_bound          upper bound by minimum cuts
density_search       solver best-density, the paper's Algorithm 3 with local search
local_search         its local search: one query out, one in
exact_search         solvers dp, dynamic programming, and exact, by HiGHS
domain_layout        placement that survives the loss of failure domains
placement            partitions on nodes: `place`
placement_repair     makes a choice placeable
wait_explanation     why a query waits while a less important one runs, as a sentence
"""

from rekindle.planning.placement import Placement, place
from rekindle.planning.solver import AUTO, SOLVERS, solve

__all__ = ["AUTO", "SOLVERS", "Placement", "place", "solve"]
