"""Mutants: one-line faults in every package, each with the tests that must notice it.

    python -m mutants [--only NAME ...] [--json FILE] [--tree PATH] [--moved FILE] [N]

Each fault is applied to a copy of the checkout, one at a time, and its tests run there. A fault
that no test notices is reported, and the exit code is 1. The faults stand in faults.toml.

    catalogue  the faults: read, checked against a tree, chosen for a short run
    copies     a copy of a checkout in which files are changed and programs run
    trials     one fault against its tests, and the verdict
    campaigns  many trials, two copies side by side, with a line for each

`__main__` is the command line.
"""
