"""Benchmarks: figures beside bars, ratios from one run.

    checks        what it costs to check exchanged rows
    command       the command `rekindle bench`
    comparison    ratios and bars of recoveries, by the runs of several systems
    contest       who is compared in which failures, and in which order
    coordinator   many applications in one coordinator: cost, speed, failover
    counting      what is counted inside of the processes of a run
    demo_command  the command `rekindle bench demo`
    demo_runs     the demo seed after seed: is it right, and true about the machine
    enforcement   the option `--enforce`, and what it does
    flame         a flame graph of what a profile has sampled
    fleet         the records of many applications at rest
    harmful       what an important query feels of functions that end or hang their process
    interference  what catching up costs those that run
    lags          pictures of how far queries were behind
    outages       the figures of one run in a failure, from its events
    overhead      what checkpoints, buffering and ordering cost
    past          a start on a store with a million commits
    planner       how fast the planner is, how good its plans are
    profile       where CPU and time of an epoch go
    recovery      strategies and other systems compared in the same failures
    resuming      what an interrupted comparison of recoveries has left
    runs          runs in a failure as records: of Rekindle, and of peers at rates that they sustain
    study         planners compared on random topologies, as in the paper
    study_figures  the study as tables, JSON or a picture
    scale         what an epoch costs one driver as partitions grow
    saturated     a run with more input than the nodes can take, followed
    steady        the highest rate that systems keep up with, and lag below it
    soak          many small epochs, losses and starts: does anything grow
    soak_rows     whether every row of a soak is right
    store_disk    what reports take on the disk of a ZooKeeper server: computed, and measured
    text_runs     a pipeline that is text, run on a cluster of this machine
    threads       CPU time of processes by kinds of their threads
    witness       how short of CPU the machine is, by a process that wants a little of it
    results       rows of bars, written and printed

Called by the command `bench`; `results` and `fleet` by the operator's benchmark too.
"""

from rekindle_cli.cli import Command

__all__ = ["COMMAND"]

COMMAND = Command(
    "bench", "Measure recovery, endurance, rates and costs.", "rekindle_bench.command"
)
