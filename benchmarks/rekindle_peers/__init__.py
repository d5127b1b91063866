"""Other systems at the same work: the demo's queries on the same nodes, run by somebody else.

    peer_starters         the systems that are measured beside each other, Rekindle among them
    freshness             rates and lags, by the commits of queries
    peer_table            the peers: who starts them, on which machines, who reads what they put out
    peer_evidence         the report's directory of a run, as `rekindle verify` reads it
    lateness              does lag grow, how late is normal, who is back: by commits alone
    peer_scenario         the run as phases: start, settle, failures, nodes return, finish
    peer_run              one performance: prepares, runs, writes what was seen

    flink                 the flights as a job of Flink
    structured_streaming  the flights as ordinary Spark

Called by `rekindle bench recovery`, `steady`, `peer`, `protect` and `kafka-peers`.
"""
