"""Queries of Structured Streaming inside one application, stopped and started again by plans.

    executors, progress, run times ──► reports ──► the core, here or in a coordinator
    plans ──► which queries run ──► stop() and start functions

query_layout      protected queries as a topology that plans are made for
spark_view        executors and run times, as Spark's own status says
protected_query   one query: how far it is, stopped at a boundary, started again
start_terms       a limit of batches, and a pool of Spark's scheduler, for each start of a query
protection_state  what runs, what waits: the reports of it, and what orders change
protection        `protect`, and the loop behind it

Reports and directives are those of pipelines (`control.coordinator_client`), and so is the core.

Why: docs/decisions/0055-protected-queries-are-stopped-and-started.md.
"""
