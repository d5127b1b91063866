"""Benchmarks: figures beside bars, ratios from one run.

    bench_checks           what it costs to check exchanged rows
    bench_command          the command `rekindle bench`
    system_comparison      ratios and bars of recoveries, by the runs of several systems
    contest_order          who is compared in which failures, and in which order
    coordinator_benchmark  many applications in one coordinator: cost, speed, failover
    counting               what is counted inside of the processes of a run
    bench_demo             the command `rekindle bench demo`
    demo_runs              the demo seed after seed: is it right, and true about the machine
    enforcement            the option `--enforce`, and what it does
    flame_graph            a flame graph of what a profile has sampled
    application_fleet      the records of many applications at rest
    flow_benchmark         epochs over links beside epochs as Spark jobs
    harmful_functions      what an important query feels of functions that end or hang their process
    interference           what catching up costs those that run
    kafka_benchmark        reading from Kafka and writing to it, beside a plain client
    kafka_lag              how long rows take from a topic to the next
    kafka_peers            one query between two topics, beside Structured Streaming
    kafka_measurement      one way to read from Kafka or to write to it, measured
    lag_chart              pictures of how far queries were behind
    outage_figures         the figures of one run in a failure, from its events
    overhead               what checkpoints, buffering and ordering cost
    past_results           a start on a store with a million commits
    planner_benchmark      how fast the planner is, how good its plans are
    protect_benchmark      the demo's failure in Structured Streaming, with and without protection
    cpu_profile            where CPU and time of an epoch go
    recovery_benchmark     strategies and other systems compared in the same failures
    contest_resume         what an interrupted comparison of recoveries has left
    recovery_runs          runs in a failure as records: of Rekindle, and of peers at rates that
                           they sustain
    planner_study          planners compared on random topologies, as in the paper
    study_figures          the study as tables, JSON or a picture
    scale_benchmark        what an epoch costs one driver as partitions grow
    saturated_run          a run with more input than the nodes can take, followed
    steady_benchmark       the highest rate that systems keep up with, and lag below it
    soak_benchmark         many small epochs, losses and starts: does anything grow
    soak_rows              whether every row of a soak is right
    store_disk             what reports take on the disk of a ZooKeeper server: computed, and
                           measured
    text_runs              a pipeline that is text, run on a cluster of this machine
    thread_cpu             CPU time of processes by kinds of their threads
    machine_witness        how short of CPU the machine is, by a process that wants a little of it
    bar_results            rows of bars, written and printed

Called by the command `bench`; `bar_results` and `application_fleet` by the operator's benchmark
too.
"""

from rekindle_cli.command_line import Command

__all__ = ["COMMAND"]

COMMAND = Command(
    "bench", "Measure recovery, endurance, rates and costs.", "rekindle_bench.bench_command"
)
