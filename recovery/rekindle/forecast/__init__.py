"""Simulates a failure before it happens.

    steady_state        an application in a steady state, from a file
    outage_forecasts    which nodes are lost, and for how long each query gives nothing
    failure_simulation  a failure as it would go: the coordinator core decides, the model does the
                        work

Times are simulated, chance comes from seeds, and nothing is read but the file of a trace. The
commands `simulate` and `forecast` show it.
"""
