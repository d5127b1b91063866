"""Benchmarks: figures beside bars, ratios from one run.

    recovery    strategies compared on the demo's failure
    soak        many small epochs: does anything grow
    results     rows of bars, written and printed

Called by the command `bench`.
"""
