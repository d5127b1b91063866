"""Values that everything else uses: topologies, settings, reasons, incidents, errors.

errors         the tree of errors, with exit codes
topology       the pipeline's graph: operators, partitions, queries, closures
reasons        the one list of reasons for decisions
incidents      what kind of failure this is: independent, correlated, complete
switch_mode    on and off
settings       a pipeline's and a policy's settings, from YAML
record_format  versioned records of what is written to disk and sent
path_kinds     what a path leads to that is no file
strict_json    JSON with nothing in it twice
lazy_import    modules that are loaded when something of them is first used
plan_problem   the planner's question and its answer
sentences      parts of sentences for people: 1 node, 2 nodes, 1.8 %
run_events     what happens in a run, one JSON object per line
"""
