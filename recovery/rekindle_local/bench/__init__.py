"""Benchmarks: figures beside bars, ratios from one run.

    coordinator   many applications in one coordinator: cost, speed, failover
    fleet         the records of many applications at rest
    interference  what catching up costs those that run
    overhead      what checkpoints, buffering and ordering cost
    planner       how fast the planner is, how good its plans are
    recovery      strategies compared on the demo's failure
    study         planners compared on random topologies, as in the paper
    soak          many small epochs: does anything grow
    results       rows of bars, written and printed

Called by the command `bench`.
"""
