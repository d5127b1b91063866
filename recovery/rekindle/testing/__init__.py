"""Builders and fakes for tests, shipped so that others can test against them too.

histories    simulated runs of small graphs, for the history checker
problems     planner problems of a given size and kind
runs         made-up runs with everything that a report is computed from
"""
