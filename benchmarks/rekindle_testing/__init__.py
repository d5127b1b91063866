"""Test data for every package of the product, and a coordinator that benchmarks and tests run.

    coordinator_process  a coordinator as a process
    history_builders     simulated runs of small graphs, for the history checker
    operator_builders    policies, classes and the longest status of a recovery
    problem_builders     planner problems of a given size and kind
    run_builders         made-up runs with everything that a report is computed from
    runtime_builders     a source to build pipelines of, and a look at what is put on disk

Tests import them, and so do benchmarks; the product does not.
"""
