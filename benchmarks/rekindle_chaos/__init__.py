"""Chaos: random pipelines, loads and faults from a seed, on the real local cluster.

command      the command `rekindle chaos`
trials       what one seed is: steps, load, settings, faults; plain data that a file can keep
shapes       which columns each step gives
drawing      draws a trial from a seed
reading      a trial from a file, refused where it could not be run
statements   the same queries in SQL, for the check
application  the same queries as a pipeline, for the driver
inputs       the sources' files
faults       does the harm
late_puts    a record that arrives when another driver has started
links        cuts links between nodes
damage       bits and ends of files
running      runs one trial
checking     compares its output with the queries' answers
shrinking    the fewest faults that still fail
results      what many trials came to
session      one trial after the other
sabotage     what is broken on purpose, to see that it is found
"""

from rekindle_cli.cli import Command

__all__ = ["COMMAND"]

COMMAND = Command(
    "chaos",
    "Run random pipelines under random faults, and check every row.",
    "rekindle_chaos.command",
)
