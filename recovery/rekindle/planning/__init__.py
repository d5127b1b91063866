"""The planner: which lost queries to bring back on the capacity that is there, and where.

solver               problem in, answer out: `solve`
lost_queries         which queries lost something, and which of them are hopeless
problem_arrays       the problem as arrays; budget and selection of the solvers
upper_bound          upper bound by minimum cuts
density_search       solver best-density, the paper's Algorithm 3 with local search
greedy_selection     the choice that best-density grows and shrinks
local_search         its local search: one query out, one in
mixed_integer        solver exact, by HiGHS
dynamic_programming  solver dp, dynamic programming
domain_layout        placement that survives the loss of failure domains
capacity_search      what to choose where the sum of the nodes' free CPU cannot be used up
packing              nodes that fill up, the tightest first
placement            partitions on nodes: `place`
placement_repair     makes a choice placeable
answer_builder       the answer, with a reason for every query left out
wait_explanation     why a query waits while a less important one runs, as a sentence
"""

from rekindle.planning.placement import Placement, place
from rekindle.planning.solver import AUTO, SOLVERS, solve

__all__ = ["AUTO", "SOLVERS", "Placement", "place", "solve"]
