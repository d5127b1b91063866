"""Benchmarks: figures beside bars, ratios from one run.

    comparison    ratios and bars of recoveries, by the runs of several systems
    contest       who is compared in which failures, and in which order
    coordinator   many applications in one coordinator: cost, speed, failover
    fleet         the records of many applications at rest
    interference  what catching up costs those that run
    outages       the figures of one run in a failure, from its events
    overhead      what checkpoints, buffering and ordering cost
    planner       how fast the planner is, how good its plans are
    profile       where CPU and time of an epoch go
    recovery      strategies and other systems compared in the same failures
    resuming      what an interrupted comparison of recoveries has left
    runs          runs in a failure as records: of Rekindle, and of peers at rates that they sustain
    study         planners compared on random topologies, as in the paper
    scale         what an epoch costs one driver as partitions grow
    saturated     a run with more input than the nodes can take, followed
    steady        the highest rate that systems keep up with, and lag below it
    soak          many small epochs: does anything grow
    threads       CPU time of processes by kinds of their threads
    results       rows of bars, written and printed

Called by the command `bench`; `study` by `simulate` too, `results` and `fleet` by the operator's
benchmark.
"""
