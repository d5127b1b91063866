"""`rekindle demo`: kills nodes under a running pipeline and reports how its queries come back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.model.errors import InputError
from rekindle.model.settings import DOMAINS, EVEN
from rekindle_cli import cli_options
from rekindle_local import failure_schedule
from rekindle_spark.spark import spark_installation

if TYPE_CHECKING:
    from rekindle_local.demo.demo_scenario import DemoOptions


MODES = ("always", "adaptive")
# into how many failure domains nodes are divided, where there are so many
FAILURE_DOMAINS = 3
# What is killed of more than five nodes, if nothing else is said: 8 of 10.
KILL_SHARE = 0.8
# Runs of different placements are to be compared, and the load of one rack of many is none to
# calibrate by.
DOMAIN_ROWS_PER_NODE = 2_000.0
REPLAY, KAFKA = "replay", "kafka"
REPLAY_NODES, KAFKA_NODES = 4, 10
# The producer has a rate of its own: the driver calibrates that of replays alone.
KAFKA_ROWS_PER_NODE = 300.0

NodesOption = Annotated[
    int | None,
    typer.Option(
        min=2, max=50, help="Workers, each a node.", show_default="4, or 10 with --source kafka"
    ),
]
SourceOption = Annotated[
    str,
    typer.Option(
        help="Where rows come from and go to: replay, or kafka, a broker on this machine."
    ),
]
KillOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Nodes killed at once, unless a domain is killed.",
        show_default="3 of 4, 8 of 10",
    ),
]
PlacementOption = Annotated[
    str, typer.Option(help=f"How queries are placed before it: {EVEN} or {DOMAINS}.")
]
DomainsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=50,
        help="Failure domains that the nodes are divided into.",
        show_default="3, or as many as there are nodes",
    ),
]
KillDomainOption = Annotated[
    str | None,
    typer.Option(
        help="Kill all nodes of a failure domain: rack-1, rack-2 and so on.",
        show_default="none: --kill says how many",
    ),
]
StrategyOption = Annotated[
    str, typer.Option(help="How queries come back: incremental or blocking.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        help="Rows a second of all sources together.",
        show_default="calibrated to the load; 2000 a node with --kill-domain, 300 with kafka",
    ),
]
BufferingOption = Annotated[
    str, typer.Option(help="When outputs are retained: always or adaptive.")
]
OrderingOption = Annotated[str, typer.Option(help="When inputs are ordered: always or adaptive.")]

ReportOption = Annotated[
    Path | None,
    typer.Option(
        help="A new directory for the report.",
        show_default="none: what the run wrote is kept only if it fails",
    ),
]


def demo(
    nodes: NodesOption = None,
    source: SourceOption = REPLAY,
    kill: KillOption = None,
    domains: DomainsOption = None,
    kill_domain: KillDomainOption = None,
    placement: PlacementOption = EVEN,
    strategy: StrategyOption = "incremental",
    seed: Annotated[int, typer.Option(help="Picks priorities and victims.")] = 1,
    return_every: Annotated[
        float, typer.Option(help="Seconds between the returns of two nodes.")
    ] = 6.0,
    rows_per_second: RateOption = None,
    buffering: BufferingOption = "always",
    ordering: OrderingOption = "always",
    kill_coordinator: Annotated[
        bool, typer.Option(help="Kill the coordinator, too, in the middle of the recovery.")
    ] = False,
    report: ReportOption = None,
) -> None:
    """Kill nodes under a running pipeline and report how its queries come back.

    It takes about two minutes where the machine has nothing else to do; with --source kafka eight
    of ten workers die, and it takes longer.

    Example: rekindle demo --report out
    """
    cli_options.check_choice("--source", source, (REPLAY, KAFKA))
    nodes = nodes or (KAFKA_NODES if source == KAFKA else REPLAY_NODES)
    parts = _parts(domains, nodes)
    killed = _killed(kill, kill_domain, nodes, parts)
    if rows_per_second is None:
        rows_per_second = _rate(source, nodes, kills_domain=kill_domain is not None)
    from rekindle_local.demo import demo_run
    from rekindle_local.demo.demo_scenario import DemoOptions, shown

    wanted = DemoOptions(
        nodes=nodes,
        source=source,
        kill=killed,
        domains=parts,
        kill_domain=kill_domain,
        placement=placement,
        strategy=strategy,
        seed=seed,
        return_every_seconds=return_every,
        rows_per_second=rows_per_second,
        buffering=buffering,
        ordering=ordering,
        kill_coordinator=kill_coordinator,
    )
    _check(wanted)
    # Before there is a directory for the report: one with files in it is refused the next time.
    spark_installation.check(None)
    spark_installation.replace_ascii_locale()
    with cli_options.report_directory(report) as directory:
        result = demo_run.perform(shown(wanted), directory)
        demo_run.summarise(result, report)
        demo_run.check_rows(result)
        demo_run.check_topics(wanted, directory)


def _rate(source: str, nodes: int, *, kills_domain: bool) -> float | None:
    """The rate of rows if none is given; None where the driver calibrates it."""
    if source == KAFKA:
        return KAFKA_ROWS_PER_NODE * nodes
    return DOMAIN_ROWS_PER_NODE * nodes if kills_domain else None


def _parts(domains: int | None, nodes: int) -> int:
    """Into how many failure domains the nodes are divided."""
    if domains is None:
        return min(FAILURE_DOMAINS, nodes)
    if domains > nodes:
        raise InputError(
            where="--domains", what=f"is {domains} for {nodes} nodes", remedy="have fewer"
        )
    return domains


def _killed(kill: int | None, kill_domain: str | None, nodes: int, domains: int) -> int:
    """How many of all nodes are killed, if not a failure domain."""
    if kill_domain is None:
        share = max(1, min(nodes - 1, int(KILL_SHARE * nodes))) if kill is None else kill
        (killed,) = failure_schedule.demo(nodes, share).kills
        return killed
    if kill is not None:
        raise InputError(
            where="--kill", what="is given beside --kill-domain", remedy="give one of them"
        )
    if domains == 1:
        raise InputError(
            where="--kill-domain", what="would kill every node", remedy="have more --domains"
        )
    names = [f"rack-{1 + index}" for index in range(domains)]
    cli_options.check_choice("--kill-domain", kill_domain, names)
    return 0


def _check(wanted: "DemoOptions") -> None:
    cli_options.check_choice("--strategy", wanted.strategy, cli_options.STRATEGIES)
    cli_options.check_choice("--placement", wanted.placement, (EVEN, DOMAINS))
    cli_options.check_choice("--buffering", wanted.buffering, MODES)
    cli_options.check_choice("--ordering", wanted.ordering, MODES)
    if (wanted.buffering, wanted.ordering) == ("always", "adaptive"):
        raise InputError(
            where="--ordering",
            what="is adaptive, but --buffering is always",
            remedy="use always: repeats must be identical",
        )
    cli_options.check_range("--return-every", wanted.return_every_seconds, 0.1, 600)
    cli_options.check_range("--seed", wanted.seed, 0, cli_options.SEED_MAX)
    if wanted.rows_per_second is not None:
        cli_options.check_range("--rows-per-second", wanted.rows_per_second, 1, 10**9)
