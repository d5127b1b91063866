"""Checks the request of `rekindle run --local`, and finds the package that can do it.

The local cluster is a package beside this one that is found by an entry point, for nothing of the
product imports it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_cli import cli_options
from rekindle_cli.run_view import RunDisplay

# The group of entry points in which a cluster for `rekindle run` is found.
GROUP = "rekindle.clusters"
NODES_MAX = 50


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A pipeline, as `rekindle run` names it, on `nodes` nodes of this machine.

    `kill` nodes die `kill_after_seconds` after all queries run; None: nothing is killed. `conf` are
    options of Spark that go beside the cluster's own. `console` asks for the coordinator's web
    console.
    """

    pipeline: str
    store: str
    nodes: int
    settings: Path | None
    conf: Mapping[str, str]
    kill_after_seconds: float | None
    kill: int
    console: bool = False


Perform = Callable[[LocalRequest, RunDisplay], None]


def make(
    pipeline: str,
    *,
    store: str | None,
    nodes: int,
    settings: Path | None,
    conf: Mapping[str, str],
    kill_after: str | None,
    kill: int | None,
    console: bool = False,
) -> LocalRequest:
    """Check what belongs to a local cluster. Raises `InputError` with option and remedy."""
    cli_options.check_range("--local", nodes, 1, NODES_MAX)
    if kill is not None and kill_after is None:
        raise InputError(
            where="--kill",
            what="is given without --kill-after",
            remedy="say when: --kill-after 30s",
        )
    if kill_after is not None and nodes == 1:
        raise InputError(
            where="--kill-after",
            what="would kill the only node of --local 1",
            remedy="give --local 2 or more: a node has to survive",
        )
    killed = max(1, nodes // 2) if kill is None else kill
    kill_after_seconds = None
    if kill_after is not None:
        from rekindle_cli.coordination_access import seconds  # slow to import

        cli_options.check_kill(killed, nodes)
        kill_after_seconds = seconds(kill_after, "--kill-after")
    return LocalRequest(
        pipeline=pipeline,
        store=store or f"{Path(pipeline.partition(':')[0]).stem}-store",
        nodes=nodes,
        settings=settings,
        conf=conf,
        kill_after_seconds=kill_after_seconds,
        kill=killed,
        console=console,
    )


def performer() -> Perform:
    """Find what runs a pipeline on this machine. Raises `InputError` where it is not installed."""
    for entry in metadata.entry_points(group=GROUP, name="local"):
        found: Perform = entry.load()
        return found
    raise InputError(
        where="--local",
        what="needs the local cluster, which is not installed",
        remedy="install rekindle[local], or run `make setup` in a clone",
    )
