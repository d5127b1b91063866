"""Other systems in the same failure: the demo's queries on the same nodes, run by somebody else.

    table        the peers: who starts them, on which machines, who writes their report
    lateness     does lag grow, how late is normal, who is back: by commits alone
    scenario     the run as phases: start, settle, failures, nodes return, finish
    performance  one performance: prepares, runs, writes what was seen

Called by `bench recovery` and by `demo --engine`.
"""
