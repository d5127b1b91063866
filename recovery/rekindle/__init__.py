"""The pure core: what failed, what fits, what comes back first.

No clock, no chance, no Spark: values in, values out. Runtime and shells stand on it.

    errors         the tree of errors, with exit codes
    topology       the pipeline's graph: operators, partitions, queries, closures
    reasons        the one list of reasons for decisions
    incidents      what kind of failure this is: independent, correlated, complete
    modes          on and off
    settings       a pipeline's and a policy's settings, from YAML
    records        versioned records of what is written to disk and sent
    strict_json    JSON with nothing in it twice
    lazily         modules that are loaded when something of them is first used
    problem        the planner's question and its answer
    planning       solvers, upper bound and placement
    protocol       what driver, sidecar and coordinator say to each other
    coordination   the coordinator: state and event in, state and instructions out
    events         what happens in a run, one JSON object per line
    lag            the lag of a query over time, and when it is unavailable
    report         every figure of `report.json`, computed from a run's records
    verification   the same figures again, and every output row against a batch computation
    history        whether what a system released could have come of a run without failures
    forecast       what a failure would do, before it happens
"""

__version__ = "0.1.0"
