"""`rekindle bench`: measures what the product promises and what it costs.

Each benchmark writes a JSON file with its figures and rows `bar, value, met, command`; where things
are compared these are ratios of one run, and what only shows where costs are has no bars.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from rekindle.model.errors import InputError, RunError
from rekindle_bench import bench_demo, enforcement
from rekindle_bench.enforcement import Enforce
from rekindle_cli import cli_options, svg_files
from rekindle_local import failure_schedule
from rekindle_local.failure_schedule import Schedule
from rekindle_local.local_nodes import CPU_QUOTA, CPU_QUOTA_MIN

SEEDS_MAX = 100  # two runs of three minutes for each
WORKERS_MINUTES = 5.0
STUDY_SEEDS_MAX = 10_000
# At this rate 15 queries of Structured Streaming ran on ten nodes of a fifth of a slow core.
PEER_ROWS_PER_SECOND = 1_000.0

bench = typer.Typer(
    help="Measure recovery, endurance, rates and costs.\n\n"
    "Example: rekindle bench recovery --seeds 1..5 --report bench",
    no_args_is_help=True,
)
bench.command()(bench_demo.demo)

NodesOption = Annotated[
    int | None,
    typer.Option(min=2, max=50, help="Workers of `demo`, each a node.", show_default="10"),
]
KillOption = Annotated[
    int | None,
    typer.Option(min=1, help="Nodes that `demo` kills.", show_default="8, or all but one"),
]


@bench.command()
def recovery(
    strategies: Annotated[
        str, typer.Option(help="Rekindle's strategies and other systems, separated by commas.")
    ] = "incremental,blocking",
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..5",
    schedule: Annotated[
        str, typer.Option(help="What is killed: demo, or workers: 1, 2, then 4 of 8.")
    ] = "demo",
    minutes: Annotated[
        float | None,
        typer.Option(
            help="From one failure of `workers` to the next.", show_default=f"{WORKERS_MINUTES:g}"
        ),
    ] = None,
    nodes: NodesOption = None,
    kill: KillOption = None,
    rows_per_second: Annotated[
        float | None,
        typer.Option(help="Rate of rows.", show_default="calibrated for incremental"),
    ] = None,
    cpu_quota: Annotated[float, typer.Option(help="Cores that each node may use.")] = CPU_QUOTA,
    report: Annotated[
        Path,
        typer.Option(help="A new directory for figures and reports; with --resume, an old one."),
    ] = Path("bench-recovery"),
    resume: Annotated[
        bool, typer.Option(help="Go on where the run that wrote --report was interrupted.")
    ] = False,
    enforce: Enforce = False,
) -> None:
    """Compare strategies and other systems, seed by seed.

    On the same failures. Other systems, as structured-streaming, get the rate of incremental.

    Example: rekindle bench recovery --strategies incremental,structured-streaming --seeds 1..5
    """
    cli_options.check_choice("--schedule", schedule, failure_schedule.SCHEDULES)
    if minutes is not None:
        cli_options.check_range("--minutes", minutes, 1, 60)
    if rows_per_second is not None:
        cli_options.check_range("--rows-per-second", rows_per_second, 1, 10**9)
    cli_options.check_range("--cpu-quota", cpu_quota, CPU_QUOTA_MIN, os.cpu_count() or 1)
    numbers = cli_options.seeds(seeds, SEEDS_MAX)
    planned = _schedule(schedule, minutes, nodes, kill)
    from rekindle_bench import contest_order, recovery_benchmark, system_comparison

    wanted = cli_options.choices("--strategies", strategies, contest_order.SYSTEMS)
    recovery_benchmark.check(wanted)
    if rows_per_second is None and not set(wanted) & set(cli_options.STRATEGIES):
        raise InputError(
            where="--strategies",
            what="has no strategy of Rekindle, which tells the rate",
            remedy="add incremental, or give --rows-per-second",
        )
    if enforce and system_comparison.OURS not in wanted:
        raise _nothing_to_enforce("--strategies", system_comparison.OURS)
    _check_runs("--seeds", len(numbers), enforce and not resume)
    directory = cli_options.writable(report) if resume else cli_options.new_directory(report)
    asked = contest_order.Contest(wanted, numbers, planned, rows_per_second, cpu_quota)
    enforcement.enforce(recovery_benchmark.measure(asked, directory, resume=resume), enforce)


def _schedule(name: str, minutes: float | None, nodes: int | None, kill: int | None) -> Schedule:
    if name == "demo":
        cli_options.check_absent("--minutes", minutes, "--schedule demo, which has one failure")
        return failure_schedule.demo(nodes, kill)
    for option, value in (("--nodes", nodes), ("--kill", kill)):
        cli_options.check_absent(option, value, f"--schedule {name}, which says it")
    return failure_schedule.workers(WORKERS_MINUTES if minutes is None else minutes)


@bench.command()
def soak(
    epochs: Annotated[
        int, typer.Option(min=500, max=1_000_000, help="Number of small epochs.")
    ] = 2000,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-soak"
    ),
    enforce: Enforce = False,
) -> None:
    """Run many small epochs, losses and starts: nothing grows.

    Files and memory must end where they were after the first tenth, and every row must be right.
    20,000 epochs take about an hour.

    Example: rekindle bench soak --epochs 2000 --report soak
    """
    from rekindle_bench import soak_benchmark as benchmark

    enforcement.enforce(benchmark.measure(epochs, cli_options.new_directory(report)), enforce)


@bench.command()
def past(
    commits: Annotated[
        int, typer.Option(min=10_000, max=10_000_000, help="Commits of the long past.")
    ] = 1_000_000,
    turns: Annotated[int, typer.Option(min=1, max=50, help="Starts on each store.")] = 9,
    report: Annotated[Path, typer.Option(help="A new directory for the figures.")] = Path(
        "bench-past"
    ),
    enforce: Enforce = False,
) -> None:
    """Start on a long past, beside a short one.

    A store of a million commits takes some minutes to write, and 1 GB while it is there.

    Example: rekindle bench past --commits 1000000 --report past
    """
    from rekindle_bench import past_results as benchmark

    _check_runs("--turns", turns, enforce)
    enforcement.enforce(
        benchmark.measure(commits, turns, cli_options.new_directory(report)), enforce
    )


@bench.command()
def harmful(
    seconds: Annotated[
        float, typer.Option(min=10, max=3600, help="Seconds of quiet time, and of each harm.")
    ] = 60,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-harmful"
    ),
    enforce: Enforce = False,
) -> None:
    """End or hang processes beside an important query.

    Example: rekindle bench harmful --seconds 60 --report harmful
    """
    from rekindle_bench import harmful_functions as benchmark

    enforcement.enforce(benchmark.measure(seconds, cli_options.new_directory(report)), enforce)


@bench.command()
def coordinator(
    applications: Annotated[
        int, typer.Option(min=10, max=10_000, help="Applications in the store.")
    ] = 1000,
    queries: Annotated[int, typer.Option(min=1, max=500, help="Queries of each.")] = 50,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-coordinator"
    ),
    enforce: Enforce = False,
) -> None:
    """Coordinate many applications: at rest, and in a failure.

    Example: rekindle bench coordinator --applications 1000 --queries 50 --report bench
    """
    from rekindle_bench import coordinator_benchmark as benchmark

    enforcement.enforce(
        benchmark.measure(applications, queries, cli_options.new_directory(report)), enforce
    )


@bench.command()
def store(
    applications: Annotated[
        int, typer.Option(min=1, max=10_000, help="Applications in the store.")
    ] = 500,
    queries: Annotated[int, typer.Option(min=1, max=500, help="Queries of each.")] = 50,
    times: Annotated[float, typer.Option(min=0.1, max=100, help="Of the rate of drivers.")] = 1.0,
    seconds: Annotated[float, typer.Option(min=5, max=7200, help="For how long.")] = 60.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-store"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure what reports write to a ZooKeeper server's disk.

    And compute the claim of which that takes half (docs/zookeeper.md).

    Example: rekindle bench store --applications 500 --seconds 60 --report store
    """
    from rekindle_bench import store_disk as benchmark

    directory = cli_options.new_directory(report)
    enforcement.enforce(
        benchmark.measure(applications, queries, times, seconds, directory), enforce
    )


@bench.command()
def overhead(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each way is run.")] = 3,
    seconds: Annotated[float, typer.Option(min=5, max=600, help="For how long.")] = 20.0,
    sweep: Annotated[
        bool, typer.Option(help="Also intervals of checkpoints, and sizes of epochs.")
    ] = False,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-overhead"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure what checkpoints, ordering and catching up cost.

    Example: rekindle bench overhead --rounds 3 --report overhead
    """
    from rekindle_bench import overhead as benchmark

    _check_runs("--rounds", rounds, enforce)
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(rounds, seconds, sweep, directory), enforce)


@bench.command()
def checks(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often it is run.")] = 1,
    seconds: Annotated[float, typer.Option(min=5, max=600, help="For how long.")] = 20.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-checks"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure what it costs to check exchanged rows.

    Example: rekindle bench checks --seconds 20 --report checks
    """
    from rekindle_bench import bench_checks as benchmark

    enforcement.enforce(
        benchmark.measure(rounds, seconds, cli_options.new_directory(report)), enforce
    )


@bench.command()
def kafka(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each way has a turn.")] = 3,
    rows: Annotated[
        int, typer.Option(min=1_000, max=100_000_000, help="Rows that are read, and written.")
    ] = 1_000_000,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-kafka"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure what Kafka costs at both ends, beside a plain client.

    Reading JSON as rows, and writing exactly once. It starts a broker, and neither nodes nor Spark.

    Example: rekindle bench kafka --rounds 3 --rows 1000000 --report kafka
    """
    from rekindle_bench import kafka_benchmark as benchmark

    _check_runs("--rounds", rounds, enforce)
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(rounds, rows, directory), enforce)


@bench.command("kafka-lag")
def kafka_lag(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often the lag is measured.")] = 3,
    seconds: Annotated[float, typer.Option(min=5, max=3_600, help="Seconds of a round.")] = 60.0,
    backlog: Annotated[
        int, typer.Option(min=10_000, max=100_000_000, help="Rows that show the highest rate.")
    ] = 2_000_000,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-kafka-lag"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure how long rows take from a topic of Kafka to the next.

    At 60 % of the highest rate, on two nodes; it starts a broker.

    Example: rekindle bench kafka-lag --rounds 3 --seconds 60 --report lag
    """
    from rekindle_bench import kafka_lag as benchmark

    _check_runs("--rounds", rounds, enforce)
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(rounds, seconds, backlog, directory), enforce)


@bench.command("kafka-peers")
def kafka_peers(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each has a turn.")] = 3,
    rows: Annotated[
        int, typer.Option(min=200_000, max=100_000_000, help="Rows that are in the topic.")
    ] = 6_000_000,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-kafka-peers"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure one query between topics, beside Spark's own.

    JSON from a topic, a window, JSON into a topic, on two nodes; it starts a broker.

    Example: rekindle bench kafka-peers --rounds 3 --rows 6000000 --report kafka-peers
    """
    from rekindle_bench import kafka_peers as benchmark

    _check_runs("--rounds", rounds, enforce)
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(rounds, rows, directory), enforce)


@bench.command()
def profile(
    seconds: Annotated[float, typer.Option(min=5, max=600, help="For how long.")] = 30.0,
    nodes: Annotated[int, typer.Option(min=1, max=50, help="Workers, without a quota.")] = 2,
    rows_per_second: Annotated[
        float | None,
        typer.Option(help="Rate of rows.", show_default="more than the nodes can take"),
    ] = None,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-profile"
    ),
) -> None:
    """Show where time and CPU of an epoch go.

    By process, operator, function and stage; with a picture of stacks.

    Example: rekindle bench profile --report profile
    """
    if rows_per_second is not None:
        cli_options.check_range("--rows-per-second", rows_per_second, 1, 10**9)
    from rekindle_bench import cpu_profile as benchmark

    benchmark.measure(seconds, cli_options.new_directory(report), nodes, rows_per_second)


@bench.command()
def steady(
    systems: Annotated[
        str, typer.Option(help="What to compare, separated by commas.")
    ] = "rekindle,structured-streaming",
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each is run.")] = 3,
    seconds: Annotated[float, typer.Option(min=5, max=3600, help="For how long.")] = 60.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-steady"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure the highest rate that systems keep up with.

    And how late output is at 60 % of it, with all queries and with one.

    Example: rekindle bench steady --rounds 3 --report steady
    """
    from rekindle_bench import steady_benchmark as benchmark
    from rekindle_peers import peer_starters

    wanted = cli_options.choices("--systems", systems, benchmark.SYSTEMS)
    for system in wanted:
        peer_starters.check(system)
    if enforce and "rekindle" not in wanted:
        raise _nothing_to_enforce("--systems", "rekindle")
    _check_runs("--rounds", rounds, enforce)
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(wanted, rounds, seconds, directory), enforce)


@bench.command()
def flows(
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each is run.")] = 3,
    seconds: Annotated[float, typer.Option(min=5, max=3600, help="For how long.")] = 30.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-flows"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure epochs over links beside epochs as Spark jobs.

    Example: rekindle bench flows --rounds 3 --report flows
    """
    from rekindle_bench import flow_benchmark as benchmark

    _check_runs("--rounds", rounds, enforce)
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(rounds, seconds, directory), enforce)


@bench.command()
def scale(
    partitions: Annotated[
        int, typer.Option(min=40, max=100_000, help="Partitions of the largest pipeline.")
    ] = 2_000,
    executors: Annotated[int, typer.Option(min=1, max=250, help="Workers, each a node.")] = 10,
    report: Annotated[Path, typer.Option(help="A new directory for figures and logs.")] = Path(
        "bench-scale"
    ),
    enforce: Enforce = False,
) -> None:
    """Measure what an epoch costs one driver as partitions grow.

    Example: rekindle bench scale --partitions 2000 --executors 10 --report scale
    """
    from rekindle_bench import scale_benchmark as benchmark

    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(partitions, executors, directory), enforce)


@bench.command()
def planner(
    queries: Annotated[
        int, typer.Option(min=1, max=100_000, help="Queries of the large problem.")
    ] = 1_000,
    partitions: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Partitions of the large problem.")
    ] = 10_000,
    budget_seconds: Annotated[
        float, typer.Option(min=0, max=3_600, help="Seconds for the large problem.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Makes the problems.")] = 1,
    report: Annotated[Path, typer.Option(help="A new directory for the figures.")] = Path(
        "bench-planner"
    ),
    renew: Annotated[
        bool, typer.Option(help="Look for an hour for better plans to measure against.")
    ] = False,
    enforce: Enforce = False,
) -> None:
    """Measure how fast the planner is and how good its plans are.

    Takes about six minutes, whatever the size of the large problem: what its plans are measured
    against has to be found first.

    Example: rekindle bench planner --queries 10000 --partitions 100000 --budget-seconds 10
    """
    from rekindle_bench import planner_benchmark as benchmark

    directory = cli_options.new_directory(report)
    if renew:
        benchmark.renew(directory)
        return
    enforcement.enforce(
        benchmark.measure(queries, partitions, budget_seconds, seed, directory), enforce
    )


@bench.command()
def study(
    seeds: Annotated[
        str, typer.Option(help="One seed, or FIRST..LAST; a topology for each.")
    ] = "1..100",
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the figures, as an SVG file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Compare planners on random topologies.

    The figure is number 16 of the paper on incremental recovery (section 7).

    Example: rekindle bench study --seeds 1..100 --picture fig16.svg
    """
    if picture is not None:
        svg_files.check(picture)
    from rekindle_bench import study_figures

    study_figures.show(cli_options.seeds(seeds, STUDY_SEEDS_MAX), picture, as_json=as_json)


@bench.command()
def peer(
    engine: Annotated[
        str, typer.Option(help="structured-streaming, flink or flink-adaptive; rows are checked.")
    ] = "structured-streaming",
    nodes: Annotated[int, typer.Option(min=2, max=50, help="Workers, each a node.")] = 10,
    kill: KillOption = None,
    rows_per_second: Annotated[
        float, typer.Option(help="Rate of rows; the engine has to sustain it.")
    ] = PEER_ROWS_PER_SECOND,
    return_every: Annotated[
        float, typer.Option(help="Seconds between the returns of two nodes.")
    ] = 6.0,
    seed: Annotated[int, typer.Option(help="Picks the victims.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(help="A new directory for the report; else it is kept only on failure."),
    ] = None,
) -> None:
    """Run another system through the demo's failure.

    Example: rekindle bench peer --engine structured-streaming --rows-per-second 1000 --report out
    """
    cli_options.check_range("--rows-per-second", rows_per_second, 1, 10**9)
    cli_options.check_range("--return-every", return_every, 0.1, 600)
    cli_options.check_range("--seed", seed, 0, cli_options.SEED_MAX)
    kills = failure_schedule.demo(nodes, kill).kills
    from rekindle_local.demo import demo_run as demo
    from rekindle_local.local_nodes import LocalNode
    from rekindle_peers import peer_run
    from rekindle_peers.peer_scenario import PeerTrial
    from rekindle_peers.peer_table import PEERS

    cli_options.check_choice("--engine", engine, tuple(PEERS))
    trial = PeerTrial(
        rows_per_second,
        failure_schedule.drawn([LocalNode(index).name for index in range(nodes)], kills, seed),
        nodes=nodes,
        seed=seed,
        return_every_seconds=return_every,
    )
    with cli_options.report_directory(report) as directory:
        result = peer_run.perform(engine, trial, directory, trial.display().show).report
        if result is None:
            raise RunError(
                where="peer",
                what=f"lag grows at {rows_per_second:,.0f} rows a second before any failure",
                remedy="give a lower --rows-per-second",
            )
        demo.summarise(result, report)
        demo.check_rows(result)


@bench.command()
def protect(
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..3",
    nodes: Annotated[int, typer.Option(min=2, max=50, help="Workers, each a node.")] = 10,
    kill: KillOption = None,
    rows_per_second: Annotated[
        float, typer.Option(help="Rate of rows; the application has to sustain it.")
    ] = PEER_ROWS_PER_SECOND,
    trigger_seconds: Annotated[
        float, typer.Option(min=1, max=600, help="Seconds from batch to batch of a query.")
    ] = 10.0,
    report: Annotated[Path, typer.Option(help="A new directory for figures and reports.")] = Path(
        "bench-protect"
    ),
    enforce: Enforce = False,
) -> None:
    """Protect the queries of a Structured Streaming application.

    The demo's failure under the demo's quotas, with `rekindle.protect` and without. A run takes
    six minutes or more.

    Example: rekindle bench protect --seeds 1..3 --report protect --enforce
    """
    cli_options.check_range("--rows-per-second", rows_per_second, 1, 10**9)
    numbers = cli_options.seeds(seeds, SEEDS_MAX)
    kills = failure_schedule.demo(nodes, kill).kills
    _check_runs("--seeds", len(numbers), enforce)
    from rekindle_bench import protect_benchmark as benchmark
    from rekindle_local.local_nodes import LocalNode
    from rekindle_peers.peer_scenario import PeerTrial

    names = [LocalNode(index).name for index in range(nodes)]
    trials = [
        PeerTrial(
            rows_per_second,
            failure_schedule.drawn(names, kills, seed),
            nodes=nodes,
            seed=seed,
            trigger_seconds=trigger_seconds,
        )
        for seed in numbers
    ]
    command = f"rekindle bench protect --seeds {seeds} --rows-per-second {rows_per_second:g}"
    command += f" --trigger-seconds {trigger_seconds:g}"
    directory = cli_options.new_directory(report)
    enforcement.enforce(benchmark.measure(trials, command, directory), enforce)


def _nothing_to_enforce(where: str, system: str) -> InputError:
    return InputError(
        where=where,
        what=f"leaves out {system}, whose bars --enforce is about",
        remedy=f"add {system}, or leave out --enforce",
    )


def _check_runs(option: str, given: int, enforce: bool) -> None:
    """Raise InputError where bars are to be enforced that so few runs cannot meet."""
    from rekindle_bench.bar_results import RUNS_MIN

    if enforce and given < RUNS_MIN:
        raise InputError(
            where=option,
            what=f"gives {given} of the {RUNS_MIN} runs whose median --enforce is about",
            remedy=f"give {RUNS_MIN} or more, or leave out --enforce",
        )
