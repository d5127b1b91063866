"""Chaos: random pipelines, loads and faults from a seed, on the real local cluster.

chaos_command    the command `rekindle chaos`
trials           what one seed is: steps, load, settings, faults; plain data that a file can
                 keep
step_schemas     which columns each step gives
trial_generator  draws a trial from a seed
trial_parser     a trial from a file, refused where it could not be run
trial_sql        the same queries in SQL, for the check
trial_pipeline   the same queries as a pipeline, for the driver
trial_inputs     the sources' files
trial_brokers    brokers of Kafka, of which one is lost
trial_topics     writes the rows of topics, and reads what is in those of queries
trial_faults     does the harm
late_puts        a record that arrives when another driver has started
link_faults      cuts links between nodes
file_damage      bits and ends of files
trial_run        runs one trial
oracle           compares its output with the queries' answers
fault_shrinking  the fewest faults that still fail
trial_results    what many trials came to
trial_session    one trial after the other
sabotage         what is broken on purpose, to see that it is found
"""

from rekindle_cli.command_line import Command

__all__ = ["COMMAND"]

COMMAND = Command(
    "chaos",
    "Run random pipelines under random faults, and check every row.",
    "rekindle_chaos.chaos_command",
)
