"""Builders and fakes for tests, shipped so that others can test against them too.

runs    made-up runs with everything that a report is computed from
"""
