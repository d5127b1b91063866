"""`rekindle demo`: kills nodes under a running pipeline and reports how its queries come back."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.errors import InputError, RunError
from rekindle.settings import DOMAINS, EVEN
from rekindle_local import failures, options

if TYPE_CHECKING:
    from rekindle_local.demo.scenario import Options

__all__ = ["demo"]

MODES = ("always", "adaptive")
# into how many failure domains nodes are divided, where there are so many
FAILURE_DOMAINS = 3
# Runs of different placements are to be compared, and the load of one rack of many is none to
# calibrate by.
DOMAIN_ROWS_PER_SECOND = 20_000.0
# At this rate 15 such queries of Structured Streaming ran on ten nodes of a fifth of a slow core;
# how many rows 18 of them sustain there is not measured.
PEER_ROWS_PER_SECOND = 1_000.0
ENGINES = ("pipeline", "structured-streaming")

PlacementOption = Annotated[
    str, typer.Option(help="How queries are placed before it: even or domains.")
]
DomainsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=50,
        help="Failure domains that the nodes are divided into; 3 where there are so many nodes.",
    ),
]
StrategyOption = Annotated[
    str, typer.Option(help="How queries come back: incremental or blocking.")
]
RateOption = Annotated[
    float | None,
    typer.Option(help="Rate of rows; without it, calibrated to the load, or 20000 for a domain."),
]
BufferingOption = Annotated[
    str, typer.Option(help="When outputs are retained: always or adaptive.")
]
OrderingOption = Annotated[str, typer.Option(help="When inputs are ordered: always or adaptive.")]
EngineOption = Annotated[
    str, typer.Option(help="What runs the queries: pipeline or structured-streaming.")
]


def demo(
    nodes: Annotated[int, typer.Option(min=2, max=50, help="Workers, each a node.")] = 10,
    kill: Annotated[
        int | None, typer.Option(min=1, help="Nodes killed at once; 8 unless a domain is killed.")
    ] = None,
    domains: DomainsOption = None,
    kill_domain: Annotated[
        str | None,
        typer.Option(help="Kill all nodes of a failure domain: rack-1, rack-2 and so on."),
    ] = None,
    placement: PlacementOption = EVEN,
    strategy: StrategyOption = "incremental",
    seed: Annotated[int, typer.Option(help="Picks priorities and victims.")] = 1,
    return_every: Annotated[
        float, typer.Option(help="Seconds between the returns of two nodes.")
    ] = 6.0,
    rows_per_second: RateOption = None,
    buffering: BufferingOption = "always",
    ordering: OrderingOption = "always",
    engine: EngineOption = "pipeline",
    kill_coordinator: Annotated[
        bool, typer.Option(help="Kill the coordinator, too, in the middle of the recovery.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="A new directory for the report; else it is kept only on failure."),
    ] = None,
) -> None:
    """Kill nodes under a running pipeline and report how its queries come back.

    Example: rekindle demo --nodes 10 --kill 8 --report out
    """
    options.check_choice("--engine", engine, ENGINES)
    parts = _parts(domains, nodes)
    killed = _killed(kill, kill_domain, nodes, parts)
    rate = DOMAIN_ROWS_PER_SECOND if kill_domain and rows_per_second is None else rows_per_second
    from rekindle_local.demo import performance
    from rekindle_local.demo.scenario import Options

    wanted = Options(
        nodes=nodes,
        kill=killed,
        domains=parts,
        kill_domain=kill_domain,
        placement=placement,
        strategy=strategy,
        seed=seed,
        return_every_seconds=return_every,
        rows_per_second=rate,
        buffering=buffering,
        ordering=ordering,
        kill_coordinator=kill_coordinator,
    )
    _check(wanted, engine)
    perform = performance.perform if engine == "pipeline" else partial(_perform_peer, engine)
    with options.report_directory(report) as directory:
        result = perform(wanted, directory)
        performance.summarise(result, report)
        _check_rows(result)


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
        (killed,) = failures.demo(nodes, kill).kills
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
    options.check_choice("--kill-domain", kill_domain, names)
    return 0


def _check(wanted: "Options", engine: str) -> None:
    if engine != "pipeline":
        _check_peer(wanted, engine)
    options.check_choice("--strategy", wanted.strategy, options.STRATEGIES)
    options.check_choice("--placement", wanted.placement, (EVEN, DOMAINS))
    options.check_choice("--buffering", wanted.buffering, MODES)
    options.check_choice("--ordering", wanted.ordering, MODES)
    if (wanted.buffering, wanted.ordering) == ("always", "adaptive"):
        raise InputError(
            where="--ordering",
            what="is adaptive, but --buffering is always",
            remedy="use always: repeats must be identical",
        )
    options.check_range("--return-every", wanted.return_every_seconds, 0.1, 600)
    options.check_range("--seed", wanted.seed, 0, options.SEED_MAX)
    if wanted.rows_per_second is not None:
        options.check_range("--rows-per-second", wanted.rows_per_second, 1, 10**9)


def _check_peer(wanted: "Options", engine: str) -> None:
    """What only Rekindle has, or is asked of its plans, is not to be asked of another engine."""
    given = {
        "--kill-domain": wanted.kill_domain is not None,
        "--placement": wanted.placement != EVEN,
        "--strategy": wanted.strategy != "incremental",
        "--kill-coordinator": wanted.kill_coordinator,
    }
    for option, is_given in given.items():
        if is_given:
            raise InputError(
                where=option,
                what=f"means nothing with --engine {engine}",
                remedy="leave it out",
            )


def _perform_peer(engine: str, wanted: "Options", directory: Path) -> dict[str, Any]:
    """The same failure of another engine, at a rate that it has to sustain."""
    from rekindle_local.cluster import Node
    from rekindle_local.peers import performance as peers
    from rekindle_local.peers.scenario import Trial

    names = [Node(index).name for index in range(wanted.nodes)]
    trial = Trial(
        wanted.rows_per_second or PEER_ROWS_PER_SECOND,
        failures.drawn(names, (wanted.kill,), wanted.seed),
        nodes=wanted.nodes,
        cpu_quota=wanted.cpu_quota,
        seed=wanted.seed,
        return_every_seconds=wanted.return_every_seconds,
    )
    outcome = peers.perform(engine, trial, directory, trial.display().show)
    if outcome.report is None:
        raise RunError(
            where="demo",
            what=f"lag grows at {trial.rows_per_second:,.0f} rows a second before any failure",
            remedy="give a lower --rows-per-second",
        )
    return outcome.report


def _check_rows(result: dict[str, Any]) -> None:
    counts = result["exactly_once"]
    bad = {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]}
    if bad:
        raise RunError(
            where="output rows",
            what=", ".join(f"{name}: {count}" for name, count in bad.items()),
            remedy="keep the report and file a bug",
        )
