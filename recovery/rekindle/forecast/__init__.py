"""Simulates a failure before it happens.

    steady_state        an application in a steady state, from a file
    failure_models      which nodes are lost
    node_arrivals       when nodes come
    failure_simulation  a failure as it would go: the coordinator core decides, the model does the
                        work
    outage_statistics   many rehearsals: for how long each query gives nothing
    domain_forecasts    the effect of the loss of each failure domain, and its length

Times are simulated, chance comes from seeds, and nothing is read but the file of a trace. The
commands `simulate` and `forecast` show it.
"""
